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

/* A debugger's breakpoint, and the one of uprobes as it may be found in a file. */
#define ARCH_BREAKPOINT		"\xcc"
#define ARCH_BREAKPOINT_LEN	1
#define ARCH_UPROBE_TRAP	"\xcc"

/*
 * long fn(long x) { return x + 1; } as bytes, position-independent. The first
 * instruction is one that is simulated (nop), in the other one that is stepped
 * (lea), which is long enough to lie across a page boundary.
 */
#define ARCH_FN_SIMULATED	"\x90\x48\x8d\x47\x01\xc3"
#define ARCH_FN_STEPPED		"\x48\x8d\x47\x01\xc3"
/* How far before the end of a page ARCH_FN_STEPPED begins to reach into the next one. */
#define ARCH_FN_CROSS		2

/* The debugger's view of a stopped task (struct user_regs_struct). */
#define PT_IP(regs)		((regs).rip)
#define PT_RV(regs)		((regs).rax)
/* A breakpoint trap leaves the instruction pointer behind the breakpoint. */
#define ARCH_TRAP_PC_AFTER	1

/* Instruction pointer and stack pointer of a signal's ucontext. */
#define UC_IP(uc)		((uc)->uc_mcontext.gregs[REG_RIP])
#define UC_SP(uc)		((uc)->uc_mcontext.gregs[REG_RSP])

/* PTRACE_SINGLESTEP; what C gets wrong with it at every site (nothing here). */
#define ARCH_HAS_SINGLESTEP	1
#define ARCH_SINGLESTEP_FAULT	NULL

/* Trampolines enter the kernel by system calls, which tracers of C's get to see. */
#define ARCH_TRAMPOLINE_FAULT	"F.10"

/*
 * What the kernel's unwinder finds at the entry of leaf(), called by level1() and so on,
 * and at its return.
 */
#define ARCH_CHAIN_AT_ENTRY	{ leaf, level1, level2, level3 }
#define ARCH_CHAIN_AT_RETURN	{ level1, level2, level3 }
#define ARCH_CHAIN_CONFUSED(mask) 0

/* What C gets wrong when a process loses its last probe. */
#define ARCH_LAST_PROBE_FAULT	NULL

/* Sites of sites.h by their role: "nop", "ret" and "add" (stepped) are everywhere. */
#define ARCH_SITE_PUSH		"push"
#define ARCH_SITE_CALL		"call"
#define ARCH_SITE_LOAD		"riprel_load"
#define ARCH_SITE_STORE		"riprel_store"
#define ARCH_SITE_STORE2	"riprel_store_rsi"
#define ARCH_SITE_UPDATE	"riprel_add"
#define ARCH_SITE_BRANCH	"je_short"
#define ARCH_SITE_FRAME		"sub_rsp"
/* Optimised after the first hit, with a trace that stays in the text. */
#define ARCH_SITE_OPTIMISED	"nop10"
/* The same branch with another condition. */
#define ARCH_IS_ONE_OF_MANY(name)						\
	((name)[0] == 'j' && (name)[1] != 'm' && (name)[1] != 'r')

/* Name in reports, site, flags of the attach: see bench/bench.h. */
#define ARCH_BENCH_SITES(S)							\
	S("nop", "nop", 0) S("push", "push", 0) S("ret", "ret", 0)		\
	S("sub", "sub_rsp", 0) S("nop5", "nop5", 0) S("nop10", "nop10", 0)	\
	S("uretprobe-nop", "nop", MULTI_RETURN)				\
	S("uretprobe-ret", "ret", MULTI_RETURN)

/* Number of the last exception in a signal's ucontext; there are 32. */
#define UC_TRAPNO(uc)		((uc)->uc_mcontext.gregs[REG_TRAPNO])
#define ARCH_EXCEPTIONS		32
/* long call_pause(void) by the system call instruction pause_insn, with errors as of the kernel. */
#define PAUSE_ASM		"call_pause: mov $34, %eax\npause_insn: syscall\nret\n"

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
#define ARCH_FLAGS_FIXED	2

/* Where a handler finds them: words of pt_regs, -1 for what the caller does not set. */
#define ARCH_PT_REGS_OF_GPR	{						\
	[RAX] = 10, [RCX] = 11, [RDX] = 12, [RBX] = 5, [RSP] = -1, [RBP] = 4,	\
	[RSI] = 13, [RDI] = 14, [R8] = 9, [R9] = 8, [R10] = 7, [R11] = 6,	\
	[R12] = 3, [R13] = 2, [R14] = 1, [R15] = 0 }
#define ARCH_PT_REGS_FLAGS	(18 * 8)

/* How far behind the entry of a kernel function a kprobe is none of ftrace's. */
#define ARCH_ENTRY_BYTES	5

/* A clock of all CPUs, in units of its own. The kernel may have none finer than its tick. */
static inline uint64_t arch_clock(void)
{
	return __builtin_ia32_rdtsc();
}

/* Calls @fn with the registers in @io, stores there what it leaves. */
void site_call(const void *fn, struct cpu_regs *io);

#endif
