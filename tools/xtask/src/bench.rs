// SPDX-License-Identifier: GPL-2.0

//! `bench`: what a hit costs, on C and Rust kernels of the same configuration.
//!
//! Guest programs measure, and print a line of JSON for each kind of site or work:
//!
//! - `bench/bench-hit --all`, on one CPU whose clock counts instructions:
//!   `{"site": "nop", "ns_per_hit": 1200.0}`. It runs each site twice, with different
//!   numbers of iterations, with and without a probe, so that only the hit remains.
//! - `bench/bench-threads --all`, on two CPUs against the wall clock:
//!   `{"site": "nop", "threads": 2, "ratio": 1.95}`, the throughput of that many threads
//!   over that of one;
//! - `bench/bench-attach --all`, likewise:
//!   `{"work": "uprobe_events: disable", "count": 256, "ms": 12.3}`, the time of that many;
//! - `bench/bench-idle --all`, on the Rust kernel and one CPU whose clock counts instructions:
//!   `{"work": "exec and exit", "without_ns": 5000.0, "with_ns": 5001.0}`, what it takes where
//!   nothing is probed, without any probe in the system and with many elsewhere.

use crate::{
    arch::Arch,
    cli::BenchArgs,
    ctx::Ctx,
    guest::{self, Guest},
    kernel::{Impl, Profile, Variant},
    selftests,
    ui::Unit,
    util, //
};
use anyhow::{bail, ensure, Context, Result};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::{
    fmt,
    path::Path,
    process::ExitCode,
    time::Duration, //
};

/// Nanoseconds of an instruction at `-icount shift=1`.
const NS_PER_INSN: f64 = 2.0;

/// Throughput of two threads over one that every path has to reach.
const THREADS_GOAL: f64 = 1.9;

/// Other programs may use this many CPUs while two are to be measured.
const QUIET_LOAD: f64 = 0.5;

