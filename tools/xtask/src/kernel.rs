// SPDX-License-Identifier: GPL-2.0

//! Building kernel images.
//!
//! A build tree belongs to one kernel tree, architecture, implementation and profile. It is
//! thrown away when the compilers change and configured anew when the fragments do; for all
//! else make knows what to rebuild. After a success a fingerprint of everything that went in
//! is noted, so that commands which only need the image do not have to ask make.

use crate::{
    arch::Arch,
    ctx::Ctx,
    kconfig::Fragment,
    packages,
    proc,
    source::{self, Tree},
    toolchain::Toolchain,
    ui::Unit,
    util,
    vendor, //
};
use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use std::{
    fmt,
    fs,
    path::{Path, PathBuf},
    thread, //
};

/// Who implements uprobes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Impl {
    /// This repository.
    Rust,
    /// `kernel/events/uprobes.c`.
    C,
}

impl Impl {
    /// The name in arguments and paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
        }
    }
}

/// How much the kernel checks itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Profile {
    /// As fast as can be.
    Release,
    /// KASAN, lockdep, kmemleak, fault injection and more.
    Debug,
}

impl Profile {
    /// The name in arguments and paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Debug => "debug",
        }
    }
}

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Variant {
    pub(crate) arch: Arch,
    pub(crate) implementation: Impl,
    pub(crate) profile: Profile,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            arch,
            implementation,
            profile,
        } = self;
        write!(
            f,
            "{}-{}-{}",
            arch.name(),
            implementation.name(),
            profile.name()
        )
    }
}

/// Whether make is asked even if nothing seems to have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The fingerprint is enough.
    Fingerprint,
    /// Ask make.
    Make,
}

/// Parts of the repository that Kbuild reads.
pub(crate) const KERNEL_PARTS: [&str; 5] = ["Kbuild", "Kconfig", "core", "arch", "ffi"];

/// A good guess for the steps of a first build, until one has been counted.
const COLD_STEPS: u64 = 1650;

/// Builds the image of `variant` if need be, and returns its path.
pub(crate) fn ensure(ctx: &Ctx, variant: Variant, freshness: Freshness) -> Result<PathBuf> {
    packages::ensure(ctx, &[variant.arch])?;
    let toolchain = Toolchain::find(ctx)?;
    let vendored = vendor::ensure(ctx)?;
    let tree = source::prepare(ctx)?;
    let _lock = ctx.lock(&format!("build tree {}-{variant}", tree.label))?;
    let build = Build {
        ctx,
        variant,
        dir: ctx
            .cached("build")
            .join(&tree.label)
            .join(variant.to_string()),
        toolchain: &toolchain,
        tree: &tree,
    };
    let fragment = Fragment::load(&ctx.repo.join("tools/configs"), variant)?;
    let (_, image) = variant.arch.image();
    let image = build.dir.join(image);

    let fingerprint = build.fingerprint(&fragment, &vendored)?;
    let noted = build.dir.join("xtask.fingerprint");
    let is_fresh = image.exists() && fs::read_to_string(&noted).is_ok_and(|old| old == fingerprint);
    if is_fresh && freshness == Freshness::Fingerprint {
        return Ok(image);
    }
    util::remove(&noted)?;
    build.discard_if_other_toolchain()?;
    build.configure(&fragment)?;
    build.make()?;
    ensure!(
        image.exists(),
        "the build left no image at {}",
        image.display()
    );
    util::write(&noted, fingerprint)?;
    Ok(image)
}

/// Installs the kernel's user-space headers for `arch`, and returns their directory along
/// with that of the tree.
pub(crate) fn headers(ctx: &Ctx, arch: Arch) -> Result<(PathBuf, PathBuf)> {
    packages::ensure(ctx, &[arch])?;
    let toolchain = Toolchain::find(ctx)?;
    let tree = source::prepare(ctx)?;
    let dir = ctx
        .cached("build")
        .join(&tree.label)
        .join(format!("{}-headers", arch.name()));
    let noted = dir.join("xtask.id");
    if !fs::read_to_string(&noted).is_ok_and(|id| id == tree.id) {
        util::mkdir(&dir)?;
        let step = ctx.ui.step("Installing the kernel's headers", Unit::None);
        toolchain
            .make()
            .arg("-C")
            .arg(&tree.path)
            .arg(format!("O={}", dir.display()))
            .arg(format!("ARCH={}", arch.kbuild()))
            .arg("headers_install")
            .logged(&dir.join("xtask.log"), |_| {})?;
        util::write(&noted, &tree.id)?;
        step.done("installed");
    }
    Ok((dir.join("usr"), tree.path.clone()))
}

