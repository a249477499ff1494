// SPDX-License-Identifier: GPL-2.0

//! Pending returns of a task.
//!
//! A return probe swaps the return address of a call for the address of the trampoline and keeps
//! the original in a [`ReturnInstance`]. A task has two lists of them:
//!
//! ```text
//!   head   -> newest -> ... -> oldest      the stack that the task runs on
//!   parked -> newest -> ... -> oldest      frames that the stack pointer has left behind
//! ```
//!
//! A frame is identified by its address ([`uprobes_core::arch::Arch::frame_at_entry`]), not by
//! its place in the list: a stack pointer above a frame may mean that `longjmp` threw the frame
//! away, but as well that the program runs on another stack (a fibre, an alternate signal stack)
//! and comes back. So a frame left behind is dropped only when its return address is known to be
//! overwritten; otherwise it is parked, and found again by its address if it does return.
//!
//! Instances chained by tail calls share one frame and stand together, newest first; all but the
//! oldest have `chained` set.
//!
//! [`uprobes_core::arch::Arch::frame_at_entry`]: crate::arch::Arch::frame_at_entry

use core::ptr;

use crate::hprobe::Hprobe;
use crate::sys::{Atomic, Relaxed, Release};

/// Pending returns that a task may have on the stack it runs on; the kernel's
/// `MAX_URETPROBE_DEPTH`.
pub const MAX_DEPTH: u32 = 64;

/// Frames left behind that a task may have. No more are left behind then: they stay among those of
/// the stack that the task runs on, which ends at [`MAX_DEPTH`].
pub const MAX_PARKED: u32 = 1024;

/// Frames left behind before those among them are looked for that can never return.
const FIRST_PRUNE: u32 = 64;

/// How often a frame finds no room before they are looked for again.
const PATIENCE: u32 = 64;

/// What the entry handler of a session consumer left for its return handler.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnConsumer {
    /// The cookie.
    pub cookie: u64,
    /// Identity of the consumer.
    pub id: u64,
}

/// The uprobe of a pending return: leased under SRCU, counted, or gone.
#[repr(C)]
pub struct LeasedUprobe {
    /// Which of them; see [`Hprobe`].
    pub state: Hprobe,
    /// The SRCU section of a lease.
    pub srcu_scp: *mut (),
    /// The uprobe.
    pub uprobe: *mut (),
}

/// One pending return, laid out as the kernel's `struct return_instance`, which
/// `kernel/events/callchain.c` walks.
#[repr(C, align(64))]
pub struct ReturnInstance {
    /// The uprobe whose return this is.
    pub hprobe: LeasedUprobe,
    /// Address of the function's probed instruction.
    pub func: u64,
    /// Address of the frame.
    pub stack: u64,
    /// Where the function really returns to.
    pub orig_ret_vaddr: u64,
    /// Reached by a tail call: the next instance has the same frame.
    pub chained: bool,
    /// Number of session consumers.
    pub cons_cnt: i32,
    next: Atomic<*mut ReturnInstance>,
    /// For freeing after a grace period.
    pub rcu: [*mut (); 2],
    /// The first session consumer.
    pub consumer: ReturnConsumer,
    /// The other `cons_cnt - 1` session consumers.
    pub extra_consumers: *mut ReturnConsumer,
}

impl ReturnInstance {
    /// Where the link to the next instance lies.
    pub const NEXT_OFFSET: usize = core::mem::offset_of!(ReturnInstance, next);

    /// Describes the same frame as `from`, but holds nothing.
    pub fn copy_frame_of(&mut self, from: &ReturnInstance) {
        self.func = from.func;
        self.stack = from.stack;
        self.orig_ret_vaddr = from.orig_ret_vaddr;
        self.chained = from.chained;
    }

    /// The next older instance, or null.
    #[inline]
    pub fn next(&self) -> *mut ReturnInstance {
        self.next.load(Relaxed)
    }
}

