// SPDX-License-Identifier: GPL-2.0

//! Registration of consumers.

use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::Arch;
use uprobes_core::errno::Errno;
use uprobes_core::pending_work::Next;

use crate::consumer::CConsumer;
use crate::isa::Isa;
use crate::mm::{self, Vma, PAGE_SIZE};
use crate::sync::{self, MmapWrite, NoFork, WriteGuard};
use crate::uprobe::{Uprobe, UprobeRef};

/// A use of an address space, ended on drop, which may sleep.
struct MmUser(NonNull<bindings::mm_struct>);

impl Drop for MmUser {
    fn drop(&mut self) {
        // SAFETY: the value owns a use of the `mm`.
        unsafe { bindings::mmput(self.0.as_ptr()) };
    }
}

/// A place in some process where the probed byte of the file is mapped.
struct Place {
    mm: MmUser,
    vaddr: u64,
}

/// What is done at each place.
#[derive(Clone, Copy)]
enum Change<'c> {
    /// Breakpoints go in where this consumer wants hits.
    Install(&'c CConsumer),
    /// Breakpoints go out where no consumer wants hits any more.
    Remove,
}

impl Change<'_> {
    fn concerns(&self, vma: &Vma<'_>) -> bool {
        match self {
            Change::Install(_) => vma.wants_probes(),
            Change::Remove => vma.may_hold_probes(),
        }
    }
}

/// Finds every place of `uprobe` that `change` concerns.
///
/// # Errors
///
/// `ENOMEM`.
fn places(uprobe: &Uprobe, change: Change<'_>) -> Result<KVec<Place>, Errno> {
    let mut places = KVec::new();
    let index = (uprobe.offset() / PAGE_SIZE) as usize;
    // SAFETY: the inode is valid while there are consumers, and while breakpoints are removed.
    let mapping = unsafe { (*uprobe.inode()).i_mapping };
    loop {
        // Memory cannot be waited for under the lock: count what does not fit, and begin again.
        let mut missing = 0;
        // SAFETY: `mapping` is valid.
        unsafe { c::uprobes_i_mmap_lock_read(mapping) };
        // SAFETY: locked.
        let mut raw = unsafe { bindings::mapping_rmap_tree_iter_first(mapping, index, index) };
        while let Some(at) = NonNull::new(raw) {
            // SAFETY: mappings stay in the tree while it is locked.
            let vma = unsafe { Vma::from_raw(at) };
            if change.concerns(&vma) {
                missing += usize::from(!add_place(&mut places, &vma, uprobe.offset()));
            }
            // SAFETY: locked.
            raw = unsafe { bindings::mapping_rmap_tree_iter_next(raw, index, index) };
        }
        // SAFETY: locked above.
        unsafe { c::uprobes_i_mmap_unlock_read(mapping) };
        if missing == 0 {
            return Ok(places);
        }
        let wanted = places.len() + missing;
        places.clear();
        places
            .reserve(wanted, GFP_KERNEL)
            .map_err(|_| Errno::ENOMEM)?;
    }
}

/// Adds the place in `vma`; fails if there is no room for it.
fn add_place(places: &mut KVec<Place>, vma: &Vma<'_>, offset: u64) -> bool {
    let (Some(mm), Some(vaddr)) = (NonNull::new(vma.mm()), vma.vaddr_of(offset)) else {
        return true;
    };
    if places.len() == places.capacity() {
        return false;
    }
    // SAFETY: the mapping keeps its `mm` valid while it is in the tree.
    if !unsafe { bindings::mmget_not_zero(mm.as_ptr()) } {
        return true;
    }
    let place = Place {
        mm: MmUser(mm),
        vaddr,
    };
    places.push_within_capacity(place).is_ok()
}

/// Carries `change` out in every process that maps the probed byte.
///
/// # Errors
///
/// `ENOMEM`; the first error of an installation, which ends the work, or of a removal, which does
/// not.
///
/// # Context
///
/// The registration lock is held for writing. May sleep.
fn for_each_place(
    uprobe: &Uprobe,
    _register: &WriteGuard<'_>,
    change: Change<'_>,
) -> Result<(), Errno> {
    let _no_fork = NoFork::enter();
    let mut result = Ok(());
    for place in places(uprobe, change)? {
        if result.is_err() && matches!(change, Change::Install(_)) {
            break;
        }
        result = result.and(at_place(uprobe, &place, change));
    }
    result
}

fn at_place(uprobe: &Uprobe, place: &Place, change: Change<'_>) -> Result<(), Errno> {
    // Write-locked, so that a hit sees either no breakpoint or a uprobe for it.
    // SAFETY: the place uses the `mm`.
    let lock = unsafe { MmapWrite::lock(place.mm.0) };
    let mm = place.mm.0.as_ptr();
    // SAFETY: locked just now.
    if !unsafe { c::uprobes_is_stable_address_space(mm) } {
        return Ok(());
    }
    let Some(vma) = mm::next_vma(&lock, place.vaddr) else {
        return Ok(());
    };
    // The process may have changed its mappings since the search.
    if vma.start() > place.vaddr
        || vma.inode() != uprobe.inode()
        || vma.offset_of(place.vaddr) != uprobe.offset()
        || !change.concerns(&vma)
    {
        return Ok(());
    }
    match change {
        Change::Install(consumer) if consumer.wants(mm) => {
            mm::install(uprobe, &vma, place.vaddr).map(|_| ())
        }
        Change::Remove if mm::has_uprobes(mm) && !uprobe.consumers.any_wants(mm) => {
            mm::remove(uprobe, &vma, place.vaddr)
        }
        _ => Ok(()),
    }
}

