// SPDX-License-Identifier: GPL-2.0

//! The exclusion of registrations for the same file.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use kernel::bindings;

use uprobes_bindings as c;

use crate::sync::{ReadGuard, RwSemaphore, WriteGuard};

/// Serialises registration and unregistration of consumers for a file, and for others by chance;
/// outermost lock.
#[repr(transparent)]
pub(crate) struct FileLock(RwSemaphore);

/// A [`FileLock`] held for writing, and the file that it was taken for.
pub(crate) struct FileGuard<'l> {
    inode: *mut bindings::inode,
    _guard: WriteGuard<'l>,
}

/// Binary logarithm of the number of locks.
const BITS: u32 = 6;

struct FileLocks(UnsafeCell<[MaybeUninit<FileLock>; 1 << BITS]>);

// SAFETY: written once at boot, before anything can use them; locks from then on.
unsafe impl Sync for FileLocks {}

static LOCKS: FileLocks = FileLocks(UnsafeCell::new(
    [const { MaybeUninit::uninit() }; 1 << BITS],
));

/// Prepares the locks.
///
/// # Safety
///
/// Called once at boot, before any other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: nobody else uses the locks yet; statics do not move.
    unsafe {
        for lock in &mut *LOCKS.0.get() {
            RwSemaphore::init(lock.as_mut_ptr().cast(), c::uprobes_init_register_lock);
        }
    }
}

impl FileLock {
    /// The lock of a file.
    pub(crate) fn of(inode: *mut bindings::inode) -> &'static FileLock {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
        let hash = (inode as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS);
        // SAFETY: initialised by `init` at boot; `hash` has `BITS` bits.
        unsafe { &*LOCKS.0.get().cast::<FileLock>().add(hash as usize) }
    }

    /// Takes the lock on behalf of `inode`. May sleep.
    pub(crate) fn write(&self, inode: *mut bindings::inode) -> FileGuard<'_> {
        FileGuard {
            inode,
            _guard: self.0.write(),
        }
    }

    /// Keeps registrations out. May sleep.
    pub(crate) fn read(&self) -> ReadGuard<'_> {
        self.0.read()
    }
}

impl FileGuard<'_> {
    /// The file that the lock was taken for.
    pub(crate) fn inode(&self) -> *mut bindings::inode {
        self.inode
    }
}
