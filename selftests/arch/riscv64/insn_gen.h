/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random RISC-V instructions by class, for insn.c. Names and fields are those of the
 * RISC-V ISA Manual, volume I. What raises SIGILL bare must raise it probed. gp and tp
 * are never written: the C library needs them when a signal comes.
 */
#ifndef INSN_GEN_H
#define INSN_GEN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sites.h"

struct insn {
	uint8_t		bytes[4];
	int		len;
	/* Registers that must have these values. */
	int		nr_fixed;
	struct { int reg; uint64_t value; } fixed[2];
};

static uint64_t gen_state;

static unsigned int rnd(unsigned int n)
{
	return random64(&gen_state) % n;
}

/* Where the code, the data and the stack of the matrix are mapped. */
#define CODE_AT		0x30000000UL
#define DATA_AT		0x30100000UL
#define STACK_AT	0x30200000UL
#define READ_ONLY_AT	0x30300000UL	/* a page that cannot be written */
#define SP		2

/* What @reg is to be; zero, gp and tp stay what they are. */
static void fix(struct insn *i, int reg, uint64_t value)
{
	if (!reg || reg == 3 || reg == 4)
		return;
	i->fixed[i->nr_fixed].reg = reg;
	i->fixed[i->nr_fixed++].value = value;
}

/* A register to write, and one to read that can have any value. */
static uint32_t dst(void)
{
	uint32_t reg;

	do
		reg = rnd(32);
	while (reg == 3 || reg == 4);
	return reg;
}

static uint32_t src(void)
{
	uint32_t reg;

	do
		reg = rnd(32);
	while (!reg || reg == 3 || reg == 4);
	return reg;
}

#define RD(r)	((uint32_t)(r) << 7)
#define F3(n)	((uint32_t)(n) << 12)
#define RS1(r)	((uint32_t)(r) << 15)
#define RS2(r)	((uint32_t)(r) << 20)
#define F7(n)	((uint32_t)(n) << 25)

static uint32_t i_type(uint32_t op, int funct3, int rd, int rs1, int imm)
{
	return op | RD(rd) | F3(funct3) | RS1(rs1) | (uint32_t)imm << 20;
}

static uint32_t s_type(uint32_t op, int funct3, int rs1, int rs2, int imm)
{
	return op | RD(imm & 31) | F3(funct3) | RS1(rs1) | RS2(rs2) | F7(imm >> 5 & 127);
}

static uint32_t b_type(int funct3, int rs1, int rs2, int imm)
{
	return 0x63 | F3(funct3) | RS1(rs1) | RS2(rs2) | RD((imm & 0x1e) | (imm >> 11 & 1)) |
	       F7((imm >> 5 & 0x3f) | (imm >> 12 & 1) << 6);
}

static uint32_t j_type(int rd, int imm)
{
	return 0x6f | RD(rd) | (imm & 0xff000) | (uint32_t)(imm >> 11 & 1) << 20 |
	       (uint32_t)(imm >> 1 & 0x3ff) << 21 | (uint32_t)(imm >> 20 & 1) << 31;
}

static uint32_t gen_imm(void)
{
	static const int shifts[] = { 0, 0x20 };
	int funct3 = rnd(8);

	if (rnd(4)) {
		if (funct3 == 1 || funct3 == 5)
			return i_type(0x13, funct3, dst(), rnd(32),
				      (funct3 == 5 ? shifts[rnd(2)] << 5 : 0) | rnd(64));
		return i_type(0x13, funct3, dst(), rnd(32), rnd(4096));
	}
	funct3 = (int[]){ 0, 1, 5 }[rnd(3)];
	if (funct3)
		return i_type(0x1b, funct3, dst(), rnd(32),
			      (funct3 == 5 ? shifts[rnd(2)] << 5 : 0) | rnd(32));
	return i_type(0x1b, 0, dst(), rnd(32), rnd(4096));
}

static uint32_t gen_reg(void)
{
	int funct7 = (int[]){ 0, 0x20, 1 }[rnd(3)], funct3 = rnd(8);
	bool word = rnd(3) == 0;

	if (funct7 == 0x20)
		funct3 = rnd(2) ? 5 : 0;
	if (word)
		funct3 = (int[]){ 0, funct7 == 1 ? 4 : 1, 5 }[funct7 == 0x20 ? rnd(2) * 2 : rnd(3)];
	return (word ? 0x3b : 0x33) | F7(funct7) | F3(funct3) | RD(dst()) | RS1(rnd(32)) | RS2(rnd(32));
}

static uint32_t gen_mem(struct insn *i, int base, bool fp)
{
	int imm = (int)rnd(2048) - 1024;

	if (fp)
		return rnd(2) ? i_type(0x07, 2 + rnd(2), rnd(32), base, imm) :
				s_type(0x27, 2 + rnd(2), base, rnd(32), imm);
	return rnd(2) ? i_type(0x03, rnd(7), dst(), base, imm) : s_type(0x23, rnd(4), base, rnd(32), imm);
}

