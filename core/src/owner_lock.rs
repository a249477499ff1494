// SPDX-License-Identifier: GPL-2.0

//! A lock that has an owner, who must have it cheaply.
//!
//! Whoever is not the owner may only try, and holds the lock for a moment without sleeping. The
//! owner does not disable preemption, and waits by sleeping where it finds the lock taken, which is
//! rare. So nobody ever spins: a timer that finds its own CPU's task inside comes back later, and a
//! task that finds another one inside gives its CPU up.

#![forbid(unsafe_code)]

use crate::sys::{const_unless_loom, Acquire, Atomic, Release};

/// The lock; it guards what stands beside it.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnerLock(Atomic<u32>);

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// A held [`OwnerLock`].
#[derive(Debug)]
#[must_use]
pub struct OwnerGuard<'l>(&'l OwnerLock);

impl OwnerLock {
    const_unless_loom! {
        /// A lock that nobody holds.
        pub fn new() -> Self {
            Self(Atomic::new(FREE))
        }
    }

    /// Takes the lock for its owner; `wait` is called for as long as somebody else has it, and
    /// should sleep.
    ///
    /// # Context
    ///
    /// The owner's, where `wait` may sleep. Not while the owner holds it.
    #[inline]
    pub fn lock(&self, mut wait: impl FnMut()) -> OwnerGuard<'_> {
        while self.0.xchg(TAKEN, Acquire) != FREE {
            wait();
        }
        OwnerGuard(self)
    }

    /// Takes the lock if it is free.
    ///
    /// # Context
    ///
    /// Any but NMI.
    #[inline]
    pub fn try_lock(&self) -> Option<OwnerGuard<'_>> {
        (self.0.xchg(TAKEN, Acquire) == FREE).then(|| OwnerGuard(self))
    }
}

#[cfg(not(loom))]
impl Default for OwnerLock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for OwnerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0 .0.store(FREE, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_cannot_be_taken() {
        let lock = OwnerLock::new();
        let guard = lock.lock(|| panic!("nobody has it"));
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn the_owner_waits_until_it_is_free() {
        let lock = OwnerLock::new();
        let mut other = lock.try_lock();
        let mut waits = 0;
        let _guard = lock.lock(|| {
            waits += 1;
            if waits == 3 {
                other = None;
            }
        });
        assert_eq!(waits, 3);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::model;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn loom_one_at_a_time() {
        model(|| {
            let shared = Arc::new((OwnerLock::new(), UnsafeCell::new(())));
            let others = [(); 2].map(|()| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (lock, value) = &*shared;
                    if let Some(_guard) = lock.try_lock() {
                        value.with_mut(|_| ());
                    }
                })
            });
            // As the owner, who would wait for as long as loom lets it.
            let (lock, value) = &*shared;
            for _ in 0..2 {
                if let Some(_guard) = lock.try_lock() {
                    // Loom reports if anybody else is here.
                    value.with_mut(|_| ());
                }
            }
            for other in others {
                other.join().unwrap();
            }
        });
    }
}
