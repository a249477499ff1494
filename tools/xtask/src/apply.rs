// SPDX-License-Identifier: GPL-2.0

//! `apply`: puts the subsystem into somebody's own kernel tree and takes it out again.

use crate::{
    cli::ApplyArgs,
    ctx::Ctx,
    kernel::KERNEL_PARTS,
    patches::{self, Series},
    source::{self, HOOK, STATE},
    toolchain,
    util,
    vendor, //
};
use anyhow::{ensure, Context, Result};
use std::{fs, path::Path, process::ExitCode};

/// Applies or reverts.
pub(crate) fn run(ctx: &Ctx, args: &ApplyArgs) -> Result<ExitCode> {
    let tree = ctx
        .kernel
        .as_deref()
        .context("which kernel tree? Give it with --kernel DIR")?;
    if args.revert {
        revert(tree)?;
        ctx.ui.note(&format!("{} is as it was", tree.display()));
    } else {
        source::check_version(tree, &ctx.versions.kernel.version)?;
        vendor::ensure(ctx)?;
        apply(&ctx.repo, tree, args.link)?;
        let llvm = match toolchain::rustc_llvm(ctx) {
            Ok(major) => format!(
                "LLVM=-{major} RUSTC={}",
                ctx.versions.toolchain.rustc.display()
            ),
            Err(_) => "LLVM=1".to_owned(),
        };
        ctx.ui.note(&format!(
            "{} has the choice now: in `make {llvm} menuconfig` switch on RUST and \
             UPROBE_EVENTS, then choose under \"Uprobes implementation\"",
            tree.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Patches `tree` and puts the project of `repo` into it; an older state is replaced.
fn apply(repo: &Path, tree: &Path, link: bool) -> Result<()> {
    let series = Series::load(&repo.join("integration/patches"))?;
    let state = tree.join(STATE);
    let hook = tree.join(HOOK);
    ensure!(
        state.exists() || fs::symlink_metadata(&hook).is_err(),
        "{} is there already, and not by this command; remove it first",
        hook.display()
    );

    let mut changes = if state.exists() {
        without(tree)?
    } else {
        patches::Files::new()
    };
    for (file, content) in series.read_from(tree)? {
        changes.entry(file).or_insert(content);
    }
    let changes = series
        .transform(&changes, false)
        .with_context(|| format!("nothing was changed in {}", tree.display()))?;

    // The state goes first, so that whatever follows can be reverted.
    util::remove(&state)?;
    series.save(&state.join("patches"))?;
    patches::carry_over(&changes, tree)?;
    util::remove(&hook)?;
    if link {
        return util::link(repo, &hook);
    }
    for part in KERNEL_PARTS
        .into_iter()
        .chain(["vendor", "Documentation", "COPYING"])
    {
        let from = repo.join(part);
        if from.is_dir() {
            util::copy_tree(&from, &hook.join(part))?;
        } else if from.exists() {
            util::write(&hook.join(part), util::read_bytes(&from)?)?;
        }
    }
    Ok(())
}

/// The patched files of `tree` as they were before its patches.
fn without(tree: &Path) -> Result<patches::Files> {
    let series = Series::load(&tree.join(STATE).join("patches"))?;
    series
        .transform(&series.read_from(tree)?, true)
        .with_context(|| {
            format!(
                "the patched lines in {0} have been changed since; bring them back, or restore \
                 the tree's own files and remove {0}/{STATE} and {0}/{HOOK}",
                tree.display()
            )
        })
}

fn revert(tree: &Path) -> Result<()> {
    let state = tree.join(STATE);
    ensure!(
        state.exists(),
        "{} has nothing to revert: `apply` was not used on it",
        tree.display()
    );
    patches::carry_over(&without(tree)?, tree)?;
    util::remove(&tree.join(HOOK))?;
    util::remove(&state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Content of everything in a tree, hidden files too.
    fn snapshot(tree: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        for file in util::files_below(tree)? {
            files.push((file.clone(), util::read_bytes(&tree.join(file))?));
        }
        assert!(!tree.join(STATE).exists());
        Ok(files)
    }

    fn project(patch: &str) -> Result<tempfile::TempDir> {
        let dir = tempfile::tempdir()?;
        util::write(&dir.path().join("integration/patches/1.patch"), patch)?;
        util::write(&dir.path().join("Kbuild"), "obj-y += x.o\n")?;
        util::write(&dir.path().join("core/src/lib.rs"), "")?;
        util::write(&dir.path().join("vendor/bitflags/lib.rs"), "")?;
        Ok(dir)
    }

    const PATCH: &str =
        "--- a/kernel/Makefile\n+++ b/kernel/Makefile\n@@ -1,3 +1,4 @@\n obj-y\n+new\n x\n y\n\
                         --- /dev/null\n+++ b/kernel/added\n@@ -0,0 +1 @@\n+x\n";
    const OTHER: &str = "--- a/kernel/other\n+++ b/kernel/other\n@@ -1 +1 @@\n-o\n+p\n";

    #[test]
    fn revert_leaves_no_trace() -> Result<()> {
        let (first, second) = (project(PATCH)?, project(OTHER)?);
        let tree = tempfile::tempdir()?;
        let tree = tree.path();
        util::write(&tree.join("kernel/Makefile"), "obj-y\nx\ny\n")?;
        util::write(&tree.join("kernel/other"), "o\n")?;
        let before = snapshot(tree)?;

        apply(first.path(), tree, false)?;
        assert!(tree.join(HOOK).join("vendor/bitflags/lib.rs").exists());
        assert_eq!(
            util::read(&tree.join("kernel/Makefile"))?,
            "obj-y\nnew\nx\ny\n"
        );
        // Again, and with another series.
        apply(first.path(), tree, true)?;
        apply(second.path(), tree, false)?;
        assert_eq!(util::read(&tree.join("kernel/Makefile"))?, "obj-y\nx\ny\n");
        assert_eq!(util::read(&tree.join("kernel/other"))?, "p\n");
        revert(tree)?;
        assert_eq!(snapshot(tree)?, before);
        assert!(revert(tree).is_err());
        Ok(())
    }

    #[test]
    fn what_does_not_fit_changes_nothing() -> Result<()> {
        let project = project(PATCH)?;
        let tree = tempfile::tempdir()?;
        let tree = tree.path();
        util::write(&tree.join("kernel/Makefile"), "else\n")?;
        let before = snapshot(tree)?;
        assert!(apply(project.path(), tree, false).is_err());
        assert_eq!(snapshot(tree)?, before);
        Ok(())
    }
}
