// SPDX-License-Identifier: GPL-2.0

//! The CPU under the tests: runs instructions in a process of its own, bare or the way a uprobe
//! runs them, and tells what came out.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock};

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::mman::{mmap_anonymous, MapFlags, ProtFlags};
use nix::sys::ptrace;
use nix::sys::signal::{kill, raise, Signal};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use uprobes_arch::x86_64::regs::{flags, USER32_CS, USER_CS};
use uprobes_arch::x86_64::{Insn, PtRegs, Reg, X86_64};
use uprobes_core::arch::{Arch, Bitness, Simulated, Stepped, UserTask};

use crate::iced::Iced;
use crate::model::Model;

type Backend = X86_64<Iced>;

/// Pages of code, full of `int3` but for the instruction.
const CODE: u64 = 0x1000_0000;
const CODE_LEN: usize = 0x3000;
/// Where the instruction is.
pub(crate) const SITE: u64 = CODE + 0x1800;
/// Pages of data and stack, in reach of the code.
pub(crate) const DATA: u64 = 0x1000_4000;
pub(crate) const DATA_LEN: usize = 0x2000;
/// Slots, out of reach of the code in 64-bit code.
const SLOT64: u64 = 0x7e00_0000_0080;
const SLOT32: u64 = 0x3000_0080;
const PAGE: u64 = 0x1000;

const INT3: u8 = 0xcc;
/// `si_code` of a trap after a step.
const TRAP_TRACE: i32 = 2;
/// Note type of the extended registers in `PTRACE_GETREGSET`.
const NT_X86_XSTATE: i32 = 0x202;
/// Any trap number.
const PAGE_FAULT: u64 = 14;

/// What a program is about to run an instruction with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) regs: PtRegs,
    pub(crate) data: Vec<u8>,
    /// Fills the vector registers.
    pub(crate) seed: u64,
}

/// What a program stopped with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) regs: PtRegs,
    pub(crate) data: Vec<u8>,
    /// x87, vector and mask registers.
    pub(crate) extended: Vec<u8>,
    pub(crate) signal: Signal,
    pub(crate) code: i32,
    pub(crate) addr: u64,
}

/// Whether to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// If it can be.
    AsProbe,
    /// Never.
    Stepped,
}

/// How a probed run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) simulated: bool,
    pub(crate) steps: u32,
    pub(crate) restarts: u32,
    /// No fault came.
    pub(crate) completed: bool,
}

