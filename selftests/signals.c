// SPDX-License-Identifier: GPL-2.0
/*
 * Signals and probed instructions: signals that come while one is stepped,
 * instructions that fault, programs that die of it.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
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
#include "arch/asm.h"

static volatile long handled;

static void on_signal(int sig)
{
	handled++;
}

/* A handler that runs probed code itself. */
static const struct site *handler_site;
static struct site_state handler_state;
static volatile long handler_runs;

static void on_signal_run(int sig)
{
	struct site_state st = handler_state;
	uint8_t data[64];

	/* The interrupted run is not to notice. */
	memcpy(data, site_data, sizeof(data));
	site_call(handler_site->fn, &st.regs);
	memcpy(site_data, data, sizeof(data));
	handler_runs++;
}

static volatile bool stop;

static void *bombard(void *arg)
{
	pid_t tid = *(pid_t *)arg;

	while (!stop) {
		syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
		usleep(100);
	}
	return NULL;
}

/* Runs @site under fire from another thread and a timer, compares every run. */
static int storm(const struct site *site, void (*handler)(int))
{
	struct itimerval it = { { 0, 1000 }, { 0, 1000 } };
	struct sigaction sa = { .sa_handler = handler };
	pid_t tid = syscall(SYS_gettid);
	struct site_state init[16], bare[16], st;
	struct bpf_counter c, r;
	long runs = full_run() ? 20000 : 3000, n;
	sigset_t alarm;
	pthread_t t;

	handler_site = site;
	for (n = 0; n < 16; n++) {
		site_random(&init[n], n);
		bare[n] = init[n];
		site_run(site, &bare[n]);
	}
	handler_state = init[3];
	bpf_counter_load(&c, NULL);
	bpf_counter_load(&r, NULL);
	multi_attach_one(&c, loc_of(site->pc), 0);
	if (site->pc == site->fn)
		multi_attach_one(&r, loc_of(site->fn), MULTI_RETURN);
	MUST(sigaction(SIGUSR1, &sa, NULL));
	MUST(sigaction(SIGALRM, &sa, NULL));
	/*
	 * The timer's signal is the process's: a handler on the other thread would
	 * put old data back under this one's feet.
	 */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	CHECK_EQ(pthread_create(&t, NULL, bombard, &tid), 0, "pthread_create");
	MUST(setitimer(ITIMER_REAL, &it, NULL));
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	for (n = 0; n < runs || handled + handler_runs < 50; n++) {
		st = init[n % 16];
		site_run(site, &st);
		CHECK(site_same(site, &st, &bare[n % 16]), "run %ld", n);
	}
	stop = true;
	pthread_join(t, NULL);
	memset(&it, 0, sizeof(it));
	MUST(setitimer(ITIMER_REAL, &it, NULL));
	CHECK_EQ(c.values[BV_COUNT], n + handler_runs, "%s: hits", site->name);
	if (site->pc == site->fn)
		CHECK_EQ(r.values[BV_COUNT], n + handler_runs, "%s: returns", site->name);
	return PASS;
}

static int signal_storm(const void *arg)
{
	return storm(arg, on_signal);
}

static int signal_storm_nested(const void *arg)
{
	return storm(arg, on_signal_run);
}

/*
 * Instructions that fault. The handler sees the same as without a probe, fixes
 * the cause by going on at fault_out; the hit is counted once.
 */
static char ro_page[4096] __attribute__((aligned(4096), used)) = { 1 };

#define FAULT_ASM(label, name, insn, bad_stack, fault)				\
	asm(".pushsection .text.sites, \"ax\", @progbits\n"			\
	    ".globl fault_" #label "\nfault_" #label ":\n" insn "\n.popsection");			\
	extern const char fault_##label[];
FAULTS(FAULT_ASM)
asm(".pushsection .text.sites, \"ax\", @progbits\n" FAULT_OUT_ASM ".popsection");

struct fault {
	const char	*name;
	const char	*insn;
	bool		bad_stack;	/* the stack pointer points nowhere while it runs */
	const char	*fault;		/* of C */
};

struct seen {
	int	n, sig, code;
	void	*addr;
	uint8_t	regs[sizeof(UC_REGS((ucontext_t *)0))] __attribute__((aligned(8)));
};

static struct seen seen;
static sigjmp_buf back;

static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;

	seen.n++;
	seen.sig = sig;
	seen.code = si->si_code;
	seen.addr = si->si_addr;
	memcpy(seen.regs, &UC_REGS(uc), sizeof(seen.regs));
	siglongjmp(back, 1);
}

/*
 * Jumps to @insn with the stack pointer @sp (0: as it is) and known values in all
 * other registers. Nobody comes back from there but by siglongjmp().
 */
void jump_with_known_regs(const char *insn, unsigned long sp) __attribute__((noreturn));
asm(".pushsection .text\n.globl jump_with_known_regs\njump_with_known_regs:\n" JUMP_ASM ".popsection");

static __attribute__((noinline)) void run_fault(const struct fault *f)
{
	memset(&seen, 0, sizeof(seen));
	if (!sigsetjmp(back, 1))
		jump_with_known_regs(f->insn, f->bad_stack ? FAULT_BAD_STACK : 0);
}

static void catch_faults(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	int i;

	MUST(sigaltstack(&ss, NULL));
	for (i = 0; i < 5; i++)
		MUST(sigaction(sigs[i], &sa, NULL));
	MUST(mprotect(ro_page, sizeof(ro_page), PROT_READ));
}

