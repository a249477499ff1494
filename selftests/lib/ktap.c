// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"

struct test {
	char		*name;
	test_fn		fn;
	const void	*arg;
	const char	*fault;
	int		secs;
};

/* What a test's child tells the harness. */
struct shared {
	unsigned long	checks;
	char		reason[256];
};

static struct test *tests;
static int nr_tests;
static int timeout_secs = 60;
static struct shared *shared;

void note_check(void)
{
	__atomic_add_fetch(&shared->checks, 1, __ATOMIC_RELAXED);
}

void ktap_standalone(void)
{
	static struct shared own;

	shared = &own;
}

void set_timeout(int secs)
{
	timeout_secs = secs;
}

/* Debug kernels take their time: UPT_SLOW=n makes all limits n times as long. */
static int slowness(void)
{
	const char *s = getenv("UPT_SLOW");

	return s && atoi(s) > 0 ? atoi(s) : 1;
}

void add_test(const char *fault, test_fn fn, const void *arg, const char *fmt, ...)
{
	struct test *t;
	va_list ap;

	tests = realloc(tests, (nr_tests + 1) * sizeof(*tests));
	if (!tests)
		abort();
	t = &tests[nr_tests++];
	*t = (struct test){ .fn = fn, .arg = arg, .fault = fault, .secs = timeout_secs * slowness() };
	va_start(ap, fmt);
	if (vasprintf(&t->name, fmt, ap) < 0)
		abort();
	va_end(ap);
}

void diag(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	/* One write(2) a line: children and threads must not mix their lines. */
	n = snprintf(line, sizeof(line), "    # ");
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(1, line, n) < 0)
		return;
}

int skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(shared->reason, sizeof(shared->reason), fmt, ap);
	va_end(ap);
	return SKIPPED;
}

bool full_run(void)
{
	const char *s = getenv("UPT_FULL");

	return s && *s == '1';
}

static bool file_contains(const char *path, const char *word)
{
	char line[512];
	bool found = false;
	FILE *f = fopen(path, "r");

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, word);
	fclose(f);
	return found;
}

/*
 * The Rust implementation says so in debugfs; where debugfs is not mounted its
 * symbols give it away. run.sh compares this with what its caller expects.
 */
const char *impl_of_kernel(void)
{
	static const char *impl;

	if (!impl) {
		bool rust = file_contains("/sys/kernel/debug/uprobes/implementation", "rust") ||
			    file_contains("/proc/kallsyms", "uprobes_rs");

		impl = rust ? "rust" : "c";
	}
	return impl;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* Returns the wait status, or -1 when the time was up. */
static int wait_limited(pid_t pid, int secs)
{
	double end = now() + secs;
	int status;

	for (;;) {
		pid_t r = waitpid(pid, &status, WNOHANG);

		if (r == pid)
			return status;
		if (now() > end)
			return -1;
		usleep(2000);
	}
}

static bool run_one(const struct test *t, int nr)
{
	bool xfail_here = t->fault && !strcmp(impl_of_kernel(), "c");
	const char *why = "";
	char buf[64];
	bool ok;
	int st;
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		st = t->fn(t->arg);
		fflush(NULL);
		_exit(st);
	}
	st = wait_limited(pid, t->secs);
	/* Whatever the test left running is part of it and ends with it. */
	kill(-pid, SIGKILL);
	if (st == -1) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	/* Orphans of the test come to us, see PR_SET_CHILD_SUBREAPER. */
	while (waitpid(-1, NULL, 0) > 0)
		;

	ok = st != -1 && WIFEXITED(st) && WEXITSTATUS(st) == PASS;
	if (st == -1) {
		snprintf(buf, sizeof(buf), "timed out after %d s", t->secs);
		why = buf;
	} else if (WIFSIGNALED(st)) {
		snprintf(buf, sizeof(buf), "killed by signal %d", WTERMSIG(st));
		why = buf;
	} else if (WEXITSTATUS(st) == SKIPPED) {
		printf("  ok %d %s # SKIP %s\n", nr, t->name, shared->reason);
		return true;
	} else if (ok && !shared->checks) {
		ok = false;
		why = "the test checked nothing";
	}

	if (*why)
		printf("    # %s: %s\n", t->name, why);
	if (xfail_here && !ok) {
		printf("  ok %d %s # XFAIL C: %s\n", nr, t->name, t->fault);
		return true;
	}
	if (xfail_here)
		printf("    # %s: passes on C although %s is expected to break it\n",
		       t->name, t->fault);
	printf("  %sok %d %s\n", ok ? "" : "not ", nr, t->name);
	return ok;
}

int run_tests(int argc, char **argv)
{
	const char *base = strrchr(argv[0], '/');
	const char *filter = getenv("UPT_FILTER");
	int i, nr = 0, failed = 0;

	base = base ? base + 1 : argv[0];
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;

	/* The filter is a part of "program.test"; drop what does not match. */
	for (i = 0; i < nr_tests; i++) {
		char full[512];

		snprintf(full, sizeof(full), "%s.%s", base, tests[i].name);
		if (!filter || strstr(full, filter))
			tests[nr++] = tests[i];
	}
	if (argc > 1 && !strcmp(argv[1], "--list")) {
		for (i = 0; i < nr; i++)
			printf("%s.%s\n", base, tests[i].name);
		return 0;
	}

	printf("  KTAP version 1\n  1..%d\n", nr);
	for (i = 0; i < nr; i++) {
		failed += !run_one(&tests[i], i + 1);
		fflush(stdout);
	}
	return failed ? 1 : 0;
}
