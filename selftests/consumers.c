// SPDX-License-Identifier: GPL-2.0
/*
 * Several consumers on one site: filters by process, verdicts (remove, ignore),
 * sessions, cookies, handlers that change registers.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"
#include "worker.h"

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE long target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

NOINLINE long other_target(long x)
{
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1000;
}

NOINLINE long recurse(long depth)
{
	long r = 1;

	if (depth > 1)
		r += recurse(depth - 1);
	asm volatile("" : "+r"(r) :: "memory");
	return r;
}

static void *call_target(void *n)
{
	long i;

	for (i = 0; i < (long)n; i++)
		if (target(i) != i + 1)
			return (void *)1;
	return NULL;
}

/* Orders to a worker: calls to make, or one of these. */
#define ORDER_TEXT_CLEAN	-1	/* 1: no breakpoint in the text */
#define ORDER_IN_THREAD		-2	/* 10 calls in a new thread */

static long do_order(long order)
{
	pthread_t t;
	void *r;

	switch (order) {
	case ORDER_TEXT_CLEAN:
		return text_equals_file(target, 16);
	case ORDER_IN_THREAD:
		pthread_create(&t, NULL, call_target, (void *)10);
		pthread_join(t, &r);
		return (long)r;
	default:
		return (long)call_target((void *)order);
	}
}

static int perf_pid_filters(const void *arg)
{
	struct perf_probe p = { .loc = loc_of(target), .cpu = -1 };
	struct perf_all all;
	struct worker a, b;
	int for_a, for_b, self;

	worker_start(&a, do_order);
	worker_start(&b, do_order);
	p.pid = a.pid;
	for_a = MUST(perf_open(&p));
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 1, "text of a process that nobody probes");
	CHECK_EQ(worker_do(&a, ORDER_TEXT_CLEAN), 0, "text of the probed process");
	p.pid = b.pid;
	for_b = MUST(perf_open(&p));
	p.pid = 0;
	self = MUST(perf_open(&p));
	perf_attach_all(&all, p.loc, 0);

	CHECK_EQ(worker_do(&a, 30), 0, "a");
	CHECK_EQ(worker_do(&b, 50), 0, "b");
	call_target((void *)7);
	CHECK_EQ(perf_count(for_a), 30, "event of a");
	CHECK_EQ(perf_count(for_b), 50, "event of b");
	CHECK_EQ(perf_count(self), 7, "event of this process");
	CHECK_EQ(perf_count_all(&all), 87, "system-wide events");

	perf_detach_all(&all);
	close(for_a);
	CHECK_EQ(worker_do(&a, ORDER_TEXT_CLEAN), 1, "text of a after its event went");
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 0, "text of b, still probed");
	CHECK_EQ(worker_do(&a, 5), 0, "a");
	CHECK_EQ(worker_do(&b, 5), 0, "b");
	CHECK_EQ(perf_count(for_b), 55, "event of b");
	close(for_b);
	close(self);
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 1, "text of b after its event went");
	worker_stop(&a);
	worker_stop(&b);
	return PASS;
}

static int multi_pid_filter(const void *arg)
{
	unsigned long off = loc_of(target).offset;
	struct multi m = { .path = self_path(), .offsets = &off, .cnt = 1 };
	struct bpf_counter ca, cb, call;
	int la, lb, lall;
	struct worker a, b;

	bpf_counter_load(&ca, NULL);
	bpf_counter_load(&cb, NULL);
	bpf_counter_load(&call, NULL);
	worker_start(&a, do_order);
	worker_start(&b, do_order);
	m.pid = a.pid;
	la = MUST(multi_attach(&ca, &m));
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 1, "text of a process that nobody probes");
	worker_do(&b, 5);
	m.pid = b.pid;
	lb = MUST(multi_attach(&cb, &m));
	worker_do(&a, 20);
	worker_do(&a, ORDER_IN_THREAD);
	worker_do(&b, 40);
	CHECK_EQ(ca.values[BV_COUNT], 30, "link of a, its threads included");
	CHECK_EQ(cb.values[BV_COUNT], 40, "link of b");
	m.pid = 0;
	lall = MUST(multi_attach(&call, &m));
	worker_do(&a, 3);
	worker_do(&b, 4);
	call_target((void *)5);
	CHECK_EQ(ca.values[BV_COUNT], 33, "link of a");
	CHECK_EQ(cb.values[BV_COUNT], 44, "link of b");
	CHECK_EQ(call.values[BV_COUNT], 12, "link of all");
	close(lall);
	close(la);
	CHECK_EQ(worker_do(&a, ORDER_TEXT_CLEAN), 1, "text of a after its link went");
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 0, "text of b");
	close(lb);
	CHECK_EQ(worker_do(&b, ORDER_TEXT_CLEAN), 1, "text of b after its link went");
	return PASS;
}

