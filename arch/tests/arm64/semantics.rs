// SPDX-License-Identifier: GPL-2.0

//! What is done to registers, memory and the guarded control stack, case by case.

use uprobes_arch::arm64::regs::{btype, pstate};
use uprobes_arch::arm64::{Arm64, Insn, PtRegs};
use uprobes_core::arch::{
    Arch, Bitness, Patch, Simulated, Stepped, UserMemory, UserTask, MAX_INSN_BYTES,
};
use uprobes_core::errno::Errno;

use crate::model::Model;

const SITE: u64 = 0x40_1000;
const SLOT: u64 = 0x7fff_f040;
const STACK: u64 = 0x7000_0000;

// Kinds of pages, and CPUs, by what they ask of indirect branches.
pub(crate) const PADS_UNKNOWN: Option<bool> = None;
pub(crate) const PADS_OPTIONAL: Option<bool> = Some(false);
pub(crate) const PADS_REQUIRED: Option<bool> = Some(true);

pub(crate) fn insn(word: u32) -> Insn {
    let mut code = [0; MAX_INSN_BYTES];
    code[..4].copy_from_slice(&word.to_le_bytes());
    Arm64::analyze(&code, Bitness::Bits64).unwrap().insn
}

fn regs() -> PtRegs {
    let mut regs = PtRegs::default();
    for n in 0..31 {
        regs.set_x(n, 0x100 + u64::from(n));
    }
    regs.pc = SITE;
    regs.sp = STACK + 0x80;
    regs
}

fn task() -> Model {
    Model::new(STACK, vec![0; 0x1100])
}

fn word(task: &Model, address: u64) -> u64 {
    task.clone().read_u64(address).unwrap()
}

/// Simulates `word`, which must work.
fn simulate(word: u32, regs: &mut PtRegs, task: &mut Model) {
    assert_eq!(
        Arm64::simulate(&insn(word), regs, task),
        Simulated::Done,
        "{word:#x}"
    );
}

/// Asserts that `word` is left to the hardware with nothing changed.
fn is_left_alone(word: u32, regs: &PtRegs, task: &Model) {
    let (mut r, mut t) = (*regs, task.clone());
    assert_eq!(
        Arm64::simulate(&insn(word), &mut r, &mut t),
        Simulated::OutOfLine,
        "{word:#x}"
    );
    assert_eq!(r, *regs, "{word:#x}");
    assert!(t == *task, "{word:#x}");
}

const STP_PUSH: u32 = 0xa9bf_7bfd; // stp x29, x30, [sp, #-16]!
const STP_OFFSET: u32 = 0xa902_7bfd; // stp x29, x30, [sp, #32]
const LDP_POP: u32 = 0xa8c1_7bfd; // ldp x29, x30, [sp], #16
const RET: u32 = 0xd65f_03c0;
const BL: u32 = 0x9400_0004; // bl #16
const BLR_X1: u32 = 0xd63f_0020;
const BR_X1: u32 = 0xd61f_0020;
const BR_X16: u32 = 0xd61f_0200;
const BTI: u32 = 0xd503_241f;
const BTI_C: u32 = 0xd503_245f;
const BTI_J: u32 = 0xd503_249f;
const BTI_JC: u32 = 0xd503_24df;
const NOP: u32 = 0xd503_201f;
const PACIASP: u32 = 0xd503_233f;
const SVC: u32 = 0xd400_0001;
const LDR_Q0: u32 = 0x9c00_0080; // ldr q0, #16
const BLRAAZ_X1: u32 = 0xd63f_083f;

#[test]
fn a_frame_is_made_and_undone() {
    let (mut regs, mut task) = (regs(), task());
    let sp = regs.sp;
    simulate(STP_PUSH, &mut regs, &mut task);
    assert_eq!((regs.sp, regs.pc), (sp - 16, SITE + 4));
    assert_eq!(word(&task, sp - 16), 0x100 + 29);
    assert_eq!(word(&task, sp - 8), 0x100 + 30);
    simulate(STP_OFFSET, &mut regs, &mut task);
    assert_eq!(regs.sp, sp - 16);
    assert_eq!(word(&task, sp + 24), 0x100 + 30);
    regs.set_x(29, 0);
    regs.set_x(30, 0);
    simulate(LDP_POP, &mut regs, &mut task);
    assert_eq!(
        (regs.sp, regs.x(29), regs.x(30)),
        (sp, 0x100 + 29, 0x100 + 30)
    );
}

