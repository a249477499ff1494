// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "worker.h"

void worker_start(struct worker *w, long (*fn)(long))
{
	long order, answer;

	MUST(pipe(w->order));
	MUST(pipe(w->answer));
	/* 3 and 4 are the worker's own, see below. */
	w->order[0] = MUST(fcntl(w->order[0], F_DUPFD, 16));
	w->answer[1] = MUST(fcntl(w->answer[1], F_DUPFD, 16));
	w->pid = MUST(fork());
	if (w->pid) {
		close(w->order[0]);
		close(w->answer[1]);
		/* Back when the child has let go of all that it inherited. */
		CHECK_EQ(read(w->answer[0], &answer, sizeof(answer)), sizeof(answer), "worker");
		return;
	}
	/*
	 * Keep nothing else open: neither the ends of other workers' pipes nor a
	 * probe that would live on until the worker's end.
	 */
	dup2(w->order[0], 3);
	dup2(w->answer[1], 4);
	close_range(5, ~0U, 0);
	w->order[0] = 3;
	w->answer[1] = 4;
	answer = 0;
	if (write(w->answer[1], &answer, sizeof(answer)) != sizeof(answer))
		_exit(1);
	while (read(w->order[0], &order, sizeof(order)) == sizeof(order)) {
		answer = fn(order);
		if (write(w->answer[1], &answer, sizeof(answer)) != sizeof(answer))
			break;
	}
	_exit(0);
}

long worker_do(struct worker *w, long order)
{
	long answer;
	int status = 0;

	if (write(w->order[1], &order, sizeof(order)) == sizeof(order) &&
	    read(w->answer[0], &answer, sizeof(answer)) == sizeof(answer))
		return answer;
	waitpid(w->pid, &status, WNOHANG);
	diag("worker is gone, status %#x", status);
	_exit(FAIL);
}

void worker_stop(struct worker *w)
{
	int status;

	close(w->order[1]);
	close(w->answer[0]);
	CHECK_EQ(waitpid(w->pid, &status, 0), w->pid, "waitpid");
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "worker: status %#x", status);
}
