// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"

const char *self_path(void)
{
	static char path[4096];

	if (!*path) {
		ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

		MUST(n);
		path[n] = 0;
	}
	return path;
}

struct loc loc_of(const void *addr)
{
	unsigned long a = (unsigned long)addr, start, end, pgoff;
	FILE *f = fopen("/proc/self/maps", "r");
	struct loc loc = { NULL };
	char line[4352], path[4096];

	while (f && fgets(line, sizeof(line), f)) {
		*path = 0;
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &start, &end, &pgoff, path) < 3)
			continue;
		if (a < start || a >= end)
			continue;
		loc.path = strdup(path);
		loc.offset = a - start + pgoff;
	}
	if (f)
		fclose(f);
	if (!loc.path) {
		diag("address %p is mapped from no file", addr);
		_exit(FAIL);
	}
	return loc;
}

static int uprobe_pmu_type(void)
{
	static int type;
	FILE *f;

	if (type)
		return type;
	f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	if (!f || fscanf(f, "%d", &type) != 1) {
		diag("no uprobe PMU");
		_exit(FAIL);
	}
	fclose(f);
	return type;
}

int perf_open(const struct perf_probe *p)
{
	struct perf_event_attr attr = {
		.type = uprobe_pmu_type(),
		.size = sizeof(attr),
		.config = (p->flags & PERF_RET ? 1 : 0) | p->ref_ctr_offset << 32,
		.config1 = (unsigned long)p->loc.path,
		.config2 = p->loc.offset,
		.inherit = !!(p->flags & PERF_INHERIT),
	};
	int fd = syscall(SYS_perf_event_open, &attr, p->pid, p->cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int perf_attach(struct loc loc, unsigned int flags)
{
	struct perf_probe p = { .loc = loc, .cpu = -1, .flags = flags | PERF_INHERIT };
	int fd = perf_open(&p);

	CHECK(fd >= 0, "perf event on %s:%#lx: error %d", loc.path, (long)loc.offset, -fd);
	return fd;
}

uint64_t perf_count(int fd)
{
	uint64_t n = 0;

	CHECK(read(fd, &n, sizeof(n)) == sizeof(n), "read a perf event: errno %d", errno);
	return n;
}

void perf_attach_all(struct perf_all *all, struct loc loc, unsigned int flags)
{
	int cpu, ncpu = sysconf(_SC_NPROCESSORS_ONLN);

	all->n = 0;
	for (cpu = 0; cpu < ncpu && cpu < 64; cpu++) {
		struct perf_probe p = { .loc = loc, .pid = -1, .cpu = cpu, .flags = flags };
		int fd = perf_open(&p);

		CHECK(fd >= 0, "perf event of CPU %d: error %d", cpu, -fd);
		all->fd[all->n++] = fd;
	}
}

uint64_t perf_count_all(const struct perf_all *all)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < all->n; i++)
		sum += perf_count(all->fd[i]);
	return sum;
}

void perf_detach_all(struct perf_all *all)
{
	while (all->n)
		close(all->fd[--all->n]);
}

int sys_bpf(int cmd, void *attr, unsigned int size)
{
	int r = syscall(SYS_bpf, cmd, attr, size);

	return r < 0 ? -errno : r;
}

int bpf_map_array(int entries, unsigned int value_size, unsigned int flags)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = 4;
	attr.value_size = value_size;
	attr.max_entries = entries;
	attr.map_flags = flags;
	return sys_bpf(BPF_MAP_CREATE, &attr, sizeof(attr));
}

static char bpf_log[16384];

int bpf_prog_load_raw(const struct bpf_insn *insns, int cnt, int expected_attach_type)
{
	union bpf_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_KPROBE;
	attr.expected_attach_type = expected_attach_type;
	attr.insns = (unsigned long)insns;
	attr.insn_cnt = cnt;
	attr.license = (unsigned long)"GPL";
	attr.log_buf = (unsigned long)bpf_log;
	attr.log_size = sizeof(bpf_log);
	attr.log_level = 1;
	fd = sys_bpf(BPF_PROG_LOAD, &attr, sizeof(attr));
	if (fd < 0)
		diag("BPF_PROG_LOAD: error %d: %.500s", -fd, bpf_log);
	return fd;
}

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })

