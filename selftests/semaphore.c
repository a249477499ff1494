// SPDX-License-Identifier: GPL-2.0
/* Semaphores (ref_ctr): above zero while, and only while, somebody traces. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "semlib.h"
#include "worker.h"

static int attach_first(const void *arg)
{
	const char *path = make_semlib();
	int fd = sem_attach(path, 0, 0);
	char *text = map_text(path);
	volatile short *sem = map_sems(path);

	CHECK_EQ(*sem, 1, "semaphore, attached");
	call_fn(text, 0, 10);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

static int map_first(const void *arg)
{
	const char *path = make_semlib();
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	int fd, i;

	for (i = 0; i < 5; i++) {
		CHECK_EQ(*sem, 0, "semaphore, before");
		fd = sem_attach(path, 0, 0);
		CHECK_EQ(*sem, 1, "semaphore, attached");
		call_fn(text, 0, 10);
		CHECK_EQ(perf_count(fd), 10, "hits");
		close(fd);
		CHECK_EQ(*sem, 0, "semaphore, detached");
	}
	return PASS;
}

/* The data is mapped long after the text, as by a slow loader. */
static int late_data(const void *arg)
{
	const char *path = make_semlib();
	char *text = map_text(path);
	int fd = sem_attach(path, 0, 0);
	volatile short *sem;

	call_fn(text, 0, 10);
	sem = map_sems(path);
	CHECK_EQ(*sem, 1, "semaphore, data mapped after the attach");
	call_fn(text, 0, 10);
	CHECK_EQ(perf_count(fd), 20, "hits");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

static int late_data_never(const void *arg)
{
	const char *path = make_semlib();
	char *text = map_text(path);
	int fd = sem_attach(path, 0, 0);

	call_fn(text, 0, 10);
	close(fd);
	/* Mapped when nobody waits for it any more. */
	CHECK_EQ(*map_sems(path), 0, "semaphore");
	fd = sem_attach(path, 0, 1);
	CHECK(fd >= 0, "another semaphore after the first was given up");
	return PASS;
}

static int late_text(const void *arg)
{
	const char *path = make_semlib();
	volatile short *sem = map_sems(path);
	int fd = sem_attach(path, 0, 0);
	char *text;

	CHECK_EQ(*sem, 0, "semaphore, no text is mapped");
	text = map_text(path);
	CHECK_EQ(*sem, 1, "semaphore, text mapped");
	call_fn(text, 0, 10);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

static int two_probes(const void *arg)
{
	const char *path = make_semlib();
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	int a = sem_attach(path, 0, 0), b, c;

	b = sem_attach(path, 1, 0);
	CHECK_EQ(*sem, 2, "semaphore, two probes");
	c = sem_attach(path, 2, 0);
	CHECK_EQ(*sem, 3, "semaphore, three probes");
	call_fn(text, 1, 5);
	close(a);
	CHECK_EQ(*sem, 2, "semaphore, one less");
	close(c);
	CHECK_EQ(*sem, 1, "semaphore, two less");
	CHECK_EQ(perf_count(b), 5, "hits");
	close(b);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

static int two_consumers(const void *arg)
{
	const char *path = make_semlib();
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	int a = sem_attach(path, 0, 0), b = sem_attach(path, 0, 0);

	CHECK_EQ(*sem, 1, "semaphore, one site with two consumers");
	call_fn(text, 0, 5);
	close(a);
	CHECK_EQ(*sem, 1, "semaphore, one consumer left");
	call_fn(text, 0, 5);
	CHECK_EQ(perf_count(b), 10, "hits");
	close(b);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

static int several_semaphores(const void *arg)
{
	const char *path = make_semlib();
	unsigned long offs[] = { FN(0), FN(1), FN(2) }, sems[] = { SEM(2), SEM(0), 0 };
	struct multi m = { .path = path, .offsets = offs, .ref_ctr_offsets = sems, .cnt = 3 };
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, NULL);
	link = MUST(multi_attach(&c, &m));
	CHECK_EQ(sem[0], 1, "semaphore 0");
	CHECK_EQ(sem[1], 0, "semaphore 1");
	CHECK_EQ(sem[2], 1, "semaphore 2");
	call_fn(text, 0, 1);
	call_fn(text, 1, 1);
	call_fn(text, 2, 1);
	CHECK_EQ(c.values[BV_COUNT], 3, "hits");
	close(link);
	CHECK_EQ(sem[0], 0, "semaphore 0, detached");
	CHECK_EQ(sem[2], 0, "semaphore 2, detached");
	return PASS;
}

static char *text;
static volatile short *sem;

static long call_or_sem(long n)
{
	if (!n)
		return *sem;
	call_fn(text, 0, n);
	return 0;
}

/* A child has the semaphore's value and the breakpoint, and loses both. */
static int forked(const void *arg)
{
	const char *path = make_semlib();
	struct perf_all all = { .n = 2 };
	struct worker w;

	text = map_text(path);
	sem = map_sems(path);
	all.fd[0] = MUST(sem_attach_pid(path, 0, 0, -1, 0));
	all.fd[1] = sem_attach_pid(path, 0, 0, -1, 1);
	if (all.fd[1] < 0)
		all.n = 1;
	worker_start(&w, call_or_sem);
	CHECK_EQ(*sem, 1, "semaphore here");
	CHECK_EQ(worker_do(&w, 0), 1, "semaphore in the child");
	perf_detach_all(&all);
	CHECK_EQ(*sem, 0, "semaphore here, detached");
	CHECK_EQ(worker_do(&w, 0), 0, "semaphore in the child, detached");
	all.fd[0] = MUST(sem_attach_pid(path, 0, 0, w.pid, -1));
	CHECK_EQ(*sem, 0, "semaphore here, the other one is traced");
	CHECK_EQ(worker_do(&w, 0), 1, "semaphore in the child, traced");
	worker_do(&w, 12);
	CHECK_EQ(perf_count(all.fd[0]), 12, "hits in the child");
	close(all.fd[0]);
	CHECK_EQ(worker_do(&w, 0), 0, "semaphore in the child, detached");
	return PASS;
}

/* The child maps its data after the fork. */
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
	struct worker a, b;
	int fd;

	lib_path = make_semlib();
	text = map_text(lib_path);
	worker_start(&a, map_or_sem);
	fd = MUST(sem_attach_pid(lib_path, 0, 0, -1, 0));
	worker_start(&b, map_or_sem);
	worker_do(&a, 1);
	CHECK_EQ(worker_do(&a, 2), 1, "semaphore of the process that was there at the attach");
	/*
	 * The child inherited the breakpoint before its data was mapped. C owes
	 * it the increment and forgets, see semaphore_faults.c.
	 */
	close(fd);
	CHECK_EQ(worker_do(&a, 2), 0, "semaphore, detached");
	worker_do(&b, 1);
	CHECK_EQ(worker_do(&b, 2), 0, "semaphore mapped after the detach");
	return PASS;
}

/* Processes that share memory share the semaphore. */
static int child_calls(void *unused)
{
	call_fn(text, 0, 10);
	return *sem == 1 ? 42 : 1;
}

static int clone_vm(const void *arg)
{
	static char stack[65536] __attribute__((aligned(16)));
	const char *path = make_semlib();
	int fd = sem_attach(path, 0, 0), status;
	pid_t pid;

	text = map_text(path);
	sem = map_sems(path);
	pid = MUST(clone(child_calls, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "child: status %#x", status);
	CHECK_EQ(*sem, 1, "semaphore after the child's exit");
	close(fd);
	CHECK_EQ(*sem, 0, "semaphore, detached");
	return PASS;
}

/* A real program: text and data of this very file, over exec. */

__attribute__((noinline, noclone)) long traced_function(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

static unsigned short sem_in_data __attribute__((used, section(".data"))) = 0;

static int executed(const void *arg)
{
	volatile unsigned short *s = &sem_in_data;
	struct loc loc = loc_of(traced_function);
	unsigned long off = loc.offset, sem_off = loc_of((void *)s).offset;
	struct multi m = { .path = loc.path, .offsets = &off, .ref_ctr_offsets = &sem_off, .cnt = 1 };
	char *const argv[] = { (char *)self_path(), "--semaphore", NULL };
	struct bpf_counter c;
	int link, status;
	pid_t pid;

	bpf_counter_load(&c, NULL);
	link = MUST(multi_attach(&c, &m));
	CHECK_EQ(*s, 1, "semaphore here");
	pid = MUST(fork());
	if (!pid) {
		execv(argv[0], argv);
		_exit(1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 101,
	      "the executed program saw another semaphore than 1: status %#x", status);
	CHECK_EQ(c.values[BV_COUNT], 1, "hits in the executed program");
	close(link);
	CHECK_EQ(*s, 0, "semaphore, detached");
	return PASS;
}

static int text_twice(const void *arg)
{
	const char *path = make_semlib();
	char *a = map_text(path), *b = map_text(path);
	volatile short *s = map_sems(path);
	int fd = sem_attach(path, 0, 0);

	CHECK(*s > 0, "semaphore: %d", *s);
	call_fn(a, 0, 5);
	call_fn(b, 0, 5);
	CHECK_EQ(perf_count(fd), 10, "hits");
	close(fd);
	CHECK_EQ(*s, 0, "semaphore, detached");
	return PASS;
}

/* The program counts for itself as well; its own count stays. */
static int program_counts(const void *arg)
{
	const char *path = make_semlib();
	volatile short *s = map_sems(path);
	int fd;

	map_text(path);
	*s = 7;
	fd = sem_attach(path, 0, 0);
	CHECK_EQ(*s, 8, "semaphore, attached");
	*s += 1;
	close(fd);
	CHECK_EQ(*s, 8, "semaphore, detached");
	return PASS;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--semaphore")) {
		traced_function(1);
		return 100 + *(volatile unsigned short *)&sem_in_data;
	}
	add_test(NULL, attach_first, NULL, "attached before the mapping");
	add_test(NULL, map_first, NULL, "attached after the mapping");
	add_test(NULL, late_data, NULL, "data mapped late");
	add_test(NULL, late_data_never, NULL, "data mapped after the detach");
	add_test(NULL, late_text, NULL, "text mapped late");
	add_test(NULL, two_probes, NULL, "three probes, one semaphore");
	add_test(NULL, two_consumers, NULL, "two consumers of one probe");
	add_test(NULL, several_semaphores, NULL, "uprobe_multi with several semaphores");
	add_test(NULL, forked, NULL, "fork");
	add_test(NULL, forked_late, NULL, "fork, data mapped late");
	add_test(NULL, clone_vm, NULL, "CLONE_VM child");
	add_test(NULL, executed, NULL, "exec");
	add_test(NULL, text_twice, NULL, "text mapped twice");
	add_test(NULL, program_counts, NULL, "program that counts itself");
	return run_tests(argc, argv);
}