/// The checks of a registration that need no lock.
///
/// # Safety
///
/// `inode` and `consumer` are valid.
unsafe fn check(
    inode: *mut bindings::inode,
    offset: i64,
    ref_ctr_offset: i64,
    consumer: *mut bindings::uprobe_consumer,
) -> Result<(u64, u64), Errno> {
    // SAFETY: by contract.
    unsafe {
        if (*consumer).handler.is_none() && (*consumer).ret_handler.is_none() {
            return Err(Errno::EINVAL);
        }
        if !mm::can_be_read(inode) {
            return Err(Errno::EIO);
        }
        // The file may change its size at any time; this catches mistakes only.
        if offset > c::uprobes_i_size_read(inode) {
            return Err(Errno::EINVAL);
        }
    }
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let ref_ctr_offset = u64::try_from(ref_ctr_offset).map_err(|_| Errno::EINVAL)?;
    // Aligned, so that neither the breakpoint nor the semaphore crosses a page.
    if offset % Isa::INSN_ALIGN != 0 || ref_ctr_offset % 2 != 0 {
        return Err(Errno::EINVAL);
    }
    Ok((offset, ref_ctr_offset))
}

/// # Safety
///
/// As [`uprobe_register`].
unsafe fn register(
    inode: *mut bindings::inode,
    offset: i64,
    ref_ctr_offset: i64,
    consumer: *mut bindings::uprobe_consumer,
) -> Result<UprobeRef, Errno> {
    // SAFETY: by contract.
    let (offset, ref_ctr_offset) = unsafe { check(inode, offset, ref_ctr_offset, consumer) }?;
    loop {
        let uprobe = UprobeRef::find_or_insert(inode, offset, ref_ctr_offset)?;
        // SAFETY: by contract.
        if let Some(result) = unsafe { register_with(&uprobe, ref_ctr_offset, consumer) } {
            return result.map(|()| uprobe);
        }
    }
}

/// Registers a consumer with a uprobe; [`None`] if that has lost its last one meanwhile, and with
/// it its place in the index.
///
/// # Safety
///
/// As [`uprobe_register`].
unsafe fn register_with(
    uprobe: &UprobeRef,
    ref_ctr_offset: u64,
    consumer: *mut bindings::uprobe_consumer,
) -> Option<Result<(), Errno>> {
    let guard = uprobe.register.write();
    if uprobe.is_retired(&guard) {
        return None;
    }
    if uprobe.ref_ctr_offset() != ref_ctr_offset {
        pr_warn!(
            "uprobe: offset {:#x} is probed with semaphore {:#x} already, not {:#x}\n",
            uprobe.offset(),
            uprobe.ref_ctr_offset(),
            ref_ctr_offset
        );
        return Some(Err(Errno::EINVAL));
    }
    // SAFETY: by contract, the consumer is in no list and stays until it is unregistered.
    unsafe {
        uprobe
            .consumers
            .add(&uprobe.consumers.lock.write(), consumer)
    };
    // SAFETY: as above.
    let added = unsafe { CConsumer::from_raw(consumer) };
    let result = for_each_place(uprobe, &guard, Change::Install(added));
    drop(guard);

    if result.is_err() {
        // Some processes may have the breakpoint already and call the consumer right now.
        // SAFETY: added above.
        unsafe { unregister(uprobe, consumer) };
        synchronize();
    }
    Some(result)
}

/// Takes the consumer off the uprobe.
///
/// # Safety
///
/// `consumer` is registered with `uprobe`.
unsafe fn unregister(uprobe: &Uprobe, consumer: *mut bindings::uprobe_consumer) {
    let guard = uprobe.register.write();
    // SAFETY: by contract.
    unsafe {
        uprobe
            .consumers
            .remove(&uprobe.consumers.lock.write(), consumer)
    };
    if !remove_unwanted(uprobe, &guard) {
        remove_later(uprobe);
    }
}

/// Removes the breakpoints that no consumer wants any more, and the uprobe from the index if it has
/// no consumer at all. Answers whether all of them could be removed.
fn remove_unwanted(uprobe: &Uprobe, guard: &WriteGuard<'_>) -> bool {
    if for_each_place(uprobe, guard, Change::Remove).is_err() {
        return false;
    }
    if uprobe.consumers.is_empty() {
        uprobe.retire(guard);
    }
    true
}

/// Jiffies between two tries to remove a breakpoint.
const REMOVAL_PAUSE: usize = 1 + bindings::HZ as usize / 100;

