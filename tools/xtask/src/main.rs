// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask`: everything that one does with this repository, by one tool.
//!
//! Each command has a module of its own and runs the parts of the set-up that it
//! needs. What has been fetched and built lies in a cache outside the repository,
//! keyed by all that went into it, so every command can be interrupted and
//! repeated. Messages go to standard error; standard output carries results only.

#![expect(
    clippy::float_arithmetic,
    reason = "the lint is for the kernel, this runs on the host"
)]

mod apply;
mod apt;
mod arch;
mod bench;
mod cli;
mod ctx;
mod demo;
mod doctor;
mod guest;
mod host;
mod kconfig;
mod kernel;
mod ktap;
mod packages;
mod patches;
mod proc;
mod qemu;
mod rootfs;
mod run;
mod selftests;
mod setup;
mod source;
mod splat;
mod test;
mod toolchain;
mod ui;
mod util;
mod vendor;
mod versions;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            // One line, outermost context first; multi-line causes (a log's tail)
            // have been printed by whoever had them.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
