// SPDX-License-Identifier: GPL-2.0

//! Instructions done by the kernel, without a step.

use uprobes_core::arch::{Fault, Simulated, UserTask};

use super::insn::{Addr, Alu, Insn, Sim};
use super::regs::{flags, PtRegs, Reg};

/// Bits of the flags that `pushf` shows as zero.
const PUSHF_HIDDEN: u64 = flags::RF | flags::VM;

/// Does what `insn` does; see [`uprobes_core::arch::Arch::simulate`].
///
/// What most probes are on, in 64-bit code, is done on the spot; the rest is a call away.
#[inline(always)]
pub(super) fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
    if !insn.bits64 || !regs.is_64bit() {
        return simulate_any(insn, regs, task);
    }
    let next = regs[Reg::Ip].wrapping_add(u64::from(insn.len));
    match insn.sim {
        Sim::Nop => {}
        Sim::Push { src } => {
            let sp = regs[Reg::Sp].wrapping_sub(8);
            if task.write_u64(sp, regs[src]).is_err() {
                return Simulated::OutOfLine;
            }
            regs[Reg::Sp] = sp;
        }
        Sim::Ret { drop } if !task.shadow_stack_enabled() => {
            let sp = regs[Reg::Sp];
            let Some(target) = task.read_u64(sp).ok().and_then(user_address) else {
                return Simulated::OutOfLine;
            };
            regs[Reg::Sp] = sp.wrapping_add(8).wrapping_add(u64::from(drop));
            regs[Reg::Ip] = target;
            return Simulated::Done;
        }
        Sim::Mov {
            dst,
            src,
            wide: true,
        } => regs[dst] = regs[src],
        Sim::AluImm {
            op: Alu::Sub,
            dst,
            imm,
            wide: true,
        } => sub_wide(regs, dst, extend(imm)),
        _ => return simulate_any(insn, regs, task),
    }
    regs[Reg::Ip] = next;
    Simulated::Done
}

/// 64-bit `sub`.
#[inline]
fn sub_wide(regs: &mut PtRegs, dst: Reg, b: u64) {
    let a = regs[dst];
    let (r, borrow) = a.overflowing_sub(b);
    let bit = |set: bool, flag: u64| if set { flag } else { 0 };
    // CAST: the parity is that of the low byte.
    let parity = (r as u8).count_ones() & 1 == 0;
    let new = bit(borrow, flags::CF)
        | bit(parity, flags::PF)
        | (a ^ b ^ r) & flags::AF
        | bit(r == 0, flags::ZF)
        | r >> 63 << 7
        | ((a ^ b) & (a ^ r)) >> 63 << 11;
    let kept = regs[Reg::Flags] & !flags::STATUS;
    regs[Reg::Flags] = kept | new;
    regs[dst] = r;
}

/// As [`simulate`], every instruction in code of either width.
#[inline(never)]
fn simulate_any<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
    if insn.bits64 != regs.is_64bit() {
        return Simulated::OutOfLine;
    }
    match step(insn, regs, task) {
        Some(ip) => {
            regs[Reg::Ip] = ip;
            Simulated::Done
        }
        None => Simulated::OutOfLine,
    }
}

