// SPDX-License-Identifier: GPL-2.0
/*
 * How long do attaching and detaching many probes take?
 *
 *   bench-attach --all		{"work":"perf uprobe: close","count":256,"ms":12.3} for each
 *   bench-attach WORK		those whose name begins with WORK
 */
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bench.h"
#include "manylib.h"

#define EVENTS		256
#define MANY		10000
#define SHARED		1000
#define PROCESSES	100
#define EXECS		1000
/* Of works that are over in no time, the fastest of so many: the others were disturbed. */
#define ROUNDS		5

static struct manylib lib;
static double ticks_per_ms;
static uint64_t started;

/* The kernel's clock may have no finer steps than its ticks. */
static void calibrate(void)
{
	double from = now_ns(), now;
	uint64_t ticks = arch_clock();

	do
		now = now_ns();
	while (now < from + 3e8);
	ticks_per_ms = (arch_clock() - ticks) / (now - from) * 1e6;
}

static void start(void)
{
	started = arch_clock();
}

static double elapsed_ms(void)
{
	return (arch_clock() - started) / ticks_per_ms;
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static void report(const char *work, const char *what, int count, double ms)
{
	printf("{\"work\":\"%s: %s\",\"count\":%d,\"ms\":%.2f}\n", work, what, count, ms);
	fflush(stdout);
}

static void stop(const char *work, const char *what, int count)
{
	report(work, what, count, elapsed_ms());
}

static void close_all(const char *work, int *fds)
{
	int i;

	start();
	for (i = 0; i < EVENTS; i++)
		close(fds[i]);
	stop(work, "close", EVENTS);
}

static void perf_uprobes(const char *work, const void *with_prog)
{
	struct perf_probe p = { .pid = -1, .cpu = 0 };
	char *mapped = manylib_map(&lib);
	struct bpf_counter c;
	int fds[EVENTS], i;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EMPTY | BP_EVENT });
	start();
	for (i = 0; i < EVENTS; i++) {
		p.loc = (struct loc){ lib.path, lib.offsets[i] };
		fds[i] = MUST(perf_open(&p));
		if (with_prog)
			perf_set_prog(fds[i], &c);
	}
	stop(work, "open", EVENTS);
	close_all(work, fds);
	munmap(mapped, manylib_bytes(&lib));
	bpf_counter_free(&c);
}

static void uprobe_events(const char *work, const void *unused)
{
	char *mapped = manylib_map(&lib);
	int i;

	for (i = 0; i < EVENTS; i++)
		MUST(tracefs_append("uprobe_events", "p:bench/u%d %s:%#lx", i, lib.path, lib.offsets[i]));
	start();
	MUST(tracefs_write("events/bench/enable", "1"));
	stop(work, "enable", EVENTS);
	start();
	MUST(tracefs_write("events/bench/enable", "0"));
	stop(work, "disable", EVENTS);
	start();
	MUST(tracefs_write("uprobe_events", "\n"));
	stop(work, "remove", EVENTS);
	munmap(mapped, manylib_bytes(&lib));
}

/* Calls @use with text symbols of the kernel until it was content with EVENTS of them. */
static void for_symbols(bool (*use)(const char *symbol, int i))
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[512], type, symbol[400];
	int i = 0;

	CHECK(f, "kallsyms");
	while (i < EVENTS && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*x %c %399s", &type, symbol) != 2 || type != 't' ||
		    strchr(symbol, '.') || strchr(symbol, '$'))
			continue;
		i += use(symbol, i);
	}
	fclose(f);
	CHECK_EQ(i, EVENTS, "probes of the kernel");
}

static bool kprobe_event(const char *symbol, int i)
{
	return !tracefs_append("kprobe_events", "p:bench/k%d %s+%d", i, symbol, ARCH_ENTRY_BYTES);
}

static void kprobe_events(const char *work, const void *unused)
{
	for_symbols(kprobe_event);
	start();
	MUST(tracefs_write("events/bench/enable", "1"));
	stop(work, "enable", EVENTS);
	/* For the optimiser to take them all. */
	sleep(1);
	start();
	MUST(tracefs_write("events/bench/enable", "0"));
	stop(work, "disable", EVENTS);
	start();
	MUST(tracefs_write("kprobe_events", "\n"));
	stop(work, "remove", EVENTS);
}

static int kprobe_fds[EVENTS];
static bool kretprobes;