/// What to do with a frame that the stack pointer has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    /// Its return address has been overwritten; it can never return.
    Gone,
    /// It may return yet.
    Maybe,
}

/// The head of a task's pending returns, laid out as the first members of the kernel's
/// `struct uprobe_task`.
///
/// # Invariants
///
/// `head` and `pool` are each null or the start of a list of valid instances that belong to this
/// task; `depth` is the length of the list at `head`.
///
/// # Context
///
/// Only the owner adds and removes instances; others walk the list, and other tasks of the process
/// may [`ReturnStack::steal`] what an instance holds. All of that runs under the lock of the task's
/// return instances, but for [`ReturnStack::push`] and the pool: the owner needs no lock for them,
/// since an instance that is pushed disturbs no walk, and nobody else looks into the pool.
#[repr(C)]
pub struct ReturnStack {
    /// The single-step state in the kernel's `struct uprobe_task`.
    pub state: u32,
    depth: Atomic<u32>,
    head: Atomic<*mut ReturnInstance>,
    pool: Atomic<*mut ReturnInstance>,
}

/// Frames that the stack pointer has left behind but that may return yet.
///
/// # Invariants
///
/// `head` is null or the start of a list of `len` valid instances.
#[repr(C)]
pub struct Parked {
    head: *mut ReturnInstance,
    len: u32,
    /// Length at which the list is pruned.
    prune_at: u32,
    /// How often a full list is still left as it is.
    patience: u32,
}

impl Default for Parked {
    fn default() -> Self {
        Self {
            head: ptr::null_mut(),
            len: 0,
            prune_at: FIRST_PRUNE,
            patience: 0,
        }
    }
}

/// Iterates over a list of instances, newest first.
pub struct Iter(*mut ReturnInstance);

impl Iterator for Iter {
    type Item = *mut ReturnInstance;

    #[inline]
    fn next(&mut self) -> Option<*mut ReturnInstance> {
        if self.0.is_null() {
            return None;
        }
        let this = self.0;
        // SAFETY: by the invariants of the list heads, `this` is a valid instance; the list lock
        // keeps it so.
        self.0 = unsafe { (*this).next.load(Relaxed) };
        Some(this)
    }
}

impl Parked {
    /// Number of parked frames.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether nothing is parked.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parked instances, newest first.
    pub fn iter(&self) -> Iter {
        Iter(self.head)
    }

    /// Whether there is no room.
    fn is_full(&self) -> bool {
        self.len >= MAX_PARKED
    }

    /// Gives those to `discard` of whose frames `is_gone` says that they can never return.
    fn remove_if(
        &mut self,
        mut is_gone: impl FnMut(u64) -> bool,
        discard: &mut impl FnMut(*mut ReturnInstance),
    ) {
        for _ in 0..self.len {
            let Some(ri) = self.pop() else {
                return;
            };
            // SAFETY: just taken.
            if is_gone(unsafe { (*ri).stack }) {
                discard(ri);
            } else {
                self.push(ri);
            }
        }
    }

    /// Makes room for one more, if need be at the cost of those that `left_behind` calls gone.
    /// Answers whether there is room.
    #[cold]
    fn make_room(
        &mut self,
        left_behind: &mut impl FnMut(u64) -> LeftBehind,
        discard: &mut impl FnMut(*mut ReturnInstance),
    ) -> bool {
        if self.is_full() && self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        self.remove_if(
            |stack| stack == HUSK || left_behind(stack) == LeftBehind::Gone,
            discard,
        );
        self.prune_at = self.len.saturating_mul(2).clamp(FIRST_PRUNE, MAX_PARKED);
        self.patience = if self.is_full() { PATIENCE } else { 0 };
        !self.is_full()
    }

    /// Adds `ri` behind the others, so that instances parked newest first keep their order.
    fn push(&mut self, ri: *mut ReturnInstance) {
        // SAFETY: the caller gives a valid instance that is in no list.
        unsafe { (*ri).next.store(ptr::null_mut(), Relaxed) };
        match self.iter().last() {
            None => self.head = ri,
            // SAFETY: an instance of the list is valid.
            Some(last) => unsafe { (*last).next.store(ri, Relaxed) },
        }
        self.len += 1;
    }

