// SPDX-License-Identifier: GPL-2.0

//! Address spaces: which mappings can hold probes, and what the kernel's memory management tells
//! us of them.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
use kernel::alloc::kvec::PushError;
use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::mm::virt::flags;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::{Analysis, Arch, Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;
use uprobes_core::sys::{Acquire, Atomic, Full, Relaxed};

use crate::debugger::DebuggerTraps;
use crate::isa::{self, Isa};
use crate::ref_ctr::Semaphores;
use crate::rescan::Rescan;
use crate::sync::{MmapWrite, TasksTrace};
use crate::text::{self, Edit, Memo, Outcome, Purpose};
use crate::uprobe::{self, Code, Insn, Uprobe};
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

    /// Address that the first byte of the file would have if it were mapped here too.
    fn origin(&self) -> u64 {
        self.start().wrapping_sub(self.start_offset())
    }

    /// Address of the byte at `offset` of the file, if it is mapped here.
    pub(crate) fn vaddr_of(&self, offset: u64) -> Option<u64> {
        let vaddr = self
            .start()
            .checked_add(offset.checked_sub(self.start_offset())?)?;
        (vaddr < self.end()).then_some(vaddr)
    }

    /// The part of the file mapped at `start..end`.
    pub(crate) fn offsets(&self, start: u64, end: u64) -> core::ops::Range<u64> {
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

/// A probed place, and what came of the last change there in one process.
pub(crate) struct Site<'u> {
    /// What is probed.
    pub(crate) uprobe: &'u Uprobe,
    edit: Edit<'u>,
    /// Why nothing came of it.
    error: Option<Errno>,
    /// Whether a change is wanted in the process, be it possible or not.
    wanted: bool,
    /// Whether the edit is what it is in any process without a debugger.
    is_prepared: bool,
    /// Whether its semaphore was incremented for this change.
    counted: bool,
}

impl<'u> AsMut<Edit<'u>> for Site<'u> {
    fn as_mut(&mut self) -> &mut Edit<'u> {
        &mut self.edit
    }
}

impl<'u> Site<'u> {
    /// The place of `uprobe`, in no process yet. A change is wanted.
    pub(crate) fn of(uprobe: &'u Uprobe) -> Self {
        Self {
            uprobe,
            edit: Edit::none(),
            error: None,
            wanted: true,
            is_prepared: false,
            counted: false,
        }
    }

    /// Goes to the process that has offset 0 of the file at `origin`.
    #[inline]
    fn aim(&mut self, origin: u64) {
        self.edit.vaddr = origin.wrapping_add(self.uprobe.offset());
        self.edit.wanted = self.wanted;
        self.edit.outcome = Outcome::Due;
        self.error = None;
        self.counted = false;
    }

    /// Makes no change because of `err`.
    fn fail(&mut self, err: Errno) {
        self.error = Some(err);
        self.edit.wanted = false;
    }

    /// What came of the change in the last process, where it was wanted.
    pub(crate) fn result(&self) -> Result<Outcome, Errno> {
        match self.error {
            None => Ok(self.edit.outcome),
            Some(err) => Err(err),
        }
    }

    /// Gets the breakpoint ready that is to go in.
    fn prepare_install(
        &mut self,
        file: &mut FileReader<'_>,
        analyst: &mut Analyst,
        state: &MmState,
    ) -> Result<(), Errno> {
        let uprobe = self.uprobe;
        if !self.is_prepared {
            let code = uprobe.code_or_make(|| {
                let mut bytes = [0; MAX_INSN_BYTES];
                file.read_code(uprobe.offset(), &mut bytes)?;
                let analysis = analyst.analyze(&bytes, isa::bitness_of_mm(file.vma.mm()))?;
                Ok(Code { bytes, analysis })
            })?;
            let swbp = Isa::swbp(&code.analysis.insn, self.edit.vaddr);
            self.edit.change(code, swbp);
            self.is_prepared = true;
        }
        if uprobe.ref_ctr_offset() != 0 {
            self.counted = state.semaphores.acquire(uprobe, file.vma.mm())?;
        }
        Ok(())
    }

    /// Looks after what is not text, once it is known what came of the installation.
    fn conclude_install(&mut self, vma: &Vma<'_>, state: &MmState) {
        if self.result() == Ok(Outcome::NotOurs) {
            self.share_with_debugger(vma, state);
        }
        match self.result() {
            // There was no breakpoint, so none of a debugger either.
            Ok(Outcome::Written) => drop(state.debugger.remove(self.edit.vaddr)),
            Ok(Outcome::AsWanted) => (),
            // The program or the file has changed: what is there is not what was probed.
            Ok(Outcome::NotOurs | Outcome::FileDiffers | Outcome::Due) | Err(_) => {
                if core::mem::take(&mut self.counted) {
                    state.semaphores.release(self.uprobe, vma.mm());
                }
            }
        }
    }

