// SPDX-License-Identifier: GPL-2.0

//! Which instructions can be probed, and how.

use uprobes_core::arch::{Analysis, Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use super::decode::{decode, Decoded, Indirect, Load, INSN_BYTES};
use super::insn::{Fixup, Insn, LiteralSize, Sim, NOP};
use super::regs::btype;
use super::xol::TAKEN;

/// Decides whether and how the instruction at the start of `bytes` can be probed.
pub(super) fn analyze(
    bytes: &[u8; MAX_INSN_BYTES],
    bitness: Bitness,
) -> Result<Analysis<Insn>, Errno> {
    if bitness == Bitness::Bits32 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut words = words(bytes);
    let word = words.next().ok_or(Errno::EINVAL)?;
    let decoded = decode(word);
    if is_bound_to_its_place(decoded) || is_in_exclusive_sequence(words) {
        return Err(Errno::EINVAL);
    }
    let sim = simulation(decoded);
    let (slot, fixup) = out_of_line(word, decoded);
    Ok(Analysis {
        insn: Insn {
            sim,
            slot,
            fixup,
            pad: landing_pad(decoded),
            wants_signed_link: wants_signed_link(decoded),
        },
        // CAST: four.
        len: INSN_BYTES as u8,
        simulated: sim != Sim::None,
    })
}

/// The instructions in `bytes`.
fn words(bytes: &[u8; MAX_INSN_BYTES]) -> impl Iterator<Item = u32> + '_ {
    bytes
        .chunks_exact(INSN_BYTES)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// Whether an instruction can neither be stepped elsewhere nor simulated.
fn is_bound_to_its_place(decoded: Decoded) -> bool {
    match decoded {
        // Exceptions of their own, around which a step goes astray. What is not a system call or
        // a breakpoint is undefined in user space.
        Decoded::Exception | Decoded::ExceptionReturn => true,
        // Taking an exception clears the monitor (B2, "Synchronization and semaphores"): the store
        // fails for ever.
        Decoded::Exclusive { .. } => true,
        // Three instructions in a row; where a CPU has begun and another is to go on, the kernel
        // starts over at the first, relative to the one that it finds (C6.2).
        Decoded::MemoryCopy => true,
        // Elsewhere the signature is another one.
        Decoded::SignedByAddress => true,
        _ => false,
    }
}

/// Whether the instruction is between a load and a store exclusive, judged by what `follows` it.
///
/// A store exclusive that no load comes before is of no use, so one that can be reached from here
/// tells that the load was before: a breakpoint in between would clear the monitor each time.
fn is_in_exclusive_sequence(follows: impl Iterator<Item = u32>) -> bool {
    for word in follows {
        match decode(word) {
            Decoded::Exclusive { load } => return !load,
            // What follows is reached from elsewhere.
            Decoded::Branch { .. }
            | Decoded::BranchRegister { .. }
            | Decoded::BranchAuthenticated { .. }
            | Decoded::Exception
            | Decoded::SystemCall
            | Decoded::ExceptionReturn => return false,
            _ => (),
        }
    }
    false
}

/// How an instruction is simulated.
fn simulation(decoded: Decoded) -> Sim {
    match decoded {
        Decoded::Branch { link, offset } => Sim::Branch { link, offset },
        Decoded::BranchIf { cond, offset } => Sim::BranchIf { cond, offset },
        Decoded::BranchIfZero {
            not,
            wide,
            rt,
            offset,
        } => Sim::BranchIfZero {
            not,
            wide,
            rt,
            offset,
        },
        Decoded::BranchIfBit {
            set,
            rt,
            bit,
            offset,
        } => Sim::BranchIfBit {
            set,
            rt,
            bit,
            offset,
        },
        Decoded::BranchRegister { kind, rn } => Sim::BranchRegister { kind, rn },
        Decoded::Address { page, rd, offset } => Sim::Address { page, rd, offset },
        Decoded::Literal { load, rt, offset } => {
            let size = match load {
                Load::Word => LiteralSize::Word,
                Load::Double => LiteralSize::Double,
                Load::SignedWord => LiteralSize::SignedWord,
                // PRFM (C6.2): a hint.
                Load::Prefetch => return Sim::Nop,
                // The kernel does not hold vector registers at hand.
                Load::VectorWord | Load::VectorDouble | Load::VectorQuad => return Sim::None,
            };
            Sim::Literal { size, rt, offset }
        }
        Decoded::Hint(number) if is_nop(number) => Sim::Nop,
        Decoded::StackPair {
            load,
            rt,
            rt2,
            offset,
            writeback,
        } => {
            if load && rt == rt2 {
                // Constrained unpredictable (C6.2): let the CPU choose.
                return Sim::None;
            }
            Sim::StackPair {
                load,
                rt,
                rt2,
                offset,
                writeback,
            }
        }
        Decoded::AddConstant {
            sub,
            wide,
            rd,
            rn,
            constant,
        } => Sim::AddConstant {
            sub,
            wide,
            rd,
            rn,
            constant,
        },
        Decoded::SystemCall => Sim::SystemCall,
        _ => Sim::None,
    }
}

/// Whether the hint may do nothing on every CPU that the trap has just left and will return to.
///
/// SEVL and WFE are among them because the return from an exception sets the event register (D1,
/// "Wait for Event"), as SEVL would, and lets WFE pass. All others, also those of which today's
/// CPUs know nothing, are left to the CPU.
fn is_nop(hint: u8) -> bool {
    // NOP, YIELD, WFE, WFI, SEVL, DGH (C6.2); BTI (C6.2).
    matches!(hint, 0 | 1 | 2 | 3 | 5 | 6 | 32 | 34 | 36 | 38)
}

/// Kinds of branches that may lead to the instruction in a page that requires landing pads
/// (C6.2). PACIASP and PACIBSP are landing pads too, but not simulated.
fn landing_pad(decoded: Decoded) -> u8 {
    let any_jump = 1 << btype::ANY_JUMP;
    let call = 1 << btype::CALL;
    let jump = 1 << btype::JUMP;
    match decoded {
        Decoded::Hint(34) => any_jump | call,
        Decoded::Hint(36) => any_jump | jump,
        Decoded::Hint(38) => any_jump | call | jump,
        _ => 0,
    }
}

/// Whether the instruction authenticates the return address in the link register.
fn wants_signed_link(decoded: Decoded) -> bool {
    match decoded {
        Decoded::BranchAuthenticated { kind } => kind == Indirect::Return,
        Decoded::AuthenticateLink => true,
        // AUTIAZ, AUTIASP, AUTIBZ, AUTIBSP (C6.2).
        Decoded::Hint(number) => matches!(number, 28..=31),
        _ => false,
    }
}

/// The word to run out of line, and what to do about it afterwards.
fn out_of_line(word: u32, decoded: Decoded) -> (u32, Fixup) {
    // CAST: in words, positive.
    let taken = TAKEN as u32 / 4;
    // The target of the copy is in the slot; the field is where the offset was.
    let relative = |low: u32, len: u32, offset: i32, link: bool| {
        let field = ((1 << len) - 1) << low;
        let slot = word & !field | taken << low;
        (slot, Fixup::Relative { offset, link })
    };
    match decoded {
        Decoded::Branch { link, offset } => relative(0, 26, offset, link),
        Decoded::BranchIf { offset, .. } | Decoded::BranchIfZero { offset, .. } => {
            relative(5, 19, offset, false)
        }
        Decoded::BranchIfBit { offset, .. } => relative(5, 14, offset, false),
        Decoded::BranchIfRecent { offset } if word >> 24 == 0x54 => relative(5, 19, offset, false),
        Decoded::BranchIfRecent { offset } => relative(5, 9, offset, false),
        Decoded::BranchRegister { kind, .. } | Decoded::BranchAuthenticated { kind } => {
            (word, Fixup::Absolute { kind })
        }
        Decoded::Address { .. } | Decoded::SystemCall => (NOP, Fixup::Simulate),
        Decoded::Literal {
            load: Load::Prefetch,
            ..
        } => (NOP, Fixup::Next),
        Decoded::Literal { load, rt, offset } => through_scratch(load, rt, offset),
        _ => (word, Fixup::Next),
    }
}

/// The load of a literal as one of what a scratch register points to: LDR, LDRSW (immediate,
/// unsigned offset) (C6.2, C7.2).
fn through_scratch(load: Load, rt: u8, offset: i32) -> (u32, Fixup) {
    let (opcode, is_general) = match load {
        Load::Word => (0xb940_0000, true),
        Load::Double => (0xf940_0000, true),
        Load::SignedWord => (0xb980_0000, true),
        Load::Prefetch => (0xf980_0000, false),
        Load::VectorWord => (0xbd40_0000, false),
        Load::VectorDouble => (0xfd40_0000, false),
        Load::VectorQuad => (0x3dc0_0000, false),
    };
    // Any register will do that is not the one to be loaded; it gets its value back.
    let scratch = if is_general && rt == 16 { 17 } else { 16 };
    (
        opcode | u32::from(scratch) << 5 | u32::from(rt),
        Fixup::Scratch { scratch, offset },
    )
}
