// SPDX-License-Identifier: GPL-2.0

//! Semaphores: 16-bit counters in a program's data that tell it how many tracers watch a USDT
//! probe.
//!
//! Each address space has a record for each uprobe with a semaphore whose breakpoint it holds:
//!
//! ```text
//!   Pending ── its mapping is there ──> Applied(vaddr) ── pages lost, maybe ──> Suspect(vaddr)
//!      ^                                     ^                                     │
//!      │                                     └── the page is still private ────────┤
//!      └── it was dropped, and the increment with it ─────────────────────────────┘
//! ```
//!
//! The record makes sure that a counter is incremented once, however often the breakpoint is put
//! back, and decremented only if it was incremented. A program that drops the page of a counter
//! drops the increments with it; a decrement below zero is left out and nothing fails by it.

use core::cell::{Cell, UnsafeCell};
use core::ops::Range;
use core::ptr;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::bindings;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::errno::Errno;
use uprobes_core::semaphore;

use crate::mm::{Vma, PAGE_MASK};
use crate::sync::{SpinLock, TasksTrace};
use crate::text;
use crate::uprobe::{self, Uprobe};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Applied(u64),
    Suspect(u64),
}

struct Record {
    next: *mut Record,
    uprobe: u64,
    inode: *mut bindings::inode,
    /// Offset in the file of the probed instruction.
    site: u64,
    /// Offset in the file of the counter.
    offset: u64,
    state: Cell<State>,
}

impl Record {
    fn new(uprobe: &Uprobe, state: State) -> Self {
        Self {
            next: ptr::null_mut(),
            uprobe: uprobe.id(),
            inode: uprobe.inode(),
            site: uprobe.offset(),
            offset: uprobe.ref_ctr_offset(),
            state: Cell::new(state),
        }
    }

    /// Whether the uprobe is still there and wanted in `mm`. If its text was not mapped when it
    /// went, nobody has told us.
    fn is_wanted(&self, mm: *mut bindings::mm_struct) -> bool {
        let rcu = TasksTrace::enter();
        uprobe::find(self.inode, self.site, &rcu)
            .is_some_and(|uprobe| uprobe.id() == self.uprobe && uprobe.consumers.any_wants(mm))
    }
}

/// Lists of records in an address space.
const LISTS: usize = 32;

/// The records of an address space.
///
/// # Invariants
///
/// Each of `heads` is null or the start of a list of records owned by this value, of uprobes whose
/// numbers have the same remainder. The lists and the records change only with the `mmap_lock` held
/// for writing and `lock` held; `lock` alone lets a record become suspect.
pub(crate) struct Semaphores {
    lock: SpinLock,
    heads: UnsafeCell<[*mut Record; LISTS]>,
}

impl Semaphores {
    /// # Safety
    ///
    /// `this` is valid for writes, shared with nobody yet, and stays where it is.
    pub(crate) unsafe fn init(this: *mut Self) {
        // SAFETY: by contract.
        unsafe {
            SpinLock::init(&raw mut (*this).lock, c::uprobes_init_semaphores_lock);
            (&raw mut (*this).heads).write(UnsafeCell::new([ptr::null_mut(); LISTS]));
        }
    }

    /// The start of the list that has the record of a uprobe, if there is one.
    fn head(&self, uprobe: u64) -> *mut *mut Record {
        // SAFETY: the remainder is less than the length.
        unsafe {
            self.heads
                .get()
                .cast::<*mut Record>()
                .add(uprobe as usize % LISTS)
        }
    }

    /// The records of a list, for a holder of the `mmap_lock`.
    fn list(&self, head: *mut Record) -> impl Iterator<Item = &Record> {
        // SAFETY: by the type invariants the list is valid and does not change meanwhile.
        let first = unsafe { head.as_ref() };
        // SAFETY: as above.
        core::iter::successors(first, |record| unsafe { record.next.as_ref() })
    }

