// SPDX-License-Identifier: GPL-2.0

//! Registration of consumers, one or many of a file at once.
//!
//! Whatever the number of sites, a batch takes the lock of the file once, keeps fork out once, and
//! walks the mappings of the file once. In each of them, all sites of a page are changed together.

use core::cell::Cell;
use core::ops::Range;
use core::ptr::{self, NonNull};

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::kvec::PushError;
use kernel::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::Arch;
use uprobes_core::errno::Errno;
use uprobes_core::pending_work::Next;

use crate::consumer::CConsumer;
use crate::file_lock::{FileGuard, FileLock};
use crate::isa::Isa;
use crate::mm::{self, Sites, Vma, PAGE_SIZE};
use crate::sync::{self, MmapWrite, NoFork};
use crate::uprobe::{self, Supply, Uprobe, UprobeRef};

as_declared! { uprobe_register_batch, uprobe_unregister_batch }

/// A use of an address space, ended on drop, which may sleep.
struct MmUser(NonNull<bindings::mm_struct>);

impl Drop for MmUser {
    fn drop(&mut self) {
        // SAFETY: the value owns a use of the `mm`.
        unsafe { bindings::mmput(self.0.as_ptr()) };
    }
}

/// A mapping of the probed part of the file in some process.
struct Place {
    mm: MmUser,
    range: Range<u64>,
}

/// A consumer and the uprobe that it is registered with, or is to be.
pub(crate) struct Entry {
    uprobe: UprobeRef,
    /// Null in an entry that only removes breakpoints.
    consumer: *mut bindings::uprobe_consumer,
    /// Which of the caller's sites it is.
    index: usize,
    /// Whether the consumer is still to be added to the uprobe, which others know.
    joins: bool,
    result: Cell<Result<(), Errno>>,
}

impl AsMut<UprobeRef> for Entry {
    fn as_mut(&mut self) -> &mut UprobeRef {
        &mut self.uprobe
    }
}

impl Entry {
    fn of(uprobe: UprobeRef, consumer: *mut bindings::uprobe_consumer) -> Self {
        Self {
            uprobe,
            consumer,
            index: 0,
            joins: false,
            result: Cell::new(Ok(())),
        }
    }

    /// The consumer. An entry that only removes breakpoints has none.
    fn consumer(&self) -> &CConsumer {
        // SAFETY: registered, and the lock of the file keeps it so; asked for installations only.
        unsafe { CConsumer::from_raw(self.consumer) }
    }

    /// Whether the consumer is registered with the uprobe; it is not where the semaphore is another.
    fn is_registered(&self) -> bool {
        !self.consumer.is_null()
    }

    /// Notes an error, if it is the first.
    fn fail(&self, err: Errno) {
        self.result.set(self.result.get().and(Err(err)));
    }
}

/// Makes entries for places of one file that are to be probed.
struct Maker {
    inode: *mut bindings::inode,
    is_readable: bool,
    supply: Supply,
}

impl Maker {
    /// # Safety
    ///
    /// `inode` is valid for as long as the value lives.
    unsafe fn new(inode: *mut bindings::inode, count: usize) -> Self {
        Self {
            inode,
            // SAFETY: by contract.
            is_readable: unsafe { mm::can_be_read(inode) },
            supply: Supply::new(count),
        }
    }

