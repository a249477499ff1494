// SPDX-License-Identifier: GPL-2.0

//! Locks and read sections that the kernel crate does not wrap.
//!
//! Each guard is the evidence that its section is open; dropping it closes the section.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::types::NotThreadSafe;

use uprobes_bindings as c;

/// A `struct rw_semaphore`.
///
/// C header: [`include/linux/rwsem.h`](srctree/include/linux/rwsem.h)
#[repr(transparent)]
pub(crate) struct RwSemaphore(UnsafeCell<bindings::rw_semaphore>);

impl RwSemaphore {
    /// Initialises the semaphore at `this` with `init`, a helper that stands for its class.
    ///
    /// # Safety
    ///
    /// `this` is valid for writes, shared with nobody yet, and stays where it is.
    pub(crate) unsafe fn init(
        this: *mut Self,
        init: unsafe extern "C" fn(*mut bindings::rw_semaphore),
    ) {
        // SAFETY: `RwSemaphore` is transparent; the rest by contract.
        unsafe { init(this.cast()) };
    }

    /// Takes the semaphore for reading. May sleep.
    pub(crate) fn read(&self) -> ReadGuard<'_> {
        // SAFETY: the semaphore is initialised.
        unsafe { bindings::down_read(self.0.get()) };
        ReadGuard(self)
    }

    /// Takes the semaphore for writing. May sleep.
    pub(crate) fn write(&self) -> WriteGuard<'_> {
        // SAFETY: the semaphore is initialised.
        unsafe { bindings::down_write(self.0.get()) };
        WriteGuard(self)
    }
}

/// A [`RwSemaphore`] held for reading.
#[must_use]
pub(crate) struct ReadGuard<'s>(&'s RwSemaphore);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard holds the semaphore for reading.
        unsafe { bindings::up_read(self.0 .0.get()) };
    }
}

/// A [`RwSemaphore`] held for writing.
#[must_use]
pub(crate) struct WriteGuard<'s>(&'s RwSemaphore);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard holds the semaphore for writing.
        unsafe { bindings::up_write(self.0 .0.get()) };
    }
}

/// A `spinlock_t` embedded in an object that C allocates or that is initialised in place.
#[repr(transparent)]
pub(crate) struct SpinLock(UnsafeCell<bindings::spinlock_t>);

impl SpinLock {
    /// Initialises the lock at `this` with `init`, a helper that stands for its class.
    ///
    /// # Safety
    ///
    /// As [`RwSemaphore::init`].
    pub(crate) unsafe fn init(
        this: *mut Self,
        init: unsafe extern "C" fn(*mut bindings::spinlock_t),
    ) {
        // SAFETY: `SpinLock` is transparent; the rest by contract.
        unsafe { init(this.cast()) };
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        // SAFETY: the lock is initialised.
        unsafe { c::uprobes_spin_lock(self.0.get()) };
        SpinGuard(self, NotThreadSafe)
    }
}

/// A held [`SpinLock`].
#[must_use]
pub(crate) struct SpinGuard<'s>(&'s SpinLock, NotThreadSafe);

impl Drop for SpinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock.
        unsafe { c::uprobes_spin_unlock(self.0 .0.get()) };
    }
}

/// Lets others run until the next tick of the clock.
#[cold]
pub(crate) fn sleep_a_tick() {
    // SAFETY: an FFI call in process context.
    unsafe { bindings::schedule_timeout_uninterruptible(1) };
}

/// An RCU Tasks Trace read section of the current task.
///
/// C header: [`include/linux/rcupdate_trace.h`](srctree/include/linux/rcupdate_trace.h)
#[must_use]
pub(crate) struct TasksTrace(NotThreadSafe);

impl TasksTrace {
    /// Opens a section. The task may sleep in it for as long as a user access takes.
    #[inline]
    pub(crate) fn enter() -> Self {
        // SAFETY: an FFI call without further requirements.
        unsafe { c::uprobes_rcu_read_lock_trace() };
        Self(NotThreadSafe)
    }
}

