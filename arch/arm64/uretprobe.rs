// SPDX-License-Identifier: GPL-2.0

//! Return probes.
//!
//! A function finds its return address in the link register (AAPCS64 6.1.1), so that is what is
//! replaced; a function that signs it signs the address of the trampoline, and its own signature
//! lets it return there. The trampoline is a breakpoint: neither tracers of system calls nor the
//! guarded control stack see anything of it.

use uprobes_core::arch::{Fault, FrameCheck, HijackError, UserTask};

use super::insn::Insn;
use super::regs::{PtRegs, LINK};

/// Puts `trampoline` in place of the return address.
///
/// Nothing is done where the link register does not hold the address that the function will
/// return to: behind the signature of that address, and where the guarded control stack has
/// another one.
pub(super) fn hijack<T: UserTask>(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut T,
    trampoline: u64,
) -> Result<u64, HijackError> {
    let original = regs.x(LINK);
    if original == trampoline {
        return Ok(original);
    }
    if insn.wants_signed_link || is_signed(original, task) {
        return Err(HijackError::Unreadable);
    }
    if task.shadow_stack_enabled() {
        replace_guarded(task, original, trampoline)?;
    }
    regs.set_x(LINK, trampoline);
    Ok(original)
}

/// Whether an address carries a signature (D8, "Pointer authentication"), or is none of user space.
fn is_signed<T: UserTask>(address: u64, task: &T) -> bool {
    address
        .checked_shr(task.address_bits())
        .is_some_and(|above| above != 0)
}

/// Replaces the topmost address of the guarded control stack (D11), if it is `original`.
fn replace_guarded<T: UserTask>(
    task: &mut T,
    original: u64,
    trampoline: u64,
) -> Result<(), HijackError> {
    let Some(guarded) = task.shadow_pop().map_err(|Fault| HijackError::Unreadable)? else {
        return Ok(());
    };
    let matches = guarded == original;
    let back = if matches { trampoline } else { guarded };
    task.shadow_push(back)
        .map_err(|Fault| HijackError::Clobbered)?;
    if matches {
        Ok(())
    } else {
        Err(HijackError::Unreadable)
    }
}

/// Whether a frame can still return.
pub(super) fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
    match check {
        // A function that calls another needs a frame of its own for its return address.
        FrameCheck::Call => regs.sp < frame,
        FrameCheck::ChainCall | FrameCheck::Return => regs.sp <= frame,
    }
}
