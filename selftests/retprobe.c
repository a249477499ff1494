// SPDX-License-Identifier: GPL-2.0
/*
 * Return probes: whatever the program does with its stack between a call and the
 * return, it comes back to its real caller, and returns that happen are counted.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"
#include "arch/asm.h"

#define NOINLINE __attribute__((noinline, noclone))

/* The probed functions. The empty asm keeps the call from becoming a jump. */
typedef void (*inside_fn)(void *);

NOINLINE long outer(inside_fn fn, void *arg)
{
	if (fn)
		fn(arg);
	asm volatile("" ::: "memory");
	return 1234;
}

NOINLINE long inner(inside_fn fn, void *arg)
{
	if (fn)
		fn(arg);
	asm volatile("" ::: "memory");
	return 5678;
}

NOINLINE long recurse(long depth, inside_fn at_bottom)
{
	long r = 1;

	if (depth > 1)
		r += recurse(depth - 1, at_bottom);
	else if (at_bottom)
		at_bottom(NULL);
	asm volatile("" : "+r"(r) :: "memory");
	return r;
}

/*
 * tail_a jumps to tail_b, tail_b to tail_c: one return for three calls.
 * tail_loop jumps to its own entry until its argument is 0.
 */
extern const char tail_a[], tail_b[], tail_c[], tail_loop[];
asm(".pushsection .text\n" TAIL_ASM ".popsection");

/* Entry and return probe on a function. */
struct both {
	struct bpf_counter	entry, ret;
	int			entry_link, ret_link;
};

static void attach_both(struct both *b, const void *fn)
{
	struct loc loc = loc_of(fn);

	bpf_counter_load(&b->entry, NULL);
	bpf_counter_load(&b->ret, NULL);
	b->entry_link = multi_attach_one(&b->entry, loc, 0);
	b->ret_link = multi_attach_one(&b->ret, loc, MULTI_RETURN);
}

static void detach_both(struct both *b)
{
	close(b->entry_link);
	close(b->ret_link);
}

#define CHECK_BOTH(b, calls, returns, what) do {			\
	CHECK_EQ((b)->entry.values[BV_COUNT], calls, what ": calls");	\
	CHECK_EQ((b)->ret.values[BV_COUNT], returns, what ": returns");	\
} while (0)

static void call_inner(void *unused)
{
	CHECK_EQ(inner(NULL, NULL), 5678, "inner()");
}

static int nested(const void *arg)
{
	struct both o, i;
	int n;

	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 100; n++)
		CHECK_EQ(outer(call_inner, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 100, 100, "outer");
	CHECK_BOTH(&i, 100, 100, "inner");
	detach_both(&o);
	detach_both(&i);
	CHECK_EQ(outer(call_inner, NULL), 1234, "outer() after the detach");
	CHECK_BOTH(&o, 100, 100, "outer after the detach");
	return PASS;
}

/* At most 64 returns are pending in a task; calls beyond that return unprobed. */
static int recursion(const void *arg)
{
	long depth = (long)arg;
	struct both b;
	int i;

	attach_both(&b, recurse);
	for (i = 1; i <= 3; i++) {
		CHECK_EQ(recurse(depth, NULL), depth, "recurse()");
		CHECK_BOTH(&b, i * depth, i * (depth < 64 ? depth : 64), "recurse");
	}
	return PASS;
}

static int tail_calls(const void *arg)
{
	long (*fn)(long) = (void *)tail_a;
	struct both a, b, c;
	int i;

	attach_both(&a, tail_a);
	attach_both(&b, tail_b);
	attach_both(&c, tail_c);
	for (i = 0; i < 50; i++)
		CHECK_EQ(fn(i), i + 7, "tail_a()");
	CHECK_BOTH(&a, 50, 50, "tail_a");
	CHECK_BOTH(&b, 50, 50, "tail_b");
	CHECK_BOTH(&c, 50, 50, "tail_c");
	return PASS;
}

