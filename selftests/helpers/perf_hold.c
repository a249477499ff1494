// SPDX-License-Identifier: GPL-2.0
/*
 * perf_hold COMMAND [ARGUMENT...]
 *
 * Executes COMMAND with a perf event open that nobody reads, once perf events are
 * known to count.
 *
 * The first event of a task switches hooks in the scheduler on, which changes the
 * kernel's text, and the last one switches them off. On arm64, about once in sixty
 * boots, an event counted only until its task was switched out, while BPF programs
 * on the same uprobes saw all hits: as if the hook that resumes events were off.
 * QEMU 7.2 can overlook a store to an instruction that another virtual CPU is
 * translating, which would explain it. So the hooks are switched on once, seen to
 * work, and stay on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS	32
#define TRIES	10

static int open_event(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

/* Whether @fd counts the faults of a task that is switched out before each. */
static bool counts(int fd)
{
	size_t page = sysconf(_SC_PAGESIZE), len = ROUNDS * page;
	volatile char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t before = 0, after = 0;
	int i;

	if (mem == MAP_FAILED || read(fd, &before, sizeof(before)) != sizeof(before))
		return false;
	/* Fails where there are none. */
	madvise((void *)mem, len, MADV_NOHUGEPAGE);
	for (i = 0; i < ROUNDS; i++) {
		usleep(200);
		mem[i * page] = 1;
	}
	munmap((void *)mem, len);
	return read(fd, &after, sizeof(after)) == sizeof(after) && after - before >= ROUNDS;
}

static bool counts_everywhere(int fd)
{
	cpu_set_t all, one;
	bool ok = !sched_getaffinity(0, sizeof(all), &all);
	int cpu;

	for (cpu = 0; ok && cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		ok = !sched_setaffinity(0, sizeof(one), &one) && counts(fd);
	}
	return !sched_setaffinity(0, sizeof(all), &all) && ok;
}

int main(int argc, char **argv)
{
	int i, fd;

	if (argc < 2) {
		fprintf(stderr, "usage: perf_hold COMMAND [ARGUMENT...]\n");
		return 2;
	}
	for (i = 0; i < TRIES; i++) {
		fd = open_event();
		if (fd < 0) {
			fprintf(stderr, "perf_hold: perf_event_open: %s\n", strerror(errno));
			return 1;
		}
		if (counts_everywhere(fd)) {
			/* Out of the way of the descriptors that scripts use. */
			if (fcntl(fd, F_DUPFD, 200) < 0)
				return 1;
			close(fd);
			execvp(argv[1], argv + 1);
			fprintf(stderr, "perf_hold: %s: %s\n", argv[1], strerror(errno));
			return 127;
		}
		close(fd);
		fprintf(stderr, "perf_hold: perf events stop counting when their task is switched out; trying again\n");
		/* The hooks are switched off a second after the last event. */
		sleep(2);
	}
	fprintf(stderr, "perf_hold: giving up\n");
	return 1;
}
