/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests must know about the ISA: pt_regs as BPF programs see it. */
#ifndef ARCH_H
#define ARCH_H

#include <stdint.h>

#define ARCH_PT_REGS_WORDS	21
#define ARCH_PT_REGS_RV		(10 * 8)	/* rax */
#define ARCH_PT_REGS_ARG0	(14 * 8)	/* rdi */
#define ARCH_PT_REGS_IP		(16 * 8)
#define ARCH_PT_REGS_SP		(19 * 8)

#define ARCH_BREAKPOINT		"\xcc"
#define ARCH_BREAKPOINT_LEN	1

/*
 * long fn(long x) { return x + 1; } as bytes, position-independent. The first
 * instruction is one that is simulated (nop), in the other one that is stepped
 * (lea), which is long enough to lie across a page boundary.
 */
#define ARCH_FN_SIMULATED	"\x90\x48\x8d\x47\x01\xc3"
#define ARCH_FN_STEPPED		"\x48\x8d\x47\x01\xc3"

/* The debugger's view of a stopped task (struct user_regs_struct). */
#define PT_IP(regs)		((regs).rip)
#define PT_RV(regs)		((regs).rax)
/* A breakpoint trap leaves the instruction pointer behind the breakpoint. */
#define ARCH_TRAP_PC_AFTER	1

/* Instruction pointer and stack pointer of a signal's ucontext. */
#define UC_IP(uc)		((uc)->uc_mcontext.gregs[REG_RIP])
#define UC_SP(uc)		((uc)->uc_mcontext.gregs[REG_RSP])

/* Not in the C library's headers of older distributions. */
#define NR_URETPROBE		335
#define NR_UPROBE		336

/* All that a site may change: general registers (without rsp) and flags. */
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15, NR_GPR };

struct cpu_regs {
	uint64_t	gpr[NR_GPR];
	uint64_t	flags;
};

/* Flags a test may set at random: CF, PF, AF, ZF, SF, OF. Never TF or DF. */
#define ARCH_FLAGS_MASK		0x8d5

/* Calls @fn with the registers in @io, stores there what it leaves. */
void site_call(const void *fn, struct cpu_regs *io);

#endif
