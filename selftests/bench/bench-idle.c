// SPDX-License-Identifier: GPL-2.0
/*
 * What do processes pay in which nothing is probed?
 *
 *   bench-idle --all	{"work":"exec and exit","without_ns":1234.5,"with_ns":1234.6} for each
 *
 * First without any probe in the system, then with a thousand in a file that the
 * processes do not map. Under QEMU's -icount the clock counts instructions.
 */
#include <spawn.h>
#include <sys/wait.h>

#include "bench.h"
#include "manylib.h"

#define PROBES	1000
#define EXECS	400
#define MAPS	40000
#define BYTES	0x10000

static void exec_and_exit(void)
{
	char *args[] = { "bench-idle", "--nothing", NULL };
	int status;
	pid_t pid;

	CHECK_EQ(posix_spawn(&pid, self_path(), NULL, NULL, args, environ), 0, "spawn");
	waitpid(pid, &status, 0);
	CHECK_EQ(status, 0, "status of the program");
}

static void map_and_unmap(void)
{
	static int fd = -1;
	void *p;

	if (fd < 0)
		fd = MUST(open(self_path(), O_RDONLY | O_CLOEXEC));
	p = mmap(NULL, BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	CHECK(p != MAP_FAILED, "mmap: errno %d", errno);
	munmap(p, BYTES);
}

static const struct {
	const char	*name;
	void		(*once)(void);
	int		times;
} works[] = {
	{ "exec and exit", exec_and_exit, EXECS },
	{ "mmap and munmap", map_and_unmap, MAPS },
};

#define NR_WORKS (sizeof(works) / sizeof(works[0]))

static void measure(double *ns)
{
	unsigned int w;
	double start;
	int i;

	for (w = 0; w < NR_WORKS; w++) {
		for (i = 0; i < works[w].times / 8; i++)
			works[w].once();
		start = now_ns();
		for (i = 0; i < works[w].times; i++)
			works[w].once();
		ns[w] = (now_ns() - start) / works[w].times;
	}
}

int main(int argc, char **argv)
{
	double without[NR_WORKS], with[NR_WORKS];
	struct bpf_counter c;
	struct manylib lib;
	unsigned int w;

	if (argc == 2 && !strcmp(argv[1], "--nothing"))
		return 0;
	ktap_standalone();
	if (argc != 2 || strcmp(argv[1], "--all")) {
		fprintf(stderr, "usage: %s --all\n", argv[0]);
		return 2;
	}
	manylib_make(&lib, "bench-lib", PROBES);
	measure(without);
	bpf_counter_load(&c, &(struct bpf_what){ .flags = BP_EMPTY });
	MUST(multi_attach(&c, &(struct multi){ .path = lib.path, .offsets = lib.offsets,
					       .cnt = PROBES }));
	measure(with);
	for (w = 0; w < NR_WORKS; w++)
		printf("{\"work\":\"%s\",\"without_ns\":%.1f,\"with_ns\":%.1f}\n", works[w].name,
		       without[w], with[w]);
	return 0;
}
