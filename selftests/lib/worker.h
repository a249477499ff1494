/* SPDX-License-Identifier: GPL-2.0 */
/* A child process that does as it is told, one order at a time. */
#ifndef WORKER_H
#define WORKER_H

#include <sys/types.h>

struct worker {
	pid_t	pid;
	int	order[2], answer[2];
};

/* Forks; the child answers each order with what @fn returns for it. */
void worker_start(struct worker *w, long (*fn)(long order));
long worker_do(struct worker *w, long order);
void worker_stop(struct worker *w);

#endif
