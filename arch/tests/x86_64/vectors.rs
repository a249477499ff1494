// SPDX-License-Identifier: GPL-2.0

//! The table of verdicts, with each of the decoders.

use uprobes_arch::x86_64::vectors::{Vector, Verdict, VECTORS};
use uprobes_arch::x86_64::{Decode, X86_64};
use uprobes_core::arch::{Arch, MAX_INSN_BYTES};

use crate::iced::{disassemble, Iced};
use crate::kernel::Kernel;
use crate::plain::Plain;

/// The vector's code with zeroes behind it, as at the end of a file.
pub(crate) fn padded(vector: &Vector) -> [u8; MAX_INSN_BYTES] {
    let mut code = [0; MAX_INSN_BYTES];
    code[..vector.code.len()].copy_from_slice(vector.code);
    code
}

fn check<D: Decode>(vector: &Vector) {
    let analysis = X86_64::<D>::analyze(&padded(vector), vector.bitness);
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
        if disassemble(&padded(vector), vector.bitness, 0).is_some() {
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
