// SPDX-License-Identifier: GPL-2.0

//! arm64: A64 code. AArch32 programs are refused.
//!
//! - `regs`: the register file;
//! - `decode`: what an instruction is;
//! - `insn`: an instruction as the analysis leaves it;
//! - `analyze`: what can be probed, and how;
//! - `simulate`: what is done without a step;
//! - `xol`: what is stepped out of line;
//! - `uretprobe`: return probes;
//! - `patch`: how text is changed that other CPUs may be executing;
//! - `vectors`: instructions to test with.
//!
//! References such as "(C6.2)" are to chapters of the Arm Architecture Reference Manual for
//! A-profile (DDI 0487), whose sections change their numbers from issue to issue: C4.1 has the
//! encodings by group, C6.2 and C7.2 the general and the vector instructions in the order of their
//! names.

use uprobes_core::arch::{
    Analysis, Arch, Bitness, FrameCheck, HijackError, Patch, Simulated, Stepped, UserTask,
    MAX_INSN_BYTES,
};
use uprobes_core::errno::Errno;

pub mod decode;
pub mod insn;
pub mod regs;
pub mod vectors;

mod analyze;
mod patch;
mod simulate;
mod uretprobe;
mod xol;

pub use self::insn::Insn;
pub use self::regs::PtRegs;
pub use self::xol::StepState;

/// `brk #5`, the kernel's breakpoint for uprobes (C6.2).
const BRK: [u8; 4] = [0xa0, 0x00, 0x20, 0xd4];

/// The arm64 backend.
pub enum Arm64 {}

impl Arch for Arm64 {
    const SWBP: &'static [u8] = &BRK;
    const INSN_ALIGN: u64 = decode::INSN_BYTES as u64;
    // A slot has a cache line of its own: filling it disturbs no CPU that executes another.
    const XOL_SLOT_BYTES: usize = 64;

    type Regs = PtRegs;
    type Insn = Insn;
    type StepState = StepState;

    fn is_swbp(bytes: &[u8]) -> bool {
        bytes.starts_with(&BRK)
    }

    fn is_trap_insn(bytes: &[u8]) -> bool {
        bytes.first_chunk().is_some_and(|word| {
            // BRK (C6.2) with any number.
            u32::from_le_bytes(*word) & 0xffe0_001f == 0xd420_0000
        })
    }

    fn analyze(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Analysis<Insn>, Errno> {
        analyze::analyze(bytes, bitness)
    }

    fn patch(old: &[u8], new: &[u8]) -> Patch {
        patch::patch(old, new)
    }

    #[inline]
    fn bitness(regs: &PtRegs) -> Bitness {
        regs.bitness()
    }

    #[inline]
    fn ip(regs: &PtRegs) -> u64 {
        regs.pc
    }

    #[inline]
    fn set_ip(regs: &mut PtRegs, ip: u64) {
        regs.pc = ip;
    }

    #[inline]
    fn sp(regs: &PtRegs) -> u64 {
        regs.sp
    }

    #[inline]
    fn swbp_addr(regs: &PtRegs) -> u64 {
        regs.pc
    }

    #[inline(always)]
    fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
        simulate::simulate(insn, regs, task)
    }

    #[inline]
    fn trap_after<T: UserTask>(regs: &mut PtRegs, task: &T) -> bool {
        xol::trap_at_once(regs, task);
        false
    }

    fn xol_bytes(insn: &Insn) -> ([u8; MAX_INSN_BYTES], usize) {
        let mut bytes = [0; MAX_INSN_BYTES];
        for (to, from) in bytes.iter_mut().zip(insn.slot.to_le_bytes()) {
            *to = from;
        }
        (bytes, decode::INSN_BYTES)
    }

    fn pre_xol<T: UserTask>(
        insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> Result<StepState, Errno> {
        Ok(xol::pre(insn, regs, task, bp_vaddr, xol_vaddr))
    }

    fn xol_was_trapped<T: UserTask>(task: &T) -> bool {
        xol::was_trapped(task)
    }

    fn xol_was_stopped<T: UserTask>(task: &T) -> bool {
        xol::was_stopped(task)
    }

    fn post_xol<T: UserTask>(
        insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        state: &mut StepState,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> Result<Stepped, Errno> {
        xol::post(insn, regs, task, state, bp_vaddr, xol_vaddr)
    }

    fn abort_xol<T: UserTask>(
        insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        state: &StepState,
        bp_vaddr: u64,
    ) {
        xol::abort(insn, regs, task, state, bp_vaddr);
    }

    fn forget_step<T: UserTask>(task: &mut T, state: &StepState) {
        xol::forget(task, state);
    }

    fn trampoline(_bitness: Bitness) -> &'static [u8] {
        &BRK
    }

    fn frame_at_entry(regs: &PtRegs) -> u64 {
        regs.sp
    }

    fn frame_at_return(regs: &PtRegs) -> u64 {
        regs.sp
    }

    fn hijack_return<T: UserTask>(
        insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        trampoline: u64,
    ) -> Result<u64, HijackError> {
        uretprobe::hijack(insn, regs, task, trampoline)
    }

    fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
        uretprobe::is_frame_alive(frame, check, regs)
    }

    fn is_function_entry(_bytes: &[u8; MAX_INSN_BYTES], _bitness: Bitness) -> bool {
        // The return address is in the link register, where unwinders look anyway.
        false
    }
}
