// SPDX-License-Identifier: GPL-2.0

//! The host's decoder: iced-x86 says what is an instruction and how long its parts are.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpCodeOperandKind};
use uprobes_arch::x86_64::decode::Field;
use uprobes_arch::x86_64::{Decode, Decoded};
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

/// Decodes with iced.
pub(crate) struct Iced;

/// Disassembles one instruction; [`None`] where there is none.
pub(crate) fn disassemble(
    bytes: &[u8],
    bitness: Bitness,
    ip: u64,
) -> Option<(Instruction, Decoder<'_>)> {
    let bits = match bitness {
        Bitness::Bits64 => 64,
        Bitness::Bits32 => 32,
    };
    let bytes = &bytes[..bytes.len().min(15)];
    let mut decoder = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE);
    let insn = decoder.decode();
    (!insn.is_invalid()).then_some((insn, decoder))
}

impl Decode for Iced {
    fn decode(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Decoded, Errno> {
        let (insn, decoder) = disassemble(bytes, bitness, 0).ok_or(Errno::ENOEXEC)?;
        let parts = decoder.get_constant_offsets(&insn);
        let mut d = Decoded {
            length: insn.len() as u8,
            ..Decoded::default()
        };
        let mut at = take_prefixes(bytes, bitness, &mut d)?;
        let second = bytes[at + 1];
        if bitness == Bitness::Bits32 && bytes[at] == 0x8f && second < 0xc0 && second & 0x38 != 0 {
            // XOP to iced, an undefined form of pop to the kernel.
            return Err(Errno::ENOEXEC);
        }
        take_vector_prefix(bytes, &mut at, bitness, &mut d);
        take_opcode(bytes, &mut at, &mut d);

        // Constants that iced takes for a part of the opcode, or for a register.
        let hidden_immediate =
            !parts.has_immediate() && (is_3dnow(&d) || names_register_in_immediate(&insn));

        // What lies between the opcode and the constants is ModRM and SIB.
        let has_displacement = parts.has_displacement();
        let moffs =
            d.opcode.nbytes == 1 && !d.vex.is_present() && matches!(d.opcode.bytes[0], 0xa0..=0xa3);
        let constants = if moffs {
            at
        } else if has_displacement {
            parts.displacement_offset()
        } else if parts.has_immediate() {
            parts.immediate_offset()
        } else if hidden_immediate {
            insn.len() - 1
        } else {
            insn.len()
        };
        let between = constants - at;
        assert!(
            between <= 2,
            "{bytes:02x?}: {between} bytes between opcode and constants"
        );
        if between >= 1 {
            d.modrm = field(&bytes[at..at + 1]);
        }
        if between == 2 {
            d.sib = field(&bytes[at + 1..at + 2]);
        }
        if moffs {
            // Counts as an immediate, of up to two halves.
            let (low, high) = bytes[at..insn.len()].split_at((insn.len() - at).min(4));
            d.immediate = signed(low);
            d.immediate2 = signed(high);
            return Ok(d);
        }
        if has_displacement {
            let start = parts.displacement_offset();
            d.displacement = signed(&bytes[start..start + parts.displacement_size()]);
        }
        if parts.has_immediate() {
            let start = parts.immediate_offset();
            let bytes = &bytes[start..start + parts.immediate_size()];
            let (low, high) = bytes.split_at(bytes.len().min(4));
            d.immediate = signed(low);
            d.immediate2 = signed(high);
        }
        if parts.has_immediate2() {
            let start = parts.immediate_offset2();
            d.immediate2 = signed(&bytes[start..start + parts.immediate_size2()]);
        }
        if hidden_immediate {
            d.immediate = signed(&bytes[insn.len() - 1..insn.len()]);
        }
        Ok(d)
    }
}

fn is_3dnow(d: &Decoded) -> bool {
    d.opcode.nbytes == 2 && d.opcode.bytes[..2] == [0x0f, 0x0f]
}

fn names_register_in_immediate(insn: &Instruction) -> bool {
    use OpCodeOperandKind::{xmm_is4, xmm_is5, ymm_is4, ymm_is5};
    let code = insn.op_code();
    code.op_kinds()
        .iter()
        .any(|kind| matches!(kind, xmm_is4 | xmm_is5 | ymm_is4 | ymm_is5))
}

fn field(bytes: &[u8]) -> Field {
    let mut f = Field {
        nbytes: bytes.len() as u8,
        ..Field::default()
    };
    f.bytes[..bytes.len()].copy_from_slice(bytes);
    f
}

/// A field whose sign is extended.
fn signed(bytes: &[u8]) -> Field {
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
fn take_prefixes(bytes: &[u8; 16], bitness: Bitness, d: &mut Decoded) -> Result<usize, Errno> {
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
fn take_vector_prefix(bytes: &[u8; 16], at: &mut usize, bitness: Bitness, d: &mut Decoded) {
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
fn take_opcode(bytes: &[u8; 16], at: &mut usize, d: &mut Decoded) {
    let len = match (d.vex.is_present(), bytes[*at], bytes[*at + 1]) {
        (true, ..) => 1,
        (_, 0x0f, 0x38 | 0x3a) => 3,
        (_, 0x0f, _) => 2,
        _ => 1,
    };
    d.opcode = field(&bytes[*at..*at + len]);
    *at += len;
}