/* An offset into the rest of this slot or the tail of the one before. */
static int near(void)
{
	return rnd(4) ? 4 + 2 * (int)rnd(30) : -2 - 2 * (int)rnd(20);
}

static uint32_t gen_branch(struct insn *i, unsigned long at)
{
	int rs1 = src(), imm = (int)rnd(4096) - 2048;

	switch (rnd(4)) {
	case 0:
		return j_type(rnd(2) ? 1 : dst(), near());
	case 1:		/* near, odd (the lowest bit is dropped), nowhere */
		switch (rnd(8)) {
		case 0: fix(i, rs1, rnd(4096) * 8); break;
		case 1: fix(i, rs1, random64(&gen_state)); break;
		default: fix(i, rs1, at + near() - imm + rnd(2)); break;
		}
		return i_type(0x67, 0, rnd(3) ? dst() : (uint32_t)rs1, rs1, imm);
	default: {
		int rs2 = rnd(32);

		if (rnd(2)) {
			uint64_t v = random64(&gen_state);

			fix(i, rs1, v);
			if (rs2 != rs1)
				fix(i, rs2, rnd(3) ? v : v + 1);
		}
		return b_type((int[]){ 0, 1, 4, 5, 6, 7 }[rnd(6)], rs1, rs2, near());
	}
	}
}

static uint32_t gen_amo(struct insn *i)
{
	static const uint8_t ops[] = { 0, 1, 4, 8, 0x0c, 0x10, 0x14, 0x18, 0x1c };
	int base = src(), width = 2 + rnd(2);

	fix(i, base, DATA_AT + 1536 + (rnd(8) ? 0 : rnd(8)));
	return 0x2f | F3(width) | RD(dst()) | RS1(base) | RS2(rnd(32)) | F7(ops[rnd(9)] << 2 | rnd(4));
}

static uint32_t gen_float(void)
{
	static const struct { uint8_t funct7, rs2, rm; } ops[] = {
		/* 255: any */
		{ 0x00, 255, 255 }, { 0x04, 255, 255 }, { 0x08, 255, 255 }, { 0x0c, 255, 255 },
		{ 0x2c, 0, 255 }, { 0x10, 255, 0 }, { 0x10, 255, 1 }, { 0x10, 255, 2 },
		{ 0x14, 255, 0 }, { 0x14, 255, 1 }, { 0x50, 255, 0 }, { 0x50, 255, 1 },
		{ 0x50, 255, 2 }, { 0x60, 0, 255 }, { 0x60, 1, 255 }, { 0x60, 2, 255 },
		{ 0x60, 3, 255 }, { 0x68, 0, 255 }, { 0x68, 1, 255 }, { 0x68, 2, 255 },
		{ 0x68, 3, 255 }, { 0x70, 0, 0 }, { 0x70, 0, 1 }, { 0x78, 0, 0 },
	};
	uint32_t k = rnd(sizeof(ops) / sizeof(ops[0])), d = rnd(2);
	uint32_t rs2 = ops[k].rs2 == 255 ? rnd(32) : ops[k].rs2;
	uint32_t rm = ops[k].rm == 255 ? (uint32_t[]){ 0, 1, 2, 3, 4, 7 }[rnd(6)] : ops[k].rm;

	if (rnd(4) == 0)	/* fmadd, fmsub, fnmsub, fnmadd */
		return 0x43 | rnd(4) << 2 | RD(rnd(32)) | F3(((uint32_t[]){ 0, 1, 7 })[rnd(3)]) |
		       RS1(rnd(32)) | RS2(rnd(32)) | d << 25 | rnd(32) << 27;
	/* Results may be integers, which are not for gp and tp. */
	return 0x53 | RD(dst()) | F3(rm) | RS1(rnd(32)) | RS2(rs2) | F7(ops[k].funct7 | d);
}

/* The fields of compressed instructions. */
static uint32_t c3(void)
{
	return rnd(8);
}

static uint32_t gen_c_alu(void)
{
	uint32_t imm = rnd(2) << 12 | rnd(32) << 2, nonzero = rnd(2) << 12 | (1 + rnd(31)) << 2, rd;

	do
		rd = dst();
	while (!rd);
	switch (rnd(9)) {
	case 0: return 0x0001 | RD(rd) | nonzero;			/* c.addi */
	case 1: return 0x2001 | RD(rd) | imm;				/* c.addiw */
	case 2: return 0x4001 | RD(rd) | imm;				/* c.li */
	case 3: return 0x6001 | RD(rd == SP ? 5 : rd) | nonzero;	/* c.lui */
	case 4: return 0x8001 | rnd(3) << 10 | c3() << 7 | imm;	/* c.srli, c.srai, c.andi */
	case 5: return 0x8c01 | c3() << 7 | rnd(4) << 5 | c3() << 2;	/* c.sub, c.xor, c.or, c.and */
	case 6: return 0x9c01 | c3() << 7 | rnd(2) << 5 | c3() << 2;	/* c.subw, c.addw */
	case 7: return 0x0002 | RD(rd) | imm;				/* c.slli */
	default: return 0x8002 | rnd(2) << 12 | RD(rd) | src() << 2;	/* c.mv, c.add */
	}
}

