// SPDX-License-Identifier: GPL-2.0
/*
 * The instruction matrix: random instructions with random registers, flags,
 * vector registers and memory, each run bare and probed at the same address.
 * All that a program can see of the two runs must be equal, and the probed run
 * is one hit.
 *
 * UPT_SEED=n repeats a run. The seed is printed with each test.
 *
 * arch/<isa>/insn_gen.h makes the instructions, arch/<isa>/machine.h gets into one
 * with known registers and out of it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"
#include "sites.h"

/* How a run ended: at the next instruction, at another one, by a signal. */
enum { EXIT_NEXT = 1, EXIT_OTHER, EXIT_SIGNAL };

#include "arch/machine.h"

#define SLOTS		256
#define CODE_SIZE	(SLOTS * SLOT)
#define DATA_SIZE	4096UL

/* All that can be seen of a run. */
struct outcome {
	struct machine	m;
	uint64_t	exit;
	int		sig, code;
	uint64_t	addr, ip;
	uint64_t	data_hash, stack_hash;
};

static struct insn insns[SLOTS];
static struct outcome bare[SLOTS], probed;
static sigjmp_buf back;
static struct outcome *signal_outcome;

static void on_signal(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;

	mach_exit = mach_leave(sig, uc);
	signal_outcome->ip = UC_IP(uc);
	if (mach_exit == EXIT_SIGNAL) {
		signal_outcome->sig = sig;
		signal_outcome->code = si->si_code;
		signal_outcome->addr = (uint64_t)si->si_addr;
	}
	siglongjmp(back, 1);
}

static uint64_t hash(const uint8_t *p, unsigned long n)
{
	uint64_t h = 0xcbf29ce484222325;

	while (n--)
		h = (h ^ *p++) * 0x100000001b3;
	return h;
}

static unsigned long slot_at(int slot)
{
	return CODE_AT + slot * SLOT;
}

static void run_slot(int slot, uint64_t seed, struct outcome *out)
{
	const struct insn *in = &insns[slot];
	uint64_t s = seed * 1000003 + slot, i;
	uint64_t *data = (void *)DATA_AT, *stack = (void *)STACK_AT;

	memset(out, 0, sizeof(*out));
	memset(&mach, 0, sizeof(mach));
	for (i = 0; i < DATA_SIZE / 8; i++) {
		data[i] = random64(&s);
		stack[i] = random64(&s);
	}
	mach_random(in, slot_at(slot), &s);
	mach_exit = 0;
	signal_outcome = out;
	if (!sigsetjmp(back, 0))
		mach_enter(slot_at(slot));
	out->exit = mach_exit;
	out->m = mach;
	out->data_hash = hash((void *)data, DATA_SIZE);
	out->stack_hash = hash((void *)stack, DATA_SIZE);
}

static void explain(int slot, const struct outcome *a, const struct outcome *b)
{
	char hex[64];
	int i, n = 0;

	for (i = 0; i < insns[slot].len; i++)
		n += sprintf(hex + n, "%02x ", insns[slot].bytes[i]);
	diag("instruction %s", hex);
	if (a->exit != b->exit)
		diag("  left by %d (1: next, 2: elsewhere, 3: signal), bare %d", (int)b->exit, (int)a->exit);
	if (a->sig != b->sig || a->code != b->code || a->addr != b->addr || a->ip != b->ip)
		diag("  signal %d code %d addr %#lx ip %#lx, bare %d %d %#lx %#lx", b->sig, b->code,
		     (long)b->addr, (long)b->ip, a->sig, a->code, (long)a->addr, (long)a->ip);
	mach_explain(&b->m, &a->m);
	if (a->data_hash != b->data_hash)
		diag("  memory differs");
	if (a->stack_hash != b->stack_hash)
		diag("  stack differs");
}

static uint64_t the_seed(void)
{
	const char *s = getenv("UPT_SEED");
	struct timespec ts;

	if (s)
		return strtoull(s, NULL, 0);
	if (!full_run())
		return 1;
	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_nsec ^ ts.tv_sec << 20;
}

static void map_code(const char *path)
{
	int fd = MUST(open(path, O_RDONLY));

	CHECK(mmap((void *)CODE_AT, CODE_SIZE, PROT_READ | PROT_EXEC,
		   MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) == (void *)CODE_AT, "mmap the code");
	close(fd);
}

