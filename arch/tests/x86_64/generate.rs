// SPDX-License-Identifier: GPL-2.0

//! Instructions to test with: random, but such that prefixes, tables and operand forms that
//! matter come up often.

use proptest::prelude::*;
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};

/// Displacements from the instruction pointer that reach the data of the test programs.
const RIP_TO_DATA: std::ops::Range<i32> = 0x2800..0x4700;

/// Either width of code.
pub(crate) fn bitness() -> impl Strategy<Value = Bitness> {
    prop_oneof![3 => Just(Bitness::Bits64), 1 => Just(Bitness::Bits32)]
}

fn legacy_prefix() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![
        0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x66, 0x66, 0x67, 0xf0, 0xf2, 0xf2, 0xf3, 0xf3,
    ])
}

fn legacy_prefixes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => Just(vec![]),
        3 => prop::collection::vec(legacy_prefix(), 1..2),
        1 => prop::collection::vec(legacy_prefix(), 1..7),
    ]
}

fn rex() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => Just(vec![]),
        12 => (0x40u8..0x50).prop_map(|b| vec![b]),
        1 => any::<u8>().prop_map(|payload| vec![0xd5, payload]),
    ]
}

/// The opcode, with the escape bytes or vector prefix that select its table.
fn opcode() -> impl Strategy<Value = Vec<u8>> {
    let escape = |bytes: &'static [u8]| any::<u8>().prop_map(move |op| [bytes, &[op]].concat());
    let vex3 = (
        any::<u8>(),
        prop_oneof![4 => 1u8..4, 1 => 0u8..32],
        any::<u8>(),
        any::<u8>(),
    )
        .prop_map(|(rxb, map, wvlp, op)| vec![0xc4, rxb & 0xe0 | map, wvlp, op]);
    let vex2 = (any::<u8>(), any::<u8>()).prop_map(|(rvlp, op)| vec![0xc5, rvlp, op]);
    let evex = (any::<u8>(), 1u8..8, any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(rxb, map, p1, p2, op)| vec![0x62, rxb & 0xf0 | map, p1 | 4, p2, op]);
    let xop = (any::<u8>(), 8u8..11, any::<u8>(), any::<u8>())
        .prop_map(|(rxb, map, wvlp, op)| vec![0x8f, rxb & 0xe0 | map, wvlp, op]);
    prop_oneof![
        6 => any::<u8>().prop_map(|op| vec![op]),
        4 => escape(&[0x0f]),
        1 => escape(&[0x0f, 0x38]),
        1 => escape(&[0x0f, 0x3a]),
        2 => vex3,
        2 => vex2,
        2 => evex,
        1 => xop,
    ]
}

/// ModRM, with much of what is relative to the instruction pointer, and more.
fn operands() -> impl Strategy<Value = Vec<u8>> {
    let modrm = prop_oneof![
        2 => any::<u8>(),
        2 => any::<u8>().prop_map(|b| b | 0xc0),
        2 => any::<u8>().prop_map(|b| b & 0x38 | 0x05),
    ];
    let rest = prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 14),
        1 => (RIP_TO_DATA, prop::collection::vec(any::<u8>(), 10))
            .prop_map(|(disp, rest)| [&disp.to_le_bytes()[..], &rest].concat()),
    ];
    (modrm, rest).prop_map(|(modrm, rest)| [&[modrm][..], &rest].concat())
}

/// Bytes that more often than not start with an instruction.
pub(crate) fn code() -> impl Strategy<Value = [u8; MAX_INSN_BYTES]> {
    let encoded = (legacy_prefixes(), rex(), opcode(), operands()).prop_map(
        |(prefixes, rex, opcode, operands)| {
            // REX before a vector prefix is no instruction.
            let rex = if matches!(opcode[0], 0xc4 | 0xc5 | 0x62 | 0x8f) {
                vec![]
            } else {
                rex
            };
            let all = [prefixes, rex, opcode, operands].concat();
            all[..MAX_INSN_BYTES].try_into().unwrap()
        },
    );
    prop_oneof![1 => any::<[u8; MAX_INSN_BYTES]>(), 12 => encoded]
}

/// Tests that draw `cases` times by default; `UPROBES_CASES` overrides it, and under Miri it is few.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: self::cases(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// See [`config`]; without optimisation, a tenth of the default.
pub(crate) fn cases(default: u32) -> u32 {
    if cfg!(miri) {
        return 50;
    }
    let default = if cfg!(debug_assertions) {
        default.div_ceil(10)
    } else {
        default
    };
    std::env::var("UPROBES_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

/// Every opcode of the tables without vector prefixes, behind each of the prefixes that select
/// among instructions, with ModRM bytes of every group and form; without optimisation, some of them.
pub(crate) fn every_opcode(bitness: Bitness) -> impl Iterator<Item = [u8; MAX_INSN_BYTES]> {
    const PREFIXES: [&[u8]; 10] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x66, 0xf2],
        &[0xf3, 0x66],
        &[0x67],
        &[0xf0],
        &[0x48],
        &[0x66, 0x4f],
    ];
    const TABLES: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    const FORMS: [u8; 6] = [0x00, 0x04, 0x05, 0x45, 0xc0, 0xc5];
    // In 32-bit code, REX is an instruction.
    let prefixes = if bitness == Bitness::Bits64 { 10 } else { 8 };
    let modrm = || (0..8u8).flat_map(|reg| FORMS.map(|form| form | reg << 3));
    // Prime, so that no prefix, opcode or form is left out altogether.
    let step = if cfg!(debug_assertions) { 13 } else { 1 };
    PREFIXES
        .into_iter()
        .take(prefixes)
        .flat_map(move |prefix| {
            TABLES.into_iter().flat_map(move |table| {
                (0..=255u8).flat_map(move |opcode| {
                    modrm().map(move |modrm| {
                        let mut code = [0x11; MAX_INSN_BYTES];
                        let bytes = [prefix, table, &[opcode, modrm]].concat();
                        code[..bytes.len()].copy_from_slice(&bytes);
                        code
                    })
                })
            })
        })
        .step_by(step)
}
