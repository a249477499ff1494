/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probe sites. Each is a function: @pre, then the probed instruction, then
 * @post, then ret. Whatever the instruction does must show in the registers,
 * the flags or site_data[] when the function returns.
 *
 * SITE(name, fault of C or NULL, pre, instruction, post)
 *
 * Included only by lib/sites.c.
 */

/* bare jcc forms: lea shows which way it went and leaves the flags alone */
#define JCC(S, cc)								\
	S(j##cc##_short, NULL, "", "{disp8} j" #cc " 9f", "lea 1(%rax), %rax\n9:")	\
	S(j##cc##_near, NULL, "", "{disp32} j" #cc " 9f", "lea 1(%rax), %rax\n9:")

#define CALLEE	"jmp 9f\n7: lea 1(%rax), %rax\nret\n9:"

#define SITES(S)								\
	/* simulated by C */							\
	S(nop, NULL, "", "nop", "")						\
	S(nop2, NULL, "", "xchg %ax, %ax", "")					\
	S(nop5, NULL, "", ".byte 0x0f,0x1f,0x44,0,0", "")			\
	S(nop10, NULL, "", ".byte 0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0", "")	\
	S(endbr64, NULL, "", "endbr64", "")					\
	S(push, NULL, "", "push %rbp", "pop %rax")				\
	S(push_r12, NULL, "", "push %r12", "pop %rax")				\
	S(push_rsp, NULL, "", "push %rsp", "pop %rax\nsub %rsp, %rax")		\
	S(call, NULL, "", "call 7f", CALLEE)					\
	S(jmp_short, NULL, "", "{disp8} jmp 9f", "ud2\n9:")			\
	S(jmp_near, NULL, "", "{disp32} jmp 9f", "ud2\n9:")			\
	JCC(S, o) JCC(S, no) JCC(S, b) JCC(S, ae) JCC(S, e) JCC(S, ne)		\
	JCC(S, be) JCC(S, a) JCC(S, s) JCC(S, ns) JCC(S, p) JCC(S, np)		\
	JCC(S, l) JCC(S, ge) JCC(S, le) JCC(S, g)				\
	/* control transfers that C steps */					\
	S(ret, NULL, "", "ret", "")						\
	S(repz_ret, NULL, "", "repz ret", "")					\
	S(ret_imm, NULL, "push %rbx\ncall 7f\njmp 9f\n7:", "ret $8", "ud2\n9:")	\
	S(call_reg, NULL, "lea 7f(%rip), %r11", "call *%r11", CALLEE)		\
	S(call_mem, NULL, "lea 7f(%rip), %rcx\nmov %rcx, site_data+48(%rip)",	\
	  "call *site_data+48(%rip)", CALLEE)					\
	S(jmp_reg, NULL, "lea 9f(%rip), %r11", "jmp *%r11", "ud2\n9:")		\
	S(jmp_mem, NULL, "lea 9f(%rip), %rcx\nmov %rcx, site_data+48(%rip)",	\
	  "jmp *site_data+48(%rip)", "ud2\n9:")					\
	S(loop, NULL, "mov $2, %ecx", "loop 9f", "lea 1(%rax), %rax\n9:")	\
	S(loop_done, NULL, "mov $1, %ecx", "loop 9f", "lea 1(%rax), %rax\n9:")	\
	S(jrcxz, NULL, "mov $0, %ecx", "jrcxz 9f", "lea 1(%rax), %rax\n9:")	\
	/* prologues and epilogues */						\
	S(sub_rsp, NULL, "", "sub $0x18, %rsp", "lea 0x18(%rsp), %rsp\npushfq\npop %rax") \
	S(sub_rsp_imm32, NULL, "", "sub $0x418, %rsp",				\
	  "lea 0x418(%rsp), %rsp\npushfq\npop %rax")				\
	S(add_rsp, NULL, "lea -0x18(%rsp), %rsp", "add $0x18, %rsp", "pushfq\npop %rax") \
	S(mov_rsp_rbp, NULL, "", "mov %rsp, %rbp", "sub %rsp, %rbp")		\
	S(leave, NULL, "push %rbp\nmov %rsp, %rbp\nlea -64(%rsp), %rsp", "leave", "") \
	S(pop, NULL, "push %rcx", "pop %rax", "")				\
	S(push_imm, NULL, "", "push $0x1234", "pop %rax")			\
	S(push_mem, NULL, "", "push site_data(%rip)", "pop %rax")		\
	/* RIP-relative operands */						\
	S(riprel_load, NULL, "", "mov site_data(%rip), %rax", "")		\
	S(riprel_store, NULL, "", "mov %rdx, site_data(%rip)", "")		\
	S(riprel_store_rsi, NULL, "", "mov %rsi, site_data(%rip)", "")		\
	S(riprel_store_r14, NULL, "", "mov %r14, site_data(%rip)", "")		\
	S(riprel_add, NULL, "", "add %rcx, site_data(%rip)", "")		\
	S(riprel_cmp_imm, NULL, "", "cmpl $5, site_data(%rip)", "")		\
	S(riprel_lea, NULL, "", "lea site_data(%rip), %rax", "")		\
	S(riprel_mul, NULL, "", "mulq site_data(%rip)", "")			\
	S(riprel_cmpxchg, NULL, "", "cmpxchg %rdx, site_data(%rip)", "")	\
	S(riprel_sse, NULL, "", "movups site_data(%rip), %xmm3",		\
	  "movups %xmm3, site_data+16(%rip)")					\
	/* stepped, nothing special */						\
	S(add, NULL, "", "add %rcx, %rax", "")					\
	S(imul, NULL, "", "imul %rcx, %rax", "")				\
	S(cmov, NULL, "", "cmovc %rcx, %rax", "")				\
	S(setcc, NULL, "", "setl %al", "")					\
	S(xchg, NULL, "", "xchg %rsi, %rdi", "")				\
	S(movabs, NULL, "", "movabs $0x1122334455667788, %r9", "")		\
	S(div, NULL, "xor %edx, %edx\nor $1, %rcx", "div %rcx", "")		\
	S(mov_fs, NULL, "", "mov %fs:0, %rax", "")				\
	S(popf, NULL, "push $0x8d5", "popfq", "")				\
	/* where C is wrong */							\
	S(pushf, "F.2", "", "pushfq", "pop %rax")				\
	S(rep_movsb, "F.2", "lea site_data(%rip), %rsi\nlea site_data+32(%rip), %rdi\n" \
	  "mov $16, %ecx", "rep movsb", "")					\
	S(rep_stosb, "F.2", "lea site_data(%rip), %rdi\nmov $7, %ecx", "rep stosb", "") \
	S(repe_cmpsb, "F.2", "lea site_data(%rip), %rsi\nmov %rsi, %rdi\n"	\
	  "mov $9, %ecx", "repe cmpsb", "")					\
	S(syscall, "F.2", "mov $39, %eax", "syscall", "")			\
	S(lock_add, "F.3", "", "lock addq %rcx, site_data(%rip)", "")		\
	S(lock_cmpxchg, "F.3", "", "lock cmpxchg %rdx, site_data(%rip)", "")	\
	S(nop11, "F.3", "", ".byte 0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0", "")	\
	S(cs_mov, "F.3", "", ".byte 0x2e\nmov %rdx, %rax", "")			\
	S(ds_mov, "F.3", "", ".byte 0x3e\nmov site_data(%rip), %rax", "")

#define SITE_ASM(name, fault, pre, insn, post)					\
	asm(".pushsection .text.sites, \"ax\", @progbits\n"			\
	    ".balign 16\n"							\
	    ".globl site_fn_" #name ", site_pc_" #name "\n"			\
	    ".type site_fn_" #name ", @function\n"				\
	    "site_fn_" #name ":\n" pre "\n"					\
	    "site_pc_" #name ":\n" insn "\n" post "\nret\n"			\
	    ".size site_fn_" #name ", . - site_fn_" #name "\n"			\
	    ".popsection");

/*
 * site_call(rdi: function, rsi: struct cpu_regs). The function's stack starts at
 * a page boundary: the flags that "sub $n, %rsp" leaves must not depend on who
 * called. While the function runs the stack holds, above its return address:
 * function, io, the caller's stack pointer.
 */
#define SITE_CALL_ASM								\
	asm(".pushsection .text\n"						\
	    ".globl site_call\n"						\
	    ".type site_call, @function\n"					\
	    "site_call:\n"							\
	    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"	\
	    "mov %rsp, %rax\nand $-4096, %rsp\n"				\
	    "push %rax\npush %rsi\npush %rdi\n"				\
	    "push 128(%rsi)\npopfq\n"						\
	    "mov 0(%rsi), %rax\nmov 8(%rsi), %rcx\nmov 16(%rsi), %rdx\n"	\
	    "mov 24(%rsi), %rbx\nmov 40(%rsi), %rbp\nmov 56(%rsi), %rdi\n"	\
	    "mov 64(%rsi), %r8\nmov 72(%rsi), %r9\nmov 80(%rsi), %r10\n"	\
	    "mov 88(%rsi), %r11\nmov 96(%rsi), %r12\nmov 104(%rsi), %r13\n"	\
	    "mov 112(%rsi), %r14\nmov 120(%rsi), %r15\nmov 48(%rsi), %rsi\n"	\
	    "call *(%rsp)\n"							\
	    "pushfq\npush %rsi\n"						\
	    "mov 24(%rsp), %rsi\n"						\
	    "mov %rax, 0(%rsi)\nmov %rcx, 8(%rsi)\nmov %rdx, 16(%rsi)\n"	\
	    "mov %rbx, 24(%rsi)\nmov %rbp, 40(%rsi)\nmov %rdi, 56(%rsi)\n"	\
	    "mov %r8, 64(%rsi)\nmov %r9, 72(%rsi)\nmov %r10, 80(%rsi)\n"	\
	    "mov %r11, 88(%rsi)\nmov %r12, 96(%rsi)\nmov %r13, 104(%rsi)\n"	\
	    "mov %r14, 112(%rsi)\nmov %r15, 120(%rsi)\n"			\
	    "pop %rax\nmov %rax, 48(%rsi)\npop %rax\nmov %rax, 128(%rsi)\n"	\
	    "pushq $2\npopfq\n"							\
	    "mov 16(%rsp), %rsp\n"						\
	    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"	\
	    "ret\n"								\
	    ".size site_call, . - site_call\n"					\
	    ".popsection")
