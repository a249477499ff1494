// SPDX-License-Identifier: GPL-2.0

//! Who keeps an uprobe alive while a task is between two traps of it: the hybrid probe.
//!
//! A task that has entered a probed function, or is stepping a probed instruction, needs the
//! uprobe once more at its next trap. To take a reference for that would write to a cache line
//! that all CPUs share. Instead the task *leases* the uprobe: it begins a section of the lease
//! SRCU and leaves it open. A section that stays open for long would hold up every
//! unregistration, so a timer turns a lease that has grown old into a counted reference, or into
//! nothing if the uprobe is on its way out.
//!
//! ```text
//!                 reset()
//!                    |
//!                    v       expire(), got a reference
//!               +--------+ ------------------------------> +--------+
//!               | Leased |                                 | Stable |
//!               +--------+ ---------------+                +--------+
//!                    |       expire(),    |                    |
//!          consume() |       no reference v                    | consume()
//!   ends the section |                +------+                 | puts the reference
//!                    |                | Gone |                 |
//!                    |                +------+                 |
//!                    |      consume() |                        |
//!                    v                v                        v
//!               +------------------------------------------------+
//!               |                    Consumed                    | ---> reset()
//!               +------------------------------------------------+
//! ```
//!
//! Every arrow out of `Leased` is one atomic exchange, so exactly one party takes it, and that
//! party alone ends the section:
//!
//! ```text
//! CPU0: the task, consume()               CPU1: the timer, expire()
//! ------------------------------------    ------------------------------------
//!                                         load: Leased
//!                                         try_get(): reference taken
//! xchg(Consumed) = Leased
//! uses the uprobe under its section
//! ends the section                        cmpxchg(Leased, Stable) fails
//!                                         put(): the reference goes back
//! ```
//!
//! # Reuse
//!
//! The owner uses one hprobe over and over, for each step and for each return instance from its
//! pool, while a timer may still be looking at an earlier use. Each [`Hprobe::reset`] therefore
//! starts a new generation, kept above the state in the same word, and a downgrade that was
//! decided in one generation fails in another:
//!
//! ```text
//! CPU0: the task                          CPU1: the timer
//! ------------------------------------    ------------------------------------
//!                                         load: Leased, generation 5
//!                                         reads the pointer: uprobe A
//! consume() = Leased, ends the section    try_get(A)
//! stores the pointer: uprobe B
//! reset(Leased): generation 6
//!                                         cmpxchg(5 Leased, 5 Stable) fails
//!                                         put(A)
//! ```
//!
//! For the same reason the cookie of the section is read before the downgrade and not after it,
//! when the owner may have stored another one: `try_get` is the place to read both.
//!
//! Generations wrap after 2^30 resets. The timer would have to stand still inside an RCU section
//! for all of them, so RCU would have complained of a stall long before.
//!
//! # What the memory of the uprobe must survive
//!
//! Three kinds of readers touch an uprobe without a reference, and each begins under the
//! protection of the one before. So three grace periods must pass, in this order:
//!
//! ```text
//! last reference put, erased from the index
//!  -> the read sections of lookups (RCU Tasks Trace): nobody finds it, no lease begins any more
//!  -> the lease SRCU: no lease is open, no timer finds one to downgrade any more
//!  -> ordinary RCU: no timer is in the middle of a downgrade
//!  -> freed
//! ```
//!
//! With the first two in the other order, a lease could begin after its grace period:
//!
//! ```text
//! CPU0: the task                          CPU1: unregister
//! ------------------------------------    ------------------------------------
//! begins a read section
//! finds the uprobe
//!                                         erases it
//!                                         grace period of the lease SRCU
//! leases it
//! ends the read section
//!                                         grace period of the read sections
//!                                         frees it
//! still steps it: use after free
//! ```
//!
//! Without the third, the timer is in danger. A section of the lease SRCU of its own does not
//! help it, for a grace period that was under way when the timer began waits for the lease that
//! the timer looks at, but not for the timer:
//!
//! ```text
//! CPU0: the task                  CPU1: the timer             CPU2: unregister
//! ----------------------------    ------------------------    --------------------------
//! leased
//!                                                             last reference put
//!                                                             grace period begins
//!                                 begins its own section
//!                                 load: Leased
//! consume(), ends the section
//!                                                             grace period ends
//!                                                             frees the uprobe
//!                                 try_get(): use after free
//! ```
//!
//! With it, [`Hprobe::expire`] and all that its closures touch run in one RCU section. As the
//! timer saw `Leased` in its section, the lease had not ended when the section began; hence the
//! RCU grace period, which starts after the lease's end, waits for it. None of this costs the hit
//! path anything.

