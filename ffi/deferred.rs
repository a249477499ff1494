// SPDX-License-Identifier: GPL-2.0

//! Unregistration that does not wait, of consumers and of the kernel's own probes.
//!
//! Handlers of consumers run in sections of RCU Tasks Trace, those of kprobes and kretprobes with
//! preemption off. There is a worker for each, which waits for a grace period of that kind on
//! behalf of all that were unregistered before it began.

use core::cell::UnsafeCell;
use core::mem::offset_of;

use kernel::bindings;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::deferred::{Batch, Deferred, Node};

use crate::register;
use crate::sync;

as_declared! { uprobe_defer, uprobe_unregister_async, uprobe_unregister_flush }
#[cfg(CONFIG_KPROBES)]
as_declared! { unregister_kprobe_async, unregister_kretprobe_async }

const _: () = assert!(offset_of!(c::uprobe_deferred, next) == 0);
const _: () = assert!(size_of::<Node>() == size_of::<*mut c::uprobe_deferred>());

/// Objects that wait for a grace period, and the worker that waits on their behalf.
pub(crate) struct Deferrer {
    waiting: Deferred,
    work: UnsafeCell<bindings::work_struct>,
}

// SAFETY: `work` is written once at boot; the kernel's functions for work lock what they have to.
unsafe impl Sync for Deferrer {}

impl Deferrer {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Deferred::new(),
            // SAFETY: zero is valid for a work that nobody uses.
            work: UnsafeCell::new(unsafe { core::mem::zeroed() }),
        }
    }

    /// Prepares the worker, which is to call `run`: that [`take`](Self::take)s what waits.
    ///
    /// # Safety
    ///
    /// Called once at boot, before anything else, and `self` is a static.
    pub(crate) unsafe fn init(&self, run: unsafe extern "C" fn(*mut bindings::work_struct)) {
        // SAFETY: by contract.
        unsafe { c::uprobes_init_work(self.work.get(), Some(run)) };
    }

    /// Has `node` wait.
    ///
    /// # Safety
    ///
    /// As [`Deferred::push`].
    ///
    /// # Context
    ///
    /// Any but NMI.
    pub(crate) unsafe fn defer(&self, node: *mut Node) {
        // SAFETY: by contract.
        if unsafe { self.waiting.push(node) } {
            // SAFETY: initialised at boot.
            unsafe { c::uprobes_queue_unbound_work(self.work.get()) };
        }
    }

    /// Takes what waits now.
    pub(crate) fn take(&self) -> Batch {
        self.waiting.take()
    }

    /// Waits until what waits now does no more.
    fn flush(&self) {
        // SAFETY: initialised at boot. What was pushed before is in the batch of the running work
        // or in that of the queued one.
        unsafe { bindings::flush_work(self.work.get()) };
    }
}

/// What waits for handlers of consumers.
static CONSUMERS: Deferrer = Deferrer::new();
/// Kprobes that wait for their handlers.
#[cfg(CONFIG_KPROBES)]
static KPROBES: Deferrer = Deferrer::new();
/// Kretprobes that wait for their handlers.
#[cfg(CONFIG_KPROBES)]
static KRETPROBES: Deferrer = Deferrer::new();

/// Prepares the workers.
///
/// # Safety
///
/// Called once at boot, before any other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: by contract.
    unsafe {
        CONSUMERS.init(run_consumers);
        #[cfg(CONFIG_KPROBES)]
        KPROBES.init(run_kprobes);
        #[cfg(CONFIG_KPROBES)]
        KRETPROBES.init(run_kretprobes);
    }
}

/// Makes the calls of `batch`, after `end` has done for each what has to be done before.
fn call(batch: Batch, end: impl Fn(&c::uprobe_deferred)) {
    for node in batch {
        let deferred = node.cast::<c::uprobe_deferred>();
        // SAFETY: given to us with its node, and its caller's again with this call.
        unsafe {
            end(&*deferred);
            if let Some(func) = (*deferred).func {
                func(deferred);
            }
        }
    }
}

unsafe extern "C" fn run_consumers(_work: *mut bindings::work_struct) {
    let batch = CONSUMERS.take();
    sync::synchronize_tasks_trace();
    call(batch, |_| ());
}

