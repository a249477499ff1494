// SPDX-License-Identifier: GPL-2.0

//! What holds for every backend. A backend's tests name it once:
//!
//! ```ignore
//! #[path = "../generic.rs"]
//! mod generic;
//!
//! struct Suite;
//!
//! impl generic::Backend for Suite { /* ... */ }
//!
//! generic::suite!(Suite);
//! ```

use std::fmt::Debug;

use uprobes_arch::vectors::{Vector, Verdict};
use uprobes_core::arch::{Arch, Bitness, Simulated, UserTask, MAX_INSN_BYTES};

use crate::model::Model;

/// What a backend lends to the suite.
pub(crate) trait Backend {
    /// The instruction set.
    type A: Arch<Regs: PartialEq + Debug, Insn: PartialEq + Debug>;

    /// Its table of verdicts.
    const VECTORS: &'static [Vector];
    /// Kinds of code that it knows.
    const BITNESS: &'static [Bitness];

    /// Bytes to try; what they are is up to `random`, so that a share of them is valid.
    fn code(random: &mut Random) -> [u8; MAX_INSN_BYTES] {
        random.bytes()
    }

    /// Registers of a user task that runs code of this kind, with any values that user space can
    /// put into them.
    fn regs(random: &mut Random, bitness: Bitness) -> <Self::A as Arch>::Regs;
}

/// Numbers that look random: SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// Numbers of a seed that is printed where the test fails, and taken from `UPROBES_SEED`.
    pub(crate) fn new() -> Self {
        let given = std::env::var("UPROBES_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            if cfg!(miri) {
                return 1;
            }
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_nanos() as u64
        });
        println!("UPROBES_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.word() as u8)
    }

    /// Contents of [`MEMORY`].
    pub(crate) fn memory(&mut self) -> Vec<u8> {
        let words = (MEMORY.end - MEMORY.start) / 8;
        (0..words).flat_map(|_| self.word().to_le_bytes()).collect()
    }

    /// One of the first `n` numbers.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    /// A value of a register: any, a small one, one at an edge, or an address in `memory`.
    pub(crate) fn value(&mut self, memory: &std::ops::Range<u64>) -> u64 {
        let any = self.word();
        match self.below(6) {
            0 => any,
            1 => any & 0xff,
            2 => any >> 32,
            3 => [0, u64::MAX, 1 << 63, 0x7fff_ffff_ffff_ffff][self.below(4)],
            _ => (memory.start + any % (memory.end - memory.start)) & !7,
        }
    }
}

/// How many cases a test draws: `UPROBES_CASES`, few under Miri, a tenth without optimisation.
pub(crate) fn cases(default: u32) -> u32 {
    if cfg!(miri) {
        return 50;
    }
    let given = std::env::var("UPROBES_CASES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or_else(|| {
        if cfg!(debug_assertions) {
            default.div_ceil(10)
        } else {
            default
        }
    })
}

/// Memory of the simulated task: the end of a page, for memory does not end anywhere else.
pub(crate) const MEMORY: std::ops::Range<u64> = 0x10_0c00..0x10_1000;
const SITE: u64 = 0x10_0e00;
const SLOT: u64 = 0x7fff_f000;

fn task(random: &mut Random) -> Model {
    let mut task = Model::new(MEMORY.start, random.memory());
    if random.below(4) == 0 {
        task.shadow = Some((0..8).map(|_| random.word()).collect());
    }
    task.stepped = random.below(4) == 0;
    task.fault_code = random.below(1000) as u64;
    task
}

/// The code of a vector, with anything behind it or zeroes.
fn vector_code(vector: &Vector, random: Option<&mut Random>) -> [u8; MAX_INSN_BYTES] {
    let mut code = vector.padded();
    if let Some(random) = random {
        code[vector.code.len()..].fill_with(|| random.word() as u8);
    }
    code
}

/// Code to try: a vector or what the backend makes up.
fn any_code<B: Backend>(random: &mut Random) -> [u8; MAX_INSN_BYTES] {
    if random.below(4) == 0 {
        let vector = &B::VECTORS[random.below(B::VECTORS.len())];
        return vector_code(vector, Some(random));
    }
    B::code(random)
}

