// SPDX-License-Identifier: GPL-2.0
/* What modules may call; in C, so that symbol versions are made for it. */
#include <linux/export.h>
#include <linux/uprobes_rs.h>

EXPORT_SYMBOL_GPL(uprobe_register);
EXPORT_SYMBOL_GPL(uprobe_unregister_nosync);
EXPORT_SYMBOL_GPL(uprobe_unregister_sync);
EXPORT_SYMBOL_GPL(uprobe_unregister_async);
EXPORT_SYMBOL_GPL(uprobe_unregister_flush);
EXPORT_SYMBOL_GPL(uprobe_defer);
#ifdef CONFIG_KPROBES
EXPORT_SYMBOL_GPL(unregister_kprobe_async);
EXPORT_SYMBOL_GPL(unregister_kretprobe_async);
#endif
EXPORT_SYMBOL_GPL(uprobe_register_batch);
EXPORT_SYMBOL_GPL(uprobe_unregister_batch);
