// SPDX-License-Identifier: GPL-2.0

//! Return probes of the current task.

use core::ptr;

use kernel::bindings;
use kernel::prelude::*;
use kernel::{pr_info_once, pr_warn_once};

use uprobes_bindings as c;
use uprobes_core::arch::{Arch, FrameCheck, HijackError};
use uprobes_core::consumer::dispatch_return;
use uprobes_core::hit::Signal;
use uprobes_core::hprobe::HprobeState;
use uprobes_core::returns::{LeftBehind, ReturnConsumer, ReturnInstance, MAX_DEPTH};

use crate::hit::{self, Regs};
use crate::isa::{self, Isa, Task};
use crate::mm::{MmState, PAGE_SIZE};
use crate::sync::{Lease, TasksTrace};
use crate::task::{self, Returns, Utask};
use crate::uprobe::Uprobe;

/// Arguments that a return may pop in bytes (`ret $n`).
const MAX_POPPED: u64 = u16::MAX as u64;

/// An instance for a return of the current task, without cookies.
#[inline]
pub(crate) fn new_instance(utask: &mut Utask) -> Option<*mut ReturnInstance> {
    utask
        .return_stack()
        .pool_pop()
        .or_else(task::alloc_instance)
}

/// Gives an instance back that holds nothing.
///
/// # Safety
///
/// `ri` is in no list and owned by the caller.
#[inline]
unsafe fn recycle(utask: &mut Utask, ri: *mut ReturnInstance) {
    // SAFETY: by contract.
    unsafe { utask.return_stack().pool_push(ri) };
}

/// Adds the cookie of a session consumer; fails for want of memory.
///
/// # Safety
///
/// `ri` is in no list and owned by the caller.
#[inline]
pub(crate) unsafe fn push_cookie(ri: *mut ReturnInstance, id: u64, cookie: u64) -> bool {
    // SAFETY: by contract.
    let ri = unsafe { &mut *ri };
    let entry = ReturnConsumer { cookie, id };
    if ri.cons_cnt == 0 {
        ri.consumer = entry;
    } else {
        let extra = ri.cons_cnt as usize;
        // SAFETY: `extra_consumers` is null or from here.
        let grown = unsafe {
            bindings::krealloc_node_align_noprof(
                ri.extra_consumers.cast(),
                extra * size_of::<ReturnConsumer>(),
                align_of::<ReturnConsumer>(),
                bindings::GFP_KERNEL,
                bindings::NUMA_NO_NODE,
            )
        }
        .cast::<ReturnConsumer>();
        if grown.is_null() {
            return false;
        }
        ri.extra_consumers = grown;
        // SAFETY: there are `extra` elements now.
        unsafe { grown.add(extra - 1).write(entry) };
    }
    ri.cons_cnt += 1;
    true
}

/// Whether a return address leads to the trampoline, to its start or to its trap.
fn is_trampoline(address: u64, trampoline: u64, regs: &Regs) -> bool {
    let offset = address.wrapping_sub(trampoline);
    // Most are far away.
    offset < PAGE_SIZE && (offset == 0 || offset == Isa::trampoline_trap(Isa::bitness(regs)))
}

/// Where functions of the current task are to return to: past the system call of the trampoline
/// while somebody watches the task's system calls, who must not see one that the program does not
/// make.
fn entrance(trampoline: u64, regs: &Regs) -> u64 {
    if isa::are_system_calls_watched() {
        trampoline + Isa::trampoline_trap(Isa::bitness(regs))
    } else {
        trampoline
    }
}

/// Whether the frame at `frame`, which the stack pointer has left behind, can still return.
///
/// Where the return address lies in memory it tells: once overwritten, nothing leads from there
/// to the trampoline any more.
fn left_behind(frame: u64, trampoline: u64, regs: &Regs) -> LeftBehind {
    let Some(slot) = Isa::return_slot(frame) else {
        return LeftBehind::Maybe;
    };
    match Task::peek_word(slot, Isa::bitness(regs)) {
        Some(word) if !is_trampoline(word, trampoline, regs) => LeftBehind::Gone,
        _ => LeftBehind::Maybe,
    }
}

