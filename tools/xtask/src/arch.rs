// SPDX-License-Identifier: GPL-2.0

//! What differs between the architectures, as seen from the host.

use clap::ValueEnum;

/// An architecture of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Arch {
    /// 64-bit x86.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[value(name = "arm64", alias = "aarch64")]
    Arm64,
    /// 64-bit RISC-V.
    #[value(name = "riscv64")]
    Riscv64,
}

impl Arch {
    /// All there are.
    pub(crate) const ALL: [Self; 3] = [Self::X86_64, Self::Arm64, Self::Riscv64];

    /// The name used in this repository.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "arm64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// `ARCH=` of the kernel's makefiles.
    pub(crate) fn kbuild(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "arm64",
            Self::Riscv64 => "riscv",
        }
    }

    /// Debian's name.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// The make target that yields a bootable image, and where it is put.
    pub(crate) fn image(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("bzImage", "arch/x86/boot/bzImage"),
            Self::Arm64 => ("Image", "arch/arm64/boot/Image"),
            Self::Riscv64 => ("Image", "arch/riscv/boot/Image"),
        }
    }

    /// The emulator.
    pub(crate) fn qemu(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
            Self::Riscv64 => "qemu-system-riscv64",
        }
    }

    /// Machine and CPU arguments of the emulator.
    pub(crate) fn machine(self) -> &'static [&'static str] {
        match self {
            // Without 5-level paging: while the kernel identifies the CPU, a timer tick makes KASAN
            // take the addresses that this gives for wild ones (identify_cpu() clears the feature).
            Self::X86_64 => &["-machine", "pc", "-cpu", "max,la57=off"],
            Self::Arm64 => &["-machine", "virt,gic-version=3", "-cpu", "max"],
            Self::Riscv64 => &["-machine", "virt", "-cpu", "rv64,v=true"],
        }
    }

    /// The value of `-smp` for `cpus` CPUs.
    pub(crate) fn smp(self, cpus: u32) -> String {
        match self {
            // Without ACPI the kernel finds CPUs through the MP table, which has
            // one entry for each socket.
            Self::X86_64 => format!("{cpus},sockets={cpus},cores=1,threads=1"),
            _ => cpus.to_string(),
        }
    }

    /// The serial console's device, and what ends the machine after a panic.
    pub(crate) fn kernel_args(self) -> &'static str {
        match self {
            Self::X86_64 => "console=ttyS0 reboot=t",
            Self::Arm64 => "console=ttyAMA0",
            Self::Riscv64 => "console=ttyS0",
        }
    }

    /// The prefix of the cross compiler for guest programs; empty for the native one.
    pub(crate) fn cross(self) -> &'static str {
        match self {
            Self::X86_64 if cfg!(target_arch = "x86_64") => "",
            Self::X86_64 => "x86_64-linux-gnu-",
            Self::Arm64 if cfg!(target_arch = "aarch64") => "",
            Self::Arm64 => "aarch64-linux-gnu-",
            Self::Riscv64 if cfg!(target_arch = "riscv64") => "",
            Self::Riscv64 => "riscv64-linux-gnu-",
        }
    }
}
