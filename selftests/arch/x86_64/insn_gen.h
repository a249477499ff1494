/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random x86-64 instructions by class, for insn.c. They are well-formed, but
 * need not exist: what raises SIGILL bare must raise it probed.
 */
#ifndef INSN_GEN_H
#define INSN_GEN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sites.h"

struct insn {
	uint8_t	bytes[16];
	int	len;
	int	base, index;	/* registers of the memory operand, -1: none */
	bool	branch;		/* may end at the other exit */
	bool	string;		/* rcx is a count */
	bool	ret;		/* pops an address */
	bool	leave;		/* rbp is a frame */
};

static uint64_t gen_state;

static unsigned int rnd(unsigned int n)
{
	return random64(&gen_state) % n;
}

static void put(struct insn *i, unsigned int byte)
{
	i->bytes[i->len++] = byte;
}

static void put_imm(struct insn *i, int n)
{
	while (n--)
		put(i, rnd(256));
}

/* Where the code and the data of the matrix are mapped. */
#define CODE_AT		0x30000000UL
#define DATA_AT		0x30100000UL
#define STACK_AT	0x30200000UL

/*
 * ModRM, SIB and displacement. @reg: the reg field, -1 for any. @rex_at: index
 * of the REX byte, whose B and X bits may be used, -1 if there is none. RIP-
 * relative displacements are filled in by gen_finish().
 */
#define OPND_REG	1	/* register operands allowed */
#define OPND_MEM	2
#define OPND_RIP	4	/* RIP-relative only */

static int rip_disp_at;

/*
 * Memory operands of locked instructions are aligned: QEMU 7.2 loses the flags
 * when it single-steps a locked instruction on a misaligned one.
 */
static bool aligned_operand;

static void put_modrm(struct insn *i, int reg, int what, bool low_regs_only)
{
	int form;

	if (reg < 0)
		reg = rnd(8);
	rip_disp_at = 0;
	if (what == OPND_RIP) {
		form = 2;
	} else if (!(what & OPND_MEM) || ((what & OPND_REG) && rnd(2))) {
		put(i, 0xc0 | reg << 3 | rnd(8));
		return;
	} else {
		form = rnd(4);
	}
	switch (form) {
	case 0:		/* base + disp8; neither rsp nor rbp as base */
		do
			i->base = rnd(8);
		while (i->base == RSP || i->base == RBP);
		put(i, 0x40 | reg << 3 | i->base);
		put(i, rnd(64) & (aligned_operand ? ~15 : ~0));
		break;
	case 1:		/* base + index * scale + disp8 */
		do
			i->base = rnd(8);
		while (i->base == RSP || i->base == RBP);
		do
			i->index = rnd(8);
		while (i->index == RSP || i->index == i->base);
		put(i, 0x44 | reg << 3);
		put(i, rnd(4) << 6 | i->index << 3 | i->base);
		put(i, rnd(64) & (aligned_operand ? ~15 : ~0));
		break;
	case 2:		/* RIP-relative */
		put(i, 0x05 | reg << 3);
		rip_disp_at = i->len;
		put_imm(i, 4);
		break;
	case 3:		/* absolute */
		put(i, 0x04 | reg << 3);
		put(i, 0x25);
		put(i, rnd(256) & ~63);
		put(i, 0x00);
		put(i, (DATA_AT >> 16) & 0xff);
		put(i, DATA_AT >> 24);
		break;
	}
}

/* The displacement, now that length and address of the instruction are known. */
static void gen_finish(struct insn *i, unsigned long at, int disp_at)
{
	int32_t disp = DATA_AT + (rnd(512) & ~31) - (at + i->len);

	if (disp_at)
		memcpy(i->bytes + disp_at, &disp, 4);
}

/* A REX prefix of W or R at most: B and X would change the memory operand. */
static void maybe_rex(struct insn *i)
{
	if (rnd(2))
		put(i, 0x40 | rnd(4) << 2);
}

static void maybe_66(struct insn *i)
{
	if (!rnd(4))
		put(i, 0x66);
}

