// SPDX-License-Identifier: GPL-2.0

//! `demo`: real tools on the Rust kernel. The script is `selftests/demo/demo.sh`.

use crate::{
    arch::Arch,
    ctx::Ctx,
    guest::{self, Guest},
    kernel::{Impl, Profile, Variant},
    selftests, //
};
use anyhow::{Context, Result};
use std::{io::Write, process::ExitCode, time::Duration};

/// Builds, boots, and shows.
pub(crate) fn run(ctx: &Ctx, arch: Arch) -> Result<ExitCode> {
    let variant = Variant {
        arch,
        implementation: Impl::Rust,
        profile: Profile::Release,
    };
    let out = selftests::build(ctx, arch)?;
    let guest = Guest {
        share: Some(&out),
        timeout: Some(Duration::from_secs(300)),
        script: Some("exec sh /mnt/share/demo/demo.sh\n".to_owned()),
        ..Guest::new(variant)
    };
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