/*
 * A child inherits the breakpoint of an event that is not for it: its first hit
 * makes the consumer ask for removal, from the child only.
 */
static int remove_verdict(const void *arg)
{
	struct perf_probe p = { .loc = loc_of(target), .cpu = -1 };
	struct worker w;
	int fd = MUST(perf_open(&p));

	worker_start(&w, do_order);
	CHECK_EQ(worker_do(&w, ORDER_TEXT_CLEAN), 0, "the copied breakpoint");
	CHECK_EQ(worker_do(&w, 1), 0, "first hit in the child");
	CHECK_EQ(worker_do(&w, ORDER_TEXT_CLEAN), 1, "the child's text after a hit");
	CHECK_EQ(worker_do(&w, 10), 0, "more calls");
	CHECK(!text_equals_file(target, ARCH_BREAKPOINT_LEN), "the parent lost its breakpoint");
	call_target((void *)10);
	CHECK_EQ(perf_count(fd), 10, "event of the parent");
	close(fd);
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	worker_stop(&w);
	return PASS;
}

/* One consumer wants it removed, another one still needs it. */
static int remove_denied(const void *arg)
{
	struct perf_probe p = { .loc = loc_of(target), .cpu = -1 };
	unsigned long off = p.loc.offset;
	struct multi m = { .path = self_path(), .offsets = &off, .cnt = 1 };
	struct bpf_counter c;
	struct worker w;
	int fd, link;

	bpf_counter_load(&c, NULL);
	fd = MUST(perf_open(&p));
	worker_start(&w, do_order);
	m.pid = w.pid;
	link = MUST(multi_attach(&c, &m));
	CHECK_EQ(worker_do(&w, 25), 0, "calls of the child");
	CHECK_EQ(worker_do(&w, ORDER_TEXT_CLEAN), 0, "the child's breakpoint");
	CHECK_EQ(c.values[BV_COUNT], 25, "link of the child");
	close(link);
	/*
	 * The breakpoint stays or goes with the link, as the implementation
	 * likes; after the next hit it is gone.
	 */
	CHECK_EQ(worker_do(&w, 1), 0, "a call after the link went");
	CHECK_EQ(worker_do(&w, ORDER_TEXT_CLEAN), 1, "the child's text after a hit");
	call_target((void *)10);
	CHECK_EQ(perf_count(fd), 10, "event of the parent");
	return PASS;
}

static int cookies(const void *arg)
{
	unsigned long offs[3] = {
		loc_of(target).offset, loc_of(other_target).offset, loc_of(recurse).offset,
	};
	uint64_t cookies[3] = { 1, 1000, 1000000 };
	struct multi m = { .path = self_path(), .offsets = offs, .cookies = cookies, .cnt = 3 };
	struct bpf_counter c, r;
	int i;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_COOKIE });
	bpf_counter_load(&r, &(struct bpf_what){ .flags = BP_COOKIE });
	MUST(multi_attach(&c, &m));
	m.flags = MULTI_RETURN;
	MUST(multi_attach(&r, &m));
	for (i = 0; i < 3; i++)
		target(i);
	for (i = 0; i < 5; i++)
		other_target(i);
	CHECK_EQ(recurse(7), 7, "recurse()");
	CHECK_EQ(c.values[BV_COOKIE], 7005003, "cookies at entries");
	CHECK_EQ(r.values[BV_COOKIE], 7005003, "cookies at returns");
	CHECK_EQ(c.values[BV_COUNT], 15, "entries");
	CHECK_EQ(r.values[BV_COUNT], 15, "returns");
	return PASS;
}

#define MANY 20

