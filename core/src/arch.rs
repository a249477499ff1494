// SPDX-License-Identifier: GPL-2.0

//! What the core asks of an instruction set, and what a backend may ask of the probed task.
//!
//! A backend is an empty enum that implements [`Arch`]: pure functions over bytes, registers and
//! a [`UserTask`]. It takes no locks, allocates nothing and knows nothing of uprobes, consumers
//! or memory maps, so the same code runs in the kernel and in a host test.

use crate::errno::Errno;

/// Longest instruction of any backend in bytes, rounded up; the size of every instruction buffer.
pub const MAX_INSN_BYTES: usize = 16;

/// Whether the first `len` bytes are the same, at most all of them.
#[inline]
pub const fn same_start(a: &[u8; MAX_INSN_BYTES], b: &[u8; MAX_INSN_BYTES], len: usize) -> bool {
    let difference = u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b);
    // What is behind them is shifted out.
    match len {
        0 => true,
        // CAST: Less than 64; narrows to the first 8 bytes.
        1..=8 => (difference as u64) << (64 - 8 * len as u32) == 0,
        // CAST: Less than 128.
        9..=MAX_INSN_BYTES => difference << (128 - 8 * len as u32) == 0,
        _ => difference == 0,
    }
}

/// A user access that could not be completed; nothing was changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Width of the code that is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitness {
    /// 64-bit code.
    Bits64,
    /// 32-bit code on a 64-bit kernel (ia32 on x86_64).
    Bits32,
}

/// Memory of the probed task, which is always the current one.
///
/// # Context
///
/// Process context, between user space and user space. Every access may sleep.
pub trait UserMemory {
    /// Reads `buf.len()` bytes of user memory at `addr`.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault>;

    /// Writes `buf` to user memory at `addr`; a failed write may have written a part.
    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Fault>;

    /// Reads one 64-bit word of user memory.
    #[inline]
    fn read_u64(&mut self, addr: u64) -> Result<u64, Fault> {
        let mut b = [0; 8];
        self.read(addr, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    /// Writes one 64-bit word of user memory, all of it or nothing.
    #[inline]
    fn write_u64(&mut self, addr: u64, value: u64) -> Result<(), Fault> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Reads one 32-bit word of user memory.
    #[inline]
    fn read_u32(&mut self, addr: u64) -> Result<u32, Fault> {
        let mut b = [0; 4];
        self.read(addr, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Writes one 32-bit word of user memory, all of it or nothing.
    #[inline]
    fn write_u32(&mut self, addr: u64, value: u32) -> Result<(), Fault> {
        self.write(addr, &value.to_le_bytes())
    }
}

/// Memory and state of the probed task.
///
/// # Context
///
/// As for [`UserMemory`].
pub trait UserTask: UserMemory {
    /// Whether the task runs with a hardware shadow stack (CET SHSTK, GCS, Zicfiss).
    fn shadow_stack_enabled(&self) -> bool;

    /// Pushes a return address on the shadow stack; succeeds and does nothing without one.
    fn shadow_push(&mut self, addr: u64) -> Result<(), Fault>;

    /// Pops the shadow stack; [`None`] without one.
    fn shadow_pop(&mut self) -> Result<Option<u64>, Fault>;

    /// Replaces the topmost return address of the shadow stack; nothing to do without one.
    fn shadow_replace_top(&mut self, addr: u64) -> Result<(), Fault>;

    /// The number of the last fault that the task took (x86 `trap_nr`, arm64 `fault_code`,
    /// riscv `bad_cause`).
    fn fault_code(&self) -> u64;

    /// Sets the number that [`UserTask::fault_code`] returns until the next fault.
    fn set_fault_code(&mut self, code: u64);

    /// Makes the hardware trap after one instruction rather than after one branch, where the
    /// tracer of the task had asked for the latter.
    fn suspend_block_step(&mut self);

    /// Whether a tracer single-steps the task, where that is a state of the task rather than of
    /// its registers (arm64).
    fn is_single_stepped(&self) -> bool {
        false
    }

    /// Whether the hardware traps after the next instruction of the task, whoever has asked for
    /// that, where it is a state of the task.
    fn traps_next(&self) -> bool {
        self.is_single_stepped()
    }

    /// Makes the task trap after its next instruction as if a tracer had asked for it, or no
    /// more, where that is a state of the task. What the registers show of it is left to the
    /// backend.
    fn set_single_step(&mut self, _on: bool) {}

    /// Whether a signal of a fault that the task took is waiting for it.
    fn has_pending_fault(&self) -> bool {
        false
    }

    /// Whether the signal of a debugger's trap is waiting for the task.
    fn has_pending_trap(&self) -> bool {
        false
    }

    /// Whether the CPU checks in some code that indirect branches end at landing pads (arm64).
    fn knows_landing_pads(&self) -> bool {
        false
    }

    /// Whether an indirect branch to the instruction at `addr` faults unless that is a landing
    /// pad (arm64, riscv).
    fn requires_landing_pads(&mut self, _addr: u64) -> bool {
        false
    }

    /// How many low bits of an address name a place in the task's memory; above them, addresses
    /// may be signed.
    fn address_bits(&self) -> u32 {
        64
    }
}

/// Verdict of the analysis of an instruction that can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis<I> {
    /// The decoded instruction, as the backend wants it back.
    pub insn: I,
    /// Its length in bytes, `1..=MAX_INSN_BYTES`.
    pub len: u8,
    /// Whether [`Arch::simulate`] handles it, so that a step is needed only when memory faults.
    pub simulated: bool,
}

/// How a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// Registers and memory are as after the instruction.
    Done,
    /// Nothing was changed; the instruction must run out of line (also to take its fault there).
    OutOfLine,
    /// Registers are as at the entry of a system call, which is still to be made.
    SystemCall,
}

/// How text may be changed that other CPUs may be executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// By a store of the whole instruction: a CPU runs the old one or the new one.
    InPlace,
    /// While no CPU can fetch it.
    Apart,
}

/// How a single-step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The instruction is complete, registers are as after it.
    Done {
        /// The program itself was being single-stepped and has its trap still to come.
        trap: bool,
    },
    /// The instruction is not complete yet (a repeated string instruction after one of its
    /// iterations): let the hardware step once more in the same slot.
    Again,
    /// As [`Stepped::Again`], but the program itself is being single-stepped and has a trap to
    /// come, at the address of the instruction, which then goes on.
    Partial,
    /// The instruction must start over at its own address.
    Restart,
}

