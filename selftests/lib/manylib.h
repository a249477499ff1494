/* SPDX-License-Identifier: GPL-2.0 */
/* A file with as many functions as are wanted, each of which can be probed. */
#ifndef MANYLIB_H
#define MANYLIB_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch.h"
#include "ktap.h"
#include "probe.h"

/* Bytes from one function to the next. */
#define MANY_STRIDE	16UL

struct manylib {
	const char	*path;
	unsigned long	*offsets;
	int		count;
};

static inline unsigned long manylib_bytes(const struct manylib *lib)
{
	return lib->count * MANY_STRIDE;
}

static inline void manylib_make(struct manylib *lib, const char *name, int count)
{
	char *text;
	int fd, i;

	lib->path = tmp_path(name);
	lib->count = count;
	lib->offsets = calloc(count, sizeof(*lib->offsets));
	text = calloc(count, MANY_STRIDE);
	CHECK(lib->offsets && text, "memory");
	for (i = 0; i < count; i++) {
		lib->offsets[i] = i * MANY_STRIDE;
		memcpy(text + i * MANY_STRIDE, ARCH_FN_SIMULATED, sizeof(ARCH_FN_SIMULATED) - 1);
	}
	fd = MUST(open(lib->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0755));
	CHECK(write(fd, text, manylib_bytes(lib)) == (ssize_t)manylib_bytes(lib), "write %s",
	      lib->path);
	close(fd);
	free(text);
}

static inline char *manylib_map_as(const struct manylib *lib, int prot, int flags)
{
	int fd = MUST(open(lib->path, O_RDONLY | O_CLOEXEC));
	char *p = mmap(NULL, manylib_bytes(lib), prot, flags, fd, 0);

	CHECK(p != MAP_FAILED, "mmap %s: errno %d", lib->path, errno);
	close(fd);
	return p;
}

static inline char *manylib_map(const struct manylib *lib)
{
	return manylib_map_as(lib, PROT_READ | PROT_EXEC, MAP_PRIVATE);
}

static inline long manylib_call(const char *text, int i)
{
	return ((long (*)(long))(unsigned long)(text + i * MANY_STRIDE))(41);
}

/* Whether no breakpoint is in a mapping of the file. */
static inline bool manylib_is_clean(const struct manylib *lib, const char *text)
{
	char *file = manylib_map_as(lib, PROT_READ, MAP_SHARED);
	bool clean = !memcmp(file, text, manylib_bytes(lib));

	if (!clean) {
		unsigned long i, n = 0, first = -1, last = 0;

		for (i = 0; i < manylib_bytes(lib); i++)
			if (file[i] != text[i]) {
				first = n++ ? first : i;
				last = i;
			}
		diag("%lu bytes of the text differ, from %#lx to %#lx", n, first, last);
	}
	munmap(file, manylib_bytes(lib));
	return clean;
}

#endif