/* Integer instructions of the one-byte map. */
static void gen_alu(struct insn *i, int what)
{
	int op, imm16;

	imm16 = rnd(4) == 0;
	if (imm16)
		put(i, 0x66);
	maybe_rex(i);
	/* REX.W wins over 66 */
	bool w = i->len && (i->bytes[i->len - 1] & 0xf8) == 0x48;
	int iz = imm16 && !w ? 2 : 4;

	switch (rnd(what == OPND_RIP ? 9 : 14)) {
	case 0:		/* add ... cmp, register and memory */
		put(i, rnd(8) << 3 | rnd(4));
		put_modrm(i, -1, what, false);
		break;
	case 1:		/* the same with an immediate */
		op = (int[]){ 0x80, 0x81, 0x83 }[rnd(3)];
		put(i, op);
		put_modrm(i, -1, what, false);
		put_imm(i, op == 0x81 ? iz : 1);
		break;
	case 2:		/* test, xchg (register), mov */
		op = 0x84 + rnd(8);
		put(i, op);
		/* xchg with memory locks by itself */
		aligned_operand = op == 0x86 || op == 0x87;
		put_modrm(i, -1, what, false);
		break;
	case 3:		/* shifts and rotates */
		op = (int[]){ 0xc0, 0xc1, 0xd0, 0xd1, 0xd2, 0xd3 }[rnd(6)];
		put(i, op);
		put_modrm(i, -1, what, false);
		if (op < 0xd0)
			put_imm(i, 1);
		break;
	case 4:		/* mov immediate */
		op = 0xc6 + rnd(2);
		put(i, op);
		put_modrm(i, 0, what, false);
		put_imm(i, op == 0xc6 ? 1 : iz);
		break;
	case 5:		/* test, not, neg, mul, imul, div, idiv */
	{
		/* 1 is an alias of 0 that decoders disagree about */
		int reg = (int[]){ 0, 2, 3, 4, 5, 6, 7 }[rnd(7)];

		op = 0xf6 + rnd(2);
		put(i, op);
		put_modrm(i, reg, what, false);
		if (!reg)
			put_imm(i, op == 0xf6 ? 1 : iz);
		break;
	}
	case 6:		/* inc, dec */
		put(i, 0xfe + rnd(2));
		put_modrm(i, rnd(2), what, false);
		break;
	case 7:		/* imul */
		op = rnd(2) ? 0x69 : 0x6b;
		put(i, op);
		put_modrm(i, -1, what, false);
		put_imm(i, op == 0x69 ? iz : 1);
		break;
	case 8:		/* movsxd, lea */
		if (rnd(2)) {
			put(i, 0x63);
			put_modrm(i, -1, what, false);
		} else {
			put(i, 0x8d);
			put_modrm(i, -1, what == OPND_RIP ? OPND_RIP : OPND_MEM, false);
		}
		break;
	case 9:		/* accumulator and immediate */
		put(i, rnd(8) << 3 | 4);
		put_imm(i, 1);
		break;
	case 10:
		put(i, 0x90 + rnd(8));
		break;
	case 11:	/* cwde, cdq, sahf, lahf */
		put(i, (int[]){ 0x98, 0x99, 0x9e, 0x9f }[rnd(4)]);
		break;
	case 12:
		put(i, 0xb0 + rnd(8));
		put_imm(i, 1);
		break;
	case 13:	/* cmc, clc, stc */
		put(i, (int[]){ 0xf5, 0xf8, 0xf9 }[rnd(3)]);
		break;
	}
}

/* Of the 0F map: what neither leaves user mode nor shows time or CPU. */
static bool bad_0f(int op)
{
	switch (op) {
	case 0x00: case 0x01: case 0x05: case 0x06: case 0x07: case 0x08: case 0x09: case 0x0b:
	case 0x0e: case 0x0f: case 0x0a: case 0x0c: case 0x04:
	case 0x20 ... 0x27: case 0x30 ... 0x3f: case 0x77:
	case 0x80 ... 0x8f:				/* branches have their class */
	case 0xa0: case 0xa1: case 0xa2: case 0xa6: case 0xa7: case 0xa8: case 0xa9: case 0xaa:
	case 0xae: case 0xb2: case 0xb4: case 0xb5: case 0xb8: case 0xb9: case 0xc7: case 0xff:
		return true;
	}
	return false;
}

/* MMX would leave the x87 state in a mess: vector opcodes need a prefix. */
static bool mmx_0f(int op)
{
	return op == 0x2a || op == 0x2c || op == 0x2d || (op >= 0x60 && op <= 0x7f) ||
	       op == 0xc4 || op == 0xc5 || op >= 0xd0;
}

