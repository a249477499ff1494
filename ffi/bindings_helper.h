/* SPDX-License-Identifier: GPL-2.0 */
#include "helpers.c"
#include <linux/kdebug.h>
#ifdef CONFIG_X86
#include <asm/insn.h>
#include <asm/shstk.h>
#endif

/* As in rust/bindings/bindings_helper.h: bindgen cannot evaluate the macros. */
const vm_flags_t RUST_CONST_HELPER_UPROBES_VM_SEALED_SYSMAP = VM_SEALED_SYSMAP;

extern struct percpu_rw_semaphore uprobes_rs_dup_mmap_sem;
extern struct srcu_struct uprobes_rs_lease_srcu;
