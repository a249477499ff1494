// SPDX-License-Identifier: GPL-2.0
/*
 * A debugger and a probe on the same program: single-stepping, breakpoints,
 * hardware breakpoints and watchpoints at and around a probe.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <elf.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"
#include "arch/asm.h"

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

static struct user_regs_struct get_regs(pid_t pid)
{
	struct user_regs_struct regs;
	struct iovec iov = { &regs, sizeof(regs) };

	MUST(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &iov));
	return regs;
}

static void set_regs(pid_t pid, struct user_regs_struct *regs)
{
	struct iovec iov = { regs, sizeof(*regs) };

	MUST(ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &iov));
}

/* Where a stepped site returns to. */
extern const char landing[];
asm(".pushsection .text\n.globl landing\nlanding:\n" LANDING_ASM ".popsection");

/*
 * A child that is stopped at the first instruction of @site. The registers are
 * set from here: stepping over a popf in the child would confuse ptrace about
 * whose trace flag it is.
 */
static pid_t start_site(const struct site *site)
{
	pid_t pid = MUST(fork());
	struct user_regs_struct regs;
	struct site_state st;
	int status;

	site_random(&st, 1);
	if (!pid) {
		memcpy(site_data, st.data, sizeof(st.data));
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		syscall(SYS_kill, getpid(), SIGSTOP);
		_exit(1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "child: status %#x", status);

	regs = get_regs(pid);
	arch_enter(pid, &regs, site->fn, &st.regs, landing);
	set_regs(pid, &regs);
	return pid;
}

#define MAX_STEPS 256

struct steps {
	int		n;
	unsigned long	pc[MAX_STEPS];
	int		code[MAX_STEPS];	/* si_code */
};

static bool in_program(unsigned long pc)
{
	extern const char __executable_start[], etext[];

	return pc >= (unsigned long)__executable_start && pc < (unsigned long)etext;
}

/* The child, continued, is to end well. */
static void check_ends(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	if (WIFSTOPPED(status)) {
		struct user_regs_struct regs = get_regs(pid);

		diag("signal %d at pc %#lx", WSTOPSIG(status), (long)PT_IP(regs));
	}
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "child: status %#x", status);
}

#ifdef ARCH_HAS_SINGLESTEP
/* Steps the child through the site, notes where it stops, until it is back. */
static void step_through(pid_t pid, struct steps *s)
{
	int status;

	memset(s, 0, sizeof(*s));
	do {
		siginfo_t si;
		unsigned long pc;

		MUST(ptrace(PTRACE_SINGLESTEP, pid, 0, 0));
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP,
		      "a stop that is not a step's, status %#x", status);
		pc = PT_IP(get_regs(pid));
		MUST(ptrace(PTRACE_GETSIGINFO, pid, 0, &si));
		CHECK(s->n < MAX_STEPS, "too many steps");
		s->pc[s->n] = pc;
		s->code[s->n++] = si.si_code;
	} while (s->pc[s->n - 1] != (unsigned long)landing);
	/* Not continued: after a stepped popf it would trap once more. */
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
}

static void check_same_steps(const struct site *site, const struct steps *got,
			     const struct steps *want)
{
	int i;

	for (i = 0; i < got->n && i < want->n; i++) {
		CHECK_EQ(got->pc[i], want->pc[i], "%s: stop %d, at %#lx of the site", site->name,
			 i, got->pc[i] - (unsigned long)site->pc);
	}
	CHECK_EQ(got->n, want->n, "%s: number of stops", site->name);
}

static int singlestep(const void *arg)
{
	const struct site *site = arg;
	struct steps bare, probed;
	struct bpf_counter c;

	step_through(start_site(site), &bare);
	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(site->pc), 0);
	step_through(start_site(site), &probed);
	check_same_steps(site, &probed, &bare);
	/* A repeated instruction stops once an iteration, and is entered anew each time. */
	if (!strncmp(site->name, "rep", 3) && site->fault)
		CHECK(c.values[BV_COUNT] >= 1, "%s: no hit", site->name);
	else
		CHECK_EQ(c.values[BV_COUNT], 1, "%s: hits", site->name);
	return PASS;
}

