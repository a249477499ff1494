// SPDX-License-Identifier: GPL-2.0

//! The path of a hit.
//!
//! ```text
//!   breakpoint ──> on_breakpoint ──┬─ trampoline ──────> a pending return
//!                                  ├─ no uprobe ───────> SIGTRAP, or run the address again
//!                                  └─ uprobe: handlers ─┬─ a handler moved the ip: done
//!                                                       ├─ simulated: done
//!                                                       └─ start_step: slot, single-step
//!                                                              │
//!   step trap, signal or fault ──> on_step_end <───────────────┘
//! ```
//!
//! Both functions run in process context, between user space and user space, and may sleep.
//!
//! A system call is simulated by making it. It may take as long as it likes and may even never
//! return, so it is left to the caller, who has let go of everything by then ([`AfterHit`]).

#![forbid(unsafe_code)]

use core::ops::Deref;

use crate::arch::{Arch, Simulated, Stepped, UserTask};
use crate::errno::Errno;

/// What was found at the address of a breakpoint trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<U> {
    /// A uprobe.
    Uprobe(U),
    /// No uprobe, but the memory holds a breakpoint: it is somebody else's.
    ForeignTrap,
    /// No uprobe and no breakpoint any more, or no such memory.
    Nothing,
}

/// A signal that the subsystem sends to the probed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTRAP that cannot be blocked or ignored, for a breakpoint that is not ours.
    ForcedTrap,
    /// SIGTRAP of a single-stepped program.
    Trap,
    /// SIGILL that cannot be blocked or ignored.
    ForcedIll,
}

/// The current task during a hit: the kernel, or a model of it on the host.
pub trait Hit {
    /// The instruction set.
    type A: Arch;
    /// User memory and per-task state.
    type Task: UserTask;
    /// A uprobe that stays valid while the hit is handled.
    type Uprobe: Copy;
    /// Its analysed instruction, valid for as long.
    type Insn: Copy + Deref<Target = <Self::A as Arch>::Insn>;

    /// Registers at the trap and access to the task.
    fn parts(&mut self) -> (&mut <Self::A as Arch>::Regs, &mut Self::Task);
    /// Whether the trap of the return trampoline of this process is at `vaddr`.
    fn is_trampoline(&self, vaddr: u64) -> bool;
    /// Handles a return through the trampoline.
    fn on_return(&mut self);
    /// Looks up what is at `vaddr`.
    fn find(&mut self, vaddr: u64) -> Found<Self::Uprobe>;
    /// The analysed instruction, or [`None`] while that is still to be done.
    fn insn(&self, uprobe: Self::Uprobe) -> Option<Self::Insn>;
    /// Makes sure that the task has what handlers need; fails for want of memory.
    fn ensure_task_state(&mut self) -> bool;
    /// Whether a debugger has a breakpoint at `vaddr` too.
    fn is_debugger_trap(&self, vaddr: u64) -> bool;
    /// Remembers the address whose consumers were called before a debugger took over, or zero;
    /// answers the one remembered before.
    fn swap_counted(&mut self, vaddr: u64) -> u64;
    /// Calls the consumers.
    fn run_consumers(&mut self, uprobe: Self::Uprobe, vaddr: u64);
    /// Takes a slot, fills it and holds the uprobe until the step ends; answers the slot's
    /// address.
    fn acquire_slot(
        &mut self,
        uprobe: Self::Uprobe,
        insn: &<Self::A as Arch>::Insn,
    ) -> Result<u64, Errno>;
    /// Gives up what [`Hit::acquire_slot`] took.
    fn release_slot(&mut self);
    /// Notes that the step of `insn` has begun.
    fn begin_step(&mut self, step: Step<Self::A>);
    /// Sends a signal to the task.
    fn signal(&mut self, signal: Signal);
}

/// A single-step under way.
pub struct Step<A: Arch> {
    /// The instruction in the slot.
    pub insn: A::Insn,
    /// Where it belongs.
    pub vaddr: u64,
    /// Where it runs.
    pub xol_vaddr: u64,
    /// What the backend keeps.
    pub state: A::StepState,
}

