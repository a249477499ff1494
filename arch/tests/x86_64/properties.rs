// SPDX-License-Identifier: GPL-2.0

//! What holds for every piece of code.

use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, Register};
use proptest::prelude::*;
use uprobes_arch::x86_64::decode::Field;
use uprobes_arch::x86_64::{Decode, Decoded, PtRegs, Reg, X86_64};
use uprobes_core::arch::{Arch, Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use crate::generate;
use crate::iced::{disassemble, Iced};
use crate::model::Model;

type Backend = X86_64<Iced>;

/// Analyses, and checks what every verdict must fulfil.
fn check(code: &[u8; MAX_INSN_BYTES], bitness: Bitness) {
    let analysis = match Backend::analyze(code, bitness) {
        Ok(analysis) => analysis,
        Err(errno) => {
            assert!(
                [Errno::ENOTSUPP, Errno::ENOEXEC].contains(&errno),
                "{errno:?}"
            );
            return;
        }
    };
    let (disassembly, _) = disassemble(code, bitness, 0).expect("accepted without being valid");
    let text = || format!("{disassembly} {code:02x?} {bitness:?}");
    let len = usize::from(analysis.len);
    if disassembly.mnemonic() == Mnemonic::Ud0 {
        // With or without operands, as the CPU pleases.
        return;
    }
    assert_eq!(len, disassembly.len(), "{}", text());
    assert_eq!(analysis.insn.length(), analysis.len);
    assert_eq!(analysis.insn.bitness(), bitness);

    // The copy is as long, and differs where it must only.
    let (slot, slot_len) = Backend::xol_bytes(&analysis.insn);
    assert!(slot_len <= Backend::XOL_SLOT_BYTES);
    assert!(slot[len..slot_len].iter().all(|&b| b == 0x90), "{}", text());
    let Some((copy, _)) = disassemble(&slot, bitness, 0) else {
        panic!("{}: the copy {slot:02x?} is not valid", text());
    };
    assert_eq!(copy.len(), len, "{}", text());
    assert_eq!(copy.code(), disassembly.code(), "{}", text());
    match analysis.insn.scratch() {
        None => {
            assert!(!disassembly.is_ip_rel_memory_operand() || bitness == Bitness::Bits32);
            assert_eq!(
                copy.op_kinds().collect::<Vec<_>>(),
                disassembly.op_kinds().collect::<Vec<_>>()
            );
        }
        Some(scratch) => check_scratch(&disassembly, &copy, scratch, &text()),
    }
}

/// Checks that the copy reaches through `scratch` what the original reaches through the
/// instruction pointer, and that neither uses it for anything else.
fn check_scratch(
    original: &iced_x86::Instruction,
    copy: &iced_x86::Instruction,
    scratch: Reg,
    text: &str,
) {
    let scratch = match scratch {
        Reg::Si => Register::RSI,
        Reg::Di => Register::RDI,
        Reg::Bx => Register::RBX,
        other => panic!("{text}: {other:?}"),
    };
    assert!(original.is_ip_rel_memory_operand(), "{text}");
    assert_eq!(copy.memory_base().full_register(), scratch, "{text}");
    assert_eq!(copy.memory_index(), Register::None, "{text}");
    assert_eq!(copy.memory_segment(), original.memory_segment(), "{text}");
    // Decoded at address 0, the original's displacement counts from its start.
    let from_end = original
        .memory_displacement64()
        .wrapping_sub(original.len() as u64);
    let bits32 = copy.memory_base() != scratch;
    let displacement = copy.memory_displacement64();
    if bits32 {
        assert_eq!(displacement as u32, from_end as u32, "{text}");
    } else {
        assert_eq!(displacement, from_end, "{text}");
    }
    let mut factory = InstructionInfoFactory::new();
    for used in factory.info(original).used_registers() {
        assert_ne!(used.register().full_register(), scratch, "{text}: {used:?}");
    }
    for used in factory.info(copy).used_registers() {
        if used.register().full_register() == scratch {
            assert_eq!(used.access(), OpAccess::Read, "{text}: {used:?}");
        }
    }
    for op in 0..original.op_count() {
        assert_eq!(original.op_register(op), copy.op_register(op), "{text}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn verdicts_on_random_code_are_sound() {
    let code = (generate::code(), generate::bitness());
    proptest!(generate::config(100_000), |((code, bitness) in code)| {
        check(&code, bitness);
    });
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn verdicts_on_every_opcode_are_sound() {
    for bitness in [Bitness::Bits64, Bitness::Bits32] {
        let step = if cfg!(miri) { 5000 } else { 1 };
        generate::every_opcode(bitness)
            .step_by(step)
            .for_each(|code| check(&code, bitness));
    }
}

#[test]
#[cfg_attr(miri, ignore = "iced does not run under Miri")]
fn scratch_registers_are_free_where_vex_names_general_registers() {
    let mut checked = 0;
    let opcodes = (0xe0..=0xf7).map(|opcode| (2, opcode)).chain([(3, 0xf0)]);
    for (map, opcode) in opcodes {
        for (reg, vvvv) in (0..16).flat_map(|reg| (0..16).map(move |vvvv| (reg, vvvv))) {
            for (pp, w) in (0..4).flat_map(|pp| [(pp, 0), (pp, 0x80)]) {
                let mut code = [0x11; MAX_INSN_BYTES];
                let not_r = if reg & 8 == 0 { 0x80 } else { 0 };
                let bytes = [
                    0xc4,
                    not_r | 0x60 | map,
                    w | (!vvvv & 15) << 3 | pp,
                    opcode,
                    5 | (reg & 7) << 3,
                ];
                code[..5].copy_from_slice(&bytes);
                check(&code, Bitness::Bits64);
                checked += u32::from(Backend::analyze(&code, Bitness::Bits64).is_ok());
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}

/// A decoder that answers anything.
struct Liar;

thread_local! {
    static LIE: std::cell::Cell<Decoded> = std::cell::Cell::new(Decoded::default());
}

impl Decode for Liar {
    fn decode(_: &[u8; MAX_INSN_BYTES], _: Bitness) -> Result<Decoded, Errno> {
        Ok(LIE.get())
    }
}

fn any_field() -> impl Strategy<Value = Field> {
    (any::<[u8; 4]>(), any::<u8>(), any::<bool>()).prop_map(|(bytes, n, wild)| Field {
        bytes,
        nbytes: if wild { n } else { n % 5 },
    })
}

#[test]
fn no_decoder_makes_it_panic() {
    let fields = (
        (
            any_field(),
            any_field(),
            any_field(),
            any_field(),
            any_field(),
        ),
        (any_field(), any_field(), any_field(), any_field()),
    );
    let input = (
        fields,
        any::<u8>(),
        any::<[u8; MAX_INSN_BYTES]>(),
        generate::bitness(),
    );
    proptest!(generate::config(100_000), |((fields, length, code, bitness) in input)| {
        let ((prefixes, rex, vex, opcode, modrm), (sib, displacement, immediate, immediate2)) = fields;
        LIE.set(Decoded {
            prefixes, rex, vex, opcode, modrm, sib, displacement, immediate, immediate2, length,
        });
        if let Ok(analysis) = X86_64::<Liar>::analyze(&code, bitness) {
            exercise(&analysis.insn, bitness);
        }
    });
}

/// Simulates, steps and aborts with registers that are all ones.
fn exercise(insn: &uprobes_arch::x86_64::Insn, bitness: Bitness) {
    for fill in [0, u64::MAX, 1 << 63, 0x1000] {
        let mut regs = PtRegs::default();
        for n in 0..16 {
            regs[Reg::gpr(n)] = fill;
        }
        regs[Reg::Ip] = fill;
        regs[Reg::Flags] = fill;
        regs[Reg::Cs] = if bitness == Bitness::Bits64 {
            0x33
        } else {
            0x23
        };
        let mut task = Model::new(0x1000, vec![0xff; 64]);
        let _ = Backend::simulate(insn, &mut regs, &mut task);
        let mut state = Backend::pre_xol(insn, &mut regs, &mut task, fill, !fill).unwrap();
        regs[Reg::Ip] = regs[Reg::Ip].wrapping_add(insn.length().into());
        let _ = Backend::post_xol(insn, &mut regs, &mut task, &mut state, fill, !fill);
        Backend::abort_xol(insn, &mut regs, &mut task, &state, fill);
    }
}
