/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random A64 instructions by class, for insn.c. Names and fields are those of the Arm
 * Architecture Reference Manual, section C4.1. What raises SIGILL bare must raise it
 * probed.
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
	/* Registers that must have these values, the stack pointer as number 31. */
	int		nr_fixed;
	struct { int reg; uint64_t value; } fixed[3];
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
#define SP		31

static void fix(struct insn *i, int reg, uint64_t value)
{
	i->fixed[i->nr_fixed].reg = reg;
	i->fixed[i->nr_fixed++].value = value;
}

/* A base register for loads and stores, mostly no stack pointer. */
static int base_reg(struct insn *i)
{
	int reg = rnd(8) ? rnd(31) : SP;

	if (reg != SP)
		fix(i, reg, DATA_AT + 1536 + (rnd(4) ? 0 : rnd(16)));
	return reg;
}

/* Another register than @a and @b. */
static int other_reg(int a, int b)
{
	int reg;

	do
		reg = rnd(32);
	while (reg == a || reg == b);
	return reg;
}

/*
 * Loads and stores of one register or a pair, general or SIMD&FP, with all kinds of
 * addresses. A base that is written back is no register of the data: that would be
 * CONSTRAINED UNPREDICTABLE.
 */
static uint32_t gen_ldst(struct insn *i, int base, bool simd)
{
	int size = rnd(4), opc = rnd(2), rt, rt2;
	uint32_t word;

	if (simd && !size && rnd(2))
		opc += 2;			/* 128 bits */
	else if (!simd && size < 3 && !rnd(3))
		opc = size == 2 ? 2 : 2 + rnd(2);	/* sign-extending loads */
	rt = simd ? (int)rnd(32) : other_reg(base, base);
	word = (uint32_t)size << 30 | simd << 26 | opc << 22 | base << 5 | rt;
	switch (rnd(4)) {
	case 0:			/* unsigned offset */
		return word | 0x39000000 | rnd(32) << 10;
	case 1:			/* unscaled, post-indexed, unprivileged, pre-indexed */
		word |= 0x38000000 | rnd(512) << 12;
		return word | (simd ? (uint32_t[]){ 0, 1, 3 }[rnd(3)] : rnd(4)) << 10;
	case 2: {		/* register offset, of 32 or 64 bits, extended */
		int index = other_reg(base, SP);

		fix(i, index, rnd(32) * 8);
		return word | 0x38200800 | index << 16 | (uint32_t[]){ 2, 3, 6, 7 }[rnd(4)] << 13 |
		       rnd(2) << 12;
	}
	default:		/* pair: no-allocate, post-indexed, offset, pre-indexed */
		opc = rnd(3);
		word = (uint32_t)opc << 30 | 0x28000000 | simd << 26 | rnd(4) << 23 |
		       rnd(2) << 22 | rnd(128) << 15 | base << 5;
		/* That would be ldpsw, which neither stores nor has a no-allocate form. */
		if (!simd && opc == 1)
			word |= 1 << 24 | 1 << 22;
		rt2 = other_reg(base, rt);
		return word | rt2 << 10 | rt;
	}
}

/* What compilers begin and end functions with. */
static uint32_t gen_frame(struct insn *i)
{
	int rt = rnd(32), rt2 = other_reg(rt, rt), rn = rnd(31);

	switch (rnd(8)) {
	case 0:
	case 1:			/* stp, ldp of 64 bits at sp, also odd registers */
		return 0xa8000000 | (1 + rnd(3)) << 23 | rnd(2) << 22 | rnd(128) << 15 | rt2 << 10 |
		       SP << 5 | rt;
	case 2:			/* stp x29, x30, [sp, #-n]! and back */
		return rnd(2) ? 0xa9800000 | (0x40 + rnd(64)) << 15 | 30 << 10 | SP << 5 | 29 :
				0xa8c00000 | rnd(64) << 15 | 30 << 10 | SP << 5 | 29;
	case 3:			/* str, ldr of 64 bits at sp: post-indexed, pre-indexed, offset */
		return rnd(3) ? 0xf8000400 | rnd(2) << 22 | rnd(512) << 12 | rnd(2) << 11 | SP << 5 | rt :
				0xf9000000 | rnd(2) << 22 | rnd(128) << 10 | SP << 5 | rt;
	case 4:			/* sub and add sp, sp, #n */
		return 0x910003ff | rnd(2) << 30 | rnd(8) / 7 << 22 | (rnd(64) * 16) << 10;
	case 5:			/* mov and add between sp and others */
		return rnd(2) ? 0x91000000 | SP << 5 | rn | (rnd(2) ? 0 : rnd(4096)) << 10 :
				0x91000000 | rn << 5 | SP | (rnd(2) ? 0 : rnd(4096)) << 10;
	case 6:			/* mov of registers, of constants */
		return rnd(2) ? 0xaa0003e0 | rt << 16 | rn : 0x52800000 | rnd(2) << 31 |
							     rnd(4) << 29 | rnd(65536) << 5 | rn;
	default: {		/* stp of a pair at another base */
		int base = other_reg(rt, rt2) & 31;

		if (base != SP)
			fix(i, base, DATA_AT + 1536);
		return 0xa9000000 | rnd(2) << 22 | rnd(128) << 15 | rt2 << 10 | base << 5 | rt;
	}
	}
}

