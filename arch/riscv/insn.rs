// SPDX-License-Identifier: GPL-2.0

//! An analysed instruction.

use static_assertions::const_assert;

use super::regs::X;

/// Longest instruction in bytes.
pub const MAX_LEN: usize = 4;

/// An instruction that can be probed, as the analysis found it.
///
/// # Invariants
///
/// `len` is 2 or 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// How to simulate it.
    pub(super) sim: Sim,
    /// The instruction; two bytes of it are in the low half.
    pub(super) raw: u32,
    /// Length in bytes.
    pub(super) len: u8,
}

// The core keeps one for each uprobe and copies it on no path that is hot.
const_assert!(core::mem::size_of::<Insn>() <= 24);

impl Insn {
    /// Length in bytes.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// How the instruction is simulated; [`Sim::None`] where it must run out of line.
    pub fn sim(&self) -> Sim {
        self.sim
    }
}

/// A simulated instruction. Compressed ones are what they are short for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names of the fields are the architecture's"
)]
#[non_exhaustive]
pub enum Sim {
    /// Not simulated.
    None,
    /// `lpad`, a landing pad; the label in its place in the instruction, bits 31 to 12.
    Lpad { label: u32 },
    /// `lui`, and `c.li`, which differs in the constant only.
    Li { rd: X, imm: i32 },
    /// `auipc`.
    Auipc { rd: X, imm: i32 },
    /// `jal`.
    Jal { rd: X, imm: i32 },
    /// `jalr`.
    Jalr { rd: X, rs1: X, imm: i32 },
    /// A conditional branch.
    Branch {
        cond: Cond,
        rs1: X,
        rs2: X,
        imm: i32,
    },
    /// A load.
    Load {
        width: Width,
        rd: X,
        rs1: X,
        imm: i32,
    },
    /// A store.
    Store {
        width: Width,
        rs2: X,
        rs1: X,
        imm: i32,
    },
    /// Arithmetic with a constant.
    AluImm { op: Alu, rd: X, rs1: X, imm: i32 },
    /// Arithmetic between registers.
    AluReg { op: Alu, rd: X, rs1: X, rs2: X },
}

/// Condition of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the architecture's")]
pub enum Cond {
    Eq,
    Ne,
    Lt,
    Ge,
    Ltu,
    Geu,
}

/// Width of a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits, of which a load extends the sign.
    Word,
    /// 32 bits, which a load extends by zeroes.
    WordUnsigned,
    /// 64 bits.
    Double,
}

/// Arithmetic that is simulated; a `W` at the end means 32 bits, extended by their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the architecture's")]
pub enum Alu {
    Add,
    Sub,
    Sll,
    Slt,
    Sltu,
    Xor,
    Srl,
    Sra,
    Or,
    And,
    AddW,
    SubW,
    SllW,
    SrlW,
    SraW,
}
