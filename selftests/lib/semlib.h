/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file that looks like a library with USDT probes: text with a few functions,
 * data with 16-bit semaphores that count whether somebody traces them.
 */
#ifndef SEMLIB_H
#define SEMLIB_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch.h"
#include "ktap.h"
#include "probe.h"

#define PAGE		4096UL
#define FN(i)		(0x100UL * ((i) + 1))		/* function i, in page 0 */
#define SEM_PAGE	2UL
#define SEM(i)		(SEM_PAGE * PAGE + 0x40 + 2 * (i))	/* semaphore i */

static inline const char *make_semlib(void)
{
	const char *path = tmp_path("semlib");
	int fd = MUST(open(path, O_RDWR | O_CREAT, 0755)), i;

	for (i = 0; i < 4; i++)
		CHECK(pwrite(fd, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED), FN(i)) > 0, "write");
	MUST(ftruncate(fd, 4 * PAGE));
	close(fd);
	return path;
}

static inline char *map_part(const char *path, unsigned long pgoff, int prot)
{
	int fd = MUST(open(path, O_RDONLY | O_CLOEXEC));
	char *p = mmap(NULL, PAGE, prot, MAP_PRIVATE, fd, pgoff * PAGE);

	CHECK(p != MAP_FAILED, "mmap: errno %d", errno);
	close(fd);
	return p;
}

static inline char *map_text(const char *path)
{
	return map_part(path, 0, PROT_READ | PROT_EXEC);
}

/* The first semaphore. */
static inline volatile short *map_sems(const char *path)
{
	return (short *)(map_part(path, SEM_PAGE, PROT_READ | PROT_WRITE) + SEM(0) % PAGE);
}

static inline void call_fn(const char *text, int i, int n)
{
	while (n--)
		CHECK_EQ(((long (*)(long))(unsigned long)(text + FN(i)))(41), 42, "function %d", i);
}

static inline int sem_attach_pid(const char *path, int fn, int sem, int pid, int cpu)
{
	struct perf_probe p = { .loc = { path, FN(fn) }, .ref_ctr_offset = SEM(sem),
				.pid = pid, .cpu = cpu };

	return perf_open(&p);
}

static inline int sem_attach(const char *path, int fn, int sem)
{
	int fd = sem_attach_pid(path, fn, sem, 0, -1);

	CHECK(fd >= 0, "attach with a semaphore: error %d", -fd);
	return fd;
}

#endif
