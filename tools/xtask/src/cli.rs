// SPDX-License-Identifier: GPL-2.0

//! The command line.

use crate::{
    apply,
    arch::Arch,
    bench,
    ctx::Ctx,
    demo,
    doctor,
    kernel::{Impl, Profile, Variant},
    run,
    setup,
    test, //
};
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Sets up, builds, runs, tests and measures a Linux kernel whose uprobes are Rust.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
pub(crate) struct Cli {
    /// Kernel tree (7.3) to use instead of the packaged source; only `apply` changes it.
    #[arg(long, value_name = "DIR", env = "KERNEL_DIR", global = true)]
    kernel: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch and install everything that the other commands need.
    Setup(SetupArgs),
    /// Build a bootable kernel image and print its path.
    Build(VariantArgs),
    /// Boot a kernel and run a command in it, or an interactive shell.
    Run(RunArgs),
    /// Trace real programs with perf and bpftrace on the Rust kernel.
    Demo(DemoArgs),
    /// Run the tests on the host and in the guest.
    Test(TestArgs),
    /// Count instructions per hit, C and Rust side by side.
    Bench(BenchArgs),
    /// Put the subsystem into a kernel tree of your own, or take it out.
    Apply(ApplyArgs),
    /// Tell what is missing on this machine, and the cure.
    Doctor,
}

#[derive(Args)]
pub(crate) struct SetupArgs {
    /// Architectures to prepare for, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "x86_64,arm64,riscv64")]
    pub(crate) arch: Vec<Arch>,
    /// Only this part.
    #[arg(long)]
    pub(crate) only: Option<setup::Part>,
}

/// Which kernel.
#[derive(Args)]
pub(crate) struct VariantArgs {
    #[arg(long, default_value = "x86_64")]
    arch: Arch,
    /// Implementation of uprobes in the kernel.
    #[arg(long = "impl", default_value = "rust")]
    implementation: Impl,
    /// `debug` has KASAN, lockdep, kmemleak and fault injection.
    #[arg(long, default_value = "release")]
    profile: Profile,
}

impl VariantArgs {
    fn variant(&self) -> Variant {
        Variant {
            arch: self.arch,
            implementation: self.implementation,
            profile: self.profile,
        }
    }
}

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// Number of CPUs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    pub(crate) cpus: u32,
    /// Memory of the guest in MiB.
    #[arg(long, value_name = "M", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(128..=1_048_576))]
    pub(crate) memory: u32,
    /// One CPU whose clock counts instructions, 2 ns each.
    #[arg(long, conflicts_with = "cpus")]
    pub(crate) icount: bool,
    /// Directory to mount read-write at /mnt/share.
    #[arg(long, value_name = "DIR")]
    pub(crate) share: Option<PathBuf>,
    /// More arguments for the kernel's command line.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub(crate) append: Option<String>,
    /// Seconds after which the guest is stopped [default: 600, none for a shell].
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub(crate) timeout: Option<u64>,
    /// Program to run in the guest, with its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

impl RunArgs {
    /// When to stop the guest, if ever.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self.timeout {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None if self.command.is_empty() => None,
            None => Some(Duration::from_secs(600)),
        }
    }
}

#[derive(Args)]
pub(crate) struct DemoArgs {
    #[arg(long, default_value = "x86_64")]
    pub(crate) arch: Arch,
}

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Architectures of the guests, separated by commas [default: all; x86_64 with --quick
    /// and --on].
    #[arg(long, value_delimiter = ',')]
    pub(crate) arch: Vec<Arch>,
    /// Host tests without Miri, and the guest suite on the Rust release kernel only.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Races and random tests for their whole time, and the guest suite on the C and the
    /// debug kernels too.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only the tests that run on the host.
    #[arg(long, conflicts_with = "guest")]
    pub(crate) host: bool,
    /// Only the tests that run in the guest.
    #[arg(long)]
    pub(crate) guest: bool,
    /// Only the guest suite, and only on this kernel, as IMPL-PROFILE (`rust-release`, `c-debug`).
    #[arg(long, value_name = "KERNEL", conflicts_with = "host")]
    pub(crate) on: Option<String>,
    /// Only guest tests whose name contains this.
    #[arg(conflicts_with = "host")]
    pub(crate) filter: Option<String>,
}

impl TestArgs {
    /// Whether the tests of the host are left out.
    pub(crate) fn is_guest_only(&self) -> bool {
        self.guest || self.on.is_some() || self.filter.is_some()
    }
}

#[derive(Args)]
pub(crate) struct BenchArgs {
    #[arg(long, default_value = "x86_64")]
    pub(crate) arch: Arch,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ApplyArgs {
    /// Take it out again, leaving every file as it was.
    #[arg(long)]
    pub(crate) revert: bool,
    /// Link the project into the tree instead of copying it (build with O= only).
    #[arg(long, conflicts_with = "revert")]
    pub(crate) link: bool,
}

impl Cli {
    /// Runs the command.
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let ctx = Ctx::new(self.kernel)?;
        match self.command {
            Command::Setup(args) => setup::run(&ctx, &args),
            Command::Build(args) => run::build(&ctx, args.variant()),
            Command::Run(args) => run::run(&ctx, args.variant.variant(), &args),
            Command::Demo(args) => demo::run(&ctx, args.arch),
            Command::Test(args) => test::run(&ctx, &args),
            Command::Bench(args) => bench::run(&ctx, &args),
            Command::Apply(args) => apply::run(&ctx, &args),
            Command::Doctor => doctor::run(&ctx),
        }
    }
}