impl<A: Arch> Clone for Step<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Arch> Copy for Step<A> {}

/// What is left to do after a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AfterHit {
    /// Nothing: the task goes on.
    Continue,
    /// Make the system call that the registers describe, outside of any section.
    SystemCall,
}

/// Handles a breakpoint trap of the current task.
///
/// # Context
///
/// Inside an RCU Tasks Trace section, entered before anything was looked up.
#[inline]
pub fn on_breakpoint<H: Hit>(hit: &mut H) -> AfterHit {
    if let Some(Simulated::SystemCall) = handle(hit) {
        return AfterHit::SystemCall;
    }
    AfterHit::Continue
}

/// Does the work of [`on_breakpoint`]; answers how the simulation ended, if it came to that.
#[inline(always)]
fn handle<H: Hit>(hit: &mut H) -> Option<Simulated> {
    let trap_ip = H::A::ip(hit.parts().0);
    let vaddr = H::A::swbp_addr(hit.parts().0);
    if hit.is_trampoline(vaddr) {
        hit.on_return();
        let (regs, task) = hit.parts();
        if H::A::trap_after(regs, task) {
            // The trap that is due is that of the return, wherever it led.
            hit.signal(Signal::Trap);
        }
        return None;
    }

    let uprobe = match hit.find(vaddr) {
        Found::Uprobe(uprobe) => uprobe,
        Found::ForeignTrap => {
            hit.signal(Signal::ForcedTrap);
            return None;
        }
        Found::Nothing => {
            // The breakpoint went away between the trap and here, or the memory did: run what is
            // there now, or take the fault that is due.
            H::A::restart(hit.parts().0, vaddr);
            return None;
        }
    };

    let Some(insn) = hit.insn(uprobe) else {
        H::A::restart(hit.parts().0, vaddr);
        return None;
    };
    if !hit.ensure_task_state() || H::A::ignore(&insn, hit.parts().0) {
        H::A::restart(hit.parts().0, vaddr);
        return None;
    }
    // Handlers see the probed address.
    H::A::set_ip(hit.parts().0, vaddr);

    // A debugger that was told of this hit and took its breakpoint away to go on leads here once
    // more for the same execution of the instruction.
    let debugger = hit.is_debugger_trap(vaddr);
    let counted = hit.swap_counted(0) == vaddr;
    if debugger || !counted {
        hit.run_consumers(uprobe, vaddr);
        if H::A::ip(hit.parts().0) != vaddr {
            return None;
        }
    }
    if debugger {
        hit.swap_counted(vaddr);
        H::A::set_ip(hit.parts().0, trap_ip);
        hit.signal(Signal::ForcedTrap);
        return None;
    }

    let (regs, task) = hit.parts();
    let simulated = H::A::simulate(&insn, regs, task);
    match simulated {
        Simulated::Done => {
            if H::A::trap_after(regs, task) {
                hit.signal(Signal::Trap);
            }
        }
        Simulated::OutOfLine => start_step(hit, uprobe, *insn, vaddr),
        Simulated::SystemCall => (),
    }
    Some(simulated)
}

/// Points the task at a copy of the instruction. On failure the task hits the breakpoint again.
#[inline(always)] // A call would have the whole of `hit` in memory, for every hit.
fn start_step<H: Hit>(hit: &mut H, uprobe: H::Uprobe, insn: <H::A as Arch>::Insn, vaddr: u64) {
    let Ok(xol_vaddr) = hit.acquire_slot(uprobe, &insn) else {
        H::A::restart(hit.parts().0, vaddr);
        return;
    };
    let (regs, task) = hit.parts();
    match H::A::pre_xol(&insn, regs, task, vaddr, xol_vaddr) {
        Ok(state) => hit.begin_step(Step {
            insn,
            vaddr,
            xol_vaddr,
            state,
        }),
        Err(_) => {
            H::A::restart(regs, vaddr);
            hit.release_slot();
        }
    }
}