/// The machine's load over the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Highest ratio of Rust's instructions to C's.
fn goal(arch: Arch, site: &str) -> Option<f64> {
    match (arch, site) {
        (Arch::X86_64, "nop" | "push" | "uretprobe-nop") => Some(0.75),
        (Arch::X86_64, "ret" | "sub") => Some(0.45),
        (Arch::Arm64, "nop" | "ret" | "uretprobe-nop") => Some(0.75),
        (Arch::Arm64, "stp" | "sub" | "bti") => Some(0.5),
        (Arch::Riscv64, "nop" | "addi" | "sd") => Some(0.5),
        (Arch::Riscv64, "ret" | "auipc") => Some(0.75),
        (Arch::Riscv64, "uretprobe-nop") => Some(0.55),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Hit {
    site: String,
    ns_per_hit: f64,
}

/// What an attachment or detachment may take.
fn attach_goal(work: &str) -> Option<Goal> {
    match work {
        "perf uprobe: close"
        | "perf uprobe with BPF: close"
        | "perf kprobe: close"
        | "perf kretprobe: close" => Some(Goal::Milliseconds(100.0)),
        "uprobe_events: disable" | "kprobe_events: disable" | "kprobe_events: remove" => {
            Some(Goal::Milliseconds(50.0))
        }
        "uprobe_multi: attach" | "uprobe_multi: detach" => Some(Goal::AtMost(0.2)),
        "uprobe_multi in 100 processes: attach" | "uprobe_multi in 100 processes: detach" => {
            Some(Goal::AtMost(0.1))
        }
        "1000 probes mapped: exec and exit" => Some(Goal::AtMost(1.0 / 3.0)),
        _ => None,
    }
}

/// What a figure is to be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    /// Highest ratio of Rust's figure to C's.
    AtMost(f64),
    /// Lowest figure of Rust.
    AtLeast(f64),
    /// Highest figure of Rust, in milliseconds.
    Milliseconds(f64),
}

impl Goal {
    fn is_met(self, c: f64, rust: f64) -> bool {
        match self {
            Self::AtMost(ratio) => rust <= ratio * c,
            Self::AtLeast(figure) => rust >= figure,
            Self::Milliseconds(limit) => rust <= limit,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(ratio) => write!(f, "at most {ratio:.2}"),
            Self::AtLeast(figure) => write!(f, "at least {figure:.2}"),
            Self::Milliseconds(limit) => write!(f, "at most {limit:.0} ms"),
        }
    }
}

#[derive(Deserialize)]
struct Attach {
    work: String,
    count: u32,
    ms: f64,
}

#[derive(Deserialize)]
struct Threads {
    site: String,
    threads: u32,
    ratio: f64,
}

#[derive(Deserialize)]
struct Idle {
    work: String,
    without_ns: f64,
    with_ns: f64,
}

/// How much more a process may take in which nothing is probed, if there are probes elsewhere.
const IDLE_GOAL: f64 = 1.01;

/// What it takes where nothing is probed; also the form of `--json`.
#[derive(Serialize)]
struct IdleRow {
    name: String,
    without_probes: f64,
    with_probes: f64,
    ratio: f64,
    goal: Goal,
    met: bool,
}

/// What came out for a site or a work; also the form of `--json`.
#[derive(Serialize)]
struct Row {
    name: String,
    c: f64,
    rust: f64,
    ratio: f64,
    goal: Option<Goal>,
    met: Option<bool>,
}

impl Row {
    /// Compares; a figure that cannot be trusted is not judged.
    fn new(name: String, c: f64, rust: f64, goal: Option<Goal>, trusted: bool) -> Self {
        let met = goal.filter(|_| trusted).map(|goal| goal.is_met(c, rust));
        Self {
            name,
            c,
            rust,
            ratio: rust / c,
            goal,
            met,
        }
    }
}

#[derive(Serialize)]
struct Figures {
    arch: &'static str,
    /// Instructions for each hit.
    instructions: Vec<Row>,
    /// Throughput of two threads over that of one.
    threads: Vec<Row>,
    /// Milliseconds of attaching and detaching many probes.
    attach: Vec<Row>,
    /// Instructions of processes in which nothing is probed.
    idle: Vec<IdleRow>,
}

/// Measures, prints tables, and fails if a goal is missed.
pub(crate) fn run(ctx: &Ctx, args: &BenchArgs) -> Result<ExitCode> {
    let out = selftests::build(ctx, args.arch)?;
    // Counted instructions do not care, the wall clock does.
    let busy = load().is_some_and(|load| load > QUIET_LOAD);
    if busy {
        ctx.ui
            .note("the machine is busy: what the clock measures is shown, but not judged");
    }
    let hits = |implementation| -> Result<Vec<Hit>> {
        measure(ctx, args.arch, implementation, &out, "bench-hit", true)
    };
    let threads = |implementation| -> Result<Vec<Threads>> {
        measure(ctx, args.arch, implementation, &out, "bench-threads", false)
    };
    let attach = |implementation| -> Result<Vec<Attach>> {
        measure(ctx, args.arch, implementation, &out, "bench-attach", false)
    };
    let figures = Figures {
        arch: args.arch.name(),
        instructions: compare_hits(args.arch, &hits(Impl::C)?, &hits(Impl::Rust)?)?,
        threads: compare_threads(&threads(Impl::C)?, &threads(Impl::Rust)?, busy)?,
        attach: compare_attach(&attach(Impl::C)?, &attach(Impl::Rust)?, busy)?,
        idle: compare_idle(measure(
            ctx,
            args.arch,
            Impl::Rust,
            &out,
            "bench-idle",
            true,
        )?),
    };

    table("instructions a hit", &figures.instructions, 0);
    println!();
    table("throughput of 2 threads over 1", &figures.threads, 2);
    println!();
    table("milliseconds", &figures.attach, 1);
    println!();
    idle_table(&figures.idle);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&figures).context("cannot write JSON")?;
        // Relative to where we were called, as any other argument.
        let path = std::path::absolute(path).context("cannot resolve the path for --json")?;
        util::write(&path, text + "\n")?;
    }
    let rows = figures.instructions.iter().chain(&figures.threads);
    let idle = figures.idle.iter().filter(|row| !row.met);
    let missed: Vec<_> = rows
        .chain(&figures.attach)
        .filter(|row| row.met == Some(false))
        .map(|row| &*row.name)
        .chain(idle.map(|row| &*row.name))
        .collect();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("goals missed: {}", missed.join(", "))
}