/// The verdict on `code`, with what every verdict must fulfil.
pub(crate) fn verdict<B: Backend>(code: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Verdict {
    let first = B::A::analyze(code, bitness);
    assert_eq!(first, B::A::analyze(code, bitness), "{code:02x?}");
    let Ok(analysis) = first else {
        return Verdict::Refused(first.unwrap_err());
    };
    assert!((1..=MAX_INSN_BYTES).contains(&usize::from(analysis.len)));
    let (_, len) = B::A::xol_bytes(&analysis.insn);
    assert!((1..=MAX_INSN_BYTES.min(B::A::XOL_SLOT_BYTES)).contains(&len));
    if analysis.simulated {
        Verdict::Simulated
    } else {
        Verdict::Stepped
    }
}

/// Simulates and steps an instruction, if it is one.
fn exercise<B: Backend>(code: &[u8; MAX_INSN_BYTES], bitness: Bitness, random: &mut Random) {
    verdict::<B>(code, bitness);
    let Ok(analysis) = B::A::analyze(code, bitness) else {
        return;
    };
    let insn = &analysis.insn;
    let mut regs = B::regs(random, bitness);
    B::A::set_ip(&mut regs, SITE);
    assert_eq!(B::A::ip(&regs), SITE);
    assert_eq!(B::A::bitness(&regs), bitness);
    let mut task = task(random);
    let (regs_before, before) = (regs, task.clone());

    // The simulation does all or nothing.
    let simulated = B::A::simulate(insn, &mut regs, &mut task);
    if simulated == Simulated::OutOfLine {
        assert_eq!(regs, regs_before, "{code:02x?}");
        assert!(task == before, "{code:02x?}");
    } else {
        assert!(analysis.simulated, "{code:02x?}");
    }
    if !analysis.simulated {
        assert_eq!(simulated, Simulated::OutOfLine, "{code:02x?}");
    }

    // A step that is taken back has changed nothing, but for the fault that it took.
    for fault in [false, true] {
        let (mut regs, mut task) = (regs_before, before.clone());
        let state = B::A::pre_xol(insn, &mut regs, &mut task, SITE, SLOT).unwrap();
        assert_eq!(B::A::ip(&regs), SLOT, "{code:02x?}");
        assert!(!B::A::xol_was_trapped(&task), "{code:02x?}");
        if fault {
            task.set_fault_code(3);
            assert!(B::A::xol_was_trapped(&task), "{code:02x?}");
        }
        B::A::abort_xol(insn, &mut regs, &mut task, &state, SITE);
        assert_eq!(regs, regs_before, "{code:02x?}");
        assert_eq!(task.stepped, before.stepped, "{code:02x?}");
        assert!(task.memory == before.memory, "{code:02x?}");
    }

    // A completed step disarms itself, wherever it went.
    let (mut regs, mut task) = (regs_before, before.clone());
    let mut state = B::A::pre_xol(insn, &mut regs, &mut task, SITE, SLOT).unwrap();
    let went_to = [SLOT + u64::from(analysis.len), SLOT + 8, random.word() & !7];
    B::A::set_ip(&mut regs, went_to[random.below(went_to.len())]);
    let _ = B::A::post_xol(insn, &mut regs, &mut task, &mut state, SITE, SLOT);
    assert_eq!(task.stepped, before.stepped, "{code:02x?}");
}

/// See the tests that [`suite`] makes.
pub(crate) fn vectors_pass<B: Backend>() {
    for vector in B::VECTORS {
        let found = verdict::<B>(&vector_code(vector, None), vector.bitness);
        assert_eq!(found, vector.verdict, "{}", vector.text);
    }
}

/// See the tests that [`suite`] makes.
pub(crate) fn lengths_of_vectors_are_right<B: Backend>() {
    for vector in B::VECTORS {
        if let Ok(analysis) = B::A::analyze(&vector.padded(), vector.bitness) {
            assert_eq!(
                usize::from(analysis.len),
                vector.code.len(),
                "{}",
                vector.text
            );
        }
    }
}

/// See the tests that [`suite`] makes.
pub(crate) fn refused_stays_refused<B: Backend>() {
    let mut random = Random::new();
    for vector in B::VECTORS {
        if !matches!(vector.verdict, Verdict::Refused(_)) {
            continue;
        }
        for _ in 0..100 {
            let code = vector_code(vector, Some(&mut random));
            let found = verdict::<B>(&code, vector.bitness);
            assert_eq!(found, vector.verdict, "{}: {code:02x?}", vector.text);
        }
    }
}

/// See the tests that [`suite`] makes.
pub(crate) fn the_breakpoint_is_recognised<B: Backend>() {
    let mut random = Random::new();
    let swbp = B::A::SWBP;
    assert!(B::A::is_swbp(swbp) && B::A::is_trap_insn(swbp));
    assert!(!B::A::is_swbp(&swbp[1..]));
    for &bitness in B::BITNESS {
        let mut code: [u8; MAX_INSN_BYTES] = random.bytes();
        code[..swbp.len()].copy_from_slice(swbp);
        assert!(B::A::is_swbp(&code) && B::A::is_trap_insn(&code));
        assert!(B::A::analyze(&code, bitness).is_err());
        for bit in 0..8 * swbp.len() {
            let mut other = code;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!B::A::is_swbp(&other), "{other:02x?}");
        }
    }
    for vector in B::VECTORS {
        if !matches!(vector.verdict, Verdict::Refused(_)) {
            assert!(!B::A::is_trap_insn(vector.code), "{}", vector.text);
        }
    }
}

/// See the tests that [`suite`] makes.
pub(crate) fn nothing_panics_or_is_left_half_done<B: Backend>() {
    let mut random = Random::new();
    for _ in 0..cases(100_000) {
        let code = any_code::<B>(&mut random);
        let bitness = B::BITNESS[random.below(B::BITNESS.len())];
        exercise::<B>(&code, bitness, &mut random);
    }
}

/// See the tests that [`suite`] makes.
pub(crate) fn what_follows_matters_only_if_looked_at<B: Backend>() {
    let mut random = Random::new();
    for _ in 0..cases(100_000) {
        let mut code = any_code::<B>(&mut random);
        let bitness = B::BITNESS[random.below(B::BITNESS.len())];
        let Ok(analysis) = B::A::analyze(&code, bitness) else {
            continue;
        };
        code[usize::from(analysis.len)..].fill_with(|| random.word() as u8);
        let same = B::A::analyze(&code, bitness) == Ok(analysis);
        assert!(same || B::A::LOOKS_AHEAD, "{code:02x?}");
    }
}

/// Makes the tests of a [`Backend`].
macro_rules! suite {
    ($backend:ty: $($name:ident),* $(,)?) => {
        mod generic_suite {
            use super::*;

            $(#[test]
            fn $name() {
                crate::generic::$name::<$backend>();
            })*
        }
    };
    ($backend:ty) => {
        crate::generic::suite! {
            $backend:
            vectors_pass,
            lengths_of_vectors_are_right,
            refused_stays_refused,
            the_breakpoint_is_recognised,
            nothing_panics_or_is_left_half_done,
            what_follows_matters_only_if_looked_at,
        }
    };
}

pub(crate) use suite;
