// SPDX-License-Identifier: GPL-2.0

//! A CPU for a few instructions, plainly written after the pseudocode of the manual, and the three
//! ways of a probed instruction on it: bare, simulated, and out of line.

use uprobes_arch::arm64::regs::{btype, pstate};
use uprobes_arch::arm64::{Arm64, PtRegs};
use uprobes_core::arch::{Arch, Bitness, Simulated, Stepped, UserMemory, UserTask};

use crate::generic::{self, cases, Random};
use crate::model::Model;
use crate::semantics::{PADS_OPTIONAL, PADS_REQUIRED, PADS_UNKNOWN};

const SITE: u64 = 0x10_0e00;
const SLOT: u64 = 0x7fff_f040;

/// What an instruction ends with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Next,
    /// A fault: nothing has changed.
    Fault,
}

/// The state of a CPU and of the task that runs on it.
#[derive(Clone, Debug, PartialEq)]
struct Cpu {
    regs: PtRegs,
    task: Model,
    /// Vector registers that were loaded.
    vectors: [u128; 32],
}

/// The sign-extended field of `len` bits at `low`.
fn field(word: u32, low: u32, len: u32) -> i64 {
    let value = i64::from(word >> low) & ((1 << len) - 1);
    value - ((value >> (len - 1)) << len)
}

impl Cpu {
    /// Runs `word` at the program counter, all of it or nothing.
    fn run(&mut self, word: u32) -> Ending {
        let before = self.clone();
        if self.execute(word).is_some() {
            return Ending::Next;
        }
        *self = before;
        Ending::Fault
    }

