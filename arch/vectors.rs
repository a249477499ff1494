// SPDX-License-Identifier: GPL-2.0

//! Tables of instructions and the verdicts on them, for tests on the host and in the kernel. Each
//! backend has its own, `vectors::VECTORS`.

use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

/// What the analysis must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Simulated.
    Simulated,
    /// Stepped out of line.
    Stepped,
    /// Refused.
    Refused(Errno),
}

/// An instruction and the verdict on it.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// The instruction, nothing else.
    pub code: &'static [u8],
    /// The same as text.
    pub text: &'static str,
    /// Kind of code.
    pub bitness: Bitness,
    /// What the analysis must say.
    pub verdict: Verdict,
    /// Whether the C implementation refuses it, or gets it wrong.
    pub better_than_c: bool,
}

impl Vector {
    /// The code with zeroes behind it, as at the end of a file.
    pub fn padded(&self) -> [u8; MAX_INSN_BYTES] {
        let mut code = [0; MAX_INSN_BYTES];
        for (to, from) in code.iter_mut().zip(self.code) {
            *to = *from;
        }
        code
    }
}

/// One line a vector: kind of code, verdict, mark of those that C has wrong, bytes in brackets or a
/// little-endian word in parentheses, text.
///
/// A verdict is `simulated`, `stepped`, or the name of the error of what is refused.
macro_rules! vectors {
    ($($bits:ident $verdict:ident $mark:tt $code:tt $text:literal)*) => {
        &[$($crate::vectors::Vector {
            code: $crate::vectors::vectors!(@code $code),
            text: $text,
            bitness: uprobes_core::arch::Bitness::$bits,
            verdict: $crate::vectors::vectors!(@verdict $verdict),
            better_than_c: $crate::vectors::vectors!(@mark $mark),
        }),*]
    };
    (@code [$($byte:literal)*]) => { &[$($byte),*] };
    (@code ($word:literal)) => { &u32::to_le_bytes($word) };
    (@verdict simulated) => { $crate::vectors::Verdict::Simulated };
    (@verdict stepped) => { $crate::vectors::Verdict::Stepped };
    (@verdict $errno:ident) => {
        $crate::vectors::Verdict::Refused(uprobes_core::errno::Errno::$errno)
    };
    (@mark =) => { false };
    (@mark >) => { true };
}

pub(crate) use vectors;
