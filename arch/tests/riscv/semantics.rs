// SPDX-License-Identifier: GPL-2.0

//! What simulated and stepped instructions do to registers, memory and control-flow integrity.

use uprobes_arch::riscv::regs::{CAUSE_SOFTWARE_CHECK, STATUS_ELP};
use uprobes_arch::riscv::{Insn, PtRegs, Riscv64, Word, X};
use uprobes_core::arch::{Arch, Bitness, FrameCheck, Simulated, Stepped, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

use crate::model::Model;

const SITE: u64 = 0x1_0100;
const SLOT: u64 = 0x3f_ffff_f040;
const TRAMPOLINE: u64 = 0x3f_ffff_f000;
const STACK: u64 = 0x7000_0000;

const A0: X = X::new(10);
const A1: X = X::new(11);
const A2: X = X::new(12);
const S0: X = X::new(8);

fn code(bytes: &[u8]) -> [u8; MAX_INSN_BYTES] {
    let mut code = [0; MAX_INSN_BYTES];
    code[..bytes.len()].copy_from_slice(bytes);
    code
}

fn insn(bytes: &[u8]) -> Insn {
    let analysis = Riscv64::analyze(&code(bytes), Bitness::Bits64).unwrap();
    assert_eq!(usize::from(analysis.len), bytes.len());
    analysis.insn
}

/// A 32-bit instruction.
fn word(word: u32) -> Insn {
    insn(&word.to_le_bytes())
}

fn regs() -> PtRegs {
    let mut regs = PtRegs::default();
    regs.set_pc(SITE);
    regs.set_x(X::SP, STACK + 0x80);
    regs
}

fn task() -> Model {
    Model::new(STACK, vec![0; 0x100])
}

fn memory(task: &Model, offset: usize) -> u64 {
    u64::from_le_bytes(task.memory[offset..offset + 8].try_into().unwrap())
}

fn set_memory(task: &mut Model, offset: usize, value: u64) {
    task.memory[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

fn simulate(insn: &Insn, regs: &mut PtRegs, task: &mut Model) -> Simulated {
    Riscv64::simulate(insn, regs, task)
}

/// Simulates an instruction on `a1` and `a2`, and answers `a0`.
fn result(insn: &Insn, a1: u64, a2: u64) -> u64 {
    let mut regs = regs();
    regs.set_x(A1, a1);
    regs.set_x(A2, a2);
    let before = regs;
    assert_eq!(simulate(insn, &mut regs, &mut task()), Simulated::Done);
    let a0 = regs.x(A0);
    regs.set_x(A0, 0);
    assert_eq!(regs.pc(), SITE + u64::from(insn.length()));
    regs.set_pc(SITE);
    assert_eq!(regs, before);
    a0
}

const MIN: u64 = 1 << 63;
const MINUS_1: u64 = u64::MAX;
/// The lowest number of 32 bits, extended by its sign.
const MIN_W: u64 = 0xffff_ffff_8000_0000;

#[test]
fn arithmetic_between_registers() {
    // `op a0, a1, a2`, operands, result.
    for (op, a1, a2, a0) in [
        (0x00c5_8533, MINUS_1, 2, 1),                 // add
        (0x40c5_8533, 1, 2, MINUS_1),                 // sub
        (0x00c5_9533, 3, 65, 6),                      // sll
        (0x00c5_a533, MIN, 0, 1),                     // slt
        (0x00c5_a533, 0, MIN, 0),                     // slt
        (0x00c5_b533, MIN, 0, 0),                     // sltu
        (0x00c5_b533, 0, MIN, 1),                     // sltu
        (0x00c5_c533, 0xff00, 0x0ff0, 0xf0f0),        // xor
        (0x00c5_d533, MIN, 127, 1),                   // srl
        (0x40c5_d533, MIN, 63, MINUS_1),              // sra
        (0x00c5_e533, 0xff00, 0x0ff0, 0xfff0),        // or
        (0x00c5_f533, 0xff00, 0x0ff0, 0x0f00),        // and
        (0x00c5_853b, 0x7fff_ffff, 1, MIN_W),         // addw
        (0x00c5_853b, 0xffff_ffff, 1, 0),             // addw
        (0x40c5_853b, 0, 1, MINUS_1),                 // subw
        (0x00c5_953b, 1, 63, MIN_W),                  // sllw
        (0x00c5_d53b, MINUS_1, 1, 0x7fff_ffff),       // srlw
        (0x00c5_d53b, 0x8000_0000, 32, MIN_W),        // srlw
        (0x40c5_d53b, 0x8000_0000, 31, MINUS_1),      // sraw
        (0x40c5_d53b, 0xf_7fff_ffff, 4, 0x07ff_ffff), // sraw
    ] {
        assert_eq!(result(&word(op), a1, a2), a0, "{op:#x}");
    }
}

#[test]
fn arithmetic_with_constants() {
    // `op a0, a1, constant`, operand, result.
    for (op, a1, a0) in [
        (0xfff5_8513, 0, MINUS_1),                  // addi -1
        (0x7ff5_8513, 1, 2048),                     // addi 2047
        (0xfff5_a513, MIN, 1),                      // slti -1
        (0xfff5_b513, 5, 1),                        // sltiu -1
        (0xfff5_c513, 0xf0, !0xf0),                 // xori -1
        (0x8005_e513, 0, 0xffff_ffff_ffff_f800),    // ori -2048
        (0xff05_f513, 0x123, 0x120),                // andi -16
        (0x03f5_9513, 3, MIN),                      // slli 63
        (0x03f5_d513, MINUS_1, 1),                  // srli 63
        (0x43f5_d513, MIN, MINUS_1),                // srai 63
        (0x0015_851b, 0x7fff_ffff, MIN_W),          // addiw 1
        (0x01f5_951b, 1, MIN_W),                    // slliw 31
        (0x01f5_d51b, MINUS_1, 1),                  // srliw 31
        (0x41f5_d51b, 0x8000_0000, MINUS_1),        // sraiw 31
        (0x8000_0537, 0, MIN_W),                    // lui 0x80000
        (0x7fff_f537, 0, 0x7fff_f000),              // lui 0x7ffff
        (0x8000_0517, 0, SITE.wrapping_add(MIN_W)), // auipc 0x80000
        (0x0000_1517, 0, SITE + 0x1000),            // auipc 1
    ] {
        assert_eq!(result(&word(op), a1, 0), a0, "{op:#x}");
    }
}

#[test]
fn compressed_arithmetic() {
    let mut regs = regs();
    regs.set_x(A0, 0x8000_0001);
    regs.set_x(A1, 3);
    // Instruction, register, its value after it.
    for (bytes, reg, value) in [
        ([0x05, 0x25], A0, MIN_W + 2),             // c.addiw a0,1
        ([0x7d, 0x15], A0, MIN_W + 1),             // c.addi a0,-1
        ([0x2e, 0x95], A0, MIN_W + 4),             // c.add a0,a1
        ([0x0d, 0x9d], A0, MIN_W + 1),             // c.subw a0,a1
        ([0x0d, 0x8d], A0, MIN_W - 2),             // c.sub a0,a1
        ([0x7d, 0x81], A0, 0x1_ffff_fffe),         // c.srli a0,31
        ([0x0d, 0x89], A0, 2),                     // c.andi a0,3
        ([0x7a, 0x15], A0, MIN),                   // c.slli a0,62
        ([0x7d, 0x95], A0, MINUS_1),               // c.srai a0,63
        ([0x2e, 0x85], A0, 3),                     // c.mv a0,a1
        ([0x7d, 0x75], A0, MINUS_1 << 12),         // c.lui a0,0xfffff
        ([0x7d, 0x55], A0, MINUS_1),               // c.li a0,-1
        ([0x00, 0x08], S0, STACK + 0x90),          // c.addi4spn s0,sp,16
        ([0x39, 0x71], X::SP, STACK + 0x40),       // c.addi16sp sp,-64
        ([0x7d, 0x61], X::SP, STACK + 0x40 + 496), // c.addi16sp sp,496
    ] {
        regs.set_pc(SITE);
        let outcome = simulate(&insn(&bytes), &mut regs, &mut task());
        assert_eq!(outcome, Simulated::Done);
        assert_eq!((regs.pc(), regs.x(reg)), (SITE + 2, value), "{bytes:02x?}");
    }
}

#[test]
fn x0_stays_zero() {
    for op in [
        0x0010_0013,
        0x00c5_8033,
        0x1234_5037,
        0x0100_006f,
        0x0000_3003,
    ] {
        let (mut regs, mut task) = (regs(), Model::new(0, vec![0xff; 8]));
        let pc = regs.pc();
        assert_eq!(simulate(&word(op), &mut regs, &mut task), Simulated::Done);
        assert_ne!(regs.pc(), pc);
        regs.set_pc(pc);
        assert_eq!(regs, self::regs(), "{op:#x}");
    }
}

#[test]
fn branches() {
    let forward = SITE + 16;
    // `op a1, a2, .+16`, operands, taken.
    for (op, a1, a2, taken) in [
        (0x00c5_8863, 1, 1, true), // beq
        (0x00c5_8863, 1, 2, false),
        (0x00c5_9863, 1, 2, true), // bne
        (0x00c5_9863, 1, 1, false),
        (0x00c5_c863, MINUS_1, 0, true), // blt
        (0x00c5_c863, 0, MINUS_1, false),
        (0x00c5_d863, 0, MINUS_1, true), // bge
        (0x00c5_d863, 0, 0, true),
        (0x00c5_d863, MIN, 0, false),
        (0x00c5_e863, 0, MINUS_1, true), // bltu
        (0x00c5_e863, MINUS_1, 0, false),
        (0x00c5_f863, MINUS_1, 0, true), // bgeu
        (0x00c5_f863, 0, MIN, false),
    ] {
        let mut regs = regs();
        regs.set_x(A1, a1);
        regs.set_x(A2, a2);
        assert_eq!(simulate(&word(op), &mut regs, &mut task()), Simulated::Done);
        let pc = if taken { forward } else { SITE + 4 };
        assert_eq!(regs.pc(), pc, "{op:#x} {a1:#x} {a2:#x}");
    }
    for (bytes, a0, pc) in [
        ([0x01, 0xc9], 0, SITE + 16), // c.beqz a0,.+16
        ([0x01, 0xc9], 1, SITE + 2),
        ([0x6d, 0xf9], 1, SITE - 14), // c.bnez a0,.-14
        ([0x6d, 0xf9], 0, SITE + 2),
        ([0x01, 0xa8], 0, SITE + 16), // c.j .+16
        ([0xfd, 0xbf], 0, SITE - 2),  // c.j .-2
    ] {
        let mut regs = regs();
        regs.set_x(A0, a0);
        assert_eq!(
            simulate(&insn(&bytes), &mut regs, &mut task()),
            Simulated::Done
        );
        assert_eq!(regs.pc(), pc, "{bytes:02x?}");
    }
}

#[test]
fn jumps_link_behind_themselves() {
    // Instruction, register that links, its value, target.
    for (bytes, link, target) in [
        (&[0xef, 0x00, 0x00, 0x01][..], X::RA, SITE + 16), // jal ra,.+16
        (&[0x6f, 0xf0, 0x1f, 0xff], X::ZERO, SITE - 16),   // j .-16
        (&[0xe7, 0x80, 0xf0, 0xff], X::RA, 0x2000),        // jalr ra,-1(ra): ra is read first
        (&[0x67, 0x80, 0x00, 0x00], X::ZERO, 0x2000),      // ret: the low bit goes
        (&[0x82, 0x80], X::ZERO, 0x2000),                  // c.jr ra
        (&[0x82, 0x90], X::RA, 0x2000),                    // c.jalr ra
    ] {
        let mut regs = regs();
        regs.set_x(X::RA, 0x2001);
        assert_eq!(
            simulate(&insn(bytes), &mut regs, &mut task()),
            Simulated::Done
        );
        assert_eq!(regs.pc(), target, "{bytes:02x?}");
        let ra = if link == X::RA {
            SITE + bytes.len() as u64
        } else {
            0x2001
        };
        assert_eq!(regs.x(X::RA), ra, "{bytes:02x?}");
    }
}

#[test]
fn loads_extend_what_they_read() {
    let value = 0x8182_8384_8586_8788;
    for (bytes, loaded) in [
        (&0x0081_3503u32.to_le_bytes()[..], value), // ld a0,8(sp)
        (&0x0081_2503u32.to_le_bytes(), 0xffff_ffff_8586_8788), // lw a0,8(sp)
        (&0x0081_6503u32.to_le_bytes(), 0x8586_8788), // lwu a0,8(sp)
        (&[0x22, 0x65], value),                     // c.ldsp a0,8(sp)
        (&[0x22, 0x45], 0xffff_ffff_8586_8788),     // c.lwsp a0,8(sp)
        (&[0x88, 0x65], value),                     // c.ld a0,8(a1)
        (&[0x88, 0x45], 0xffff_ffff_8586_8788),     // c.lw a0,8(a1)
    ] {
        let (mut regs, mut task) = (regs(), task());
        regs.set_x(A1, regs.x(X::SP));
        set_memory(&mut task, 0x88, value);
        assert_eq!(
            simulate(&insn(bytes), &mut regs, &mut task),
            Simulated::Done
        );
        assert_eq!(regs.x(A0), loaded, "{bytes:02x?}");
        assert_eq!(regs.pc(), SITE + bytes.len() as u64);
    }
}

#[test]
fn stores_write_what_they_should_only() {
    let value = 0x8182_8384_8586_8788;
    let low = MINUS_1 << 32 | 0x8586_8788;
    for (bytes, stored) in [
        (&0x00a1_3423u32.to_le_bytes()[..], value), // sd a0,8(sp)
        (&0x00a1_2423u32.to_le_bytes(), low),       // sw a0,8(sp)
        (&[0x2a, 0xe4], value),                     // c.sdsp a0,8(sp)
        (&[0x2a, 0xc4], low),                       // c.swsp a0,8(sp)
        (&[0x88, 0xe5], value),                     // c.sd a0,8(a1)
        (&[0x88, 0xc5], low),                       // c.sw a0,8(a1)
    ] {
        let (mut regs, mut task) = (regs(), task());
        regs.set_x(A0, value);
        regs.set_x(A1, regs.x(X::SP));
        task.memory.fill(0xff);
        let before = regs;
        assert_eq!(
            simulate(&insn(bytes), &mut regs, &mut task),
            Simulated::Done
        );
        assert_eq!(memory(&task, 0x88), stored, "{bytes:02x?}");
        set_memory(&mut task, 0x88, MINUS_1);
        assert!(task.memory.iter().all(|&b| b == 0xff));
        assert_eq!(regs.pc(), SITE + bytes.len() as u64);
        regs.set_pc(SITE);
        assert_eq!(regs, before);
    }
}

/// Each load and store of `sp` that is simulated.
fn accesses() -> [Insn; 9] {
    [
        word(0x0081_3503),
        word(0x0081_2503),
        word(0x0081_6503),
        word(0x00a1_3423),
        word(0x00a1_2423),
        insn(&[0x22, 0x65]),
        insn(&[0x22, 0x45]),
        insn(&[0x2a, 0xe4]),
        insn(&[0x2a, 0xc4]),
    ]
}

#[test]
fn an_access_that_faults_changes_nothing() {
    for insn in accesses() {
        let (mut regs, mut task) = (regs(), task());
        regs.set_x(A0, 0x1234);
        regs.set_x(X::SP, 0x1000);
        let before = regs;
        assert_eq!(simulate(&insn, &mut regs, &mut task), Simulated::OutOfLine);
        assert_eq!(regs, before);
        assert!(task.memory.iter().all(|&b| b == 0));

        // The copy takes the fault, which is shown at the original.
        task.fault_code = 5;
        let state = Riscv64::pre_xol(&insn, &mut regs, &mut task, SITE, SLOT).unwrap();
        assert_eq!(regs.pc(), SLOT);
        assert!(!Riscv64::xol_was_trapped(&task));
        task.fault_code = 13;
        assert!(Riscv64::xol_was_trapped(&task));
        Riscv64::abort_xol(&insn, &mut regs, &mut task, &state, SITE);
        assert_eq!((regs, task.fault_code), (before, 5));
    }
}

#[test]
fn a_misaligned_access_is_left_to_the_cpu() {
    for insn in accesses() {
        let (mut regs, mut task) = (regs(), task());
        regs.set_x(X::SP, STACK + 0x82);
        let before = regs;
        assert_eq!(simulate(&insn, &mut regs, &mut task), Simulated::OutOfLine);
        assert_eq!(regs, before);
    }
}

#[test]
fn the_copy_ends_with_a_breakpoint_of_its_length() {
    let fence = word(0x0ff0_000f);
    let (bytes, len) = Riscv64::xol_bytes(&fence);
    assert_eq!(
        bytes[..len],
        [0x0f, 0x00, 0xf0, 0x0f, 0x73, 0x00, 0x10, 0x00]
    );
    let fld = insn(&[0x08, 0x21]);
    let (bytes, len) = Riscv64::xol_bytes(&fld);
    assert_eq!(bytes[..len], [0x08, 0x21, 0x02, 0x90]);
}

#[test]
fn a_step_goes_on_behind_the_original() {
    for insn in [word(0x0ff0_000f), insn(&[0x08, 0x21])] {
        let len = u64::from(insn.length());
        let (mut regs, mut task) = (regs(), task());
        task.fault_code = 5;
        let mut state = Riscv64::pre_xol(&insn, &mut regs, &mut task, SITE, SLOT).unwrap();
        regs.set_pc(SLOT + len);
        let outcome = Riscv64::post_xol(&insn, &mut regs, &mut task, &mut state, SITE, SLOT);
        assert_eq!(outcome, Ok(Stepped::Done { trap: false }));
        assert_eq!((regs.pc(), task.fault_code), (SITE + len, 5));

        // Not if a debugger has moved it meanwhile.
        regs.set_pc(0x1234);
        let outcome = Riscv64::post_xol(&insn, &mut regs, &mut task, &mut state, SITE, SLOT);
        assert_eq!(outcome, Ok(Stepped::Done { trap: false }));
        assert_eq!(regs.pc(), 0x1234);
    }
}

#[test]
fn breakpoints_are_as_long_as_the_instruction_and_stay_in_its_page() {
    const EBREAK: &[u8] = &[0x73, 0x00, 0x10, 0x00];
    const C_EBREAK: &[u8] = &[0x02, 0x90];
    let (full, compressed) = (word(0x13), insn(&[0x01, 0x00]));
    assert_eq!(Riscv64::swbp(&full, 0x1000), EBREAK);
    assert_eq!(Riscv64::swbp(&full, 0x1ffc), EBREAK);
    // Only a CPU with compressed instructions gets here, and the page may end.
    assert_eq!(Riscv64::swbp(&full, 0x1ffe), C_EBREAK);
    assert_eq!(Riscv64::swbp(&compressed, 0x1000), C_EBREAK);
    assert_eq!(Riscv64::swbp(&compressed, 0x1ffe), C_EBREAK);

    for swbp in [EBREAK, C_EBREAK, Riscv64::trampoline(Bitness::Bits64)] {
        assert!(Riscv64::is_swbp(swbp) && Riscv64::is_trap_insn(swbp));
        assert!(swbp.len() <= Riscv64::TRAP_BYTES);
    }
    // `ecall`, half a breakpoint, nothing.
    for other in [&[0x73, 0x00, 0x00, 0x00][..], &[0x73, 0x00], &[0x02], &[]] {
        assert!(!Riscv64::is_swbp(other) && !Riscv64::is_trap_insn(other));
    }
    assert_eq!(Riscv64::swbp_addr(&regs()), SITE);
}

#[test]
fn indirect_jumps_expect_a_landing_pad_where_they_must() {
    // Through a1, ra, t0, t2: by jalr, c.jr, c.jalr.
    for (reg, exempt) in [(11, false), (1, true), (5, true), (7, true)] {
        let jalr = 0x67 | reg << 15;
        let jr = 0x8002 | (reg as u16) << 7;
        for insn in [
            word(jalr),
            insn(&jr.to_le_bytes()),
            insn(&(jr | 0x1000).to_le_bytes()),
        ] {
            for pads in [None, Some(false), Some(true)] {
                let (mut regs, mut task) = (regs(), task());
                task.landing_pads = pads;
                assert_eq!(simulate(&insn, &mut regs, &mut task), Simulated::Done);
                let expects = regs.word(Word::Status) & STATUS_ELP != 0;
                assert_eq!(expects, pads == Some(true) && !exempt, "x{reg}");
            }
        }
    }
    // Direct ones do not.
    let (mut regs, mut task) = (regs(), task());
    task.landing_pads = Some(true);
    assert_eq!(
        simulate(&word(0x0100_00ef), &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!(regs.word(Word::Status), 0);
}

/// Registers at a breakpoint at `site` to which an indirect jump has led.
fn landed(site: u64) -> PtRegs {
    let mut regs = regs();
    regs.set_pc(site);
    regs.set_x(X::T2, 0xffff_ffff_1234_5678);
    regs.set_word(Word::Cause, CAUSE_SOFTWARE_CHECK);
    regs
}

#[test]
fn a_landing_pad_lets_the_right_ones_in() {
    // No label, and that of t2.
    for lpad in [0x0000_0017, 0x1234_5017] {
        let (mut regs, mut task) = (landed(SITE), task());
        task.landing_pads = Some(true);
        assert_eq!(simulate(&word(lpad), &mut regs, &mut task), Simulated::Done);
        let mut after = landed(SITE);
        after.set_pc(SITE + 4);
        assert_eq!(regs, after);
    }
    // Where no landing pad is expected any label will do.
    let mut regs = regs();
    assert_eq!(
        simulate(&word(0x7654_3017), &mut regs, &mut task()),
        Simulated::Done
    );
    assert_eq!(regs.pc(), SITE + 4);
}

#[test]
fn what_must_not_be_landed_on_is_left_to_the_cpu() {
    // Another label, a nop, a place that has not the alignment.
    for (insn, site) in [(0x1234_6017, SITE), (0x13, SITE), (0x17, SITE + 2)] {
        let insn = word(insn);
        let (mut regs, mut task) = (landed(site), task());
        let before = regs;
        assert_eq!(simulate(&insn, &mut regs, &mut task), Simulated::OutOfLine);
        assert_eq!(regs, before);
        let state = Riscv64::pre_xol(&insn, &mut regs, &mut task, site, SLOT).unwrap();
        assert_eq!(regs.word(Word::Status), STATUS_ELP);
        assert_eq!(regs.pc(), SLOT + site % 4);
        Riscv64::abort_xol(&insn, &mut regs, &mut task, &state, site);
        assert_eq!(regs.pc(), site);
    }
    // What is there instead when the breakpoint has gone away is checked as well.
    let mut landed = landed(SITE);
    Riscv64::restart(&mut landed, SITE);
    assert_eq!((landed.pc(), landed.word(Word::Status)), (SITE, STATUS_ELP));
    // Nothing of the kind is armed otherwise.
    let mut other = regs();
    Riscv64::restart(&mut other, SITE);
    assert_eq!(other, regs());
    let (mut regs, mut task) = (regs(), task());
    Riscv64::pre_xol(&word(0x0ff0_000f), &mut regs, &mut task, SITE, SLOT).unwrap();
    assert_eq!(regs.word(Word::Status), 0);
}

#[test]
fn a_hijacked_return_keeps_the_shadow_stack() {
    let (mut regs, mut task) = (regs(), task());
    regs.set_x(X::RA, 0x2000);
    task.shadow = Some(vec![7]);
    let lpad = word(0x17);
    assert_eq!(
        Riscv64::hijack_return(&lpad, &mut regs, &mut task, TRAMPOLINE),
        Ok(0x2000)
    );
    assert_eq!(regs.x(X::RA), TRAMPOLINE);
    // The function pushes what it has found (`sspush ra`), and finds it again (`sspopchk ra`).
    assert_eq!(task.shadow, Some(vec![7]));
    // A second probe at the same frame finds the trampoline.
    assert_eq!(
        Riscv64::hijack_return(&lpad, &mut regs, &mut task, TRAMPOLINE),
        Ok(TRAMPOLINE)
    );
    // Its return needs no landing pad.
    task.landing_pads = Some(true);
    assert_eq!(
        simulate(&insn(&[0x82, 0x80]), &mut regs, &mut task),
        Simulated::Done
    );
    assert_eq!((regs.pc(), regs.word(Word::Status)), (TRAMPOLINE, 0));
}

#[test]
fn frames_are_found_and_outlived() {
    let mut regs = regs();
    let frame = Riscv64::frame_at_entry(&regs);
    // The same function by a tail call, and one it calls.
    assert!(!Riscv64::is_frame_alive(frame, FrameCheck::Call, &regs));
    assert!(Riscv64::is_frame_alive(frame, FrameCheck::ChainCall, &regs));
    regs.set_x(X::SP, frame - 0x20);
    assert!(Riscv64::is_frame_alive(frame, FrameCheck::Call, &regs));
    assert!(Riscv64::is_frame_alive(frame, FrameCheck::Return, &regs));
    // On return.
    regs.set_x(X::SP, frame);
    assert_eq!(Riscv64::frame_at_return(&regs), frame);
    assert!(!Riscv64::is_frame_alive(frame, FrameCheck::Return, &regs));
    assert_eq!(Riscv64::return_slot(frame), None);
    assert_eq!(Riscv64::sp(&regs), frame);
}

#[test]
fn function_entries_are_known() {
    let entry = |bytes: &[u8], bitness| Riscv64::is_function_entry(&code(bytes), bitness);
    for bytes in [
        &[0x17, 0x00, 0x00, 0x00][..], // lpad 0
        &[0x81, 0x60],                 // c.sspush x1
        &[0x01, 0x11],                 // c.addi sp,-32
        &[0x39, 0x71],                 // c.addi16sp sp,-64
        &[0x13, 0x01, 0x01, 0xfe],     // addi sp,sp,-32
    ] {
        assert!(entry(bytes, Bitness::Bits64), "{bytes:02x?}");
        assert!(!entry(bytes, Bitness::Bits32), "{bytes:02x?}");
    }
    for bytes in [
        &[0x05, 0x61][..], // c.addi16sp sp,32
        &[0x01, 0x15],     // c.addi a0,-32
        &[0x02, 0x90],     // c.ebreak
    ] {
        assert!(!entry(bytes, Bitness::Bits64), "{bytes:02x?}");
    }
}

#[test]
fn the_width_of_code_is_in_the_status() {
    let mut regs = regs();
    regs.set_word(Word::Status, 2 << 32);
    assert_eq!(Riscv64::bitness(&regs), Bitness::Bits64);
    regs.set_word(Word::Status, 1 << 32);
    assert_eq!(Riscv64::bitness(&regs), Bitness::Bits32);
    assert!(!Riscv64::trap_after(&mut regs, &task()));
}

#[test]
fn what_follows_tells_of_a_sequence_from_lr_to_sc() {
    let verdict = |bytes: &[u8]| Riscv64::analyze(&code(bytes), Bitness::Bits64).map(|a| a.len);
    let refused = Err(Errno::EINVAL);
    const SC: [u8; 4] = [0x2f, 0x26, 0xb5, 0x18];
    const LR: [u8; 4] = [0x2f, 0x25, 0x05, 0x10];
    const ADDI: [u8; 2] = [0x85, 0x05];
    const BNE_FORWARD: [u8; 4] = [0x63, 0x98, 0xb6, 0x00];
    const BNE_BACK: [u8; 4] = [0xe3, 0x98, 0xb6, 0xfe];
    const STORE: [u8; 2] = [0x8c, 0xe1];
    let before = |insns: &[&[u8]]| verdict(&insns.concat());
    assert_eq!(before(&[&ADDI, &SC]), refused);
    assert_eq!(before(&[&BNE_FORWARD, &SC]), refused);
    assert_eq!(before(&[&ADDI, &ADDI, &BNE_FORWARD, &SC]), refused);
    // The first of a sequence is what `lr` is, and nothing may store or branch back in it.
    assert_eq!(before(&[&ADDI, &LR, &SC]), Ok(2));
    assert_eq!(before(&[&STORE, &SC]), Ok(2));
    assert_eq!(before(&[&ADDI, &STORE, &SC]), Ok(2));
    assert_eq!(before(&[&BNE_BACK, &SC]), Ok(4));
    assert_eq!(before(&[&ADDI, &BNE_BACK, &SC]), Ok(2));
    // What no longer fits is not seen.
    assert_eq!(before(&[&ADDI, &ADDI, &ADDI, &BNE_FORWARD, &SC]), refused);
    assert_eq!(
        before(&[&BNE_FORWARD, &BNE_FORWARD, &BNE_FORWARD, &BNE_FORWARD]),
        Ok(4)
    );
}
