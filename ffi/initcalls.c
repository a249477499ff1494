// SPDX-License-Identifier: GPL-2.0
/* What runs once file systems can be made; in C for the linker's tables. */
#include <linux/init.h>

int uprobes_rs_late_init(void);

late_initcall(uprobes_rs_late_init);
