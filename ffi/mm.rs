// SPDX-License-Identifier: GPL-2.0

//! Address spaces: which mappings can hold probes, and what the kernel's memory management tells
//! us of them.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::mm::virt::flags;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::{Arch, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;
use uprobes_core::sys::{Acquire, Atomic, Full, Relaxed};

use crate::debugger::DebuggerTraps;
use crate::isa::{self, Isa};
use crate::ref_ctr::Semaphores;
use crate::rescan::Rescan;
use crate::sync::{MmapWrite, TasksTrace};
use crate::text::{self, Outcome, Purpose};
use crate::uprobe::{self, Code, Uprobe};
use crate::xol::Xol;

/// Bytes of a page.
pub(crate) const PAGE_SIZE: u64 = kernel::page::PAGE_SIZE as u64;
/// Bits of an address that name its page.
pub(crate) const PAGE_MASK: u64 = !(PAGE_SIZE - 1);

/// A mapping of an address space whose `mmap_lock` is held for at least as long as `'l`.
#[derive(Clone, Copy)]
pub(crate) struct Vma<'l>(NonNull<bindings::vm_area_struct>, PhantomData<&'l ()>);

impl Vma<'_> {
    /// # Safety
    ///
    /// `raw` is valid and its address space locked for `'l`.
    pub(crate) unsafe fn from_raw<'l>(raw: NonNull<bindings::vm_area_struct>) -> Vma<'l> {
        Vma(raw, PhantomData)
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::vm_area_struct {
        self.0.as_ptr()
    }

    fn raw(&self) -> &bindings::vm_area_struct {
        // SAFETY: valid by the type.
        unsafe { self.0.as_ref() }
    }

    /// The address space.
    pub(crate) fn mm(&self) -> *mut bindings::mm_struct {
        self.raw().vm_mm
    }

    /// First address.
    pub(crate) fn start(&self) -> u64 {
        // SAFETY: every view of the union has the bounds at this place.
        unsafe { self.raw().__bindgen_anon_1.__bindgen_anon_1.vm_start as u64 }
    }

    /// First address behind it.
    pub(crate) fn end(&self) -> u64 {
        // SAFETY: as in `start`.
        unsafe { self.raw().__bindgen_anon_1.__bindgen_anon_1.vm_end as u64 }
    }

    fn flags(&self) -> bindings::vm_flags_t {
        // SAFETY: valid by the type.
        unsafe { c::uprobes_vma_flags(self.as_ptr()) }
    }

    /// The mapped file, if there is one.
    pub(crate) fn file(&self) -> Option<NonNull<bindings::file>> {
        NonNull::new(self.raw().vm_file)
    }

    /// Inode of the mapped file, or null.
    pub(crate) fn inode(&self) -> *mut bindings::inode {
        match self.file() {
            None => ptr::null_mut(),
            // SAFETY: the mapping holds its file.
            Some(file) => unsafe { c::uprobes_file_inode(file.as_ptr()) },
        }
    }

    /// The page cache of the mapped file, or null.
    pub(crate) fn mapping(&self) -> *mut bindings::address_space {
        match self.file() {
            None => ptr::null_mut(),
            // SAFETY: the mapping holds its file.
            Some(file) => unsafe { (*file.as_ptr()).f_mapping },
        }
    }

    /// Whether writes go to private copies of the pages.
    pub(crate) fn is_cow(&self) -> bool {
        // SAFETY: valid by the type.
        unsafe { c::uprobes_vma_is_cow(self.as_ptr()) }
    }

    fn start_offset(&self) -> u64 {
        // SAFETY: valid by the type.
        (unsafe { c::uprobes_vma_start_pgoff(self.as_ptr()) } as u64).wrapping_mul(PAGE_SIZE)
    }

    /// Offset in the file of the byte at `vaddr`, which is in the mapping.
    pub(crate) fn offset_of(&self, vaddr: u64) -> u64 {
        self.start_offset()
            .wrapping_add(vaddr.wrapping_sub(self.start()))
    }

    /// Address of the byte at `offset` of the file, if it is mapped here.
    pub(crate) fn vaddr_of(&self, offset: u64) -> Option<u64> {
        let vaddr = self
            .start()
            .checked_add(offset.checked_sub(self.start_offset())?)?;
        (vaddr < self.end()).then_some(vaddr)
    }

    /// The part of the file mapped at `start..end`.
    fn offsets(&self, start: u64, end: u64) -> core::ops::Range<u64> {
        let first = self.offset_of(start);
        first..first.saturating_add(end.saturating_sub(start))
    }

    /// Whether breakpoints may be in this mapping: private, of a file, and such that it can be
    /// executed or made so.
    pub(crate) fn may_hold_probes(&self) -> bool {
        const MASK: bindings::vm_flags_t = flags::HUGETLB | flags::MAYEXEC | flags::MAYSHARE;
        self.file().is_some() && self.flags() & MASK == flags::MAYEXEC
    }

    /// Whether breakpoints are to be put into this mapping: not where the program itself may
    /// write, unless it executes there too.
    pub(crate) fn wants_probes(&self) -> bool {
        self.may_hold_probes() && self.flags() & (flags::WRITE | flags::EXEC) != flags::WRITE
    }

    /// Waits for those who are taking pages of this mapping away: they hold the lock of the mapping
    /// where they do not hold the `mmap_lock`, or that of the file's mappings when it is truncated.
    ///
    /// # Context
    ///
    /// The `mmap_lock` is held for writing.
    fn wait_for_zap(&self) {
        // SAFETY: valid and locked by the type.
        unsafe { c::uprobes_vma_start_write(self.as_ptr()) };
        let mapping = self.mapping();
        if !mapping.is_null() {
            // SAFETY: the mapping holds its file.
            unsafe {
                c::uprobes_i_mmap_lock_write(mapping);
                c::uprobes_i_mmap_unlock_write(mapping);
            }
        }
    }

    /// Whether a semaphore of the mapped file may be in this mapping.
    pub(crate) fn may_hold_semaphores(&self) -> bool {
        self.file().is_some() && self.flags() & (flags::WRITE | flags::SHARED) == flags::WRITE
    }
}

