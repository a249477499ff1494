// SPDX-License-Identifier: GPL-2.0

//! x86_64: 64-bit programs, and ia32 programs on a 64-bit kernel.
//!
//! - `regs`: the register file;
//! - `decode`: an instruction's parts, as the kernel's decoder finds them;
//! - `insn`: an instruction as the analysis leaves it;
//! - `analyze`: what can be probed, and how;
//! - `simulate`: what is done without a step;
//! - `xol`: what is stepped out of line;
//! - `uretprobe`: return probes;
//! - `vectors`: instructions to test with.

use core::marker::PhantomData;

use uprobes_core::arch::{
    Analysis, Arch, Bitness, FrameCheck, HijackError, Simulated, Stepped, UserTask, MAX_INSN_BYTES,
};
use uprobes_core::errno::Errno;

pub mod decode;
pub mod insn;
pub mod regs;
pub mod uretprobe;
pub mod vectors;

mod analyze;
mod simulate;
mod xol;

pub use self::decode::{Decode, Decoded};
pub use self::insn::Insn;
pub use self::regs::{PtRegs, Reg};
pub use self::xol::StepState;

/// `endbr64`.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `push %rbp`, `push %ebp`.
const PUSH_BP: u8 = 0x55;

/// The x86_64 backend, with the instruction decoder `D`.
///
/// The kernel's is `insn_decode()`, which only the crate at the top can reach; see
/// [`decode::Decoded`] for how to hand over what it finds.
pub struct X86_64<D>(PhantomData<D>);

impl<D: Decode> Arch for X86_64<D> {
    const SWBP: &'static [u8] = &[0xcc];
    const INSN_ALIGN: u64 = 1;
    const LOOKS_AHEAD: bool = false;
    const XOL_SLOT_BYTES: usize = 128;

    type Regs = PtRegs;
    type Insn = Insn;
    type StepState = StepState;

    fn is_swbp(bytes: &[u8]) -> bool {
        bytes.starts_with(Self::SWBP)
    }

    fn analyze(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Analysis<Insn>, Errno> {
        analyze::analyze::<D>(bytes, bitness)
    }

    #[inline]
    fn bitness(regs: &PtRegs) -> Bitness {
        regs.bitness()
    }

    #[inline]
    fn ip(regs: &PtRegs) -> u64 {
        regs[Reg::Ip]
    }

    #[inline]
    fn set_ip(regs: &mut PtRegs, ip: u64) {
        regs[Reg::Ip] = ip;
    }

    #[inline]
    fn sp(regs: &PtRegs) -> u64 {
        regs[Reg::Sp]
    }

    #[inline]
    fn swbp_addr(regs: &PtRegs) -> u64 {
        regs[Reg::Ip].wrapping_sub(1)
    }

    #[inline]
    fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
        simulate::simulate(insn, regs, task)
    }

    #[inline]
    fn trap_after<T: UserTask>(regs: &mut PtRegs, _task: &T) -> bool {
        regs.tf()
    }

    fn xol_bytes(insn: &Insn) -> ([u8; MAX_INSN_BYTES], usize) {
        // The nops after the instruction belong to it, see `xol`.
        let mut bytes = [insn::NOP; MAX_INSN_BYTES];
        for (to, from) in bytes.iter_mut().zip(insn.slot) {
            *to = from;
        }
        (bytes, MAX_INSN_BYTES)
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

    fn finish_early(
        insn: &Insn,
        regs: &mut PtRegs,
        state: &StepState,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> bool {
        xol::finish_early(insn, regs, state, bp_vaddr, xol_vaddr)
    }

    fn forget_step<T: UserTask>(task: &mut T, state: &StepState) {
        xol::forget(task, state);
    }

    fn trampoline(bitness: Bitness) -> &'static [u8] {
        uretprobe::trampoline(bitness)
    }

    fn frame_at_entry(regs: &PtRegs) -> u64 {
        regs[Reg::Sp]
    }

    fn frame_at_return(regs: &PtRegs) -> u64 {
        uretprobe::frame_at_return(regs)
    }

    fn hijack_return<T: UserTask>(
        _insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        trampoline: u64,
    ) -> Result<u64, HijackError> {
        uretprobe::hijack(regs, task, trampoline)
    }

    #[inline]
    fn trampoline_trap(bitness: Bitness) -> u64 {
        uretprobe::trampoline_trap(bitness)
    }

    #[inline]
    fn return_slot(frame: u64) -> Option<u64> {
        Some(frame)
    }

    fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
        uretprobe::is_frame_alive(frame, check, regs)
    }

    fn is_function_entry(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> bool {
        bytes.starts_with(&[PUSH_BP]) || bitness == Bitness::Bits64 && bytes.starts_with(&ENDBR64)
    }
}
