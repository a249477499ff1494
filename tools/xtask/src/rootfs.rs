// SPDX-License-Identifier: GPL-2.0

//! The guest's root file system: a directory with real perf, bpftrace and busybox, which
//! the guest mounts read-only.

use crate::{apt, arch::Arch, ctx::Ctx, proc, ui::Unit, util};
use anyhow::{ensure, Context, Result};
use std::{
    fs,
    os::unix::fs::{symlink, PermissionsExt},
    path::{Path, PathBuf}, //
};

/// The guest's first program; see there for what it expects.
const INIT: &str = include_str!("../guest/init.sh");

/// A root file system, and the first program in it.
pub(crate) struct Rootfs {
    pub(crate) dir: PathBuf,
    pub(crate) init: String,
}

/// Makes the root file system of `arch` if need be.
pub(crate) fn ensure(ctx: &Ctx, arch: Arch) -> Result<Rootfs> {
    let pinned = &ctx.versions.rootfs;
    let key = util::Key::default()
        .add(&pinned.suite)
        .add(pinned.include.join(","))
        // Bump when `create` makes something else of the same packages.
        .add("1")
        .finish();
    let dir = ctx.cached("rootfs").join(format!("{}-{key}", arch.name()));
    if !dir.exists() {
        let _lock = ctx.lock("root file system")?;
        if !dir.exists() {
            create(ctx, arch, &dir)?;
        }
    }

    // Named by its content, so that guests of another version of this tool keep theirs.
    let init = format!(
        "usr/lib/uprobes-rs/init-{}",
        util::Key::default().add(INIT).finish()
    );
    let path = dir.join(&init);
    if !path.exists() {
        let temporary = util::sibling(&path, &std::process::id().to_string());
        util::write(&temporary, INIT)?;
        make_executable(&temporary)?;
        util::publish(&temporary, &path)?;
    }
    Ok(Rootfs {
        dir,
        init: format!("/{init}"),
    })
}

fn create(ctx: &Ctx, arch: Arch, dir: &Path) -> Result<()> {
    let pinned = &ctx.versions.rootfs;
    let partial = util::sibling(dir, "partial");
    util::remove(&partial)?;
    util::mkdir(&partial)?;
    util::mkdir(&ctx.cached("logs"))?;
    let text = format!("Root file system for {}", arch.name());
    let step = ctx.ui.step(&text, Unit::None);
    proc::cmd("mmdebstrap")
        .arg(format!("--architectures={}", arch.debian()))
        // Unpacks only, so that no program of a foreign architecture has to run.
        .arg("--variant=extract")
        .arg(format!("--include={}", pinned.include.join(",")))
        .arg(&pinned.suite)
        .arg(&partial)
        .arg(apt::mirror()?)
        .logged(
            &ctx.cached(format!("logs/rootfs-{}.log", arch.name())),
            |_| {},
        )
        .context("cannot make the root file system")?;

    // What the maintainer scripts, which did not run, would have set up.
    for name in ["bin", "sbin", "lib", "lib64"] {
        let (link, target) = (partial.join(name), format!("usr/{name}"));
        util::mkdir(&partial.join(&target))?;
        if fs::symlink_metadata(&link).is_err() {
            symlink(&target, &link).with_context(|| format!("cannot link {name}"))?;
        }
    }
    let shell = partial.join("usr/bin/sh");
    if fs::symlink_metadata(&shell).is_err() {
        symlink("busybox", &shell).context("cannot link sh")?;
    }
    for name in [
        "dev",
        "proc",
        "sys",
        "run",
        "tmp",
        "root",
        "var/tmp",
        "mnt/share",
    ] {
        util::mkdir(&partial.join(name))?;
    }
    util::write(
        &partial.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\n",
    )?;
    util::write(&partial.join("etc/group"), "root:x:0:\n")?;
    // Without the cache, tools would need the full path of each library. Needs root.
    if !proc::cmd("/sbin/ldconfig")
        .arg("-r")
        .arg(&partial)
        .succeeds()
    {
        ctx.ui
            .note("no ld.so.cache in the guest: name libraries there by their full path");
    }
    ensure!(
        partial.join("usr/bin/busybox").exists() && partial.join("usr/bin/bpftrace").exists(),
        "the root file system lacks busybox or bpftrace; see tools/versions.toml"
    );
    util::publish(&partial, dir)?;
    step.done("made");
    Ok(())
}

fn make_executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", path.display()))
}
