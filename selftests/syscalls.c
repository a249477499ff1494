// SPDX-License-Identifier: GPL-2.0
/*
 * The probes' page and, where trampolines enter by them, the system calls uretprobe
 * and uprobe: all that is for the kernel's trampolines only.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

__attribute__((noinline, noclone)) long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

static int status_of(void (*fn)(void))
{
	pid_t pid = MUST(fork());
	int status;

	if (!pid) {
		fn();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	return status;
}

#ifdef NR_URETPROBE
static void forge_uretprobe(void)
{
	syscall(NR_URETPROBE);
}

static int uretprobe_unprobed(const void *arg)
{
	int status = status_of(forge_uretprobe);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL, "status %#x", status);
	return PASS;
}

/* With a trampoline in the process, but called from elsewhere. */
static int uretprobe_probed(const void *arg)
{
	int fd = perf_attach(loc_of(target), PERF_RET), status;

	CHECK_EQ(target(1), 2, "target()");
	CHECK_EQ(perf_count(fd), 1, "returns");
	status = status_of(forge_uretprobe);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL, "status %#x", status);
	CHECK_EQ(target(1), 2, "target() after the forgery in a child");
	return PASS;
}
#endif

static unsigned long uprobes_page(void)
{
	unsigned long start, end, found = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "[uprobes]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			found = start;
	if (f)
		fclose(f);
	return found;
}

/* Jumps into the trampoline although no return is pending. */
static void jump_to_trampoline(void)
{
	unsigned long at = uprobes_page();

	if (at)
		((void (*)(void))at)();
	_exit(99);
}

static int trampoline_forged(const void *arg)
{
	int fd = perf_attach(loc_of(target), PERF_RET), status;

	CHECK_EQ(target(1), 2, "target()");
	CHECK_EQ(perf_count(fd), 1, "returns");
	if (!uprobes_page())
		return skip("no [uprobes] mapping to jump to");
	status = status_of(jump_to_trampoline);
	/* The child's area was not copied: no return is pending at its fork. */
	CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 99, "status %#x", status);
	if (WIFSIGNALED(status))
		CHECK(WTERMSIG(status) == SIGILL || WTERMSIG(status) == SIGSEGV,
		      "signal %d", WTERMSIG(status));
	/* And here, where the page exists. */
	return PASS;
}

static void jump_in_own_mm(void)
{
	perf_attach(loc_of(target), PERF_RET);
	if (target(1) != 2)
		_exit(98);
	jump_to_trampoline();
}

static int trampoline_forged_probed(const void *arg)
{
	int status = status_of(jump_in_own_mm);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL, "status %#x", status);
	return PASS;
}

#ifdef NR_UPROBE
static int uprobe_forged(const void *arg)
{
	long r, i;
	int fd;

	for (i = 0; i < 2; i++) {
		errno = 0;
		r = syscall(NR_UPROBE);
		CHECK_EQ(r, -1, "forged uprobe system call");
		CHECK_EQ(errno, EPROTO, "errno");
		/* Once more with probes in the process. */
		fd = perf_attach(loc_of(site_by_name(ARCH_SITE_OPTIMISED)->pc), 0);
		struct site_state st;

		site_random(&st, 1);
		site_run(site_by_name(ARCH_SITE_OPTIMISED), &st);
		site_run(site_by_name(ARCH_SITE_OPTIMISED), &st);
		CHECK_EQ(perf_count(fd), 2, "hits");
		if (i)
			close(fd);
	}
	return PASS;
}
#endif