fn measure<T: DeserializeOwned>(
    ctx: &Ctx,
    arch: Arch,
    implementation: Impl,
    out: &Path,
    program: &str,
    icount: bool,
) -> Result<Vec<T>> {
    let variant = Variant {
        arch,
        implementation,
        profile: Profile::Release,
    };
    let guest = Guest {
        share: Some(out),
        icount,
        timeout: Some(Duration::from_secs(900)),
        script: Some(format!("exec /mnt/share/bench/{program} --all\n")),
        ..Guest::new(variant)
    };
    crate::kernel::ensure(ctx, variant, crate::kernel::Freshness::Fingerprint)?;
    let step = ctx.ui.step(&format!("{program} on {variant}"), Unit::None);
    let mut output = Vec::new();
    let outcome = guest::run(ctx, &guest, &mut |bytes| {
        output.extend_from_slice(bytes);
        Ok(())
    })?;
    if let Some((_, text)) = outcome.failure() {
        bail!("{program} on {variant}: {text}");
    }
    let status = outcome.status.unwrap_or_default();
    ensure!(
        status == 0,
        "{program} on {variant} ended with status {status}"
    );
    step.done("measured");
    parse(&String::from_utf8_lossy(&output))
        .with_context(|| format!("{program} on {variant} printed nonsense"))
}

/// Reads the lines of JSON; comments begin with `#`.
fn parse<T: DeserializeOwned>(output: &str) -> Result<Vec<T>> {
    output
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("in {line:?}")))
        .collect()
}

fn compare_hits(arch: Arch, c: &[Hit], rust: &[Hit]) -> Result<Vec<Row>> {
    rust.iter()
        .map(|hit| {
            let of_c = c
                .iter()
                .find(|other| other.site == hit.site)
                .with_context(|| format!("the C kernel was not measured on {}", hit.site))?;
            let (c, rust) = (of_c.ns_per_hit / NS_PER_INSN, hit.ns_per_hit / NS_PER_INSN);
            let goal = goal(arch, &hit.site).map(Goal::AtMost);
            Ok(Row::new(hit.site.clone(), c, rust, goal, true))
        })
        .collect()
}

fn compare_threads(c: &[Threads], rust: &[Threads], busy: bool) -> Result<Vec<Row>> {
    rust.iter()
        .map(|run| {
            let of_c = c
                .iter()
                .find(|other| other.site == run.site && other.threads == run.threads)
                .with_context(|| format!("the C kernel was not measured on {}", run.site))?;
            let goal = Some(Goal::AtLeast(THREADS_GOAL));
            Ok(Row::new(
                run.site.clone(),
                of_c.ratio,
                run.ratio,
                goal,
                !busy,
            ))
        })
        .collect()
}

fn compare_attach(c: &[Attach], rust: &[Attach], busy: bool) -> Result<Vec<Row>> {
    rust.iter()
        .map(|run| {
            let of_c = c
                .iter()
                .find(|other| other.work == run.work && other.count == run.count)
                .with_context(|| format!("the C kernel was not measured on {}", run.work))?;
            let name = format!("{} {}", run.work, run.count);
            let goal = attach_goal(&run.work);
            Ok(Row::new(name, of_c.ms, run.ms, goal, !busy))
        })
        .collect()
}