#![forbid(unsafe_code)]

use crate::sys::{
    const_unless_loom,
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// State of a hybrid probe; the values are those of C's `enum hprobe_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HprobeState {
    /// The uprobe is kept by an open section of the lease SRCU.
    Leased = 0,
    /// The uprobe is kept by a reference that belongs to the hprobe.
    Stable = 1,
    /// The lease has ended and there was no reference to be had: the pointer is dead.
    Gone = 2,
    /// The owner is done with it; the pointer means nothing.
    Consumed = 3,
}

/// Bits of the word that hold the state; those above hold the generation.
const STATE_MASK: u32 = 3;
/// One generation.
const GENERATION: u32 = STATE_MASK + 1;

impl HprobeState {
    /// The state in `word`. Total: two bits have four values.
    #[inline]
    const fn of(word: u32) -> HprobeState {
        match word & STATE_MASK {
            0 => HprobeState::Leased,
            1 => HprobeState::Stable,
            2 => HprobeState::Gone,
            _ => HprobeState::Consumed,
        }
    }

    /// `word` with its state replaced and its generation kept.
    #[inline]
    const fn within(self, word: u32) -> u32 {
        // CAST: The discriminant of a `repr(u32)` enum.
        (word & !STATE_MASK) | self as u32
    }
}

/// What [`Hprobe::expire`] found or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a released lease must be ended"]
pub enum Expired {
    /// The lease was taken from the hprobe: this caller, and nobody else, must end its section.
    Released {
        /// Whether the reference that was taken now belongs to the hprobe
        /// ([`HprobeState::Stable`]), or there was none to be had ([`HprobeState::Gone`]).
        stable: bool,
    },
    /// Nothing to do: it had been turned into a reference before.
    Stable,
    /// Nothing to do: it had been turned into nothing before.
    Gone,
    /// Nothing to do: the owner was done with it.
    Consumed,
    /// Another party was faster; a reference, if taken, has been put again. A second call by the
    /// owner does not answer this.
    Lost,
}

/// The state of a hybrid probe. See the [module documentation](self).
///
/// The pointer to the uprobe and the cookie of the SRCU section lie beside it in the caller's
/// object. Both are written by the owner before [`reset`](Self::reset) and read by a timer in the
/// `try_get` of [`expire`](Self::expire), hence must be atomic if the object is reused.
#[derive(Debug)]
#[repr(transparent)]
pub struct Hprobe(Atomic<u32>);

impl Hprobe {
    const_unless_loom! {
        /// Creates an hprobe in `state`, usually [`HprobeState::Consumed`].
        pub fn new(state: HprobeState) -> Self {
            Self(Atomic::new(state.within(0)))
        }
    }

    /// Starts a new use in `state`, after what belongs to it (pointer, section) was stored.
    ///
    /// The hprobe must not be [`HprobeState::Leased`] now: that lease would be forgotten.
    ///
    /// # Context
    ///
    /// Any; by the owner only. A timer may be looking at an earlier use.
    #[inline]
    pub fn reset(&self, state: HprobeState) {
        // The owner alone leaves a state other than `Leased`, so nothing is overwritten here.
        let word = self.0.load(Relaxed);
        // Pairs with the acquire of `expire`, for the pointer.
        self.0
            .store(state.within(word.wrapping_add(GENERATION)), Release);
    }

