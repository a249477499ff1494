/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How insn.c gets into an instruction with known registers and out of it again: a
 * jump there, and two jumps back, behind the instruction and at 0x20 behind that.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#include "insn_gen.h"

#define SLOT		128UL		/* bytes for an instruction and its exits */

/* Registers as the instruction finds or leaves them; used by the assembly below. */
struct machine {
	uint64_t	gpr[NR_GPR];
	uint64_t	flags;
	uint8_t		ymm[16][32];
} mach __attribute__((aligned(64)));

void *mach_entry;
uint64_t mach_saved_rsp, mach_exit;
uint32_t mach_has_avx;

/* Loads @mach and jumps to mach_entry; the exits come back from there. */
void mach_run(void);
extern const char mach_exit_next[], mach_exit_other[];

#define YMM(op, n)	op " %ymm" #n ", mach+136+32*" #n "(%rip)\n"
#define LOAD_YMM(n)	"vmovdqu mach+136+32*" #n "(%rip), %ymm" #n "\n"
#define XMM(n)		"movdqu %xmm" #n ", mach+136+32*" #n "(%rip)\n"
#define LOAD_XMM(n)	"movdqu mach+136+32*" #n "(%rip), %xmm" #n "\n"
#define ALL(m)		m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) \
			m(13) m(14) m(15)
#define STORE_YMM(n)	YMM("vmovdqu", n)

asm(".pushsection .text\n"
    ".globl mach_run, mach_exit_next, mach_exit_other\n"
    "mach_run:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, mach_saved_rsp(%rip)\n"
    "cmpl $0, mach_has_avx(%rip)\njz 1f\n"
    ALL(LOAD_YMM)
    "jmp 2f\n1:\n"
    ALL(LOAD_XMM)
    "2:\n"
    "push mach+128(%rip)\npopfq\n"
    "mov mach+0(%rip), %rax\nmov mach+8(%rip), %rcx\nmov mach+16(%rip), %rdx\n"
    "mov mach+24(%rip), %rbx\nmov mach+32(%rip), %rsp\nmov mach+40(%rip), %rbp\n"
    "mov mach+48(%rip), %rsi\nmov mach+56(%rip), %rdi\nmov mach+64(%rip), %r8\n"
    "mov mach+72(%rip), %r9\nmov mach+80(%rip), %r10\nmov mach+88(%rip), %r11\n"
    "mov mach+96(%rip), %r12\nmov mach+104(%rip), %r13\nmov mach+112(%rip), %r14\n"
    "mov mach+120(%rip), %r15\n"
    "jmp *mach_entry(%rip)\n"
    "mach_exit_other:\n"
    "movq $2, mach_exit(%rip)\njmp 3f\n"
    "mach_exit_next:\n"
    "movq $1, mach_exit(%rip)\n"
    "3:\n"
    "mov %rax, mach+0(%rip)\nmov %rcx, mach+8(%rip)\nmov %rdx, mach+16(%rip)\n"
    "mov %rbx, mach+24(%rip)\nmov %rsp, mach+32(%rip)\nmov %rbp, mach+40(%rip)\n"
    "mov %rsi, mach+48(%rip)\nmov %rdi, mach+56(%rip)\nmov %r8, mach+64(%rip)\n"
    "mov %r9, mach+72(%rip)\nmov %r10, mach+80(%rip)\nmov %r11, mach+88(%rip)\n"
    "mov %r12, mach+96(%rip)\nmov %r13, mach+104(%rip)\nmov %r14, mach+112(%rip)\n"
    "mov %r15, mach+120(%rip)\n"
    "mov mach_saved_rsp(%rip), %rsp\n"
    "pushfq\npop mach+128(%rip)\n"
    "pushq $2\npopfq\n"
    "cmpl $0, mach_has_avx(%rip)\njz 4f\n"
    ALL(STORE_YMM)
    "vzeroupper\n"
    "jmp 5f\n4:\n"
    ALL(XMM)
    "5:\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"
    "ret\n"
    ".popsection");