/* Writes a file of instructions, each with its two exits behind it. */
static const char *write_code(const struct insn_class *c)
{
	static uint8_t code[CODE_SIZE];
	const char *path = tmp_path("insns");
	int slot, fd;

	for (slot = 0; slot < SLOTS; slot++) {
		gen_insn(&insns[slot], c, slot_at(slot));
		mach_slot(code + slot * SLOT, &insns[slot]);
	}
	fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755));
	CHECK(write(fd, code, sizeof(code)) == sizeof(code), "write");
	close(fd);
	return path;
}

static void one_round(const struct insn_class *c, uint64_t seed, int *accepted, int *differ)
{
	unsigned long offs[SLOTS];
	struct bpf_counter cnt;
	struct multi m = { .offsets = offs, .cnt = SLOTS };
	const char *path;
	int slot, link;

	gen_state = seed;
	path = write_code(c);
	map_code(path);
	for (slot = 0; slot < SLOTS; slot++) {
		run_slot(slot, seed, &bare[slot]);
		offs[slot] = slot * SLOT;
	}
	MUST(munmap((void *)CODE_AT, CODE_SIZE));

	/*
	 * Attached before the file is mapped, so that one refused instruction
	 * does not make the whole link fail: it just gets no breakpoint.
	 */
	bpf_counter_load(&cnt, NULL);
	m.path = path;
	link = MUST(multi_attach(&cnt, &m));
	map_code(path);
	for (slot = 0; slot < SLOTS; slot++) {
		uint64_t hits = cnt.values[BV_COUNT];
		char hex[64];
		int i, n = 0;

		if (!memcmp((void *)slot_at(slot), insns[slot].bytes, insns[slot].len)) {
			if (!c->all)
				continue;
			for (i = 0; i < insns[slot].len; i++)
				n += sprintf(hex + n, "%02x ", insns[slot].bytes[i]);
			if (++*differ <= 5)
				diag("refused: %s", hex);
			continue;
		}
		++*accepted;
		run_slot(slot, seed, &probed);
		hits = cnt.values[BV_COUNT] - hits;
		if (!memcmp(&bare[slot], &probed, sizeof(probed)) && hits == 1)
			continue;
		if (++*differ > 5)
			continue;
		explain(slot, &bare[slot], &probed);
		if (hits != 1)
			diag("  %d hits", (int)hits);
	}
	close(link);
	for (slot = 0; slot < SLOTS; slot++)
		if (memcmp((void *)slot_at(slot), insns[slot].bytes, insns[slot].len) &&
		    !mach_leaves_trace(&insns[slot]))
			CHECK(false, "slot %d: text after the detach", slot);
	MUST(munmap((void *)CODE_AT, CODE_SIZE));
	bpf_counter_free(&cnt);
	unlink(path);
}

/* A debug kernel is ten times slower, and looks at the kernel, not at the instructions. */
static int nr_rounds(void)
{
	const char *profile = getenv("PROFILE");

	if (!full_run())
		return 2;
	return profile && !strcmp(profile, "debug") ? 4 : 40;
}

static int matrix(const void *arg)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	static char stack[65536] __attribute__((aligned(16)));
	const struct insn_class *c = arg;
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = on_signal,
				.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	int i, rounds = nr_rounds(), accepted = 0, differ = 0;
	uint64_t seed = the_seed();

	MUST(sigaltstack(&ss, NULL));
	for (i = 0; i < 5; i++)
		MUST(sigaction(sigs[i], &sa, NULL));
	CHECK(mmap((void *)DATA_AT, DATA_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)DATA_AT, "mmap");
	CHECK(mmap((void *)STACK_AT, DATA_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)STACK_AT, "mmap");
#ifdef READ_ONLY_AT
	CHECK(mmap((void *)READ_ONLY_AT, DATA_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
		   MAP_FIXED_NOREPLACE, -1, 0) == (void *)READ_ONLY_AT, "mmap");
#endif
	if (mach_lacks(c))
		return skip("%s", mach_lacks(c));
	for (i = 0; i < rounds; i++)
		one_round(c, seed + i * 7919, &accepted, &differ);
	diag("seed %llu: %d of %d instructions probed", (long long)seed, accepted, rounds * SLOTS);
	CHECK_EQ(differ, 0, "instructions that differ or are refused");
	CHECK(accepted * 100 >= rounds * (int)SLOTS * c->percent, "too few instructions were accepted");
	return PASS;
}

int main(int argc, char **argv)
{
	unsigned int i;

	set_timeout(full_run() ? 180 : 30);
	for (i = 0; i < sizeof(insn_classes) / sizeof(insn_classes[0]); i++)
		add_test(insn_classes[i].fault, matrix, &insn_classes[i], "%s", insn_classes[i].name);
	return run_tests(argc, argv);
}
