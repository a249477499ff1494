// SPDX-License-Identifier: GPL-2.0
/*
 * Call chains taken while returns are pending show the real callers, not the
 * trampoline whose address is on the stack.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

#define NOINLINE __attribute__((noinline, noclone, aligned(128)))

NOINLINE void nothing(void)
{
	asm volatile("");
}

/* Not a leaf for the compiler, so that it sets up a frame. */
NOINLINE long leaf(long x)
{
	nothing();
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

NOINLINE long level1(long x)
{
	x = leaf(x);
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

NOINLINE long level2(long x)
{
	x = level1(x);
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

NOINLINE long level3(long x)
{
	x = level2(x);
	asm volatile("" : "+r"(x) :: "memory");
	return x + 1;
}

/* An event that takes a call chain at each hit of @addr. */
struct sampler {
	int				fd;
	struct perf_event_mmap_page	*page;
};

static struct sampler sample_at(const void *addr, bool ret)
{
	struct loc loc = loc_of(addr);
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.config = ret,
		.config1 = (unsigned long)loc.path,
		.config2 = loc.offset,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		.exclude_callchain_kernel = 1,
		.wakeup_events = 1,
	};
	struct sampler s;
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");

	CHECK(f && fscanf(f, "%u", &attr.type) == 1, "uprobe PMU");
	fclose(f);
	s.fd = MUST(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
	s.page = mmap(NULL, 9 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
	CHECK(s.page != MAP_FAILED, "mmap of the event: errno %d", errno);
	return s;
}

struct chain {
	int		n;
	unsigned long	ip[64];
};

/* The user part of the only sample. */
static void read_chain(const struct sampler *s, struct chain *c)
{
	unsigned long head = __atomic_load_n(&s->page->data_head, __ATOMIC_ACQUIRE), at = 0;
	char *data = (char *)s->page + 4096;
	int samples = 0;

	c->n = 0;
	while (at < head) {
		struct perf_event_header *h = (void *)(data + at);

		if (h->type == PERF_RECORD_SAMPLE) {
			uint64_t *p = (void *)(h + 1), i, nr = p[1];

			samples++;
			for (i = 0; i < nr && c->n < 64; i++)
				if (p[2 + i] < (uint64_t)-4095)
					c->ip[c->n++] = p[2 + i];
		}
		at += h->size;
	}
	CHECK_EQ(samples, 1, "samples");
}

static bool inside(unsigned long ip, const void *fn)
{
	return ip >= (unsigned long)fn && ip < (unsigned long)fn + 128;
}

static bool in_program(unsigned long ip)
{
	extern const char __executable_start[], etext[];

	return ip >= (unsigned long)__executable_start && ip < (unsigned long)etext;
}

static void check_chain(const struct chain *c, const void *const *want, int n)
{
	int i;

	for (i = 0; i < c->n; i++)
		CHECK(in_program(c->ip[i]) || i >= n,
		      "entry %d is %#lx, outside the program", i, c->ip[i]);
	CHECK(c->n >= n, "only %d entries", c->n);
	for (i = 0; i < n; i++)
		CHECK(inside(c->ip[i], want[i]), "entry %d is %#lx, not in the function at %p",
		      i, c->ip[i], want[i]);
}

/* How many of the four functions have a return probe. */
static int at_entry(const void *arg)
{
	static const void *const want[] = ARCH_CHAIN_AT_ENTRY;
	static const void *const fns[] = { leaf, level1, level2, level3 };
	struct bpf_counter r[4];
	struct sampler s;
	struct chain c;
	long mask = (long)arg;
	int i;

	for (i = 0; i < 4; i++) {
		bpf_counter_load(&r[i], NULL);
		if (mask & 1 << i)
			multi_attach_one(&r[i], loc_of(fns[i]), MULTI_RETURN);
	}
	s = sample_at(leaf, false);
	CHECK_EQ(level3(0), 4, "level3()");
	for (i = 0; i < 4; i++)
		CHECK_EQ(r[i].values[BV_COUNT], mask >> i & 1, "returns of function %d", i);
	read_chain(&s, &c);
	check_chain(&c, want, sizeof(want) / sizeof(want[0]));
	return PASS;
}

static int at_return(const void *arg)
{
	static const void *const want[] = ARCH_CHAIN_AT_RETURN;
	static const void *const fns[] = { level1, level2, level3 };
	struct bpf_counter r[3];
	struct sampler s;
	struct chain c;
	long mask = (long)arg;
	int i;

	for (i = 0; i < 3; i++) {
		bpf_counter_load(&r[i], NULL);
		if (mask & 1 << i)
			multi_attach_one(&r[i], loc_of(fns[i]), MULTI_RETURN);
	}
	s = sample_at(leaf, true);
	CHECK_EQ(level3(0), 4, "level3()");
	for (i = 0; i < 3; i++)
		CHECK_EQ(r[i].values[BV_COUNT], mask >> i & 1, "returns of function %d", i);
	read_chain(&s, &c);
	check_chain(&c, want, sizeof(want) / sizeof(want[0]));
	return PASS;
}

int main(int argc, char **argv)
{
	long mask;

	for (mask = 0; mask < 16; mask++)
		if (!ARCH_CHAIN_CONFUSED(mask))
			add_test(NULL, at_entry, (void *)mask,
				 "chain at an entry, return probes %#lx", mask);
	for (mask = 0; mask < 8; mask++)
		add_test(NULL, at_return, (void *)mask, "chain at a return, return probes %#lx", mask);
	return run_tests(argc, argv);
}
