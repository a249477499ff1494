// SPDX-License-Identifier: GPL-2.0

//! What the CPU of the host cannot show: shadow stacks, faults at chosen places, return probes.

use uprobes_arch::x86_64::regs::flags;
use uprobes_arch::x86_64::uretprobe::{self, Forged, NR_URETPROBE};
use uprobes_arch::x86_64::{Insn, PtRegs, Reg, StepState, X86_64};
use uprobes_core::arch::{
    Arch, Bitness, FrameCheck, HijackError, Simulated, Stepped, MAX_INSN_BYTES,
};
use uprobes_core::errno::Errno;

use crate::model::Model;
use crate::plain::Plain;

type Backend = X86_64<Plain>;

const SITE: u64 = 0x40_1000;
const SLOT: u64 = 0x7fff_f000_0080;
const STACK: u64 = 0x7000_0000;
const TRAMPOLINE: u64 = 0x7fff_f000_0000;

fn insn(bytes: &[u8], bitness: Bitness) -> Insn {
    let mut code = [0; MAX_INSN_BYTES];
    let len = bytes.len().min(MAX_INSN_BYTES);
    code[..len].copy_from_slice(&bytes[..len]);
    Backend::analyze(&code, bitness).unwrap().insn
}

fn regs(bitness: Bitness) -> PtRegs {
    let mut regs = PtRegs::default();
    regs[Reg::Ip] = SITE;
    regs[Reg::Sp] = STACK + 0x80;
    regs[Reg::Flags] = 0x202;
    regs[Reg::Cs] = if bitness == Bitness::Bits64 {
        0x33
    } else {
        0x23
    };
    regs
}

/// The first instruction of a function: `push %rbp`.
fn entry() -> Insn {
    insn(&[0x55], Bitness::Bits64)
}

fn task() -> Model {
    Model::new(STACK, vec![0; 0x100])
}

fn word(task: &Model, offset: usize) -> u64 {
    u64::from_le_bytes(task.memory[offset..offset + 8].try_into().unwrap())
}

fn set_word(task: &mut Model, offset: usize, value: u64) {
    task.memory[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

const CALL: [u8; 5] = [0xe8, 0x10, 0, 0, 0];
const CALL_RAX: [u8; 2] = [0xff, 0xd0];
const CALL_MEM: [u8; 6] = [0xff, 0x15, 0, 0, 0, 0];
const RET: [u8; 1] = [0xc3];

#[test]
fn call_and_ret_keep_the_shadow_stack() {
    let bits = Bitness::Bits64;
    for call in [&CALL[..], &CALL_RAX] {
        let (mut regs, mut task) = (regs(bits), task());
        regs[Reg::Ax] = SITE + 0x15;
        task.shadow = Some(vec![1]);
        let after = SITE + call.len() as u64;
        assert_eq!(
            Backend::simulate(&insn(call, bits), &mut regs, &mut task),
            Simulated::Done
        );
        assert_eq!(task.shadow, Some(vec![1, after]));
        assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (SITE + 0x15, STACK + 0x78));
        assert_eq!(word(&task, 0x78), after);

        assert_eq!(
            Backend::simulate(&insn(&RET, bits), &mut regs, &mut task),
            Simulated::Done
        );
        assert_eq!(task.shadow, Some(vec![1]));
        assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (after, STACK + 0x80));
    }
}

#[test]
fn a_ret_that_the_shadow_stack_contradicts_is_left_to_the_cpu() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    set_word(&mut task, 0x80, SITE + 0x100);
    for shadow in [vec![1, SITE], vec![]] {
        task.shadow = Some(shadow.clone());
        let before = regs;
        let ret = insn(&RET, Bitness::Bits64);
        assert_eq!(
            Backend::simulate(&ret, &mut regs, &mut task),
            Simulated::OutOfLine
        );
        assert_eq!((regs, &task.shadow), (before, &Some(shadow)));
    }
}

