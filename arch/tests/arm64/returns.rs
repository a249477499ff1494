// SPDX-License-Identifier: GPL-2.0

//! Return probes: the hijack of the link register, with and without signatures and the guarded
//! control stack.

use uprobes_arch::arm64::{Arm64, PtRegs};
use uprobes_core::arch::{Arch, Bitness, FrameCheck, HijackError};

use crate::model::Model;
use crate::semantics::insn;

const CALLER: u64 = 0x40_2000;
const TRAMPOLINE: u64 = 0xffff_ffff_f000;
const STACK: u64 = 0x7000_0000;

const NOP: u32 = 0xd503_201f;
const PACIASP: u32 = 0xd503_233f;

fn entry() -> (PtRegs, Model) {
    let mut regs = PtRegs::default();
    regs.set_x(30, CALLER);
    regs.sp = STACK;
    let mut task = Model::new(STACK, vec![0; 16]);
    task.address_bits = 48;
    (regs, task)
}

fn hijack(word: u32, regs: &mut PtRegs, task: &mut Model) -> Result<u64, HijackError> {
    Arm64::hijack_return(&insn(word), regs, task, TRAMPOLINE)
}

#[test]
fn the_link_register_leads_to_the_trampoline() {
    for word in [NOP, PACIASP] {
        let (mut regs, mut task) = entry();
        assert_eq!(hijack(word, &mut regs, &mut task), Ok(CALLER));
        assert_eq!(regs.x(30), TRAMPOLINE);
        // Once more, as at the end of a tail call.
        assert_eq!(hijack(word, &mut regs, &mut task), Ok(TRAMPOLINE));
        assert_eq!(regs.x(30), TRAMPOLINE);
    }
    assert!(Arm64::is_swbp(Arm64::trampoline(Bitness::Bits64)));
}

#[test]
fn the_guarded_control_stack_follows() {
    let (mut regs, mut task) = entry();
    task.shadow = Some(vec![1, CALLER]);
    assert_eq!(hijack(NOP, &mut regs, &mut task), Ok(CALLER));
    assert_eq!(task.shadow, Some(vec![1, TRAMPOLINE]));
}

/// Asserts that the return is not hijacked and nothing is changed.
fn is_passed_over(word: u32, regs: PtRegs, task: Model) {
    let (mut r, mut t) = (regs, task.clone());
    assert_eq!(hijack(word, &mut r, &mut t), Err(HijackError::Unreadable));
    assert_eq!(r, regs);
    assert!(t == task);
}

#[test]
fn an_address_that_the_guarded_control_stack_does_not_have_is_left_alone() {
    let (regs, mut task) = entry();
    task.shadow = Some(vec![1, CALLER + 4]);
    is_passed_over(NOP, regs, task.clone());
    task.shadow = Some(vec![]);
    is_passed_over(NOP, regs, task);
}

#[test]
fn a_guarded_control_stack_that_is_lost_half_way_kills() {
    let (mut regs, mut task) = entry();
    task.shadow = Some(vec![CALLER]);
    task.shadow_limit = 0;
    let result = hijack(NOP, &mut regs, &mut task);
    assert_eq!(result, Err(HijackError::Clobbered));
}

#[test]
fn a_signed_address_is_left_alone() {
    let (mut regs, mut task) = entry();
    for signature in [1 << 48, 0x5a << 48, 0x80 << 56] {
        regs.set_x(30, CALLER | signature);
        is_passed_over(NOP, regs, task.clone());
    }
    // Where user space has 52 bits, some of these belong to the address.
    task.address_bits = 52;
    regs.set_x(30, CALLER | 1 << 48);
    assert_eq!(hijack(NOP, &mut regs, &mut task), Ok(CALLER | 1 << 48));
    // Where nothing is known, all do.
    task.address_bits = 64;
    regs.set_x(30, CALLER | 1 << 63);
    assert_eq!(hijack(NOP, &mut regs, &mut task), Ok(CALLER | 1 << 63));
}

#[test]
fn an_instruction_that_authenticates_gets_what_was_signed() {
    // A signature may happen to be zero, so the instruction is asked: autiasp, autibsp, autiaz,
    // autibz, autia x30, sp, autizb x30, autiasppcr x3, retaa, retab, retaasppcr x3.
    let words = [
        0xd503_23bf,
        0xd503_23ff,
        0xd503_239f,
        0xd503_23df,
        0xdac1_13fe,
        0xdac1_37fe,
        0xdac1_907e,
        0xd65f_0bff,
        0xd65f_0fff,
        0xd65f_0be3,
    ];
    for word in words {
        let (regs, task) = entry();
        is_passed_over(word, regs, task);
    }
    // Other registers are not of interest: autia x0, sp, pacia x30, sp, braaz x1.
    for word in [0xdac1_13e0, 0xdac1_03fe, 0xd61f_083f] {
        let (mut regs, mut task) = entry();
        assert_eq!(hijack(word, &mut regs, &mut task), Ok(CALLER));
    }
}

#[test]
fn a_frame_lives_as_long_as_the_stack_pointer_is_below() {
    let (mut regs, _) = entry();
    let frame = Arm64::frame_at_entry(&regs);
    assert_eq!(frame, STACK);
    assert_eq!(Arm64::frame_at_return(&regs), frame);
    let alive = |regs: &PtRegs, check| Arm64::is_frame_alive(frame, check, regs);
    use FrameCheck::{Call, ChainCall, Return};
    assert!(!alive(&regs, Call) && alive(&regs, ChainCall) && alive(&regs, Return));
    regs.sp = STACK - 16;
    assert!(alive(&regs, Call) && alive(&regs, ChainCall) && alive(&regs, Return));
    regs.sp = STACK + 16;
    assert!(!alive(&regs, Call) && !alive(&regs, ChainCall) && !alive(&regs, Return));
    // The return address is not in memory.
    assert_eq!(Arm64::return_slot(frame), None);
}