static int faulting(const void *arg)
{
	const struct fault *f = arg;
	struct bpf_counter c;
	struct seen bare;
	int i, n;

	catch_faults();
	run_fault(f);
	CHECK_EQ(seen.n, 1, "%s: signals, bare", f->name);
	bare = seen;
	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(f->insn), 0);
	for (n = 1; n <= 10; n++) {
		run_fault(f);
		CHECK_EQ(seen.n, 1, "%s: signals", f->name);
		CHECK_EQ(seen.sig, bare.sig, "%s: signal", f->name);
		CHECK_EQ(seen.code, bare.code, "%s: si_code", f->name);
		CHECK_EQ((long)seen.addr, (long)bare.addr, "%s: si_addr", f->name);
		for (i = 0; i < (int)sizeof(seen.regs) / 8; i++)
			CHECK_EQ(((uint64_t *)seen.regs)[i], ((uint64_t *)bare.regs)[i],
				 "%s: register %d of the context", f->name, i);
		CHECK_EQ(c.values[BV_COUNT], n, "%s: hits", f->name);
	}
	return PASS;
}

/* The handler repairs the cause and the instruction runs again: two hits. */
static char *lazy_page;

static void on_fault_map(int sig, siginfo_t *si, void *ctx)
{
	handled++;
	mprotect(lazy_page, 4096, PROT_READ | PROT_WRITE);
}

static int restarted(const void *arg)
{
	struct sigaction sa = { .sa_sigaction = on_fault_map, .sa_flags = SA_SIGINFO };
	struct bpf_counter c;
	struct cpu_regs regs;
	int n;

	lazy_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(lazy_page != MAP_FAILED, "mmap");
	MUST(sigaction(SIGSEGV, &sa, NULL));
	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(fault_update), 0);
	for (n = 1; n <= 10; n++) {
		memset(&regs, 0, sizeof(regs));
		MUST(mprotect(lazy_page, 4096, PROT_NONE));
		regs.gpr[FAULT_ADDR] = (long)lazy_page;
		regs.gpr[FAULT_VALUE] = 5;
		regs.flags = ARCH_FLAGS_FIXED;
		site_call(fault_update, &regs);
		CHECK_EQ(handled, n, "faults");
		CHECK_EQ(*(long *)lazy_page, 5 * n, "additions");
		CHECK_EQ(c.values[BV_COUNT], 2 * n, "hits");
	}
	return PASS;
}

/* Death at the probed instruction is the same death. */
static int fatal(const void *arg)
{
	const struct fault *f = arg;
	int status[2], i;

	for (i = 0; i < 2; i++) {
		pid_t pid;

		if (i)
			perf_attach(loc_of(f->insn), 0);
		pid = MUST(fork());
		if (!pid) {
			mprotect(ro_page, sizeof(ro_page), PROT_READ);
			run_fault(f);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status[i], 0), pid, "waitpid");
		CHECK(WIFSIGNALED(status[i]), "%s: status %#x", f->name, status[i]);
	}
	CHECK_EQ(status[1], status[0], "%s: wait status", f->name);
	return PASS;
}

/* SIGKILL and SIGSTOP at any point of a loop of stepped instructions. */
static int killed(const void *arg)
{
	const struct site *site = arg;
	struct bpf_counter c;
	int i, status, fd;

	bpf_counter_load(&c, NULL);
	fd = multi_attach_one(&c, loc_of(site->pc), 0);
	for (i = 0; i < 30; i++) {
		pid_t pid = MUST(fork());
		struct site_state st;

		if (!pid) {
			for (;;) {
				site_random(&st, 1);
				site_run(site, &st);
			}
		}
		usleep(1000 * (i % 5) + 1000);
		MUST(kill(pid, SIGSTOP));
		CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid, "waitpid");
		CHECK(WIFSTOPPED(status), "status %#x", status);
		MUST(kill(pid, SIGCONT));
		usleep(500);
		MUST(kill(pid, SIGKILL));
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %#x", status);
	}
	CHECK(c.values[BV_COUNT] > 30, "hits: %lld", (long long)c.values[BV_COUNT]);
	close(fd);
	CHECK(text_equals_file(site->pc, 16), "breakpoint left behind");
	return PASS;
}

int main(int argc, char **argv)
{
	static const char *const some[] = {
		"nop", ARCH_SITE_PUSH, ARCH_SITE_CALL, "ret", "add", ARCH_SITE_STORE2,
	};
#define FAULT_ENTRY(label, name, insn, bad_stack, fault) { name, fault_##label, bad_stack, fault },
	static const struct fault faults[] = { FAULTS(FAULT_ENTRY) };
	unsigned int i;

	set_timeout(120);
	for (i = 0; i < 6; i++) {
		add_test(NULL, signal_storm, site_by_name(some[i]), "signal storm, %s", some[i]);
		add_test(NULL, signal_storm_nested, site_by_name(some[i]),
			 "signal storm, handler hits as well, %s", some[i]);
	}
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		add_test(faults[i].fault, faulting, &faults[i], "fault seen by a handler, %s", faults[i].name);
		add_test(NULL, fatal, &faults[i], "fault kills, %s", faults[i].name);
	}
	add_test(NULL, restarted, NULL, "fault repaired, instruction restarted");
	for (i = 0; i < 6; i++)
		add_test(NULL, killed, site_by_name(some[i]), "stopped and killed, %s", some[i]);
	return run_tests(argc, argv);
}
