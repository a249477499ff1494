// SPDX-License-Identifier: GPL-2.0
/*
 * Thousands of probes: attached in one pass, detached at once. Nothing is lost,
 * nobody is called afterwards, nothing stays behind.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "manylib.h"
#include "sites.h"
#include "arch/asm.h"

#define MANY	1000

static struct manylib lib;
static char *text;
static volatile bool stop;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void begin(int count)
{
	struct rlimit many = { 65536, 65536 };

	MUST(setrlimit(RLIMIT_NOFILE, &many));
	manylib_make(&lib, "manylib", count);
	text = manylib_map(&lib);
}

static void call_each(void)
{
	int i;

	for (i = 0; i < lib.count; i++)
		CHECK_EQ(manylib_call(text, i), 42, "function %d", i);
}

/* A thread that calls one function after the other, round and round. */
struct caller {
	pthread_t	thread;
	uint64_t	rounds;
	bool		wrong;
};

static void *call_on(void *arg)
{
	struct caller *c = arg;
	int i;

	while (!stop) {
		for (i = 0; i < lib.count && !stop; i++)
			c->wrong |= manylib_call(text, i) != 42;
		__atomic_store_n(&c->rounds, c->rounds + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void start_callers(struct caller *c, int n)
{
	int i;

	stop = false;
	for (i = 0; i < n; i++) {
		c[i] = (struct caller){ 0 };
		CHECK_EQ(pthread_create(&c[i].thread, NULL, call_on, &c[i]), 0, "pthread_create");
	}
}

/* Waits until each has gone round once more: no handler that ran before runs any more. */
static void let_pass(const struct caller *c, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		uint64_t rounds = __atomic_load_n(&c[i].rounds, __ATOMIC_ACQUIRE);

		while (__atomic_load_n(&c[i].rounds, __ATOMIC_ACQUIRE) - rounds < 2)
			sched_yield();
	}
}

static void stop_callers(struct caller *c, int n)
{
	int i;

	stop = true;
	for (i = 0; i < n; i++) {
		pthread_join(c[i].thread, NULL);
		CHECK(!c[i].wrong, "a wrong result");
	}
}

static long free_kib(void)
{
	long kib = -1;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && kib < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemFree: %ld", &kib) != 1)
			kib = -1;
	if (f)
		fclose(f);
	return kib;
}

/* One link with a uprobe for each function: exact counts, then none at all. */
static int one_link(const void *arg)
{
	struct bpf_counter c;
	long free;
	int link;

	begin((long)arg);
	bpf_counter_load(&c, NULL);
	free = free_kib();
	link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
						      .cnt = lib.count }));
	diag("%ld bytes of memory a site", (free - free_kib()) * 1024 / lib.count);
	call_each();
	CHECK_EQ(c.values[BV_COUNT], lib.count, "hits");
	close(link);
	CHECK(manylib_is_clean(&lib, text), "text after the detach");
	call_each();
	CHECK_EQ(c.values[BV_COUNT], lib.count, "hits after the detach");
	return PASS;
}

/* Bytes from a function to a counter that lies behind it. */
#define SEMAPHORE	(MANY_STRIDE - sizeof(short))

_Static_assert(sizeof(ARCH_FN_SIMULATED) - 1 <= SEMAPHORE, "room for a counter");

/* Each site has a semaphore of its own, in a second mapping of the file. */
static int many_semaphores(const void *arg)
{
	unsigned long *semaphores;
	struct bpf_counter c;
	int link, round, i;
	char *data;

	begin((long)arg);
	semaphores = calloc(lib.count, sizeof(*semaphores));
	CHECK(semaphores, "memory");
	for (i = 0; i < lib.count; i++)
		semaphores[i] = lib.offsets[i] + SEMAPHORE;
	data = manylib_map_as(&lib, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	bpf_counter_load(&c, NULL);
	for (round = 1; round <= 2; round++) {
		link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path,
							      .offsets = lib.offsets,
							      .ref_ctr_offsets = semaphores,
							      .cnt = lib.count }));
		for (i = 0; i < lib.count; i++)
			CHECK_EQ(*(short *)(data + semaphores[i]), 1, "semaphore %d", i);
		call_each();
		CHECK_EQ(c.values[BV_COUNT], round * lib.count, "hits");
		close(link);
		for (i = 0; i < lib.count; i++)
			CHECK_EQ(*(short *)(data + semaphores[i]), 0, "semaphore %d, detached", i);
	}
	return PASS;
}

