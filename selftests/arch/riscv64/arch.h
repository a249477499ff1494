/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests must know about the ISA: pt_regs as BPF programs see it. */
#ifndef ARCH_H
#define ARCH_H

#include <stdint.h>

/* pc, then x1 to x31: word n is xn */
#define ARCH_PT_REGS_WORDS	32
#define ARCH_PT_REGS_RV		(10 * 8)	/* a0 */
#define ARCH_PT_REGS_ARG0	(10 * 8)
#define ARCH_PT_REGS_IP		0
#define ARCH_PT_REGS_SP		(2 * 8)

/* c.ebreak: a debugger's breakpoint, and the one of uprobes. */
#define ARCH_BREAKPOINT		"\x02\x90"
#define ARCH_BREAKPOINT_LEN	2
#define ARCH_UPROBE_TRAP	"\x02\x90"

/*
 * long fn(long x) { return x + 1; } as bytes, position-independent. The first
 * instruction is one that may be simulated (nop), in the other one that is stepped
 * (xori a0, a0, -1, to which neg adds the 1), of 4 bytes that may lie across a page
 * boundary.
 */
#define ARCH_FN_SIMULATED	"\x13\x00\x00\x00\x05\x05\x82\x80"
#define ARCH_FN_STEPPED		"\x13\x45\xf5\xff\x33\x05\xa0\x40\x82\x80"
/* How far before the end of a page ARCH_FN_STEPPED begins to reach into the next one. */
#define ARCH_FN_CROSS		2

/* The debugger's view of a stopped task (struct user_regs_struct). */
#define PT_IP(regs)		((regs).pc)
#define PT_RV(regs)		((regs).a0)
/* A breakpoint trap leaves the program counter at the breakpoint. */
#define ARCH_TRAP_PC_AFTER	0

/* Instruction pointer and stack pointer of a signal's ucontext. */
#define UC_IP(uc)		((uc)->uc_mcontext.__gregs[REG_PC])
#define UC_SP(uc)		((uc)->uc_mcontext.__gregs[REG_SP])

/*
 * All that a site may change: x5 to x31. The others are zero, the way back, and what
 * the C library needs; there are no flags.
 */
enum { NR_GPR = 32 };

struct cpu_regs {
	uint64_t	gpr[NR_GPR];
	uint64_t	flags;
};

#define ARCH_FLAGS_MASK		0
#define ARCH_FLAGS_FIXED	0

/* Where a handler finds them: words of pt_regs, -1 for what the caller does not set. */
#define ARCH_PT_REGS_OF_GPR	{						\
	-1, -1, -1, -1, -1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,	\
	19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 }

/* Trampolines are breakpoints: no tracer of system calls gets to see them. */
#define ARCH_TRAMPOLINE_FAULT	NULL

/*
 * What the kernel's unwinder finds at the entry of leaf(), called by level1() and so on,
 * and at its return. It takes the first address from ra and passes the frame over that
 * would have had it: at an entry that is level2()'s, and if both it and the next one
 * have a return probe, the kernel puts the address of the one for the other. At a return
 * ra is where the function has returned to, that is, the trampoline.
 */
#define ARCH_CHAIN_AT_ENTRY	{ leaf, level1, level3 }
#define ARCH_CHAIN_AT_RETURN	{ level1 }
#define ARCH_CHAIN_CONFUSED(mask) (((mask) & 6) == 6)

/* What C gets wrong when a process loses its last probe. */
#define ARCH_LAST_PROBE_FAULT	NULL

/* Sites of sites.h by their role: "nop", "ret" and "add" (stepped) are everywhere. */
#define ARCH_SITE_PUSH		"c_sdsp"
#define ARCH_SITE_CALL		"jal"
#define ARCH_SITE_LOAD		"lw"
#define ARCH_SITE_STORE		"sd"
#define ARCH_SITE_STORE2	"sb"
#define ARCH_SITE_UPDATE	"amoadd"
#define ARCH_SITE_BRANCH	"blt"
#define ARCH_SITE_FRAME		"addi_sp"
#define ARCH_IS_ONE_OF_MANY(name) 0

/* Name in reports, site, flags of the attach: see bench/bench.h. */
#define ARCH_BENCH_SITES(S)							\
	S("nop", "nop", 0) S("addi", "addi_sp", 0) S("ret", "ret", 0)		\
	S("sd", "sd_ra", 0) S("auipc", "auipc", 0)				\
	S("uretprobe-nop", "nop", MULTI_RETURN)				\
	S("uretprobe-ret", "ret", MULTI_RETURN)

/* How far behind the entry of a kernel function a kprobe is none of ftrace's. */
#define ARCH_ENTRY_BYTES	0

/* A clock of all CPUs, in units of its own. The kernel may have none finer than its tick. */
static inline uint64_t arch_clock(void)
{
	uint64_t ticks;

	asm volatile("rdtime %0" : "=r"(ticks));
	return ticks;
}

/* Calls @fn with the registers in @io, stores there what it leaves. */
void site_call(const void *fn, struct cpu_regs *io);

#endif