/// Why a return address could not be hijacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HijackError {
    /// The frame cannot be read or written; the probe is skipped.
    Unreadable,
    /// The frame was left half changed, or the shadow stack disagrees: the task must die.
    Clobbered,
}

/// When the liveness of a pending return is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameCheck {
    /// At the entry of another probed function.
    Call,
    /// At the entry of a function that was reached by a tail call.
    ChainCall,
    /// On return through the trampoline.
    Return,
}

/// An instruction set.
pub trait Arch: Sized + 'static {
    /// The breakpoint instruction in memory order; the shortest where there are several.
    const SWBP: &'static [u8];
    /// Bytes that tell whether there is a breakpoint of any kind, and of which.
    const TRAP_BYTES: usize = Self::SWBP.len();
    /// Every instruction starts at a multiple of this many bytes.
    const INSN_ALIGN: u64;
    /// Whether the verdict on an instruction depends on those that follow, as it does where they
    /// tell that it is part of an exclusive sequence.
    const LOOKS_AHEAD: bool = true;
    /// Bytes between two XOL slots; a power of two.
    const XOL_SLOT_BYTES: usize;

    /// The register file, laid out as the kernel's `struct pt_regs`.
    type Regs: Copy;
    /// An analysed instruction.
    type Insn: Copy + Send + Sync + 'static;
    /// What a backend keeps from before a step until after it.
    type StepState: Copy + Default + 'static;

    /// The breakpoint to put at `vaddr` in place of `insn`.
    ///
    /// It is no longer than the instruction and crosses no page.
    fn swbp(_insn: &Self::Insn, _vaddr: u64) -> &'static [u8] {
        Self::SWBP
    }

    /// Whether the bytes start with a breakpoint that [`Arch::swbp`] may answer.
    fn is_swbp(bytes: &[u8]) -> bool;

    /// Whether the bytes start with any instruction that raises a breakpoint trap.
    fn is_trap_insn(bytes: &[u8]) -> bool {
        Self::is_swbp(bytes)
    }

    /// Decides whether and how the instruction at the start of `bytes` can be probed.
    ///
    /// Bytes beyond the end of the file are zero.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOTSUPP`], [`Errno::ENOEXEC`], [`Errno::EINVAL`] or [`Errno::EOPNOTSUPP`], as
    /// the C implementation gives them on this ISA.
    fn analyze(
        bytes: &[u8; MAX_INSN_BYTES],
        bitness: Bitness,
    ) -> Result<Analysis<Self::Insn>, Errno>;

    /// The cheapest way to replace `old` by `new`, whole instructions of equal length, where other
    /// CPUs may be executing them.
    fn patch(_old: &[u8], _new: &[u8]) -> Patch {
        Patch::Apart
    }

    /// Width of the code that the registers belong to.
    fn bitness(regs: &Self::Regs) -> Bitness;
    /// The instruction pointer.
    fn ip(regs: &Self::Regs) -> u64;
    /// Sets the instruction pointer.
    fn set_ip(regs: &mut Self::Regs, ip: u64);
    /// Makes the task run what is at `vaddr` as if the breakpoint that has just trapped had not
    /// been there.
    fn restart(regs: &mut Self::Regs, vaddr: u64) {
        Self::set_ip(regs, vaddr);
    }
    /// The user stack pointer.
    fn sp(regs: &Self::Regs) -> u64;
    /// Address of the breakpoint whose trap these registers show.
    fn swbp_addr(regs: &Self::Regs) -> u64;

    /// Whether the trap of `insn` must be passed over without calling consumers.
    fn ignore(_insn: &Self::Insn, _regs: &Self::Regs) -> bool {
        false
    }

    /// Does what the instruction does, without running it.
    ///
    /// `regs` show the instruction pointer at the instruction. A fault leaves registers and
    /// memory unchanged and answers [`Simulated::OutOfLine`].
    fn simulate<T: UserTask>(insn: &Self::Insn, regs: &mut Self::Regs, task: &mut T) -> Simulated;

    /// Sees to the trap that is due after an instruction that was simulated, if the program is
    /// being single-stepped. Answers whether the caller must send it; the alternative is that the
    /// hardware raises it before the next instruction.
    fn trap_after<T: UserTask>(regs: &mut Self::Regs, task: &T) -> bool;

    /// The bytes to run in an XOL slot. At most [`Arch::XOL_SLOT_BYTES`].
    fn xol_bytes(insn: &Self::Insn) -> ([u8; MAX_INSN_BYTES], usize);

    /// Points the registers at the copy in the slot at `xol_vaddr` and arms the single-step.
    fn pre_xol<T: UserTask>(
        insn: &Self::Insn,
        regs: &mut Self::Regs,
        task: &mut T,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> Result<Self::StepState, Errno>;

    /// Whether the instruction in the slot took a fault of its own.
    fn xol_was_trapped<T: UserTask>(task: &T) -> bool;

    /// Whether a debugger has stopped the instruction in the slot before it did anything. It will
    /// be run again, which is no new hit.
    fn xol_was_stopped<T: UserTask>(_task: &T) -> bool {
        false
    }

    /// Repairs the registers after a completed step and disarms it.
    ///
    /// # Errors
    ///
    /// An error means that the program cannot go on and must get SIGILL.
    fn post_xol<T: UserTask>(
        insn: &Self::Insn,
        regs: &mut Self::Regs,
        task: &mut T,
        state: &mut Self::StepState,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> Result<Stepped, Errno>;

    /// Makes the registers look as if the instruction had not been started, and disarms the step.
    fn abort_xol<T: UserTask>(
        insn: &Self::Insn,
        regs: &mut Self::Regs,
        task: &mut T,
        state: &Self::StepState,
        bp_vaddr: u64,
    );

    /// Ends a step whose trap has not come yet, where the registers show that the instruction is
    /// complete all the same: a system call on its way back to user space.
    ///
    /// Answers whether the step is over; `regs` are then as after the instruction, and disarmed, and
    /// [`Arch::forget_step`] is to be called. To be asked before a signal is held back for the
    /// sake of a step, which a system call that waits would hold back for as long as it waits,
    /// and of the registers of a child that a stepped system call has made, which would take the
    /// trap without knowing of the step.
    fn finish_early(
        _insn: &Self::Insn,
        _regs: &mut Self::Regs,
        _state: &Self::StepState,
        _bp_vaddr: u64,
        _xol_vaddr: u64,
    ) -> bool {
        false
    }

    /// Gives back what [`Arch::pre_xol`] has changed of the task but not of the registers, after a
    /// step that ends neither by [`Arch::post_xol`] nor by [`Arch::abort_xol`].
    fn forget_step<T: UserTask>(_task: &mut T, _state: &Self::StepState) {}

    /// Code of the return trampoline, at the start of the XOL area.
    fn trampoline(bitness: Bitness) -> &'static [u8];

    /// Offset in the trampoline of a breakpoint that a function may return to instead of the
    /// start: where the start makes a system call, a tracer of system calls must not see it.
    fn trampoline_trap(_bitness: Bitness) -> u64 {
        0
    }

    /// Address that identifies the frame of the function about to start, for matching its return.
    fn frame_at_entry(regs: &Self::Regs) -> u64;

    /// The frame whose return has just reached the trampoline, computed from the stack pointer.
    fn frame_at_return(regs: &Self::Regs) -> u64;

    /// Puts `trampoline` in place of the return address of the function about to start with
    /// `insn`, and returns what was there. Where it was `trampoline` already, nothing is changed.
    fn hijack_return<T: UserTask>(
        insn: &Self::Insn,
        regs: &mut Self::Regs,
        task: &mut T,
        trampoline: u64,
    ) -> Result<u64, HijackError>;

    /// Where in memory the return address of a frame lies, if it lies there.
    fn return_slot(_frame: u64) -> Option<u64> {
        None
    }

    /// Whether the frame `frame` can still return, judged by the stack pointer alone.
    fn is_frame_alive(frame: u64, check: FrameCheck, regs: &Self::Regs) -> bool;

    /// Whether the instruction commonly starts a function, so that the caller's frame is not set
    /// up yet and an unwinder must take the return address from the top of the stack.
    fn is_function_entry(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> bool;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_start_is_that_of_slices(
            a in any::<[u8; MAX_INSN_BYTES]>(),
            differs in 0..=MAX_INSN_BYTES,
            flip in 1_u8..,
            len in 0..=MAX_INSN_BYTES + 1,
        ) {
            let mut b = a;
            if let Some(byte) = b.get_mut(differs) {
                *byte ^= flip;
            }
            let len_of_both = len.min(MAX_INSN_BYTES);
            let same = a[..len_of_both] == b[..len_of_both];
            prop_assert_eq!(same_start(&a, &b, len), same);
        }
    }
}
