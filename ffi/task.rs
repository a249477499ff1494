// SPDX-License-Identifier: GPL-2.0

//! What the subsystem keeps of a task, and what the kernel's process management tells us.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::rcu;

use uprobes_bindings as c;
use uprobes_core::alarm;
use uprobes_core::hit::Step;
use uprobes_core::hprobe::{Hprobe, HprobeState};
use uprobes_core::last_hit::LastHit;
use uprobes_core::lease::Downgraded;
use uprobes_core::owner_lock::{OwnerGuard, OwnerLock};
use uprobes_core::returns::{Parked, ReturnInstance, ReturnStack};
use uprobes_core::slots::SlotIndex;
use uprobes_core::sys::{Atomic, Relaxed};

use crate::isa::Isa;
use crate::mm::{self, MmState};
use crate::sync::{sleep_a_tick, Lease, SpinLock};
use crate::uprobe::{Uprobe, UprobeRef};

/// Age in jiffies at which leases are downgraded: 100 ms.
const LEASE_JIFFIES: usize = bindings::HZ as usize / 10;

/// Age in jiffies at which a remembered hit is forgotten: a minute.
pub(crate) const LAST_HIT_JIFFIES: u64 = 60 * bindings::HZ as u64;

/// Where a task is with a single-step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is not stepping.
    Idle,
    /// It runs, or is about to run, in its slot.
    Stepping,
    /// The hardware has trapped after the instruction.
    Trapped,
    /// The instruction took a fault, or the task is being killed.
    Aborted,
}

/// The single-step of a task.
pub(crate) struct Stepping {
    /// Where it is.
    pub(crate) progress: Progress,
    /// The step; meaningful unless idle.
    pub(crate) step: MaybeUninit<Step<Isa>>,
    /// The uprobe being stepped, leased or counted.
    pub(crate) held: Held,
    /// Signals were held back during the step.
    pub(crate) signal_denied: bool,
    /// The slot that the task keeps.
    pub(crate) slot: Option<SlotIndex>,
}

/// A uprobe kept beyond the handling of a hit, which the timer may look at.
pub(crate) struct Held {
    state: Hprobe,
    scp: Atomic<*mut bindings::srcu_ctr>,
    uprobe: Atomic<*mut Uprobe>,
}

/// A task's state.
///
/// `c` comes first: C code reads it through `current->utask`. It is this task's alone but for the
/// return instances, which `lock` guards.
#[repr(C)]
pub(crate) struct Utask {
    pub(crate) c: bindings::uprobe_task,
    lock: OwnerLock,
    parked: Parked,
    pub(crate) stepping: Stepping,
    pub(crate) owner: u64,
    /// Address of a hit whose consumers were called before a debugger took over, or zero.
    pub(crate) counted: u64,
    pub(crate) last_hit: LastHit<Uprobe, LAST_HIT_JIFFIES>,
    registry_next: *mut Utask,
    registered_in: Option<NonNull<MmState>>,
}

impl Held {
    /// Holds `uprobe` by a lease.
    pub(crate) fn lease(&mut self, uprobe: &Uprobe) {
        self.scp.store(Lease::take().into_raw(), Relaxed);
        self.uprobe.store(ptr::from_ref(uprobe).cast_mut(), Relaxed);
        self.state.reset(HprobeState::Leased);
    }

    /// Ends the hold.
    pub(crate) fn end(&mut self) {
        let state = self.state.consume();
        // SAFETY: `scp` and `uprobe` belong to the state that `consume` answers.
        unsafe { finish(state, self.scp.load(Relaxed), self.uprobe.load(Relaxed)) };
    }
}

