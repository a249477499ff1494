// SPDX-License-Identifier: GPL-2.0
/*
 * The demo's program: a bakery that takes orders. "bakery N" bakes N orders;
 * then it says how often its tracepoint bakery:baked found somebody listening.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sdt.h"

SDT_SEMAPHORE(bakery, baked);

static const char *const goods[] = { "bread", "rolls", "pretzels", "cake" };

/* Takes the longer the more there is to bake; returns the price. */
__attribute__((noinline, noclone)) long bake(const char *what, long pieces)
{
	volatile long i;

	asm volatile("" :: "r"(what));
	for (i = 0; i < pieces * 2000; i++)
		;
	return pieces * 3;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 10, i, seen = 0;

	for (i = 0; i < n; i++) {
		long price = bake(goods[i % 4], i % 8 + 1);

		if (SDT_ENABLED(bakery, baked)) {
			SDT_PROBE2(bakery, baked, i, price);
			seen++;
		}
	}
	printf("bakery: %ld orders, semaphore %d, %ld traced\n", n, bakery_baked_semaphore, seen);
	return 0;
}
