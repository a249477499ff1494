// SPDX-License-Identifier: GPL-2.0
/* What modules may call; in C, so that symbol versions are made for it. */
#include <linux/export.h>
#include <linux/uprobes.h>

EXPORT_SYMBOL_GPL(uprobe_register);
EXPORT_SYMBOL_GPL(uprobe_unregister_nosync);
EXPORT_SYMBOL_GPL(uprobe_unregister_sync);
