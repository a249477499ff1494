// SPDX-License-Identifier: GPL-2.0

//! Child processes: a [`Command`] whose failures are one clear line.

use anyhow::{anyhow, bail, Context, Result};
use std::{
    env,
    ffi::OsStr,
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio}, //
};

/// A command in the making.
pub(crate) struct Cmd {
    inner: Command,
    name: String,
}

/// Starts describing a run of `program`, without what cargo sets up for us: its variables
/// would change a nested cargo's or rustc's mind about toolchain and libraries.
pub(crate) fn cmd(program: impl AsRef<OsStr>) -> Cmd {
    let program = program.as_ref();
    let mut inner = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(set_by_cargo) {
            inner.env_remove(&name);
        }
    }
    // Messages are looked at by us.
    inner.env("LC_ALL", "C.UTF-8");
    let name = Path::new(program).file_name().unwrap_or(program);
    Cmd {
        inner,
        name: name.to_string_lossy().into_owned(),
    }
}

/// As [`cmd`], for what runs long: it is told to end when we do, however we end.
pub(crate) fn tied(program: &str) -> Cmd {
    let mut tied = cmd("setpriv").args(["--pdeathsig", "TERM", "--", program]);
    tied.name = program.to_owned();
    tied
}

/// Whether `cargo run`, rustup or a calling make set this variable, rather than the user.
fn set_by_cargo(name: &str) -> bool {
    const PREFIXES: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];
    const NAMES: [&str; 13] = [
        "CARGO",
        "CARGO_BIN_NAME",
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
        "KERNEL_DIR",
        "LD_LIBRARY_PATH",
        "MAKEFLAGS",
        "MFLAGS",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "RUST_RECURSION_COUNT",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl Cmd {
    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.inner.args(args);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(name, value);
        self
    }

    /// Sets the working directory.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// Runs it silently; on failure its last words are part of the error.
    pub(crate) fn run(self) -> Result<()> {
        self.read().map(drop)
    }

    /// Runs it and returns its standard output, trimmed.
    pub(crate) fn read(mut self) -> Result<String> {
        let output = self
            .inner
            .stdin(Stdio::null())
            .output()
            .with_context(|| cannot_start(&self.name))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            return Ok(text);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr
            .lines()
            .chain(text.lines())
            .rfind(|line| !line.trim().is_empty());
        match last {
            Some(line) => bail!("{} failed ({}): {}", self.name, output.status, line.trim()),
            None => bail!("{} failed ({})", self.name, output.status),
        }
    }

    /// Whether it ends with success; not being there counts as no.
    pub(crate) fn succeeds(mut self) -> bool {
        self.inner
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Runs it with all output to the file `log` and, line by line, to `each`.
    ///
    /// On failure the log's end is shown, and the error names the log.
    pub(crate) fn logged(self, log: &Path, mut each: impl FnMut(&str)) -> Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(log)
            .with_context(|| format!("cannot write the log {}", log.display()))?;
        let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
        let name = self.name.clone();
        let mut child = {
            // The command keeps its own ends of the pipe, so it must go before reading.
            let mut command = self.inner;
            command
                .stdin(Stdio::null())
                .stdout(writer.try_clone().context("cannot clone a pipe")?)
                .stderr(writer)
                .spawn()
                .with_context(|| cannot_start(&name))?
        };
        let mut tail = Tail::default();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("cannot read a child's output")?;
            let line = String::from_utf8_lossy(&line);
            writeln!(file, "{line}").context("cannot write a log")?;
            each(&line);
            tail.push(&line);
        }
        let status = child.wait().context("cannot wait for a child")?;
        if status.success() {
            return Ok(());
        }
        tail.print();
        Err(anyhow!("{name} failed ({status}); see {}", log.display()))
    }

    /// Lets `change` fill in the rest and starts it.
    pub(crate) fn spawn(mut self, change: impl FnOnce(&mut Command)) -> Result<Child> {
        change(&mut self.inner);
        self.inner.spawn().with_context(|| cannot_start(&self.name))
    }
}

fn cannot_start(name: &str) -> String {
    format!("cannot start {name}; `cargo xtask doctor` tells what is missing")
}

/// The last lines of a log, and all that say "error".
#[derive(Default)]
struct Tail {
    errors: Vec<String>,
    last: Vec<String>,
}

impl Tail {
    const LINES: usize = 20;

    fn push(&mut self, line: &str) {
        if line.contains("error") && self.errors.len() < Self::LINES {
            self.errors.push(line.to_owned());
        }
        if self.last.len() == Self::LINES {
            self.last.remove(0);
        }
        self.last.push(line.to_owned());
    }

    fn print(&self) {
        let shown = self.errors.iter().filter(|line| !self.last.contains(line));
        for line in shown.chain(&self.last) {
            eprintln!("    {line}");
        }
    }
}

/// Quotes `word` for a POSIX shell.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_survives_a_shell() {
        for word in ["", "plain", "a b", "it's", "$x `y` \\ \"z\"", "*"] {
            let echoed = cmd("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quote(word)))
                .read();
            assert_eq!(echoed.ok().as_deref(), Some(word.trim()));
        }
    }

    #[test]
    fn failure_is_one_line() {
        let error = cmd("sh")
            .args(["-c", "echo a >&2; echo b >&2; exit 3"])
            .run();
        let text = format!("{:#}", error.expect_err("exit 3 is a failure"));
        assert!(text.contains("sh failed"), "{text}");
        assert!(text.ends_with(": b"), "{text}");
    }
}
