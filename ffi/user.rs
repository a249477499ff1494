// SPDX-License-Identifier: GPL-2.0

//! Memory of the current task.
//!
//! Addresses are checked by the kernel's functions; one that cannot be had is a [`Fault`].
//!
//! # Context
//!
//! Process context, may sleep, unless said otherwise.

use core::ptr;

use kernel::ffi::{c_int, c_void};

use uprobes_bindings as c;
use uprobes_core::arch::{Fault, UserMemory};

use crate::isa::Task;

fn user(addr: u64) -> *mut c_void {
    ptr::without_provenance_mut(addr as usize)
}

/// The answer of a C function that returns zero or an error.
#[inline]
pub(crate) fn done(ret: c_int) -> Result<(), Fault> {
    if ret == 0 {
        Ok(())
    } else {
        Err(Fault)
    }
}

impl UserMemory for Task {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: `buf` has the length given.
        let left =
            unsafe { c::uprobes_copy_from_user(buf.as_mut_ptr().cast(), user(addr), buf.len()) };
        done(c_int::from(left != 0))
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Fault> {
        // SAFETY: `buf` has the length given.
        let left = unsafe { c::uprobes_copy_to_user(user(addr), buf.as_ptr().cast(), buf.len()) };
        done(c_int::from(left != 0))
    }

    #[inline]
    fn read_u64(&mut self, addr: u64) -> Result<u64, Fault> {
        let mut value = 0;
        // SAFETY: `value` is ours.
        done(unsafe { c::uprobes_get_user_u64(&mut value, user(addr).cast()) })?;
        Ok(value)
    }

    #[inline]
    fn write_u64(&mut self, addr: u64, value: u64) -> Result<(), Fault> {
        // SAFETY: an FFI call without further requirements.
        done(unsafe { c::uprobes_put_user_u64(value, user(addr).cast()) })
    }

    #[inline]
    fn read_u32(&mut self, addr: u64) -> Result<u32, Fault> {
        let mut value = 0;
        // SAFETY: `value` is ours.
        done(unsafe { c::uprobes_get_user_u32(&mut value, user(addr).cast()) })?;
        Ok(value)
    }

    #[inline]
    fn write_u32(&mut self, addr: u64, value: u32) -> Result<(), Fault> {
        // SAFETY: an FFI call without further requirements.
        done(unsafe { c::uprobes_put_user_u32(value, user(addr).cast()) })
    }
}

/// Reads `buf.len()` bytes if they are there; never sleeps.
pub(crate) fn peek(addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `buf` has the length given.
    let failed = unsafe {
        c::uprobes_copy_from_user_inatomic(buf.as_mut_ptr().cast(), user(addr), buf.len())
    };
    done(c_int::from(failed != 0))
}
