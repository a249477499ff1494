// SPDX-License-Identifier: GPL-2.0

//! Breakpoints that a debugger has put where a probe is.
//!
//! There is room for one of them, so who wants what is kept apart here: a debugger that reads a
//! probed place sees what the file has, or its own breakpoint; when it writes there, its
//! breakpoint comes or goes while ours stays. A hit first runs the handlers and then traps to the
//! debugger as it would have without us.
//!
//! The debugger's breakpoint may be the very instruction that ours is (x86_64), or another one,
//! whose trap does not lead to us (arm64).

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::{Arch, MAX_INSN_BYTES};
use uprobes_core::sys::{Atomic, Relaxed};

use crate::isa::{self, Isa};
use crate::mm::{self, MmState, Vma, PAGE_MASK, PAGE_SIZE};
use crate::sync::{SpinLock, TasksTrace};
use crate::uprobe::{self, Uprobe};

/// A breakpoint of a debugger: as many bytes as ours has, zeroes behind.
pub(crate) type TrapBytes = [u8; MAX_INSN_BYTES];

struct Trap {
    next: *mut Trap,
    vaddr: u64,
    bytes: TrapBytes,
}

/// The breakpoint at the start of `memory`.
fn trap_bytes(memory: &[u8]) -> TrapBytes {
    let mut bytes = TrapBytes::default();
    for (to, from) in bytes.iter_mut().zip(memory).take(Isa::TRAP_BYTES) {
        *to = *from;
    }
    bytes
}

/// Breakpoints of debuggers that are noted in an address space. A program can write as many into
/// itself as it likes, without any probe or debugger.
const MAX_TRAPS: u32 = 1024;

impl Trap {
    fn new(vaddr: u64, bytes: TrapBytes) -> Option<KBox<Self>> {
        let next = ptr::null_mut();
        let trap = Self { next, vaddr, bytes };
        KBox::new(trap, GFP_KERNEL_ACCOUNT).ok()
    }
}

/// Addresses of an address space where a debugger has a breakpoint besides ours.
///
/// # Invariants
///
/// `head` is null or the start of a list of traps owned by this value, guarded by `lock`; `len` is
/// its length.
pub(crate) struct DebuggerTraps {
    lock: SpinLock,
    len: Atomic<u32>,
    head: UnsafeCell<*mut Trap>,
}

impl DebuggerTraps {
    /// # Safety
    ///
    /// `this` is valid for writes, shared with nobody yet, and stays where it is.
    pub(crate) unsafe fn init(this: *mut Self) {
        // SAFETY: by contract.
        unsafe {
            SpinLock::init(&raw mut (*this).lock, c::uprobes_init_debugger_lock);
            (&raw mut (*this).len).write(Atomic::new(0));
            (&raw mut (*this).head).write(UnsafeCell::new(ptr::null_mut()));
        }
    }

    /// The link to the trap at `vaddr`, or the last link.
    ///
    /// # Safety
    ///
    /// The lock is held.
    unsafe fn link(&self, vaddr: u64) -> *mut *mut Trap {
        let mut link = self.head.get();
        // SAFETY: a link of the list, which is locked.
        unsafe {
            while !(*link).is_null() && (**link).vaddr != vaddr {
                link = &raw mut (**link).next;
            }
        }
        link
    }

    /// Whether a debugger has a breakpoint at `vaddr`.
    #[inline]
    pub(crate) fn contains(&self, vaddr: u64) -> bool {
        self.len.load(Relaxed) != 0 && self.search(vaddr)
    }

    #[cold]
    fn search(&self, vaddr: u64) -> bool {
        self.bytes_at(vaddr).is_some()
    }

    /// The breakpoint that a debugger has at `vaddr`.
    pub(crate) fn bytes_at(&self, vaddr: u64) -> Option<TrapBytes> {
        let _guard = self.lock.lock();
        // SAFETY: locked.
        unsafe { (*self.link(vaddr)).as_ref() }.map(|trap| trap.bytes)
    }

    /// Notes a breakpoint. May sleep. Without memory, or if there are [`MAX_TRAPS`], it goes
    /// unnoticed: the probe wins then.
    pub(crate) fn insert(&self, vaddr: u64, bytes: TrapBytes) {
        if self.len.load(Relaxed) >= MAX_TRAPS {
            return;
        }
        let Some(trap) = Trap::new(vaddr, bytes) else {
            return;
        };
        let guard = self.lock.lock();
        // SAFETY: locked.
        let link = unsafe { self.link(vaddr) };
        // SAFETY: as above.
        if unsafe { (*link).is_null() } {
            // SAFETY: as above; the list owns the trap from now on.
            unsafe { *link = KBox::into_raw(trap) };
            self.len
                .store(self.len.load(Relaxed).wrapping_add(1), Relaxed);
            return;
        }
        drop(guard);
        drop(trap);
    }