#[test]
fn a_call_that_cannot_push_changes_nothing() {
    for (sp, limit) in [(STACK, 8), (STACK + 0x108, 8), (STACK + 0x80, 1)] {
        for call in [&CALL[..], &CALL_RAX] {
            let (mut regs, mut task) = (regs(Bitness::Bits64), task());
            regs[Reg::Sp] = sp;
            regs[Reg::Ax] = SITE;
            task.shadow = Some(vec![1]);
            task.shadow_limit = limit;
            let before = regs;
            let call = insn(call, Bitness::Bits64);
            assert_eq!(
                Backend::simulate(&call, &mut regs, &mut task),
                Simulated::OutOfLine
            );
            assert_eq!((regs, &task.shadow), (before, &Some(vec![1])));
            assert!(task.memory.iter().all(|&b| b == 0));
        }
    }
}

#[test]
fn addresses_no_program_has_are_left_to_the_cpu() {
    for address in [1 << 47, 0xffff_8000_0000_0000, u64::MAX] {
        let (mut regs, mut task) = (regs(Bitness::Bits64), task());
        regs[Reg::Ax] = address;
        set_word(&mut task, 0x80, address);
        for bytes in [&CALL_RAX[..], &[0xff, 0xe0], &RET] {
            let before = regs;
            let insn = insn(bytes, Bitness::Bits64);
            assert_eq!(
                Backend::simulate(&insn, &mut regs, &mut task),
                Simulated::OutOfLine
            );
            assert_eq!(regs, before);
        }
    }
}

#[test]
fn every_simulation_that_faults_changes_nothing() {
    for bits in [Bitness::Bits64, Bitness::Bits32] {
        for bytes in [
            &[0x50][..],
            &[0x58],
            &[0x6a, 1],
            &[0xc9],
            &[0x9c],
            &[0xc3],
            &[0xc2, 8, 0],
            &CALL,
        ] {
            let (mut regs, mut task) = (regs(bits), task());
            regs[Reg::Sp] = 0x1234;
            regs[Reg::Bp] = 0x1234;
            let before = regs;
            let outcome = Backend::simulate(&insn(bytes, bits), &mut regs, &mut task);
            assert_eq!(
                (outcome, regs),
                (Simulated::OutOfLine, before),
                "{bytes:02x?}"
            );
        }
    }
}