impl<'l> Vma<'l> {
    /// The mapping of `mm` at or above `from`.
    ///
    /// # Safety
    ///
    /// `mm` is valid and its `mmap_lock` held for `'l`.
    pub(crate) unsafe fn at_or_above(mm: *mut bindings::mm_struct, from: u64) -> Option<Vma<'l>> {
        // SAFETY: by contract.
        let vma = unsafe { c::uprobes_vma_next(mm, from as usize) };
        // SAFETY: valid while the lock is held.
        NonNull::new(vma).map(|vma| unsafe { Vma::from_raw(vma) })
    }
}

/// The mapping at or above `from`.
pub(crate) fn next_vma<'l>(lock: &'l MmapWrite, from: u64) -> Option<Vma<'l>> {
    // SAFETY: the address space is locked.
    unsafe { Vma::at_or_above(lock.mm().as_ptr(), from) }
}

/// All mappings, ascending.
pub(crate) fn vmas(lock: &MmapWrite) -> impl Iterator<Item = Vma<'_>> {
    core::iter::successors(next_vma(lock, 0), move |vma| next_vma(lock, vma.end()))
}

/// What the subsystem keeps of an address space; hangs at `mm->uprobes_state`.
pub(crate) struct MmState {
    /// The slots for single-steps and the return trampoline.
    pub(crate) xol: Xol,
    /// The semaphores that were incremented or are waiting for their mapping.
    pub(crate) semaphores: Semaphores,
    /// The repair of what was lost.
    rescan: Rescan,
    /// Breakpoints of a debugger at probed places.
    pub(crate) debugger: DebuggerTraps,
    /// Copied by fork while the parent's repair had still to be done.
    unrepaired: Atomic<bool>,
    /// Tasks with pending returns; see [`crate::task`].
    pub(crate) returns: crate::task::Registry,
}

/// The word of `mm` that points to its [`MmState`].
fn state_word(mm: *mut bindings::mm_struct) -> *mut *mut MmState {
    // SAFETY: the caller has a valid `mm`.
    unsafe { (&raw mut (*mm).__bindgen_anon_1.uprobes_state.xol_area).cast() }
}

impl MmState {
    /// The state of `mm`, if it has one.
    ///
    /// # Safety
    ///
    /// `mm` is valid and keeps its users for `'a`.
    #[inline]
    pub(crate) unsafe fn get<'a>(mm: *mut bindings::mm_struct) -> Option<&'a MmState> {
        // SAFETY: valid by contract; set once, freed with the last user.
        unsafe { Atomic::from_ptr(state_word(mm)).load(Acquire).as_ref() }
    }