static int many_consumers(const void *arg)
{
	struct bpf_counter c[MANY];
	int link[MANY], i, k, fd, gone;
	uint64_t seed = 3, want[MANY] = { 0 };

	fd = perf_attach(loc_of(target), 0);
	for (i = 0; i < MANY; i++) {
		bpf_counter_load(&c[i], NULL);
		link[i] = multi_attach_one(&c[i], loc_of(target), i & 1 ? MULTI_RETURN : 0);
	}
	for (gone = 0; gone < MANY; gone++) {
		call_target((void *)3);
		for (i = 0; i < MANY; i++)
			if (link[i] >= 0)
				want[i] += 3;
		do
			k = random64(&seed) % MANY;
		while (link[k] < 0);
		close(link[k]);
		link[k] = -1;
	}
	for (i = 0; i < MANY; i++)
		CHECK_EQ(c[i].values[BV_COUNT], want[i], "consumer %d", i);
	CHECK_EQ(perf_count(fd), 3 * MANY, "the perf event");
	close(fd);
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

static int same_site_twice(const void *arg)
{
	unsigned long off = loc_of(target).offset, offs[2] = { off, off };
	struct multi m = { .path = self_path(), .offsets = offs, .cnt = 2 };
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, NULL);
	link = MUST(multi_attach(&c, &m));
	call_target((void *)10);
	CHECK_EQ(c.values[BV_COUNT], 20, "two consumers of one link");
	close(link);
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

/* One link over all sites that C accepts. */
static int all_sites(const void *arg)
{
	unsigned long offs[256];
	struct multi m = { .path = self_path(), .offsets = offs };
	struct bpf_counter c;
	int i, n, link;

	for (i = 0; i < nr_sites; i++)
		if (!sites[i].fault)
			offs[m.cnt++] = loc_of(sites[i].pc).offset;
	bpf_counter_load(&c, NULL);
	link = MUST(multi_attach(&c, &m));
	for (n = 0; n < 10; n++) {
		for (i = 0; i < nr_sites; i++) {
			struct site_state st;

			if (sites[i].fault)
				continue;
			site_random(&st, n);
			site_run(&sites[i], &st);
		}
	}
	CHECK_EQ(c.values[BV_COUNT], 10 * m.cnt, "hits of %d sites", m.cnt);
	close(link);
	return PASS;
}

static int attach_session(struct bpf_counter *c, const void *fn, int verdict)
{
	unsigned long off = loc_of(fn).offset;
	struct multi m = { .path = self_path(), .offsets = &off, .cnt = 1, .session = true };

	bpf_counter_load(c, &(struct bpf_what){ .flags = BP_SPLIT | BP_SESSION,
						.retval = verdict, .split_ip = (long)fn });
	return MUST(multi_attach(c, &m));
}

static int session(const void *arg)
{
	struct bpf_counter c;
	int link = attach_session(&c, target, 0);

	call_target((void *)30);
	CHECK_EQ(c.values[BV_ENTRY], 30, "entries");
	CHECK_EQ(c.values[BV_RETURN], 30, "returns");
	close(link);
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

static int session_ignore(const void *arg)
{
	struct bpf_counter c;
	int link = attach_session(&c, target, 1);

	call_target((void *)30);
	CHECK_EQ(c.values[BV_ENTRY], 30, "entries");
	CHECK_EQ(c.values[BV_RETURN], 0, "returns of ignored calls");
	close(link);
	return PASS;
}

/* Each session decides for itself; a plain return probe is not concerned. */
static int session_mixed(const void *arg)
{
	struct bpf_counter yes[3], no[3], ret, entry;
	int i;

	for (i = 0; i < 3; i++) {
		attach_session(&yes[i], target, 0);
		attach_session(&no[i], target, 1);
	}
	bpf_counter_load(&ret, NULL);
	bpf_counter_load(&entry, NULL);
	multi_attach_one(&ret, loc_of(target), MULTI_RETURN);
	multi_attach_one(&entry, loc_of(target), 0);
	call_target((void *)25);
	for (i = 0; i < 3; i++) {
		CHECK_EQ(yes[i].values[BV_ENTRY], 25, "session %d, entries", i);
		CHECK_EQ(yes[i].values[BV_RETURN], 25, "session %d, returns", i);
		CHECK_EQ(no[i].values[BV_ENTRY], 25, "ignoring session %d, entries", i);
		CHECK_EQ(no[i].values[BV_RETURN], 0, "ignoring session %d, returns", i);
	}
	CHECK_EQ(ret.values[BV_COUNT], 25, "plain return probe");
	CHECK_EQ(entry.values[BV_COUNT], 25, "plain entry probe");
	return PASS;
}

static int session_recursion(const void *arg)
{
	struct bpf_counter c;

	attach_session(&c, recurse, 0);
	CHECK_EQ(recurse(100), 100, "recurse()");
	CHECK_EQ(c.values[BV_ENTRY], 100, "entries");
	CHECK_EQ(c.values[BV_RETURN], 64, "returns, at most 64 pending");
	return PASS;
}

/*
 * Session cookies are reached by a kernel function, which a program can call
 * only where the kernel has BTF. Finds the BTF id of @name there.
 */
struct btf_hdr { uint16_t magic; uint8_t version, flags; uint32_t hdr_len, type_off, type_len,
		 str_off, str_len; };
struct btf_ty { uint32_t name_off, info, size; };

static int btf_func_id(const char *name)
{
	/* words that follow a type of each kind, per member where negative */
	static const signed char extra[32] = {
		[1] = 1, [3] = 3, [4] = -3, [5] = -3, [6] = -2, [13] = -2, [14] = 1,
		[15] = -3, [17] = 1, [19] = -3,
	};
	static char btf[16 << 20];
	struct btf_hdr *h = (void *)btf;
	FILE *f = fopen("/sys/kernel/btf/vmlinux", "r");
	uint32_t *p, *end;
	int id = 1;

	if (!f)
		return 0;
	if (fread(btf, 1, sizeof(btf), f) < sizeof(*h))
		return 0;
	fclose(f);
	p = (void *)(btf + h->hdr_len + h->type_off);
	end = (void *)((char *)p + h->type_len);
	for (; p < end; id++) {
		struct btf_ty *t = (void *)p;
		int kind = t->info >> 24 & 31, vlen = t->info & 0xffff;

		if (kind == 12 && !strcmp(btf + h->hdr_len + h->str_off + t->name_off, name))
			return id;
		p += 3 + (extra[kind] < 0 ? -extra[kind] * vlen : extra[kind]);
	}
	return 0;
}

static int session_cookie(const void *arg)
{
	int is_return = btf_func_id("bpf_session_is_return");
	int cookie = btf_func_id("bpf_session_cookie");
	unsigned long off = loc_of(recurse).offset;
	struct multi m = { .path = self_path(), .offsets = &off, .cnt = 1, .session = true };
	struct bpf_counter c;

	if (!is_return || !cookie)
		return skip("the kernel has no BTF");
	bpf_counter_load(&c, NULL);
	close(c.prog);
	/*
	 * Entry: cookie = depth (first argument). Return: what was stored for
	 * this very call is summed up, weighted by the value returned, which is
	 * the depth as well.
	 */
	struct bpf_insn p[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, is_return },
		{ BPF_ALU64 | BPF_MOV | BPF_X, 7, 0, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, cookie },
		{ BPF_ALU64 | BPF_AND | BPF_K, 7, 0, 0, 255 },
		{ BPF_JMP | BPF_JNE | BPF_K, 7, 0, 3, 0 },
		{ BPF_LDX | BPF_DW | BPF_MEM, 1, 6, ARCH_PT_REGS_ARG0, 0 },
		{ BPF_STX | BPF_DW | BPF_MEM, 0, 1, 0, 0 },
		{ BPF_JMP | BPF_JA, 0, 0, 6, 0 },
		{ BPF_LDX | BPF_DW | BPF_MEM, 1, 0, 0, 0 },
		{ BPF_LDX | BPF_DW | BPF_MEM, 2, 6, ARCH_PT_REGS_RV, 0 },
		{ BPF_ALU64 | BPF_MUL | BPF_X, 1, 2, 0, 0 },
		{ BPF_LD | BPF_DW | BPF_IMM, 2, BPF_PSEUDO_MAP_VALUE, 0, c.map },
		{ 0, 0, 0, 0, BV_RETURN * 8 },
		{ BPF_STX | BPF_DW | BPF_ATOMIC, 2, 1, 0, BPF_ADD },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	c.prog = MUST(bpf_prog_load_raw(p, sizeof(p) / sizeof(*p), BPF_TRACE_UPROBE_SESSION));
	MUST(multi_attach(&c, &m));
	CHECK_EQ(recurse(10), 10, "recurse()");
	CHECK_EQ(c.values[BV_RETURN], 385, "sum of squares: each return has its call's cookie");
	return PASS;
}

/* The handler moves the program elsewhere: the probed instruction is not run. */
static int change_ip(const void *arg)
{
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_SET_REG, .set_off = ARCH_PT_REGS_IP,
						 .set_val = (long)other_target });
	link = multi_attach_one(&c, loc_of(target), 0);
	CHECK_EQ(target(5), 1005, "target(), redirected");
	CHECK_EQ(c.values[BV_COUNT], 1, "hits");
	close(link);
	CHECK_EQ(target(5), 6, "target() after the detach");
	return PASS;
}

