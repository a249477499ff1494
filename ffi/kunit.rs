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
    use kernel::ffi::c_int;
    use kernel::prelude::*;

    use uprobes_arch::vectors::Verdict;
    use uprobes_bindings as c;
    use uprobes_core::arch::{Arch, MAX_INSN_BYTES};
    use uprobes_core::errno::Errno;
    use uprobes_core::sys::{Atomic, Full, Relaxed};

    use crate::debugger::DebuggerTraps;
    use crate::deferred;
    use crate::file_lock::FileLock;
    use crate::isa::{self, Isa};
    use crate::register;
    use crate::sync::TasksTrace;
    use crate::uprobe::{self, Supply, UprobeRef};

    /// An inode that nobody has; the index never looks into it.
    fn inode(n: usize) -> *mut bindings::inode {
        ptr::without_provenance_mut(n)
    }

    fn find_or_insert(
        inode: *mut bindings::inode,
        offset: u64,
        ref_ctr_offset: u64,
    ) -> Result<UprobeRef, Errno> {
        struct One(UprobeRef);

        impl AsMut<UprobeRef> for One {
            fn as_mut(&mut self) -> &mut UprobeRef {
                &mut self.0
            }
        }

        let mut one = [One(Supply::new(1).make(inode, offset, ref_ctr_offset)?)];
        let file = FileLock::of(inode).write(inode);
        uprobe::insert_all(&file, &mut one, |_, _| ());
        let [One(uprobe)] = one;
        Ok(uprobe)
    }

    /// A file of two pages that nobody maps.
    struct File(*mut bindings::file);

    impl File {
        fn new() -> Result<Self> {
            // SAFETY: an FFI call in process context.
            let file = unsafe { c::uprobes_shmem_file(0x2000) };
            kernel::error::from_err_ptr(file).map(Self)
        }

        fn inode(&self) -> *mut bindings::inode {
            // SAFETY: the value owns a reference of the file.
            unsafe { c::uprobes_file_inode(self.0) }
        }

        fn has_uprobe_at(&self, offset: u64) -> bool {
            let rcu = TasksTrace::enter();
            uprobe::find(self.inode(), offset, &rcu).is_some()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            // SAFETY: the reference is given up here.
            unsafe { bindings::fput(self.0) };
        }
    }

    unsafe extern "C" fn never(
        _consumer: *mut bindings::uprobe_consumer,
        _regs: *mut bindings::pt_regs,
        _data: *mut u64,
    ) -> c_int {
        0
    }

    fn consumer() -> bindings::uprobe_consumer {
        bindings::uprobe_consumer {
            handler: Some(never),
            ..Default::default()
        }
    }

    fn site(
        offset: i64,
        ref_ctr_offset: i64,
        consumer: &mut bindings::uprobe_consumer,
    ) -> c::uprobe_batch_site {
        c::uprobe_batch_site {
            offset,
            ref_ctr_offset,
            consumer,
            ..Default::default()
        }
    }

    #[test]
    fn a_batch_tells_each_site_what_came_of_it() -> Result {
        let file = File::new()?;
        let mut consumers = [(); 4].map(|()| consumer());
        let [a, b, c, d] = &mut consumers;
        // In no order; beyond the end; a semaphore across words; twice in one place.
        let mut sites = [
            site(0x1010, 0, a),
            site(0x2001, 0, b),
            site(0x10, 1, c),
            site(0x10, 0, d),
        ];
        let (first, count) = (sites.as_mut_ptr(), sites.len());
        // SAFETY: the sites and their consumers live until they are unregistered, and the file
        // longer.
        unsafe {
            assert!(register::uprobe_register_batch(file.inode(), first, count, false) == 0);
            let einval = Errno::EINVAL.to_ret();
            assert!(sites.each_ref().map(|site| site.err) == [0, einval, einval, 0]);
            assert!(
                sites.each_ref().map(|site| site.uprobe.is_null()) == [false, true, true, false]
            );
            assert!(file.has_uprobe_at(0x10) && file.has_uprobe_at(0x1010));
            register::uprobe_unregister_batch(first, count);
            assert!(sites.iter().all(|site| site.uprobe.is_null()));
            assert!(!file.has_uprobe_at(0x10) && !file.has_uprobe_at(0x1010));
            register::uprobe_unregister_sync();
        }
        Ok(())
    }

    #[test]
    fn a_batch_of_all_or_nothing_leaves_nothing() -> Result {
        let file = File::new()?;
        let mut consumers = [(); 3].map(|()| consumer());
        let [a, b, c] = &mut consumers;
        let mut sites = [site(0x1010, 0, a), site(0x2001, 0, b), site(0x10, 0, c)];
        let (first, count) = (sites.as_mut_ptr(), sites.len());
        let (einval, cancelled) = (Errno::EINVAL.to_ret(), Errno::ECANCELED.to_ret());
        // SAFETY: as above.
        let result = unsafe { register::uprobe_register_batch(file.inode(), first, count, true) };
        assert!(result == einval);
        assert!(sites.each_ref().map(|site| site.err) == [cancelled, einval, cancelled]);
        assert!(sites.iter().all(|site| site.uprobe.is_null()));
        assert!(!file.has_uprobe_at(0x10) && !file.has_uprobe_at(0x1010));
        Ok(())
    }

    /// Calls of [`count_done`].
    static DONE: Atomic<u64> = Atomic::new(0);

    unsafe extern "C" fn count_done(_deferred: *mut c::uprobe_deferred) {
        DONE.fetch_add(1, Full);
    }

    #[test]
    fn each_of_a_burst_is_told_once() -> Result {
        const BURST: usize = 10_000;
        let file = File::new()?;
        let mut users = KVVec::with_capacity(BURST, GFP_KERNEL)?;
        for _ in 0..BURST {
            let deferred = c::uprobe_deferred {
                func: Some(count_done),
                ..Default::default()
            };
            users.push((consumer(), deferred), GFP_KERNEL)?;
        }
        for (i, (consumer, deferred)) in users.iter_mut().enumerate() {
            // SAFETY: both stay until the flush below, and the file longer.
            unsafe {
                let uprobe =
                    register::uprobe_register(file.inode(), (4 * i % 0x2000) as i64, 0, consumer);
                let uprobe = kernel::error::from_err_ptr(uprobe)?;
                deferred::uprobe_unregister_async(uprobe, consumer, deferred);
            }
        }
        deferred::uprobe_unregister_flush();
        assert!(DONE.load(Relaxed) == BURST as u64);
        Ok(())
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
        let a = find_or_insert(inode(64), 0x1000, 0);
        let b = find_or_insert(inode(64), 0x1000, 0);
        let c = find_or_insert(inode(64), 0x1001, 0);
        if let (Ok(a), Ok(b), Ok(c)) = (a, b, c) {
            assert!(a.id() == b.id());
            assert!(a.id() != c.id());
        } else {
            assert!(false);
        }
    }

    #[test]
    fn a_new_uprobe_takes_the_place_of_a_dying_one() {
        let first = find_or_insert(inode(128), 8, 0).map(|uprobe| uprobe.id());
        // The reference is gone, and the worker may or may not have run.
        let second = find_or_insert(inode(128), 8, 0);
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
        let kept: [_; 3] = [0x30, 0x10, 0x20].map(|at| find_or_insert(inode(192), at, 0));
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
