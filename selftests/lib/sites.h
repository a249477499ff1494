/* SPDX-License-Identifier: GPL-2.0 */
/* The probe sites of arch/<isa>/sites.h as a table. */
#ifndef SITES_H
#define SITES_H

#include <stdbool.h>
#include <stdint.h>

#include "arch.h"

struct site {
	const char	*name;
	const char	*fault;		/* of C, NULL: C handles it */
	const void	*fn;		/* function to call */
	const void	*pc;		/* instruction to probe */
};

extern const struct site sites[];
extern const int nr_sites;

/* Memory that sites read and write. */
extern uint8_t site_data[];

const struct site *site_by_name(const char *name);

/* Optimised by C after the first hit, with a trace that stays in the text. */
bool site_is_optimised(const struct site *site);

/* The page or pages of all sites. */
extern const char sites_start[], sites_end[];

/* What running a site shows: registers and memory. */
struct site_state {
	struct cpu_regs	regs;
	uint8_t		data[64];
};

/* A repeatable random state; @n selects it. */
void site_random(struct site_state *st, uint64_t n);
/* Runs the site on @st, leaves the outcome there. */
void site_run(const struct site *site, struct site_state *st);
/* Reports the differences, true if there is none. */
bool site_same(const struct site *site, const struct site_state *got,
	       const struct site_state *want);

uint64_t random64(uint64_t *state);

#endif