/// Ends the hold of a uprobe that was in `state`.
///
/// # Safety
///
/// `scp` and `uprobe` are those of the hold, whose state was consumed just now.
pub(crate) unsafe fn finish(
    state: HprobeState,
    scp: *mut bindings::srcu_ctr,
    uprobe: *const Uprobe,
) {
    match state {
        // SAFETY: by contract, the lease is open and ours to end.
        HprobeState::Leased => unsafe { Lease::from_raw(scp) }.end(),
        // SAFETY: by contract, the reference is ours to put.
        HprobeState::Stable => drop(unsafe { UprobeRef::from_raw(uprobe.cast_mut().cast()) }),
        HprobeState::Gone | HprobeState::Consumed => (),
    }
}

/// Turns a lease into a reference or into nothing. `scp` and `uprobe` read what belongs to the
/// state, once it is known to be leased.
///
/// # Safety
///
/// What they read is that of the hold.
unsafe fn expire(
    state: &Hprobe,
    _rcu: &rcu::Guard,
    scp: impl Fn() -> *mut bindings::srcu_ctr,
    uprobe: impl Fn() -> *const Uprobe,
) {
    let held = Cell::new(ptr::null());
    let downgraded = state.downgrade(
        scp,
        || {
            held.set(uprobe());
            // SAFETY: it was leased inside the RCU section, which keeps it from being freed.
            unsafe { (*held.get()).try_get() }
                .map(UprobeRef::into_raw)
                .is_some()
        },
        // SAFETY: undoes the `try_get` above.
        || drop(unsafe { UprobeRef::from_raw(held.get().cast_mut().cast()) }),
    );
    if let Downgraded::Released { lease, .. } = downgraded {
        // SAFETY: the lease was given to us to end.
        lease.end(|scp| unsafe { Lease::from_raw(scp) }.end());
    }
}

/// Turns the lease of a pending return into a reference or into nothing.
///
/// # Safety
///
/// The lock of the instance's list is held.
unsafe fn expire_instance(ri: &ReturnInstance, rcu: &rcu::Guard) {
    let hold = &ri.hprobe;
    // SAFETY: under the lock they belong to the state.
    unsafe {
        expire(
            &hold.state,
            rcu,
            || hold.srcu_scp.cast(),
            || hold.uprobe.cast(),
        )
    };
}

/// The state of the current task, if it has one.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a mut Utask> {
    // SAFETY: the current task is valid; its `utask` is its own and used by nobody else while it
    // runs, but for the return instances, which are not reached through this reference without
    // their lock.
    unsafe {
        c::uprobes_utask(c::uprobes_current())
            .cast::<Utask>()
            .as_mut()
    }
}

/// The state of the current task, made if it has none.
#[inline]
pub(crate) fn current_or_make<'a>() -> Option<&'a mut Utask> {
    match current() {
        Some(utask) => Some(utask),
        None => {
            let utask = Utask::alloc()?;
            // SAFETY: the current task is valid, and nobody else sets its `utask`.
            unsafe {
                c::uprobes_set_utask(c::uprobes_current(), utask.cast());
                Some(&mut *utask)
            }
        }
    }
}

/// The return instances of a task, locked.
pub(crate) struct Returns<'u> {
    _guard: OwnerGuard<'u>,
    /// Those on the stack that the task runs on.
    pub(crate) stack: &'u ReturnStack,
    /// Those left behind.
    pub(crate) parked: &'u mut Parked,
}

impl Utask {
    #[cold]
    fn alloc() -> Option<*mut Utask> {
        let memory = KBox::<Utask>::new_uninit(GFP_KERNEL | __GFP_ZERO).ok()?;
        let this = KBox::into_raw(memory).cast::<Utask>();
        // SAFETY: `this` is fresh zeroed memory; what zero is not valid for is written here.
        unsafe {
            (&raw mut (*this).lock).write(OwnerLock::new());
            (&raw mut (*this).parked).write(Parked::default());
            (&raw mut (*this).stepping).write(Stepping {
                progress: Progress::Idle,
                step: MaybeUninit::uninit(),
                held: Held {
                    state: Hprobe::new(HprobeState::Gone),
                    scp: Atomic::new(ptr::null_mut()),
                    uprobe: Atomic::new(ptr::null_mut()),
                },
                signal_denied: false,
                slot: None,
            });
            (&raw mut (*this).last_hit).write(LastHit::new());
            (&raw mut (*this).registered_in).write(None);
            c::uprobes_timer_setup(&raw mut (*this).c.ri_timer, Some(on_timer));
        }
        Some(this)
    }