    fn execute(&mut self, word: u32) -> Option<()> {
        let from = self.regs.btype();
        let guarded = self.task.landing_pads == PADS_REQUIRED;
        if from != 0 && guarded {
            // The kinds 1 to 3 from which each may be reached.
            let from_any = match word {
                0xd503_245f | 0xd503_233f | 0xd503_237f => [true, true, false],
                0xd503_249f => [true, false, true],
                0xd503_24df => [true; 3],
                _ => [false; 3],
            };
            if !from_any[usize::from(from) - 1] {
                return None;
            }
        }
        self.regs.set_btype(0);
        let pc = self.regs.pc;
        let to = |offset: i64| (pc as i64).wrapping_add(offset) as u64;
        let (d, n, t2) = (
            word as u8 & 31,
            (word >> 5) as u8 & 31,
            (word >> 10) as u8 & 31,
        );
        let x = |regs: &PtRegs, r: u8| if r == 31 { 0 } else { regs.x(r) };
        let wide = word >> 31 != 0;
        let size = |value: u64| if wide { value } else { u64::from(value as u32) };
        let flag = |regs: &PtRegs, bit: u64| regs.pstate & bit != 0;
        let mut target = to(4);
        if word >> 26 & 0x1f == 0b00101 {
            if wide {
                self.link(to(4))?;
            }
            target = to(field(word, 0, 26) * 4);
        } else if word >> 24 == 0x54 {
            let r = &self.regs;
            let (n, z) = (flag(r, pstate::N), flag(r, pstate::Z));
            let (c, v) = (flag(r, pstate::C), flag(r, pstate::V));
            let taken = match d & 15 {
                0 => z,
                1 => !z,
                2 => c,
                3 => !c,
                4 => n,
                5 => !n,
                6 => v,
                7 => !v,
                8 => c && !z,
                9 => !c || z,
                10 => n == v,
                11 => n != v,
                12 => !z && n == v,
                13 => z || n != v,
                _ => true,
            };
            if taken {
                target = to(field(word, 5, 19) * 4);
            }
        } else if word >> 25 & 0x3f == 0b011010 {
            let zero = size(x(&self.regs, d)) == 0;
            if zero == (word >> 24 & 1 == 0) {
                target = to(field(word, 5, 19) * 4);
            }
        } else if word >> 25 & 0x3f == 0b011011 {
            let bit = (word >> 31) * 32 + (word >> 19 & 31);
            if x(&self.regs, d) >> bit & 1 == u64::from(word >> 24 & 1) {
                target = to(field(word, 5, 14) * 4);
            }
        } else if word & 0xff9f_fc1f == 0xd61f_0000 {
            target = x(&self.regs, n);
            let known = self.task.landing_pads != PADS_UNKNOWN;
            let kind = match word >> 21 & 3 {
                0 if guarded && n != 16 && n != 17 => btype::JUMP,
                0 => btype::ANY_JUMP,
                1 => {
                    self.link(to(4))?;
                    btype::CALL
                }
                _ => {
                    if let Some(guarded) = self.task.shadow_pop().ok()? {
                        if guarded != target {
                            return None;
                        }
                    }
                    btype::NONE
                }
            };
            self.regs.set_btype(if known { kind } else { 0 });
        } else if word & 0x1f00_0000 == 0x1000_0000 {
            let offset = field(word, 5, 19) * 4 + i64::from(word >> 29 & 3);
            let value = if wide {
                (pc >> 12 << 12).wrapping_add((offset * 4096) as u64)
            } else {
                to(offset)
            };
            self.regs.set_x(d, value);
        } else if word & 0x3b00_0000 == 0x1800_0000 {
            let at = to(field(word, 5, 19) * 4);
            match (word >> 26 & 1, word >> 30) {
                (0, 0) => {
                    let value = self.task.read_u32(at).ok()?;
                    self.regs.set_x(d, value.into());
                }
                (0, 1) => {
                    let value = self.task.read_u64(at).ok()?;
                    self.regs.set_x(d, value);
                }
                (0, 2) => {
                    let value = self.task.read_u32(at).ok()?;
                    self.regs.set_x(d, value as i32 as u64);
                }
                (0, _) => (),
                (_, size) => self.load_vector(d, at, 4 << size)?,
            }
        } else if word & 0x3f40_0000 == 0x3d40_0000 || word & 0xffc0_0000 == 0x3dc0_0000 {
            let bytes = match word >> 30 {
                2 => 4,
                3 => 8,
                _ => 16,
            };
            let at = self.regs.x_or_sp(n);
            self.load_vector(d, at, bytes)?;
        } else if word & 0xffc0_0000 == 0xb940_0000 || word & 0xffc0_0000 == 0xb980_0000 {
            let value = self.task.read_u32(self.regs.x_or_sp(n)).ok()?;
            let signed = word & 0x0080_0000 != 0;
            let value = if signed {
                value as i32 as u64
            } else {
                value.into()
            };
            self.regs.set_x(d, value);
        } else if word & 0xffc0_0000 == 0xf940_0000 {
            let value = self.task.read_u64(self.regs.x_or_sp(n)).ok()?;
            self.regs.set_x(d, value);
        } else if word & 0xfe00_03e0 == 0xa800_03e0 && word >> 23 & 3 != 0 {
            let sp = self.regs.sp;
            if sp & 15 != 0 {
                return None;
            }
            let moved = sp.wrapping_add((field(word, 15, 7) * 8) as u64);
            let at = if word >> 23 & 3 == 1 { sp } else { moved };
            if word >> 22 & 1 == 0 {
                let pair = [x(&self.regs, d), x(&self.regs, t2)];
                let bytes: Vec<u8> = pair.iter().flat_map(|x| x.to_le_bytes()).collect();
                self.task.write(at, &bytes).ok()?;
            } else {
                let first = self.task.read_u64(at).ok()?;
                let second = self.task.read_u64(at.wrapping_add(8)).ok()?;
                self.regs.set_x(d, first);
                self.regs.set_x(t2, second);
            }
            if word >> 23 & 1 != 0 {
                self.regs.sp = moved;
            }
        } else if word & 0x3f80_0000 == 0x1100_0000 {
            let shift = if word & 0x0040_0000 == 0 { 0 } else { 12 };
            let constant = u64::from(word >> 10 & 0xfff) << shift;
            let left = if n == 31 {
                self.regs.sp
            } else {
                self.regs.x(n)
            };
            let value = match word >> 30 & 1 {
                0 => left.wrapping_add(constant),
                _ => left.wrapping_sub(constant),
            };
            if d == 31 {
                self.regs.sp = size(value);
            } else {
                self.regs.set_x(d, size(value));
            }
        } else {
            assert_eq!(
                word & 0xffff_f01f,
                0xd503_201f,
                "{word:#x} is beyond this CPU"
            );
        }
        self.regs.pc = target;
        Some(())
    }

