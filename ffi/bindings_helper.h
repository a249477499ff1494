/* SPDX-License-Identifier: GPL-2.0 */
#include "helpers.c"
#include <linux/kdebug.h>
#include <linux/uprobes_rs.h>
#ifdef CONFIG_X86
#include <asm/insn.h>
#include <asm/shstk.h>
#endif
#ifdef CONFIG_ARM64
#include <asm/exception.h>
#include <asm/traps.h>
#endif

/* As in rust/bindings/bindings_helper.h: bindgen cannot evaluate the macros. */
const vm_flags_t RUST_CONST_HELPER_UPROBES_VM_SEALED_SYSMAP = VM_SEALED_SYSMAP;
#ifdef CONFIG_ARM64
const vm_flags_t RUST_CONST_HELPER_UPROBES_VM_ARM64_BTI = VM_ARM64_BTI;
#endif
const unsigned int RUST_CONST_HELPER_UPROBES_TASK_KILLABLE = TASK_KILLABLE;

/*
 * Where C has what Rust reads. bindgen does not get every layout right (that of
 * task_struct is wrong), so ffi/layout.rs compares.
 */
#define OFFSET(type, member) \
	const size_t RUST_CONST_HELPER_UPROBES_OFFSET_##type##_##member = \
		offsetof(struct type, member)
#define SIZE(type) \
	const size_t RUST_CONST_HELPER_UPROBES_SIZE_##type = sizeof(struct type)

OFFSET(vm_area_struct, vm_start);
OFFSET(vm_area_struct, vm_end);
OFFSET(vm_area_struct, vm_mm);
OFFSET(vm_area_struct, vm_file);
OFFSET(mm_struct, uprobes_state);
OFFSET(file, f_mapping);
OFFSET(inode, i_mapping);
OFFSET(inode, i_ino);
OFFSET(vm_fault, page);
OFFSET(sigqueue, list);
OFFSET(sigqueue, info);
OFFSET(uprobe_consumer, handler);
OFFSET(uprobe_consumer, ret_handler);
OFFSET(uprobe_consumer, filter);
OFFSET(uprobe_consumer, cons_node);
OFFSET(uprobe_consumer, id);
OFFSET(uprobe_task, depth);
OFFSET(uprobe_task, return_instances);
OFFSET(uprobe_task, ri_pool);
OFFSET(uprobe_task, ri_timer);
OFFSET(uprobe_task, vaddr);
OFFSET(uprobe_task, dup_xol_work);
OFFSET(uprobe_task, dup_xol_addr);
OFFSET(uprobe_task, auprobe);
SIZE(uprobe_task);
OFFSET(return_instance, hprobe);
OFFSET(return_instance, func);
OFFSET(return_instance, stack);
OFFSET(return_instance, orig_ret_vaddr);
OFFSET(return_instance, chained);
OFFSET(return_instance, cons_cnt);
OFFSET(return_instance, next);
OFFSET(return_instance, consumer);
OFFSET(return_instance, extra_consumers);
SIZE(return_instance);
SIZE(rw_semaphore);
SIZE(spinlock);
SIZE(wait_queue_head);
SIZE(wait_queue_entry);
SIZE(work_struct);
SIZE(delayed_work);
SIZE(callback_head);
SIZE(mmu_notifier_range);
SIZE(folio_walk);
SIZE(vm_special_mapping);
SIZE(file_operations);
SIZE(notifier_block);

#undef OFFSET
#undef SIZE

extern struct percpu_rw_semaphore uprobes_rs_dup_mmap_sem;
extern struct srcu_struct uprobes_rs_lease_srcu;
