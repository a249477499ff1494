// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the kernel's instruction decoder on what comes in on stdin: records of one byte, 1 for
 * 64-bit code and 0 for 32-bit code, and 16 bytes of code. Answers each with a record of one byte,
 * 1 if it could be decoded, the length, and nine fields of five bytes, see kernel.rs.
 *
 * Built from the kernel tree's tools/arch/x86/lib.
 */
#include <string.h>
#include <unistd.h>

#include "insn.c"
#include "inat.c"

static unsigned char *put(unsigned char *p, const struct insn_field *f)
{
	memcpy(p, f->bytes, 4);
	p[4] = f->nbytes;
	return p + 5;
}

#define IN 17
#define OUT (2 + 9 * 5)
#define RECORDS 1024

static void decode(const unsigned char *in, unsigned char *out)
{
	struct insn insn;

	out[0] = !insn_decode(&insn, in + 1, 16, in[0] ? INSN_MODE_64 : INSN_MODE_32);
	out[1] = insn.length;
	out = put(out + 2, &insn.prefixes);
	out = put(out, &insn.rex_prefix);
	out = put(out, &insn.vex_prefix);
	out = put(out, &insn.opcode);
	out = put(out, &insn.modrm);
	out = put(out, &insn.sib);
	out = put(out, &insn.displacement);
	out = put(out, &insn.immediate);
	put(out, &insn.immediate2);
}

int main(void)
{
	static unsigned char in[RECORDS * IN], out[RECORDS * OUT];
	size_t have = 0;
	ssize_t got;

	while ((got = read(0, in + have, sizeof(in) - have)) > 0) {
		size_t records = (have + got) / IN;

		have = (have + got) % IN;
		for (size_t i = 0; i < records; i++)
			decode(in + i * IN, out + i * OUT);
		memmove(in, in + records * IN, have);
		if (write(1, out, records * OUT) != (ssize_t)(records * OUT))
			return 1;
	}
	return 0;
}
