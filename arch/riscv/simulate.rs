// SPDX-License-Identifier: GPL-2.0

//! Instructions done by the kernel, without a step.

use uprobes_core::arch::{Simulated, UserTask};

use super::insn::{Alu, Cond, Insn, Sim, Width};
use super::regs::{PtRegs, X};

/// Does what `insn` does; see [`uprobes_core::arch::Arch::simulate`].
#[inline]
pub(super) fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
    if regs.is_landing() && !lands(insn, regs) {
        // The CPU has to raise its software check, with the instruction that was meant to run.
        return Simulated::OutOfLine;
    }
    match step(insn, regs, task) {
        Some(pc) => {
            regs.set_pc(pc);
            Simulated::Done
        }
        None => Simulated::OutOfLine,
    }
}

/// Whether an indirect branch may end at the instruction.
///
/// Unprivileged manual, "Landing Pad Instruction" (Zicfilp).
fn lands(insn: &Insn, regs: &PtRegs) -> bool {
    let Sim::Lpad { label } = insn.sim else {
        return false;
    };
    // CAST: the label is compared with bits 31 to 12.
    let expected = regs.x(X::T2) as u32 & 0xffff_f000;
    regs.pc() % 4 == 0 && (label == 0 || label == expected)
}

/// Changes everything but the program counter, and answers its new value.
#[inline]
fn step<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Option<u64> {
    let pc = regs.pc();
    let next = pc.wrapping_add(u64::from(insn.len));
    match insn.sim {
        Sim::None => return None,
        Sim::Lpad { .. } => {}
        Sim::Li { rd, imm } => regs.set_x(rd, extend(imm)),
        Sim::Auipc { rd, imm } => regs.set_x(rd, pc.wrapping_add(extend(imm))),
        Sim::Jal { rd, imm } => {
            regs.set_x(rd, next);
            return Some(pc.wrapping_add(extend(imm)));
        }
        Sim::Jalr { rd, rs1, imm } => {
            let target = regs.x(rs1).wrapping_add(extend(imm)) & !1;
            regs.set_x(rd, next);
            if !is_exempt(rs1) && task.requires_landing_pads(target) {
                regs.expect_landing_pad();
            }
            return Some(target);
        }
        Sim::Branch {
            cond,
            rs1,
            rs2,
            imm,
        } => {
            if holds(cond, regs.x(rs1), regs.x(rs2)) {
                return Some(pc.wrapping_add(extend(imm)));
            }
        }
        Sim::Load {
            width,
            rd,
            rs1,
            imm,
        } => {
            let addr = aligned(width, regs.x(rs1).wrapping_add(extend(imm)))?;
            let value = match width {
                // CAST: the sign is extended.
                Width::Word => extend(task.read_u32(addr).ok()? as i32),
                Width::WordUnsigned => u64::from(task.read_u32(addr).ok()?),
                Width::Double => task.read_u64(addr).ok()?,
            };
            regs.set_x(rd, value);
        }
        Sim::Store {
            width,
            rs2,
            rs1,
            imm,
        } => {
            let addr = aligned(width, regs.x(rs1).wrapping_add(extend(imm)))?;
            let value = regs.x(rs2);
            match width {
                Width::Double => task.write_u64(addr, value).ok()?,
                // CAST: the low half is what is stored.
                Width::Word | Width::WordUnsigned => task.write_u32(addr, value as u32).ok()?,
            }
        }
        Sim::AluImm { op, rd, rs1, imm } => regs.set_x(rd, alu(op, regs.x(rs1), extend(imm))),
        Sim::AluReg { op, rd, rs1, rs2 } => regs.set_x(rd, alu(op, regs.x(rs1), regs.x(rs2))),
    }
    Some(next)
}

/// Extends by the sign.
#[inline]
fn extend(imm: i32) -> u64 {
    // CAST: the two's complement is meant.
    i64::from(imm) as u64
}

/// Whether a branch through this register need not end at a landing pad: a return, or a branch
/// that software has made sure of.
///
/// Unprivileged manual, "Landing Pad Enforcement" (Zicfilp).
#[inline]
fn is_exempt(rs1: X) -> bool {
    matches!(rs1, X::RA | X::T0 | X::T2)
}

/// The address, if it is a multiple of the width: what comes of another is for the CPU, and for
/// what the program has asked for with `PR_SET_UNALIGN`.
#[inline]
fn aligned(width: Width, addr: u64) -> Option<u64> {
    let bytes = match width {
        Width::Word | Width::WordUnsigned => 4,
        Width::Double => 8,
    };
    (addr % bytes == 0).then_some(addr)
}

/// Whether a branch is taken.
#[inline]
fn holds(cond: Cond, a: u64, b: u64) -> bool {
    // CAST: the two's complement is meant.
    let signed = (a as i64, b as i64);
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Lt => signed.0 < signed.1,
        Cond::Ge => signed.0 >= signed.1,
        Cond::Ltu => a < b,
        Cond::Geu => a >= b,
    }
}

/// The result of an operation.
#[inline]
fn alu(op: Alu, a: u64, b: u64) -> u64 {
    // CAST: operations on 32 bits take the low halves; a shift takes the low bits of its distance;
    // where signs matter, the two's complement is meant.
    let (low_a, low_b, shift) = (a as u32, b as u32, b as u32);
    match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Sll => a.wrapping_shl(shift),
        Alu::Slt => u64::from((a as i64) < b as i64),
        Alu::Sltu => u64::from(a < b),
        Alu::Xor => a ^ b,
        Alu::Srl => a.wrapping_shr(shift),
        Alu::Sra => (a as i64).wrapping_shr(shift) as u64,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::AddW => extend(low_a.wrapping_add(low_b) as i32),
        Alu::SubW => extend(low_a.wrapping_sub(low_b) as i32),
        Alu::SllW => extend(low_a.wrapping_shl(shift) as i32),
        Alu::SrlW => extend(low_a.wrapping_shr(shift) as i32),
        Alu::SraW => extend((low_a as i32).wrapping_shr(shift)),
    }
}