    /// Parks the copy of a parked instance of another task, behind the others.
    ///
    /// # Safety
    ///
    /// `ri` is valid, in no list, and the caller gives up its ownership. There is room for it: the
    /// other task has no more than it may have.
    pub unsafe fn adopt(&mut self, ri: *mut ReturnInstance) {
        debug_assert!(!self.is_full());
        self.push(ri);
    }

    /// Takes the instance that was parked first.
    pub fn pop(&mut self) -> Option<*mut ReturnInstance> {
        let first = self.iter().next()?;
        // SAFETY: an instance of the list is valid.
        self.head = unsafe { (*first).next.load(Relaxed) };
        self.len -= 1;
        Some(first)
    }

    fn take(&mut self, frame: u64) -> Option<*mut ReturnInstance> {
        let (before, found) = find_frame(self.iter(), frame)?;
        // SAFETY: an instance of the list is valid.
        let after = unsafe { (*found).next.load(Relaxed) };
        match before {
            None => self.head = after,
            // SAFETY: as above.
            Some(before) => unsafe { (*before).next.store(after, Relaxed) },
        }
        self.len -= 1;
        Some(found)
    }
}

/// Finds the newest instance of `frame` and the one before it.
fn find_frame(
    iter: Iter,
    frame: u64,
) -> Option<(Option<*mut ReturnInstance>, *mut ReturnInstance)> {
    let mut before = None;
    for ri in iter {
        // SAFETY: the iterator yields valid instances.
        if unsafe { (*ri).stack } == frame {
            return Some((before, ri));
        }
        before = Some(ri);
    }
    None
}

impl ReturnStack {
    /// Where the number of pending returns lies.
    pub const DEPTH_OFFSET: usize = core::mem::offset_of!(ReturnStack, depth);
    /// Where the link to the newest pending return lies.
    pub const HEAD_OFFSET: usize = core::mem::offset_of!(ReturnStack, head);
    /// Where the link to the first instance of the pool lies.
    pub const POOL_OFFSET: usize = core::mem::offset_of!(ReturnStack, pool);

