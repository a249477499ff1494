// SPDX-License-Identifier: GPL-2.0

//! What a task remembers of its last hit, so that a hot site costs no lookup at all.
//!
//! A hit must be taken from a user address to a file offset (a walk of the memory map) and from
//! there to the uprobe (a walk of the index). Both answers, and the flags of the mapping, stay right
//! as long as no mapping of the process has changed and nothing was erased from the index. Each of
//! the two leaves a trace: the sequence count of `mmap_lock` and the index's count of erasures
//! ([`Index::erasures`](crate::index::Index::erasures)). A task whose last hit was at the same
//! address, with both counts as they were, uses the pointer that it found then.
//!
//! ```text
//! remember                              find
//! ----------------------------------    ----------------------------------
//! begin the read section                begin the read section
//! now = Snapshot { erasures,            now = Snapshot { erasures,
//!                  mm_seq, stamp }                       mm_seq, stamp }
//! address -> (inode, offset)            last_hit.find(vaddr, &now)
//! (inode, offset) -> uprobe             ... uses the uprobe ...
//! mm_seq unchanged? remember(now)       end the read section
//! ... uses the uprobe ...
//! end the read section
//! ```
//!
//! # Why the pointer is valid
//!
//! Who removes an uprobe takes it out of the index, then counts the erasure, then waits for a
//! grace period of the read sections, then frees it. Say the task remembered uprobe `U` with the
//! count `e`, and `U` was erased as the erasure that made the count `n`.
//!
//! 1. `e < n`. The count was read before the lookup, with acquire. Had it been `n` or more, the
//!    lookup would have seen the index without `U`.
//! 2. A later section that uses `U` has read the count as `e` again. Had the section begun after
//!    the start of the grace period, it would have seen all that came before, the count `n`
//!    included; so it began before, and the grace period waits for it.
//!
//! ```text
//! CPU0: the task                          CPU1: unregister
//! ------------------------------------    ------------------------------------
//!                                         unlinks U
//! begins a section
//! erasures == e: a hit                    erasures = e + 1
//! uses U                                  grace period begins
//! ends the section                        ... waits for CPU0
//!                                         frees U
//! begins a section
//! erasures == e + 1: a miss
//! ```
//!
//! The count has 64 bits and does not come round. That of `mmap_lock` has 32, of which the lowest
//! tells whether it is write-locked. To be fooled it would have to come round between two hits,
//! so what is remembered ages: after `MAX_AGE` it is no longer believed, and 2^31 write sections
//! do not fit in so short a time.
//!
//! A replaced uprobe counts as an erasure, and an uprobe that is inserted changes nothing for an
//! address that has one already, so insertions need not be noticed.

#![forbid(unsafe_code)]

use core::ptr::NonNull;

/// The counts at one moment, read inside the read section that they are used in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Sequence count of the process's `mmap_lock`, read as the start of a speculation
    /// (`mmap_lock_speculate_try_begin()`). Must be even, that is, not write-locked.
    pub mm_seq: u32,
    /// [`Index::erasures`](crate::index::Index::erasures), read before anything is looked up.
    pub erasures: u64,
    /// The time in jiffies.
    pub stamp: u64,
}

/// What a lookup finds.
#[derive(Debug, PartialEq, Eq)]
pub struct Site<U> {
    /// The uprobe.
    pub uprobe: NonNull<U>,
    /// Flags of the mapping that it was found in (`vm_flags`).
    pub vm_flags: u64,
}

impl<U> Clone for Site<U> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U> Copy for Site<U> {}

/// What is remembered.
#[derive(Debug)]
struct Hit<U> {
    vaddr: u64,
    seen: Snapshot,
    site: Site<U>,
}

/// The last hit of a task. See the [module documentation](self).
///
/// Private to the task: nobody else reads or writes it, so there is nothing atomic in it. Must
/// be [forgotten](Self::forget) when the task changes its memory map (exec), and is not copied
/// to a child.
///
/// `MAX_AGE` is in jiffies. The default is a minute where a jiffy is 10 ms, and less elsewhere.
#[derive(Debug)]
pub struct LastHit<U, const MAX_AGE: u64 = 6000> {
    hit: Option<Hit<U>>,
}

impl<U, const MAX_AGE: u64> LastHit<U, MAX_AGE> {
    /// Remembers nothing yet.
    #[inline]
    pub const fn new() -> Self {
        Self { hit: None }
    }

