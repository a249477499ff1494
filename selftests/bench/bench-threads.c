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

#define ROUNDS	5

struct runner {
	pthread_t			thread;
	const struct bench_site		*b;
	int				cpu;
	long				n;
	double				start, end;
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
	r->start = now_ns();
	bench_loop(r->b, r->n);
	r->end = now_ns();
	return NULL;
}

/* Nanoseconds until the last of the threads has made its @n calls. */
static double time_threads(const struct bench_site *b, int threads, long n)
{
	double start = 1e300, end = 0;
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
	double one = 1e300, two = 1e300, t;
	int link = bench_attach(b), i;
	long n = 1000;

	/* A run is to take half a second at least: the clock may be coarse. */
	while ((t = time_threads(b, 1, n)) < 5e8)
		n *= t > 1e8 ? 2 : 5;
	for (i = 0; i < ROUNDS; i++) {
		t = time_threads(b, 1, n);
		one = t < one ? t : one;
		t = time_threads(b, 2, n);
		two = t < two ? t : two;
	}
	close(link);
	printf("{\"site\":\"%s\",\"threads\":2,\"ratio\":%.2f}\n", b->name, 2 * one / two);
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