#[test]
fn addresses_of_32_bit_code_wrap() {
    let bits = Bitness::Bits32;
    let (mut regs, mut task) = (regs(bits), Model::new(0xffff_ff00, vec![0; 0x100]));
    regs[Reg::Ip] = 0xffff_fffe;
    regs[Reg::Sp] = 0;
    assert_eq!(
        Backend::simulate(&insn(&CALL, bits), &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (0x13, 0xffff_fffc));
    assert_eq!(task.memory[0xfc..], 3u32.to_le_bytes());
    assert_eq!(
        Backend::simulate(&insn(&RET, bits), &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (3, 0));
    regs[Reg::Ip] = 0x10;
    let jump = insn(&[0xeb, 0x80], bits);
    assert_eq!(
        Backend::simulate(&jump, &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!(regs[Reg::Ip], 0xffff_ff92);
}

#[test]
fn code_of_the_other_width_is_not_simulated() {
    let (mut regs, mut task) = (regs(Bitness::Bits32), task());
    let push = insn(&[0x55], Bitness::Bits64);
    assert_eq!(
        Backend::simulate(&push, &mut regs, &mut task),
        Simulated::OutOfLine
    );
}

/// Starts a step, moves on as the CPU would have, and ends it.
fn step(
    insn: &Insn,
    regs: &mut PtRegs,
    task: &mut Model,
    cpu: impl FnOnce(&mut PtRegs, &mut Model),
) -> Result<Stepped, Errno> {
    task.fault_code = 6;
    let mut state = Backend::pre_xol(insn, regs, task, SITE, SLOT).unwrap();
    assert_eq!(regs[Reg::Ip], SLOT);
    assert!(regs.tf() && !Backend::xol_was_trapped(task));
    cpu(regs, task);
    let outcome = Backend::post_xol(insn, regs, task, &mut state, SITE, SLOT);
    assert_eq!(task.fault_code, 6);
    outcome
}

const DONE: Result<Stepped, Errno> = Ok(Stepped::Done { trap: false });

/// What the CPU does in a slot with a call of `len` bytes to `target`.
fn cpu_call(len: u64, target: u64) -> impl FnOnce(&mut PtRegs, &mut Model) {
    move |regs, task| {
        regs[Reg::Sp] -= 8;
        set_word(task, (regs[Reg::Sp] - STACK) as usize, SLOT + len);
        task.shadow.get_or_insert_default().push(SLOT + len);
        regs[Reg::Ip] = target;
    }
}

#[test]
fn an_indirect_call_returns_behind_the_site() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    let call = insn(&CALL_MEM, Bitness::Bits64);
    let cpu = cpu_call(6, 0x50_0000);
    assert_eq!(step(&call, &mut regs, &mut task, cpu), DONE);
    assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (0x50_0000, STACK + 0x78));
    assert_eq!(word(&task, 0x78), SITE + 6);
    assert_eq!(task.shadow, Some(vec![SITE + 6]));
    assert!(!regs.tf());
}

#[test]
fn an_indirect_call_whose_stack_goes_away_starts_over() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    let call = insn(&CALL_MEM, Bitness::Bits64);
    let before = regs;
    let outcome = step(&call, &mut regs, &mut task, |regs, task| {
        cpu_call(6, 0x50_0000)(regs, task);
        task.memory.clear();
    });
    assert_eq!(outcome, Ok(Stepped::Restart));
    assert_eq!((regs, task.shadow), (before, Some(vec![])));
}

#[test]
fn pushed_flags_do_not_show_what_pushf_hides() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    regs[Reg::Flags] |= flags::RF | flags::TF;
    let pushf = insn(&[0x9c], Bitness::Bits64);
    assert_eq!(
        Backend::simulate(&pushf, &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!(word(&task, 0x78), 0x202 | flags::TF);
    assert!(Backend::trap_after(&mut regs, &task));
}

#[test]
fn pushed_flags_do_not_show_the_step() {
    for (bytes, bits, size) in [
        (&[0x9c][..], Bitness::Bits64, 8),
        (&[0x66, 0x9c], Bitness::Bits64, 2),
        (&[0x9c], Bitness::Bits32, 4),
    ] {
        let (mut regs, mut task) = (regs(bits), task());
        let pushf = insn(bytes, bits);
        let cpu = |regs: &mut PtRegs, task: &mut Model| {
            regs[Reg::Sp] -= size;
            let sp = (regs[Reg::Sp] - STACK) as usize;
            let pushed = regs[Reg::Flags].to_le_bytes();
            task.memory[sp..sp + size as usize].copy_from_slice(&pushed[..size as usize]);
            regs[Reg::Ip] += bytes.len() as u64;
        };
        let before = regs;
        assert_eq!(step(&pushf, &mut regs, &mut task, cpu), DONE);
        assert_eq!(word(&task, 0x80 - size as usize), 0x202);
        assert_eq!(
            (regs[Reg::Ip], regs[Reg::Flags]),
            (SITE + bytes.len() as u64, 0x202)
        );

        let mut regs = before;
        let outcome = step(&pushf, &mut regs, &mut task, |regs, task| {
            cpu(regs, task);
            task.memory.clear();
        });
        assert_eq!((outcome, regs), (Ok(Stepped::Restart), before));
    }
}

#[test]
fn a_relative_call_that_was_stepped_goes_where_it_should() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    let call = insn(&CALL, Bitness::Bits64);
    let (bytes, _) = Backend::xol_bytes(&call);
    assert_eq!(bytes[..5], [0xe8, 0, 0, 0, 0]);
    let before = regs;
    let cpu = || cpu_call(5, SLOT + 5);
    assert_eq!(step(&call, &mut regs, &mut task, cpu()), DONE);
    assert_eq!((regs[Reg::Ip], regs[Reg::Sp]), (SITE + 0x15, STACK + 0x78));
    assert_eq!(word(&task, 0x78), SITE + 5);
    assert_eq!(task.shadow, Some(vec![SITE + 5]));

    let mut regs = before;
    let outcome = step(&call, &mut regs, &mut task, |regs, task| {
        cpu()(regs, task);
        task.memory.clear();
    });
    assert_eq!(outcome, Ok(Stepped::Restart));
    assert_eq!((regs, task.shadow), (before, Some(vec![SITE + 5])));
}

#[test]
fn a_shadow_stack_that_cannot_be_mended_kills() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    let call = insn(&CALL_MEM, Bitness::Bits64);
    let outcome = step(&call, &mut regs, &mut task, |regs, task| {
        cpu_call(6, 0x50_0000)(regs, task);
        task.shadow = Some(vec![]);
    });
    assert_eq!(outcome, Err(Errno::EFAULT));
    assert_eq!(regs[Reg::Ip], SITE);
    assert!(!regs.tf());
}

