// SPDX-License-Identifier: GPL-2.0

//! Single-step of a copy of the instruction, out of line.
//!
//! The page of the slots requires landing pads wherever the CPU knows them, so that a branch that
//! has gone astray faults in the slot as it would have at its target. Where the probed page
//! requires none, the copy starts as if no branch had led to it.

use uprobes_core::arch::{Simulated, Stepped, UserTask};
use uprobes_core::errno::Errno;

use super::decode::{Indirect, INSN_BYTES};
use super::insn::{Fixup, Insn};
use super::regs::{btype, pstate, PtRegs, LINK};
use super::simulate;

/// How far in the slot a branch goes that is taken.
pub(super) const TAKEN: u64 = 8;

/// Number of the last fault while no fault has happened since the step was armed; no syndrome
/// that the kernel keeps has this value.
const NO_FAULT: u64 = u32::MAX as u64;

/// What is kept from before a step until after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepState {
    /// Value of the scratch register.
    scratch: u64,
    /// Flags and state before the step.
    pstate: u64,
    /// Syndrome of the last fault before the step.
    fault_code: u64,
    /// Whether the program was being single-stepped.
    stepped: bool,
}

/// Points the registers at the copy and arms the step.
pub(super) fn pre<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    bp_vaddr: u64,
    xol_vaddr: u64,
) -> StepState {
    let mut state = StepState {
        scratch: 0,
        pstate: regs.pstate,
        fault_code: task.fault_code(),
        stepped: task.is_single_stepped(),
    };
    if let Fixup::Scratch { scratch, offset } = insn.fixup {
        state.scratch = regs.x(scratch);
        regs.set_x(scratch, bp_vaddr.wrapping_add_signed(offset.into()));
    }
    if regs.btype() != btype::NONE && !task.requires_landing_pads(bp_vaddr) {
        regs.set_btype(btype::NONE);
    }
    regs.pc = xol_vaddr;
    regs.pstate |= pstate::SS;
    task.set_single_step(true);
    task.set_fault_code(NO_FAULT);
    state
}

/// Lets a single-step that is on trap before the next instruction rather than after it: the state
/// "active and pending" of the debug unit (D2, "Software Step exceptions").
pub(super) fn trap_at_once<T: UserTask>(regs: &mut PtRegs, task: &T) {
    if task.traps_next() {
        regs.pstate &= !pstate::SS;
    }
}

/// Whether the copy took a fault of its own.
///
/// The kernel keeps the syndromes of most faults. Those of trapped floating-point exceptions and of
/// watchpoints show by their signals only; a watchpoint comes before the access (D2, "Watchpoint
/// exceptions").
pub(super) fn was_trapped<T: UserTask>(task: &T) -> bool {
    task.fault_code() != NO_FAULT || task.has_pending_fault()
}

/// Whether a watchpoint has stopped the copy.
pub(super) fn was_stopped<T: UserTask>(task: &T) -> bool {
    task.fault_code() == NO_FAULT && task.has_pending_trap()
}

/// Takes back what [`pre`] has done for the sake of the step, but for the program counter.
fn disarm<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T, state: &StepState) {
    if let Fixup::Scratch { scratch, .. } = insn.fixup {
        regs.set_x(scratch, state.scratch);
    }
    // Set, it lets a program that is stepped run the next instruction before the next trap.
    regs.pstate = regs.pstate & !pstate::SS | state.pstate & pstate::SS;
    forget(task, state);
}

/// Takes back what [`pre`] has changed of the task.
pub(super) fn forget<T: UserTask>(task: &mut T, state: &StepState) {
    if task.fault_code() == NO_FAULT {
        task.set_fault_code(state.fault_code);
    }
    if !state.stepped {
        task.set_single_step(false);
    }
}

/// Repairs the registers after a step.
pub(super) fn post<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
    xol_vaddr: u64,
) -> Result<Stepped, Errno> {
    disarm(insn, regs, task, state);
    // The trap of a tracer is raised by the hardware, before the next instruction.
    trap_at_once(regs, task);
    let done = Ok(Stepped::Done { trap: false });
    let next = bp_vaddr.wrapping_add(INSN_BYTES as u64);
    let went = regs.pc.wrapping_sub(xol_vaddr);
    match insn.fixup {
        Fixup::Next | Fixup::Scratch { .. } => relocate(regs, went, next),
        Fixup::Relative { offset, link } => {
            if link {
                mend_link(regs, task, next)?;
            }
            if went == TAKEN {
                regs.pc = bp_vaddr.wrapping_add_signed(offset.into());
            } else {
                relocate(regs, went, next);
            }
        }
        Fixup::Absolute { kind } => {
            if kind == Indirect::Call {
                mend_link(regs, task, next)?;
            }
            if regs.btype() == btype::JUMP && !task.requires_landing_pads(bp_vaddr) {
                // The slot requires landing pads, the probed code does not.
                regs.set_btype(btype::ANY_JUMP);
            }
        }
        Fixup::Simulate => {
            regs.pc = bp_vaddr;
            regs.set_btype(btype::NONE);
            if simulate::simulate(insn, regs, task) != Simulated::Done {
                regs.pc = bp_vaddr;
                return Ok(Stepped::Restart);
            }
        }
    }
    done
}

/// Lets the program go on behind the instruction if the step ended behind its copy. It may have
/// ended elsewhere if a debugger has moved the program counter.
fn relocate(regs: &mut PtRegs, went: u64, next: u64) {
    if went == INSN_BYTES as u64 {
        regs.pc = next;
    }
}

/// Puts the right return address of a call in place of the one in the slot, in the link register
/// and on the guarded control stack.
fn mend_link<T: UserTask>(regs: &mut PtRegs, task: &mut T, next: u64) -> Result<(), Errno> {
    regs.set_x(LINK, next);
    if task.shadow_stack_enabled() {
        return task.shadow_replace_top(next).map_err(|_| Errno::EFAULT);
    }
    Ok(())
}

/// Makes the registers look as if the step had not been started.
pub(super) fn abort<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
) {
    disarm(insn, regs, task, state);
    regs.pc = bp_vaddr;
    regs.pstate = regs.pstate & !pstate::BTYPE | state.pstate & pstate::BTYPE;
}