    /// Checks what is asked for, as far as that needs no lock, and makes a uprobe for it, which is in
    /// no index yet.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `EIO` for a file that cannot be read through the page cache, and `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `consumer` is valid.
    unsafe fn make(
        &mut self,
        offset: i64,
        ref_ctr_offset: i64,
        consumer: *mut bindings::uprobe_consumer,
    ) -> Result<Entry, Errno> {
        // SAFETY: by contract.
        if unsafe { (*consumer).handler.is_none() && (*consumer).ret_handler.is_none() } {
            return Err(Errno::EINVAL);
        }
        if !self.is_readable {
            return Err(Errno::EIO);
        }
        // The file may change its size at any time; this catches mistakes only.
        // SAFETY: by contract.
        if offset > unsafe { c::uprobes_i_size_read(self.inode) } {
            return Err(Errno::EINVAL);
        }
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let ref_ctr_offset = u64::try_from(ref_ctr_offset).map_err(|_| Errno::EINVAL)?;
        // Aligned, so that neither the breakpoint nor the semaphore crosses a page.
        if offset % Isa::INSN_ALIGN != 0 || ref_ctr_offset % 2 != 0 {
            return Err(Errno::EINVAL);
        }
        let uprobe = self.supply.make(self.inode, offset, ref_ctr_offset)?;
        Ok(Entry::of(uprobe, consumer))
    }
}

/// Registers the consumer of each entry with the uprobe at its place, which is the entry's own unless
/// there is one already. An entry whose semaphore is not that of the uprobe has an error then, and no
/// consumer.
///
/// # Safety
///
/// The uprobes are new. The consumers are in no list and stay until they are unregistered.
unsafe fn register_with_uprobes(file: &FileGuard<'_>, entries: &mut [Entry]) {
    for entry in entries.iter() {
        // SAFETY: by contract, nobody else knows the uprobe.
        unsafe { entry.uprobe.consumers.add_to_new(entry.consumer) };
    }
    uprobe::insert_all(file, entries, |entry, fresh| {
        entry.joins = true;
        if entry.uprobe.ref_ctr_offset() != fresh.ref_ctr_offset() {
            entry.consumer = ptr::null_mut();
            entry.fail(Errno::EINVAL);
        }
    });
    for entry in entries.iter().filter(|entry| entry.joins) {
        let uprobe = &entry.uprobe;
        if !entry.is_registered() {
            pr_warn!(
                "uprobe: offset {:#x} is probed with semaphore {:#x} already\n",
                uprobe.offset(),
                uprobe.ref_ctr_offset(),
            );
            continue;
        }
        // SAFETY: by contract; the new uprobe whose list it was in is gone.
        unsafe {
            uprobe
                .consumers
                .add(&uprobe.consumers.lock.write(), entry.consumer)
        };
    }
}

/// What is done at each place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Breakpoints go in where the entry's consumer wants hits.
    Install,
    /// Breakpoints go out where no consumer wants hits any more.
    Remove,
}

impl Change {
    fn concerns(self, vma: &Vma<'_>) -> bool {
        match self {
            Change::Install => vma.wants_probes(),
            Change::Remove => vma.may_hold_probes(),
        }
    }

    /// Whether it concerns `entry` in `mm`.
    fn is_due(self, entry: &Entry, mm: *mut bindings::mm_struct) -> bool {
        match self {
            Change::Install => entry.result.get().is_ok() && entry.consumer().wants(mm),
            Change::Remove => !entry.uprobe.consumers.any_wants(mm),
        }
    }

    /// Whether it concerns `entry` in all processes, before it has been carried out anywhere.
    fn is_due_everywhere(self, entry: &Entry) -> bool {
        match self {
            Change::Install => entry.result.get().is_ok() && !entry.consumer().is_choosy(),
            // No consumer comes while the file is locked.
            Change::Remove => entry.uprobe.consumers.is_empty(),
        }
    }
}

