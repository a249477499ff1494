// SPDX-License-Identifier: GPL-2.0
/*
 * What one hit costs.
 *
 *   bench-hit --all	one JSON line for each site: {"site":"nop","ns_per_hit":123.4}
 *   bench-hit SITE N	attach to one site and run it N times, print nothing
 *
 * Two runs of different length are subtracted, so that the attach and the first
 * hits do not count, and then the same without a probe. Under QEMU's -icount the
 * clock counts instructions.
 */
#include "bench.h"

#define SHORT	2000
#define LONG	12000

static double ns_per_call(const struct bench_site *b)
{
	double t[3];

	t[0] = now_ns();
	bench_loop(b, SHORT);
	t[1] = now_ns();
	bench_loop(b, LONG);
	t[2] = now_ns();
	return ((t[2] - t[1]) - (t[1] - t[0])) / (LONG - SHORT);
}

int main(int argc, char **argv)
{
	unsigned int i;

	ktap_standalone();
	if (argc == 3) {
		const struct bench_site *b = bench_site(argv[1]);

		bench_attach(b);
		bench_loop(b, atol(argv[2]));
		return 0;
	}
	if (argc != 2 || strcmp(argv[1], "--all")) {
		fprintf(stderr, "usage: %s --all | SITE N\n", argv[0]);
		return 2;
	}
	for (i = 0; i < NR_BENCH_SITES; i++) {
		const struct bench_site *b = &bench_sites[i];
		double bare, probed;
		int link;

		bench_loop(b, 1000);
		bare = ns_per_call(b);
		link = bench_attach(b);
		bench_loop(b, 1000);
		probed = ns_per_call(b);
		close(link);
		printf("{\"site\":\"%s\",\"ns_per_hit\":%.1f}\n", b->name, probed - bare);
		fflush(stdout);
	}
	return 0;
}
