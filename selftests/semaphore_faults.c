// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that spoil their semaphore, by accident or on purpose: that harms
 * nobody's attach or detach, and the counter is right again after the next one.
 *
 * A program of its own and the last to run: the C kernel leaks probes here that
 * make later attaches fail, even to other files.
 */
#include "semlib.h"
#include "worker.h"

static char *text;
static volatile short *sem;

/* After the spoiled detach: nothing is left behind and all works again. */
static void check_recovered(const char *path)
{
	int fd, other;

	CHECK(text[FN(0)] == ARCH_FN_SIMULATED[0], "the detach left the breakpoint");
	other = sem_attach(path, 0, 1);
	CHECK_EQ(sem[1], 1, "another semaphore on that site");
	close(other);
	CHECK_EQ(sem[1], 0, "another semaphore, detached");
	fd = sem_attach(path, 0, 0);
	CHECK_EQ(*sem, 1, "semaphore after the next attach");
	call_fn(text, 0, 10);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
}

static int page_dropped(const void *arg)
{
	const char *path = make_semlib();
	int fd;

	text = map_text(path);
	sem = map_sems(path);
	fd = sem_attach(path, 0, 0);
	CHECK_EQ(*sem, 1, "semaphore, attached");
	MUST(madvise((void *)((long)sem & -PAGE), PAGE, MADV_DONTNEED));
	CHECK_EQ(*sem, 1, "semaphore, page dropped");
	call_fn(text, 0, 10);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	check_recovered(path);
	return PASS;
}

/* Two semaphores on the page: each gets its increment again. */
static int page_of_two_dropped(const void *arg)
{
	const char *path = make_semlib();
	int fd[2];

	text = map_text(path);
	sem = map_sems(path);
	fd[0] = sem_attach(path, 0, 0);
	fd[1] = sem_attach(path, 1, 1);
	MUST(madvise((void *)((long)sem & -PAGE), PAGE, MADV_DONTNEED));
	CHECK_EQ(sem[0], 1, "first semaphore, page dropped");
	CHECK_EQ(sem[1], 1, "second semaphore, page dropped");
	close(fd[0]);
	CHECK_EQ(sem[0], 0, "first semaphore, detached");
	CHECK_EQ(sem[1], 1, "second semaphore, the first is detached");
	close(fd[1]);
	CHECK_EQ(sem[1], 0, "second semaphore, detached");
	return PASS;
}

static int set_to_zero(const void *arg)
{
	const char *path = make_semlib();
	int fd;

	text = map_text(path);
	sem = map_sems(path);
	fd = sem_attach(path, 0, 0);
	*sem = 0;
	close(fd);
	check_recovered(path);
	return PASS;
}

static int data_unmapped(const void *arg)
{
	const char *path = make_semlib();
	int fd;

	text = map_text(path);
	sem = map_sems(path);
	fd = sem_attach(path, 0, 0);
	MUST(munmap((void *)((long)sem & -PAGE), PAGE));
	sem = map_sems(path);
	CHECK_EQ(*sem, 1, "semaphore, mapped again");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	check_recovered(path);
	return PASS;
}

/* One process has a negative counter; an attach to all processes works. */
static long spoil_or_call(long n)
{
	if (n < 0) {
		*sem = n;
		return 0;
	}
	if (n)
		call_fn(text, 0, n);
	return *sem;
}

static int negative_elsewhere(const void *arg)
{
	const char *path = make_semlib();
	struct worker bad, good;
	int fd[2];

	text = map_text(path);
	sem = map_sems(path);
	worker_start(&bad, spoil_or_call);
	worker_start(&good, spoil_or_call);
	worker_do(&bad, -5);
	fd[0] = sem_attach_pid(path, 0, 0, -1, 0);
	CHECK(fd[0] >= 0, "attach refused because of one process: error %d", -fd[0]);
	fd[1] = sem_attach_pid(path, 0, 0, -1, 1);
	CHECK_EQ(worker_do(&good, 10), 1, "semaphore of the good process");
	CHECK_EQ(perf_count(fd[0]) + (fd[1] < 0 ? 0 : perf_count(fd[1])), 10, "hits");
	close(fd[0]);
	close(fd[1]);
	CHECK_EQ(worker_do(&good, 0), 0, "semaphore of the good process, detached");
	CHECK_EQ(text[FN(0)], ARCH_FN_SIMULATED[0], "text");
	return PASS;
}

/* Text that goes and comes back while traced: not counted twice. */
static int text_mapped_again(const void *arg)
{
	const char *path = make_semlib();
	int fd, i;

	text = map_text(path);
	sem = map_sems(path);
	fd = sem_attach(path, 0, 0);
	for (i = 0; i < 3; i++) {
		MUST(munmap(text, PAGE));
		text = map_text(path);
		call_fn(text, 0, 1);
	}
	CHECK_EQ(*sem, 1, "semaphore after the text was mapped again");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

/* The library goes, then its probe: when it is loaded again nobody traces it. */
static void load(const char *path)
{
	text = map_text(path);
	sem = map_sems(path);
}

static void unload(void)
{
	MUST(munmap(text, PAGE));
	MUST(munmap((void *)((long)sem & -PAGE), PAGE));
}

static int detached_while_unloaded(const void *arg)
{
	const char *path = make_semlib();
	int fd = sem_attach(path, 0, 0), other = perf_attach((struct loc){ path, FN(1) }, 0);

	load(path);
	CHECK_EQ(*sem, 1, "semaphore, loaded");
	unload();
	close(fd);
	load(path);
	CHECK_EQ(*sem, 0, "semaphore, loaded again without its probe");
	fd = sem_attach(path, 0, 0);
	CHECK_EQ(*sem, 1, "semaphore, attached again");
	call_fn(text, 0, 5);
	call_fn(text, 1, 5);
	CHECK_EQ(perf_count(fd), 5, "hits");
	CHECK_EQ(perf_count(other), 5, "hits of the other probe");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

/* A child forked between the mapping of text and data gets its increment. */
static const char *lib_path;

static long map_or_sem(long n)
{
	if (n == 1) {
		sem = map_sems(lib_path);
		return 0;
	}
	return *sem;
}

static int forked_late(const void *arg)
{
	struct worker w;
	int fd;

	lib_path = make_semlib();
	text = map_text(lib_path);
	fd = MUST(sem_attach_pid(lib_path, 0, 0, -1, 0));
	worker_start(&w, map_or_sem);
	worker_do(&w, 1);
	CHECK_EQ(worker_do(&w, 2), 1, "semaphore of the child");
	close(fd);
	CHECK_EQ(worker_do(&w, 2), 0, "semaphore of the child, detached");
	return PASS;
}

int main(int argc, char **argv)
{
	add_test("F.8", text_mapped_again, NULL, "text unmapped and mapped again");
	add_test(NULL, detached_while_unloaded, NULL, "detached while the library is unloaded");
	add_test("F.8", forked_late, NULL, "fork before the data is mapped");
	add_test("F.8", negative_elsewhere, NULL, "negative counter in one process");
	add_test("F.8", data_unmapped, NULL, "data unmapped and mapped again");
	add_test("F.8", set_to_zero, NULL, "counter set to zero by the program");
	add_test("F.8", page_dropped, NULL, "MADV_DONTNEED on the semaphore");
	add_test("F.8", page_of_two_dropped, NULL, "MADV_DONTNEED on two semaphores");
	return run_tests(argc, argv);
}
