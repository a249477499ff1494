// SPDX-License-Identifier: GPL-2.0

//! arm64: traps, single-step by the debug unit, guarded control stack, landing pads, caches, and
//! system calls.

use core::mem::{offset_of, size_of};
use core::ptr::{self, NonNull};

use kernel::bindings;
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::sync::rcu;

use uprobes_arch::arm64::regs::pstate;
use uprobes_arch::arm64::PtRegs;
use uprobes_arch::Native;
use uprobes_bindings as c;
use uprobes_core::arch::{Arch, Bitness, Fault, UserTask};

use crate::hit;
use crate::returns;
use crate::signals;
use crate::user;

/// The backend, which decodes by itself.
pub(crate) type Isa = Native;

#[cfg(CONFIG_UPROBES_RUST_KUNIT_TEST)]
pub(crate) use uprobes_arch::arm64::vectors::VECTORS;

macro_rules! same_offset {
    ($($reg:ident),*) => {
        $(const _: () = assert!(
            offset_of!(PtRegs, $reg)
                == offset_of!(bindings::pt_regs, __bindgen_anon_1.__bindgen_anon_1.$reg)
        );)*
    };
}

same_offset!(sp, pc, pstate);
const _: () = assert!(size_of::<PtRegs>() == size_of::<bindings::pt_regs>());
const _: () = assert!(Isa::SWBP.len() == bindings::UPROBE_SWBP_INSN_SIZE as usize);

/// What the debug exceptions' handlers answer.
const DBG_HOOK_HANDLED: c_int = bindings::DBG_HOOK_HANDLED as c_int;
const DBG_HOOK_ERROR: c_int = bindings::DBG_HOOK_ERROR as c_int;

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

/// Flags of the mapping of the XOL area, besides those of every ISA: the backend counts on slots
/// that require landing pads.
pub(crate) fn xol_flags() -> bindings::vm_flags_t {
    if supports_landing_pads() {
        c::UPROBES_VM_ARM64_BTI
    } else {
        0
    }
}

#[inline]
fn supports_landing_pads() -> bool {
    // SAFETY: an FFI call without further requirements.
    unsafe { c::uprobes_supports_bti() }
}

/// Code was written through a mapping of the kernel: makes the instruction caches see it. A CPU
/// that returns to user space after this fetches the new code.
///
/// # Safety
///
/// `start` is valid for reads of `len` bytes.
pub(crate) unsafe fn code_written(_mm: *mut bindings::mm_struct, start: *const u8, len: usize) {
    let start = start as usize;
    // SAFETY: by contract.
    unsafe { bindings::sync_icache_aliases(start, start.wrapping_add(len)) };
}

/// Makes this CPU forget what it may have fetched of code that was written: the return to user space does.
pub(crate) fn serialize() {}

/// Whether somebody watches the system calls of the current task, in which case functions do not
/// return to a trampoline that makes one. Here it makes none.
pub(crate) fn are_system_calls_watched() -> bool {
    false
}

/// Makes the system call that `regs` describe, as `svc` does.
///
/// # Context
///
/// Process context; no lock and no section is held. May sleep, and may never return.
pub(crate) fn system_call(regs: &mut PtRegs) {
    // SAFETY: FFI calls about the current task, whose registers these are; it came from user
    // space. Nothing of the caller's is in use any more should the call not return.
    unsafe {
        if c::uprobes_supports_sme() {
            // System calls leave the streaming mode.
            bindings::fpsimd_save_and_flush_current_state();
            bindings::task_smstop_sm(c::uprobes_current());
        }
        c::do_el0_svc(ptr::from_mut(regs).cast());
    }
}

/// Sends SIGTRAP with `code` to the current task, about the instruction that its registers show.
fn send_trap(regs: &PtRegs, code: u32) {
    // SAFETY: an FFI call about the current task.
    unsafe {
        c::arm64_force_sig_fault(
            bindings::SIGTRAP as c_int,
            code as c_int,
            regs.pc as c_ulong,
            c"User debug trap".as_ptr().cast(),
        );
    }
}

/// Sends the trap of a breakpoint that is not ours, as the exception would.
pub(crate) fn send_breakpoint_trap(regs: &mut PtRegs) {
    send_trap(regs, bindings::TRAP_BRKPT);
}

/// Sends the trap of a single-stepped program, as the exception would.
pub(crate) fn send_step_trap(regs: &mut PtRegs) {
    send_trap(regs, bindings::TRAP_TRACE);
    // The next instruction is to run before the next trap.
    regs.pstate |= pstate::SS;
}