/// Finds every mapping of `offsets` of the file that `change` concerns.
///
/// # Errors
///
/// `ENOMEM`.
fn places(
    inode: *mut bindings::inode,
    offsets: &Range<u64>,
    change: Change,
) -> Result<KVVec<Place>, Errno> {
    let mut places = KVVec::new();
    let first = (offsets.start / PAGE_SIZE) as usize;
    let last = (offsets.end.saturating_sub(1) / PAGE_SIZE) as usize;
    // SAFETY: the inode is valid while there are consumers, and while breakpoints are removed.
    let mapping = unsafe { (*inode).i_mapping };
    loop {
        // Memory cannot be waited for under the lock: count what does not fit, and begin again.
        let mut missing = 0;
        // SAFETY: `mapping` is valid.
        unsafe { c::uprobes_i_mmap_lock_read(mapping) };
        // SAFETY: locked.
        let mut raw = unsafe { bindings::mapping_rmap_tree_iter_first(mapping, first, last) };
        while let Some(at) = NonNull::new(raw) {
            // SAFETY: mappings stay in the tree while it is locked.
            let vma = unsafe { Vma::from_raw(at) };
            if change.concerns(&vma) {
                missing += usize::from(!add_place(&mut places, &vma));
            }
            // SAFETY: locked.
            raw = unsafe { bindings::mapping_rmap_tree_iter_next(raw, first, last) };
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

/// Adds `vma`; fails if there is no room for it.
fn add_place(places: &mut KVVec<Place>, vma: &Vma<'_>) -> bool {
    let Some(mm) = NonNull::new(vma.mm()) else {
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
        range: vma.start()..vma.end(),
    };
    places.push_within_capacity(place).is_ok()
}

/// Carries `change` out for each of `entries`, which are ascending by offset, in every process that
/// maps its place. What goes wrong is noted in the entries: the first error of each.
///
/// Goes page by page, so that what is the same in all processes is done once.
///
/// # Context
///
/// The lock of the file is held for writing. May sleep.
fn for_each_place(entries: &[Entry], file: &FileGuard<'_>, change: Change) {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return;
    };
    let offsets = first.uprobe.offset()..last.uprobe.offset().saturating_add(1);
    let _no_fork = NoFork::enter();
    let mut sites = Sites::new();
    let places = places(file.inode(), &offsets, change).and_then(|places| {
        sites.reserve(most_in_a_page(entries))?;
        Ok(places)
    });
    let places = match places {
        Ok(places) => places,
        Err(err) => return entries.iter().for_each(|entry| entry.fail(err)),
    };
    if places.is_empty() {
        return;
    }
    for page in pages(entries) {
        let uprobes = places_of(page).filter_map(|same| Some(&*same.first()?.uprobe));
        if let Err(err) = sites.set(uprobes, places.len() > 1) {
            page.iter().for_each(|entry| entry.fail(err));
            continue;
        }
        let mut ask = !page.iter().all(|entry| change.is_due_everywhere(entry));
        for place in &places {
            at_place(place, file.inode(), page, change, &mut ask, &mut sites);
        }
    }
}

/// Those of `entries` whose places are in one page of the file, page by page.
fn pages(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    entries.chunk_by(|a, b| a.uprobe.offset() / PAGE_SIZE == b.uprobe.offset() / PAGE_SIZE)
}

/// Those of `entries` that are at one place, place by place.
fn places_of(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    entries.chunk_by(|a, b| ptr::eq(&*a.uprobe, &*b.uprobe))
}

/// The largest number of entries whose places are in one page.
fn most_in_a_page(entries: &[Entry]) -> usize {
    pages(entries).map(<[Entry]>::len).max().unwrap_or_default()
}

/// Carries `change` out for one page of the file, whose entries and sites are given, in the mappings
/// that are at `place` now. Unless it must `ask` the entries, all of them are due.
fn at_place(
    place: &Place,
    inode: *mut bindings::inode,
    page: &[Entry],
    change: Change,
    ask: &mut bool,
    sites: &mut Sites<'_>,
) {
    let mm = place.mm.0;
    if *ask {
        sites.want(
            places_of(page).map(|same| same.iter().any(|entry| change.is_due(entry, mm.as_ptr()))),
        );
    }
    if change == Change::Remove && !mm::has_uprobes(mm.as_ptr()) || !sites.are_wanted() {
        return;
    }
    // Write-locked, so that a hit sees either no breakpoint or a uprobe for it.
    // SAFETY: the place uses the `mm`.
    let lock = unsafe { MmapWrite::lock(mm) };
    // SAFETY: locked just now.
    if !unsafe { c::uprobes_is_stable_address_space(mm.as_ptr()) } {
        return;
    }
    let mut from = place.range.start;
    // The process may have changed its mappings since the search.
    while let Some(vma) = mm::next_vma(&lock, from).filter(|vma| vma.start() < place.range.end) {
        from = vma.end();
        if vma.inode() != inode || !change.concerns(&vma) || !sites.are_in(&vma) {
            continue;
        }
        let all_good = match change {
            Change::Install => sites.install(&vma),
            Change::Remove => sites.remove(&vma),
        };
        if !all_good && sites.iter().any(|site| site.result().is_err()) {
            for (same, site) in places_of(page).zip(sites.iter()) {
                if let Err(err) = site.result() {
                    same.iter().for_each(|entry| entry.fail(err));
                }
            }
            *ask = true;
        }
    }
}

/// Takes the consumers of `entries`, which are ascending by offset, off their uprobes, and removes
/// the breakpoints that nobody wants any more.
///
/// # Safety
///
/// They are registered.
unsafe fn unregister(entries: &[Entry], file: &FileGuard<'_>) {
    for entry in entries {
        let consumers = &entry.uprobe.consumers;
        // SAFETY: by contract.
        unsafe { consumers.remove(&consumers.lock.write(), entry.consumer) };
        entry.result.set(Ok(()));
    }
    remove_unwanted(entries, file);
    for entry in entries.iter().filter(|entry| entry.result.get().is_err()) {
        remove_later(&entry.uprobe);
    }
}

/// Removes the breakpoints that no consumer wants any more, and the uprobes from the index that have
/// no consumer at all. Entries whose breakpoints could not all be removed have an error.
fn remove_unwanted(entries: &[Entry], file: &FileGuard<'_>) {
    for_each_place(entries, file, Change::Remove);
    let gone = |entry: &Entry| entry.result.get().is_ok() && entry.uprobe.consumers.is_empty();
    let uprobes = entries
        .iter()
        .map(|entry| gone(entry).then(|| &*entry.uprobe));
    uprobe::retire_all(file, uprobes);
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
    let uprobe = unsafe { UprobeRef::from_raw(Uprobe::of_work(work).cast()) };
    let inode = uprobe.inode();
    uprobe.removal.begin();
    let entry = [Entry::of(uprobe, ptr::null_mut())];
    remove_unwanted(&entry, &FileLock::of(inode).write(inode));
    let [Entry { uprobe, result, .. }] = entry;
    match uprobe.removal.finish(result.get().is_ok()) {
        // SAFETY: the references that came with the work go.
        Next::Idle => unsafe {
            drop(uprobe);
            let super_block = (*inode).i_sb;
            bindings::iput(inode);
            bindings::deactivate_super(super_block);
        },
        // SAFETY: asked for again, by this work or by others, so it is ours to queue, and the
        // references stay with it.
        Next::Again | Next::Retry => unsafe {
            uprobe.call_later(retry_removal, REMOVAL_PAUSE);
            uprobe.into_raw();
        },
    }
}

/// Registers one consumer.
///
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
    let mut entries = [unsafe { Maker::new(inode, 1).make(offset, ref_ctr_offset, consumer) }?];
    let file = FileLock::of(inode).write(inode);
    // SAFETY: by contract; the uprobe was made just now.
    unsafe { register_with_uprobes(&file, &mut entries) };
    let [entry] = &entries;
    if !entry.is_registered() {
        return entry.result.get().and(Err(Errno::EINVAL));
    }
    for_each_place(&entries, &file, Change::Install);
    let result = entry.result.get();
    if result.is_err() {
        // Some processes may have the breakpoint already and call the consumer right now.
        // SAFETY: registered above.
        unsafe { unregister(&entries, &file) };
        drop(file);
        synchronize();
    }
    let [Entry { uprobe, .. }] = entries;
    result.map(|()| uprobe)
}

/// Registers many consumers for places of one file, and tells each site what came of it.
///
/// # Errors
///
/// `ENOMEM`, before anything was done; and if it is `all` or nothing, the first site's error.
///
/// # Safety
///
/// As [`uprobe_register_batch`].
unsafe fn register_batch(
    inode: *mut bindings::inode,
    sites: &mut [c::uprobe_batch_site],
    all: bool,
) -> Result<(), Errno> {
    // What is needed to undo it must be there before it is done.
    let (mut entries, mut failed) = (room_for(sites.len())?, room_for(sites.len())?);
    // SAFETY: by contract.
    let mut maker = unsafe { Maker::new(inode, sites.len()) };
    for (index, site) in sites.iter_mut().enumerate() {
        site.uprobe = ptr::null_mut();
        // SAFETY: by contract.
        let made = unsafe { maker.make(site.offset, site.ref_ctr_offset, site.consumer) };
        site.err = made.as_ref().map_or_else(|err| err.to_ret(), |_| 0);
        if let Ok(entry) = made {
            entries
                .push_within_capacity(Entry { index, ..entry })
                .map_err(|_| Errno::ENOMEM)?;
        }
    }
    drop(maker);
    let first_error = |sites: &[c::uprobe_batch_site]| {
        let first = sites.iter().map(|site| site.err).find(|&err| err != 0);
        first.map(Errno::from_ret)
    };
    if let (true, Some(err)) = (all, first_error(sites)) {
        // Nobody has seen any of the others.
        for entry in entries {
            if let Some(site) = sites.get_mut(entry.index) {
                site.err = Errno::ECANCELED.to_ret();
            }
            entry.uprobe.free_unused();
        }
        return Err(err);
    }
    // Of two that contradict each other, the caller's first one wins.
    entries.sort_unstable_by_key(|entry| (entry.uprobe.offset(), entry.index));
    let file = FileLock::of(inode).write(inode);
    // SAFETY: by contract; the uprobes were made just now.
    unsafe { register_with_uprobes(&file, &mut entries) };
    if !all || entries.iter().all(Entry::is_registered) {
        for_each_place(&entries, &file, Change::Install);
    }

    for entry in &entries {
        if let (Err(err), Some(site)) = (entry.result.get(), sites.get_mut(entry.index)) {
            site.err = err.to_ret();
        }
    }
    let first_error = first_error(sites);
    for entry in entries {
        let Some(site) = sites.get_mut(entry.index) else {
            continue;
        };
        if site.err == 0 && !(all && first_error.is_some()) {
            site.uprobe = entry.uprobe.into_raw();
            continue;
        }
        if site.err == 0 {
            site.err = Errno::ECANCELED.to_ret();
        }
        if entry.is_registered() {
            failed
                .push_within_capacity(entry)
                .map_err(|_| Errno::ENOMEM)?;
        }
    }
    if !failed.is_empty() {
        // SAFETY: added above.
        unsafe { unregister(&failed, &file) };
        drop(file);
        synchronize();
    }
    match first_error {
        Some(err) if all => Err(err),
        _ => Ok(()),
    }
}

fn room_for(entries: usize) -> Result<KVVec<Entry>, Errno> {
    KVVec::with_capacity(entries, GFP_KERNEL).map_err(|_| Errno::ENOMEM)
}

/// Unregisters the consumers of many sites of one file.
///
/// # Safety
///
/// As [`uprobe_unregister_batch`].
unsafe fn unregister_batch(sites: &mut [c::uprobe_batch_site]) {
    let registered = |site: &c::uprobe_batch_site| !site.uprobe.is_null();
    let Some(first) = sites.iter().find(|site| registered(site)) else {
        return;
    };
    // SAFETY: registered by contract.
    let inode = unsafe { (*first.uprobe.cast::<Uprobe>()).inode() };
    let file = FileLock::of(inode).write(inode);
    let mut entries = room_for(sites.len()).unwrap_or_default();
    for site in sites.iter_mut().filter(|site| registered(site)) {
        // SAFETY: by contract, the reference goes to the entry.
        let uprobe = unsafe { UprobeRef::from_raw(site.uprobe) };
        site.uprobe = ptr::null_mut();
        let entry = Entry::of(uprobe, site.consumer);
        if let Err(PushError(entry)) = entries.push_within_capacity(entry) {
            // Without memory for all, each by itself.
            // SAFETY: registered by contract.
            unsafe { unregister(&[entry], &file) };
        }
    }
    entries.sort_unstable_by_key(|entry| entry.uprobe.offset());
    // SAFETY: registered by contract.
    unsafe { unregister(&entries, &file) };
}

/// Waits until no consumer that was unregistered before is called any more: all are called in
/// sections of RCU Tasks Trace.
fn synchronize() {
    sync::synchronize_tasks_trace();
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
        Err(err) => ptr::without_provenance_mut(err.to_ret() as isize as usize),
    }
}

