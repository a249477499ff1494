/* SPDX-License-Identifier: GPL-2.0 */
/* Sites of the benchmarks and how to attach to them. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

struct bench_site {
	const char	*name;		/* as reported */
	const char	*site;		/* in arch/<isa>/sites.h */
	unsigned int	flags;
};

#define BENCH_SITE(name, site, flags) { name, site, flags },
static const struct bench_site bench_sites[] = { ARCH_BENCH_SITES(BENCH_SITE) };

#define NR_BENCH_SITES (sizeof(bench_sites) / sizeof(bench_sites[0]))

static inline const struct bench_site *bench_site(const char *name)
{
	unsigned int i;

	for (i = 0; i < NR_BENCH_SITES; i++)
		if (!strcmp(bench_sites[i].name, name))
			return &bench_sites[i];
	fprintf(stderr, "no site %s; there are:", name);
	for (i = 0; i < NR_BENCH_SITES; i++)
		fprintf(stderr, " %s", bench_sites[i].name);
	fprintf(stderr, "\n");
	exit(2);
}

/* An empty program on the site; the link's descriptor. */
static inline int bench_attach(const struct bench_site *b)
{
	struct bpf_counter c;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EMPTY });
	return multi_attach_one(&c, loc_of(site_by_name(b->site)->pc), b->flags);
}

static inline double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

/* The sites keep what a C function must keep. */
static inline void bench_loop(const struct bench_site *b, long n)
{
	void (*fn)(void) = (void (*)(void))(unsigned long)site_by_name(b->site)->fn;

	while (n--)
		fn();
}

#endif
