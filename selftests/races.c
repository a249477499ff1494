// SPDX-License-Identifier: GPL-2.0
/*
 * Races: probed code on several threads while probes, mappings and processes
 * come and go. Nothing is lost, nobody gets a stray signal, all threads end.
 *
 * A few seconds each under --quick, a minute under --full.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"
#include "worker.h"

#define THREADS	4

static int seconds(void)
{
	const char *s = getenv("UPT_RACE_SECONDS");

	return s ? atoi(s) : full_run() ? 60 : 3;
}

static volatile bool stop;
static double deadline;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void start_clock(void)
{
	deadline = now() + seconds();
}

static bool running(void)
{
	return now() < deadline;
}

/* A thread that runs one site over and over and checks each result. */
struct hitter {
	pthread_t		thread;
	const struct site	*site;
	uint64_t		runs;
	bool			wrong;
};

/* Sites without memory of their own: threads share site_data. */
static const char *const hot_sites[] = {
	"nop", ARCH_SITE_PUSH, ARCH_SITE_CALL, ARCH_SITE_BRANCH, "ret", "add", ARCH_SITE_FRAME,
	ARCH_SITE_LOAD,
};
#define HOT 8

static void *hit(void *arg)
{
	struct hitter *h = arg;
	struct site_state want, st;

	site_random(&want, 7);
	st = want;
	site_call(h->site->fn, &want.regs);	/* before anybody attaches */
	while (!stop) {
		struct cpu_regs r = st.regs;

		site_call(h->site->fn, &r);
		__atomic_store_n(&h->runs, h->runs + 1, __ATOMIC_RELEASE);
		if (memcmp(r.gpr, want.regs.gpr, sizeof(r.gpr)) || r.flags != want.regs.flags)
			h->wrong = true;
	}
	return NULL;
}

static void start_hitters(struct hitter *h, int n, const char *only)
{
	int i;

	for (i = 0; i < n; i++) {
		h[i].site = site_by_name(only ? only : hot_sites[i % HOT]);
		h[i].runs = 0;
		h[i].wrong = false;
		CHECK_EQ(pthread_create(&h[i].thread, NULL, hit, &h[i]), 0, "pthread_create");
	}
	for (i = 0; i < n; i++)
		while (!__atomic_load_n(&h[i].runs, __ATOMIC_ACQUIRE))
			usleep(100);
}

static uint64_t stop_hitters(struct hitter *h, int n)
{
	uint64_t runs = 0;
	int i;

	stop = true;
	for (i = 0; i < n; i++) {
		pthread_join(h[i].thread, NULL);
		CHECK(!h[i].wrong, "%s: wrong registers", h[i].site->name);
		runs += h[i].runs;
	}
	return runs;
}

/* Permanently attached: every single run is counted while others come and go. */
static int attach_storm(const void *arg)
{
	const char *only = arg;
	struct hitter h[HOT];
	struct bpf_counter keep[HOT], c;
	uint64_t seed = 5, attaches = 0;
	int i, n = only ? THREADS : HOT, links[16];

	start_hitters(h, n, only);
	/* Stop them at a known point: attach while nobody runs. */
	stop_hitters(h, n);
	stop = false;
	for (i = 0; i < (only ? 1 : n); i++) {
		bpf_counter_load(&keep[i], NULL);
		multi_attach_one(&keep[i], loc_of(h[i].site->pc), 0);
	}
	bpf_counter_load(&c, NULL);
	memset(links, -1, sizeof(links));
	start_hitters(h, n, only);
	start_clock();
	while (running() || attaches < 6) {
		int k = random64(&seed) % 16;

		if (links[k] >= 0) {
			close(links[k]);
			links[k] = -1;
		} else {
			const struct site *s = h[random64(&seed) % n].site;
			bool ret = s->pc == s->fn && random64(&seed) % 2;

			links[k] = multi_attach_one(&c, loc_of(s->pc), ret ? MULTI_RETURN : 0);
			attaches++;
		}
	}
	stop_hitters(h, n);
	for (i = 0; i < 16; i++)
		if (links[i] >= 0)
			close(links[i]);
	CHECK(c.values[BV_COUNT] > 0, "no hit of a passing probe");
	if (only) {
		uint64_t runs = 0;

		for (i = 0; i < n; i++)
			runs += h[i].runs + 1;		/* one before the loop */
		CHECK_EQ(keep[0].values[BV_COUNT], runs, "%s: hits", only);
	} else {
		for (i = 0; i < n; i++)
			CHECK_EQ(keep[i].values[BV_COUNT], h[i].runs + 1, "%s: hits", h[i].site->name);
	}
	return PASS;
}