    /// A stack without pending returns.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        // INVARIANT: both lists are empty.
        Self {
            state: 0,
            depth: Atomic::new(0),
            head: Atomic::new(ptr::null_mut()),
            pool: Atomic::new(ptr::null_mut()),
        }
    }

    /// Whether no return is pending on the stack that the task runs on.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }

    /// Number of pending returns on the stack that the task runs on.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth.load(Relaxed)
    }

    /// Nobody but the owner changes the depth.
    #[inline]
    fn set_depth(&self, change: impl FnOnce(u32) -> u32) {
        self.depth.store(change(self.depth.load(Relaxed)), Relaxed);
    }

    /// The pending returns, newest first.
    #[inline]
    pub fn iter(&self) -> Iter {
        Iter(self.head.load(Relaxed))
    }

    /// Takes an instance out of the pool of those used before.
    #[inline]
    pub fn pool_pop(&self) -> Option<*mut ReturnInstance> {
        let ri = self.pool.load(Relaxed);
        if ri.is_null() {
            return None;
        }
        // SAFETY: by the type invariants `pool` is a list of valid instances.
        self.pool
            .store(unsafe { (*ri).next.load(Relaxed) }, Relaxed);
        Some(ri)
    }

    /// Gives an instance back to the pool.
    ///
    /// # Safety
    ///
    /// `ri` is valid, in no list, and the caller gives up its ownership.
    #[inline]
    pub unsafe fn pool_push(&self, ri: *mut ReturnInstance) {
        // SAFETY: valid by contract; nobody else has it.
        unsafe {
            (*ri).cons_cnt = 0;
            (*ri).next.store(self.pool.load(Relaxed), Relaxed);
        }
        self.pool.store(ri, Relaxed);
    }

    /// Adds the newest pending return.
    ///
    /// # Safety
    ///
    /// `ri` is valid, in no list, filled in, and the caller gives up its ownership.
    #[inline]
    pub unsafe fn push(&self, ri: *mut ReturnInstance) {
        // SAFETY: valid by contract; nobody else has it.
        unsafe { (*ri).next.store(self.head.load(Relaxed), Relaxed) };
        // Another task may walk the list, and an NMI of this CPU for a call chain.
        self.head.store(ri, Release);
        self.set_depth(|depth| depth.wrapping_add(1));
    }

    /// Adds the oldest pending return, as the copy for a new task needs it.
    ///
    /// # Safety
    ///
    /// As [`ReturnStack::push`].
    pub unsafe fn push_oldest(&self, ri: *mut ReturnInstance) {
        // SAFETY: valid by contract; nobody else has it.
        unsafe { (*ri).next.store(ptr::null_mut(), Relaxed) };
        match self.iter().last() {
            None => self.head.store(ri, Release),
            // SAFETY: an instance of the list is valid.
            Some(last) => unsafe { (*last).next.store(ri, Release) },
        }
        self.set_depth(|depth| depth.wrapping_add(1));
    }

    #[inline]
    fn pop(&self) -> Option<*mut ReturnInstance> {
        let ri = self.head.load(Relaxed);
        if ri.is_null() {
            return None;
        }
        // SAFETY: by the type invariants `head` is a list of valid instances.
        self.head
            .store(unsafe { (*ri).next.load(Relaxed) }, Release);
        self.set_depth(|depth| depth.wrapping_sub(1));
        Some(ri)
    }

    /// Takes the newest pending return, whatever its frame.
    pub fn drain(&self) -> Option<*mut ReturnInstance> {
        self.pop()
    }

    /// Clears the top of the list of frames that the stack pointer has left behind.
    ///
    /// `alive` judges a frame by the stack pointer. Of those that are not, `left_behind` says
    /// whether they can still return: they are parked if so, else given to `discard`. If there is no
    /// room, those parked before are asked about again; the others stay where they are.
    #[inline]
    pub fn settle(
        &self,
        parked: &mut Parked,
        mut alive: impl FnMut(u64) -> bool,
        mut left_behind: impl FnMut(u64) -> LeftBehind,
        mut discard: impl FnMut(*mut ReturnInstance),
    ) {
        while let Some(top) = self.iter().next() {
            // SAFETY: an instance of the list is valid.
            let stack = unsafe { (*top).stack };
            if stack != HUSK && alive(stack) {
                break;
            }
            let gone = stack == HUSK || left_behind(stack) == LeftBehind::Gone;
            if !gone
                && parked.len >= parked.prune_at
                && !parked.make_room(&mut left_behind, &mut discard)
            {
                break;
            }
            if self.pop().is_none() {
                break;
            }
            if gone {
                discard(top);
            } else {
                parked.push(top);
            }
        }
    }

    /// A call has written a new return address to `frame`: drops what was parked of it before.
    pub fn overwrite(
        &self,
        parked: &mut Parked,
        frame: u64,
        mut discard: impl FnMut(*mut ReturnInstance),
    ) {
        if find_frame(parked.iter(), frame).is_some() {
            parked.remove_if(|stack| stack == frame, &mut discard);
        }
    }

    /// Takes the newest instance of exactly this frame, parked or not.
    #[inline]
    pub fn take(&self, parked: &mut Parked, frame: u64) -> Option<*mut ReturnInstance> {
        let top = self.head.load(Relaxed);
        // SAFETY: by the type invariants `head` is null or a valid instance.
        if !top.is_null() && unsafe { (*top).stack } == frame {
            return self.pop();
        }
        if let Some((Some(before), found)) = find_frame(self.iter(), frame) {
            // SAFETY: both are valid instances of the list.
            unsafe { (*before).next.store((*found).next.load(Relaxed), Release) };
            self.set_depth(|depth| depth.wrapping_sub(1));
            return Some(found);
        }
        parked.take(frame)
    }

    /// The original return address of the newest instance of this frame.
    pub fn original_of(&self, parked: &Parked, frame: u64) -> Option<u64> {
        let (_, found) =
            find_frame(self.iter(), frame).or_else(|| find_frame(parked.iter(), frame))?;
        // SAFETY: an instance of the list is valid.
        Some(unsafe { (*found).orig_ret_vaddr })
    }

    /// The frame closest below `frame`, parked or not, for a return that pops its arguments too
    /// (`ret $n`).
    pub fn nearest_below(&self, parked: &Parked, frame: u64) -> Option<u64> {
        self.iter()
            .chain(parked.iter())
            // SAFETY: the iterators yield valid instances.
            .map(|ri| unsafe { (*ri).stack })
            .filter(|&stack| stack != HUSK && stack <= frame)
            .max()
    }

    /// Takes over a pending return from another task of the process, into `into`.
    ///
    /// The instance itself stays in its owner's list as a husk, because the owner may be walking
    /// it; the owner discards it when it next settles. Answers whether there was one.
    ///
    /// # Safety
    ///
    /// `into` is valid, in no list and owned by the caller.
    pub unsafe fn steal(&self, parked: &Parked, frame: u64, into: *mut ReturnInstance) -> bool {
        let Some((_, found)) =
            find_frame(self.iter(), frame).or_else(|| find_frame(parked.iter(), frame))
        else {
            return false;
        };
        // SAFETY: `found` is a valid instance of the list and `into` is valid by contract; they
        // differ, since `into` is in no list.
        let (from, into) = unsafe { (&mut *found, &mut *into) };
        into.hprobe.state.reset(from.hprobe.state.consume());
        into.hprobe.srcu_scp = from.hprobe.srcu_scp;
        into.hprobe.uprobe = from.hprobe.uprobe;
        into.copy_frame_of(from);
        into.cons_cnt = from.cons_cnt;
        into.consumer = from.consumer;
        core::mem::swap(&mut into.extra_consumers, &mut from.extra_consumers);
        from.cons_cnt = 0;
        from.stack = HUSK;
        true
    }
}