    /// The pending returns on the stack that the task runs on, for what needs no lock.
    #[inline]
    pub(crate) fn return_stack(&self) -> &ReturnStack {
        // SAFETY: the first members of `uprobe_task` are a `ReturnStack` (see `layout`).
        unsafe { &*(&raw const self.c).cast() }
    }

    /// Locks the return instances of the current task. May sleep.
    #[inline]
    pub(crate) fn returns(&mut self) -> Returns<'_> {
        let this: *mut Self = self;
        // SAFETY: what the lock guards is reached through the result only, which `self` is lent
        // to.
        unsafe {
            Returns {
                _guard: (*this).lock.lock(sleep_a_tick),
                stack: (*this).return_stack(),
                parked: &mut (*this).parked,
            }
        }
    }

    /// Locks the return instances of another task, unless it has them itself.
    ///
    /// # Safety
    ///
    /// `this` is valid for `'a`.
    #[inline]
    unsafe fn try_returns_of<'a>(this: *mut Utask) -> Option<Returns<'a>> {
        // SAFETY: by contract; what the lock guards is reached through the result only.
        unsafe {
            let guard = (*this).lock.try_lock()?;
            Some(Returns {
                _guard: guard,
                stack: &*(&raw const (*this).c).cast(),
                parked: &mut (*this).parked,
            })
        }
    }

    /// Whether the task has pending returns on its stack.
    #[inline]
    pub(crate) fn has_returns(&self) -> bool {
        !self.c.return_instances.is_null() || !self.parked.is_empty()
    }

    /// Sees to it that leases are downgraded in time.
    #[inline]
    pub(crate) fn arm_timer(&mut self) {
        // SAFETY: the timer is initialised.
        if alarm::must_be_armed(|| unsafe { c::uprobes_timer_pending(&self.c.ri_timer) }) {
            // SAFETY: as above.
            unsafe { bindings::mod_timer(&mut self.c.ri_timer, bindings::jiffies + LEASE_JIFFIES) };
        }
    }

    /// Frees an instance and ends its hold.
    ///
    /// # Safety
    ///
    /// `ri` is in no list and owned by the caller.
    pub(crate) unsafe fn discard(ri: *mut ReturnInstance) {
        // SAFETY: by contract.
        unsafe {
            release(&*ri);
            free(ri);
        }
    }
}

/// Ends the hold of an instance's uprobe.
pub(crate) fn release(ri: &ReturnInstance) {
    let hold = &ri.hprobe;
    // SAFETY: they belong together.
    unsafe {
        finish(
            hold.state.consume(),
            hold.srcu_scp.cast(),
            hold.uprobe.cast(),
        )
    };
}

/// Allocates an instance.
pub(crate) fn alloc_instance() -> Option<*mut ReturnInstance> {
    let memory = KBox::<ReturnInstance>::new_uninit(GFP_KERNEL | __GFP_ZERO).ok()?;
    // Zero is valid for every member.
    Some(KBox::into_raw(memory).cast())
}

/// Frees an instance that holds nothing.
///
/// # Safety
///
/// `ri` is in no list and owned by the caller.
pub(crate) unsafe fn free(ri: *mut ReturnInstance) {
    // SAFETY: allocated by `alloc_instance` and `kmalloc()`.
    unsafe {
        bindings::kfree((*ri).extra_consumers.cast());
        drop(KBox::from_raw(ri.cast::<MaybeUninit<ReturnInstance>>()));
    }
}

