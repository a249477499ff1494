// SPDX-License-Identifier: GPL-2.0

//! An analysed instruction.

use static_assertions::const_assert;

use super::decode::{Indirect, Writeback};

/// `nop`.
pub(super) const NOP: u32 = 0xd503_201f;

/// An instruction that can be probed, as the analysis found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// How to simulate it.
    pub(super) sim: Sim,
    /// The word to run out of line.
    pub(super) slot: u32,
    /// What must be put right after a step of that word.
    pub(super) fixup: Fixup,
    /// Kinds of branches (bits by [`btype`](super::regs::btype)) for which it is a landing pad
    /// where it is simulated.
    pub(super) pad: u8,
    /// Whether it needs the return address as the function has signed it.
    pub(super) wants_signed_link: bool,
}

// The core keeps one for each uprobe and copies it on no path that is hot.
const_assert!(core::mem::size_of::<Insn>() <= 32);

impl Insn {
    /// How the instruction is simulated; [`Sim::None`] where it must run out of line.
    pub fn sim(&self) -> Sim {
        self.sim
    }

    /// The word that runs out of line.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

/// A simulated instruction. Offsets are in bytes from the instruction; registers are numbers;
/// `wide` tells 64-bit operands from 32-bit ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "as the fields of `Decoded`")]
pub enum Sim {
    /// Not simulated.
    None,
    /// Does nothing but go on.
    Nop,
    /// `b`, `bl`.
    Branch { link: bool, offset: i32 },
    /// `b.cond`.
    BranchIf { cond: u8, offset: i32 },
    /// `cbz`, `cbnz`.
    BranchIfZero {
        not: bool,
        wide: bool,
        rt: u8,
        offset: i32,
    },
    /// `tbz`, `tbnz`.
    BranchIfBit {
        set: bool,
        rt: u8,
        bit: u8,
        offset: i32,
    },
    /// `br`, `blr`, `ret`.
    BranchRegister { kind: Indirect, rn: u8 },
    /// `adr`, `adrp`.
    Address { page: bool, rd: u8, offset: i32 },
    /// `ldr`, `ldrsw` of a literal to a general register.
    Literal {
        size: LiteralSize,
        rt: u8,
        offset: i32,
    },
    /// `stp`, `ldp` on the stack.
    StackPair {
        load: bool,
        rt: u8,
        rt2: u8,
        offset: i16,
        writeback: Writeback,
    },
    /// `add`, `sub` of a constant.
    AddConstant {
        sub: bool,
        wide: bool,
        rd: u8,
        rn: u8,
        constant: u32,
    },
    /// `svc`.
    SystemCall,
}

/// Size of a literal that is loaded to a general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteralSize {
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
    /// 32 bits, extended by the sign.
    SignedWord,
}

/// What must be put right after a step of the word in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixup {
    /// Goes on at the next instruction.
    Next,
    /// Goes on at the next instruction, or [`super::xol::TAKEN`] bytes further in the slot where
    /// the original goes to `offset`.
    Relative { offset: i32, link: bool },
    /// Went on at an absolute address.
    Absolute { kind: Indirect },
    /// A load through `scratch`, which stands in for the address at `offset`.
    Scratch { scratch: u8, offset: i32 },
    /// A `nop`, there to take the fault that the original would take at its own address. If it
    /// does not, the original is simulated after all.
    Simulate,
}
