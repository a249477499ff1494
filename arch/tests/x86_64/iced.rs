// SPDX-License-Identifier: GPL-2.0

//! The host's decoder: iced-x86 says what is an instruction and how long its parts are.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpCodeOperandKind};
use uprobes_arch::x86_64::{Decode, Decoded};
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use crate::plain::{field, signed, take_opcode, take_prefixes, take_vector_prefix};

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