/// Downgrades the leases of a task that are still open.
unsafe extern "C" fn on_timer(timer: *mut bindings::timer_list) {
    // SAFETY: the timer is a member of a `uprobe_task`, the first member of a `Utask`, which
    // deletes the timer before it goes.
    let this =
        unsafe { kernel::container_of!(timer, bindings::uprobe_task, ri_timer) }.cast::<Utask>();
    let rcu = rcu::read_lock();
    alarm::has_fired();
    // SAFETY: as above.
    let Some(returns) = (unsafe { Utask::try_returns_of(this) }) else {
        // The task is interrupted, or runs elsewhere, with the lock held.
        // SAFETY: the timer may arm itself again.
        unsafe { bindings::mod_timer(timer, bindings::jiffies + 1) };
        return;
    };
    // SAFETY: the lock is held, and its own atomics guard the held uprobe.
    unsafe {
        for ri in Iterator::chain(returns.stack.iter(), returns.parked.iter()) {
            expire_instance(&*ri, &rcu);
        }
        let held = &(*this).stepping.held;
        expire(
            &held.state,
            &rcu,
            || held.scp.load(Relaxed),
            || held.uprobe.load(Relaxed),
        );
    }
}

/// The tasks of a process that have pending returns.
///
/// # Invariants
///
/// `head` is null or the start of a list of valid states of tasks; guarded by `lock`.
pub(crate) struct Registry {
    lock: SpinLock,
    head: UnsafeCell<*mut Utask>,
}

impl Registry {
    /// # Safety
    ///
    /// `this` is valid for writes, shared with nobody yet, and stays where it is.
    pub(crate) unsafe fn init(this: *mut Self) {
        // SAFETY: by contract.
        unsafe {
            SpinLock::init(&raw mut (*this).lock, c::uprobes_init_registry_lock);
            (&raw mut (*this).head).write(UnsafeCell::new(ptr::null_mut()));
        }
    }

    fn remove(&self, utask: *mut Utask) {
        let _guard = self.lock.lock();
        let mut link = self.head.get();
        // SAFETY: a link of the list, which is locked.
        unsafe {
            while !(*link).is_null() {
                if *link == utask {
                    *link = (*utask).registry_next;
                    return;
                }
                link = &raw mut (**link).registry_next;
            }
        }
    }

    /// Takes over the pending return of `frame` from another task than `but`, into `into`. May
    /// sleep.
    ///
    /// # Safety
    ///
    /// `into` is in no list and owned by the caller.
    pub(crate) unsafe fn steal(
        &self,
        but: *const Utask,
        frame: u64,
        into: *mut ReturnInstance,
    ) -> bool {
        // SAFETY: by contract; it is in no list until one was stolen into it.
        self.search(but, |returns| unsafe {
            returns
                .stack
                .steal(returns.parked, frame, into)
                .then_some(())
        })
        .is_some()
    }

    /// The original return address of a pending return of `frame` in any task but `but`. May
    /// sleep.
    pub(crate) fn original_of(&self, but: *const Utask, frame: u64) -> Option<u64> {
        self.search(but, |returns| {
            returns.stack.original_of(returns.parked, frame)
        })
    }

