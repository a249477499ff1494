// SPDX-License-Identifier: GPL-2.0
/* A 32-bit program (helpers/ia32) on a 64-bit kernel. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "probe.h"

#define HITS 50

struct site32 {
	char		name[32];
	unsigned long	addr, offset;
	int		is_entry;
};

static struct site32 sites32[64];
static int nr_sites32;
static const char *program;

static int run_program(const char *arg)
{
	char *argv[] = { (char *)program, (char *)arg, NULL };
	pid_t pid = MUST(fork());
	int status;

	if (!pid) {
		execv(program, argv);
		_exit(127);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	return status;
}

/* File offset of an address, by the program headers. */
static unsigned long offset_of(unsigned long addr)
{
	Elf32_Phdr ph[16];
	Elf32_Ehdr eh;
	int fd = open(program, O_RDONLY), i;
	unsigned long found = 0;

	if (fd >= 0 && pread(fd, &eh, sizeof(eh), 0) == sizeof(eh) && eh.e_phnum <= 16 &&
	    pread(fd, ph, sizeof(*ph) * eh.e_phnum, eh.e_phoff) > 0)
		for (i = 0; i < eh.e_phnum; i++)
			if (ph[i].p_type == PT_LOAD && addr >= ph[i].p_vaddr &&
			    addr < ph[i].p_vaddr + ph[i].p_filesz)
				found = addr - ph[i].p_vaddr + ph[i].p_offset;
	close(fd);
	return found;
}

static void list_sites(const char *self)
{
	static char path[4096];
	char *slash;
	int fds[2];
	FILE *f;

	if (!realpath(self, path))
		return;
	slash = strrchr(path, '/');
	strcpy(slash, "/helpers/ia32");
	program = path;
	if (access(path, X_OK) || pipe(fds))
		return;
	if (!fork()) {
		dup2(fds[1], 1);
		execl(path, path, "-l", NULL);
		_exit(127);
	}
	close(fds[1]);
	f = fdopen(fds[0], "r");
	while (nr_sites32 < 64 &&
	       fscanf(f, "%31s %lx %d", sites32[nr_sites32].name, &sites32[nr_sites32].addr,
		      &sites32[nr_sites32].is_entry) == 3) {
		sites32[nr_sites32].offset = offset_of(sites32[nr_sites32].addr);
		nr_sites32++;
	}
	fclose(f);
	wait(NULL);
}

static void attach(const struct site32 *s, struct bpf_counter *c, unsigned int flags)
{
	bpf_counter_load(c, NULL);
	multi_attach_one(c, (struct loc){ program, s->offset }, flags);
}

static int entry(const void *arg)
{
	const struct site32 *s = arg;
	struct bpf_counter c;

	attach(s, &c, 0);
	CHECK_EQ(run_program("50"), 0, "%s: status of the program", s->name);
	CHECK_EQ(c.values[BV_COUNT], HITS, "%s: hits", s->name);
	return PASS;
}

static int return_probe(const void *arg)
{
	const struct site32 *s = arg;
	struct bpf_counter c;

	attach(s, &c, MULTI_RETURN);
	CHECK_EQ(run_program("50"), 0, "%s: status of the program", s->name);
	CHECK_EQ(c.values[BV_COUNT], HITS, "%s: returns", s->name);
	return PASS;
}

static int all(const void *arg)
{
	struct bpf_counter c[64], r[64];
	int i;

	for (i = 0; i < nr_sites32; i++) {
		attach(&sites32[i], &c[i], 0);
		if (sites32[i].is_entry)
			attach(&sites32[i], &r[i], MULTI_RETURN);
	}
	CHECK_EQ(run_program("50"), 0, "status of the program");
	for (i = 0; i < nr_sites32; i++) {
		CHECK_EQ(c[i].values[BV_COUNT], HITS, "%s: hits", sites32[i].name);
		if (sites32[i].is_entry)
			CHECK_EQ(r[i].values[BV_COUNT], HITS, "%s: returns", sites32[i].name);
	}
	return PASS;
}

static int by_perf(const void *arg)
{
	struct loc loc = { program, sites32[0].offset };
	struct perf_all entry, ret;

	perf_attach_all(&entry, loc, 0);
	perf_attach_all(&ret, loc, PERF_RET);
	CHECK_EQ(run_program("50"), 0, "status of the program");
	CHECK_EQ(perf_count_all(&entry), HITS, "hits");
	CHECK_EQ(perf_count_all(&ret), HITS, "returns");
	return PASS;
}

static int missing(const void *arg)
{
	return skip("no 32-bit program: not built, or the kernel does not run it");
}

int main(int argc, char **argv)
{
	int i;

	list_sites(argv[0]);
	for (i = 0; i < nr_sites32; i++) {
		add_test(NULL, entry, &sites32[i], "entry %s", sites32[i].name);
		if (sites32[i].is_entry)
			add_test(NULL, return_probe, &sites32[i], "return %s", sites32[i].name);
	}
	if (nr_sites32) {
		add_test(NULL, all, NULL, "all sites at once");
		add_test(NULL, by_perf, NULL, "perf events");
	} else {
		add_test(NULL, missing, NULL, "ia32");
	}
	return run_tests(argc, argv);
}
