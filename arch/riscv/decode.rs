// SPDX-License-Identifier: GPL-2.0

//! The fields of instructions.
//!
//! Unprivileged manual, "Base Instruction Formats", "Immediate Encoding Variants", and
//! "Compressed Instruction Formats".

use super::regs::X;

/// Bits `low..low + len` of `from`, moved to bit `to`.
const fn bits(from: u32, low: u32, len: u32, to: u32) -> u32 {
    ((from >> low) & ((1 << len) - 1)) << to
}

/// Extends the sign of a number of `len` bits.
const fn sign(value: u32, len: u32) -> i32 {
    // CAST: the two's complement is meant.
    (value << (32 - len)) as i32 >> (32 - len)
}

/// A number without a sign, which is below `i32::MAX`.
const fn unsigned(value: u32) -> i32 {
    // CAST: no immediate without a sign has more than twelve bits.
    value as i32
}

/// An instruction of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Full(pub(super) u32);

impl Full {
    /// The major opcode, bits 6 to 2.
    pub(super) const fn opcode(self) -> u32 {
        bits(self.0, 2, 5, 0)
    }
    pub(super) const fn funct3(self) -> u32 {
        bits(self.0, 12, 3, 0)
    }
    pub(super) const fn funct6(self) -> u32 {
        bits(self.0, 26, 6, 0)
    }
    pub(super) const fn funct7(self) -> u32 {
        bits(self.0, 25, 7, 0)
    }
    /// Bits 31 to 27 of an atomic instruction.
    pub(super) const fn funct5(self) -> u32 {
        bits(self.0, 27, 5, 0)
    }
    pub(super) const fn rd(self) -> X {
        X::new(self.0 >> 7)
    }
    pub(super) const fn rs1(self) -> X {
        X::new(self.0 >> 15)
    }
    pub(super) const fn rs2(self) -> X {
        X::new(self.0 >> 20)
    }
    /// Distance of a shift of 64 bits.
    pub(super) const fn shamt(self) -> i32 {
        unsigned(bits(self.0, 20, 6, 0))
    }
    /// Distance of a shift of 32 bits.
    pub(super) const fn shamt_w(self) -> i32 {
        unsigned(bits(self.0, 20, 5, 0))
    }
    pub(super) const fn imm_i(self) -> i32 {
        sign(bits(self.0, 20, 12, 0), 12)
    }
    pub(super) const fn imm_s(self) -> i32 {
        sign(bits(self.0, 25, 7, 5) | bits(self.0, 7, 5, 0), 12)
    }
    pub(super) const fn imm_b(self) -> i32 {
        let magnitude = bits(self.0, 25, 6, 5) | bits(self.0, 8, 4, 1) | bits(self.0, 7, 1, 11);
        sign(magnitude | bits(self.0, 31, 1, 12), 13)
    }
    pub(super) const fn imm_u(self) -> i32 {
        sign(self.0 & 0xffff_f000, 32)
    }
    pub(super) const fn imm_j(self) -> i32 {
        let magnitude = bits(self.0, 21, 10, 1) | bits(self.0, 20, 1, 11) | bits(self.0, 12, 8, 12);
        sign(magnitude | bits(self.0, 31, 1, 20), 21)
    }
}

/// An instruction of 16 bits, in the low half.
#[derive(Clone, Copy)]
pub(super) struct Compressed(pub(super) u32);

