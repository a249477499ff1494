// SPDX-License-Identifier: GPL-2.0

//! Consumers of a uprobe and the order in which they are called.

#![forbid(unsafe_code)]

/// What a consumer's entry handler wants, decoded from the number that it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on as usual.
    Continue,
    /// Remove the breakpoint from this process, if every consumer and every filter agrees.
    Remove,
    /// Do not call the return handler for this call.
    Ignore,
}

/// A handler returned a number that is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadVerdict(pub i32);

impl TryFrom<i32> for Verdict {
    type Error = BadVerdict;

    #[inline]
    fn try_from(rc: i32) -> Result<Self, BadVerdict> {
        match rc {
            0 => Ok(Verdict::Continue),
            1 => Ok(Verdict::Remove),
            2 => Ok(Verdict::Ignore),
            other => Err(BadVerdict(other)),
        }
    }
}

/// Somebody who wants to know of the hits of a uprobe.
///
/// # Context
///
/// Handlers run in process context of the probed task, inside an RCU Tasks Trace section. They
/// may sleep in the way that section allows.
pub trait Consumer {
    /// The register file that handlers get.
    type Regs;

    /// The identity given at registration; unique for the life of the system.
    fn id(&self) -> u64;
    /// Whether there is an entry handler.
    fn has_entry(&self) -> bool;
    /// Whether there is a return handler.
    fn has_return(&self) -> bool;
    /// Calls the entry handler, if there is one, and answers its number; zero without one.
    /// `cookie` is kept for the return handler of a session.
    fn entry(&self, regs: &mut Self::Regs, cookie: &mut u64) -> i32;
    /// Calls the return handler for the function at `func`.
    fn ret(&self, func: u64, regs: &mut Self::Regs, cookie: Option<&mut u64>);

    /// A consumer with both handlers is a session: its return handler is called only for the
    /// calls that its entry handler let through, and gets the cookie back.
    #[inline]
    fn is_session(&self) -> bool {
        self.has_entry() && self.has_return()
    }
}

/// Collects what the return of the function that is about to start will need.
pub trait ReturnRequest {
    /// Notes that some consumer wants the return of this call.
    fn request(&mut self);
    /// Notes the cookie of the session consumer `id`.
    fn push_session(&mut self, id: u64, cookie: u64);
}

/// Calls the entry handlers of all consumers.
///
/// Answers whether the breakpoint is a candidate for removal from this process: there was at
/// least one consumer and all of them said so. The caller must confirm it with their filters
/// under the registration lock. `on_bad` is told of each number that was no verdict; such a
/// handler counts as [`Verdict::Continue`].
#[inline]
pub fn dispatch_entry<'c, C, R>(
    consumers: impl Iterator<Item = &'c C>,
    regs: &mut C::Regs,
    returns: &mut R,
    mut on_bad: impl FnMut(BadVerdict),
) -> bool
where
    C: Consumer + 'c,
    R: ReturnRequest,
{
    let (mut removed, mut kept) = (false, false);

    for consumer in consumers {
        let mut cookie = 0;
        let rc = consumer.entry(regs, &mut cookie);
        if rc != 0 {
            match uncommon(rc, &mut on_bad) {
                Verdict::Continue => (),
                Verdict::Remove => {
                    removed = true;
                    continue;
                }
                Verdict::Ignore => {
                    kept = true;
                    continue;
                }
            }
        }
        kept = true;
        if consumer.has_return() {
            returns.request();
            if consumer.has_entry() {
                returns.push_session(consumer.id(), cookie);
            }
        }
    }
    removed && !kept
}

/// The verdict that a handler means by a number other than zero.
#[cold]
fn uncommon(rc: i32, on_bad: &mut impl FnMut(BadVerdict)) -> Verdict {
    Verdict::try_from(rc).unwrap_or_else(|bad| {
        on_bad(bad);
        Verdict::Continue
    })
}

