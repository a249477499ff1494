/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A statically defined tracepoint (USDT): a nop, and a note that tells tracers
 * where it is, where its arguments are, and where the semaphore is that they
 * raise while they listen.
 */
#ifndef SDT_H
#define SDT_H

/* The semaphore: above zero while somebody traces provider:name. */
#define SDT_SEMAPHORE(provider, name) \
	volatile unsigned short provider##_##name##_semaphore __attribute__((section(".probes"), used))

#define SDT_ENABLED(provider, name) \
	__builtin_expect(provider##_##name##_semaphore > 0, 0)

#define SDT_PROBE2(provider, name, arg1, arg2)					\
	asm volatile("990: nop\n"						\
		".pushsection .note.stapsdt, \"\", \"note\"\n"			\
		".balign 4\n"							\
		".4byte 992f-991f, 994f-993f, 3\n"				\
		"991: .asciz \"stapsdt\"\n"					\
		"992: .balign 4\n"						\
		"993: .8byte 990b\n"						\
		".8byte _.stapsdt.base\n"					\
		".8byte " #provider "_" #name "_semaphore\n"			\
		".asciz \"" #provider "\"\n"					\
		".asciz \"" #name "\"\n"					\
		".asciz \"-8@%0 -8@%1\"\n"					\
		"994: .balign 4\n"						\
		".popsection\n"							\
		".ifndef _.stapsdt.base\n"					\
		".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
		".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"		\
		"_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n"		\
		".popsection\n"							\
		".endif\n"							\
		:: "r"((long)(arg1)), "r"((long)(arg2)))

#endif
