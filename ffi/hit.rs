// SPDX-License-Identifier: GPL-2.0

//! Traps of the current task: [`uprobes_core::hit`] in the kernel, and the hooks that lead to it.

use core::ptr::{self, NonNull};

use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::{Arch, MAX_INSN_BYTES};
use uprobes_core::consumer::{dispatch_entry, BadVerdict, ReturnRequest};
use uprobes_core::errno::Errno;
use uprobes_core::hit::{self, AfterHit, AfterStep, Found, Hit, Signal, Step, StepEnd};
use uprobes_core::last_hit::{Site, Snapshot};
use uprobes_core::returns::ReturnInstance;

use crate::file_lock::FileLock;
use crate::isa::{self, Isa, Task};
use crate::mm::{self, MmState, PAGE_MASK};
use crate::returns;
use crate::signals;
use crate::sync::{MmapWrite, TasksTrace};
use crate::task::{self, Progress, Utask};
use crate::text;
use crate::uprobe::{self, Insn, Uprobe};
use crate::user;

/// Registers of the instruction set.
pub(crate) type Regs = <Isa as Arch>::Regs;

/// The current task at a breakpoint.
///
/// Functions that are not inlined take its members rather than itself, so that they stay in
/// registers.
struct Current<'g> {
    regs: &'g mut Regs,
    task: &'g mut Task,
    mm: *mut bindings::mm_struct,
    /// What is kept of the address space and of the task, once there is something.
    state: Option<&'g MmState>,
    utask: Option<&'g mut Utask>,
    rcu: &'g TasksTrace,
}

/// The mm of the current task, which came from user space.
fn current_mm() -> *mut bindings::mm_struct {
    // SAFETY: the current task is valid.
    unsafe { c::uprobes_task_mm(c::uprobes_current()) }
}

/// Sends `signal` to the current task.
pub(crate) fn send(signal: Signal, regs: &mut Regs) {
    match signal {
        Signal::ForcedTrap => isa::send_breakpoint_trap(regs),
        // SAFETY: an FFI call about the current task.
        Signal::ForcedIll => unsafe { bindings::force_sig(bindings::SIGILL as c_int) },
        Signal::Trap => isa::send_step_trap(regs),
    }
}

impl<'g> Current<'g> {
    /// Looks up the uprobe at `vaddr` without the `mmap_lock`.
    ///
    /// A hot site costs neither the walk of the mappings nor that of the index: the task remembers
    /// its last hit. Answers [`None`] where the lock is needed to tell.
    #[inline]
    fn find_unlocked(&mut self, vaddr: u64) -> Option<&'g Uprobe> {
        let mut seq = 0;
        // SAFETY: the current task's `mm` is valid.
        if !unsafe { c::uprobes_mmap_speculate_begin(self.mm, &mut seq) } {
            return None;
        }
        let now = Snapshot {
            mm_seq: seq,
            erasures: uprobe::erasures(),
            // SAFETY: a plain read of a counter that may change at any time.
            stamp: unsafe { ptr::read_volatile(&raw const bindings::jiffies) } as u64,
        };
        if let Some(known) = self
            .utask
            .as_ref()
            .and_then(|utask| utask.last_hit.find(vaddr, &now))
        {
            self.task.at_site(vaddr, known.vm_flags);
            // SAFETY: valid in the section that `rcu` stands for, as `LastHit` explains.
            return Some(unsafe { known.uprobe.as_ref() });
        }

        let found = speculate(self.mm, self.rcu, vaddr)?;
        // SAFETY: as above.
        if unsafe { c::uprobes_mmap_speculate_retry(self.mm, seq) } {
            return None;
        }
        self.task.at_site(vaddr, found.vm_flags);
        if let Some(utask) = &mut self.utask {
            utask.last_hit.remember(vaddr, now, found);
        }
        // SAFETY: as above.
        Some(unsafe { found.uprobe.as_ref() })
    }
}

/// Looks up the uprobe at `vaddr` in mappings that may change meanwhile.
fn speculate(
    mm: *mut bindings::mm_struct,
    section: &TasksTrace,
    vaddr: u64,
) -> Option<Site<Uprobe>> {
    let _rcu = kernel::sync::rcu::read_lock();
    // SAFETY: mappings and files are freed after an RCU grace period; garbage in them is
    // harmless, because the index knows only what is there and the caller checks that nothing
    // has changed.
    unsafe {
        let vma = NonNull::new(bindings::vma_lookup(mm, vaddr as usize))?;
        let file = c::uprobes_vma_file_speculative(vma.as_ptr());
        if file.is_null() {
            return None;
        }
        let inode = c::uprobes_file_inode(file);
        let offset = mm::Vma::from_raw(vma).offset_of(vaddr);
        let uprobe = uprobe::find(inode, offset, section)?;
        Some(Site {
            uprobe: NonNull::from(uprobe),
            vm_flags: c::uprobes_vma_flags(vma.as_ptr()) as u64,
        })
    }
}