/* Debuggers tell a step from a kill() by the siginfo. */
static int singlestep_siginfo(const void *arg)
{
	const struct site *site = arg;
	struct steps bare, probed;
	int i;

	step_through(start_site(site), &bare);
	perf_attach(loc_of(site->pc), 0);
	step_through(start_site(site), &probed);
	check_same_steps(site, &probed, &bare);
	for (i = 0; i < bare.n; i++)
		CHECK_EQ(probed.code[i], bare.code[i], "%s: si_code of stop %d", site->name, i);
	return PASS;
}

/* The trampoline is seen, but all else is as without a probe. */
static int singlestep_return(const void *arg)
{
	const struct site *site = arg;
	struct steps bare, probed, own = { 0 };
	struct bpf_counter c;
	int i;

	step_through(start_site(site), &bare);
	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(site->fn), MULTI_RETURN);
	step_through(start_site(site), &probed);
	for (i = 0; i < probed.n; i++)
		if (in_program(probed.pc[i]))
			own.pc[own.n++] = probed.pc[i];
	check_same_steps(site, &own, &bare);
	CHECK_EQ(c.values[BV_COUNT], 1, "%s: hits", site->name);
	return PASS;
}

#endif /* ARCH_HAS_SINGLESTEP */

#ifdef TRACE_SELF_ASM
/* A program that sets its own trace flag and handles the traps. */
static volatile int nr_traps;
static unsigned long trap_pc[MAX_STEPS];

static void on_trap(int sig, siginfo_t *si, void *ctx)
{
	unsigned long pc = UC_IP((ucontext_t *)ctx);

	if (nr_traps < MAX_STEPS)
		trap_pc[nr_traps++] = pc;
}

extern const char trace_self[];
asm(".pushsection .text\n.globl trace_self\ntrace_self:\n" TRACE_SELF_ASM ".popsection");

static int own_trace_flag(const void *arg)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	long (*fn)(long) = (void *)trace_self;
	unsigned long bare[MAX_STEPS];
	int i, k, n, fd;

	MUST(sigaction(SIGTRAP, &sa, NULL));
	CHECK_EQ(fn(1), 2, "bare");
	n = nr_traps;
	CHECK(n > 5, "traps: %d", n);
	memcpy(bare, trap_pc, sizeof(bare));
	/* A probe on each instruction between the two popfq in turn. */
	for (k = 0; k < n; k++) {
		if (bare[k] < (unsigned long)trace_self + TRACE_SELF_FIRST ||
		    bare[k] > (unsigned long)trace_self + TRACE_SELF_LAST)
			continue;
		fd = perf_attach(loc_of((void *)bare[k]), 0);
		nr_traps = 0;
		CHECK_EQ(fn(1), 2, "probed at +%ld", bare[k] - (long)trace_self);
		CHECK_EQ(perf_count(fd), 1, "hits");
		for (i = 0; i < n && i < nr_traps; i++)
			CHECK_EQ(trap_pc[i], bare[i], "probed at +%ld, trap %d",
				 bare[k] - (long)trace_self, i);
		CHECK_EQ(nr_traps, n, "traps, probed at +%ld", bare[k] - (long)trace_self);
		close(fd);
	}
	return PASS;
}
#endif

/*
 * Breakpoints as gdb sets them: keep the byte that is there, write a trap; at a
 * stop put the byte back, step, write the trap again.
 */
struct breakpoint {
	pid_t	pid;
	long	addr;
	long	saved;
};

static long peek(pid_t pid, long addr)
{
	long word;

	errno = 0;
	word = ptrace(PTRACE_PEEKTEXT, pid, addr, 0);
	CHECK(!errno, "PTRACE_PEEKTEXT");
	return word;
}

static void poke(const struct breakpoint *b, const void *bytes)
{
	long word = peek(b->pid, b->addr);

	memcpy(&word, bytes, ARCH_BREAKPOINT_LEN);
	MUST(ptrace(PTRACE_POKETEXT, b->pid, b->addr, word));
}