/// Registers consumers for many instructions of a file.
///
/// Each site is told its `uprobe`, or why it has none (`err`). If `all` is set, either all are
/// registered or none: then the answer is the first error, and the others have `ECANCELED`. If not,
/// the answer is zero, whatever the sites have.
///
/// # Safety
///
/// As [`uprobe_register`] for each site, of which there are `count`.
///
/// # Context
///
/// As [`uprobe_register`].
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobe_register_batch(
    inode: *mut bindings::inode,
    sites: *mut c::uprobe_batch_site,
    count: usize,
    all: bool,
) -> c_int {
    // SAFETY: by contract.
    let result =
        unsafe { register_batch(inode, core::slice::from_raw_parts_mut(sites, count), all) };
    result.map_or_else(Errno::to_ret, |()| 0)
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
    // SAFETY: by contract; who is registered has a reference.
    let Some(uprobe) = (unsafe { (*uprobe.cast::<Uprobe>()).try_get() }) else {
        return Errno::ENOENT.to_ret();
    };
    let inode = uprobe.inode();
    let file = FileLock::of(inode).write(inode);
    let known = {
        let lock = uprobe.consumers.lock.read();
        let mut consumers = uprobe.consumers.iter_locked(&lock);
        consumers.any(|other| ptr::eq(other, consumer.cast()))
    };
    if !known {
        return Errno::ENOENT.to_ret();
    }
    let change = if add { Change::Install } else { Change::Remove };
    let entry = [Entry::of(uprobe, consumer)];
    for_each_place(&entry, &file, change);
    let [entry] = entry;
    match entry.result.get() {
        Ok(()) => 0,
        Err(err) => {
            if !add {
                remove_later(&entry.uprobe);
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
        let entry = Entry::of(UprobeRef::from_raw(uprobe), consumer);
        let inode = entry.uprobe.inode();
        unregister(&[entry], &FileLock::of(inode).write(inode));
    }
}

/// Unregisters the consumers of `count` sites of one file; those without a `uprobe` are passed over.
/// They may still be called until [`uprobe_unregister_sync`] returns.
///
/// # Safety
///
/// As [`uprobe_unregister_nosync`] for each site that has a `uprobe`.
///
/// # Context
///
/// As [`uprobe_unregister_nosync`].
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobe_unregister_batch(
    sites: *mut c::uprobe_batch_site,
    count: usize,
) {
    // SAFETY: by contract.
    unsafe { unregister_batch(core::slice::from_raw_parts_mut(sites, count)) };
}

/// Waits until no consumer that was unregistered before is called any more.
///
/// # Context
///
/// Process context; sleeps for a grace period.
#[export]
pub(crate) extern "C" fn uprobe_unregister_sync() {
    synchronize();
}
