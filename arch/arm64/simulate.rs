// SPDX-License-Identifier: GPL-2.0

//! Instructions done by the kernel, without a step.

use uprobes_core::arch::{Simulated, UserTask};

use super::decode::{Indirect, Writeback, INSN_BYTES};
use super::insn::{Insn, LiteralSize, Sim};
use super::regs::{btype, pstate, PtRegs, LINK};
use super::xol;

/// Bytes of a page, no larger than those of any kernel.
const SMALLEST_PAGE: u64 = 4096;

/// Does what `insn` does; see [`uprobes_core::arch::Arch::simulate`].
#[inline(always)]
pub(super) fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
    let from = regs.btype();
    if from != btype::NONE && insn.pad >> from & 1 == 0 && is_astray(regs, task) {
        return Simulated::OutOfLine;
    }
    match step(insn, regs, task) {
        Some((pc, btype)) => {
            regs.pc = pc;
            regs.set_btype(btype);
            if insn.sim == Sim::SystemCall {
                xol::trap_at_once(regs, task);
                return Simulated::SystemCall;
            }
            Simulated::Done
        }
        None => Simulated::OutOfLine,
    }
}

/// Whether the branch that led here must fault, for there is no landing pad where one is required
/// (D8, "Branch Target Identification").
#[inline]
fn is_astray<T: UserTask>(regs: &PtRegs, task: &mut T) -> bool {
    task.requires_landing_pads(regs.pc)
}

/// Changes everything but the program counter, and answers its new value and the kind of branch
/// that led there.
#[inline(always)]
fn step<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Option<(u64, u8)> {
    let pc = regs.pc;
    let next = pc.wrapping_add(INSN_BYTES as u64);
    let taken = |offset: i32| pc.wrapping_add_signed(offset.into());
    let branch_if = |condition: bool, offset| if condition { taken(offset) } else { next };
    let target = match insn.sim {
        Sim::None => return None,
        Sim::Nop | Sim::SystemCall => next,
        Sim::Branch { link, offset } => {
            if link {
                call(regs, task, next)?;
            }
            taken(offset)
        }
        Sim::BranchIf { cond, offset } => branch_if(holds(cond, regs.pstate), offset),
        Sim::BranchIfZero {
            not,
            wide,
            rt,
            offset,
        } => branch_if((cut(regs.x(rt), wide) == 0) != not, offset),
        Sim::BranchIfBit {
            set,
            rt,
            bit,
            offset,
        } => branch_if((regs.x(rt) >> (bit & 63) & 1 != 0) == set, offset),
        Sim::BranchRegister { kind, rn } => return indirect(regs, task, kind, rn),
        Sim::Address { page, rd, offset } => {
            let value = if page {
                // ADRP (C6.2): its pages have 4 KiB, whatever those of the kernel have.
                (pc & !0xfff).wrapping_add_signed(i64::from(offset) << 12)
            } else {
                taken(offset)
            };
            regs.set_x(rd, value);
            next
        }
        Sim::Literal { size, rt, offset } => {
            let at = taken(offset);
            let value = match size {
                LiteralSize::Word => task.read_u32(at).ok()?.into(),
                LiteralSize::Double => task.read_u64(at).ok()?,
                // CAST: extended by the sign.
                LiteralSize::SignedWord => i64::from(task.read_u32(at).ok()? as i32) as u64,
            };
            regs.set_x(rt, value);
            next
        }
        Sim::StackPair {
            load,
            rt,
            rt2,
            offset,
            writeback,
        } => {
            stack_pair(regs, task, load, (rt, rt2), offset, writeback)?;
            next
        }
        Sim::AddConstant {
            sub,
            wide,
            rd,
            rn,
            constant,
        } => {
            let (left, right) = (regs.x_or_sp(rn), u64::from(constant));
            let value = if sub {
                left.wrapping_sub(right)
            } else {
                left.wrapping_add(right)
            };
            regs.set_x_or_sp(rd, cut(value, wide));
            next
        }
    };
    Some((target, btype::NONE))
}

/// Cuts a value to its operand size.
#[inline]
fn cut(value: u64, wide: bool) -> u64 {
    if wide {
        value
    } else {
        value & 0xffff_ffff
    }
}

/// Whether a condition holds (C1.2, "Condition code").
#[inline]
fn holds(cond: u8, flags: u64) -> bool {
    let set = |mask: u64| flags & mask != 0;
    let signs_agree = set(pstate::N) == set(pstate::V);
    let holds = match cond >> 1 & 7 {
        0 => set(pstate::Z),
        1 => set(pstate::C),
        2 => set(pstate::N),
        3 => set(pstate::V),
        4 => set(pstate::C) && !set(pstate::Z),
        5 => signs_agree,
        6 => signs_agree && !set(pstate::Z),
        // "Always", and so is its opposite.
        _ => return true,
    };
    holds != (cond & 1 != 0)
}

/// Puts a return address into the link register and on the guarded control stack.
#[inline]
fn call<T: UserTask>(regs: &mut PtRegs, task: &mut T, next: u64) -> Option<()> {
    if task.shadow_stack_enabled() {
        task.shadow_push(next).ok()?;
    }
    regs.set_x(LINK, next);
    Some(())
}

/// BR, BLR, RET (C6.2). Where register and guarded control stack disagree
/// on a return address, the hardware must raise its exception.
#[inline]
fn indirect<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    kind: Indirect,
    rn: u8,
) -> Option<(u64, u8)> {
    let target = regs.x(rn);
    let btype = match kind {
        Indirect::Jump if matches!(rn, 16 | 17) => btype::ANY_JUMP,
        Indirect::Jump if !task.knows_landing_pads() => btype::NONE,
        Indirect::Jump if task.requires_landing_pads(regs.pc) => btype::JUMP,
        Indirect::Jump => btype::ANY_JUMP,
        Indirect::Call => {
            call(regs, task, regs.pc.wrapping_add(INSN_BYTES as u64))?;
            btype::CALL
        }
        Indirect::Return => {
            if task.shadow_stack_enabled() {
                let guarded = task.shadow_pop().ok()?;
                if let Some(guarded) = guarded.filter(|&guarded| guarded != target) {
                    task.shadow_push(guarded).ok()?;
                    return None;
                }
            }
            btype::NONE
        }
    };
    let known = btype != btype::NONE && task.knows_landing_pads();
    Some((target, if known { btype } else { btype::NONE }))
}

/// LDP, STP with the stack pointer as base (C6.2).
#[inline]
fn stack_pair<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    load: bool,
    (rt, rt2): (u8, u8),
    offset: i16,
    writeback: Writeback,
) -> Option<()> {
    let sp = regs.sp;
    let moved = sp.wrapping_add_signed(offset.into());
    let at = if writeback == Writeback::After {
        sp
    } else {
        moved
    };
    // A stack pointer that is not aligned faults (D1, "SP alignment checking"), and a pair in two
    // pages may do so half way.
    if sp % 16 != 0 || at % SMALLEST_PAGE > SMALLEST_PAGE - 16 {
        return None;
    }
    let second = at.wrapping_add(8);
    if load {
        let values = (task.read_u64(at).ok()?, task.read_u64(second).ok()?);
        regs.set_x(rt, values.0);
        regs.set_x(rt2, values.1);
    } else {
        task.write_u64(at, regs.x(rt)).ok()?;
        task.write_u64(second, regs.x(rt2)).ok()?;
    }
    if writeback != Writeback::None {
        regs.sp = moved;
    }
    Some(())
}