/* Where f2 and f3 select another instruction; elsewhere they mean nothing. */
static bool f2_f3_0f(int op)
{
	return (op >= 0x10 && op <= 0x17) || op == 0x2a || op == 0x2c || op == 0x2d || (op >= 0x51 && op <= 0x5f) ||
	       op == 0x6f || op == 0x70 || op == 0x7e || op == 0x7f || op == 0xbc || op == 0xbd ||
	       op == 0xc2 || op == 0xe6 || op == 0xf0;
}

static void gen_0f(struct insn *i, int what)
{
	int op, pfx = (int[]){ 0, 0, 0x66, 0xf2, 0xf3 }[rnd(5)];

	do
		op = rnd(256);
	while (bad_0f(op) || (what == OPND_RIP && (op & 0xf8) == 0xc8) ||
	       (what == OPND_RIP && (op == 0xa4 || op == 0xac)));
	/* QEMU 7.2 forgets the immediate of shld and shrd when it adds the IP */
	if (op == 0xa4 || op == 0xac)
		what = OPND_REG;
	if (pfx >= 0xf2 && !f2_f3_0f(op))
		pfx = 0;
	/* shld and shrd of 16 bits by more than 16 are undefined */
	if (op == 0xa4 || op == 0xa5 || op == 0xac || op == 0xad)
		pfx = 0;
	/* f2 0f d6 and f3 0f d6 are movdq2q and movq2dq: MMX */
	if (mmx_0f(op) && (!pfx || op == 0xd6))
		pfx = 0x66;
	if (pfx)
		put(i, pfx);
	maybe_rex(i);
	put(i, 0x0f);
	put(i, op);
	if ((op & 0xf8) == 0xc8)
		return;		/* bswap */
	put_modrm(i, -1, what, false);
	if ((op >= 0x70 && op <= 0x73) || op == 0xa4 || op == 0xac || op == 0xba ||
	    op == 0xc2 || (op >= 0xc4 && op <= 0xc6))
		put_imm(i, 1);
}

static void gen_0f38_0f3a(struct insn *i, int what)
{
	bool three_a = rnd(2);
	int op;

	/* adcx: QEMU 7.2 leaves rubbish in the flags */
	do
		op = rnd(three_a ? 0x70 : 0x100);
	while (!three_a && op == 0xf6);
	put(i, 0x66);
	maybe_rex(i);
	put(i, 0x0f);
	put(i, three_a ? 0x3a : 0x38);
	put(i, op);
	put_modrm(i, -1, what, false);
	if (three_a)
		put_imm(i, 1);
}

/* Opcode bytes that, taken for one-byte opcodes, are branches, calls, returns ... */
static bool collides(int op)
{
	switch (op) {
	case 0x70 ... 0x7f: case 0xe8: case 0xe9: case 0xeb: case 0xc2: case 0xc3: case 0xca:
	case 0xcb: case 0xea: case 0x9a: case 0x9d: case 0xff:
		return true;
	}
	return false;
}

/* Mostly one that exists, sometimes any. */
static int vex_opcode(int map)
{
	int op;

	if (!rnd(8))
		return rnd(256);
	for (;;) {
		op = rnd(256);
		switch (map) {
		case 1:
			if ((op >= 0x10 && op <= 0x17) || (op >= 0x28 && op <= 0x2f) ||
			    (op >= 0x50 && op <= 0x7f) || (op >= 0xc2 && op != 0xc3))
				return op;
			break;
		case 2:
			if (op <= 0x47 || (op >= 0x58 && op <= 0x5a) || (op >= 0x96 && op <= 0xbf) ||
			    (op >= 0xdb && op <= 0xdf) || op >= 0xf2)
				return op;
			break;
		case 3:
			if (op <= 0x22 || (op >= 0x38 && op <= 0x4c) || (op >= 0x60 && op <= 0x63) ||
			    op == 0xdf || op == 0xf0)
				return op;
			break;
		}
	}
}

