// SPDX-License-Identifier: GPL-2.0

//! The two ways to keep an uprobe, as values that must be given back.
//!
//! [`Lease`] is an open section of the lease SRCU, [`Counted`] a reference. Neither can be
//! copied, and each is given back by a method that consumes it; one that is dropped instead
//! fails the test in which it happens.
//!
//! ```
//! # #[cfg(not(loom))] {
//! use uprobes_core::{hprobe::{Hprobe, HprobeState}, lease::{Held, Lease}};
//! # let (srcu_lock, srcu_unlock, put_uprobe) = (|| 1u32, |_: u32| {}, || {});
//!
//! let hprobe = Hprobe::new(HprobeState::Consumed);
//! // At the first trap:
//! let section = Lease::new(srcu_lock()).lend(&hprobe);
//! // At the next one:
//! match hprobe.take(section) {
//!     Held::Leased(lease) => lease.end(srcu_unlock),
//!     Held::Counted(reference) => reference.put(put_uprobe),
//!     Held::Nothing => {}
//! }
//! # }
//! ```

#![forbid(unsafe_code)]

use crate::{
    hprobe::{
        Expired,
        Hprobe,
        HprobeState, //
    },
    sys::Linear, //
};

/// An open section of the lease SRCU; `S` is the cookie that ends it (C: `struct srcu_ctr *`).
#[derive(Debug)]
#[must_use = "an open lease holds up every unregistration"]
pub struct Lease<S> {
    section: S,
    linear: Linear,
}

impl<S: Copy> Lease<S> {
    /// The right to end the section that has just been begun with the cookie `section`.
    #[inline]
    pub const fn new(section: S) -> Self {
        Self {
            section,
            linear: Linear,
        }
    }

    /// The cookie.
    #[inline]
    pub const fn section(&self) -> S {
        self.section
    }

    /// Ends the section.
    ///
    /// # Context
    ///
    /// That of `unlock`. The "down/up" flavour of SRCU-fast may be ended by any context.
    #[inline]
    pub fn end(self, unlock: impl FnOnce(S)) {
        self.linear.done();
        unlock(self.section);
    }

    /// Hands the lease to `hprobe`, from which [`Hprobe::take`] or [`Hprobe::downgrade`] gets it
    /// back, and returns the cookie.
    ///
    /// Where a timer may find the hprobe, [`section`](Self::section) and the pointer to the
    /// uprobe must have been stored beside it before.
    ///
    /// # Context
    ///
    /// By the owner of `hprobe`, which must not be leased now.
    #[inline]
    pub fn lend(self, hprobe: &Hprobe) -> S {
        self.linear.done();
        hprobe.reset(HprobeState::Leased);
        self.section
    }
}

/// A counted reference to an uprobe.
#[derive(Debug)]
#[must_use = "a reference that is not put keeps the uprobe for ever"]
pub struct Counted {
    linear: Linear,
}

impl Counted {
    /// The right to put a reference that has just been taken.
    #[inline]
    #[expect(
        clippy::new_without_default,
        reason = "a reference does not come from nowhere"
    )]
    pub const fn new() -> Self {
        Self { linear: Linear }
    }

    /// Puts the reference.
    ///
    /// # Context
    ///
    /// That of `put`.
    #[inline]
    pub fn put(self, put: impl FnOnce()) {
        self.linear.done();
        put();
    }

    /// Hands the reference to `hprobe`, from which [`Hprobe::take`] gets it back.
    ///
    /// # Context
    ///
    /// By the owner of `hprobe`, which must not be leased now.
    #[inline]
    pub fn lend(self, hprobe: &Hprobe) {
        self.linear.done();
        hprobe.reset(HprobeState::Stable);
    }
}

/// What the owner of an hprobe has on its hands after [`Hprobe::take`].
#[derive(Debug)]
#[must_use = "a lease must be ended, a reference put"]
pub enum Held<S> {
    /// The uprobe is valid until the lease is ended.
    Leased(Lease<S>),
    /// The uprobe is valid until the reference is put.
    Counted(Counted),
    /// There is no uprobe any more, or the hprobe was consumed before.
    Nothing,
}

impl<S: Copy> Held<S> {
    /// Whether there is an uprobe to use.
    #[inline]
    pub const fn is_alive(&self) -> bool {
        !matches!(self, Held::Nothing)
    }

