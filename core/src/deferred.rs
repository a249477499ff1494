// SPDX-License-Identifier: GPL-2.0

//! Calls that wait together for a grace period.
//!
//! ```text
//!   push ─┐
//!   push ─┼─> Deferred ── take ──> a batch ── one grace period ──> its calls, oldest first
//!   push ─┘        ^
//!                  └── what comes meanwhile makes up the next batch
//! ```
//!
//! However many calls are asked for, a worker waits for one grace period at a time, so each is made
//! after two at most. Asking takes no memory and no lock.

use core::ptr;

use crate::sys::{const_unless_loom, Atomic, Full, Relaxed};

/// A call that waits, part of what it is about.
#[repr(C)]
#[derive(Debug)]
pub struct Node {
    next: Atomic<*mut Node>,
}

impl Node {
    const_unless_loom! {
        /// One that waits nowhere.
        pub fn new() -> Self {
            Self {
                next: Atomic::new(ptr::null_mut()),
            }
        }
    }
}

#[cfg(not(loom))]
impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

/// The calls that wait for the next batch.
///
/// # Invariants
///
/// `newest` is null or the start of a list of valid nodes that are in no other list.
#[derive(Debug)]
pub struct Deferred {
    newest: Atomic<*mut Node>,
}

// SAFETY: nodes are handed over whole; whoever pushes one gives it up.
unsafe impl Send for Deferred {}
// SAFETY: as above, and `newest` is atomic.
unsafe impl Sync for Deferred {}

impl Deferred {
    const_unless_loom! {
        /// None.
        pub fn new() -> Self {
            Self {
                newest: Atomic::new(ptr::null_mut()),
            }
        }
    }

    /// Adds `node`; answers whether it is the first, for which the worker must be woken.
    ///
    /// # Safety
    ///
    /// `node` is valid and in no list, and stays so until a [`Batch`] has answered it.
    ///
    /// # Context
    ///
    /// Any.
    #[must_use]
    pub unsafe fn push(&self, node: *mut Node) -> bool {
        let mut newest = self.newest.load(Relaxed);
        loop {
            // SAFETY: by contract; nobody else knows the node.
            unsafe { (*node).next.store(newest, Relaxed) };
            match self.newest.cmpxchg(newest, node, Full) {
                Ok(_) => return newest.is_null(),
                Err(now) => newest = now,
            }
        }
    }

    /// Takes all that wait now. A grace period that begins after this is theirs.
    ///
    /// # Context
    ///
    /// The worker.
    pub fn take(&self) -> Batch {
        let mut from = self.newest.xchg(ptr::null_mut(), Full);
        let mut oldest = ptr::null_mut();
        while !from.is_null() {
            let node = from;
            // SAFETY: by the type invariants; the list is ours now.
            unsafe {
                from = (*node).next.load(Relaxed);
                (*node).next.store(oldest, Relaxed);
            }
            oldest = node;
        }
        Batch(oldest)
    }
}

#[cfg(not(loom))]
impl Default for Deferred {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls that have waited for the same grace period, oldest first.
///
/// A node that was answered is its owner's again.
#[derive(Debug)]
#[must_use]
pub struct Batch(*mut Node);

impl Batch {
    /// The calls, oldest first, all of which keep waiting.
    pub fn peek(&self) -> impl Iterator<Item = *mut Node> + '_ {
        let first = (!self.0.is_null()).then_some(self.0);
        core::iter::successors(first, |&node| {
            // SAFETY: a node of the list that `take` made, not answered yet.
            let next = unsafe { (*node).next.load(Relaxed) };
            (!next.is_null()).then_some(next)
        })
    }
}

impl Iterator for Batch {
    type Item = *mut Node;

    fn next(&mut self) -> Option<*mut Node> {
        let node = self.0;
        if node.is_null() {
            return None;
        }
        // SAFETY: a node of the list that `take` made, not answered before.
        self.0 = unsafe { (*node).next.load(Relaxed) };
        Some(node)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn oldest_first_and_the_first_wakes() {
        let mut nodes = [const { Node::new() }; 3];
        let nodes = nodes.each_mut().map(ptr::from_mut);
        let deferred = Deferred::new();
        for _ in 0..2 {
            for (i, node) in nodes.into_iter().enumerate() {
                // SAFETY: valid, and answered before it is pushed again.
                assert_eq!(unsafe { deferred.push(node) }, i == 0);
            }
            let batch = deferred.take();
            assert!(batch.peek().eq(nodes));
            assert!(batch.eq(nodes));
            assert_eq!(deferred.take().next(), None);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::model;
    use loom::{
        cell::UnsafeCell,
        sync::{Arc, Condvar, Mutex},
        thread,
    };

    /// What a consumer is, to the model: in use by a hit until the grace period has passed, and
    /// freed by the call.
    struct Object {
        node: Node,
        freed: UnsafeCell<u32>,
    }

    // SAFETY: `freed` is checked by loom.
    unsafe impl Sync for Object {}
    // SAFETY: as above.
    unsafe impl Send for Object {}

    /// Two callers and a worker that is woken for the first call of a batch: every call is made
    /// once.
    #[test]
    fn loom_each_call_is_made_once() {
        model(|| {
            let shared = Arc::new((
                Deferred::new(),
                [(); 2].map(|()| Object {
                    node: Node::new(),
                    freed: UnsafeCell::new(0),
                }),
                Mutex::new(0),
                Condvar::new(),
            ));
            let callers = [0, 1].map(|i| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (deferred, objects, wakes, woken) = &*shared;
                    let node = ptr::from_ref(&objects[i].node).cast_mut();
                    // SAFETY: valid as long as the array, pushed once.
                    if unsafe { deferred.push(node) } {
                        *wakes.lock().unwrap() += 1;
                        woken.notify_one();
                    }
                })
            });
            let (deferred, objects, wakes, woken) = &*shared;
            let mut made = 0;
            while made < 2 {
                let mut pending = wakes.lock().unwrap();
                while *pending == 0 {
                    pending = woken.wait(pending).unwrap();
                }
                *pending -= 1;
                drop(pending);
                for node in deferred.take() {
                    let object = objects
                        .iter()
                        .find(|object| ptr::eq(&raw const object.node, node))
                        .unwrap();
                    // SAFETY: the node was answered, so the object is the worker's.
                    object.freed.with_mut(|freed| unsafe { *freed += 1 });
                    made += 1;
                }
            }
            for caller in callers {
                caller.join().unwrap();
            }
            for object in objects {
                // SAFETY: all threads are done.
                object.freed.with(|freed| assert_eq!(unsafe { *freed }, 1));
            }
        });
    }
}