    /// The state of `mm`, made if it has none yet.
    ///
    /// # Safety
    ///
    /// As [`MmState::get`].
    #[inline]
    pub(crate) unsafe fn get_or_make<'a>(
        mm: *mut bindings::mm_struct,
    ) -> Result<&'a MmState, Errno> {
        // SAFETY: by contract.
        unsafe {
            match Self::get(mm) {
                Some(state) => Ok(state),
                None => Self::make(mm),
            }
        }
    }

    /// # Safety
    ///
    /// As [`MmState::get`].
    #[cold]
    unsafe fn make<'a>(mm: *mut bindings::mm_struct) -> Result<&'a MmState, Errno> {
        let rescan = Rescan::new()?;
        let memory =
            KBox::<MmState>::new_uninit(GFP_KERNEL | __GFP_ZERO).map_err(|_| Errno::ENOMEM)?;
        let fresh = KBox::into_raw(memory).cast::<MmState>();
        // SAFETY: `fresh` is memory of an `MmState` that nobody knows; zero is valid for what is
        // not initialised here.
        unsafe {
            Xol::init(&raw mut (*fresh).xol);
            Semaphores::init(&raw mut (*fresh).semaphores);
            (&raw mut (*fresh).rescan).write(rescan);
            DebuggerTraps::init(&raw mut (*fresh).debugger);
            crate::task::Registry::init(&raw mut (*fresh).returns);
        }
        // SAFETY: valid by contract.
        let word = unsafe { Atomic::from_ptr(state_word(mm)) };
        match word.cmpxchg(ptr::null_mut(), fresh, Full) {
            // SAFETY: initialised above, freed with the last user.
            Ok(_) => Ok(unsafe { &*fresh }),
            Err(other) => {
                // SAFETY: allocated above and published nowhere.
                drop(unsafe { KBox::from_raw(fresh) });
                // SAFETY: somebody else's, valid as above.
                Ok(unsafe { &*other })
            }
        }
    }
}

/// A process was forked: what its parent had lost and not got back is missing in it too.
///
/// # Safety
///
/// `mm` is valid and has users.
pub(crate) unsafe fn repair_forked(mm: *mut bindings::mm_struct) {
    // SAFETY: by contract.
    if let Some(state) = unsafe { MmState::get(mm) } {
        if state.unrepaired.load(Relaxed) {
            state.rescan.schedule(mm);
        }
    }
}

/// Whether breakpoints were ever put into `mm` or inherited by it.
///
/// Never taken back: a trap may be in flight when the last probe goes, and it must not be taken
/// for the program's own.
#[inline]
pub(crate) fn has_uprobes(mm: *mut bindings::mm_struct) -> bool {
    // SAFETY: callers have a valid `mm`.
    unsafe { c::uprobes_mm_flags_test(bindings::MMF_HAS_UPROBES as c_int, mm) }
}

fn set_has_uprobes(mm: *mut bindings::mm_struct) {
    if !has_uprobes(mm) {
        // SAFETY: callers have a valid `mm`.
        unsafe { c::uprobes_mm_flags_set(bindings::MMF_HAS_UPROBES as c_int, mm) };
    }
}

/// Puts the breakpoint of `uprobe` at `vaddr`.
///
/// # Errors
///
/// Those of the analysis of the instruction and of [`text::write`].
///
/// # Context
///
/// The `mmap_lock` is held for writing. May sleep; takes the consumers' lock.
pub(crate) fn install(uprobe: &Uprobe, vma: &Vma<'_>, vaddr: u64) -> Result<Outcome, Errno> {
    let mm = vma.mm();
    let code = uprobe.code_or_make(|| read_code(uprobe, vma))?;

    // SAFETY: the address space is in use: it is locked.
    let state = unsafe { MmState::get_or_make(mm) }?;
    // The breakpoint can be hit as soon as it is there.
    set_has_uprobes(mm);
    let counted = state.semaphores.acquire(uprobe, mm)?;
    let swbp = Isa::swbp(&code.analysis.insn, vaddr);
    let mut written = text::write(vma, vaddr, swbp, code.insn_bytes(), Purpose::Install);
    if let (Ok(Outcome::NotOurs), Some(trap)) = (written, state.debugger.bytes_at(vaddr)) {
        // A debugger's breakpoint that is another instruction than ours, which does for both.
        let trap = trap.get(..swbp.len()).unwrap_or_default();
        written = match text::write(vma, vaddr, swbp, trap, Purpose::Install) {
            Ok(Outcome::Written) => Ok(Outcome::AsWanted),
            other => other,
        };
    }
    match written {
        // There was no breakpoint, so none of a debugger either.
        Ok(Outcome::Written) => drop(state.debugger.remove(vaddr)),
        Ok(Outcome::AsWanted) => (),
        // The program or the file has changed: what is there is not what was probed.
        Ok(Outcome::NotOurs | Outcome::FileDiffers) | Err(_) if counted => {
            state.semaphores.release(uprobe, mm);
        }
        Ok(Outcome::NotOurs | Outcome::FileDiffers) | Err(_) => (),
    }
    written
}