/* A branch offset in words: into the rest of this slot or the tail of the one before. */
static int near(void)
{
	return rnd(4) ? 2 + (int)rnd(13) : -1 - (int)rnd(7);
}

static uint32_t gen_branch(struct insn *i, unsigned long at)
{
	int rn = rnd(31);

	switch (rnd(7)) {
	case 0:			/* b, bl */
		return 0x14000000 | rnd(2) << 31 | (near() & 0x3ffffff);
	case 1:			/* b.cond */
		return 0x54000000 | (near() & 0x7ffff) << 5 | rnd(16);
	case 2:			/* cbz, cbnz */
		if (rnd(2))
			fix(i, rn, rnd(2) ? 0 : (uint64_t)rnd(4) << 31);
		return 0x34000000 | rnd(2) << 31 | rnd(2) << 24 | (near() & 0x7ffff) << 5 |
		       (rnd(16) ? rn : 31);
	case 3:			/* tbz, tbnz */
		return 0x36000000 | rnd(2) << 31 | rnd(2) << 24 | rnd(32) << 19 |
		       (near() & 0x3fff) << 5 | (rnd(16) ? rn : 31);
	default:		/* br, blr, ret: near, odd, nowhere */
		switch (rnd(8)) {
		case 0: fix(i, rn, at + 9 + rnd(3)); break;
		case 1: fix(i, rn, rnd(4096) * 8); break;
		case 2: fix(i, rn, random64(&gen_state)); break;
		default: fix(i, rn, at + 4 * (long)near()); break;
		}
		if (rnd(4) == 0) {
			i->nr_fixed = 0;
			fix(i, 30, at + 4 * (long)near());
			return 0xd65f03c0;
		}
		return 0xd61f0000 | rnd(3) << 21 | rn << 5;
	}
}

static uint32_t gen_literal(bool simd)
{
	/* Bytes 0x40 to 0x5f of the slot are data, at most 16 of them are read. */
	uint32_t imm = (16 + rnd(5)) << 5, rt = rnd(32);

	if (simd)
		return 0x1c000000 | rnd(3) << 30 | imm | rt;
	return 0x18000000 | rnd(4) << 30 | imm | rt;
}

/* By number: those that C steps or simulates, or the others. */
static uint32_t gen_hint(bool known_to_c)
{
	static const uint8_t known[] = { 0, 7, 8, 10, 24, 25, 26, 27, 32, 34, 36, 38 };
	uint32_t n = rnd(128);

	if (known_to_c)
		n = known[rnd(sizeof(known))];
	else
		/* wfe and wfi wait, perhaps */
		while (n == 2 || n == 3 || memchr(known, n, sizeof(known)))
			n = rnd(3) ? rnd(40) : rnd(128);
	return 0xd503201f | n << 5;
}

static uint32_t gen_atomic(struct insn *i)
{
	uint32_t size = rnd(4), rs = rnd(32), rt = rnd(32);
	int base = rnd(31);

	fix(i, base, DATA_AT + 1536 + (rnd(8) ? 0 : rnd(16)));
	switch (rnd(4)) {
	case 0:			/* ldadd, ldclr, ldeor, ldset, ldsmax, ldsmin, ldumax, ldumin, swp */
	case 1: {
		uint32_t op = rnd(9);

		return 0x38200000 | size << 30 | rnd(4) << 22 | rs << 16 | (op & 8) << 12 |
		       (op & 7) << 12 | base << 5 | rt;
	}
	case 2:			/* cas */
		return 0x08a07c00 | size << 30 | rnd(2) << 22 | rs << 16 | rnd(2) << 15 | base << 5 | rt;
	default:		/* ldar, stlr, ldlar, stllr */
		return 0x089f7c00 | size << 30 | rnd(2) << 22 | rnd(2) << 15 | base << 5 | rt;
	}
}

