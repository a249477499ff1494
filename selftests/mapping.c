// SPDX-License-Identifier: GPL-2.0
/*
 * Probes and address spaces: mappings that come, go, move and change while a
 * probe is there. As long as the file's bytes at the site are the probed ones,
 * the hits come.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"
#include "worker.h"

#define PAGE	4096UL
#define PAGES	8
/* Each page of the library has a function here. */
#define FN	0x100UL
/* And each page but the last one a function that begins on it and ends on the next. */
#define FN_CROSS (PAGE - ARCH_FN_CROSS)

#define RX	(PROT_READ | PROT_EXEC)

static void write_lib(const char *path, int pages)
{
	int fd = MUST(open(path, O_RDWR | O_CREAT, 0755)), i;

	for (i = 0; i < pages; i++) {
		off_t at = i * PAGE;

		CHECK(pwrite(fd, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED), at + FN) > 0, "write");
		CHECK(pwrite(fd, ARCH_FN_STEPPED, sizeof(ARCH_FN_STEPPED), at + 2 * FN) > 0, "write");
		if (i < pages - 1)
			CHECK(pwrite(fd, ARCH_FN_STEPPED, sizeof(ARCH_FN_STEPPED), at + FN_CROSS) > 0,
			      "write");
	}
	MUST(ftruncate(fd, pages * PAGE));
	close(fd);
}

static const char *make_lib(void)
{
	const char *path = tmp_path("lib");

	write_lib(path, PAGES);
	return path;
}

static char *map_file(const char *path, unsigned long pgoff, int pages, int prot, int flags)
{
	int fd = MUST(open(path, O_RDWR | O_CLOEXEC));
	char *p = mmap(NULL, pages * PAGE, prot, flags, fd, pgoff * PAGE);

	CHECK(p != MAP_FAILED, "mmap %s: errno %d", path, errno);
	close(fd);
	return p;
}

static char *map_lib(const char *path)
{
	return map_file(path, 0, PAGES, RX, MAP_PRIVATE);
}

static long call(const char *at)
{
	return ((long (*)(long))(unsigned long)at)(41);
}

static void calls(const char *at, int n)
{
	while (n--)
		CHECK_EQ(call(at), 42, "the function at %p", at);
}

static int attach(const char *path, unsigned long offset)
{
	return perf_attach((struct loc){ path, offset }, 0);
}

static void check_clean(const char *base, int pages, const char *path)
{
	char *file = map_file(path, 0, pages, PROT_READ, MAP_SHARED);

	CHECK(!memcmp(file, base, pages * PAGE), "text differs from the file");
	munmap(file, pages * PAGE);
}

static int before_mmap(const void *arg)
{
	unsigned long fn = (long)arg;
	const char *path = make_lib();
	int fd = attach(path, fn);
	char *lib = map_lib(path);

	calls(lib + fn, 20);
	CHECK_EQ(perf_count(fd), 20, "hits");
	close(fd);
	check_clean(lib, PAGES, path);
	calls(lib + fn, 20);
	return PASS;
}

