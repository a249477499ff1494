// SPDX-License-Identifier: GPL-2.0

//! `bench`: what a hit costs, on C and Rust kernels of the same configuration.
//!
//! Two guest programs measure, and print a line of JSON for each kind of site:
//!
//! - `bench/bench-hit --all`, on one CPU whose clock counts instructions:
//!   `{"site": "nop", "ns_per_hit": 1200.0}`. It runs each site twice, with different
//!   numbers of iterations, with and without a probe, so that only the hit remains.
//! - `bench/bench-threads --all`, on two CPUs against the wall clock:
//!   `{"site": "nop", "threads": 2, "ratio": 1.95}`, the throughput of that many threads
//!   over that of one.

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

#[derive(Deserialize)]
struct Threads {
    site: String,
    threads: u32,
    ratio: f64,
}

/// What came out for a site; also the form of `--json`.
#[derive(Serialize)]
struct Row {
    site: String,
    c: f64,
    rust: f64,
    ratio: f64,
    goal: Option<f64>,
    met: Option<bool>,
}

#[derive(Serialize)]
struct Figures {
    arch: &'static str,
    /// Instructions for each hit.
    instructions: Vec<Row>,
    /// Throughput of two threads over that of one.
    threads: Vec<Row>,
}

/// Measures, prints tables, and fails if a goal is missed.
pub(crate) fn run(ctx: &Ctx, args: &BenchArgs) -> Result<ExitCode> {
    let out = selftests::build(ctx, args.arch)?;
    // Counted instructions do not care, the wall clock does.
    let busy = load().is_some_and(|load| load > QUIET_LOAD);
    if busy {
        ctx.ui
            .note("the machine is busy: throughput is shown, but not judged");
    }
    let hits = |implementation| -> Result<Vec<Hit>> {
        measure(ctx, args.arch, implementation, &out, "bench-hit", true)
    };
    let threads = |implementation| -> Result<Vec<Threads>> {
        measure(ctx, args.arch, implementation, &out, "bench-threads", false)
    };
    let figures = Figures {
        arch: args.arch.name(),
        instructions: compare_hits(args.arch, &hits(Impl::C)?, &hits(Impl::Rust)?)?,
        threads: compare_threads(&threads(Impl::C)?, &threads(Impl::Rust)?, busy)?,
    };

    table("instructions a hit", &figures.instructions, 0, "at most");
    println!();
    table(
        "throughput of 2 threads over 1",
        &figures.threads,
        2,
        "at least",
    );
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&figures).context("cannot write JSON")?;
        // Relative to where we were called, as any other argument.
        let path = std::path::absolute(path).context("cannot resolve the path for --json")?;
        util::write(&path, text + "\n")?;
    }
    let rows = figures.instructions.iter().chain(&figures.threads);
    let missed: Vec<_> = rows
        .filter(|row| row.met == Some(false))
        .map(|row| &*row.site)
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
            let ratio = rust / c;
            let goal = goal(arch, &hit.site);
            Ok(Row {
                site: hit.site.clone(),
                c,
                rust,
                ratio,
                goal,
                met: goal.map(|goal| ratio <= goal),
            })
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
            Ok(Row {
                site: run.site.clone(),
                c: of_c.ratio,
                rust: run.ratio,
                ratio: run.ratio / of_c.ratio,
                goal: Some(THREADS_GOAL),
                met: (!busy).then_some(run.ratio >= THREADS_GOAL),
            })
        })
        .collect()
}

fn table(title: &str, rows: &[Row], digits: usize, bound: &str) {
    println!("{title:32} {:>8} {:>8} {:>7}  goal", "C", "Rust", "ratio");
    for row in rows {
        let goal = match (row.goal, row.met) {
            (Some(goal), met) => {
                let missed = if met == Some(false) { "  MISSED" } else { "" };
                format!("{bound} {goal:.2}{missed}")
            }
            _ => "-".to_owned(),
        };
        println!(
            "{:32} {:8.digits$} {:8.digits$} {:7.2}  {goal}",
            row.site, row.c, row.rust, row.ratio
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
}
