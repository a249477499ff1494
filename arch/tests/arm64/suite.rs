// SPDX-License-Identifier: GPL-2.0

//! The table of verdicts, and what holds for every backend.

use uprobes_arch::arm64::regs::pstate;
use uprobes_arch::arm64::vectors::VECTORS;
use uprobes_arch::arm64::{Arm64, PtRegs};
use uprobes_arch::vectors::Vector;
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};

use crate::generic::{self, Random};

struct Suite;

impl generic::Backend for Suite {
    type A = Arm64;

    const VECTORS: &'static [Vector] = VECTORS;
    const BITNESS: &'static [Bitness] = &[Bitness::Bits64, Bitness::Bits32];

    fn code(random: &mut Random) -> [u8; MAX_INSN_BYTES] {
        let mut code: [u8; MAX_INSN_BYTES] = random.bytes();
        if random.below(2) == 0 {
            // Near an instruction that matters.
            let vector = VECTORS[random.below(VECTORS.len())].code;
            code[..4].copy_from_slice(&vector[..4]);
            code[random.below(4)] ^= 1 << random.below(8);
        }
        code
    }

    fn regs(random: &mut Random, bitness: Bitness) -> PtRegs {
        let mut regs = PtRegs::default();
        for n in 0..31 {
            regs.set_x(n, random.value(&generic::MEMORY));
        }
        regs.sp = random.value(&generic::MEMORY);
        let flags = pstate::N | pstate::Z | pstate::C | pstate::V;
        regs.pstate = random.word() & (flags | pstate::BTYPE | pstate::SS);
        if bitness == Bitness::Bits32 {
            regs.pstate |= pstate::MODE32;
        }
        regs
    }
}

generic::suite!(Suite);