static void bp_set(struct breakpoint *b, pid_t pid, const void *addr)
{
	b->pid = pid;
	b->addr = (long)addr;
	b->saved = peek(pid, b->addr);
	poke(b, ARCH_BREAKPOINT);
}

static void bp_remove(struct breakpoint *b)
{
	poke(b, &b->saved);
}

/* A child that calls target() whenever it is continued from its SIGSTOP. */
static pid_t start_caller(void)
{
	pid_t pid = MUST(fork());
	int status;
	long n = 0;

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		for (;;) {
			syscall(SYS_kill, getpid(), SIGSTOP);
			if (target(n) != n + 1)
				_exit(1);
			n++;
		}
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "child: status %#x", status);
	return pid;
}

static int wait_stop(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFSTOPPED(status), "the child ended: status %#x", status);
	return WSTOPSIG(status);
}

/*
 * From @addr, whose instruction is no branch, to the next one. Where the CPU cannot
 * single-step, debuggers do it by another breakpoint.
 */
static void step_over(pid_t pid, long addr)
{
#ifdef ARCH_HAS_SINGLESTEP
	MUST(ptrace(PTRACE_SINGLESTEP, pid, 0, 0));
	CHECK_EQ(wait_stop(pid), SIGTRAP, "step over the breakpoint");
	CHECK(PT_IP(get_regs(pid)) != (unsigned long)addr, "the step did not move");
#else
	struct breakpoint next;

	bp_set(&next, pid, (void *)(addr + arch_insn_len((void *)addr)));
	MUST(ptrace(PTRACE_CONT, pid, 0, 0));
	CHECK_EQ(wait_stop(pid), SIGTRAP, "step over the breakpoint");
	CHECK_EQ(PT_IP(get_regs(pid)), next.addr, "pc after the step");
	bp_remove(&next);
#endif
}

/*
 * Lets the child make one call of target(); returns how often it stopped at the
 * breakpoint meanwhile (@b may be NULL: none is set).
 */
static int one_call(pid_t pid, struct breakpoint *b)
{
	int stops = 0, sig;

	MUST(ptrace(PTRACE_CONT, pid, 0, 0));
	while ((sig = wait_stop(pid)) != SIGSTOP) {
		struct user_regs_struct regs = get_regs(pid);

		CHECK_EQ(sig, SIGTRAP, "signal of the child, pc %#lx", (long)PT_IP(regs));
		CHECK(b, "a trap, but no breakpoint is set");
		CHECK_EQ(PT_IP(regs), b->addr + (ARCH_TRAP_PC_AFTER ? ARCH_BREAKPOINT_LEN : 0),
			 "pc at the breakpoint");
		CHECK(++stops < 10, "too many stops");
		PT_IP(regs) = b->addr;
		set_regs(pid, &regs);
		poke(b, &b->saved);
		step_over(pid, b->addr);
		poke(b, ARCH_BREAKPOINT);
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
	}
	return stops;
}

/* Who comes and goes first. */
#define PROBE_FIRST		1
#define PROBE_LEAVES_FIRST	2

static int breakpoint_at_probe(const void *arg)
{
	long order = (long)arg;
	pid_t pid = start_caller();
	struct perf_probe p = { .loc = loc_of(target), .pid = pid, .cpu = -1 };
	struct breakpoint b;
	int fd = -1, i;

	CHECK_EQ(one_call(pid, NULL), 0, "stops before all");
	if (order & PROBE_FIRST)
		fd = MUST(perf_open(&p));
	bp_set(&b, pid, target);
	if (!(order & PROBE_FIRST)) {
		CHECK_EQ(one_call(pid, &b), 1, "stops, no probe yet");
		fd = MUST(perf_open(&p));
	}
	for (i = 1; i <= 5; i++) {
		CHECK_EQ(one_call(pid, &b), 1, "stops in call %d", i);
		CHECK_EQ(perf_count(fd), i, "hits in call %d", i);
	}
	if (order & PROBE_LEAVES_FIRST) {
		close(fd);
		for (i = 1; i <= 3; i++)
			CHECK_EQ(one_call(pid, &b), 1, "stops after the probe went");
		bp_remove(&b);
	} else {
		bp_remove(&b);
		for (i = 1; i <= 3; i++) {
			CHECK_EQ(one_call(pid, NULL), 0, "stops after the breakpoint went");
			CHECK_EQ(perf_count(fd), 5 + i, "hits after the breakpoint went");
		}
		close(fd);
	}
	CHECK_EQ(one_call(pid, NULL), 0, "stops at the end");
	CHECK_EQ(peek(pid, (long)target) & 0xff, *(unsigned char *)target, "text at the end");
	return PASS;
}

