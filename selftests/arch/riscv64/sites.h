/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probe sites. Each is a function: @pre, then the probed instruction, then
 * @post, then ret. Whatever the instruction does must show in the registers
 * or site_data[] when the function returns.
 *
 * SITE(name, fault of C or NULL, pre, instruction, post)
 *
 * Included only by lib/sites.c.
 */

/* An instruction of 4 bytes, also where there is a compressed form. */
#define W(insn)		".option push\n.option norvc\n" insn "\n.option pop"

#define DATA		"la t0, site_data"
#define VECTOR		".option arch, +v\nvsetivli zero, 2, e64, m1, ta, ma"
#define SKIPPED_IF_TAKEN "addi a0, a0, 1\n9:"
#define CALLEE		"j 9f\n7: addi a0, a0, 1\nret\n9: mv ra, t1"

/* Once as the random registers have it, once with equal operands. */
#define BRANCH(S, op)								\
	S(op, NULL, "", W(#op " a0, a1, 9f"), SKIPPED_IF_TAKEN)			\
	S(op##_equal, NULL, "mv a1, a0", W(#op " a0, a1, 9f"), SKIPPED_IF_TAKEN)

#define SITES(S)								\
	/* what compilers begin and end functions with */			\
	S(nop, NULL, "", W("nop"), "")						\
	S(c_nop, NULL, "", "c.nop", "")						\
	S(addi, NULL, "", W("addi a0, a1, -5"), "")				\
	S(addi_zero, NULL, "", W("addi zero, a1, 5"), "")			\
	S(c_addi, NULL, "", "c.addi a0, -5", "")				\
	S(addi_sp, NULL, "", W("addi sp, sp, -32"), "mv a0, sp\naddi sp, sp, 32\nsub a0, a0, sp") \
	S(c_addi_sp, NULL, "", "c.addi sp, -32", "mv a0, sp\naddi sp, sp, 32\nsub a0, a0, sp") \
	S(c_addi16sp, NULL, "", "c.addi16sp sp, -64",				\
	  "mv a0, sp\naddi sp, sp, 64\nsub a0, a0, sp")				\
	S(c_addi4spn, NULL, "", "c.addi4spn a0, sp, 64", "sub a0, a0, sp")	\
	S(sd_ra, NULL, "addi sp, sp, -16", W("sd ra, 8(sp)"), "ld a0, 8(sp)\naddi sp, sp, 16") \
	S(sd_s0, NULL, "addi sp, sp, -16", W("sd s0, 0(sp)"), "ld a0, 0(sp)\naddi sp, sp, 16") \
	S(c_sdsp, NULL, "addi sp, sp, -16", "c.sdsp s1, 8(sp)", "ld a0, 8(sp)\naddi sp, sp, 16") \
	S(ld_sp, NULL, "addi sp, sp, -16\nsd a3, 8(sp)", W("ld a0, 8(sp)"), "addi sp, sp, 16") \
	S(c_ldsp, NULL, "addi sp, sp, -16\nsd a3, 8(sp)", "c.ldsp a0, 8(sp)", "addi sp, sp, 16") \
	S(sd, NULL, DATA, W("sd a1, 0(t0)"), "")				\
	S(ld, NULL, DATA, W("ld a0, 16(t0)"), "")				\
	S(c_sd, NULL, "la a5, site_data", "c.sd a1, 8(a5)", "")			\
	S(c_ld, NULL, "la a5, site_data", "c.ld a0, 8(a5)", "")			\
	S(ld_base, NULL, DATA, W("ld t0, 16(t0)"), "")				\
	S(mv, NULL, "", W("mv a0, a1"), "")					\
	S(c_mv, NULL, "", "c.mv a0, a1", "")					\
	S(li, NULL, "", W("li a0, -77"), "")					\
	S(c_li, NULL, "", "c.li a0, -7", "")					\
	S(lui, NULL, "", W("lui a0, 0x81234"), "")				\
	S(c_lui, NULL, "", "c.lui a0, 5", "")					\
	S(c_lui_negative, NULL, "", "c.lui a0, 0xffff5", "")			\
	/* branches and what knows where it is */				\
	S(ret, NULL, "", "ret", "")						\
	S(ret_long, NULL, "", W("ret"), "")					\
	S(auipc, NULL, "", W("auipc a0, 0x81234"), "")				\
	S(jal, NULL, "mv t1, ra", W("jal ra, 7f"), CALLEE)			\
	S(j, NULL, "", W("j 9f"), "unimp\n9:")					\
	S(jalr, NULL, "mv t1, ra\nlla t2, 7f", W("jalr ra, 0(t2)"), CALLEE)	\
	S(jalr_offset, NULL, "mv t1, ra\nlla t2, 7f\naddi t2, t2, 101",		\
	  W("jalr ra, -100(t2)"), CALLEE)					\
	S(jalr_same, NULL, "mv t1, ra\nlla ra, 7f", W("jalr ra, 0(ra)"), CALLEE) \
	S(jr, NULL, "lla t2, 9f", W("jr t2"), "unimp\n9:")			\
	S(c_j, NULL, "", "c.j 9f", "unimp\n9:")					\
	S(c_jr, NULL, "lla t2, 9f", "c.jr t2", "unimp\n9:")			\
	S(c_jalr, NULL, "mv t1, ra\nlla t2, 7f", "c.jalr t2", CALLEE)		\
	S(c_jalr_same, NULL, "mv t1, ra\nlla ra, 7f", "c.jalr ra", CALLEE)	\
	BRANCH(S, beq) BRANCH(S, bne) BRANCH(S, blt) BRANCH(S, bge)		\
	BRANCH(S, bltu) BRANCH(S, bgeu)						\
	S(beqz, NULL, "andi a1, a1, 1", W("beqz a1, 9f"), SKIPPED_IF_TAKEN)	\
	S(c_beqz, NULL, "andi a1, a1, 1", "c.beqz a1, 9f", SKIPPED_IF_TAKEN)	\
	S(c_bnez, NULL, "andi a1, a1, 1", "c.bnez a1, 9f", SKIPPED_IF_TAKEN)	\
	/* stepped, nothing special */						\
	S(add, NULL, "", W("add a0, a0, a1"), "")				\
	S(c_add, NULL, "", "c.add a0, a1", "")					\
	S(c_sub, NULL, "", "c.sub a0, a1", "")					\
	S(add_odd, NULL, "c.nop", W("add a0, a0, a1"), "")			\
	S(mul, NULL, "", "mul a0, a1, a2", "")					\
	S(div, NULL, "", "div a0, a1, a2", "")					\
	S(slli, NULL, "", W("slli a0, a1, 13"), "")				\
	S(c_srai, NULL, "", "c.srai a0, 7", "")					\
	S(sltu, NULL, "", "sltu a0, a1, a2", "")				\
	S(addiw, NULL, "", W("addiw a0, a1, 100"), "")				\
	S(lw, NULL, DATA, W("lw a0, 12(t0)"), "")				\
	S(lbu, NULL, DATA, "lbu a0, 3(t0)", "")					\
	S(sb, NULL, DATA, "sb a1, 5(t0)", "")					\
	S(amoadd, NULL, DATA, "amoadd.d a0, a1, (t0)", "")			\
	S(amoswap, NULL, DATA, "amoswap.w.aqrl a0, a1, (t0)", "")		\
	S(fsd, NULL, DATA "\nfmv.d.x ft0, a1", "fsd ft0, 24(t0)", "")		\
	S(fadd, NULL, "fmv.d.x ft0, a1\nfmv.d.x ft1, a2", "fadd.d ft0, ft0, ft1",	\
	  "fmv.x.d a0, ft0")							\
	S(fence, "fence", "", "fence rw, rw", "")				\
	S(fence_i, "fence", "", "fence.i", "")					\
	S(vadd, NULL, VECTOR "\nvmv.v.x v1, a1", "vadd.vx v2, v1, a2", "vmv.x.s a0, v2")	\
	S(vse64, NULL, VECTOR "\n" DATA "\nvmv.v.x v1, a1", "vse64.v v1, (t0)", "")	\
	S(vsetvli, NULL, VECTOR, "vsetvli a0, a1, e32, m2, ta, ma", "")

#define SITE_ASM(name, fault, pre, insn, post)					\
	asm(".pushsection .text.sites, \"ax\", @progbits\n"			\
	    ".option push\n.option norelax\n"					\
	    ".balign 16\n"							\
	    ".globl site_fn_" #name ", site_pc_" #name "\n"			\
	    ".type site_fn_" #name ", @function\n"				\
	    "site_fn_" #name ":\n" pre "\n"					\
	    "site_pc_" #name ":\n" insn "\n" post "\nret\n"			\
	    ".size site_fn_" #name ", . - site_fn_" #name "\n"			\
	    ".option pop\n"							\
	    ".popsection");

/*
 * site_call(a0: function, a1: struct cpu_regs). While the function runs the stack,
 * which starts at a page boundary, holds: function, io, the caller's stack pointer.
 * ra is the only register at hand around the call.
 */
#define SITE_REG(op, n)	op " x" #n ", 8*" #n "(ra)\n"
#define SITE_REGS(op)								\
	SITE_REG(op, 5) SITE_REG(op, 6) SITE_REG(op, 7) SITE_REG(op, 8)		\
	SITE_REG(op, 9) SITE_REG(op, 10) SITE_REG(op, 11) SITE_REG(op, 12)	\
	SITE_REG(op, 13) SITE_REG(op, 14) SITE_REG(op, 15) SITE_REG(op, 16)	\
	SITE_REG(op, 17) SITE_REG(op, 18) SITE_REG(op, 19) SITE_REG(op, 20)	\
	SITE_REG(op, 21) SITE_REG(op, 22) SITE_REG(op, 23) SITE_REG(op, 24)	\
	SITE_REG(op, 25) SITE_REG(op, 26) SITE_REG(op, 27) SITE_REG(op, 28)	\
	SITE_REG(op, 29) SITE_REG(op, 30) SITE_REG(op, 31)
#define SITE_SAVED(op)								\
	op " ra, 0(sp)\n" op " s0, 8(sp)\n" op " s1, 16(sp)\n" op " s2, 24(sp)\n" \
	op " s3, 32(sp)\n" op " s4, 40(sp)\n" op " s5, 48(sp)\n" op " s6, 56(sp)\n" \
	op " s7, 64(sp)\n" op " s8, 72(sp)\n" op " s9, 80(sp)\n" op " s10, 88(sp)\n" \
	op " s11, 96(sp)\n"
#define SITE_CALL_ASM								\
	asm(".pushsection .text\n"						\
	    ".globl site_call\n"						\
	    ".type site_call, @function\n"					\
	    "site_call:\n"							\
	    "addi sp, sp, -112\n" SITE_SAVED("sd")				\
	    "mv t0, sp\nsrli sp, sp, 12\nslli sp, sp, 12\naddi sp, sp, -32\n"	\
	    "sd a0, 0(sp)\nsd a1, 8(sp)\nsd t0, 16(sp)\n"			\
	    "mv ra, a1\n" SITE_REGS("ld")					\
	    "ld ra, 0(sp)\njalr ra, 0(ra)\n"					\
	    "ld ra, 8(sp)\n" SITE_REGS("sd")					\
	    "ld sp, 16(sp)\n" SITE_SAVED("ld")					\
	    "addi sp, sp, 112\nret\n"						\
	    ".size site_call, . - site_call\n"					\
	    ".popsection")