fn compare_idle(idle: Vec<Idle>) -> Vec<IdleRow> {
    let goal = Goal::AtMost(IDLE_GOAL);
    idle.into_iter()
        .map(|run| IdleRow {
            name: run.work,
            without_probes: run.without_ns / NS_PER_INSN,
            with_probes: run.with_ns / NS_PER_INSN,
            ratio: run.with_ns / run.without_ns,
            goal,
            met: goal.is_met(run.without_ns, run.with_ns),
        })
        .collect()
}

fn idle_table(rows: &[IdleRow]) {
    println!(
        "{:42} {:>9} {:>8} {:>7}  goal",
        "instructions where nothing is probed", "no probes", "probes", "ratio"
    );
    for row in rows {
        let missed = if row.met { "" } else { "  MISSED" };
        println!(
            "{:42} {:9.0} {:8.0} {:7.4}  {}{missed}",
            row.name, row.without_probes, row.with_probes, row.ratio, row.goal
        );
    }
}

fn table(title: &str, rows: &[Row], digits: usize) {
    println!("{title:42} {:>9} {:>8} {:>7}  goal", "C", "Rust", "ratio");
    for row in rows {
        let goal = row.goal.map_or("-".to_owned(), |goal| goal.to_string());
        let missed = if row.met == Some(false) {
            "  MISSED"
        } else {
            ""
        };
        println!(
            "{:42} {:9.digits$} {:8.digits$} {:7.2}  {goal}{missed}",
            row.name, row.c, row.rust, row.ratio
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_compared_by_site() -> Result<()> {
        let c = parse("# empty BPF program\n{\"site\":\"nop\",\"ns_per_hit\":2000}\n\n")?;
        let rust = parse("{\"site\": \"nop\", \"ns_per_hit\": 1200.0}\n")?;
        let rows = compare_hits(Arch::X86_64, &c, &rust)?;
        assert_eq!((rows[0].c, rows[0].rust), (1000.0, 600.0));
        assert_eq!(rows[0].met, Some(true));
        assert!(compare_hits(Arch::X86_64, &[], &rust).is_err());
        assert!(parse::<Hit>("nop 12\n").is_err());
        Ok(())
    }

    #[test]
    fn threads_have_a_goal_of_their_own() -> Result<()> {
        let line = |ratio| format!("{{\"site\":\"ret\",\"threads\":2,\"ratio\":{ratio}}}");
        let (c, rust) = (parse(&line("0.9"))?, parse(&line("1.8"))?);
        assert_eq!(compare_threads(&c, &rust, false)?[0].met, Some(false));
        assert_eq!(compare_threads(&c, &rust, true)?[0].met, None);
        Ok(())
    }

    #[test]
    fn idle_processes_pay_at_most_a_hundredth() -> Result<()> {
        let rows = compare_idle(parse(
            "{\"work\":\"a\",\"without_ns\":1000.0,\"with_ns\":1009.0}\n\
             {\"work\":\"b\",\"without_ns\":1000.0,\"with_ns\":1011.0}\n",
        )?);
        assert_eq!([rows[0].met, rows[1].met], [true, false]);
        assert_eq!(rows[0].without_probes, 500.0);
        Ok(())
    }

    #[test]
    fn work_is_judged_by_the_clock_or_beside_c() -> Result<()> {
        let line = |work, ms| format!("{{\"work\":\"{work}\",\"count\":256,\"ms\":{ms}}}");
        let judge = |work, c, rust| -> Result<Option<bool>> {
            let (c, rust) = (parse(&line(work, c))?, parse(&line(work, rust))?);
            Ok(compare_attach(&c, &rust, false)?[0].met)
        };
        assert_eq!(judge("perf kprobe: close", 26000, 99)?, Some(true));
        assert_eq!(judge("perf kprobe: close", 26000, 101)?, Some(false));
        assert_eq!(judge("uprobe_multi: attach", 100, 20)?, Some(true));
        assert_eq!(judge("uprobe_multi: attach", 100, 21)?, Some(false));
        assert_eq!(judge("uprobe_events: remove", 1, 2)?, None);
        Ok(())
    }
}
