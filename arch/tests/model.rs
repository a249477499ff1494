// SPDX-License-Identifier: GPL-2.0

//! A task to simulate instructions on: memory, shadow stack, number of the last fault, single-step.

use uprobes_core::arch::{Fault, UserMemory, UserTask};

/// Memory at one range of addresses; all else faults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    /// First address.
    pub(crate) base: u64,
    /// Contents.
    pub(crate) memory: Vec<u8>,
    /// Addresses on the shadow stack, topmost last; [`None`] where it is off.
    pub(crate) shadow: Option<Vec<u64>>,
    /// Where the shadow stack has no room left.
    pub(crate) shadow_limit: usize,
    /// See [`UserTask::fault_code`].
    pub(crate) fault_code: u64,
    /// Whether block stepping is on.
    pub(crate) block_step: bool,
    /// See [`UserTask::is_single_stepped`].
    pub(crate) stepped: bool,
    /// See [`UserTask::has_pending_fault`].
    pub(crate) pending_fault: bool,
    /// See [`UserTask::has_pending_trap`].
    pub(crate) pending_trap: bool,
    /// See [`UserTask::requires_landing_pads`]; [`None`] where the CPU knows none.
    pub(crate) landing_pads: Option<bool>,
    /// See [`UserTask::address_bits`].
    pub(crate) address_bits: u32,
}

impl Model {
    pub(crate) fn new(base: u64, memory: Vec<u8>) -> Model {
        Model {
            base,
            memory,
            shadow: None,
            shadow_limit: usize::MAX,
            fault_code: 0,
            block_step: false,
            stepped: false,
            pending_fault: false,
            pending_trap: false,
            landing_pads: None,
            address_bits: 64,
        }
    }

    fn range(&self, addr: u64, len: usize) -> Result<std::ops::Range<usize>, Fault> {
        let start = addr.checked_sub(self.base).ok_or(Fault)?;
        let start = usize::try_from(start).map_err(|_| Fault)?;
        let end = start.checked_add(len).ok_or(Fault)?;
        (end <= self.memory.len())
            .then_some(start..end)
            .ok_or(Fault)
    }
}

impl UserMemory for Model {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let range = self.range(addr, buf.len())?;
        buf.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Fault> {
        let range = self.range(addr, buf.len())?;
        self.memory[range].copy_from_slice(buf);
        Ok(())
    }
}

impl UserTask for Model {
    fn shadow_stack_enabled(&self) -> bool {
        self.shadow.is_some()
    }

    fn shadow_push(&mut self, addr: u64) -> Result<(), Fault> {
        if let Some(shadow) = &mut self.shadow {
            if shadow.len() >= self.shadow_limit {
                return Err(Fault);
            }
            shadow.push(addr);
        }
        Ok(())
    }

    fn shadow_pop(&mut self) -> Result<Option<u64>, Fault> {
        match &mut self.shadow {
            None => Ok(None),
            Some(shadow) => shadow.pop().map(Some).ok_or(Fault),
        }
    }

    fn shadow_replace_top(&mut self, addr: u64) -> Result<(), Fault> {
        if let Some(shadow) = &mut self.shadow {
            *shadow.last_mut().ok_or(Fault)? = addr;
        }
        Ok(())
    }

    fn fault_code(&self) -> u64 {
        self.fault_code
    }

    fn set_fault_code(&mut self, code: u64) {
        self.fault_code = code;
    }

    fn suspend_block_step(&mut self) {
        self.block_step = false;
    }

    fn is_single_stepped(&self) -> bool {
        self.stepped
    }

    fn has_pending_fault(&self) -> bool {
        self.pending_fault
    }

    fn has_pending_trap(&self) -> bool {
        self.pending_trap
    }

    fn set_single_step(&mut self, on: bool) {
        self.stepped = on;
    }

    fn knows_landing_pads(&self) -> bool {
        self.landing_pads.is_some()
    }

    fn requires_landing_pads(&mut self, _: u64) -> bool {
        self.landing_pads == Some(true)
    }

    fn address_bits(&self) -> u32 {
        self.address_bits
    }
}