/// Changes everything but the instruction pointer, and answers its new value.
#[inline]
fn step<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Option<u64> {
    let next = regs.wrap(regs[Reg::Ip].wrapping_add(u64::from(insn.len)));
    match insn.sim {
        Sim::None => return None,
        Sim::Nop => {}
        Sim::Push { src } => push(regs, task, regs[src]).ok()?,
        Sim::PushImm { imm } => push(regs, task, extend(imm)).ok()?,
        Sim::Pop { dst } => {
            // The stack pointer moves first, so that `pop %rsp` leaves what it has popped.
            let value = pop(regs, task).ok()?;
            regs[dst] = value;
        }
        Sim::Ret { drop } => return ret(regs, task, drop),
        Sim::Jmp { rel } => return Some(branch(regs, next, rel)),
        Sim::Jcc { cc, rel } => {
            if condition(cc, regs[Reg::Flags]) {
                return Some(branch(regs, next, rel));
            }
        }
        Sim::Call { rel } => {
            call(regs, task, next).ok()?;
            return Some(branch(regs, next, rel));
        }
        Sim::JmpReg { src } => return user_address(regs[src]),
        Sim::CallReg { src } => {
            let target = user_address(regs[src])?;
            call(regs, task, next).ok()?;
            return Some(target);
        }
        Sim::Mov { dst, src, wide } => regs[dst] = cut(regs[src], wide),
        Sim::MovImm { dst, imm, wide } => regs[dst] = cut(extend(imm), wide),
        Sim::MovAbs { dst } => {
            let [_, _, b0, b1, b2, b3, b4, b5, b6, b7, ..] = insn.slot;
            regs[dst] = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        }
        Sim::Lea { dst, wide, addr } => regs[dst] = cut(address(regs, next, addr), wide),
        Sim::AluImm { op, dst, imm, wide } => alu(regs, op, dst, extend(imm), wide),
        Sim::AluReg { op, dst, src, wide } => alu(regs, op, dst, regs[src], wide),
        Sim::Leave => leave(regs, task).ok()?,
        Sim::Pushf => push(regs, task, regs[Reg::Flags] & !PUSHF_HIDDEN).ok()?,
        Sim::Xbegin { rel } => {
            // A transaction may abort for no reason, and software must cope.
            regs[Reg::Ax] = 0;
            return Some(branch(regs, next, rel));
        }
    }
    Some(next)
}

/// Extends by the sign.
#[inline]
fn extend(imm: i32) -> u64 {
    // CAST: the two's complement is meant.
    i64::from(imm) as u64
}

/// Cuts a result to its operand size; a 32-bit result clears the upper half of its register.
#[inline]
fn cut(value: u64, wide: bool) -> u64 {
    if wide {
        value
    } else {
        value & 0xffff_ffff
    }
}

/// Target of a relative branch.
#[inline]
fn branch(regs: &PtRegs, next: u64, rel: i32) -> u64 {
    regs.wrap(next.wrapping_add(extend(rel)))
}

/// The address, if user space can have it at any rate; others make a branch fault, and the
/// hardware is asked how.
#[inline]
fn user_address(addr: u64) -> Option<u64> {
    (addr >> 47 == 0).then_some(addr)
}

/// Pushes a word.
#[inline]
fn push<T: UserTask>(regs: &mut PtRegs, task: &mut T, value: u64) -> Result<(), Fault> {
    let sp = regs.wrap(regs[Reg::Sp].wrapping_sub(regs.word()));
    if regs.is_64bit() {
        task.write_u64(sp, value)?;
    } else {
        // CAST: the low half is what 32-bit code pushes.
        task.write_u32(sp, value as u32)?;
    }
    regs[Reg::Sp] = sp;
    Ok(())
}

/// Reads a word.
#[inline]
fn load<T: UserTask>(regs: &PtRegs, task: &mut T, addr: u64) -> Result<u64, Fault> {
    if regs.is_64bit() {
        task.read_u64(addr)
    } else {
        task.read_u32(addr).map(u64::from)
    }
}

/// Pops a word.
#[inline]
fn pop<T: UserTask>(regs: &mut PtRegs, task: &mut T) -> Result<u64, Fault> {
    let sp = regs[Reg::Sp];
    let value = load(regs, task, sp)?;
    regs[Reg::Sp] = regs.wrap(sp.wrapping_add(regs.word()));
    Ok(value)
}

/// Pushes the return address of a call, on the shadow stack as well.
#[inline]
fn call<T: UserTask>(regs: &mut PtRegs, task: &mut T, next: u64) -> Result<(), Fault> {
    task.shadow_push(next)?;
    push(regs, task, next).inspect_err(|_| {
        // What was just pushed can be popped.
        let _ = task.shadow_pop();
    })
}

