// SPDX-License-Identifier: GPL-2.0

//! The table of verdicts, with each of the decoders.

use uprobes_arch::vectors::{Vector, Verdict};
use uprobes_arch::x86_64::regs::{flags, USER32_CS, USER_CS};
use uprobes_arch::x86_64::vectors::VECTORS;
use uprobes_arch::x86_64::{Decode, PtRegs, Reg, X86_64};
use uprobes_core::arch::{Arch, Bitness};

use crate::generic::{self, Random};
use crate::iced::{disassemble, Iced};
use crate::kernel::Kernel;
use crate::plain::Plain;

fn check<D: Decode>(vector: &Vector) {
    let analysis = X86_64::<D>::analyze(&vector.padded(), vector.bitness);
    let verdict = match analysis {
        Err(errno) => Verdict::Refused(errno),
        Ok(analysis) if analysis.simulated => Verdict::Simulated,
        Ok(_) => Verdict::Stepped,
    };
    assert_eq!(verdict, vector.verdict, "{}", vector.text);
    if let Ok(analysis) = analysis {
        assert_eq!(
            usize::from(analysis.len),
            vector.code.len(),
            "{}",
            vector.text
        );
    }
}

#[test]
fn verdicts_are_right_with_the_plain_decoder() {
    VECTORS.iter().for_each(check::<Plain>);
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn verdicts_are_right_with_iced() {
    for vector in VECTORS {
        // What is not an instruction to iced is refused before any rule is asked.
        if disassemble(&vector.padded(), vector.bitness, 0).is_some() {
            check::<Iced>(vector);
        }
    }
}

#[test]
fn verdicts_are_right_with_the_kernel_decoder() {
    if Kernel::is_available() {
        VECTORS.iter().for_each(check::<Kernel>);
    }
}

/// The backend, for what holds for all of them.
struct Suite;

impl generic::Backend for Suite {
    type A = X86_64<Plain>;

    const VECTORS: &'static [Vector] = VECTORS;
    const BITNESS: &'static [Bitness] = &[Bitness::Bits64, Bitness::Bits32];

    fn regs(random: &mut Random, bitness: Bitness) -> PtRegs {
        let bits64 = bitness == Bitness::Bits64;
        let mut regs = PtRegs::default();
        for n in 0..16 {
            let value = random.value(&generic::MEMORY);
            regs[Reg::gpr(n)] = if bits64 { value } else { value & 0xffff_ffff };
        }
        regs[Reg::Flags] = random.word() & (flags::STATUS | flags::TF) | 0x202;
        regs[Reg::Cs] = u64::from(if bits64 { USER_CS } else { USER32_CS });
        regs
    }
}

generic::suite!(Suite);
