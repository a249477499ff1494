/* SPDX-License-Identifier: GPL-2.0 */
/* Pieces of assembly, and of the debugger's interface, that single tests need. */
#ifndef ARCH_ASM_H
#define ARCH_ASM_H

#include <elf.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

/* For retprobe.c: see there. */
#define TAIL_ASM							\
	".globl tail_a, tail_b, tail_c, tail_loop\n"			\
	"tail_a: nop\nb tail_b\n"					\
	"tail_b: nop\nb tail_c\n"					\
	"tail_c: add x0, x0, #7\nret\n"					\
	"tail_loop: nop\nsubs x0, x0, #1\nb.ne tail_loop\nmov x0, #99\nret\n"

/* For debugger.c: exit_group(0), where a stepped site returns to. */
#define LANDING_ASM	"nop\nmov x0, #0\nmov x8, #94\nsvc #0\n"

/* Registers of a stopped child that is to run @fn with @from and return to @landing. */
static inline void arch_enter(pid_t pid, struct user_regs_struct *regs, const void *fn,
			      const struct cpu_regs *from, const void *landing)
{
	int i;

	for (i = 0; i < NR_GPR; i++)
		regs->regs[i] = from->gpr[i];
	regs->regs[30] = (long)landing;
	regs->pc = (long)fn;
	regs->sp &= -4096;
	regs->pstate = (regs->pstate & ~(uint64_t)ARCH_FLAGS_MASK) | from->flags;
}

static inline int arch_insn_len(const void *insn)
{
	return 4;
}

#define ARCH_HW_BREAKPOINT_LEN	4
/* What C gets wrong with a hardware breakpoint at a probe that it steps. */
#define ARCH_HW_BREAKPOINT_FAULT(name) \
	(!strcmp(name, ARCH_SITE_PUSH) || !strcmp(name, "add") || \
	 !strcmp(name, ARCH_SITE_STORE) ? "F.11" : NULL)

/* Stores gpr[WATCH_IN] to site_data between two nops, adds 1 in gpr[WATCH_OUT]. */
#define WATCH_ASM							\
	".globl watch_fn, watch_before, watch_after\n"			\
	"watch_fn: watch_before: nop\n"					\
	"adrp x9, site_data\nstr x2, [x9, :lo12:site_data]\n"		\
	"watch_after: nop\n"						\
	"add x0, x2, #1\n"						\
	"ret\n"
#define WATCH_IN		2
#define WATCH_OUT		0

/* What C gets wrong with a debugger's watchpoint on what a probed store writes. */
#define ARCH_WATCH_STOP_FAULT	"F.11"

/* A debugger's watchpoint on the 8 bytes at @addr, NULL: none; -1 if there is no such thing. */
static inline int arch_watch(pid_t pid, const void *addr)
{
	struct {
		uint32_t info, pad;
		uint64_t addr;
		uint32_t ctrl, pad2;
	} state = {
		.addr = (uint64_t)addr,
		/* enabled, for EL0, stores, 8 bytes */
		.ctrl = addr ? 1 | 2 << 1 | 2 << 3 | 0xff << 5 : 0,
	};
	struct iovec iov = { &state, sizeof(state) };

	return ptrace(PTRACE_SETREGSET, pid, (void *)0x403 /* NT_ARM_HW_WATCH */, &iov);
}

/*
 * For signals.c: instructions that fault with all registers 0 or small but for x9,
 * which is ro_page, and fault_update, which adds gpr[FAULT_VALUE] to the memory at
 * gpr[FAULT_ADDR].
 */
#define FAULTS(F)							\
	F(load, "load", "ldr x2, [x0, #8]\nret", false, NULL)			\
	F(store, "store to read-only memory", "str x1, [x9]\nret", false, NULL)	\
	F(store_pair, "store of a pair", "stp x1, x2, [x0, #16]!\nret", false, NULL)	\
	F(update, "read-modify-write", ".arch armv8.5-a\nldadd x1, xzr, [x0]\nret", false, NULL) \
	F(undefined, "undefined instruction", "udf #0\nret", false, "si_addr")	\
	F(push, "push on a bad stack", "stp x29, x30, [sp, #-16]!\nret", true, NULL)	\
	F(pop, "pop on a bad stack", "ldp x29, x30, [sp], #16\nret", true, NULL)	\
	F(call, "call to nowhere", "blr x0", false, NULL)			\
	F(ret, "return to nowhere", "ret x0", false, NULL)			\
	F(jump, "jump to nowhere", "br x0", false, NULL)			\
	F(odd, "jump to an odd address", "br x3", false, NULL)
