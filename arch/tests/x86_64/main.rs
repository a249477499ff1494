// SPDX-License-Identifier: GPL-2.0

//! Tests of the x86_64 backend.
//!
//! - `iced`, `kernel`, `plain`: decoders for the backend, iced-x86, the kernel's own and a plain one;
//! - `generate`: instructions to test with;
//! - `model`, shared by all backends: a task to simulate on; `native`: the CPU to run on;
//! - `decoders`: the two decoders against each other;
//! - `generic`, shared by all backends: what holds for each of them;
//! - `properties`: what holds for every piece of code;
//! - `semantics`: what the CPU of the host cannot show;
//! - `vectors`: the table of verdicts;
//! - `cpu`: probed runs against bare ones on the CPU.
//!
//! `KERNEL_DIR` names a kernel tree to build the kernel's decoder from; without it, what needs it
//! is skipped. `UPROBES_CASES` is how many random cases a test draws.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod cpu;
mod decoders;
mod generate;
#[path = "../generic.rs"]
mod generic;
mod iced;
mod kernel;
#[path = "../model.rs"]
mod model;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod native;
mod plain;
mod properties;
mod semantics;
mod vectors;
