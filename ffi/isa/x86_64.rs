// SPDX-License-Identifier: GPL-2.0

//! x86_64: the kernel's instruction decoder, traps, user memory, shadow stack and the system calls
//! of the trampolines.

use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::ptr::{self, NonNull};

use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_long, c_ulong, c_void};
use kernel::prelude::*;

use uprobes_arch::x86_64::decode::Field;
use uprobes_arch::x86_64::{uretprobe, Decode, Decoded, PtRegs, Reg};
use uprobes_arch::Native;
use uprobes_bindings as c;
use uprobes_core::arch::{Arch, Bitness, Fault, UserTask, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;
use uprobes_core::hit::Signal;

use crate::hit;
use crate::returns;
use crate::sync::TasksTrace;
use crate::task;
use crate::uprobe::Uprobe;
use crate::user;

/// The backend with the kernel's own decoder.
pub(crate) type Isa = Native<KernelDecoder>;

#[cfg(CONFIG_UPROBES_RUST_KUNIT_TEST)]
pub(crate) use uprobes_arch::x86_64::vectors::VECTORS;

macro_rules! same_offset {
    ($($reg:ident = $field:ident),* $(,)?) => {
        $(const _: () = assert!(
            Reg::$reg as usize * size_of::<u64>() == offset_of!(bindings::pt_regs, $field)
        );)*
    };
}

same_offset! {
    R15 = r15, R14 = r14, R13 = r13, R12 = r12, Bp = bp, Bx = bx, R11 = r11, R10 = r10, R9 = r9,
    R8 = r8, Ax = ax, Cx = cx, Dx = dx, Si = si, Di = di, OrigAx = orig_ax, Ip = ip,
    Cs = __bindgen_anon_1, Flags = flags, Sp = sp, Ss = __bindgen_anon_2,
}
const _: () = assert!(size_of::<PtRegs>() == size_of::<bindings::pt_regs>());
const _: () = assert!(Isa::XOL_SLOT_BYTES == bindings::UPROBE_XOL_SLOT_BYTES as usize);
const _: () = assert!(MAX_INSN_BYTES == bindings::MAX_UINSN_BYTES as usize);
const _: () = assert!(Isa::SWBP.len() == bindings::UPROBE_SWBP_INSN_SIZE as usize);

/// `insn_decode()`.
///
/// C header: [`arch/x86/include/asm/insn.h`](srctree/arch/x86/include/asm/insn.h)
pub(crate) enum KernelDecoder {}

fn field(from: &c::insn_field) -> Field {
    Field {
        // SAFETY: every view of the union is four plain bytes.
        bytes: unsafe { from.__bindgen_anon_1.bytes },
        nbytes: from.nbytes,
    }
}

impl Decode for KernelDecoder {
    fn decode(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Decoded, Errno> {
        let mode = match bitness {
            Bitness::Bits64 => c::insn_mode_INSN_MODE_64,
            Bitness::Bits32 => c::insn_mode_INSN_MODE_32,
        };
        let mut insn = c::insn::default();
        // SAFETY: `insn` is ours; `bytes` has the length given.
        let ret =
            unsafe { c::insn_decode(&mut insn, bytes.as_ptr().cast(), bytes.len() as c_int, mode) };
        if ret < 0 {
            return Err(Errno::ENOEXEC);
        }
        Ok(Decoded {
            prefixes: field(&insn.prefixes),
            rex: field(&insn.rex_prefix),
            // SAFETY: every view of these unions is an `insn_field`.
            vex: field(unsafe { &insn.__bindgen_anon_1.vex_prefix }),
            opcode: field(&insn.opcode),
            modrm: field(&insn.modrm),
            sib: field(&insn.sib),
            displacement: field(&insn.displacement),
            // SAFETY: as above.
            immediate: field(unsafe { &insn.__bindgen_anon_2.immediate }),
            // SAFETY: as above.
            immediate2: field(unsafe { &insn.__bindgen_anon_3.immediate2 }),
            length: insn.length,
        })
    }
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
    // The search takes the limit for ia32 from the kind of the system call, but this is none.
    // SAFETY: FFI calls about the current task.
    unsafe {
        let compat = c::uprobes_task_addr32();
        if compat {
            c::uprobes_set_compat_status(true);
        }
        let vaddr = c::uprobes_unmapped_area_near_top();
        if compat {
            c::uprobes_set_compat_status(false);
        }
        vaddr
    }
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
    pub(crate) fn peek_word(addr: u64, bitness: Bitness) -> Option<u64> {
        let mut word = [0; 8];
        let len = match bitness {
            Bitness::Bits64 => 8,
            Bitness::Bits32 => 4,
        };
        user::peek(addr, word.get_mut(..len)?).ok()?;
        Some(u64::from_le_bytes(word))
    }
}

/// Sends the trap of a breakpoint that is not ours, as the exception would.
pub(crate) fn send_breakpoint_trap(_regs: &mut PtRegs) {
    // SAFETY: an FFI call about the current task.
    unsafe { bindings::force_sig(bindings::SIGTRAP as c_int) };
}

/// Sends the trap of a single-stepped program, as the exception would.
pub(crate) fn send_step_trap(regs: &mut PtRegs) {
    // SAFETY: FFI calls about the current task, whose registers these are.
    unsafe {
        c::uprobes_set_virtual_dr6_step();
        bindings::send_sigtrap(ptr::from_mut(regs).cast(), 0, bindings::TRAP_TRACE as c_int);
    }
}

/// Whether somebody watches the system calls of the current task.
#[inline]
pub(crate) fn are_system_calls_watched() -> bool {
    // SAFETY: an FFI call about the current task.
    unsafe { c::uprobes_syscalls_watched() }
}

/// Flags of the mapping of the XOL area, besides those of every ISA.
pub(crate) fn xol_flags() -> bindings::vm_flags_t {
    0
}

/// Code was written through a mapping of the kernel: nothing to do where caches are coherent.
///
/// # Safety
///
/// `start` is valid for reads of `len` bytes.
#[inline]
pub(crate) unsafe fn code_written(_mm: *mut bindings::mm_struct, _start: *const u8, _len: usize) {}

/// Makes this CPU forget what it may have fetched of code that was written through another address
/// (SDM vol. 3A, "Handling Self- and Cross-Modifying Code"): the way back to user space need not.
pub(crate) fn serialize() {
    // SAFETY: an FFI call without further requirements.
    unsafe { c::uprobes_sync_core() };
}

/// Makes the system call that `regs` describe. The backend asks for none, it steps them.
pub(crate) fn system_call(_regs: &mut PtRegs) {}

impl UserTask for Task {
    #[inline]
    fn shadow_stack_enabled(&self) -> bool {
        // SAFETY: an FFI call about the current task.
        unsafe { c::uprobes_shadow_stack_enabled() }
    }

    #[inline]
    fn shadow_push(&mut self, addr: u64) -> Result<(), Fault> {
        // SAFETY: an FFI call about the current task.
        match unsafe { bindings::shstk_push(addr) } {
            err if err == -(bindings::EFAULT as c_int) => Err(Fault),
            // Success, or no shadow stack.
            _ => Ok(()),
        }
    }

    #[inline]
    fn shadow_pop(&mut self) -> Result<Option<u64>, Fault> {
        let mut value = 0;
        // SAFETY: an FFI call about the current task.
        match unsafe { bindings::shstk_pop(&mut value) } {
            0 => Ok(Some(value)),
            err if err == -(bindings::EFAULT as c_int) => Err(Fault),
            _ => Ok(None),
        }
    }

    #[inline]
    fn shadow_replace_top(&mut self, addr: u64) -> Result<(), Fault> {
        if !self.shadow_stack_enabled() {
            return Ok(());
        }
        // SAFETY: an FFI call about the current task.
        user::done(unsafe { bindings::shstk_update_last_frame(addr as c_ulong) })
    }

    #[inline]
    fn fault_code(&self) -> u64 {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_trap_nr(self.0) as u64 }
    }

    #[inline]
    fn set_fault_code(&mut self, code: u64) {
        // SAFETY: the current task is valid.
        unsafe { c::uprobes_set_trap_nr(self.0, code as c_ulong) };
    }

    #[inline]
    fn suspend_block_step(&mut self) {
        // SAFETY: the current task is valid.
        unsafe {
            if c::uprobes_test_blockstep(self.0) {
                bindings::set_task_blockstep(self.0, false);
            }
        }
    }
}

/// Breakpoint and single-step traps.
unsafe extern "C" fn on_exception(
    _this: *mut bindings::notifier_block,
    event: c_ulong,
    data: *mut c_void,
) -> c_int {
    const NOTIFY_DONE: c_int = bindings::NOTIFY_DONE as c_int;
    const NOTIFY_STOP: c_int = (bindings::NOTIFY_OK | bindings::NOTIFY_STOP_MASK) as c_int;

    // SAFETY: the chain passes a `die_args`.
    let regs = unsafe { (*data.cast::<c::die_args>()).regs };
    // SAFETY: the registers are valid if there are any.
    if regs.is_null() || !unsafe { c::uprobes_user_mode(regs) } {
        return NOTIFY_DONE;
    }
    let ours = match event as c::die_val {
        c::die_val_DIE_INT3 => hit::on_trap(),
        c::die_val_DIE_DEBUG => hit::on_step_trap(),
        _ => false,
    };
    if ours {
        NOTIFY_STOP
    } else {
        NOTIFY_DONE
    }
}

/// A notifier, which belongs to its chain once it is registered.
struct Notifier(UnsafeCell<bindings::notifier_block>);

// SAFETY: touched by the chain only.
unsafe impl Sync for Notifier {}

static NOTIFIER: Notifier = Notifier(UnsafeCell::new(bindings::notifier_block {
    notifier_call: Some(on_exception),
    next: ptr::null_mut(),
    // After kprobes and kgdb.
    priority: c_int::MAX - 1,
}));

/// Begins to listen for traps.
///
/// # Errors
///
/// Those of `register_die_notifier()`.
///
/// # Safety
///
/// Called once at boot.
pub(crate) unsafe fn init() -> Result {
    // SAFETY: registered once, static.
    to_result(unsafe { c::register_die_notifier(NOTIFIER.0.get()) })
}

/// Whether the current task runs the handlers of a probe that is at the start of a function, so
/// that the caller's frame is not set up yet.
///
/// # Safety
///
/// `regs` are those of the current task.
///
/// # Context
///
/// Any, also NMI.
#[export]
pub(crate) unsafe extern "C" fn is_uprobe_at_func_entry(regs: *mut bindings::pt_regs) -> bool {
    // SAFETY: by contract; `PtRegs` is laid out as `pt_regs`.
    let bitness = Isa::bitness(unsafe { &*regs.cast::<PtRegs>() });
    instruction_being_handled().is_some_and(|bytes| Isa::is_function_entry(&bytes, bitness))
}

/// The bytes of the instruction whose handlers the current task is running, if it is.
fn instruction_being_handled() -> Option<[u8; MAX_INSN_BYTES]> {
    let uprobe = NonNull::new(task::current()?.c.auprobe.cast::<Uprobe>())?;
    // SAFETY: set before the handlers run, for as long as the uprobe is valid.
    unsafe { uprobe.as_ref() }.code().map(|code| code.bytes)
}

/// The `uretprobe` system call: a function has returned to the trampoline.
///
/// From anywhere else it is answered by SIGILL.
///
/// # Safety
///
/// `regs` are those of the current task at the system call.
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobes_rs_sys_uretprobe(regs: *mut bindings::pt_regs) -> c_long {
    // SAFETY: by contract; `PtRegs` is laid out as `pt_regs`.
    let regs = unsafe { &mut *regs.cast::<PtRegs>() };
    let mut task = Task::current();
    let result = returns::Trampoline::of_current()
        .ok_or(uretprobe::Forged)
        .and_then(|trampoline| {
            let frame = uretprobe::enter(regs, &mut task, trampoline.vaddr)?;
            returns::on_return(regs, &trampoline, &TasksTrace::enter());
            uretprobe::leave(frame, regs, &mut task)
        });
    match result {
        Ok(ax) => ax as c_long,
        Err(uretprobe::Forged) => {
            hit::send(Signal::ForcedIll, regs);
            -1
        }
    }
}

/// The `uprobe` system call, which no trampoline makes yet.
///
/// # Safety
///
/// As [`uprobes_rs_sys_uretprobe`].
#[no_mangle]
pub(crate) unsafe extern "C" fn uprobes_rs_sys_uprobe(_regs: *mut bindings::pt_regs) -> c_long {
    Errno::EPROTO.to_ret() as c_long
}
