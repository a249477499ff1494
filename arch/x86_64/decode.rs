// SPDX-License-Identifier: GPL-2.0

//! What the analysis needs to know of an instruction's encoding.
//!
//! [`Decoded`] mirrors the kernel's `struct insn` field by field, so that the kernel's adaptor is
//! a plain copy after `insn_decode()`; all that is derived from it is derived here, once for the
//! kernel and the host.

use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

/// An instruction decoder.
pub trait Decode: 'static {
    /// Splits the instruction at the start of `bytes` into its parts.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] where it cannot be decoded.
    fn decode(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Decoded, Errno>;
}

/// Bytes of a part of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// `bytes` of the kernel's `struct insn_field`; zero beyond `nbytes` (but for the VEX field,
    /// see [`Decoded::vex`]).
    pub bytes: [u8; 4],
    /// `nbytes` of the kernel's `struct insn_field`.
    pub nbytes: u8,
}

impl Field {
    /// The bytes as a number; the kernel's decoder has extended its sign.
    #[inline]
    pub const fn value(&self) -> i32 {
        i32::from_le_bytes(self.bytes)
    }

    /// Whether the instruction has this part.
    #[inline]
    pub const fn is_present(&self) -> bool {
        self.nbytes != 0
    }
}

/// A decoded instruction: `struct insn` of the kernel, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// `prefixes`: up to four different legacy prefixes in `bytes`, unordered, the first zero
    /// ends them; the last prefix once more in `bytes[3]`. `nbytes` counts repeated ones too.
    pub prefixes: Field,
    /// `rex_prefix`: one byte REX or two bytes REX2.
    pub rex: Field,
    /// `vex_prefix`: VEX, EVEX or XOP. For two-byte VEX, `bytes[2]` holds what `bytes[2]` of the
    /// three-byte form would.
    pub vex: Field,
    /// `opcode`, escape bytes included.
    pub opcode: Field,
    /// `modrm`.
    pub modrm: Field,
    /// `sib`.
    pub sib: Field,
    /// `displacement`, sign-extended.
    pub displacement: Field,
    /// `immediate` (`moffset1`, `immediate1`), sign-extended.
    pub immediate: Field,
    /// `immediate2` (`moffset2`).
    pub immediate2: Field,
    /// `length` in bytes.
    pub length: u8,
}

/// The table that an opcode byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// One-byte opcodes.
    One,
    /// Two-byte opcodes, 0F.
    TwoByte,
    /// 0F 38 and 0F 3A.
    ThreeByte,
    /// VEX, EVEX or XOP, whichever table they select.
    Vector,
}

impl Decoded {
    /// The table that [`Decoded::opcode_byte`] belongs to.
    pub fn map(&self) -> Map {
        if self.vex.is_present() {
            return Map::Vector;
        }
        match (self.opcode.nbytes, self.rex2()) {
            (1, Some(payload)) if payload & 0x80 != 0 => Map::TwoByte,
            (0 | 1, _) => Map::One,
            (2, _) => Map::TwoByte,
            _ => Map::ThreeByte,
        }
    }

    /// The opcode without escape bytes.
    pub fn opcode_byte(&self) -> u8 {
        let [a, b, c, _] = self.opcode.bytes;
        match self.opcode.nbytes {
            0 | 1 => a,
            2 => b,
            _ => c,
        }
    }

    /// Whether the legacy prefix `prefix` is there.
    pub fn has_prefix(&self, prefix: u8) -> bool {
        self.legacy_prefixes().any(|p| p == prefix)
    }

    /// The legacy prefixes, each once.
    pub fn legacy_prefixes(&self) -> impl Iterator<Item = u8> {
        self.prefixes.bytes.into_iter().take_while(|&p| p != 0)
    }

    /// The payload byte of a REX2 prefix.
    pub fn rex2(&self) -> Option<u8> {
        (self.rex.nbytes == 2).then_some(self.rex.bytes[1])
    }

    /// The W, R, X and B bits of REX or REX2, zero without one.
    pub fn rex_bits(&self) -> u8 {
        let [rex, rex2, ..] = self.rex.bytes;
        match self.rex.nbytes {
            0 => 0,
            1 => rex & 15,
            _ => rex2 & 15,
        }
    }

    /// REX.W: 64-bit operands.
    pub fn w(&self) -> bool {
        self.rex_bits() & 8 != 0
    }

    /// Bits 7 and 6 of ModRM.
    pub fn modrm_mod(&self) -> u8 {
        self.modrm.bytes[0] >> 6
    }

    /// Number in ModRM.reg, with REX.R.
    pub fn modrm_reg(&self) -> u8 {
        (self.modrm.bytes[0] >> 3 & 7) | (self.rex_bits() & 4) << 1
    }

    /// Number in ModRM.rm, with REX.B.
    pub fn modrm_rm(&self) -> u8 {
        (self.modrm.bytes[0] & 7) | (self.rex_bits() & 1) << 3
    }

    /// Extension of the opcode in ModRM.reg.
    pub fn group(&self) -> u8 {
        self.modrm.bytes[0] >> 3 & 7
    }

    /// Whether there is a ModRM that names a register rather than memory.
    pub fn is_register_form(&self) -> bool {
        self.modrm.is_present() && self.modrm_mod() == 3
    }

    /// Whether the memory operand is relative to the instruction pointer (64-bit code only).
    pub fn is_rip_relative(&self, bitness: Bitness) -> bool {
        bitness == Bitness::Bits64 && self.modrm.is_present() && self.modrm.bytes[0] & 0xc7 == 0x05
    }

    /// Offset of REX or REX2.
    pub fn rex_offset(&self) -> usize {
        usize::from(self.prefixes.nbytes)
    }

    /// Offset of VEX, EVEX or XOP.
    pub fn vex_offset(&self) -> usize {
        self.rex_offset() + usize::from(self.rex.nbytes)
    }

    /// Offset of the first opcode byte.
    pub fn opcode_offset(&self) -> usize {
        self.vex_offset() + usize::from(self.vex.nbytes)
    }

    /// Offset of ModRM.
    pub fn modrm_offset(&self) -> usize {
        self.opcode_offset() + usize::from(self.opcode.nbytes)
    }

    /// Offset of the first immediate.
    pub fn immediate_offset(&self) -> usize {
        self.modrm_offset()
            + usize::from(self.modrm.nbytes)
            + usize::from(self.sib.nbytes)
            + usize::from(self.displacement.nbytes)
    }
}
