// SPDX-License-Identifier: GPL-2.0

//! Tests that run on the host: formatting, lints, documentation, unit and property tests,
//! loom's models, Miri.

use crate::{ctx::Ctx, ktap::Tally, proc, ui::Unit, util};
use anyhow::Result;

/// A check that is passed or failed as a whole, or a test run that counts.
struct Check {
    name: &'static str,
    command: proc::Cmd,
    counts: bool,
}

/// Runs all of them and returns what came out of each.
pub(crate) fn run(ctx: &Ctx, quick: bool) -> Result<Vec<(String, Tally)>> {
    let cargo = |args: &[&str]| proc::cmd("cargo").args(args).dir(&ctx.repo);
    // With other flags in another place, or each run would rebuild what the other built.
    let target = |name: &str| ctx.repo.join("target").join(name);
    let mut checks = vec![
        Check {
            name: "fmt",
            command: cargo(&["fmt", "--all", "--check"]),
            counts: false,
        },
        Check {
            name: "clippy",
            command: cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--"])
                .args(["-D", "warnings"]),
            counts: false,
        },
        Check {
            name: "rustdoc",
            command: cargo(&["doc", "--workspace", "--no-deps", "--locked"])
                .arg("--document-private-items")
                .env("RUSTDOCFLAGS", "-D warnings"),
            counts: false,
        },
        Check {
            name: "unit tests",
            command: cargo(&["test", "--workspace", "--locked"]),
            counts: true,
        },
        Check {
            name: "loom",
            command: cargo(&[
                "test",
                "-p",
                "uprobes_core",
                "--release",
                "--lib",
                "--locked",
            ])
            .arg("loom")
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target("loom")),
            counts: true,
        },
    ];
    let mut results = Vec::new();
    if !quick {
        checks.push(Check {
            name: "decoders",
            // Ten times as many random words as without optimisation.
            command: cargo(&["test", "-p", "uprobes_arch", "--release", "--locked"])
                .args(["--test", "arm64", "--test", "riscv"])
                .args(["--", "decoder", "disassembler"]),
            counts: true,
        });
        match miri_toolchain(ctx) {
            Ok(()) => checks.push(Check {
                name: "Miri",
                command: cargo(&["+nightly", "miri", "test", "--locked"])
                    .args(["-p", "uprobes_core", "-p", "uprobes_arch"])
                    // Property tests look for a file of past failures; and an interpreter
                    // has no time for thousands of cases.
                    .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                    .env("PROPTEST_CASES", "8")
                    .env("CARGO_TARGET_DIR", target("miri")),
                counts: true,
            }),
            Err(error) => {
                ctx.ui.note(&format!("Miri is skipped: {error:#}"));
                let skipped = Tally {
                    skipped: 1,
                    ..Tally::default()
                };
                results.push(("Miri".to_owned(), skipped));
            }
        }
    }
    for check in checks {
        let name = check.name;
        let tally = run_one(ctx, check)?;
        results.push((name.to_owned(), tally));
    }
    Ok(results)
}

fn run_one(ctx: &Ctx, check: Check) -> Result<Tally> {
    util::mkdir(&ctx.cached("logs"))?;
    let log = ctx.cached(format!("logs/host-{}.log", check.name.replace(' ', "-")));
    let step = ctx
        .ui
        .step(&format!("Host: {}", check.name), Unit::Steps(None));
    let mut tally = Tally::default();
    let mut lines = 0;
    let result = check.command.logged(&log, |line| {
        lines += 1;
        step.set(lines);
        if let Some(counted) = test_result(line).filter(|_| check.counts) {
            tally += counted;
        }
    });
    match result {
        Ok(()) if check.counts && tally == Tally::default() => {
            // A filter that matches nothing must not look like a success.
            ctx.ui.note(&format!("{}: no tests were run", check.name));
            tally.failed += 1;
        }
        Ok(()) if !check.counts => tally.passed += 1,
        Ok(()) => (),
        Err(error) => {
            ctx.ui.note(&format!("{}: {error:#}", check.name));
            // One that could not even be compiled has counted nothing.
            tally.failed = tally.failed.max(1);
        }
    }
    step.done(&tally.to_string());
    Ok(tally)
}

/// The numbers in `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn test_result(line: &str) -> Option<Tally> {
    let (_, numbers) = line
        .trim_start()
        .strip_prefix("test result: ")?
        .split_once(". ")?;
    let number = |what: &str| {
        let mut parts = numbers.split("; ");
        parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Tally {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("ignored")?,
    })
}

/// Makes sure that there is a nightly toolchain with Miri.
fn miri_toolchain(ctx: &Ctx) -> Result<()> {
    let there = || {
        let miri = || proc::cmd("cargo").args(["+nightly", "miri", "--version"]);
        let source = proc::cmd("rustc")
            .args(["+nightly", "--print", "sysroot"])
            .read();
        miri().succeeds()
            && source.is_ok_and(|root| {
                std::path::Path::new(&root)
                    .join("lib/rustlib/src/rust/library")
                    .exists()
            })
    };
    if there() {
        return Ok(());
    }
    let _step = ctx.ui.step("Installing Miri", Unit::None);
    proc::cmd("rustup")
        .args(["toolchain", "install", "nightly", "--profile", "minimal"])
        .args([
            "--component",
            "miri",
            "--component",
            "rust-src",
            "--no-self-update",
        ])
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_cargo_test() {
        let line = "test result: FAILED. 10 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s";
        let tally = Tally {
            passed: 10,
            failed: 2,
            skipped: 1,
        };
        assert_eq!(test_result(line), Some(tally));
        assert_eq!(test_result("test result_is_kept ... ok"), None);
    }
}