#[test]
fn a_pair_that_faults_is_left_to_the_hardware() {
    let (mut regs, task) = (regs(), task());
    // Below the stack, above it, across pages, at an address that is not aligned.
    for sp in [STACK, STACK + 0x10f8, STACK + 0x1008, STACK + 0x88] {
        regs.sp = sp;
        for word in [STP_PUSH, LDP_POP] {
            let pops_first = word == LDP_POP && sp == STACK;
            if !pops_first {
                is_left_alone(word, &regs, &task);
            }
        }
    }
}

#[test]
fn calls_and_returns_keep_the_guarded_control_stack() {
    let (mut regs, mut task) = (regs(), task());
    task.shadow = Some(vec![1]);
    for call in [BL, BLR_X1] {
        regs.pc = SITE;
        regs.set_x(1, SITE + 16);
        simulate(call, &mut regs, &mut task);
        assert_eq!((regs.pc, regs.x(30)), (SITE + 16, SITE + 4));
        assert_eq!(task.shadow, Some(vec![1, SITE + 4]));
        simulate(RET, &mut regs, &mut task);
        assert_eq!(regs.pc, SITE + 4);
        assert_eq!(task.shadow, Some(vec![1]));
    }
}

#[test]
fn a_return_that_the_guarded_control_stack_knows_nothing_of_is_left_to_the_hardware() {
    let (regs, mut task) = (regs(), task());
    task.shadow = Some(vec![1, 2]);
    is_left_alone(RET, &regs, &task);
    task.shadow = Some(vec![]);
    is_left_alone(RET, &regs, &task);
}

#[test]
fn a_call_without_room_on_the_guarded_control_stack_is_left_to_the_hardware() {
    let (regs, mut task) = (regs(), task());
    task.shadow = Some(vec![1]);
    task.shadow_limit = 1;
    for call in [BL, BLR_X1] {
        is_left_alone(call, &regs, &task);
    }
}

/// Steps `word`, with `cpu` in the place of the hardware.
fn step(
    word: u32,
    regs: &mut PtRegs,
    task: &mut Model,
    cpu: impl FnOnce(&mut PtRegs, &mut Model),
) -> Result<Stepped, Errno> {
    let insn = insn(word);
    let mut state = Arm64::pre_xol(&insn, regs, task, SITE, SLOT).unwrap();
    assert_eq!(regs.pc, SLOT);
    assert!(task.stepped && regs.pstate & pstate::SS != 0);
    cpu(regs, task);
    regs.pstate &= !pstate::SS;
    Arm64::post_xol(&insn, regs, task, &mut state, SITE, SLOT)
}

#[test]
fn a_stepped_call_leaves_no_address_of_the_slot() {
    for (word, target) in [(BL, SLOT + 8), (BLR_X1, 0x5000), (BLRAAZ_X1, 0x5000)] {
        let (mut regs, mut task) = (regs(), task());
        task.shadow = Some(vec![1]);
        let end = step(word, &mut regs, &mut task, |regs, task| {
            task.shadow_push(SLOT + 4).unwrap();
            regs.set_x(30, SLOT + 4);
            regs.pc = target;
        });
        assert_eq!(end, Ok(Stepped::Done { trap: false }));
        let went_to = if word == BL { SITE + 16 } else { target };
        assert_eq!((regs.pc, regs.x(30)), (went_to, SITE + 4), "{word:#x}");
        assert_eq!(task.shadow, Some(vec![1, SITE + 4]), "{word:#x}");
        assert!(!task.stepped);
    }
}

#[test]
fn a_stepped_call_whose_guarded_control_stack_is_gone_kills() {
    let (mut regs, mut task) = (regs(), task());
    task.shadow = Some(vec![]);
    let end = step(BLRAAZ_X1, &mut regs, &mut task, |regs, _| regs.pc = 0x5000);
    assert_eq!(end, Err(Errno::EFAULT));
}