struct Build<'a> {
    ctx: &'a Ctx,
    variant: Variant,
    dir: PathBuf,
    toolchain: &'a Toolchain,
    tree: &'a Tree,
}

impl Build<'_> {
    fn fingerprint(&self, fragment: &Fragment, vendored: &str) -> Result<String> {
        let mut key = util::Key::default()
            .add(&self.tree.id)
            .add(&self.toolchain.id)
            .add(fragment.text());
        match self.variant.implementation {
            Impl::Rust => {
                key.update(vendored);
                for part in KERNEL_PARTS {
                    key.add_files(&self.ctx.repo.join(part))?;
                }
            }
            // Of the repository, it sees the choice only.
            Impl::C => key.add_files(&self.ctx.repo.join("Kconfig"))?,
        }
        Ok(key.finish())
    }

    fn make_cmd(&self) -> proc::Cmd {
        self.toolchain
            .make()
            .arg("-C")
            .arg(&self.tree.path)
            .arg(format!("O={}", self.dir.display()))
            .arg(format!("ARCH={}", self.variant.arch.kbuild()))
    }

    /// Kbuild notices other command lines, but not another compiler behind the same name.
    fn discard_if_other_toolchain(&self) -> Result<()> {
        let noted = self.dir.join("xtask.toolchain");
        if !fs::read_to_string(&noted).is_ok_and(|id| id == self.toolchain.id) {
            util::remove(&self.dir)?;
            util::write(&noted, &self.toolchain.id)?;
        }
        Ok(())
    }

    /// Makes `.config` from the fragments, unless they are what it was made from. What the
    /// Kconfig files say may have changed as well, which the tree's key and ours tell.
    fn configure(&self, fragment: &Fragment) -> Result<()> {
        let mut key = util::Key::default().add(&self.tree.id).add(fragment.text());
        key.add_files(&self.ctx.repo.join("Kconfig"))?;
        let key = key.finish();
        let noted = self.dir.join("xtask.config");
        let config = self.dir.join(".config");
        if config.exists() && fs::read_to_string(&noted).is_ok_and(|old| old == key) {
            return Ok(());
        }
        util::remove(&noted)?;
        let path = self.dir.join("xtask.fragment");
        util::write(&path, fragment.text())?;
        self.make_cmd()
            .env("KCONFIG_ALLCONFIG", &path)
            .arg("allnoconfig")
            .logged(&self.dir.join("xtask-config.log"), |_| {})
            .context("cannot configure the kernel")?;
        fragment.verify(&util::read(&config)?)?;
        util::write(&noted, key)
    }

    fn make(&self) -> Result<()> {
        let counted = self.dir.join("xtask.steps");
        let cold = !self.dir.join("vmlinux").exists();
        let total = cold.then(|| {
            let before = fs::read_to_string(&counted).ok();
            before
                .and_then(|text| text.parse().ok())
                .unwrap_or(COLD_STEPS)
        });
        let step = self.ctx.ui.step(
            &format!("Building kernel {}", self.variant),
            Unit::Steps(total),
        );
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let (target, _) = self.variant.arch.image();
        let log = self.dir.join("xtask-build.log");
        let mut done = 0;
        let result = self
            .make_cmd()
            .arg(format!("-j{jobs}"))
            .arg(target)
            .logged(&log, |line| {
                if is_step(line) {
                    done += 1;
                    step.set(done);
                }
            });
        result.with_context(|| format!("cannot build kernel {}", self.variant))?;
        if cold && done > COLD_STEPS / 2 {
            util::write(&counted, done.to_string())?;
        }
        step.done(&format!("{done} steps"));
        warn_about_warnings(self.ctx, &log)
    }
}

/// Whether a line of make's output announces a command: `  CC      kernel/fork.o`.
fn is_step(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("  ") else {
        return false;
    };
    let word = rest.split(' ').next().unwrap_or_default();
    word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase()) && rest.contains(' ')
}

/// Passes on what compilers and objtool had to complain about.
fn warn_about_warnings(ctx: &Ctx, log: &Path) -> Result<()> {
    let text = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    for line in String::from_utf8_lossy(&text).lines() {
        if line.contains("warning:") {
            ctx.ui.note(line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_make() {
        assert!(is_step("  CC      kernel/fork.o"));
        assert!(is_step("  RUSTC L rust/core.o"));
        assert!(is_step("  AS      arch/x86/entry/entry.o"));
        assert!(!is_step("make[1]: Entering directory"));
        assert!(!is_step("  note: `foo` is not used"));
        assert!(!is_step("   CC x"));
    }
}