/* A breakpoint on the instruction after (or before) the probed one. */
static int breakpoint_beside(const void *arg)
{
	const struct site *site = arg;
	struct steps steps = { 0 };
	struct breakpoint b;
	struct user_regs_struct regs;
	pid_t pid;
	int fd, i;

#ifdef ARCH_HAS_SINGLESTEP
	step_through(start_site(site), &steps);
#else
	steps.pc[steps.n++] = (unsigned long)site->fn;
	if (strcmp(site->name, "ret") && strcmp(site->name, ARCH_SITE_CALL))
		steps.pc[steps.n++] = (unsigned long)site->pc + arch_insn_len(site->pc);
	steps.pc[steps.n++] = (unsigned long)landing;
#endif
	for (i = 0; i < steps.n; i++) {
		struct perf_probe p = { .loc = loc_of(site->pc), .cpu = -1 };
		if (steps.pc[i] == (unsigned long)site->pc)
			continue;
		pid = start_site(site);
		p.pid = pid;
		fd = MUST(perf_open(&p));
		bp_set(&b, pid, (void *)steps.pc[i]);
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
		CHECK_EQ(wait_stop(pid), SIGTRAP, "%s: stop at step %d", site->name, i);
		regs = get_regs(pid);
		CHECK_EQ(PT_IP(regs), b.addr + (ARCH_TRAP_PC_AFTER ? ARCH_BREAKPOINT_LEN : 0),
			 "%s: pc at step %d", site->name, i);
		bp_remove(&b);
		PT_IP(regs) = b.addr;
		set_regs(pid, &regs);
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
		check_ends(pid);
		CHECK_EQ(perf_count(fd), 1, "%s: hits, breakpoint at step %d", site->name, i);
		close(fd);
	}
	return PASS;
}

/* Hardware breakpoints and watchpoints, counted by perf. */
static int hw_event(const void *addr, int type, int len)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = type,
		.bp_addr = (unsigned long)addr,
		.bp_len = len,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

#define HW_RUNS 20

static void run_site(const struct site *site)
{
	struct site_state st;
	int i;

	/* Not site_run(), which itself writes to site_data. */
	for (i = 0; i < HW_RUNS; i++) {
		site_random(&st, i);
		site_call(site->fn, &st.regs);
	}
}

static int hw_breakpoint(const void *arg)
{
	const struct site *site = arg;
	int hw = hw_event(site->pc, HW_BREAKPOINT_X, ARCH_HW_BREAKPOINT_LEN), fd, bare;

	if (hw < 0)
		return skip("no hardware breakpoints here");
	run_site(site);
	bare = perf_count(hw);
	if (bare != HW_RUNS)
		return skip("hardware breakpoint without a probe: %d of %d", bare, HW_RUNS);
	fd = perf_attach(loc_of(site->pc), 0);
	run_site(site);
	CHECK_EQ(perf_count(fd), HW_RUNS, "%s: hits of the probe", site->name);
	CHECK_EQ(perf_count(hw), 2 * HW_RUNS, "%s: hits of the hardware breakpoint", site->name);
	close(fd);
	run_site(site);
	CHECK_EQ(perf_count(hw), 3 * HW_RUNS, "%s: ... after the detach", site->name);
	return PASS;
}

/*
 * QEMU 7.2 without KVM: the whole guest hangs when a store to a watched address
 * is single-stepped, be it by a probe, a debugger or the program itself.
 */
