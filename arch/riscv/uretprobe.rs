// SPDX-License-Identifier: GPL-2.0

//! Return probes: the return address is in `ra`, the trampoline is a breakpoint.
//!
//! The shadow stack (Zicfiss) needs no care: `sspush` comes after the probe at the start of a
//! function and pushes what is in `ra` by then, and `sspopchk` finds the same again. The landing
//! pad rules (Zicfilp) exempt returns, so the trampoline has none.

use uprobes_core::arch::FrameCheck;

use super::regs::{PtRegs, X};

/// Puts `trampoline` in place of the return address.
pub(super) fn hijack(regs: &mut PtRegs, trampoline: u64) -> u64 {
    let original = regs.x(X::RA);
    regs.set_x(X::RA, trampoline);
    original
}

/// Whether a frame can still return.
pub(super) fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
    let sp = regs.x(X::SP);
    match check {
        // A function that calls another has saved its return address below its frame.
        FrameCheck::Call | FrameCheck::Return => sp < frame,
        FrameCheck::ChainCall => sp <= frame,
    }
}
