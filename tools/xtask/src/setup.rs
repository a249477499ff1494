// SPDX-License-Identifier: GPL-2.0

//! `setup`: everything that the other commands need, so that they can work offline.

use crate::{cli::SetupArgs, ctx::Ctx, packages, rootfs, source, toolchain, vendor};
use anyhow::Result;
use clap::ValueEnum;
use std::process::ExitCode;

/// A part of the set-up.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Debian packages of the host.
    Packages,
    /// The binding generator.
    Bindgen,
    /// Crates of the host tests and of the kernel.
    Vendor,
    /// Kernel source.
    Source,
    /// Root file systems of the guests.
    Rootfs,
}

/// Runs the parts in the order in which they need each other.
pub(crate) fn run(ctx: &Ctx, args: &SetupArgs) -> Result<ExitCode> {
    let wanted = |part| args.only.is_none_or(|only| only == part);
    if wanted(Part::Packages) {
        packages::ensure(ctx, &args.arch)?;
    }
    if wanted(Part::Bindgen) {
        toolchain::ensure(ctx)?;
    }
    if wanted(Part::Vendor) {
        vendor::ensure(ctx)?;
    }
    if wanted(Part::Source) {
        source::prepare(ctx)?;
    }
    if wanted(Part::Rootfs) {
        for arch in &args.arch {
            rootfs::ensure(ctx, *arch)?;
        }
    }
    ctx.ui.note("ready");
    Ok(ExitCode::SUCCESS)
}