    /// The first answer of `ask` about the pending returns of any task but `but`.
    fn search<R>(
        &self,
        but: *const Utask,
        ask: impl Fn(&mut Returns<'_>) -> Option<R>,
    ) -> Option<R> {
        loop {
            let mut busy = false;
            {
                let _guard = self.lock.lock();
                // SAFETY: the list is locked, and states leave it before they go.
                unsafe {
                    let mut utask = *self.head.get();
                    while !utask.is_null() {
                        if !ptr::eq(utask, but) {
                            match Utask::try_returns_of(utask) {
                                Some(mut returns) => {
                                    if let Some(answer) = ask(&mut returns) {
                                        return Some(answer);
                                    }
                                }
                                None => busy = true,
                            }
                        }
                        utask = (*utask).registry_next;
                    }
                }
            }
            if !busy {
                return None;
            }
            sleep_a_tick();
        }
    }
}

impl Utask {
    /// Makes the task's pending returns findable by the other tasks of its process.
    #[inline]
    pub(crate) fn register_in(&mut self, state: &MmState) {
        if self.registered_in.is_some() {
            return;
        }
        self.registered_in = Some(NonNull::from(state));
        let _guard = state.returns.lock.lock();
        // SAFETY: the list is locked.
        unsafe {
            self.registry_next = *state.returns.head.get();
            *state.returns.head.get() = self;
        }
    }
}

/// A task exits or executes another program; its address space is still the old one.
///
/// # Safety
///
/// `task` is the current task, or one that does not run any more.
#[export]
pub(crate) unsafe extern "C" fn uprobe_free_utask(task: *mut bindings::task_struct) {
    // SAFETY: by contract.
    let this = unsafe { c::uprobes_utask(task).cast::<Utask>() };
    if this.is_null() {
        return;
    }
    // SAFETY: by contract; nobody finds the state once it has left the registry and its timer is
    // stopped.
    unsafe {
        c::uprobes_set_utask(task, ptr::null_mut());
        let utask = &mut *this;
        if let Some(state) = utask.registered_in {
            state.as_ref().returns.remove(this);
        }
        bindings::timer_delete_sync(&mut utask.c.ri_timer);
        if let (Some(slot), Some(state)) =
            (utask.stepping.slot, MmState::get(c::uprobes_task_mm(task)))
        {
            state.xol.disown(slot, utask.owner);
        }
        // An instruction that never returns (exit, exec) may still be under way.
        utask.stepping.held.end();
        while let Some(ri) = (utask.return_stack().drain()).or_else(|| utask.parked.pop()) {
            Utask::discard(ri);
        }
        while let Some(ri) = utask.return_stack().pool_pop() {
            free(ri);
        }
        drop(KBox::from_raw(this.cast::<MaybeUninit<Utask>>()));
    }
}

/// A new task starts as a copy of the current one.
///
/// # Safety
///
/// `task` is valid and does not run yet.
#[export]
pub(crate) unsafe extern "C" fn uprobe_copy_process(
    task: *mut bindings::task_struct,
    clone_flags: u64,
) {
    // SAFETY: by contract; both tasks are valid.
    let (old_mm, new_mm) = unsafe {
        c::uprobes_set_utask(task, ptr::null_mut());
        (
            c::uprobes_task_mm(c::uprobes_current()),
            c::uprobes_task_mm(task),
        )
    };
    if new_mm != old_mm && !new_mm.is_null() {
        // SAFETY: the new task uses its `mm`.
        unsafe { mm::repair_forked(new_mm) };
    }
    let Some(parent) = current() else {
        return;
    };
    // SAFETY: the new task has registers, and does not run yet.
    unsafe {
        crate::hit::finish_step_of_child(parent, task, &mut *c::uprobes_task_pt_regs(task).cast());
    }
    if !parent.has_returns() {
        return;
    }
    let shares_memory = old_mm == new_mm;
    if shares_memory && clone_flags & u64::from(bindings::CLONE_VFORK) == 0 {
        // A thread starts on a stack of its own.
        return;
    }
    let Some(child) = Utask::alloc() else {
        pr_warn!("uprobe: no memory for the pending returns of a new task\n");
        return;
    };
    // SAFETY: `child` is fresh, and nobody else knows it.
    unsafe {
        c::uprobes_set_utask(task, child.cast());
        if !copy_returns(parent, &mut *child) {
            pr_warn!("uprobe: no memory for the pending returns of a new task\n");
        }
    }
    if shares_memory {
        return;
    }
    // The child needs its trampoline where its parent has it, before it returns to one.
    // SAFETY: the current task's `mm` is valid.
    let trampoline = unsafe { MmState::get(old_mm) }.and_then(|state| state.xol.trampoline());
    if let Some(vaddr) = trampoline {
        // SAFETY: `child` stays valid until the task is gone, whose work this is.
        unsafe {
            let c = &mut (*child).c.__bindgen_anon_1.__bindgen_anon_2;
            c.dup_xol_addr = vaddr as usize;
            c::uprobes_init_task_work(&mut c.dup_xol_work, Some(map_trampoline));
            c::uprobes_task_work_add(task, &mut c.dup_xol_work);
        }
    }
}

/// Copies the pending returns; each copy holds its uprobe by a reference or not at all.
fn copy_returns(parent: &mut Utask, child: &mut Utask) -> bool {
    let total = {
        let returns = parent.returns();
        returns.stack.depth() + returns.parked.len()
    };
    // The parent is the current task: it adds nothing meanwhile, so this is enough.
    let mut copied = 0;
    for _ in 0..total {
        let Some(copy) = alloc_instance() else {
            return false;
        };
        // SAFETY: fresh and owned.
        unsafe { child.return_stack().pool_push(copy) };
    }
    let originals = parent.returns();
    let rcu = rcu::read_lock();
    let on_stack = originals.stack.depth();
    for original in Iterator::chain(originals.stack.iter(), originals.parked.iter()) {
        let Some(copy) = child.return_stack().pool_pop() else {
            return false;
        };
        // SAFETY: the original is locked, the copy owned.
        unsafe {
            let from = &*original;
            let hold = &from.hprobe;
            expire_instance(from, &rcu);
            let kept = hold.state.load() == HprobeState::Stable
                && (*hold.uprobe.cast::<Uprobe>())
                    .try_get()
                    .map(UprobeRef::into_raw)
                    .is_some();
            (*copy).copy_frame_of(from);
            (*copy).hprobe.uprobe = hold.uprobe;
            (*copy).hprobe.state.reset(if kept {
                HprobeState::Stable
            } else {
                HprobeState::Gone
            });
            if !copy_cookies(from, &mut *copy) {
                (*copy).cons_cnt = (*copy).cons_cnt.min(1);
            }
            if copied < on_stack {
                child.return_stack().push_oldest(copy);
            } else {
                child.parked.adopt(copy);
            }
        }
        copied += 1;
    }
    copied == total
}

/// Copies the cookies of session consumers beyond the first.
fn copy_cookies(from: &ReturnInstance, to: &mut ReturnInstance) -> bool {
    to.consumer = from.consumer;
    to.cons_cnt = from.cons_cnt;
    if from.cons_cnt <= 1 {
        return true;
    }
    let bytes = (from.cons_cnt as usize - 1) * size_of::<uprobes_core::returns::ReturnConsumer>();
    // SAFETY: `extra_consumers` has `cons_cnt - 1` elements. Copied in an RCU section, so nothing
    // may sleep.
    to.extra_consumers = unsafe {
        bindings::kmemdup_noprof(from.extra_consumers.cast(), bytes, bindings::GFP_ATOMIC).cast()
    };
    !to.extra_consumers.is_null()
}

/// Maps the trampoline of a forked process, on its way to user space for the first time.
unsafe extern "C" fn map_trampoline(_work: *mut bindings::callback_head) {
    // SAFETY: the current task is valid.
    let task = unsafe { c::uprobes_current() };
    // SAFETY: as above.
    if unsafe { c::uprobes_task_exiting(task) } {
        return;
    }
    let Some(utask) = current() else {
        return;
    };
    // SAFETY: set by `uprobe_copy_process`, and not used for anything else since.
    let vaddr = unsafe { utask.c.__bindgen_anon_1.__bindgen_anon_2.dup_xol_addr } as u64;
    // SAFETY: the task is current and came from user space.
    let regs = unsafe { &*c::uprobes_task_pt_regs(task).cast() };
    // SAFETY: the current task's `mm` is valid.
    let mapped = unsafe { MmState::get_or_make(c::uprobes_task_mm(task)) }.and_then(|state| {
        // Threads that the process starts may take over its fibres.
        utask.register_in(state);
        state.xol.map(vaddr, regs)
    });
    if mapped.is_err() {
        pr_warn!("uprobe: a forked process has no return trampoline\n");
    }
}