/// Takes the breakpoint of `uprobe` away from `vaddr`.
///
/// # Errors
///
/// `ENOMEM` and `EINTR` where the page could not be had; the breakpoint is still there then.
///
/// # Context
///
/// As [`install`].
pub(crate) fn remove(uprobe: &Uprobe, vma: &Vma<'_>, vaddr: u64) -> Result<(), Errno> {
    let Some(code) = uprobe.code() else {
        return Ok(());
    };
    // SAFETY: the address space is in use: it is locked.
    let state = unsafe { MmState::get(vma.mm()) };
    // A debugger's breakpoint stays, be it the same instruction as ours or another one.
    let debugger = state.and_then(|state| state.debugger.bytes_at(vaddr));
    let left = debugger.as_ref().unwrap_or(&code.bytes);
    let swbp = Isa::swbp(&code.analysis.insn, vaddr);
    let left = left.get(..swbp.len()).ok_or(Errno::EINVAL)?;
    if left != swbp {
        match text::write(vma, vaddr, left, code.insn_bytes(), Purpose::Remove) {
            Ok(_) => (),
            // There is no such page (any more), so no breakpoint in it.
            Err(Errno::EFAULT) => (),
            Err(err) => return Err(err),
        }
    }
    if let Some(state) = state {
        state.semaphores.release(uprobe, vma.mm());
    }
    Ok(())
}

/// Removes the breakpoints of `uprobe` from every mapping of a process.
///
/// # Errors
///
/// The first of [`remove`]; the others are tried all the same.
pub(crate) fn remove_everywhere(uprobe: &Uprobe, lock: &MmapWrite) -> Result<(), Errno> {
    let mut result = Ok(());
    for vma in vmas(lock) {
        if !vma.may_hold_probes() || vma.inode() != uprobe.inode() {
            continue;
        }
        if let Some(vaddr) = vma.vaddr_of(uprobe.offset()) {
            result = result.and(remove(uprobe, &vma, vaddr));
        }
    }
    result
}

/// Reads the probed instruction from the file and analyses it.
fn read_code(uprobe: &Uprobe, vma: &Vma<'_>) -> Result<Code, Errno> {
    let mut bytes = [0; MAX_INSN_BYTES];
    read_file(uprobe.inode(), vma, uprobe.offset(), &mut bytes)?;
    if Isa::is_swbp(&bytes) {
        return Err(Errno::ENOTSUPP);
    }
    let analysis = Isa::analyze(&bytes, isa::bitness_of_mm(vma.mm()))?;
    Ok(Code { bytes, analysis })
}

/// Reads the bytes at `offset`; those beyond the end of the file stay as they are.
///
/// # Errors
///
/// `EIO` where the file ends before `offset`, and what reading the page gives.
fn read_file(
    inode: *mut bindings::inode,
    vma: &Vma<'_>,
    offset: u64,
    bytes: &mut [u8; MAX_INSN_BYTES],
) -> Result<(), Errno> {
    // SAFETY: the mapping holds the file, whose inode this is.
    let size = unsafe { c::uprobes_i_size_read(inode) } as u64;
    if offset >= size {
        return Err(Errno::EIO);
    }
    let file = vma.file().map_or(ptr::null_mut(), NonNull::as_ptr);
    let mut rest = bytes.as_mut_slice();
    let mut at = offset;
    while !rest.is_empty() && at < size {
        let in_page = (PAGE_SIZE - (at & !PAGE_MASK)).min(rest.len() as u64) as usize;
        let (now, later) = rest.split_at_mut(in_page);
        // SAFETY: the inode is valid as above.
        let page = unsafe { read_page((*inode).i_mapping, at / PAGE_SIZE, file) }?;
        // SAFETY: a reference was just taken, and is put again.
        unsafe {
            text::copy_from_page(page.as_ptr(), at, now);
            c::uprobes_put_page(page.as_ptr());
        }
        at += in_page as u64;
        rest = later;
    }
    Ok(())
}