static bool stepped_watchpoints_hang(void)
{
	char line[256];
	bool tcg = false;
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && !tcg && fgets(line, sizeof(line), f))
		tcg = strstr(line, "QEMU TCG CPU");
	if (f)
		fclose(f);
	return tcg && !getenv("UPT_WATCHPOINTS");
}

static int hw_watchpoint(const void *arg)
{
	const struct site *site = arg;
	int hw, fd, bare;

	if (stepped_watchpoints_hang())
		return skip("stepping a watched store hangs QEMU's TCG; UPT_WATCHPOINTS=1 tries it");
	hw = hw_event(site_data, HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8);
	if (hw < 0)
		return skip("no hardware watchpoints here");
	run_site(site);
	bare = perf_count(hw);
	if (bare != HW_RUNS)
		return skip("hardware watchpoint without a probe: %d of %d", bare, HW_RUNS);
	fd = perf_attach(loc_of(site->pc), 0);
	run_site(site);
	CHECK_EQ(perf_count(fd), HW_RUNS, "%s: hits of the probe", site->name);
	CHECK_EQ(perf_count(hw), 2 * bare, "%s: hits of the watchpoint", site->name);
	return PASS;
}

/* The store is beside the probe. */
extern const char watch_fn[], watch_before[], watch_after[];
asm(".pushsection .text.sites, \"ax\", @progbits\n" WATCH_ASM ".popsection");

static int watchpoint_beside(const void *arg)
{
	int hw = hw_event(site_data, HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8), i;
	struct cpu_regs regs = { .flags = ARCH_FLAGS_FIXED };
	struct bpf_counter c;

	if (hw < 0)
		return skip("no hardware watchpoints here");
	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(arg), 0);
	multi_attach_one(&c, loc_of(watch_fn), MULTI_RETURN);
	for (i = 1; i <= HW_RUNS; i++) {
		regs.gpr[WATCH_IN] = i;
		site_call(watch_fn, &regs);
		CHECK_EQ(regs.gpr[WATCH_OUT], i + 1, "result");
		CHECK_EQ(perf_count(hw), i, "hits of the watchpoint");
		CHECK_EQ(c.values[BV_COUNT], 2 * i, "hits of the probes");
	}
	return PASS;
}

/* A debugger's watchpoint: where does the program stop? */
static int watchpoint_stop(const void *arg)
{
	const struct site *site = arg;
	struct bpf_counter c;
	unsigned long pc[2];
	int i;

	if (stepped_watchpoints_hang())
		return skip("stepping a watched store hangs QEMU's TCG; UPT_WATCHPOINTS=1 tries it");

	for (i = 0; i < 2; i++) {
		pid_t pid;

		if (i) {
			bpf_counter_load(&c, NULL);
			multi_attach_one(&c, loc_of(site->pc), 0);
		}
		pid = start_site(site);
		if (arch_watch(pid, site_data))
			return skip("no debug registers here");
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
		CHECK_EQ(wait_stop(pid), SIGTRAP, "%s: stop at the watchpoint", site->name);
		pc[i] = PT_IP(get_regs(pid));
		MUST(arch_watch(pid, NULL));
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
		check_ends(pid);
	}
	CHECK_EQ(c.values[BV_COUNT], 1, "%s: hits", site->name);
	CHECK_EQ(pc[1], pc[0], "%s: pc at the stop", site->name);
	return PASS;
}

/* Stopped and continued at random points, in the middle of steps as well. */
static int interrupted(const void *arg)
{
	const struct site *site = arg;
	struct bpf_counter c;
	volatile uint64_t *runs;
	struct site_state st;
	int i, status;
	pid_t pid;

	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(site->pc), 0);
	runs = c.values + 40;		/* memory that child and parent share */
	pid = MUST(fork());
	if (!pid) {
		for (;;) {
			site_random(&st, 0);
			site_run(site, &st);
			++*runs;
			if (c.values[41])
				_exit(0);
		}
	}
	MUST(ptrace(PTRACE_SEIZE, pid, 0, 0));
	for (i = 0; i < 300; i++) {
		unsigned long pc;

		usleep(i % 7 * 100);
		MUST(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
		wait_stop(pid);
		pc = PT_IP(get_regs(pid));
		CHECK(in_program(pc), "%s: stopped at %#lx, outside the program", site->name, pc);
		MUST(ptrace(PTRACE_CONT, pid, 0, 0));
	}
	c.values[41] = 1;
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "child: status %#x", status);
	CHECK(*runs > 100, "runs: %lld", (long long)*runs);
	CHECK_EQ(c.values[BV_COUNT], *runs, "%s: hits", site->name);
	return PASS;
}