static uint32_t gen_c_mem(struct insn *i, int base)
{
	uint32_t op = (uint32_t[]){ 0x2000, 0x4000, 0x6000, 0xa000, 0xc000, 0xe000 }[rnd(6)], rd;

	if (rnd(2))		/* c.fld, c.lw, c.ld, c.fsd, c.sw, c.sd */
		return op | rnd(8) << 10 | (base - 8) << 7 | rnd(4) << 5 | c3() << 2;
	if (op >= 0xa000)	/* c.fsdsp, c.swsp, c.sdsp */
		return op | 2 | rnd(64) << 7 | rnd(32) << 2;
	do
		rd = dst();
	while (!rd);
	/* c.fldsp, c.lwsp, c.ldsp */
	return op | 2 | RD(rd) | rnd(2) << 12 | rnd(32) << 2;
}

static uint32_t gen_c_branch(struct insn *i, unsigned long at)
{
	int to = near(), rs1 = src(), rs3 = rnd(8);

	switch (rnd(4)) {
	case 0:			/* c.j */
		return 0xa001 | (to >> 11 & 1) << 12 | (to >> 4 & 1) << 11 | (to >> 8 & 3) << 9 |
		       (to >> 10 & 1) << 8 | (to >> 6 & 1) << 7 | (to >> 7 & 1) << 6 |
		       (to >> 1 & 7) << 3 | (to >> 5 & 1) << 2;
	case 1:			/* c.beqz, c.bnez */
	case 2:
		if (rnd(2))
			fix(i, 8 + rs3, 0);
		return 0xc001 | rnd(2) << 13 | (to >> 8 & 1) << 12 | (to >> 3 & 3) << 10 | rs3 << 7 |
		       (to >> 6 & 3) << 5 | (to >> 1 & 3) << 3 | (to >> 5 & 1) << 2;
	default:		/* c.jr, c.jalr */
		fix(i, rs1, rnd(8) ? at + to + rnd(2) : random64(&gen_state));
		return 0x8002 | rnd(2) << 12 | RD(rs1);
	}
}

/* What compilers begin and end functions with. */
static uint32_t gen_frame(struct insn *i)
{
	uint32_t rd, imm;

	do
		rd = dst();
	while (!rd);
	switch (rnd(14)) {
	case 0: return rnd(2) ? 0x00000013 : 0x0001;			/* nop, c.nop */
	case 1: return i_type(0x13, 0, SP, SP, (int)rnd(512) * 8 - 2048);	/* addi sp, sp, n */
	case 2: return i_type(0x13, 0, rd, rnd(32), rnd(4096));	/* addi, mv, li */
	case 3: return i_type(0x13, 0, rnd(2) ? 8 : rd, SP, rnd(4096));	/* addi s0, sp, n */
	case 4:				/* c.addi16sp */
		imm = 1 + rnd(63);
		return 0x6101 | (imm >> 5) << 12 | (imm & 31) << 2;
	case 5:				/* c.addi4spn */
		return 0x0000 | (1 + rnd(255)) << 5 | c3() << 2;
	case 6: return s_type(0x23, 3, SP, rnd(32), rnd(128) * 8);	/* sd rs, n(sp) */
	case 7: return i_type(0x03, 3, rd, SP, rnd(128) * 8);		/* ld rd, n(sp) */
	case 8: return 0xe002 | rnd(64) << 7 | rnd(32) << 2;		/* c.sdsp */
	case 9: return 0x6002 | RD(rd) | rnd(2) << 12 | rnd(32) << 2;	/* c.ldsp */
	case 10: return 0x8002 | RD(rd) | src() << 2;			/* c.mv */
	case 11: return 0x4001 | RD(rd) | rnd(2) << 12 | rnd(32) << 2;	/* c.li */
	case 12: return 0x37 | RD(rd) | rnd(1 << 20) << 12;		/* lui */
	default: return 0x0001 | RD(rd) | rnd(2) << 12 | (1 + rnd(31)) << 2;	/* c.addi */
	}
}

