// SPDX-License-Identifier: GPL-2.0

//! Probed runs against bare runs on the CPU: registers, memory, vector registers, signals.

use std::collections::BTreeMap;

use iced_x86::Mnemonic::{self, Popf, Popfd, Popfq};
use nix::sys::signal::Signal::SIGTRAP;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use uprobes_arch::x86_64::regs::flags;
use uprobes_arch::x86_64::vectors::VECTORS;
use uprobes_arch::x86_64::{Decode, PtRegs, Reg, X86_64};
use uprobes_core::arch::{Arch, Bitness, MAX_INSN_BYTES};

use crate::generate;
use crate::iced::{disassemble, Iced};
use crate::native::{regs_at_site, How, Native, Path, Rng, Setup, DATA, DATA_LEN, SITE};

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

/// The same, with nothing in the word on top of the stack but flags that a tracer can set back.
fn with_settable_flags(setup: &Setup) -> Setup {
    let mut setup = setup.clone();
    let at = setup.regs[Reg::Sp].wrapping_sub(DATA) as usize;
    if let Some(word) = setup.data.get_mut(at..at.wrapping_add(8)) {
        word[0] &= flags::STATUS as u8;
        word[1] &= ((flags::STATUS | flags::TF) >> 8) as u8;
        word[2..].fill(0);
    }
    setup
}