/// Clears the frames that the task has left behind off its list.
fn settle(
    returns: &mut Returns<'_>,
    regs: &Regs,
    frame: u64,
    check: FrameCheck,
    trampoline: u64,
) -> Dropped {
    let mut dropped = Dropped::default();
    returns.stack.settle(
        returns.parked,
        |stack| match check {
            FrameCheck::Return => stack == frame || Isa::is_frame_alive(stack, check, regs),
            FrameCheck::Call | FrameCheck::ChainCall => Isa::is_frame_alive(stack, check, regs),
        },
        |stack| {
            // The call has overwritten the return address of the frame that was there before, if
            // frames have it in memory. Else that may be a caller without a frame of its own,
            // which keeps its return address in a register.
            if stack == frame && check == FrameCheck::Call && Isa::return_slot(stack).is_some() {
                LeftBehind::Gone
            } else {
                left_behind(stack, trampoline, regs)
            }
        },
        |ri| dropped.push(ri),
    );
    dropped
}

/// Instances to be discarded after the lock is released.
#[derive(Default)]
struct Dropped(Option<ptr::NonNull<ReturnInstance>>);

impl Dropped {
    fn push(&mut self, ri: *mut ReturnInstance) {
        // SAFETY: taken out of its list and given to us.
        unsafe { (*ri).rcu[0] = self.0.map_or(ptr::null_mut(), |next| next.as_ptr().cast()) };
        self.0 = ptr::NonNull::new(ri);
    }

    fn discard(mut self) {
        while let Some(ri) = self.0 {
            // SAFETY: linked by `push`, owned by us.
            unsafe {
                self.0 = ptr::NonNull::new((*ri.as_ptr()).rcu[0].cast());
                Utask::discard(ri.as_ptr());
            }
        }
    }
}

/// Hijacks the return of the function that is about to start. `state` is the current process's, if
/// it has one.
///
/// # Safety
///
/// `ri` is in no list and owned by the caller, who gives it up.
pub(crate) unsafe fn prepare(
    utask: &mut Utask,
    state: Option<&MmState>,
    uprobe: &Uprobe,
    ri: *mut ReturnInstance,
    func: u64,
    regs: &mut Regs,
) {
    // SAFETY: by contract.
    if unsafe { try_prepare(utask, state, uprobe, ri, func, regs) }.is_none() {
        // SAFETY: not pushed, so still ours; it holds nothing yet.
        unsafe { recycle(utask, ri) };
    }
}

