// SPDX-License-Identifier: GPL-2.0

//! Single-step of a copy of the instruction, out of line.

use uprobes_core::arch::{Fault, Stepped, UserTask};
use uprobes_core::errno::Errno;

use super::insn::{Fixup, Insn, Sim};
use super::regs::{flags, PtRegs, Reg};

/// Length of `syscall`.
const SYSCALL_LEN: u64 = 2;

/// Number of the last fault while no fault has happened since the step was armed; no trap has
/// this number.
const NO_FAULT: u64 = u32::MAX as u64;

/// What is kept from before a step until after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepState {
    /// Value of the scratch register.
    scratch: u64,
    /// The stack pointer before the step.
    sp: u64,
    /// Number of the last fault before the step.
    fault_code: u64,
    /// Whether the program had set the trace flag itself.
    tf: bool,
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
        sp: regs[Reg::Sp],
        fault_code: task.fault_code(),
        tf: regs.tf(),
    };
    if let Some(scratch) = insn.scratch {
        state.scratch = regs[scratch];
        regs[scratch] = next(insn, bp_vaddr);
    }
    regs[Reg::Ip] = xol_vaddr;
    regs[Reg::Flags] |= flags::TF;
    task.set_fault_code(NO_FAULT);
    task.suspend_block_step();
    state
}

/// Whether the copy took a fault of its own.
pub(super) fn was_trapped<T: UserTask>(task: &T) -> bool {
    task.fault_code() != NO_FAULT
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
    if insn.fixup == Fixup::Next && regs[Reg::Ip] == xol_vaddr && !state.tf {
        // A string instruction between two of its iterations; everything stays armed. Where the
        // program is being stepped, a trap is due for each iteration (`Stepped::Partial` below).
        return Ok(Stepped::Again);
    }
    task.set_fault_code(state.fault_code);
    if let Some(scratch) = insn.scratch {
        regs[scratch] = state.scratch;
    }
    let loaded_tf = match insn.fixup {
        Fixup::Popf => true,
        Fixup::Syscall => !is_after_syscall(regs, xol_vaddr),
        _ => false,
    };
    let outcome = if insn.fixup == Fixup::Next && regs[Reg::Ip] == xol_vaddr {
        Ok(Stepped::Partial)
    } else {
        fix_up(insn, regs, task, state, bp_vaddr, xol_vaddr)
    };
    if !matches!(outcome, Ok(Stepped::Done { .. })) {
        regs[Reg::Ip] = bp_vaddr;
    }
    if !state.tf && !loaded_tf {
        regs[Reg::Flags] &= !flags::TF;
    }
    outcome
}

/// Does what the kind of the instruction asks for.
fn fix_up<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
    xol_vaddr: u64,
) -> Result<Stepped, Errno> {
    let done = Ok(Stepped::Done { trap: state.tf });
    let after = regs.wrap(next(insn, bp_vaddr));
    match insn.fixup {
        Fixup::Next => regs[Reg::Ip] = step_end(insn, regs, bp_vaddr, xol_vaddr),
        Fixup::Relative | Fixup::Popf => {
            regs[Reg::Ip] = relocate(regs, bp_vaddr, xol_vaddr);
        }
        Fixup::Absolute => {}
        Fixup::Call => {
            if !mend_call(regs, task, state, after)? {
                return Ok(Stepped::Restart);
            }
        }
        Fixup::RelativeCall => {
            // Locked, it is no call and has faulted.
            let Sim::Call { rel } = insn.sim else {
                return Ok(Stepped::Restart);
            };
            if !mend_call(regs, task, state, after)? {
                return Ok(Stepped::Restart);
            }
            regs[Reg::Ip] = regs.wrap(after.wrapping_add_signed(rel.into()));
        }
        // The shadow stack holds the code segment beside the address: the hardware will find
        // them at odds with the stack when the call returns.
        Fixup::FarCall => {
            let size = pushed(regs, state) / 2;
            push_again(regs, task, size, after).map_err(|Fault| Errno::EFAULT)?;
        }
        Fixup::Syscall if is_after_syscall(regs, xol_vaddr) => {
            fix_syscall(insn, regs, state, bp_vaddr, xol_vaddr);
            // A program that steps itself by the trace flag sees its trap one instruction later,
            // for which it stays set; a tracer's was sent on the way out of the system call.
            return Ok(Stepped::Done { trap: false });
        }
        // The system call has loaded all registers, and the trap is that of the flags among them.
        Fixup::Syscall => return Ok(Stepped::Done { trap: regs.tf() }),
        Fixup::Pushf => {
            regs[Reg::Ip] = step_end(insn, regs, bp_vaddr, xol_vaddr);
            let size = pushed(regs, state);
            if !state.tf && clear_pushed_tf(regs, task, size).is_err() {
                // The stack went away meanwhile: push once more, to fault.
                regs[Reg::Sp] = state.sp;
                return Ok(Stepped::Restart);
            }
        }
    }
    done
}

/// Address after the probed instruction, in 64 bits.
fn next(insn: &Insn, bp_vaddr: u64) -> u64 {
    bp_vaddr.wrapping_add(u64::from(insn.len))
}

/// The instruction pointer as if the step had happened at the probed address.
fn relocate(regs: &PtRegs, bp_vaddr: u64, xol_vaddr: u64) -> u64 {
    regs.wrap(regs[Reg::Ip].wrapping_sub(xol_vaddr).wrapping_add(bp_vaddr))
}