/* Why instructions of this class cannot be run here, NULL if they can. */
static inline const char *mach_lacks(const struct insn_class *c)
{
	mach_has_avx = __builtin_cpu_supports("avx") ? 1 : 0;
	if (c->kind == K_VEX || c->kind == K_VEX_COLLIDE || c->kind == K_VEX_ALIGNED)
		return mach_has_avx ? NULL : "no AVX";
	return NULL;
}

/* A slot that begins with @in. */
static inline void mach_slot(uint8_t *p, const struct insn *in)
{
	static const uint8_t jump[] = { 0xff, 0x25, 0, 0, 0, 0 };	/* jmp *0(%rip) */
	uint64_t next = (uint64_t)mach_exit_next, other = (uint64_t)mach_exit_other;

	memset(p, 0xf4, SLOT);		/* hlt, for whatever lands beside an exit */
	memcpy(p, in->bytes, in->len);
	memcpy(p + in->len, jump, 6);
	memcpy(p + in->len + 6, &next, 8);
	memcpy(p + in->len + 0x20, jump, 6);
	memcpy(p + in->len + 0x26, &other, 8);
}

/* Random registers, but those that @in needs to be something. */
static inline void mach_random(const struct insn *in, unsigned long at, uint64_t *s)
{
	uint64_t i;

	for (i = 0; i < NR_GPR; i++)
		mach.gpr[i] = random64(s);
	for (i = 0; i < sizeof(mach.ymm); i++)
		((uint8_t *)mach.ymm)[i] = random64(s);
	mach.flags = (random64(s) & ARCH_FLAGS_MASK) | ARCH_FLAGS_FIXED;
	mach.gpr[RSP] = STACK_AT + 2048;
	mach.gpr[RSI] = DATA_AT + 512;
	mach.gpr[RDI] = DATA_AT + 1024;
	if (in->index >= 0)
		mach.gpr[in->index] = random64(s) % 4 * 16;
	if (in->base >= 0)
		mach.gpr[in->base] = DATA_AT + 1536;
	if (in->string)
		mach.gpr[RCX] = random64(s) % 20;
	if (in->leave)
		mach.gpr[RBP] = STACK_AT + 2048 + random64(s) % 16 * 8;
	if (in->ret)
		*(uint64_t *)(STACK_AT + 2048) = at + in->len + 0x20;
}

/* Goes there, and comes back by an exit or not at all. */
static inline void mach_enter(unsigned long at)
{
	mach_entry = (void *)at;
	mach_run();
}

/* Takes the registers from a signal's context, returns the kind of exit. */
static inline int mach_leave(int sig, const ucontext_t *uc)
{
	static const int reg[NR_GPR] = {
		REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
	};
	int i;

	for (i = 0; i < NR_GPR; i++)
		mach.gpr[i] = uc->uc_mcontext.gregs[reg[i]];
	/* RF tells the kernel's way back, not the program's state. */
	mach.flags = uc->uc_mcontext.gregs[REG_EFL] & ~0x10000;
	memset(mach.ymm, 0, sizeof(mach.ymm));
	for (i = 0; i < 16; i++)
		memcpy(mach.ymm[i], &uc->uc_mcontext.fpregs->_xmm[i], 16);
	return EXIT_SIGNAL;
}

/* Prints what is different. */
static inline void mach_explain(const struct machine *got, const struct machine *want)
{
	static const char *const names[] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15" };
	int i;

	for (i = 0; i < NR_GPR; i++)
		if (got->gpr[i] != want->gpr[i])
			diag("  %s %#lx, bare %#lx", names[i], (long)got->gpr[i], (long)want->gpr[i]);
	if (got->flags != want->flags)
		diag("  flags %#lx, bare %#lx", (long)got->flags, (long)want->flags);
	for (i = 0; i < 16; i++)
		if (memcmp(got->ymm[i], want->ymm[i], 32))
			diag("  ymm%d differs", i);
}

/* C leaves a trace of an optimised nop10 in the text. */
static inline bool mach_leaves_trace(const struct insn *in)
{
	return !memcmp(in->bytes, "\x66\x2e\x0f\x1f\x84", 5);
}

#endif
