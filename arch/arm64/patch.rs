// SPDX-License-Identifier: GPL-2.0

//! How text is changed that other CPUs may be executing.
//!
//! A CPU that executes an instruction while another one changes it may do anything at all, unless
//! both the old and the new instruction are of a small set; then it executes the one or the other
//! (Arm ARM B2.2.5, "Concurrent modification and execution of instructions").

use uprobes_core::arch::Patch;

use super::decode::{decode, Decoded, INSN_BYTES};
use super::insn::NOP;

/// `isb`, with any of its options (C6.2).
const ISB: u32 = 0xd503_30df;
const ISB_MASK: u32 = 0xffff_f0ff;

/// Chooses the cheapest way that the architecture allows.
pub(super) fn patch(old: &[u8], new: &[u8]) -> Patch {
    match (word(old), word(new)) {
        (Some(old), Some(new)) if is_safe(old) && is_safe(new) => Patch::InPlace,
        _ => Patch::Apart,
    }
}

/// The one instruction in `bytes`.
fn word(bytes: &[u8]) -> Option<u32> {
    let bytes: [u8; INSN_BYTES] = bytes.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// Whether the instruction is of the set: B, BL, BRK, HVC, ISB, NOP, SMC, SVC.
fn is_safe(word: u32) -> bool {
    match decode(word) {
        Decoded::Branch { .. } | Decoded::SystemCall => true,
        // HVC, SMC; BRK (C4.1, "Exception generation").
        Decoded::Exception => matches!(word & 0x00e0_001f, 0x02 | 0x03 | 0x0020_0000),
        _ => word == NOP || word & ISB_MASK == ISB,
    }
}