/// Looks up what is at `vaddr` with the `mmap_lock` held for reading.
#[cold]
fn find_locked(mm: *mut bindings::mm_struct, section: &TasksTrace, vaddr: u64) -> Found<&Uprobe> {
    let lock = MmapRead::lock(mm);
    // SAFETY: locked.
    let vma = unsafe { NonNull::new(bindings::vma_lookup(mm, vaddr as usize)) };
    let Some(vma) = vma else {
        return Found::Nothing;
    };
    // SAFETY: valid while locked.
    let vma = unsafe { mm::Vma::from_raw(vma) };
    if !vma.inode().is_null() {
        if let Some(found) = uprobe::find(vma.inode(), vma.offset_of(vaddr), section) {
            return Found::Uprobe(found);
        }
    }
    if trap_at(&lock, vaddr) {
        Found::ForeignTrap
    } else {
        Found::Nothing
    }
}

/// The `mmap_lock` of the current task's address space, held for reading.
struct MmapRead(*mut bindings::mm_struct);

impl MmapRead {
    fn lock(mm: *mut bindings::mm_struct) -> Self {
        // SAFETY: callers pass the current task's `mm`.
        unsafe { bindings::mmap_read_lock(mm) };
        Self(mm)
    }
}

impl Drop for MmapRead {
    fn drop(&mut self) {
        // SAFETY: held by this guard.
        unsafe { bindings::mmap_read_unlock(self.0) };
    }
}

/// Whether the memory at `vaddr` holds a breakpoint.
fn trap_at(lock: &MmapRead, vaddr: u64) -> bool {
    let mut bytes = [0; MAX_INSN_BYTES];
    let Some(there) = bytes.get_mut(..Isa::TRAP_BYTES) else {
        return false;
    };
    if user::peek(vaddr, there).is_err()
        && text::peek(lock.0, vaddr & PAGE_MASK, vaddr, there).is_err()
    {
        return false;
    }
    Isa::is_trap_insn(there)
}

/// The return instance that the consumers of a hit ask for.
struct Request<'u> {
    utask: &'u mut Utask,
    state: Requested,
}

enum Requested {
    No,
    Yes(*mut ReturnInstance),
    /// There was no memory for it.
    Lost,
}

impl ReturnRequest for Request<'_> {
    #[inline]
    fn request(&mut self) {
        if let Requested::No = self.state {
            self.state = match returns::new_instance(self.utask) {
                Some(ri) => Requested::Yes(ri),
                None => Requested::Lost,
            };
        }
    }

    #[inline]
    fn push_session(&mut self, id: u64, cookie: u64) {
        if let Requested::Yes(ri) = self.state {
            // SAFETY: the instance is ours until it is pushed.
            if !unsafe { returns::push_cookie(ri, id, cookie) } {
                // SAFETY: as above; it is forgotten here.
                unsafe { task::free(ri) };
                self.state = Requested::Lost;
            }
        }
    }
}

impl<'g> Hit for Current<'g> {
    type A = Isa;
    type Task = Task;
    type Uprobe = &'g Uprobe;
    type Insn = &'g Insn;

    #[inline]
    fn parts(&mut self) -> (&mut Regs, &mut Task) {
        (self.regs, self.task)
    }

    #[inline]
    fn is_trampoline(&self, vaddr: u64) -> bool {
        let start = self.state.and_then(|state| state.xol.trampoline());
        start.is_some_and(|start| {
            vaddr.wrapping_sub(start) == Isa::trampoline_trap(Isa::bitness(self.regs))
        })
    }

    #[inline]
    fn on_return(&mut self) {
        if let Some(state) = self.state {
            on_return(self.regs, state, self.rcu);
        }
    }