/* Without it QEMU 7.2 takes some for MMX instructions and dies of it. */
static bool vex_needs_pp1(int map, int op)
{
	if (map == 1)
		return (op >= 0x60 && op <= 0x6e) || (op >= 0x71 && op <= 0x76) || op == 0xc4 ||
		       op == 0xc5 || (op >= 0xd1 && op <= 0xe5) || (op >= 0xe7 && op <= 0xef) ||
		       op >= 0xf1;
	return map == 3 ? op != 0xf0 : op < 0xf2;
}

/* Scalar instructions have no L = 1, and QEMU 7.2 dies of some that have it. */
static bool vex_l_allowed(int map, int pp, int op)
{
	if (pp != 1)
		return false;
	if (map == 1)
		return (op >= 0x54 && op <= 0x5f) || (op >= 0x60 && op <= 0x6d) || op == 0x6f ||
		       (op >= 0x74 && op <= 0x76) || op == 0x7f || op == 0x28 || op == 0x29 ||
		       (op >= 0xd1 && op <= 0xd5) || (op >= 0xd8 && op <= 0xdf) ||
		       (op >= 0xe0 && op <= 0xe5) || (op >= 0xe8 && op <= 0xef);
	if (map == 2)
		return op <= 0x0b || (op >= 0x1c && op <= 0x1e) || (op >= 0x38 && op <= 0x40) ||
		       (op >= 0x45 && op <= 0x47);
	return false;
}

/* VEX: C5 with map 1, C4 with maps 1 to 3. @collide: opcode bytes as above or not. */
static void gen_vex(struct insn *i, int what, bool collide)
{
	int op, map, pp = rnd(4), vvvv = rnd(3) ? 15 : rnd(16), l = rnd(2), w = rnd(4) == 0;
	bool two = rnd(2);

	map = two ? 1 : 1 + rnd(3);
	/* Most instructions have pp = 1, and those of map 1 that exist ... */
	if (rnd(4))
		pp = 1;
	do
		op = vex_opcode(map);
	while (collides(op) != collide ||
	       /* ldmxcsr, gathers, maskmov with rdi */
	       (map == 1 && (op == 0xae || op == 0xf7)) || (map == 2 && op >= 0x90 && op <= 0x93));
	if (what == OPND_RIP && map == 1 && op == 0x77)
		op = 0x76;
	if (vex_needs_pp1(map, op))
		pp = 1;
	if (!vex_l_allowed(map, pp, op))
		l = 0;
	if (two) {
		put(i, 0xc5);
		put(i, (rnd(2) << 7) | vvvv << 3 | l << 2 | pp);
	} else {
		put(i, 0xc4);
		/* X and B are inverted: 1 leaves the memory operand alone. */
		put(i, rnd(2) << 7 | 0x60 | map);
		put(i, w << 7 | vvvv << 3 | l << 2 | pp);
	}
	put(i, op);
	if (map == 1 && op == 0x77)
		return;		/* vzeroupper, vzeroall */
	put_modrm(i, -1, what, false);
	if (map == 3 || (map == 1 && ((op >= 0x70 && op <= 0x73) || op == 0xc2 ||
				      (op >= 0xc4 && op <= 0xc6))))
		put_imm(i, 1);
}

static void gen_branch(struct insn *i)
{
	i->branch = true;
	switch (rnd(6)) {
	case 0:
		put(i, 0x70 + rnd(16));
		put(i, 0x20);
		break;
	case 1:
		put(i, 0x0f);
		put(i, 0x80 + rnd(16));
		put(i, 0x20); put(i, 0); put(i, 0); put(i, 0);
		break;
	case 2:
		put(i, 0xe8 + rnd(2));
		put(i, 0x20); put(i, 0); put(i, 0); put(i, 0);
		break;
	case 3:
		put(i, 0xeb);
		put(i, 0x20);
		break;
	case 4:
		put(i, 0xe0 + rnd(4));
		put(i, 0x20);
		i->string = true;	/* rcx is a small number */
		break;
	case 5:
		i->ret = true;
		if (rnd(2)) {
			put(i, 0xc3);
		} else {
			put(i, 0xc2);
			put(i, rnd(4) * 8); put(i, 0);
		}
		break;
	}
}

