// SPDX-License-Identifier: GPL-2.0
/*
 * What is refused, and with which error: the C implementation's answers
 * (requirements A.4). Nothing may be left behind by an attach that failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "semlib.h"
#include "sites.h"
#include "arch/asm.h"

#define ENOTSUPP 524	/* not for user space, but it gets there */

/* A file of code, mapped for execution: an attach analyses the instruction. */
static const char *code_file(const void *bytes, unsigned int len, char **map)
{
	const char *path = tmp_path("code");
	int fd = MUST(open(path, O_RDWR | O_CREAT, 0755));

	CHECK(pwrite(fd, bytes, len, 0) == (ssize_t)len, "write");
	MUST(ftruncate(fd, PAGE));
	close(fd);
	*map = map_part(path, 0, PROT_READ | PROT_EXEC);
	return path;
}

static int try_perf(const char *path, unsigned long offset, unsigned long sem, unsigned int flags)
{
	struct perf_probe p = { .loc = { path, offset }, .ref_ctr_offset = sem, .cpu = -1,
				.flags = flags };
	int fd = perf_open(&p);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	return -fd;
}

static int try_multi(const char *path, unsigned long offset, unsigned long sem, unsigned int flags)
{
	struct multi m = { .path = path, .offsets = &offset, .ref_ctr_offsets = &sem, .cnt = 1,
			   .flags = flags };
	struct bpf_counter c;
	int fd;

	bpf_counter_load(&c, NULL);
	fd = multi_attach(&c, &m);
	bpf_counter_free(&c);
	if (fd >= 0) {
		close(fd);
		return 0;
	}
	return -fd;
}

/* Both ways, entry and return. */
#define CHECK_REFUSED(path, offset, sem, err, what) do {				\
	CHECK_EQ(try_perf(path, offset, sem, 0), err, what ": perf");			\
	CHECK_EQ(try_perf(path, offset, sem, PERF_RET), err, what ": perf, return");	\
	CHECK_EQ(try_multi(path, offset, sem, 0), err, what ": uprobe_multi");		\
	CHECK_EQ(try_multi(path, offset, sem, MULTI_RETURN), err, what ": uprobe_multi, return"); \
} while (0)

struct insn {
	const char	*name, *bytes;
	unsigned int	len;
	int		err;
	const char	*fault;		/* of C: what it refuses without need */
};

#define INSN(name, bytes, err, fault) { name, bytes, sizeof(bytes) - 1, err, fault },
static const struct insn insns[] = { REFUSALS(INSN) };

static int instruction(const void *arg)
{
	const struct insn *i = arg;
	const char *path;
	char *map;

	path = code_file(i->bytes, i->len, &map);
	CHECK_REFUSED(path, 0, 0, i->err, "instruction");
	/* Nothing is left: neither in the text nor in a later attach. */
	CHECK(!memcmp(map, i->bytes, i->len), "the text changed");
	return PASS;
}

/* Not mapped yet, it is found out at the mapping, which works all the same. */
static int bad_instruction_unmapped(const void *arg)
{
	const char *path;
	char *map;
	int fd;

	path = code_file(REFUSED_INSN, sizeof(REFUSED_INSN) - 1, &map);
	MUST(munmap(map, PAGE));
	fd = perf_attach((struct loc){ path, 0 }, 0);
	map = map_part(path, 0, PROT_READ | PROT_EXEC);
	CHECK(!memcmp(map, REFUSED_INSN, sizeof(REFUSED_INSN) - 1), "the text changed");
	close(fd);
	return PASS;
}

/* An offset at which no instruction can be, though there are bytes that look like one. */
static int offset_misaligned(const void *arg)
{
	const char *path = make_semlib();

	map_text(path);
	CHECK_REFUSED(path, FN(0) + MISALIGNED_OFFSET, 0, EINVAL, "misaligned offset");
	return PASS;
}

static int offset_beyond_file(const void *arg)
{
	const char *path = make_semlib();

	CHECK_REFUSED(path, 4 * PAGE + 1, 0, EINVAL, "just beyond the end");
	CHECK_REFUSED(path, 1UL << 40, 0, EINVAL, "far beyond the end");
	return PASS;
}

