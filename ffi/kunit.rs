// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of what cannot be tested outside of the kernel: its instruction decoder behind
//! [`Decode`](uprobes_arch::x86_64::Decode), the life of uprobes between the index, the worker and
//! the grace periods, and lists that are kept in place.

use kernel::macros::kunit_tests;

#[kunit_tests(uprobes_rust)]
mod tests {
    use core::ptr;

    use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
    use kernel::bindings;
    use kernel::prelude::*;

    use uprobes_core::arch::{Arch, Bitness, MAX_INSN_BYTES};
    use uprobes_core::errno::Errno;

    use crate::debugger::DebuggerTraps;
    use crate::isa::Isa;
    use crate::sync::TasksTrace;
    use crate::uprobe::{self, UprobeRef};

    fn analyze(code: &[u8]) -> Result<(u8, bool), Errno> {
        let mut bytes = [0; MAX_INSN_BYTES];
        if let Some(there) = bytes.get_mut(..code.len()) {
            there.copy_from_slice(code);
        }
        Isa::analyze(&bytes, Bitness::Bits64).map(|a| (a.len, a.simulated))
    }

    /// An inode that nobody has; the index never looks into it.
    fn inode(n: usize) -> *mut bindings::inode {
        ptr::without_provenance_mut(n)
    }

    #[test]
    fn the_kernels_decoder_knows_lengths() {
        assert!(analyze(&[0x90]) == Ok((1, true)));
        assert!(analyze(&[0x48, 0x89, 0xe5]) == Ok((3, true)));
        assert!(analyze(&[0xf3, 0x0f, 0x1e, 0xfa]) == Ok((4, true)));
        assert!(analyze(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]) == Ok((10, true)));
        // lock add %eax,(%rdi)
        assert!(analyze(&[0xf0, 0x01, 0x07]) == Ok((3, false)));
    }

    #[test]
    fn vector_instructions_are_not_taken_for_branches() {
        // vpcmpeqb %xmm1,%xmm0,%xmm0: opcode 74 is jz in the one-byte map only.
        assert!(analyze(&[0xc5, 0xf9, 0x74, 0xc1]) == Ok((4, false)));
        // vzeroupper: opcode 77.
        assert!(analyze(&[0xc5, 0xf8, 0x77]) == Ok((3, false)));
    }

    #[test]
    fn what_cannot_be_probed_is_refused() {
        // in (%dx),%al; hlt; int $0x80
        assert!(analyze(&[0xec]) == Err(Errno::ENOTSUPP));
        assert!(analyze(&[0xf4]) == Err(Errno::ENOTSUPP));
        assert!(analyze(&[0xcd, 0x80]) == Err(Errno::ENOTSUPP));
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
            parent.insert(5);
            parent.insert(5);
            parent.insert(7);
            child.inherit(&parent);
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
