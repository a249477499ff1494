// SPDX-License-Identifier: GPL-2.0

//! Probed runs against bare runs on the CPU: registers, memory, vector registers, signals.

use std::collections::BTreeMap;

use iced_x86::Mnemonic;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use uprobes_arch::x86_64::regs::flags;
use uprobes_arch::x86_64::{PtRegs, Reg, X86_64};
use uprobes_core::arch::{Arch, Bitness, MAX_INSN_BYTES};

use crate::generate;
use crate::iced::{disassemble, Iced};
use crate::native::{regs_at_site, Native, Path, Rng, Setup, DATA, DATA_LEN, SITE};

type Backend = X86_64<Iced>;

/// Random registers and memory, with many pointers into memory and small numbers.
fn random_setup(rng: &mut Rng, bitness: Bitness) -> Setup {
    let mut regs = regs_at_site(bitness);
    for n in 0..16 {
        let value = match rng.below(8) {
            0..=3 => DATA + rng.below(DATA_LEN as u64),
            4 => rng.below(64),
            5 => rng.below(64).wrapping_neg(),
            6 => DATA + (rng.below(DATA_LEN as u64) & !63),
            _ => rng.next(),
        };
        set(&mut regs, Reg::gpr(n), value, bitness);
    }
    if rng.below(4) != 0 {
        regs[Reg::Sp] = DATA + 0x800 + (rng.below(0x1000) & !7);
    }
    if rng.below(4) != 0 {
        regs[Reg::Cx] = rng.below(40);
    }
    if bitness == Bitness::Bits32 {
        // The upper half is not there.
        for n in 8..16 {
            regs[Reg::gpr(n)] = 0;
        }
    }
    let df = 1 << 10;
    regs[Reg::Flags] = 0x202 | (rng.next() & (flags::STATUS | df));
    let mut data = vec![0; DATA_LEN];
    rng.fill(&mut data);
    // Addresses to return to, and pointers to follow.
    for word in data.chunks_exact_mut(8) {
        match rng.below(4) {
            0 => word.copy_from_slice(&(SITE + 0x20 + rng.below(0x400)).to_le_bytes()),
            1 => word.copy_from_slice(&(DATA + rng.below(DATA_LEN as u64)).to_le_bytes()),
            _ => {}
        }
    }
    Setup {
        regs,
        data,
        seed: rng.next(),
    }
}

fn set(regs: &mut PtRegs, reg: Reg, value: u64, bitness: Bitness) {
    regs[reg] = match bitness {
        Bitness::Bits64 => value,
        Bitness::Bits32 => value & 0xffff_ffff,
    };
}

/// Whether two runs of the instruction on the same state may differ, or harm the machine.
fn is_excluded(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Syscall
            | Rdtsc
            | Rdtscp
            | Rdpmc
            | Rdrand
            | Rdseed
            | Rdpid
            | Cpuid
            | Vmcall
            | Vmmcall
            | Xbegin
            | Tpause
            | Umwait
            | Umonitor
            | Xgetbv
            | Pushf
            | Pushfd
            | Pushfq
            | Popf
            | Popfd
            | Popfq
            | Wrfsbase
            | Wrgsbase
            | Rdfsbase
            | Rdgsbase
            | Wrpkru
            | Fnstenv
            | Fldenv
            | Fnsave
            | Frstor
            | Fxsave
            | Fxsave64
            | Fxrstor
            | Fxrstor64
            | Xsave
            | Xsave64
            | Xsavec
            | Xsavec64
            | Xsaveopt
            | Xsaveopt64
            | Xrstor
            | Xrstor64
            | Lldt
            | Ltr
    )
}

/// Runs one instruction bare and probed and compares; [`None`] where it cannot be compared.
fn compare(
    native: &Native,
    setup: &Setup,
    code: &[u8; MAX_INSN_BYTES],
    bitness: Bitness,
) -> Option<Path> {
    let analysis = Backend::analyze(code, bitness).ok()?;
    let len = usize::from(analysis.len);
    let (disassembly, _) = disassemble(code, bitness, SITE)?;
    if is_excluded(disassembly.mnemonic()) {
        return None;
    }
    let text = format!("{disassembly} ({:02x?} {bitness:?})", &code[..len]);
    let target = disassembly.near_branch_target();
    if disassembly.is_jcc_short_or_near()
        || disassembly.is_jmp_short_or_near()
        || disassembly.is_call_near()
        || disassembly.is_jcx_short()
        || disassembly.is_loop()
        || disassembly.is_loopcc()
    {
        // Bare, it would run itself.
        if (SITE..SITE + len as u64).contains(&target) {
            return None;
        }
    }
    let site = &code[..len];
    let (probed, path) = native.probed(setup, site, &analysis.insn);
    let ip = probed.regs[Reg::Ip].wrapping_sub(1);
    if (SITE..SITE + len as u64).contains(&ip) && probed.signal == nix::sys::signal::SIGTRAP {
        return None;
    }
    let bare = native.bare(setup, site);
    assert_eq!(
        bare.signal, probed.signal,
        "{text}\n{path:?}\n{setup:x?}\n{bare:x?}\n{probed:x?}"
    );
    assert_eq!(
        bare.regs, probed.regs,
        "{text}\n{path:?}\n{:x?}",
        setup.regs
    );
    assert_eq!(
        (bare.code, bare.addr),
        (probed.code, probed.addr),
        "{text}\n{:x?}",
        setup.regs
    );
    assert!(bare.data == probed.data, "{text}: memory differs");
    assert!(
        bare.extended == probed.extended,
        "{text}: vector registers differ"
    );
    Some(path)
}

#[test]
fn random_instructions_do_the_same_probed_and_bare() {
    let native = Native::new();
    let mut runner = TestRunner::deterministic();
    let mut rng = Rng(42);
    let mut seen: BTreeMap<Mnemonic, u32> = BTreeMap::new();
    let (mut simulated, mut stepped) = (0, 0);
    for _ in 0..generate::cases(10_000) {
        let code = generate::code().new_tree(&mut runner).unwrap().current();
        let bitness = generate::bitness().new_tree(&mut runner).unwrap().current();
        let setup = random_setup(&mut rng, bitness);
        if let Some(path) = compare(&native, &setup, &code, bitness) {
            let (insn, _) = disassemble(&code, bitness, SITE).unwrap();
            *seen.entry(insn.mnemonic()).or_default() += 1;
            if path.simulated {
                simulated += 1;
            } else {
                stepped += 1;
            }
        }
    }
    println!(
        "{simulated} simulated, {stepped} stepped, {} mnemonics",
        seen.len()
    );
}
