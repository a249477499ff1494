// SPDX-License-Identifier: GPL-2.0
/*
 * Every site, probed in every way: the hits are counted exactly, the program
 * sees no difference, and afterwards its text is the file's again.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

#define HITS 50

static struct site_state bare[HITS];

/* On another page of the stack than the runs to compare with: no site's outcome may tell. */
static void run_bare(const struct site *site)
{
	char page[4096];
	int i;

	asm volatile("" :: "r"(page) : "memory");
	for (i = 0; i < HITS; i++) {
		site_random(&bare[i], i);
		site_run(site, &bare[i]);
	}
}

/* The same states again, under a probe. */
static void run_probed(const struct site *site)
{
	bool same = true;
	int i;

	for (i = 0; i < HITS && same; i++) {
		struct site_state st;

		site_random(&st, i);
		site_run(site, &st);
		same = site_same(site, &st, &bare[i]);
	}
	CHECK(same, "%s: differs from the bare run %d", site->name, i - 1);
}

static void check_text(const struct site *site)
{
	/*
	 * C leaves the call of an optimised nop10 in the text, as an operand of the
	 * nop, on purpose; text_after() is the test for that.
	 */
	if (site_is_optimised(site)) {
		CHECK(text_equals_file(site->pc, 5), "%s: text after the detach", site->name);
		return;
	}
	CHECK(text_equals_file(sites_start, sites_end - sites_start),
	      "%s: text differs from the file after the detach", site->name);
}

static void check_trapped(const struct site *site, bool want)
{
	bool is = !text_equals_file(site->pc, ARCH_BREAKPOINT_LEN);

	CHECK(is == want, "%s: %s in the text", site->name, is ? "a breakpoint" : "no breakpoint");
}

static int perf_entry(const void *arg)
{
	const struct site *site = arg;
	int fd;

	run_bare(site);
	check_trapped(site, false);
	fd = perf_attach(loc_of(site->pc), 0);
	check_trapped(site, true);
	run_probed(site);
	CHECK_EQ(perf_count(fd), HITS, "%s", site->name);
	close(fd);
	check_text(site);
	run_probed(site);
	return PASS;
}

static int perf_return(const void *arg)
{
	const struct site *site = arg;
	int fd;

	run_bare(site);
	fd = perf_attach(loc_of(site->fn), PERF_RET);
	run_probed(site);
	CHECK_EQ(perf_count(fd), HITS, "%s", site->name);
	close(fd);
	check_text(site);
	run_probed(site);
	return PASS;
}

static int multi(const void *arg, unsigned int flags)
{
	const struct site *site = arg;
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, NULL);
	run_bare(site);
	link = multi_attach_one(&c, loc_of(flags ? site->fn : site->pc), flags);
	run_probed(site);
	CHECK_EQ(c.values[BV_COUNT], HITS, "%s", site->name);
	close(link);
	check_text(site);
	run_probed(site);
	CHECK_EQ(c.values[BV_COUNT], HITS, "%s after the detach", site->name);
	return PASS;
}

static int multi_entry(const void *arg)
{
	return multi(arg, 0);
}

static int multi_return(const void *arg)
{
	return multi(arg, MULTI_RETURN);
}

