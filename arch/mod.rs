// SPDX-License-Identifier: GPL-2.0

//! What each instruction set needs: one folder an ISA, one trait ([`uprobes_core::arch::Arch`]).
//!
//! Every backend is built and tested on every host. The kernel picks its own through `Native`,
//! the only place that asks for which ISA the kernel is built.

#![cfg_attr(not(any(test, CONFIG_RUST)), no_std)]
#![forbid(unsafe_code)]

pub mod arm64;
pub mod riscv;
pub mod vectors;
pub mod x86_64;

/// The instruction set of the kernel that is built.
#[cfg(CONFIG_ARM64)]
pub type Native = arm64::Arm64;
/// The instruction set of the kernel that is built.
#[cfg(CONFIG_RISCV)]
pub type Native = riscv::Riscv64;
/// The instruction set of the kernel that is built; `D` is its instruction decoder.
#[cfg(CONFIG_X86_64)]
pub type Native<D> = x86_64::X86_64<D>;