/// The current task.
pub(crate) struct Task {
    raw: *mut bindings::task_struct,
    /// The site and whether its page requires landing pads, once it is known.
    site: Option<(u64, bool)>,
}

impl Task {
    #[inline]
    pub(crate) fn current() -> Self {
        // SAFETY: an FFI call without further requirements.
        Self::of(unsafe { c::uprobes_current() })
    }

    #[inline]
    fn of(raw: *mut bindings::task_struct) -> Self {
        Self { raw, site: None }
    }

    /// A task that is being made, for what is not memory.
    ///
    /// # Safety
    ///
    /// `task` is valid for as long as the result is used, and does not run.
    pub(crate) unsafe fn not_running(task: *mut bindings::task_struct) -> Self {
        Self::of(task)
    }

    /// The task is at the site at `vaddr`, in a mapping with these flags.
    #[inline]
    pub(crate) fn at_site(&mut self, vaddr: u64, vm_flags: u64) {
        let guarded = vm_flags as bindings::vm_flags_t & c::UPROBES_VM_ARM64_BTI != 0;
        self.site = Some((vaddr, guarded));
    }

    /// Whether the page at `addr` requires landing pads.
    #[cold]
    fn is_guarded(&self, addr: u64) -> bool {
        if !supports_landing_pads() {
            return false;
        }
        let flags = self.vma_flags_unlocked(addr).unwrap_or_else(|| {
            // SAFETY: the current task's `mm` is valid, and its mappings stay while it is locked.
            unsafe {
                let mm = c::uprobes_task_mm(self.raw);
                bindings::mmap_read_lock(mm);
                let flags = vma_flags(mm, addr);
                bindings::mmap_read_unlock(mm);
                flags
            }
        });
        flags & c::UPROBES_VM_ARM64_BTI != 0
    }

    /// Reads a word of user memory if it is there; never sleeps.
    pub(crate) fn peek_word(addr: u64, _bitness: Bitness) -> Option<u64> {
        let mut word = [0; 8];
        user::peek(addr, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// Flags of the mapping at `addr`, looked up without a lock; [`None`] if one is needed.
    fn vma_flags_unlocked(&self, addr: u64) -> Option<bindings::vm_flags_t> {
        let mut seq = 0;
        // SAFETY: the current task's `mm` is valid; mappings are freed after an RCU grace period,
        // and what was read of one that has changed is not used.
        unsafe {
            let mm = c::uprobes_task_mm(self.raw);
            if !c::uprobes_mmap_speculate_begin(mm, &mut seq) {
                return None;
            }
            let flags = {
                let _rcu = rcu::read_lock();
                vma_flags(mm, addr)
            };
            (!c::uprobes_mmap_speculate_retry(mm, seq)).then_some(flags)
        }
    }
}

/// Flags of the mapping at `addr`, none where nothing is mapped.
///
/// # Safety
///
/// `mm` is valid and its mappings do not go away.
unsafe fn vma_flags(mm: *mut bindings::mm_struct, addr: u64) -> bindings::vm_flags_t {
    // SAFETY: by contract.
    unsafe {
        match NonNull::new(bindings::vma_lookup(mm, addr as usize)) {
            Some(vma) => c::uprobes_vma_flags(vma.as_ptr()),
            None => 0,
        }
    }
}

impl UserTask for Task {
    #[inline]
    fn shadow_stack_enabled(&self) -> bool {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_gcs_enabled(self.raw) }
    }

    fn shadow_push(&mut self, addr: u64) -> Result<(), Fault> {
        if !self.shadow_stack_enabled() {
            return Ok(());
        }
        let mut err = 0;
        // SAFETY: the guarded control stack is on.
        unsafe { c::uprobes_gcs_push(addr as c_ulong, &mut err) };
        user::done(err)
    }

    fn shadow_pop(&mut self) -> Result<Option<u64>, Fault> {
        if !self.shadow_stack_enabled() {
            return Ok(None);
        }
        let mut err = 0;
        // SAFETY: the guarded control stack is on.
        let top = unsafe { c::uprobes_gcs_pop(&mut err) };
        user::done(err).map(|()| Some(top))
    }

    fn shadow_replace_top(&mut self, addr: u64) -> Result<(), Fault> {
        if !self.shadow_stack_enabled() {
            return Ok(());
        }
        let mut err = 0;
        // SAFETY: the guarded control stack is on.
        unsafe { c::uprobes_gcs_replace(addr as c_ulong, &mut err) };
        user::done(err)
    }

    #[inline]
    fn fault_code(&self) -> u64 {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_fault_code(self.raw) as u64 }
    }

