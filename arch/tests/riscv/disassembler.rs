// SPDX-License-Identifier: GPL-2.0

//! The analysis against LLVM's disassembler.

use std::collections::BTreeMap;
use std::path::PathBuf;

use uprobes_arch::riscv::{Riscv64, Sim, X};
use uprobes_core::arch::{Arch, Bitness, MAX_INSN_BYTES};

use crate::generic::{cases, Random};
use crate::llvm::{self, expected, Expected, Line};

/// Instructions that LLVM has a name for, by the start of it, and that are simulated as what they
/// are to a CPU without the extension: hints, which do nothing.
const HINTS: [&str; 1] = [
    // "Cache-Block Prefetch Instructions": `ori` to x0 where the low bits of the constant are zero,
    // one or three. Nobody can tell whether a block was fetched.
    "prefetch.",
];

/// Whether the instruction has no effect but that of a hint.
fn is_hint(text: &str, sim: Sim) -> bool {
    let writes_nothing = matches!(sim, Sim::AluImm { rd: X::ZERO, .. });
    writes_nothing && HINTS.iter().any(|name| text.starts_with(name))
}

/// Disagreements, by what there is to say about them, with an example of each.
#[derive(Default)]
struct Disagreements {
    checked: u64,
    simulated: u64,
    wrong: BTreeMap<String, (u64, String)>,
}

impl Disagreements {
    /// Compares the verdict on `code`, which starts with the instruction of `line`.
    fn check(&mut self, line: &Line, code: &[u8; MAX_INSN_BYTES]) {
        self.checked += 1;
        let expected = expected(&line.text, line.addr);
        let analysis = Riscv64::analyze(code, Bitness::Bits64);
        let agrees = match (expected, &analysis) {
            (Expected::Simulated(sim), Ok(analysis)) => {
                self.simulated += 1;
                analysis.insn.sim() == sim
            }
            (Expected::Stepped | Expected::Unknown, Ok(analysis)) => {
                let sim = analysis.insn.sim();
                sim == Sim::None || is_hint(&line.text, sim)
            }
            (Expected::Refused | Expected::Unknown, Err(_)) => true,
            _ => false,
        };
        let len = analysis.map_or(line.len, |analysis| usize::from(analysis.len));
        if !agrees || len != line.len {
            let kind = line.text.split(' ').next().unwrap_or_default().to_string();
            let example = format!(
                "{:08x} {}: {expected:?}, but {analysis:?}",
                line.raw, line.text
            );
            self.wrong.entry(kind).or_insert((0, example)).0 += 1;
        }
    }

    fn assert_none(&self) {
        assert!(
            self.wrong.is_empty(),
            "{} of {} instructions: {:#?}",
            self.wrong.values().map(|(count, _)| count).sum::<u64>(),
            self.checked,
            self.wrong
        );
    }
}

/// The bytes of an instruction with zeroes behind, as at the end of a file.
fn alone(line: &Line) -> [u8; MAX_INSN_BYTES] {
    let mut code = [0; MAX_INSN_BYTES];
    code[..line.len].copy_from_slice(&line.raw.to_le_bytes()[..line.len]);
    code
}

#[test]
fn random_words_are_what_llvm_takes_them_for() {
    if !llvm::is_available() {
        return;
    }
    let mut random = Random::new();
    let mut all = Disagreements::default();
    let mut left = cases(12_000_000);
    while left != 0 {
        let now = left.min(2_000_000);
        left -= now;
        let mut code = Vec::with_capacity(4 * now as usize);
        for _ in 0..now {
            let mut word = random.word() as u32 | 3;
            if word & 0x1f == 0x1f {
                // Longer than 32 bits.
                word ^= 1 << 2;
            }
            code.extend(word.to_le_bytes());
        }
        llvm::disassemble("random", &code, |line| all.check(&line, &alone(&line)));
    }
    all.assert_none();
    assert!(all.checked >= cases(12_000_000).into());
    assert!(all.simulated > all.checked / 10, "{}", all.simulated);
}

#[test]
fn every_compressed_instruction_is_what_llvm_takes_it_for() {
    if !llvm::is_available() {
        return;
    }
    let code: Vec<u8> = (0..=u16::MAX)
        .filter(|low| low & 3 != 3)
        .flat_map(u16::to_le_bytes)
        .collect();
    let mut all = Disagreements::default();
    llvm::disassemble("compressed", &code, |line| all.check(&line, &alone(&line)));
    all.assert_none();
    assert_eq!(all.checked, 3 << 14);
    assert!(all.simulated > 25_000, "{}", all.simulated);
}

/// A C library of riscv64, if there is one.
fn libc() -> Option<PathBuf> {
    let file = std::env::var_os("RISCV_LIBC").map_or_else(
        || "/usr/riscv64-linux-gnu/lib/libc.so.6".into(),
        PathBuf::from,
    );
    let there = !cfg!(miri) && file.exists();
    if !there {
        eprintln!("skipped: no {}", file.display());
    }
    there.then_some(file)
}

#[test]
fn a_c_library_is_what_llvm_takes_it_for() {
    let Some(file) = libc().filter(|_| llvm::is_available()) else {
        return;
    };
    let mut lines = Vec::new();
    llvm::disassemble_elf(&file, |line| lines.push(line));
    assert!(lines.len() > 100_000, "{}", lines.len());

    let mut all = Disagreements::default();
    for line in &lines {
        all.check(line, &alone(line));
    }
    all.assert_none();

    // With what follows it, an instruction is refused in a sequence from `lr` to `sc` too.
    let mut in_sequence = false;
    let mut sequences = 0;
    for (at, line) in lines.iter().enumerate() {
        let mut code = [0; MAX_INSN_BYTES];
        let mut to = code.as_mut_slice();
        for follower in &lines[at..] {
            let bytes = &follower.raw.to_le_bytes()[..follower.len.min(to.len())];
            to[..bytes.len()].copy_from_slice(bytes);
            to = &mut to[bytes.len()..];
            if to.is_empty() {
                break;
            }
        }
        let refused = Riscv64::analyze(&code, Bitness::Bits64).is_err();
        let refused_alone = Riscv64::analyze(&alone(line), Bitness::Bits64).is_err();
        if line.text.starts_with("sc.") {
            in_sequence = false;
        }
        assert_eq!(refused, refused_alone || in_sequence, "{}", line.text);
        if line.text.starts_with("lr.") {
            in_sequence = true;
            sequences += 1;
        }
    }
    assert!(sequences > 10, "{sequences}");
}
