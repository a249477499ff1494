// SPDX-License-Identifier: GPL-2.0

//! riscv64: RV64 with and without compressed instructions.
//!
//! - `regs`: the register file;
//! - `decode`: the fields of an instruction;
//! - `insn`: an instruction as the analysis leaves it;
//! - `analyze`: what can be probed, and how;
//! - `simulate`: what is done without a step;
//! - `xol`: what is run out of line;
//! - `uretprobe`: return probes;
//! - `vectors`: instructions to test with.
//!
//! The unprivileged manual is "The RISC-V Instruction Set Manual, Volume I: Unprivileged
//! Architecture", the privileged one its Volume II.

use uprobes_core::arch::{
    Analysis, Arch, Bitness, FrameCheck, HijackError, Simulated, Stepped, UserTask, MAX_INSN_BYTES,
};
use uprobes_core::errno::Errno;

pub mod insn;
pub mod regs;
pub mod vectors;

mod analyze;
mod decode;
mod simulate;
mod uretprobe;
mod xol;

pub use self::insn::{Insn, Sim};
pub use self::regs::{PtRegs, Word, X};
pub use self::xol::StepState;

/// `ebreak`.
const EBREAK: [u8; 4] = [0x73, 0x00, 0x10, 0x00];
/// `c.ebreak`.
const C_EBREAK: [u8; 2] = [0x02, 0x90];

/// `c.sspush x1` of the shadow stack (Zicfiss).
const C_SSPUSH_RA: [u8; 2] = [0x81, 0x60];

/// The riscv64 backend.
pub enum Riscv64 {}

impl Arch for Riscv64 {
    const SWBP: &'static [u8] = &C_EBREAK;
    const TRAP_BYTES: usize = EBREAK.len();
    const INSN_ALIGN: u64 = 2;
    const XOL_SLOT_BYTES: usize = 64;

    type Regs = PtRegs;
    type Insn = Insn;
    type StepState = StepState;

    /// A compressed one where there is a compressed instruction, or one that only a CPU with
    /// compressed instructions can run because of its address; any CPU has the other.
    ///
    /// Neither crosses the end of a page.
    fn swbp(insn: &Insn, vaddr: u64) -> &'static [u8] {
        if insn.length() == 4 && vaddr % 4 == 0 {
            &EBREAK
        } else {
            &C_EBREAK
        }
    }

    fn is_swbp(bytes: &[u8]) -> bool {
        bytes.starts_with(&C_EBREAK) || bytes.starts_with(&EBREAK)
    }

    fn analyze(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Analysis<Insn>, Errno> {
        analyze::analyze(bytes, bitness)
    }

    #[inline]
    fn bitness(regs: &PtRegs) -> Bitness {
        regs.bitness()
    }

    #[inline]
    fn ip(regs: &PtRegs) -> u64 {
        regs.pc()
    }

    #[inline]
    fn set_ip(regs: &mut PtRegs, ip: u64) {
        regs.set_pc(ip);
    }

    fn restart(regs: &mut PtRegs, vaddr: u64) {
        regs.set_pc(vaddr);
        if regs.is_landing() {
            regs.expect_landing_pad();
        }
    }

    #[inline]
    fn sp(regs: &PtRegs) -> u64 {
        regs.x(X::SP)
    }

    #[inline]
    fn swbp_addr(regs: &PtRegs) -> u64 {
        regs.pc()
    }

    #[inline]
    fn simulate<T: UserTask>(insn: &Insn, regs: &mut PtRegs, task: &mut T) -> Simulated {
        simulate::simulate(insn, regs, task)
    }

    /// There is no single-step on riscv, and the kernel offers none (`PTRACE_SINGLESTEP`).
    #[inline]
    fn trap_after<T: UserTask>(_regs: &mut PtRegs, _task: &T) -> bool {
        false
    }

    fn xol_bytes(insn: &Insn) -> ([u8; MAX_INSN_BYTES], usize) {
        xol::bytes(insn)
    }

    fn pre_xol<T: UserTask>(
        _insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        bp_vaddr: u64,
        xol_vaddr: u64,
    ) -> Result<StepState, Errno> {
        Ok(xol::pre(regs, task, bp_vaddr, xol_vaddr))
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
        xol::post(insn, regs, task, state, bp_vaddr, xol_vaddr);
        Ok(Stepped::Done { trap: false })
    }

    fn abort_xol<T: UserTask>(
        _insn: &Insn,
        regs: &mut PtRegs,
        task: &mut T,
        state: &StepState,
        bp_vaddr: u64,
    ) {
        xol::abort(regs, task, state, bp_vaddr);
    }

    fn trampoline(_bitness: Bitness) -> &'static [u8] {
        &EBREAK
    }

    fn frame_at_entry(regs: &PtRegs) -> u64 {
        regs.x(X::SP)
    }

    fn frame_at_return(regs: &PtRegs) -> u64 {
        regs.x(X::SP)
    }

    fn hijack_return<T: UserTask>(
        _insn: &Insn,
        regs: &mut PtRegs,
        _task: &mut T,
        trampoline: u64,
    ) -> Result<u64, HijackError> {
        Ok(uretprobe::hijack(regs, trampoline))
    }

    fn is_frame_alive(frame: u64, check: FrameCheck, regs: &PtRegs) -> bool {
        uretprobe::is_frame_alive(frame, check, regs)
    }

    /// A landing pad, `c.sspush x1`, or what makes room on the stack.
    fn is_function_entry(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> bool {
        if bytes.starts_with(&C_SSPUSH_RA) {
            return bitness == Bitness::Bits64;
        }
        match analyze::analyze(bytes, bitness).map(|analysis| analysis.insn.sim()) {
            Ok(Sim::Lpad { .. }) => true,
            Ok(Sim::AluImm {
                op: insn::Alu::Add,
                rd: X::SP,
                rs1: X::SP,
                imm,
            }) => imm < 0,
            _ => false,
        }
    }
}