    #[inline]
    fn find(&mut self, vaddr: u64) -> Found<&'g Uprobe> {
        match self.find_unlocked(vaddr) {
            Some(found) => Found::Uprobe(found),
            None => find_locked(self.mm, self.rcu, vaddr),
        }
    }

    #[inline]
    fn insn(&self, uprobe: &'g Uprobe) -> Option<&'g Insn> {
        uprobe.code().map(|code| &code.analysis.insn)
    }

    #[inline]
    fn ensure_task_state(&mut self) -> bool {
        if self.utask.is_none() {
            self.utask = task::current_or_make();
        }
        self.utask.is_some()
    }

    #[inline]
    fn is_debugger_trap(&self, vaddr: u64) -> bool {
        self.state
            .is_some_and(|state| state.debugger.contains(vaddr))
    }

    #[inline]
    fn swap_counted(&mut self, vaddr: u64) -> u64 {
        let Some(utask) = &mut self.utask else {
            return 0;
        };
        let before = utask.counted;
        if before != vaddr {
            utask.counted = vaddr;
        }
        before
    }

    #[inline]
    fn run_consumers(&mut self, uprobe: &'g Uprobe, vaddr: u64) {
        let Some(utask) = &mut self.utask else {
            return;
        };
        // For `is_uprobe_at_func_entry` (x86_64); nothing else looks at it.
        utask.c.auprobe = uprobe.as_raw().cast();
        let mut request = Request {
            utask,
            state: Requested::No,
        };
        let remove = dispatch_entry(
            uprobe.consumers.iter_rcu(self.rcu),
            self.regs,
            &mut request,
            |BadVerdict(rc)| {
                kernel::warn_on!(true);
                pr_warn!("uprobe: a handler returned {}\n", rc);
            },
        );
        let Request { utask, state } = request;
        utask.c.auprobe = ptr::null_mut();

        if let Requested::Yes(ri) = state {
            // SAFETY: the instance is ours and given up here.
            unsafe { returns::prepare(utask, self.state, uprobe, ri, vaddr, self.regs) };
        }
        if remove {
            unapply(uprobe, self.mm);
        }
    }

    #[inline]
    fn acquire_slot(&mut self, uprobe: &'g Uprobe, insn: &Insn) -> Result<u64, Errno> {
        let utask = self.utask.as_mut().ok_or(Errno::ENOMEM)?;
        acquire_slot(utask, self.mm, uprobe, insn, self.regs)
    }

    #[inline]
    fn release_slot(&mut self) {
        if let Some(utask) = &mut self.utask {
            end_step(utask, self.mm);
        }
    }

    #[inline]
    fn begin_step(&mut self, step: Step<Isa>) {
        if let Some(utask) = &mut self.utask {
            utask.stepping.step.write(step);
            utask.stepping.progress = Progress::Stepping;
        }
    }

    #[inline]
    fn signal(&mut self, signal: Signal) {
        send(signal, self.regs);
    }
}

/// A function has returned to the trap of the trampoline.
fn on_return(regs: &mut Regs, state: &MmState, rcu: &TasksTrace) {
    if let Some(trampoline) = returns::Trampoline::of(state) {
        returns::on_return(regs, &trampoline, rcu);
    }
}

/// Claims a slot for the current task, fills it and holds the uprobe.
fn acquire_slot(
    utask: &mut Utask,
    mm: *mut bindings::mm_struct,
    uprobe: &Uprobe,
    insn: &Insn,
    regs: &Regs,
) -> Result<u64, Errno> {
    // SAFETY: the current task's `mm` is valid.
    let state = unsafe { MmState::get_or_make(mm) }?;
    if utask.owner == 0 {
        utask.owner = state.xol.new_owner();
    }
    let (code, len) = Isa::xol_bytes(insn);
    let code = code.get(..len).ok_or(Errno::EINVAL)?;
    let (slot, vaddr) = state
        .xol
        .claim(utask.stepping.slot, utask.owner, code, regs)?;
    utask.stepping.slot = Some(slot);
    utask.stepping.held.lease(uprobe);
    utask.arm_timer();
    Ok(vaddr)
}

/// Gives up the slot and the uprobe of a step.
fn end_step(utask: &mut Utask, mm: *mut bindings::mm_struct) {
    utask.stepping.progress = Progress::Idle;
    utask.stepping.held.end();
    // SAFETY: the current task's `mm` is valid.
    if let (Some(slot), Some(state)) = (utask.stepping.slot, unsafe { MmState::get(mm) }) {
        state.xol.release(slot, utask.owner);
    }
}

/// Removes the breakpoints of `uprobe` from the current process, unless somebody wants them.
#[cold]
fn unapply(uprobe: &Uprobe, mm: *mut bindings::mm_struct) {
    let _registrations = FileLock::of(uprobe.inode()).read();
    if uprobe.consumers.any_wants(mm) {
        return;
    }
    let Some(mm) = NonNull::new(mm) else {
        return;
    };
    // SAFETY: the current task's `mm` stays.
    let lock = unsafe { MmapWrite::lock(mm) };
    // What cannot be removed now is hit again, and tried again.
    let _ = mm::remove_everywhere(uprobe, &lock);
}

