// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros of the kernel, one line each, for Rust to call.
 * Compiled to bitcode and inlined where RUST_INLINE_HELPERS allows, else an
 * object of its own. No logic belongs here.
 */
#include <linux/debugfs.h>
#include <linux/highmem.h>
#include <linux/khugepaged.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/pagewalk.h>
#include <linux/percpu-rwsem.h>
#include <linux/refcount.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/seq_file.h>
#include <linux/shmem_fs.h>
#include <linux/srcu.h>
#include <linux/rcupdate_trace.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/swap.h>
#include <linux/task_work.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/uprobes.h>
#include <linux/userfaultfd_k.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/oom.h>

#ifdef __BINDGEN__
#define __rust_helper
#else
#define __rust_helper __always_inline
#endif

/* Memory. */

__rust_helper struct kmem_cache *rust_helper_uprobes_cache_create(const char *name,
								  unsigned int size)
{
	return kmem_cache_create(name, size, 0, SLAB_HWCACHE_ALIGN | SLAB_PANIC, NULL);
}

__rust_helper bool rust_helper_uprobes_cache_alloc_bulk(struct kmem_cache *cache, size_t count,
							void **memory)
{
	return kmem_cache_alloc_bulk(cache, GFP_KERNEL, count, memory);
}

/* CPUs. */

#ifdef CONFIG_X86
__rust_helper void rust_helper_uprobes_sync_core(void)
{
	sync_core();
}
#endif

/* Current task and its flags. */

__rust_helper struct task_struct *rust_helper_uprobes_current(void)
{
	return current;
}

__rust_helper struct mm_struct *rust_helper_uprobes_task_mm(struct task_struct *t)
{
	return t->mm;
}

__rust_helper int rust_helper_uprobes_mm_users(struct mm_struct *mm)
{
	return atomic_read(&mm->mm_users);
}

__rust_helper struct uprobe_task *rust_helper_uprobes_utask(struct task_struct *t)
{
	return t->utask;
}

__rust_helper void rust_helper_uprobes_set_utask(struct task_struct *t, struct uprobe_task *utask)
{
	t->utask = utask;
}

__rust_helper bool rust_helper_uprobes_task_exiting(struct task_struct *t)
{
	return t->flags & PF_EXITING;
}

__rust_helper struct pt_regs *rust_helper_uprobes_task_pt_regs(struct task_struct *t)
{
	return task_pt_regs(t);
}

__rust_helper void rust_helper_uprobes_set_uprobe_flag(struct task_struct *t)
{
	set_tsk_thread_flag(t, TIF_UPROBE);
}

__rust_helper void rust_helper_uprobes_clear_uprobe_flag(void)
{
	clear_thread_flag(TIF_UPROBE);
}

__rust_helper void rust_helper_uprobes_set_sigpending_flag(void)
{
	set_thread_flag(TIF_SIGPENDING);
}

__rust_helper void rust_helper_uprobes_clear_sigpending_flag(struct task_struct *t)
{
	clear_tsk_thread_flag(t, TIF_SIGPENDING);
}

__rust_helper bool rust_helper_uprobes_task_sigpending(struct task_struct *t)
{
	return task_sigpending(t);
}

__rust_helper bool rust_helper_uprobes_fatal_signal_pending(struct task_struct *t)
{
	return __fatal_signal_pending(t);
}

__rust_helper void rust_helper_uprobes_lock_signals(struct task_struct *t)
{
	spin_lock_irq(&t->sighand->siglock);
}

__rust_helper void rust_helper_uprobes_unlock_signals(struct task_struct *t)
{
	spin_unlock_irq(&t->sighand->siglock);
}

__rust_helper struct list_head *rust_helper_uprobes_pending_signals(struct task_struct *t)
{
	return &t->pending.list;
}

__rust_helper bool rust_helper_uprobes_is_fault(const struct kernel_siginfo *info)
{
	return siginfo_layout(info->si_signo, info->si_code) == SIL_FAULT;
}

__rust_helper void __user **rust_helper_uprobes_fault_address(struct kernel_siginfo *info)
{
	return &info->si_addr;
}

__rust_helper int rust_helper_uprobes_task_work_add(struct task_struct *t,
						    struct callback_head *work)
{
	return task_work_add(t, work, TWA_RESUME);
}