    #[inline]
    fn set_fault_code(&mut self, code: u64) {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_set_fault_code(self.raw, code as c_ulong) };
    }

    // There is no stepping by blocks.
    #[inline]
    fn suspend_block_step(&mut self) {}

    // After a hardware breakpoint or watchpoint the kernel suspends all of them and steps over the
    // instruction; that a tracer steps as well is kept elsewhere meanwhile.
    #[inline]
    fn is_single_stepped(&self) -> bool {
        // SAFETY: the current task is valid.
        unsafe {
            if c::uprobes_breakpoints_suspended(self.raw) {
                c::uprobes_step_suspended(self.raw)
            } else {
                c::uprobes_singlestep_flag(self.raw)
            }
        }
    }

    #[inline]
    fn traps_next(&self) -> bool {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_singlestep_flag(self.raw) }
    }

    #[inline]
    fn set_single_step(&mut self, on: bool) {
        // SAFETY: the current task is valid.
        unsafe {
            if c::uprobes_breakpoints_suspended(self.raw) {
                c::uprobes_set_step_suspended(self.raw, on);
            } else {
                c::uprobes_set_singlestep_flag(self.raw, on);
            }
        }
    }

    fn has_pending_fault(&self) -> bool {
        signals::pending_faults(|faults| faults.next().is_some())
    }

    fn has_pending_trap(&self) -> bool {
        const SIGTRAP: c_int = bindings::SIGTRAP as c_int;
        signals::pending_faults(|mut faults| {
            Iterator::any(&mut faults, |fault| {
                fault.0.__bindgen_anon_1.si_signo == SIGTRAP
            })
        })
    }

    #[inline]
    fn knows_landing_pads(&self) -> bool {
        supports_landing_pads()
    }

    #[inline(always)] // A comparison on the way of each call of a probed function.
    fn requires_landing_pads(&mut self, addr: u64) -> bool {
        match self.site {
            Some((site, guarded)) if site == addr => guarded,
            _ => self.is_guarded(addr),
        }
    }

    #[inline]
    fn address_bits(&self) -> u32 {
        // SAFETY: an FFI call without further requirements.
        unsafe { c::uprobes_address_bits() }
    }
}

/// Begins to listen for traps: the exceptions' handlers call us by name.
///
/// # Errors
///
/// None.
///
/// # Safety
///
/// None; as on the other ISAs.
pub(crate) unsafe fn init() -> Result {
    Ok(())
}

fn answer(ours: bool) -> c_int {
    if ours {
        DBG_HOOK_HANDLED
    } else {
        DBG_HOOK_ERROR
    }
}

/// A `brk` with the number of uprobes.
///
/// # Context
///
/// Process context, interrupts on, as `do_el0_brk64()` has it.
///
/// # Safety
///
/// `regs` are those of the current task, which came from user space.
#[export]
pub(crate) unsafe extern "C" fn uprobe_brk_handler(
    regs: *mut bindings::pt_regs,
    _esr: c_ulong,
) -> c_int {
    // SAFETY: by contract; `PtRegs` is laid out as `pt_regs`.
    answer(hit::on_sleepable_trap(unsafe { &mut *regs.cast() }))
}

/// The trap after a single-step.
///
/// # Safety
///
/// As [`uprobe_brk_handler`].
#[export]
pub(crate) unsafe extern "C" fn uprobe_single_step_handler(
    regs: *mut bindings::pt_regs,
    _esr: c_ulong,
) -> c_int {
    // SAFETY: by contract; `PtRegs` is laid out as `pt_regs`.
    let regs = unsafe { &*regs.cast::<PtRegs>() };
    answer(hit::on_step_trap() || is_at_trampoline(regs) && hit::on_trap())
}

/// Whether a single-stepped task has just returned to the trampoline. Its tracer is to see where
/// the function really returns to, so the trampoline's breakpoint is taken as hit.
fn is_at_trampoline(regs: &PtRegs) -> bool {
    returns::Trampoline::of_current()
        .is_some_and(|trampoline| trampoline.vaddr == Isa::swbp_addr(regs))
}
