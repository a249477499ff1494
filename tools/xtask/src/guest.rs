// SPDX-License-Identifier: GPL-2.0

//! Runs a guest: hands it its job, carries its output, watches its console.

use crate::{
    ctx::Ctx,
    kernel::{self, Freshness, Variant},
    proc,
    qemu::Machine,
    rootfs,
    splat::Scanner,
    util, //
};
use anyhow::{bail, Context, Result};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant, SystemTime}, //
};

/// What to do in which kernel.
pub(crate) struct Guest<'a> {
    pub(crate) variant: Variant,
    pub(crate) cpus: u32,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) icount: bool,
    pub(crate) share: Option<&'a Path>,
    pub(crate) append: &'a str,
    pub(crate) timeout: Option<Duration>,
    /// Shell script to run; without it there is a shell on the terminal.
    pub(crate) script: Option<String>,
    /// Look for memory leaks at the end; takes 10 s or more, on a debug kernel.
    pub(crate) leaks: bool,
    /// Show the console on standard error while it runs.
    pub(crate) console: bool,
}

impl Guest<'_> {
    /// A guest as most commands want it.
    pub(crate) fn new(variant: Variant) -> Self {
        Self {
            variant,
            cpus: 2,
            memory: 1024,
            icount: false,
            share: None,
            append: "",
            timeout: Some(Duration::from_secs(600)),
            script: None,
            leaks: false,
            console: false,
        }
    }
}

/// How a guest ended.
pub(crate) struct Outcome {
    /// Exit status of the command; none if the guest ended before it.
    pub(crate) status: Option<u8>,
    pub(crate) timed_out: bool,
    /// Complaints of the kernel.
    pub(crate) splats: Vec<String>,
    pub(crate) log: PathBuf,
}

/// Exit status for a guest that took too long, as of timeout(1).
pub(crate) const TIMED_OUT: u8 = 124;
/// Exit status for a kernel that complained, or ended before the command did.
pub(crate) const KERNEL_FAILED: u8 = 125;

impl Outcome {
    /// What went wrong with the guest as such, whatever its command returned.
    pub(crate) fn failure(&self) -> Option<(u8, String)> {
        let log = self.log.display();
        if let Some(first) = self.splats.first() {
            let more = match self.splats.len() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            return Some((
                KERNEL_FAILED,
                format!("the kernel complained: {first}{more}; see {log}"),
            ));
        }
        if self.timed_out {
            return Some((TIMED_OUT, format!("the guest took too long; see {log}")));
        }
        if self.status.is_none() {
            let text = format!("the guest ended before the command did; see {log}");
            return Some((KERNEL_FAILED, text));
        }
        None
    }
}

/// Boots the kernel of `guest`, built if need be, and runs its script. Each piece of the
/// script's standard output goes to `stdout`.
pub(crate) fn run(
    ctx: &Ctx,
    guest: &Guest<'_>,
    stdout: &mut (dyn FnMut(&[u8]) -> Result<()> + Send),
) -> Result<Outcome> {
    let image = kernel::ensure(ctx, guest.variant, Freshness::Fingerprint)?;
    let rootfs = rootfs::ensure(ctx, guest.variant.arch)?;

    let job = new_job()?;
    let interactive = guest.script.is_none();
    let env = format!(
        "SHARE={}\nLEAKS={}\nTERM={}\n",
        u8::from(guest.share.is_some()),
        u8::from(guest.leaks),
        proc::quote(&std::env::var("TERM").unwrap_or_else(|_| "linux".to_owned())),
    );
    util::write(&job.path().join("env"), env)?;
    if let Some(script) = &guest.script {
        util::write(&job.path().join("command"), script)?;
    }

    let log = new_log(ctx, guest.variant)?;
    let machine = Machine {
        arch: guest.variant.arch,
        image: &image,
        rootfs: &rootfs.dir,
        init: &rootfs.init,
        cpus: guest.cpus,
        memory: guest.memory,
        icount: guest.icount,
        share: guest.share,
        append: guest.append,
        job: job.path(),
        log: &log,
        interactive,
    };
    let deadline = guest.timeout.map(|timeout| Instant::now() + timeout);
    let listener = |name| {
        UnixListener::bind(job.path().join(name)).context("cannot create a socket for the guest")
    };
    let (out, err) = (listener("stdout")?, listener("stderr")?);
    let mut qemu = spawn(&machine)?;

    let (status, timed_out) = if interactive {
        wait(&mut qemu, deadline)?
    } else {
        let console = qemu.stdout.take().context("the guest has no console")?;
        let complaints = qemu.stderr.take().context("the emulator has no stderr")?;
        let show = guest.console;
        let ended = thread::scope(|scope| {
            scope.spawn(move || drain_console(console, show));
            let complaints = scope.spawn(move || drain_complaints(complaints, show));
            // A port that the guest never opens ends with the emulator, as all of them.
            let err = scope.spawn(move || copy(&err, &mut |bytes| to_stderr(bytes)));
            let out = scope.spawn(move || copy(&out, stdout));
            let ended = wait(&mut qemu, deadline);
            // One that never connected, because the emulator did not even start, would
            // wait for ever.
            for name in ["stdout", "stderr"] {
                let _ = std::os::unix::net::UnixStream::connect(job.path().join(name));
            }
            let copied = join(out).and(join(err));
            let (status, timed_out) = ended?;
            let complaints = join_value(complaints)?;
            if !status.success() && !timed_out {
                bail!("the emulator failed ({status}): {complaints}");
            }
            copied?;
            Ok((status, timed_out))
        });
        ended?
    };
    if interactive && !status.success() && !timed_out {
        bail!("the emulator failed ({status})");
    }

    let mut scanner = Scanner::default();
    let text = fs::read(&log).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .for_each(|line| scanner.line(line));
    let status = fs::read_to_string(job.path().join("status")).ok();
    Ok(Outcome {
        status: status.and_then(|text| text.trim().parse().ok()),
        timed_out,
        splats: scanner.found().to_vec(),
        log,
    })
}