#[cfg(CONFIG_KPROBES)]
unsafe extern "C" fn run_kprobes(_work: *mut bindings::work_struct) {
    let batch = KPROBES.take();
    // SAFETY: an FFI call in process context.
    unsafe { bindings::synchronize_rcu() };
    // SAFETY: begun by `unregister_kprobe_async`, a grace period ago.
    call(batch, |deferred| unsafe {
        c::kprobe_unregister_end(deferred.probe.cast());
    });
}

#[cfg(CONFIG_KPROBES)]
unsafe extern "C" fn run_kretprobes(_work: *mut bindings::work_struct) {
    let batch = KRETPROBES.take();
    // SAFETY: an FFI call in process context.
    unsafe { bindings::synchronize_rcu() };
    // SAFETY: begun by `unregister_kretprobe_async`, a grace period ago.
    call(batch, |deferred| unsafe {
        c::kretprobe_unregister_end(deferred.probe.cast());
    });
}

/// Calls `deferred->func` once every handler that runs now is over.
///
/// Calls that are asked for in a burst share a grace period.
///
/// # Safety
///
/// `deferred` is valid, with its `func`, and not waiting; it stays until it is called.
///
/// # Context
///
/// Any but NMI. The function is called in process context, by a worker, and may sleep; it must not
/// call [`uprobe_unregister_flush`].
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobe_defer(deferred: *mut c::uprobe_deferred) {
    // SAFETY: by contract; the node is the first member.
    unsafe { CONSUMERS.defer(deferred.cast::<Node>()) };
}

/// Unregisters a consumer without waiting: it is not called for hits that come after this, and
/// `done->func` is called once it is not called for earlier ones either.
///
/// Until then the consumer must stay. Returns that are pending do not call it any more.
///
/// # Safety
///
/// As [`register::uprobe_unregister_nosync`] and [`uprobe_defer`].
///
/// # Context
///
/// Process context; may sleep, but not for a grace period of its own.
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobe_unregister_async(
    uprobe: *mut bindings::uprobe,
    consumer: *mut bindings::uprobe_consumer,
    done: *mut c::uprobe_deferred,
) {
    // SAFETY: by contract.
    unsafe {
        register::uprobe_unregister_nosync(uprobe, consumer);
        uprobe_defer(done);
    }
}

/// Disarms a kprobe at once; `done->func` is called once its handlers are not called any more and
/// it has been unregistered.
///
/// # Safety
///
/// `kprobe` is registered and stays until the call; the rest as [`uprobe_defer`].
///
/// # Context
///
/// As [`uprobe_unregister_async`].
#[cfg(CONFIG_KPROBES)]
#[no_mangle]
pub(crate) unsafe extern "C" fn unregister_kprobe_async(
    kprobe: *mut c::kprobe,
    done: *mut c::uprobe_deferred,
) {
    // SAFETY: by contract; the node is the first member.
    unsafe {
        (*done).probe = kprobe.cast();
        c::kprobe_unregister_begin(kprobe);
        KPROBES.defer(done.cast::<Node>());
    }
}

/// As [`unregister_kprobe_async`], for a kretprobe.
///
/// # Safety
///
/// As [`unregister_kprobe_async`].
///
/// # Context
///
/// As [`uprobe_unregister_async`].
#[cfg(CONFIG_KPROBES)]
#[no_mangle]
pub(crate) unsafe extern "C" fn unregister_kretprobe_async(
    kretprobe: *mut c::kretprobe,
    done: *mut c::uprobe_deferred,
) {
    // SAFETY: by contract; the node is the first member.
    unsafe {
        (*done).probe = kretprobe.cast();
        c::kretprobe_unregister_begin(kretprobe);
        KRETPROBES.defer(done.cast::<Node>());
    }
}

/// Waits until every call that was asked for before has been made.
///
/// A module calls this before it goes, lest its functions are called afterwards.
///
/// # Context
///
/// Process context; sleeps for grace periods. Not from a deferred call.
#[no_mangle]
pub(crate) extern "C" fn uprobe_unregister_flush() {
    CONSUMERS.flush();
    #[cfg(CONFIG_KPROBES)]
    {
        KPROBES.flush();
        KRETPROBES.flush();
    }
}