/* Loads and stores that cannot work: unmapped, read-only. */
static uint32_t gen_fault(struct insn *i)
{
	uint64_t bad = (uint64_t[]){
		0, 8 + rnd(4096), STACK_AT + 65536, READ_ONLY_AT + 2048, 0xffff000000000000 | rnd(1 << 20),
		random64(&gen_state),
	}[rnd(6)];
	int base = src();

	switch (rnd(4)) {
	case 0:
		fix(i, base, bad);
		return gen_mem(i, base, rnd(4) == 0);
	case 1:
		base = 8 + rnd(8);
		fix(i, base, bad);
		fix(i, SP, bad);
		return gen_c_mem(i, base);
	case 2:
		fix(i, base, bad);
		return 0x2f | F3(2 + rnd(2)) | RD(dst()) | RS1(base) | RS2(rnd(32)) | F7(rnd(2) << 2);
	default:
		fix(i, SP, bad);
		return rnd(2) ? s_type(0x23, 3, SP, rnd(32), rnd(64) * 8) :
				i_type(0x03, 3, dst(), SP, rnd(64) * 8);
	}
}

struct insn_class {
	const char	*name, *fault;
	int		kind;
	bool		all;		/* none may be refused */
	int		percent;	/* so many must be accepted */
};

enum {
	K_IMM, K_REG, K_UPPER, K_MEM, K_MEM_FP, K_BRANCH, K_AMO, K_FLOAT, K_C_ALU, K_C_MEM, K_C_BRANCH,
	K_FRAME, K_ANY_C, K_FAULT,
};

static const struct insn_class insn_classes[] = {
	{ "integer, immediate", NULL, K_IMM, true, 100 },
	{ "integer, registers", NULL, K_REG, true, 100 },
	{ "lui and auipc", NULL, K_UPPER, true, 100 },
	{ "loads and stores", NULL, K_MEM, true, 100 },
	{ "loads and stores, floating point", NULL, K_MEM_FP, true, 100 },
	{ "branches and jumps", NULL, K_BRANCH, true, 100 },
	{ "atomics", "si_addr", K_AMO, true, 100 },
	{ "floating point", NULL, K_FLOAT, true, 100 },
	{ "compressed, integer", NULL, K_C_ALU, true, 100 },
	{ "compressed, loads and stores", NULL, K_C_MEM, true, 100 },
	{ "compressed, branches and jumps", "odd target", K_C_BRANCH, true, 100 },
	{ "prologues and epilogues", NULL, K_FRAME, true, 100 },
	{ "compressed, any", "si_addr", K_ANY_C, false, 70 },
	{ "faults", "si_addr", K_FAULT, true, 100 },
};

/* Any compressed instruction that goes nowhere and leaves gp and tp alone. */
static uint32_t any_compressed(struct insn *i)
{
	uint32_t word, op, rd;

	fix(i, SP, STACK_AT + 2048);
	for (;;) {
		word = rnd(1 << 16);
		op = (word & 3) << 3 | word >> 13;
		rd = word >> 7 & 31;
		if ((word & 3) == 3 || op == 015 || op == 016 || op == 017 || op == 024)
			continue;	/* branches, c.jr, c.mv and their like */
		if ((word & 3) && !(op & 4) && (rd == 3 || rd == 4))
			continue;
		break;
	}
	if (!(word & 3))
		fix(i, 8 + (word >> 7 & 7), DATA_AT + 1536);
	return word;
}

static void gen_insn(struct insn *i, const struct insn_class *c, unsigned long at)
{
	uint32_t word = 0;
	int base;

	memset(i, 0, sizeof(*i));
	switch (c->kind) {
	case K_IMM: word = gen_imm(); break;
	case K_REG: word = gen_reg(); break;
	case K_UPPER: word = (rnd(2) ? 0x37 : 0x17) | RD(dst()) | rnd(1 << 20) << 12; break;
	case K_MEM:
	case K_MEM_FP:
		base = src();
		fix(i, base, DATA_AT + 1536 + (rnd(4) ? 0 : rnd(16)));
		word = gen_mem(i, base, c->kind == K_MEM_FP);
		break;
	case K_BRANCH: word = gen_branch(i, at); break;
	case K_AMO: word = gen_amo(i); break;
	case K_FLOAT: word = gen_float(); break;
	case K_C_ALU: word = gen_c_alu(); break;
	case K_C_MEM:
		base = 8 + rnd(8);
		fix(i, base, DATA_AT + 1536 + (rnd(4) ? 0 : rnd(16)));
		word = gen_c_mem(i, base);
		break;
	case K_C_BRANCH: word = gen_c_branch(i, at); break;
	case K_FRAME: word = gen_frame(i); break;
	case K_ANY_C: word = any_compressed(i); break;
	case K_FAULT: word = gen_fault(i); break;
	}
	i->len = (word & 3) == 3 ? 4 : 2;
	memcpy(i->bytes, &word, i->len);
}

#endif
