// SPDX-License-Identifier: GPL-2.0

//! The patch series of `integration/patches`, and applying it to a kernel tree.
//!
//! A series is always tried on a scratch copy of the files that it touches. Only a whole
//! success is carried over, and only to files whose content differs, so that make rebuilds
//! no more than what a change of the series asks for.

use crate::{proc, util};
use anyhow::{bail, Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf}, //
};

/// Patches in the order in which they apply.
pub(crate) struct Series {
    patches: Vec<(String, Vec<u8>)>,
}

/// The content of some files of a tree; `None` where a file is not there.
pub(crate) type Files = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl Series {
    /// Reads all `*.patch` files of `dir`.
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        let mut patches = Vec::new();
        for name in util::files_below(dir)? {
            if name
                .extension()
                .is_some_and(|extension| extension == "patch")
            {
                patches.push((
                    name.to_string_lossy().into_owned(),
                    util::read_bytes(&dir.join(&name))?,
                ));
            }
        }
        if patches.is_empty() {
            bail!("there are no patches in {}", dir.display());
        }
        Ok(Self { patches })
    }

    /// Writes the patches to `dir`.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        for (name, text) in &self.patches {
            util::write(&dir.join(name), text)?;
        }
        Ok(())
    }

    /// Changes whenever a patch does.
    pub(crate) fn id(&self) -> String {
        let mut key = util::Key::default();
        for (name, text) in &self.patches {
            key.update(name);
            key.update(text);
        }
        key.finish()
    }

    /// The files that the series touches.
    pub(crate) fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let mut files = BTreeSet::new();
        for (name, text) in &self.patches {
            for path in touched(&String::from_utf8_lossy(text)) {
                let path = PathBuf::from(path);
                if !path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
                {
                    bail!("{name} touches {}, outside the tree", path.display());
                }
                files.insert(path);
            }
        }
        Ok(files)
    }

    /// Reads the files that the series touches from `tree`.
    pub(crate) fn read_from(&self, tree: &Path) -> Result<Files> {
        self.files()?
            .into_iter()
            .map(|file| Ok((file.clone(), content(&tree.join(file))?)))
            .collect()
    }

    /// What `files` become by the series, or, with `reverse`, what they were before it.
    pub(crate) fn transform(&self, files: &Files, reverse: bool) -> Result<Files> {
        let scratch = tempfile::tempdir().context("cannot create a temporary directory")?;
        for (path, content) in files {
            if let Some(content) = content {
                util::write(&scratch.path().join(path), content)?;
            }
        }
        let mut order: Vec<_> = self.patches.iter().collect();
        if reverse {
            order.reverse();
        }
        for (name, text) in order {
            let input = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
            fs::write(input.path(), text).context("cannot write a temporary file")?;
            proc::cmd("patch")
                .args([
                    "-p1",
                    "--fuzz=1",
                    // Not --batch: that turns a patch round that is not there to be reversed.
                    "--force",
                    "--no-backup-if-mismatch",
                    "--reject-file=-",
                ])
                .arg(if reverse { "--reverse" } else { "--forward" })
                .arg("--input")
                .arg(input.path())
                .dir(scratch.path())
                .run()
                .with_context(|| format!("{name} does not fit"))?;
        }
        files
            .keys()
            .map(|path| Ok((path.clone(), content(&scratch.path().join(path))?)))
            .collect()
    }
}

/// Gives `files` of `tree` the content in question; those that have it stay untouched.
pub(crate) fn carry_over(files: &Files, tree: &Path) -> Result<()> {
    for (path, content) in files {
        let path = tree.join(path);
        match content {
            // In place and not by rename: permissions and owner are not ours to change.
            Some(content) if !fs::read(&path).is_ok_and(|old| old == *content) => {
                fs::write(&path, content)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            Some(_) => (),
            None => util::remove(&path)?,
        }
    }
    Ok(())
}

/// The content of a file that may not exist.
fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    path.exists().then(|| util::read_bytes(path)).transpose()
}

/// The paths in the file headers of a patch.
fn touched(patch: &str) -> BTreeSet<&str> {
    let mut paths = BTreeSet::new();
    let lines: Vec<_> = patch.lines().collect();
    for pair in lines.windows(2) {
        // A removed line may begin with "-- ", but no header of the other kind follows it.
        let (Some(old), Some(new)) = (pair[0].strip_prefix("--- "), pair[1].strip_prefix("+++ "))
        else {
            continue;
        };
        for side in [old, new] {
            let path = side.split('\t').next().unwrap_or_default().trim_end();
            if let Some((_, path)) = path.split_once('/').filter(|_| path != "/dev/null") {
                paths.insert(path);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = "Subject: x\n---\ndiff --git a/d/new b/d/new\nnew file mode 100644\n\
                       --- /dev/null\n+++ b/d/new\n@@ -0,0 +1 @@\n+one\n\
                       diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n";
    const CHANGE: &str =
        "--- a/d/new\t2026-01-01\n+++ b/d/new\t2026-01-01\n@@ -1 +1,2 @@\n one\n+two\n";

    fn series() -> Series {
        Series {
            patches: vec![
                ("0001-a.patch".into(), ADD.into()),
                ("0002-b.patch".into(), CHANGE.into()),
            ],
        }
    }

    #[test]
    fn touched_files() -> Result<()> {
        let files: Vec<_> = series().files()?.into_iter().collect();
        assert_eq!(files, [PathBuf::from("d/new"), PathBuf::from("f")]);
        let evil = Series {
            patches: vec![("x".into(), "--- a/../../x\n+++ b/../../x\n".into())],
        };
        assert!(evil.files().is_err());
        Ok(())
    }

    #[test]
    fn there_and_back() -> Result<()> {
        let tree = tempfile::tempdir()?;
        util::write(&tree.path().join("f"), "a\nc\n")?;
        util::mkdir(&tree.path().join("d"))?;
        let before = series().read_from(tree.path())?;
        let after = series().transform(&before, false)?;
        assert_eq!(after[Path::new("f")].as_deref(), Some(&b"b\nc\n"[..]));
        assert_eq!(
            after[Path::new("d/new")].as_deref(),
            Some(&b"one\ntwo\n"[..])
        );
        carry_over(&after, tree.path())?;
        let read = series().read_from(tree.path())?;
        assert!(
            series().transform(&read, false).is_err(),
            "twice does not fit"
        );
        carry_over(&series().transform(&read, true)?, tree.path())?;
        assert_eq!(series().read_from(tree.path())?, before);
        Ok(())
    }

    #[test]
    fn what_is_not_there_is_not_reverted() -> Result<()> {
        let tree = tempfile::tempdir()?;
        util::write(&tree.path().join("f"), "a\nc\n")?;
        let unpatched = series().read_from(tree.path())?;
        assert!(series().transform(&unpatched, true).is_err());
        let only_change = Series {
            patches: vec![(
                "c".into(),
                "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n".into(),
            )],
        };
        assert!(only_change.transform(&unpatched, true).is_err());
        Ok(())
    }

    #[test]
    fn misfit_changes_nothing() -> Result<()> {
        let tree = tempfile::tempdir()?;
        util::write(&tree.path().join("f"), "other\n")?;
        let before = series().read_from(tree.path())?;
        assert!(series().transform(&before, false).is_err());
        assert_eq!(series().read_from(tree.path())?, before);
        Ok(())
    }
}