#[test]
fn an_aborted_step_leaves_nothing_behind() {
    for tf in [0, flags::TF] {
        let load = insn(&[0x8b, 0x05, 0x10, 0, 0, 0], Bitness::Bits64);
        let (mut regs, mut task) = (regs(Bitness::Bits64), task());
        let scratch = load.scratch().unwrap();
        regs[scratch] = 0x1234;
        regs[Reg::Flags] |= tf;
        task.fault_code = 13;
        let before = regs;
        let state = Backend::pre_xol(&load, &mut regs, &mut task, SITE, SLOT).unwrap();
        assert_eq!(regs[scratch], SITE + 6);
        task.fault_code = 14;
        assert!(Backend::xol_was_trapped(&task));
        Backend::abort_xol(&load, &mut regs, &mut task, &state, SITE);
        assert_eq!((regs, task.fault_code), (before, 13));
    }
}

/// Registers on the way back from a system call in the slot.
fn in_syscall(tf: u64) -> (Insn, PtRegs, StepState) {
    let syscall = insn(&[0x0f, 0x05], Bitness::Bits64);
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    regs[Reg::Flags] |= tf;
    let state = Backend::pre_xol(&syscall, &mut regs, &mut task, SITE, SLOT).unwrap();
    regs[Reg::Ip] = SLOT + 2;
    regs[Reg::Cx] = SLOT + 2;
    regs[Reg::R11] = regs[Reg::Flags];
    (syscall, regs, state)
}

#[test]
fn a_system_call_can_end_before_its_trap() {
    for tf in [0, flags::TF] {
        let (syscall, mut regs, state) = in_syscall(tf);
        assert!(Backend::finish_early(
            &syscall, &mut regs, &state, SITE, SLOT
        ));
        assert_eq!((regs[Reg::Ip], regs[Reg::Cx]), (SITE + 2, SITE + 2));
        assert_eq!((regs[Reg::R11], regs[Reg::Flags]), (0x202 | tf, 0x202 | tf));
    }
}

#[test]
fn a_system_call_that_is_yet_to_be_made_does_not_end_early() {
    let (syscall, mut regs, state) = in_syscall(0);
    regs[Reg::Ip] = SLOT;
    let before = regs;
    assert!(!Backend::finish_early(
        &syscall, &mut regs, &state, SITE, SLOT
    ));
    assert_eq!(regs, before);
    let nop = insn(&[0x8b, 0x00], Bitness::Bits64);
    regs[Reg::Ip] = SLOT + 2;
    assert!(!Backend::finish_early(&nop, &mut regs, &state, SITE, SLOT));
}

#[test]
fn a_system_call_that_loads_all_registers_keeps_them() {
    let (syscall, mut regs, state) = in_syscall(0);
    regs[Reg::Ip] = 0x1234_5678;
    regs[Reg::Cx] = 1;
    regs[Reg::R11] = flags::TF;
    regs[Reg::Flags] = 0x202 | flags::TF;
    let before = regs;
    assert!(Backend::finish_early(
        &syscall, &mut regs, &state, SITE, SLOT
    ));
    assert_eq!(regs, before);
}

#[test]
fn a_trap_after_all_registers_were_loaded_is_the_programs() {
    for tf in [0, flags::TF] {
        let (syscall, mut regs, mut state) = in_syscall(0);
        regs[Reg::Ip] = 0x1234_5678;
        regs[Reg::Flags] = 0x202 | tf;
        let before = regs;
        let outcome = Backend::post_xol(&syscall, &mut regs, &mut task(), &mut state, SITE, SLOT);
        assert_eq!(outcome, Ok(Stepped::Done { trap: tf != 0 }));
        assert_eq!(regs, before);
    }
}