    /// A debugger's breakpoint that is another instruction than ours gives way to ours, which does
    /// for both.
    #[cold]
    fn share_with_debugger(&mut self, vma: &Vma<'_>, state: &MmState) {
        let Some(trap) = state.debugger.bytes_at(self.edit.vaddr) else {
            return;
        };
        let mut edit = [Edit {
            insn: &trap,
            insn_len: self.edit.bytes.len() as u8,
            ..self.edit
        }];
        match text::write(vma, &mut edit, Purpose::Install, None) {
            Ok(_) => {
                let [edit] = edit;
                self.edit.outcome = match edit.outcome {
                    Outcome::Written => Outcome::AsWanted,
                    other => other,
                };
            }
            Err(err) => self.error = Some(err),
        }
    }

    /// Gets ready what is to be where the breakpoint is.
    fn prepare_remove(&mut self, vma: &Vma<'_>, state: Option<&MmState>) {
        let Some(code) = self.uprobe.code() else {
            // Nobody has ever had it.
            self.edit.outcome = Outcome::AsWanted;
            self.edit.wanted = false;
            return;
        };
        let swbp = Isa::swbp(&code.analysis.insn, self.edit.vaddr);
        if !self.is_prepared {
            let original = code.bytes.get(..swbp.len()).unwrap_or_default();
            self.edit.change(code, original);
            self.is_prepared = true;
        }
        if let Some(state) = state.filter(|state| !state.debugger.is_empty()) {
            self.leave_to_debugger(vma, state, swbp);
        }
    }

    /// A debugger's breakpoint stays, be it the same instruction as ours or another one.
    #[cold]
    fn leave_to_debugger(&mut self, vma: &Vma<'_>, state: &MmState, swbp: &[u8]) {
        let Some(trap) = state.debugger.bytes_at(self.edit.vaddr) else {
            return;
        };
        let bytes = trap.get(..swbp.len()).unwrap_or_default();
        let mut edit = [Edit { bytes, ..self.edit }];
        self.edit.wanted = false;
        self.edit.outcome = Outcome::AsWanted;
        if bytes != swbp {
            self.error = text::write(vma, &mut edit, Purpose::Remove, None).err();
        }
    }
}

/// The sites of one page of a file, and what is the same for them in all processes that map it.
pub(crate) struct Sites<'u> {
    all: KVVec<Site<'u>>,
    memo: Option<Memo>,
    use_memo: bool,
    analyst: Analyst,
}

