// SPDX-License-Identifier: GPL-2.0

//! The decoders against each other, and the verdicts against those of the C implementation.
//!
//! Each knows instructions that the other does not; on those that both know the backend must come
//! to the same verdict, whichever decoder it has.

use proptest::prelude::*;
use uprobes_arch::x86_64::decode::Map;
use uprobes_arch::x86_64::{Decode, Decoded, X86_64};
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

/// Whether the C implementation accepts an instruction: by its first opcode byte, whichever table
/// that belongs to, and its prefixes.
fn is_accepted_by_c(d: &Decoded, bitness: Bitness) -> bool {
    let op = d.opcode.bytes[0];
    let refused = match op {
        0x07
        | 0x17
        | 0x1f
        | 0x6c..=0x6f
        | 0xcc..=0xcf
        | 0xe4..=0xe7
        | 0xec..=0xef
        | 0xf1
        | 0xf4
        | 0xfa
        | 0xfb => true,
        0x06
        | 0x0e
        | 0x16
        | 0x1e
        | 0x27
        | 0x2f
        | 0x37
        | 0x3f
        | 0x60..=0x62
        | 0x82
        | 0x9a
        | 0xd4..=0xd6
        | 0xea => bitness == Bitness::Bits64,
        0x8e => d.group() == 2,
        _ => false,
    };
    let prefixed = [0x26, 0x2e, 0x36, 0x3e, 0xf0]
        .iter()
        .any(|&p| d.has_prefix(p));
    let branch = match (d.opcode.nbytes, op, d.opcode.bytes[1]) {
        (2, 0x0f, second) => second & 0xf0 == 0x80,
        (_, op, _) => op & 0xf0 == 0x70 || matches!(op, 0xe8 | 0xe9 | 0xeb),
    };
    !(refused || prefixed || branch && d.has_prefix(0x66))
}

/// Whether we refuse, for a reason, what C accepts.
fn is_refused_on_purpose(d: &Decoded, bitness: Bitness) -> bool {
    let op = d.opcode_byte();
    let small = d.has_prefix(0x66) && !d.w();
    match d.map() {
        // REX2: no CPU has it, and what it admits is little tried.
        _ if d.rex2().is_some() => true,
        // The decoder has read a prefix or an escape for an opcode.
        Map::One
            if matches!(
                op,
                0x0f | 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
            ) =>
        {
            true
        }
        Map::One if bitness == Bitness::Bits64 && op & 0xf0 == 0x40 => true,
        // #UD in 64-bit code, after REX.
        Map::One if bitness == Bitness::Bits64 && matches!(op, 0xc4 | 0xc5) => true,
        // Relative branches that cut the instruction pointer.
        Map::One if matches!(op, 0xe0..=0xe3) || op == 0xc7 && d.modrm.bytes[0] == 0xf8 => small,
        // sysenter, syscall of ia32; moves of control registers that are none.
        Map::TwoByte if op == 0x34 || op == 0x05 && bitness == Bitness::Bits32 => true,
        Map::TwoByte if matches!(op, 0x20..=0x23) => !d.is_register_form(),
        // The decoder has missed ModRM.
        Map::TwoByte | Map::ThreeByte => !d.modrm.is_present(),
        // EVEX with APX's extended base register.
        Map::Vector => d.vex.nbytes == 4 && d.vex.bytes[1] & 8 != 0,
        Map::One => false,
    }
}

#[test]
fn what_c_accepts_is_accepted() {
    fn check<D: Decode>(code: &[u8; 16], bitness: Bitness) {
        let Ok(d) = D::decode(code, bitness) else {
            return;
        };
        if is_accepted_by_c(&d, bitness) && !is_refused_on_purpose(&d, bitness) {
            let verdict = X86_64::<D>::analyze(code, bitness);
            assert!(verdict.is_ok(), "{code:02x?} {bitness:?}: {verdict:?}");
        }
    }
    let code = (generate::code(), generate::bitness());
    if Kernel::is_available() {
        proptest!(generate::config(50_000), |((code, bitness) in code)| {
            check::<Kernel>(&code, bitness);
        });
        for bitness in [Bitness::Bits64, Bitness::Bits32] {
            let codes: Vec<_> = generate::every_opcode(bitness).collect();
            Kernel::remember(&codes, bitness);
            codes.iter().for_each(|code| check::<Kernel>(code, bitness));
        }
    } else {
        proptest!(generate::config(50_000), |((code, bitness) in code)| {
            check::<Plain>(&code, bitness);
        });
    }
}
