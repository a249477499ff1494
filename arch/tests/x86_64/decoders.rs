// SPDX-License-Identifier: GPL-2.0

//! The kernel's decoder against iced.
//!
//! Each knows instructions that the other does not; on those that both know the backend must come
//! to the same verdict, whichever decoder it has.

use proptest::prelude::*;
use uprobes_arch::x86_64::{Decode, X86_64};
use uprobes_core::arch::{Arch, Bitness};

use crate::generate;
use crate::iced::Iced;
use crate::kernel::Kernel;
use crate::plain::Plain;

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn random_code_gets_the_same_verdict_with_either_decoder() {
    if !Kernel::is_available() {
        return;
    }
    let code = (generate::code(), generate::bitness());
    proptest!(generate::config(50_000), |((code, bitness) in code)| {
        let kernel = X86_64::<Kernel>::analyze(&code, bitness);
        let iced = X86_64::<Iced>::analyze(&code, bitness);
        if let (Ok(kernel), Ok(iced)) = (kernel, iced) {
            prop_assert_eq!(kernel, iced, "{:02x?}", code);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn every_opcode_gets_the_same_verdict_with_either_decoder() {
    if !Kernel::is_available() {
        return;
    }
    let mut same = 0;
    for bitness in [Bitness::Bits64, Bitness::Bits32] {
        let codes: Vec<_> = generate::every_opcode(bitness).collect();
        Kernel::remember(&codes, bitness);
        for code in codes {
            let kernel = X86_64::<Kernel>::analyze(&code, bitness);
            let iced = X86_64::<Iced>::analyze(&code, bitness);
            if let (Ok(kernel), Ok(iced)) = (kernel, iced) {
                assert_eq!(kernel, iced, "{code:02x?} {bitness:?}");
                same += 1;
            }
        }
    }
    assert!(same > 10_000, "{same}");
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn the_plain_decoder_agrees_with_iced() {
    let code = (generate::code(), generate::bitness());
    proptest!(generate::config(100_000), |((code, bitness) in code)| {
        if let Ok(iced) = Iced::decode(&code, bitness) {
            prop_assert_eq!(Plain::decode(&code, bitness), Ok(iced), "{:02x?}", code);
        }
    });
    for bitness in [Bitness::Bits64, Bitness::Bits32] {
        for code in generate::every_opcode(bitness) {
            if let Ok(iced) = Iced::decode(&code, bitness) {
                assert_eq!(
                    Plain::decode(&code, bitness),
                    Ok(iced),
                    "{code:02x?} {bitness:?}"
                );
            }
        }
    }
}
