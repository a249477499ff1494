// SPDX-License-Identifier: GPL-2.0

//! The kernel tree that is built: the packaged source, or a mirror of a tree of one's own,
//! in both cases in the cache, with the patch series applied and this repository linked in.
//!
//! The tree stays at one place when the series changes, and only the files that differ are
//! written, so that its build trees remain of use. What the files were before any patch is
//! kept beside them.

use crate::{apt, ctx::Ctx, patches, patches::Series, proc, ui::Unit, util};
use anyhow::{bail, ensure, Context, Result};
use std::{
    fs,
    fs::File,
    path::{Path, PathBuf}, //
};

/// State that this tool keeps in a kernel tree; the kernel's .gitignore hides it.
pub(crate) const STATE: &str = ".uprobes_rs";
/// Where the project hangs in a kernel tree.
pub(crate) const HOOK: &str = "kernel/uprobes_rs";

/// A tree that is ready to be built, and stays as it is until this is dropped.
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    /// Names the tree among others, in paths of the cache.
    pub(crate) label: String,
    /// Changes whenever a file of the tree does.
    pub(crate) id: String,
    _lock: File,
}

/// Makes the tree ready.
///
/// Several builds may use it at the same time; who has to change it waits for them.
pub(crate) fn prepare(ctx: &Ctx) -> Result<Tree> {
    let series = Series::load(&ctx.repo.join("integration/patches"))?;
    let mut own = None;
    loop {
        if let Some(tree) = ready(ctx, &series, own.as_ref())? {
            return Ok(tree);
        }
        let _exclusive = ctx.lock("kernel tree")?;
        // A tree of one's own is mirrored once; after that, what counts is that nobody
        // has changed the mirror before we hold the lock that we keep.
        let (path, label) = match (&ctx.kernel, own.take()) {
            (Some(_), Some(mirrored)) => mirrored,
            (Some(dir), None) => mirror(ctx, dir, &series)?,
            (None, _) => packaged(ctx)?,
        };
        bring_up(&path, &series)?;
        util::link(&ctx.repo, &path.join(HOOK))?;
        own = Some((path, label));
    }
}

/// The tree, if nothing has to be changed in it.
fn ready(ctx: &Ctx, series: &Series, own: Option<&(PathBuf, String)>) -> Result<Option<Tree>> {
    let lock = ctx.lock_shared("kernel tree")?;
    let (path, label) = match (own, fetched(ctx)?) {
        (Some((path, label)), _) => (path.clone(), label.clone()),
        (None, Some(deb)) if ctx.kernel.is_none() => extracted(ctx, &deb),
        _ => return Ok(None),
    };
    if !is_up(&path, series, &ctx.repo) {
        return Ok(None);
    }
    let generation = path.join(STATE).join("generation");
    let id = util::Key::default()
        .add(&label)
        .add(fs::read_to_string(generation).unwrap_or_default())
        .add(series.id())
        .finish();
    Ok(Some(Tree {
        path,
        label,
        id,
        _lock: lock,
    }))
}

/// Whether `tree` has `series` and links to `repo`.
fn is_up(tree: &Path, series: &Series, repo: &Path) -> bool {
    fs::read_to_string(tree.join(STATE).join("series")).is_ok_and(|id| id == series.id())
        && fs::read_link(tree.join(HOOK)).is_ok_and(|target| target == repo)
}

/// The package, if it has been fetched.
fn fetched(ctx: &Ctx) -> Result<Option<PathBuf>> {
    let downloads = ctx.cached("downloads");
    util::mkdir(&downloads)?;
    let prefix = format!("{}_", ctx.versions.kernel.package);
    // What has been fetched once stays: a later point release would be another kernel.
    let name = util::files_below(&downloads)?.into_iter().find(|name| {
        let name = name.to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".deb")
    });
    Ok(name.map(|name| downloads.join(name)))
}

/// Where the package is extracted to, and the name of that tree.
fn extracted(ctx: &Ctx, deb: &Path) -> (PathBuf, String) {
    let label = label_of(deb);
    (ctx.cached("src").join(&label), label)
}

