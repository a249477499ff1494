// SPDX-License-Identifier: GPL-2.0

//! The path of a hit.
//!
//! ```text
//!   breakpoint ──> on_breakpoint ──┬─ trampoline ──────> a pending return
//!                                  ├─ no uprobe ───────> SIGTRAP, or run the address again
//!                                  └─ uprobe: handlers ─┬─ a handler moved the ip: done
//!                                                       ├─ simulated: done
//!                                                       └─ start_step: slot, single-step
//!                                                              │
//!   step trap, signal or fault ──> on_step_end <───────────────┘
//! ```
//!
//! Both functions run in process context on the way back to user space and may sleep.

#![forbid(unsafe_code)]

use crate::arch::{Arch, Simulated, Stepped, UserTask};
use crate::errno::Errno;

/// What was found at the address of a breakpoint trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<U> {
    /// A uprobe.
    Uprobe(U),
    /// No uprobe, but the memory holds a breakpoint: it is somebody else's.
    ForeignTrap,
    /// No uprobe and no breakpoint any more, or no such memory.
    Nothing,
}

/// A signal that the subsystem sends to the probed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTRAP that cannot be blocked or ignored, for a breakpoint that is not ours.
    ForcedTrap,
    /// SIGTRAP of a single-stepped program.
    Trap,
    /// SIGILL that cannot be blocked or ignored.
    ForcedIll,
}

/// The current task during a hit: the kernel, or a model of it on the host.
pub trait Hit {
    /// The instruction set.
    type A: Arch;
    /// User memory and per-task state.
    type Task: UserTask;
    /// A uprobe that stays valid while the hit is handled.
    type Uprobe: Copy;

    /// Registers at the trap and access to the task.
    fn parts(&mut self) -> (&mut <Self::A as Arch>::Regs, &mut Self::Task);
    /// Address of the return trampoline of this process, if it has one.
    fn trampoline(&self) -> Option<u64>;
    /// Handles a return through the trampoline.
    fn on_return(&mut self);
    /// Looks up what is at `vaddr`.
    fn find(&mut self, vaddr: u64) -> Found<Self::Uprobe>;
    /// The analysed instruction, or [`None`] while that is still to be done.
    fn insn(&self, uprobe: Self::Uprobe) -> Option<<Self::A as Arch>::Insn>;
    /// Makes sure that the task has what handlers need; fails for want of memory.
    fn ensure_task_state(&mut self) -> bool;
    /// Calls the consumers.
    fn run_consumers(&mut self, uprobe: Self::Uprobe, vaddr: u64);
    /// Takes a slot, fills it and holds the uprobe until the step ends; answers the slot's
    /// address.
    fn acquire_slot(
        &mut self,
        uprobe: Self::Uprobe,
        insn: &<Self::A as Arch>::Insn,
    ) -> Result<u64, Errno>;
    /// Gives up what [`Hit::acquire_slot`] took.
    fn release_slot(&mut self);
    /// Notes that the step of `insn` has begun.
    fn begin_step(&mut self, step: Step<Self::A>);
    /// Sends a signal to the task.
    fn signal(&mut self, signal: Signal);
}

/// A single-step under way.
pub struct Step<A: Arch> {
    /// The instruction in the slot.
    pub insn: A::Insn,
    /// Where it belongs.
    pub vaddr: u64,
    /// Where it runs.
    pub xol_vaddr: u64,
    /// What the backend keeps.
    pub state: A::StepState,
}

impl<A: Arch> Clone for Step<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Arch> Copy for Step<A> {}

/// Handles a breakpoint trap of the current task.
///
/// # Context
///
/// Inside an RCU Tasks Trace section, entered before anything was looked up.
#[inline]
pub fn on_breakpoint<H: Hit>(hit: &mut H) {
    let vaddr = H::A::swbp_addr(hit.parts().0);
    if hit.trampoline() == Some(vaddr) {
        hit.on_return();
        return;
    }

    let uprobe = match hit.find(vaddr) {
        Found::Uprobe(uprobe) => uprobe,
        Found::ForeignTrap => {
            hit.signal(Signal::ForcedTrap);
            return;
        }
        Found::Nothing => {
            // The breakpoint went away between the trap and here, or the memory did: run what is
            // there now, or take the fault that is due.
            H::A::set_ip(hit.parts().0, vaddr);
            return;
        }
    };

    // Handlers see the probed address, and an early return runs it again.
    H::A::set_ip(hit.parts().0, vaddr);
    let Some(insn) = hit.insn(uprobe) else {
        return;
    };
    if !hit.ensure_task_state() || H::A::ignore(&insn, hit.parts().0) {
        return;
    }

    hit.run_consumers(uprobe, vaddr);

    let (regs, task) = hit.parts();
    if H::A::ip(regs) != vaddr {
        return;
    }
    match H::A::simulate(&insn, regs, task) {
        Simulated::Done => {
            if H::A::is_single_stepped(regs) {
                hit.signal(Signal::Trap);
            }
        }
        Simulated::OutOfLine => start_step(hit, uprobe, insn, vaddr),
    }
}

/// Points the task at a copy of the instruction. On failure the task hits the breakpoint again.
fn start_step<H: Hit>(
    hit: &mut H,
    uprobe: H::Uprobe,
    insn: <H::A as Arch>::Insn,
    vaddr: u64,
) {
    let Ok(xol_vaddr) = hit.acquire_slot(uprobe, &insn) else {
        return;
    };
    let (regs, task) = hit.parts();
    match H::A::pre_xol(&insn, regs, task, vaddr, xol_vaddr) {
        Ok(state) => hit.begin_step(Step {
            insn,
            vaddr,
            xol_vaddr,
            state,
        }),
        Err(_) => hit.release_slot(),
    }
}

/// Why a step is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// The hardware trapped after the instruction.
    Trapped,
    /// The instruction took a fault, or the task is being killed.
    Aborted,
}

/// What follows from the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStep {
    /// The step is over; send the signal if there is one.
    Over(Option<Signal>),
    /// The instruction is not complete; the task goes on in its slot.
    Continue,
}

/// Repairs the registers at the end of a step.
///
/// The caller releases the slot and the uprobe afterwards, unless told to continue.
pub fn on_step_end<A: Arch, T: UserTask>(
    step: &mut Step<A>,
    end: StepEnd,
    regs: &mut A::Regs,
    task: &mut T,
) -> AfterStep {
    match end {
        StepEnd::Aborted => {
            A::abort_xol(&step.insn, regs, task, &step.state, step.vaddr);
            AfterStep::Over(None)
        }
        StepEnd::Trapped => {
            let (vaddr, xol_vaddr) = (step.vaddr, step.xol_vaddr);
            match A::post_xol(&step.insn, regs, task, &mut step.state, vaddr, xol_vaddr) {
                Ok(Stepped::Done { trap }) => AfterStep::Over(trap.then_some(Signal::Trap)),
                Ok(Stepped::Restart) => {
                    A::set_ip(regs, vaddr);
                    AfterStep::Over(None)
                }
                Ok(Stepped::Again) => AfterStep::Continue,
                Err(_) => {
                    A::set_ip(regs, vaddr);
                    AfterStep::Over(Some(Signal::ForcedIll))
                }
            }
        }
    }
}
