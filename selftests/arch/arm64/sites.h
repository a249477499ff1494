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

#define DATA(reg)	"adrp " #reg ", site_data\nadd " #reg ", " #reg ", :lo12:site_data"

/* add shows which way it went and leaves the flags alone */
#define BCOND(S, cc) S(b_##cc, NULL, "", "b." #cc " 9f", "add x0, x0, #1\n9:")

/* x29 becomes its distance from sp; of sp itself nothing stays, it differs from run to run */
#define FROM_SP "mov x0, sp\nsub x29, x29, x0\nmov x0, #0"

#define SKIPPED_IF_TAKEN "add x0, x0, #1\n9:"
#define CALLEE	"b 9f\n7: add x0, x0, #1\nret\n9: mov x30, x9"
#define LITERAL	"b 9f\n.balign 16\n8: .quad 0x8899aabbccddeeff, 0x0123456789abcdef\n9:"

#define SITES(S)								\
	/* hints */								\
	S(nop, NULL, "", "nop", "")						\
	S(bti_c, NULL, "", "bti c", "")						\
	S(bti_j, NULL, "", "bti j", "")						\
	S(bti_jc, NULL, "", "bti jc", "")					\
	S(yield, "F.4", "", "yield", "")					\
	S(csdb, "F.4", "", "csdb", "")						\
	S(hint_unallocated, "F.4", "", "hint #127", "")				\
	/* branches */								\
	S(b, NULL, "", "b 9f", "udf #0\n9:")					\
	S(bl, NULL, "mov x9, x30", "bl 7f", CALLEE)				\
	S(br, NULL, "adr x10, 9f", "br x10", "udf #0\n9:")			\
	S(blr, NULL, "mov x9, x30\nadr x10, 7f", "blr x10", CALLEE)		\
	S(blr_x30, NULL, "mov x9, x30\nadr x30, 7f", "blr x30", CALLEE)		\
	S(ret, NULL, "", "ret", "")						\
	S(ret_x9, NULL, "mov x9, x30", "ret x9", "")				\
	BCOND(S, eq) BCOND(S, ne) BCOND(S, cs) BCOND(S, cc) BCOND(S, mi)	\
	BCOND(S, pl) BCOND(S, vs) BCOND(S, vc) BCOND(S, hi) BCOND(S, ls)	\
	BCOND(S, ge) BCOND(S, lt) BCOND(S, gt) BCOND(S, le) BCOND(S, al)	\
	S(cbz, NULL, "and x1, x1, #1", "cbz x1, 9f", SKIPPED_IF_TAKEN)		\
	S(cbz_w, NULL, "lsl x1, x1, #32", "cbz w1, 9f", SKIPPED_IF_TAKEN)	\
	S(cbnz, NULL, "and x1, x1, #1", "cbnz x1, 9f", SKIPPED_IF_TAKEN)	\
	S(cbnz_w, NULL, "and x1, x1, #0x100000001", "cbnz w1, 9f", SKIPPED_IF_TAKEN) \
	S(tbz, NULL, "", "tbz x1, #40, 9f", SKIPPED_IF_TAKEN)			\
	S(tbz_w, NULL, "", "tbz w1, #3, 9f", SKIPPED_IF_TAKEN)			\
	S(tbnz, NULL, "", "tbnz x1, #63, 9f", SKIPPED_IF_TAKEN)			\
	/* addresses and literals */						\
	S(adr, NULL, "", "adr x0, . + 12345", "")				\
	S(adrp, NULL, "", "adrp x0, site_data", "")				\
	S(ldr_lit, "F.4", "", "ldr x0, 8f", LITERAL)				\
	S(ldr_lit_w, "F.4", "", "ldr w0, 8f", LITERAL)				\
	S(ldrsw_lit, "F.4", "", "ldrsw x0, 8f", LITERAL)			\
	S(prfm_lit, "F.4", "", "prfm pldl1keep, 8f", LITERAL)			\
	S(ldr_lit_s, "F.4", "", "ldr s0, 8f", LITERAL "fmov w0, s0")		\
	S(ldr_lit_d, "F.4", "", "ldr d0, 8f", LITERAL "fmov x0, d0")		\
	S(ldr_lit_q, "F.4", "", "ldr q0, 8f", LITERAL "mov x0, v0.d[0]\nmov x1, v0.d[1]") \
	/* prologues and epilogues */						\
	S(stp_pre, NULL, "", "stp x29, x30, [sp, #-16]!", "ldp x1, x30, [sp], #16")	\
	S(stp_post, NULL, "sub sp, sp, #64", "stp x3, x4, [sp], #16",		\
	  "ldp x0, x1, [sp, #-16]\nadd sp, sp, #48")				\
	S(stp_offset, NULL, "sub sp, sp, #64", "stp x19, x20, [sp, #32]",	\
	  "ldp x0, x1, [sp, #32]\nadd sp, sp, #64")				\
	S(ldp_post, NULL, "stp x5, x6, [sp, #-16]!", "ldp x0, x1, [sp], #16", "")	\
	S(ldp_pre, NULL, "stp x5, x6, [sp, #-16]!\nsub sp, sp, #16",		\
	  "ldp x0, x1, [sp, #16]!", "add sp, sp, #16")				\
	S(ldp_offset, NULL, "stp x5, x6, [sp, #-16]!", "ldp x0, x1, [sp]", "add sp, sp, #16") \
	S(str_pre, NULL, "", "str x19, [sp, #-16]!", "ldr x0, [sp], #16")	\
	S(ldr_post, NULL, "str x19, [sp, #-16]!", "ldr x0, [sp], #16", "")	\
	S(sub_sp, NULL, "", "sub sp, sp, #48", "add sp, sp, #48")		\
	S(sub_sp_shifted, NULL, "", "sub sp, sp, #1, lsl #12", "add sp, sp, #1, lsl #12") \
	S(add_sp, NULL, "sub sp, sp, #48", "add sp, sp, #48", "")		\
	S(mov_x29_sp, NULL, "", "mov x29, sp", FROM_SP)				\
	S(add_x29_sp, NULL, "", "add x29, sp, #32", FROM_SP)			\
	S(mov_sp_x29, NULL, "mov x29, sp\nsub sp, sp, #32", "mov sp, x29", FROM_SP)	\
	S(mov, NULL, "", "mov x0, x1", "")					\
	S(movz, NULL, "", "mov x0, #0x1234", "")				\
	/* pointer authentication */						\
	S(paciasp, NULL, "", "paciasp", "autiasp")				\
	S(autiasp, "F.4", "paciasp", "autiasp", "")				\
	S(retaa, "F.4", "paciasp", "retaa", "")					\
	S(pacia, NULL, "", "pacia x0, x1", "")					\
	S(xpaci, NULL, "", "xpaci x0", "")					\
	/* stepped, nothing special */						\
	S(add, NULL, "", "add x0, x0, x1", "")					\
	S(adds, NULL, "", "adds x0, x0, x1", "")				\
	S(mul, NULL, "", "mul x0, x1, x2", "")					\
	S(udiv, NULL, "", "udiv x0, x1, x2", "")				\
	S(csel, NULL, "", "csel x0, x1, x2, lt", "")				\
	S(ccmp, NULL, "", "ccmp x0, x1, #5, ne", "")				\
	S(ldr, NULL, DATA(x9), "ldr x0, [x9, #8]", "")				\
	S(str, NULL, DATA(x9), "str x1, [x9]", "")				\
	S(strb, NULL, DATA(x9), "strb w1, [x9, #3]", "")			\
	S(stp_data, NULL, DATA(x9), "stp x1, x2, [x9, #16]", "")		\
	S(ldr_wback, NULL, DATA(x9), "ldr x0, [x9, #8]!", "")			\
	S(ldar, NULL, DATA(x9), "ldar x0, [x9]", "")				\
	S(ldadd, NULL, DATA(x9), "ldadd x1, x0, [x9]", "")			\
	S(cas, NULL, DATA(x9) "\nldr x0, [x9]", "cas x0, x1, [x9]", "")		\
	S(swp, NULL, DATA(x9), "swpal x1, x0, [x9]", "")			\
	S(str_q, NULL, DATA(x9) "\nfmov d0, x1", "str q0, [x9, #32]", "")	\
	S(fadd, NULL, "fmov d0, x1\nfmov d1, x2", "fadd d0, d0, d1", "fmov x0, d0") \
	S(mrs_nzcv, NULL, "", "mrs x0, nzcv", "")				\
	S(mrs_tpidr, NULL, "", "mrs x0, tpidr_el0", "")				\
	S(dmb, NULL, "", "dmb ish", "")						\
	/* refused by C without need */						\
	S(msr_nzcv, "F.4", "and x1, x1, #0xf0000000", "msr nzcv, x1", "")	\
	S(cfinv, "F.4", "", "cfinv", "")					\
	S(svc, "F.4", "mov x8, #172", "svc #0", "")