static void gen_stack(struct insn *i)
{
	switch (rnd(8)) {
	case 0:		/* push reg */
	case 1:
		if (rnd(2))
			put(i, 0x41);
		put(i, 0x50 + rnd(8));
		break;
	case 2:		/* pop, not of rsp */
		if (rnd(2))
			put(i, 0x41);
		put(i, 0x58 + rnd(4));
		break;
	case 3:
		put(i, 0x68);
		put_imm(i, 4);
		break;
	case 4:
		put(i, 0x6a);
		put_imm(i, 1);
		break;
	case 5:
		put(i, 0xff);
		put_modrm(i, 6, OPND_REG | OPND_MEM, false);
		break;
	case 6:
		put(i, 0xc9);
		i->leave = true;
		break;
	case 7:		/* sub, add, and, lea of rsp; mov rsp, rbp */
		switch (rnd(4)) {
		case 0:
			put(i, 0x48); put(i, 0x83); put(i, 0xec); put(i, rnd(16) * 8);
			break;
		case 1:
			put(i, 0x48); put(i, 0x83); put(i, 0xc4); put(i, rnd(16) * 8);
			break;
		case 2:
			put(i, 0x48); put(i, 0x81); put(i, rnd(2) ? 0xec : 0xc4);
			put(i, rnd(32) * 8); put(i, 0); put(i, 0); put(i, 0);
			break;
		case 3:
			put(i, 0x48); put(i, 0x89); put(i, 0xe5);
			break;
		}
		break;
	}
}

static void gen_string(struct insn *i, bool rep)
{
	i->string = true;
	if (rep)
		put(i, 0xf2 + rnd(2));
	if (rnd(2))
		put(i, 0x48);
	put(i, (int[]){ 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf }[rnd(10)]);
}

static void gen_nop(struct insn *i)
{
	static const char *const nops[] = {
		"\x90", "\x66\x90", "\x0f\x1f\x00", "\x0f\x1f\x40\x00", "\x0f\x1f\x44\x00\x00",
		"\x66\x0f\x1f\x44\x00\x00", "\x0f\x1f\x80\x00\x00\x00\x00",
		"\x0f\x1f\x84\x00\x00\x00\x00\x00", "\x66\x0f\x1f\x84\x00\x00\x00\x00\x00",
		"\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
	};
	int n = rnd(12);

	if (n < 10) {
		memcpy(i->bytes, nops[n], n + 1);
		i->len = n + 1;
	} else {	/* endbr64, nops with any ModRM */
		if (n == 10) {
			memcpy(i->bytes, "\xf3\x0f\x1e\xfa", 4);
			i->len = 4;
		} else {
			maybe_66(i);
			put(i, 0x0f);
			/* 19 and 1d are nops too, but not to the kernel's decoder */
			put(i, "\x18\x1c\x1e\x1f"[rnd(4)]);
			put_modrm(i, -1, OPND_REG | OPND_MEM, false);
		}
	}
}

static void gen_long_nop(struct insn *i)
{
	static const uint8_t nop11[] = { 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 };
	int extra = rnd(4);

	i->len = 0;
	while (extra--)
		put(i, 0x66);
	memcpy(i->bytes + i->len, nop11, sizeof(nop11));
	i->len += sizeof(nop11);
}

static void gen_locked(struct insn *i)
{
	put(i, 0xf0);
	maybe_rex(i);
	aligned_operand = true;
	switch (rnd(6)) {
	case 0:		/* add ... xor to memory */
		put(i, rnd(7) << 3 | rnd(2));
		put_modrm(i, -1, OPND_MEM, false);
		break;
	case 1:
		put(i, 0x83);
		put_modrm(i, rnd(7), OPND_MEM, false);
		put_imm(i, 1);
		break;
	case 2:
		put(i, 0xfe + rnd(2));
		put_modrm(i, rnd(2), OPND_MEM, false);
		break;
	case 3:
		put(i, 0xf6 + rnd(2));
		put_modrm(i, 2 + rnd(2), OPND_MEM, false);
		break;
	case 4:		/* cmpxchg, xadd */
		put(i, 0x0f);
		put(i, (int[]){ 0xb0, 0xb1, 0xc0, 0xc1 }[rnd(4)]);
		put_modrm(i, -1, OPND_MEM, false);
		break;
	case 5:		/* bts, btr, btc with an immediate */
		put(i, 0x0f);
		put(i, 0xba);
		put_modrm(i, 5 + rnd(3), OPND_MEM, false);
		put(i, rnd(32));
		break;
	}
}