/* The program can neither write to nor unprotect the probes' page. */
static int area_not_writable(const void *arg)
{
	int fd = perf_attach(loc_of(target), PERF_RET), fd2;
	unsigned long at;
	struct site_state st;

	fd2 = perf_attach(loc_of(site_by_name("add")->pc), 0);
	site_random(&st, 1);
	site_run(site_by_name("add"), &st);
	CHECK_EQ(target(1), 2, "target()");
	CHECK_EQ(perf_count(fd) + perf_count(fd2), 2, "hits");
	at = uprobes_page();
	CHECK(at, "no [uprobes] mapping");
	CHECK(mprotect((void *)at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == -1,
	      "the page of the probes can be made writable");
	CHECK(mremap((void *)at, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED,
		     (void *)(at - (1UL << 30))) == MAP_FAILED, "the page of the probes can be moved");
	CHECK_EQ(target(1), 2, "target() after all that");
	CHECK_EQ(perf_count(fd), 2, "returns");
	return PASS;
}

/* A program that unmaps the page harms itself at most. */
static void unmap_area(void)
{
	struct site_state st;
	unsigned long at;

	perf_attach(loc_of(site_by_name("add")->pc), 0);
	site_random(&st, 1);
	site_run(site_by_name("add"), &st);
	at = uprobes_page();
	if (!at)
		_exit(42);
	if (munmap((void *)at, 4096))
		_exit(42);
	site_run(site_by_name("add"), &st);
	_exit(42);
}

static int area_unmapped(const void *arg)
{
	int status = status_of(unmap_area);

	CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 42) ||
	      (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL), "status %#x", status);
	return PASS;
}

#ifdef UC_TRAPNO
/*
 * A handler that interrupts a probed system call sees what it would see without: nothing
 * of the step.
 */
extern const char call_pause[], pause_insn[];
asm(".pushsection .text\n" PAUSE_ASM ".popsection");

static volatile long seen_trapno, seen_ip;

static void on_alarm(int sig, siginfo_t *si, void *ctx)
{
	seen_trapno = UC_TRAPNO((ucontext_t *)ctx);
	seen_ip = UC_IP((ucontext_t *)ctx);
}

static int interrupted_call(const void *arg)
{
	struct sigaction sa = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO };
	struct itimerval soon = { .it_value = { 0, 50000 } };
	long (*fn)(void) = (void *)call_pause;
	long bare_ip = 0;
	struct bpf_counter c;
	int i;

	MUST(sigaction(SIGALRM, &sa, NULL));
	bpf_counter_load(&c, NULL);
	for (i = 0; i < 5; i++) {
		if (i == 1)
			multi_attach_one(&c, loc_of(pause_insn), 0);
		seen_trapno = seen_ip = -1;
		MUST(setitimer(ITIMER_REAL, &soon, NULL));
		CHECK_EQ(fn(), -EINTR, "pause()");
		CHECK(seen_trapno >= 0 && seen_trapno < ARCH_EXCEPTIONS, "trap number %#lx, %d probes",
		      seen_trapno, !!i);
		if (!i)
			bare_ip = seen_ip;
		CHECK_EQ(seen_ip, bare_ip, "pc");
		CHECK_EQ(c.values[BV_COUNT], i, "hits");
	}
	return PASS;
}
#endif

int main(int argc, char **argv)
{
#ifdef NR_URETPROBE
	add_test(NULL, uretprobe_unprobed, NULL, "forged uretprobe call, process without probes");
	add_test(NULL, uretprobe_probed, NULL, "forged uretprobe call, process with a return probe");
#endif
	add_test(NULL, trampoline_forged, NULL, "jump to the parent's trampoline");
	add_test(NULL, trampoline_forged_probed, NULL, "jump to the trampoline, no return pending");
#ifdef NR_UPROBE
	add_test(NULL, uprobe_forged, NULL, "forged uprobe call");
#endif
	add_test(NULL, area_not_writable, NULL, "the page of the probes stays as it is");
	add_test(NULL, area_unmapped, NULL, "program unmaps the page of the probes");
#ifdef UC_TRAPNO
	/* On C the call is never interrupted. */
	set_timeout(10);
	add_test("F.2", interrupted_call, NULL, "signal in a probed system call");
#endif
	return run_tests(argc, argv);
}
