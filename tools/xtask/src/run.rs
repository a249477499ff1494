// SPDX-License-Identifier: GPL-2.0

//! `build` and `run`.

use crate::{
    cli::RunArgs,
    ctx::Ctx,
    guest::{self, Guest},
    kernel::{self, Freshness, Variant},
    proc, //
};
use anyhow::{ensure, Context, Result};
use std::{
    io::{IsTerminal, Write},
    process::ExitCode, //
};

/// Builds an image and prints its path.
pub(crate) fn build(ctx: &Ctx, variant: Variant) -> Result<ExitCode> {
    let image = kernel::ensure(ctx, variant, Freshness::Make)?;
    println!("{}", image.display());
    Ok(ExitCode::SUCCESS)
}

/// Boots a kernel and runs a command in it, or an interactive shell.
pub(crate) fn run(ctx: &Ctx, variant: Variant, args: &RunArgs) -> Result<ExitCode> {
    let share = args
        .share
        .as_ref()
        .map(|dir| {
            dir.canonicalize()
                .ok()
                .filter(|dir| dir.is_dir())
                .with_context(|| format!("there is no directory {} to share", dir.display()))
        })
        .transpose()?;
    ensure!(
        !args.command.is_empty() || std::io::stdin().is_terminal(),
        "an interactive shell needs a terminal; give a command after --"
    );
    let guest = Guest {
        cpus: args.cpus,
        memory: args.memory,
        icount: args.icount,
        share: share.as_deref(),
        append: args.append.as_deref().unwrap_or_default(),
        timeout: args.timeout(),
        script: script(&args.command),
        console: true,
        ..Guest::new(variant)
    };
    if guest.script.is_none() {
        ctx.ui
            .note("a shell in the guest; leave it with Ctrl-D, or the emulator with Ctrl-A X");
    }
    let outcome = guest::run(ctx, &guest, &mut |bytes| {
        let mut stdout = std::io::stdout().lock();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .context("cannot write to standard output")
    })?;
    match outcome.failure() {
        Some((code, text)) => {
            eprintln!("error: {text}");
            Ok(ExitCode::from(code))
        }
        None => Ok(ExitCode::from(outcome.status.unwrap_or_default())),
    }
}

/// A shell script that runs exactly these words.
fn script(words: &[String]) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let quoted: Vec<_> = words.iter().map(|word| proc::quote(word)).collect();
    Some(format!("exec {}\n", quoted.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let words = ["sh", "-c", "echo 'a b' | cat"].map(str::to_owned);
        assert_eq!(
            script(&words).as_deref(),
            Some("exec sh -c 'echo '\\''a b'\\'' | cat'\n")
        );
        assert_eq!(script(&[]), None);
    }
}
