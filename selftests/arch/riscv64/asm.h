/* SPDX-License-Identifier: GPL-2.0 */
/* Pieces of assembly, and of the debugger's interface, that single tests need. */
#ifndef ARCH_ASM_H
#define ARCH_ASM_H

#include <stddef.h>
#include <sys/ptrace.h>
#include <asm/ptrace.h>

/* For retprobe.c: see there. */
#define TAIL_ASM							\
	".globl tail_a, tail_b, tail_c, tail_loop\n"			\
	"tail_a: nop\nj tail_b\n"					\
	"tail_b: nop\nj tail_c\n"					\
	"tail_c: addi a0, a0, 7\nret\n"					\
	"tail_loop: nop\naddi a0, a0, -1\nbnez a0, tail_loop\nli a0, 99\nret\n"

/* For debugger.c: exit_group(0), where a site returns to. */
#define LANDING_ASM	"nop\nli a0, 0\nli a7, 94\necall\n"

/* Registers of a stopped child that is to run @fn with @from and return to @landing. */
static inline void arch_enter(pid_t pid, struct user_regs_struct *regs, const void *fn,
			      const struct cpu_regs *from, const void *landing)
{
	unsigned long *x = (unsigned long *)regs;
	int i;

	for (i = 5; i < NR_GPR; i++)
		x[i] = from->gpr[i];
	regs->ra = (long)landing;
	regs->pc = (long)fn;
	regs->sp &= -4096;
}

static inline int arch_insn_len(const void *insn)
{
	return (*(const uint8_t *)insn & 3) == 3 ? 4 : 2;
}

/* Stores gpr[WATCH_IN] to site_data between two nops, adds 1 in gpr[WATCH_OUT]. */
#define WATCH_ASM							\
	".globl watch_fn, watch_before, watch_after\n"			\
	"watch_fn: watch_before: nop\n"					\
	"la t0, site_data\nsd a2, 0(t0)\n"				\
	"watch_after: nop\n"						\
	"addi a0, a2, 1\n"						\
	"ret\n"
#define WATCH_IN		12
#define WATCH_OUT		10

#define ARCH_WATCH_STOP_FAULT	NULL

/* The kernel has no watchpoints of debuggers here. */
static inline int arch_watch(pid_t pid, const void *addr)
{
	return -1;
}

#define ARCH_HW_BREAKPOINT_LEN	4
/* What C gets wrong with a hardware breakpoint at a probe. */
#define ARCH_HW_BREAKPOINT_FAULT(name) NULL

/*
 * For signals.c: instructions that fault with all registers 0 or small but for t0,
 * which is ro_page, and fault_update, which adds gpr[FAULT_VALUE] to the memory at
 * gpr[FAULT_ADDR].
 */
#define FAULTS(F)							\
	F(load, "load", "ld a2, 8(a0)\nret", false, NULL)			\
	F(c_load, "compressed load", "c.ld a2, 8(a0)\nret", false, NULL)	\
	F(store, "store to read-only memory", "sd a1, 0(t0)\nret", false, NULL)	\
	F(update, "read-modify-write", "amoadd.d zero, a1, (a0)\nret", false, NULL)	\
	F(undefined, "undefined instruction", ".2byte 0\nret", false, "si_addr")	\
	F(push, "push on a bad stack", ".option push\n.option norvc\nsd ra, 8(sp)\n.option pop\nret", \
	  true, NULL)								\
	F(c_push, "compressed push on a bad stack", "c.sdsp ra, 8(sp)\nret", true, NULL) \
	F(pop, "pop on a bad stack", "c.ldsp s0, 8(sp)\nret", true, NULL)	\
	F(call, "call to nowhere", "jalr ra, 0(a0)", false, NULL)		\
	F(jump, "jump to nowhere", "jr a0", false, NULL)
#define FAULT_ADDR		10
#define FAULT_VALUE		11
#define FAULT_OUT_ASM		"ret\n"
#define FAULT_BAD_STACK		0x1000

/*
 * jump_with_known_regs(a0: where to, a1: stack pointer, 0: as it is), with known
 * values in all other registers.
 */
#define JUMP_ASM							\
	"beqz a1, 1f\nmv sp, a1\n1: mv t6, a0\nla t0, ro_page\n"	\
	"li ra, 0x71\nli t1, 0x72\nli t2, 0x73\nli s0, 0x74\nli s1, 0x75\n" \
	"li a2, 0x76\nli a3, 0x77\nli a4, 0x78\nli a5, 0x79\nli a6, 0x7a\nli a7, 0x7b\n" \
	"li s2, 0x7c\nli s3, 0x7d\nli s4, 0x7e\nli s5, 0x7f\nli s6, 0x80\nli s7, 0x81\n" \
	"li s8, 0x82\nli s9, 0x83\nli s10, 0x84\nli s11, 0x85\n"	\
	"li t3, 0x86\nli t4, 0x87\nli t5, 0x88\nli a0, 0\nli a1, 0\njr t6\n"

/* All registers of a signal's context. */
#define UC_REGS(uc)		((uc)->uc_mcontext.__gregs)

/*
 * For errnos.c: R(name, bytes, errno or 0 where it is accepted, fault of C or NULL).
 */
#define RET			"\x82\x80"
#define REFUSALS(R)							\
	R("ebreak", "\x73\x00\x10\x00" RET, ENOTSUPP, NULL)		\
	R("c.ebreak", "\x02\x90" RET, ENOTSUPP, NULL)			\
	R("ecall", "\x73\x00\x00\x00" RET, EINVAL, NULL)		\
	R("mret", "\x73\x00\x20\x30" RET, EINVAL, NULL)			\
	R("sret", "\x73\x00\x20\x10" RET, EINVAL, NULL)			\
	R("wfi", "\x73\x00\x50\x10" RET, EINVAL, NULL)			\
	R("fence.i", "\x0f\x10\x00\x00" RET, 0, "fence")		\
	R("fence", "\x0f\x00\xf0\x0f" RET, 0, "fence")			\
	R("lr.d", "\x2f\x35\x05\x10" RET, EINVAL, "LR/SC")		\
	R("sc.d", "\xaf\x35\xb5\x18" RET, EINVAL, "LR/SC")		\
	R("nop", "\x13\x00\x00\x00" RET, 0, NULL)			\
	R("c.nop", "\x01\x00" RET, 0, NULL)				\
	R("add", "\x33\x05\xb5\x00" RET, 0, NULL)			\
	R("amoadd.d", "\x2f\x35\xb5\x00" RET, 0, NULL)			\
	R("ret", RET, 0, NULL)
/* One that is refused: ecall. */
#define REFUSED_INSN		"\x73\x00\x00\x00"
/* An offset at which no instruction can be. */
#define MISALIGNED_OFFSET	1

#endif
