// SPDX-License-Identifier: GPL-2.0

//! Builds the guest programs of `selftests/`.

use crate::{arch::Arch, ctx::Ctx, kernel, proc, rootfs, toolchain, ui::Unit, util};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Builds them and returns the directory that they are in.
///
/// The makefile gets: `ARCH`, `CROSS_COMPILE`, `OUT` (where to build), `KHDR` (installed
/// kernel headers, with `include/` below it), `NOLIBC` (of the kernel's source), `CLANG`
/// (of the kernel's version) and `ROOTFS` (the guest's root file system). The kernel's own
/// self-tests of ftrace are put beside the programs, as `ftrace/`.
pub(crate) fn build(ctx: &Ctx, arch: Arch) -> Result<PathBuf> {
    let (headers, tree) = kernel::headers(ctx, arch)?;
    let rootfs = rootfs::ensure(ctx, arch)?;
    let llvm = toolchain::rustc_llvm(ctx)?;
    let out = ctx.repo.join("target/selftests").join(arch.name());
    util::mkdir(&out)?;
    let step = ctx.ui.step("Building the guest programs", Unit::None);
    proc::cmd("make")
        .arg("-C")
        .arg(ctx.repo.join("selftests"))
        .arg("-j2")
        .arg(format!("ARCH={}", arch.name()))
        .arg(format!("CROSS_COMPILE={}", arch.cross()))
        .arg(format!("OUT={}", out.display()))
        .arg(format!("KHDR={}", headers.display()))
        .arg(format!(
            "NOLIBC={}",
            tree.join("tools/include/nolibc").display()
        ))
        .arg(format!("CLANG=clang-{llvm}"))
        .arg(format!("ROOTFS={}", rootfs.dir.display()))
        .logged(&ctx.cached("logs/selftests.log"), |_| {})
        .context("cannot build selftests/")?;
    proc::cmd("rsync")
        .args(["--archive", "--delete"])
        .arg(tree.join("tools/testing/selftests/ftrace"))
        .arg(&out)
        .run()
        .context("cannot copy the kernel's self-tests of ftrace")?;
    step.done("built");
    Ok(out)
}