__rust_helper void rust_helper_uprobes_init_task_work(struct callback_head *work,
						      task_work_func_t func)
{
	init_task_work(work, func);
}

/* RCU Tasks Trace, SRCU, RCU. */

__rust_helper void rust_helper_uprobes_rcu_read_lock_trace(void)
{
	rcu_read_lock_trace();
}

__rust_helper void rust_helper_uprobes_rcu_read_unlock_trace(void)
{
	rcu_read_unlock_trace();
}

__rust_helper void rust_helper_uprobes_call_rcu_tasks_trace(struct rcu_head *rcu,
							    rcu_callback_t func)
{
	call_rcu_tasks_trace(rcu, func);
}

__rust_helper void rust_helper_uprobes_call_rcu(struct rcu_head *rcu, rcu_callback_t func)
{
	call_rcu(rcu, func);
}

__rust_helper void rust_helper_uprobes_synchronize_rcu_tasks_trace(void)
{
	synchronize_rcu_tasks_trace();
}

__rust_helper struct srcu_ctr __percpu *
rust_helper_uprobes_srcu_down_read_fast(struct srcu_struct *ssp)
{
	return srcu_down_read_fast(ssp);
}

__rust_helper void rust_helper_uprobes_srcu_up_read_fast(struct srcu_struct *ssp,
							 struct srcu_ctr __percpu *scp)
{
	srcu_up_read_fast(ssp, scp);
}

/* Locks and counts. */

__rust_helper void rust_helper_uprobes_percpu_down_read(struct percpu_rw_semaphore *sem)
{
	percpu_down_read(sem);
}

__rust_helper void rust_helper_uprobes_percpu_up_read(struct percpu_rw_semaphore *sem)
{
	percpu_up_read(sem);
}

__rust_helper bool rust_helper_uprobes_refcount_inc_not_zero(refcount_t *r)
{
	return refcount_inc_not_zero(r);
}

__rust_helper bool rust_helper_uprobes_refcount_dec_and_test(refcount_t *r)
{
	return refcount_dec_and_test(r);
}

/* One function a lock: each use of these macros is a class of its own to lockdep. */

__rust_helper void rust_helper_uprobes_init_register_lock(struct rw_semaphore *sem)
{
	init_rwsem(sem);
}

__rust_helper void rust_helper_uprobes_init_consumers_lock(struct rw_semaphore *sem)
{
	init_rwsem(sem);
}

__rust_helper void rust_helper_uprobes_init_index_lock(spinlock_t *lock)
{
	spin_lock_init(lock);
}

__rust_helper void rust_helper_uprobes_init_semaphores_lock(spinlock_t *lock)
{
	spin_lock_init(lock);
}

__rust_helper void rust_helper_uprobes_init_debugger_lock(spinlock_t *lock)
{
	spin_lock_init(lock);
}

__rust_helper void rust_helper_uprobes_init_registry_lock(spinlock_t *lock)
{
	spin_lock_init(lock);
}

__rust_helper void rust_helper_uprobes_spin_lock(spinlock_t *lock)
{
	spin_lock(lock);
}

__rust_helper void rust_helper_uprobes_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}

__rust_helper void rust_helper_uprobes_init_waitqueue_head(struct wait_queue_head *wq)
{
	init_waitqueue_head(wq);
}

__rust_helper bool rust_helper_uprobes_waitqueue_active(struct wait_queue_head *wq)
{
	return waitqueue_active(wq);
}

__rust_helper void rust_helper_uprobes_wake_up(struct wait_queue_head *wq)
{
	wake_up(wq);
}

__rust_helper void rust_helper_uprobes_init_wait(struct wait_queue_entry *wait)
{
	init_wait(wait);
}

__rust_helper void rust_helper_uprobes_timer_setup(struct timer_list *timer,
						   void (*func)(struct timer_list *))
{
	timer_setup(timer, func, 0);
}

__rust_helper bool rust_helper_uprobes_timer_pending(const struct timer_list *timer)
{
	return timer_pending(timer);
}

__rust_helper void rust_helper_uprobes_hold_super(struct super_block *sb)
{
	atomic_inc(&sb->s_active);
}

