/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How insn.c gets into an instruction with known registers and out of it again: by the
 * return from one signal, and by the next one, of a breakpoint. No register is needed
 * for either.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "insn_gen.h"

#define SLOT		128UL		/* bytes for an instruction and its exits */

/* Registers as the instruction finds or leaves them; gp and tp are the C library's. */
static struct machine {
	uint64_t	x[32];
	uint64_t	f[32];
	uint64_t	fcsr;
} mach;

static unsigned long mach_start;
static int mach_exit, mach_len;

static inline const char *mach_lacks(const struct insn_class *c)
{
	return NULL;
}

/* A slot that begins with @in; all else are breakpoints. */
static inline void mach_slot(uint8_t *p, const struct insn *in)
{
	int i;

	for (i = 0; i < (int)SLOT; i += 2)
		memcpy(p + i, ARCH_BREAKPOINT, 2);
	memcpy(p, in->bytes, in->len);
}

/* Random registers, but those that @in needs to be something. */
static inline void mach_random(const struct insn *in, unsigned long at, uint64_t *s)
{
	int i;

	for (i = 1; i < 32; i++) {
		mach.x[i] = random64(s);
		/* Small numbers, too, and for floats ones of both sizes. */
		mach.f[i] = random64(s) | (random64(s) % 2 ? 0xffffffff00000000 : 0);
	}
	mach.x[SP] = STACK_AT + 2048;
	for (i = 0; i < in->nr_fixed; i++)
		mach.x[in->fixed[i].reg] = in->fixed[i].value;
	mach_len = in->len;
}

static void mach_on_start(int sig, siginfo_t *si, void *ctx)
{
	mcontext_t *mc = &((ucontext_t *)ctx)->uc_mcontext;
	int i;

	for (i = 1; i < 32; i++)
		if (i != 3 && i != 4)
			mc->__gregs[i] = mach.x[i];
	mc->__gregs[REG_PC] = mach_start;
	memcpy(mc->__fpregs.__d.__f, mach.f, sizeof(mach.f));
	mc->__fpregs.__d.__fcsr = 0;
}

/* Goes there, and does not come back. */
static inline void mach_enter(unsigned long at)
{
	struct sigaction sa = { .sa_sigaction = mach_on_start, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	mach_start = at;
	MUST(sigaction(SIGUSR2, &sa, NULL));
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
}

/* Takes the registers from a signal's context, returns the kind of exit. */
static inline int mach_leave(int sig, const ucontext_t *uc)
{
	const mcontext_t *mc = &uc->uc_mcontext;
	uint64_t pc = mc->__gregs[REG_PC];
	int i;

	for (i = 1; i < 32; i++)
		mach.x[i] = mc->__gregs[i];
	memcpy(mach.f, mc->__fpregs.__d.__f, sizeof(mach.f));
	mach.fcsr = mc->__fpregs.__d.__fcsr;
	if (sig != SIGTRAP || pc < CODE_AT || pc >= DATA_AT)
		return EXIT_SIGNAL;
	return pc == mach_start + mach_len ? EXIT_NEXT : EXIT_OTHER;
}

/* Prints what is different. */
static inline void mach_explain(const struct machine *got, const struct machine *want)
{
	int i;

	for (i = 1; i < 32; i++)
		if (got->x[i] != want->x[i])
			diag("  x%d %#lx, bare %#lx", i, (long)got->x[i], (long)want->x[i]);
	for (i = 0; i < 32; i++)
		if (got->f[i] != want->f[i])
			diag("  f%d %#lx, bare %#lx", i, (long)got->f[i], (long)want->f[i]);
	if (got->fcsr != want->fcsr)
		diag("  fcsr %#lx, bare %#lx", (long)got->fcsr, (long)want->fcsr);
}

static inline bool mach_leaves_trace(const struct insn *in)
{
	return false;
}

#endif
