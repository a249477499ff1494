// SPDX-License-Identifier: GPL-2.0

//! The crates that are built into the kernel, as `vendor/` of the repository.
//!
//! Only these are copied, not all that the host tests use: Kbuild compiles them from there
//! by rules of its own.

use crate::{ctx::Ctx, proc, ui::Unit, util};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

/// Makes `vendor/` hold the crates in the versions of Cargo.lock; returns a key of these.
pub(crate) fn ensure(ctx: &Ctx) -> Result<String> {
    let metadata = metadata(ctx)?;
    let mut crates = Vec::new();
    let mut key = util::Key::default();
    for name in &ctx.versions.vendor.crates {
        let package = metadata
            .packages
            .iter()
            .find(|package| package.name == *name)
            .with_context(|| format!("Cargo.lock has no {name}; it is built into the kernel"))?;
        key.update(name);
        key.update(&package.version);
        crates.push(package);
    }
    let key = key.finish();
    let dir = ctx.cached("vendor").join(&key);
    if !dir.exists() {
        let _lock = ctx.lock("vendored crates")?;
        let partial = util::sibling(&dir, "partial");
        util::remove(&partial)?;
        for package in crates {
            let from = package
                .manifest_path
                .parent()
                .context("a manifest has a directory")?;
            util::copy_tree(from, &partial.join(&package.name))?;
        }
        if !dir.exists() {
            util::publish(&partial, &dir)?;
        }
    }
    util::link(&dir, &ctx.repo.join("vendor"))?;
    Ok(key)
}

/// Asks cargo where the dependencies are; it fetches those that it lacks.
fn metadata(ctx: &Ctx) -> Result<Metadata> {
    let cargo = |how: &str| {
        proc::cmd("cargo")
            .args(["metadata", "--format-version=1", "--locked", how])
            .dir(&ctx.repo)
            .read()
    };
    let text = match cargo("--offline") {
        Ok(text) => text,
        Err(_) => {
            let _step = ctx.ui.step("Fetching crates", Unit::None);
            cargo("--quiet").context("cannot fetch the crates of Cargo.lock")?
        }
    };
    serde_json::from_str(&text).context("cargo's metadata is malformed")
}
