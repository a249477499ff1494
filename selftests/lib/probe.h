/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ways to attach a probe from user space: perf events, uprobe_multi links of
 * BPF programs, tracefs uprobe_events. Only system calls, no libbpf.
 */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a probe goes: a file and an offset in it. */
struct loc {
	const char	*path;
	uint64_t	offset;
};

/* The place in its file of an address mapped in this process. */
struct loc loc_of(const void *addr);

/* Path of this program's file. */
const char *self_path(void);

/* perf */
#define PERF_RET	0x1	/* return probe */
/*
 * Count children and threads as well. Not exact where a child ends: perf swaps
 * the contexts of parent and child and may lose what comes afterwards. Tests that
 * fork count with BPF or perf_attach_all().
 */
#define PERF_INHERIT	0x2

struct perf_probe {
	struct loc	loc;
	uint64_t	ref_ctr_offset;
	pid_t		pid;		/* 0: the caller, -1: all (then set cpu) */
	int		cpu;		/* -1: any */
	unsigned int	flags;
};

/* A file descriptor, or -errno. */
int perf_open(const struct perf_probe *p);
/* The usual case: the calling process with its children and threads. */
int perf_attach(struct loc loc, unsigned int flags);
/* System-wide: one event for each CPU. Ends the test if it cannot. */
struct perf_all { int n, fd[64]; };
void perf_attach_all(struct perf_all *all, struct loc loc, unsigned int flags);
uint64_t perf_count_all(const struct perf_all *all);
void perf_detach_all(struct perf_all *all);
uint64_t perf_count(int fd);

/* BPF */
struct bpf_insn;

/* What a program does, in this order, on each hit. */
#define BP_COOKIE	0x01	/* values[BV_COOKIE] += bpf_get_attach_cookie() */
#define BP_REGS		0x02	/* store pt_regs from values[BV_REGS] on */
#define BP_SPLIT	0x04	/* ip == split_ip: BV_ENTRY++, else BV_RETURN++ */
#define BP_EMPTY	0x08	/* nothing at all, not even a count */
#define BP_SESSION	0x10	/* load as session program */
#define BP_SET_REG	0x20	/* write set_val to the register at set_off */
#define BP_LAST_COOKIE	0x40	/* values[BV_LAST] = bpf_get_attach_cookie() */
#define BP_EVENT	0x80	/* load for perf events */

enum { BV_COUNT, BV_COOKIE, BV_ENTRY, BV_RETURN, BV_LAST, BV_REGS = 8, BV_MAX = 64 };

struct bpf_counter {
	int			map, prog;
	volatile uint64_t	*values;	/* the map, in this process */
};

struct bpf_what {
	unsigned int	flags;
	int		retval;
	uint64_t	split_ip;
	int		set_off;
	int64_t		set_val;
};

/* Loads a program that counts hits in values[BV_COUNT]; ends the test on error. */
void bpf_counter_load(struct bpf_counter *c, const struct bpf_what *what);
void bpf_counter_free(struct bpf_counter *c);
/* Runs the program on each hit of a perf event. Ends the test on error. */
void perf_set_prog(int fd, const struct bpf_counter *c);

#define MULTI_RETURN	0x1

struct multi {
	const char		*path;
	const unsigned long	*offsets;
	const unsigned long	*ref_ctr_offsets;
	const uint64_t		*cookies;
	unsigned int		cnt;
	pid_t			pid;
	unsigned int		flags;
	bool			session;
	unsigned int		raw_flags;	/* for error tests */
};

/* A link's file descriptor, or -errno. */
int multi_attach(const struct bpf_counter *c, const struct multi *m);
/* One site. Ends the test on error. */
int multi_attach_one(const struct bpf_counter *c, struct loc loc, unsigned int flags);
int bpf_prog_load_raw(const struct bpf_insn *insns, int cnt, int expected_attach_type);
int bpf_map_array(int entries, unsigned int value_size, unsigned int flags);
int sys_bpf(int cmd, void *attr, unsigned int size);

/* tracefs */
#define TRACEFS "/sys/kernel/tracing"
/* Writes a line to a file of tracefs; 0 or -errno. */
int tracefs_write(const char *file, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tracefs_append(const char *file, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The file's text, in a static buffer. */
const char *tracefs_read(const char *file);
/* A number that follows @key in a line of uprobe_profile, -1 if there is none. */

/* text */
/* Does the memory at @addr equal the file it is mapped from? */
bool text_equals_file(const void *addr, unsigned int len);

/* Copies this program's file (or @from) to a new file on the test's tmpfs. */
void copy_file(const char *from, const char *to);
/* A fresh path in $UPT_TMP (a tmpfs). */
const char *tmp_path(const char *name);

/* Memory in KiB that the kernel has in use for itself in small pieces. */
long slab_kb(void);

#endif
