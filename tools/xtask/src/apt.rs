// SPDX-License-Identifier: GPL-2.0

//! Debian's archive: which mirror this machine uses, and fetching single packages from
//! suites that it does not use, without changing its configuration.

use crate::{ctx::Ctx, proc, ui::Unit, util};
use anyhow::{bail, Context, Result};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Stdio, //
};

/// The mirror of the Debian archive that this machine's apt uses.
pub(crate) fn mirror() -> Result<String> {
    let etc = Path::new("/etc/apt");
    let mut files = vec![etc.join("sources.list")];
    let mut parts: Vec<_> = fs::read_dir(etc.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    parts.sort();
    files.extend(parts);

    files
        .iter()
        .filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            match path.extension()?.to_str()? {
                "sources" => deb822(&text),
                "list" => one_line(&text),
                _ => None,
            }
        })
        .next()
        .context(
            "no Debian archive in /etc/apt; add one there, or give a kernel tree with --kernel",
        )
}

/// Whether `uri` is the main archive, not that of security updates, a snapshot of one day,
/// or somebody else's repository.
fn is_main_archive(uri: &str) -> bool {
    let path = uri.trim_end_matches('/');
    let transport = ["http://", "https://", "file:", "mirror+", "ftp://"];
    transport.iter().any(|scheme| uri.starts_with(scheme))
        && path.ends_with("/debian")
        && !path.contains("snapshot.debian.org")
}

/// The first main archive in a file of one-line entries: `deb [options] URI suite component…`.
fn one_line(text: &str) -> Option<String> {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line
            .strip_prefix("deb")
            .filter(|rest| rest.starts_with([' ', '\t']))
        else {
            continue;
        };
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        if let Some(uri) = rest
            .split_whitespace()
            .next()
            .filter(|uri| is_main_archive(uri))
        {
            return Some(uri.trim_end_matches('/').to_owned());
        }
    }
    None
}

/// The first main archive in a file of deb822 stanzas.
fn deb822(text: &str) -> Option<String> {
    let without_comments: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in without_comments.split(|line| line.trim().is_empty()) {
        let field = |name: &str| -> Option<Vec<&str>> {
            let mut values = Vec::new();
            let mut inside = false;
            for line in stanza {
                if line.starts_with([' ', '\t']) {
                    // A value that goes on.
                    if inside {
                        values.extend(line.split_whitespace());
                    }
                } else if let Some((key, value)) = line.split_once(':') {
                    inside = key.trim().eq_ignore_ascii_case(name);
                    if inside {
                        values.extend(value.split_whitespace());
                    }
                }
            }
            (!values.is_empty()).then_some(values)
        };
        let enabled = field("Enabled").is_none_or(|value| value != ["no"]);
        let binary = field("Types").is_some_and(|types| types.contains(&"deb"));
        if !enabled || !binary {
            continue;
        }
        let uris = field("URIs").unwrap_or_default();
        if let Some(uri) = uris.into_iter().find(|uri| is_main_archive(uri)) {
            return Some(uri.trim_end_matches('/').to_owned());
        }
    }
    None
}

/// An apt with lists and sources of its own, for one suite.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(ctx: &Ctx, suite: &str) -> Result<Self> {
        let dir = ctx.cached("apt").join(suite);
        for sub in ["lists/partial", "cache/archives/partial", "parts"] {
            util::mkdir(&dir.join(sub))?;
        }
        let keyring = &ctx.versions.kernel.keyring;
        if !keyring.exists() {
            bail!(
                "no keyring at {}; install the package debian-archive-keyring",
                keyring.display()
            );
        }
        let source = format!(
            "deb [signed-by={}] {} {suite} main\n",
            keyring.display(),
            mirror()?
        );
        util::write(&dir.join("sources.list"), source)?;
        Ok(Self { dir })
    }

    fn cmd(&self, tool: &str) -> proc::Cmd {
        let dir = self.dir.display();
        proc::cmd(tool).args([
            format!("-oDir::State::Lists={dir}/lists"),
            format!("-oDir::Etc::sourcelist={dir}/sources.list"),
            format!("-oDir::Etc::sourceparts={dir}/parts"),
            format!("-oDir::Cache={dir}/cache"),
            // Pins and proxies of the machine stay; its privilege drop cannot read a
            // home directory.
            "-oAPT::Sandbox::User=root".to_owned(),
            "-q".to_owned(),
        ])
    }
}

