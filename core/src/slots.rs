// SPDX-License-Identifier: GPL-2.0

//! Which task steps in which slot of the XOL area.
//!
//! A bitmap of slots is a line that all threads of a process write to, once to take a slot and
//! once to give it back. Here each slot has a word on a cache line of its own, and a task keeps
//! its slot when its step is over:
//!
//! ```text
//!          claim(me)                  release(me)
//!  FREE ---------------> BUSY(me) -------------------> IDLE(me)
//!   ^                     |  ^  ^                       |  |  |
//!   |                     |  |  +-----------------------+  |  |
//!   |     disown(me)      |  |     claim(me): reused       |  |
//!   +---------------------+  |                             |  |
//!   |                        +--- claim(other): stolen ----+  |  (as BUSY(other))
//!   |     disown(me)                                          |
//!   +---------------------------------------------------------+
//! ```
//!
//! The next step of the task is then one compare-and-exchange on a line that no other CPU
//! touches, and if the slot still holds the instruction, it need not even be written. A task that
//! finds no `FREE` slot takes an `IDLE` one from its owner, so that idle owners cost nothing; only
//! when all slots are `BUSY` must it wait.
//!
//! Only the owner writes `IDLE(owner)`, and whoever takes the slot writes the word. So an owner
//! that finds `IDLE(owner)` was the last to have the slot, and its contents are as it left them.
//!
//! # Waiting
//!
//! [`SlotTable::claim`] looks at the slots one after the other and may answer [`None`] although
//! at each moment some slot was not busy. A caller that waits must therefore say so first and
//! look again; [`SlotTable::release`] and [`SlotTable::disown`] order the word before what
//! follows, so that one of the two sees the other:
//!
//! ```text
//! CPU0: waiter                            CPU1: releaser
//! ------------------------------------    ------------------------------------
//! claim() = None
//! joins the queue, full barrier           release(): IDLE, full barrier
//! claim() = Some: leaves the queue        queue empty? no: wakes
//! else sleeps
//! ```

#![forbid(unsafe_code)]

use crate::sys::{
    atomics,
    const_unless_loom,
    Acquire,
    Atomic,
    Full,
    Relaxed, //
};

/// Number of a slot, less than the `N` of the [`SlotTable`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(u8);

impl SlotIndex {
    /// The number.
    #[inline]
    pub const fn get(self) -> usize {
        // CAST: Widens; `usize::from` is not const.
        self.0 as usize
    }
}

/// A slot that the caller may step in until it is [released](SlotTable::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a claimed slot must be released"]
pub struct Claim {
    /// The slot.
    pub slot: SlotIndex,
    /// Whether the caller was the last to have it, so that it holds what the caller last wrote to
    /// it. If not, it may hold anything and must be written.
    pub reused: bool,
}

/// Owners are less than this.
pub const OWNER_LIMIT: u64 = 1 << 62;

/// Value of a word whose slot belongs to nobody.
const FREE: u64 = 0;
/// Low bits of the word of a slot that is kept.
const IDLE: u64 = 1;
/// Low bits of the word of a slot that is stepped in.
const BUSY: u64 = 2;
/// The low bits; the owner is above them.
const KIND: u64 = 3;

/// The words `IDLE(owner)` and `BUSY(owner)`.
#[derive(Clone, Copy)]
struct Words {
    idle: u64,
    busy: u64,
}

impl Words {
    /// [`None`] for a number that is no owner.
    #[inline]
    const fn of(owner: u64) -> Option<Words> {
        if owner == 0 || owner >= OWNER_LIMIT {
            return None;
        }
        let base = owner << 2;
        Some(Words {
            idle: base | IDLE,
            busy: base | BUSY,
        })
    }
}

/// A word on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line(Atomic<u64>);

/// The slots of one XOL area, `N` of them, at most 256.
///
/// All bytes zero is the same as [`SlotTable::new`]. An owner is a nonzero number less than
/// [`OWNER_LIMIT`] that only one task uses while the table lives, and one step at a time.
#[derive(Debug)]
pub struct SlotTable<const N: usize> {
    words: [Line; N],
}

impl<const N: usize> SlotTable<N> {
    /// Every slot has a [`SlotIndex`].
    const FITS: () = assert!(N > 0 && N <= 256);

    const_unless_loom! {
        /// All slots free.
        pub fn new() -> Self {
            let () = Self::FITS;
            Self { words: atomics![Line(Atomic::new(FREE)); N] }
        }
    }

