// SPDX-License-Identifier: GPL-2.0

//! What only the kernel can do for an instruction set. The one place that asks which it is.

#[cfg(CONFIG_X86_64)]
mod x86_64;

#[cfg(CONFIG_X86_64)]
pub(crate) use self::x86_64::{
    bitness_of_mm, init, send_step_trap, system_call, unmapped_area_near_top, Isa, Task,
};