/// A directory for the job; not below the cache, as the path of a socket must be short.
fn new_job() -> Result<tempfile::TempDir> {
    const PREFIX: &str = "uprobes-rs-";
    // Those of processes that were killed are still there.
    for entry in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            name.strip_prefix(PREFIX)?
                .split('-')
                .next()?
                .parse::<u32>()
                .ok()
        });
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Somebody else's, perhaps; then it is not for us to remove.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir()
        .context("cannot create a temporary directory")
}

/// Starts the emulator; it ends with us, however we end.
fn spawn(machine: &Machine<'_>) -> Result<Child> {
    proc::cmd("setpriv")
        .args(["--pdeathsig", "KILL", "--", machine.arch.qemu()])
        .args(machine.args())
        .spawn(|command| {
            if !machine.interactive {
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            }
        })
}

/// Waits for the end, and makes it come by the deadline.
fn wait(qemu: &mut Child, deadline: Option<Instant>) -> Result<(ExitStatus, bool)> {
    loop {
        if let Some(status) = qemu.try_wait().context("cannot wait for the emulator")? {
            return Ok((status, false));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            qemu.kill().context("cannot stop the emulator")?;
            let status = qemu.wait().context("cannot wait for the emulator")?;
            return Ok((status, true));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The emulator writes the log itself; here the console is shown, or just taken.
fn drain_console(console: impl Read, show: bool) {
    let mut reader = BufReader::new(console);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if show {
            let text = String::from_utf8_lossy(&line);
            eprintln!("{}", text.trim_end());
        }
        line.clear();
    }
}

/// Takes what the emulator itself says; returns the last line.
fn drain_complaints(stderr: impl Read, show: bool) -> String {
    let mut last = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // Said of each feature of "-cpu max" that this emulator lacks.
        if line.contains("warning: ") {
            continue;
        }
        if show {
            eprintln!("{line}");
        }
        last = line;
    }
    last
}

fn copy(listener: &UnixListener, sink: &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<()> {
    let (mut stream, _) = listener
        .accept()
        .context("cannot accept the guest's output")?;
    let mut buffer = [0; 16384];
    let mut result = Ok(());
    loop {
        match stream
            .read(&mut buffer)
            .context("cannot read the guest's output")?
        {
            0 => return result,
            // Goes on reading where nobody listens any more, so that the guest can end.
            n if result.is_ok() => result = sink(&buffer[..n]),
            _ => (),
        }
    }
}

fn to_stderr(bytes: &[u8]) -> Result<()> {
    std::io::stderr()
        .write_all(bytes)
        .context("cannot write to standard error")
}

fn join(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    join_value(thread)?
}

fn join_value<T>(thread: thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    match thread.join() {
        Ok(value) => Ok(value),
        Err(_) => bail!("a thread of this tool panicked"),
    }
}

/// A name for a console log; only the newest logs are kept.
fn new_log(ctx: &Ctx, variant: Variant) -> Result<PathBuf> {
    const KEPT: usize = 50;
    let dir = ctx.cached("logs/console");
    util::mkdir(&dir)?;
    let mut old: Vec<(SystemTime, PathBuf)> = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .filter(|(_, path)| path.extension() == Some(OsStr::new("log")))
        .collect();
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT) {
        // Another process may have been faster.
        let _ = fs::remove_file(path);
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .context("the clock is before 1970")?;
    let name = format!("{variant}-{}-{}.log", now.as_millis(), std::process::id());
    Ok(dir.join(name))
}