static int change_argument(const void *arg)
{
	struct bpf_counter c;
	int link;

	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_SET_REG, .set_off = ARCH_PT_REGS_ARG0,
						 .set_val = 41 });
	link = multi_attach_one(&c, loc_of(target), 0);
	CHECK_EQ(target(5), 42, "target(), its argument changed");
	close(link);
	CHECK_EQ(target(5), 6, "target() after the detach");
	return PASS;
}

/* A BPF program on a perf event; the event counts what the program lets pass. */
static int perf_bpf(const void *arg)
{
	struct bpf_counter c;
	int fd = perf_attach(loc_of(target), 0);

	bpf_counter_load(&c, &(struct bpf_what){ .retval = 1 });
	close(c.prog);
	struct bpf_insn p[] = {
		{ BPF_LD | BPF_DW | BPF_IMM, 2, BPF_PSEUDO_MAP_VALUE, 0, c.map },
		{ 0, 0, 0, 0, BV_COUNT * 8 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1 },
		{ BPF_STX | BPF_DW | BPF_ATOMIC, 2, 1, 0, BPF_ADD },
		{ BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	c.prog = MUST(bpf_prog_load_raw(p, sizeof(p) / sizeof(*p), 0));
	MUST(ioctl(fd, PERF_EVENT_IOC_SET_BPF, c.prog));
	call_target((void *)20);
	CHECK_EQ(c.values[BV_COUNT], 20, "the program's count");
	CHECK_EQ(perf_count(fd), 20, "the event's count");
	close(fd);
	call_target((void *)20);
	CHECK_EQ(c.values[BV_COUNT], 20, "the program's count after the close");
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

static int perf_enable_disable(const void *arg)
{
	int fd = perf_attach(loc_of(target), 0), i;

	for (i = 1; i <= 5; i++) {
		call_target((void *)10);
		MUST(ioctl(fd, PERF_EVENT_IOC_DISABLE, 0));
		call_target((void *)10);
		MUST(ioctl(fd, PERF_EVENT_IOC_ENABLE, 0));
		CHECK_EQ(perf_count(fd), 10 * i, "calls while enabled");
	}
	close(fd);
	CHECK(text_equals_file(target, ARCH_BREAKPOINT_LEN), "breakpoint left behind");
	return PASS;
}

/* The tracer is killed; its victim is as before. */
static int tracer_killed(const void *arg)
{
	struct worker victim;
	int status, ready[2];
	pid_t tracer;
	char c;

	worker_start(&victim, do_order);
	MUST(pipe(ready));
	tracer = MUST(fork());
	if (!tracer) {
		struct bpf_counter cnt;
		struct perf_all all;

		bpf_counter_load(&cnt, NULL);
		multi_attach_one(&cnt, loc_of(target), 0);
		perf_attach_all(&all, loc_of(target), PERF_RET);
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1, "the tracer attached");
	CHECK_EQ(worker_do(&victim, ORDER_TEXT_CLEAN), 0, "text while probed");
	CHECK_EQ(worker_do(&victim, 10), 0, "calls while probed");
	kill(tracer, SIGKILL);
	CHECK_EQ(waitpid(tracer, &status, 0), tracer, "waitpid");
	/* Links and events go with the last reference, a little later. */
	for (int i = 0; i < 200 && !worker_do(&victim, ORDER_TEXT_CLEAN); i++)
		usleep(10000);
	CHECK_EQ(worker_do(&victim, ORDER_TEXT_CLEAN), 1, "text after the tracer's death");
	CHECK_EQ(worker_do(&victim, 10), 0, "calls afterwards");
	return PASS;
}

int main(int argc, char **argv)
{
	add_test(NULL, perf_pid_filters, NULL, "perf events with pid filters");
	add_test(NULL, multi_pid_filter, NULL, "uprobe_multi with pid filters");
	add_test(NULL, remove_verdict, NULL, "REMOVE verdict in a child");
	add_test(NULL, remove_denied, NULL, "REMOVE verdict outvoted");
	add_test(NULL, cookies, NULL, "attach cookies");
	add_test(NULL, many_consumers, NULL, "twenty consumers, detached in any order");
	add_test(NULL, same_site_twice, NULL, "one link, one site twice");
	add_test(NULL, all_sites, NULL, "one link, all sites");
	add_test(NULL, session, NULL, "session");
	add_test(NULL, session_ignore, NULL, "session with IGNORE verdict");
	add_test(NULL, session_mixed, NULL, "sessions of both verdicts");
	add_test(NULL, session_recursion, NULL, "session, recursion 100 deep");
	add_test(NULL, session_cookie, NULL, "session cookie");
	add_test(NULL, change_ip, NULL, "handler changes the instruction pointer");
	add_test(NULL, change_argument, NULL, "handler changes an argument");
	add_test(NULL, perf_bpf, NULL, "BPF program on a perf event");
	add_test(NULL, perf_enable_disable, NULL, "perf event disabled and enabled");
	add_test(NULL, tracer_killed, NULL, "tracer killed");
	return run_tests(argc, argv);
}
