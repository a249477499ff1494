// SPDX-License-Identifier: GPL-2.0

//! Reads test results in the Kernel Test Anything Protocol, version 1.
//!
//! The kernel's `Documentation/dev-tools/ktap.rst` describes the format. Lines that are no
//! part of it, such as a console's other messages, are passed over. What a test run cut
//! short leaves behind is an error: a plan that is not fulfilled, or results of which the
//! summing-up is missing.

use regex::Regex;
use std::{fmt, ops::AddAssign, sync::LazyLock};

static RESULT: LazyLock<Regex> = LazyLock::new(|| {
    // PANIC: the expression is a constant, which the tests below compile.
    Regex::new(r"^(not )?ok\b\s*(\d+)?\s*(?:- )?(.*?)(?:\s*# ?(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b:?\s*(.*))?$")
        .expect("a constant expression")
});

/// How a test came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// As it should.
    Passed,
    /// Not as it should.
    Failed,
    /// Could not be run here.
    Skipped,
    /// As expected of a known fault.
    ExpectedFailure,
}

/// A test that has no tests below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Test {
    /// Names of the tests above it and its own, joined by dots.
    pub(crate) name: String,
    pub(crate) status: Status,
    /// What was said about a skipped or failed test.
    pub(crate) reason: String,
}

