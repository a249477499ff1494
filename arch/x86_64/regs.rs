// SPDX-License-Identifier: GPL-2.0

//! The register file, word for word the kernel's `struct pt_regs`.

use core::ops::{Index, IndexMut};

use uprobes_core::arch::Bitness;

/// A register; its value is the index of its word in [`PtRegs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the architecture's")]
pub enum Reg {
    R15 = 0,
    R14,
    R13,
    R12,
    Bp,
    Bx,
    R11,
    R10,
    R9,
    R8,
    Ax,
    Cx,
    Dx,
    Si,
    Di,
    OrigAx,
    Ip,
    Cs,
    Flags,
    Sp,
    Ss,
}

/// Number of words in [`PtRegs`].
pub const PT_REGS_WORDS: usize = Reg::Ss as usize + 1;

/// General registers in the order of their numbers in instructions.
const GPR: [Reg; 16] = [
    Reg::Ax,
    Reg::Cx,
    Reg::Dx,
    Reg::Bx,
    Reg::Sp,
    Reg::Bp,
    Reg::Si,
    Reg::Di,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

impl Reg {
    /// The general register with the number `n` in instructions; only the low four bits count.
    #[inline]
    pub const fn gpr(n: u8) -> Reg {
        GPR[(n & 15) as usize]
    }

    /// Offset of the register in `struct pt_regs` in bytes.
    pub const fn offset(self) -> usize {
        self as usize * 8
    }
}

/// Registers of a user task, laid out as the kernel's `struct pt_regs` on x86_64.
///
/// Indexed by [`Reg`]. The words of `cs` and `ss` carry more than the selector on a CPU with
/// FRED; read the selector with [`PtRegs::bitness`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PtRegs {
    words: [u64; PT_REGS_WORDS],
}

impl Index<Reg> for PtRegs {
    type Output = u64;

    #[inline]
    fn index(&self, reg: Reg) -> &u64 {
        // PANIC: every value of `Reg` is below `PT_REGS_WORDS`.
        &self.words[reg as usize]
    }
}

impl IndexMut<Reg> for PtRegs {
    #[inline]
    fn index_mut(&mut self, reg: Reg) -> &mut u64 {
        // PANIC: every value of `Reg` is below `PT_REGS_WORDS`.
        &mut self.words[reg as usize]
    }
}

/// Selector of 64-bit user code, `__USER_CS`.
pub const USER_CS: u16 = 0x33;
/// Selector of 32-bit user code, `__USER32_CS`.
pub const USER32_CS: u16 = 0x23;

impl PtRegs {
    /// Whether the registers belong to 64-bit code.
    #[inline]
    pub fn is_64bit(&self) -> bool {
        // CAST: the selector is the low half-word, what FRED adds lies above it.
        self[Reg::Cs] as u16 == USER_CS
    }

    /// Width of the code that the registers belong to.
    #[inline]
    pub fn bitness(&self) -> Bitness {
        if self.is_64bit() {
            Bitness::Bits64
        } else {
            Bitness::Bits32
        }
    }

    /// Size of a word on the stack in bytes.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        if self.is_64bit() {
            8
        } else {
            4
        }
    }

    /// Cuts an address to what the code of these registers can hold.
    #[inline]
    pub(super) fn wrap(&self, addr: u64) -> u64 {
        if self.is_64bit() {
            addr
        } else {
            addr & 0xffff_ffff
        }
    }

    /// Whether the trace flag is set.
    #[inline]
    pub fn tf(&self) -> bool {
        self[Reg::Flags] & flags::TF != 0
    }
}

/// Bits of the flags register.
pub mod flags {
    /// Carry.
    pub const CF: u64 = 1 << 0;
    /// Parity of the low byte.
    pub const PF: u64 = 1 << 2;
    /// Carry out of bit 3.
    pub const AF: u64 = 1 << 4;
    /// Zero.
    pub const ZF: u64 = 1 << 6;
    /// Sign.
    pub const SF: u64 = 1 << 7;
    /// Trace: single-step.
    pub const TF: u64 = 1 << 8;
    /// Overflow.
    pub const OF: u64 = 1 << 11;
    /// Resume: no instruction breakpoint on the next instruction.
    pub const RF: u64 = 1 << 16;
    /// Virtual 8086 mode.
    pub const VM: u64 = 1 << 17;
    /// What an arithmetic instruction sets.
    pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;
}