__rust_helper void rust_helper_uprobes_init_delayed_work(struct delayed_work *work,
							 work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

__rust_helper bool rust_helper_uprobes_schedule_delayed_work(struct delayed_work *work,
							     unsigned long delay)
{
	return schedule_delayed_work(work, delay);
}

__rust_helper void rust_helper_uprobes_init_work(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

__rust_helper bool rust_helper_uprobes_queue_unbound_work(struct work_struct *work)
{
	return queue_work(system_dfl_wq, work);
}

#ifdef CONFIG_UPROBES_RUST_KUNIT_TEST
__rust_helper struct file *rust_helper_uprobes_shmem_file(loff_t size)
{
	return shmem_file_setup("uprobes", size, EMPTY_VMA_FLAGS);
}
#endif

/* Address spaces and mappings. */

__rust_helper void rust_helper_uprobes_mmap_write_lock(struct mm_struct *mm)
{
	mmap_write_lock(mm);
}

__rust_helper int rust_helper_uprobes_mmap_write_lock_killable(struct mm_struct *mm)
{
	return mmap_write_lock_killable(mm);
}

__rust_helper void rust_helper_uprobes_mmap_write_unlock(struct mm_struct *mm)
{
	mmap_write_unlock(mm);
}

__rust_helper bool rust_helper_uprobes_mmap_speculate_begin(struct mm_struct *mm,
							    unsigned int *seq)
{
	return mmap_lock_speculate_try_begin(mm, seq);
}

__rust_helper bool rust_helper_uprobes_mmap_speculate_retry(struct mm_struct *mm,
							    unsigned int seq)
{
	return mmap_lock_speculate_retry(mm, seq);
}

__rust_helper bool rust_helper_uprobes_mm_flags_test(int flag, struct mm_struct *mm)
{
	return mm_flags_test(flag, mm);
}

__rust_helper void rust_helper_uprobes_mm_flags_set(int flag, struct mm_struct *mm)
{
	mm_flags_set(flag, mm);
}

__rust_helper bool rust_helper_uprobes_is_stable_address_space(struct mm_struct *mm)
{
	return !check_stable_address_space(mm);
}

__rust_helper struct vm_area_struct *rust_helper_uprobes_vma_next(struct mm_struct *mm,
								  unsigned long from)
{
	return find_vma(mm, from);
}

__rust_helper unsigned long rust_helper_uprobes_vma_start_pgoff(struct vm_area_struct *vma)
{
	return vma_start_pgoff(vma);
}

__rust_helper bool rust_helper_uprobes_vma_is_cow(struct vm_area_struct *vma)
{
	return vma_is_cow_mapping(vma);
}

__rust_helper unsigned long rust_helper_uprobes_vma_flags(struct vm_area_struct *vma)
{
	return vma->vm_flags;
}

__rust_helper struct inode *rust_helper_uprobes_file_inode(struct file *file)
{
	return file_inode(file);
}

__rust_helper struct file *rust_helper_uprobes_vma_file_speculative(struct vm_area_struct *vma)
{
	return READ_ONCE(vma->vm_file);
}

__rust_helper void rust_helper_uprobes_i_mmap_lock_read(struct address_space *mapping)
{
	i_mmap_lock_read(mapping);
}

__rust_helper void rust_helper_uprobes_i_mmap_unlock_read(struct address_space *mapping)
{
	i_mmap_unlock_read(mapping);
}

__rust_helper void rust_helper_uprobes_i_mmap_lock_write(struct address_space *mapping)
{
	i_mmap_lock_write(mapping);
}

__rust_helper void rust_helper_uprobes_i_mmap_unlock_write(struct address_space *mapping)
{
	i_mmap_unlock_write(mapping);
}

__rust_helper void rust_helper_uprobes_vma_start_write(struct vm_area_struct *vma)
{
	vma_start_write(vma);
}

__rust_helper unsigned long rust_helper_uprobes_unmapped_area_near_top(void)
{
	return get_unmapped_area(NULL, TASK_SIZE - PAGE_SIZE, PAGE_SIZE, 0, 0);
}

__rust_helper loff_t rust_helper_uprobes_i_size_read(struct inode *inode)
{
	return i_size_read(inode);
}

/* Pages and page table entries. */

__rust_helper struct page *rust_helper_uprobes_read_mapping_page(struct address_space *mapping,
								 pgoff_t index, struct file *file)
{
	return read_mapping_page(mapping, index, file);
}

__rust_helper struct page *
rust_helper_uprobes_shmem_read_mapping_page(struct address_space *mapping, pgoff_t index)
{
	return shmem_read_mapping_page(mapping, index);
}

__rust_helper bool rust_helper_uprobes_has_read_folio(struct address_space *mapping)
{
	return mapping->a_ops->read_folio;
}

__rust_helper void rust_helper_uprobes_get_page(struct page *page)
{
	get_page(page);
}

__rust_helper void rust_helper_uprobes_put_page(struct page *page)
{
	put_page(page);
}

__rust_helper struct page *rust_helper_uprobes_alloc_zeroed_page(void)
{
	return alloc_page(GFP_HIGHUSER | __GFP_ZERO);
}

__rust_helper void *rust_helper_uprobes_kmap_local_page(struct page *page)
{
	return kmap_local_page(page);
}

__rust_helper void rust_helper_uprobes_kunmap_local(void *addr)
{
	kunmap_local(addr);
}

__rust_helper struct folio *rust_helper_uprobes_page_folio(struct page *page)
{
	return page_folio(page);
}

__rust_helper bool rust_helper_uprobes_folio_test_anon(struct folio *folio)
{
	return folio_test_anon(folio);
}

__rust_helper bool rust_helper_uprobes_folio_is_zone_device(struct folio *folio)
{
	return folio_is_zone_device(folio);
}

__rust_helper bool rust_helper_uprobes_folio_has_extra_refs(struct folio *folio)
{
	return folio_ref_count(folio) != folio_expected_ref_count(folio) + 1;
}

__rust_helper bool rust_helper_uprobes_folio_free_swap_wanted(struct folio *folio)
{
	return !folio_mapped(folio) && folio_test_swapcache(folio);
}

__rust_helper bool rust_helper_uprobes_folio_trylock(struct folio *folio)
{
	return folio_trylock(folio);
}

__rust_helper void rust_helper_uprobes_folio_unlock(struct folio *folio)
{
	folio_unlock(folio);
}

__rust_helper bool rust_helper_uprobes_folio_free_swap(struct folio *folio)
{
	return folio_free_swap(folio);
}

__rust_helper void rust_helper_uprobes_folio_put(struct folio *folio)
{
	folio_put(folio);
}

__rust_helper bool rust_helper_uprobes_folio_test_uptodate(struct folio *folio)
{
	return folio_test_uptodate(folio);
}

__rust_helper bool rust_helper_uprobes_folio_test_pmd_mappable(struct folio *folio)
{
	return folio_test_pmd_mappable(folio);
}

__rust_helper struct folio *rust_helper_uprobes_filemap_get_folio(struct address_space *mapping,
								  pgoff_t index)
{
	return filemap_get_folio(mapping, index);
}

__rust_helper struct page *rust_helper_uprobes_folio_file_page(struct folio *folio, pgoff_t index)
{
	return folio_file_page(folio, index);
}

__rust_helper bool rust_helper_uprobes_pages_identical(struct page *a, struct page *b)
{
	return pages_identical(a, b);
}

__rust_helper void rust_helper_uprobes_folio_walk_end(struct folio_walk *fw,
						      struct vm_area_struct *vma)
{
	folio_walk_end(fw, vma);
}

__rust_helper bool rust_helper_uprobes_pte_write(struct folio_walk *fw)
{
	return pte_write(fw->pte);
}

__rust_helper bool rust_helper_uprobes_page_anon_exclusive(struct page *page)
{
	return PageAnonExclusive(page);
}

__rust_helper bool rust_helper_uprobes_pte_uffd_wp(struct vm_area_struct *vma,
						   struct folio_walk *fw)
{
	return userfaultfd_pte_wp(vma, fw->pte);
}

__rust_helper bool rust_helper_uprobes_uffd_missing(struct vm_area_struct *vma)
{
	return userfaultfd_missing(vma);
}

__rust_helper void rust_helper_uprobes_flush_cache_page(struct vm_area_struct *vma,
							unsigned long addr,
							struct folio_walk *fw)
{
	flush_cache_page(vma, addr, pte_pfn(fw->pte));
}

__rust_helper void rust_helper_uprobes_ptep_clear_flush(struct vm_area_struct *vma,
							unsigned long addr,
							struct folio_walk *fw)
{
	fw->pte = ptep_clear_flush(vma, addr, fw->ptep);
}

__rust_helper void rust_helper_uprobes_set_pte_dirty_at(struct mm_struct *mm, unsigned long addr,
							struct folio_walk *fw)
{
	set_pte_at(mm, addr, fw->ptep, pte_mkdirty(fw->pte));
}

__rust_helper void rust_helper_uprobes_dec_anon_counter(struct mm_struct *mm)
{
	dec_mm_counter(mm, MM_ANONPAGES);
}

__rust_helper void rust_helper_uprobes_folio_remove_rmap_pte(struct folio *folio,
							     struct page *page,
							     struct vm_area_struct *vma)
{
	folio_remove_rmap_pte(folio, page, vma);
}

__rust_helper void rust_helper_uprobes_invalidate_begin(struct mmu_notifier_range *range,
							struct mm_struct *mm, unsigned long start,
							unsigned long end)
{
	mmu_notifier_range_init(range, MMU_NOTIFY_CLEAR, 0, mm, start, end);
	mmu_notifier_invalidate_range_start(range);
}

__rust_helper void rust_helper_uprobes_invalidate_end(struct mmu_notifier_range *range)
{
	mmu_notifier_invalidate_range_end(range);
}

__rust_helper void rust_helper_uprobes_collapse_pte_mapped_thp(struct mm_struct *mm,
							       unsigned long addr)
{
	collapse_pte_mapped_thp(mm, addr, false);
}

__rust_helper void rust_helper_uprobes_flush_dcache_page(struct page *page)
{
	flush_dcache_page(page);
}

/* User memory. */

__rust_helper int rust_helper_uprobes_get_user_u64(u64 *value, const u64 __user *addr)
{
	return get_user_inline(*value, addr);
}

__rust_helper int rust_helper_uprobes_put_user_u64(u64 value, u64 __user *addr)
{
	return put_user_inline(value, addr);
}

__rust_helper int rust_helper_uprobes_get_user_u32(u32 *value, const u32 __user *addr)
{
	return get_user(*value, addr);
}

__rust_helper int rust_helper_uprobes_put_user_u32(u32 value, u32 __user *addr)
{
	return put_user(value, addr);
}

__rust_helper unsigned long rust_helper_uprobes_copy_from_user(void *to, const void __user *from,
							       unsigned long n)
{
	return copy_from_user(to, from, n);
}

__rust_helper unsigned long rust_helper_uprobes_copy_to_user(void __user *to, const void *from,
							     unsigned long n)
{
	return copy_to_user(to, from, n);
}

__rust_helper unsigned long
rust_helper_uprobes_copy_from_user_inatomic(void *to, const void __user *from, unsigned long n)
{
	return copy_from_user_nofault(to, from, n);
}

/* Lists that hang in C structures. */

__rust_helper void rust_helper_uprobes_list_init(struct list_head *head)
{
	INIT_LIST_HEAD(head);
}

__rust_helper void rust_helper_uprobes_list_add_rcu(struct list_head *node, struct list_head *head)
{
	list_add_rcu(node, head);
}

__rust_helper void rust_helper_uprobes_list_del_rcu(struct list_head *node)
{
	list_del_rcu(node);
}

/* Files that show what is there. */

__rust_helper void rust_helper_uprobes_seq_puts(struct seq_file *m, const char *s)
{
	seq_puts(m, s);
}

#ifdef CONFIG_RISCV
#include <asm/cacheflush.h>
#include <asm/usercfi.h>

__rust_helper bool rust_helper_uprobes_is_64bit_mm(struct mm_struct *mm)
{
#ifdef CONFIG_COMPAT
	return mm->task_size > TASK_SIZE_32;
#else
	return true;
#endif
}

__rust_helper unsigned long rust_helper_uprobes_bad_cause(struct task_struct *t)
{
	return t->thread.bad_cause;
}

__rust_helper void rust_helper_uprobes_set_bad_cause(struct task_struct *t, unsigned long cause)
{
	t->thread.bad_cause = cause;
}

__rust_helper bool rust_helper_uprobes_shadow_stack_enabled(struct task_struct *t)
{
	return is_shstk_enabled(t);
}

__rust_helper bool rust_helper_uprobes_landing_pads_enabled(struct task_struct *t)
{
	return is_indir_lp_enabled(t);
}
#endif

#ifdef CONFIG_X86
#include <asm/debugreg.h>
#include <asm/elf.h>
#include <asm/mmu_context.h>
#include <asm/prctl.h>

__rust_helper bool rust_helper_uprobes_syscalls_watched(void)
{
	return current_thread_info()->syscall_work &
	       (SYSCALL_WORK_SYSCALL_TRACE | SYSCALL_WORK_SYSCALL_EMU |
		SYSCALL_WORK_SYSCALL_USER_DISPATCH);
}

__rust_helper bool rust_helper_uprobes_is_64bit_mm(struct mm_struct *mm)
{
	return is_64bit_mm(mm);
}

__rust_helper bool rust_helper_uprobes_task_addr32(void)
{
	return test_thread_flag(TIF_ADDR32);
}

__rust_helper void rust_helper_uprobes_set_compat_status(bool on)
{
	current_thread_info()->status = on ? current_thread_info()->status | TS_COMPAT :
					     current_thread_info()->status & ~TS_COMPAT;
}

__rust_helper bool rust_helper_uprobes_test_blockstep(struct task_struct *t)
{
	return test_tsk_thread_flag(t, TIF_BLOCKSTEP);
}

__rust_helper unsigned long rust_helper_uprobes_trap_nr(struct task_struct *t)
{
	return t->thread.trap_nr;
}

__rust_helper void rust_helper_uprobes_set_trap_nr(struct task_struct *t, unsigned long nr)
{
	t->thread.trap_nr = nr;
}

__rust_helper bool rust_helper_uprobes_shadow_stack_enabled(void)
{
#ifdef CONFIG_X86_USER_SHADOW_STACK
	return current->thread.features & ARCH_SHSTK_SHSTK;
#else
	return false;
#endif
}

__rust_helper void rust_helper_uprobes_set_virtual_dr6_step(void)
{
	current->thread.virtual_dr6 = DR_STEP;
}

__rust_helper bool rust_helper_uprobes_user_mode(struct pt_regs *regs)
{
	return user_mode(regs);
}
#endif

#ifdef CONFIG_ARM64
#include <asm/cacheflush.h>
#include <asm/debug-monitors.h>
#include <asm/exception.h>
#include <asm/fpsimd.h>
#include <asm/gcs.h>
#include <asm/mmu.h>

__rust_helper bool rust_helper_uprobes_is_64bit_mm(struct mm_struct *mm)
{
	return !(mm->context.flags & MMCF_AARCH32);
}

__rust_helper unsigned long rust_helper_uprobes_fault_code(struct task_struct *t)
{
	return t->thread.fault_code;
}

__rust_helper void rust_helper_uprobes_set_fault_code(struct task_struct *t, unsigned long code)
{
	t->thread.fault_code = code;
}

__rust_helper bool rust_helper_uprobes_singlestep_flag(struct task_struct *t)
{
	return test_tsk_thread_flag(t, TIF_SINGLESTEP);
}

__rust_helper void rust_helper_uprobes_set_singlestep_flag(struct task_struct *t, bool on)
{
	update_tsk_thread_flag(t, TIF_SINGLESTEP, on);
}

__rust_helper bool rust_helper_uprobes_breakpoints_suspended(struct task_struct *t)
{
	return t->thread.debug.bps_disabled || t->thread.debug.wps_disabled;
}

__rust_helper bool rust_helper_uprobes_step_suspended(struct task_struct *t)
{
	return t->thread.debug.suspended_step;
}

__rust_helper void rust_helper_uprobes_set_step_suspended(struct task_struct *t, bool on)
{
	t->thread.debug.suspended_step = on;
}

__rust_helper bool rust_helper_uprobes_supports_bti(void)
{
	return system_supports_bti();
}

__rust_helper u32 rust_helper_uprobes_address_bits(void)
{
	return vabits_actual;
}

__rust_helper bool rust_helper_uprobes_gcs_enabled(struct task_struct *t)
{
	return task_gcs_el0_enabled(t);
}

__rust_helper void rust_helper_uprobes_gcs_push(unsigned long value, int *err)
{
	push_user_gcs(value, err);
}

__rust_helper u64 rust_helper_uprobes_gcs_pop(int *err)
{
	return pop_user_gcs(err);
}

__rust_helper void rust_helper_uprobes_gcs_replace(unsigned long value, int *err)
{
	put_user_gcs(value, (unsigned long __user *)read_sysreg_s(SYS_GCSPR_EL0), err);
}

__rust_helper bool rust_helper_uprobes_supports_sme(void)
{
	return system_supports_sme();
}
#endif