    /// What was found at `vaddr`, if the last hit was there and nothing has changed since.
    ///
    /// The result is valid until the end of the read section in which `now` was read.
    ///
    /// # Context
    ///
    /// By the task itself, inside the read section, which is begun before `now` is read. Takes no
    /// lock and does not sleep.
    #[inline]
    pub fn find(&self, vaddr: u64, now: &Snapshot) -> Option<Site<U>> {
        let hit = self.hit.as_ref()?;
        let same = hit.vaddr == vaddr
            && hit.seen.mm_seq == now.mm_seq
            && hit.seen.erasures == now.erasures
            && now.stamp.wrapping_sub(hit.seen.stamp) < MAX_AGE;
        same.then_some(hit.site)
    }

    /// Remembers that `site` was found at `vaddr`.
    ///
    /// `seen` was read before the lookup; the caller has checked after the lookup that the
    /// sequence count of `mmap_lock` has not changed meanwhile (`mmap_lock_speculate_retry()`),
    /// and does not call this at all for a lookup under the lock.
    ///
    /// # Context
    ///
    /// By the task itself, inside the read section in which `seen` was read and `site` found.
    #[inline]
    pub fn remember(&mut self, vaddr: u64, seen: Snapshot, site: Site<U>) {
        // An odd count means write-locked: the walk was not a speculation, nothing is proven.
        if seen.mm_seq & 1 != 0 {
            self.forget();
            return;
        }
        self.hit = Some(Hit { vaddr, seen, site });
    }

    /// Forgets.
    ///
    /// # Context
    ///
    /// By the task itself, or by another before the task has run or after it has.
    #[inline]
    pub fn forget(&mut self) {
        self.hit = None;
    }
}

impl<U, const MAX_AGE: u64> Default for LastHit<U, MAX_AGE> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SEEN: Snapshot = Snapshot {
        mm_seq: 10,
        erasures: 20,
        stamp: 30,
    };

    const SITE: Site<u8> = Site {
        uprobe: NonNull::dangling(),
        vm_flags: 40,
    };

    fn remembered() -> LastHit<u8, 100> {
        let mut last = LastHit::new();
        last.remember(0x1000, SEEN, SITE);
        last
    }

    #[test]
    fn an_empty_one_finds_nothing() {
        assert_eq!(LastHit::<u8>::default().find(0, &SEEN), None);
    }

    #[test]
    fn finds_while_nothing_has_changed() {
        let last = remembered();
        assert_eq!(last.find(0x1000, &SEEN), Some(SITE));
        assert_eq!(
            last.find(0x1000, &Snapshot { stamp: 129, ..SEEN }),
            Some(SITE)
        );
    }

    #[test]
    fn any_change_is_a_miss() {
        let last = remembered();
        assert_eq!(last.find(0x1001, &SEEN), None);
        for now in [
            Snapshot { mm_seq: 12, ..SEEN },
            Snapshot { mm_seq: 11, ..SEEN },
            Snapshot {
                erasures: 21,
                ..SEEN
            },
            Snapshot { stamp: 130, ..SEEN },
            Snapshot { stamp: 29, ..SEEN },
        ] {
            assert_eq!(last.find(0x1000, &now), None, "{now:?}");
        }
    }

    #[test]
    fn the_clock_may_wrap() {
        let mut last = LastHit::<u8, 100>::new();
        last.remember(
            1,
            Snapshot {
                stamp: u64::MAX,
                ..SEEN
            },
            SITE,
        );
        assert_eq!(last.find(1, &Snapshot { stamp: 98, ..SEEN }), Some(SITE));
        assert_eq!(last.find(1, &Snapshot { stamp: 99, ..SEEN }), None);
    }

    #[test]
    fn the_newest_replaces_and_forget_empties() {
        let mut last = remembered();
        last.remember(0x2000, SEEN, SITE);
        assert_eq!(last.find(0x1000, &SEEN), None);
        assert_eq!(last.find(0x2000, &SEEN), Some(SITE));
        last.forget();
        assert_eq!(last.find(0x2000, &SEEN), None);
    }

    #[test]
    fn a_locked_count_is_not_remembered() {
        let mut last = remembered();
        let locked = Snapshot { mm_seq: 11, ..SEEN };
        last.remember(0x1000, locked, SITE);
        assert_eq!(last.find(0x1000, &locked), None);
        assert_eq!(last.find(0x1000, &SEEN), None);
    }
}
