// SPDX-License-Identifier: GPL-2.0

//! `doctor`: what is missing on this machine, and the cure. It changes nothing.

use crate::{apt, arch::Arch, ctx::Ctx, packages, proc, toolchain};
use anyhow::Result;
use std::{
    path::Path,
    process::ExitCode, //
};

/// How bad it is.
enum Finding {
    Good(String),
    /// The commands will see to it themselves.
    Pending(String),
    /// Somebody has to do something.
    Bad(String),
}
use Finding::{Bad, Good, Pending};

/// Looks at everything and prints a line for each.
pub(crate) fn run(ctx: &Ctx) -> Result<ExitCode> {
    let mut findings = vec![
        ("cache", cache(ctx)),
        (
            "mirror",
            apt::mirror().map_or_else(|error| Bad(format!("{error:#}")), Good),
        ),
        ("cargo", version("cargo", "install Rust with rustup")),
        ("Miri", miri()),
    ];
    for arch in Arch::ALL {
        findings.push((arch.name(), host_packages(ctx, arch)));
    }
    findings.push(("rustc", rustc(ctx)));
    findings.push(("kernel", kernel(ctx)));
    findings.push((
        "vendor",
        exists(&ctx.repo.join("vendor"), "crates of the kernel"),
    ));
    findings.push(("rootfs", exists(&ctx.cached("rootfs"), "root file systems")));

    let mut bad = false;
    for (name, finding) in findings {
        let (mark, text) = match finding {
            Good(text) => ("ok     ", text),
            Pending(text) => ("pending", text),
            Bad(text) => {
                bad = true;
                ("MISSING", text)
            }
        };
        println!("{mark}  {name:8}  {text}");
    }
    Ok(if bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn cache(ctx: &Ctx) -> Finding {
    const NEEDED_GB: u64 = 15;
    let existing = ctx
        .cache
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    let free = proc::cmd("df")
        .args(["--output=avail", "-BG"])
        .arg(existing)
        .read();
    let free = free.ok().and_then(|text| {
        text.lines()
            .last()?
            .trim()
            .trim_end_matches('G')
            .parse::<u64>()
            .ok()
    });
    let text = ctx.cache.display().to_string();
    match free {
        Some(free) if free < NEEDED_GB => Bad(format!(
            "{text} has {free} GB free, {NEEDED_GB} are needed; make room or set XDG_CACHE_HOME"
        )),
        Some(free) => Good(format!("{text}, {free} GB free")),
        None => Good(text),
    }
}

fn version(program: &str, cure: &str) -> Finding {
    match proc::cmd(program).arg("--version").read() {
        Ok(text) => Good(text),
        Err(_) => Bad(format!("no {program}; {cure}")),
    }
}

fn miri() -> Finding {
    if proc::cmd("cargo")
        .args(["+nightly", "miri", "--version"])
        .succeeds()
    {
        Good("in the nightly toolchain".to_owned())
    } else if proc::cmd("rustup").arg("--version").succeeds() {
        Pending("`cargo xtask test` installs it".to_owned())
    } else {
        Pending("skipped in tests: there is no rustup to install it with".to_owned())
    }
}

fn host_packages(ctx: &Ctx, arch: Arch) -> Finding {
    match packages::missing(ctx, &[arch]) {
        Ok(missing) if missing.is_empty() => Good("all Debian packages are installed".to_owned()),
        Ok(missing) if ctx.is_root() || arch != Arch::X86_64 => Pending(format!(
            "packages to be installed by `cargo xtask setup --arch {}`: {}",
            arch.name(),
            missing.join(" ")
        )),
        Ok(missing) => Bad(format!(
            "packages; as root, run: apt-get install -y --no-install-recommends {}",
            missing.join(" ")
        )),
        Err(error) if ctx.is_root() => {
            Pending(format!("`cargo xtask setup` installs packages ({error:#})"))
        }
        Err(error) => Bad(format!("{error:#}")),
    }
}

fn rustc(ctx: &Ctx) -> Finding {
    let path = ctx.versions.toolchain.rustc.display();
    match toolchain::rustc_llvm(ctx) {
        Ok(major) => match proc::cmd(format!("clang-{major}")).arg("--version").read() {
            Ok(_) => Good(format!("{path} and clang-{major} share LLVM {major}")),
            Err(_) => Pending(format!("`cargo xtask setup` installs clang-{major}")),
        },
        Err(_) => Pending(format!("`cargo xtask setup` installs {path}")),
    }
}

fn kernel(ctx: &Ctx) -> Finding {
    if let Some(dir) = &ctx.kernel {
        return match crate::source::check_version(dir, &ctx.versions.kernel.version) {
            Ok(()) => Good(format!("{} will be mirrored", dir.display())),
            Err(error) => Bad(format!("{error:#}")),
        };
    }
    exists(&ctx.cached("src"), "kernel source")
}

fn exists(path: &Path, what: &str) -> Finding {
    if path.exists() {
        Good(format!("{what} in {}", path.display()))
    } else {
        Pending(format!("`cargo xtask setup` fetches the {what}"))
    }
}