static int after_mmap(const void *arg)
{
	unsigned long fn = (long)arg;
	const char *path = make_lib();
	char *lib = map_lib(path);
	int fd;

	calls(lib + fn, 20);
	fd = attach(path, fn);
	calls(lib + fn, 20);
	CHECK_EQ(perf_count(fd), 20, "hits");
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

/* As a dynamic linker does: reserve the whole, then map the segments over it. */
static int like_dlopen(const void *arg)
{
	const char *path = make_lib();
	int fd = attach(path, 3 * PAGE + FN), ret, i, lib_fd;

	ret = perf_attach((struct loc){ path, 3 * PAGE + FN }, PERF_RET);
	for (i = 1; i <= 10; i++) {
		char *base = map_file(path, 0, PAGES, PROT_READ, MAP_PRIVATE);

		lib_fd = MUST(open(path, O_RDONLY));
		CHECK(mmap(base + 2 * PAGE, 3 * PAGE, RX, MAP_PRIVATE | MAP_FIXED, lib_fd,
			   2 * PAGE) != MAP_FAILED, "mmap the text");
		CHECK(mmap(base + 5 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_FIXED, lib_fd, 5 * PAGE) != MAP_FAILED, "mmap the data");
		close(lib_fd);
		MUST(mprotect(base + 5 * PAGE, PAGE, PROT_READ));
		calls(base + 3 * PAGE + FN, 5);
		CHECK_EQ(perf_count(fd), 5 * i, "hits, library loaded %d times", i);
		CHECK_EQ(perf_count(ret), 5 * i, "returns, library loaded %d times", i);
		MUST(munmap(base, PAGES * PAGE));
	}
	return PASS;
}

static int mapped_twice(const void *arg)
{
	const char *path = make_lib();
	char *a = map_lib(path), *b;
	int fd = attach(path, PAGE + FN);

	b = map_file(path, 1, 2, RX, MAP_PRIVATE);
	calls(a + PAGE + FN, 10);
	calls(b + FN, 15);
	CHECK_EQ(perf_count(fd), 25, "hits in both mappings");
	munmap(a, PAGES * PAGE);
	calls(b + FN, 5);
	CHECK_EQ(perf_count(fd), 30, "hits in the mapping that is left");
	close(fd);
	a = map_file(path, 1, 1, PROT_READ, MAP_SHARED);
	CHECK(!memcmp(a, b, PAGE), "text differs from the file");
	return PASS;
}

static int map_again(const void *arg)
{
	const char *path = make_lib();
	int fd = attach(path, FN), i;

	for (i = 1; i <= 100; i++) {
		char *lib = map_lib(path);

		calls(lib + FN, 1);
		CHECK_EQ(perf_count(fd), i, "hits");
		munmap(lib, PAGES * PAGE);
	}
	return PASS;
}

/* The probe stays with the file that it was put on, not with the name. */
static int renamed_over(const void *arg)
{
	const char *path = make_lib(), *new = tmp_path("new");
	char *old_map = map_lib(path), *new_map;
	int old_fd = attach(path, FN), new_fd;

	write_lib(new, PAGES);
	MUST(rename(new, path));
	new_map = map_lib(path);
	calls(old_map + FN, 10);
	calls(new_map + FN, 7);
	CHECK_EQ(perf_count(old_fd), 10, "hits in the replaced file");
	new_fd = attach(path, FN);
	calls(old_map + FN, 10);
	calls(new_map + FN, 7);
	CHECK_EQ(perf_count(old_fd), 20, "hits in the replaced file");
	CHECK_EQ(perf_count(new_fd), 7, "hits in the new file");
	close(old_fd);
	calls(new_map + FN, 7);
	CHECK_EQ(perf_count(new_fd), 14, "hits in the new file, alone");
	close(new_fd);
	CHECK(!memcmp(old_map, new_map, PAGE), "breakpoint left behind");
	return PASS;
}

static int unlinked(const void *arg)
{
	const char *path = make_lib();
	int fd = attach(path, FN), file = MUST(open(path, O_RDONLY));
	char *lib;

	MUST(unlink(path));
	lib = mmap(NULL, PAGE, RX, MAP_PRIVATE, file, 0);
	CHECK(lib != MAP_FAILED, "mmap");
	calls(lib + FN, 10);
	CHECK_EQ(perf_count(fd), 10, "hits in a file without a name");
	return PASS;
}

static int by_path_fd(const void *arg)
{
	int file = MUST(memfd_create("lib", 0));
	struct bpf_counter c;
	char path[64], *lib;
	unsigned long off = FN;
	union bpf_attr attr;
	int link;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	write_lib(path, PAGES);
	bpf_counter_load(&c, NULL);
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = c.prog;
	attr.link_create.attach_type = BPF_TRACE_UPROBE_MULTI;
	attr.link_create.uprobe_multi.path_fd = file;
	attr.link_create.uprobe_multi.flags = BPF_F_UPROBE_MULTI_PATH_FD;
	attr.link_create.uprobe_multi.offsets = (unsigned long)&off;
	attr.link_create.uprobe_multi.cnt = 1;
	link = MUST(sys_bpf(BPF_LINK_CREATE, &attr, sizeof(attr)));
	lib = map_lib(path);
	calls(lib + FN, 10);
	CHECK_EQ(c.values[BV_COUNT], 10, "hits in a memfd");
	close(link);
	check_clean(lib, PAGES, path);
	return PASS;
}

static int mremap_moves(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path), *to;
	int fd = attach(path, FN), i;

	for (i = 1; i <= 10; i++) {
		to = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(to != MAP_FAILED, "mmap");
		lib = mremap(lib, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		CHECK(lib == to, "mremap: errno %d", errno);
		calls(lib + FN, 5);
		CHECK_EQ(perf_count(fd), 5 * i, "hits after move %d", i);
	}
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

static int mremap_shrinks(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int a = attach(path, FN), b = attach(path, 5 * PAGE + FN);

	calls(lib + FN, 5);
	calls(lib + 5 * PAGE + FN, 5);
	CHECK(mremap(lib, PAGES * PAGE, 2 * PAGE, 0) == lib, "mremap");
	calls(lib + FN, 5);
	CHECK_EQ(perf_count(a), 10, "hits in the part that is left");
	CHECK_EQ(perf_count(b), 5, "hits in the part that went");
	return PASS;
}

static int mremap_grows(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_file(path, 0, 1, RX, MAP_PRIVATE);
	int a = attach(path, FN), b = attach(path, 2 * PAGE + FN);

	calls(lib + FN, 5);
	lib = mremap(lib, PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	CHECK(lib != MAP_FAILED, "mremap");
	calls(lib + FN, 5);
	calls(lib + 2 * PAGE + FN, 5);
	CHECK_EQ(perf_count(a), 10, "hits in the old part");
	CHECK_EQ(perf_count(b), 5, "hits in the new part");
	return PASS;
}

/* From one protection to r-x, with the attach in between. */
static int mprotect_from(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_file(path, 0, PAGES, (long)arg, MAP_PRIVATE);
	int fd = attach(path, FN);

	MUST(mprotect(lib, PAGES * PAGE, RX));
	calls(lib + FN, 10);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

/* One page of a mapping changes to r-x: the others must stay as they are. */
static int mprotect_part(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_file(path, 0, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	int fd = attach(path, 3 * PAGE + FN), other = attach(path, 5 * PAGE + FN);

	MUST(mprotect(lib + 2 * PAGE, 2 * PAGE, RX));
	calls(lib + 3 * PAGE + FN, 10);
	CHECK_EQ(perf_count(fd), 10, "hits in the part that became executable");
	MUST(mprotect(lib + 4 * PAGE, 2 * PAGE, RX));
	calls(lib + 5 * PAGE + FN, 10);
	CHECK_EQ(perf_count(other), 10, "hits in the next part");
	return PASS;
}

static int mprotect_to_and_fro(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int fd = attach(path, FN), i;

	for (i = 1; i <= 10; i++) {
		MUST(mprotect(lib, PAGE, i & 1 ? PROT_READ : PROT_NONE));
		MUST(mprotect(lib, PAGE, RX));
		calls(lib + FN, 5);
		CHECK_EQ(perf_count(fd), 5 * i, "hits after round %d", i);
	}
	/* Attached while the page cannot be executed. */
	close(fd);
	MUST(mprotect(lib, PAGE, PROT_NONE));
	fd = attach(path, FN);
	MUST(mprotect(lib, PAGE, RX));
	calls(lib + FN, 5);
	CHECK_EQ(perf_count(fd), 5, "hits of a probe attached under PROT_NONE");
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

#ifdef ARCH_PROT_GUARDED
static sigjmp_buf fault_env;

static void on_sigill(int sig)
{
	siglongjmp(fault_env, 1);
}

/* The function has no landing pad: whether it may be called depends on its page at the time. */
static int guarded_to_and_fro(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	volatile int faults = 0, i;
	int fd;

	signal(SIGILL, on_sigill);
	MUST(mprotect(lib, PAGE, RX | ARCH_PROT_GUARDED));
	if (!sigsetjmp(fault_env, 1)) {
		call(lib + FN);
		return skip("the CPU checks no landing pads");
	}
	fd = attach(path, FN);
	for (i = 1; i <= 10; i++) {
		if (!sigsetjmp(fault_env, 1))
			call(lib + FN);
		else
			faults++;
		CHECK_EQ(faults, i, "faults where landing pads are required");
		MUST(mprotect(lib, PAGE, RX));
		calls(lib + FN, 2);
		MUST(mprotect(lib, PAGE, RX | ARCH_PROT_GUARDED));
	}
	CHECK_EQ(perf_count(fd), 30, "hits");
	return PASS;
}
#endif

static int madvise_dontneed(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int fd = attach(path, FN), i;

	for (i = 1; i <= 5; i++) {
		MUST(madvise(lib, PAGE, MADV_DONTNEED));
		calls(lib + FN, 5);
		CHECK_EQ(perf_count(fd), 5 * i, "hits after MADV_DONTNEED %d", i);
	}
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

/* The same in another process than the attached one's parent. */
static char *shared_lib;

static long call_or_drop(long order)
{
	if (!order)
		return madvise(shared_lib, PAGE, MADV_DONTNEED);
	calls(shared_lib + FN, order);
	return 0;
}

static int madvise_in_other(const void *arg)
{
	const char *path = make_lib();
	struct perf_all all;
	struct worker w;

	shared_lib = map_lib(path);
	worker_start(&w, call_or_drop);
	perf_attach_all(&all, (struct loc){ path, FN }, 0);
	worker_do(&w, 10);
	CHECK_EQ(perf_count_all(&all), 10, "hits in the worker");
	CHECK_EQ(worker_do(&w, 0), 0, "MADV_DONTNEED");
	worker_do(&w, 10);
	CHECK_EQ(perf_count_all(&all), 20, "hits in the worker after MADV_DONTNEED");
	calls(shared_lib + FN, 5);
	CHECK_EQ(perf_count_all(&all), 25, "hits here");
	return PASS;
}

static int truncated(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int fd = attach(path, FN), tries;

	calls(lib + FN, 5);
	MUST(truncate(path, 0));
	write_lib(path, PAGES);
	/* Nothing tells the kernel when the page is there again: it looks now and then. */
	for (tries = 0; perf_count(fd) == 5 && tries < 100; tries++) {
		usleep(50000);
		calls(lib + FN, 1);
	}
	CHECK_EQ(perf_count(fd), 6, "first hit after the file was written again");
	calls(lib + FN, 5);
	CHECK_EQ(perf_count(fd), 11, "hits after the file was written again");
	close(fd);
	check_clean(lib, PAGES, path);
	return PASS;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/*
 * The file is a hole for a while, as while somebody copies a new version over it. The
 * zeroes are nobody's code: the program keeps none of them.
 */
static int truncated_to_hole(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path), *image = malloc(PAGES * PAGE);
	int file = MUST(open(path, O_RDWR)), fd[PAGES], i;
	double end;

	CHECK(image && pread(file, image, PAGES * PAGE, 0) == PAGES * PAGE, "read");
	for (i = 0; i < PAGES; i++) {
		fd[i] = attach(path, i * PAGE + FN);
		calls(lib + i * PAGE + FN, 1);
		CHECK_EQ(perf_count(fd[i]), 1, "hits, page %d", i);
		/* All code is the same in the new version. */
		memset(image + i * PAGE + 3 * FN, 'A' + i, FN);
	}
	MUST(ftruncate(file, 0));
	MUST(ftruncate(file, PAGES * PAGE));
	usleep(300000);
	for (i = PAGES - 1; i >= 0; i--)
		CHECK_EQ(pwrite(file, image + i * PAGE, PAGE, i * PAGE), PAGE, "write page %d", i);
	end = now() + 3;
	for (i = 0; i < PAGES; i++) {
		char *page = lib + i * PAGE;

		CHECK(!memcmp(page + 3 * FN, image + i * PAGE + 3 * FN, FN), "new bytes of page %d", i);
		while (perf_count(fd[i]) == 1 && now() < end) {
			calls(page + FN, 1);
			usleep(1000);
		}
		CHECK_EQ(perf_count(fd[i]), 2, "first hit in page %d of the new file", i);
		calls(page + FN, 5);
		CHECK_EQ(perf_count(fd[i]), 7, "hits in page %d of the new file", i);
	}
	for (i = 0; i < PAGES; i++)
		close(fd[i]);
	check_clean(lib, PAGES, path);
	return PASS;
}

/* A child forked while the file is short is no worse off than its parent. */
static int truncated_forked(const void *arg)
{
	const char *path = make_lib();
	struct perf_all all;
	struct worker w;
	uint64_t hits;
	double end;

	shared_lib = map_lib(path);
	perf_attach_all(&all, (struct loc){ path, FN }, 0);
	calls(shared_lib + FN, 5);
	CHECK_EQ(perf_count_all(&all), 5, "hits");
	MUST(truncate(path, 0));
	worker_start(&w, call_or_drop);
	write_lib(path, PAGES);
	end = now() + 3;
	while (perf_count_all(&all) == 5 && now() < end) {
		calls(shared_lib + FN, 1);
		usleep(1000);
	}
	CHECK_EQ(perf_count_all(&all), 6, "first hit of the parent");
	while (perf_count_all(&all) == 6 && now() < end) {
		worker_do(&w, 1);
		usleep(1000);
	}
	hits = perf_count_all(&all);
	CHECK_EQ(hits, 7, "first hit of the child");
	calls(shared_lib + FN, 5);
	CHECK_EQ(perf_count_all(&all), hits + 5, "hits of the parent");
	worker_do(&w, 5);
	CHECK_EQ(perf_count_all(&all), hits + 10, "hits of the child");
	return PASS;
}

/* Shared mappings are the file itself: nothing is ever written there. */
static int shared_mapping(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_file(path, 0, PAGES, RX, MAP_SHARED);
	char *private = map_lib(path);
	int fd = attach(path, FN);

	calls(lib + FN, 10);
	CHECK_EQ(perf_count(fd), 0, "hits in a shared mapping");
	calls(private + FN, 10);
	CHECK_EQ(perf_count(fd), 10, "hits in a private mapping");
	CHECK(lib[FN] != private[FN], "the breakpoint is in the file");
	return PASS;
}

static int partial_munmap(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int i, fd[PAGES];

	for (i = 0; i < PAGES; i++)
		fd[i] = attach(path, i * PAGE + FN);
	MUST(munmap(lib + 3 * PAGE, 2 * PAGE));
	for (i = 0; i < PAGES; i++)
		if (i < 3 || i > 4)
			calls(lib + i * PAGE + FN, 3 + i);
	for (i = 0; i < PAGES; i++)
		CHECK_EQ(perf_count(fd[i]), i < 3 || i > 4 ? 3 + i : 0, "page %d", i);
	return PASS;
}

/* Anonymous code over a probed page: what is not the file is not probed. */
static int mapped_over(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int fd = attach(path, FN);

	calls(lib + FN, 5);
	CHECK(mmap(lib, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == lib, "mmap");
	memcpy(lib + FN, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED));
	MUST(mprotect(lib, PAGE, RX));
	calls(lib + FN, 5);
	CHECK_EQ(perf_count(fd), 5, "hits");
	return PASS;
}

static int two_files(const void *arg)
{
	const char *a = make_lib(), *b = tmp_path("other");
	char *map_a, *map_b;
	int fd;

	write_lib(b, PAGES);
	map_a = map_lib(a);
	map_b = map_lib(b);
	fd = attach(a, FN);
	calls(map_a + FN, 5);
	calls(map_b + FN, 50);
	CHECK_EQ(perf_count(fd), 5, "hits");
	return PASS;
}

static int forked(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	struct perf_all all;
	int i, status;

	perf_attach_all(&all, (struct loc){ path, FN }, 0);
	for (i = 0; i < 5; i++) {
		pid_t pid = MUST(fork());

		if (!pid) {
			calls(lib + FN, 10);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK_EQ(status, 0, "child");
	}
	calls(lib + FN, 5);
	CHECK_EQ(perf_count_all(&all), 55, "hits here and in the children");
	return PASS;
}

/* A child keeps its breakpoints over the parent's unmapping and the other way. */
static int forked_unmap(const void *arg)
{
	const char *path = make_lib();
	struct perf_all all;
	struct worker w;

	perf_attach_all(&all, (struct loc){ path, FN }, 0);
	shared_lib = map_lib(path);
	calls(shared_lib + FN, 5);
	worker_start(&w, call_or_drop);
	MUST(munmap(shared_lib, PAGES * PAGE));
	worker_do(&w, 10);
	CHECK_EQ(perf_count_all(&all), 15, "hits");
	return PASS;
}

/* Bytes of this mapping that are mapped by huge pages. */
static long huge_bytes(const char *at)
{
	unsigned long start, end, kb, sum = 0;
	char line[512];
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = (unsigned long)at >= start && (unsigned long)at < end;
		else if (here && (sscanf(line, "ShmemPmdMapped: %lu", &kb) == 1 ||
				  sscanf(line, "FilePmdMapped: %lu", &kb) == 1))
			sum += kb << 10;
	}
	if (f)
		fclose(f);
	return sum;
}

#define HUGE	(2UL << 20)

static char *map_huge(char *path)
{
	const char *dir = tmp_path("huge");
	char *p, *end;
	int fd;

	MUST(mkdir(dir, 0755));
	if (mount("huge", dir, "tmpfs", 0, "huge=always"))
		return NULL;
	sprintf(path, "%s/lib", dir);
	write_lib(path, 2 * HUGE / PAGE);
	p = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED, "mmap");
	p = (char *)(((unsigned long)p + HUGE - 1) & ~(HUGE - 1));
	fd = MUST(open(path, O_RDONLY));
	CHECK(mmap(p, 2 * HUGE, RX, MAP_PRIVATE | MAP_FIXED, fd, 0) == p, "mmap");
	close(fd);
	/* Unmount as soon as nobody uses it. */
	end = strrchr(path, '/');
	*end = 0;
	umount2(path, MNT_DETACH);
	*end = '/';
	call(p + FN);
	call(p + HUGE + FN);
	return p;
}

static int huge_pages(const void *arg)
{
	char path[512], file_fd[64], *lib;
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, NULL);
	lib = map_huge(path);
	if (!lib)
		return skip("no tmpfs with huge=always");
	if (huge_bytes(lib) < (long)HUGE)
		return skip("the file is not mapped by huge pages");
	/* The file's name went with the mount: /proc/self/map_files has it. */
	snprintf(file_fd, sizeof(file_fd), "/proc/self/map_files/%lx-%lx",
		 (unsigned long)lib, (unsigned long)lib + 2 * HUGE);
	link = multi_attach_one(&c, (struct loc){ file_fd, HUGE + 3 * PAGE + FN }, 0);
	calls(lib + HUGE + 3 * PAGE + FN, 20);
	calls(lib + 3 * PAGE + FN, 20);
	calls(lib + HUGE + 2 * PAGE + FN, 20);
	CHECK_EQ(c.values[BV_COUNT], 20, "hits in a huge page");
	close(link);
	calls(lib + HUGE + 3 * PAGE + FN, 20);
	CHECK_EQ(c.values[BV_COUNT], 20, "hits after the detach");
	/* All pages are alike but for the first bytes of the file. */
	CHECK(!memcmp(lib + HUGE + FN, lib + FN, PAGE * PAGES), "breakpoint left behind");
	return PASS;
}

static int small_pages(const void *arg)
{
	const char *path = make_lib();
	char *lib = map_lib(path);
	int i, fd[PAGES];

	CHECK_EQ(huge_bytes(lib), 0, "huge pages");
	for (i = 0; i < PAGES; i++)
		fd[i] = attach(path, i * PAGE + FN);
	for (i = 0; i < PAGES; i++)
		calls(lib + i * PAGE + FN, i + 1);
	for (i = 0; i < PAGES; i++)
		CHECK_EQ(perf_count(fd[i]), i + 1, "page %d", i);
	return PASS;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; unsigned long fn; } fns[] = {
		{ "simulated", FN }, { "stepped", 2 * FN }, { "across pages", FN_CROSS },
	};
	int i;

	for (i = 0; i < 3; i++) {
		add_test(NULL, before_mmap, (void *)fns[i].fn, "probe before mmap, %s", fns[i].name);
		add_test(NULL, after_mmap, (void *)fns[i].fn, "probe after mmap, %s", fns[i].name);
	}
	add_test(NULL, like_dlopen, NULL, "library loaded as by dlopen");
	add_test(NULL, mapped_twice, NULL, "file mapped twice");
	add_test(NULL, map_again, NULL, "file mapped again and again");
	add_test(NULL, renamed_over, NULL, "file replaced by rename");
	add_test(NULL, unlinked, NULL, "file unlinked");
	add_test(NULL, by_path_fd, NULL, "memfd, attached by descriptor");
	add_test(NULL, two_files, NULL, "two files of the same content");
	add_test(NULL, mremap_moves, NULL, "mremap moves");
	add_test(NULL, mremap_shrinks, NULL, "mremap shrinks");
	add_test("F.7", mremap_grows, NULL, "mremap grows");
	add_test(NULL, mprotect_from, (void *)PROT_READ, "attach under r--, then r-x");
	add_test(NULL, mprotect_from, (void *)PROT_NONE, "attach under ---, then r-x");
	add_test("F.7", mprotect_from, (void *)(PROT_READ | PROT_WRITE), "attach under rw-, then r-x");
	add_test("F.7", mprotect_part, NULL, "part of a rw- mapping becomes r-x");
	add_test(NULL, mprotect_to_and_fro, NULL, "mprotect to and fro");
#ifdef ARCH_PROT_GUARDED
	add_test("F.4", guarded_to_and_fro, NULL, "landing pads required, to and fro");
#endif
	add_test("F.7", madvise_dontneed, NULL, "MADV_DONTNEED on the text");
	add_test("F.7", madvise_in_other, NULL, "MADV_DONTNEED in another process");
	add_test("F.7", truncated, NULL, "file truncated and written again");
	add_test("F.7", truncated_to_hole, NULL, "file truncated to a hole and written from its end");
	add_test("F.7", truncated_forked, NULL, "fork while the file is truncated");
	add_test(NULL, shared_mapping, NULL, "shared mapping");
	add_test(NULL, partial_munmap, NULL, "munmap in the middle");
	add_test(NULL, mapped_over, NULL, "anonymous code mapped over the site");
	add_test(NULL, forked, NULL, "fork");
	add_test(NULL, forked_unmap, NULL, "fork, then munmap in the parent");
	add_test(NULL, small_pages, NULL, "4 KiB pages");
	add_test(NULL, huge_pages, NULL, "huge pages");
	return run_tests(argc, argv);
}