/*
 * Programs that write to their own memory as a debugger does. The file has a function
 * that can be probed at its start, and zeroes.
 */
static const char *make_file(unsigned long size)
{
	const char *path = tmp_path("code");
	int fd = MUST(open(path, O_RDWR | O_CREAT, 0755));

	CHECK(write(fd, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED)) > 0, "write");
	MUST(ftruncate(fd, size));
	close(fd);
	return path;
}

static char *map_file(const char *path, unsigned long size, int prot)
{
	int fd = MUST(open(path, O_RDONLY | O_CLOEXEC));
	char *p = mmap(NULL, size, prot, MAP_PRIVATE, fd, 0);

	CHECK(p != MAP_FAILED, "mmap: errno %d", errno);
	close(fd);
	return p;
}

static void write_as_debugger(char *to, const void *from, long len)
{
	static int mem = -1;

	if (mem < 0)
		mem = MUST(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
	CHECK_EQ(pwrite(mem, from, len, (long)to), len, "write to /proc/self/mem");
}

#define FLOOD 160000UL

/* Breakpoints all over a mapping: the program can make them, the kernel notes few. */
static int breakpoint_flood(const void *arg)
{
	/* kmemleak needs much more for an object than the object. */
	long limit = access("/sys/kernel/debug/kmemleak", F_OK) ? 256 : 2048, before, grown;
	char *at = map_file(make_file(FLOOD), FLOOD, PROT_READ | PROT_WRITE), word[8];
	unsigned long i;
	int status;
	pid_t pid;

	for (i = 0; i < sizeof(word); i += ARCH_BREAKPOINT_LEN)
		memcpy(word + i, ARCH_BREAKPOINT, ARCH_BREAKPOINT_LEN);
	/* What the mapping itself costs is no part of it. */
	memset(at, 0, FLOOD);
	write_as_debugger(at, word, sizeof(word));
	before = slab_kb();
	for (i = sizeof(word); i < FLOOD; i += sizeof(word)) {
		write_as_debugger(at + i, word, sizeof(word));
		if (i % 32000)
			continue;
		grown = slab_kb() - before;
		CHECK(grown < limit, "the kernel's memory grew by %ld KiB, %lu bytes", grown, i);
	}
	for (i = 0; i < FLOOD; i += sizeof(word))
		CHECK(!memcmp(at + i, word, sizeof(word)), "what was written at %#lx", i);

	pid = MUST(fork());
	if (!pid)
		_exit(memcmp(at + FLOOD - sizeof(word), word, sizeof(word)) ? 1 : 42);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
	grown = slab_kb() - before;
	CHECK(grown < limit, "the kernel's memory grew by %ld KiB with the fork", grown);
	return PASS;
}

/* Data that is a private copy of probed code is the program's own. */
static int writes_to_data(const void *arg)
{
	const char *path = make_file(4096);
	char *text = map_file(path, 4096, PROT_READ | PROT_EXEC), word[8];
	char *data = map_file(path, 4096, PROT_READ | PROT_WRITE);
	long (*fn)(long) = (void *)text;
	int fd = perf_attach((struct loc){ path, 0 }, 0);

	CHECK_EQ(fn(41), 42, "the probed function");
	CHECK_EQ(perf_count(fd), 1, "hits");
	CHECK(!memcmp(data, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED)), "data, unwritten");
	write_as_debugger(data, ARCH_FN_SIMULATED, ARCH_BREAKPOINT_LEN);
	CHECK(!memcmp(data, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED)), "data, first byte written");
	/* As PTRACE_POKEDATA does. */
	memcpy(word, ARCH_FN_SIMULATED "        ", sizeof(word));
	write_as_debugger(data, word, sizeof(word));
	CHECK(!memcmp(data, word, sizeof(word)), "data, first word written");
	CHECK_EQ(fn(41), 42, "the probed function after that");
	CHECK_EQ(perf_count(fd), 2, "hits after that");
	close(fd);
	CHECK(!memcmp(data, word, sizeof(word)), "data after the detach");
	return PASS;
}

