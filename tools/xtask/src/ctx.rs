// SPDX-License-Identifier: GPL-2.0

//! What every command starts from: repository, cache, pinned versions, messages.

use crate::{proc, ui::Ui, util, versions::Versions};
use anyhow::{bail, Context, Result};
use std::{
    env,
    fs::File,
    path::{Path, PathBuf}, //
};

/// See the module.
pub(crate) struct Ctx {
    /// Root of this repository.
    pub(crate) repo: PathBuf,
    /// Everything that can be fetched or built again.
    pub(crate) cache: PathBuf,
    pub(crate) versions: Versions,
    /// A kernel tree to use instead of the packaged one.
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) ui: Ui,
}

impl Ctx {
    /// Finds the repository and the cache.
    pub(crate) fn new(kernel: Option<PathBuf>) -> Result<Self> {
        let repo = repo()?;
        let kernel = kernel
            .filter(|dir| !dir.as_os_str().is_empty())
            .map(|dir| {
                dir.canonicalize()
                    .with_context(|| format!("there is no kernel tree at {}", dir.display()))
            })
            .transpose()?;
        Ok(Self {
            versions: Versions::load(&repo)?,
            cache: cache()?,
            repo,
            kernel,
            ui: Ui::default(),
        })
    }

    /// A path below the cache.
    pub(crate) fn cached(&self, path: impl AsRef<Path>) -> PathBuf {
        self.cache.join(path)
    }

    /// Takes the lock `name`, waiting for another process that has it; held until dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let file = self.lock_file(name)?;
        if file.try_lock().is_err() {
            self.waiting(name);
            file.lock()
                .with_context(|| format!("cannot lock the {name}"))?;
        }
        Ok(file)
    }

    /// As [`Ctx::lock`], but others may hold it in this way at the same time.
    pub(crate) fn lock_shared(&self, name: &str) -> Result<File> {
        let file = self.lock_file(name)?;
        if file.try_lock_shared().is_err() {
            self.waiting(name);
            file.lock_shared()
                .with_context(|| format!("cannot lock the {name}"))?;
        }
        Ok(file)
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.cached("locks").join(name.replace(['/', ' '], "-"));
        util::mkdir(&self.cached("locks"))?;
        File::create(&path).with_context(|| format!("cannot create the lock {}", path.display()))
    }

    fn waiting(&self, name: &str) {
        self.ui.note(&format!(
            "waiting for another cargo xtask that uses the {name}"
        ));
    }

    /// Whether this process may install packages.
    pub(crate) fn is_root(&self) -> bool {
        proc::cmd("id").arg("-u").read().is_ok_and(|id| id == "0")
    }
}

/// The root of the workspace that this crate is in: the one that it was run from, which
/// is not that of compilation where a target directory is shared.
fn repo() -> Result<PathBuf> {
    let manifest = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")),
    };
    for dir in manifest.ancestors() {
        if dir.join("tools/versions.toml").is_file() {
            return Ok(dir.to_path_buf());
        }
    }
    bail!("run this as `cargo xtask` from within the repository")
}

fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(
            env::var_os("HOME").context("neither HOME nor XDG_CACHE_HOME is set; set one")?,
        )
        .join(".cache"),
    };
    if !base.is_absolute() {
        bail!("XDG_CACHE_HOME must be an absolute path");
    }
    Ok(base.join("uprobes-rs"))
}