/* Entry and return probe, perf and BPF, all at once on one site. */
static int all_at_once(const void *arg)
{
	const struct site *site = arg;
	struct bpf_counter entry, ret;
	int fd[4];

	bpf_counter_load(&entry, NULL);
	bpf_counter_load(&ret, NULL);
	run_bare(site);
	fd[0] = perf_attach(loc_of(site->pc), 0);
	fd[1] = perf_attach(loc_of(site->pc), PERF_RET);
	fd[2] = multi_attach_one(&entry, loc_of(site->pc), 0);
	fd[3] = multi_attach_one(&ret, loc_of(site->pc), MULTI_RETURN);
	run_probed(site);
	CHECK_EQ(perf_count(fd[0]), HITS, "%s: perf entry", site->name);
	CHECK_EQ(perf_count(fd[1]), HITS, "%s: perf return", site->name);
	CHECK_EQ(entry.values[BV_COUNT], HITS, "%s: BPF entry", site->name);
	CHECK_EQ(ret.values[BV_COUNT], HITS, "%s: BPF return", site->name);
	/* The first three go, the last keeps its breakpoint. */
	close(fd[0]);
	close(fd[1]);
	close(fd[2]);
	run_probed(site);
	CHECK_EQ(ret.values[BV_COUNT], 2 * HITS, "%s: BPF return alone", site->name);
	CHECK_EQ(entry.values[BV_COUNT], HITS, "%s: detached BPF entry", site->name);
	close(fd[3]);
	check_text(site);
	return PASS;
}

/* The context that a handler sees is the program's at the probed instruction. */
static int handler_regs(const void *arg)
{
	static const int at[NR_GPR] = ARCH_PT_REGS_OF_GPR;
	const struct site *site = arg;
	struct bpf_counter c;
	struct site_state in, st;
	int link, i, n;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_REGS });
	link = multi_attach_one(&c, loc_of(site->pc), 0);
	/* More than once: a site that C optimises does so after the first hit. */
	for (n = 0; n < 5; n++) {
		site_random(&in, n);
		st = in;
		site_run(site, &st);
		for (i = 0; i < NR_GPR; i++)
			if (at[i] >= 0)
				CHECK_EQ(c.values[BV_REGS + at[i]], in.regs.gpr[i],
					 "%s: hit %d, register %d", site->name, n, i);
		CHECK_EQ(c.values[BV_REGS + ARCH_PT_REGS_IP / 8], (long)site->pc, "%s: hit %d, ip",
			 site->name, n);
#ifdef ARCH_PT_REGS_FLAGS
		CHECK_EQ(c.values[BV_REGS + ARCH_PT_REGS_FLAGS / 8] & ARCH_FLAGS_MASK,
			 in.regs.flags & ARCH_FLAGS_MASK, "%s: hit %d, flags", site->name, n);
#endif
	}
	close(link);
	check_text(site);
	return PASS;
}

#ifdef ARCH_SITE_OPTIMISED
/* Not a byte of the text differs from the file once nobody probes it. */
static int text_after(const void *arg)
{
	const struct site *site = arg;
	int fd = perf_attach(loc_of(site->pc), 0);

	run_bare(site);
	CHECK_EQ(perf_count(fd), HITS, "%s", site->name);
	close(fd);
	CHECK(text_equals_file(sites_start, sites_end - sites_start),
	      "%s: text differs from the file after the detach", site->name);
	return PASS;
}
#endif

int main(int argc, char **argv)
{
	int i;

	for (i = 0; i < nr_sites; i++) {
		const struct site *s = &sites[i];
		/* One condition in two ways stands for all under --quick. */
		bool more = full_run() || !ARCH_IS_ONE_OF_MANY(s->name);

		add_test(s->fault, perf_entry, s, "perf entry %s", s->name);
		if (more)
			add_test(s->fault, multi_entry, s, "uprobe_multi entry %s", s->name);
		if (!more || s->pc != s->fn)
			continue;
		add_test(s->fault, perf_return, s, "perf return %s", s->name);
		add_test(s->fault, multi_return, s, "uprobe_multi return %s", s->name);
		add_test(s->fault, all_at_once, s, "all at once %s", s->name);
		add_test(s->fault && s->fault[2] == '2' ? NULL : s->fault,
			 handler_regs, s, "registers seen at %s", s->name);
	}
#ifdef ARCH_SITE_OPTIMISED
	add_test("F.9", text_after, site_by_name(ARCH_SITE_OPTIMISED),
		 "text equals the file after " ARCH_SITE_OPTIMISED);
#endif
	return run_tests(argc, argv);
}
