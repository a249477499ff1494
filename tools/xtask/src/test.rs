// SPDX-License-Identifier: GPL-2.0

//! `test`: the host's tests, then the guest suite on each kernel.

use crate::{
    cli::TestArgs,
    ctx::Ctx,
    guest::{self, Guest},
    host,
    kernel::{Impl, Profile, Variant},
    ktap::{Parser, Report, Status, Tally},
    proc,
    selftests,
    ui::Unit,
    util, //
};
use anyhow::{bail, Context, Result};
use std::{
    collections::BTreeMap,
    path::Path,
    process::ExitCode,
    time::Duration, //
};

/// Kernels that the guest suite runs on. On the C one, to prove that the tests are right.
const KERNELS: [(Impl, Profile); 3] = [
    (Impl::Rust, Profile::Release),
    (Impl::C, Profile::Release),
    (Impl::Rust, Profile::Debug),
];

/// Runs the tests; the last line of standard output tells the numbers.
pub(crate) fn run(ctx: &Ctx, args: &TestArgs) -> Result<ExitCode> {
    let mut rows = Vec::new();
    if !args.guest {
        for (name, tally) in host::run(ctx, args.quick)? {
            rows.push((format!("host: {name}"), tally));
        }
    }
    if !args.host {
        let out = selftests::build(ctx, args.arch)?;
        for variant in variants(args)? {
            // One kernel that does not build or boot leaves the others worth testing.
            let tally = guest_suite(ctx, args, variant, &out).unwrap_or_else(|error| {
                eprintln!("error: {variant}: {error:#}");
                Tally {
                    failed: 1,
                    ..Tally::default()
                }
            });
            rows.push((format!("guest: {variant}"), tally));
        }
    }

    let width = rows
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or_default();
    let mut all = Tally::default();
    println!("{:width$}  passed  failed  skipped", "");
    for (name, tally) in &rows {
        let Tally {
            passed,
            failed,
            skipped,
        } = tally;
        println!("{name:width$}  {passed:6}  {failed:6}  {skipped:7}");
        all += *tally;
    }
    println!("\n{all}");
    Ok(if all.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn variants(args: &TestArgs) -> Result<Vec<Variant>> {
    let all = KERNELS.map(|(implementation, profile)| Variant {
        arch: args.arch,
        implementation,
        profile,
    });
    let Some(only) = &args.on else {
        // The first is the one that matters most, the last takes the longest.
        let count = match (args.quick, args.full) {
            (true, _) => 1,
            (_, true) => all.len(),
            _ => 2,
        };
        return Ok(all[..count].to_vec());
    };
    for implementation in [Impl::Rust, Impl::C] {
        for profile in [Profile::Release, Profile::Debug] {
            if *only == format!("{}-{}", implementation.name(), profile.name()) {
                return Ok(vec![Variant {
                    arch: args.arch,
                    implementation,
                    profile,
                }]);
            }
        }
    }
    bail!("there is no kernel {only}; give rust-release, rust-debug, c-release or c-debug")
}

/// The suite on one kernel.
fn guest_suite(ctx: &Ctx, args: &TestArgs, variant: Variant, out: &Path) -> Result<Tally> {
    let is_debug = variant.profile == Profile::Debug;
    let mut words = vec!["exec sh /mnt/share/run.sh".to_owned()];
    let minutes = match (args.quick, args.full) {
        (true, _) => {
            words.push("--quick".to_owned());
            15
        }
        (_, true) => {
            words.push("--full".to_owned());
            120
        }
        _ => 45,
    };
    words.extend(args.filter.iter().map(|filter| proc::quote(filter)));
    let guest = Guest {
        share: Some(out),
        memory: if is_debug { 2048 } else { 1024 },
        timeout: Some(Duration::from_secs(minutes * 60)),
        leaks: is_debug,
        // KUnit reports while booting, at a level that is not shown otherwise.
        append: if is_debug { "loglevel=7" } else { "" },
        script: Some(format!(
            "export ARCH={} IMPL={} PROFILE={} FTRACE_SELFTESTS=/mnt/share/ftrace\n{}\n",
            variant.arch.name(),
            variant.implementation.name(),
            variant.profile.name(),
            words.join(" ")
        )),
        ..Guest::new(variant)
    };
    // The build has a progress line of its own.
    crate::kernel::ensure(ctx, variant, crate::kernel::Freshness::Fingerprint)?;
    let step = ctx
        .ui
        .step(&format!("Guest suite on {variant}"), Unit::Steps(None));
    let mut parser = Parser::default();
    let mut raw = Vec::new();
    let outcome = guest::run(ctx, &guest, &mut |bytes| {
        raw.extend_from_slice(bytes);
        parser.bytes(bytes);
        step.set(parser.seen());
        Ok(())
    })?;
    let ktap = ctx.repo.join(format!("target/test/{variant}.ktap"));
    util::write(&ktap, raw)?;
    let mut report = parser.finish();

    if is_debug && variant.implementation == Impl::Rust {
        let kunit = kunit(&outcome.log)?;
        report.tests.extend(kunit.tests);
        let errors = kunit.errors.into_iter();
        report
            .errors
            .extend(errors.map(|error| format!("KUnit: {error}")));
    }
    if let Some((_, text)) = outcome.failure() {
        report.errors.push(text);
    }
    let all_good = report
        .tests
        .iter()
        .all(|test| test.status != Status::Failed);
    if let Some(status) = outcome.status.filter(|status| *status != 0 && all_good) {
        report.errors.push(format!(
            "the suite ended with status {status} though no test failed"
        ));
    }
    let tally = show(variant, &report, &ktap, &outcome.log);
    step.done(&tally.to_string());
    Ok(tally)
}

/// What the kernel's own unit tests said on the console while booting.
fn kunit(log: &Path) -> Result<Report> {
    let text = util::read_bytes(log).context("no console log")?;
    let mut parser = Parser::default();
    for line in String::from_utf8_lossy(&text).lines() {
        // The time stamp goes, the indentation after it stays.
        let line = match line.split_once("] ") {
            Some((stamp, rest)) if stamp.starts_with('[') => rest,
            _ => line,
        };
        parser.line(line);
    }
    Ok(parser.finish())
}

/// Prints what is not simply good, and counts.
fn show(variant: Variant, report: &Report, ktap: &Path, log: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut skipped: BTreeMap<&str, u64> = BTreeMap::new();
    for test in &report.tests {
        tally.count(test.status);
        match test.status {
            Status::Failed => println!("FAILED  {variant}: {} {}", test.name, test.reason),
            Status::Skipped => {
                *skipped.entry(&test.reason).or_default() += 1;
            }
            Status::ExpectedFailure => {
                println!("known   {variant}: {} {}", test.name, test.reason);
            }
            Status::Passed => (),
        }
    }
    for (reason, count) in skipped {
        println!("skipped {variant}: {count} tests: {reason}");
    }
    for error in &report.errors {
        println!("FAILED  {variant}: {error}");
        tally.failed += 1;
    }
    if tally.failed > 0 {
        println!(
            "        {variant}: results in {}, console in {}",
            ktap.display(),
            log.display()
        );
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kunit_is_found_among_other_messages() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("log");
        util::write(
            &log,
            "[    0.1] Linux\n[    1.0] KTAP version 1\n[    1.0] 1..1\n\
             [    1.0]     KTAP version 1\n[    1.0]     # Subtest: uprobes\n[    1.0]     1..2\n\
             [    1.0]     ok 1 a\n[    1.1] something else\n[    1.1]     ok 2 b\n\
             [    1.2] # uprobes: pass:2 fail:0 skip:0 total:2\n[    1.2] ok 1 uprobes\n",
        )?;
        let report = kunit(&log)?;
        assert_eq!(report.errors, Vec::<String>::new());
        assert_eq!(report.tests.len(), 2);
        assert_eq!(report.tests[0].name, "uprobes.a");
        util::write(&log, "[    0.1] Linux\n")?;
        assert!(!kunit(&log)?.errors.is_empty());
        Ok(())
    }
}
