// SPDX-License-Identifier: GPL-2.0

//! What only the kernel can do for an instruction set. The one place that asks which it is.

#[cfg(CONFIG_ARM64)]
#[path = "arm64.rs"]
mod native;

#[cfg(CONFIG_RISCV)]
#[path = "riscv.rs"]
mod native;

#[cfg(CONFIG_X86_64)]
#[path = "x86_64.rs"]
mod native;

#[cfg(CONFIG_UPROBES_RUST_KUNIT_TEST)]
pub(crate) use self::native::VECTORS;
pub(crate) use self::native::{
    are_system_calls_watched, bitness_of_mm, code_written, init, send_breakpoint_trap,
    send_step_trap, serialize, system_call, unmapped_area_near_top, xol_flags, Isa, Task,
};
