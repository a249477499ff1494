/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests must know about the ISA: pt_regs as BPF programs see it. */
#ifndef ARCH_H
#define ARCH_H

#include <stdint.h>

#define ARCH_PT_REGS_WORDS	34
#define ARCH_PT_REGS_RV		0		/* x0 */
#define ARCH_PT_REGS_ARG0	0
#define ARCH_PT_REGS_SP		(31 * 8)
#define ARCH_PT_REGS_IP		(32 * 8)
#define ARCH_PT_REGS_FLAGS	(33 * 8)

/* A debugger's breakpoint (brk #0), and the one of uprobes (brk #5). */
#define ARCH_BREAKPOINT		"\x00\x00\x20\xd4"
#define ARCH_BREAKPOINT_LEN	4
#define ARCH_UPROBE_TRAP	"\xa0\x00\x20\xd4"

/*
 * long fn(long x) { return x + 1; } as bytes, position-independent. The first
 * instruction is one that is simulated (nop), in the other one that is stepped
 * (mvn, to which neg adds the 1).
 */
#define ARCH_FN_SIMULATED	"\x1f\x20\x03\xd5\x00\x04\x00\x91\xc0\x03\x5f\xd6"
#define ARCH_FN_STEPPED		"\xe0\x03\x20\xaa\xe0\x03\x00\xcb\xc0\x03\x5f\xd6"
/* How far before the end of a page ARCH_FN_STEPPED begins to reach into the next one. */
#define ARCH_FN_CROSS		4

/* The debugger's view of a stopped task (struct user_regs_struct). */
#define PT_IP(r)		((r).pc)
#define PT_RV(r)		((r).regs[0])
/* A breakpoint trap leaves the program counter at the breakpoint. */
#define ARCH_TRAP_PC_AFTER	0

/* Instruction pointer and stack pointer of a signal's ucontext. */
#define UC_IP(uc)		((uc)->uc_mcontext.pc)
#define UC_SP(uc)		((uc)->uc_mcontext.sp)

/* All that a site may change: x0 to x29 and the flags (NZCV). x30 is the way back. */
enum { NR_GPR = 30 };

struct cpu_regs {
	uint64_t	gpr[NR_GPR];
	uint64_t	flags;
};

#define ARCH_FLAGS_MASK		0xf0000000
#define ARCH_FLAGS_FIXED	0

/* Where a handler finds them: words of pt_regs. */
#define ARCH_PT_REGS_OF_GPR	{						\
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,	\
	20, 21, 22, 23, 24, 25, 26, 27, 28, 29 }

/* PTRACE_SINGLESTEP; what C gets wrong with it at every site. */
#define ARCH_HAS_SINGLESTEP	1
#define ARCH_SINGLESTEP_FAULT	"F.5"

/* Trampolines are breakpoints: no tracer of system calls gets to see them. */
#define ARCH_TRAMPOLINE_FAULT	NULL

/*
 * What the kernel's unwinder finds at the entry of leaf(), called by level1() and so on,
 * and at its return. At an entry it does not look at x30, which is all that knows the
 * caller.
 */
#define ARCH_CHAIN_AT_ENTRY	{ leaf, level2, level3 }
#define ARCH_CHAIN_AT_RETURN	{ level1, level2, level3 }
#define ARCH_CHAIN_CONFUSED(mask) 0

/* Whether the architecture lets this site and the breakpoint be exchanged in place. */
#define ARCH_CHANGES_IN_PLACE(name) (!strcmp(name, "nop"))

/* Landing pads are required in pages that are mapped with this. */
#define ARCH_PROT_GUARDED	PROT_BTI

/* What C gets wrong when a process loses its last probe. */
#define ARCH_LAST_PROBE_FAULT	"F.9"

/* Sites of sites.h by their role: "nop", "ret" and "add" (stepped) are everywhere. */
#define ARCH_SITE_PUSH		"stp_pre"
#define ARCH_SITE_CALL		"bl"
#define ARCH_SITE_LOAD		"ldr"
#define ARCH_SITE_STORE		"str"
#define ARCH_SITE_STORE2	"stp_data"
#define ARCH_SITE_UPDATE	"ldadd"
#define ARCH_SITE_BRANCH	"b_eq"
#define ARCH_SITE_FRAME		"sub_sp"
/* The same branch with another condition. */
#define ARCH_IS_ONE_OF_MANY(name) ((name)[0] == 'b' && (name)[1] == '_')

/* Name in reports, site, flags of the attach: see bench/bench.h. */
#define ARCH_BENCH_SITES(S)							\
	S("nop", "nop", 0) S("stp", "stp_pre", 0) S("ret", "ret", 0)		\
	S("sub", "sub_sp", 0) S("bti", "bti_c", 0)				\
	S("uretprobe-nop", "nop", MULTI_RETURN)

/* How far behind the entry of a kernel function a kprobe is none of ftrace's. */
#define ARCH_ENTRY_BYTES	0

/* A clock of all CPUs, in units of its own. The kernel may have none finer than its tick. */
static inline uint64_t arch_clock(void)
{
	uint64_t ticks;

	asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
}

/* Calls @fn with the registers in @io, stores there what it leaves. */
void site_call(const void *fn, struct cpu_regs *io);

#endif
