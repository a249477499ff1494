// SPDX-License-Identifier: GPL-2.0

//! Return probes: the trampoline, its system call, and the return address.

use uprobes_core::arch::{Bitness, Fault, FrameCheck, HijackError, UserTask};

use super::regs::{PtRegs, Reg};

/// The trampoline of 64-bit code.
///
/// The system call puts the address to return to in place of the saved rax, and its result is the
/// function's, so that rax is not popped but returned to.
const TRAMPOLINE64: [u8; 18] = [
    0x50, //                                     push   %rax
    0x51, //                                     push   %rcx
    0x41, 0x53, //                               push   %r11
    0x48, 0xc7, 0xc0, 0x4f, 0x01, 0x00, 0x00, // mov    $335, %rax
    0x0f, 0x05, //                               syscall
    0x41, 0x5b, //                               pop    %r11
    0x59, //                                     pop    %rcx
    0xc3, //                                     ret
    0xcc, //                                     int3
];

/// Offset of the instruction after `syscall` in the trampoline.
const SYSCALL_END: u64 = 13;

/// The trampoline of 32-bit code: its trap is taken for the return.
const TRAMPOLINE32: [u8; 1] = [0xcc];

/// Number of the system call that the trampoline makes.
pub const NR_URETPROBE: u32 = 335;

/// What the trampoline has on the stack when it makes its system call, lowest address first.
const SAVED: [Reg; 3] = [Reg::R11, Reg::Cx, Reg::Ax];
/// The same in bytes.
const SAVED_BYTES: u64 = SAVED.len() as u64 * 8;

/// `orig_ax` outside of system calls.
const NO_SYSCALL: u64 = u64::MAX;

/// Code of the trampoline.
pub(super) fn trampoline(bitness: Bitness) -> &'static [u8] {
    match bitness {
        Bitness::Bits64 => &TRAMPOLINE64,
        Bitness::Bits32 => &TRAMPOLINE32,
    }
}

/// Offset of the breakpoint in the trampoline.
pub(super) fn trampoline_trap(bitness: Bitness) -> u64 {
    // The last byte of either.
    trampoline(bitness).len() as u64 - 1
}

/// The system call did not come from the trampoline, or its stack is gone: the task gets SIGILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// What [`enter`] remembers for [`leave`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SyscallFrame {
    /// The instruction pointer in the trampoline.
    ip: u64,
    /// The stack pointer as the consumers saw it first.
    sp: u64,
}

/// Begins the trampoline's system call: shows in `regs` what the function has returned with, rax,
/// rcx, r11 and the stack pointer, for consumers to look at.
///
/// `trampoline` is the trampoline's address.
///
/// # Errors
///
/// [`Forged`] if the call was not made by the trampoline, with `regs` unchanged.
pub fn enter<T: UserTask>(
    regs: &mut PtRegs,
    task: &mut T,
    trampoline: u64,
) -> Result<SyscallFrame, Forged> {
    let ip = regs[Reg::Ip];
    if trampoline.wrapping_add(SYSCALL_END) != ip {
        return Err(Forged);
    }
    let mut saved = [0; SAVED.len()];
    for (word, offset) in saved.iter_mut().zip([0, 8, 16]) {
        let at = regs[Reg::Sp].wrapping_add(offset);
        *word = task.read_u64(at).map_err(|Fault| Forged)?;
    }
    for (word, reg) in saved.into_iter().zip(SAVED) {
        regs[reg] = word;
    }
    regs[Reg::Sp] = regs[Reg::Sp].wrapping_add(SAVED_BYTES);
    regs[Reg::OrigAx] = NO_SYSCALL;
    Ok(SyscallFrame {
        ip,
        sp: regs[Reg::Sp],
    })
}

/// Ends the trampoline's system call and answers its result.
///
/// `regs` show where the program shall go on, as the consumers left it. It goes there through the
/// trampoline's `ret`, so that the kernel can leave by `sysret`, or straight by `iret` where a
/// consumer has moved the stack or a shadow stack would not let the `ret` pass.
///
/// # Errors
///
/// [`Forged`] if the stack can no longer be written.
pub fn leave<T: UserTask>(
    frame: SyscallFrame,
    regs: &mut PtRegs,
    task: &mut T,
) -> Result<u64, Forged> {
    let result = regs[Reg::Ax];
    if regs[Reg::Sp] != frame.sp || task.shadow_stack_enabled() {
        return Ok(result);
    }
    let values = [regs[Reg::R11], regs[Reg::Cx], regs[Reg::Ip]];
    regs[Reg::Sp] = frame.sp.wrapping_sub(SAVED_BYTES);
    regs[Reg::Ip] = frame.ip;
    for (value, offset) in values.into_iter().zip([0, 8, 16]) {
        let at = regs[Reg::Sp].wrapping_add(offset);
        task.write_u64(at, value).map_err(|Fault| Forged)?;
    }
    // As `sysret` will leave them anyway, without which the kernel takes the slower `iret`.
    regs[Reg::R11] = regs[Reg::Flags];
    regs[Reg::Cx] = regs[Reg::Ip];
    Ok(result)
}

/// The frame whose return has just reached the trampoline.
///
/// The `ret` has popped the return address, so its place is one word below; a `ret` that drops
/// arguments as well leaves the stack pointer above the frame by as many bytes, and this answer
/// with it.
pub(super) fn frame_at_return(regs: &PtRegs) -> u64 {
    regs.wrap(regs[Reg::Sp].wrapping_sub(regs.word()))
}

/// Puts `trampoline` in place of the return address.
pub(super) fn hijack<T: UserTask>(
    regs: &PtRegs,
    task: &mut T,
    trampoline: u64,
) -> Result<u64, HijackError> {
    let sp = regs[Reg::Sp];
    let bits64 = regs.is_64bit();
    let original = if bits64 {
        task.read_u64(sp)
    } else {
        task.read_u32(sp).map(u64::from)
    };
    let original = original.map_err(|Fault| HijackError::Unreadable)?;
    if original == trampoline {
        return Ok(original);
    }
    let written = if bits64 {
        task.write_u64(sp, trampoline)
    } else {
        // CAST: the XOL area of a 32-bit process lies below 4 GiB.
        task.write_u32(sp, trampoline as u32)
    };
    // A word is written as a whole or not at all.
    written.map_err(|Fault| HijackError::Unreadable)?;
    task.shadow_replace_top(trampoline)
        .map_err(|Fault| HijackError::Clobbered)?;
    Ok(original)
}

/// Whether a frame can still return.
pub(super) fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
    match check {
        // The call has just pushed a return address below the frame.
        FrameCheck::Call => regs[Reg::Sp] < frame,
        FrameCheck::ChainCall | FrameCheck::Return => regs[Reg::Sp] <= frame,
    }
}