/* At the end exactly: C accepts it, as nothing is mapped there. */
static int offset_at_end(const void *arg)
{
	const char *path = make_semlib();

	CHECK_EQ(try_multi(path, 4 * PAGE, 0, 0), 0, "at the end");
	CHECK_EQ(try_perf(path, 4 * PAGE, 0, 0), 0, "at the end, perf");
	return PASS;
}

static int negative_offset(const void *arg)
{
	CHECK_EQ(try_multi(make_semlib(), -5UL, 0, 0), EINVAL, "negative offset");
	return PASS;
}

/* EIO: the mapping of the file is longer than the file. */
static int beyond_end_of_mapping(const void *arg)
{
	const char *path = make_semlib();
	char *map = map_text(path);

	MUST(truncate(path, 0x80));
	CHECK_EQ(try_multi(path, 0x80, 0, 0), EIO, "no byte to read there");
	CHECK(map != NULL, "map");
	return PASS;
}

/* EIO: a file that cannot be read through the page cache. */
static int not_readable(const void *arg)
{
	CHECK_EQ(try_multi("/proc/version", 0, 0, 0), EIO, "uprobe_multi");
	CHECK_EQ(try_perf("/proc/version", 0, 0, 0), EIO, "perf");
	return PASS;
}

static int not_a_file(const void *arg)
{
	CHECK_EQ(try_multi("/tmp", 0, 0, 0), EBADF, "directory: uprobe_multi");
	CHECK_EQ(try_perf("/tmp", 0, 0, 0), EINVAL, "directory: perf");
	CHECK_EQ(try_multi("/dev/null", 0, 0, 0), EBADF, "device: uprobe_multi");
	CHECK_EQ(try_perf("/dev/null", 0, 0, 0), EINVAL, "device: perf");
	CHECK_EQ(try_multi("/does/not/exist", 0, 0, 0), ENOENT, "no file: uprobe_multi");
	CHECK_EQ(try_perf("/does/not/exist", 0, 0, 0), ENOENT, "no file: perf");
	return PASS;
}

static int semaphore_misaligned(const void *arg)
{
	const char *path = make_semlib();

	CHECK_REFUSED(path, FN(0), SEM(0) + 1, EINVAL, "odd semaphore offset");
	CHECK_EQ(try_perf(path, FN(0), SEM(0), 0), 0, "an even one");
	return PASS;
}

static int semaphore_mismatch(const void *arg)
{
	const char *path = make_semlib();
	int fd;

	map_text(path);
	map_sems(path);
	fd = sem_attach(path, 0, 0);
	CHECK_REFUSED(path, FN(0), SEM(1), EINVAL, "another semaphore");
	CHECK_REFUSED(path, FN(0), 0, EINVAL, "no semaphore");
	CHECK_EQ(try_multi(path, FN(0), SEM(0), 0), 0, "the same semaphore");
	close(fd);
	CHECK_EQ(try_multi(path, FN(0), SEM(1), 0), 0, "another one after the detach");
	return PASS;
}

/* A trap in memory where the file has none: uprobes take it for their own. */
static int trap_in_file(const void *arg)
{
	const char *path;
	char *map;

	path = code_file(ARCH_UPROBE_TRAP ARCH_FN_SIMULATED,
			 sizeof(ARCH_UPROBE_TRAP ARCH_FN_SIMULATED) - 1, &map);
	CHECK_REFUSED(path, 0, 0, ENOTSUPP, "trap in the file");
	return PASS;
}

/* A link of several sites is all or nothing. */
static int all_or_nothing(const void *arg)
{
	const char *path = make_semlib();
	unsigned long offs[3] = { FN(0), FN(1), 5 * PAGE };
	struct multi m = { .path = path, .offsets = offs, .cnt = 3 };
	char *text = map_text(path);
	struct bpf_counter c;

	bpf_counter_load(&c, NULL);
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "one bad offset of three");
	call_fn(text, 0, 5);
	CHECK_EQ(c.values[BV_COUNT], 0, "hits of a link that was refused");
	CHECK_EQ(text[FN(0)], ARCH_FN_SIMULATED[0], "text of site 0");
	CHECK_EQ(text[FN(1)], ARCH_FN_SIMULATED[0], "text of site 1");
	return PASS;
}

