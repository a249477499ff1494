// SPDX-License-Identifier: GPL-2.0

//! `test`: the host's tests, then the guest suite on each kernel.

use crate::{
    arch::Arch,
    cli::TestArgs,
    ctx::Ctx,
    guest::{self, Guest},
    host,
    kernel::{self, Freshness, Impl, Profile, Variant},
    ktap::{Parser, Report, Status, Tally},
    proc,
    selftests,
    ui::Unit,
    util, //
};
use anyhow::{bail, Context, Result};
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration, //
};

/// Runs the tests; the last line of standard output tells the numbers.
///
/// The kernels are built, and after that the guests run, beside the host's tests. Most of a guest's
/// tests keep one CPU busy or wait, so as many guests run at a time as there are CPUs.
pub(crate) fn run(ctx: &Ctx, args: &TestArgs) -> Result<ExitCode> {
    let variants = if args.host {
        Vec::new()
    } else {
        variants(args)?
    };
    let (host, guests) = thread::scope(|scope| {
        let guests = scope.spawn(move || {
            let built = variants
                .into_iter()
                .map(|variant| (variant, build(ctx, variant)))
                .collect::<Vec<_>>();
            // Each by itself: a thread that has none left takes one of another's.
            built
                .into_par_iter()
                .with_max_len(1)
                .map(|(variant, out)| (variant, suite_or_failure(ctx, args, variant, out)))
                .collect::<Vec<_>>()
        });
        let host = if args.is_guest_only() {
            Ok(Vec::new())
        } else {
            host::run(ctx, args.quick)
        };
        (host, guests.join())
    });
    let Ok(guests) = guests else {
        bail!("the thread that builds the kernels and runs the guests panicked");
    };
    let mut rows = Vec::new();
    for (name, tally) in host? {
        rows.push((format!("host: {name}"), tally));
    }
    for (variant, tally) in guests {
        rows.push((format!("guest: {variant}"), tally));
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

/// The suite on one kernel, if it was built. One that does not build or boot counts as a failed test
/// and leaves the others worth testing.
fn suite_or_failure(ctx: &Ctx, args: &TestArgs, variant: Variant, out: Result<PathBuf>) -> Tally {
    out.and_then(|out| guest_suite(ctx, args, variant, &out))
        .unwrap_or_else(|error| {
            eprintln!("error: {variant}: {error:#}");
            Tally {
                failed: 1,
                ..Tally::default()
            }
        })
}

/// Builds the kernel, and the programs for its guest; returns the directory of those.
fn build(ctx: &Ctx, variant: Variant) -> Result<PathBuf> {
    kernel::ensure(ctx, variant, Freshness::Fingerprint)?;
    selftests::build(ctx, variant.arch)
}

/// The kernels that the guest suite runs on: those that matter most first. A C kernel is
/// there to prove that the tests are right.
fn variants(args: &TestArgs) -> Result<Vec<Variant>> {
    const RELEASE: (Impl, Profile) = (Impl::Rust, Profile::Release);
    const DEBUG: (Impl, Profile) = (Impl::Rust, Profile::Debug);
    const C: (Impl, Profile) = (Impl::C, Profile::Release);

    let only = args.on.as_deref().map(kernel_of).transpose()?;
    let archs = match (&*args.arch, args.quick || only.is_some()) {
        ([], true) => &[Arch::X86_64],
        ([], false) => &Arch::ALL[..],
        (given, _) => given,
    };
    let mut variants = Vec::new();
    let mut add = |arch, (implementation, profile)| {
        let variant = Variant {
            arch,
            implementation,
            profile,
        };
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    };
    if let Some(only) = only {
        archs.iter().for_each(|arch| add(*arch, only));
        return Ok(variants);
    }
    for arch in archs {
        add(*arch, RELEASE);
    }
    for arch in archs {
        if args.full || (*arch == Arch::X86_64 && !args.quick) {
            add(*arch, DEBUG);
        }
    }
    if args.full {
        archs.iter().for_each(|arch| add(*arch, C));
    }
    Ok(variants)
}

/// The kernel that `--on` names.
fn kernel_of(name: &str) -> Result<(Impl, Profile)> {
    for implementation in [Impl::Rust, Impl::C] {
        for profile in [Profile::Release, Profile::Debug] {
            if name == format!("{}-{}", implementation.name(), profile.name()) {
                return Ok((implementation, profile));
            }
        }
    }
    bail!("there is no kernel {name}; give rust-release, rust-debug, c-release or c-debug")
}

/// How much longer than they say the time limits of tests are, which are for tests that hang: the
/// CPUs are others' too.
const TIME_LIMITS: u32 = 10;

/// The status of the suite if it has no test with the filter in its name.
const NO_MATCH: u8 = 2;

/// The suite on one kernel.
fn guest_suite(ctx: &Ctx, args: &TestArgs, variant: Variant, out: &Path) -> Result<Tally> {
    let is_debug = variant.profile == Profile::Debug;
    let mut words = vec!["exec sh /mnt/share/run.sh".to_owned()];
    // C is there to prove the tests, for which their usual length does.
    let full = args.full && variant.implementation == Impl::Rust;
    let minutes = match (args.quick, full) {
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
            "export ARCH={} IMPL={} PROFILE={} FTRACE_SELFTESTS=/mnt/share/ftrace UPT_SLOW={}\n{}\n",
            variant.arch.name(),
            variant.implementation.name(),
            variant.profile.name(),
            TIME_LIMITS,
            words.join(" ")
        )),
        ..Guest::new(variant)
    };
    let step = ctx
        .ui
        .step(&format!("Guest suite on {variant}"), Unit::Steps(None));
    let mut parser = Parser::default();
    let mut raw = Vec::new();
    let mut outcome = guest::run(ctx, &guest, &mut |bytes| {
        raw.extend_from_slice(bytes);
        parser.bytes(bytes);
        step.set(parser.seen());
        Ok(())
    })?;
    let mut report = parser.finish();
    let none_ran = outcome.status == Some(NO_MATCH) && report.tests.is_empty();
    if let (true, Some(filter)) = (none_ran, &args.filter) {
        bail!("no guest test has {filter:?} in its name");
    }
    let ktap = ctx.repo.join(format!("target/test/{variant}.ktap"));
    util::write(&ktap, raw)?;

    if is_debug && variant.implementation == Impl::Rust {
        let kunit = kunit(&outcome.log)?;
        report.tests.extend(kunit.tests);
        let errors = kunit.errors.into_iter();
        report
            .errors
            .extend(errors.map(|error| format!("KUnit: {error}")));
    }
    // C warns where it is wrong, which is for the tests to show.
    if variant.implementation == Impl::C {
        for text in outcome.splats.drain(..) {
            println!("known   {variant}: the kernel complained: {text}");
        }
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

    fn names(args: &TestArgs) -> Result<Vec<String>> {
        let variants = variants(args)?;
        Ok(variants.iter().map(Variant::to_string).collect())
    }

    const PLAIN: TestArgs = TestArgs {
        arch: Vec::new(),
        quick: false,
        full: false,
        host: false,
        guest: false,
        on: None,
        filter: None,
    };

    #[test]
    fn kernels_of_each_kind_of_run() -> Result<()> {
        assert_eq!(
            names(&PLAIN)?,
            [
                "x86_64-rust-release",
                "arm64-rust-release",
                "riscv64-rust-release",
                "x86_64-rust-debug"
            ]
        );
        let quick = TestArgs {
            quick: true,
            ..PLAIN
        };
        assert_eq!(names(&quick)?, ["x86_64-rust-release"]);
        let full = TestArgs {
            full: true,
            arch: vec![Arch::Arm64],
            ..PLAIN
        };
        assert_eq!(
            names(&full)?,
            ["arm64-rust-release", "arm64-rust-debug", "arm64-c-release"]
        );
        Ok(())
    }

    #[test]
    fn one_kernel_of_several_architectures() -> Result<()> {
        let on = |arch, name: &str| {
            names(&TestArgs {
                arch,
                on: Some(name.to_owned()),
                ..PLAIN
            })
        };
        assert_eq!(on(Vec::new(), "c-release")?, ["x86_64-c-release"]);
        assert_eq!(
            on(vec![Arch::Arm64, Arch::Riscv64], "rust-debug")?,
            ["arm64-rust-debug", "riscv64-rust-debug"]
        );
        assert_eq!(
            on(vec![Arch::Arm64, Arch::Arm64], "c-release")?,
            ["arm64-c-release"]
        );
        assert!(on(Vec::new(), "rust").is_err());
        Ok(())
    }

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