static void gen_segment(struct insn *i)
{
	put(i, (int[]){ 0x2e, 0x36, 0x3e, 0x26 }[rnd(4)]);
	maybe_rex(i);
	put(i, 0x88 + rnd(4));
	put_modrm(i, -1, OPND_REG | OPND_MEM, false);
}

/* vmovdqa, vmovaps, vpxor with memory and registers: C refuses some. */
static void gen_vex_aligned(struct insn *i)
{
	int op = (int[]){ 0x6f, 0x28, 0x29, 0xef, 0x7f }[rnd(5)], l = rnd(2);
	int pp = op == 0x28 || op == 0x29 ? 0 : 1;

	put(i, 0xc5);
	put(i, 0x80 | (op == 0xef ? rnd(16) : 15) << 3 | l << 2 | pp);
	put(i, op);
	put_modrm(i, -1, OPND_REG | OPND_MEM, false);
}

struct insn_class {
	const char	*name, *fault;
	int		kind, what;
	bool		all;		/* none may be refused */
	int		percent;	/* so many must be accepted */
};

enum {
	K_ALU, K_0F, K_0F38, K_VEX, K_VEX_COLLIDE, K_BRANCH, K_STACK, K_STRING, K_REP, K_NOP,
	K_LONG_NOP, K_LOCK, K_SEGMENT, K_VEX_ALIGNED,
};

#define ANY (OPND_REG | OPND_MEM)

static const struct insn_class insn_classes[] = {
	{ "integer", NULL, K_ALU, ANY, true, 100 },
	{ "integer, RIP-relative", NULL, K_ALU, OPND_RIP, true, 100 },
	{ "0F map", NULL, K_0F, ANY, false, 50 },
	{ "0F map, RIP-relative", NULL, K_0F, OPND_RIP, false, 50 },
	{ "0F38 and 0F3A maps", NULL, K_0F38, ANY, false, 25 },
	{ "0F38 and 0F3A maps, RIP-relative", NULL, K_0F38, OPND_RIP, false, 25 },
	{ "VEX", NULL, K_VEX, ANY, false, 10 },
	{ "VEX, RIP-relative", NULL, K_VEX, OPND_RIP, false, 10 },
	{ "VEX, opcode like a branch", "F.1", K_VEX_COLLIDE, ANY, false, 10 },
	{ "VEX, opcode like a branch, RIP-relative", "F.1", K_VEX_COLLIDE, OPND_RIP, false, 10 },
	{ "branches", NULL, K_BRANCH, 0, true, 100 },
	{ "stack", NULL, K_STACK, 0, true, 100 },
	{ "string", NULL, K_STRING, 0, true, 100 },
	{ "repeated string", "F.2", K_REP, 0, true, 100 },
	{ "nops", NULL, K_NOP, 0, true, 100 },
	{ "nops of 11 bytes and more", "F.3", K_LONG_NOP, 0, true, 100 },
	{ "locked read-modify-write", "F.3", K_LOCK, 0, true, 100 },
	{ "moves with a segment prefix", "F.3", K_SEGMENT, 0, true, 100 },
	{ "aligned VEX moves, vpxor", "F.3", K_VEX_ALIGNED, 0, true, 100 },
};

static void gen_insn(struct insn *i, const struct insn_class *c, unsigned long at)
{
	memset(i, 0, sizeof(*i));
	i->base = i->index = -1;
	rip_disp_at = 0;
	aligned_operand = false;
	switch (c->kind) {
	case K_ALU: gen_alu(i, c->what); break;
	case K_0F: gen_0f(i, c->what); break;
	case K_0F38: gen_0f38_0f3a(i, c->what); break;
	case K_VEX: gen_vex(i, c->what, false); break;
	case K_VEX_COLLIDE: gen_vex(i, c->what, true); break;
	case K_BRANCH: gen_branch(i); break;
	case K_STACK: gen_stack(i); break;
	case K_STRING: gen_string(i, false); break;
	case K_REP: gen_string(i, true); break;
	case K_NOP: gen_nop(i); break;
	case K_LONG_NOP: gen_long_nop(i); break;
	case K_LOCK: gen_locked(i); break;
	case K_SEGMENT: gen_segment(i); break;
	case K_VEX_ALIGNED: gen_vex_aligned(i); break;
	}
	gen_finish(i, at, rip_disp_at);
}

#endif
