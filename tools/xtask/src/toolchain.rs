// SPDX-License-Identifier: GPL-2.0

//! The compilers of the kernel: the distribution's rustc, the clang that shares its LLVM,
//! and bindgen.

use crate::{ctx::Ctx, proc, ui::Unit, util};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Found compilers.
pub(crate) struct Toolchain {
    /// Major version of LLVM, the suffix of clang and its tools.
    pub(crate) llvm: u32,
    rustc: PathBuf,
    bindgen: PathBuf,
    /// Changes whenever one of them does.
    pub(crate) id: String,
}

impl Toolchain {
    /// Finds the compilers, and builds bindgen if it is not there yet.
    pub(crate) fn find(ctx: &Ctx) -> Result<Self> {
        let rustc = ctx.versions.toolchain.rustc.clone();
        let llvm = rustc_llvm(ctx)?;
        let bindgen = bindgen(ctx)?;
        let id = util::Key::default()
            .add(proc::cmd(&rustc).arg("-vV").read()?)
            .add(proc::cmd(format!("clang-{llvm}")).arg("--version").read()?)
            .add(proc::cmd(&bindgen).arg("--version").read()?)
            .finish();
        Ok(Self {
            llvm,
            rustc,
            bindgen,
            id,
        })
    }

    /// `make` with the variables that select these compilers.
    pub(crate) fn make(&self) -> proc::Cmd {
        proc::tied("make")
            .arg(format!("LLVM=-{}", self.llvm))
            .arg(format!("RUSTC={}", self.rustc.display()))
            .arg(format!("BINDGEN={}", self.bindgen.display()))
            .env("LIBCLANG_PATH", format!("/usr/lib/llvm-{}/lib", self.llvm))
            // Images shall not tell where they were built.
            .env("KBUILD_BUILD_USER", "uprobes-rs")
            .env("KBUILD_BUILD_HOST", "xtask")
    }
}

/// The major version of the LLVM in the kernel's rustc.
pub(crate) fn rustc_llvm(ctx: &Ctx) -> Result<u32> {
    let rustc = &ctx.versions.toolchain.rustc;
    let text = proc::cmd(rustc)
        .arg("-vV")
        .read()
        .with_context(|| format!("no compiler {}; run `cargo xtask setup`", rustc.display()))?;
    llvm_of(&text).with_context(|| format!("{} -vV names no LLVM version", rustc.display()))
}

fn llvm_of(verbose_version: &str) -> Option<u32> {
    verbose_version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// The same for the one that the distribution would install, from its dependencies.
pub(crate) fn packaged_llvm(ctx: &Ctx) -> Result<u32> {
    let package = &ctx.versions.toolchain.rustc_package;
    proc::cmd("apt-cache")
        .args(["depends", "--recurse", "--important", package])
        .read()
        .ok()
        .and_then(|list| llvm_among(&list))
        .with_context(|| format!("apt knows no package {package}; run `apt-get update` as root"))
}

/// The newest `libllvmN` in a list of packages: an older rustc may be listed besides.
fn llvm_among(list: &str) -> Option<u32> {
    list.split_whitespace()
        .filter_map(|word| word.strip_prefix("libllvm")?.parse().ok())
        .max()
}

/// The pinned bindgen: one on the machine if it is that version, else our own build.
fn bindgen(ctx: &Ctx) -> Result<PathBuf> {
    let pinned = &ctx.versions.bindgen;
    let is_pinned = |path: &PathBuf| {
        let version = proc::cmd(path).arg("--version").read();
        version.is_ok_and(|text| text == format!("bindgen {}", pinned.version))
    };
    let root = ctx.cached(format!("tools/bindgen-{}", pinned.version));
    let ours = root.join("bin/bindgen");
    if is_pinned(&ours) {
        return Ok(ours);
    }
    let machines = PathBuf::from("bindgen");
    if is_pinned(&machines) {
        return Ok(machines);
    }

    let _lock = ctx.lock("bindgen")?;
    if is_pinned(&ours) {
        return Ok(ours);
    }
    util::mkdir(&ctx.cached("logs"))?;
    let text = format!("Building bindgen {}", pinned.version);
    let step = ctx.ui.step(&text, Unit::Steps(None));
    let mut done = 0;
    proc::tied("cargo")
        .args([
            "install",
            "--locked",
            "--version",
            &pinned.version,
            &pinned.package,
            "--root",
        ])
        .arg(&root)
        // What has been compiled before an interruption is of use after it.
        .env("CARGO_TARGET_DIR", ctx.cached("tools/bindgen-target"))
        .logged(&ctx.cached("logs/bindgen.log"), |line| {
            if line.trim_start().starts_with("Compiling ") {
                done += 1;
                step.set(done);
            }
        })
        .context("cannot build bindgen")?;
    util::remove(&ctx.cached("tools/bindgen-target"))?;
    step.done("built");
    Ok(ours)
}

/// Makes sure that bindgen is there.
pub(crate) fn ensure(ctx: &Ctx) -> Result<()> {
    bindgen(ctx).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_version_of_rustc() {
        assert_eq!(
            llvm_of("rustc 1.96.0\nrelease: 1.96.0\nLLVM version: 22.1.8\n"),
            Some(22)
        );
        assert_eq!(llvm_of("rustc 1.96.0\n"), None);
    }

    #[test]
    fn llvm_version_of_package() {
        let list = "rustc-web\n  Depends: libllvm19\n  Depends: libllvm22\nlibllvm-polly\n";
        assert_eq!(llvm_among(list), Some(22));
        assert_eq!(llvm_among("rustc-web\n  Depends: libc6\n"), None);
    }
}
