// SPDX-License-Identifier: GPL-2.0

//! Whether a piece of work is asked for, under way, or to be done once more.
//!
//! ```text
//!          request: queue it            begin                  request
//!   Idle ────────────────────> Queued ─────────> Running ────────────────> Again
//!    ^                           ^                 │  │                      │
//!    │           finish: done    │   finish: retry │  │                      │ finish
//!    └───────────────────────────│─────────────────┼──┘                      │
//!                                └─────────────────┴─────────────────────────┘
//! ```
//!
//! Whoever asks needs no memory and never waits, and what is asked for while the work is being done
//! is not forgotten. The object that carries the work outlives its user: it is freed by whoever
//! comes last, [`PendingWork::abandon`] or the queued work itself.

#![forbid(unsafe_code)]

use crate::sys::{const_unless_loom, Atomic, Full, Relaxed};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;
const RUNNING: u32 = 2;
const AGAIN: u32 = 3;
const ABANDONED: u32 = 4;

/// The state of the work.
#[derive(Debug)]
#[repr(transparent)]
pub struct PendingWork(Atomic<u32>);

/// What follows when the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing.
    Idle,
    /// It was asked for meanwhile: queue it at once.
    Again,
    /// It was not complete: queue it after a pause.
    Retry,
}

impl PendingWork {
    const_unless_loom! {
        /// Work that nobody has asked for.
        pub fn new() -> Self {
            Self(Atomic::new(IDLE))
        }
    }

    /// Asks for the work; answers whether the caller must queue it now.
    ///
    /// What the work is to see must be ordered by a lock that the caller holds and that the work
    /// takes after [`PendingWork::begin`].
    ///
    /// # Context
    ///
    /// Any. Not once it is abandoned.
    #[must_use]
    pub fn request(&self) -> bool {
        let mut state = self.0.load(Relaxed);
        loop {
            let to = match state {
                IDLE => QUEUED,
                RUNNING => AGAIN,
                _ => return false,
            };
            match self.0.cmpxchg(state, to, Full) {
                Ok(_) => return to == QUEUED,
                Err(now) => state = now,
            }
        }
    }

    /// Whether the work is asked for and not done.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        self.0.load(Relaxed) != IDLE
    }

    /// The queued work begins.
    ///
    /// # Context
    ///
    /// The work, with something that keeps it from being abandoned until
    /// [`PendingWork::finish`].
    pub fn begin(&self) {
        let before = self.0.xchg(RUNNING, Full);
        debug_assert_eq!(before, QUEUED);
    }

    /// The work was done, all of it if `complete`.
    pub fn finish(&self, complete: bool) -> Next {
        let (to, next) = if complete {
            (IDLE, Next::Idle)
        } else {
            (QUEUED, Next::Retry)
        };
        if self.0.cmpxchg(RUNNING, to, Full).is_ok() {
            return next;
        }
        self.0.xchg(QUEUED, Full);
        Next::Again
    }

    /// Its user goes, or queued work finds that its user has gone or is about to; answers whether
    /// the caller comes last and must free it.
    ///
    /// # Context
    ///
    /// Nobody asks for it any more, and it is not under way. Once by the user, and by the work if
    /// it is queued.
    #[must_use]
    pub fn abandon(&self) -> bool {
        matches!(self.0.xchg(ABANDONED, Full), IDLE | ABANDONED)
    }
}

#[cfg(not(loom))]
impl Default for PendingWork {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_queued_once() {
        let work = PendingWork::new();
        assert!(!work.is_asked_for());
        assert!(work.request());
        assert!(work.is_asked_for());
        assert!(!work.request());
        work.begin();
        assert!(work.is_asked_for());
        assert_eq!(work.finish(true), Next::Idle);
        assert!(!work.is_asked_for());
        assert!(work.request());
    }

    #[test]
    fn a_request_meanwhile_is_not_forgotten() {
        for complete in [true, false] {
            let work = PendingWork::new();
            assert!(work.request());
            work.begin();
            assert!(!work.request());
            assert!(!work.request());
            assert_eq!(work.finish(complete), Next::Again);
            assert!(!work.request());
            work.begin();
            assert_eq!(work.finish(true), Next::Idle);
        }
    }

    #[test]
    fn what_is_not_complete_is_queued_again() {
        let work = PendingWork::new();
        assert!(work.request());
        work.begin();
        assert_eq!(work.finish(false), Next::Retry);
        assert!(!work.request());
        work.begin();
        assert_eq!(work.finish(true), Next::Idle);
    }

    #[test]
    fn the_last_one_frees_it() {
        assert!(PendingWork::new().abandon());
        let work = PendingWork::new();
        assert!(work.request());
        assert!(!work.abandon());
        assert!(work.abandon());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::model;
    use loom::{
        sync::{Arc, Mutex},
        thread,
    };

    #[test]
    fn loom_every_loss_is_repaired() {
        model(|| {
            // How much was lost, and how much of it the work has seen.
            let world = Arc::new((PendingWork::new(), Mutex::new((0, 0))));
            let run = |world: &(PendingWork, Mutex<(u32, u32)>)| {
                let (work, losses) = world;
                loop {
                    work.begin();
                    {
                        let mut losses = losses.lock().unwrap();
                        losses.1 = losses.0;
                    }
                    if work.finish(true) == Next::Idle {
                        break;
                    }
                }
            };
            let threads = [(); 2].map(|()| {
                let world = world.clone();
                thread::spawn(move || {
                    let queue = {
                        let mut losses = world.1.lock().unwrap();
                        losses.0 += 1;
                        world.0.request()
                    };
                    if queue {
                        run(&world);
                    }
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
            let losses = world.1.lock().unwrap();
            assert_eq!(losses.0, losses.1);
        });
    }
}
