/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How insn.c gets into an instruction with known registers and out of it again: by the
 * return from one signal, and by the next one, of a breakpoint. No register is needed
 * for either.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <asm/sigcontext.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "insn_gen.h"

#define SLOT		128UL		/* bytes for an instruction and its exits */

/* Registers as the instruction finds or leaves them. */
static struct machine {
	uint64_t	x[32];		/* the last one is sp */
	uint64_t	flags;
	uint8_t		v[32][16];
	uint64_t	fpsr;
} mach;

static unsigned long mach_start;
static int mach_exit;

static inline const char *mach_lacks(const struct insn_class *c)
{
	return NULL;
}

/* A slot that begins with @in: breakpoints, and data from 0x40 to 0x5f. */
static inline void mach_slot(uint8_t *p, const struct insn *in)
{
	uint64_t s = 1, data;
	int i;

	for (i = 0; i < (int)SLOT; i += 4)
		memcpy(p + i, ARCH_BREAKPOINT, 4);
	for (i = 0x40; i < 0x60; i += 8) {
		data = random64(&s);
		memcpy(p + i, &data, 8);
	}
	memcpy(p, in->bytes, in->len);
}

/* Random registers, but those that @in needs to be something. */
static inline void mach_random(const struct insn *in, unsigned long at, uint64_t *s)
{
	int i;

	for (i = 0; i < 31; i++)
		mach.x[i] = random64(s);
	mach.x[SP] = STACK_AT + 2048;
	mach.flags = random64(s) & ARCH_FLAGS_MASK;
	for (i = 0; i < (int)sizeof(mach.v); i++)
		((uint8_t *)mach.v)[i] = random64(s);
	for (i = 0; i < in->nr_fixed; i++)
		mach.x[in->fixed[i].reg] = in->fixed[i].value;
}

/* The SIMD&FP registers in a signal's context. */
static inline struct fpsimd_context *mach_fpsimd(const ucontext_t *uc)
{
	struct _aarch64_ctx *head = (void *)uc->uc_mcontext.__reserved;

	while (head->magic && head->magic != FPSIMD_MAGIC)
		head = (void *)((char *)head + head->size);
	return head->magic ? (void *)head : NULL;
}

static void mach_on_start(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	struct fpsimd_context *fp = mach_fpsimd(uc);

	memcpy(uc->uc_mcontext.regs, mach.x, sizeof(uc->uc_mcontext.regs));
	uc->uc_mcontext.sp = mach.x[SP];
	uc->uc_mcontext.pc = mach_start;
	uc->uc_mcontext.pstate = (uc->uc_mcontext.pstate & ~(uint64_t)ARCH_FLAGS_MASK) | mach.flags;
	memcpy(fp->vregs, mach.v, sizeof(mach.v));
	fp->fpsr = 0;
	fp->fpcr = 0;
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
	struct fpsimd_context *fp = mach_fpsimd(uc);
	uint64_t pc = uc->uc_mcontext.pc;

	memcpy(mach.x, uc->uc_mcontext.regs, sizeof(uc->uc_mcontext.regs));
	mach.x[SP] = uc->uc_mcontext.sp;
	mach.flags = uc->uc_mcontext.pstate & ARCH_FLAGS_MASK;
	memcpy(mach.v, fp->vregs, sizeof(mach.v));
	mach.fpsr = fp->fpsr;
	if (sig != SIGTRAP || pc < CODE_AT || pc >= DATA_AT)
		return EXIT_SIGNAL;
	return pc == mach_start + 4 ? EXIT_NEXT : EXIT_OTHER;
}

/* Prints what is different. */
static inline void mach_explain(const struct machine *got, const struct machine *want)
{
	int i;

	for (i = 0; i < 32; i++)
		if (got->x[i] != want->x[i])
			diag("  x%d %#lx, bare %#lx", i, (long)got->x[i], (long)want->x[i]);
	if (got->flags != want->flags)
		diag("  flags %#lx, bare %#lx", (long)got->flags, (long)want->flags);
	if (got->fpsr != want->fpsr)
		diag("  fpsr %#lx, bare %#lx", (long)got->fpsr, (long)want->fpsr);
	for (i = 0; i < 32; i++)
		if (memcmp(got->v[i], want->v[i], 16))
			diag("  v%d differs", i);
}

static inline bool mach_leaves_trace(const struct insn *in)
{
	return false;
}

#endif
