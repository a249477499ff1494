// SPDX-License-Identifier: GPL-2.0

//! When the timer that downgrades a task's leases has to be armed.
//!
//! An armed timer comes early enough for any lease, and is not moved on by a new one: that would
//! cost more than an early downgrade now and then. But a timer that looks armed may have been
//! taken off its queue that moment, and find the leases as they were before. So who leases orders
//! that before the look at the timer, and the timer the end of its being armed before the look at
//! the leases: one of them sees the other.

#![forbid(unsafe_code)]

use crate::sys::full_barrier;

/// Whether the timer has to be armed for a lease that is in its place by now.
///
/// # Context
///
/// The task, after each lease.
#[inline]
pub fn must_be_armed(is_pending: impl FnOnce() -> bool) -> bool {
    full_barrier();
    !is_pending()
}

/// The timer has fired; to be called before it looks at the leases.
///
/// # Context
///
/// The timer, which is not pending any more.
#[inline]
pub fn has_fired() {
    full_barrier();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_pending_is_left_alone() {
        assert!(must_be_armed(|| false));
        assert!(!must_be_armed(|| true));
        has_fired();
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::{model, Atomic, Relaxed};
    use loom::{sync::Arc, thread};

    #[test]
    fn loom_every_lease_has_a_timer() {
        model(|| {
            let world = Arc::new((Atomic::new(true), Atomic::new(0u32)));
            let timer = {
                let world = world.clone();
                thread::spawn(move || {
                    let (pending, leases) = &*world;
                    pending.store(false, Relaxed);
                    has_fired();
                    leases.load(Relaxed) == 1
                })
            };
            let (pending, leases) = &*world;
            leases.store(1, Relaxed);
            if must_be_armed(|| pending.load(Relaxed)) {
                pending.store(true, Relaxed);
            }
            let seen = timer.join().unwrap();
            assert!(seen || pending.load(Relaxed));
        });
    }
}