/// A traced process that runs nothing but what it is told.
pub(crate) struct Native {
    pid: Pid,
    memory: File,
    extended: Vec<u8>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Drop for Native {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// Maps the pages that every child inherits.
fn map_pages() {
    static MAPPED: OnceLock<()> = OnceLock::new();
    MAPPED.get_or_init(|| {
        let code = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        let data = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        for (addr, len, prot) in [
            (CODE, CODE_LEN, code),
            (DATA, DATA_LEN, data),
            (SLOT64 & !(PAGE - 1), PAGE as usize, code),
            (SLOT32 & !(PAGE - 1), PAGE as usize, code),
        ] {
            // SAFETY: nothing is mapped there yet, which the flag makes sure of.
            unsafe {
                mmap_anonymous(
                    NonZeroUsize::new(addr as usize),
                    NonZeroUsize::new(len).unwrap(),
                    prot,
                    MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE,
                )
            }
            .unwrap();
        }
    });
}

impl Native {
    /// Starts the process.
    pub(crate) fn new() -> Native {
        static ONE: Mutex<()> = Mutex::new(());
        let guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
        map_pages();
        // SAFETY: the child calls nothing but system calls.
        let pid = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                if ptrace::traceme().is_ok() {
                    let _ = raise(Signal::SIGSTOP);
                }
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(1) }
            }
            ForkResult::Parent { child } => child,
        };
        let stopped = waitpid(pid, None).unwrap();
        assert!(
            matches!(stopped, WaitStatus::Stopped(..)),
            "the test may not trace its child: {stopped:?}"
        );
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL).unwrap();
        let mut native = Native {
            pid,
            memory: File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{pid}/mem"))
                .unwrap(),
            extended: vec![],
            _one_at_a_time: guard,
        };
        native.extended = native.extended_regs();
        for (addr, len) in [
            (CODE, CODE_LEN),
            (SLOT64 & !(PAGE - 1), PAGE as usize),
            (SLOT32 & !(PAGE - 1), PAGE as usize),
        ] {
            native.write(addr, &vec![INT3; len]);
        }
        native
    }

    fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, addr).unwrap();
    }

    fn read(&self, addr: u64, bytes: &mut [u8]) {
        self.memory.read_exact_at(bytes, addr).unwrap();
    }

    /// Moves the extended registers; answers how many bytes, 0 if the machine has no such image.
    fn regset(&self, request: libc::c_uint, buf: &mut [u8]) -> usize {
        let mut iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        // SAFETY: `iov` names memory that is ours for the time of the call.
        let ret = unsafe {
            libc::ptrace(
                request,
                self.pid.as_raw(),
                NT_X86_XSTATE,
                std::ptr::from_mut(&mut iov),
            )
        };
        match (ret, Errno::last()) {
            (0, _) => iov.iov_len,
            (_, Errno::ENODEV) => 0,
            (_, errno) => panic!("extended registers: {errno}"),
        }
    }

    fn extended_regs(&self) -> Vec<u8> {
        let mut buf = vec![0; 0x4000];
        let len = self.regset(libc::PTRACE_GETREGSET, &mut buf);
        buf.truncate(len);
        buf
    }

    /// Fills vector and mask registers by a seed.
    fn set_extended_regs(&self, seed: u64) {
        let mut buf = self.extended.clone();
        if buf.is_empty() {
            return;
        }
        let mut rng = Rng(seed);
        // The components that the CPU has enabled, as the kernel reports them in the image.
        let enabled = u64::from_le_bytes(buf[464..472].try_into().unwrap());
        let bv = enabled & 0xe7;
        buf[512..520].copy_from_slice(&bv.to_le_bytes());
        rng.fill(&mut buf[160..416]);
        for component in [2, 5, 6, 7] {
            if bv & 1 << component != 0 {
                let cpuid = std::arch::x86_64::__cpuid_count(0xd, component);
                let (size, offset) = (cpuid.eax as usize, cpuid.ebx as usize);
                rng.fill(&mut buf[offset..offset + size]);
            }
        }
        self.regset(libc::PTRACE_SETREGSET, &mut buf);
    }

    /// The extended registers that a program can tell apart.
    fn visible_extended_regs(&self) -> Vec<u8> {
        let mut buf = self.extended_regs();
        if buf.is_empty() {
            return buf;
        }
        // Opcode and addresses of the last x87 instruction; software's and header bytes.
        buf[6..24].fill(0);
        buf[464..576].fill(0);
        buf
    }

    fn regs(&self) -> PtRegs {
        let r = ptrace::getregs(self.pid).unwrap();
        let mut regs = PtRegs::default();
        for (reg, value) in [
            (Reg::R15, r.r15),
            (Reg::R14, r.r14),
            (Reg::R13, r.r13),
            (Reg::R12, r.r12),
            (Reg::Bp, r.rbp),
            (Reg::Bx, r.rbx),
            (Reg::R11, r.r11),
            (Reg::R10, r.r10),
            (Reg::R9, r.r9),
            (Reg::R8, r.r8),
            (Reg::Ax, r.rax),
            (Reg::Cx, r.rcx),
            (Reg::Dx, r.rdx),
            (Reg::Si, r.rsi),
            (Reg::Di, r.rdi),
            (Reg::OrigAx, u64::MAX),
            (Reg::Ip, r.rip),
            (Reg::Cs, r.cs),
            (Reg::Flags, r.eflags),
            (Reg::Sp, r.rsp),
            (Reg::Ss, r.ss),
        ] {
            regs[reg] = value;
        }
        regs
    }

    fn set_regs(&self, regs: &PtRegs) {
        let compat = !regs.is_64bit();
        let data_segment = if compat { 0x2b } else { 0 };
        let r = user_regs_struct {
            r15: regs[Reg::R15],
            r14: regs[Reg::R14],
            r13: regs[Reg::R13],
            r12: regs[Reg::R12],
            rbp: regs[Reg::Bp],
            rbx: regs[Reg::Bx],
            r11: regs[Reg::R11],
            r10: regs[Reg::R10],
            r9: regs[Reg::R9],
            r8: regs[Reg::R8],
            rax: regs[Reg::Ax],
            rcx: regs[Reg::Cx],
            rdx: regs[Reg::Dx],
            rsi: regs[Reg::Si],
            rdi: regs[Reg::Di],
            orig_rax: u64::MAX,
            rip: regs[Reg::Ip],
            cs: regs[Reg::Cs],
            eflags: regs[Reg::Flags],
            rsp: regs[Reg::Sp],
            ss: 0x2b,
            fs_base: DATA + 0x40,
            gs_base: DATA + 0x80,
            ds: data_segment,
            es: data_segment,
            fs: 0,
            gs: 0,
        };
        ptrace::setregs(self.pid, r).unwrap();
    }

    /// Lets the process run until it gets a signal, and answers which.
    fn go(&self) -> (Signal, libc::siginfo_t) {
        ptrace::cont(self.pid, None).unwrap();
        match waitpid(self.pid, None).unwrap() {
            WaitStatus::Stopped(_, signal) => (signal, ptrace::getsiginfo(self.pid).unwrap()),
            other => panic!("the process is gone: {other:?}"),
        }
    }

    /// Lets the process run on and collects what it stopped with.
    fn finish(&self) -> Outcome {
        let (signal, info) = self.go();
        self.collect(signal, &info)
    }

    fn collect(&self, signal: Signal, info: &libc::siginfo_t) -> Outcome {
        let mut regs = self.regs();
        // SAFETY: signals of the CPU carry an address.
        let addr = unsafe { info.si_addr() } as u64;
        regs[Reg::Flags] &= !flags::RF;
        let mut data = vec![0; DATA_LEN];
        self.read(DATA, &mut data);
        let extended = self.visible_extended_regs();
        Outcome {
            regs,
            data,
            extended,
            signal,
            code: info.si_code,
            addr,
        }
    }

    fn prepare(&self, setup: &Setup, site: &[u8]) {
        self.write(DATA, &setup.data);
        let mut code = [INT3; 32];
        code[..site.len()].copy_from_slice(site);
        self.write(SITE, &code);
        self.set_extended_regs(setup.seed);
    }

    /// Runs the instruction where it is.
    pub(crate) fn bare(&self, setup: &Setup, site: &[u8]) -> Outcome {
        self.prepare(setup, site);
        self.set_regs(&setup.regs);
        self.finish()
    }

    /// Runs the instruction as a uprobe does, followed by what comes after it in `site`; steps it
    /// even though it could be simulated, if so told.
    pub(crate) fn probed(
        &self,
        setup: &Setup,
        site: &[u8],
        insn: &Insn,
        how: How,
    ) -> (Outcome, Path) {
        let mut with_probe = site.to_vec();
        with_probe[0] = INT3;
        self.prepare(setup, &with_probe);
        self.set_regs(&setup.regs);

        let mut path = Path::default();
        let mut regs = setup.regs;
        let mut task = Model::new(DATA, setup.data.clone());
        loop {
            let simulated = match how {
                How::AsProbe => Backend::simulate(insn, &mut regs, &mut task),
                How::Stepped => Simulated::OutOfLine,
            };
            match simulated {
                Simulated::Done => {
                    path.simulated = true;
                    self.write(DATA, &task.memory);
                    self.set_regs(&regs);
                    if regs.tf() {
                        return (self.trap(&regs), path);
                    }
                    return (self.finish(), path);
                }
                Simulated::OutOfLine => {
                    assert_eq!(regs, setup.regs);
                    assert_eq!(task.memory, setup.data);
                }
                Simulated::SystemCall => panic!("no system call is simulated"),
            }
            if let Some(outcome) = self.step(insn, &mut regs, &mut task, &mut path) {
                return (outcome, path);
            }
        }
    }

    /// What a program that steps itself gets after an instruction.
    fn trap(&self, regs: &PtRegs) -> Outcome {
        let mut data = vec![0; DATA_LEN];
        self.read(DATA, &mut data);
        Outcome {
            regs: *regs,
            data,
            extended: self.visible_extended_regs(),
            signal: Signal::SIGTRAP,
            code: TRAP_TRACE,
            addr: regs[Reg::Ip],
        }
    }

    /// Steps the copy of the instruction; [`None`] if it must start over.
    fn step(
        &self,
        insn: &Insn,
        regs: &mut PtRegs,
        task: &mut Model,
        path: &mut Path,
    ) -> Option<Outcome> {
        let slot = match regs.bitness() {
            Bitness::Bits64 => SLOT64,
            Bitness::Bits32 => SLOT32,
        };
        let (bytes, len) = Backend::xol_bytes(insn);
        assert!(len <= Backend::XOL_SLOT_BYTES);
        self.write(slot, &bytes[..len]);
        task.block_step = true;
        task.fault_code = 77;
        let mut state = Backend::pre_xol(insn, regs, task, SITE, slot).unwrap();
        assert!(!task.block_step);
        assert!(regs.tf());
        self.set_regs(regs);
        loop {
            path.steps += 1;
            assert!(path.steps < 100_000, "does not end");
            let (signal, info) = self.go();
            let mut now = self.regs();
            now[Reg::OrigAx] = regs[Reg::OrigAx];
            *regs = now;
            self.read(DATA, &mut task.memory);
            if signal != Signal::SIGTRAP || info.si_code != TRAP_TRACE {
                assert_ne!(signal, Signal::SIGTRAP, "ran into {:#x}", regs[Reg::Ip]);
                task.set_fault_code(PAGE_FAULT);
                assert!(Backend::xol_was_trapped(task));
                Backend::abort_xol(insn, regs, task, &state, SITE);
                assert_eq!(task.fault_code, 77);
                self.set_regs(regs);
                let mut outcome = self.collect(signal, &info);
                if outcome.addr == slot {
                    // `uprobe_get_trap_addr()`
                    outcome.addr = SITE;
                }
                return Some(outcome);
            }
            assert!(!Backend::xol_was_trapped(task));
            match Backend::post_xol(insn, regs, task, &mut state, SITE, slot).unwrap() {
                Stepped::Again => continue,
                Stepped::Partial => {
                    assert_eq!(task.fault_code, 77);
                    self.set_regs(regs);
                    return Some(self.trap(regs));
                }
                Stepped::Restart => {
                    path.restarts += 1;
                    return None;
                }
                Stepped::Done { trap } => {
                    assert_eq!(task.fault_code, 77);
                    self.write(DATA, &task.memory);
                    self.set_regs(regs);
                    return Some(if trap { self.trap(regs) } else { self.finish() });
                }
            }
        }
    }
}

/// Registers at the site.
pub(crate) fn regs_at_site(bitness: Bitness) -> PtRegs {
    let mut regs = PtRegs::default();
    regs[Reg::Ip] = SITE;
    regs[Reg::OrigAx] = u64::MAX;
    regs[Reg::Ss] = 0x2b;
    regs[Reg::Sp] = DATA + 0x1000;
    regs[Reg::Flags] = 0x202;
    regs[Reg::Cs] = match bitness {
        Bitness::Bits64 => USER_CS,
        Bitness::Bits32 => USER32_CS,
    }
    .into();
    regs
}

/// A small generator, to fill memory with.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