#[test]
fn hijacked_returns_change_both_stacks() {
    for bits in [Bitness::Bits64, Bitness::Bits32] {
        let (mut regs, mut task) = (regs(bits), task());
        let trampoline = if bits == Bitness::Bits64 {
            TRAMPOLINE
        } else {
            0xf7ff_0000
        };
        let rest = 0x5555_5555_0000_0000;
        let original = match bits {
            Bitness::Bits64 => rest | 0x1234,
            Bitness::Bits32 => 0x1234,
        };
        set_word(&mut task, 0x80, rest | 0x1234);
        task.shadow = Some(vec![7, original]);
        let before = regs;
        assert_eq!(
            Backend::hijack_return(&entry(), &mut regs, &mut task, trampoline),
            Ok(original)
        );
        let hijacked = if bits == Bitness::Bits64 {
            trampoline
        } else {
            rest | trampoline
        };
        assert_eq!(word(&task, 0x80), hijacked);
        assert_eq!(task.shadow, Some(vec![7, trampoline]));
        assert_eq!(regs, before);
        // A second probe at the same frame finds the trampoline, and changes nothing.
        task.shadow = Some(vec![7]);
        let again = Backend::hijack_return(&entry(), &mut regs, &mut task, trampoline);
        assert_eq!(again, Ok(trampoline));
        assert_eq!(task.shadow, Some(vec![7]));
    }
}

#[test]
fn returns_that_cannot_be_hijacked_say_why() {
    let (mut regs, mut task) = (regs(Bitness::Bits64), task());
    task.shadow = Some(vec![]);
    let clobbered = Err(HijackError::Clobbered);
    assert_eq!(
        Backend::hijack_return(&entry(), &mut regs, &mut task, TRAMPOLINE),
        clobbered
    );
    regs[Reg::Sp] = 8;
    let unreadable = Err(HijackError::Unreadable);
    assert_eq!(
        Backend::hijack_return(&entry(), &mut regs, &mut task, TRAMPOLINE),
        unreadable
    );
}

#[test]
fn frames_are_found_and_outlived() {
    for (bits, word) in [(Bitness::Bits64, 8), (Bitness::Bits32, 4)] {
        let mut regs = regs(bits);
        let frame = Backend::frame_at_entry(&regs);
        assert_eq!(frame, regs[Reg::Sp]);
        // The same function by a tail call, and one it calls.
        assert!(!Backend::is_frame_alive(frame, FrameCheck::Call, &regs));
        assert!(Backend::is_frame_alive(frame, FrameCheck::ChainCall, &regs));
        regs[Reg::Sp] -= 0x20;
        assert!(Backend::is_frame_alive(frame, FrameCheck::Call, &regs));
        // On return.
        regs[Reg::Sp] = frame + word;
        assert_eq!(Backend::frame_at_return(&regs), frame);
        assert!(!Backend::is_frame_alive(frame, FrameCheck::Return, &regs));
    }
}

/// Runs the trampoline's code on the simulation up to its end or its system call.
fn run_trampoline(regs: &mut PtRegs, task: &mut Model) {
    let code = Backend::trampoline(Bitness::Bits64);
    while let Some(rest) = code.get((regs[Reg::Ip].wrapping_sub(TRAMPOLINE)) as usize..) {
        let insn = insn(rest, Bitness::Bits64);
        if Backend::simulate(&insn, regs, task) == Simulated::OutOfLine {
            assert!(rest.starts_with(&[0x0f, 0x05]));
            regs[Reg::Ip] += 2;
            regs[Reg::Cx] = regs[Reg::Ip];
            regs[Reg::R11] = regs[Reg::Flags];
            return;
        }
    }
}

/// Registers of a function that has returned to the trampoline.
fn returned() -> PtRegs {
    let mut regs = regs(Bitness::Bits64);
    regs[Reg::Ip] = TRAMPOLINE;
    regs[Reg::Ax] = 0xaaaa;
    regs[Reg::Cx] = 0xcccc;
    regs[Reg::R11] = 0xbbbb;
    regs
}

