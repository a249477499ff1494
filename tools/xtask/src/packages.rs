// SPDX-License-Identifier: GPL-2.0

//! Debian packages of the host.

use crate::{arch::Arch, ctx::Ctx, proc, toolchain, ui::Unit, util};
use anyhow::{bail, Context, Result};

/// The packages for `archs` that are not installed.
pub(crate) fn missing(ctx: &Ctx, archs: &[Arch]) -> Result<Vec<String>> {
    let llvm = match toolchain::rustc_llvm(ctx) {
        Ok(major) => major,
        // Not there yet: what the one to be installed will have.
        Err(_) => toolchain::packaged_llvm(ctx)?,
    };
    let wanted = ctx.versions.packages(archs, llvm);
    // dpkg-query fails where it does not know a name, and prints the rest all the same.
    let list = proc::cmd("sh")
        .args([
            "-c",
            "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' \"$@\" 2>&1; :",
            "sh",
        ])
        .args(&wanted)
        .read()?;
    let installed: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        .collect();
    Ok(wanted
        .into_iter()
        .filter(|name| !installed.contains(&name.as_str()))
        .collect())
}

/// Installs what is missing; without the right to, tells the one command that does.
pub(crate) fn ensure(ctx: &Ctx, archs: &[Arch]) -> Result<()> {
    let missing = match missing(ctx, archs) {
        Ok(missing) if missing.is_empty() => return Ok(()),
        Ok(missing) => Some(missing),
        // A fresh machine may have no package lists at all.
        Err(error) if !ctx.is_root() => return Err(error),
        Err(_) => None,
    };
    if !ctx.is_root() {
        bail!(
            "packages are missing; as root, run: apt-get update && apt-get install -y \
             --no-install-recommends {}",
            missing.unwrap_or_default().join(" ")
        );
    }

    let _lock = ctx.lock("package manager")?;
    util::mkdir(&ctx.cached("logs"))?;
    let step = ctx.ui.step("Debian's package lists", Unit::None);
    apt_get()
        .arg("update")
        .logged(&ctx.cached("logs/apt-update.log"), |_| {})?;
    drop(step);
    let missing = self::missing(ctx, archs)?;
    if missing.is_empty() {
        return Ok(());
    }
    let step = ctx.ui.step(
        &format!("Installing {} Debian packages", missing.len()),
        Unit::Steps(None),
    );
    let mut done = 0;
    apt_get()
        .args(["install", "-y", "--no-install-recommends"])
        .args(&missing)
        .logged(&ctx.cached("logs/apt-install.log"), |line| {
            if ["Get:", "Unpacking ", "Setting up "]
                .iter()
                .any(|s| line.starts_with(s))
            {
                done += 1;
                step.set(done);
            }
        })
        .context("cannot install the Debian packages")?;
    step.done("installed");
    Ok(())
}

fn apt_get() -> proc::Cmd {
    proc::cmd("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-oDPkg::Lock::Timeout=600"])
}