static int multi_arguments(const void *arg)
{
	const char *path = make_semlib();
	unsigned long off = FN(0);
	struct multi good = { .path = path, .offsets = &off, .cnt = 1 }, m;
	struct bpf_counter c;

	bpf_counter_load(&c, NULL);
	m = good; m.cnt = 0;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "no sites");
	m = good; m.offsets = NULL;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "no offsets");
	m = good; m.path = NULL;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "no path");
	m = good; m.pid = -1;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "negative pid");
	m = good; m.pid = 0x3ffffff;
	CHECK_EQ(multi_attach(&c, &m), -ESRCH, "pid of nobody");
	m = good; m.raw_flags = 0x80;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "unknown flag");
	m = good; m.cnt = 1 << 21;
	CHECK_EQ(multi_attach(&c, &m), -E2BIG, "too many sites");
	m = good; m.offsets = (void *)8UL;
	CHECK_EQ(multi_attach(&c, &m), -EFAULT, "offsets that cannot be read");
	m = good; m.session = true;
	CHECK_EQ(multi_attach(&c, &m), -EINVAL, "session link of a program that is none");
	CHECK(multi_attach(&c, &good) >= 0, "and the good one");
	return PASS;
}

static int events(const void *arg)
{
	const char *path = make_semlib();

	CHECK_EQ(tracefs_append("uprobe_events", "p:upt/bad %s:0x40000000\n", path), 0,
		 "definition of an event beyond the file");
	CHECK_EQ(tracefs_write("events/upt/bad/enable", "1"), -EINVAL, "enable it");
	CHECK_EQ(tracefs_append("uprobe_events", "-:upt/bad\n"), 0, "remove it");
	CHECK_EQ(tracefs_append("uprobe_events", "p:upt/bad /does/not/exist:0x10\n"), -ENOENT,
		 "event on no file");
	CHECK_EQ(tracefs_append("uprobe_events", "p:upt/bad /tmp:0x10\n"), -EINVAL,
		 "event on a directory");
	CHECK_EQ(tracefs_append("uprobe_events", "q:upt/bad %s:0x10\n", path), -EINVAL,
		 "event of no kind");
	CHECK_EQ(tracefs_append("uprobe_events", "p:upt/bad %s:0x10(0x21)\n", path), 0,
		 "event with a misaligned semaphore");
	CHECK_EQ(tracefs_write("events/upt/bad/enable", "1"), -EINVAL, "enable it");
	CHECK_EQ(tracefs_append("uprobe_events", "-:upt/bad\n"), 0, "remove it");
	CHECK(!strstr(tracefs_read("uprobe_events"), "upt/"), "events left behind: %s",
	      tracefs_read("uprobe_events"));
	return PASS;
}

int main(int argc, char **argv)
{
	unsigned int i;

	for (i = 0; i < sizeof(insns) / sizeof(insns[0]); i++)
		add_test(insns[i].fault, instruction, &insns[i], "instruction %s: %d",
			 insns[i].name, insns[i].err);
	add_test(NULL, bad_instruction_unmapped, NULL, "bad instruction, found at the mapping");
	add_test(NULL, trap_in_file, NULL, "trap in the file: ENOTSUPP");
	if (MISALIGNED_OFFSET)
		add_test(NULL, offset_misaligned, NULL, "misaligned offset: EINVAL");
	add_test(NULL, offset_beyond_file, NULL, "offset beyond the file: EINVAL");
	add_test(NULL, offset_at_end, NULL, "offset at the end of the file");
	add_test(NULL, negative_offset, NULL, "negative offset: EINVAL");
	add_test(NULL, beyond_end_of_mapping, NULL, "file shorter than its mapping: EIO");
	add_test(NULL, not_readable, NULL, "file without a page cache: EIO");
	add_test(NULL, not_a_file, NULL, "no regular file");
	add_test(NULL, semaphore_misaligned, NULL, "misaligned semaphore: EINVAL");
	add_test(NULL, semaphore_mismatch, NULL, "two semaphores for a site: EINVAL");
	add_test(NULL, all_or_nothing, NULL, "uprobe_multi is all or nothing");
	add_test(NULL, multi_arguments, NULL, "arguments of uprobe_multi");
	add_test(NULL, events, NULL, "uprobe_events");
	return run_tests(argc, argv);
}