/* Waits until each of @n threads has gone round: what it was in the middle of is over. */
static void let_pass(const struct hitter *h, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		uint64_t runs = __atomic_load_n(&h[i].runs, __ATOMIC_ACQUIRE);

		while (__atomic_load_n(&h[i].runs, __ATOMIC_ACQUIRE) - runs < 2)
			sched_yield();
	}
}

/* The only probe comes and goes; afterwards the text is clean. */
static int last_probe_storm(const void *arg)
{
	const char *name = arg;
	struct hitter h[THREADS];
	uint64_t seed = 9, attaches = 0, hits = 0;
	struct bpf_counter c;

	bpf_counter_load(&c, NULL);
	start_hitters(h, THREADS, name);
	start_clock();
	while (running() || attaches < 6) {
		const struct site *s = h[0].site;
		bool ret = s->pc == s->fn && random64(&seed) % 2;
		int link = multi_attach_one(&c, loc_of(s->pc), ret ? MULTI_RETURN : 0);

		usleep(random64(&seed) % 2000);
		close(link);
		attaches++;
		if (random64(&seed) % 4 == 0) {
			/* A handler that was running may have counted yet. */
			let_pass(h, THREADS);
			hits = c.values[BV_COUNT];
			usleep(2000);
			CHECK_EQ(c.values[BV_COUNT], hits, "%s: hits after the detach", name);
		}
	}
	stop_hitters(h, THREADS);
	CHECK(c.values[BV_COUNT] > 0, "no hits");
	if (!site_is_optimised(h[0].site))
		CHECK(text_equals_file(sites_start, sites_end - sites_start), "text after all");
	return PASS;
}

#ifdef ARCH_CHANGES_IN_PLACE
/* How often text was changed, in place and apart (while the page is not mapped). */
static void text_changes(long *in_place, long *apart)
{
	FILE *f = fopen("/sys/kernel/debug/uprobes/text_changes", "r");

	CHECK(f && fscanf(f, "in-place %ld apart %ld", in_place, apart) == 2, "no counters");
	fclose(f);
}
#endif

/*
 * Breakpoint in, breakpoint out, without a pause and without a look at hits: the
 * processors that fetch the instruction while it changes see the one or the other.
 */
static int patch_storm(const void *arg)
{
	const char *name = arg;
	struct hitter h[THREADS];
	struct bpf_counter c;
	uint64_t rounds = 0;
#ifdef ARCH_CHANGES_IN_PLACE
	bool counted = !strcmp(impl_of_kernel(), "rust");
	long before[2], after[2];

	if (counted)
		text_changes(&before[0], &before[1]);
#endif
	bpf_counter_load(&c, NULL);
	start_hitters(h, THREADS, name);
	start_clock();
	while (running() || rounds < 20) {
		close(multi_attach_one(&c, loc_of(h[0].site->pc), 0));
		rounds++;
	}
	stop_hitters(h, THREADS);
#ifdef ARCH_CHANGES_IN_PLACE
	if (counted) {
		bool apart = !ARCH_CHANGES_IN_PLACE(name);

		text_changes(&after[0], &after[1]);
		CHECK(after[apart] - before[apart] >= (long)rounds, "%s: %ld changes of its kind",
		      name, after[apart] - before[apart]);
		CHECK_EQ(after[!apart], before[!apart], "%s: changes of the other kind", name);
	}
#endif
	CHECK(c.values[BV_COUNT] > 0, "no hits in %lld rounds", (long long)rounds);
	if (!site_is_optimised(h[0].site))
		CHECK(text_equals_file(sites_start, sites_end - sites_start), "text after all");
	return PASS;
}

/* Mappings of a probed file come and go in all threads, each call is a hit. */
struct mapper {
	pthread_t	thread;
	const char	*path;
	uint64_t	calls;
	bool		wrong;
};

#define LIB_FN	0x100

static const char *small_lib(void)
{
	const char *path = tmp_path("lib");
	int fd = MUST(open(path, O_RDWR | O_CREAT, 0755)), i;

	for (i = 0; i < 4; i++) {
		CHECK(pwrite(fd, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED),
			     i * 4096 + LIB_FN) > 0, "write");
		CHECK(pwrite(fd, ARCH_FN_STEPPED, sizeof(ARCH_FN_STEPPED),
			     i * 4096 + 2 * LIB_FN) > 0, "write");
	}
	MUST(ftruncate(fd, 4 * 4096));
	close(fd);
	return path;
}