/// Runs one instruction bare and probed and compares; [`None`] where it cannot be compared.
fn compare(
    native: &Native,
    setup: &Setup,
    code: &[u8; MAX_INSN_BYTES],
    bitness: Bitness,
    how: How,
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
    let setup = &if matches!(disassembly.mnemonic(), Popf | Popfd | Popfq) {
        with_settable_flags(setup)
    } else {
        setup.clone()
    };
    let site = &code[..len];
    let (probed, mut path) = native.probed(setup, site, &analysis.insn, how);
    path.completed = probed.signal == SIGTRAP;
    let ip = probed.regs[Reg::Ip].wrapping_sub(1);
    if (SITE..SITE + len as u64).contains(&ip) && path.completed {
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
    let (mut simulated, mut stepped, mut faulted) = (0, 0, 0);
    for _ in 0..generate::cases(10_000) {
        let code = generate::code().new_tree(&mut runner).unwrap().current();
        let bitness = generate::bitness().new_tree(&mut runner).unwrap().current();
        let setup = random_setup(&mut rng, bitness);
        if let Some(path) = compare(&native, &setup, &code, bitness, How::AsProbe) {
            let (insn, _) = disassemble(&code, bitness, SITE).unwrap();
            *seen.entry(insn.mnemonic()).or_default() += 1;
            match path {
                Path {
                    simulated: true, ..
                } => simulated += 1,
                Path {
                    completed: true, ..
                } => stepped += 1,
                _ => faulted += 1,
            }
        }
    }
    println!(
        "{simulated} simulated, {stepped} stepped, {faulted} stepped to a fault, {} mnemonics",
        seen.len()
    );
}

/// Code with `int3` behind it, as the harness lays it out.
fn code(bytes: &[u8]) -> [u8; MAX_INSN_BYTES] {
    let mut code = [0xcc; MAX_INSN_BYTES];
    code[..bytes.len()].copy_from_slice(bytes);
    code
}

/// Encodings of what is simulated, over all registers and operand sizes.
fn simulated_encodings(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = vec![];
    let byte = |rng: &mut Rng| rng.next() as u8;
    for rex in (0x40..0x50).map(Some).chain([None]) {
        let mut add = |bytes: &[u8]| all.push([rex.as_slice(), bytes].concat());
        let mut imm = [0; 8];
        for group in [0, 1, 4, 5, 6, 7] {
            for rm in 0..8 {
                rng.fill(&mut imm);
                let modrm = 0xc0 | group << 3 | rm;
                add(&[0x83, modrm, imm[0]]);
                add(&[&[0x81, modrm], &imm[..4]].concat());
            }
            for _ in 0..8 {
                add(&[group << 3 | 1, byte(rng) | 0xc0]);
                add(&[group << 3 | 3, byte(rng) | 0xc0]);
            }
        }
        for reg in 0..8 {
            rng.fill(&mut imm);
            add(&[0x50 + reg]);
            add(&[0x58 + reg]);
            add(&[&[0xc7, 0xc0 + reg], &imm[..4]].concat());
            let wide = rex.is_some_and(|rex| rex & 8 != 0);
            add(&[&[0xb8 + reg], &imm[..if wide { 8 } else { 4 }]].concat());
            add(&[0x85, byte(rng) | 0xc0]);
            add(&[0x89, byte(rng) | 0xc0]);
            add(&[0x8b, byte(rng) | 0xc0]);
        }
        for modrm in 0..0xc0 {
            rng.fill(&mut imm);
            add(&[&[0x8d, modrm], &imm[..]].concat());
        }
        rng.fill(&mut imm);
        add(&[0x6a, imm[0]]);
        add(&[&[0x68], &imm[..4]].concat());
        for simple in [0x9c, 0xc9, 0xc3] {
            add(&[simple]);
        }
        add(&[0xc2, imm[0], 0]);
        for near in [0xe8, 0xe9] {
            add(&[near, 0x40 | imm[0], 2, 0, 0]);
        }
        add(&[0xeb, 0x40 | imm[0] >> 2]);
        for cc in 0..16 {
            add(&[0x70 | cc, 0x40 | imm[1] >> 2]);
            add(&[0x0f, 0x80 | cc, 0x40 | imm[1], 2, 0, 0]);
        }
        for reg in 0..8 {
            add(&[0xff, 0xd0 | reg]);
            add(&[0xff, 0xe0 | reg]);
        }
    }
    all
}

#[test]
fn what_is_simulated_does_what_the_cpu_does() {
    let native = Native::new();
    let mut rng = Rng(1);
    let (mut simulated, mut others) = (0, 0);
    let encodings = simulated_encodings(&mut rng);
    let rounds = generate::cases(2);
    for bytes in encodings
        .iter()
        .cycle()
        .take(encodings.len() * rounds as usize)
    {
        for bitness in [Bitness::Bits64, Bitness::Bits32] {
            let code = code(bytes);
            if bitness == Bitness::Bits32 && bytes[0] & 0xf0 == 0x40 {
                continue;
            }
            assert!(
                Backend::analyze(&code, bitness).unwrap().simulated,
                "{bytes:02x?}"
            );
            let setup = random_setup(&mut rng, bitness);
            match compare(&native, &setup, &code, bitness, How::AsProbe) {
                Some(path) if path.simulated => simulated += 1,
                _ => others += 1,
            }
            // Should it not be simulated for some reason, a step must do as well.
            compare(&native, &setup, &code, bitness, How::Stepped);
        }
    }
    println!("{simulated} simulated, {others} stepped because they fault, or not comparable");
    assert!(simulated > 10 * others, "{simulated} {others}");
}

#[test]
fn every_vector_does_the_same_probed_and_bare() {
    let native = Native::new();
    let mut rng = Rng(2);
    let mut run = 0;
    for vector in VECTORS {
        for _ in 0..5 {
            let setup = random_setup(&mut rng, vector.bitness);
            let path = compare(
                &native,
                &setup,
                &code(vector.code),
                vector.bitness,
                How::AsProbe,
            );
            run += u32::from(path.is_some());
        }
    }
    assert!(run > 500, "{run}");
}

#[test]
fn every_opcode_relative_to_the_instruction_pointer_does_the_same() {
    let native = Native::new();
    let mut rng = Rng(3);
    let mut run = 0;
    let all = generate::every_opcode(Bitness::Bits64).filter(|code| {
        Backend::analyze(code, Bitness::Bits64).is_ok_and(|a| a.insn.scratch().is_some())
    });
    for (n, mut code) in all.enumerate() {
        if n as u64 % 40 != rng.0 % 40 && generate::cases(0) == 0 {
            continue;
        }
        let parts = Iced::decode(&code, Bitness::Bits64).unwrap();
        let at = parts.modrm_offset() + 1;
        let target = ((DATA - SITE) as u32 + rng.below(DATA_LEN as u64 - 64) as u32) & !63;
        code[at..at + 4].copy_from_slice(&target.wrapping_sub(parts.length.into()).to_le_bytes());
        let setup = random_setup(&mut rng, Bitness::Bits64);
        run += u32::from(compare(&native, &setup, &code, Bitness::Bits64, How::AsProbe).is_some());
    }
    println!("{run} run");
}

#[test]
fn a_repeated_string_instruction_takes_a_step_an_iteration_and_is_one_hit() {
    let native = Native::new();
    for (bytes, count) in [
        (&[0xf3, 0xa4][..], 5),
        (&[0xf3, 0x48, 0xab], 7),
        (&[0xf3, 0xa6], 0),
    ] {
        let mut setup = random_setup(&mut Rng(4), Bitness::Bits64);
        setup.regs[Reg::Cx] = count;
        setup.regs[Reg::Si] = DATA + 0x100;
        setup.regs[Reg::Di] = DATA + 0x200;
        setup.regs[Reg::Flags] = 0x202;
        let path = compare(&native, &setup, &code(bytes), Bitness::Bits64, How::AsProbe).unwrap();
        assert_eq!(u64::from(path.steps), count.max(1));
    }
}

#[test]
fn a_system_call_leaves_no_trace_of_the_step() {
    const GETPPID: u64 = 110;
    let native = Native::new();
    let mut setup = random_setup(&mut Rng(5), Bitness::Bits64);
    setup.regs[Reg::Ax] = GETPPID;
    let site = [0x0f, 0x05];
    let analysis = Backend::analyze(&code(&site), Bitness::Bits64).unwrap();
    let (probed, path) = native.probed(&setup, &site, &analysis.insn, How::AsProbe);
    assert_eq!((path.simulated, path.steps, path.restarts), (false, 1, 0));
    assert_eq!(probed, native.bare(&setup, &site));
    assert_eq!(probed.regs[Reg::Ax], std::process::id().into());
    assert_eq!(probed.regs[Reg::Cx], SITE + 2);
    assert_eq!(probed.regs[Reg::R11] & flags::TF, 0);
}

#[test]
fn what_the_kernel_emulates_ends_at_the_right_place() {
    // sgdt, sidt, smsw, sldt and str, where the CPU keeps them from user space (UMIP).
    let native = Native::new();
    for bytes in [
        &[0x0f, 0x01, 0x05, 0xf9, 0x2f, 0, 0][..],
        &[0x0f, 0x01, 0x0d, 0xf9, 0x2f, 0, 0],
        &[0x0f, 0x01, 0x23],
        &[0x0f, 0x01, 0xe0],
        &[0x0f, 0x00, 0xc0],
        &[0x0f, 0x00, 0xc8],
    ] {
        let mut setup = random_setup(&mut Rng(6), Bitness::Bits64);
        setup.regs[Reg::Bx] = DATA + 0x200;
        compare(&native, &setup, &code(bytes), Bitness::Bits64, How::AsProbe).unwrap();
    }
}

#[test]
fn a_program_that_steps_itself_sees_the_same_traps() {
    let native = Native::new();
    let mut rng = Rng(7);
    let mut encodings = simulated_encodings(&mut rng);
    encodings.retain(|bytes| bytes.len() % 5 == 0 || bytes.len() == 1);
    encodings.extend([
        vec![0x9c],
        vec![0x66, 0x9c],
        vec![0x9d],
        vec![0x66, 0x9d],
        vec![0x8b, 0x05, 0xf8, 0x2f, 0x00, 0x00],
        vec![0xff, 0x15, 0xf8, 0x2f, 0x00, 0x00],
        vec![0xe2, 0x10],
        vec![0xf3, 0xa4],
        vec![0xf3, 0x48, 0xab],
    ]);
    for bytes in encodings {
        let code = code(&bytes);
        let analysis = Backend::analyze(&code, Bitness::Bits64).unwrap();
        let len = usize::from(analysis.len);
        let mut setup = random_setup(&mut rng, Bitness::Bits64);
        setup.regs[Reg::Flags] |= flags::TF;
        // An instruction after it, for a trap that comes late.
        let site = [&code[..len], &[0x90, 0x90]].concat();
        let bare = native.bare(&setup, &site);
        for how in [How::AsProbe, How::Stepped] {
            let (probed, _) = native.probed(&setup, &site, &analysis.insn, how);
            assert_eq!(
                bare.regs, probed.regs,
                "{bytes:02x?} {how:?} {:x?}",
                setup.regs
            );
            assert_eq!(bare, probed, "{bytes:02x?} {how:?}");
        }
    }
}

#[test]
fn a_program_that_steps_itself_over_a_system_call_sees_the_same_trap() {
    let native = Native::new();
    let mut setup = random_setup(&mut Rng(8), Bitness::Bits64);
    setup.regs[Reg::Ax] = 110;
    setup.regs[Reg::Flags] |= flags::TF;
    let site = [0x0f, 0x05, 0x90, 0x90];
    let analysis = Backend::analyze(&code(&site[..2]), Bitness::Bits64).unwrap();
    let (probed, _) = native.probed(&setup, &site, &analysis.insn, How::AsProbe);
    let bare = native.bare(&setup, &site);
    assert_eq!(bare.regs[Reg::Ip], SITE + 3);
    assert_eq!(probed, bare);
}

#[test]
fn far_branches_go_where_they_should() {
    use Bitness::{Bits32, Bits64};
    let native = Native::new();
    let target = (SITE + 0x40) as u32;
    let [t0, t1, t2, t3] = target.to_le_bytes();
    for (bytes, bitness) in [
        // Through a pointer at rbx: jmp, call, call with 64-bit operands.
        (&[0xff, 0x2b][..], Bits64),
        (&[0xff, 0x1b], Bits64),
        (&[0x66, 0xff, 0x1b], Bits64),
        (&[0xff, 0x2b], Bits32),
        (&[0xff, 0x1b], Bits32),
        // To an address in the instruction.
        (&[0xea, t0, t1, t2, t3, 0x23, 0], Bits32),
        (&[0x9a, t0, t1, t2, t3, 0x23, 0], Bits32),
        // Back.
        (&[0xcb], Bits64),
        (&[0xca, 8, 0], Bits64),
        (&[0xcb], Bits32),
    ] {
        let mut setup = random_setup(&mut Rng(9), bitness);
        let selector = setup.regs[Reg::Cs] as u32;
        let pointer = [target.to_le_bytes(), selector.to_le_bytes()].concat();
        setup.regs[Reg::Bx] = DATA + 0x200;
        setup.regs[Reg::Sp] = DATA + 0x400;
        setup.data[0x200..0x208].copy_from_slice(&pointer);
        setup.data[0x400..0x408].copy_from_slice(&pointer);
        let path = compare(&native, &setup, &code(bytes), bitness, How::AsProbe).unwrap();
        // With 16-bit operands, the target is nowhere.
        assert_eq!(path.completed, bytes[0] != 0x66, "{bytes:02x?} {bitness:?}");
    }
}