    /// Gives back whatever it is, with the one or the other function.
    #[inline]
    pub fn finish(self, unlock: impl FnOnce(S), put: impl FnOnce()) {
        match self {
            Held::Leased(lease) => lease.end(unlock),
            Held::Counted(reference) => reference.put(put),
            Held::Nothing => {}
        }
    }
}

/// What came of [`Hprobe::downgrade`].
#[derive(Debug)]
#[must_use = "a released lease must be ended"]
pub enum Downgraded<S> {
    /// The hprobe has given the lease away; the caller must end it.
    Released {
        /// The lease.
        lease: Lease<S>,
        /// Whether the hprobe has a reference in its place.
        stable: bool,
    },
    /// There was no lease, or another party took it.
    Nothing,
}

impl Hprobe {
    /// [`consume`](Self::consume), answered with the thing to give back; `section` is the cookie
    /// that lies beside the hprobe.
    ///
    /// # Context
    ///
    /// Any; by the owner only, usually the task itself.
    #[inline]
    pub fn take<S: Copy>(&self, section: S) -> Held<S> {
        match self.consume() {
            HprobeState::Leased => Held::Leased(Lease::new(section)),
            HprobeState::Stable => Held::Counted(Counted::new()),
            HprobeState::Gone | HprobeState::Consumed => Held::Nothing,
        }
    }

    /// [`expire`](Self::expire), answered with the lease; `section` reads the cookie that lies
    /// beside the hprobe, at the right time.
    ///
    /// # Context
    ///
    /// By anyone, inside one RCU section that spans the whole call, as [`expire`](Self::expire).
    pub fn downgrade<S: Copy>(
        &self,
        section: impl FnOnce() -> S,
        try_get: impl FnOnce() -> bool,
        put: impl FnOnce(),
    ) -> Downgraded<S> {
        let mut cookie = None;
        let expired = self.expire(
            || {
                cookie = Some(section());
                try_get()
            },
            put,
        );
        match (expired, cookie) {
            (Expired::Released { stable }, Some(section)) => Downgraded::Released {
                lease: Lease::new(section),
                stable,
            },
            _ => Downgraded::Nothing,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_lease_comes_back_with_its_section() {
        let h = Hprobe::new(HprobeState::Consumed);
        let lease = Lease::new(5);
        assert_eq!(lease.section(), 5);
        let section = lease.lend(&h);
        assert_eq!(h.load(), HprobeState::Leased);
        let ended = Cell::new(0);
        let held = h.take(section);
        assert!(held.is_alive());
        held.finish(|s| ended.set(s), || panic!("no reference was taken"));
        assert_eq!(ended.get(), 5);
        assert!(!h.take(section).is_alive());
    }

    #[test]
    fn a_downgraded_lease_is_ended_once_and_leaves_a_reference() {
        let h = Hprobe::new(HprobeState::Leased);
        let ended = Cell::new(0);
        match h.downgrade(|| 7, || true, || panic!("won")) {
            Downgraded::Released { lease, stable } => {
                assert!(stable);
                lease.end(|s| ended.set(s));
            }
            Downgraded::Nothing => panic!("there was a lease"),
        }
        assert_eq!(ended.get(), 7);
        assert!(matches!(
            h.downgrade(|| panic!("no lease"), || panic!("no lease"), || ()),
            Downgraded::<u32>::Nothing
        ));
        let put = Cell::new(0);
        h.take(7)
            .finish(|_| panic!("ended before"), || put.set(put.get() + 1));
        assert_eq!(put.get(), 1);
    }

    #[test]
    fn a_lost_downgrade_ends_nothing() {
        let h = Hprobe::new(HprobeState::Leased);
        let put = Cell::new(0);
        let got = h.downgrade(
            || 7,
            || {
                h.take(7).finish(|_| (), || panic!("was leased"));
                true
            },
            || put.set(put.get() + 1),
        );
        assert!(matches!(got, Downgraded::Nothing));
        assert_eq!(put.get(), 1);
    }

    #[test]
    fn a_reference_can_be_lent() {
        let h = Hprobe::new(HprobeState::Consumed);
        Counted::new().lend(&h);
        assert_eq!(h.load(), HprobeState::Stable);
        h.take(0).finish(|_| panic!("not leased"), || ());
    }

    #[test]
    #[should_panic(expected = "neither ended nor put")]
    fn a_dropped_lease_is_noticed() {
        drop(Lease::new(0));
    }
}
