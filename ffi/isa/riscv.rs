// SPDX-License-Identifier: GPL-2.0

//! riscv64: traps, control-flow integrity and what makes changed code known to all harts.

use core::mem::{offset_of, size_of};
use core::ptr;

use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::mm::virt::{flags, vm_flags_t};
use kernel::prelude::*;

use uprobes_arch::riscv::{PtRegs, Word, X};
use uprobes_arch::Native;
use uprobes_bindings as c;
use uprobes_core::arch::{Arch, Bitness, Fault, UserTask};

use crate::hit;
use crate::user;

/// The backend.
pub(crate) type Isa = Native;

#[cfg(CONFIG_UPROBES_RUST_KUNIT_TEST)]
pub(crate) use uprobes_arch::riscv::vectors::VECTORS;

macro_rules! same_register {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(const _: () = assert!(
            offset_of!(bindings::pt_regs, $name)
                == X::new($number).number() as usize * size_of::<u64>()
        );)*
    };
}

macro_rules! same_word {
    ($($word:ident = $name:ident),* $(,)?) => {
        $(const _: () = assert!(
            offset_of!(bindings::pt_regs, $name) == Word::$word as usize * size_of::<u64>()
        );)*
    };
}

same_register! {
    ra = 1, sp = 2, gp = 3, tp = 4, t0 = 5, t1 = 6, t2 = 7, s0 = 8, s1 = 9, s2 = 18, s3 = 19,
    s4 = 20, s5 = 21, s6 = 22, s7 = 23, s8 = 24, s9 = 25, s10 = 26, s11 = 27, t3 = 28, t4 = 29,
    t5 = 30, t6 = 31,
}
// The arguments are members of a union.
same_word! {
    Pc = epc, Status = status, BadAddr = badaddr, Cause = cause, OrigA0 = orig_a0,
}
const _: () = assert!(offset_of!(bindings::pt_regs, __bindgen_anon_1) == 10 * size_of::<u64>());
const _: () = assert!(size_of::<bindings::pt_regs__bindgen_ty_1>() == 8 * size_of::<u64>());
const _: () = assert!(size_of::<PtRegs>() == size_of::<bindings::pt_regs>());

/// Begins to listen for traps: the kernel calls the functions below by their names.
///
/// # Errors
///
/// None.
///
/// # Safety
///
/// Called once at boot.
pub(crate) unsafe fn init() -> Result {
    Ok(())
}

/// Width of the code of the programs that run in `mm`.
pub(crate) fn bitness_of_mm(mm: *mut bindings::mm_struct) -> Bitness {
    // SAFETY: callers have a valid `mm`.
    if unsafe { c::uprobes_is_64bit_mm(mm) } {
        Bitness::Bits64
    } else {
        Bitness::Bits32
    }
}

/// An address for the XOL area of the current process, or a negative error number.
///
/// # Context
///
/// The `mmap_lock` is held for writing.
pub(crate) fn unmapped_area_near_top() -> usize {
    // SAFETY: an FFI call about the current task.
    unsafe { c::uprobes_unmapped_area_near_top() }
}

/// Flags of the mapping of the XOL area, besides those of every ISA: user space can read it.
///
/// The kernel reads instructions as the program could where it carries them out in place of the
/// CPU (misaligned accesses) or at their first use (vectors), and they may be in a slot.
pub(crate) fn xol_flags() -> vm_flags_t {
    flags::READ | flags::MAYREAD
}

/// Code of `mm` was written: every hart that runs the process executes `fence.i`, and every other
/// one before it does so.
///
/// # Safety
///
/// `mm` is valid.
pub(crate) unsafe fn code_written(mm: *mut bindings::mm_struct, _start: *const u8, _len: usize) {
    // SAFETY: by contract.
    unsafe { bindings::flush_icache_mm(mm, false) };
}

/// Makes this CPU forget what it may have fetched of code that was written: `fence.i` has.
pub(crate) fn serialize() {}

/// Whether somebody watches the system calls of the current task, in which case functions do not
/// return to a trampoline that makes one. Here it makes none.
pub(crate) fn are_system_calls_watched() -> bool {
    false
}

/// Makes the system call that `regs` describe. The backend asks for none.
pub(crate) fn system_call(_regs: &mut PtRegs) {}

fn force_signal(signal: u32, code: u32, regs: &PtRegs) {
    let addr = ptr::without_provenance_mut(regs.pc() as usize);
    // SAFETY: an FFI call about the current task.
    unsafe { bindings::force_sig_fault(signal as c_int, code as c_int, addr) };
}