/* Barriers, and system registers that do not change by themselves. */
static uint32_t gen_system(void)
{
	static const uint32_t regs[] = {
		0x1b4200,	/* nzcv */
		0x1b4400,	/* fpcr */
		0x1b4420,	/* fpsr */
		0x1bd040,	/* tpidr_el0 */
		0x1bd060,	/* tpidrro_el0 */
		0x1b00e0,	/* dczid_el0 */
	};

	if (rnd(2))
		return 0xd5200000 | regs[rnd(6)] | rnd(32);
	/* clrex, dsb, dmb, isb */
	return 0xd503301f | (uint32_t[]){ 2, 4, 5, 6 }[rnd(4)] << 5 | (1 + rnd(15)) << 8;
}

static uint32_t gen_msr(void)
{
	switch (rnd(3)) {
	case 0: return 0xd51b4200 | rnd(32);		/* msr nzcv */
	case 1: return 0xd51b4420 | rnd(32);		/* msr fpsr */
	default: return 0xd500401f | rnd(3) << 5;	/* cfinv, xaflag, axflag */
	}
}

/* @pointer signed for instructions, by key A or B. */
static uint64_t sign(uint64_t pointer, uint64_t modifier, bool key_b)
{
	if (key_b)
		asm(".arch armv8.3-a\npacib %0, %1" : "+r"(pointer) : "r"(modifier));
	else
		asm(".arch armv8.3-a\npacia %0, %1" : "+r"(pointer) : "r"(modifier));
	return pointer;
}

/* Pointer authentication: of data, and (@branch) of where a branch goes. */
static uint32_t gen_pac(struct insn *i, unsigned long at, bool branch)
{
	int rn = rnd(31), rm = other_reg(rn, SP);
	bool key_b = rnd(2);
	uint64_t modifier, to = at + 4 * (long)near();

	if (!branch)		/* pac*, aut*, xpac* */
		return 0xdac10000 | rnd(18) << 10 | (rnd(2) ? rnd(31) : SP) << 5 | rn;
	/* Sometimes signed for another place, which must fail. */
	switch (rnd(3)) {
	case 0:			/* retaa, retab */
		modifier = STACK_AT + 2048;
		rn = 30;
		break;
	case 1:			/* braaz, blraaz, ... */
		modifier = 0;
		break;
	default:		/* braa, blraa, ... */
		modifier = random64(&gen_state);
		fix(i, rm, modifier);
		fix(i, rn, sign(to, modifier ^ !rnd(4), key_b));
		return 0xd71f0800 | rnd(2) << 21 | key_b << 10 | rn << 5 | rm;
	}
	fix(i, rn, sign(to, modifier ^ !rnd(4), key_b));
	if (rn == 30 && modifier)
		return 0xd65f0bff | key_b << 10;
	return 0xd61f081f | rnd(2) << 21 | key_b << 10 | rn << 5;
}

/* Scalar floating point and vectors: encodings of which most are allocated. */
static uint32_t gen_simd(void)
{
	static const struct { uint32_t word, random; } templates[] = {
		{ 0x1e200800, 0x00c0f3ff },	/* floating point, 2 sources */
		{ 0x1e204000, 0x00c783ff },	/* ... 1 source */
		{ 0x1f000000, 0x00e0ffff },	/* ... 3 sources */
		{ 0x1e200c00, 0x00c0f3ff },	/* ... conditional select */
		{ 0x1e202000, 0x00c003f8 },	/* ... compare */
		{ 0x1e200400, 0x00c0f3ff },	/* ... conditional compare */
		{ 0x1e201000, 0x00dfe01f },	/* ... immediate */
		{ 0x1e200000, 0x80df03ff },	/* conversion from and to integers */
		{ 0x0e200400, 0x60dffbff },	/* vectors, three the same */
		{ 0x0e200000, 0x60dff3ff },	/* ... three different */
		{ 0x0e200800, 0x60c1f3ff },	/* ... two registers */
		{ 0x0e300800, 0x60c1f3ff },	/* ... across lanes */
		{ 0x0e000400, 0x601ffbff },	/* ... copy */
		{ 0x0f000400, 0x6007fbff },	/* ... modified immediate */
		{ 0x0f200400, 0x605ffbff },	/* ... shift by immediate */
		{ 0x0e000800, 0x40dff3ff },	/* ... permute */
		{ 0x0e000000, 0x401ff3ff },	/* ... table */
		{ 0x2e000000, 0x401ffbff },	/* ... extract */
		{ 0x0f000000, 0x60fffbff },	/* ... by element */
		{ 0x4e284800, 0x000033ff },	/* AES */
		{ 0x5e000000, 0x001f73ff },	/* SHA */
	};
	uint32_t k = rnd(sizeof(templates) / sizeof(templates[0])), any = random64(&gen_state);

	/* Sometimes anything at all. */
	if (!rnd(8))
		return any | 0x0e000000;
	return templates[k].word | (any & templates[k].random);
}