    fn link(&mut self, address: u64) -> Option<()> {
        self.task.shadow_push(address).ok()?;
        self.regs.set_x(30, address);
        Some(())
    }

    fn load_vector(&mut self, d: u8, at: u64, len: usize) -> Option<()> {
        let mut bytes = [0; 16];
        self.task.read(at, &mut bytes[..len]).ok()?;
        self.vectors[usize::from(d)] = u128::from_le_bytes(bytes);
        Some(())
    }
}

/// Instructions that the CPU knows: a word, and the bits that may be anything.
const ENCODINGS: [(u32, u32); 24] = [
    (0x1400_0000, 0x83ff_ffff),
    (0x5400_0000, 0x00ff_ffef),
    (0x3400_0000, 0x81ff_ffff),
    (0x3600_0000, 0x81ff_ffff),
    (0xd61f_0000, 0x0000_03e0),
    (0xd63f_0000, 0x0000_03e0),
    (0xd65f_0000, 0x0000_03e0),
    (0x1000_0000, 0xe0ff_ffff),
    (0x1800_0000, 0x40ff_ffff),
    (0x9800_0000, 0x00ff_ffff),
    (0xd800_0000, 0x00ff_ffff),
    (0x1c00_0000, 0x40ff_ffff),
    (0x9c00_0000, 0x00ff_ffff),
    (0xa800_03e0 | 1 << 23, 0x007f_fc1f),
    (0xa800_03e0 | 2 << 23, 0x007f_fc1f),
    (0xa800_03e0 | 3 << 23, 0x007f_fc1f),
    (0xa800_7be0 | 3 << 23 | 29, 0x007f_8000),
    (0x1100_0000, 0xc07f_ffff),
    (0x1100_03ff, 0xc07f_fc00),
    (0xd503_201f, 0),
    (0xd503_245f, 0),
    (0xd503_249f, 0),
    (0xd503_24df, 0),
    (0xd503_233f, 0),
];

/// A random instruction; offsets often lead to the memory.
fn any_word(random: &mut Random) -> u32 {
    let (base, free) = ENCODINGS[random.below(ENCODINGS.len())];
    let word = base | random.word() as u32 & free;
    // A literal, or the target of a branch, within some hundred words.
    let near = word & 0xff00_001f | (random.below(150) as u32) << 5;
    if free & 0x00ff_ffe0 == 0x00ff_ffe0 && random.below(2) == 0 {
        return near;
    }
    word
}

fn any_cpu(random: &mut Random) -> Cpu {
    let mut regs = PtRegs::default();
    for n in 0..31 {
        regs.set_x(n, random.value(&generic::MEMORY));
    }
    regs.sp = random.value(&generic::MEMORY);
    if random.below(4) != 0 {
        regs.sp &= !15;
    }
    regs.pc = SITE;
    regs.pstate = random.word() & (pstate::N | pstate::Z | pstate::C | pstate::V);
    let mut task = Model::new(generic::MEMORY.start, random.memory());
    let pads = [PADS_UNKNOWN, PADS_OPTIONAL, PADS_REQUIRED];
    task.landing_pads = pads[random.below(3)];
    if task.landing_pads != PADS_UNKNOWN && random.below(2) == 0 {
        regs.set_btype(random.below(4) as u8);
    }
    if random.below(2) == 0 {
        // Full, empty, with the address that a return goes to, or with any other.
        let top = regs.x(random.below(31) as u8);
        task.shadow =
            Some([vec![], vec![1, top], vec![1, top], vec![1, 2]][random.below(4)].clone());
        task.shadow_limit = task.shadow.as_ref().map_or(0, Vec::len) + random.below(2);
    }
    Cpu {
        regs,
        task,
        vectors: [0; 32],
    }
}

