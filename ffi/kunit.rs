// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of what cannot be tested outside of the kernel: the backend as it is built here,
//! with the kernel's instruction decoder if it needs one, the life of uprobes between the index,
//! the worker and the grace periods, and lists that are kept in place.

use kernel::macros::kunit_tests;

#[kunit_tests(uprobes_rust)]
mod tests {
    use core::ptr;

    use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
    use kernel::bindings;
    use kernel::prelude::*;

    use uprobes_arch::vectors::Verdict;
    use uprobes_core::arch::{Arch, MAX_INSN_BYTES};

    use crate::debugger::DebuggerTraps;
    use crate::isa::{self, Isa};
    use crate::sync::TasksTrace;
    use crate::uprobe::{self, UprobeRef};

    /// An inode that nobody has; the index never looks into it.
    fn inode(n: usize) -> *mut bindings::inode {
        ptr::without_provenance_mut(n)
    }

    #[test]
    fn vectors_get_their_verdicts() {
        for vector in isa::VECTORS {
            let found = Isa::analyze(&vector.padded(), vector.bitness);
            let verdict = match found {
                Err(errno) => Verdict::Refused(errno),
                Ok(analysis) if analysis.simulated => Verdict::Simulated,
                Ok(_) => Verdict::Stepped,
            };
            let len_is_right = match found {
                Err(_) => true,
                Ok(analysis) => {
                    // What is more than an instruction is about what follows it.
                    usize::from(analysis.len) <= vector.code.len()
                }
            };
            if verdict != vector.verdict || !len_is_right {
                pr_err!("{}: {:?}\n", vector.text, verdict);
            }
            assert!(verdict == vector.verdict && len_is_right);
        }
    }

    #[test]
    fn one_place_has_one_uprobe() {
        let a = UprobeRef::find_or_insert(inode(64), 0x1000, 0);
        let b = UprobeRef::find_or_insert(inode(64), 0x1000, 0);
        let c = UprobeRef::find_or_insert(inode(64), 0x1001, 0);
        if let (Ok(a), Ok(b), Ok(c)) = (a, b, c) {
            assert!(a.id() == b.id());
            assert!(a.id() != c.id());
        } else {
            assert!(false);
        }
    }

    #[test]
    fn a_new_uprobe_takes_the_place_of_a_dying_one() {
        let first = UprobeRef::find_or_insert(inode(128), 8, 0).map(|uprobe| uprobe.id());
        // The reference is gone, and the worker may or may not have run.
        let second = UprobeRef::find_or_insert(inode(128), 8, 0);
        assert!(first.is_ok() && second.is_ok());
        if let (Ok(first), Ok(second)) = (first, second) {
            assert!(first != second.id());
            let rcu = TasksTrace::enter();
            let found = uprobe::find(inode(128), 8, &rcu);
            assert!(found.map(|found| found.id()) == Some(second.id()));
        }
    }

    #[test]
    fn ranges_are_found_in_order() {
        let kept: [_; 3] =
            [0x30, 0x10, 0x20].map(|at| UprobeRef::find_or_insert(inode(192), at, 0));
        let rcu = TasksTrace::enter();
        let mut found = uprobe::in_range(inode(192), 0x10..0x30, &rcu).map(|u| u.offset());
        assert!(found.next() == Some(0x10));
        assert!(found.next() == Some(0x20));
        assert!(found.next().is_none());
        drop(kept);
    }

    #[test]
    fn a_debuggers_traps_come_go_and_are_inherited() {
        let make = || {
            KBox::<DebuggerTraps>::new_uninit(GFP_KERNEL | __GFP_ZERO).map(|memory| {
                let traps = KBox::into_raw(memory).cast::<DebuggerTraps>();
                // SAFETY: fresh memory, which the box keeps in its place.
                unsafe {
                    DebuggerTraps::init(traps);
                    KBox::from_raw(traps)
                }
            })
        };
        if let (Ok(parent), Ok(child)) = (make(), make()) {
            assert!(!parent.contains(5));
            let (one, other) = ([1; MAX_INSN_BYTES], [2; MAX_INSN_BYTES]);
            parent.insert(5, one);
            parent.insert(5, other);
            parent.insert(7, other);
            child.inherit(&parent);
            assert!(child.bytes_at(5) == Some(one) && child.bytes_at(7) == Some(other));
            assert!(parent.remove(5));
            assert!(!parent.remove(5));
            assert!(!parent.contains(5) && parent.contains(7));
            assert!(child.contains(5) && child.contains(7));
            assert!(parent.remove(7) && parent.is_empty());
        } else {
            assert!(false);
        }
    }
}