/* r[dst] = address of byte @off of the map's only value */
static int ld_map_value(struct bpf_insn *p, int dst, int map, int off)
{
	p[0] = INSN(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_VALUE, 0, map);
	p[1] = INSN(0, 0, 0, 0, off);
	return 2;
}

/* *(u64 *)(values + idx) += r1; clobbers r2 */
static int add_r1(struct bpf_insn *p, int map, int idx)
{
	int n = ld_map_value(p, 2, map, idx * 8);

	p[n++] = INSN(BPF_STX | BPF_DW | BPF_ATOMIC, 2, 1, 0, BPF_ADD);
	return n;
}

void bpf_counter_load(struct bpf_counter *c, const struct bpf_what *what)
{
	struct bpf_what plain = { 0 };
	struct bpf_insn p[256];
	int i, j, n = 0;

	if (!what)
		what = &plain;
	c->map = MUST(bpf_map_array(1, BV_MAX * 8, BPF_F_MMAPABLE));
	c->values = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c->map, 0);
	CHECK(c->values != MAP_FAILED, "mmap of a BPF map");

	p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);		/* r6 = ctx */
	if (!(what->flags & BP_EMPTY)) {
		p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1);
		n += add_r1(p + n, c->map, BV_COUNT);
	}
	if (what->flags & (BP_COOKIE | BP_LAST_COOKIE)) {
		p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0);
		p[n++] = INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_attach_cookie);
		p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0);
		if (what->flags & BP_COOKIE)
			n += add_r1(p + n, c->map, BV_COOKIE);
		if (what->flags & BP_LAST_COOKIE) {
			n += ld_map_value(p + n, 2, c->map, BV_LAST * 8);
			p[n++] = INSN(BPF_STX | BPF_DW | BPF_MEM, 2, 1, 0, 0);
		}
	}
	if (what->flags & BP_REGS) {
		n += ld_map_value(p + n, 2, c->map, BV_REGS * 8);
		for (i = 0; i < ARCH_PT_REGS_WORDS; i++) {
			p[n++] = INSN(BPF_LDX | BPF_DW | BPF_MEM, 1, 6, i * 8, 0);
			p[n++] = INSN(BPF_STX | BPF_DW | BPF_MEM, 2, 1, i * 8, 0);
		}
	}
	if (what->flags & BP_SPLIT) {
		p[n++] = INSN(BPF_LDX | BPF_DW | BPF_MEM, 3, 6, ARCH_PT_REGS_IP, 0);
		p[n++] = INSN(BPF_LD | BPF_DW | BPF_IMM, 4, 0, 0, (int32_t)what->split_ip);
		p[n++] = INSN(0, 0, 0, 0, (int32_t)(what->split_ip >> 32));
		p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1);
		j = n;
		n++;				/* jump, see below */
		n += add_r1(p + n, c->map, BV_ENTRY);
		p[n++] = INSN(BPF_JMP | BPF_JA, 0, 0, 3, 0);
		p[j] = INSN(BPF_JMP | BPF_JNE | BPF_X, 3, 4, n - j - 1, 0);
		n += add_r1(p + n, c->map, BV_RETURN);
	}
	if (what->flags & BP_SET_REG) {
		p[n++] = INSN(BPF_LD | BPF_DW | BPF_IMM, 1, 0, 0, (int32_t)what->set_val);
		p[n++] = INSN(0, 0, 0, 0, (int32_t)(what->set_val >> 32));
		p[n++] = INSN(BPF_STX | BPF_DW | BPF_MEM, 6, 1, what->set_off, 0);
	}
	p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, what->retval);
	p[n++] = INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	c->prog = bpf_prog_load_raw(p, n, what->flags & BP_SESSION ? BPF_TRACE_UPROBE_SESSION :
					  what->flags & BP_EVENT ? 0 : BPF_TRACE_UPROBE_MULTI);
	MUST(c->prog);
}

void bpf_counter_free(struct bpf_counter *c)
{
	munmap((void *)c->values, 4096);
	close(c->prog);
	close(c->map);
}

void perf_set_prog(int fd, const struct bpf_counter *c)
{
	MUST(ioctl(fd, PERF_EVENT_IOC_SET_BPF, c->prog));
}