    /// Forgets a breakpoint; answers whether there was one.
    pub(crate) fn remove(&self, vaddr: u64) -> bool {
        if self.len.load(Relaxed) == 0 {
            return false;
        }
        let guard = self.lock.lock();
        // SAFETY: locked; a trap that is there came from `KBox::into_raw`.
        let trap = unsafe {
            let link = self.link(vaddr);
            if (*link).is_null() {
                return false;
            }
            let trap = KBox::from_raw(*link);
            *link = trap.next;
            trap
        };
        self.len
            .store(self.len.load(Relaxed).wrapping_sub(1), Relaxed);
        drop(guard);
        drop(trap);
        true
    }

    /// Forgets the breakpoints in `range` for which `gone` says so.
    fn remove_those(&self, range: core::ops::Range<u64>, gone: impl Fn(u64) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut next = {
            let _guard = self.lock.lock();
            // SAFETY: locked.
            unsafe { self.first_from(range.start) }
        };
        while let Some(vaddr) = next.filter(|vaddr| *vaddr < range.end) {
            if gone(vaddr) {
                self.remove(vaddr);
            }
            let _guard = self.lock.lock();
            // SAFETY: locked.
            next = unsafe { self.first_from(vaddr.saturating_add(1)) };
        }
    }

    /// The lowest address with a breakpoint from `vaddr` on.
    ///
    /// # Safety
    ///
    /// The lock is held.
    unsafe fn first_from(&self, vaddr: u64) -> Option<u64> {
        // SAFETY: a list of valid traps, which is locked.
        let first = unsafe { (*self.head.get()).as_ref() };
        // SAFETY: as above.
        core::iter::successors(first, |trap| unsafe { trap.next.as_ref() })
            .map(|trap| trap.vaddr)
            .filter(|known| *known >= vaddr)
            .min()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// Takes over those of the parent, whose memory was copied too.
    ///
    /// # Context
    ///
    /// The parent's `mmap_lock` is held for writing, so that no debugger writes meanwhile. Nobody
    /// else knows the child, whose list is empty.
    pub(crate) fn inherit(&self, parent: &DebuggerTraps) {
        // SAFETY: the list does not change meanwhile.
        let mut trap = unsafe { *parent.head.get() };
        while !trap.is_null() {
            // SAFETY: a trap of the list.
            let (vaddr, bytes) = unsafe {
                let copied = ((*trap).vaddr, (*trap).bytes);
                trap = (*trap).next;
                copied
            };
            let Some(mut copy) = Trap::new(vaddr, bytes) else {
                return;
            };
            // SAFETY: nobody else knows this list yet; it owns the trap from now on.
            unsafe {
                copy.next = *self.head.get();
                *self.head.get() = KBox::into_raw(copy);
            }
            self.len
                .store(self.len.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

impl Drop for DebuggerTraps {
    fn drop(&mut self) {
        let mut trap = *self.head.get_mut();
        while !trap.is_null() {
            // SAFETY: the list is owned, and nobody else sees it any more.
            let boxed = unsafe { KBox::from_raw(trap) };
            trap = boxed.next;
        }
    }
}

/// Bytes that debuggers write at most to set or clear a breakpoint (`PTRACE_POKETEXT`).
const WORD: u64 = 8;

/// Bytes of a breakpoint that an access may leave out at most.
const CUT: u64 = Isa::TRAP_BYTES as u64 - 1;

as_declared! { uprobe_remote_access }

/// Somebody has read or written the memory of a process as a debugger does.
///
/// `copy` are the `len` bytes as the debugger has them, `memory` the same in the page. A read has
/// filled `copy`, a write has filled `memory`.
///
/// # Safety
///
/// `vma` is valid with its `mmap_lock` held, `addr..addr + len` is in it and in one page, `memory`
/// is where that page is mapped and may be written, and `copy` is valid for reads and writes of
/// `len` bytes.
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobe_remote_access(
    vma: *mut bindings::vm_area_struct,
    addr: c_ulong,
    memory: *mut kernel::ffi::c_void,
    copy: *mut kernel::ffi::c_void,
    len: c_int,
    write: bool,
) {
    let (Some(vma), Ok(len)) = (NonNull::new(vma), u64::try_from(len)) else {
        return;
    };
    // SAFETY: by contract.
    let vma = unsafe { Vma::from_raw(vma) };
    if !vma.may_hold_probes() {
        return;
    }
    let start = addr as u64;
    // A breakpoint may begin before what was accessed, or end behind it.
    let before = CUT.min(start & !PAGE_MASK);
    let after = CUT.min(PAGE_SIZE.saturating_sub((start & !PAGE_MASK) + len));
    if write {
        // SAFETY: within the page, which is mapped by contract.
        let around = unsafe {
            core::slice::from_raw_parts(
                memory.cast::<u8>().sub(before as usize),
                (before + len + after) as usize,
            )
        };
        note_write(&vma, start..start + len, before as usize, around);
    }
    if uprobe::none_registered() || !mm::has_uprobes(vma.mm()) {
        return;
    }
    // SAFETY: the address space is in use: it is locked.
    let Some(state) = (unsafe { MmState::get(vma.mm()) }) else {
        return;
    };
    let rcu = TasksTrace::enter();
    let offsets = vma.offset_of(start - before)..vma.offset_of(start).saturating_add(len);
    for uprobe in uprobe::in_range(vma.inode(), offsets, &rcu) {
        let (Some(vaddr), Some(code)) = (vma.vaddr_of(uprobe.offset()), uprobe.code()) else {
            continue;
        };
        let swbp = Isa::swbp(&code.analysis.insn, vaddr);
        // The part of the breakpoint that was accessed.
        let part_start = vaddr.max(start);
        let part_end = (vaddr + swbp.len() as u64).min(start + len);
        let part =
            part_start.saturating_sub(vaddr) as usize..part_end.saturating_sub(vaddr) as usize;
        let (Some(swbp), Some(original)) = (swbp.get(part.clone()), code.bytes.get(part.clone()))
        else {
            continue;
        };
        let at = (part_start - start) as usize;
        // SAFETY: the part is within the `len` bytes of both.
        let (memory, copy) = unsafe {
            (
                core::slice::from_raw_parts_mut(memory.cast::<u8>().add(at), swbp.len()),
                core::slice::from_raw_parts_mut(copy.cast::<u8>().add(at), swbp.len()),
            )
        };
        if write {
            written(uprobe, original, swbp, &vma, memory);
        } else if memory == swbp {
            let shown = state.debugger.bytes_at(vaddr).unwrap_or(code.bytes);
            if let Some(shown) = shown.get(part) {
                copy.copy_from_slice(shown);
            }
        }
    }
}

/// A debugger has written `written`: of a breakpoint that is complete now, and of one that is no
/// more. `around` are the bytes there, `before` of them in front.
///
/// A word that looks like a breakpoint is noted, wherever it is: a probe may come there later. One
/// that only looks like it is noted too and does no harm: a probe is never put where the file
/// itself has one. More than a word is data, or breakpoints that are noted already.
fn note_write(vma: &Vma<'_>, written: core::ops::Range<u64>, before: usize, around: &[u8]) {
    let first = written.start - before as u64;
    // What is at `vaddr` now and was written at least in part; nothing if it was a breakpoint
    // without what was written.
    let touched = |vaddr: u64| {
        let at = (vaddr - first) as usize;
        let old = around.get(at..before).is_some_and(Isa::is_trap_insn);
        around.get(at..).filter(|_| !old)
    };
    if written.end - written.start > WORD {
        // SAFETY: the address space is in use: it is locked.
        if let Some(state) = unsafe { MmState::get(vma.mm()) } {
            state.debugger.remove_those(first..written.end, |vaddr| {
                touched(vaddr).is_some_and(|bytes| !Isa::is_trap_insn(bytes))
            });
        }
        return;
    }
    for vaddr in (first..written.end).filter(|vaddr| vaddr % Isa::INSN_ALIGN == 0) {
        let Some(bytes) = touched(vaddr) else {
            continue;
        };
        if Isa::is_trap_insn(bytes) {
            // SAFETY: the address space is in use: it is locked.
            if let Ok(state) = unsafe { MmState::get_or_make(vma.mm()) } {
                state.debugger.insert(vaddr, trap_bytes(bytes));
            }
        // SAFETY: as above.
        } else if let Some(state) = unsafe { MmState::get(vma.mm()) } {
            state.debugger.remove(vaddr);
        }
    }
}

/// A debugger has written `memory` at a probed place, if the mapping is code: where `swbp` was, our
/// breakpoint or a part of it, in place of `original`.
fn written(uprobe: &Uprobe, original: &[u8], swbp: &[u8], vma: &Vma<'_>, memory: &mut [u8]) {
    // It has taken its own breakpoint away, not ours; or it has put another one in the place of
    // ours, which does for both.
    let other = Isa::is_trap_insn(memory) && !Isa::is_swbp(memory);
    if vma.wants_probes() && (other || memory == original) && uprobe.consumers.any_wants(vma.mm()) {
        memory.copy_from_slice(swbp);
        // SAFETY: a slice in memory of the kernel.
        unsafe { isa::code_written(vma.mm(), memory.as_ptr(), memory.len()) };
    }
}
