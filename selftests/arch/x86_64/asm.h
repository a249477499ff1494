/* SPDX-License-Identifier: GPL-2.0 */
/* Pieces of assembly, and of the debugger's interface, that single tests need. */
#ifndef ARCH_ASM_H
#define ARCH_ASM_H

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>

/* For retprobe.c: see there. */
#define TAIL_ASM							\
	".globl tail_a, tail_b, tail_c, tail_loop\n"			\
	"tail_a: nop\njmp tail_b\n"					\
	"tail_b: nop\njmp tail_c\n"					\
	"tail_c: lea 7(%rdi), %rax\nret\n"				\
	"tail_loop: nop\nsub $1, %rdi\njnz tail_loop\nmov $99, %eax\nret\n"

/* For debugger.c: exit_group(0), where a stepped site returns to. */
#define LANDING_ASM	"nop\nxor %edi, %edi\nmov $231, %eax\nsyscall\n"

/* Registers of a stopped child that is to run @fn with @from and return to @landing. */
static inline void arch_enter(pid_t pid, struct user_regs_struct *regs, const void *fn,
			      const struct cpu_regs *from, const void *landing)
{
	regs->rip = (long)fn;
	regs->rsp = (regs->rsp & -4096) - 8;
	ptrace(PTRACE_POKEDATA, pid, regs->rsp, landing);
	regs->orig_rax = -1;
	regs->eflags = from->flags | 0x202;
	regs->rax = from->gpr[RAX];
	regs->rcx = from->gpr[RCX];
	regs->rdx = from->gpr[RDX];
	regs->rbx = from->gpr[RBX];
	regs->rbp = from->gpr[RBP];
	regs->rsi = from->gpr[RSI];
	regs->rdi = from->gpr[RDI];
	regs->r8 = from->gpr[R8];
	regs->r9 = from->gpr[R9];
	regs->r10 = from->gpr[R10];
	regs->r11 = from->gpr[R11];
	regs->r12 = from->gpr[R12];
	regs->r13 = from->gpr[R13];
	regs->r14 = from->gpr[R14];
	regs->r15 = from->gpr[R15];
}

#define ARCH_HW_BREAKPOINT_LEN	8
/* What C gets wrong with a hardware breakpoint at a probe. */
#define ARCH_HW_BREAKPOINT_FAULT(name) NULL

/*
 * A program that sets its own trace flag. The instructions of the probes are those
 * from TRACE_SELF_FIRST to TRACE_SELF_LAST.
 */
#define TRACE_SELF_ASM							\
	"pushfq\norq $0x100, (%rsp)\npopfq\n"				\
	"nop\nnop\n"							\
	"lea 1(%rdi), %rax\n"		/* + 12: stepped */		\
	"push %rax\n"							\
	"pop %rax\n"							\
	"pushfq\nandq $~0x100, (%rsp)\npopfq\n"				\
	"ret\n"
#define TRACE_SELF_FIRST	10
#define TRACE_SELF_LAST		17

/* Stores gpr[WATCH_IN] to site_data between two nops, adds 1 in gpr[WATCH_OUT]. */
#define WATCH_ASM							\
	".globl watch_fn, watch_before, watch_after\n"			\
	"watch_fn: watch_before: nop\n"					\
	"mov %rdx, site_data(%rip)\n"					\
	/* Not stepped: QEMU's #DB of the step tells of the watchpoint again. */ \
	"watch_after: nop\n"						\
	"lea 1(%rdx), %rax\n"						\
	"ret\n"
#define WATCH_IN		RDX
#define WATCH_OUT		RAX

/* What C gets wrong with a debugger's watchpoint on what a probed store writes. */
#define ARCH_WATCH_STOP_FAULT	NULL

/* A debugger's watchpoint on the 8 bytes at @addr, NULL: none; -1 if there is no such thing. */
static inline int arch_watch(pid_t pid, const void *addr)
{
	/* DR0 = addr, DR7: enable, write, 8 bytes */
	if (addr && ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[0]), addr))
		return -1;
	return ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[7]),
		      addr ? 1 | 1 << 16 | 2 << 18 : 0);
}