/// Ends a step whose trap, fault or signal has come.
#[inline]
fn finish_step(utask: &mut Utask, end: StepEnd, regs: &mut Regs) {
    // SAFETY: the task is not idle, so a step was begun.
    let step = unsafe { utask.stepping.step.assume_init_mut() };
    let signal = match hit::on_step_end(step, end, regs, &mut Task::current()) {
        AfterStep::Continue => {
            utask.stepping.progress = Progress::Stepping;
            return;
        }
        AfterStep::Pause(signal) => {
            utask.counted = step.vaddr;
            Some(signal)
        }
        AfterStep::Over(signal) => signal,
    };
    end_step(utask, current_mm());
    if core::mem::take(&mut utask.stepping.signal_denied) {
        // SAFETY: an FFI call without further requirements.
        unsafe { c::uprobes_set_sigpending_flag() };
    }
    if let Some(signal) = signal {
        if signal == Signal::ForcedIll {
            pr_warn!("uprobe: an instruction could not be executed out of line\n");
        }
        send(signal, regs);
    }
}

/// Ends a step whose instruction is complete although its trap has not come: a system call that a
/// signal is about to end must not hold that signal back.
fn finish_early(utask: &mut Utask) -> bool {
    if utask.stepping.progress != Progress::Stepping {
        return false;
    }
    // SAFETY: the current task came from user space; a step was begun.
    let (regs, step) = unsafe {
        (
            &mut *c::uprobes_task_pt_regs(c::uprobes_current()).cast::<Regs>(),
            utask.stepping.step.assume_init_ref(),
        )
    };
    if !Isa::finish_early(&step.insn, regs, &step.state, step.vaddr, step.xol_vaddr) {
        return false;
    }
    Isa::forget_step(&mut Task::current(), &step.state);
    end_step(utask, current_mm());
    true
}

/// The child of a stepped system call starts behind the instruction, and is not stepped.
///
/// # Safety
///
/// `child` is valid and does not run yet; `regs` are its registers.
pub(crate) unsafe fn finish_step_of_child(
    parent: &Utask,
    child: *mut bindings::task_struct,
    regs: &mut Regs,
) {
    if parent.stepping.progress == Progress::Stepping {
        // SAFETY: a step was begun.
        let step = unsafe { parent.stepping.step.assume_init_ref() };
        if Isa::finish_early(&step.insn, regs, &step.state, step.vaddr, step.xol_vaddr) {
            // SAFETY: by contract.
            Isa::forget_step(&mut unsafe { Task::not_running(child) }, &step.state);
        }
    }
}

/// The current task returns to user space with `TIF_UPROBE` set.
///
/// # Safety
///
/// `regs` are those of the current task at the trap.
#[export]
pub(crate) unsafe extern "C" fn uprobe_notify_resume(regs: *mut bindings::pt_regs) {
    // SAFETY: an FFI call without further requirements.
    unsafe { c::uprobes_clear_uprobe_flag() };
    // SAFETY: by contract; `Regs` is laid out as `pt_regs` (see `layout`).
    let regs = unsafe { &mut *regs.cast::<Regs>() };

    if let Some(utask) = task::current() {
        match utask.stepping.progress {
            Progress::Idle | Progress::Stepping => (),
            Progress::Trapped => return finish_step(utask, StepEnd::Trapped, regs),
            Progress::Aborted => return finish_step(utask, StepEnd::Aborted, regs),
        }
    }
    handle_breakpoint(regs);
}

/// Handles a breakpoint trap of the current task.
///
/// The task's state is no argument: a system call that is made here may free it, and what an
/// argument refers to must live as long as the call.
///
/// # Context
///
/// Process context of the task, on its way between user space and back; no lock and no section is
/// held. May sleep.
#[cfg_attr(CONFIG_X86_64, inline(always))] // Elsewhere traps lead here in two ways.
#[cfg_attr(not(CONFIG_X86_64), inline(never))]
fn handle_breakpoint(regs: &mut Regs) {
    let mut utask = task::current();
    abandon_step(&mut utask);
    let rcu = TasksTrace::enter();
    let mm = current_mm();
    let after = hit::on_breakpoint(&mut Current {
        regs,
        task: &mut Task::current(),
        mm,
        // SAFETY: the current task's `mm` is valid.
        state: unsafe { MmState::get(mm) },
        utask,
        rcu: &rcu,
    });
    drop(rcu);
    if after == AfterHit::SystemCall {
        isa::system_call(regs);
    }
}