/// Near return. Where stack and shadow stack disagree, the hardware must raise its exception.
#[inline]
fn ret<T: UserTask>(regs: &mut PtRegs, task: &mut T, drop: u16) -> Option<u64> {
    let sp = regs[Reg::Sp];
    let target = user_address(load(regs, task, sp).ok()?)?;
    if task.shadow_stack_enabled() {
        if let Some(shadow) = task.shadow_pop().ok()? {
            if shadow != target {
                task.shadow_push(shadow).ok()?;
                return None;
            }
        }
    }
    regs[Reg::Sp] = regs.wrap(sp.wrapping_add(regs.word()).wrapping_add(u64::from(drop)));
    Some(target)
}

/// `leave`.
#[inline]
fn leave<T: UserTask>(regs: &mut PtRegs, task: &mut T) -> Result<(), Fault> {
    let frame = regs.wrap(regs[Reg::Bp]);
    let value = load(regs, task, frame)?;
    regs[Reg::Sp] = regs.wrap(frame.wrapping_add(regs.word()));
    regs[Reg::Bp] = value;
    Ok(())
}

/// What `lea` computes.
#[inline]
fn address(regs: &PtRegs, next: u64, addr: Addr) -> u64 {
    let base = match addr.base {
        Some(Reg::Ip) => next,
        Some(base) => regs[base],
        None => 0,
    };
    let index = addr
        .index
        .map_or(0, |index| regs[index] << (addr.scale & 3));
    base.wrapping_add(index).wrapping_add(extend(addr.disp))
}

/// Whether a conditional jump with these low four bits of its opcode is taken.
#[inline]
fn condition(cc: u8, f: u64) -> bool {
    let set = |mask: u64| f & mask != 0;
    let less = set(flags::SF) != set(flags::OF);
    let holds = match cc >> 1 & 7 {
        0 => set(flags::OF),
        1 => set(flags::CF),
        2 => set(flags::ZF),
        3 => set(flags::CF | flags::ZF),
        4 => set(flags::SF),
        5 => set(flags::PF),
        6 => less,
        _ => less || set(flags::ZF),
    };
    holds != (cc & 1 != 0)
}

/// Arithmetic on a register, with its flags.
#[inline]
fn alu(regs: &mut PtRegs, op: Alu, dst: Reg, right: u64, wide: bool) {
    // Operands at the top of a word, so that carry, sign and overflow have one place.
    let shift = if wide { 0 } else { 32 };
    let (left, right) = (regs[dst], right);
    let (a, b) = (left << shift, right << shift);
    let (top, carry) = match op {
        Alu::Add => a.overflowing_add(b),
        Alu::Sub | Alu::Cmp => a.overflowing_sub(b),
        Alu::Or => (a | b, false),
        Alu::And | Alu::Test => (a & b, false),
        Alu::Xor => (a ^ b, false),
    };
    let overflow = match op {
        Alu::Add => (a ^ top) & (b ^ top),
        Alu::Sub | Alu::Cmp => (a ^ b) & (a ^ top),
        _ => 0,
    } >> 63
        != 0;
    let result = top >> shift;
    let adjust = match op {
        Alu::Add | Alu::Sub | Alu::Cmp => (left ^ right ^ result) & flags::AF,
        // Undefined by the manual; zero on every CPU.
        _ => 0,
    };
    // CAST: parity is that of the low byte.
    let parity = (result as u8).count_ones() & 1 == 0;
    let mut status = adjust;
    for (flag, set) in [
        (flags::CF, carry),
        (flags::PF, parity),
        (flags::ZF, top == 0),
        (flags::SF, top >> 63 != 0),
        (flags::OF, overflow),
    ] {
        status |= if set { flag } else { 0 };
    }
    regs[Reg::Flags] = (regs[Reg::Flags] & !flags::STATUS) | status;
    if !matches!(op, Alu::Cmp | Alu::Test) {
        regs[dst] = result;
    }
}
