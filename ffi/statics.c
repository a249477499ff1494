// SPDX-License-Identifier: GPL-2.0
/* Objects that only the kernel's macros can define. */
#include <linux/percpu-rwsem.h>
#include <linux/srcu.h>

/* Excludes fork while breakpoints are installed or removed. */
DEFINE_PERCPU_RWSEM(uprobes_rs_dup_mmap_sem);

/* Keeps a uprobe during the call whose return is probed, and during a single-step. */
DEFINE_SRCU_FAST_UPDOWN(uprobes_rs_lease_srcu);
