// SPDX-License-Identifier: GPL-2.0

//! The XOL area of a process: one page of slots for instructions executed out of line, the first
//! of which is the return trampoline.
//!
//! User space can execute the page and do nothing else with it. Slots are claimed without a
//! shared line ([`uprobes_core::slots`]); a task that finds all of them busy sleeps.

use core::cell::UnsafeCell;
use core::ptr;

use kernel::alloc::flags::{__GFP_ZERO, GFP_KERNEL};
use kernel::bindings;
use kernel::mm::virt::flags;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::Arch;
use uprobes_core::errno::Errno;
use uprobes_core::slots::{SlotIndex, SlotTable};
use uprobes_core::sys::{Acquire, Atomic, Full, Release};

use crate::isa::{self, Isa};
use crate::mm::{MmState, PAGE_SIZE};
use crate::text;

/// Slots of a page besides the first, which holds the trampoline.
const SLOTS: usize = PAGE_SIZE as usize / Isa::XOL_SLOT_BYTES - 1;

/// The page and its slots.
struct Area {
    page: *mut bindings::page,
    vaddr: u64,
    slots: SlotTable<SLOTS>,
    waiters: UnsafeCell<bindings::wait_queue_head>,
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the area owns a reference of its page.
        unsafe { c::uprobes_put_page(self.page) };
    }
}

/// The place of a process's area, and the source of its tasks' identities.
pub(crate) struct Xol {
    area: Atomic<*mut Area>,
    last_owner: Atomic<u64>,
}

impl Xol {
    /// # Safety
    ///
    /// `this` is valid for writes and shared with nobody yet.
    pub(crate) unsafe fn init(this: *mut Self) {
        // SAFETY: by contract.
        unsafe {
            this.write(Self {
                area: Atomic::new(ptr::null_mut()),
                last_owner: Atomic::new(0),
            });
        }
    }

    #[inline]
    fn area(&self) -> Option<&Area> {
        // SAFETY: set once by `map`, freed with `self`.
        unsafe { self.area.load(Acquire).as_ref() }
    }

    /// Address of the return trampoline, if the area is mapped.
    #[inline]
    pub(crate) fn trampoline(&self) -> Option<u64> {
        self.area().map(|area| area.vaddr)
    }

    /// An identity for a task of this process.
    pub(crate) fn new_owner(&self) -> u64 {
        self.last_owner.fetch_add(1, Full).wrapping_add(1)
    }

    /// Makes sure that the area of the current process is mapped, at `at` if that is not zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` after a fatal signal, and why the mapping could not be made.
    ///
    /// # Context
    ///
    /// Takes the `mmap_lock` for writing; may sleep.
    pub(crate) fn map(&self, at: u64, regs: &<Isa as Arch>::Regs) -> Result<u64, Errno> {
        if let Some(area) = self.area() {
            return Ok(area.vaddr);
        }
        // SAFETY: the current task has an address space, it came from user space.
        let mm = unsafe { c::uprobes_task_mm(c::uprobes_current()) };
        let mut fresh = Self::alloc(regs)?;

        // SAFETY: the current task's `mm` is valid.
        if unsafe { c::uprobes_mmap_write_lock_killable(mm) } != 0 {
            return Err(Errno::EINTR);
        }
        let mapped = match self.area() {
            Some(area) => Ok(area.vaddr),
            // SAFETY: locked just now.
            None => unsafe { install(mm, at) }.inspect(|&vaddr| {
                fresh.vaddr = vaddr;
                self.area.store(KBox::into_raw(fresh), Release);
            }),
        };
        // SAFETY: locked above.
        unsafe { c::uprobes_mmap_write_unlock(mm) };
        mapped
    }

    fn alloc(regs: &<Isa as Arch>::Regs) -> Result<KBox<Area>, Errno> {
        let memory =
            KBox::<Area>::new_uninit(GFP_KERNEL | __GFP_ZERO).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: an FFI call without further requirements.
        let page = unsafe { c::uprobes_alloc_zeroed_page() };
        if page.is_null() {
            return Err(Errno::ENOMEM);
        }
        let area = KBox::into_raw(memory).cast::<Area>();
        // SAFETY: `area` is fresh zeroed memory, which is what a new slot table is.
        let area = unsafe {
            (*area).page = page;
            c::uprobes_init_waitqueue_head((*area).waiters.get());
            KBox::from_raw(area)
        };
        // SAFETY: the page is the area's own.
        unsafe {
            let mm = c::uprobes_task_mm(c::uprobes_current());
            text::copy_code_to_page(mm, page, 0, Isa::trampoline(Isa::bitness(regs)));
        }
        Ok(area)
    }