impl Drop for TasksTrace {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard stands for an open section of this task.
        unsafe { c::uprobes_rcu_read_unlock_trace() };
    }
}

// SAFETY: objects found through the index are freed only after an RCU Tasks Trace grace period
// (`uprobe::bury`), which does not end before this section does.
unsafe impl uprobes_core::index::ReadSection for TasksTrace {}

/// Waits until every section that is open now is closed. May sleep for long.
pub(crate) fn synchronize_tasks_trace() {
    // SAFETY: an FFI call in process context.
    unsafe { c::uprobes_synchronize_rcu_tasks_trace() };
}

/// The SRCU domain of leases.
pub(crate) fn lease_srcu() -> *mut bindings::srcu_struct {
    &raw mut c::uprobes_rs_lease_srcu
}

/// A lease on a uprobe: an open read section of [`lease_srcu`] that may outlive a return to user
/// space and end in another context.
#[must_use = "a lease must be ended or handed on"]
pub(crate) struct Lease(*mut bindings::srcu_ctr);

impl Lease {
    /// Takes a lease on every uprobe that is valid now.
    #[inline]
    pub(crate) fn take() -> Self {
        // SAFETY: the domain is statically initialised.
        Self(unsafe { c::uprobes_srcu_down_read_fast(lease_srcu()) })
    }

    /// Turns the lease into what C structures keep.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut bindings::srcu_ctr {
        self.0
    }

    /// Takes back what [`Lease::into_raw`] gave.
    ///
    /// # Safety
    ///
    /// `scp` comes from [`Lease::into_raw`] and is used once.
    #[inline]
    pub(crate) unsafe fn from_raw(scp: *mut bindings::srcu_ctr) -> Self {
        Self(scp)
    }

    /// Ends the lease.
    #[inline]
    pub(crate) fn end(self) {
        // SAFETY: by the type, the section is open and ends here.
        unsafe { c::uprobes_srcu_up_read_fast(lease_srcu(), self.0) };
    }
}

/// The exclusion of fork, held for writing while breakpoints of a uprobe change.
#[must_use]
pub(crate) struct NoFork(NotThreadSafe);

impl NoFork {
    /// Waits until no fork copies an address space, and lets none begin.
    pub(crate) fn enter() -> Self {
        // SAFETY: the semaphore is statically initialised.
        unsafe { bindings::percpu_down_write(&raw mut c::uprobes_rs_dup_mmap_sem) };
        Self(NotThreadSafe)
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        // SAFETY: the guard holds the semaphore for writing.
        unsafe { bindings::percpu_up_write(&raw mut c::uprobes_rs_dup_mmap_sem) };
    }
}

/// A task's `mm`, write-locked.
#[must_use]
pub(crate) struct MmapWrite(NonNull<bindings::mm_struct>);

impl MmapWrite {
    /// Takes the lock. May sleep.
    ///
    /// # Safety
    ///
    /// `mm` is valid and has users for as long as the guard lives.
    pub(crate) unsafe fn lock(mm: NonNull<bindings::mm_struct>) -> Self {
        // SAFETY: `mm` is valid by contract.
        unsafe { c::uprobes_mmap_write_lock(mm.as_ptr()) };
        Self(mm)
    }

    /// Takes the lock unless a fatal signal arrives meanwhile.
    ///
    /// # Safety
    ///
    /// As [`MmapWrite::lock`].
    pub(crate) unsafe fn lock_killable(mm: NonNull<bindings::mm_struct>) -> Option<Self> {
        // SAFETY: `mm` is valid by contract.
        let ret = unsafe { c::uprobes_mmap_write_lock_killable(mm.as_ptr()) };
        (ret == 0).then(|| Self(mm))
    }

    /// The locked address space.
    pub(crate) fn mm(&self) -> NonNull<bindings::mm_struct> {
        self.0
    }
}

impl Drop for MmapWrite {
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock.
        unsafe { c::uprobes_mmap_write_unlock(self.0.as_ptr()) };
    }
}
