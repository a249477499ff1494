// SPDX-License-Identifier: GPL-2.0
/* System calls of the trampolines; in C for their metadata. */
#include <linux/sched/task_stack.h>
#include <linux/syscalls.h>

long uprobes_rs_sys_uprobe(struct pt_regs *regs);
long uprobes_rs_sys_uretprobe(struct pt_regs *regs);

SYSCALL_DEFINE0(uprobe)
{
	return uprobes_rs_sys_uprobe(task_pt_regs(current));
}

SYSCALL_DEFINE0(uretprobe)
{
	return uprobes_rs_sys_uretprobe(task_pt_regs(current));
}