static void *map_and_call(void *arg)
{
	struct mapper *m = arg;
	uint64_t seed = (long)m;
	int fd = open(m->path, O_RDONLY);

	while (!stop) {
		int page = random64(&seed) % 4, n = random64(&seed) % 8, i;
		char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

		if (p == MAP_FAILED) {
			m->wrong = true;
			break;
		}
		for (i = 0; i < n; i++) {
			char *fn = p + page * 4096 + LIB_FN * (1 + i % 2);

			m->wrong |= ((long (*)(long))(unsigned long)fn)(i) != i + 1;
			m->calls++;
		}
		if (random64(&seed) % 4 == 0)
			munmap(p + 4096, 4096);
		munmap(p, 4 * 4096);
	}
	close(fd);
	return NULL;
}

static int mmap_storm(const void *arg)
{
	unsigned long offs[8];
	struct multi all = { .offsets = offs, .cnt = 8 };
	struct mapper m[THREADS];
	struct bpf_counter keep, c;
	uint64_t calls = 0, seed = 3;
	const char *path = small_lib();
	int i;

	for (i = 0; i < 8; i++)
		offs[i] = i / 2 * 4096 + LIB_FN * (1 + i % 2);
	all.path = path;
	bpf_counter_load(&keep, NULL);
	bpf_counter_load(&c, NULL);
	MUST(multi_attach(&keep, &all));
	for (i = 0; i < THREADS; i++) {
		m[i] = (struct mapper){ .path = path };
		CHECK_EQ(pthread_create(&m[i].thread, NULL, map_and_call, &m[i]), 0, "pthread_create");
	}
	start_clock();
	while (running()) {
		/* Another one attaches and detaches meanwhile. */
		int link = multi_attach_one(&c, (struct loc){ path, offs[random64(&seed) % 8] }, 0);

		usleep(random64(&seed) % 3000);
		close(link);
	}
	stop = true;
	for (i = 0; i < THREADS; i++) {
		pthread_join(m[i].thread, NULL);
		CHECK(!m[i].wrong, "thread %d: a wrong result", i);
		calls += m[i].calls;
	}
	CHECK(calls > 100, "only %lld calls", (long long)calls);
	CHECK_EQ(keep.values[BV_COUNT], calls, "hits");
	return PASS;
}

/* fork, vfork and exec of processes that hit probes, with attaches meanwhile. */
__attribute__((noinline, noclone)) long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

