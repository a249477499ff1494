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
//! Where the current task is the only user of the memory, nobody executes, and any change is legal
//! in place.
//!
//! When the last change of a page is undone and the copy equals the file's page again, the copy
//! is given up.

use core::ops::Range;
use core::ptr;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::barrier::{smp_mb, Write};

use uprobes_bindings as c;
use uprobes_core::arch::{same_start, Arch, Patch, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;
use uprobes_core::sys::{Atomic, Relaxed};

use crate::isa::{self, Isa};
use crate::mm::{Vma, PAGE_MASK, PAGE_SIZE};
use crate::uprobe::Code;

/// As many bytes as an instruction may have, at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u128);

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

    /// The place of `addr` in the page.
    fn place(&self, addr: u64) -> *mut u8 {
        // SAFETY: within the page.
        unsafe { self.0.add((addr & !PAGE_MASK) as usize) }
    }

    /// The place of `addr` in the page, and how many of `len` bytes from there are in it.
    fn part(&self, addr: u64, len: usize) -> (*mut u8, usize) {
        let in_page = (PAGE_SIZE - (addr & !PAGE_MASK)) as usize;
        (self.place(addr), len.min(in_page))
    }

    /// Copies `to.len()` bytes at the place of `addr`, as far as the page goes.
    fn read(&self, addr: u64, to: &mut [u8]) {
        let (from, len) = self.part(addr, to.len());
        // SAFETY: within the page; user space may write to it meanwhile, which can only change
        // what is read.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), len) };
    }

    /// The bytes at the place of `addr`, zero behind the end of the page.
    #[inline]
    fn insn_at(&self, addr: u64) -> [u8; MAX_INSN_BYTES] {
        let (from, len) = self.part(addr, MAX_INSN_BYTES);
        if len == MAX_INSN_BYTES {
            // SAFETY: within the page; as in `read`.
            return unsafe { from.cast::<Unaligned>().read_volatile() }
                .0
                .to_ne_bytes();
        }
        let mut bytes = [0; MAX_INSN_BYTES];
        self.read(addr, &mut bytes);
        bytes
    }

    /// Whether the page has these bytes.
    fn equals(&self, bytes: &[u8; PAGE_SIZE as usize]) -> bool {
        // SAFETY: as in `read`; a page has that many bytes.
        unsafe { bindings::memcmp(self.0.cast(), bytes.as_ptr().cast(), bytes.len()) == 0 }
    }

    /// Copies `from`, which CPUs are to execute, to the place of `addr`, as far as the page goes.
    /// Answers how much that is.
    ///
    /// # Safety
    ///
    /// The page may be written, and [`Mapped::written`] is called afterwards.
    #[inline]
    unsafe fn write_code(&self, addr: u64, from: &[u8]) -> usize {
        let to = self.place(addr);
        // SAFETY: within the page. An instruction whose size is that of an aligned word is stored
        // as one.
        unsafe {
            match *from {
                [byte] => {
                    to.write_volatile(byte);
                    1
                }
                [a, b, c, d] if addr % 4 == 0 => {
                    to.cast::<u32>()
                        .write_volatile(u32::from_ne_bytes([a, b, c, d]));
                    4
                }
                _ => {
                    let (_, len) = self.part(addr, from.len());
                    ptr::copy_nonoverlapping(from.as_ptr(), to, len);
                    len
                }
            }
        }
    }

    /// Makes CPUs that execute in `mm` see the code at the places of `range`, whose first and last
    /// are in the page.
    ///
    /// # Safety
    ///
    /// `mm` is valid.
    unsafe fn written(&self, mm: *mut bindings::mm_struct, range: Range<u64>) {
        let len = range.end.wrapping_sub(range.start) as usize;
        // SAFETY: by contract; the range is within the page.
        unsafe { isa::code_written(mm, self.place(range.start), len) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and local mappings nest.
        unsafe { c::uprobes_kunmap_local(self.0.cast()) };
    }
}

/// The bytes at the place of `addr` in `page`, zero behind its end.
///
/// # Safety
///
/// `page` is valid.
pub(crate) unsafe fn insn_of_page(page: *mut bindings::page, addr: u64) -> [u8; MAX_INSN_BYTES] {
    // SAFETY: by contract.
    unsafe { Mapped::new(page) }.insn_at(addr)
}

/// Copies `to.len()` bytes at the place of `addr` in `page`, as far as the page goes.
///
/// # Safety
///
/// `page` is valid.
pub(crate) unsafe fn copy_from_page(page: *mut bindings::page, addr: u64, to: &mut [u8]) {
    // SAFETY: by contract.
    unsafe { Mapped::new(page) }.read(addr, to);
}

/// Copies `from` to the place of `addr` in `page`, as far as the page goes.
///
/// # Safety
///
/// `page` is valid and may be written.
pub(crate) unsafe fn copy_to_page(page: *mut bindings::page, addr: u64, from: &[u8]) {
    // SAFETY: by contract.
    let map = unsafe { Mapped::new(page) };
    let (to, len) = map.part(addr, from.len());
    // SAFETY: within the page.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, len) };
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
    // SAFETY: by contract.
    unsafe {
        let page = Mapped::new(page);
        let len = page.write_code(addr, from);
        page.written(mm, addr..addr.wrapping_add(len as u64));
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

/// Changes where nobody executed.
pub(crate) static IDLE: Count = Count(Atomic::new(0));
/// Changes in place, where others may have been executing.
pub(crate) static IN_PLACE: Count = Count(Atomic::new(0));
/// Changes of pages that were not mapped meanwhile.
pub(crate) static APART: Count = Count(Atomic::new(0));

impl Count {
    fn add(&self, changes: u64) {
        self.0.fetch_add(changes, Relaxed);
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
    /// Nothing yet.
    Due,
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

/// A change of one instruction: of as much of it as a breakpoint takes.
#[derive(Clone, Copy)]
pub(crate) struct Edit<'i> {
    /// Where it begins.
    pub(crate) vaddr: u64,
    /// The instruction as the file has it, with what follows.
    pub(crate) insn: &'i [u8; MAX_INSN_BYTES],
    /// How long the instruction is.
    pub(crate) insn_len: u8,
    /// A breakpoint, or the start of the original instruction; must not cross a page.
    pub(crate) bytes: &'i [u8],
    /// Whether it is to be made in this process; what came of it is told only then.
    pub(crate) wanted: bool,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

impl<'i> Edit<'i> {
    /// No change of anything, yet.
    pub(crate) const fn none() -> Self {
        Self {
            vaddr: 0,
            insn: &[0; MAX_INSN_BYTES],
            insn_len: 0,
            bytes: &[],
            wanted: false,
            outcome: Outcome::Due,
        }
    }

    /// Puts `bytes` over the start of the instruction in `code`.
    pub(crate) fn change(&mut self, code: &'i Code, bytes: &'i [u8]) {
        self.insn = &code.bytes;
        self.insn_len = code.analysis.len;
        self.bytes = bytes;
    }

    /// Looks at what is in the page now; answers how it may be changed, or else what comes of this
    /// edit without a change: `differing` where the instruction is not the file's.
    #[inline]
    fn look(&self, page: &Mapped, differing: Outcome, purpose: Purpose) -> Result<Patch, Outcome> {
        let there = page.insn_at(self.vaddr);
        match (purpose, Isa::is_swbp(&there)) {
            (Purpose::Install, true) | (Purpose::Remove, false) => Err(Outcome::AsWanted),
            (Purpose::Install, false) if !self.is_in(&there) => Err(differing),
            _ => {
                let old = there.get(..self.bytes.len()).unwrap_or_default();
                Ok(Isa::patch(old, self.bytes))
            }
        }
    }

    /// Whether `there`, the bytes at the place as far as they are in its page, is the start of the
    /// instruction, but for breakpoints within it: a probe may be at the byte behind a prefix.
    #[inline]
    fn is_in(&self, there: &[u8; MAX_INSN_BYTES]) -> bool {
        let in_page =
            (PAGE_SIZE - (self.vaddr & !PAGE_MASK)).min(u64::from(self.insn_len)) as usize;
        same_start(there, self.insn, in_page) || {
            let there = there.get(..in_page).unwrap_or_default();
            let mut pairs = there.iter().zip(self.insn).enumerate();
            pairs.all(|(at, (a, b))| a == b || at > 0 && there.get(at..).is_some_and(Isa::is_swbp))
        }
    }

    /// Whether it is still to be made.
    pub(crate) fn is_due(&self) -> bool {
        self.wanted && self.outcome == Outcome::Due
    }
}

impl<'i> AsMut<Edit<'i>> for Edit<'i> {
    fn as_mut(&mut self) -> &mut Edit<'i> {
        self
    }
}

/// What the process's copy of a page looked like when all of its edits were due, so that the next
/// process's copy need not be looked at edit by edit.
///
/// Belongs to one sequence of edits, until it is told to [`Memo::forget`].
pub(crate) struct Memo {
    image: KBox<[u8; PAGE_SIZE as usize]>,
    /// How the page of the image is changed, once there is an image.
    how: Option<Patch>,
}

impl Memo {
    /// Fewer edits than this are looked at sooner than a page is compared.
    pub(crate) const WORTH: usize = 8;

    /// One that knows nothing yet, if there is memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            image: KBox::new([0; PAGE_SIZE as usize], GFP_KERNEL).ok()?,
            how: None,
        })
    }

    /// Forgets all, for other edits.
    pub(crate) fn forget(&mut self) {
        self.how = None;
    }

    /// How the page is changed, if it is known.
    fn recall(&self, page: &Mapped) -> Option<Patch> {
        self.how.filter(|_| page.equals(&self.image))
    }

    /// Notes that all edits are due in the page, and made in the way `how`.
    fn note(&mut self, page: &Mapped, how: Patch) {
        page.read(0, self.image.as_mut_slice());
        self.how = Some(how);
    }
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

/// Makes those of `edits` that are wanted; all are in one page. It is copied at most once, and
/// taken out of the address space at most once, however many there are. Answers whether each was
/// [`Outcome::Written`].
///
/// An installation is made only where the instruction is what the file has; of an instruction that
/// crosses the page, what lies in the next one is not looked at. With a `memo`, all edits are
/// wanted, and are the same as in the last call with it.
///
/// # Errors
///
/// `EFAULT` where there is no page to be had (beyond the end of the file, say), `ENOMEM`, and
/// `EINTR` after a fatal signal. Nothing was changed then; edits that were needed stay
/// [`Outcome::Due`].
///
/// # Context
///
/// The `mmap_lock` of the mapping's process is held for writing. May sleep.
pub(crate) fn write<'i, E: AsMut<Edit<'i>>>(
    vma: &Vma<'_>,
    edits: &mut [E],
    purpose: Purpose,
    mut memo: Option<&mut Memo>,
) -> Result<bool, Errno> {
    let Some(first) = edits.first_mut() else {
        return Ok(true);
    };
    let page_addr = first.as_mut().vaddr & PAGE_MASK;
    let mm = vma.mm();
    // Looked at first: to be made private for nothing would cut the process off from its file.
    let mut access = Access::Peek;
    let mut differing = Outcome::NotOurs;

    if !vma.is_cow() {
        return Err(Errno::EINVAL);
    }
    loop {
        let page = PageRef::get(mm, page_addr, access)?;
        if !page.is_private() {
            if purpose == Purpose::Remove || access == Access::Poke {
                settle(edits, Outcome::NotOurs);
                return Ok(false);
            }
            if !any_is_due(&page, edits) {
                return Ok(false);
            }
            // What the copy has is what the file has.
            differing = Outcome::FileDiffers;
            access = Access::Poke;
            continue;
        }
        let (how, all_due) = look(&page, edits, differing, purpose, memo.as_deref_mut());
        let Some(how) = how else {
            return Ok(false);
        };

        match attempt(vma, &page, edits, purpose, how) {
            Attempt::Done { collapse } => {
                drop(page);
                if collapse {
                    // SAFETY: the `mmap_lock` is held for writing.
                    unsafe { c::uprobes_collapse_pte_mapped_thp(mm, page_addr as usize) };
                }
                return Ok(all_due);
            }
            Attempt::Again => (),
            Attempt::BreakCow => access = Access::Poke,
        }
    }
}

/// Whether any of the installations in a page of the file is due. If not, tells each what comes of
/// it.
fn any_is_due<'i, E: AsMut<Edit<'i>>>(page: &PageRef, edits: &mut [E]) -> bool {
    // SAFETY: a reference of the page is held.
    let mapped = unsafe { Mapped::new(page.0) };
    let mut wanted = edits
        .iter_mut()
        .map(AsMut::as_mut)
        .filter(|edit| edit.wanted);
    wanted.any(
        |edit| match edit.look(&mapped, Outcome::FileDiffers, Purpose::Install) {
            Ok(_) => true,
            Err(outcome) => {
                edit.outcome = outcome;
                false
            }
        },
    )
}

/// Finds out which of the edits that are wanted are due in `page`, and tells the others what came of
/// them. Answers how the page is changed, if any edit is due, and whether all are.
fn look<'i, E: AsMut<Edit<'i>>>(
    page: &PageRef,
    edits: &mut [E],
    differing: Outcome,
    purpose: Purpose,
    memo: Option<&mut Memo>,
) -> (Option<Patch>, bool) {
    // SAFETY: a reference of the page is held.
    let mapped = unsafe { Mapped::new(page.0) };
    if let Some(how) = memo.as_ref().and_then(|memo| memo.recall(&mapped)) {
        let edits = edits.iter_mut().map(AsMut::as_mut);
        edits.for_each(|edit| edit.outcome = Outcome::Due);
        return (Some(how), true);
    }

    let (mut how, mut all_due) = (None, true);
    for edit in edits.iter_mut().map(AsMut::as_mut) {
        if !edit.wanted {
            continue;
        }
        match edit.look(&mapped, differing, purpose) {
            Ok(patch) => {
                edit.outcome = Outcome::Due;
                // What cannot be done in place for one is done apart for all.
                how = Some(match how {
                    None | Some(Patch::InPlace) => patch,
                    Some(Patch::Apart) => Patch::Apart,
                });
            }
            Err(outcome) => {
                edit.outcome = outcome;
                all_due = false;
            }
        }
    }
    if let (Some(memo), Some(how), true) = (memo, how, all_due) {
        memo.note(&mapped, how);
    }
    (how, all_due)
}

/// Tells all edits that were needed what came of them.
fn settle<'i, E: AsMut<Edit<'i>>>(edits: &mut [E], outcome: Outcome) {
    for edit in edits.iter_mut().map(AsMut::as_mut) {
        if edit.is_due() {
            edit.outcome = outcome;
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

fn attempt<'i, E: AsMut<Edit<'i>>>(
    vma: &Vma<'_>,
    page: &PageRef,
    edits: &mut [E],
    purpose: Purpose,
    how: Patch,
) -> Attempt {
    let Some(first) = edits.first_mut() else {
        return Attempt::Done { collapse: false };
    };
    let page_addr = (first.as_mut().vaddr & PAGE_MASK) as usize;
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
            write_locked(vma, &mut walk, page, edits, purpose, how)
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

/// Writes the edits that are `of` this outcome, which is [`Outcome::Written`] then. Answers how many.
///
/// # Safety
///
/// `page` may be written; `mm` is valid.
unsafe fn write_all<'i, E: AsMut<Edit<'i>>>(
    mm: *mut bindings::mm_struct,
    page: &PageRef,
    edits: &mut [E],
    of: Outcome,
) -> u64 {
    let mut written = 0_u64;
    let (mut start, mut end) = (u64::MAX, 0);
    // SAFETY: a reference of the page is held.
    let mapped = unsafe { Mapped::new(page.0) };
    for edit in edits.iter_mut().map(AsMut::as_mut) {
        if edit.wanted && edit.outcome == of {
            // SAFETY: by contract, and see below.
            let len = unsafe { mapped.write_code(edit.vaddr, edit.bytes) };
            edit.outcome = Outcome::Written;
            written = written.wrapping_add(1);
            start = start.min(edit.vaddr);
            end = end.max(edit.vaddr.wrapping_add(len as u64));
        }
    }
    if written > 0 {
        // SAFETY: by contract.
        unsafe { mapped.written(mm, start..end) };
    }
    written
}

/// Whether no CPU executes code of `mm` now: its only user is the current task, which is in the
/// kernel.
///
/// # Safety
///
/// `mm` is valid.
unsafe fn is_idle(mm: *mut bindings::mm_struct) -> bool {
    // SAFETY: by contract; the current task is valid.
    unsafe { c::uprobes_task_mm(c::uprobes_current()) == mm && c::uprobes_mm_users(mm) == 1 }
}

/// Writes with the page table entry locked.
fn write_locked<'i, E: AsMut<Edit<'i>>>(
    vma: &Vma<'_>,
    walk: &mut c::folio_walk,
    page: &PageRef,
    edits: &mut [E],
    purpose: Purpose,
    how: Patch,
) -> Attempt {
    let Some(first) = edits.first_mut() else {
        return Attempt::Done { collapse: false };
    };
    let vaddr = first.as_mut().vaddr;
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

        // Where nobody executes, any change is legal in place.
        let is_idle = is_idle(vma.mm());
        if how == Patch::InPlace || is_idle {
            let written = write_all(vma.mm(), page, edits, Outcome::Due);
            if is_idle {
                IDLE.add(written);
                isa::serialize();
            } else {
                IN_PLACE.add(written);
                // No CPU runs the old instructions any more once it was interrupted. An emulator
                // that was translating one meanwhile has overlooked the store, but not a second
                // one.
                bindings::kick_all_cpus_sync();
                write_all(vma.mm(), page, edits, Outcome::Written);
            }
            bindings::folio_mark_dirty(folio);
            // Whether the page can be given up is seen for sure only when nobody can write to it.
            if purpose == Purpose::Install || equals_file(vma, vaddr, page).is_none() {
                return Attempt::Done { collapse: false };
            }
        }
        c::uprobes_flush_cache_page(vma.as_ptr(), page_addr, walk);
        c::uprobes_ptep_clear_flush(vma.as_ptr(), page_addr, walk);
        if how == Patch::Apart && !is_idle {
            APART.add(write_all(vma.mm(), page, edits, Outcome::Due));
        }
    }

    if purpose == Purpose::Remove {
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