#[test]
fn branches_that_not_every_cpu_has_go_where_they_would() {
    // bc.eq #8, cbgt x1, x2, #16, retaa
    for (word, offset) in [(0x5400_0050, 8), (0xf402_0081, 16)] {
        for taken in [false, true] {
            let (mut regs, mut task) = (regs(), task());
            let end = step(word, &mut regs, &mut task, |regs, _| {
                regs.pc += if taken { 8 } else { 4 };
            });
            assert_eq!(end, Ok(Stepped::Done { trap: false }));
            let to = if taken { offset } else { 4 };
            assert_eq!(regs.pc, SITE + to, "{word:#x}");
        }
    }
    let (mut regs, mut task) = (regs(), task());
    let end = step(0xd65f_0bff, &mut regs, &mut task, |regs, _| regs.pc = 0x77);
    assert_eq!(end, Ok(Stepped::Done { trap: false }));
    assert_eq!(regs.pc, 0x77);
}

#[test]
fn vector_literals_are_loaded_from_where_they_are() {
    let (mut regs, mut task) = (regs(), task());
    let before = regs;
    let insn_word = insn(LDR_Q0).slot();
    // ldr q0, [x16]
    assert_eq!(insn_word, 0x3dc0_0200);
    let end = step(LDR_Q0, &mut regs, &mut task, |regs, _| {
        assert_eq!(regs.x(16), SITE + 16);
        regs.pc += 4;
    });
    assert_eq!(end, Ok(Stepped::Done { trap: false }));
    assert_eq!((regs.pc, regs.x(16)), (SITE + 4, before.x(16)));
    // A literal for x16 itself goes through another register: ldr x16, [x17].
    assert_eq!(insn(0x5800_0050).slot(), 0xf940_0230);
}

#[test]
fn a_fault_in_the_slot_is_one_at_the_site() {
    let (mut regs, mut task) = (regs(), task());
    regs.set_btype(btype::CALL);
    task.landing_pads = PADS_REQUIRED;
    task.fault_code = 7;
    let before = regs;
    let state = Arm64::pre_xol(&insn(LDR_Q0), &mut regs, &mut task, SITE, SLOT).unwrap();
    // Where landing pads are required the slot checks for them.
    assert_eq!(regs.btype(), btype::CALL);
    assert!(!Arm64::xol_was_trapped(&task));
    task.set_fault_code(0x9200_0047);
    assert!(Arm64::xol_was_trapped(&task));
    Arm64::abort_xol(&insn(LDR_Q0), &mut regs, &mut task, &state, SITE);
    assert_eq!(regs, before);
    // What the signal frame shows is that of the fault.
    assert_eq!(task.fault_code, 0x9200_0047);
    assert!(!task.stepped);
}

#[test]
fn the_last_fault_survives_a_step() {
    let (mut regs, mut task) = (regs(), task());
    task.fault_code = 0x9200_0047;
    let _ = step(PACIASP, &mut regs, &mut task, |regs, _| regs.pc += 4);
    assert_eq!(task.fault_code, 0x9200_0047);
    let state = Arm64::pre_xol(&insn(PACIASP), &mut regs, &mut task, SITE, SLOT).unwrap();
    Arm64::abort_xol(&insn(PACIASP), &mut regs, &mut task, &state, SITE);
    assert_eq!(task.fault_code, 0x9200_0047);
    // Also a step that is forgotten.
    let state = Arm64::pre_xol(&insn(PACIASP), &mut regs, &mut task, SITE, SLOT).unwrap();
    Arm64::forget_step(&mut task, &state);
    assert_eq!((task.fault_code, task.stepped), (0x9200_0047, false));
}

#[test]
fn a_tracer_that_steps_gets_its_trap_and_keeps_stepping() {
    let (mut regs, mut task) = (regs(), task());
    task.stepped = true;
    regs.pstate |= pstate::SS;
    // The hardware traps before the next instruction.
    let end = step(PACIASP, &mut regs, &mut task, |regs, _| regs.pc += 4);
    assert_eq!(end, Ok(Stepped::Done { trap: false }));
    assert!(task.stepped && regs.pstate & pstate::SS == 0);
    assert_eq!(regs.pc, SITE + 4);

    for word in [NOP, SVC] {
        regs.pstate |= pstate::SS;
        let simulated = Arm64::simulate(&insn(word), &mut regs, &mut task);
        if simulated == Simulated::Done {
            assert!(!Arm64::trap_after(&mut regs, &task));
        }
        assert!(task.stepped && regs.pstate & pstate::SS == 0);
    }
}