__attribute__((noinline, noclone)) long fork_in_here(long x, pid_t *pid)
{
	*pid = fork();
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

#define CHILD_CALLS 7

static void child_calls(void)
{
	int i;

	for (i = 0; i < CHILD_CALLS; i++)
		if (target(i) != i + 1)
			_exit(1);
}

struct forker {
	pthread_t	thread;
	uint64_t	calls, forks, returns;
	int		bad_status;
};

static void *fork_and_call(void *arg)
{
	struct forker *f = arg;
	char *const argv[] = { (char *)self_path(), "--calls", NULL };

	while (!stop) {
		int status;
		pid_t pid;

		switch (f->forks % 3) {
		case 0:
			if (fork_in_here(1, &pid) != 2)
				f->bad_status = -1;
			if (!pid) {
				child_calls();
				_exit(42);
			}
			f->returns += 2;
			f->calls += CHILD_CALLS;
			break;
		case 1:
			pid = vfork();
			if (!pid) {
				target(1);
				_exit(42);
			}
			f->calls++;
			break;
		default:
			pid = vfork();
			if (!pid) {
				execv(argv[0], argv);
				_exit(1);
			}
			f->calls += CHILD_CALLS;
			break;
		}
		if (pid < 0)
			continue;
		f->forks++;
		child_calls();
		f->calls += CHILD_CALLS;
		if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
			f->bad_status = status;
	}
	return NULL;
}

static int fork_storm(const void *arg)
{
	struct bpf_counter entry, ret, pending, c;
	struct forker f[3];
	uint64_t calls = 0, returns = 0, seed = 2, forks = 0;
	int i;

	bpf_counter_load(&entry, NULL);
	bpf_counter_load(&ret, NULL);
	bpf_counter_load(&pending, NULL);
	bpf_counter_load(&c, NULL);
	multi_attach_one(&entry, loc_of(target), 0);
	multi_attach_one(&ret, loc_of(target), MULTI_RETURN);
	multi_attach_one(&pending, loc_of(fork_in_here), MULTI_RETURN);
	for (i = 0; i < 3; i++) {
		f[i] = (struct forker){ .calls = 0 };
		CHECK_EQ(pthread_create(&f[i].thread, NULL, fork_and_call, &f[i]), 0, "pthread_create");
	}
	start_clock();
	while (running()) {
		int link = multi_attach_one(&c, loc_of(target), random64(&seed) % 2 ? MULTI_RETURN : 0);

		usleep(random64(&seed) % 5000);
		close(link);
	}
	stop = true;
	for (i = 0; i < 3; i++) {
		pthread_join(f[i].thread, NULL);
		CHECK_EQ(f[i].bad_status, 0, "a child of thread %d", i);
		calls += f[i].calls;
		returns += f[i].returns;
		forks += f[i].forks;
	}
	CHECK(forks > 10, "only %lld forks", (long long)forks);
	CHECK_EQ(entry.values[BV_COUNT], calls, "calls");
	CHECK_EQ(ret.values[BV_COUNT], calls, "returns");
	CHECK_EQ(pending.values[BV_COUNT], returns, "returns pending over a fork");
	return PASS;
}

/* All of the above at once; only survival and clean texts count. */
static int everything(const void *arg)
{
	struct hitter h[2];
	struct mapper m;
	struct forker f = { .calls = 0 };
	struct bpf_counter c;
	uint64_t seed = 77;
	int links[24], i;
	const char *path = small_lib();

	bpf_counter_load(&c, NULL);
	memset(links, -1, sizeof(links));
	start_hitters(h, 2, NULL);
	m = (struct mapper){ .path = path };
	CHECK_EQ(pthread_create(&m.thread, NULL, map_and_call, &m), 0, "pthread_create");
	CHECK_EQ(pthread_create(&f.thread, NULL, fork_and_call, &f), 0, "pthread_create");
	start_clock();
	while (running()) {
		int k = random64(&seed) % 24;
		struct loc loc;
		bool ret = false;

		if (links[k] >= 0) {
			close(links[k]);
			links[k] = -1;
			continue;
		}
		switch (random64(&seed) % 3) {
		case 0:
			loc = loc_of(h[random64(&seed) % 2].site->pc);
			ret = true;
			break;
		case 1:
			loc = (struct loc){ path, random64(&seed) % 4 * 4096 + LIB_FN };
			break;
		default:
			loc = loc_of(random64(&seed) % 2 ? (void *)target : (void *)fork_in_here);
			ret = random64(&seed) % 2;
			break;
		}
		links[k] = multi_attach_one(&c, loc, ret ? MULTI_RETURN : 0);
	}
	stop_hitters(h, 2);
	pthread_join(m.thread, NULL);
	pthread_join(f.thread, NULL);
	CHECK(!m.wrong, "a wrong result in a mapped file");
	CHECK_EQ(f.bad_status, 0, "a child");
	CHECK(c.values[BV_COUNT] > 10, "hits: %lld", (long long)c.values[BV_COUNT]);
	for (i = 0; i < 24; i++)
		if (links[i] >= 0)
			close(links[i]);
	CHECK(text_equals_file(sites_start, sites_end - sites_start), "text of the sites");
	CHECK(text_equals_file(target, 64), "text of target()");
	return PASS;
}

/* More threads stepping than there are slots in the page for stepping. */
static int slots_exhausted(const void *arg)
{
	static struct hitter h[150];
	struct bpf_counter c;
	uint64_t runs = 0;
	int i, n = 150;

	bpf_counter_load(&c, NULL);
	multi_attach_one(&c, loc_of(site_by_name("add")->pc), 0);
	for (i = 0; i < n; i++) {
		h[i].site = site_by_name("add");
		CHECK_EQ(pthread_create(&h[i].thread, NULL, hit, &h[i]), 0, "pthread_create");
	}
	start_clock();
	while (running())
		usleep(10000);
	stop_hitters(h, n);
	for (i = 0; i < n; i++)
		runs += h[i].runs + 1;
	CHECK_EQ(c.values[BV_COUNT], runs, "hits of %d threads", n);
	return PASS;
}

/* C leaves traces of an optimised site ... */
static const char *fault_of(const char *name)
{
	return site_is_optimised(site_by_name(name)) ? "F.9" : NULL;
}

/* ... and a stray trap where a process loses its last probe, on some architectures. */
static const char *fault_of_last(const char *name)
{
	const char *fault = ARCH_LAST_PROBE_FAULT;

	return fault ? fault : fault_of(name);
}

/*
 * A tracer is killed at any moment, also while it detaches: the breakpoints in the
 * programs that it traced go all the same.
 */
#define TRACED	12
#define KILLS	30

static const char *traced_path;
static char *traced_text;

/* Calls each function once for 1; for 0, tells whether the text equals the file. */
static long call_or_compare(long call)
{
	int fd = MUST(open(traced_path, O_RDONLY)), i;
	char *file = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, fd, 0);
	bool same;

	CHECK(file != MAP_FAILED, "mmap");
	close(fd);
	for (i = 0; call && i < 8; i++) {
		char *fn = traced_text + i / 2 * 4096 + LIB_FN * (1 + i % 2);

		CHECK_EQ(((long (*)(long))(unsigned long)fn)(i), i + 1, "function %d", i);
	}
	same = !memcmp(file, traced_text, 4 * 4096);
	munmap(file, 4 * 4096);
	return same;
}