static int pmu_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/kprobe/type", "r");
	int type;

	CHECK(f && fscanf(f, "%d", &type) == 1, "type of kprobe events");
	fclose(f);
	return type;
}

static bool perf_kprobe(const char *symbol, int i)
{
	struct perf_event_attr attr = {
		.type = pmu_type(),
		.size = sizeof(attr),
		.config = kretprobes,
		.kprobe_func = (unsigned long)symbol,
		.probe_offset = kretprobes ? 0 : ARCH_ENTRY_BYTES,
	};

	kprobe_fds[i] = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	return kprobe_fds[i] >= 0;
}

static void perf_kprobes(const char *work, const void *ret)
{
	kretprobes = ret;
	for_symbols(perf_kprobe);
	sleep(1);
	close_all(work, kprobe_fds);
}

static void multi(const char *work, int count)
{
	double attach = 1e9, detach = 1e9;
	struct bpf_counter c;
	int link, i;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EMPTY });
	for (i = 0; i < ROUNDS; i++) {
		start();
		link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path,
							      .offsets = lib.offsets,
							      .cnt = count }));
		attach = least(attach, elapsed_ms());
		start();
		close(link);
		detach = least(detach, elapsed_ms());
	}
	report(work, "attach", count, attach);
	report(work, "detach", count, detach);
	bpf_counter_free(&c);
}

static void multi_many(const char *work, const void *unused)
{
	char *mapped = manylib_map(&lib);

	multi(work, MANY);
	munmap(mapped, manylib_bytes(&lib));
}

static void multi_shared(const char *work, const void *unused)
{
	pid_t pids[PROCESSES];
	int ready[2], i;
	char byte = 0;

	MUST(pipe(ready));
	for (i = 0; i < PROCESSES; i++) {
		pids[i] = MUST(fork());
		if (!pids[i]) {
			manylib_map(&lib);
			MUST(write(ready[1], &byte, 1));
			for (;;)
				pause();
		}
	}
	for (i = 0; i < PROCESSES; i++)
		MUST(read(ready[0], &byte, 1));
	multi(work, SHARED);
	for (i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

/* What execs() starts: maps the library and ends. */
static int mapper(const char *path)
{
	ktap_standalone();
	lib = (struct manylib){ .path = path, .count = MANY };
	manylib_map(&lib);
	return 0;
}

static void execs(const char *work, const void *unused)
{
	struct bpf_counter c;
	int i, link, status;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EMPTY });
	link = MUST(multi_attach(&c, &(struct multi){ .path = lib.path,
						      .offsets = lib.offsets, .cnt = SHARED }));
	start();
	for (i = 0; i < EXECS; i++) {
		char *args[] = { "bench-attach", "--map", (char *)lib.path, NULL };
		pid_t pid;

		CHECK_EQ(posix_spawn(&pid, self_path(), NULL, NULL, args, environ), 0, "spawn");
		waitpid(pid, &status, 0);
		CHECK_EQ(status, 0, "status of the program");
	}
	stop(work, "exec and exit", EXECS);
	close(link);
	bpf_counter_free(&c);
}

static const struct {
	const char	*name;
	void		(*run)(const char *work, const void *arg);
	const void	*arg;
} works[] = {
	{ "perf uprobe", perf_uprobes, NULL },
	{ "perf uprobe with BPF", perf_uprobes, "" },
	{ "uprobe_events", uprobe_events, NULL },
	{ "kprobe_events", kprobe_events, NULL },
	{ "perf kprobe", perf_kprobes, NULL },
	{ "perf kretprobe", perf_kprobes, "" },
	{ "uprobe_multi", multi_many, NULL },
	{ "uprobe_multi in 100 processes", multi_shared, NULL },
	{ "1000 probes mapped", execs, NULL },
};

int main(int argc, char **argv)
{
	unsigned int i;
	bool all;

	if (argc == 3 && !strcmp(argv[1], "--map"))
		return mapper(argv[2]);
	ktap_standalone();
	if (argc != 2) {
		fprintf(stderr, "usage: %s --all | WORK\n", argv[0]);
		return 2;
	}
	all = !strcmp(argv[1], "--all");
	calibrate();
	manylib_make(&lib, "bench-lib", MANY);
	for (i = 0; i < sizeof(works) / sizeof(works[0]); i++)
		if (all || !strncmp(works[i].name, argv[1], strlen(argv[1])))
			works[i].run(works[i].name, works[i].arg);
	return 0;
}
