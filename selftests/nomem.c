// SPDX-License-Identifier: GPL-2.0
/*
 * No memory: the n-th allocation of an attach, or of a hit, fails, for all n. An
 * attach then works or answers ENOMEM and leaves nothing behind; a program that
 * is probed never notices.
 *
 * Needs FAULT_INJECTION, FAILSLAB and FAIL_PAGE_ALLOC.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "semlib.h"
#include "sites.h"

#define MAX_NTH	500

static int fail_nth = -1;

static void set_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0 && write(fd, value, strlen(value)) < 0)
		diag("%s: errno %d", path, errno);
	close(fd);
}

static bool prepare(void)
{
	if (access("/sys/kernel/debug/failslab", F_OK))
		return false;
	/* Allocations that may sleep fail as well; no report of each. */
	set_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	set_file("/sys/kernel/debug/failslab/verbose", "0");
	set_file("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	set_file("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	set_file("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR);
	return fail_nth >= 0;
}

static void arm(int n)
{
	char buf[16];
	int len = sprintf(buf, "%d", n);

	CHECK_EQ(pwrite(fail_nth, buf, len, 0), len, "fail-nth");
}

/* True if the allocation came and failed. */
static bool disarm(void)
{
	char buf[16] = "";

	CHECK(pread(fail_nth, buf, sizeof(buf) - 1, 0) > 0, "fail-nth");
	arm(0);
	return atoi(buf) == 0;
}

/* Another process that has the same mappings, and its memory. */
static pid_t start_other(int *mem)
{
	char path[64];
	pid_t pid = MUST(fork());

	if (!pid)
		for (;;)
			pause();
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	*mem = MUST(open(path, O_RDONLY));
	return pid;
}

static long read_other(int mem, const volatile void *addr, int size)
{
	long value = 0;

	CHECK_EQ(pread(mem, &value, size, (unsigned long)addr), size, "the other's memory");
	return value;
}

static int attach_multi(const void *arg)
{
	unsigned long offs[] = { FN(0), FN(1), FN(2) }, sems[] = { SEM(0), SEM(1), 0 };
	struct multi m = { .ref_ctr_offsets = sems, .offsets = offs, .cnt = 3,
			   .flags = (long)arg };
	const char *path = make_semlib();
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	struct bpf_counter c;
	int n, i, link, other, refused = 0;
	bool failed = true;
	pid_t pid;

	if (!prepare())
		return skip("no fault injection in this kernel");
	m.path = path;
	bpf_counter_load(&c, NULL);
	pid = start_other(&other);
	for (n = 1; n < MAX_NTH && failed; n++) {
		uint64_t before = c.values[BV_COUNT];

		arm(n);
		link = multi_attach(&c, &m);
		failed = disarm();
		CHECK(link >= 0 || link == -ENOMEM, "allocation %d: error %d", n, -link);
		if (link >= 0) {
			call_fn(text, 0, 5);
			CHECK_EQ(c.values[BV_COUNT] - before, 5, "allocation %d: hits", n);
			close(link);
		} else {
			refused++;
			call_fn(text, 0, 5);
			CHECK_EQ(c.values[BV_COUNT], before, "allocation %d: hits when refused", n);
		}
		for (i = 0; i < 3; i++) {
			CHECK_EQ(text[FN(i)], ARCH_FN_SIMULATED[0], "allocation %d: text %d", n, i);
			CHECK_EQ((char)read_other(other, text + FN(i), 1), ARCH_FN_SIMULATED[0],
				 "allocation %d: the other's text %d", n, i);
		}
		for (i = 0; i < 2; i++) {
			CHECK_EQ(sem[i], 0, "allocation %d: semaphore %d", n, i);
			CHECK_EQ(read_other(other, sem + i, 2), 0,
				 "allocation %d: the other's semaphore %d", n, i);
		}
	}
	CHECK(refused > 3, "only %d allocations were refused", refused);
	CHECK(n < MAX_NTH, "no end of allocations");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return PASS;
}

static int attach_perf(const void *arg)
{
	const char *path = make_semlib();
	struct perf_probe p = { .loc = { path, FN(0) }, .cpu = -1, .flags = (long)arg };
	char *text = map_text(path);
	int n, fd, refused = 0;
	bool failed = true;

	if (!prepare())
		return skip("no fault injection in this kernel");
	/* What the library looks up once is not to fail. */
	close(MUST(perf_open(&p)));
	for (n = 1; n < MAX_NTH && failed; n++) {
		arm(n);
		fd = perf_open(&p);
		failed = disarm();
		CHECK(fd >= 0 || fd == -ENOMEM, "allocation %d: error %d", n, -fd);
		if (fd >= 0) {
			call_fn(text, 0, 5);
			CHECK_EQ(perf_count(fd), 5, "allocation %d: hits", n);
			close(fd);
		} else {
			refused++;
		}
		CHECK_EQ(text[FN(0)], ARCH_FN_SIMULATED[0], "allocation %d: text", n);
	}
	CHECK(refused > 3, "only %d allocations were refused", refused);
	return PASS;
}

/*
 * A detach that finds no memory is not undone: what it could not do is done soon. That
 * the probe is gone for good shows in that another one, with another semaphore, may come.
 */
static int detach(const void *arg)
{
	unsigned long offs[] = { FN(0), FN(1) }, sems[] = { SEM(0), SEM(1) }, other[] = { SEM(2), 0 };
	struct multi m = { .offsets = offs, .ref_ctr_offsets = sems, .cnt = 2 };
	struct multi next = { .offsets = offs, .ref_ctr_offsets = other, .cnt = 2 };
	struct perf_probe p = { .ref_ctr_offset = SEM(0), .cpu = -1 };
	bool by_perf = (long)arg, failed = true;
	const char *path = make_semlib();
	char *text = map_text(path);
	volatile short *sem = map_sems(path);
	struct bpf_counter c;
	int n, fd, i, failures = 0;

	if (!prepare())
		return skip("no fault injection in this kernel");
	m.path = next.path = path;
	p.loc = (struct loc){ path, FN(0) };
	bpf_counter_load(&c, NULL);
	for (n = 1; n < MAX_NTH && failed; n++) {
		fd = MUST(by_perf ? perf_open(&p) : multi_attach(&c, &m));
		call_fn(text, 0, 1);
		CHECK_EQ(sem[0], 1, "allocation %d: semaphore, attached", n);
		arm(n);
		close(fd);
		failed = disarm();
		failures += failed;
		for (i = 0; i < 300 && (text[FN(0)] != ARCH_FN_SIMULATED[0] ||
					text[FN(1)] != ARCH_FN_SIMULATED[0] || sem[0] || sem[1]); i++)
			usleep(10000);
		CHECK_EQ(text[FN(0)], ARCH_FN_SIMULATED[0], "allocation %d: text", n);
		CHECK_EQ(text[FN(1)], ARCH_FN_SIMULATED[0], "allocation %d: text of the second", n);
		CHECK_EQ(sem[0], 0, "allocation %d: semaphore", n);
		CHECK_EQ(sem[1], 0, "allocation %d: semaphore of the second", n);
		fd = multi_attach(&c, &next);
		CHECK(fd >= 0, "allocation %d: attach with another semaphore: error %d", n, -fd);
		CHECK_EQ(sem[0], 0, "allocation %d: semaphore of the probe that went", n);
		CHECK_EQ(sem[2], 1, "allocation %d: semaphore of the probe that came", n);
		close(fd);
		CHECK_EQ(sem[2], 0, "allocation %d: semaphore, all detached", n);
	}
	CHECK(failures, "a detach allocates nothing that can fail");
	CHECK(n < MAX_NTH, "no end of allocations");
	return PASS;
}

/* The first hit of a process allocates: it does without, or tries again. */
static int first_hit(const void *arg)
{
	const struct site *site = arg;
	struct bpf_counter entry, ret;
	struct site_state bare;
	bool failed = true;
	int n;

	if (!prepare())
		return skip("no fault injection in this kernel");
	site_random(&bare, 1);
	site_run(site, &bare);
	bpf_counter_load(&entry, NULL);
	bpf_counter_load(&ret, NULL);
	multi_attach_one(&entry, loc_of(site->pc), 0);
	if (site->pc == site->fn)
		multi_attach_one(&ret, loc_of(site->pc), MULTI_RETURN);
	for (n = 1; n < 100 && failed; n++) {
		pid_t pid = MUST(fork());
		int status;

		if (!pid) {
			struct site_state st;
			bool same;

			/* This task's file: the parent's is the parent's. */
			close(fail_nth);
			fail_nth = open("/proc/thread-self/fail-nth", O_RDWR);
			site_random(&st, 1);
			memcpy(site_data, st.data, sizeof(st.data));
			arm(n);
			site_call(site->fn, &st.regs);
			failed = disarm();
			memcpy(st.data, site_data, sizeof(st.data));
			same = site_same(site, &st, &bare);
			/* And it works from then on. */
			site_random(&st, 1);
			site_run(site, &st);
			_exit(!same || !site_same(site, &st, &bare) ? 1 : failed ? 40 : 41);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) >= 40,
		      "%s, allocation %d: status %#x", site->name, n, status);
		failed = WEXITSTATUS(status) == 40;
	}
	CHECK(n > 2, "the hit allocates nothing that can fail");
	CHECK(entry.values[BV_COUNT] >= (uint64_t)n, "hits: %lld", (long long)entry.values[BV_COUNT]);
	return PASS;
}

int main(int argc, char **argv)
{
	static const char *const some[] = { "nop", ARCH_SITE_PUSH, "ret", "add" };
	int i;

	add_test(NULL, attach_multi, (void *)0L, "uprobe_multi");
	add_test(NULL, attach_multi, (void *)(long)MULTI_RETURN, "uprobe_multi, return");
	add_test(NULL, attach_perf, (void *)0L, "perf");
	add_test(NULL, attach_perf, (void *)(long)PERF_RET, "perf, return");
	add_test("F.9", detach, (void *)0L, "detach, uprobe_multi");
	add_test("F.9", detach, (void *)1L, "detach, perf");
	for (i = 0; i < 4; i++)
		add_test(NULL, first_hit, site_by_name(some[i]), "first hit, %s", some[i]);
	return run_tests(argc, argv);
}