/// The package's tree, fetched and extracted if need be.
fn packaged(ctx: &Ctx) -> Result<(PathBuf, String)> {
    let kernel = &ctx.versions.kernel;
    let deb = match fetched(ctx)? {
        Some(deb) => deb,
        None => apt::fetch_kernel_source(ctx, &ctx.cached("downloads"))?,
    };
    let (tree, label) = extracted(ctx, &deb);
    if tree.join("Makefile").exists() {
        return Ok((tree, label));
    }

    let partial = util::sibling(&tree, "partial");
    util::remove(&partial)?;
    util::mkdir(&partial)?;
    let step = ctx.ui.step(&format!("Extracting {label}"), Unit::None);
    let member = format!("./usr/src/{}.tar.xz", kernel.package);
    proc::tied("bash")
        .args(["-o", "pipefail", "-ec"])
        .arg("dpkg-deb --fsys-tarfile \"$1\" | tar -xO \"$2\" | tar -xJ --strip-components=1 -C \"$3\"")
        .arg("bash")
        .args([&deb, Path::new(&member), &partial])
        .run()
        .with_context(|| {
            format!("cannot extract {}; if it is damaged, remove it", deb.display())
        })?;
    check_version(&partial, &kernel.version)?;
    util::publish(&partial, &tree)?;
    step.done("extracted");
    Ok((tree, label))
}

/// `linux-source-7.3_7.3.4-1~bpo13+1_all.deb` to a name without special characters.
fn label_of(deb: &Path) -> String {
    let stem = deb.file_stem().unwrap_or_default().to_string_lossy();
    let version = stem.split('_').nth(1).unwrap_or("unknown");
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || ".-".contains(c) {
            c
        } else {
            '_'
        }
    };
    format!("linux-{}", version.chars().map(plain).collect::<String>())
}

/// A copy of the tree `dir`, brought up to date, so that the original is never changed.
fn mirror(ctx: &Ctx, dir: &Path, series: &Series) -> Result<(PathBuf, String)> {
    check_version(dir, &ctx.versions.kernel.version)?;
    ensure!(
        !dir.join(STATE).exists() && !dir.join(HOOK).exists(),
        "{} has the project applied; take it out with `cargo xtask apply --kernel DIR --revert`",
        dir.display()
    );
    let key = util::Key::default()
        .add(dir.as_os_str().as_encoded_bytes())
        .finish();
    let label = format!("linux-own-{key}");
    let tree = ctx.cached("src").join(&label);
    util::mkdir(&tree)?;

    let step = ctx
        .ui
        .step(&format!("Mirroring {}", dir.display()), Unit::None);
    let patched = series.files()?;
    let mut rsync = proc::cmd("rsync").args([
        "--archive",
        // Ours differ, by the link and the patched files that we put there.
        "--omit-dir-times",
        "--delete",
        "--itemize-changes",
        "--exclude=/.git",
        "--exclude=/.config*",
        "--exclude=/include/config/",
        "--exclude=/include/generated/",
        "--exclude=/arch/*/include/generated/",
        "--exclude=*.o",
        "--exclude=*.cmd",
    ]);
    for ours in [STATE, HOOK] {
        rsync = rsync.arg(format!("--exclude=/{ours}"));
    }
    for file in &patched {
        rsync = rsync.arg(format!("--exclude=/{}", file.display()));
    }
    let changes = rsync.arg(format!("{}/", dir.display())).arg(&tree).read()?;

    // The files that patches touch are not mirrored but noted as originals.
    let mut changed = !changes.is_empty();
    let originals = tree.join(STATE).join("orig");
    for file in patched {
        let from = dir.join(&file);
        let to = originals.join(&file);
        let (old, new) = (fs::read(&to).ok(), fs::read(&from).ok());
        if old == new {
            continue;
        }
        match new {
            Some(content) => util::write(&to, content)?,
            None => util::remove(&to)?,
        }
        util::remove(&tree.join(STATE).join("series"))?;
        changed = true;
    }
    util::write_if_changed(&tree.join(STATE).join("own"), b"")?;
    if changed {
        let key = util::Key::default()
            .add(format!("{:?}", std::time::SystemTime::now()))
            .finish();
        util::write(&tree.join(STATE).join("generation"), key)?;
    }
    step.done("up to date");
    Ok((tree, label))
}