int main(int argc, char **argv)
{
	static const char *const some[] = {
		"nop", ARCH_SITE_PUSH, ARCH_SITE_CALL, "ret", "add", ARCH_SITE_STORE,
	};
	int i;

#ifdef ARCH_HAS_SINGLESTEP
	for (i = 0; i < nr_sites; i++) {
		const char *fault = sites[i].fault;

		/* Wrong on C, but not under a debugger: pushf shows its flag then, too. */
		if (fault && !strcmp(fault, "F.2") && strcmp(sites[i].name, "syscall"))
			fault = NULL;
		add_test(fault ? fault : ARCH_SINGLESTEP_FAULT, singlestep, &sites[i],
			 "single-step %s", sites[i].name);
	}
	for (i = 0; i < 6; i++)
		add_test("F.5", singlestep_siginfo, site_by_name(some[i]),
			 "siginfo of a single-step, %s", some[i]);
	for (i = 0; i < nr_sites; i++)
		if (sites[i].pc == sites[i].fn && !sites[i].fault &&
		    !ARCH_IS_ONE_OF_MANY(sites[i].name))
			add_test(ARCH_SINGLESTEP_FAULT, singlestep_return, &sites[i],
				 "single-step with a return probe, %s", sites[i].name);
#endif
#ifdef TRACE_SELF_ASM
	add_test(NULL, own_trace_flag, NULL, "program with a trace flag of its own");
#endif
	add_test("F.11", breakpoint_at_probe, (void *)0L,
		 "breakpoint first, breakpoint leaves first");
	add_test("F.11", breakpoint_at_probe, (void *)PROBE_LEAVES_FIRST,
		 "breakpoint first, probe leaves first");
	add_test("F.11", breakpoint_at_probe, (void *)PROBE_FIRST,
		 "probe first, breakpoint leaves first");
	add_test("F.11", breakpoint_at_probe, (void *)(PROBE_FIRST | PROBE_LEAVES_FIRST),
		 "probe first, probe leaves first");
	for (i = 0; i < 6; i++)
		add_test(NULL, breakpoint_beside, site_by_name(some[i]),
			 "breakpoints beside the probe, %s", some[i]);
	for (i = 0; i < 6; i++)
		add_test(ARCH_HW_BREAKPOINT_FAULT(some[i]), hw_breakpoint, site_by_name(some[i]),
			 "hardware breakpoint at the probe, %s", some[i]);
	add_test(NULL, watchpoint_beside, watch_before, "watchpoint after the probe");
	add_test(NULL, watchpoint_beside, watch_after, "watchpoint before the probe");
	add_test(NULL, hw_watchpoint, site_by_name(ARCH_SITE_STORE), "watchpoint, " ARCH_SITE_STORE);
	add_test(NULL, hw_watchpoint, site_by_name(ARCH_SITE_UPDATE), "watchpoint, " ARCH_SITE_UPDATE);
	add_test(ARCH_WATCH_STOP_FAULT, watchpoint_stop, site_by_name(ARCH_SITE_STORE),
		 "debugger's watchpoint, " ARCH_SITE_STORE);
	for (i = 0; i < 6; i++)
		add_test(NULL, interrupted, site_by_name(some[i]), "interrupted, %s", some[i]);
	add_test(NULL, breakpoint_flood, NULL, "a program full of breakpoints of its own");
	add_test(NULL, writes_to_data, NULL, "writes to data that is a copy of probed code");
	return run_tests(argc, argv);
}
