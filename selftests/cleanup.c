// SPDX-License-Identifier: GPL-2.0
/* After all is detached nothing is left: not in texts, tracefs, or the kernel. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

__attribute__((noinline, noclone)) long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

static void run_all(void)
{
	struct site_state st;
	int i;

	for (i = 0; i < nr_sites; i++) {
		/* These run a kernel of C's into its faults; they have their tests. */
		if (sites[i].fault)
			continue;
		site_random(&st, i);
		site_run(&sites[i], &st);
	}
}

/* Every kind of consumer on every site, attached and detached; then compare. */
static int text_after_all(const void *arg)
{
	struct bpf_counter c;
	unsigned long offs[256];
	struct multi m = { .path = self_path(), .offsets = offs };
	int fd[256], n = 0, i, links[3];

	for (i = 0; i < nr_sites; i++) {
		if (sites[i].fault || site_is_optimised(&sites[i]))
			continue;
		fd[n++] = perf_attach(loc_of(sites[i].pc), 0);
		offs[m.cnt++] = loc_of(sites[i].pc).offset;
	}
	bpf_counter_load(&c, NULL);
	links[0] = MUST(multi_attach(&c, &m));
	links[1] = MUST(multi_attach(&c, &m));
	links[2] = multi_attach_one(&c, loc_of(target), MULTI_RETURN);
	run_all();
	target(1);
	CHECK_EQ(c.values[BV_COUNT], 2 * m.cnt + 1, "hits");
	for (i = 0; i < 3; i++)
		close(links[i]);
	while (n)
		close(fd[--n]);
	CHECK(text_equals_file(sites_start, sites_end - sites_start), "text of the sites");
	CHECK(text_equals_file(target, 64), "text of target()");
	run_all();
	CHECK_EQ(c.values[BV_COUNT], 2 * m.cnt + 1, "hits after the detach");
	return PASS;
}

static int tracefs_empty(const void *arg)
{
	struct loc loc = loc_of(target);
	int i;

	for (i = 0; i < 5; i++) {
		CHECK_EQ(tracefs_append("uprobe_events", "p:upt/p%d %s:%#lx\n", i, loc.path,
					(long)loc.offset), 0, "define event %d", i);
		CHECK_EQ(tracefs_append("uprobe_events", "r:upt/r%d %s:%#lx\n", i, loc.path,
					(long)loc.offset), 0, "define return event %d", i);
	}
	CHECK_EQ(tracefs_write("events/upt/enable", "1"), 0, "enable");
	for (i = 0; i < 10; i++)
		target(i);
	CHECK(!text_equals_file(target, ARCH_BREAKPOINT_LEN), "no breakpoint while enabled");
	CHECK_EQ(tracefs_write("uprobe_events", "\n"), -EBUSY, "clear while enabled");
	CHECK_EQ(tracefs_write("events/upt/enable", "0"), 0, "disable");
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	CHECK_EQ(tracefs_write("uprobe_events", "\n"), 0, "clear");
	CHECK_EQ(strlen(tracefs_read("uprobe_events")), 0, "length of uprobe_events");
	return PASS;
}

/* Attach and detach over and over: the memory of the kernel does not grow. */
static int no_leak(const void *arg)
{
	unsigned long offs[64];
	struct multi m = { .path = self_path(), .offsets = offs };
	int i, n, rounds = full_run() ? 300 : 60;
	struct bpf_counter c;
	long before = 0, after = 0;

	for (i = 0; i < nr_sites && m.cnt < 40; i++)
		if (!sites[i].fault && !site_is_optimised(&sites[i]))
			offs[m.cnt++] = loc_of(sites[i].pc).offset;
	bpf_counter_load(&c, NULL);
	for (n = 0; n < rounds; n++) {
		int link, ret;

		if (n == rounds / 6)
			before = slab_kb();
		link = MUST(multi_attach(&c, &m));
		ret = multi_attach_one(&c, loc_of(target), MULTI_RETURN);
		run_all();
		target(1);
		close(link);
		close(ret);
	}
	/* Memory is freed after grace periods. */
	for (i = 0; i < 20; i++) {
		usleep(500000);
		after = slab_kb();
		if (after - before < 700)
			break;
	}
	/* An uprobe is 0.5 KiB: had each leaked, it would be 800 KiB and more. */
	CHECK(after - before < 700, "slab grew by %ld KiB", after - before);
	CHECK(text_equals_file(sites_start, sites_end - sites_start), "text of the sites");
	return PASS;
}

/* A detach that returned means: no more hits, at once. */
static volatile bool stop_hits;

static long hits(long seconds)
{
	struct site_state st;

	while (!stop_hits) {
		site_random(&st, 1);
		site_run(site_by_name("nop"), &st);
	}
	return 0;
}

static int no_hit_after_detach(const void *arg)
{
	struct perf_all all;
	pid_t pid = MUST(fork());
	struct bpf_counter c;
	uint64_t n;
	int i, link;

	if (!pid) {
		hits(0);
		_exit(0);
	}
	bpf_counter_load(&c, NULL);
	for (i = 0; i < 20; i++) {
		link = multi_attach_one(&c, loc_of(site_by_name("nop")->pc), 0);
		perf_attach_all(&all, loc_of(site_by_name("nop")->pc), 0);
		n = c.values[BV_COUNT];
		while (c.values[BV_COUNT] - n < 10)
			usleep(100);
		close(link);
		n = c.values[BV_COUNT];
		usleep(5000);
		/* The hit that was under way may be counted late. */
		CHECK(c.values[BV_COUNT] - n <= 1, "%lld hits after the close of the link",
		      (long long)(c.values[BV_COUNT] - n));
		perf_detach_all(&all);
	}
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, NULL, 0), pid, "waitpid");
	return PASS;
}

int main(int argc, char **argv)
{
	add_test(NULL, text_after_all, NULL, "text equals the file after all");
	add_test(NULL, tracefs_empty, NULL, "uprobe_events is empty");
	/* Hundreds of grace periods. */
	set_timeout(180);
	add_test(NULL, no_leak, NULL, "no memory leaks");
	set_timeout(60);
	add_test(NULL, no_hit_after_detach, NULL, "no hit after the detach");
	return run_tests(argc, argv);
}