#[test]
fn what_the_kernel_keeps_no_syndrome_of_shows_by_its_signal() {
    let (mut regs, mut task) = (regs(), task());
    task.fault_code = 7;
    let before = regs;
    // A trapped floating-point exception; a watchpoint, which is no fault of the program.
    for stopped in [false, true] {
        let state = Arm64::pre_xol(&insn(PACIASP), &mut regs, &mut task, SITE, SLOT).unwrap();
        assert!(!Arm64::xol_was_trapped(&task) && !Arm64::xol_was_stopped(&task));
        (task.pending_fault, task.pending_trap) = (true, stopped);
        assert!(Arm64::xol_was_trapped(&task));
        assert_eq!(Arm64::xol_was_stopped(&task), stopped);
        Arm64::abort_xol(&insn(PACIASP), &mut regs, &mut task, &state, SITE);
        assert_eq!((regs, task.fault_code), (before, 7));
        (task.pending_fault, task.pending_trap) = (false, false);
    }
}

#[test]
fn landing_pads_are_those_of_the_manual() {
    let (any, call, jump) = (btype::ANY_JUMP, btype::CALL, btype::JUMP);
    let pads = [
        (BTI, vec![]),
        (BTI_C, vec![any, call]),
        (BTI_J, vec![any, jump]),
        (BTI_JC, vec![any, call, jump]),
        (NOP, vec![]),
        (STP_PUSH, vec![]),
        (RET, vec![]),
        (SVC, vec![]),
    ];
    for (word, allowed) in pads {
        for from in [any, call, jump] {
            let (mut regs, mut task) = (regs(), task());
            regs.set_btype(from);
            task.landing_pads = PADS_REQUIRED;
            if !allowed.contains(&from) {
                is_left_alone(word, &regs, &task);
                task.landing_pads = PADS_OPTIONAL;
            }
            let simulated = Arm64::simulate(&insn(word), &mut regs, &mut task);
            assert_ne!(simulated, Simulated::OutOfLine, "{word:#x} from {from}");
            assert_eq!(regs.btype(), btype::NONE, "{word:#x} from {from}");
        }
    }
}

#[test]
fn branches_tell_their_kind() {
    let cases = [
        (BR_X1, PADS_REQUIRED, btype::JUMP),
        (BR_X16, PADS_REQUIRED, btype::ANY_JUMP),
        (BR_X1, PADS_OPTIONAL, btype::ANY_JUMP),
        (BLR_X1, PADS_REQUIRED, btype::CALL),
        (BLR_X1, PADS_OPTIONAL, btype::CALL),
        (RET, PADS_REQUIRED, btype::NONE),
        (BL, PADS_REQUIRED, btype::NONE),
        (BR_X1, PADS_UNKNOWN, btype::NONE),
        (BLR_X1, PADS_UNKNOWN, btype::NONE),
    ];
    for (word, pads, kind) in cases {
        let (mut regs, mut task) = (regs(), task());
        task.landing_pads = pads;
        simulate(word, &mut regs, &mut task);
        assert_eq!(regs.btype(), kind, "{word:#x} {pads:?}");
    }
}

#[test]
fn a_jump_from_the_slot_is_of_the_kind_of_its_page() {
    const BRAAZ_X1: u32 = 0xd61f_083f;
    for (pads, kind) in [
        (PADS_REQUIRED, btype::JUMP),
        (PADS_OPTIONAL, btype::ANY_JUMP),
    ] {
        let (mut regs, mut task) = (regs(), task());
        task.landing_pads = pads;
        let _ = step(BRAAZ_X1, &mut regs, &mut task, |regs, _| {
            regs.pc = 0x5000;
            regs.set_btype(btype::JUMP);
        });
        assert_eq!(regs.btype(), kind, "{pads:?}");
    }
}

