/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A test harness that speaks KTAP: every test runs in a child of its own with
 * a time limit, so that a test that crashes or hangs fails alone.
 */
#ifndef KTAP_H
#define KTAP_H

#include <stdbool.h>
#include <stdint.h>

enum { PASS = 0, FAIL = 1, SKIPPED = 4 };

typedef int (*test_fn)(const void *arg);

/*
 * @fault names the fault of the C implementation (requirements F.n) that makes
 * the test fail there, NULL where C and Rust must agree.
 */
void add_test(const char *fault, test_fn fn, const void *arg, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Seconds that one test may take, for tests added from here on. */
void set_timeout(int secs);

/* Runs what was added; the return value is main()'s. */
int run_tests(int argc, char **argv);

/* For programs that use CHECK() and MUST() without being tests. */
void ktap_standalone(void);

int skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* True under --full: races run for a minute each, the matrix is larger. */
bool full_run(void);

/* "rust" or "c": asked of the running kernel, see lib/ktap.c. */
const char *impl_of_kernel(void);

/* Counts one check; a test that made none is reported as failed. */
void note_check(void);

/* Ends the test (not just the function) in failure if @cond does not hold. */
#define CHECK(cond, fmt, ...) do {					\
	note_check();							\
	if (!(cond)) {							\
		diag("%s:%d: !(%s): " fmt, __FILE__, __LINE__, #cond,	\
		     ##__VA_ARGS__);					\
		_exit(FAIL);						\
	}								\
} while (0)

#define CHECK_EQ(got, want, fmt, ...) do {				\
	long long got_ = (long long)(got), want_ = (long long)(want);	\
	note_check();							\
	if (got_ != want_) {						\
		diag("%s:%d: " fmt ": %s is %lld (%#llx), expected %lld (%#llx)", \
		     __FILE__, __LINE__, ##__VA_ARGS__, #got, got_,	\
		     got_, want_, want_);				\
		_exit(FAIL);						\
	}								\
} while (0)

/* For the preparations of a test: what cannot be prepared is a failure. */
#define MUST(expr) ({							\
	long ret_ = (long)(expr);					\
	if (ret_ < 0) {							\
		diag("%s:%d: %s: %ld (errno %d)", __FILE__, __LINE__,	\
		     #expr, ret_, errno);				\
		_exit(FAIL);						\
	}								\
	ret_;								\
})

#endif