impl<'u> Sites<'u> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            all: KVVec::new(),
            memo: None,
            use_memo: false,
            analyst: Analyst::new(),
        }
    }

    /// Makes room for so many more.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), Errno> {
        self.all
            .reserve(count, GFP_KERNEL)
            .map_err(|_| Errno::ENOMEM)
    }

    /// Takes those of `uprobes` instead, which are in one page and ascending; a change is wanted at
    /// each. With `memo`, the page of more than one process is looked at.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn set(
        &mut self,
        uprobes: impl Iterator<Item = &'u Uprobe>,
        memo: bool,
    ) -> Result<(), Errno> {
        self.all.clear();
        if self.all.capacity() == 0 {
            self.reserve(16)?;
        }
        for uprobe in uprobes {
            if let Err(PushError(site)) = self.all.push_within_capacity(Site::of(uprobe)) {
                self.all.push(site, GFP_KERNEL).map_err(|_| Errno::ENOMEM)?;
            }
        }
        self.use_memo = memo && self.all.len() >= Memo::WORTH;
        if self.use_memo {
            match &mut self.memo {
                Some(memo) => memo.forget(),
                // Without memory it takes longer.
                none => *none = Memo::new(),
            }
        }
        Ok(())
    }

    /// Whether a change is wanted in the next process, for each of them.
    pub(crate) fn want(&mut self, wanted: impl Iterator<Item = bool>) {
        for (site, wanted) in self.all.iter_mut().zip(wanted) {
            site.wanted = wanted;
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Site<'u>> {
        self.all.iter()
    }

    /// Whether a change is to be made at any of them.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted().next().is_some()
    }

    /// Those that are or were wanted in a process.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Site<'u>> {
        self.all.iter().filter(|site| site.wanted)
    }

    /// Whether `vma` maps the page.
    pub(crate) fn are_in(&self, vma: &Vma<'_>) -> bool {
        self.all
            .first()
            .is_some_and(|site| vma.vaddr_of(site.uprobe.offset()).is_some())
    }

    /// Puts the breakpoints in that are wanted in `vma`, which maps the page, and tells each site
    /// what came of it: an error of the analysis of its instruction, of its semaphore, or of
    /// [`text::write`]. Answers whether all of them were written.
    ///
    /// # Context
    ///
    /// The `mmap_lock` is held for writing. May sleep; takes the consumers' lock.
    pub(crate) fn install(&mut self, vma: &Vma<'_>) -> bool {
        if !self.are_wanted() {
            return true;
        }
        // SAFETY: the address space is in use: it is locked.
        let state = match unsafe { MmState::get_or_make(vma.mm()) } {
            Ok(state) => state,
            Err(err) => {
                let wanted = self.all.iter_mut().filter(|site| site.wanted);
                wanted.for_each(|site| site.fail(err));
                return false;
            }
        };
        let mut file = FileReader::new(vma);
        let origin = vma.origin();
        let (mut all_wanted, mut failed) = (true, false);
        for site in &mut self.all {
            site.aim(origin);
            if site.wanted {
                if let Err(err) = site.prepare_install(&mut file, &mut self.analyst, state) {
                    site.fail(err);
                    failed = true;
                }
            }
            all_wanted &= site.edit.wanted;
        }
        // A breakpoint can be hit as soon as it is there.
        set_has_uprobes(vma.mm());
        let written = self.write(vma, Purpose::Install, all_wanted);
        if !written || !state.debugger.is_empty() {
            for site in self.all.iter_mut().filter(|site| site.wanted) {
                site.conclude_install(vma, state);
            }
        }
        written && !failed
    }

    /// Takes the breakpoints that are not wanted any more out of `vma`, which maps the page, and
    /// tells each site what came of it. After an error, `ENOMEM` or `EINTR`, the breakpoint is still
    /// there. Answers whether there was none.
    ///
    /// # Context
    ///
    /// As [`Sites::install`].
    pub(crate) fn remove(&mut self, vma: &Vma<'_>) -> bool {
        if !self.are_wanted() {
            return true;
        }
        // SAFETY: the address space is in use: it is locked.
        let state = unsafe { MmState::get(vma.mm()) };
        let origin = vma.origin();
        let mut all_wanted = true;
        for site in &mut self.all {
            site.aim(origin);
            if site.wanted {
                site.prepare_remove(vma, state);
            }
            all_wanted &= site.edit.wanted;
        }
        self.write(vma, Purpose::Remove, all_wanted);
        let mut failed = false;
        for site in self.all.iter_mut().filter(|site| site.wanted) {
            // There is no such page (any more), so no breakpoint in it.
            if site.error == Some(Errno::EFAULT) {
                site.error = None;
                site.edit.outcome = Outcome::NotOurs;
            }
            failed |= site.error.is_some();
            if let (None, Some(state), true) = (site.error, state, site.is_prepared) {
                state.semaphores.release(site.uprobe, vma.mm());
            }
        }
        !failed
    }

    /// Makes a change of text, and tells each site what came of it. It `is_plain` if the edits are
    /// all wanted and those that they are in any process. Answers whether all were written.
    fn write(&mut self, vma: &Vma<'_>, purpose: Purpose, is_plain: bool) -> bool {
        let memo = self.memo.as_mut().filter(|_| is_plain && self.use_memo);
        text::write(vma, &mut self.all, purpose, memo).unwrap_or_else(|err| {
            for site in self.all.iter_mut().filter(|site| site.edit.is_due()) {
                site.error = Some(err);
            }
            false
        })
    }
}

/// Removes the breakpoints of `uprobe` from every mapping of a process.
///
/// # Errors
///
/// The first of [`Sites::remove`]; the others are tried all the same.
pub(crate) fn remove_everywhere(uprobe: &Uprobe, lock: &MmapWrite) -> Result<(), Errno> {
    let mut result = Ok(());
    for vma in vmas(lock) {
        if !vma.may_hold_probes() || vma.inode() != uprobe.inode() {
            continue;
        }
        let mut sites = Sites::new();
        sites.set([uprobe].into_iter(), false)?;
        if sites.are_in(&vma) {
            sites.remove(&vma);
            result = sites
                .wanted()
                .fold(result, |result, site| result.and(site.result().map(|_| ())));
        }
    }
    result
}

/// Analyses instructions, and remembers the last one: of many functions that are probed, most begin
/// with the same.
struct Analyst {
    last: Option<(Code, Bitness)>,
}

impl Analyst {
    const fn new() -> Self {
        Self { last: None }
    }

    /// As [`Arch::analyze`].
    fn analyze(
        &mut self,
        bytes: &[u8; MAX_INSN_BYTES],
        bitness: Bitness,
    ) -> Result<Analysis<Insn>, Errno> {
        if let Some((last, of)) = &self.last {
            let same = if Isa::LOOKS_AHEAD {
                last.bytes == *bytes
            } else {
                last.is_start_of(bytes)
            };
            if same && *of == bitness {
                return Ok(last.analysis);
            }
        }
        let analysis = Isa::analyze(bytes, bitness)?;
        let code = Code {
            bytes: *bytes,
            analysis,
        };
        self.last = Some((code, bitness));
        Ok(analysis)
    }
}

