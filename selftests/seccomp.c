// SPDX-License-Identifier: GPL-2.0
/*
 * System call filters and tracers do not see the system calls of the probes'
 * trampolines: they are the kernel's, not the program's.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

__attribute__((noinline, noclone)) long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

#define CALLS 20

static long forbidden_call;

static const char *const some[] = {
	"nop", ARCH_SITE_PUSH, "ret", "add", ARCH_SITE_CALL,
#ifdef ARCH_SITE_OPTIMISED
	ARCH_SITE_OPTIMISED,
#endif
};
#define NR_SOME ((int)(sizeof(some) / sizeof(some[0])))

/* Only write() and exit() from now on; then calls of all kinds of probed code. */
static void confined(void)
{
	struct site_state st;
	int i, n;

	if (forbidden_call) {
		long r = syscall(forbidden_call);

		syscall(SYS_exit, r == -1 ? errno : 0);
	}
	for (n = 0; n < CALLS; n++) {
		if (target(n) != n + 1)
			syscall(SYS_exit, 1);
		for (i = 0; i < NR_SOME; i++) {
			site_random(&st, n);
			site_run(site_by_name(some[i]), &st);
		}
	}
	syscall(SYS_exit, 42);
}

static void strict(void)
{
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	confined();
}

static void allow_list(void)
{
	/* Allow exit, kill the process for all else. */
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = { 4, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(2);
	confined();
}

/* The filter answers with an errno: that must not reach a trampoline either. */
static void errno_list(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog prog = { 4, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(2);
	confined();
}

struct what {
	const char	*name;
	void		(*confine)(void);
};

static int run_confined(const void *arg)
{
	const struct what *w = arg;
	struct bpf_counter entry, ret, c[NR_SOME];
	int status, i;
	pid_t pid;

	bpf_counter_load(&entry, NULL);
	bpf_counter_load(&ret, NULL);
	multi_attach_one(&entry, loc_of(target), 0);
	multi_attach_one(&ret, loc_of(target), MULTI_RETURN);
	for (i = 0; i < NR_SOME; i++) {
		bpf_counter_load(&c[i], NULL);
		multi_attach_one(&c[i], loc_of(site_by_name(some[i])->pc), 0);
	}
	pid = MUST(fork());
	if (!pid)
		w->confine();
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%s: status %#x", w->name, status);
	CHECK_EQ(entry.values[BV_COUNT], CALLS, "calls");
	CHECK_EQ(ret.values[BV_COUNT], CALLS, "returns");
	for (i = 0; i < NR_SOME; i++)
		CHECK_EQ(c[i].values[BV_COUNT], CALLS, "hits of %s", some[i]);
	return PASS;
}

/* And the filters do work: without that the tests above would show nothing. */
static int filter_works(const void *arg)
{
	const struct what *w = arg;
	int status, fd = perf_attach(loc_of(target), PERF_RET);
	pid_t pid;

	CHECK_EQ(target(1), 2, "target()");
	CHECK_EQ(perf_count(fd), 1, "returns");
	pid = MUST(fork());
	if (!pid) {
		forbidden_call = SYS_getpid;
		w->confine();
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	if (w->confine == errno_list)
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EPERM, "status %#x", status);
	else
		CHECK(WIFSIGNALED(status) &&
		      WTERMSIG(status) == (w->confine == strict ? SIGKILL : SIGSYS),
		      "status %#x", status);
	return PASS;
}

#ifdef NR_URETPROBE
/* A trampoline's system call by hand is the program's own and filtered. */
static int forged_call(const void *arg)
{
	const struct what *w = arg;
	int status, fd = perf_attach(loc_of(target), PERF_RET);
	pid_t pid;

	CHECK_EQ(target(1), 2, "target()");
	CHECK_EQ(perf_count(fd), 1, "returns");
	pid = MUST(fork());
	if (!pid) {
		forbidden_call = NR_URETPROBE;
		w->confine();
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFSIGNALED(status), "status %#x", status);
	return PASS;
}
#endif

/*
 * strace: the tracer sees the program's system calls and no others. The child
 * makes getppid() calls around probed code.
 */
struct traced {
	const char	*name;
	const void	*addr;		/* what to probe */
	bool		ret;
};

/* The one that C may optimise, elsewhere the simplest. */
static const struct site *fast_site(void)
{
#ifdef ARCH_SITE_OPTIMISED
	return site_by_name(ARCH_SITE_OPTIMISED);
#else
	return site_by_name("nop");
#endif
}

static int stops_of(const struct traced *t, long *nrs, int max)
{
	struct site_state st;
	int status, n = 0;
	pid_t pid;

	pid = MUST(fork());
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		syscall(SYS_kill, getpid(), SIGSTOP);
		for (int i = 0; i < 5; i++) {
			syscall(SYS_getppid);
			target(i);
			site_random(&st, i);
			site_run(fast_site(), &st);
			site_run(site_by_name("ret"), &st);
		}
		syscall(SYS_exit, 42);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	MUST(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD));
	for (;;) {
		MUST(ptrace(PTRACE_SYSCALL, pid, 0, 0));
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		if (WIFEXITED(status))
			break;
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80),
		      "%s: status %#x", t->name, status);
		struct __ptrace_syscall_info info;

		memset(&info, 0, sizeof(info));
		MUST(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info));
		CHECK(n < max, "too many stops");
		nrs[n++] = info.op == PTRACE_SYSCALL_INFO_ENTRY ? (long)info.entry.nr : -1;
	}
	CHECK_EQ(WEXITSTATUS(status), 42, "child");
	return n;
}

static int traced(const void *arg)
{
	const struct traced *t = arg;
	long bare[100], probed[100];
	int n_bare, n, i, fd;

	n_bare = stops_of(t, bare, 100);
	CHECK(n_bare > 10, "stops without a probe: %d", n_bare);
	struct bpf_counter c;

	bpf_counter_load(&c, NULL);
	fd = multi_attach_one(&c, loc_of(t->addr), t->ret ? MULTI_RETURN : 0);
	n = stops_of(t, probed, 100);
	CHECK_EQ(c.values[BV_COUNT], 5, "%s: hits", t->name);
	for (i = 0; i < n && i < n_bare; i++)
		CHECK_EQ(probed[i], bare[i], "%s: system call at stop %d", t->name, i);
	CHECK_EQ(n, n_bare, "%s: stops", t->name);
	close(fd);
	return PASS;
}

int main(int argc, char **argv)
{
	static const struct what whats[] = {
		{ "strict", strict }, { "allow-list", allow_list }, { "errno list", errno_list },
	};
	static struct traced traces[] = {
		{ "return probe", target, true },
		{ "return probe on ret", NULL, true },
		{ NULL, NULL, false },
		{ "entry probe", target, false },
	};
	int i;

	traces[1].addr = site_by_name("ret")->pc;
	traces[2].addr = fast_site()->pc;
	traces[2].name = fast_site()->name;
	for (i = 0; i < 3; i++)
		add_test(NULL, run_confined, &whats[i], "seccomp %s and probes", whats[i].name);
	for (i = 0; i < 3; i++)
		add_test(NULL, filter_works, &whats[i], "seccomp %s works", whats[i].name);
#ifdef NR_URETPROBE
	for (i = 0; i < 2; i++)
		add_test(NULL, forged_call, &whats[i], "forged uretprobe call under seccomp %s",
			 whats[i].name);
#endif
	for (i = 0; i < 4; i++)
		add_test(i == 3 ? NULL : ARCH_TRAMPOLINE_FAULT, traced, &traces[i],
			 "system calls seen by a tracer, %s", traces[i].name);
	return run_tests(argc, argv);
}