#[test]
fn the_trampoline_returns_to_the_caller() {
    let before = returned();
    let (mut regs, mut task) = (before, task());
    run_trampoline(&mut regs, &mut task);
    assert_eq!(regs[Reg::Ax], NR_URETPROBE.into());

    let frame = uretprobe::enter(&mut regs, &mut task, TRAMPOLINE).unwrap();
    let mut seen = before;
    seen[Reg::Ip] = TRAMPOLINE + 13;
    seen[Reg::OrigAx] = u64::MAX;
    assert_eq!(regs, seen);

    // A consumer may change what it has been shown.
    regs[Reg::Ip] = SITE;
    regs[Reg::Ax] = 1;
    regs[Reg::Cx] = 2;
    regs[Reg::R11] = 3;
    regs[Reg::Ax] = uretprobe::leave(frame, &mut regs, &mut task).unwrap();
    // As sysret wants it.
    assert_eq!(
        (regs[Reg::Cx], regs[Reg::R11]),
        (regs[Reg::Ip], regs[Reg::Flags])
    );
    run_trampoline(&mut regs, &mut task);
    let mut after = before;
    after[Reg::Ip] = SITE;
    after[Reg::OrigAx] = u64::MAX;
    (after[Reg::Ax], after[Reg::Cx], after[Reg::R11]) = (1, 2, 3);
    assert_eq!(regs, after);
}

#[test]
fn a_moved_stack_or_a_shadow_stack_skips_the_trampoline() {
    for (moved, shadow) in [(8, None), (0, Some(vec![]))] {
        let (mut regs, mut task) = (returned(), task());
        run_trampoline(&mut regs, &mut task);
        let frame = uretprobe::enter(&mut regs, &mut task, TRAMPOLINE).unwrap();
        task.shadow = shadow;
        regs[Reg::Ip] = SITE;
        regs[Reg::Sp] += moved;
        let before = regs;
        assert_eq!(uretprobe::leave(frame, &mut regs, &mut task), Ok(0xaaaa));
        assert_eq!(regs, before);
    }
}

#[test]
fn a_forged_system_call_is_told() {
    let (mut regs, mut task) = (returned(), task());
    run_trampoline(&mut regs, &mut task);
    for trampoline in [TRAMPOLINE + 1, TRAMPOLINE - 1, 0] {
        let before = regs;
        assert_eq!(
            uretprobe::enter(&mut regs, &mut task, trampoline).unwrap_err(),
            Forged
        );
        assert_eq!(regs, before);
    }
    let frame = uretprobe::enter(&mut regs, &mut task, TRAMPOLINE).unwrap();
    task.memory.clear();
    assert_eq!(uretprobe::leave(frame, &mut regs, &mut task), Err(Forged));

    let mut regs = returned();
    regs[Reg::Ip] = TRAMPOLINE + 13;
    assert_eq!(
        uretprobe::enter(&mut regs, &mut task, TRAMPOLINE).unwrap_err(),
        Forged
    );
}

#[test]
fn function_entries_are_known() {
    let entry = |bytes: &[u8], bits| {
        let mut code = [0; MAX_INSN_BYTES];
        code[..bytes.len()].copy_from_slice(bytes);
        Backend::is_function_entry(&code, bits)
    };
    assert!(entry(&[0x55], Bitness::Bits64) && entry(&[0x55], Bitness::Bits32));
    assert!(entry(&[0xf3, 0x0f, 0x1e, 0xfa], Bitness::Bits64));
    assert!(!entry(&[0xf3, 0x0f, 0x1e, 0xfa], Bitness::Bits32));
    assert!(!entry(&[0x90], Bitness::Bits64));
}

#[test]
fn breakpoints_are_known() {
    assert!(Backend::is_swbp(&[0xcc, 0x90]) && Backend::is_trap_insn(&[0xcc]));
    assert!(!Backend::is_swbp(&[0xcd, 0x03]) && !Backend::is_swbp(&[]));
    let mut regs = regs(Bitness::Bits64);
    regs[Reg::Ip] = SITE + 1;
    assert_eq!(Backend::swbp_addr(&regs), SITE);
}