#[cfg(not(loom))]
impl Default for ReturnStack {
    fn default() -> Self {
        Self::new()
    }
}

/// Frame address of an instance that another task has taken over; no frame is there.
const HUSK: u64 = u64::MAX;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hprobe::HprobeState;

    fn ri(stack: u64, chained: bool) -> *mut ReturnInstance {
        Box::into_raw(Box::new(ReturnInstance {
            hprobe: LeasedUprobe {
                state: Hprobe::new(HprobeState::Stable),
                srcu_scp: ptr::null_mut(),
                uprobe: ptr::null_mut(),
            },
            func: 1,
            stack,
            orig_ret_vaddr: stack + 1000,
            chained,
            cons_cnt: 0,
            next: Atomic::new(ptr::null_mut()),
            rcu: [ptr::null_mut(); 2],
            consumer: ReturnConsumer::default(),
            extra_consumers: ptr::null_mut(),
        }))
    }

    fn free(ri: *mut ReturnInstance) -> u64 {
        // SAFETY: made by `ri` and taken out of its list.
        unsafe { Box::from_raw(ri) }.stack
    }

    /// A task whose stacks grow down, with instances freed at the end.
    #[derive(Default)]
    struct Task {
        stack: ReturnStack,
        parked: Parked,
        dropped: Vec<u64>,
    }

    impl Task {
        fn call(&mut self, frame: u64, overwritten: &[u64]) {
            self.settle(frame, overwritten);
            let dropped = &mut self.dropped;
            self.stack
                .overwrite(&mut self.parked, frame, |ri| dropped.push(free(ri)));
            // SAFETY: fresh instance.
            unsafe { self.stack.push(ri(frame, false)) };
        }
        fn tail_call(&mut self, frame: u64) {
            // SAFETY: fresh instance.
            unsafe { self.stack.push(ri(frame, true)) };
        }
        fn settle(&mut self, sp: u64, overwritten: &[u64]) {
            let dropped = &mut self.dropped;
            self.stack.settle(
                &mut self.parked,
                |stack| sp < stack,
                |stack| {
                    if stack == sp || overwritten.contains(&stack) {
                        LeftBehind::Gone
                    } else {
                        LeftBehind::Maybe
                    }
                },
                |ri| dropped.push(free(ri)),
            );
        }
        fn ret(&mut self, frame: u64) -> bool {
            match self.stack.take(&mut self.parked, frame) {
                Some(ri) => free(ri) == frame,
                None => false,
            }
        }
        fn frames(&self) -> Vec<u64> {
            // SAFETY: the iterator yields valid instances.
            self.stack.iter().map(|ri| unsafe { (*ri).stack }).collect()
        }
    }

    impl Drop for Task {
        fn drop(&mut self) {
            while let Some(ri) = self.stack.drain() {
                free(ri);
            }
            while let Some(ri) = self.parked.pop() {
                free(ri);
            }
            while let Some(ri) = self.stack.pool_pop() {
                free(ri);
            }
        }
    }

    #[test]
    fn nested_calls_return_in_order() {
        let mut t = Task::default();
        for frame in [900, 800, 700] {
            t.call(frame, &[]);
        }
        assert_eq!(t.stack.depth(), 3);
        for frame in [700, 800, 900] {
            assert!(t.ret(frame));
        }
        assert!(t.stack.is_empty());
        assert!(!t.ret(900));
    }

    #[test]
    fn a_frame_overwritten_after_longjmp_is_dropped() {
        let mut t = Task::default();
        t.call(900, &[]);
        t.call(700, &[]);
        t.call(800, &[700]);
        assert_eq!(t.dropped, [700]);
        assert_eq!(t.frames(), [800, 900]);
    }

    #[test]
    fn the_same_frame_called_again_replaces_the_old() {
        let mut t = Task::default();
        t.call(900, &[]);
        t.call(900, &[]);
        assert_eq!(t.dropped, [900]);
        assert_eq!(t.stack.depth(), 1);
    }

    #[test]
    fn two_fibres_interleave() {
        let mut t = Task::default();
        t.call(100, &[]);
        t.call(500, &[]);
        t.call(90, &[]);
        assert!(t.ret(500));
        assert!(t.ret(90));
        assert!(t.ret(100));
        assert!(t.dropped.is_empty());
        assert!(t.parked.is_empty());
    }

    #[test]
    fn a_handler_on_a_stack_above_does_no_harm() {
        let mut t = Task::default();
        t.call(100, &[]);
        t.call(5000, &[]);
        assert!(t.ret(5000));
        assert!(t.ret(100));
    }

    #[test]
    fn a_chain_is_taken_newest_first() {
        let mut t = Task::default();
        t.call(100, &[]);
        t.tail_call(100);
        let newest = t.stack.take(&mut t.parked, 100).unwrap();
        // SAFETY: just taken.
        assert!(unsafe { (*newest).chained });
        free(newest);
        assert!(t.ret(100));
        assert!(!t.ret(100));
    }

    #[test]
    fn a_parked_chain_keeps_its_order() {
        let mut t = Task::default();
        t.call(100, &[]);
        t.tail_call(100);
        t.call(500, &[]);
        assert_eq!(t.parked.len(), 2);
        let newest = t.stack.take(&mut t.parked, 100).unwrap();
        // SAFETY: just taken.
        assert!(unsafe { (*newest).chained });
        free(newest);
        assert!(t.ret(100));
    }

    #[test]
    #[cfg_attr(miri, ignore = "walks lists of a thousand frames a thousand times")]
    fn frames_that_find_no_room_are_not_dropped() {
        let mut t = Task::default();
        let n = u64::from(MAX_PARKED) + 10;
        for i in 0..n {
            t.call(1000 + i * 10, &[]);
        }
        assert_eq!(t.parked.len(), MAX_PARKED);
        assert_eq!(t.stack.depth(), 10);
        assert_eq!(t.dropped, []);
        for i in 0..n {
            assert!(t.ret(1000 + i * 10), "{i}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "walks lists of a thousand frames a thousand times")]
    fn a_full_list_is_not_asked_about_at_every_call() {
        let mut t = Task::default();
        let n = u64::from(MAX_PARKED);
        for i in 0..=n {
            t.call(1000 + i * 10, &[]);
        }
        // Nothing is gone when there is no room any more.
        t.call(90_000, &[]);
        for _ in 0..PATIENCE {
            t.settle(95_000, &[1000]);
            assert_eq!(t.dropped, []);
        }
        t.settle(95_000, &[1000]);
        assert_eq!(t.dropped, [1000]);
    }

    #[test]
    fn a_new_call_replaces_what_was_parked_of_its_frame() {
        let mut t = Task::default();
        t.call(700, &[]);
        t.call(900, &[]);
        assert_eq!(t.parked.len(), 1);
        t.call(700, &[]);
        assert_eq!(t.dropped, [700]);
        assert!(t.ret(700));
        assert!(!t.ret(700));
    }

    #[test]
    fn frames_that_are_gone_make_room() {
        let mut t = Task::default();
        for i in 0..=u64::from(FIRST_PRUNE) {
            t.call(1000 + i * 10, &[]);
        }
        assert_eq!(t.parked.len(), FIRST_PRUNE);
        t.call(5000, &[1020, 1030]);
        assert_eq!(t.dropped, [1020, 1030]);
        assert_eq!(t.parked.len(), FIRST_PRUNE - 1);
        assert_eq!(t.frames(), [5000]);
        for gone in [1020, 1030] {
            assert!(!t.ret(gone));
        }
        assert!(t.ret(1010));
        assert!(t.ret(1000));
    }

    #[test]
    fn a_return_that_pops_arguments_finds_its_frame_below() {
        let mut t = Task::default();
        t.call(900, &[]);
        t.call(800, &[]);
        assert_eq!(t.stack.nearest_below(&t.parked, 816), Some(800));
        assert_eq!(t.stack.nearest_below(&t.parked, 799), None);
        t.call(2000, &[]);
        assert_eq!(t.stack.nearest_below(&t.parked, 816), Some(800));
    }

    #[test]
    fn another_task_takes_a_return_over() {
        let (mut a, into) = (Task::default(), ri(0, false));
        a.call(900, &[]);
        a.call(800, &[]);
        // SAFETY: `into` is fresh.
        assert!(unsafe { a.stack.steal(&a.parked, 800, into) });
        // SAFETY: as above.
        assert!(!unsafe { a.stack.steal(&a.parked, 800, into) });
        // SAFETY: ours.
        assert_eq!(unsafe { (*into).orig_ret_vaddr }, 1800);
        free(into);
        assert!(!a.ret(800));
        a.settle(100, &[]);
        assert_eq!(a.frames(), [900]);
    }

    #[test]
    fn the_original_address_of_a_tail_call_is_that_of_its_frame() {
        let mut t = Task::default();
        t.call(100, &[]);
        t.call(50, &[]);
        assert_eq!(t.stack.original_of(&t.parked, 100), Some(1100));
        t.call(500, &[]);
        assert_eq!(t.stack.original_of(&t.parked, 100), Some(1100));
        assert_eq!(t.stack.original_of(&t.parked, 42), None);
    }

    #[test]
    fn the_pool_reuses_instances() {
        let t = Task::default();
        let a = ri(1, false);
        // SAFETY: fresh.
        unsafe { t.stack.pool_push(a) };
        assert_eq!(t.stack.pool_pop(), Some(a));
        assert_eq!(t.stack.pool_pop(), None);
        free(a);
    }
}