/// Leaves it to a worker to remove breakpoints: the caller is being killed, or memory is short.
///
/// A breakpoint without its uprobe would kill the program, so the uprobe and its file are kept
/// until then.
#[cold]
fn remove_later(uprobe: &Uprobe) {
    if !uprobe.removal.request() {
        return;
    }
    let Some(held) = uprobe.try_get() else {
        return;
    };
    // SAFETY: whoever unregisters still keeps the inode and its file system. The work is ours to
    // queue, and `retry_removal` puts the references.
    unsafe {
        bindings::ihold(uprobe.inode());
        c::uprobes_hold_super((*uprobe.inode()).i_sb);
        held.into_raw();
        uprobe.call_later(retry_removal, REMOVAL_PAUSE);
    }
}

unsafe extern "C" fn retry_removal(work: *mut bindings::work_struct) {
    // SAFETY: called by `call_later`, with the references that `remove_later` has taken.
    let uprobe = unsafe { &*Uprobe::of_work(work) };
    uprobe.removal.begin();
    let complete = remove_unwanted(uprobe, &uprobe.register.write());
    let inode = uprobe.inode();
    match uprobe.removal.finish(complete) {
        // SAFETY: the references that came with the work go.
        Next::Idle => unsafe {
            drop(UprobeRef::from_raw(uprobe.as_raw()));
            let super_block = (*inode).i_sb;
            bindings::iput(inode);
            bindings::deactivate_super(super_block);
        },
        // SAFETY: asked for again, by this work or by others, so it is ours to queue.
        Next::Again | Next::Retry => unsafe { uprobe.call_later(retry_removal, REMOVAL_PAUSE) },
    }
}

fn synchronize() {
    sync::synchronize_tasks_trace();
    // SAFETY: the domain is statically initialised; process context.
    unsafe { bindings::synchronize_srcu(sync::lease_srcu()) };
}

/// Registers a consumer for the instruction at `offset` bytes of a file.
///
/// Answers the uprobe or an error pointer; see `register` for the errors.
///
/// # Safety
///
/// `inode` is valid and stays so while the consumer is registered; `consumer` is valid, registered
/// nowhere, and stays until it has been unregistered and [`uprobe_unregister_sync`] has returned.
///
/// # Context
///
/// Process context; may sleep.
#[export]
pub(crate) unsafe extern "C" fn uprobe_register(
    inode: *mut bindings::inode,
    offset: bindings::loff_t,
    ref_ctr_offset: bindings::loff_t,
    consumer: *mut bindings::uprobe_consumer,
) -> *mut bindings::uprobe {
    // SAFETY: by contract.
    match unsafe { register(inode, offset, ref_ctr_offset, consumer) } {
        Ok(uprobe) => uprobe.into_raw(),
        Err(err) => core::ptr::without_provenance_mut(err.to_ret() as isize as usize),
    }
}

/// Puts breakpoints in or takes them out after the answer of the consumer's filter has changed.
///
/// # Safety
///
/// `uprobe` comes from [`uprobe_register`] and is registered.
///
/// # Context
///
/// Process context; may sleep.
#[export]
pub(crate) unsafe extern "C" fn uprobe_apply(
    uprobe: *mut bindings::uprobe,
    consumer: *mut bindings::uprobe_consumer,
    add: bool,
) -> c_int {
    // SAFETY: by contract.
    let uprobe = unsafe { &*uprobe.cast::<Uprobe>() };
    let guard = uprobe.register.write();
    let known = {
        let lock = uprobe.consumers.lock.read();
        let mut consumers = uprobe.consumers.iter_locked(&lock);
        consumers.any(|other| core::ptr::eq(other, consumer.cast()))
    };
    if !known {
        return Errno::ENOENT.to_ret();
    }
    // SAFETY: registered, as just seen, and the registration lock keeps it so.
    let consumer = unsafe { CConsumer::from_raw(consumer) };
    let change = if add {
        Change::Install(consumer)
    } else {
        Change::Remove
    };
    match for_each_place(uprobe, &guard, change) {
        Ok(()) => 0,
        Err(err) => {
            if !add {
                remove_later(uprobe);
            }
            err.to_ret()
        }
    }
}

/// Unregisters a consumer. It may still be called until [`uprobe_unregister_sync`] returns.
///
/// # Safety
///
/// `uprobe` comes from [`uprobe_register`] for this consumer and is not used again.
///
/// # Context
///
/// Process context; may sleep.
#[export]
pub(crate) unsafe extern "C" fn uprobe_unregister_nosync(
    uprobe: *mut bindings::uprobe,
    consumer: *mut bindings::uprobe_consumer,
) {
    // SAFETY: by contract.
    unsafe {
        let uprobe = UprobeRef::from_raw(uprobe);
        unregister(&uprobe, consumer);
    }
}

/// Waits until no consumer that was unregistered before is called any more.
///
/// # Context
///
/// Process context; sleeps for grace periods.
#[export]
pub(crate) extern "C" fn uprobe_unregister_sync() {
    synchronize();
}
