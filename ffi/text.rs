// SPDX-License-Identifier: GPL-2.0

//! Changing the text of one process.
//!
//! The process gets a private copy of the page, as if it had written to it itself. The copy is
//! changed in one of two ways, of which the ISA says what is legal ([`Arch::patch`]):
//!
//! - in place, by a store of the whole instruction, while other CPUs may be executing it, which are
//!   then interrupted so that they fetch it anew;
//! - apart, while the page is not mapped, so that no CPU can fetch from it. One that tries to,
//!   faults, waits for the lock of the page table, and fetches anew. It is the cheapest way where
//!   the first is not legal: the CPUs that run the process have a translation taken away; all
//!   others, which stopping the machine would stop too, notice nothing.
//!
//! When the last change of a page is undone and the copy equals the file's page again, the copy
//! is given up.

use core::ptr;

use kernel::bindings;
use kernel::sync::barrier::{smp_mb, Write};

use uprobes_bindings as c;
use uprobes_core::arch::{Arch, Patch, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;
use uprobes_core::sys::{Atomic, Relaxed};

use crate::isa::{self, Isa};
use crate::mm::{Vma, PAGE_MASK, PAGE_SIZE};

/// A page of memory, mapped into the kernel for as long as the value lives.
struct Mapped(*mut u8);

impl Mapped {
    /// # Safety
    ///
    /// `page` is valid for as long as the value lives.
    unsafe fn new(page: *mut bindings::page) -> Self {
        // SAFETY: by contract.
        Self(unsafe { c::uprobes_kmap_local_page(page) }.cast())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and local mappings nest.
        unsafe { c::uprobes_kunmap_local(self.0.cast()) };
    }
}

/// Copies `to.len()` bytes at the place of `addr` in `page`, as far as the page goes.
///
/// # Safety
///
/// `page` is valid.
pub(crate) unsafe fn copy_from_page(page: *mut bindings::page, addr: u64, to: &mut [u8]) {
    let start = (addr & !PAGE_MASK) as usize;
    let len = to.len().min(PAGE_SIZE as usize - start);
    // SAFETY: by contract.
    let map = unsafe { Mapped::new(page) };
    // SAFETY: `start + len` is within the page; user space may write to it meanwhile, which can
    // only change what is read.
    unsafe { ptr::copy_nonoverlapping(map.0.add(start), to.as_mut_ptr(), len) };
}

/// Copies `from` to the place of `addr` in `page`, as far as the page goes.
///
/// # Safety
///
/// `page` is valid and may be written.
pub(crate) unsafe fn copy_to_page(page: *mut bindings::page, addr: u64, from: &[u8]) {
    let start = (addr & !PAGE_MASK) as usize;
    let len = from.len().min(PAGE_SIZE as usize - start);
    // SAFETY: by contract.
    let map = unsafe { Mapped::new(page) };
    // SAFETY: `start + len` is within the page.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), map.0.add(start), len) };
}

/// As [`copy_to_page`], for code that CPUs are to execute in `mm`.
///
/// # Safety
///
/// As [`copy_to_page`]; `mm` is valid.
pub(crate) unsafe fn copy_code_to_page(
    mm: *mut bindings::mm_struct,
    page: *mut bindings::page,
    addr: u64,
    from: &[u8],
) {
    let start = (addr & !PAGE_MASK) as usize;
    let len = from.len().min(PAGE_SIZE as usize - start);
    // SAFETY: by contract.
    let map = unsafe { Mapped::new(page) };
    // SAFETY: `start + len` is within the page. An instruction whose size is that of an aligned
    // word is stored as one.
    unsafe {
        let to = map.0.add(start);
        match <[u8; 4]>::try_from(from) {
            Ok(word) if len == 4 && start % 4 == 0 => {
                to.cast::<u32>().write_volatile(u32::from_ne_bytes(word));
            }
            _ => ptr::copy_nonoverlapping(from.as_ptr(), to, len),
        }
        isa::code_written(mm, to, len);
    }
}

/// As [`copy_code_to_page`], but leaves bytes that are right already alone: a page from which a
/// CPU executes is not written without need.
///
/// # Safety
///
/// As [`copy_to_page`]; `mm` is valid.
pub(crate) unsafe fn update_page(
    mm: *mut bindings::mm_struct,
    page: *mut bindings::page,
    addr: u64,
    from: &[u8],
) {
    let mut there = [0; MAX_INSN_BYTES];
    if let Some(there) = there.get_mut(..from.len()) {
        // SAFETY: by contract.
        unsafe { copy_from_page(page, addr, there) };
        if there == from {
            return;
        }
    }
    // SAFETY: by contract.
    unsafe {
        copy_code_to_page(mm, page, addr, from);
    }
}

/// How many changes were made in one way, for all to see.
pub(crate) struct Count(Atomic<u64>);

/// Changes in place.
pub(crate) static IN_PLACE: Count = Count(Atomic::new(0));
/// Changes of pages that were not mapped meanwhile.
pub(crate) static APART: Count = Count(Atomic::new(0));

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// How many there were since the kernel was booted.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why text is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A breakpoint goes in: the process needs a page of its own.
    Install,
    /// A breakpoint comes out: a page of its own may be given up.
    Remove,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The bytes were written.
    Written,
    /// The bytes that are there need no change.
    AsWanted,
    /// The process has no page of its own there, or code of its own: nothing of ours is in it.
    NotOurs,
    /// The file has something else there, for now: nothing was put in.
    FileDiffers,
}

