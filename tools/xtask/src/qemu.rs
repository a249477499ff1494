// SPDX-License-Identifier: GPL-2.0

//! The emulator's command line.

use crate::arch::Arch;
use std::{ffi::OsString, path::Path};

/// What a machine looks like.
pub(crate) struct Machine<'a> {
    pub(crate) arch: Arch,
    pub(crate) image: &'a Path,
    pub(crate) rootfs: &'a Path,
    /// Path of the first program within the root file system.
    pub(crate) init: &'a str,
    pub(crate) cpus: u32,
    /// In MiB.
    pub(crate) memory: u32,
    /// The clock counts instructions, on one CPU.
    pub(crate) icount: bool,
    pub(crate) share: Option<&'a Path>,
    /// More for the kernel's command line.
    pub(crate) append: &'a str,
    /// Directory of the share "job", and of the sockets "stdout" and "stderr".
    pub(crate) job: &'a Path,
    /// Where the console also goes.
    pub(crate) log: &'a Path,
    /// The console is somebody's terminal.
    pub(crate) interactive: bool,
}

impl Machine<'_> {
    /// The arguments.
    pub(crate) fn args(&self) -> Vec<OsString> {
        let mut args = Args::default();
        args.all(self.arch.machine());
        args.all(&[
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        args.one("-m", format!("{}M", self.memory));
        let cpus = if self.icount { 1 } else { self.cpus };
        args.one("-smp", self.arch.smp(cpus));
        if self.icount {
            args.one("-icount", "shift=1,sleep=off");
        } else {
            args.one("-accel", "tcg,thread=multi");
        }

        // Ctrl-C in a shell is for the guest; there, Ctrl-A X leaves.
        let signal = if self.interactive {
            "mux=on"
        } else {
            "signal=off"
        };
        let log = option_value(self.log);
        args.one(
            "-chardev",
            format!("stdio,id=console,{signal},logfile={log}"),
        );
        args.one("-serial", "chardev:console");
        if self.interactive {
            args.one("-mon", "chardev=console");
        }

        args.nine_p("root", self.rootfs, true);
        args.nine_p("job", self.job, false);
        if let Some(share) = self.share {
            args.nine_p("share", share, false);
        }
        if !self.interactive {
            args.one("-device", "virtio-serial-pci");
            for name in ["stdout", "stderr"] {
                let path = option_value(&self.job.join(name));
                args.one(
                    "-chardev",
                    format!("socket,id={name},path={path},server=off"),
                );
                args.one(
                    "-device",
                    format!("virtserialport,chardev={name},name={name}"),
                );
            }
        }

        args.one("-kernel", self.image);
        args.one("-append", self.kernel_args());
        args.0
    }

    fn kernel_args(&self) -> String {
        let mut args = format!(
            "{} root=root rootfstype=9p \
             rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=262144 ro init={} \
             oops=panic panic=-1 printk.time=1 loglevel=5",
            self.arch.kernel_args(),
            self.init
        );
        if self.icount {
            // Calibrating the delay loop would make each boot a little different.
            args.push_str(" lpj=4000000");
        }
        if !self.append.is_empty() {
            args.push(' ');
            args.push_str(self.append);
        }
        args
    }
}

#[derive(Default)]
struct Args(Vec<OsString>);

impl Args {
    fn one(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.push(name.into());
        self.0.push(value.into());
    }

    fn all(&mut self, args: &[&str]) {
        self.0.extend(args.iter().map(OsString::from));
    }

    fn nine_p(&mut self, tag: &str, path: &Path, readonly: bool) {
        let path = option_value(path);
        let readonly = if readonly { "on" } else { "off" };
        self.one(
            "-virtfs",
            format!(
                "local,path={path},mount_tag={tag},security_model=none,readonly={readonly},\
                 multidevs=remap"
            ),
        );
    }
}

/// In the emulator's options a comma is written twice.
fn option_value(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine<'a>(icount: bool, interactive: bool) -> Machine<'a> {
        machine_of(Arch::X86_64, icount, interactive)
    }

    fn machine_of<'a>(arch: Arch, icount: bool, interactive: bool) -> Machine<'a> {
        Machine {
            arch,
            image: Path::new("/image"),
            rootfs: Path::new("/root,fs"),
            init: "/init",
            cpus: 3,
            memory: 512,
            icount,
            share: Some(Path::new("/share")),
            append: "a=b",
            job: Path::new("/job"),
            log: Path::new("/log"),
            interactive,
        }
    }

    fn text(machine: &Machine<'_>) -> String {
        let args = machine.args();
        let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn machine_of_several_sockets() {
        let text = text(&machine(false, false));
        assert!(
            text.contains("-smp 3,sockets=3,cores=1,threads=1"),
            "{text}"
        );
        assert!(text.contains("path=/root,,fs,mount_tag=root"), "{text}");
        assert!(text.contains("name=stderr"), "{text}");
        assert!(text.ends_with(" a=b"), "{text}");
        assert!(!text.contains("lpj="), "{text}");
    }

    #[test]
    fn machines_of_the_other_architectures() {
        let arm64 = text(&machine_of(Arch::Arm64, false, false));
        assert!(
            arm64.starts_with("-machine virt,gic-version=3 -cpu max"),
            "{arm64}"
        );
        assert!(arm64.contains("-smp 3 "), "{arm64}");
        assert!(arm64.contains("console=ttyAMA0"), "{arm64}");
        let riscv64 = text(&machine_of(Arch::Riscv64, true, false));
        assert!(riscv64.contains("-cpu rv64,v=true"), "{riscv64}");
        assert!(riscv64.contains("-smp 1 -icount"), "{riscv64}");
    }

    #[test]
    fn counting_machine_has_one_cpu() {
        let text = text(&machine(true, false));
        assert!(text.contains("-smp 1,sockets=1"), "{text}");
        assert!(text.contains("-icount shift=1,sleep=off"), "{text}");
        assert!(text.contains("lpj=4000000"), "{text}");
    }

    #[test]
    fn shell_has_a_monitor_and_no_ports() {
        let text = text(&machine(false, true));
        assert!(text.contains("-mon chardev=console"), "{text}");
        assert!(!text.contains("virtserialport"), "{text}");
    }
}