/// # Safety
///
/// `mapping` is valid and passed [`can_be_read`].
unsafe fn read_page(
    mapping: *mut bindings::address_space,
    index: u64,
    file: *mut bindings::file,
) -> Result<NonNull<bindings::page>, Errno> {
    let index = index as usize;
    // SAFETY: by contract.
    let page = unsafe {
        if c::uprobes_has_read_folio(mapping) {
            c::uprobes_read_mapping_page(mapping, index, file)
        } else {
            c::uprobes_shmem_read_mapping_page(mapping, index)
        }
    };
    let page = kernel::error::from_err_ptr(page).map_err(|e| Errno::from_ret(e.to_errno()))?;
    NonNull::new(page).ok_or(Errno::EIO)
}

/// Whether instructions of the file can be read through the page cache.
///
/// # Safety
///
/// `inode` is valid.
pub(crate) unsafe fn can_be_read(inode: *mut bindings::inode) -> bool {
    // SAFETY: by contract.
    unsafe {
        let mapping = (*inode).i_mapping;
        c::uprobes_has_read_folio(mapping) || c::shmem_mapping(mapping)
    }
}

/// Puts the breakpoints of every uprobe that is wanted into `vma`.
///
/// Errors are not told to anybody: the program has its mapping, probes that cannot be there are
/// not. Answers whether to try again makes no sense: a page beyond the end of the file may come yet,
/// as may the code that was probed, and memory.
fn install_all(vma: &Vma<'_>) -> bool {
    let mm = vma.mm();
    let mut complete = true;
    let rcu = TasksTrace::enter();
    for uprobe in uprobe::in_range(vma.inode(), vma.offsets(vma.start(), vma.end()), &rcu) {
        // SAFETY: the current task is valid.
        let dying = unsafe { c::uprobes_fatal_signal_pending(c::uprobes_current()) };
        if dying {
            return false;
        }
        // Registration may be undone between the lookup and here; then nobody wants it.
        let Some(uprobe) = uprobe.try_get() else {
            continue;
        };
        if let (Some(vaddr), true) = (
            vma.vaddr_of(uprobe.offset()),
            uprobe.consumers.any_wants(mm),
        ) {
            complete &= match install(&uprobe, vma, vaddr) {
                Ok(Outcome::FileDiffers) => false,
                Ok(_) => true,
                Err(err) => !matches!(err, Errno::EFAULT | Errno::ENOMEM | Errno::EINTR),
            };
        }
    }
    complete
}

/// A new mapping, or one that has grown or changed.
///
/// # Safety
///
/// `raw` is valid and its `mmap_lock` is held for writing.
#[export]
pub(crate) unsafe extern "C" fn uprobe_mmap(raw: *mut bindings::vm_area_struct) -> c_int {
    let Some(raw) = NonNull::new(raw) else {
        return 0;
    };
    if uprobe::none_registered() {
        return 0;
    }
    // SAFETY: by contract.
    let vma = unsafe { Vma::from_raw(raw) };
    let mut complete = true;
    if vma.may_hold_semaphores() && has_uprobes(vma.mm()) {
        // SAFETY: the address space is in use: it is locked.
        if let Some(state) = unsafe { MmState::get(vma.mm()) } {
            complete &= state.semaphores.apply_pending(&vma);
        }
    }
    if vma.wants_probes() {
        complete &= install_all(&vma);
    }
    if !complete {
        // SAFETY: as above.
        unsafe { MmState::get(vma.mm()) }.inspect(|state| state.rescan.schedule(vma.mm()));
    }
    0
}