#[test]
fn the_slot_does_not_ask_for_landing_pads_that_the_site_need_not_have() {
    let (mut regs, mut task) = (regs(), task());
    regs.set_btype(btype::CALL);
    task.landing_pads = PADS_OPTIONAL;
    let _ = step(PACIASP, &mut regs, &mut task, |regs, _| {
        assert_eq!(regs.btype(), btype::NONE);
        regs.pc += 4;
    });
}

#[test]
fn system_calls_are_left_to_be_made() {
    let (mut regs, mut task) = (regs(), task());
    let before = regs;
    assert_eq!(
        Arm64::simulate(&insn(SVC), &mut regs, &mut task),
        Simulated::SystemCall
    );
    assert_eq!(regs.pc, SITE + 4);
    regs.pc = SITE;
    assert_eq!(regs, before);
}

#[test]
fn what_was_to_fault_in_the_slot_and_did_not_is_done_all_the_same() {
    // adr x0, #8
    let (mut regs, mut task) = (regs(), task());
    let end = step(0x1000_0040, &mut regs, &mut task, |regs, _| regs.pc += 4);
    assert_eq!(end, Ok(Stepped::Done { trap: false }));
    assert_eq!((regs.pc, regs.x(0)), (SITE + 4, SITE + 8));
    // A system call cannot be made here: it is hit again.
    let end = step(SVC, &mut regs, &mut task, |regs, _| regs.pc += 4);
    assert_eq!((end, regs.pc), (Ok(Stepped::Restart), SITE));
}

#[test]
fn exclusive_sequences_are_refused_from_within() {
    const LDXR: u32 = 0x885f_7c01;
    const STXR: u32 = 0x8802_7c01;
    const ADD: u32 = 0x1100_0421;
    const CBNZ: u32 = 0x35ff_ffa2;
    const B_NE: u32 = 0x5400_0061;
    let verdict = |words: [u32; 4]| {
        let mut code = [0; MAX_INSN_BYTES];
        for (to, word) in code.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Arm64::analyze(&code, Bitness::Bits64).map(|_| ())
    };
    let refused = Err(Errno::EINVAL);
    assert_eq!(verdict([ADD, STXR, CBNZ, RET]), refused);
    assert_eq!(verdict([ADD, B_NE, ADD, STXR]), refused);
    // Before it, behind it, and where it is reached from elsewhere.
    assert_eq!(verdict([ADD, LDXR, ADD, STXR]), Ok(()));
    assert_eq!(verdict([CBNZ, RET, ADD, STXR]), Ok(()));
    assert_eq!(verdict([ADD, ADD, RET, STXR]), Ok(()));
    assert_eq!(verdict([ADD, 0x1400_0010, STXR, STXR]), Ok(()));
}

#[test]
fn text_is_patched_in_the_cheapest_way_that_is_legal() {
    // B, BL, BRK, HVC, ISB, NOP, SMC, SVC.
    let safe = [
        0x1400_0002u32,
        0x9400_0002,
        0xd420_00a0,
        0xd400_0002,
        0xd503_3fdf,
        NOP,
        0xd400_0003,
        SVC,
    ];
    // And much that looks like them.
    let unsafe_ = [
        STP_PUSH,
        RET,
        BR_X1,
        BTI_C,
        PACIASP,
        0x5400_0040,
        0x3400_0040,
        0xd440_0020,
        0xd4a0_0001,
        0xd503_3f9f,
        0xd503_205f,
        0,
        0xd503_3fff,
    ];
    let patch = |old: u32, new: u32| Arm64::patch(&old.to_le_bytes(), &new.to_le_bytes());
    for a in safe {
        for b in safe {
            assert_eq!(patch(a, b), Patch::InPlace, "{a:#x} {b:#x}");
        }
        for b in unsafe_ {
            assert_eq!(patch(a, b), Patch::Apart, "{a:#x} {b:#x}");
            assert_eq!(patch(b, a), Patch::Apart, "{b:#x} {a:#x}");
        }
    }
    // More or less than an instruction.
    assert_eq!(Arm64::patch(&[0x1f], &[0xa0]), Patch::Apart);
    assert_eq!(Arm64::patch(&[], &[]), Patch::Apart);
}
