// SPDX-License-Identifier: GPL-2.0
/*
 * Do hits on two CPUs get in each other's way?
 *
 *   bench-threads --all	{"site":"nop","threads":2,"ratio":1.95} for each site
 *   bench-threads SITE		one of them
 *
 * The ratio is the throughput of two threads, pinned to two CPUs and hitting one
 * site, over that of one thread: 2 is perfect. Runs of one and of two threads
 * alternate, the fastest of each kind count.
 */
#include <pthread.h>
#include <sched.h>

#include "bench.h"

/*
 * Many short runs rather than a few long ones: what else goes on in the host only
 * ever slows a run down, and is less likely to meet a short one.
 */
#define ROUNDS	40
#define RUN_NS	5e7

struct runner {
	pthread_t			thread;
	const struct bench_site		*b;
	int				cpu;
	long				n;
	uint64_t			start, end;
};

static pthread_barrier_t barrier;

static void *run(void *arg)
{
	struct runner *r = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(r->cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	bench_loop(r->b, 100);
	pthread_barrier_wait(&barrier);
	r->start = arch_clock();
	bench_loop(r->b, r->n);
	r->end = arch_clock();
	return NULL;
}

/* Time of arch_clock() until the last of the threads has made its @n calls. */
static uint64_t time_threads(const struct bench_site *b, int threads, long n)
{
	uint64_t start = UINT64_MAX, end = 0;
	struct runner r[2];
	int i;

	pthread_barrier_init(&barrier, NULL, threads);
	for (i = 0; i < threads; i++) {
		r[i] = (struct runner){ .b = b, .cpu = i, .n = n };
		if (pthread_create(&r[i].thread, NULL, run, &r[i]))
			exit(1);
	}
	for (i = 0; i < threads; i++) {
		pthread_join(r[i].thread, NULL);
		start = r[i].start < start ? r[i].start : start;
		end = r[i].end > end ? r[i].end : end;
	}
	return end - start;
}

static void measure(const struct bench_site *b)
{
	uint64_t one = UINT64_MAX, two = UINT64_MAX, t;
	double before, ns;
	int link = bench_attach(b), i;
	long n = 1000;

	for (;;) {
		before = now_ns();
		time_threads(b, 1, n);
		ns = now_ns() - before;
		if (ns >= RUN_NS)
			break;
		n *= ns > RUN_NS / 5 ? 2 : 5;
	}
	for (i = 0; i < ROUNDS; i++) {
		t = time_threads(b, 1, n);
		one = t < one ? t : one;
		t = time_threads(b, 2, n);
		two = t < two ? t : two;
	}
	close(link);
	printf("{\"site\":\"%s\",\"threads\":2,\"ratio\":%.2f}\n", b->name, 2.0 * one / two);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned int i;

	ktap_standalone();
	if (argc != 2) {
		fprintf(stderr, "usage: %s --all | SITE\n", argv[0]);
		return 2;
	}
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		fprintf(stderr, "bench-threads needs two CPUs\n");
		return 4;
	}
	if (strcmp(argv[1], "--all")) {
		measure(bench_site(argv[1]));
		return 0;
	}
	for (i = 0; i < NR_BENCH_SITES; i++)
		measure(&bench_sites[i]);
	return 0;
}
