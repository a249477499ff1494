// SPDX-License-Identifier: GPL-2.0

//! The table of verdicts, and what holds for every backend.

use uprobes_arch::riscv::vectors::VECTORS;
use uprobes_arch::riscv::{PtRegs, Riscv64, Word, X};
use uprobes_arch::vectors::{Vector, Verdict};
use uprobes_core::arch::Bitness;
use uprobes_core::errno::Errno;

use crate::generic::{self, Random};

/// The backend, for what holds for all of them.
struct Suite;

impl generic::Backend for Suite {
    type A = Riscv64;

    const VECTORS: &'static [Vector] = VECTORS;
    const BITNESS: &'static [Bitness] = &[Bitness::Bits64, Bitness::Bits32];

    fn regs(random: &mut Random, bitness: Bitness) -> PtRegs {
        let mut regs = PtRegs::default();
        for n in 1..32 {
            regs.set_x(X::new(n), random.value(&generic::MEMORY));
        }
        let uxl = if bitness == Bitness::Bits64 { 2 } else { 1 };
        regs.set_word(Word::Status, uxl << 32);
        // A breakpoint.
        regs.set_word(Word::Cause, 3);
        regs
    }
}

generic::suite!(Suite);

#[test]
fn the_marks_are_those_of_what_c_does() {
    for vector in VECTORS {
        let c = by_c(vector);
        let marked = vector.better_than_c || vector.bitness == Bitness::Bits32;
        assert!(
            marked || c == vector.verdict,
            "{}: C says {c:?}",
            vector.text
        );
    }
}

/// The verdict of the C implementation (`riscv_probe_decode_insn()`): by masks, on the first four
/// bytes, whatever the length is.
fn by_c(vector: &Vector) -> Verdict {
    const REFUSED: Verdict = Verdict::Refused(Errno::EINVAL);
    let code = vector.padded();
    let word = u32::from_le_bytes(code[..4].try_into().unwrap());
    let is = |mask: u32, value: u32| word & mask == value;
    // system, fence, c.ebreak.
    if is(0x7f, 0x73) || is(0x7f, 0x0f) || is(0xffff, 0x9002) {
        return REFUSED;
    }
    let compressed_jumps = is(0xe003, 0xa001)
        || (is(0xf07f, 0x8002) || is(0xf07f, 0x9002)) && word & 0xf80 != 0
        || is(0xe003, 0xc001)
        || is(0xe003, 0xe001);
    // jal, jalr, auipc, branches.
    if compressed_jumps || is(0x7f, 0x6f) || is(0x707f, 0x67) || is(0x7f, 0x17) || is(0x7f, 0x63) {
        return Verdict::Simulated;
    }
    Verdict::Stepped
}