    /// The records, for a holder of the `mmap_lock`.
    fn records(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: the heads do not change meanwhile.
        let heads = unsafe { *self.heads.get() };
        heads.into_iter().flat_map(|head| self.list(head))
    }

    /// Whether there is a record of a uprobe, for a holder of the `mmap_lock`.
    fn has(&self, uprobe: u64) -> bool {
        // SAFETY: the head does not change meanwhile.
        let head = unsafe { *self.head(uprobe) };
        self.list(head).any(|record| record.uprobe == uprobe)
    }

    fn push(&self, record: Record) -> Result<(), Errno> {
        let head = self.head(record.uprobe);
        let record = KBox::new(record, GFP_KERNEL).map_err(|_| Errno::ENOMEM)?;
        let record = KBox::into_raw(record);
        let _guard = self.lock.lock();
        // SAFETY: `record` is fresh; the list is locked for changes.
        unsafe {
            (*record).next = *head;
            *head = record;
        }
        Ok(())
    }

    fn take(&self, uprobe: u64) -> Option<KBox<Record>> {
        let _guard = self.lock.lock();
        let mut link = self.head(uprobe);
        loop {
            // SAFETY: `link` is the head or the `next` of a record of the list, which is locked.
            let record = unsafe { *link };
            if record.is_null() {
                return None;
            }
            // SAFETY: a record of the list.
            unsafe {
                if (*record).uprobe == uprobe {
                    *link = (*record).next;
                    // Records come from `KBox::into_raw` in `push`.
                    return Some(KBox::from_raw(record));
                }
                link = &raw mut (*record).next;
            }
        }
    }

    /// A breakpoint of `uprobe` goes into `mm`: increments its semaphore, now or when it is mapped,
    /// unless that was done before. Answers whether it was not.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and why the counter could not be written.
    ///
    /// # Context
    ///
    /// The `mmap_lock` is held for writing. May sleep.
    pub(crate) fn acquire(
        &self,
        uprobe: &Uprobe,
        mm: *mut bindings::mm_struct,
    ) -> Result<bool, Errno> {
        let offset = uprobe.ref_ctr_offset();
        if offset == 0 || self.has(uprobe.id()) {
            return Ok(false);
        }
        let state = match find_counter(uprobe.inode(), offset, mm) {
            None => State::Pending,
            Some(vaddr) => State::Applied(vaddr),
        };
        self.push(Record::new(uprobe, state))?;
        if let State::Applied(vaddr) = state {
            add(mm, vaddr, 1).inspect_err(|_| drop(self.take(uprobe.id())))?;
        }
        Ok(true)
    }

    /// The breakpoint of `uprobe` goes out of `mm`: takes its increment back.
    ///
    /// # Context
    ///
    /// As [`Semaphores::acquire`].
    #[inline]
    pub(crate) fn release(&self, uprobe: &Uprobe, mm: *mut bindings::mm_struct) {
        if uprobe.ref_ctr_offset() != 0 {
            self.release_counted(uprobe, mm);
        }
    }

    fn release_counted(&self, uprobe: &Uprobe, mm: *mut bindings::mm_struct) {
        let Some(record) = self.take(uprobe.id()) else {
            return;
        };
        let vaddr = match record.state.get() {
            State::Applied(vaddr) => vaddr,
            State::Suspect(vaddr) if text::is_private(mm, vaddr & PAGE_MASK) => vaddr,
            State::Suspect(_) | State::Pending => return,
        };
        // The program may have unmapped the counter, or put something else there.
        if find_counter(record.inode, record.offset, mm) == Some(vaddr) {
            let _ = add(mm, vaddr, -1);
        }
    }

