// SPDX-License-Identifier: GPL-2.0

//! The register file, word for word the kernel's `struct pt_regs`.

use uprobes_core::arch::Bitness;

/// The number of an integer register, `0..=31`.
///
/// # Invariants
///
/// The number is below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct X(u8);

impl X {
    /// Always zero.
    pub const ZERO: X = X(0);
    /// Return address.
    pub const RA: X = X(1);
    /// Stack pointer.
    pub const SP: X = X(2);
    /// Return address of millicode.
    pub const T0: X = X(5);
    /// Holds the label that a landing pad must have.
    pub const T2: X = X(7);

    /// The register whose number the low five bits of `n` are.
    #[inline]
    pub const fn new(n: u32) -> X {
        // CAST: five bits.
        // INVARIANT: cut to five bits.
        X((n & 31) as u8)
    }

    /// One of the eight registers `x8..=x15` that most compressed instructions can name, by the
    /// low three bits of `n`.
    #[inline]
    pub const fn compressed(n: u32) -> X {
        X::new(n & 7 | 8)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A word of `struct pt_regs` that is no integer register; its value is the index of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Word {
    /// The program counter, `epc`.
    Pc = 0,
    /// `sstatus` at the trap.
    Status = 32,
    /// `stval` at the trap.
    BadAddr = 33,
    /// `scause` of the trap.
    Cause = 34,
    /// `a0` before a system call.
    OrigA0 = 35,
}

/// Number of words in [`PtRegs`].
pub const PT_REGS_WORDS: usize = Word::OrigA0 as usize + 1;

/// `sstatus.UXL`, the width of user code, and its value for 32 bits.
///
/// Privileged manual, "Base ISA Control in sstatus Register".
const UXL: u64 = 3 << 32;
const UXL_32: u64 = 1 << 32;

/// `sstatus.SPELP`: a landing pad is expected where the trap returns to.
///
/// Privileged manual, "Landing pads" (Zicfilp).
pub const STATUS_ELP: u64 = 1 << 23;

/// `scause` of a software check: a landing pad was expected, or the shadow stack disagrees.
pub const CAUSE_SOFTWARE_CHECK: u64 = 18;

/// Registers of a user task, laid out as the kernel's `struct pt_regs` on riscv64.
///
/// The word with the number of a register is that register's, but for the first: it is the
/// program counter, for `x0` needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct PtRegs {
    words: [u64; PT_REGS_WORDS],
}

impl Default for PtRegs {
    fn default() -> Self {
        PtRegs {
            words: [0; PT_REGS_WORDS],
        }
    }
}

impl PtRegs {
    /// Reads an integer register.
    #[inline]
    pub fn x(&self, reg: X) -> u64 {
        if reg == X::ZERO {
            return 0;
        }
        // PANIC: the number of a register is below 32.
        self.words[usize::from(reg.0)]
    }

    /// Writes an integer register; `x0` stays zero.
    #[inline]
    pub fn set_x(&mut self, reg: X, value: u64) {
        if reg != X::ZERO {
            // PANIC: the number of a register is below 32.
            self.words[usize::from(reg.0)] = value;
        }
    }

    /// Reads another word.
    #[inline]
    pub fn word(&self, word: Word) -> u64 {
        // PANIC: every value of `Word` is below `PT_REGS_WORDS`.
        self.words[word as usize]
    }

    /// Writes another word.
    #[inline]
    pub fn set_word(&mut self, word: Word, value: u64) {
        // PANIC: every value of `Word` is below `PT_REGS_WORDS`.
        self.words[word as usize] = value;
    }

    /// The program counter.
    #[inline]
    pub fn pc(&self) -> u64 {
        self.word(Word::Pc)
    }

    /// Sets the program counter.
    #[inline]
    pub fn set_pc(&mut self, pc: u64) {
        self.set_word(Word::Pc, pc);
    }

    /// Width of the code that the registers belong to.
    #[inline]
    pub fn bitness(&self) -> Bitness {
        if self.word(Word::Status) & UXL == UXL_32 {
            Bitness::Bits32
        } else {
            Bitness::Bits64
        }
    }

    /// Whether an indirect branch has led here that must end at a landing pad.
    ///
    /// The CPU then raises a software check before it looks at the breakpoint. The kernel clears
    /// the bit in the status, so the cause of the trap is what tells.
    #[inline]
    pub fn is_landing(&self) -> bool {
        self.word(Word::Cause) == CAUSE_SOFTWARE_CHECK
    }

    /// Makes the CPU expect a landing pad at the program counter.
    #[inline]
    pub fn expect_landing_pad(&mut self) {
        self.set_word(Word::Status, self.word(Word::Status) | STATUS_ELP);
    }
}