/// Fetches the kernel source package into `dir` and returns its path.
pub(crate) fn fetch_kernel_source(ctx: &Ctx, dir: &Path) -> Result<PathBuf> {
    let kernel = &ctx.versions.kernel;
    let mut why = None;
    for suite in &kernel.suites {
        let apt = Apt::new(ctx, suite)?;
        let step = ctx
            .ui
            .step(&format!("Package lists of {suite}"), Unit::None);
        if let Err(error) = apt.cmd("apt-get").arg("update").run() {
            why = Some(error);
            continue;
        }
        drop(step);
        let Ok(record) = apt
            .cmd("apt-cache")
            .args(["show", "--no-all-versions", &kernel.package])
            .read()
        else {
            continue;
        };
        return download(ctx, &apt, &record, dir);
    }
    let suites = kernel.suites.join(", ");
    let message = format!(
        "no package {} in the suites {suites} of {}; check the network, or give a tree of \
         Linux {} with --kernel DIR",
        kernel.package,
        mirror()?,
        kernel.version
    );
    match why {
        Some(error) => Err(error.context(message)),
        None => bail!(message),
    }
}

fn download(ctx: &Ctx, apt: &Apt, record: &str, dir: &Path) -> Result<PathBuf> {
    let field = |name: &str| {
        let mut lines = record.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .with_context(|| format!("the package record has no {name}"))
    };
    let size: u64 = field("Size")?
        .parse()
        .context("the package record has a bad Size")?;
    let version = field("Version")?;
    let package = &ctx.versions.kernel.package;

    // A folder of its own keeps what has come so far over an interruption.
    let partial = dir.join("partial");
    util::mkdir(&partial)?;
    let step = ctx.ui.step(
        &format!("Downloading {package} {version}"),
        Unit::Bytes(size),
    );
    let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
    let mut child = {
        let status = writer
            .as_fd()
            .try_clone_to_owned()
            .context("cannot clone a pipe")?;
        drop(writer);
        apt.cmd("apt-get")
            .args(["-oAPT::Status-Fd=1", "download", package])
            .dir(&partial)
            .spawn(|command| {
                command
                    .stdin(Stdio::null())
                    .stdout(status)
                    .stderr(Stdio::piped());
            })?
    };
    let mut failed = None;
    for line in BufReader::new(reader).lines() {
        let line = line.context("cannot read apt's status")?;
        if let Some(percent) = percent(&line) {
            step.set((size as f64 * percent / 100.0) as u64);
        }
    }
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if line.starts_with("E:") {
                failed = Some(line);
            }
        }
    }
    let status = child.wait().context("cannot wait for apt-get")?;
    if !status.success() {
        bail!(
            "downloading {package} failed ({}); run the command again to go on",
            failed.unwrap_or_else(|| status.to_string())
        );
    }
    let name = util::files_below(&partial)?
        .into_iter()
        .find(|name| name.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let path = dir.join(&name);
    util::publish(&partial.join(&name), &path)?;
    step.done(&format!("{} MB", size / 1_000_000));
    Ok(path)
}

/// The per cent of a line of apt's status file descriptor: `dlstatus:ITEM:PERCENT:TEXT`.
fn percent(line: &str) -> Option<f64> {
    let mut fields = line.split(':');
    fields.next().filter(|kind| *kind == "dlstatus")?;
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_entries() {
        let text = "# deb http://comment.example/debian bookworm main\n\
                    deb-src http://source.example/debian bookworm main\n\
                    deb http://security.example/debian-security bookworm-security main\n\
                    deb [arch=amd64 signed-by=/a/b.gpg] https://mirror.example/debian/ bookworm main # c\n";
        assert_eq!(
            one_line(text).as_deref(),
            Some("https://mirror.example/debian")
        );
        assert_eq!(
            one_line("deb\thttp://tab.example/debian a main").as_deref(),
            Some("http://tab.example/debian")
        );
        assert_eq!(one_line("deb [broken http://a.example/debian a main"), None);
        assert_eq!(one_line(""), None);
    }

    #[test]
    fn deb822_stanzas() {
        let text = "Types: deb\nURIs: https://other.example/node\nSuites: x\n\n\
                    Types: deb\nEnabled: no\nURIs: http://off.example/debian\n\n\
                    Types: deb-src\nURIs: http://source.example/debian\n\n\
                    types: deb deb-src\n# http://snapshot.example/debian\n\
                    uris:\n http://security.example/debian-security\n http://mirror.example/debian\n";
        assert_eq!(
            deb822(text).as_deref(),
            Some("http://mirror.example/debian")
        );
        assert_eq!(
            deb822("Types: deb\nURIs: http://snapshot.debian.org/archive/debian\n"),
            None
        );
    }

    #[test]
    fn apt_progress() {
        assert_eq!(
            percent("dlstatus:1:42.5:Retrieving file 1 of 1"),
            Some(42.5)
        );
        assert_eq!(percent("Get:1 http://mirror.example/debian x"), None);
    }
}