    /// Increments the counters in `vma` that wait for their mapping, and those whose page was
    /// dropped; records whose uprobe has gone meanwhile go too. Answers whether each counter that
    /// had to be incremented was.
    ///
    /// # Context
    ///
    /// As [`Semaphores::acquire`].
    pub(crate) fn apply_pending(&self, vma: &Vma<'_>) -> bool {
        // Before the first increment, which makes the page private for all that are on it.
        for record in self.records().filter(|record| record.inode == vma.inode()) {
            self.settle(record, vma);
        }
        let mut complete = true;
        loop {
            let mut dead = None;
            for record in self.records().filter(|record| record.inode == vma.inode()) {
                let Some(vaddr) = self.missing_at(record, vma) else {
                    continue;
                };
                if !record.is_wanted(vma.mm()) {
                    dead = Some(record.uprobe);
                    break;
                }
                match add(vma.mm(), vaddr, 1) {
                    Ok(()) => self.set(record, State::Applied(vaddr)),
                    Err(_) => complete = false,
                }
            }
            match dead {
                Some(uprobe) => drop(self.take(uprobe)),
                None => return complete,
            }
        }
    }

    /// Finds out what became of a counter in `vma` whose page may have been lost.
    fn settle(&self, record: &Record, vma: &Vma<'_>) {
        let (Some(vaddr), State::Suspect(_)) = (vma.vaddr_of(record.offset), self.state_of(record))
        else {
            return;
        };
        // The page may have moved with its mapping.
        let is_there = text::is_private(vma.mm(), vaddr & PAGE_MASK);
        self.set(
            record,
            if is_there {
                State::Applied(vaddr)
            } else {
                State::Pending
            },
        );
    }

    /// Where the counter of `record` is in `vma`, if it has to be incremented.
    fn missing_at(&self, record: &Record, vma: &Vma<'_>) -> Option<u64> {
        let vaddr = vma.vaddr_of(record.offset)?;
        // One that has become suspect this moment is left to the repair that follows.
        (self.state_of(record) == State::Pending).then_some(vaddr)
    }

    fn state_of(&self, record: &Record) -> State {
        let _guard = self.lock.lock();
        record.state.get()
    }

    fn set(&self, record: &Record, state: State) {
        let _guard = self.lock.lock();
        record.state.set(state);
    }

    /// The pages at `range` go, perhaps. Answers whether a counter is among them.
    pub(crate) fn lose(&self, range: Range<u64>) -> bool {
        let _guard = self.lock.lock();
        let mut lost = false;
        for record in self.records() {
            if let State::Applied(vaddr) = record.state.get() {
                if range.contains(&vaddr) {
                    record.state.set(State::Suspect(vaddr));
                    lost = true;
                }
            }
        }
        lost
    }

    /// Becomes a copy of the records of the parent, whose memory was copied too.
    ///
    /// # Context
    ///
    /// The parent's `mmap_lock` is held for writing; nobody else knows the child.
    pub(crate) fn inherit(&self, parent: &Semaphores) {
        for record in parent.records() {
            // Without memory the child's counter keeps the increment.
            let state = Cell::new(parent.state_of(record));
            let next = ptr::null_mut();
            let _ = self.push(Record {
                state,
                next,
                ..*record
            });
        }
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        for mut record in *self.heads.get_mut() {
            while !record.is_null() {
                // SAFETY: the list is owned, and nobody else sees it any more.
                let boxed = unsafe { KBox::from_raw(record) };
                record = boxed.next;
            }
        }
    }
}

/// Where the counter at `offset` of `inode` is mapped in `mm`, such that it can be written.
fn find_counter(
    inode: *mut bindings::inode,
    offset: u64,
    mm: *mut bindings::mm_struct,
) -> Option<u64> {
    let mut from = 0;
    // SAFETY: the caller holds the `mmap_lock` for writing.
    while let Some(vma) = unsafe { Vma::at_or_above(mm, from) } {
        if vma.may_hold_semaphores() && vma.inode() == inode {
            if let Some(vaddr) = vma.vaddr_of(offset) {
                return Some(vaddr);
            }
        }
        from = vma.end();
    }
    None
}

/// Adds `delta` to the counter at `vaddr`; one that would become negative stays as it is.
fn add(mm: *mut bindings::mm_struct, vaddr: u64, delta: i16) -> Result<(), Errno> {
    text::modify_u16(mm, vaddr, |count| semaphore::adjust(count, delta))
}
