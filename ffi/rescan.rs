// SPDX-License-Identifier: GPL-2.0

//! The repair of an address space that lost pages with breakpoints or semaphores.
//!
//! If only the pages went (`MADV_DONTNEED`, truncation) the breakpoints must come back; the hook
//! runs before they go and cannot wait, so the work is left to the task on its way back to user
//! space, or to a worker if the pages were taken by somebody else.
//!
//! A file that was truncated has no page for its breakpoints until somebody writes it again; no
//! hook tells of that, so the repair is tried again, less and less often.

use core::ptr::NonNull;

use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
use kernel::bindings;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::errno::Errno;
use uprobes_core::pending_work::{Next, PendingWork};

use crate::mm;

/// The first pause in jiffies between two tries, and the longest.
const PAUSES: core::ops::RangeInclusive<usize> =
    1 + bindings::HZ as usize / 100..=bindings::HZ as usize;

/// The work; there is one for each address space.
#[repr(C)]
struct Work {
    task_work: bindings::callback_head,
    work: bindings::delayed_work,
    /// The address space, kept while the work is queued.
    mm: *mut bindings::mm_struct,
    /// Jiffies until the next try, if this one finds no page.
    delay: usize,
    state: PendingWork,
}

/// The repair of an address space, part of its state.
///
/// # Invariants
///
/// The work is valid, and freed with this value or, if it is queued then, by itself.
pub(crate) struct Rescan(NonNull<Work>);

impl Rescan {
    /// A repair that nobody has asked for.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let memory =
            KBox::<Work>::new_uninit(GFP_KERNEL | __GFP_ZERO).map_err(|_| Errno::ENOMEM)?;
        let work = KBox::into_raw(memory).cast::<Work>();
        // SAFETY: fresh memory; zero is valid for the rest.
        unsafe {
            (&raw mut (*work).state).write(PendingWork::new());
            c::uprobes_init_delayed_work(&raw mut (*work).work, Some(from_worker));
            // INVARIANT: allocated here.
            Ok(Self(NonNull::new_unchecked(work)))
        }
    }

    /// Whether a repair is on its way.
    pub(crate) fn is_asked_for(&self) -> bool {
        // SAFETY: valid by the type invariants.
        unsafe { self.0.as_ref() }.state.is_asked_for()
    }

    /// Sees to it that `mm`, whose state this is part of, is repaired.
    ///
    /// # Context
    ///
    /// Any. The `mm` has users. If something is about to be lost, the caller holds a lock that
    /// [`run`] waits for: the `mmap_lock`, the lock of the mapping, or that of the file's mappings.
    pub(crate) fn schedule(&self, mm: *mut bindings::mm_struct) {
        let this = self.0.as_ptr();
        // SAFETY: valid by the type invariants; idle until `request` has answered that it is ours
        // to queue.
        unsafe {
            if !(*this).state.request() {
                return;
            }
            bindings::mmgrab(mm);
            (*this).mm = mm;
            (*this).delay = *PAUSES.start();
            let current = c::uprobes_current();
            if c::uprobes_task_mm(current) == mm {
                c::uprobes_init_task_work(&raw mut (*this).task_work, Some(from_task));
                if c::uprobes_task_work_add(current, &raw mut (*this).task_work) == 0 {
                    return;
                }
            }
            c::uprobes_schedule_delayed_work(&raw mut (*this).work, 0);
        }
    }
}

impl Drop for Rescan {
    fn drop(&mut self) {
        // SAFETY: valid by the type invariants; the `mm` has no users, so the work is not under
        // way and nobody asks for it.
        unsafe {
            if self.0.as_ref().state.abandon() {
                drop(KBox::from_raw(self.0.as_ptr()));
            }
        }
    }
}

unsafe extern "C" fn from_task(head: *mut bindings::callback_head) {
    // SAFETY: the head is the first member of a `Work` from `schedule`.
    unsafe { run(head.cast()) };
}

unsafe extern "C" fn from_worker(work: *mut bindings::work_struct) {
    let work = work.cast::<bindings::delayed_work>();
    // SAFETY: the work is the first member of the delayed work of a `Work` from `schedule`.
    unsafe { run(kernel::container_of!(work, Work, work)) };
}

/// # Safety
///
/// `this` was queued by [`Rescan::schedule`] or by this function.
unsafe fn run(this: *mut Work) {
    // SAFETY: by contract; `schedule` kept the `mm`. Its users are taken only if it still has
    // some: then its state is there, and `this` with it. If not, `this` was abandoned, or is about
    // to be.
    unsafe {
        let mm = (*this).mm;
        if !bindings::mmget_not_zero(mm) {
            if (*this).state.abandon() {
                drop(KBox::from_raw(this));
            }
            bindings::mmdrop(mm);
            return;
        }
        (*this).state.begin();
        let complete = NonNull::new(mm).is_none_or(|mm| mm::restore(mm));
        let delay = match (*this).state.finish(complete) {
            Next::Idle => None,
            Next::Again => Some((0, *PAUSES.start())),
            Next::Retry => Some((
                (*this).delay,
                (*this).delay.saturating_mul(2).min(*PAUSES.end()),
            )),
        };
        if let Some((delay, next)) = delay {
            (*this).delay = next;
            c::uprobes_schedule_delayed_work(&raw mut (*this).work, delay);
        }
        // The last user may go here, and with it the state; what is queued keeps the `mm`.
        bindings::mmput(mm);
        if delay.is_none() {
            bindings::mmdrop(mm);
        }
    }
}