/// Calls the return handlers of all consumers for one return of the function at `func`.
///
/// `cookie_of` finds the cookie that the entry handler of a session left for its consumer id;
/// sessions without one are skipped.
#[inline]
pub fn dispatch_return<'c, 'k, C>(
    consumers: impl Iterator<Item = &'c C>,
    func: u64,
    regs: &mut C::Regs,
    mut cookie_of: impl FnMut(u64) -> Option<&'k mut u64>,
) where
    C: Consumer + 'c,
{
    for consumer in consumers {
        if !consumer.has_return() {
            continue;
        }
        if consumer.is_session() {
            if let Some(cookie) = cookie_of(consumer.id()) {
                consumer.ret(func, regs, Some(cookie));
            }
        } else {
            consumer.ret(func, regs, None);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Fake<'l> {
        id: u64,
        entry: Option<i32>,
        ret: bool,
        log: &'l RefCell<Vec<String>>,
    }

    impl Consumer for Fake<'_> {
        type Regs = u64;
        fn id(&self) -> u64 {
            self.id
        }
        fn has_entry(&self) -> bool {
            self.entry.is_some()
        }
        fn has_return(&self) -> bool {
            self.ret
        }
        fn entry(&self, regs: &mut u64, cookie: &mut u64) -> i32 {
            let Some(rc) = self.entry else {
                return 0;
            };
            *regs += 1;
            *cookie = self.id * 10;
            self.log.borrow_mut().push(format!("entry {}", self.id));
            rc
        }
        fn ret(&self, func: u64, _regs: &mut u64, cookie: Option<&mut u64>) {
            self.log
                .borrow_mut()
                .push(format!("ret {} {func} {cookie:?}", self.id));
        }
    }

    #[derive(Default)]
    struct Requests {
        wanted: u32,
        sessions: Vec<(u64, u64)>,
    }

    impl ReturnRequest for Requests {
        fn request(&mut self) {
            self.wanted += 1;
        }
        fn push_session(&mut self, id: u64, cookie: u64) {
            self.sessions.push((id, cookie));
        }
    }

    fn entry(cs: &[Fake<'_>]) -> (bool, Requests, Vec<i32>) {
        let (mut r, mut bad) = (Requests::default(), Vec::new());
        let remove = dispatch_entry(cs.iter(), &mut 0, &mut r, |b| bad.push(b.0));
        (remove, r, bad)
    }

    #[test]
    fn removal_needs_every_consumer() {
        let log = RefCell::new(Vec::new());
        let c = |id, rc| Fake {
            id,
            entry: Some(rc),
            ret: false,
            log: &log,
        };
        assert!(!entry(&[]).0);
        assert!(entry(&[c(1, 1), c(2, 1)]).0);
        assert!(!entry(&[c(1, 1), c(2, 0)]).0);
        assert!(!entry(&[c(1, 2)]).0);
    }

    #[test]
    fn a_return_only_consumer_blocks_removal_and_wants_the_return() {
        let log = RefCell::new(Vec::new());
        let ret_only = Fake {
            id: 3,
            entry: None,
            ret: true,
            log: &log,
        };
        let (remove, r, _) = entry(&[ret_only]);
        assert!(!remove);
        assert_eq!((r.wanted, r.sessions.len()), (1, 0));
    }

    #[test]
    fn sessions_keep_their_cookie_unless_ignored() {
        let log = RefCell::new(Vec::new());
        let c = |id, rc| Fake {
            id,
            entry: Some(rc),
            ret: true,
            log: &log,
        };
        let (_, r, _) = entry(&[c(1, 0), c(2, 2), c(3, 1), c(4, 0)]);
        assert_eq!(r.sessions, [(1, 10), (4, 40)]);
        assert_eq!(r.wanted, 2);
    }

    #[test]
    fn a_bad_verdict_is_told_and_counts_as_continue() {
        let log = RefCell::new(Vec::new());
        let c = Fake {
            id: 1,
            entry: Some(7),
            ret: true,
            log: &log,
        };
        let (remove, r, bad) = entry(&[c]);
        assert!(!remove);
        assert_eq!(bad, [7]);
        assert_eq!(r.wanted, 1);
    }

    #[test]
    fn returns_reach_plain_consumers_and_sessions_with_a_cookie() {
        let log = RefCell::new(Vec::new());
        let c = |id, e| Fake {
            id,
            entry: e,
            ret: true,
            log: &log,
        };
        let mut cookie = 77;
        let slot = RefCell::new(Some(&mut cookie));
        dispatch_return(
            [c(1, None), c(2, Some(0)), c(3, Some(0))].iter(),
            5,
            &mut 0,
            |id| {
                if id == 2 {
                    slot.borrow_mut().take()
                } else {
                    None
                }
            },
        );
        assert_eq!(*log.borrow(), ["ret 1 5 None", "ret 2 5 Some(77)"]);
    }
}