/// # Safety
///
/// As [`prepare`], but the caller keeps the instance if the answer is [`None`].
#[inline]
unsafe fn try_prepare(
    utask: &mut Utask,
    state: Option<&MmState>,
    uprobe: &Uprobe,
    ri: *mut ReturnInstance,
    func: u64,
    regs: &mut Regs,
) -> Option<()> {
    let state = match state {
        Some(state) => state,
        // SAFETY: the current task's `mm` is valid.
        None => unsafe { MmState::get_or_make(c::uprobes_task_mm(c::uprobes_current())) }.ok()?,
    };
    let trampoline = match state.xol.trampoline() {
        Some(vaddr) => vaddr,
        None => state.xol.map(0, regs).ok()?,
    };
    let frame = Isa::frame_at_entry(regs);
    if utask.c.depth >= MAX_DEPTH {
        // Frames that `longjmp` has thrown away may make room.
        let mut returns = utask.returns();
        let dropped = settle(&mut returns, regs, frame, FrameCheck::ChainCall, trampoline);
        drop(returns);
        dropped.discard();
        if utask.c.depth >= MAX_DEPTH {
            pr_info_once!(
                "returns of calls nested more than {} deep are omitted\n",
                MAX_DEPTH
            );
            return None;
        }
    }

    let insn = &uprobe.code()?.analysis.insn;
    let user = &mut Task::current();
    let original = match Isa::hijack_return(insn, regs, user, entrance(trampoline, regs)) {
        Ok(original) => original,
        Err(HijackError::Unreadable) => return None,
        Err(HijackError::Clobbered) => {
            // SAFETY: the current task is valid.
            unsafe { bindings::force_sig(bindings::SIGSEGV as kernel::ffi::c_int) };
            return None;
        }
    };
    let chained = is_trampoline(original, trampoline, regs);
    let check = if chained {
        FrameCheck::ChainCall
    } else {
        FrameCheck::Call
    };

    utask.register_in(state);
    if utask.has_returns() {
        let mut returns = utask.returns();
        let mut dropped = settle(&mut returns, regs, frame, check, trampoline);
        if check == FrameCheck::Call {
            let Returns { stack, parked, .. } = &mut returns;
            stack.overwrite(parked, frame, |ri| dropped.push(ri));
        }
        drop(returns);
        dropped.discard();
    }
    let original = if chained {
        first_address_of(utask, state, frame)?
    } else {
        original
    };

    // SAFETY: ours until it is pushed.
    let filled = unsafe { &mut *ri };
    filled.func = func;
    filled.stack = frame;
    filled.orig_ret_vaddr = original;
    filled.chained = chained;
    filled.hprobe.srcu_scp = Lease::take().into_raw().cast();
    filled.hprobe.uprobe = uprobe.as_raw().cast();
    filled.hprobe.state.reset(HprobeState::Leased);
    // SAFETY: by contract, and given up here.
    unsafe { utask.return_stack().push(ri) };
    utask.arm_timer();
    Some(())
}

/// The address that the first instance of a chain found; all others keep it.
#[cold]
fn first_address_of(utask: &mut Utask, state: &MmState, frame: u64) -> Option<u64> {
    let this: *const Utask = utask;
    let returns = utask.returns();
    let own = returns.stack.original_of(returns.parked, frame);
    drop(returns);
    let original = own.or_else(|| state.returns.original_of(this, frame));
    if original.is_none() {
        pr_warn_once!("a return address is the trampoline's, but nobody put it there\n");
    }
    original
}

/// Takes the instance that belongs to the return of `frame`.
#[inline]
fn take(utask: &mut Utask, frame: u64) -> Option<*mut ReturnInstance> {
    let mut returns = utask.returns();
    let Returns { stack, parked, .. } = &mut returns;
    stack.take(parked, frame)
}

/// Takes the instance of a frame that did not return in order: another's, one left behind, or one
/// whose function popped its arguments.
#[cold]
fn find_odd(
    utask: &mut Utask,
    state: &MmState,
    frame: u64,
    regs: &Regs,
    trampoline: u64,
) -> Option<*mut ReturnInstance> {
    let found = take_from_others(utask, state, frame).or_else(|| {
        let mut returns = utask.returns();
        let Returns { stack, parked, .. } = &mut returns;
        let near = stack
            .nearest_below(parked, frame)
            .filter(|near| frame - near <= MAX_POPPED)?;
        stack.take(parked, near)
    });
    let mut returns = utask.returns();
    let dropped = settle(&mut returns, regs, frame, FrameCheck::Return, trampoline);
    drop(returns);
    dropped.discard();
    found
}

/// Takes over the pending return of a fibre that began to run in another thread.
#[cold]
fn take_from_others(utask: &mut Utask, state: &MmState, frame: u64) -> Option<*mut ReturnInstance> {
    let into = task::alloc_instance()?;
    // SAFETY: fresh and owned.
    if unsafe { state.returns.steal(utask, frame, into) } {
        return Some(into);
    }
    // SAFETY: as above.
    unsafe { task::free(into) };
    None
}

/// A function has returned to the trampoline: calls the return handlers and lets the task go on
/// where the function really returns to.
///
/// # Context
///
/// Process context of the task; may sleep.
#[inline]
pub(crate) fn on_return(regs: &mut Regs, trampoline: &Trampoline<'_>, rcu: &TasksTrace) {
    if handle(regs, trampoline, rcu).is_none() {
        pr_warn_once!("a task went to the return trampoline by itself\n");
        hit::send(Signal::ForcedIll, regs);
    }
}