static int tail_loop_limit(const void *arg)
{
	long (*fn)(long) = (void *)tail_loop;
	struct both b;

	attach_both(&b, tail_loop);
	CHECK_EQ(fn(10), 99, "tail_loop(10)");
	CHECK_BOTH(&b, 10, 10, "10 jumps");
	CHECK_EQ(fn(100), 99, "tail_loop(100)");
	CHECK_BOTH(&b, 110, 74, "100 jumps");
	CHECK_EQ(fn(1), 99, "tail_loop(1)");
	CHECK_BOTH(&b, 111, 75, "a call after the overflow");
	return PASS;
}

static jmp_buf env;

static void jump_out(void *unused)
{
	longjmp(env, 1);
}

/* More jumps than there is room for pending returns: dropped ones are freed. */
static int longjmp_out(const void *arg)
{
	volatile int i;
	struct both b;

	attach_both(&b, outer);
	for (i = 0; i < 200; i++) {
		if (!setjmp(env))
			outer(jump_out, NULL);
	}
	CHECK_BOTH(&b, 200, 0, "left by longjmp");
	for (i = 0; i < 20; i++)
		CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&b, 220, 20, "after longjmp");
	return PASS;
}

static int longjmp_deep(const void *arg)
{
	struct both r, o;
	volatile int i;

	attach_both(&r, recurse);
	attach_both(&o, outer);
	for (i = 0; i < 10; i++) {
		if (!setjmp(env))
			recurse(50, jump_out);
		CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	}
	CHECK_BOTH(&r, 500, 0, "frames that longjmp skipped");
	CHECK_BOTH(&o, 10, 10, "calls after longjmp");
	CHECK_EQ(recurse(50, NULL), 50, "recurse()");
	CHECK_BOTH(&r, 550, 50, "recursion after longjmp");
	return PASS;
}

/* longjmp within the frame: the outer return is still pending and comes. */
static void jump_within(void *unused)
{
	jmp_buf here;
	volatile int n = 0;

	if (setjmp(here) < 5) {
		memcpy(env, here, sizeof(env));
		n++;
		if (n < 5)
			inner(jump_out, NULL);
	}
}

static int longjmp_partial(const void *arg)
{
	struct both o, i;

	attach_both(&o, outer);
	attach_both(&i, inner);
	CHECK_EQ(outer(jump_within, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 1, 1, "outer");
	CHECK_BOTH(&i, 4, 0, "inner, left by longjmp");
	return PASS;
}

static void on_signal_call_inner(int sig)
{
	call_inner(NULL);
}

static void raise_signal(void *unused)
{
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
}

static void catch_signal(int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = flags };

	MUST(sigaction(sig, &sa, NULL));
}

static int signal_handler_calls(const void *arg)
{
	struct both o, i;
	int n;

	attach_both(&o, outer);
	attach_both(&i, inner);
	catch_signal(SIGUSR1, on_signal_call_inner, 0);
	for (n = 0; n < 50; n++)
		CHECK_EQ(outer(raise_signal, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 50, 50, "outer");
	CHECK_BOTH(&i, 50, 50, "inner, from the handler");
	return PASS;
}

#define STACK_SIZE (64 << 10)

static char *new_stack(void)
{
	char *p = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "mmap");
	return p;
}

static void use_altstack(char *stack)
{
	stack_t ss = { .ss_sp = stack, .ss_size = STACK_SIZE };

	MUST(sigaltstack(&ss, NULL));
	catch_signal(SIGUSR1, on_signal_call_inner, SA_ONSTACK);
}

/* The alternate stack is at lower addresses than the pending frame. */
static int altstack_below(const void *arg)
{
	struct both o, i;
	int n;

	use_altstack(new_stack());
	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 50; n++)
		CHECK_EQ(outer(raise_signal, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 50, 50, "outer");
	CHECK_BOTH(&i, 50, 50, "inner, from the handler");
	return PASS;
}

static void outer_raises(void)
{
	int n;

	for (n = 0; n < 50; n++)
		CHECK_EQ(outer(raise_signal, NULL), 1234, "outer()");
}