/// Reads the file of a mapping, whose sites are asked for page by page.
struct FileReader<'v> {
    vma: &'v Vma<'v>,
    /// The page read last.
    page: Option<FilePage>,
}

/// A page of the page cache, of which a reference is held.
struct FilePage {
    index: u64,
    page: NonNull<bindings::page>,
}

impl Drop for FilePage {
    fn drop(&mut self) {
        // SAFETY: the reference is given up here.
        unsafe { c::uprobes_put_page(self.page.as_ptr()) };
    }
}

impl<'v> FileReader<'v> {
    fn new(vma: &'v Vma<'v>) -> Self {
        Self { vma, page: None }
    }

    /// Reads the instruction at `offset`, and what follows; bytes of pages beyond the end of the file
    /// are zero.
    ///
    /// # Errors
    ///
    /// `EIO` where the file ends before `offset`, what reading the page gives, and `ENOTSUPP` where
    /// a breakpoint is.
    #[inline]
    fn read_code(&mut self, offset: u64, bytes: &mut [u8; MAX_INSN_BYTES]) -> Result<(), Errno> {
        // SAFETY: the mapping holds the file, whose inode this is.
        let size = unsafe { c::uprobes_i_size_read(self.vma.inode()) } as u64;
        if offset >= size {
            return Err(Errno::EIO);
        }
        let page = self.page(offset / PAGE_SIZE)?;
        // SAFETY: a reference is held.
        *bytes = unsafe { text::insn_of_page(page.as_ptr(), offset) };
        let in_page = (PAGE_SIZE - (offset & !PAGE_MASK)) as usize;
        let next = offset.saturating_add(in_page as u64);
        let rest = bytes.get_mut(in_page..).unwrap_or_default();
        if !rest.is_empty() && next < size {
            let page = self.page(next / PAGE_SIZE)?;
            // SAFETY: as above.
            unsafe { text::copy_from_page(page.as_ptr(), next, rest) };
        }
        if Isa::is_swbp(bytes) {
            return Err(Errno::ENOTSUPP);
        }
        Ok(())
    }

    /// The page of the file with this index.
    #[inline]
    fn page(&mut self, index: u64) -> Result<NonNull<bindings::page>, Errno> {
        match &self.page {
            Some(known) if known.index == index => Ok(known.page),
            _ => self.read_page(index),
        }
    }

    #[cold]
    fn read_page(&mut self, index: u64) -> Result<NonNull<bindings::page>, Errno> {
        let file = self.vma.file().map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the mapping holds the file, whose inode this is; who registered has seen that it
        // `can_be_read`.
        let page = unsafe {
            let mapping = (*self.vma.inode()).i_mapping;
            if c::uprobes_has_read_folio(mapping) {
                c::uprobes_read_mapping_page(mapping, index as usize, file)
            } else {
                c::uprobes_shmem_read_mapping_page(mapping, index as usize)
            }
        };
        let page = kernel::error::from_err_ptr(page).map_err(|e| Errno::from_ret(e.to_errno()))?;
        let page = NonNull::new(page).ok_or(Errno::EIO)?;
        self.page = Some(FilePage { index, page });
        Ok(page)
    }
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
    // Who registers first puts the uprobe into the index, and then looks for mappings.
    if !uprobe::may_be_in(vma.inode()) {
        return true;
    }
    let mut offsets = vma.offsets(vma.start(), vma.end());
    let mut complete = true;
    let rcu = TasksTrace::enter();
    let mut sites = Sites::new();
    while let Some(first) = uprobe::in_range(vma.inode(), offsets.clone(), &rcu).next() {
        // SAFETY: the current task is valid.
        let dying = unsafe { c::uprobes_fatal_signal_pending(c::uprobes_current()) };
        if dying {
            return false;
        }
        let page_end = (first.offset() & PAGE_MASK).saturating_add(PAGE_SIZE);
        offsets.start = page_end.min(offsets.end);
        let uprobes =
            uprobe::in_range(vma.inode(), first.offset()..offsets.start, &rcu).filter(|uprobe| {
                uprobe.consumers.any_wants_all(&rcu) || uprobe.consumers.any_wants(vma.mm())
            });
        complete &= sites.set(uprobes, false).is_ok();
        complete &= sites.install(vma)
            || sites.wanted().all(|site| match site.result() {
                Ok(Outcome::FileDiffers) => false,
                Ok(_) => true,
                Err(err) => !matches!(err, Errno::EFAULT | Errno::ENOMEM | Errno::EINTR),
            });
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
        if vma.wants_probes() && uprobe::may_be_in(vma.inode()) {
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