/// Like [`relocate`] for an instruction that goes on at the next one.
///
/// Where the kernel carried out the instruction in place of the CPU (`sgdt` and its like under
/// UMIP), the trap comes after the nop that follows in the slot.
fn step_end(insn: &Insn, regs: &PtRegs, bp_vaddr: u64, xol_vaddr: u64) -> u64 {
    let late = next(insn, xol_vaddr).wrapping_add(1);
    if regs[Reg::Ip] == regs.wrap(late) {
        regs.wrap(next(insn, bp_vaddr))
    } else {
        relocate(regs, bp_vaddr, xol_vaddr)
    }
}

/// Bytes that the instruction has pushed.
///
/// Seen from the stack pointer rather than from the prefixes, on whose meaning CPUs disagree: in
/// 64-bit code, an operand size prefix makes a near call push two bytes on AMD, eight on Intel.
fn pushed(regs: &PtRegs, state: &StepState) -> u64 {
    regs.wrap(state.sp.wrapping_sub(regs[Reg::Sp]))
}

/// Puts the right return address in place of the one in the slot.
fn push_again<T: UserTask>(
    regs: &PtRegs,
    task: &mut T,
    size: u64,
    after: u64,
) -> Result<(), Fault> {
    let sp = regs[Reg::Sp];
    let [b0, b1, ..] = after.to_le_bytes();
    match size {
        8 => task.write_u64(sp, after),
        // CAST: the low half is what the instruction pushes.
        4 => task.write_u32(sp, after as u32),
        _ => task.write(sp, &[b0, b1]),
    }
}

/// Puts the right return address of a near call on both stacks.
///
/// Answers whether that was possible; if not, the call is undone.
fn mend_call<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    after: u64,
) -> Result<bool, Errno> {
    let mended = if push_again(regs, task, pushed(regs, state), after).is_ok() {
        task.shadow_replace_top(after).map(|()| true)
    } else {
        // Another thread has taken the stack away: pop, to fault when the call is made again.
        regs[Reg::Sp] = state.sp;
        task.shadow_pop().map(|_| false)
    };
    mended.map_err(|Fault| Errno::EFAULT)
}

/// Whether a system call of the slot has returned to it.
///
/// The kernel returns by `iret` with the trace flag set, so that the trap comes after the nop that
/// follows.
fn is_after_syscall(regs: &PtRegs, xol_vaddr: u64) -> bool {
    regs[Reg::Ip]
        .wrapping_sub(xol_vaddr)
        .wrapping_sub(SYSCALL_LEN)
        <= 1
}

/// Replaces the slot's address that `syscall` has left in the instruction pointer and in rcx, and
/// the trace flag in r11.
fn fix_syscall(insn: &Insn, regs: &mut PtRegs, state: &StepState, bp_vaddr: u64, xol_vaddr: u64) {
    let after = next(insn, bp_vaddr);
    regs[Reg::Ip] = after;
    // Not if a tracer has replaced them.
    if regs[Reg::Cx] == xol_vaddr.wrapping_add(SYSCALL_LEN) {
        regs[Reg::Cx] = after;
        if !state.tf {
            regs[Reg::R11] &= !flags::TF;
        }
    }
}

/// Ends the step of a `syscall` that is on its way back to user space, or that has put the task
/// elsewhere altogether, as `rt_sigreturn` does; see
/// [`finish_early`](uprobes_core::arch::Arch::finish_early).
pub(super) fn finish_early(
    insn: &Insn,
    regs: &mut PtRegs,
    state: &StepState,
    bp_vaddr: u64,
    xol_vaddr: u64,
) -> bool {
    if insn.fixup != Fixup::Syscall || regs[Reg::Ip] == xol_vaddr {
        return false;
    }
    if is_after_syscall(regs, xol_vaddr) {
        fix_syscall(insn, regs, state, bp_vaddr, xol_vaddr);
        if !state.tf {
            regs[Reg::Flags] &= !flags::TF;
        }
    }
    true
}

/// Clears the trace flag in the flags that `pushf` has just pushed.
fn clear_pushed_tf<T: UserTask>(regs: &PtRegs, task: &mut T, size: u64) -> Result<(), Fault> {
    let sp = regs[Reg::Sp];
    match size {
        8 => task
            .read_u64(sp)
            .and_then(|v| task.write_u64(sp, v & !flags::TF)),
        4 => {
            let v = u64::from(task.read_u32(sp)?) & !flags::TF;
            // CAST: came from 32 bits.
            task.write_u32(sp, v as u32)
        }
        _ => {
            // The trace flag is bit 0 of the second byte.
            let mut b = [0; 2];
            task.read(sp, &mut b)?;
            let [low, high] = b;
            task.write(sp, &[low, high & !1])
        }
    }
}

/// What a step that is over has changed of the task only.
pub(super) fn forget<T: UserTask>(task: &mut T, state: &StepState) {
    task.set_fault_code(state.fault_code);
}

/// Makes the registers look as if the step had not been started.
pub(super) fn abort<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    state: &StepState,
    bp_vaddr: u64,
) {
    if let Some(scratch) = insn.scratch {
        regs[scratch] = state.scratch;
    }
    task.set_fault_code(state.fault_code);
    regs[Reg::Ip] = bp_vaddr;
    if !state.tf {
        regs[Reg::Flags] &= !flags::TF;
    }
}