/// A part of a mapping loses its pages, with or without the mapping itself.
///
/// # Safety
///
/// `raw` is valid and stays so during the call; some lock keeps its bounds.
#[export]
pub(crate) unsafe extern "C" fn uprobe_munmap(
    raw: *mut bindings::vm_area_struct,
    start: c_ulong,
    end: c_ulong,
) {
    let Some(raw) = NonNull::new(raw) else {
        return;
    };
    if uprobe::none_registered() {
        return;
    }
    // SAFETY: by contract.
    let vma = unsafe { Vma::from_raw(raw) };
    let mm = vma.mm();
    // Whoever truncates a file has the mapping, but not the address space, whose last user may go
    // at any time.
    // SAFETY: the mapping's `mm` is valid.
    if !has_uprobes(mm) || !unsafe { bindings::mmget_not_zero(mm) } {
        return;
    }
    // SAFETY: the `mm` has a user, given up below.
    if let Some(state) = unsafe { MmState::get(mm) } {
        let (start, end) = (start as u64, end as u64);
        let mut lost = vma.may_hold_semaphores() && state.semaphores.lose(start..end);
        if vma.wants_probes() {
            let rcu = TasksTrace::enter();
            lost |= uprobe::in_range(vma.inode(), vma.offsets(start, end), &rcu)
                .next()
                .is_some();
        }
        if lost {
            state.rescan.schedule(mm);
        }
    }
    // Not `mmput()`: the caller may hold locks that tearing down takes.
    // SAFETY: taken above.
    unsafe { bindings::mmput_async(mm) };
}

/// Brings breakpoints and semaphores back where they are wanted and missing. Answers whether that
/// was possible for all.
///
/// What is being taken away meanwhile is waited for.
///
/// # Safety
///
/// The caller keeps users of `mm`.
///
/// # Context
///
/// Process context; takes the `mmap_lock` for writing.
pub(crate) unsafe fn restore(mm: NonNull<bindings::mm_struct>) -> bool {
    // SAFETY: by contract.
    let Some(lock) = (unsafe { MmapWrite::lock_killable(mm) }) else {
        // Others who share the memory may live on.
        return false;
    };
    // SAFETY: valid and locked.
    if !unsafe { c::uprobes_is_stable_address_space(mm.as_ptr()) } {
        return true;
    }
    let mut complete = true;
    for vma in vmas(&lock) {
        if vma.may_hold_semaphores() || vma.wants_probes() {
            vma.wait_for_zap();
        }
        if vma.may_hold_semaphores() {
            // SAFETY: the address space has users by contract.
            if let Some(state) = unsafe { MmState::get(mm.as_ptr()) } {
                complete &= state.semaphores.apply_pending(&vma);
            }
        }
        if vma.wants_probes() {
            complete &= install_all(&vma);
        }
    }
    complete
}

/// Fork begins to copy an address space.
#[export]
pub(crate) extern "C" fn uprobe_start_dup_mmap() {
    // SAFETY: statically initialised.
    unsafe { c::uprobes_percpu_down_read(&raw mut c::uprobes_rs_dup_mmap_sem) };
}

/// Fork is done with the copy.
#[export]
pub(crate) extern "C" fn uprobe_end_dup_mmap() {
    // SAFETY: taken by `uprobe_start_dup_mmap`.
    unsafe { c::uprobes_percpu_up_read(&raw mut c::uprobes_rs_dup_mmap_sem) };
}

/// `new` becomes a copy of `old`, breakpoints and semaphores included.
///
/// # Safety
///
/// Both are valid; the `mmap_lock` of `old` is held for writing, and nobody else knows `new`.
#[export]
pub(crate) unsafe extern "C" fn uprobe_dup_mmap(
    old: *mut bindings::mm_struct,
    new: *mut bindings::mm_struct,
) {
    if has_uprobes(old) {
        set_has_uprobes(new);
    }
    // SAFETY: valid by contract.
    let Some(state) = (unsafe { MmState::get(old) }) else {
        return;
    };
    let unrepaired = state.rescan.is_asked_for();
    if !has_uprobes(old) && state.debugger.is_empty() {
        return;
    }
    // SAFETY: valid by contract. Without memory the child's semaphores stay as they are.
    if let Ok(copy) = unsafe { MmState::get_or_make(new) } {
        copy.semaphores.inherit(&state.semaphores);
        copy.debugger.inherit(&state.debugger);
        copy.unrepaired.store(unrepaired, Relaxed);
    }
}

/// The last user of `mm` is gone.
///
/// # Safety
///
/// Called once for each `mm`, when nobody uses it any more.
#[export]
pub(crate) unsafe extern "C" fn uprobe_clear_state(mm: *mut bindings::mm_struct) {
    // SAFETY: valid by contract.
    let state = unsafe { Atomic::from_ptr(state_word(mm)).xchg(ptr::null_mut(), Full) };
    if !state.is_null() {
        // SAFETY: made by `get_or_make`; nobody uses it any more.
        drop(unsafe { KBox::from_raw(state) });
    }
}
