// SPDX-License-Identifier: GPL-2.0

//! Signals of faults that wait for the current task.

use core::ptr;

use kernel::bindings;

use uprobes_bindings as c;

/// A signal that tells of a fault at an address.
pub(crate) struct PendingFault<'l>(pub(crate) &'l mut bindings::kernel_siginfo);

impl PendingFault<'_> {
    /// Replaces the address if it is `from`.
    pub(crate) fn relocate(&mut self, from: u64, to: u64) {
        // SAFETY: the signal of a fault has an address.
        let address = unsafe { &mut *c::uprobes_fault_address(self.0) };
        if address.addr() as u64 == from {
            *address = ptr::without_provenance_mut(to as usize);
        }
    }
}

/// Calls `f` with the signals of faults that were sent to the current task itself.
///
/// # Context
///
/// Takes the lock of the signals' handlers, so `f` must not sleep.
pub(crate) fn pending_faults<R>(
    f: impl FnOnce(&mut dyn Iterator<Item = PendingFault<'_>>) -> R,
) -> R {
    // SAFETY: the current task has signal handlers, whose lock keeps the list as it is; its nodes
    // are the first members of `sigqueue`s (see `layout`). Each is lent once.
    unsafe {
        let task = c::uprobes_current();
        c::uprobes_lock_signals(task);
        let head = c::uprobes_pending_signals(task);
        let mut node = (*head).next;
        let nodes = core::iter::from_fn(|| {
            let this = node;
            if this == head {
                return None;
            }
            node = (*this).next;
            Some(&mut (*this.cast::<bindings::sigqueue>()).info)
        });
        let mut faults = nodes
            .filter(|info| c::uprobes_is_fault(&**info))
            .map(PendingFault);
        let result = f(&mut faults);
        c::uprobes_unlock_signals(task);
        result
    }
}
