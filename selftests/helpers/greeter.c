// SPDX-License-Identifier: GPL-2.0
/* Calls greet() with a few texts, for probes that fetch their arguments. */
#include <stdio.h>
#include <stdlib.h>

struct person {
	long		id;
	const char	*name;
};

__attribute__((noinline, noclone)) long greet(const char *text, long n, const struct person *who)
{
	asm volatile("" :: "r"(text), "r"(n), "r"(who) : "memory");
	return n * 2;
}

int main(int argc, char **argv)
{
	static const char *const texts[] = { "hello", "uprobes", "in Rust" };
	struct person who = { 4711, "nobody" };
	long i, n = argc > 1 ? atol(argv[1]) : 3;

	/* "greeter -a": where is greet()? */
	if (argc > 1 && argv[1][0] == '-') {
		printf("%lx\n", (long)greet);
		return 0;
	}
	for (i = 0; i < n; i++)
		if (greet(texts[i % 3], i, &who) != i * 2)
			return 1;
	return 0;
}
