// SPDX-License-Identifier: GPL-2.0
/*
 * The instruction matrix: random instructions with random registers, flags,
 * vector registers and memory, each run bare and probed at the same address.
 * All that a program can see of the two runs must be equal, and the probed run
 * is one hit.
 *
 * UPT_SEED=n repeats a run. The seed is printed with each test.
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
#include "arch/insn_gen.h"

#define SLOT		128UL		/* bytes for an instruction and its exits */
#define SLOTS		256
#define CODE_SIZE	(SLOTS * SLOT)
#define DATA_SIZE	4096UL

/* Registers as the instruction finds or leaves them; used by the assembly below. */
struct machine {
	uint64_t	gpr[NR_GPR];
	uint64_t	flags;
	uint8_t		ymm[16][32];
} mach __attribute__((aligned(64)));

void *mach_entry;
uint64_t mach_saved_rsp, mach_exit;
uint32_t mach_has_avx;

/* Loads @mach and jumps to mach_entry; the exits come back from there. */
void mach_run(void);
extern const char mach_exit_next[], mach_exit_other[];

#define YMM(op, n)	op " %ymm" #n ", mach+136+32*" #n "(%rip)\n"
#define LOAD_YMM(n)	"vmovdqu mach+136+32*" #n "(%rip), %ymm" #n "\n"
#define XMM(n)		"movdqu %xmm" #n ", mach+136+32*" #n "(%rip)\n"
#define LOAD_XMM(n)	"movdqu mach+136+32*" #n "(%rip), %xmm" #n "\n"
#define ALL(m)		m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) \
			m(13) m(14) m(15)
#define STORE_YMM(n)	YMM("vmovdqu", n)

asm(".pushsection .text\n"
    ".globl mach_run, mach_exit_next, mach_exit_other\n"
    "mach_run:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, mach_saved_rsp(%rip)\n"
    "cmpl $0, mach_has_avx(%rip)\njz 1f\n"
    ALL(LOAD_YMM)
    "jmp 2f\n1:\n"
    ALL(LOAD_XMM)
    "2:\n"
    "push mach+128(%rip)\npopfq\n"
    "mov mach+0(%rip), %rax\nmov mach+8(%rip), %rcx\nmov mach+16(%rip), %rdx\n"
    "mov mach+24(%rip), %rbx\nmov mach+32(%rip), %rsp\nmov mach+40(%rip), %rbp\n"
    "mov mach+48(%rip), %rsi\nmov mach+56(%rip), %rdi\nmov mach+64(%rip), %r8\n"
    "mov mach+72(%rip), %r9\nmov mach+80(%rip), %r10\nmov mach+88(%rip), %r11\n"
    "mov mach+96(%rip), %r12\nmov mach+104(%rip), %r13\nmov mach+112(%rip), %r14\n"
    "mov mach+120(%rip), %r15\n"
    "jmp *mach_entry(%rip)\n"
    "mach_exit_other:\n"
    "movq $2, mach_exit(%rip)\njmp 3f\n"
    "mach_exit_next:\n"
    "movq $1, mach_exit(%rip)\n"
    "3:\n"
    "mov %rax, mach+0(%rip)\nmov %rcx, mach+8(%rip)\nmov %rdx, mach+16(%rip)\n"
    "mov %rbx, mach+24(%rip)\nmov %rsp, mach+32(%rip)\nmov %rbp, mach+40(%rip)\n"
    "mov %rsi, mach+48(%rip)\nmov %rdi, mach+56(%rip)\nmov %r8, mach+64(%rip)\n"
    "mov %r9, mach+72(%rip)\nmov %r10, mach+80(%rip)\nmov %r11, mach+88(%rip)\n"
    "mov %r12, mach+96(%rip)\nmov %r13, mach+104(%rip)\nmov %r14, mach+112(%rip)\n"
    "mov %r15, mach+120(%rip)\n"
    "mov mach_saved_rsp(%rip), %rsp\n"
    "pushfq\npop mach+128(%rip)\n"
    "pushq $2\npopfq\n"
    "cmpl $0, mach_has_avx(%rip)\njz 4f\n"
    ALL(STORE_YMM)
    "vzeroupper\n"
    "jmp 5f\n4:\n"
    ALL(XMM)
    "5:\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"
    "ret\n"
    ".popsection");

/* All that can be seen of a run. */
struct outcome {
	struct machine	m;
	uint64_t	exit;		/* 1: next instruction, 2: the other exit, 3: signal */
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
	static const int reg[NR_GPR] = {
		REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
	};
	ucontext_t *uc = ctx;
	int i;