/* And at higher addresses: the pending frame must not be taken for a dead one. */
static int altstack_above(const void *arg)
{
	char *stacks = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ucontext_t back, uc;
	struct both o, i;

	CHECK(stacks != MAP_FAILED, "mmap");
	use_altstack(stacks + STACK_SIZE);
	attach_both(&o, outer);
	attach_both(&i, inner);
	getcontext(&uc);
	uc.uc_stack.ss_sp = stacks;
	uc.uc_stack.ss_size = STACK_SIZE;
	uc.uc_link = &back;
	makecontext(&uc, outer_raises, 0);
	swapcontext(&back, &uc);
	CHECK_BOTH(&o, 50, 50, "outer");
	CHECK_BOTH(&i, 50, 50, "inner, from the handler");
	return PASS;
}

/* A handler on the alternate stack that leaves by siglongjmp. */
static sigjmp_buf sigenv;

static void on_signal_jump(int sig)
{
	call_inner(NULL);
	siglongjmp(sigenv, 1);
}

static int altstack_longjmp(const void *arg)
{
	struct both o, i;
	volatile int n;

	use_altstack(new_stack());
	catch_signal(SIGUSR1, on_signal_jump, SA_ONSTACK);
	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 100; n++)
		if (!sigsetjmp(sigenv, 1))
			outer(raise_signal, NULL);
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 101, 1, "outer");
	CHECK_BOTH(&i, 100, 100, "inner, from the handler");
	return PASS;
}

/* Fork with a return pending: it comes in the parent and in the child. */
static void fork_inside(void *arg)
{
	*(pid_t *)arg = fork();
}

static int fork_pending(const void *arg)
{
	struct both o, r;
	pid_t pid = 0;
	int n, status;

	attach_both(&o, outer);
	attach_both(&r, inner);
	for (n = 1; n <= 10; n++) {
		CHECK_EQ(outer(fork_inside, &pid), 1234, "outer()");
		MUST(pid);
		if (!pid) {
			/* And the child's own calls. */
			call_inner(NULL);
			_exit(42);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
		CHECK_BOTH(&o, n, 2 * n, "outer");
		CHECK_BOTH(&r, n, n, "inner");
	}
	return PASS;
}

static void fork_at_bottom(void *unused)
{
	pid_t pid = fork();
	int status;

	MUST(pid);
	if (pid) {
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
	}
}

/* The whole stack of pending returns is the child's as well. */
static int fork_deep(const void *arg)
{
	pid_t self = getpid();
	struct both b;
	long depth;

	attach_both(&b, recurse);
	depth = recurse(30, fork_at_bottom);
	CHECK_EQ(depth, 30, "recurse()");
	if (getpid() != self)
		_exit(42);
	CHECK_BOTH(&b, 30, 60, "recurse");
	return PASS;
}

/* As above, but after 100 ms, when the leases on the uprobes have run out. */
static void sleep_fork(void *arg)
{
	usleep(300000);
	fork_inside(arg);
	usleep(300000);
}

static int fork_pending_slow(const void *arg)
{
	struct both o;
	pid_t pid = 0;
	int status;

	attach_both(&o, outer);
	CHECK_EQ(outer(sleep_fork, &pid), 1234, "outer()");
	if (!pid)
		_exit(42);
	MUST(pid);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
	CHECK_BOTH(&o, 1, 2, "outer");
	return PASS;
}

static void vfork_inside(void *arg)
{
	pid_t pid = vfork();
	int status;

	if (!pid) {
		inner(NULL, NULL);
		_exit(42);
	}
	MUST(pid);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
}

static int vfork_pending(const void *arg)
{
	struct both o, i;
	int n;

	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 20; n++)
		CHECK_EQ(outer(vfork_inside, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 20, 20, "outer");
	CHECK_BOTH(&i, 20, 20, "inner, in the vfork child");
	return PASS;
}

static void vfork_exec_inside(void *unused)
{
	char *const argv[] = { (char *)self_path(), "--exit", "43", NULL };
	pid_t pid = vfork();
	int status;

	if (!pid) {
		execv(argv[0], argv);
		_exit(1);
	}
	MUST(pid);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 43, "child: status %#x", status);
}