/// Numbers of tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Counts one more. An expected failure shows nothing about the kernel that is tested,
    /// so it does not count as passed.
    pub(crate) fn count(&mut self, status: Status) {
        *match status {
            Status::Passed => &mut self.passed,
            Status::Failed => &mut self.failed,
            Status::Skipped | Status::ExpectedFailure => &mut self.skipped,
        } += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// All results of a run.
#[derive(Default, Debug)]
pub(crate) struct Report {
    pub(crate) tests: Vec<Test>,
    /// Offences against the format.
    pub(crate) errors: Vec<String>,
}

/// Tests of one indentation.
struct Level {
    indent: usize,
    plan: Option<u64>,
    results: u64,
    tests: Vec<Test>,
}

/// Takes a run's output piece by piece.
#[derive(Default)]
pub(crate) struct Parser {
    partial: Vec<u8>,
    levels: Vec<Level>,
    seen: u64,
    errors: Vec<String>,
}

impl Parser {
    /// Takes the next bytes.
    pub(crate) fn bytes(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&bytes[..end]);
            let line = std::mem::take(&mut self.partial);
            self.line(&String::from_utf8_lossy(&line));
            bytes = &bytes[end + 1..];
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Tests with results so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes the next line.
    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        if text.starts_with("KTAP version ") || text.starts_with("TAP version ") {
            self.enter(indent);
        } else if let Some(plan) = text.strip_prefix("1..") {
            let plan = plan.split([' ', '#']).next().unwrap_or_default();
            if let Ok(plan) = plan.parse() {
                self.enter(indent);
                if let Some(level) = self.levels.last_mut() {
                    level.plan = Some(plan);
                }
            }
        } else if !self.levels.is_empty() {
            if let Some(result) = RESULT.captures(text) {
                self.result(indent, &result);
            }
        }
    }

    /// Makes the level of `indent` the current one, which may be deeper than before.
    fn enter(&mut self, indent: usize) {
        if self.levels.last().is_none_or(|level| level.indent < indent) {
            self.levels.push(Level {
                indent,
                plan: None,
                results: 0,
                tests: Vec::new(),
            });
        }
    }

    fn result(&mut self, indent: usize, captures: &regex::Captures<'_>) {
        let get = |group| captures.get(group).map(|text| text.as_str());
        let name = get(3).unwrap_or_default().trim().to_owned();
        let failed = get(1).is_some();
        let status = match get(4) {
            Some("SKIP") => Status::Skipped,
            // What was expected to fail and did not is simply good.
            Some("TODO") if !failed => Status::Passed,
            Some("TODO" | "XFAIL") => Status::ExpectedFailure,
            Some(_) => Status::Failed,
            None if failed => Status::Failed,
            None => Status::Passed,
        };
        self.enter(indent);
        let mut below = Vec::new();
        while self.levels.len() > 1
            && self
                .levels
                .last()
                .is_some_and(|level| level.indent > indent)
        {
            if let Some(level) = self.levels.pop() {
                self.check(&level, &name);
                below.extend(level.tests);
            }
        }
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        level.results += 1;
        if let Some(number) = get(2).and_then(|number| number.parse::<u64>().ok()) {
            if number != level.results {
                let text = format!("{name}: number {number} where {} was due", level.results);
                self.errors.push(text);
                level.results = number;
            }
        }
        let reason = get(5).unwrap_or_default().to_owned();
        let agrees = below.iter().any(|test: &Test| test.status == status);
        for test in &mut below {
            test.name = format!("{name}.{}", test.name);
        }
        // A summing-up is no test, unless it tells of a failure that no test below it did.
        if below.is_empty() || (status == Status::Failed && !agrees) {
            self.seen += 1;
            below.push(Test {
                name,
                status,
                reason,
            });
        }
        level.tests.extend(below);
    }

    fn check(&mut self, level: &Level, name: &str) {
        let above = if name.is_empty() { "the run" } else { name };
        match level.plan {
            Some(plan) if plan != level.results => self.errors.push(format!(
                "{above}: {} of {plan} planned tests reported",
                level.results
            )),
            Some(_) => (),
            None => self.errors.push(format!("{above}: no plan")),
        }
    }

    /// Takes the end of the output.
    pub(crate) fn finish(mut self) -> Report {
        if !self.partial.is_empty() {
            self.bytes(b"\n");
        }
        let mut tests = Vec::new();
        if self.levels.is_empty() {
            self.errors.push("no test results at all".to_owned());
        }
        while let Some(level) = self.levels.pop() {
            self.check(&level, "");
            if !self.levels.is_empty() {
                self.errors
                    .push("the run ended within a group of tests".to_owned());
            }
            tests.splice(0..0, level.tests);
        }
        Report {
            tests,
            errors: self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Report {
        let mut parser = Parser::default();
        // In pieces, as a pipe gives them.
        text.as_bytes()
            .chunks(7)
            .for_each(|piece| parser.bytes(piece));
        parser.finish()
    }

    fn tally(report: &Report) -> (u64, u64, u64) {
        let mut tally = Tally::default();
        report
            .tests
            .iter()
            .for_each(|test| tally.count(test.status));
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn flat() {
        let report = parse(
            "noise\nKTAP version 1\n1..6\nok 1 - nop\n# diagnostic\nnot ok 2 push # got 3\n\
             ok 3 cet # SKIP no shadow stack\nnot ok 4 lost # TODO C loses it\n\
             ok 5 fault # XFAIL as C does\nnot ok 6 slow # TIMEOUT 45 s",
        );
        assert_eq!(report.errors, Vec::<String>::new());
        assert_eq!(tally(&report), (1, 2, 3));
        assert_eq!(report.tests[0].name, "nop");
        assert_eq!(report.tests[2].reason, "no shadow stack");
        assert_eq!(report.tests[3].status, Status::ExpectedFailure);
        assert_eq!(report.tests[5].status, Status::Failed);
    }

    #[test]
    fn nested() {
        let report = parse(
            "KTAP version 1\n1..2\n  KTAP version 1\n  # Subtest: a\n  1..2\n  ok 1 one\n\
             \x20   KTAP version 1\n    1..1\n    not ok 1 deep\n  not ok 2 two\nnot ok 1 a\n\
             ok 2 b\n",
        );
        assert_eq!(report.errors, Vec::<String>::new());
        let names: Vec<_> = report.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["a.one", "a.two.deep", "b"]);
        assert_eq!(tally(&report), (2, 1, 0));
    }

    #[test]
    fn failure_of_a_group_alone_counts() {
        let report = parse("KTAP version 1\n1..1\n  1..1\n  ok 1 x\nnot ok 1 group\n");
        assert_eq!(tally(&report), (1, 1, 0));
    }

    #[test]
    fn truncated_runs_are_errors() {
        for text in [
            "",
            "ok 1 without a header\n",
            "KTAP version 1\n1..2\nok 1 a\n",
            "KTAP version 1\nok 1 a\n",
            "KTAP version 1\n1..1\n  KTAP version 1\n  1..2\n  ok 1 x\nok 1 a\n",
            "KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n  ok 1 x\n",
            "KTAP version 1\n1..2\nok 1 a\nok 3 b\n",
        ] {
            assert!(!parse(text).errors.is_empty(), "{text}");
        }
    }
}
