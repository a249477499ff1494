// SPDX-License-Identifier: GPL-2.0

//! `tools/versions.toml`: what is fetched, and in which version.

use crate::{arch::Arch, util};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Versions {
    pub(crate) kernel: Kernel,
    pub(crate) toolchain: Toolchain,
    pub(crate) bindgen: Bindgen,
    pub(crate) rootfs: Rootfs,
    pub(crate) vendor: Vendor,
    packages: Packages,
}

/// Where the kernel source comes from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Kernel {
    pub(crate) version: String,
    pub(crate) package: String,
    pub(crate) suites: Vec<String>,
    pub(crate) keyring: PathBuf,
}

/// The compiler of the kernel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Toolchain {
    pub(crate) rustc: PathBuf,
    pub(crate) rustc_package: String,
}

/// The binding generator.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bindgen {
    #[serde(rename = "crate")]
    pub(crate) package: String,
    pub(crate) version: String,
}

/// The guest's root file system.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rootfs {
    pub(crate) suite: String,
    pub(crate) include: Vec<String>,
}

/// Crates that are built into the kernel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vendor {
    pub(crate) crates: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packages {
    base: Vec<String>,
    llvm: Vec<String>,
    x86_64: Vec<String>,
    arm64: Vec<String>,
    riscv64: Vec<String>,
}

impl Versions {
    /// Reads the file of the repository at `repo`.
    pub(crate) fn load(repo: &Path) -> Result<Self> {
        let path = repo.join("tools/versions.toml");
        let text = util::read(&path)?;
        toml::from_str(&text).with_context(|| format!("{} is malformed", path.display()))
    }

    /// Debian packages for building and running on `archs`, given LLVM's major version.
    pub(crate) fn packages(&self, archs: &[Arch], llvm: u32) -> Vec<String> {
        let mut all = self.packages.base.clone();
        all.extend(self.packages.llvm.iter().cloned());
        for arch in archs {
            all.extend_from_slice(match arch {
                Arch::X86_64 => &self.packages.x86_64,
                Arch::Arm64 => &self.packages.arm64,
                Arch::Riscv64 => &self.packages.riscv64,
            });
        }
        let mut all: Vec<_> = all
            .iter()
            .map(|name| name.replace("{N}", &llvm.to_string()))
            .collect();
        all.sort();
        all.dedup();
        all
    }
}
