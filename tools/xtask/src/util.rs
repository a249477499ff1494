// SPDX-License-Identifier: GPL-2.0

//! Files and hashes: small functions whose errors name the file.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf}, //
};

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes `text` to `path` in one step, so that no reader ever sees half of it.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let parent = path.parent().context("a file needs a directory")?;
    mkdir(parent)?;
    let temporary = sibling(path, "new");
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// As [`write()`], but leaves a file with that content, and its time stamp, alone.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(false);
    }
    write(path, content)?;
    Ok(true)
}

/// Creates a directory and its parents.
pub(crate) fn mkdir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Removes a file, a link or a whole directory; none there is fine too.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Moves `from`, complete by now, to its final place.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    fs::rename(from, to)
        .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

/// Lets the symbolic link `link` point at `target`, touching it only if it does not yet.
pub(crate) fn link(target: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|old| old == target) {
        return Ok(());
    }
    let temporary = sibling(link, "new");
    remove(&temporary)?;
    symlink(target, &temporary)
        .and_then(|()| fs::rename(&temporary, link))
        .with_context(|| format!("cannot link {} to {}", link.display(), target.display()))
}

/// `path` with `.suffix` added to its last component.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// Copies a directory, following symbolic links.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    mkdir(to)?;
    for file in files_below(from)? {
        let target = to.join(&file);
        if let Some(parent) = target.parent() {
            mkdir(parent)?;
        }
        fs::copy(from.join(&file), &target)
            .with_context(|| format!("cannot copy to {}", target.display()))?;
    }
    Ok(())
}

/// All files below `dir`, relative to it and sorted; hidden ones are left out.
pub(crate) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    fn walk(root: &Path, below: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = below.join(name);
            if root.join(&path).is_dir() {
                walk(root, &path, out)?;
            } else {
                out.push(path);
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(dir, Path::new(""), &mut out).with_context(|| format!("cannot list {}", dir.display()))?;
    out.sort();
    Ok(out)
}

/// A hash over a sequence of parts, to key a cache with.
///
/// Each part goes in with its length, so that ("ab", "c") and ("a", "bc") differ.
#[derive(Default)]
pub(crate) struct Key(Sha256);

impl Key {
    /// Adds a part.
    pub(crate) fn add(mut self, part: impl AsRef<[u8]>) -> Self {
        self.update(part);
        self
    }

    /// Adds a part in place.
    pub(crate) fn update(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// Adds the name and the content of every file at or below `path`; none is fine.
    pub(crate) fn add_files(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            for file in files_below(path)? {
                self.update(file.as_os_str().as_encoded_bytes());
                self.update(read_bytes(&path.join(file))?);
            }
        } else if path.exists() {
            self.update(path.file_name().unwrap_or_default().as_encoded_bytes());
            self.update(read_bytes(path)?);
        }
        Ok(())
    }

    /// The key: 16 hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        self.0.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Reads a file as bytes.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tells_where_parts_end() {
        let one = Key::default().add("ab").add("c").finish();
        let other = Key::default().add("a").add("bc").finish();
        assert_ne!(one, other);
        assert_eq!(one, Key::default().add("ab").add("c").finish());
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn key_of_files_follows_name_and_content() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let key = || -> Result<String> {
            let mut key = Key::default();
            key.add_files(dir.path())?;
            Ok(key.finish())
        };
        write(&dir.path().join("a/b"), "1")?;
        let first = key()?;
        assert_eq!(first, key()?);
        write(&dir.path().join("a/b"), "2")?;
        let second = key()?;
        assert_ne!(first, second);
        fs::rename(dir.path().join("a/b"), dir.path().join("a/c"))?;
        assert_ne!(second, key()?);
        Ok(())
    }

    #[test]
    fn unchanged_files_keep_their_time() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        assert!(write_if_changed(&path, b"x")?);
        assert!(!write_if_changed(&path, b"x")?);
        assert!(write_if_changed(&path, b"y")?);
        Ok(())
    }

    #[test]
    fn links_are_moved() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("l");
        link(Path::new("/one"), &path)?;
        link(Path::new("/two"), &path)?;
        assert_eq!(fs::read_link(&path)?, Path::new("/two"));
        remove(&path)?;
        remove(&path)
    }
}