int multi_attach(const struct bpf_counter *c, const struct multi *m)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = c->prog;
	attr.link_create.attach_type = m->session ? BPF_TRACE_UPROBE_SESSION :
				       BPF_TRACE_UPROBE_MULTI;
	attr.link_create.uprobe_multi.path = (unsigned long)m->path;
	attr.link_create.uprobe_multi.offsets = (unsigned long)m->offsets;
	attr.link_create.uprobe_multi.ref_ctr_offsets = (unsigned long)m->ref_ctr_offsets;
	attr.link_create.uprobe_multi.cookies = (unsigned long)m->cookies;
	attr.link_create.uprobe_multi.cnt = m->cnt;
	attr.link_create.uprobe_multi.pid = m->pid;
	attr.link_create.uprobe_multi.flags = m->raw_flags |
		(m->flags & MULTI_RETURN ? BPF_F_UPROBE_MULTI_RETURN : 0);
	return sys_bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
}

int multi_attach_one(const struct bpf_counter *c, struct loc loc, unsigned int flags)
{
	unsigned long off = loc.offset;
	struct multi m = { .path = loc.path, .offsets = &off, .cnt = 1, .flags = flags };
	int fd = multi_attach(c, &m);

	CHECK(fd >= 0, "uprobe_multi on %s:%#lx: error %d", loc.path, off, -fd);
	return fd;
}

static int tracefs_put(const char *file, int flags, const char *fmt, va_list ap)
{
	char path[512], line[4096];
	int fd, n, r;

	snprintf(path, sizeof(path), TRACEFS "/%s", file);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	fd = open(path, O_WRONLY | flags);
	if (fd < 0)
		return -errno;
	r = write(fd, line, n) == n ? 0 : -errno;
	close(fd);
	return r;
}

int tracefs_write(const char *file, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = tracefs_put(file, O_TRUNC, fmt, ap);
	va_end(ap);
	return r;
}

int tracefs_append(const char *file, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = tracefs_put(file, O_APPEND, fmt, ap);
	va_end(ap);
	return r;
}

const char *tracefs_read(const char *file)
{
	static char buf[1 << 20];
	char path[512];
	size_t n = 0;
	ssize_t r;
	int fd;

	snprintf(path, sizeof(path), TRACEFS "/%s", file);
	fd = MUST(open(path, O_RDONLY));
	while (n < sizeof(buf) - 1 && (r = read(fd, buf + n, sizeof(buf) - 1 - n)) > 0)
		n += r;
	close(fd);
	buf[n] = 0;
	return buf;
}

bool text_equals_file(const void *addr, unsigned int len)
{
	struct loc loc = loc_of(addr);
	unsigned char *file = malloc(len);
	bool same;
	int fd;

	fd = MUST(open(loc.path, O_RDONLY | O_CLOEXEC));
	CHECK(pread(fd, file, len, loc.offset) == (ssize_t)len, "short read of %s", loc.path);
	close(fd);
	same = !memcmp(addr, file, len);
	free(file);
	return same;
}

const char *tmp_path(const char *name)
{
	const char *dir = getenv("UPT_TMP");
	char *path;

	MUST(asprintf(&path, "%s/%s.%d", dir ? dir : "/tmp", name, getpid()));
	unlink(path);
	return path;
}

void copy_file(const char *from, const char *to)
{
	char buf[65536];
	ssize_t n;
	int in, out;

	in = MUST(open(from, O_RDONLY));
	out = MUST(open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755));
	while ((n = MUST(read(in, buf, sizeof(buf)))) > 0)
		CHECK(write(out, buf, n) == n, "write %s", to);
	close(in);
	close(out);
}

/* Gives back what the allocator keeps of freed memory, as KASAN's quarantine. */
static void shrink_slabs(void)
{
	glob_t g;
	size_t i;

	if (glob("/sys/kernel/slab/*/shrink", 0, NULL, &g))
		return;
	for (i = 0; i < g.gl_pathc; i++) {
		int fd = open(g.gl_pathv[i], O_WRONLY);

		if (fd < 0)
			continue;
		/* Some caches cannot. */
		if (write(fd, "1", 1) < 0)
			errno = 0;
		close(fd);
	}
	globfree(&g);
}

long slab_kb(void)
{
	unsigned long kb = 0;
	char line[256];
	FILE *f;

	shrink_slabs();
	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "SUnreclaim: %lu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}