/// Whether the process has a page of its own at `addr`.
///
/// # Context
///
/// The `mmap_lock` of `mm` is held for writing. May sleep.
pub(crate) fn is_private(mm: *mut bindings::mm_struct, addr: u64) -> bool {
    PageRef::get(mm, addr, Access::Read).is_ok_and(|page| page.is_private())
}

/// Reads the bytes at `vaddr` of the page at `addr` as a debugger would.
///
/// # Errors
///
/// Why the page could not be had.
///
/// # Context
///
/// The `mmap_lock` of `mm` is held. May sleep.
pub(crate) fn peek(
    mm: *mut bindings::mm_struct,
    addr: u64,
    vaddr: u64,
    to: &mut [u8],
) -> Result<(), Errno> {
    let page = PageRef::get(mm, addr, Access::Peek)?;
    // SAFETY: a reference of the page is held.
    unsafe { copy_from_page(page.0, vaddr, to) };
    Ok(())
}

/// Changes the 16-bit number at `vaddr`, which does not cross a page, if `change` says so.
///
/// # Errors
///
/// Why the page could not be had.
///
/// # Context
///
/// As [`is_private`].
pub(crate) fn modify_u16(
    mm: *mut bindings::mm_struct,
    vaddr: u64,
    change: impl FnOnce(u16) -> Option<u16>,
) -> Result<(), Errno> {
    let page = PageRef::get(mm, vaddr & PAGE_MASK, Access::Write)?;
    let mut bytes = [0; 2];
    // SAFETY: a reference of the page is held.
    unsafe { copy_from_page(page.0, vaddr, &mut bytes) };
    if let Some(new) = change(u16::from_ne_bytes(bytes)) {
        // SAFETY: as above; the page was got for writing.
        unsafe { copy_to_page(page.0, vaddr, &new.to_ne_bytes()) };
    }
    Ok(())
}

/// One attempt to change a page of which a reference is held.
enum Attempt {
    Done {
        collapse: bool,
    },
    /// The page was exchanged meanwhile.
    Again,
    /// The page must be made private first.
    BreakCow,
}

/// Writes `bytes`, a breakpoint or the start of the original instruction `insn`, at `vaddr`.
///
/// An installation is made only where the instruction is what the file has; `bytes` must not cross
/// a page, and of `insn` what lies in the next page is not looked at.
///
/// # Errors
///
/// `EFAULT` where there is no page to be had (beyond the end of the file, say), `ENOMEM`, and
/// `EINTR` after a fatal signal.
///
/// # Context
///
/// The `mmap_lock` of the mapping's process is held for writing. May sleep.
pub(crate) fn write(
    vma: &Vma<'_>,
    vaddr: u64,
    bytes: &[u8],
    insn: &[u8],
    purpose: Purpose,
) -> Result<Outcome, Errno> {
    let page_addr = vaddr & PAGE_MASK;
    let mm = vma.mm();
    // Looked at first: to be made private for nothing would cut the process off from its file.
    let mut access = Access::Peek;

    if !vma.is_cow() {
        return Err(Errno::EINVAL);
    }
    loop {
        let page = PageRef::get(mm, page_addr, access)?;

        let in_page = (page_addr + PAGE_SIZE - vaddr).min(insn.len() as u64) as usize;
        let mut there = [0; MAX_INSN_BYTES];
        let there = there.get_mut(..in_page).ok_or(Errno::EINVAL)?;
        // SAFETY: a reference of the page is held.
        unsafe { copy_from_page(page.0, vaddr, there) };
        match (purpose, Isa::is_swbp(there)) {
            (Purpose::Install, true) | (Purpose::Remove, false) => return Ok(Outcome::AsWanted),
            (Purpose::Install, false) if !same_code(there, insn) => {
                return Ok(if page.is_private() {
                    Outcome::NotOurs
                } else {
                    Outcome::FileDiffers
                });
            }
            _ => (),
        }
        if !page.is_private() {
            if purpose == Purpose::Install && access == Access::Peek {
                access = Access::Poke;
                continue;
            }
            return Ok(Outcome::NotOurs);
        }

        let old = there.get(..bytes.len()).unwrap_or_default();
        let change = Change {
            vaddr,
            bytes,
            purpose,
            how: Isa::patch(old, bytes),
        };
        match attempt(vma, &page, &change) {
            Attempt::Done { collapse } => {
                drop(page);
                if collapse {
                    // SAFETY: the `mmap_lock` is held for writing.
                    unsafe { c::uprobes_collapse_pte_mapped_thp(mm, page_addr as usize) };
                }
                return Ok(Outcome::Written);
            }
            Attempt::Again => (),
            Attempt::BreakCow => access = Access::Poke,
        }
    }
}