/* One of many sites cannot be probed: none is. */
static int one_refused(const void *arg)
{
	unsigned long bad = MANY / 2;
	struct bpf_counter c;
	int fd;

	begin(MANY);
	fd = MUST(open(lib.path, O_RDWR));
	CHECK(pwrite(fd, REFUSED_INSN, sizeof(REFUSED_INSN) - 1, lib.offsets[bad]) > 0, "write");
	close(fd);
	bpf_counter_load(&c, NULL);
	fd = multi_attach(&c, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
					       .cnt = MANY });
	CHECK(fd < 0, "the link was made");
	CHECK(manylib_is_clean(&lib, text), "text after the refusal");
	CHECK_EQ(manylib_call(text, 0), 42, "function 0");
	CHECK_EQ(c.values[BV_COUNT], 0, "hits");

	/* The others can be had without it. */
	lib.offsets[bad] = 0;
	fd = MUST(multi_attach(&c, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
						    .cnt = MANY }));
	CHECK_EQ(manylib_call(text, 1), 42, "function 1");
	CHECK_EQ(c.values[BV_COUNT], 1, "hits");
	/* Twice in the link. */
	CHECK_EQ(manylib_call(text, 0), 42, "function 0");
	CHECK_EQ(c.values[BV_COUNT], 3, "hits of the first");
	close(fd);
	CHECK(manylib_is_clean(&lib, text), "text after the detach");
	return PASS;
}

/* Mapped by many, twice by each, and only in part. */
static int many_mappings(const void *arg)
{
	int children = 20, ready[2], go[2][2], i, status;
	pid_t pids[20];
	struct bpf_counter c;
	char byte = 0;
	int link;

	begin(MANY);
	MUST(pipe(ready));
	MUST(pipe(go[0]));
	MUST(pipe(go[1]));
	for (i = 0; i < children; i++) {
		pids[i] = MUST(fork());
		if (!pids[i]) {
			char *other = manylib_map(&lib);

			MUST(munmap(other + 4096, 4096));
			MUST(write(ready[1], &byte, 1));
			MUST(read(go[0][0], &byte, 1));
			call_each();
			CHECK_EQ(manylib_call(other, 0), 42, "the other mapping");
			CHECK_EQ(manylib_call(other, MANY - 1), 42, "the end of it");
			MUST(write(ready[1], &byte, 1));
			MUST(read(go[1][0], &byte, 1));
			CHECK(manylib_is_clean(&lib, text), "text of a child");
			call_each();
			_exit(0);
		}
	}
	for (i = 0; i < children; i++)
		MUST(read(ready[0], &byte, 1));
	bpf_counter_load(&c, NULL);
	link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
						      .cnt = MANY }));
	for (i = 0; i < children; i++)
		MUST(write(go[0][1], &byte, 1));
	for (i = 0; i < children; i++)
		MUST(read(ready[0], &byte, 1));
	CHECK_EQ(c.values[BV_COUNT], children * (MANY + 2), "hits");
	close(link);
	for (i = 0; i < children; i++)
		MUST(write(go[1][1], &byte, 1));
	for (i = 0; i < children; i++) {
		waitpid(pids[i], &status, 0);
		CHECK_EQ(status, 0, "a child");
	}
	CHECK_EQ(c.values[BV_COUNT], children * (MANY + 2), "hits in the end");
	return PASS;
}

/*
 * Perf events by the thousand are closed while threads hit them: no hit comes
 * afterwards, and another consumer misses none.
 */