static bool all_clean(struct worker *w)
{
	int i;

	for (i = 0; i < TRACED; i++)
		if (!worker_do(&w[i], 0))
			return false;
	return true;
}

static int tracer_killed(const void *arg)
{
	unsigned long offs[8];
	struct multi all = { .offsets = offs, .cnt = 8 };
	struct worker w[TRACED];
	struct bpf_counter c;
	uint64_t seed = 11, hits;
	int i, n, link;

	traced_path = all.path = small_lib();
	for (i = 0; i < 8; i++)
		offs[i] = i / 2 * 4096 + LIB_FN * (1 + i % 2);
	traced_text = mmap(NULL, 4 * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE,
			   MUST(open(traced_path, O_RDONLY)), 0);
	CHECK(traced_text != MAP_FAILED, "mmap");
	for (i = 0; i < TRACED; i++)
		worker_start(&w[i], call_or_compare);
	bpf_counter_load(&c, NULL);

	for (n = 0; n < KILLS; n++) {
		/* In memory that both see: the tracer detaches, and how often it has. */
		volatile uint64_t *detaching = c.values + 40, *rounds = c.values + 41;
		pid_t pid;
		double end;
		int status;

		*detaching = *rounds = 0;
		pid = MUST(fork());
		if (!pid) {
			for (;; ++*rounds) {
				link = MUST(multi_attach(&c, &all));
				*detaching = 1;
				close(link);
				*detaching = 0;
			}
		}
		while (*rounds < 2)
			usleep(100);
		if (n % 2) {
			/* Any moment; most of the time it waits for grace periods. */
			usleep(random64(&seed) % 10000);
		} else {
			while (!*detaching)
				;
			end = now() + random64(&seed) % 1000 * 1e-6;
			while (now() < end)
				;
		}
		MUST(kill(pid, SIGKILL));
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %#x", status);

		end = now() + 3;
		while (!all_clean(w) && now() < end)
			usleep(10000);
		CHECK(all_clean(w), "breakpoints 3 s after the end of tracer %d", n);
		hits = c.values[BV_COUNT];
		link = MUST(multi_attach(&c, &all));
		for (i = 0; i < TRACED; i++)
			CHECK(!worker_do(&w[i], 1), "no breakpoint in process %d, round %d", i, n);
		CHECK_EQ(c.values[BV_COUNT] - hits, TRACED * 8, "hits after tracer %d", n);
		close(link);
		CHECK(all_clean(w), "breakpoints after a detach, round %d", n);
		for (i = 0; i < TRACED; i++)
			worker_do(&w[i], 1);
		CHECK_EQ(c.values[BV_COUNT] - hits, TRACED * 8, "hits after the detach, round %d", n);
	}
	for (i = 0; i < TRACED; i++)
		worker_stop(&w[i]);
	return PASS;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		"nop", ARCH_SITE_PUSH, "ret", "add",
#ifdef ARCH_SITE_OPTIMISED
		ARCH_SITE_OPTIMISED,
#endif
	};
	int n = sizeof(names) / sizeof(names[0]), i;

	if (argc == 2 && !strcmp(argv[1], "--calls")) {
		child_calls();
		return 42;
	}
	set_timeout(seconds() * 3 + 60);
	add_test(NULL, attach_storm, NULL, "attach storm on eight sites");
	for (i = 0; i < n; i++)
		add_test(fault_of(names[i]), attach_storm, names[i],
			 "attach storm, four threads, %s", names[i]);
	for (i = 0; i < n; i++)
		add_test(fault_of_last(names[i]), last_probe_storm, names[i],
			 "only probe comes and goes, %s", names[i]);
	for (i = 0; i < n; i++)
		add_test(fault_of_last(names[i]), patch_storm, names[i],
			 "patched in and out at full speed, %s", names[i]);
	add_test(NULL, mmap_storm, NULL, "mmap storm");
	add_test(NULL, fork_storm, NULL, "fork storm");
	add_test(NULL, slots_exhausted, NULL, "150 threads stepping");
	add_test(NULL, everything, NULL, "everything at once");
	add_test("F.9", tracer_killed, NULL, "tracer killed while it attaches and detaches");
	return run_tests(argc, argv);
}
