// SPDX-License-Identifier: GPL-2.0

//! The register file, laid out as the kernel's `struct pt_regs`.

use uprobes_core::arch::Bitness;

/// Registers of a user task, laid out as the kernel's `struct pt_regs` on arm64.
///
/// Instructions name general registers by number; 31 is the zero register or the stack pointer,
/// which the accessors tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PtRegs {
    x: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
    /// Flags and state of the CPU; see [`pstate`].
    pub pstate: u64,
    /// What the kernel keeps beside the registers.
    kernel: [u64; 6],
}

/// Number of the link register, which holds the return address of a function.
pub const LINK: u8 = 30;
/// Number that names the stack pointer or the zero register.
pub const SP: u8 = 31;

/// Bits of `pstate`, as in SPSR_EL1 (C5.2, "SPSR_EL1").
pub mod pstate {
    /// AArch32 state.
    pub const MODE32: u64 = 1 << 4;
    /// Kind of the indirect branch that led here; zero after any other instruction.
    pub const BTYPE: u64 = 3 << 10;
    /// The single-step is active and not pending: the next instruction runs.
    pub const SS: u64 = 1 << 21;
    /// Overflow.
    pub const V: u64 = 1 << 28;
    /// Carry.
    pub const C: u64 = 1 << 29;
    /// Zero.
    pub const Z: u64 = 1 << 30;
    /// Negative.
    pub const N: u64 = 1 << 31;
}

/// Kinds of indirect branches, values of PSTATE.BTYPE (D8, "Branch Target Identification").
pub mod btype {
    /// None, or a return.
    pub const NONE: u8 = 0;
    /// A jump that may end at any landing pad: through x16 or x17, or from code that needs none.
    pub const ANY_JUMP: u8 = 1;
    /// A call.
    pub const CALL: u8 = 2;
    /// Any other jump.
    pub const JUMP: u8 = 3;
}

impl PtRegs {
    /// The general register `n`, zero for 31.
    #[inline]
    pub fn x(&self, n: u8) -> u64 {
        self.x.get(usize::from(n)).copied().unwrap_or(0)
    }

    /// Sets the general register `n`; nothing for 31.
    #[inline]
    pub fn set_x(&mut self, n: u8, value: u64) {
        if let Some(x) = self.x.get_mut(usize::from(n)) {
            *x = value;
        }
    }

    /// The general register `n`, the stack pointer for 31.
    #[inline]
    pub fn x_or_sp(&self, n: u8) -> u64 {
        self.x.get(usize::from(n)).copied().unwrap_or(self.sp)
    }

    /// Sets the general register `n`, the stack pointer for 31.
    #[inline]
    pub fn set_x_or_sp(&mut self, n: u8, value: u64) {
        *self.x.get_mut(usize::from(n)).unwrap_or(&mut self.sp) = value;
    }

    /// Kind of the branch that led here; see [`btype`].
    #[inline]
    pub fn btype(&self) -> u8 {
        // CAST: two bits.
        (self.pstate >> 10 & 3) as u8
    }

    /// Sets the kind of the branch that led here.
    #[inline]
    pub fn set_btype(&mut self, btype: u8) {
        self.pstate = self.pstate & !pstate::BTYPE | u64::from(btype & 3) << 10;
    }

    /// Width of the code that the registers belong to.
    #[inline]
    pub fn bitness(&self) -> Bitness {
        if self.pstate & pstate::MODE32 == 0 {
            Bitness::Bits64
        } else {
            Bitness::Bits32
        }
    }
}