    /// Claims a slot for `owner`: the one that `hint` names if it is still kept for it, else one
    /// that is free, else one that another task keeps.
    ///
    /// [`None`] if all are busy; see the [module documentation](self#waiting) for how to wait.
    ///
    /// # Context
    ///
    /// Any; by the task that is `owner`, which has no claim in this table now. Takes no lock and
    /// does not sleep.
    #[inline]
    pub fn claim(&self, hint: Option<SlotIndex>, owner: u64) -> Option<Claim> {
        let words = Words::of(owner)?;
        if let Some(slot) = hint {
            if let Some(line) = self.words.get(slot.get()) {
                // Relaxed: what the slot holds was left there by this very task.
                if line.0.cmpxchg(words.idle, words.busy, Relaxed).is_ok() {
                    return Some(Claim { slot, reused: true });
                }
            }
        }
        self.claim_any(words)
    }

    /// Claims any slot: kept for the caller or free in a first pass, kept for another in a second.
    #[cold]
    fn claim_any(&self, words: Words) -> Option<Claim> {
        [false, true]
            .into_iter()
            .find_map(|steal| self.scan(words, steal))
    }

    /// One pass over the slots, from a place that depends on the owner, so that tasks that start
    /// together do not meet at one line.
    fn scan(&self, words: Words, steal: bool) -> Option<Claim> {
        let mut number = Self::start(words);
        for _ in 0..N {
            let line = self.words.get(number)?;
            let word = line.0.load(Relaxed);
            let reused = word == words.idle;
            let wanted = reused || word == FREE || (steal && word & KIND == IDLE);
            // Acquire: the one before has left the slot before this one writes to it.
            if wanted && line.0.cmpxchg(word, words.busy, Acquire).is_ok() {
                let slot = SlotIndex(u8::try_from(number).ok()?);
                return Some(Claim { slot, reused });
            }
            number = number.wrapping_add(1);
            if number == N {
                number = 0;
            }
        }
        None
    }

    /// Where the scan of an owner starts, less than `N`.
    #[inline]
    fn start(words: Words) -> usize {
        // The fraction of the golden ratio, as in `hash_64()`.
        let hash = words.busy.wrapping_mul(0x61C8_8646_80B5_83EB) >> 32;
        // CAST: 32 bits are left, and the remainder is less than `N`.
        hash as usize % N
    }

    /// Ends the step in `slot` and keeps the slot for `owner`. A full barrier.
    ///
    /// Answers whether `owner` had it; nothing is changed if not.
    ///
    /// # Context
    ///
    /// Any; by the task that is `owner`. The caller looks for waiters afterwards.
    #[inline]
    pub fn release(&self, slot: SlotIndex, owner: u64) -> bool {
        let (Some(words), Some(line)) = (Words::of(owner), self.words.get(slot.get())) else {
            return false;
        };
        // Full: the step is over before the slot can be stolen, and a look for waiters comes
        // after. Not a plain exchange, so that a mistaken release harms nobody else.
        line.0.cmpxchg(words.busy, words.idle, Full).is_ok()
    }

    /// Frees `slot` if `owner` has or keeps it, as when its task exits. A full barrier if so.
    ///
    /// Answers whether it did; the caller then looks for waiters.
    ///
    /// # Context
    ///
    /// Any; by the task that is `owner`, or by another once that one runs no more.
    pub fn disown(&self, slot: SlotIndex, owner: u64) -> bool {
        let (Some(words), Some(line)) = (Words::of(owner), self.words.get(slot.get())) else {
            return false;
        };
        let word = line.0.load(Relaxed);
        // `BUSY(owner)` is left by the owner only; `IDLE(owner)` may be stolen this moment, and
        // is then no longer ours to free.
        (word == words.busy || word == words.idle) && line.0.cmpxchg(word, FREE, Full).is_ok()
    }

    /// How many slots are being stepped in, roughly.
    ///
    /// # Context
    ///
    /// Any.
    pub fn busy(&self) -> usize {
        self.words
            .iter()
            .filter(|line| line.0.load(Relaxed) & KIND == BUSY)
            .count()
    }
}