static int burst(const void *arg)
{
	int total = full_run() ? 10000 : 2000, per_round = 250, done, i;
	int *fds = calloc(per_round, sizeof(*fds));
	struct bpf_counter keep, c;
	struct caller callers[2];

	begin(per_round);
	bpf_counter_load(&keep, NULL);
	MUST(multi_attach(&keep, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
						  .cnt = lib.count }));
	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EVENT });
	start_callers(callers, 2);
	for (done = 0; done < total; done += per_round) {
		uint64_t hits;

		for (i = 0; i < per_round; i++) {
			fds[i] = MUST(perf_open(&(struct perf_probe){
				.loc = { lib.path, lib.offsets[i] }, .pid = -1, .cpu = 0,
				.flags = i & 1 ? PERF_RET : 0 }));
			perf_set_prog(fds[i], &c);
		}
		let_pass(callers, 2);
		for (i = 0; i < per_round; i++)
			close(fds[i]);
		let_pass(callers, 2);
		hits = c.values[BV_COUNT];
		CHECK(hits > 0, "no hits");
		let_pass(callers, 2);
		CHECK_EQ(c.values[BV_COUNT], hits, "hits after the detach");
	}
	stop_callers(callers, 2);

	keep.values[BV_COUNT] = 0;
	call_each();
	CHECK_EQ(keep.values[BV_COUNT], lib.count, "hits of who stays");
	return PASS;
}

static int waiting;

/* Nested so deep, waits for the word to return. */
static __attribute__((noinline)) long nested(long depth)
{
	long ret;

	if (depth) {
		ret = nested(depth - 1);
	} else {
		__atomic_add_fetch(&waiting, 1, __ATOMIC_RELEASE);
		while (!stop)
			usleep(1000);
		ret = 42;
	}
	asm volatile("" : "+r"(ret) :: "memory");
	return ret;
}

static void *nest(void *arg)
{
	return (void *)nested(49);
}

/* A tracer is killed that has a thousand probes and a thousand returns pending. */
static int killed_with_returns(const void *arg)
{
	int threads = 20, ready[2], i, status;
	pthread_t t[20];
	char byte = 0;
	pid_t tracer;

	begin(MANY);
	MUST(pipe(ready));
	tracer = MUST(fork());
	if (!tracer) {
		for (i = 0; i < MANY; i++)
			MUST(perf_open(&(struct perf_probe){
				.loc = { lib.path, lib.offsets[i] },
				.pid = getppid(), .cpu = -1, .flags = PERF_RET }));
		for (i = 0; i < 2; i++) {
			struct perf_probe p = { .loc = loc_of(nested), .pid = -1, .cpu = i,
						.flags = PERF_RET };

			MUST(perf_open(&p));
		}
		MUST(write(ready[1], &byte, 1));
		for (;;)
			pause();
	}
	MUST(read(ready[0], &byte, 1));
	call_each();
	stop = false;
	for (i = 0; i < threads; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, nest, NULL), 0, "pthread_create");
	while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < threads)
		usleep(1000);
	kill(tracer, SIGKILL);
	waitpid(tracer, &status, 0);
	stop = true;
	for (i = 0; i < threads; i++) {
		void *ret;

		pthread_join(t[i], &ret);
		CHECK_EQ((long)ret, 42, "a thread");
	}
	for (i = 0; i < 1000 && !manylib_is_clean(&lib, text); i++)
		usleep(10000);
	CHECK(manylib_is_clean(&lib, text), "text after the tracer");
	call_each();
	return PASS;
}