	signal_outcome->sig = sig;
	signal_outcome->code = si->si_code;
	signal_outcome->addr = (uint64_t)si->si_addr;
	signal_outcome->ip = UC_IP(uc);
	for (i = 0; i < NR_GPR; i++)
		mach.gpr[i] = uc->uc_mcontext.gregs[reg[i]];
	/* RF tells the kernel's way back, not the program's state. */
	mach.flags = uc->uc_mcontext.gregs[REG_EFL] & ~0x10000;
	memset(mach.ymm, 0, sizeof(mach.ymm));
	for (i = 0; i < 16; i++)
		memcpy(mach.ymm[i], &uc->uc_mcontext.fpregs->_xmm[i], 16);
	mach_exit = 3;
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
	for (i = 0; i < NR_GPR; i++)
		mach.gpr[i] = random64(&s);
	for (i = 0; i < sizeof(mach.ymm); i++)
		((uint8_t *)mach.ymm)[i] = random64(&s);
	mach.flags = (random64(&s) & ARCH_FLAGS_MASK) | 2;
	mach.gpr[RSP] = STACK_AT + 2048;
	mach.gpr[RSI] = DATA_AT + 512;
	mach.gpr[RDI] = DATA_AT + 1024;
	if (in->index >= 0)
		mach.gpr[in->index] = random64(&s) % 4 * 16;
	if (in->base >= 0)
		mach.gpr[in->base] = DATA_AT + 1536;
	if (in->string)
		mach.gpr[RCX] = random64(&s) % 20;
	if (in->leave)
		mach.gpr[RBP] = STACK_AT + 2048 + random64(&s) % 16 * 8;
	if (in->ret)
		stack[2048 / 8] = slot_at(slot) + in->len + 0x20;

	mach_entry = (void *)slot_at(slot);
	mach_exit = 0;
	signal_outcome = out;
	if (!sigsetjmp(back, 0))
		mach_run();
	out->exit = mach_exit;
	out->m = mach;
	out->data_hash = hash((void *)data, DATA_SIZE);
	out->stack_hash = hash((void *)stack, DATA_SIZE);
}

static void explain(int slot, const struct outcome *a, const struct outcome *b)
{
	static const char *const names[] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15" };
	char hex[64];
	int i, n = 0;

	for (i = 0; i < insns[slot].len; i++)
		n += sprintf(hex + n, "%02x ", insns[slot].bytes[i]);
	diag("instruction %s", hex);
	if (a->exit != b->exit)
		diag("  left by %d (1: next, 2: branch, 3: signal), bare %d", (int)b->exit, (int)a->exit);
	if (a->sig != b->sig || a->code != b->code || a->addr != b->addr || a->ip != b->ip)
		diag("  signal %d code %d addr %#lx ip %#lx, bare %d %d %#lx %#lx", b->sig, b->code,
		     (long)b->addr, (long)b->ip, a->sig, a->code, (long)a->addr, (long)a->ip);
	for (i = 0; i < NR_GPR; i++)
		if (a->m.gpr[i] != b->m.gpr[i])
			diag("  %s %#lx, bare %#lx", names[i], (long)b->m.gpr[i], (long)a->m.gpr[i]);
	if (a->m.flags != b->m.flags)
		diag("  flags %#lx, bare %#lx", (long)b->m.flags, (long)a->m.flags);
	for (i = 0; i < 16; i++)
		if (memcmp(a->m.ymm[i], b->m.ymm[i], 32))
			diag("  ymm%d differs", i);
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
	static const uint8_t jump[] = { 0xff, 0x25, 0, 0, 0, 0 };	/* jmp *0(%rip) */
	const char *path = tmp_path("insns");
	uint64_t next = (uint64_t)mach_exit_next, other = (uint64_t)mach_exit_other;
	int slot, fd;

	memset(code, 0xf4, sizeof(code));	/* hlt, for whatever lands beside an exit */
	for (slot = 0; slot < SLOTS; slot++) {
		uint8_t *p = code + slot * SLOT;
		struct insn *i = &insns[slot];

		gen_insn(i, c, slot_at(slot));
		memcpy(p, i->bytes, i->len);
		memcpy(p + i->len, jump, 6);
		memcpy(p + i->len + 6, &next, 8);
		memcpy(p + i->len + 0x20, jump, 6);
		memcpy(p + i->len + 0x26, &other, 8);
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

		if (*(uint8_t *)slot_at(slot) != (uint8_t)ARCH_BREAKPOINT[0]) {
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
		    memcmp(insns[slot].bytes, "\x66\x2e\x0f\x1f\x84", 5))
			CHECK(false, "slot %d: text after the detach", slot);
	MUST(munmap((void *)CODE_AT, CODE_SIZE));
	bpf_counter_free(&cnt);
	unlink(path);
}

static int matrix(const void *arg)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	static char stack[65536] __attribute__((aligned(16)));
	const struct insn_class *c = arg;
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = on_signal,
				.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	int i, rounds = full_run() ? 40 : 2, accepted = 0, differ = 0;
	uint64_t seed = the_seed();

	mach_has_avx = __builtin_cpu_supports("avx") ? 1 : 0;
	MUST(sigaltstack(&ss, NULL));
	for (i = 0; i < 5; i++)
		MUST(sigaction(sigs[i], &sa, NULL));
	CHECK(mmap((void *)DATA_AT, DATA_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)DATA_AT, "mmap");
	CHECK(mmap((void *)STACK_AT, DATA_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)STACK_AT, "mmap");
	if (c->kind == K_VEX || c->kind == K_VEX_COLLIDE || c->kind == K_VEX_ALIGNED)
		if (!mach_has_avx)
			return skip("no AVX");
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