/* Loads and stores that cannot work: unmapped, read-only, misaligned stacks. */
static uint32_t gen_fault(struct insn *i)
{
	int base = rnd(31);
	uint64_t bad = (uint64_t[]){
		0, 8 + rnd(4096), STACK_AT + 65536, READ_ONLY_AT + 2048, 0xffff000000000000 | rnd(1 << 20),
		random64(&gen_state),
	}[rnd(6)];
	uint32_t word;

	switch (rnd(3)) {
	case 0:
		fix(i, base, bad);
		return gen_ldst(i, base, rnd(4) == 0);
	case 1:			/* the stack pointer is where it cannot be */
		word = gen_frame(i);
		i->nr_fixed = 0;
		fix(i, SP, bad & ~15UL);
		return word;
	default:		/* or not aligned to 16 */
		word = gen_frame(i);
		i->nr_fixed = 0;
		fix(i, SP, STACK_AT + 2048 + 1 + rnd(15));
		return word;
	}
}

struct insn_class {
	const char	*name, *fault;
	int		kind;
	bool		all;		/* none may be refused */
	int		percent;	/* so many must be accepted */
};

enum {
	K_IMM, K_REG, K_SIMD, K_LDST, K_LDST_SIMD, K_FRAME, K_BRANCH, K_LITERAL, K_LITERAL_SIMD, K_ADR,
	K_HINT, K_HINT_MORE, K_ATOMIC, K_SYSTEM, K_MSR, K_PAC, K_PAC_BRANCH, K_FAULT,
};

static const struct insn_class insn_classes[] = {
	{ "data processing, immediate", "si_addr", K_IMM, false, 40 },
	{ "data processing, register", "si_addr", K_REG, false, 25 },
	{ "data processing, SIMD and floating point", "si_addr", K_SIMD, false, 30 },
	{ "loads and stores", NULL, K_LDST, true, 100 },
	{ "loads and stores, SIMD and floating point", NULL, K_LDST_SIMD, true, 100 },
	{ "prologues and epilogues", NULL, K_FRAME, true, 100 },
	{ "branches", NULL, K_BRANCH, true, 100 },
	{ "literal loads", "F.4", K_LITERAL, true, 100 },
	{ "literal loads, SIMD and floating point", "F.4", K_LITERAL_SIMD, true, 100 },
	{ "adr and adrp", NULL, K_ADR, true, 100 },
	{ "hints", NULL, K_HINT, true, 100 },
	{ "more hints", "F.4", K_HINT_MORE, true, 100 },
	{ "atomics", NULL, K_ATOMIC, true, 100 },
	{ "system registers and barriers", NULL, K_SYSTEM, true, 100 },
	{ "flags and status written", "F.4", K_MSR, true, 100 },
	{ "pointer authentication", "si_addr", K_PAC, true, 100 },
	{ "branches with pointer authentication", "F.4", K_PAC_BRANCH, true, 100 },
	{ "faults", NULL, K_FAULT, true, 100 },
};

static void gen_insn(struct insn *i, const struct insn_class *c, unsigned long at)
{
	uint32_t word = random64(&gen_state);
	int base;

	memset(i, 0, sizeof(*i));
	switch (c->kind) {
	case K_IMM:		/* 100x, but adr and adrp */
		word = (word & ~0x1c000000) | 0x10000000;
		if ((word & 0x1f000000) == 0x10000000)
			word |= 0x1000000;
		break;
	case K_REG:		/* x101 */
		word = (word & ~0x0e000000) | 0x0a000000;
		break;
	case K_SIMD: word = gen_simd(); break;
	case K_LDST:
	case K_LDST_SIMD:
		base = base_reg(i);
		word = gen_ldst(i, base, c->kind == K_LDST_SIMD);
		break;
	case K_FRAME: word = gen_frame(i); break;
	case K_BRANCH: word = gen_branch(i, at); break;
	case K_LITERAL: word = gen_literal(false); break;
	case K_LITERAL_SIMD: word = gen_literal(true); break;
	case K_ADR: word = (word & 0xe0ffffff) | 0x10000000; break;
	case K_HINT: word = gen_hint(true); break;
	case K_HINT_MORE: word = gen_hint(false); break;
	case K_ATOMIC: word = gen_atomic(i); break;
	case K_SYSTEM: word = gen_system(); break;
	case K_MSR: word = gen_msr(); break;
	case K_PAC: word = gen_pac(i, at, false); break;
	case K_PAC_BRANCH: word = gen_pac(i, at, true); break;
	case K_FAULT: word = gen_fault(i); break;
	}
	memcpy(i->bytes, &word, 4);
	i->len = 4;
}

#endif
