// SPDX-License-Identifier: GPL-2.0

//! A copy of the instruction run out of line.
//!
//! There is no single-step on riscv: behind the copy is a breakpoint, whose trap ends the step.

use uprobes_core::arch::{UserTask, MAX_INSN_BYTES};

use super::insn::Insn;
use super::regs::PtRegs;
use super::{C_EBREAK, EBREAK};

/// `bad_cause` while no fault has happened since the step began; no exception has this number.
const NO_FAULT: u64 = u32::MAX as u64;

/// What is kept from before a step until after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepState {
    /// Cause of the last fault before the step.
    fault_code: u64,
}

/// The copy and the breakpoint behind it.
///
/// The breakpoint is as long as the instruction: where there is a compressed one, the CPU knows a
/// compressed breakpoint too.
pub(super) fn bytes(insn: &Insn) -> ([u8; MAX_INSN_BYTES], usize) {
    let mut bytes = [0; MAX_INSN_BYTES];
    let [b0, b1, b2, b3] = insn.raw.to_le_bytes();
    let copy = [b0, b1, b2, b3];
    let (copy, trap) = if insn.len == 2 {
        (&copy[..2], &C_EBREAK[..])
    } else {
        (&copy[..], &EBREAK[..])
    };
    for (to, from) in bytes.iter_mut().zip(copy.iter().chain(trap)) {
        *to = *from;
    }
    (bytes, 2 * usize::from(insn.len))
}

/// Points the registers at the copy.
pub(super) fn pre<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    bp_vaddr: u64,
    xol_vaddr: u64,
) -> StepState {
    let state = StepState {
        fault_code: task.fault_code(),
    };
    regs.set_pc(xol_vaddr);
    if regs.is_landing() {
        // The check that the breakpoint has kept the CPU from is made of the copy, and fails too
        // where the original has no alignment for it.
        regs.expect_landing_pad();
        regs.set_pc(xol_vaddr.wrapping_add(bp_vaddr % 4));
    }
    task.set_fault_code(NO_FAULT);
    state
}

/// Whether the copy took a fault of its own.
pub(super) fn was_trapped<T: UserTask>(task: &T) -> bool {
    task.fault_code() != NO_FAULT
}

/// Takes the program counter from behind the copy to behind the original.
///
/// Nothing that is stepped goes elsewhere, so another program counter is what a debugger has set
/// meanwhile.
pub(super) fn post<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
    xol_vaddr: u64,
) {
    task.set_fault_code(state.fault_code);
    let len = u64::from(insn.len);
    if regs.pc() == xol_vaddr.wrapping_add(len) {
        regs.set_pc(bp_vaddr.wrapping_add(len));
    }
}

/// Makes the registers look as if the step had not been started.
pub(super) fn abort<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
) {
    task.set_fault_code(state.fault_code);
    regs.set_pc(bp_vaddr);
}
