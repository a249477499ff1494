// SPDX-License-Identifier: GPL-2.0

//! Tests of the arm64 backend.
//!
//! - `generic`, shared by all backends: what holds for each of them;
//! - `model`, shared by all backends: a task to simulate on;
//! - `llvm`: LLVM's disassembler;
//! - `decoder`: the decoder against it;
//! - `cpu`: what instructions do, written down once more and more plainly;
//! - `semantics`: what is done to registers, memory and the guarded control stack;
//! - `returns`: return probes;
//! - `suite`: the table of verdicts, and the generic suite.
//!
//! `LLVM_OBJDUMP` names LLVM's `llvm-objdump`, `AARCH64_LIBC` a C library to read the text of; by
//! default they are looked for where distributions have them. `UPROBES_CASES` is how many random
//! cases a test draws, `UPROBES_SEED` repeats them.

mod cpu;
#[cfg(not(miri))]
mod decoder;
#[path = "../generic.rs"]
mod generic;
#[cfg(not(miri))]
mod llvm;
#[path = "../model.rs"]
mod model;
mod returns;
mod semantics;
mod suite;