/// Sends the trap of a breakpoint that is not ours, or the fault that the CPU has raised before it
/// looked at the breakpoint, as the exceptions would.
pub(crate) fn send_breakpoint_trap(regs: &mut PtRegs) {
    if regs.is_landing() {
        force_signal(bindings::SIGSEGV, bindings::SEGV_CPERR, regs);
    } else {
        force_signal(bindings::SIGTRAP, bindings::TRAP_BRKPT, regs);
    }
}

/// Sends the trap of a single-stepped program. There are none on riscv.
pub(crate) fn send_step_trap(regs: &mut PtRegs) {
    force_signal(bindings::SIGTRAP, bindings::TRAP_TRACE, regs);
}

/// The current task.
pub(crate) struct Task(*mut bindings::task_struct);

impl Task {
    #[inline]
    pub(crate) fn current() -> Self {
        // SAFETY: an FFI call without further requirements.
        Self(unsafe { c::uprobes_current() })
    }

    /// A task that is being made, for what is not memory.
    ///
    /// # Safety
    ///
    /// `task` is valid for as long as the result is used, and does not run.
    pub(crate) unsafe fn not_running(task: *mut bindings::task_struct) -> Self {
        Self(task)
    }

    /// The task is at the site at `_vaddr`, in a mapping with flags that tell nothing here.
    #[inline]
    pub(crate) fn at_site(&mut self, _vaddr: u64, _vm_flags: u64) {}

    /// Reads a word of user memory if it is there; never sleeps.
    pub(crate) fn peek_word(addr: u64, _bitness: Bitness) -> Option<u64> {
        let mut word = [0; 8];
        user::peek(addr, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// The shadow stack is changed by instructions of the program alone (`sspush`, `sspopchk`), so
    /// that nothing here has to. The kernel has no function for it.
    fn no_shadow_access(&self) -> Result<(), Fault> {
        if self.shadow_stack_enabled() {
            Err(Fault)
        } else {
            Ok(())
        }
    }
}

impl UserTask for Task {
    fn shadow_stack_enabled(&self) -> bool {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_shadow_stack_enabled(self.0) }
    }

    fn shadow_push(&mut self, _addr: u64) -> Result<(), Fault> {
        self.no_shadow_access()
    }

    fn shadow_pop(&mut self) -> Result<Option<u64>, Fault> {
        self.no_shadow_access().map(|()| None)
    }

    fn shadow_replace_top(&mut self, _addr: u64) -> Result<(), Fault> {
        self.no_shadow_access()
    }

    #[inline]
    fn fault_code(&self) -> u64 {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_bad_cause(self.0) as u64 }
    }

    #[inline]
    fn set_fault_code(&mut self, code: u64) {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_set_bad_cause(self.0, code as c_ulong) };
    }

    fn suspend_block_step(&mut self) {}

    #[inline]
    fn requires_landing_pads(&mut self, _addr: u64) -> bool {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_landing_pads_enabled(self.0) }
    }
}

/// Whether the memory at the program counter holds a breakpoint; if it cannot be read now, it may.
fn may_be_breakpoint(regs: &PtRegs) -> bool {
    let mut bytes = [0; Isa::TRAP_BYTES];
    let (first, rest) = bytes.split_at_mut(Isa::SWBP.len());
    if user::peek(regs.pc(), first).is_err() {
        return true;
    }
    // The second half may be in a page that is not there.
    let _ = user::peek(regs.pc().wrapping_add(first.len() as u64), rest);
    Isa::is_swbp(&bytes)
}

/// A breakpoint trap from user space, or a software check because an indirect branch has led to
/// what is no landing pad.
///
/// The latter is ours if a breakpoint is in the way of a landing pad. It is not during a step,
/// when the copy of the instruction has failed the check.
///
/// # Safety
///
/// `regs` are those of the current task at the trap.
///
/// # Context
///
/// Exception context; for a breakpoint trap, process context with interrupts on, as
/// `do_trap_break()` has it.
#[export]
pub(crate) unsafe extern "C" fn uprobe_breakpoint_handler(regs: *mut bindings::pt_regs) -> bool {
    // SAFETY: by contract; `PtRegs` is laid out as `pt_regs`.
    let regs = unsafe { &mut *regs.cast::<PtRegs>() };
    if regs.is_landing() {
        // A software check, whose handler may not sleep.
        return !hit::is_stepping() && may_be_breakpoint(regs) && hit::on_trap();
    }
    hit::on_sleepable_trap(regs)
}

/// A breakpoint trap from user space, which may be the end of a step.
///
/// # Safety
///
/// As [`uprobe_breakpoint_handler`].
///
/// # Context
///
/// Exception context.
#[export]
pub(crate) unsafe extern "C" fn uprobe_single_step_handler(_regs: *mut bindings::pt_regs) -> bool {
    hit::on_step_trap()
}
