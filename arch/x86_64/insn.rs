// SPDX-License-Identifier: GPL-2.0

//! An analysed instruction.

use static_assertions::const_assert;
use uprobes_core::arch::Bitness;

use super::regs::Reg;

/// Longest x86 instruction in bytes.
pub const MAX_LEN: usize = 15;

/// One-byte nop.
pub(super) const NOP: u8 = 0x90;

/// An instruction that can be probed, as the analysis found it.
///
/// # Invariants
///
/// `len` is in `1..=MAX_LEN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// How to simulate it.
    pub(super) sim: Sim,
    /// The bytes to run out of line; nops beyond `len`.
    pub(super) slot: [u8; MAX_LEN],
    /// Length of the original and of its copy.
    pub(super) len: u8,
    /// What must be put right after a step of the copy.
    pub(super) fixup: Fixup,
    /// Register through which the copy reaches an operand that the original addresses relative to
    /// the instruction pointer.
    pub(super) scratch: Option<Reg>,
    /// Whether it is 64-bit code.
    pub(super) bits64: bool,
}

// The core keeps one for each uprobe and copies it on no path that is hot.
const_assert!(core::mem::size_of::<Insn>() <= 32);

impl Insn {
    /// Length in bytes.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// Width of the code that it was analysed as.
    pub fn bitness(&self) -> Bitness {
        if self.bits64 {
            Bitness::Bits64
        } else {
            Bitness::Bits32
        }
    }

    /// How the instruction is simulated; [`Sim::None`] where it must run out of line.
    pub fn sim(&self) -> Sim {
        self.sim
    }

    /// The register that stands in for the instruction pointer out of line.
    pub fn scratch(&self) -> Option<Reg> {
        self.scratch
    }
}

/// A simulated instruction. `wide` tells 64-bit operands from 32-bit ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sim {
    /// Not simulated.
    None,
    /// Does nothing but go on.
    Nop,
    /// `push` of a register.
    Push {
        /// What is pushed.
        src: Reg,
    },
    /// `push` of a constant.
    PushImm {
        /// What is pushed, extended by its sign.
        imm: i32,
    },
    /// `pop` of a register.
    Pop {
        /// Where it goes.
        dst: Reg,
    },
    /// Near return.
    Ret {
        /// Bytes of arguments to drop.
        drop: u16,
    },
    /// Relative jump.
    Jmp {
        /// Distance from the end of the instruction.
        rel: i32,
    },
    /// Conditional relative jump.
    Jcc {
        /// Low four bits of the opcode.
        cc: u8,
        /// Distance from the end of the instruction.
        rel: i32,
    },
    /// Relative call.
    Call {
        /// Distance from the end of the instruction.
        rel: i32,
    },
    /// Jump to the address in a register.
    JmpReg {
        /// Holds the target.
        src: Reg,
    },
    /// Call of the address in a register.
    CallReg {
        /// Holds the target.
        src: Reg,
    },
    /// `mov` from register to register.
    Mov {
        /// Where to.
        dst: Reg,
        /// Where from.
        src: Reg,
        /// 64-bit.
        wide: bool,
    },
    /// `mov` of a constant of up to 32 bits.
    MovImm {
        /// Where to.
        dst: Reg,
        /// The constant, extended by its sign where `wide`.
        imm: i32,
        /// 64-bit.
        wide: bool,
    },
    /// `movabs` of the eight bytes at offset 2.
    MovAbs {
        /// Where to.
        dst: Reg,
    },
    /// `lea`.
    Lea {
        /// Where to.
        dst: Reg,
        /// 64-bit.
        wide: bool,
        /// What is added up.
        addr: Addr,
    },
    /// Arithmetic with a constant.
    AluImm {
        /// What is done.
        op: Alu,
        /// Left operand and result.
        dst: Reg,
        /// Right operand, extended by its sign.
        imm: i32,
        /// 64-bit.
        wide: bool,
    },
    /// Arithmetic between registers.
    AluReg {
        /// What is done.
        op: Alu,
        /// Left operand and result.
        dst: Reg,
        /// Right operand.
        src: Reg,
        /// 64-bit.
        wide: bool,
    },
    /// `leave`.
    Leave,
    /// `pushf`.
    Pushf,
    /// `xbegin` of a transaction that aborts at once.
    Xbegin {
        /// Distance of the fallback path from the end of the instruction.
        rel: i32,
    },
}

/// An address: base + (index << scale) + displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addr {
    /// Base register, [`Reg::Ip`] for the end of the instruction.
    pub base: Option<Reg>,
    /// Index register.
    pub index: Option<Reg>,
    /// Bits to shift the index by.
    pub scale: u8,
    /// Displacement.
    pub disp: i32,
}

/// Arithmetic that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the architecture's")]
pub enum Alu {
    Add,
    Or,
    And,
    Sub,
    Xor,
    Cmp,
    Test,
}

/// What must be put right after a step of the copy in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixup {
    /// Goes on at the next instruction.
    Next,
    /// Goes on at the next instruction or at one relative to it.
    Relative,
    /// Went on at an absolute address.
    Absolute,
    /// Absolute, and pushed the address of the next instruction.
    Call,
    /// Like `Call`, after the code segment.
    FarCall,
    /// A relative call, whose copy calls the next instruction in the slot.
    RelativeCall,
    /// Left the address of the next instruction in `rcx` and the flags in `r11`.
    Syscall,
    /// Pushed the flags.
    Pushf,
    /// Loaded the flags, the trace flag among them.
    Popf,
}