/* Forks children that map the file, too, and call its functions. */
static void fork_on(void)
{
	int status;

	for (;;) {
		pid_t pid = MUST(fork());

		if (!pid) {
			char *mine = manylib_map(&lib);
			int i;

			for (i = 0; i < lib.count; i += 7)
				if (manylib_call(mine, i) != 42 || manylib_call(text, i) != 42)
					_exit(1);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			_exit(1);
	}
}

static void *map_on(void *arg)
{
	bool *wrong = arg;
	int i;

	while (!stop) {
		char *mine = manylib_map(&lib);

		for (i = 0; i < lib.count; i += 11)
			*wrong |= manylib_call(mine, i) != 42;
		munmap(mine, manylib_bytes(&lib));
	}
	return NULL;
}

/* A thousand probes come and go together, while the file is mapped, and processes fork and end. */
static int against_mappings(const void *arg)
{
	double end = now() + (full_run() ? 60 : 4);
	int link, attaches = 0, status;
	struct bpf_counter c;
	bool wrong = false;
	pid_t forker;
	pthread_t t;

	begin(MANY);
	/* Without the link, which would live on in its children. */
	forker = MUST(fork());
	if (!forker)
		fork_on();
	stop = false;
	bpf_counter_load(&c, NULL);
	CHECK_EQ(pthread_create(&t, NULL, map_on, &wrong), 0, "pthread_create");
	while (now() < end || attaches < 3) {
		uint64_t hits;

		link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path,
							      .offsets = lib.offsets,
							      .cnt = MANY }));
		hits = c.values[BV_COUNT];
		call_each();
		CHECK(c.values[BV_COUNT] - hits >= MANY, "hits: %d",
		      (int)(c.values[BV_COUNT] - hits));
		close(link);
		CHECK(manylib_is_clean(&lib, text), "text after the detach");
		attaches++;
	}
	stop = true;
	pthread_join(t, NULL);
	CHECK(!wrong, "a wrong result");
	CHECK_EQ(waitpid(forker, &status, WNOHANG), 0, "status %#x of who forks", status);
	kill(forker, SIGKILL);
	waitpid(forker, &status, 0);
	return PASS;
}

/* Events are disabled, removed and made again under the same names, while threads hit them. */
static int events_again(const void *arg)
{
	double end = now() + (full_run() ? 60 : 4);
	int rounds = 0, count = 50, i;
	struct caller callers[2];

	begin(count);
	start_callers(callers, 2);
	while (now() < end || rounds < 3) {
		const char *trace;

		for (i = 0; i < count; i++)
			MUST(tracefs_append("uprobe_events", "%c:many/many%d %s:%#lx",
					    i & 1 ? 'r' : 'p', i, lib.path, lib.offsets[i]));
		MUST(tracefs_write("events/many/enable", "1"));
		let_pass(callers, 2);
		MUST(tracefs_write("events/many/many0/enable", "0"));
		MUST(tracefs_write("events/many/many0/enable", "1"));
		MUST(tracefs_write("events/many/enable", "0"));
		/* No record comes after that. */
		MUST(tracefs_write("trace", "\n"));
		trace = tracefs_read("trace");
		CHECK(!strstr(trace, " many"), "a record after the write: %s", trace);
		/* At once, while handlers may still run. */
		MUST(tracefs_write("uprobe_events", "\n"));
		rounds++;
	}
	stop_callers(callers, 2);
	CHECK(manylib_is_clean(&lib, text), "text after all");
	return PASS;
}

int main(int argc, char **argv)
{
	const char *profile = getenv("PROFILE");

	add_test(NULL, one_link, (void *)10000, "10000 sites in a link");
	/* Two minutes on a debug kernel. */
	if (full_run() || !profile || strcmp(profile, "debug"))
		add_test(NULL, one_link, (void *)100000, "100000 sites in a link");
	add_test(NULL, many_semaphores, (void *)4000L, "4000 sites with semaphores");
	add_test(NULL, one_refused, NULL, "one of many is refused");
	add_test(NULL, many_mappings, NULL, "1000 sites in 20 processes");
	add_test(NULL, burst, NULL, "perf events closed in bursts");
	add_test(NULL, killed_with_returns, NULL, "tracer killed with 1000 probes and returns");
	add_test(NULL, against_mappings, NULL, "1000 sites against mmap, fork and exit");
	add_test(NULL, events_again, NULL, "events made again and again");
	return run_tests(argc, argv);
}