impl<const N: usize> Default for SlotTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn claim<const N: usize>(
        table: &SlotTable<N>,
        hint: Option<SlotIndex>,
        owner: u64,
    ) -> (SlotIndex, bool) {
        let claim = table.claim(hint, owner).expect("a slot is left");
        (claim.slot, claim.reused)
    }

    #[test]
    fn lines_are_apart() {
        assert_eq!(size_of::<SlotTable<4>>(), 4 * 64);
        assert_eq!(align_of::<SlotTable<4>>(), 64);
    }

    #[test]
    fn a_task_gets_its_slot_again() {
        let table = SlotTable::<4>::new();
        let (slot, reused) = claim(&table, None, 7);
        assert!(!reused);
        assert_eq!(table.busy(), 1);
        assert!(table.release(slot, 7));
        assert_eq!(table.busy(), 0);
        assert_eq!(claim(&table, Some(slot), 7), (slot, true));
    }

    #[test]
    fn a_lost_hint_still_finds_the_kept_slot_when_nothing_else_is_left() {
        let table = SlotTable::<1>::new();
        let (slot, _) = claim(&table, None, 7);
        table.release(slot, 7);
        assert_eq!(claim(&table, None, 7), (slot, true));
    }

    #[test]
    fn free_ones_go_first_then_idle_ones_then_none() {
        let table = SlotTable::<2>::new();
        let (first, _) = claim(&table, None, 1);
        table.release(first, 1);
        let (second, reused) = claim(&table, None, 2);
        assert!(second != first && !reused);
        assert_eq!(claim(&table, None, 3), (first, false), "stolen");
        assert_eq!(table.claim(Some(first), 1), None);
        // The one that was robbed finds another one.
        table.release(second, 2);
        assert_eq!(claim(&table, Some(first), 1), (second, false));
    }

    #[test]
    fn each_slot_can_be_had_from_any_start() {
        for base in 1..50 {
            let table = SlotTable::<5>::new();
            let mut got: Vec<_> = (0..5)
                .map(|i| claim(&table, None, base + i).0.get())
                .collect();
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2, 3, 4]);
            assert_eq!(table.claim(None, base + 5), None);
        }
    }

    #[test]
    fn owners_start_at_different_places() {
        let starts: std::collections::BTreeSet<_> = (1..=32)
            .filter_map(Words::of)
            .map(SlotTable::<31>::start)
            .collect();
        assert!(starts.len() > 12, "{starts:?}");
    }

    #[test]
    fn only_the_owner_gives_a_slot_back() {
        let table = SlotTable::<1>::new();
        let (slot, _) = claim(&table, None, 1);
        assert!(!table.release(slot, 2));
        assert!(!table.disown(slot, 2));
        assert_eq!(table.claim(None, 2), None);
        assert!(table.release(slot, 1));
        assert!(!table.release(slot, 1), "released before");
    }

    #[test]
    fn disown_frees_busy_and_idle_slots() {
        let table = SlotTable::<1>::new();
        let (slot, _) = claim(&table, None, 1);
        assert!(table.disown(slot, 1));
        assert!(!table.disown(slot, 1));
        assert_eq!(
            claim(&table, Some(slot), 1),
            (slot, false),
            "others may have been there"
        );
        table.release(slot, 1);
        assert!(table.disown(slot, 1));
        assert_eq!(claim(&table, None, 2), (slot, false));
        assert!(!table.disown(slot, 1), "not ours any more");
    }

    #[test]
    fn numbers_that_are_no_owners_get_nothing() {
        let table = SlotTable::<1>::new();
        for owner in [0, OWNER_LIMIT, OWNER_LIMIT + 5, u64::MAX] {
            assert_eq!(table.claim(None, owner), None);
        }
        let (slot, _) = claim(&table, None, 5);
        assert!(!table.release(slot, OWNER_LIMIT + 5));
        assert!(!table.disown(slot, OWNER_LIMIT + 5));
        assert!(table.release(slot, 5));
        let (slot, _) = claim(&table, None, OWNER_LIMIT - 1);
        assert!(table.release(slot, OWNER_LIMIT - 1));
    }

    #[test]
    fn an_index_of_a_larger_table_is_harmless() {
        let large = SlotTable::<8>::new();
        let slot = (1..100)
            .map(|owner| claim(&large, None, owner).0)
            .find(|slot| slot.get() > 0)
            .expect("one of eight is not the first");
        let small = SlotTable::<1>::new();
        assert_eq!(claim(&small, Some(slot), 1), (SlotIndex(0), false));
        assert!(!small.release(slot, 1));
        assert!(!small.disown(slot, 1));
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::model;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    /// A table whose slots have contents that loom watches, and that name who wrote them last.
    struct Area<const N: usize> {
        table: SlotTable<N>,
        contents: [UnsafeCell<()>; N],
        writer: [Atomic<u64>; N],
    }

    impl<const N: usize> Area<N> {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                table: SlotTable::new(),
                contents: core::array::from_fn(|_| UnsafeCell::new(())),
                writer: core::array::from_fn(|_| Atomic::new(0)),
            })
        }

        /// Uses a slot that was claimed. Loom fails the model if another has it as well.
        fn step(&self, claim: Claim, owner: u64) -> SlotIndex {
            let Claim { slot, reused } = claim;
            let n = slot.get();
            if reused {
                self.contents[n].with(|_| ());
                assert_eq!(
                    self.writer[n].load(Relaxed),
                    owner,
                    "not what its owner left"
                );
            } else {
                self.contents[n].with_mut(|_| ());
                self.writer[n].store(owner, Relaxed);
            }
            slot
        }

        /// One step of `owner` if there is a slot for it; the slot that it then keeps.
        fn hit(&self, hint: Option<SlotIndex>, owner: u64) -> Option<SlotIndex> {
            let slot = self.step(self.table.claim(hint, owner)?, owner);
            assert!(self.table.release(slot, owner));
            Some(slot)
        }

        /// No slot is lost: a newcomer can have all of them.
        fn all_can_be_had(&self) {
            for owner in 0..N as u64 {
                assert!(self.table.claim(None, 1000 + owner).is_some());
            }
        }
    }

    #[test]
    fn loom_two_owners_share_one_slot() {
        model(|| {
            let area = Area::<1>::new();
            let other = {
                let area = area.clone();
                thread::spawn(move || {
                    let hint = area.hit(None, 2);
                    area.hit(hint, 2);
                })
            };
            let hint = area.hit(None, 1);
            area.hit(hint, 1);
            other.join().unwrap();
            area.all_can_be_had();
        });
    }

    #[test]
    fn loom_three_owners_steal_from_each_other() {
        model(|| {
            let area = Area::<2>::new();
            let kept = area.hit(None, 1);
            let others = [2, 3].map(|owner| {
                let area = area.clone();
                thread::spawn(move || area.hit(None, owner))
            });
            area.hit(kept, 1);
            for other in others {
                other.join().unwrap();
            }
            area.all_can_be_had();
        });
    }

    #[test]
    fn loom_an_exit_frees_its_slot_but_not_a_stolen_one() {
        model(|| {
            let area = Area::<1>::new();
            let kept = area.hit(None, 1).unwrap();
            let other = {
                let area = area.clone();
                thread::spawn(move || {
                    // Nothing, if it is freed between the look and the exchange.
                    if let Some(claim) = area.table.claim(None, 2) {
                        let slot = area.step(claim, 2);
                        assert!(area.table.release(slot, 2), "freed by another");
                    }
                })
            };
            area.table.disown(kept, 1);
            other.join().unwrap();
            area.all_can_be_had();
        });
    }

    #[test]
    fn loom_an_exit_in_the_middle_of_a_step_frees_its_slot() {
        model(|| {
            let area = Area::<1>::new();
            let other = {
                let area = area.clone();
                thread::spawn(move || area.hit(None, 2))
            };
            if let Some(claim) = area.table.claim(None, 1) {
                let slot = area.step(claim, 1);
                assert!(area.table.disown(slot, 1));
            }
            other.join().unwrap();
            area.all_can_be_had();
        });
    }

    #[test]
    fn loom_a_waiter_gets_a_slot_or_is_woken() {
        model(|| {
            let area = Area::<1>::new();
            let waiters = Arc::new(Atomic::new(0u32));
            let claim = area.table.claim(None, 1).unwrap();
            let releaser = {
                let (area, waiters) = (area.clone(), waiters.clone());
                thread::spawn(move || {
                    let slot = area.step(claim, 1);
                    assert!(area.table.release(slot, 1));
                    waiters.load(Relaxed) > 0
                })
            };
            waiters.fetch_add(1, Full);
            let claimed = area.table.claim(None, 2);
            if let Some(claim) = claimed {
                area.step(claim, 2);
            }
            let woken = releaser.join().unwrap();
            assert!(claimed.is_some() || woken, "sleeps for ever");
        });
    }

    #[test]
    #[should_panic(expected = "sleeps for ever")]
    fn loom_sees_a_waiter_that_does_not_say_so() {
        model(|| {
            let area = Area::<1>::new();
            let waiters = Arc::new(Atomic::new(0u32));
            let claim = area.table.claim(None, 1).unwrap();
            let releaser = {
                let (area, waiters) = (area.clone(), waiters.clone());
                thread::spawn(move || {
                    assert!(area.table.release(claim.slot, 1));
                    waiters.load(Relaxed) > 0
                })
            };
            waiters.fetch_add(1, Relaxed);
            let claimed = area.table.claim(None, 2);
            let woken = releaser.join().unwrap();
            assert!(claimed.is_some() || woken, "sleeps for ever");
        });
    }
}