/// Compares all of it; of a difference in memory, tells the place only.
fn assert_same(how: &str, word: u32, probed: &Cpu, bare: &Cpu) {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let (a, b) = (&probed.task.memory, &bare.task.memory);
    assert_eq!(
        a.iter().zip(b).position(differs),
        None,
        "{how}, {word:#010x}"
    );
    assert_eq!(probed.regs, bare.regs, "{how}, {word:#010x}");
    assert_eq!(probed.task.shadow, bare.task.shadow, "{how}, {word:#010x}");
    assert_eq!(probed.vectors, bare.vectors, "{how}, {word:#010x}");
    assert!(probed == bare, "{how}, {word:#010x}");
}

/// Steps the instruction out of line; [`None`] if it faulted, as which it was rolled back.
fn out_of_line(insn: &<Arm64 as Arch>::Insn, cpu: &mut Cpu) -> Ending {
    let (bytes, _) = Arm64::xol_bytes(insn);
    let word = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let pads = cpu.task.landing_pads;
    let Cpu { regs, task, .. } = cpu;
    let mut state = Arm64::pre_xol(insn, regs, task, SITE, SLOT).unwrap();
    assert!(task.stepped && regs.pstate & pstate::SS != 0);
    // The slot requires landing pads wherever the CPU knows them.
    if pads != PADS_UNKNOWN {
        cpu.task.landing_pads = PADS_REQUIRED;
    }
    let ending = cpu.run(word);
    cpu.task.landing_pads = pads;
    let Cpu { regs, task, .. } = cpu;
    if ending == Ending::Fault {
        task.set_fault_code(0x92);
        assert!(Arm64::xol_was_trapped(task));
        Arm64::abort_xol(insn, regs, task, &state, SITE);
        task.set_fault_code(0);
        return ending;
    }
    regs.pstate &= !pstate::SS;
    let end = Arm64::post_xol(insn, regs, task, &mut state, SITE, SLOT);
    assert_eq!(end, Ok(Stepped::Done { trap: false }));
    ending
}

#[test]
fn probed_instructions_do_what_bare_ones_do() {
    let mut random = Random::new();
    let (mut simulated, mut faults) = (0, 0);
    let cases = cases(100_000);
    for _ in 0..cases {
        let word = any_word(&mut random);
        let start = any_cpu(&mut random);
        let mut code = [0; 16];
        code[..4].copy_from_slice(&word.to_le_bytes());
        let analysis = Arm64::analyze(&code, Bitness::Bits64).unwrap();

        let mut bare = start.clone();
        let ending = bare.run(word);
        faults += u32::from(ending == Ending::Fault);

        let mut stepped = start.clone();
        let how = out_of_line(&analysis.insn, &mut stepped);
        assert_eq!(how, ending, "{word:#010x}");
        assert_same("stepped", word, &stepped, &bare);

        let mut probed = start.clone();
        let Cpu { regs, task, .. } = &mut probed;
        match Arm64::simulate(&analysis.insn, regs, task) {
            Simulated::Done => {
                assert_eq!(ending, Ending::Next, "{word:#010x}");
                assert_same("simulated", word, &probed, &bare);
                simulated += 1;
            }
            Simulated::OutOfLine => assert_same("not simulated", word, &probed, &start),
            Simulated::SystemCall => panic!("{word:#010x}"),
        }
    }
    // Both happen often enough to be worth something.
    assert!(
        simulated > cases / 4 && faults > cases / 50,
        "{simulated}, {faults}"
    );
}