/// Whether a breakpoint trap of the current task may be ours.
#[inline]
fn may_be_ours() -> bool {
    let mm = current_mm();
    !mm.is_null()
        && (mm::has_uprobes(mm) || task::current().is_some_and(|utask| utask.has_returns()))
}

/// A breakpoint trap of the current task; answers whether it may be ours. If so it is handled when
/// the task returns to user space.
///
/// # Context
///
/// Exception context, interrupts off or on.
#[inline]
pub(crate) fn on_trap() -> bool {
    let ours = may_be_ours();
    if ours {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_set_uprobe_flag(c::uprobes_current()) };
    }
    ours
}

/// A breakpoint trap of the current task where the trap's handler may sleep; answers whether it was
/// ours. It is handled at once, which spares the task the detour over the work before it returns
/// to user space.
///
/// # Context
///
/// Process context of the task, interrupts on; no lock and no section is held. May sleep.
#[cfg(not(CONFIG_X86_64))]
#[inline]
pub(crate) fn on_sleepable_trap(regs: &mut Regs) -> bool {
    let ours = may_be_ours();
    if ours {
        handle_breakpoint(regs);
    }
    ours
}

/// Ends the step of an instruction that has gone elsewhere without a trap (`rt_sigreturn`), and hit
/// a breakpoint there.
#[inline]
fn abandon_step(utask: &mut Option<&mut Utask>) {
    let Some(utask) = utask else {
        return;
    };
    if utask.stepping.progress == Progress::Stepping {
        // SAFETY: a step was begun.
        let step = unsafe { utask.stepping.step.assume_init_ref() };
        Isa::forget_step(&mut Task::current(), &step.state);
        end_step(utask, current_mm());
    }
}

/// Whether the current task runs a copy of an instruction.
#[cfg(CONFIG_RISCV)]
pub(crate) fn is_stepping() -> bool {
    task::current().is_some_and(|utask| utask.stepping.progress == Progress::Stepping)
}

/// A single-step trap of the current task; answers whether it is ours.
///
/// # Context
///
/// Exception context, interrupts off or on.
pub(crate) fn on_step_trap() -> bool {
    let Some(utask) = task::current() else {
        return false;
    };
    if utask.stepping.progress != Progress::Stepping {
        return false;
    }
    utask.stepping.progress = Progress::Trapped;
    // SAFETY: the current task is valid.
    unsafe { c::uprobes_set_uprobe_flag(c::uprobes_current()) };
    true
}

/// A signal is about to be delivered; answers whether it must wait for the end of a step.
///
/// # Context
///
/// Process context, on the way back to user space.
#[export]
pub(crate) extern "C" fn uprobe_deny_signal() -> bool {
    let Some(utask) = task::current() else {
        return false;
    };
    if utask.stepping.progress == Progress::Idle {
        return false;
    }
    if finish_early(utask) {
        return false;
    }
    // SAFETY: the current task is valid.
    unsafe {
        let current = c::uprobes_current();
        if c::uprobes_task_sigpending(current) {
            utask.stepping.signal_denied = true;
            c::uprobes_clear_sigpending_flag(current);
            let task = Task::current();
            let trapped = Isa::xol_was_trapped(&task);
            if trapped {
                let step = utask.stepping.step.assume_init_ref();
                let (slot, vaddr) = (step.xol_vaddr, step.vaddr);
                // What is told of the instruction in the slot is about the program's.
                signals::pending_faults(|faults| {
                    faults.for_each(|mut fault| fault.relocate(slot, vaddr));
                });
                if Isa::xol_was_stopped(&task) {
                    utask.counted = vaddr;
                }
            }
            if c::uprobes_fatal_signal_pending(current) || trapped {
                // The instruction has to start over at its own address, where a core dump and the
                // handler of its fault expect it.
                utask.stepping.progress = Progress::Aborted;
                c::uprobes_set_uprobe_flag(current);
            }
        }
    }
    true
}

/// Address of the instruction that a trap report is about: that of a stepped instruction is where
/// the program has it, not where its slot is.
///
/// # Safety
///
/// `regs` are those of the current task.
#[export]
pub(crate) unsafe extern "C" fn uprobe_get_trap_addr(regs: *mut bindings::pt_regs) -> c_ulong {
    if let Some(utask) = task::current() {
        if utask.stepping.progress != Progress::Idle {
            // SAFETY: a step was begun.
            return unsafe { utask.stepping.step.assume_init_ref() }.vaddr as c_ulong;
        }
    }
    // SAFETY: by contract.
    Isa::ip(unsafe { &*regs.cast::<Regs>() }) as c_ulong
}