#define FAULT_ADDR		0
#define FAULT_VALUE		1
#define FAULT_OUT_ASM		"ret\n"
#define FAULT_BAD_STACK		0x1000

/*
 * jump_with_known_regs(x0: where to, x1: stack pointer, 0: as it is), with known
 * values in all other registers.
 */
#define JUMP_ASM							\
	"cbz x1, 1f\nmov sp, x1\n1: mov x16, x0\n"			\
	"mov x2, #0x72\nmov x3, #0x73\nmov x4, #0x74\nmov x5, #0x75\nmov x6, #0x76\n" \
	"mov x7, #0x77\nmov x8, #0x78\nadrp x9, ro_page\nadd x9, x9, :lo12:ro_page\n" \
	"mov x10, #0x7a\nmov x11, #0x7b\nmov x12, #0x7c\nmov x13, #0x7d\n" \
	"mov x14, #0x7e\nmov x15, #0x7f\nmov x17, #0x81\nmov x18, #0x82\n" \
	"mov x19, #0x83\nmov x20, #0x84\nmov x21, #0x85\nmov x22, #0x86\n" \
	"mov x23, #0x87\nmov x24, #0x88\nmov x25, #0x89\nmov x26, #0x8a\n" \
	"mov x27, #0x8b\nmov x28, #0x8c\nmov x29, #0x8d\nmov x30, #0x8e\n" \
	"mov x0, #0\nmov x1, #0\nmsr nzcv, xzr\nbr x16\n"

/* All registers of a signal's context: x0 to x30, sp, pc. */
struct uc_regs { uint64_t word[33]; } __attribute__((may_alias));
#define UC_REGS(uc)		(*(struct uc_regs *)(uc)->uc_mcontext.regs)

/*
 * For errnos.c: R(name, bytes, errno or 0 where it is accepted, fault of C or NULL).
 */
#define RET			"\xc0\x03\x5f\xd6"
#define REFUSALS(R)							\
	R("brk #0", "\x00\x00\x20\xd4" RET, EINVAL, NULL)		\
	R("brk #5", "\xa0\x00\x20\xd4" RET, ENOTSUPP, NULL)		\
	R("hlt", "\x00\x00\x40\xd4" RET, EINVAL, NULL)			\
	R("hvc", "\x02\x00\x00\xd4" RET, EINVAL, NULL)			\
	R("smc", "\x03\x00\x00\xd4" RET, EINVAL, NULL)			\
	R("eret", "\xe0\x03\x9f\xd6" RET, EINVAL, NULL)			\
	R("msr daifset", "\xdf\x42\x03\xd5" RET, 0, "F.4")		\
	R("ldxr", "\x00\x7c\x5f\xc8" RET, EINVAL, NULL)			\
	R("ldaxr", "\x00\xfc\x5f\xc8" RET, EINVAL, NULL)		\
	R("stxr", "\x20\x7c\x01\xc8" RET, EINVAL, NULL)			\
	R("stlxp", "\x20\xfc\x22\xc8" RET, EINVAL, NULL)		\
	R("cpyfp", "\x40\x04\x01\x19" RET, EINVAL, NULL)		\
	R("svc", "\x01\x00\x00\xd4" RET, 0, "F.4")			\
	R("msr nzcv", "\x01\x42\x1b\xd5" RET, 0, "F.4")			\
	R("ldr, literal", "\x40\x00\x00\x58" RET, 0, "F.4")		\
	R("ldr q, literal", "\x40\x00\x00\x9c" RET, 0, NULL)		\
	R("autiasp", "\xbf\x23\x03\xd5" RET, 0, "F.4")			\
	R("retaa", "\xff\x0b\x5f\xd6" RET, 0, "F.4")			\
	R("paciasp", "\x3f\x23\x03\xd5" RET, 0, NULL)			\
	R("bti c", "\x5f\x24\x03\xd5" RET, 0, NULL)			\
	R("ldadd", "\x01\x00\x22\xf8" RET, 0, NULL)			\
	R("nop", "\x1f\x20\x03\xd5" RET, 0, NULL)			\
	R("add", "\x00\x00\x01\x8b" RET, 0, NULL)			\
	R("ret", RET, 0, NULL)
/* One that is refused: hvc #0. */
#define REFUSED_INSN		"\x02\x00\x00\xd4"
/* An offset at which no instruction can be. */
#define MISALIGNED_OFFSET	2

#endif