/// How a page of a process is got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// As the program could read it.
    Read,
    /// As the program could write it.
    Write,
    /// As a debugger reads it, whatever the mapping allows.
    Peek,
    /// As a debugger writes it: made private if the mapping is not writable.
    Poke,
}

/// Whether `there` is the start of `insn`, but for breakpoints within it: a probe may be at the
/// byte behind a prefix.
fn same_code(there: &[u8], insn: &[u8]) -> bool {
    there
        .iter()
        .zip(insn)
        .enumerate()
        .all(|(at, (a, b))| a == b || at > 0 && there.get(at..).is_some_and(Isa::is_swbp))
}

/// A reference of a page of a process.
struct PageRef(*mut bindings::page);

impl PageRef {
    /// Gets the page at `addr` of `mm`, whose `mmap_lock` is held.
    fn get(mm: *mut bindings::mm_struct, addr: u64, access: Access) -> Result<Self, Errno> {
        let flags = match access {
            Access::Read => 0,
            Access::Write => bindings::FOLL_WRITE,
            Access::Peek => bindings::FOLL_FORCE,
            Access::Poke => bindings::FOLL_FORCE | bindings::FOLL_WRITE | bindings::FOLL_SPLIT_PMD,
        };
        let mut page = ptr::null_mut();
        // SAFETY: the `mmap_lock` of `mm` is held by the caller of `write`.
        let got = unsafe {
            bindings::get_user_pages_remote(mm, addr as usize, 1, flags, &mut page, ptr::null_mut())
        };
        match got {
            1 => Ok(Self(page)),
            0 => Err(Errno::EFAULT),
            err => Err(Errno::from_ret(err as i32)),
        }
    }

    fn folio(&self) -> *mut bindings::folio {
        // SAFETY: a reference of the page is held.
        unsafe { c::uprobes_page_folio(self.0) }
    }

    /// Whether the page is the process's own rather than the file's.
    fn is_private(&self) -> bool {
        // SAFETY: a reference of the folio is held.
        unsafe {
            c::uprobes_folio_test_anon(self.folio())
                && !c::uprobes_folio_is_zone_device(self.folio())
        }
    }
}

impl Drop for PageRef {
    fn drop(&mut self) {
        // SAFETY: the reference is given up here.
        unsafe { c::uprobes_put_page(self.0) };
    }
}

/// What is to be changed, and how.
struct Change<'b> {
    vaddr: u64,
    bytes: &'b [u8],
    purpose: Purpose,
    how: Patch,
}

fn attempt(vma: &Vma<'_>, page: &PageRef, change: &Change<'_>) -> Attempt {
    let (vaddr, purpose) = (change.vaddr, change.purpose);
    let page_addr = (vaddr & PAGE_MASK) as usize;
    let mut range = c::mmu_notifier_range::default();

    if purpose == Purpose::Remove {
        // The page may be given up below, where notifiers cannot be called any more.
        // SAFETY: `range` is ours, and `mm` is locked.
        unsafe {
            c::uprobes_invalidate_begin(
                &mut range,
                vma.mm(),
                page_addr,
                page_addr + PAGE_SIZE as usize,
            );
        }
    }

    let mut walk = c::folio_walk::default();
    // SAFETY: the `mmap_lock` is held; `walk` is ours.
    let folio = unsafe { c::folio_walk_start(&mut walk, vma.as_ptr(), page_addr, 0) };
    let attempt = if folio.is_null() {
        Attempt::Again
    } else {
        let attempt = if walk.page == page.0 {
            write_locked(vma, &mut walk, page, change)
        } else {
            Attempt::Again
        };
        // SAFETY: started above.
        unsafe { c::uprobes_folio_walk_end(&mut walk, vma.as_ptr()) };
        attempt
    };

    if purpose == Purpose::Remove {
        // SAFETY: begun above.
        unsafe { c::uprobes_invalidate_end(&mut range) };
    }
    attempt
}