#[inline(always)] // Once into the system call, which does little else.
fn handle(regs: &mut Regs, trampoline: &Trampoline<'_>, rcu: &TasksTrace) -> Option<()> {
    let state = trampoline.state;
    // A thread that takes over a fibre may never have hit a probe itself.
    let utask = task::current_or_make()?;
    let frame = Isa::frame_at_return(regs);

    let mut ri = match take(utask, frame) {
        Some(ri) => ri,
        None => {
            utask.register_in(state);
            find_odd(utask, state, frame, regs, trampoline.vaddr)?
        }
    };
    loop {
        // SAFETY: taken out of its list and ours now.
        let instance = unsafe { &mut *ri };
        let (chained, frame) = (instance.chained, instance.stack);
        Isa::set_ip(regs, instance.orig_ret_vaddr);
        run_handlers(instance, regs, rcu);
        // SAFETY: as above; its hold has ended.
        unsafe { recycle(utask, ri) };
        if !chained {
            return Some(());
        }
        ri = match take(utask, frame).or_else(|| take_from_others(utask, state, frame)) {
            Some(ri) => ri,
            None => return Some(()),
        };
    }
}

/// Calls the return handlers for one instance and ends its hold of the uprobe.
#[inline]
fn run_handlers(ri: &mut ReturnInstance, regs: &mut Regs, rcu: &TasksTrace) {
    let state = ri.hprobe.state.consume();
    let uprobe = ri.hprobe.uprobe.cast::<Uprobe>();
    if let HprobeState::Leased | HprobeState::Stable = state {
        // SAFETY: leased or counted until `finish` below.
        let uprobe = unsafe { &*uprobe };
        let (func, count) = (ri.func, ri.cons_cnt.max(0) as usize);
        let (first, extra) = (&raw mut ri.consumer, ri.extra_consumers);
        dispatch_return(uprobe.consumers.iter_rcu(rcu), func, regs, |id| {
            // SAFETY: there are `count` cookies, the first in the instance; each is lent to one
            // handler at a time.
            (0..count)
                .map(|i| unsafe { &mut *if i == 0 { first } else { extra.add(i - 1) } })
                .find(|entry| entry.id == id)
                .map(|entry| &mut entry.cookie)
        });
    }
    // SAFETY: consumed just now.
    unsafe { task::finish(state, ri.hprobe.srcu_scp.cast(), uprobe) };
}

/// The return trampoline of a process.
pub(crate) struct Trampoline<'m> {
    state: &'m MmState,
    /// Its address.
    pub(crate) vaddr: u64,
}

impl<'m> Trampoline<'m> {
    /// That of the current process, or [`None`] if it has none.
    #[inline]
    pub(crate) fn of_current() -> Option<Self> {
        // SAFETY: the current task is valid.
        let mm = unsafe { c::uprobes_task_mm(c::uprobes_current()) };
        if mm.is_null() {
            return None;
        }
        // SAFETY: the current task's `mm` is valid.
        Self::of(unsafe { MmState::get(mm) }?)
    }

    /// That of the process whose state this is.
    #[inline]
    pub(crate) fn of(state: &'m MmState) -> Option<Self> {
        let vaddr = state.xol.trampoline()?;
        Some(Self { state, vaddr })
    }
}

/// Address that functions of the current task return to, or all ones without a trampoline.
///
/// # Context
///
/// Any, also NMI.
#[export]
pub(crate) extern "C" fn uprobe_get_trampoline_vaddr() -> kernel::ffi::c_ulong {
    let Some(trampoline) = Trampoline::of_current() else {
        return kernel::ffi::c_ulong::MAX;
    };
    // SAFETY: the current task has an address space, so it has user registers.
    let regs = unsafe { &*c::uprobes_task_pt_regs(c::uprobes_current()).cast::<Regs>() };
    entrance(trampoline.vaddr, regs) as kernel::ffi::c_ulong
}
