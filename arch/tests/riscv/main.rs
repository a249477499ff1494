// SPDX-License-Identifier: GPL-2.0

//! Tests of the riscv64 backend.
//!
//! - `generic`, `model`, shared by all backends: tests, and a task to simulate on;
//! - `llvm`: LLVM's disassembler, and what the analysis must make of its text;
//! - `disassembler`: the decoder against it, on random code and on a C library;
//! - `properties`: what holds for every piece of code;
//! - `semantics`: what simulated and stepped instructions do, return probes;
//! - `vectors`: the table of verdicts, and the tests that all backends share.
//!
//! Without LLVM's tools in `PATH`, what needs them is skipped; `LLVM` may give the end of their
//! names, as to the kernel's `make` (`-22`). `RISCV_LIBC` names a C library other than the cross
//! compiler's. `UPROBES_CASES` is how many random cases a test draws.

mod disassembler;
#[path = "../generic.rs"]
mod generic;
mod llvm;
#[path = "../model.rs"]
mod model;
mod properties;
mod semantics;
mod vectors;