/// Why a step is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// The hardware trapped after the instruction.
    Trapped,
    /// The instruction took a fault, or the task is being killed.
    Aborted,
}

/// What follows from the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStep {
    /// The step is over; send the signal if there is one.
    Over(Option<Signal>),
    /// The instruction is not complete; the task goes on in its slot.
    Continue,
    /// The step is over, but not the instruction, which goes on at its own address once the signal
    /// has been dealt with: that is no new hit.
    Pause(Signal),
}

/// Repairs the registers at the end of a step.
///
/// The caller releases the slot and the uprobe afterwards, unless told to continue.
pub fn on_step_end<A: Arch, T: UserTask>(
    step: &mut Step<A>,
    end: StepEnd,
    regs: &mut A::Regs,
    task: &mut T,
) -> AfterStep {
    match end {
        StepEnd::Aborted => {
            A::abort_xol(&step.insn, regs, task, &step.state, step.vaddr);
            AfterStep::Over(None)
        }
        StepEnd::Trapped => {
            let (vaddr, xol_vaddr) = (step.vaddr, step.xol_vaddr);
            match A::post_xol(&step.insn, regs, task, &mut step.state, vaddr, xol_vaddr) {
                Ok(Stepped::Done { trap }) => AfterStep::Over(trap.then_some(Signal::Trap)),
                Ok(Stepped::Restart) => {
                    A::set_ip(regs, vaddr);
                    AfterStep::Over(None)
                }
                Ok(Stepped::Again) => AfterStep::Continue,
                Ok(Stepped::Partial) => {
                    A::set_ip(regs, vaddr);
                    AfterStep::Pause(Signal::Trap)
                }
                Err(_) => {
                    A::set_ip(regs, vaddr);
                    AfterStep::Over(Some(Signal::ForcedIll))
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::arch::{
        Analysis, Bitness, Fault, FrameCheck, HijackError, UserMemory, MAX_INSN_BYTES,
    };

    /// An instruction set with one-byte instructions: `cc` traps, `90` is simulated, anything else
    /// is stepped.
    enum Toy {}

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Regs {
        ip: u64,
        stepping: bool,
        restarts: u32,
    }

    #[derive(Default)]
    struct Memory {
        fault: u64,
    }

    impl UserMemory for Memory {
        fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault)
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), Fault> {
            Err(Fault)
        }
    }

    impl UserTask for Memory {
        fn shadow_stack_enabled(&self) -> bool {
            false
        }
        fn shadow_push(&mut self, _: u64) -> Result<(), Fault> {
            Ok(())
        }
        fn shadow_pop(&mut self) -> Result<Option<u64>, Fault> {
            Ok(None)
        }
        fn shadow_replace_top(&mut self, _: u64) -> Result<(), Fault> {
            Ok(())
        }
        fn fault_code(&self) -> u64 {
            self.fault
        }
        fn set_fault_code(&mut self, code: u64) {
            self.fault = code;
        }
        fn suspend_block_step(&mut self) {}
    }

    impl Arch for Toy {
        const SWBP: &'static [u8] = &[0xcc];
        const INSN_ALIGN: u64 = 1;
        const XOL_SLOT_BYTES: usize = 16;
        type Regs = Regs;
        type Insn = u8;
        type StepState = ();

        fn is_swbp(bytes: &[u8]) -> bool {
            bytes.starts_with(Self::SWBP)
        }
        fn analyze(bytes: &[u8; MAX_INSN_BYTES], _: Bitness) -> Result<Analysis<u8>, Errno> {
            Ok(Analysis {
                insn: bytes[0],
                len: 1,
                simulated: bytes[0] == 0x90,
            })
        }
        fn bitness(_: &Regs) -> Bitness {
            Bitness::Bits64
        }
        fn ip(regs: &Regs) -> u64 {
            regs.ip
        }
        fn set_ip(regs: &mut Regs, ip: u64) {
            regs.ip = ip;
        }
        fn sp(_: &Regs) -> u64 {
            0
        }
        fn swbp_addr(regs: &Regs) -> u64 {
            regs.ip - 1
        }
        fn restart(regs: &mut Regs, vaddr: u64) {
            regs.ip = vaddr;
            regs.restarts += 1;
        }
        fn simulate<T: UserTask>(insn: &u8, regs: &mut Regs, _: &mut T) -> Simulated {
            match insn {
                0x90 | 0x05 => regs.ip += 1,
                _ => return Simulated::OutOfLine,
            }
            if *insn == 0x05 {
                return Simulated::SystemCall;
            }
            Simulated::Done
        }
        fn trap_after<T: UserTask>(regs: &mut Regs, _: &T) -> bool {
            regs.stepping
        }
        fn xol_bytes(insn: &u8) -> ([u8; MAX_INSN_BYTES], usize) {
            let mut bytes = [0; MAX_INSN_BYTES];
            bytes[0] = *insn;
            (bytes, 1)
        }
        fn pre_xol<T: UserTask>(
            insn: &u8,
            regs: &mut Regs,
            task: &mut T,
            _: u64,
            xol_vaddr: u64,
        ) -> Result<(), Errno> {
            if *insn == 0xee {
                return Err(Errno::EINVAL);
            }
            regs.ip = xol_vaddr;
            task.set_fault_code(u64::MAX);
            Ok(())
        }
        fn xol_was_trapped<T: UserTask>(task: &T) -> bool {
            task.fault_code() != u64::MAX
        }
        fn post_xol<T: UserTask>(
            insn: &u8,
            regs: &mut Regs,
            _: &mut T,
            (): &mut (),
            bp_vaddr: u64,
            _: u64,
        ) -> Result<Stepped, Errno> {
            regs.ip = bp_vaddr + 1;
            match insn {
                0xa0 => Ok(Stepped::Again),
                0xb0 => Ok(Stepped::Restart),
                0xc0 => Ok(Stepped::Partial),
                0xe0 => Err(Errno::EINVAL),
                _ => Ok(Stepped::Done {
                    trap: regs.stepping,
                }),
            }
        }
        fn abort_xol<T: UserTask>(_: &u8, regs: &mut Regs, _: &mut T, (): &(), bp_vaddr: u64) {
            regs.ip = bp_vaddr;
        }
        fn trampoline(_: Bitness) -> &'static [u8] {
            &[0xcc]
        }
        fn frame_at_entry(_: &Regs) -> u64 {
            0
        }
        fn frame_at_return(_: &Regs) -> u64 {
            0
        }
        fn hijack_return<T: UserTask>(
            _: &u8,
            _: &mut Regs,
            _: &mut T,
            _: u64,
        ) -> Result<u64, HijackError> {
            Err(HijackError::Unreadable)
        }
        fn is_frame_alive(_: u64, _: FrameCheck, _: &Regs) -> bool {
            true
        }
        fn is_function_entry(_: &[u8; MAX_INSN_BYTES], _: Bitness) -> bool {
            false
        }
    }

    const SITE: u64 = 0x1000;
    const SLOT: u64 = 0x7000;
    const TRAMPOLINE: u64 = 0x7f00;

    /// A task at a breakpoint, and what was done to it.
    struct Model {
        regs: Regs,
        memory: Memory,
        found: Found<u8>,
        analysed: bool,
        has_memory: bool,
        has_slot: bool,
        handler_moves_ip: Option<u64>,
        debugger: bool,
        counted: u64,
        calls: u32,
        returns: u32,
        slots: i32,
        step: Option<Step<Toy>>,
        signals: Vec<Signal>,
        after: AfterHit,
    }

    impl Model {
        fn at(insn: u8) -> Self {
            Self {
                regs: Regs {
                    ip: SITE + 1,
                    stepping: false,
                    restarts: 0,
                },
                memory: Memory::default(),
                found: Found::Uprobe(insn),
                analysed: true,
                has_memory: true,
                has_slot: true,
                handler_moves_ip: None,
                debugger: false,
                counted: 0,
                calls: 0,
                returns: 0,
                slots: 0,
                step: None,
                signals: Vec::new(),
                after: AfterHit::Continue,
            }
        }

        fn hit(mut self) -> Self {
            self.after = on_breakpoint(&mut self);
            self
        }

        /// Lets the task hit the same breakpoint once more.
        fn again(mut self) -> Self {
            self.regs.ip = SITE + 1;
            self.hit()
        }

        fn end(&mut self, end: StepEnd) -> AfterStep {
            on_step_end(
                self.step.as_mut().unwrap(),
                end,
                &mut self.regs,
                &mut self.memory,
            )
        }
    }

    impl Hit for Model {
        type A = Toy;
        type Task = Memory;
        type Uprobe = u8;
        type Insn = &'static u8;

        fn parts(&mut self) -> (&mut Regs, &mut Memory) {
            (&mut self.regs, &mut self.memory)
        }
        fn is_trampoline(&self, vaddr: u64) -> bool {
            vaddr == TRAMPOLINE
        }
        fn on_return(&mut self) {
            self.returns += 1;
        }
        fn find(&mut self, vaddr: u64) -> Found<u8> {
            assert_eq!(vaddr, SITE);
            self.found
        }
        fn insn(&self, uprobe: u8) -> Option<&'static u8> {
            static INSNS: [u8; 256] = {
                let mut all = [0; 256];
                let mut i = 0;
                while i < 256 {
                    all[i] = i as u8;
                    i += 1;
                }
                all
            };
            self.analysed.then(|| &INSNS[usize::from(uprobe)])
        }
        fn ensure_task_state(&mut self) -> bool {
            self.has_memory
        }
        fn is_debugger_trap(&self, _: u64) -> bool {
            self.debugger
        }
        fn swap_counted(&mut self, vaddr: u64) -> u64 {
            core::mem::replace(&mut self.counted, vaddr)
        }
        fn run_consumers(&mut self, _: u8, vaddr: u64) {
            assert_eq!((vaddr, self.regs.ip), (SITE, SITE));
            self.calls += 1;
            if let Some(ip) = self.handler_moves_ip {
                self.regs.ip = ip;
            }
        }
        fn acquire_slot(&mut self, _: u8, _: &u8) -> Result<u64, Errno> {
            if !self.has_slot {
                return Err(Errno::ENOMEM);
            }
            self.slots += 1;
            Ok(SLOT)
        }
        fn release_slot(&mut self) {
            self.slots -= 1;
        }
        fn begin_step(&mut self, step: Step<Toy>) {
            self.step = Some(step);
        }
        fn signal(&mut self, signal: Signal) {
            self.signals.push(signal);
        }
    }

    #[test]
    fn a_simulated_instruction_needs_no_slot() {
        let m = Model::at(0x90).hit();
        assert_eq!((m.calls, m.slots, m.regs.ip), (1, 0, SITE + 1));
        assert!(m.signals.is_empty());
    }

    #[test]
    fn a_system_call_is_left_to_the_caller() {
        let mut m = Model::at(0x05);
        // Its end tells the tracer.
        m.regs.stepping = true;
        let m = m.hit();
        assert_eq!(m.after, AfterHit::SystemCall);
        assert_eq!((m.calls, m.slots, m.regs.ip), (1, 0, SITE + 1));
        assert!(m.signals.is_empty());
        assert_eq!(Model::at(0x90).hit().after, AfterHit::Continue);
        assert_eq!(Model::at(0x01).hit().after, AfterHit::Continue);
    }

    #[test]
    fn a_single_stepped_program_traps_after_a_simulated_instruction() {
        let mut m = Model::at(0x90);
        m.regs.stepping = true;
        assert_eq!(m.hit().signals, [Signal::Trap]);
    }

    #[test]
    fn other_instructions_are_stepped() {
        let mut m = Model::at(0x01).hit();
        assert_eq!((m.calls, m.slots, m.regs.ip), (1, 1, SLOT));
        assert_eq!(m.end(StepEnd::Trapped), AfterStep::Over(None));
        assert_eq!(m.regs.ip, SITE + 1);
    }

    #[test]
    fn a_step_ends_in_each_way() {
        let ends = [
            (0xa0, StepEnd::Trapped, AfterStep::Continue, SITE + 1),
            (0xb0, StepEnd::Trapped, AfterStep::Over(None), SITE),
            (0xc0, StepEnd::Trapped, AfterStep::Pause(Signal::Trap), SITE),
            (
                0xe0,
                StepEnd::Trapped,
                AfterStep::Over(Some(Signal::ForcedIll)),
                SITE,
            ),
            (0x01, StepEnd::Aborted, AfterStep::Over(None), SITE),
        ];
        for (insn, end, after, ip) in ends {
            let mut m = Model::at(insn).hit();
            assert_eq!((m.end(end), m.regs.ip), (after, ip), "{insn:#x}");
        }
    }

    #[test]
    fn a_slot_is_given_back_when_the_step_cannot_begin() {
        let m = Model::at(0xee).hit();
        assert_eq!((m.slots, m.regs.ip, m.regs.restarts), (0, SITE, 1));
        assert!(m.step.is_none());
    }

    #[test]
    fn without_a_slot_the_breakpoint_is_hit_again() {
        let mut m = Model::at(0x01);
        m.has_slot = false;
        let m = m.hit();
        assert_eq!((m.regs.ip, m.regs.restarts), (SITE, 1));
        assert!(m.step.is_none() && m.signals.is_empty());
    }

    #[test]
    fn a_foreign_breakpoint_is_passed_on_where_it_was() {
        let mut m = Model::at(0);
        m.found = Found::ForeignTrap;
        let m = m.hit();
        assert_eq!(m.signals, [Signal::ForcedTrap]);
        assert_eq!((m.calls, m.regs.ip), (0, SITE + 1));
    }

    #[test]
    fn a_breakpoint_that_is_gone_is_run_again() {
        let mut m = Model::at(0);
        m.found = Found::Nothing;
        let m = m.hit();
        assert_eq!((m.calls, m.regs.ip, m.regs.restarts), (0, SITE, 1));
        assert!(m.signals.is_empty());
    }

    #[test]
    fn nothing_happens_before_analysis_or_without_memory() {
        let mut unready = Model::at(0x90);
        unready.analysed = false;
        let mut poor = Model::at(0x90);
        poor.has_memory = false;
        for m in [unready.hit(), poor.hit()] {
            assert_eq!((m.calls, m.regs.ip, m.regs.restarts), (0, SITE, 1));
        }
    }

    #[test]
    fn a_handler_may_take_execution_elsewhere() {
        let mut m = Model::at(0x90);
        m.handler_moves_ip = Some(0x5555);
        assert_eq!(m.hit().regs.ip, 0x5555);
    }

    #[test]
    fn a_single_stepped_program_traps_where_it_returns_to() {
        let mut m = Model::at(0x90);
        m.regs.ip = TRAMPOLINE + 1;
        m.regs.stepping = true;
        let m = m.hit();
        assert_eq!((m.returns, m.signals), (1, vec![Signal::Trap]));
    }

    #[test]
    fn the_trampoline_leads_to_the_return() {
        let mut m = Model::at(0x90);
        m.regs.ip = TRAMPOLINE + 1;
        let m = m.hit();
        assert_eq!((m.returns, m.calls), (1, 0));
    }

    #[test]
    fn a_debugger_sees_its_trap_and_the_hit_counts_once() {
        let mut m = Model::at(0x90);
        m.debugger = true;
        let mut m = m.hit();
        assert_eq!(m.signals, [Signal::ForcedTrap]);
        assert_eq!((m.calls, m.regs.ip), (1, SITE + 1));
        // It takes its breakpoint away and resumes at the instruction.
        m.debugger = false;
        let m = m.again();
        assert_eq!((m.calls, m.regs.ip), (1, SITE + 1));
        // The next execution counts.
        assert_eq!(m.again().calls, 2);
    }
}
