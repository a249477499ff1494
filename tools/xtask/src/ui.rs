// SPDX-License-Identifier: GPL-2.0

//! Messages and progress, on standard error.
//!
//! On a terminal a line shows what is going on; elsewhere there is one plain line when a
//! step begins that takes time, one a minute while it lasts, and one when it is done.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{
    io::IsTerminal,
    sync::Mutex,
    time::{Duration, Instant}, //
};

/// Where messages go. Several threads may have steps at the same time.
pub(crate) struct Ui {
    terminal: bool,
    bars: MultiProgress,
}

impl Default for Ui {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            bars: MultiProgress::new(),
        }
    }
}

/// How a step counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Only time.
    None,
    /// Things done, of a total if that is known.
    Steps(Option<u64>),
    /// Bytes of a total.
    Bytes(u64),
}

impl Ui {
    /// Says something.
    pub(crate) fn note(&self, text: &str) {
        self.bars.suspend(|| eprintln!("xtask: {text}"));
    }

    /// Begins something that takes a while.
    pub(crate) fn step(&self, text: &str, unit: Unit) -> Step {
        let (template, total) = match unit {
            Unit::None => ("{spinner} {msg} [{elapsed}]", None),
            Unit::Steps(None) => ("{spinner} {msg} {pos} steps [{elapsed}]", None),
            Unit::Steps(Some(n)) => (
                "{spinner} {msg} {pos}/{len} {wide_bar} [{elapsed}]",
                Some(n),
            ),
            Unit::Bytes(n) => (
                "{spinner} {msg} {bytes}/{total_bytes} {wide_bar} [{elapsed}]",
                Some(n),
            ),
        };
        let bar = if self.terminal {
            let bar = self.bars.add(match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::no_length(),
            });
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(text.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        } else {
            self.note(text);
            let bar = ProgressBar::hidden();
            bar.set_length(total.unwrap_or(0));
            bar
        };
        Step {
            bar,
            text: text.to_owned(),
            terminal: self.terminal,
            start: Instant::now(),
            said: Mutex::new(Instant::now()),
        }
    }
}

/// Something that takes a while; ends when dropped.
pub(crate) struct Step {
    bar: ProgressBar,
    text: String,
    terminal: bool,
    start: Instant,
    said: Mutex<Instant>,
}

impl Step {
    /// Sets how far it is.
    pub(crate) fn set(&self, done: u64) {
        // A total from an earlier run may be too small by now.
        if self
            .bar
            .length()
            .is_some_and(|total| total != 0 && done > total)
        {
            self.bar.set_length(done);
        }
        self.bar.set_position(done);
        let Ok(mut said) = self.said.lock() else {
            return;
        };
        if !self.terminal && said.elapsed() > Duration::from_secs(60) {
            *said = Instant::now();
            let total = match self.bar.length() {
                Some(total) if total != 0 => format!("/{total}"),
                _ => String::new(),
            };
            eprintln!(
                "xtask: {}: {done}{total}, {}",
                self.text,
                seconds(self.start)
            );
        }
    }

    /// Ends it with a line that tells the outcome.
    pub(crate) fn done(self, outcome: &str) {
        self.bar.finish_and_clear();
        let took = seconds(self.start);
        self.bar
            .suspend(|| eprintln!("xtask: {}: {outcome} in {took}", self.text));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Time since `start`, for people.
pub(crate) fn seconds(start: Instant) -> String {
    let all = start.elapsed().as_secs();
    match all {
        0..60 => format!("{all} s"),
        _ => format!("{} min {:02} s", all / 60, all % 60),
    }
}
