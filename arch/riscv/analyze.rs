// SPDX-License-Identifier: GPL-2.0

//! Which instructions can be probed, and how.
//!
//! What is named here is in the unprivileged manual, under the heading given beside it. Hints
//! among the simulated instructions do what they would without being one, which is nothing.

use uprobes_core::arch::{Analysis, Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use super::decode::{decode, Compressed, Encoding, Full};
use super::insn::{Alu, Cond, Insn, Sim, Width};
use super::regs::X;

/// Major opcodes of 32-bit instructions ("RV32/64G Instruction Set Listings").
mod opcode {
    pub(super) const LOAD: u32 = 0b00_000;
    pub(super) const OP_IMM: u32 = 0b00_100;
    pub(super) const AUIPC: u32 = 0b00_101;
    pub(super) const OP_IMM_32: u32 = 0b00_110;
    pub(super) const STORE: u32 = 0b01_000;
    pub(super) const AMO: u32 = 0b01_011;
    pub(super) const OP: u32 = 0b01_100;
    pub(super) const LUI: u32 = 0b01_101;
    pub(super) const OP_32: u32 = 0b01_110;
    pub(super) const CUSTOM_2: u32 = 0b10_110;
    pub(super) const BRANCH: u32 = 0b11_000;
    pub(super) const JALR: u32 = 0b11_001;
    pub(super) const JAL: u32 = 0b11_011;
    pub(super) const SYSTEM: u32 = 0b11_100;
}

/// Decides whether and how the instruction at the start of `bytes` can be probed.
pub(super) fn analyze(
    bytes: &[u8; MAX_INSN_BYTES],
    bitness: Bitness,
) -> Result<Analysis<Insn>, Errno> {
    if bitness == Bitness::Bits32 {
        // Other instructions have the same encodings there (`c.jal` is `c.addiw` here).
        return Err(Errno::EOPNOTSUPP);
    }
    let encoding = decode(bytes).ok_or(Errno::EINVAL)?;
    let (sim, raw, len) = match encoding {
        Encoding::Compressed(c) => {
            if is_compressed_breakpoint(c) {
                return Err(Errno::EINVAL);
            }
            (compressed(c), c.0, 2)
        }
        Encoding::Full(f) => {
            if is_refused(f) {
                return Err(Errno::EINVAL);
            }
            (full(f), f.0, 4)
        }
    };
    if is_before_store_conditional(bytes.get(usize::from(len)..).unwrap_or_default(), sim) {
        return Err(Errno::EINVAL);
    }
    Ok(Analysis {
        insn: Insn { sim, raw, len },
        len,
        simulated: sim != Sim::None,
    })
}

/// `c.ebreak` ("Integer Register-Register Operations" of C).
fn is_compressed_breakpoint(c: Compressed) -> bool {
    c.0 == 0x9002
}

/// Whether a 32-bit instruction cannot be probed.
fn is_refused(f: Full) -> bool {
    match f.opcode() {
        opcode::AMO => is_load_reserved(f) || is_store_conditional(f),
        // With funct3 zero: `ecall`, whose restart after a signal the kernel reckons from the
        // address of the slot; `ebreak`; and what is for the supervisor only.
        opcode::SYSTEM => f.funct3() == 0 && !is_wait_on_reservation_set(f),
        // Branches of Andes.
        opcode::CUSTOM_2 => f.funct3() >= 5,
        _ => false,
    }
}

/// `lr.w`, `lr.d` ("Load-Reserved/Store-Conditional Instructions"). The trap of the probe takes
/// the reservation away, and `sc` fails for ever.
fn is_load_reserved(f: Full) -> bool {
    f.opcode() == opcode::AMO && f.funct5() == 0b00010
}

/// `sc.w`, `sc.d`.
fn is_store_conditional(f: Full) -> bool {
    f.opcode() == opcode::AMO && f.funct5() == 0b00011
}

/// `wrs.nto`, `wrs.sto` ("Wait-on-Reservation-Set Instructions"), which may end at any time.
fn is_wait_on_reservation_set(f: Full) -> bool {
    matches!(f.0, 0x00d0_0073 | 0x01d0_0073)
}

/// Whether the instruction stands between an `lr` and its `sc`, as far as what follows shows: an
/// `sc` comes, and no `lr` before it nor anything that sequences between the two may not have
/// ("Eventual Success of Store-Conditional Instructions").
fn is_before_store_conditional(mut rest: &[u8], sim: Sim) -> bool {
    if !may_be_in_sequence(sim) {
        return false;
    }
    while let Some(encoding) = decode(rest) {
        let (sim, len) = match encoding {
            Encoding::Compressed(c) => (compressed(c), 2),
            Encoding::Full(f) if is_store_conditional(f) => return true,
            Encoding::Full(f) if is_refused(f) => return false,
            Encoding::Full(f) => (full(f), 4),
        };
        if !may_be_in_sequence(sim) {
            return false;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

/// Whether the instruction may stand between an `lr` and its `sc`: integer arithmetic, and
/// branches forward.
fn may_be_in_sequence(sim: Sim) -> bool {
    match sim {
        Sim::Li { .. } | Sim::Auipc { .. } | Sim::AluImm { .. } | Sim::AluReg { .. } => true,
        Sim::Branch { imm, .. } => imm > 0,
        _ => false,
    }
}

/// How a 32-bit instruction is simulated.
fn full(f: Full) -> Sim {
    let (rd, rs1, rs2) = (f.rd(), f.rs1(), f.rs2());
    match f.opcode() {
        // "Landing Pad Instruction" (Zicfilp): an `auipc` to x0.
        opcode::AUIPC if rd == X::ZERO => Sim::Lpad {
            label: f.0 & 0xffff_f000,
        },
        // "Integer Register-Immediate Instructions".
        opcode::AUIPC => Sim::Auipc { rd, imm: f.imm_u() },
        opcode::LUI => Sim::Li { rd, imm: f.imm_u() },
        opcode::OP_IMM => match alu_imm(f) {
            Some((op, imm)) => Sim::AluImm { op, rd, rs1, imm },
            None => Sim::None,
        },
        opcode::OP_IMM_32 => match alu_imm_w(f) {
            Some((op, imm)) => Sim::AluImm { op, rd, rs1, imm },
            None => Sim::None,
        },
        // "Integer Register-Register Operations".
        opcode::OP => match alu_reg(f) {
            Some(op) => Sim::AluReg { op, rd, rs1, rs2 },
            None => Sim::None,
        },
        opcode::OP_32 => match alu_reg_w(f) {
            Some(op) => Sim::AluReg { op, rd, rs1, rs2 },
            None => Sim::None,
        },
        // "Unconditional Jumps".
        opcode::JAL => Sim::Jal { rd, imm: f.imm_j() },
        opcode::JALR if f.funct3() == 0 => Sim::Jalr {
            rd,
            rs1,
            imm: f.imm_i(),
        },
        // "Conditional Branches".
        opcode::BRANCH => match cond(f.funct3()) {
            Some(cond) => Sim::Branch {
                cond,
                rs1,
                rs2,
                imm: f.imm_b(),
            },
            None => Sim::None,
        },
        // "Load and Store Instructions".
        opcode::LOAD => match load_width(f.funct3()) {
            Some(width) => Sim::Load {
                width,
                rd,
                rs1,
                imm: f.imm_i(),
            },
            None => Sim::None,
        },
        opcode::STORE => match store_width(f.funct3()) {
            Some(width) => Sim::Store {
                width,
                rs2,
                rs1,
                imm: f.imm_s(),
            },
            None => Sim::None,
        },
        _ => Sim::None,
    }
}

fn cond(funct3: u32) -> Option<Cond> {
    Some(match funct3 {
        0 => Cond::Eq,
        1 => Cond::Ne,
        4 => Cond::Lt,
        5 => Cond::Ge,
        6 => Cond::Ltu,
        7 => Cond::Geu,
        _ => return None,
    })
}

fn load_width(funct3: u32) -> Option<Width> {
    Some(match funct3 {
        2 => Width::Word,
        3 => Width::Double,
        6 => Width::WordUnsigned,
        _ => return None,
    })
}

fn store_width(funct3: u32) -> Option<Width> {
    Some(match funct3 {
        2 => Width::Word,
        3 => Width::Double,
        _ => return None,
    })
}

/// Arithmetic with a constant on 64 bits.
fn alu_imm(f: Full) -> Option<(Alu, i32)> {
    Some(match (f.funct3(), f.funct6()) {
        (0, _) => (Alu::Add, f.imm_i()),
        (1, 0) => (Alu::Sll, f.shamt()),
        (2, _) => (Alu::Slt, f.imm_i()),
        (3, _) => (Alu::Sltu, f.imm_i()),
        (4, _) => (Alu::Xor, f.imm_i()),
        (5, 0) => (Alu::Srl, f.shamt()),
        (5, 0x10) => (Alu::Sra, f.shamt()),
        (6, _) => (Alu::Or, f.imm_i()),
        (7, _) => (Alu::And, f.imm_i()),
        _ => return None,
    })
}

/// Arithmetic with a constant on 32 bits.
fn alu_imm_w(f: Full) -> Option<(Alu, i32)> {
    Some(match (f.funct3(), f.funct7()) {
        (0, _) => (Alu::AddW, f.imm_i()),
        (1, 0) => (Alu::SllW, f.shamt_w()),
        (5, 0) => (Alu::SrlW, f.shamt_w()),
        (5, 0x20) => (Alu::SraW, f.shamt_w()),
        _ => return None,
    })
}

/// Arithmetic between registers on 64 bits.
fn alu_reg(f: Full) -> Option<Alu> {
    Some(match (f.funct7(), f.funct3()) {
        (0, 0) => Alu::Add,
        (0, 1) => Alu::Sll,
        (0, 2) => Alu::Slt,
        (0, 3) => Alu::Sltu,
        (0, 4) => Alu::Xor,
        (0, 5) => Alu::Srl,
        (0, 6) => Alu::Or,
        (0, 7) => Alu::And,
        (0x20, 0) => Alu::Sub,
        (0x20, 5) => Alu::Sra,
        _ => return None,
    })
}

/// Arithmetic between registers on 32 bits.
fn alu_reg_w(f: Full) -> Option<Alu> {
    Some(match (f.funct7(), f.funct3()) {
        (0, 0) => Alu::AddW,
        (0, 1) => Alu::SllW,
        (0, 5) => Alu::SrlW,
        (0x20, 0) => Alu::SubW,
        (0x20, 5) => Alu::SraW,
        _ => return None,
    })
}

/// How a 16-bit instruction is simulated.
fn compressed(c: Compressed) -> Sim {
    match c.quadrant() {
        0 => quadrant_0(c),
        1 => quadrant_1(c),
        _ => quadrant_2(c),
    }
}

/// "Register-Based Loads and Stores", and `c.addi4spn`.
fn quadrant_0(c: Compressed) -> Sim {
    let (reg, base) = (c.rs2_short(), c.rs1_short());
    let load = |width, imm| Sim::Load {
        width,
        rd: reg,
        rs1: base,
        imm,
    };
    let store = |width, imm| Sim::Store {
        width,
        rs2: reg,
        rs1: base,
        imm,
    };
    match c.funct3() {
        // With a constant of zero it is reserved, and no instruction at all if all bits are zero.
        0b000 if c.imm_4spn() != 0 => add_imm(reg, X::SP, c.imm_4spn()),
        0b010 => load(Width::Word, c.imm_word()),
        0b011 => load(Width::Double, c.imm_double()),
        0b110 => store(Width::Word, c.imm_word()),
        0b111 => store(Width::Double, c.imm_double()),
        _ => Sim::None,
    }
}

/// "Integer Register-Immediate Operations", "Integer Constant-Generation Instructions", "Control
/// Transfer Instructions" of C.
fn quadrant_1(c: Compressed) -> Sim {
    let rd = c.rd();
    let branch = |cond| Sim::Branch {
        cond,
        rs1: c.rs1_short(),
        rs2: X::ZERO,
        imm: c.imm_b(),
    };
    match c.funct3() {
        0b000 => add_imm(rd, rd, c.imm()),
        0b001 if rd != X::ZERO => Sim::AluImm {
            op: Alu::AddW,
            rd,
            rs1: rd,
            imm: c.imm(),
        },
        0b010 => Sim::Li { rd, imm: c.imm() },
        // With a constant of zero they are reserved, in part for `c.mop` ("May-Be-Operations"), of
        // which the shadow stack takes some.
        0b011 if c.imm() != 0 && rd == X::SP => add_imm(rd, rd, c.imm_16sp()),
        0b011 if c.imm() != 0 => Sim::Li {
            rd,
            imm: c.imm_lui(),
        },
        0b100 => quadrant_1_arithmetic(c),
        0b101 => Sim::Jal {
            rd: X::ZERO,
            imm: c.imm_j(),
        },
        0b110 => branch(Cond::Eq),
        0b111 => branch(Cond::Ne),
        _ => Sim::None,
    }
}

fn quadrant_1_arithmetic(c: Compressed) -> Sim {
    let rd = c.rs1_short();
    let with = |op, imm| Sim::AluImm {
        op,
        rd,
        rs1: rd,
        imm,
    };
    let between = |op| Sim::AluReg {
        op,
        rd,
        rs1: rd,
        rs2: c.rs2_short(),
    };
    match (c.funct2(), c.bit12(), c.funct2_low()) {
        (0, ..) => with(Alu::Srl, c.shamt()),
        (1, ..) => with(Alu::Sra, c.shamt()),
        (2, ..) => with(Alu::And, c.imm()),
        (_, false, 0) => between(Alu::Sub),
        (_, false, 1) => between(Alu::Xor),
        (_, false, 2) => between(Alu::Or),
        (_, false, _) => between(Alu::And),
        (_, true, 0) => between(Alu::SubW),
        (_, true, 1) => between(Alu::AddW),
        (_, true, _) => Sim::None,
    }
}

/// "Stack-Pointer-Based Loads and Stores", `c.slli`, moves and jumps through a register.
fn quadrant_2(c: Compressed) -> Sim {
    let (rd, rs2) = (c.rd(), c.rs2());
    let load = |width, imm| Sim::Load {
        width,
        rd,
        rs1: X::SP,
        imm,
    };
    let store = |width, imm| Sim::Store {
        width,
        rs2,
        rs1: X::SP,
        imm,
    };
    let jump = |link| Sim::Jalr {
        rd: link,
        rs1: rd,
        imm: 0,
    };
    match (c.funct3(), c.bit12()) {
        (0b000, _) => Sim::AluImm {
            op: Alu::Sll,
            rd,
            rs1: rd,
            imm: c.shamt(),
        },
        // Reserved for x0.
        (0b010, _) if rd != X::ZERO => load(Width::Word, c.imm_lwsp()),
        (0b011, _) if rd != X::ZERO => load(Width::Double, c.imm_ldsp()),
        (0b100, false) if rs2 != X::ZERO => add_imm(rd, rs2, 0),
        (0b100, false) if rd != X::ZERO => jump(X::ZERO),
        (0b100, true) if rs2 != X::ZERO => Sim::AluReg {
            op: Alu::Add,
            rd,
            rs1: rd,
            rs2,
        },
        (0b100, true) if rd != X::ZERO => jump(X::RA),
        (0b110, _) => store(Width::Word, c.imm_swsp()),
        (0b111, _) => store(Width::Double, c.imm_sdsp()),
        _ => Sim::None,
    }
}

/// `addi`, which moves and nops are short for.
fn add_imm(rd: X, rs1: X, imm: i32) -> Sim {
    Sim::AluImm {
        op: Alu::Add,
        rd,
        rs1,
        imm,
    }
}