    /// The state at this moment; for the owner only [`HprobeState::Leased`] can change by itself.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn load(&self) -> HprobeState {
        HprobeState::of(self.0.load(Acquire))
    }

    /// Ends the use of the hprobe and answers the state before, which tells what the owner now
    /// has on its hands: a section to end ([`HprobeState::Leased`]), a reference to put
    /// ([`HprobeState::Stable`]), or nothing.
    ///
    /// # Context
    ///
    /// Any; by the owner only, usually the task itself. Does not sleep.
    #[inline]
    #[must_use = "the lease or the reference must be given back"]
    pub fn consume(&self) -> HprobeState {
        // The owner alone starts generations, so this one cannot change under it.
        let word = HprobeState::Consumed.within(self.0.load(Relaxed));
        // Full: sees the reference that a downgrade has taken, and comes before the end of the
        // section.
        HprobeState::of(self.0.xchg(word, Full))
    }

    /// Turns a lease into a reference if `try_get` can take one, into nothing if not.
    ///
    /// `try_get` takes a reference unless there is none left. It reads the pointer to the uprobe
    /// itself, so that it is read after the state, and remembers the cookie of the section for
    /// [`Expired::Released`]. It is called at most once, and only if the hprobe is leased. `put`
    /// gives back the same reference and is called only if `try_get` succeeded for a lease that
    /// another party got hold of first.
    ///
    /// # Context
    ///
    /// By anyone, inside one RCU section that spans the whole call; see [the module
    /// documentation](self#what-the-memory-of-the-uprobe-must-survive). Does not sleep if the
    /// closures do not.
    pub fn expire(&self, try_get: impl FnOnce() -> bool, put: impl FnOnce()) -> Expired {
        // Acquire: the pointer of this generation or of a later one is read after it.
        let word = self.0.load(Acquire);
        match HprobeState::of(word) {
            HprobeState::Stable => return Expired::Stable,
            HprobeState::Gone => return Expired::Gone,
            HprobeState::Consumed => return Expired::Consumed,
            HprobeState::Leased => {}
        }

        let stable = try_get();
        let to = if stable {
            HprobeState::Stable
        } else {
            HprobeState::Gone
        };
        // Full: the reference is visible before the state that promises it, and the section ends
        // after both.
        if self.0.cmpxchg(word, to.within(word), Full).is_ok() {
            return Expired::Released { stable };
        }
        if stable {
            put();
        }
        Expired::Lost
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn values_are_those_of_c() {
        assert_eq!(HprobeState::Leased as u32, 0);
        assert_eq!(HprobeState::Stable as u32, 1);
        assert_eq!(HprobeState::Gone as u32, 2);
        assert_eq!(HprobeState::Consumed as u32, 3);
        assert_eq!(size_of::<Hprobe>(), size_of::<u32>());
    }

    #[test]
    fn consume_answers_the_state_before() {
        for state in [
            HprobeState::Leased,
            HprobeState::Stable,
            HprobeState::Gone,
            HprobeState::Consumed,
        ] {
            let h = Hprobe::new(state);
            assert_eq!(h.load(), state);
            assert_eq!(h.consume(), state);
            assert_eq!(h.load(), HprobeState::Consumed);
            assert_eq!(h.consume(), HprobeState::Consumed);
        }
    }

    #[test]
    fn expire_takes_a_reference_or_nothing() {
        let h = Hprobe::new(HprobeState::Leased);
        let released = h.expire(|| true, || panic!("put after a win"));
        assert_eq!(released, Expired::Released { stable: true });
        assert_eq!(h.load(), HprobeState::Stable);

        let h = Hprobe::new(HprobeState::Leased);
        let released = h.expire(|| false, || panic!("put without a reference"));
        assert_eq!(released, Expired::Released { stable: false });
        assert_eq!(h.load(), HprobeState::Gone);
    }

    #[test]
    fn expire_leaves_all_but_leases_alone() {
        for (state, answer) in [
            (HprobeState::Stable, Expired::Stable),
            (HprobeState::Gone, Expired::Gone),
            (HprobeState::Consumed, Expired::Consumed),
        ] {
            let h = Hprobe::new(state);
            let got = h.expire(
                || panic!("reference not needed"),
                || panic!("nothing to put"),
            );
            assert_eq!(got, answer);
            assert_eq!(h.load(), state);
        }
    }

    /// Runs `meanwhile` between the look at the state and the downgrade.
    fn expire_against(h: &Hprobe, refcount: &Cell<u32>, meanwhile: impl FnOnce()) -> Expired {
        h.expire(
            || {
                let live = refcount.get() > 0;
                if live {
                    refcount.set(refcount.get() + 1);
                }
                meanwhile();
                live
            },
            || refcount.set(refcount.get() - 1),
        )
    }

    #[test]
    fn a_lost_downgrade_puts_its_reference() {
        let h = Hprobe::new(HprobeState::Leased);
        let refs = Cell::new(1);
        let got = expire_against(&h, &refs, || assert_eq!(h.consume(), HprobeState::Leased));
        assert_eq!((got, refs.get()), (Expired::Lost, 1));

        let h = Hprobe::new(HprobeState::Leased);
        let got = expire_against(&h, &refs, || {
            let inner = expire_against(&h, &refs, || {});
            assert_eq!(inner, Expired::Released { stable: true });
        });
        assert_eq!((got, refs.get()), (Expired::Lost, 2));
        assert_eq!(h.consume(), HprobeState::Stable);
    }

    #[test]
    fn a_lost_downgrade_without_reference_puts_none() {
        let h = Hprobe::new(HprobeState::Leased);
        let refs = Cell::new(0);
        let got = expire_against(&h, &refs, || assert_eq!(h.consume(), HprobeState::Leased));
        assert_eq!((got, refs.get()), (Expired::Lost, 0));
    }

    #[test]
    fn a_downgrade_does_not_reach_the_next_use() {
        let h = Hprobe::new(HprobeState::Leased);
        let refs = Cell::new(1);
        let got = expire_against(&h, &refs, || {
            assert_eq!(h.consume(), HprobeState::Leased);
            h.reset(HprobeState::Leased);
        });
        assert_eq!((got, refs.get()), (Expired::Lost, 1));
        assert_eq!(h.load(), HprobeState::Leased);
    }

    #[test]
    fn generations_wrap() {
        let h = Hprobe(Atomic::new(HprobeState::Consumed.within(u32::MAX)));
        h.reset(HprobeState::Leased);
        assert_eq!(h.load(), HprobeState::Leased);
        assert_eq!(h.0.load(Relaxed), 0);
        assert_eq!(h.consume(), HprobeState::Leased);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sys::model;
    use core::cell::Cell;
    use loom::{
        cell::UnsafeCell,
        sync::{
            atomic::{fence, Ordering::SeqCst},
            Arc,
        },
        thread,
    };

    /// An uprobe, reduced to its count; its memory is watched by loom.
    struct Uprobe {
        refs: Atomic<u32>,
        memory: UnsafeCell<()>,
    }

    impl Uprobe {
        fn new(refs: u32) -> Self {
            Self {
                refs: Atomic::new(refs),
                memory: UnsafeCell::new(()),
            }
        }

        /// `refcount_inc_not_zero()`
        fn try_get(&self) -> bool {
            self.memory.with(|_| ());
            let mut refs = self.refs.load(Relaxed);
            while refs > 0 {
                match self.refs.cmpxchg(refs, refs + 1, Relaxed) {
                    Ok(_) => return true,
                    Err(now) => refs = now,
                }
            }
            false
        }

        fn put(&self) {
            self.memory.with(|_| ());
            assert_ne!(self.refs.fetch_sub(1, Full), 0, "put once too often");
        }
    }

    /// An hprobe and what lies beside it. The pointer and the section's cookie are one number,
    /// which is also the number of the uprobe.
    struct World<const N: usize> {
        hprobe: Hprobe,
        pointer: Atomic<usize>,
        uprobes: [Uprobe; N],
        ended: [Atomic<u32>; N],
    }

    impl<const N: usize> World<N> {
        fn new(refs: [u32; N]) -> Arc<Self> {
            Arc::new(Self {
                hprobe: Hprobe::new(HprobeState::Leased),
                pointer: Atomic::new(0),
                uprobes: refs.map(Uprobe::new),
                ended: core::array::from_fn(|_| Atomic::new(0)),
            })
        }

        fn end(&self, section: usize) {
            assert_eq!(self.ended[section].fetch_add(1, Relaxed), 0, "ended twice");
        }

        /// The timer.
        fn expire(&self) -> Expired {
            let seen = Cell::new(0);
            let expired = self.hprobe.expire(
                || {
                    seen.set(self.pointer.load(Relaxed));
                    self.uprobes[seen.get()].try_get()
                },
                || self.uprobes[seen.get()].put(),
            );
            if let Expired::Released { .. } = expired {
                self.end(seen.get());
            }
            expired
        }

        /// The task at its next trap.
        fn consume(&self) -> HprobeState {
            let n = self.pointer.load(Relaxed);
            let state = self.hprobe.consume();
            match state {
                HprobeState::Leased => {
                    self.uprobes[n].memory.with(|_| ());
                    self.end(n);
                }
                HprobeState::Stable => self.uprobes[n].put(),
                HprobeState::Gone => {}
                HprobeState::Consumed => panic!("consumed twice"),
            }
            state
        }

        fn balanced(&self, refs: [u32; N]) {
            for ended in &self.ended {
                assert_eq!(ended.load(Relaxed), 1, "section left open");
            }
            let left = self.uprobes.each_ref().map(|u| u.refs.load(Relaxed));
            assert_eq!(left, refs, "references");
        }
    }

    fn consume_against_two_expiries(refs: u32) {
        model(move || {
            let world = World::new([refs]);
            let timers = [(); 2].map(|()| {
                let world = world.clone();
                thread::spawn(move || world.expire())
            });
            world.consume();
            for timer in timers {
                let _ = timer.join().unwrap();
            }
            world.balanced([refs]);
        });
    }

    #[test]
    fn loom_one_party_ends_the_lease_of_a_live_uprobe() {
        consume_against_two_expiries(1);
    }

    #[test]
    fn loom_one_party_ends_the_lease_of_a_dying_uprobe() {
        consume_against_two_expiries(0);
    }

    #[test]
    fn loom_one_party_ends_the_lease_while_the_uprobe_dies() {
        model(|| {
            let world = World::new([1]);
            let timer = {
                let world = world.clone();
                thread::spawn(move || world.expire())
            };
            let unregister = {
                let world = world.clone();
                thread::spawn(move || world.uprobes[0].put())
            };
            world.consume();
            let _ = timer.join().unwrap();
            unregister.join().unwrap();
            world.balanced([0]);
        });
    }

    #[test]
    fn loom_a_timer_does_not_reach_the_next_use() {
        model(|| {
            let world = World::new([1, 1]);
            let timer = {
                let world = world.clone();
                thread::spawn(move || world.expire())
            };
            world.consume();
            world.pointer.store(1, Relaxed);
            world.hprobe.reset(HprobeState::Leased);
            world.consume();
            let _ = timer.join().unwrap();
            world.balanced([1, 1]);
        });
    }

    /// A task, a timer and an unregistration, with grace periods that are over at once or not
    /// at all. The lease is open at the start; the timer comes late.
    fn memory_outlives_the_timer(rcu: bool) {
        model(move || {
            let world = World::new([1]);
            let in_rcu = Arc::new(Atomic::new(false));
            let timer = {
                let (world, in_rcu) = (world.clone(), in_rcu.clone());
                thread::spawn(move || {
                    in_rcu.store(true, Relaxed);
                    fence(SeqCst);
                    let _ = world.expire();
                    in_rcu.store(false, Release);
                })
            };
            let unregister = {
                let world = world.clone();
                thread::spawn(move || {
                    if world.uprobes[0].refs.fetch_sub(1, Full) != 1 {
                        return; // The timer has a reference; the task puts it, and frees.
                    }
                    fence(SeqCst);
                    let srcu_over = world.ended[0].load(Acquire) == 1;
                    fence(SeqCst);
                    let rcu_over = !rcu || !in_rcu.load(Acquire);
                    if srcu_over && rcu_over {
                        world.uprobes[0].memory.with_mut(|_| ());
                    }
                })
            };
            // As `World::consume`, with an end of the section that orders as SRCU does.
            match world.hprobe.consume() {
                HprobeState::Leased => {
                    world.uprobes[0].memory.with(|_| ());
                    world.ended[0].fetch_add(1, Full);
                }
                HprobeState::Stable => world.uprobes[0].put(),
                _ => {}
            }
            timer.join().unwrap();
            unregister.join().unwrap();
        });
    }

    #[test]
    fn loom_memory_outlives_the_timer() {
        memory_outlives_the_timer(true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_sees_that_srcu_alone_is_not_enough() {
        memory_outlives_the_timer(false);
    }

    /// A read section of a miniature RCU; what it waits for is that the flag is down.
    fn section<R>(flag: &Atomic<bool>, inside: impl FnOnce() -> R) -> R {
        flag.store(true, Relaxed);
        fence(SeqCst);
        let ret = inside();
        flag.store(false, Release);
        ret
    }

    /// A task finds an uprobe and leases it, while it is erased and two grace periods pass in
    /// the one order or the other. They are over at once or not at all.
    fn memory_outlives_the_lease(lookups_first: bool) {
        model(move || {
            let world = Arc::new((
                Atomic::new(true),   // in the index
                Atomic::new(false),  // read section open
                Atomic::new(false),  // lease open
                UnsafeCell::new(()), // the memory
            ));
            let unregister = {
                let world = world.clone();
                thread::spawn(move || {
                    let (indexed, lookup, lease, memory) = &*world;
                    indexed.store(false, Relaxed);
                    let order = if lookups_first {
                        [lookup, lease]
                    } else {
                        [lease, lookup]
                    };
                    for readers in order {
                        fence(SeqCst);
                        if readers.load(Acquire) {
                            return;
                        }
                    }
                    memory.with_mut(|_| ());
                })
            };
            let (indexed, lookup, lease, memory) = &*world;
            let leased = section(lookup, || {
                let found = indexed.load(Relaxed);
                if found {
                    lease.store(true, Relaxed);
                    fence(SeqCst);
                }
                found
            });
            if leased {
                memory.with(|_| ());
                lease.store(false, Release);
            }
            unregister.join().unwrap();
        });
    }

    #[test]
    fn loom_memory_outlives_the_lease() {
        memory_outlives_the_lease(true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_sees_grace_periods_in_the_wrong_order() {
        memory_outlives_the_lease(false);
    }
}