    /// Claims a slot for the current task and puts `code` into it. Sleeps until one is free.
    ///
    /// # Errors
    ///
    /// Those of [`Xol::map`].
    pub(crate) fn claim(
        &self,
        hint: Option<SlotIndex>,
        owner: u64,
        code: &[u8],
        regs: &<Isa as Arch>::Regs,
    ) -> Result<(SlotIndex, u64), Errno> {
        self.map(0, regs)?;
        let area = self.area().ok_or(Errno::ENOMEM)?;
        let slot = match area.slots.claim(hint, owner) {
            Some(claim) => claim.slot,
            None => area.wait_for_slot(owner)?,
        };
        let start = (slot.get() + 1) * Isa::XOL_SLOT_BYTES;
        // SAFETY: the page is the area's own, the slot the current task's.
        unsafe {
            let mm = c::uprobes_task_mm(c::uprobes_current());
            text::update_page(mm, area.page, start as u64, code);
        }
        Ok((slot, area.vaddr + start as u64))
    }

    /// Ends the use of a slot; it stays with its owner until somebody else needs it.
    pub(crate) fn release(&self, slot: SlotIndex, owner: u64) {
        if let Some(area) = self.area() {
            area.slots.release(slot, owner);
            area.wake();
        }
    }

    /// Gives a slot up for good.
    pub(crate) fn disown(&self, slot: SlotIndex, owner: u64) {
        if let Some(area) = self.area() {
            area.slots.disown(slot, owner);
            area.wake();
        }
    }
}

impl Drop for Xol {
    fn drop(&mut self) {
        let area = self.area.load(Acquire);
        if !area.is_null() {
            // SAFETY: made by `map`; with its process gone nobody uses it.
            drop(unsafe { KBox::from_raw(area) });
        }
    }
}

impl Area {
    fn wake(&self) {
        // SAFETY: the queue is initialised. `SlotTable::release` is the barrier that the check
        // for waiters needs.
        unsafe {
            if c::uprobes_waitqueue_active(self.waiters.get()) {
                c::uprobes_wake_up(self.waiters.get());
            }
        }
    }

    /// Waits, also through signals unless they kill: the step that a signal has to wait for is
    /// short.
    ///
    /// # Errors
    ///
    /// `EINTR` after a fatal signal.
    fn wait_for_slot(&self, owner: u64) -> Result<SlotIndex, Errno> {
        let queue = self.waiters.get();
        let mut entry = bindings::wait_queue_entry::default();
        // SAFETY: `entry` is ours and leaves the queue before it goes.
        unsafe { c::uprobes_init_wait(&mut entry) };
        let slot = loop {
            // SAFETY: as above.
            let killed = unsafe {
                bindings::prepare_to_wait_event(
                    queue,
                    &mut entry,
                    c::UPROBES_TASK_KILLABLE as kernel::ffi::c_int,
                )
            };
            if let Some(claim) = self.slots.claim(None, owner) {
                break Ok(claim.slot);
            }
            if killed != 0 {
                break Err(Errno::EINTR);
            }
            // SAFETY: nothing is held that may not be slept with.
            unsafe { bindings::schedule() };
        };
        // SAFETY: as above.
        unsafe { bindings::finish_wait(queue, &mut entry) };
        slot
    }
}

/// The kernel's description of the mapping.
struct Mapping(bindings::vm_special_mapping);

// SAFETY: constant, and its functions may be called from anywhere.
unsafe impl Sync for Mapping {}

static MAPPING: Mapping = Mapping(bindings::vm_special_mapping {
    name: c"[uprobes]".as_ptr().cast(),
    pages: ptr::null_mut(),
    fault: Some(fault),
    mremap: Some(refuse_mremap),
    close: None,
});

unsafe extern "C" fn fault(
    _mapping: *const bindings::vm_special_mapping,
    vma: *mut bindings::vm_area_struct,
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: the kernel calls with a valid fault in a valid mapping of a process that has the
    // area, or the mapping would not be there.
    unsafe {
        let Some(area) = MmState::get((*vma).vm_mm).and_then(|state| state.xol.area()) else {
            return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
        };
        c::uprobes_get_page(area.page);
        (*vmf).page = area.page;
    }
    0
}

unsafe extern "C" fn refuse_mremap(
    _mapping: *const bindings::vm_special_mapping,
    _vma: *mut bindings::vm_area_struct,
) -> kernel::ffi::c_int {
    Errno::EPERM.to_ret()
}

/// Maps the area of `mm`, at `at` or as high as it goes.
///
/// # Safety
///
/// `mm` is that of the current task and write-locked.
unsafe fn install(mm: *mut bindings::mm_struct, at: u64) -> Result<u64, Errno> {
    let vaddr = if at != 0 {
        at as usize
    } else {
        isa::unmapped_area_near_top()
    };
    // A page-aligned address or a negative error number.
    if vaddr as u64 % PAGE_SIZE != 0 {
        return Err(Errno::from_ret(vaddr as i32));
    }
    let vm_flags = flags::EXEC
        | flags::MAYEXEC
        | flags::DONTCOPY
        | flags::IO
        | c::UPROBES_VM_SEALED_SYSMAP
        | isa::xol_flags();
    // SAFETY: by contract.
    let vma = unsafe {
        bindings::_install_special_mapping(mm, vaddr, PAGE_SIZE as usize, vm_flags, &MAPPING.0)
    };
    match kernel::error::from_err_ptr(vma) {
        Ok(_) => Ok(vaddr as u64),
        Err(err) => Err(Errno::from_ret(err.to_errno())),
    }
}