/// Writes with the page table entry locked.
fn write_locked(
    vma: &Vma<'_>,
    walk: &mut c::folio_walk,
    page: &PageRef,
    change: &Change<'_>,
) -> Attempt {
    let (vaddr, bytes) = (change.vaddr, change.bytes);
    let page_addr = (vaddr & PAGE_MASK) as usize;
    let folio = page.folio();

    if walk.level != c::folio_walk_level_FW_LEVEL_PTE {
        return Attempt::BreakCow;
    }
    // SAFETY: the walk holds the lock of the entry; the folio is referenced.
    unsafe {
        if !c::uprobes_pte_write(walk)
            && (!c::uprobes_page_anon_exclusive(walk.page)
                || c::uprobes_pte_uffd_wp(vma.as_ptr(), walk))
        {
            return Attempt::BreakCow;
        }

        if change.how == Patch::InPlace {
            copy_code_to_page(vma.mm(), page.0, vaddr, bytes);
            // No CPU runs the old instruction any more once it was interrupted. An emulator that
            // was translating it meanwhile has overlooked the store, but not a second one.
            bindings::kick_all_cpus_sync();
            copy_code_to_page(vma.mm(), page.0, vaddr, bytes);
            bindings::folio_mark_dirty(folio);
            IN_PLACE.add();
            // Whether the page can be given up is seen for sure only when nobody can write to it.
            if change.purpose == Purpose::Install || equals_file(vma, vaddr, page).is_none() {
                return Attempt::Done { collapse: false };
            }
        }
        c::uprobes_flush_cache_page(vma.as_ptr(), page_addr, walk);
        c::uprobes_ptep_clear_flush(vma.as_ptr(), page_addr, walk);
        if change.how == Patch::Apart {
            copy_code_to_page(vma.mm(), page.0, vaddr, bytes);
            APART.add();
        }
    }

    if change.purpose == Purpose::Remove {
        if let Some(collapse) = equals_file(vma, vaddr, page) {
            // SAFETY: as above; the entry is clear and stays so, the next access maps the file's
            // page. The mapping's own reference of the folio is put.
            unsafe {
                c::uprobes_dec_anon_counter(vma.mm());
                c::uprobes_folio_remove_rmap_pte(folio, page.0, vma.as_ptr());
                if c::uprobes_folio_free_swap_wanted(folio) && c::uprobes_folio_trylock(folio) {
                    c::uprobes_folio_free_swap(folio);
                    c::uprobes_folio_unlock(folio);
                }
                c::uprobes_folio_put(folio);
            }
            return Attempt::Done { collapse };
        }
    }

    // The bytes must be visible before the entry is.
    smp_mb(Write);
    // SAFETY: as above; the entry goes back, dirty because the page was written.
    unsafe { c::uprobes_set_pte_dirty_at(vma.mm(), page_addr, walk) };
    Attempt::Done { collapse: false }
}

/// Whether the process's page can be given up because it equals the file's; then also whether the
/// file's page is part of a huge one that could be mapped as such again.
fn equals_file(vma: &Vma<'_>, vaddr: u64, page: &PageRef) -> Option<bool> {
    // SAFETY: the folio is referenced and the mapping locked.
    unsafe {
        if c::uprobes_uffd_missing(vma.as_ptr()) || c::uprobes_folio_has_extra_refs(page.folio()) {
            return None;
        }
        let index = (vma.offset_of(vaddr) / PAGE_SIZE) as usize;
        let original = c::uprobes_filemap_get_folio(vma.mapping(), index);
        if kernel::error::from_err_ptr(original).is_err() {
            return None;
        }
        let collapse = c::uprobes_folio_test_pmd_mappable(original);
        let same = c::uprobes_folio_test_uptodate(original)
            && c::uprobes_pages_identical(page.0, c::uprobes_folio_file_page(original, index));
        c::uprobes_folio_put(original);
        same.then_some(collapse)
    }
}
