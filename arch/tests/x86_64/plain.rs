// SPDX-License-Identifier: GPL-2.0

//! A plain decoder, for where iced cannot run (Miri finds fault with it) and against which it can
//! be checked. It knows which opcodes have ModRM and immediates, and nothing of what they mean.

use uprobes_arch::x86_64::decode::{Field, Map};
use uprobes_arch::x86_64::{Decode, Decoded};
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

/// Decodes by a few rules.
pub(crate) struct Plain;

impl Decode for Plain {
    fn decode(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Decoded, Errno> {
        // Zeroes behind, so that what is too long shows by its length.
        let mut code = [0; 2 * MAX_INSN_BYTES];
        code[..MAX_INSN_BYTES].copy_from_slice(bytes);
        let bits64 = bitness == Bitness::Bits64;
        let mut d = Decoded::default();
        let mut at = take_prefixes(bytes, bitness, &mut d)?;
        take_vector_prefix(bytes, &mut at, bitness, &mut d);
        take_opcode(bytes, &mut at, &mut d);
        let mut take = |len: usize| {
            at += len;
            &code[at - len..at]
        };
        let small_address = !bits64 && d.has_prefix(0x67);
        if has_modrm(&d) {
            d.modrm = field(take(1));
            // Moves to and from control and debug registers have no memory form.
            let register = d.map() == Map::TwoByte && matches!(d.opcode_byte(), 0x20..=0x23);
            let mode = if register { 3 } else { d.modrm_mod() };
            let rm = d.modrm.bytes[0] & 7;
            if mode != 3 && rm == 4 && !small_address {
                d.sib = field(take(1));
            }
            let base = if d.sib.is_present() {
                d.sib.bytes[0] & 7
            } else {
                rm
            };
            let displacement = match (mode, small_address) {
                (1, _) => 1,
                (2, true) => 2,
                (2, false) => 4,
                (0, true) if rm == 6 => 2,
                (0, false) if base == 5 => 4,
                _ => 0,
            };
            d.displacement = signed(take(displacement));
        }
        let (first, second) = immediates(&d, bits64);
        d.immediate = signed(take(first));
        d.immediate2 = signed(take(second));
        if at > 15 {
            return Err(Errno::ENOEXEC);
        }
        d.length = at as u8;
        Ok(d)
    }
}

fn has_modrm(d: &Decoded) -> bool {
    let op = d.opcode_byte();
    match d.map() {
        Map::One => {
            matches!(op,
            0x00..=0x3f if op & 7 < 4)
                || matches!(op, 0x62 | 0x63 | 0x69 | 0x6b | 0x80..=0x8f | 0xc0 | 0xc1
                | 0xc4..=0xc7 | 0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff)
        }
        Map::TwoByte => !matches!(op,
            0x04..=0x0c | 0x0e | 0x24..=0x27 | 0x30..=0x3f | 0x77 | 0x7a | 0x7b
            | 0x80..=0x8f | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf),
        Map::ThreeByte => true,
        Map::Vector => op != 0x77 || d.vex.bytes[0] == 0x62 || vector_map(d) != 1,
    }
}

/// The table that VEX, EVEX or XOP selects.
fn vector_map(d: &Decoded) -> u8 {
    match d.vex.nbytes {
        2 => 1,
        3 => d.vex.bytes[1] & 0x1f,
        _ => d.vex.bytes[1] & 7,
    }
}

/// Bytes of the two immediates; a long one counts as two halves, as the kernel has it.
fn immediates(d: &Decoded, bits64: bool) -> (usize, usize) {
    let op = d.opcode_byte();
    let small = d.has_prefix(0x66);
    // Of the operand's size, but no more than four bytes.
    let z = if small && !d.w() { 2 } else { 4 };
    // Near branches have no 16-bit form in 64-bit code.
    let near = if bits64 { 4 } else { z };
    match d.map() {
        Map::One => match op {
            0x00..=0x3f if op & 7 == 4 => (1, 0),
            0x00..=0x3f if op & 7 == 5 => (z, 0),
            0x68 | 0x69 | 0x81 | 0xa9 => (z, 0),
            0x6a
            | 0x6b
            | 0x70..=0x80
            | 0x82
            | 0x83
            | 0xa8
            | 0xb0..=0xb7
            | 0xc0
            | 0xc1
            | 0xc6
            | 0xcd
            | 0xd4
            | 0xd5
            | 0xe0..=0xe7
            | 0xeb => (1, 0),
            0x9a | 0xea => (z, 2),
            0xa0..=0xa3 => match (bits64, d.has_prefix(0x67)) {
                (true, false) => (4, 4),
                (true, true) | (false, false) => (4, 0),
                (false, true) => (2, 0),
            },
            0xb8..=0xbf if d.w() => (4, 4),
            0xb8..=0xbf => (z, 0),
            0xc2 | 0xca => (2, 0),
            0xc8 => (2, 1),
            // xbegin has the distance of a branch.
            0xc7 => (z, 0),
            0xe8 | 0xe9 => (near, 0),
            0xf6 if d.group() < 2 => (1, 0),
            0xf7 if d.group() < 2 => (z, 0),
            _ => (0, 0),
        },
        Map::TwoByte => match op {
            0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => (1, 0),
            0x78 if small || d.has_prefix(0xf2) => (1, 1),
            0x80..=0x8f => (near, 0),
            _ => (0, 0),
        },
        Map::ThreeByte if d.opcode.bytes[1] == 0x3a => (1, 0),
        Map::ThreeByte => (0, 0),
        Map::Vector => match (vector_map(d), op) {
            (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3 | 8, _) => (1, 0),
            (0x0a, _) => (4, 0),
            (7, _) => (4, 0),
            _ => (0, 0),
        },
    }
}

/// A field of these bytes.
pub(super) fn field(bytes: &[u8]) -> Field {
    let mut f = Field {
        nbytes: bytes.len() as u8,
        ..Field::default()
    };
    f.bytes[..bytes.len()].copy_from_slice(bytes);
    f
}

/// A field whose sign is extended.
pub(super) fn signed(bytes: &[u8]) -> Field {
    let mut f = field(bytes);
    if bytes.last().is_some_and(|b| b & 0x80 != 0) {
        f.bytes[bytes.len()..].fill(0xff);
    }
    f
}

fn is_legacy_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// Takes legacy prefixes and REX the way the kernel's decoder keeps them.
pub(super) fn take_prefixes(
    bytes: &[u8; 16],
    bitness: Bitness,
    d: &mut Decoded,
) -> Result<usize, Errno> {
    let mut at = 0;
    let mut different = Vec::new();
    let mut last = 0;
    while is_legacy_prefix(bytes[at]) {
        last = bytes[at];
        if !different.contains(&last) {
            different.push(last);
        }
        at += 1;
    }
    if different.len() > 4 {
        return Err(Errno::ENOEXEC);
    }
    d.prefixes.bytes[..different.len()].copy_from_slice(&different);
    d.prefixes.nbytes = at as u8;
    if last != 0 && d.prefixes.bytes[3] != last {
        let fourth = d.prefixes.bytes[3];
        if fourth != 0 {
            let place = different.iter().position(|&p| p == last).unwrap();
            d.prefixes.bytes[place] = fourth;
        }
        d.prefixes.bytes[3] = last;
    }
    if bitness == Bitness::Bits64 && bytes[at] & 0xf0 == 0x40 {
        d.rex = field(&bytes[at..at + 1]);
        at += 1;
        if is_legacy_prefix(bytes[at]) || bytes[at] & 0xf0 == 0x40 {
            return Err(Errno::ENOEXEC);
        }
    }
    Ok(at)
}

/// Takes VEX, EVEX or XOP.
pub(super) fn take_vector_prefix(
    bytes: &[u8; 16],
    at: &mut usize,
    bitness: Bitness,
    d: &mut Decoded,
) {
    let (first, second) = (bytes[*at], bytes[*at + 1]);
    let register_form = bitness == Bitness::Bits64 || second >> 6 == 3;
    let len = match first {
        0xc5 if register_form => 2,
        0xc4 if register_form => 3,
        0x62 if register_form => 4,
        0x8f if register_form && second & 0x38 != 0 => 3,
        _ => return,
    };
    d.vex = field(&bytes[*at..*at + len]);
    if len == 2 {
        d.vex.bytes[2] = second & 0x7f;
    }
    *at += len;
}

/// Takes the opcode with its escape bytes.
pub(super) fn take_opcode(bytes: &[u8; 16], at: &mut usize, d: &mut Decoded) {
    let len = match (d.vex.is_present(), bytes[*at], bytes[*at + 1]) {
        (true, ..) => 1,
        (_, 0x0f, 0x38 | 0x3a) => 3,
        (_, 0x0f, _) => 2,
        _ => 1,
    };
    d.opcode = field(&bytes[*at..*at + len]);
    *at += len;
}