impl Compressed {
    /// Bits 1 and 0.
    pub(super) const fn quadrant(self) -> u32 {
        bits(self.0, 0, 2, 0)
    }
    pub(super) const fn funct3(self) -> u32 {
        bits(self.0, 13, 3, 0)
    }
    /// Bit 12, which tells instructions apart in many places.
    pub(super) const fn bit12(self) -> bool {
        bits(self.0, 12, 1, 0) != 0
    }
    /// Bits 11 and 10, which tell arithmetic instructions apart.
    pub(super) const fn funct2(self) -> u32 {
        bits(self.0, 10, 2, 0)
    }
    /// Bits 6 and 5, which tell those between registers apart.
    pub(super) const fn funct2_low(self) -> u32 {
        bits(self.0, 5, 2, 0)
    }
    /// The register in bits 11 to 7.
    pub(super) const fn rd(self) -> X {
        X::new(self.0 >> 7)
    }
    /// The register in bits 6 to 2.
    pub(super) const fn rs2(self) -> X {
        X::new(self.0 >> 2)
    }
    /// The register in bits 9 to 7.
    pub(super) const fn rs1_short(self) -> X {
        X::compressed(self.0 >> 7)
    }
    /// The register in bits 4 to 2.
    pub(super) const fn rs2_short(self) -> X {
        X::compressed(self.0 >> 2)
    }
    /// The number in bits 12 and 6 to 2.
    const fn six_bits(self) -> u32 {
        bits(self.0, 12, 1, 5) | bits(self.0, 2, 5, 0)
    }
    /// The same with a sign.
    pub(super) const fn imm(self) -> i32 {
        sign(self.six_bits(), 6)
    }
    /// Distance of a shift.
    pub(super) const fn shamt(self) -> i32 {
        unsigned(self.six_bits())
    }
    /// Of `c.lui`.
    pub(super) const fn imm_lui(self) -> i32 {
        sign(self.six_bits() << 12, 18)
    }
    /// Of `c.addi16sp`.
    pub(super) const fn imm_16sp(self) -> i32 {
        let magnitude = bits(self.0, 6, 1, 4)
            | bits(self.0, 2, 1, 5)
            | bits(self.0, 5, 1, 6)
            | bits(self.0, 3, 2, 7);
        sign(magnitude | bits(self.0, 12, 1, 9), 10)
    }
    /// Of `c.addi4spn`.
    pub(super) const fn imm_4spn(self) -> i32 {
        unsigned(
            bits(self.0, 11, 2, 4)
                | bits(self.0, 7, 4, 6)
                | bits(self.0, 6, 1, 2)
                | bits(self.0, 5, 1, 3),
        )
    }
    /// Of `c.lw` and `c.sw`.
    pub(super) const fn imm_word(self) -> i32 {
        unsigned(bits(self.0, 10, 3, 3) | bits(self.0, 6, 1, 2) | bits(self.0, 5, 1, 6))
    }
    /// Of `c.ld` and `c.sd`.
    pub(super) const fn imm_double(self) -> i32 {
        unsigned(bits(self.0, 10, 3, 3) | bits(self.0, 5, 2, 6))
    }
    /// Of `c.lwsp`.
    pub(super) const fn imm_lwsp(self) -> i32 {
        unsigned(bits(self.0, 12, 1, 5) | bits(self.0, 4, 3, 2) | bits(self.0, 2, 2, 6))
    }
    /// Of `c.ldsp`.
    pub(super) const fn imm_ldsp(self) -> i32 {
        unsigned(bits(self.0, 12, 1, 5) | bits(self.0, 5, 2, 3) | bits(self.0, 2, 3, 6))
    }
    /// Of `c.swsp`.
    pub(super) const fn imm_swsp(self) -> i32 {
        unsigned(bits(self.0, 9, 4, 2) | bits(self.0, 7, 2, 6))
    }
    /// Of `c.sdsp`.
    pub(super) const fn imm_sdsp(self) -> i32 {
        unsigned(bits(self.0, 10, 3, 3) | bits(self.0, 7, 3, 6))
    }
    /// Of `c.j`.
    pub(super) const fn imm_j(self) -> i32 {
        let magnitude = bits(self.0, 11, 1, 4)
            | bits(self.0, 9, 2, 8)
            | bits(self.0, 8, 1, 10)
            | bits(self.0, 7, 1, 6)
            | bits(self.0, 6, 1, 7)
            | bits(self.0, 3, 3, 1)
            | bits(self.0, 2, 1, 5);
        sign(magnitude | bits(self.0, 12, 1, 11), 12)
    }
    /// Of `c.beqz` and `c.bnez`.
    pub(super) const fn imm_b(self) -> i32 {
        let magnitude = bits(self.0, 10, 2, 3)
            | bits(self.0, 5, 2, 6)
            | bits(self.0, 3, 2, 1)
            | bits(self.0, 2, 1, 5);
        sign(magnitude | bits(self.0, 12, 1, 8), 9)
    }
}

/// An instruction by its length.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    /// 16 bits.
    Compressed(Compressed),
    /// 32 bits.
    Full(Full),
}

/// The instruction at the start of `bytes`; [`None`] if it is longer than 32 bits or `bytes` ends
/// within it.
///
/// Unprivileged manual, "Expanded Instruction-Length Encoding".
pub(super) fn decode(bytes: &[u8]) -> Option<Encoding> {
    let [b0, b1, ..] = *bytes else {
        return None;
    };
    if b0 & 3 != 3 {
        let low = u16::from_le_bytes([b0, b1]);
        return Some(Encoding::Compressed(Compressed(u32::from(low))));
    }
    let [_, _, b2, b3, ..] = *bytes else {
        return None;
    };
    (b0 & 0x1f != 0x1f).then_some(Encoding::Full(Full(u32::from_le_bytes([b0, b1, b2, b3]))))
}