#define SITE_ASM(name, fault, pre, insn, post)					\
	asm(".pushsection .text.sites, \"ax\", @progbits\n"			\
	    ".arch armv8.5-a\n"							\
	    ".balign 16\n"							\
	    ".globl site_fn_" #name ", site_pc_" #name "\n"			\
	    ".type site_fn_" #name ", @function\n"				\
	    "site_fn_" #name ":\n" pre "\n"					\
	    "site_pc_" #name ":\n" insn "\n" post "\nret\n"			\
	    ".size site_fn_" #name ", . - site_fn_" #name "\n"			\
	    ".popsection");

/*
 * site_call(x0: function, x1: struct cpu_regs). While the function runs the stack,
 * which starts at a page boundary, holds: function, io, the caller's stack pointer.
 * x30 is the only register at hand around the call.
 */
#define SITE_CALL_ASM								\
	asm(".pushsection .text\n"						\
	    ".globl site_call\n"						\
	    ".type site_call, @function\n"					\
	    "site_call:\n"							\
	    "stp x29, x30, [sp, #-96]!\n"					\
	    "stp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\n"		\
	    "stp x23, x24, [sp, #48]\nstp x25, x26, [sp, #64]\n"		\
	    "stp x27, x28, [sp, #80]\n"						\
	    "mov x9, sp\nand sp, x9, #-4096\nsub sp, sp, #32\n"			\
	    "stp x0, x1, [sp]\nstr x9, [sp, #16]\n"				\
	    "ldr x9, [x1, #240]\nmsr nzcv, x9\nmov x30, x1\n"			\
	    "ldp x0, x1, [x30]\nldp x2, x3, [x30, #16]\nldp x4, x5, [x30, #32]\n" \
	    "ldp x6, x7, [x30, #48]\nldp x8, x9, [x30, #64]\nldp x10, x11, [x30, #80]\n" \
	    "ldp x12, x13, [x30, #96]\nldp x14, x15, [x30, #112]\n"		\
	    "ldp x16, x17, [x30, #128]\nldp x18, x19, [x30, #144]\n"		\
	    "ldp x20, x21, [x30, #160]\nldp x22, x23, [x30, #176]\n"		\
	    "ldp x24, x25, [x30, #192]\nldp x26, x27, [x30, #208]\n"		\
	    "ldp x28, x29, [x30, #224]\n"					\
	    "ldr x30, [sp]\nblr x30\n"						\
	    "ldr x30, [sp, #8]\n"						\
	    "stp x0, x1, [x30]\nstp x2, x3, [x30, #16]\nstp x4, x5, [x30, #32]\n" \
	    "stp x6, x7, [x30, #48]\nstp x8, x9, [x30, #64]\nstp x10, x11, [x30, #80]\n" \
	    "stp x12, x13, [x30, #96]\nstp x14, x15, [x30, #112]\n"		\
	    "stp x16, x17, [x30, #128]\nstp x18, x19, [x30, #144]\n"		\
	    "stp x20, x21, [x30, #160]\nstp x22, x23, [x30, #176]\n"		\
	    "stp x24, x25, [x30, #192]\nstp x26, x27, [x30, #208]\n"		\
	    "stp x28, x29, [x30, #224]\n"					\
	    "mrs x9, nzcv\nstr x9, [x30, #240]\n"				\
	    "ldr x9, [sp, #16]\nmov sp, x9\n"					\
	    "ldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\n"		\
	    "ldp x23, x24, [sp, #48]\nldp x25, x26, [sp, #64]\n"		\
	    "ldp x27, x28, [sp, #80]\nldp x29, x30, [sp], #96\n"		\
	    "ret\n"								\
	    ".size site_call, . - site_call\n"					\
	    ".popsection")
