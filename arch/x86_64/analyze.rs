// SPDX-License-Identifier: GPL-2.0

//! Which instructions can be probed, and how.
//!
//! An opcode byte says nothing without the table ([`Map`]) it belongs to: every question here is
//! asked of the two together.

use uprobes_core::arch::{Analysis, Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use super::decode::{Decode, Decoded, Field, Map};
use super::insn::{Addr, Alu, Fixup, Insn, Sim, MAX_LEN, NOP};
use super::regs::Reg;

/// `ud2` and `ud0`, there to fault.
///
/// The kernel's decoder may see in the former the start of a hypervisor's escape, with more to
/// come; on the length of the latter CPUs disagree.
const UNDEFINED: [[u8; 2]; 2] = [[0x0f, 0x0b], [0x0f, 0xff]];

/// Decides whether and how the instruction at the start of `bytes` can be probed.
pub(super) fn analyze<D: Decode>(
    bytes: &[u8; MAX_INSN_BYTES],
    bitness: Bitness,
) -> Result<Analysis<Insn>, Errno> {
    let bits64 = bitness == Bitness::Bits64;
    let [slot @ .., _] = *bytes;
    let mut insn = Insn {
        sim: Sim::None,
        slot,
        len: 2,
        fixup: Fixup::Next,
        scratch: None,
        bits64,
    };
    if !UNDEFINED.iter().any(|ud| bytes.starts_with(ud)) {
        let mut d = D::decode(bytes, bitness)?;
        add_missing_immediate(&mut d, bytes);
        if !(1..=MAX_LEN).contains(&usize::from(d.length)) {
            return Err(Errno::ENOEXEC);
        }
        refuse(&d, bits64)?;
        insn.len = d.length;
        insn.sim = simulation(&d, bits64);
        insn.fixup = fixup(&d);
        prepare_slot(&mut insn, &d, bitness)?;
    }
    let len = insn.len;
    // A step may end one instruction late (see `post_xol`): what follows must be harmless.
    insn.slot
        .iter_mut()
        .skip(usize::from(len))
        .for_each(|b| *b = NOP);
    Ok(Analysis {
        insn,
        len,
        simulated: insn.sim != Sim::None,
    })
}

/// Adds immediate bytes that the kernel's decoder has left out.
///
/// It does not know `extrq` and `insertq`, and it takes the last prefix for the one that selects
/// among instructions, be it a segment override behind the one that does.
fn add_missing_immediate(d: &mut Decoded, bytes: &[u8; MAX_INSN_BYTES]) {
    let missing = match (d.map(), d.opcode_byte()) {
        _ if d.immediate.is_present() || !d.modrm.is_present() => 0,
        (Map::TwoByte, 0x78) if d.has_prefix(0x66) || d.has_prefix(0xf2) => 2,
        (Map::TwoByte, 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6) => 1,
        (Map::ThreeByte, _) if d.opcode.bytes[1] == 0x3a => 1,
        _ => 0,
    };
    let [first, second, ..] = *bytes.get(d.immediate_offset()..).unwrap_or_default() else {
        return;
    };
    let byte = |byte: u8| Field {
        // CAST: extended by its sign.
        bytes: i32::from(byte as i8).to_le_bytes(),
        nbytes: 1,
    };
    if missing >= 1 {
        d.immediate = byte(first);
    }
    if missing == 2 {
        d.immediate2 = byte(second);
    }
    d.length = d.length.saturating_add(missing);
}

/// Whether the byte is a legacy prefix.
fn is_legacy_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// Refuses what cannot run out of line.
fn refuse(d: &Decoded, bits64: bool) -> Result<(), Errno> {
    if is_misread(d, bits64) {
        return Err(Errno::ENOEXEC);
    }
    let op = d.opcode_byte();
    let bad = match d.map() {
        Map::One => refuse_one_byte(d, op, bits64),
        // sysenter returns to an address of the kernel's choice, and so does syscall in 32-bit
        // code.
        Map::TwoByte => op == 0x34 || op == 0x05 && (!bits64 || d.rex2().is_some()),
        Map::ThreeByte | Map::Vector => false,
    };
    if bad || is_relative_branch(d) && is_16bit_branch(d) {
        return Err(Errno::ENOTSUPP);
    }
    Ok(())
}

/// Whether the kernel's decoder has taken for an instruction what is none, or part of one.
///
/// It answers with what it has got where a byte is not in its tables: prefixes beyond the fourth,
/// prefixes after REX, escapes after REX2, and instructions that have no meaning with the last of
/// their prefixes. Where such a one has a ModRM nevertheless, its length is wrong.
fn is_misread(d: &Decoded, bits64: bool) -> bool {
    let op = d.opcode_byte();
    match d.map() {
        Map::One => is_legacy_prefix(op) || op == 0x0f || bits64 && matches!(op, 0x40..=0x4f),
        Map::TwoByte => {
            // These have none, or fault whatever follows them.
            let without = matches!(
                op,
                0x04..=0x0c | 0x0e | 0x24..=0x27 | 0x30..=0x3f | 0x77 | 0x7a | 0x7b
                    | 0x80..=0x8f | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf
            );
            // Moves to and from control and debug registers have no memory form.
            let no_memory = matches!(op, 0x20..=0x23) && !d.is_register_form();
            !d.modrm.is_present() && !without || no_memory
        }
        Map::ThreeByte => !d.modrm.is_present(),
        Map::Vector => !d.modrm.is_present() && d.opcode_byte() != 0x77,
    }
}

/// Whether an instruction of the one-byte table is refused.
fn refuse_one_byte(d: &Decoded, op: u8, bits64: bool) -> bool {
    match op {
        // ins, outs, in, out, hlt, cli, sti: fault in user space, or act on the kernel's leave.
        0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef | 0xf4 | 0xfa | 0xfb => true,
        // int3, int, into, iret, int1: traps of their own, around which a step goes astray.
        0xcc..=0xcf | 0xf1 => true,
        // mov to ss and pop ss hold back the trap of the step.
        0x8e => d.group() == 2,
        0x17 => true,
        // Not instructions in 64-bit code.
        0x06
        | 0x07
        | 0x0e
        | 0x16
        | 0x1e
        | 0x1f
        | 0x27
        | 0x2f
        | 0x37
        | 0x3f
        | 0x60..=0x62
        | 0x82
        | 0x9a
        | 0xc4
        | 0xc5
        | 0xd4..=0xd6
        | 0xea => bits64,
        // REX2 admits none of these (jmpabs among them, which decoders disagree on).
        0x70..=0x7f | 0xa0..=0xaf | 0xe0..=0xe3 | 0xe8..=0xeb => d.rex2().is_some(),
        _ => false,
    }
}

/// Whether it is a branch with a displacement in the instruction.
fn is_relative_branch(d: &Decoded) -> bool {
    let op = d.opcode_byte();
    match d.map() {
        Map::One => matches!(op, 0x70..=0x7f | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb) || is_xbegin(d),
        Map::TwoByte => matches!(op, 0x80..=0x8f),
        _ => false,
    }
}

/// Whether it is `xbegin`.
fn is_xbegin(d: &Decoded) -> bool {
    d.map() == Map::One
        && d.opcode_byte() == 0xc7
        && d.modrm.is_present()
        && d.modrm.bytes[0] == 0xf8
}

/// Whether an operand size prefix makes a branch cut the instruction pointer to 16 bits (in
/// 64-bit code on AMD only, Intel ignores it there). REX.W overrides it.
fn is_16bit_branch(d: &Decoded) -> bool {
    d.has_prefix(0x66) && !d.w()
}

/// Finds out what must be put right after a step of the copy.
fn fixup(d: &Decoded) -> Fixup {
    let op = d.opcode_byte();
    match d.map() {
        Map::One => match (op, d.group()) {
            (0xe8, _) => Fixup::RelativeCall,
            (0xff, 2) => Fixup::Call,
            (0x9a, _) | (0xff, 3) => Fixup::FarCall,
            (0xff, 4 | 5) | (0xc2 | 0xc3 | 0xca | 0xcb | 0xea, _) => Fixup::Absolute,
            (0x9c, _) => Fixup::Pushf,
            (0x9d, _) => Fixup::Popf,
            _ if is_relative_branch(d) => Fixup::Relative,
            _ => Fixup::Next,
        },
        Map::TwoByte if op == 0x05 => Fixup::Syscall,
        Map::TwoByte if is_relative_branch(d) => Fixup::Relative,
        _ => Fixup::Next,
    }
}

/// Makes the copy fit for the slot.
fn prepare_slot(insn: &mut Insn, d: &Decoded, bitness: Bitness) -> Result<(), Errno> {
    if insn.fixup == Fixup::RelativeCall {
        // From the slot, the target may be no address that a call can go to. The copy calls what
        // is behind it, to push or to fault.
        let imm = d.immediate_offset();
        let bytes = imm..imm + usize::from(d.immediate.nbytes);
        insn.slot.get_mut(bytes).ok_or(Errno::ENOEXEC)?.fill(0);
    } else if d.is_rip_relative(bitness) {
        insn.scratch = Some(rewrite_rip_relative(&mut insn.slot, d)?);
    }
    Ok(())
}

/// Turns an operand relative to the instruction pointer into one relative to a scratch register,
/// and answers which.
///
/// Three candidates suffice: an instruction with a memory operand names at most two more general
/// registers, in ModRM.reg and in vvvv, and none of rsi, rdi and rbx is used implicitly by one
/// that has a ModRM with memory but rbx by `cmpxchg8b` and `cmpxchg16b`, which leave rsi free.
/// rax, rcx and rdx have many implicit users, rsp needs a longer encoding, and rbp would change
/// the segment.
fn rewrite_rip_relative(slot: &mut [u8; MAX_LEN], d: &Decoded) -> Result<Reg, Errno> {
    // Only the low three bits of each number are looked at, which errs on the safe side: some of
    // these are numbers of registers of another kind, or none.
    let reg = d.group();
    let vvvv = if d.vex.is_present() {
        !d.vex.bytes[2] >> 3 & 7
    } else {
        reg
    };
    let scratch = [6u8, 7, 3]
        .into_iter()
        .find(|&r| r != reg && r != vvvv)
        .ok_or(Errno::ENOTSUPP)?;

    // The scratch register has a low number: its extension bits must say so.
    let mut edit = |offset: usize, clear: u8, set: u8| -> Result<(), Errno> {
        let byte = slot.get_mut(offset).ok_or(Errno::ENOEXEC)?;
        *byte = *byte & !clear | set;
        Ok(())
    };
    match d.rex.nbytes {
        0 => {}
        1 => edit(d.rex_offset(), 0x01, 0)?,
        _ => edit(d.rex_offset() + 1, 0x11, 0)?,
    }
    match d.vex.nbytes {
        // Two-byte VEX has no such bits.
        0..=2 => {}
        // Inverted B of VEX and XOP.
        3 => edit(d.vex_offset() + 1, 0, 0x20)?,
        // Inverted B and X of EVEX; its B4 is not inverted, and invalid on most CPUs.
        _ if d.vex.bytes[1] & 0x08 != 0 => return Err(Errno::ENOTSUPP),
        _ => edit(d.vex_offset() + 1, 0, 0x60)?,
    }
    // From mod 0, rm 5 to mod 2, rm scratch; the displacement has four bytes in both.
    edit(d.modrm_offset(), 0xc7, 0x80 | scratch)?;
    Ok(Reg::gpr(scratch))
}

/// How the instruction is simulated.
fn simulation(d: &Decoded, bits64: bool) -> Sim {
    // Locked, none of those below is an instruction; REX2 exists on no CPU yet.
    if d.has_prefix(0xf0) || d.rex2().is_some() {
        return Sim::None;
    }
    match d.map() {
        Map::One => simulation_of_branch(d)
            .or_else(|| simulation_of_stack(d))
            .or_else(|| simulation_of_move(d, bits64))
            .or_else(|| simulation_of_alu(d))
            .unwrap_or(Sim::None),
        Map::TwoByte => simulation_of_two_byte(d),
        _ => Sim::None,
    }
}

/// Simulations of opcodes after 0F.
fn simulation_of_two_byte(d: &Decoded) -> Sim {
    let modrm = d.modrm.bytes[0];
    match d.opcode_byte() {
        // nop with an operand, which it does not touch.
        0x1f if d.group() == 0 => Sim::Nop,
        // endbr64, endbr32
        0x1e if d.has_prefix(0xf3) && matches!(modrm, 0xfa | 0xfb) => Sim::Nop,
        cc @ 0x80..=0x8f => Sim::Jcc {
            cc: cc & 15,
            rel: d.immediate.value(),
        },
        _ => Sim::None,
    }
}

/// Simulations of branches and nops with one-byte opcodes.
fn simulation_of_branch(d: &Decoded) -> Option<Sim> {
    let rel = d.immediate.value();
    let plain = !is_16bit_branch(d);
    Some(match d.opcode_byte() {
        // nop and pause, but not xchg with r8.
        0x90 if d.rex_bits() & 1 == 0 => Sim::Nop,
        cc @ 0x70..=0x7f => Sim::Jcc { cc: cc & 15, rel },
        0xe9 | 0xeb => Sim::Jmp { rel },
        0xe8 => Sim::Call { rel },
        0xc3 if plain => Sim::Ret { drop: 0 },
        // CAST: the field was extended by its sign, its 16 bits are meant.
        0xc2 if plain => Sim::Ret { drop: rel as u16 },
        0xff if plain && d.is_register_form() => {
            let src = Reg::gpr(d.modrm_rm());
            match d.group() {
                2 => Sim::CallReg { src },
                4 => Sim::JmpReg { src },
                _ => return None,
            }
        }
        0xc7 if is_xbegin(d) => Sim::Xbegin { rel },
        _ => return None,
    })
}

/// Whether the prefixes, segment overrides aside, are none but REX.
fn is_unprefixed(d: &Decoded) -> bool {
    d.legacy_prefixes()
        .all(|p| matches!(p, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65))
}

/// Simulations of what pushes and pops.
fn simulation_of_stack(d: &Decoded) -> Option<Sim> {
    if !is_unprefixed(d) {
        return None;
    }
    let op = d.opcode_byte();
    let reg = Reg::gpr(op & 7 | (d.rex_bits() & 1) << 3);
    Some(match op {
        0x50..=0x57 => Sim::Push { src: reg },
        0x58..=0x5f => Sim::Pop { dst: reg },
        0x68 | 0x6a => Sim::PushImm {
            imm: d.immediate.value(),
        },
        0x9c => Sim::Pushf,
        0xc9 => Sim::Leave,
        _ => return None,
    })
}

/// Simulations of moves between registers, of constants and of addresses.
fn simulation_of_move(d: &Decoded, bits64: bool) -> Option<Sim> {
    if !is_unprefixed(d) {
        return None;
    }
    let wide = d.w();
    let (reg, rm) = (Reg::gpr(d.modrm_reg()), Reg::gpr(d.modrm_rm()));
    Some(match d.opcode_byte() {
        0x89 if d.is_register_form() => Sim::Mov {
            dst: rm,
            src: reg,
            wide,
        },
        0x8b if d.is_register_form() => Sim::Mov {
            dst: reg,
            src: rm,
            wide,
        },
        0xc7 if d.is_register_form() && d.group() == 0 => Sim::MovImm {
            dst: rm,
            imm: d.immediate.value(),
            wide,
        },
        op @ 0xb8..=0xbf => {
            let dst = Reg::gpr(op & 7 | (d.rex_bits() & 1) << 3);
            match (wide, d.length) {
                (true, 10) => Sim::MovAbs { dst },
                (true, _) => return None,
                (false, _) => Sim::MovImm {
                    dst,
                    imm: d.immediate.value(),
                    wide,
                },
            }
        }
        0x8d if !d.is_register_form() => Sim::Lea {
            dst: reg,
            wide,
            addr: address(d, bits64),
        },
        _ => return None,
    })
}

/// The memory operand that ModRM and SIB name (without 16-bit addressing).
fn address(d: &Decoded, bits64: bool) -> Addr {
    let mode = d.modrm_mod();
    let mut addr = Addr {
        base: None,
        index: None,
        scale: 0,
        disp: d.displacement.value(),
    };
    if d.sib.is_present() {
        let [sib, ..] = d.sib.bytes;
        let index = (sib >> 3 & 7) | (d.rex_bits() & 2) << 2;
        if index != 4 {
            addr.index = Some(Reg::gpr(index));
            addr.scale = sib >> 6;
        }
        if mode != 0 || sib & 7 != 5 {
            addr.base = Some(Reg::gpr(sib & 7 | (d.rex_bits() & 1) << 3));
        }
    } else if mode == 0 && d.modrm.bytes[0] & 7 == 5 {
        addr.base = bits64.then_some(Reg::Ip);
    } else {
        addr.base = Some(Reg::gpr(d.modrm_rm()));
    }
    addr
}

/// Simulations of arithmetic on registers.
fn simulation_of_alu(d: &Decoded) -> Option<Sim> {
    if !is_unprefixed(d) || !d.is_register_form() {
        return None;
    }
    let wide = d.w();
    let (reg, rm) = (Reg::gpr(d.modrm_reg()), Reg::gpr(d.modrm_rm()));
    let op = d.opcode_byte();
    Some(match op {
        0x81 | 0x83 => Sim::AluImm {
            op: alu(d.group())?,
            dst: rm,
            imm: d.immediate.value(),
            wide,
        },
        0x85 => Sim::AluReg {
            op: Alu::Test,
            dst: rm,
            src: reg,
            wide,
        },
        0x01..=0x3b if op & 7 == 1 => Sim::AluReg {
            op: alu(op >> 3)?,
            dst: rm,
            src: reg,
            wide,
        },
        0x01..=0x3b if op & 7 == 3 => Sim::AluReg {
            op: alu(op >> 3)?,
            dst: reg,
            src: rm,
            wide,
        },
        _ => return None,
    })
}

/// The arithmetic with this number; those that take the carry in are not simulated.
fn alu(n: u8) -> Option<Alu> {
    Some(match n {
        0 => Alu::Add,
        1 => Alu::Or,
        4 => Alu::And,
        5 => Alu::Sub,
        6 => Alu::Xor,
        7 => Alu::Cmp,
        _ => return None,
    })
}