/*
 * For signals.c: instructions that fault with all registers 0 or small, and
 * fault_update, which adds gpr[FAULT_VALUE] to the memory at gpr[FAULT_ADDR].
 */
#define FAULTS(F)							\
	F(load, "load", "mov 8(%rax), %rdx\nret", false, NULL)		\
	F(store_rip, "RIP-relative store", "mov %rsi, ro_page(%rip)\nret", false, NULL) \
	F(update, "read-modify-write", "add %rcx, (%rax)\nret", false, NULL)	\
	F(div, "division by zero", "div %rcx\nret", false, NULL)		\
	F(undefined, "undefined instruction", "ud2\nret", false, NULL)	\
	F(push, "push on a bad stack", "push %rbp\nret", true, NULL)		\
	F(call, "call on a bad stack", "call fault_out\nret", true, NULL)	\
	F(ret, "return on a bad stack", "ret", true, NULL)			\
	F(jump, "jump to nowhere", "jmp *%rax", false, NULL)
#define FAULT_ADDR		RAX
#define FAULT_VALUE		RCX
#define FAULT_OUT_ASM		"fault_out: ret\n"
#define FAULT_BAD_STACK		0x1000

/*
 * jump_with_known_regs(rdi: where to, rsi: stack pointer, 0: as it is), with known
 * values in all other registers.
 */
#define JUMP_ASM							\
	"test %rsi, %rsi\ncmovnz %rsi, %rsp\n"				\
	"mov %rdi, %rdx\nmov $0x71, %ebx\nmov $0x72, %ebp\nmov $0x73, %esi\nmov $0x74, %edi\n" \
	"mov $0x75, %r8d\nmov $0x76, %r9d\nmov $0x77, %r10d\nmov $0x78, %r11d\n" \
	"mov $0x79, %r12d\nmov $0x7a, %r13d\nmov $0x7b, %r14d\nmov $0x7c, %r15d\n" \
	"xor %eax, %eax\nxor %ecx, %ecx\njmp *%rdx\n"

/* All registers of a signal's context. */
#define UC_REGS(uc)		((uc)->uc_mcontext.gregs)

/*
 * For errnos.c: R(name, bytes, errno or 0 where it is accepted, fault of C or NULL).
 */
#define REFUSALS(R)							\
	R("int3", "\xcc\xc3", ENOTSUPP, NULL)				\
	R("int1", "\xf1\xc3", ENOTSUPP, NULL)				\
	R("int n", "\xcd\x80\xc3", ENOTSUPP, NULL)			\
	R("iret", "\x48\xcf", ENOTSUPP, NULL)				\
	R("hlt", "\xf4\xc3", ENOTSUPP, NULL)				\
	R("cli", "\xfa\xc3", ENOTSUPP, NULL)				\
	R("sti", "\xfb\xc3", ENOTSUPP, NULL)				\
	R("in", "\xe4\x10\xc3", ENOTSUPP, NULL)				\
	R("out", "\xee\xc3", ENOTSUPP, NULL)				\
	R("insb", "\x6c\xc3", ENOTSUPP, NULL)				\
	R("mov to ss", "\x8e\xd0\xc3", ENOTSUPP, NULL)			\
	R("invalid in 64-bit mode", "\x06\xc3", ENOTSUPP, NULL)		\
	R("call with a 16-bit prefix", "\x66\xe8\x00\x00\x00\x00\xc3", ENOTSUPP, NULL) \
	R("jump with a 16-bit prefix", "\x66\xeb\x01\x90\xc3", ENOTSUPP, NULL) \
	R("too many prefixes",						\
	  "\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66", ENOEXEC, NULL) \
	R("nop", "\x90\xc3", 0, NULL)					\
	R("add", "\x48\x01\xc8\xc3", 0, NULL)				\
	R("ret", "\xc3", 0, NULL)
/* One that is refused. */
#define REFUSED_INSN		"\xf4\xc3"
/* An offset at which no instruction can be: there is none. */
#define MISALIGNED_OFFSET	0

#endif