/// Lets `tree` have `series`, whatever other series it had before.
fn bring_up(tree: &Path, series: &Series) -> Result<()> {
    let state = tree.join(STATE);
    let applied = state.join("series");
    if fs::read_to_string(&applied).is_ok_and(|id| id == series.id()) {
        return Ok(());
    }
    util::remove(&applied)?;
    util::mkdir(&state)?;

    // Originals first, in case this is interrupted: `seen` lists the files that have one,
    // or that did not exist.
    let own = state.join("own").exists();
    let originals = state.join("orig");
    let seen_path = state.join("seen");
    let mut seen = Vec::new();
    // In a mirror, files that are no longer patched have come back by mirroring.
    if !own {
        let list = fs::read_to_string(&seen_path).unwrap_or_default();
        seen.extend(list.lines().map(PathBuf::from));
    }
    for (file, content) in series.read_from(tree)? {
        if seen.contains(&file) {
            continue;
        }
        if let Some(content) = content.filter(|_| !own) {
            util::write(&originals.join(&file), content)?;
        }
        seen.push(file);
    }
    let list: String = seen
        .iter()
        .map(|file| format!("{}\n", file.display()))
        .collect();
    util::write(&seen_path, list)?;

    let before: patches::Files = seen
        .iter()
        .map(|file| (file.clone(), fs::read(originals.join(file)).ok()))
        .collect();
    let after = series
        .transform(&before, false)
        .context("the patches of integration/ do not fit this kernel")?;
    patches::carry_over(&after, tree)?;
    util::write(&applied, series.id())
}

/// Fails unless `tree` holds a kernel of version `wanted` (`7.3`).
pub(crate) fn check_version(tree: &Path, wanted: &str) -> Result<()> {
    let makefile = fs::read_to_string(tree.join("Makefile"))
        .with_context(|| format!("{} is not a kernel tree: no Makefile", tree.display()))?;
    let found = version_of(&makefile)
        .with_context(|| format!("{} is not a kernel tree", tree.display()))?;
    ensure!(
        found == wanted,
        "{} is Linux {found}; a tree of Linux {wanted} is needed",
        tree.display()
    );
    Ok(())
}

/// `VERSION.PATCHLEVEL` in the text of a kernel's top Makefile.
fn version_of(makefile: &str) -> Result<String> {
    let value = |name: &str| {
        makefile.lines().take(10).find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    match (value("VERSION"), value("PATCHLEVEL")) {
        (Some(version), Some(level)) => Ok(format!("{version}.{level}")),
        _ => bail!("its Makefile has no VERSION and PATCHLEVEL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let text = "# SPDX\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\n";
        assert_eq!(version_of(text).ok().as_deref(), Some("7.3"));
        assert!(version_of("all:\n\tcc x.c\n").is_err());
    }

    #[test]
    fn labels() {
        let deb = Path::new("/x/linux-source-7.3_7.3.4-1~bpo13+1_all.deb");
        assert_eq!(label_of(deb), "linux-7.3.4-1_bpo13_1");
    }

    #[test]
    fn series_can_change_under_a_tree() -> Result<()> {
        let tree = tempfile::tempdir()?;
        let patches = tempfile::tempdir()?;
        let (tree, patches) = (tree.path(), patches.path());
        util::write(&tree.join("f"), "a\n")?;
        util::write(&tree.join("g"), "a\n")?;

        let edit = |file: &str| format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-a\n+b\n");
        util::write(&patches.join("1.patch"), edit("f"))?;
        bring_up(tree, &Series::load(patches)?)?;
        assert_eq!(
            (util::read(&tree.join("f"))?, util::read(&tree.join("g"))?),
            ("b\n".to_owned(), "a\n".to_owned())
        );

        util::write(&patches.join("1.patch"), edit("g"))?;
        bring_up(tree, &Series::load(patches)?)?;
        assert_eq!(
            (util::read(&tree.join("f"))?, util::read(&tree.join("g"))?),
            ("a\n".to_owned(), "b\n".to_owned())
        );
        Ok(())
    }
}