static int vfork_exec_pending(const void *arg)
{
	struct both o;
	int n;

	attach_both(&o, outer);
	for (n = 0; n < 10; n++)
		CHECK_EQ(outer(vfork_exec_inside, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 20, 20, "outer, there and in the new image");
	return PASS;
}

static int clone_body(void *arg)
{
	int n;

	for (n = 0; n < 20; n++)
		if (outer(call_inner, NULL) != 1234)
			return 1;
	return 42;
}

/* Shares memory, but is a process of its own: no pending return is its own. */
static void clone_inside(void *unused)
{
	pid_t pid = MUST(clone(clone_body, new_stack() + STACK_SIZE, CLONE_VM | SIGCHLD, NULL));
	int n, status;

	for (n = 0; n < 20; n++)
		call_inner(NULL);
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
}

static int clone_vm(const void *arg)
{
	struct both o, i;

	attach_both(&o, outer);
	attach_both(&i, inner);
	CHECK_EQ(outer(clone_inside, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 21, 21, "outer");
	CHECK_BOTH(&i, 40, 40, "inner");
	return PASS;
}

static void exec_self(void *unused)
{
	char *const argv[] = { (char *)self_path(), "--calls", "9", NULL };

	execv(argv[0], argv);
	_exit(1);
}

/* exec with returns pending; the new image has its own and is probed as well. */
static int exec_pending(const void *arg)
{
	struct both o, r;
	int status;
	pid_t pid;

	attach_both(&o, outer);
	attach_both(&r, recurse);
	pid = MUST(fork());
	if (!pid) {
		outer(exec_self, NULL);
		_exit(1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9, "child: status %#x", status);
	CHECK_BOTH(&o, 1 + 9, 9, "outer");
	CHECK_BOTH(&r, 0, 0, "recurse");
	return PASS;
}

static void exit_thread(void *unused)
{
	syscall(SYS_exit, 0);
}

static void *thread_exits(void *unused)
{
	outer(exit_thread, NULL);
	return NULL;
}

static void pthread_exits(void *unused)
{
	pthread_exit(NULL);
}

static void *thread_unwinds(void *unused)
{
	outer(pthread_exits, NULL);
	return NULL;
}

static int thread_exit(const void *arg)
{
	struct both o;
	int n;

	attach_both(&o, outer);
	for (n = 0; n < 20; n++) {
		pthread_t t;

		CHECK_EQ(pthread_create(&t, NULL, n & 1 ? thread_exits : thread_unwinds, NULL),
			 0, "pthread_create");
		CHECK_EQ(pthread_join(t, NULL), 0, "pthread_join");
	}
	CHECK_BOTH(&o, 20, 0, "calls that a thread exit ended");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 21, 1, "a call after that");
	return PASS;
}

/* The whole process dies with returns pending in several threads. */
static void wait_forever(void *unused)
{
	pause();
}

static void *thread_waits(void *arg)
{
	return (void *)outer(wait_forever, NULL);
}

static int group_exit(const void *arg)
{
	struct both o;
	int status;
	pid_t pid;

	attach_both(&o, outer);
	pid = MUST(fork());
	if (!pid) {
		pthread_t t;
		int i;

		for (i = 0; i < 4; i++)
			pthread_create(&t, NULL, thread_waits, NULL);
		while (o.entry.values[BV_COUNT] < 4)
			usleep(1000);
		_exit(42);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
	CHECK_BOTH(&o, 4, 0, "outer");
	detach_both(&o);
	CHECK(text_equals_file(outer, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

#define THREAD_CALLS 500

static void *thread_calls(void *unused)
{
	long n, bad = 0;

	for (n = 0; n < THREAD_CALLS; n++)
		bad += outer(call_inner, NULL) != 1234;
	return (void *)bad;
}

static int threads(const void *arg)
{
	struct both o, i;
	pthread_t t[4];
	void *bad;
	int n;

	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 4; n++)
		CHECK_EQ(pthread_create(&t[n], NULL, thread_calls, NULL), 0, "pthread_create");
	for (n = 0; n < 4; n++) {
		pthread_join(t[n], &bad);
		CHECK_EQ((long)bad, 0, "wrong return values");
	}
	CHECK_BOTH(&o, 4 * THREAD_CALLS, 4 * THREAD_CALLS, "outer");
	CHECK_BOTH(&i, 4 * THREAD_CALLS, 4 * THREAD_CALLS, "inner");
	return PASS;
}

/* The probe goes away between the call and its return. */
struct detach {
	struct both	*b;
	int		wait_us;
};

static void detach_inside(void *arg)
{
	struct detach *d = arg;

	usleep(d->wait_us);
	detach_both(d->b);
	usleep(d->wait_us);
}

static int detach_pending(const void *arg)
{
	struct both o;
	struct detach d = { &o, (long)arg };

	attach_both(&o, outer);
	CHECK_EQ(outer(detach_inside, &d), 1234, "outer()");
	CHECK_BOTH(&o, 1, 0, "outer");
	CHECK(text_equals_file(outer, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer() after the detach");
	return PASS;
}

/* ... and another one comes: it did not see the call, but C counts its return. */
static void reattach_inside(void *arg)
{
	struct both *b = arg;

	detach_both(b);
	attach_both(b, outer);
}

static int reattach_pending(const void *arg)
{
	struct both o;

	attach_both(&o, outer);
	CHECK_EQ(outer(reattach_inside, &o), 1234, "outer()");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_EQ(o.entry.values[BV_COUNT], 1, "calls");
	CHECK(o.ret.values[BV_COUNT] == 1 || o.ret.values[BV_COUNT] == 2,
	      "returns: %lld", (long long)o.ret.values[BV_COUNT]);
	return PASS;
}

static void attach_inside(void *arg)
{
	attach_both(arg, outer);
}

static int attach_in_call(const void *arg)
{
	struct both o;

	CHECK_EQ(outer(attach_inside, &o), 1234, "outer()");
	CHECK_BOTH(&o, 0, 0, "a call that began before the attach");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 1, 1, "outer");
	return PASS;
}

static void sleep_inside(void *unused)
{
	usleep(250000);
}

/* Longer than the lease of 100 ms. */
static int slow_call(const void *arg)
{
	struct both o, i;
	int n;

	attach_both(&o, outer);
	attach_both(&i, inner);
	for (n = 0; n < 3; n++)
		CHECK_EQ(outer(sleep_inside, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 3, 3, "outer");
	return PASS;
}

/* What a return handler sees: the value, the caller's address and stack. */
static long caller_ip;

NOINLINE static long call_outer_here(void)
{
	long r = outer(NULL, NULL);

	asm volatile("" : "+r"(r) :: "memory");
	return r;
}

static int regs_at_return(const void *arg)
{
	struct bpf_counter c;
	long ip;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_REGS });
	multi_attach_one(&c, loc_of(outer), MULTI_RETURN);
	CHECK_EQ(call_outer_here(), 1234, "outer()");
	CHECK_EQ(c.values[BV_COUNT], 1, "returns");
	CHECK_EQ(c.values[BV_REGS + ARCH_PT_REGS_RV / 8], 1234, "return value seen");
	ip = c.values[BV_REGS + ARCH_PT_REGS_IP / 8];
	CHECK(ip > (long)call_outer_here && ip < (long)call_outer_here + 64,
	      "ip %#lx is not in the caller %p", ip, call_outer_here);
	caller_ip = ip;
	return PASS;
}

/* A handler may change what the caller gets. */
static int change_return_value(const void *arg)
{
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_SET_REG, .set_off = ARCH_PT_REGS_RV,
						 .set_val = 0x123456789abcdef0 });
	link = multi_attach_one(&c, loc_of(outer), MULTI_RETURN);
	CHECK_EQ(outer(NULL, NULL), 0x123456789abcdef0, "changed return value");
	close(link);
	CHECK_EQ(outer(NULL, NULL), 1234, "after the detach");
	return PASS;
}

/*
 * Fibres: two stacks with a return pending on each. Each goes back to its own
 * caller, in whatever order, whichever stack lies higher, on whichever thread.
 */
static ucontext_t main_uc, fibre_uc[2];
static int fibre_done[2];

static void to_other(void *arg)
{
	int self = (long)arg;

	swapcontext(&fibre_uc[self], &fibre_uc[!self]);
}

static void to_main(void *arg)
{
	swapcontext(&fibre_uc[(long)arg], &main_uc);
}

static void fibre_interleaved(int self)
{
	int n;

	for (n = 0; n < 20; n++) {
		CHECK_EQ(outer(to_other, (void *)(long)self), 1234, "outer()");
		fibre_done[self]++;
	}
	/* The last one out wakes the other one, which is inside outer(). */
	if (!fibre_done[!self] || fibre_done[!self] < 20)
		swapcontext(&fibre_uc[self], &fibre_uc[!self]);
	setcontext(&main_uc);
}

static void make_fibres(void (*fn)(int), int upper)
{
	char *stacks = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i;

	CHECK(stacks != MAP_FAILED, "mmap");
	for (i = 0; i < 2; i++) {
		getcontext(&fibre_uc[i]);
		fibre_uc[i].uc_stack.ss_sp = stacks + (i == upper ? STACK_SIZE : 0);
		fibre_uc[i].uc_stack.ss_size = STACK_SIZE;
		fibre_uc[i].uc_link = &main_uc;
		makecontext(&fibre_uc[i], (void (*)(void))fn, 1, i);
	}
}

static int fibres(const void *arg)
{
	struct both o;

	attach_both(&o, outer);
	make_fibres(fibre_interleaved, (long)arg);
	swapcontext(&main_uc, &fibre_uc[0]);
	CHECK_EQ(fibre_done[0], 20, "fibre 0");
	CHECK_EQ(fibre_done[1], 20, "fibre 1");
	CHECK_BOTH(&o, 40, 40, "outer");
	return PASS;
}

static void fibre_parks(int self)
{
	CHECK_EQ(outer(to_main, (void *)(long)self), 1234, "outer()");
	fibre_done[self]++;
	setcontext(&main_uc);
}

static void *resume_fibre(void *arg)
{
	swapcontext(&main_uc, &fibre_uc[(long)arg]);
	return NULL;
}

/* Started in one thread, the call returns in another one. */
static int fibre_migrates(const void *arg)
{
	struct both o;
	pthread_t t;

	attach_both(&o, outer);
	make_fibres(fibre_parks, 0);
	swapcontext(&main_uc, &fibre_uc[0]);
	CHECK_EQ(pthread_create(&t, NULL, resume_fibre, (void *)0L), 0, "pthread_create");
	pthread_join(t, NULL);
	CHECK_EQ(fibre_done[0], 1, "the fibre's end in the other thread");
	CHECK_BOTH(&o, 1, 1, "outer");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&o, 2, 2, "outer, first thread again");
	return PASS;
}

/* The same in a child, whose pending return is a copy. */
static int fibre_migrates_after_fork(const void *arg)
{
	struct both o;
	pthread_t t;
	int status;
	pid_t pid;

	attach_both(&o, outer);
	make_fibres(fibre_parks, 0);
	swapcontext(&main_uc, &fibre_uc[0]);
	pid = fork();
	MUST(pid);
	if (!pid) {
		if (pthread_create(&t, NULL, resume_fibre, (void *)0L))
			_exit(2);
		pthread_join(t, NULL);
		_exit(!fibre_done[0]);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK_EQ(status, 0, "the child");
	CHECK_BOTH(&o, 1, 1, "outer, child");
	swapcontext(&main_uc, &fibre_uc[0]);
	CHECK_EQ(fibre_done[0], 1, "the fibre's end in the parent");
	CHECK_BOTH(&o, 1, 2, "outer, parent");
	return PASS;
}

/* A fibre parks inside a call, its starter makes calls on the main stack. */
static int fibre_parked(const void *arg)
{
	struct both o;
	int n;

	attach_both(&o, outer);
	make_fibres(fibre_parks, 0);
	swapcontext(&main_uc, &fibre_uc[0]);
	for (n = 0; n < 10; n++)
		CHECK_EQ(outer(NULL, NULL), 1234, "outer() beside a parked fibre");
	swapcontext(&main_uc, &fibre_uc[0]);
	CHECK_EQ(fibre_done[0], 1, "the fibre's end");
	CHECK_BOTH(&o, 11, 11, "outer");
	return PASS;
}

/*
 * Many coroutines, each suspended inside a call: the stacks ascend, so that each call
 * finds those before it below its own stack, as if they had been left for good.
 */
#define COROUTINES 100

static ucontext_t co_uc[COROUTINES];
static int co_done[COROUTINES];

static void co_suspends(void *arg)
{
	swapcontext(&co_uc[(long)arg], &main_uc);
}

static void coroutine(int self)
{
	CHECK_EQ(outer(co_suspends, (void *)(long)self), 1234, "outer() of coroutine %d", self);
	co_done[self]++;
	setcontext(&main_uc);
}

static int coroutines(const void *arg)
{
	char *arena = mmap(NULL, COROUTINES * STACK_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct both o;
	long i, n;

	CHECK(arena != MAP_FAILED, "mmap");
	attach_both(&o, outer);
	for (i = 0; i < COROUTINES; i++) {
		getcontext(&co_uc[i]);
		co_uc[i].uc_stack.ss_sp = arena + i * STACK_SIZE;
		co_uc[i].uc_stack.ss_size = STACK_SIZE;
		co_uc[i].uc_link = &main_uc;
		makecontext(&co_uc[i], (void (*)(void))coroutine, 1, (int)i);
		swapcontext(&main_uc, &co_uc[i]);
	}
	CHECK_BOTH(&o, COROUTINES, 0, "outer, all suspended");
	for (n = 0; n < COROUTINES; n++) {
		/* 37 and the number of coroutines have no common factor. */
		i = n * 37 % COROUTINES;
		swapcontext(&main_uc, &co_uc[i]);
		CHECK_EQ(co_done[i], 1, "end of coroutine %ld", i);
		CHECK_BOTH(&o, COROUTINES, n + 1, "outer, one more is back");
	}
	CHECK_EQ(outer(NULL, NULL), 1234, "outer()");
	CHECK_BOTH(&o, COROUTINES + 1, COROUTINES + 1, "outer, at the end");
	return PASS;
}

/*
 * The probe goes away inside a call that outlasts the lease, another one with another
 * semaphore comes: the old one has no say in that.
 */
static volatile unsigned short usdt_sems[2] __attribute__((section(".data"))) = { 0, 0 };

static int outer_with_semaphore(int sem)
{
	struct perf_probe p = {
		.loc = loc_of(outer),
		.ref_ctr_offset = loc_of((void *)&usdt_sems[sem]).offset,
		.cpu = -1,
		.flags = PERF_RET,
	};

	return perf_open(&p);
}

static void swap_semaphores(void *arg)
{
	int *fd = arg;

	usleep(300000);
	close(*fd);
	CHECK_EQ(usdt_sems[0], 0, "semaphore of the probe that went");
	*fd = outer_with_semaphore(1);
	CHECK(*fd >= 0, "attach with another semaphore: error %d", -*fd);
	CHECK_EQ(usdt_sems[1], 1, "semaphore of the probe that came");
}

static int other_semaphore_pending(const void *arg)
{
	int fd = outer_with_semaphore(0);

	CHECK(fd >= 0, "attach: error %d", -fd);
	CHECK_EQ(usdt_sems[0], 1, "semaphore, attached");
	CHECK_EQ(outer(swap_semaphores, &fd), 1234, "outer()");
	CHECK_EQ(perf_count(fd), 0, "returns of a call from before the attach");
	CHECK_EQ(outer(NULL, NULL), 1234, "outer() with the other probe");
	CHECK_EQ(perf_count(fd), 1, "returns");
	close(fd);
	CHECK_EQ(usdt_sems[0], 0, "first semaphore at the end");
	CHECK_EQ(usdt_sems[1], 0, "second semaphore at the end");
	CHECK(text_equals_file(outer, sizeof(long)), "breakpoint left behind");
	return PASS;
}

int main(int argc, char **argv)
{
	long n;

	if (argc == 3 && !strcmp(argv[1], "--exit")) {
		outer(NULL, NULL);
		return atoi(argv[2]);
	}
	if (argc == 3 && !strcmp(argv[1], "--calls")) {
		for (n = 0; n < atoi(argv[2]); n++)
			if (outer(NULL, NULL) != 1234)
				return 1;
		return n;
	}

	add_test(NULL, nested, NULL, "nested calls");
	add_test(NULL, recursion, (void *)10L, "recursion 10 deep");
	add_test(NULL, recursion, (void *)64L, "recursion 64 deep");
	add_test(NULL, recursion, (void *)100L, "recursion 100 deep");
	add_test(NULL, tail_calls, NULL, "tail calls");
	add_test(NULL, tail_loop_limit, NULL, "tail calls beyond the limit");
	add_test(NULL, longjmp_out, NULL, "longjmp out of a call");
	add_test(NULL, longjmp_deep, NULL, "longjmp over 50 calls");
	add_test(NULL, longjmp_partial, NULL, "longjmp inside a pending call");
	add_test(NULL, signal_handler_calls, NULL, "calls from a signal handler");
	add_test(NULL, altstack_below, NULL, "signal on a lower alternate stack");
	add_test("F.6", altstack_above, NULL, "signal on a higher alternate stack");
	add_test(NULL, altstack_longjmp, NULL, "siglongjmp off the alternate stack");
	add_test(NULL, fork_pending, NULL, "fork with a pending return");
	add_test(NULL, fork_deep, NULL, "fork with 30 pending returns");
	add_test(NULL, fork_pending_slow, NULL, "fork with an expired lease");
	add_test(NULL, vfork_pending, NULL, "vfork with a pending return");
	add_test(NULL, vfork_exec_pending, NULL, "vfork and exec with a pending return");
	add_test(NULL, clone_vm, NULL, "CLONE_VM child");
	add_test(NULL, exec_pending, NULL, "exec with a pending return");
	add_test(NULL, thread_exit, NULL, "thread exit inside a call");
	add_test(NULL, group_exit, NULL, "process exit with threads inside calls");
	add_test(NULL, threads, NULL, "four threads");
	add_test(NULL, detach_pending, (void *)0L, "detach inside a call");
	add_test(NULL, detach_pending, (void *)250000L, "detach inside a slow call");
	add_test(NULL, reattach_pending, NULL, "detach and attach inside a call");
	add_test(NULL, attach_in_call, NULL, "attach inside a call");
	add_test(NULL, slow_call, NULL, "call longer than the lease");
	add_test(NULL, regs_at_return, NULL, "registers seen at the return");
	add_test(NULL, change_return_value, NULL, "return value changed by a handler");
	add_test("F.6", fibres, (void *)0L, "interleaved fibres, first stack higher");
	add_test("F.6", fibres, (void *)1L, "interleaved fibres, second stack higher");
	add_test("F.6", fibre_migrates, NULL, "fibre returns in another thread");
	add_test("F.6", fibre_migrates_after_fork, NULL, "fibre of a child returns in another thread");
	add_test("F.6", fibre_parked, NULL, "calls beside a parked fibre");
	add_test("F.6", coroutines, NULL, "100 suspended coroutines");
	add_test("F.8", other_semaphore_pending, NULL,
		 "detach inside a slow call, attach with another semaphore");
	return run_tests(argc, argv);
}
