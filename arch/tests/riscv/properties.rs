// SPDX-License-Identifier: GPL-2.0

//! What holds for every piece of code.

use uprobes_arch::riscv::{PtRegs, Riscv64, Sim, Word, X};
use uprobes_core::arch::{Arch, Bitness, Simulated, Stepped, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use crate::generic::{cases, Random};
use crate::model::Model;

/// Registers with any values, a few of them addresses in and about the memory.
fn any_regs(random: &mut Random) -> PtRegs {
    let mut regs = PtRegs::default();
    for n in 1..32 {
        regs.set_x(X::new(n), random.value(&(MEMORY - 0x20..MEMORY + 0x120)));
    }
    regs.set_pc(SITE);
    regs
}

const MEMORY: u64 = 0x1000;
const SITE: u64 = 0x40_1002;
const SLOT: u64 = 0x3f_ffff_f040;

/// Words that a trap leaves beside the registers.
const OTHERS: [Word; 4] = [Word::Status, Word::BadAddr, Word::Cause, Word::OrigA0];

fn task() -> Model {
    let mut task = Model::new(MEMORY, (0..=255).collect());
    task.fault_code = 13;
    task
}

#[test]
fn verdicts_and_simulations_of_random_code_are_sound() {
    let mut random = Random::new();
    for _ in 0..cases(1_000_000) {
        let regs = any_regs(&mut random);
        check(&random.bytes(), &regs);
    }
}

#[test]
fn verdicts_and_simulations_of_compressed_code_are_sound() {
    let step = if cfg!(miri) { 997 } else { 1 };
    let mut regs = PtRegs::default();
    for n in 0..32 {
        regs.set_x(X::new(n), MEMORY + 8 * u64::from(n));
    }
    regs.set_pc(SITE);
    for low in (0..=u16::MAX).step_by(step) {
        let mut code = [0; MAX_INSN_BYTES];
        code[..2].copy_from_slice(&low.to_le_bytes());
        check(&code, &regs);
    }
}

fn check(code: &[u8; MAX_INSN_BYTES], before: &PtRegs) {
    assert_eq!(
        Riscv64::analyze(code, Bitness::Bits32),
        Err(Errno::EOPNOTSUPP)
    );
    let analysis = match Riscv64::analyze(code, Bitness::Bits64) {
        Ok(analysis) => analysis,
        Err(errno) => return assert_eq!(errno, Errno::EINVAL),
    };
    let insn = &analysis.insn;
    let len = if code[0] & 3 == 3 { 4 } else { 2 };
    assert_eq!((analysis.len, insn.length()), (len, len));
    assert_eq!(analysis.simulated, insn.sim() != Sim::None);
    assert!(!Riscv64::is_trap_insn(code), "{code:02x?}");

    let (slot, slot_len) = Riscv64::xol_bytes(insn);
    let len = usize::from(len);
    assert!(slot_len <= Riscv64::XOL_SLOT_BYTES);
    assert_eq!(slot[..len], code[..len]);
    assert!(Riscv64::is_trap_insn(&slot[len..slot_len]));
    for vaddr in (0xfff0..0x1_0010).step_by(2) {
        let swbp = Riscv64::swbp(insn, vaddr);
        assert!(Riscv64::is_swbp(swbp) && swbp.len() <= len);
        assert_eq!(vaddr / 0x1000, (vaddr + swbp.len() as u64 - 1) / 0x1000);
    }

    simulate(insn, before, len as u64);
    step(insn, before, len as u64);
}

fn simulate(insn: &uprobes_arch::riscv::Insn, before: &PtRegs, len: u64) {
    let (mut regs, mut task) = (*before, task());
    let outcome = Riscv64::simulate(insn, &mut regs, &mut task);
    assert_eq!(regs.x(X::ZERO), 0);
    let changed = (1..32)
        .filter(|&n| regs.x(X::new(n)) != before.x(X::new(n)))
        .count();
    assert!(changed <= 1);
    assert!(OTHERS
        .iter()
        .all(|&word| regs.word(word) == before.word(word)));
    assert_eq!(task.fault_code, 13);
    let changed_memory = task.memory != self::task().memory;
    let jumps = matches!(
        insn.sim(),
        Sim::Jal { .. } | Sim::Jalr { .. } | Sim::Branch { .. }
    );
    match outcome {
        Simulated::SystemCall => panic!("no system call is simulated"),
        Simulated::Done => {
            assert_ne!(insn.sim(), Sim::None);
            assert!(jumps || regs.pc() == SITE + len);
            assert!(!changed_memory || matches!(insn.sim(), Sim::Store { .. }));
        }
        Simulated::OutOfLine => {
            assert_eq!(regs, *before);
            assert!(!changed_memory);
            let accesses = matches!(insn.sim(), Sim::None | Sim::Load { .. } | Sim::Store { .. });
            assert!(accesses, "{:?}", insn.sim());
        }
    }
}

fn step(insn: &uprobes_arch::riscv::Insn, before: &PtRegs, len: u64) {
    let (mut regs, mut task) = (*before, task());
    let mut state = Riscv64::pre_xol(insn, &mut regs, &mut task, SITE, SLOT).unwrap();
    assert_eq!(regs.pc(), SLOT);
    assert!(!Riscv64::xol_was_trapped(&task));
    let in_slot = regs;
    regs.set_pc(SLOT + len);
    assert_eq!(
        Riscv64::post_xol(insn, &mut regs, &mut task, &mut state, SITE, SLOT),
        Ok(Stepped::Done { trap: false })
    );
    let mut after = *before;
    after.set_pc(SITE + len);
    assert_eq!((regs, task.fault_code), (after, 13));

    task.fault_code = 15;
    regs = in_slot;
    Riscv64::abort_xol(insn, &mut regs, &mut task, &state, SITE);
    assert_eq!((regs, task.fault_code), (*before, 13));
}
