// SPDX-License-Identifier: GPL-2.0
#include <string.h>
#include <stdio.h>
#include <unistd.h>

#include "ktap.h"
#include "sites.h"
#include "arch/sites.h"

/* On a page of its own, for watchpoints. */
uint8_t site_data[4096] __attribute__((aligned(4096)));

/* Pages of their own, so that no probe changes a page that the harness runs on. */
asm(".pushsection .text.sites, \"ax\", @progbits\n"
    ".balign 4096\n.globl sites_start\nsites_start:\n.popsection");
SITES(SITE_ASM)
asm(".pushsection .text.sites, \"ax\", @progbits\n"
    ".balign 4096\n.globl sites_end\nsites_end:\n.popsection");
SITE_CALL_ASM;

#define SITE_DECL(name, ...) extern const char site_fn_##name[], site_pc_##name[];
SITES(SITE_DECL)

#define SITE_ENTRY(name, fault, ...) { #name, fault, site_fn_##name, site_pc_##name },
const struct site sites[] = { SITES(SITE_ENTRY) };
const int nr_sites = sizeof(sites) / sizeof(sites[0]);

const struct site *site_by_name(const char *name)
{
	int i;

	for (i = 0; i < nr_sites; i++)
		if (!strcmp(sites[i].name, name))
			return &sites[i];
	return NULL;
}

bool site_is_optimised(const struct site *site)
{
#ifdef ARCH_SITE_OPTIMISED
	return !strcmp(site->name, ARCH_SITE_OPTIMISED);
#else
	return false;
#endif
}

/* splitmix64 */
uint64_t random64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void site_random(struct site_state *st, uint64_t n)
{
	uint64_t seed = n * 0x1234567;
	int i;

	memset(st, 0, sizeof(*st));
	for (i = 0; i < NR_GPR; i++)
		st->regs.gpr[i] = random64(&seed);
	st->regs.flags = (random64(&seed) & ARCH_FLAGS_MASK) | ARCH_FLAGS_FIXED;
	for (i = 0; i < 64; i++)
		st->data[i] = random64(&seed);
}

void site_run(const struct site *site, struct site_state *st)
{
	memcpy(site_data, st->data, sizeof(st->data));
	site_call(site->fn, &st->regs);
	memcpy(st->data, site_data, sizeof(st->data));
}

bool site_same(const struct site *site, const struct site_state *got,
	       const struct site_state *want)
{
	bool same = true;
	int i;

	for (i = 0; i < NR_GPR; i++) {
		if (got->regs.gpr[i] == want->regs.gpr[i])
			continue;
		diag("%s: register %d is %#llx, bare %#llx", site->name, i,
		     (long long)got->regs.gpr[i], (long long)want->regs.gpr[i]);
		same = false;
	}
	if (got->regs.flags != want->regs.flags) {
		diag("%s: flags are %#llx, bare %#llx", site->name,
		     (long long)got->regs.flags, (long long)want->regs.flags);
		same = false;
	}
	if (memcmp(got->data, want->data, sizeof(got->data))) {
		diag("%s: memory differs", site->name);
		same = false;
	}
	return same;
}
