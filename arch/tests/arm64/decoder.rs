// SPDX-License-Identifier: GPL-2.0

//! The decoder against LLVM's disassembler: random words, and the text of a C library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use uprobes_arch::arm64::decode::{decode, Decoded};

use crate::generic::{cases, Random};
use crate::llvm::{disassemble, Opinion};

/// Words that are disassembled at once.
const BATCH: usize = 500_000;

/// Why the two may disagree.
fn explanation(ours: Decoded, llvm: Opinion) -> Option<&'static str> {
    if llvm == Opinion::Is(ours) {
        return Some("they agree");
    }
    if llvm != Opinion::Unknown {
        return None;
    }
    Some(match ours {
        Decoded::Other => "neither knows it",
        // What is not allocated faults wherever it runs. These are refused by the group that they
        // are in, as C does, or left to the CPU, which does not know them either.
        Decoded::Exception => "exception generation that is not allocated: refused",
        Decoded::Exclusive { .. } => "exclusive that is not allocated: refused",
        Decoded::MemoryCopy => "memory copy that is not allocated: refused",
        Decoded::BranchIfRecent { .. } => "compare and branch that is not allocated: stepped",
        _ => return None,
    })
}

/// Compares, and counts by explanation.
fn compare(words: &[u32], counts: &mut BTreeMap<&'static str, u32>) {
    let mut wrong = Vec::new();
    disassemble(words, |word, llvm, text| {
        let ours = decode(word);
        match explanation(ours, llvm) {
            Some(why) => *counts.entry(why).or_default() += 1,
            None => wrong.push(format!("{word:#010x}: {ours:?}, LLVM: {text:?} {llvm:?}")),
        }
    });
    let some = wrong.len().min(20);
    assert!(wrong.is_empty(), "{}: {:#?}", wrong.len(), &wrong[..some]);
}

#[test]
fn random_words_are_decoded_as_by_llvm() {
    let mut random = Random::new();
    let mut counts = BTreeMap::new();
    let mut left = cases(10_000_000) as usize;
    while left > 0 {
        let batch = left.min(BATCH);
        let words: Vec<u32> = (0..batch).map(|_| random.word() as u32).collect();
        compare(&words, &mut counts);
        left -= batch;
    }
    println!("{counts:#?}");
}

/// As random words, but in the groups that matter and close to what is decoded there.
#[test]
fn words_near_those_that_matter_are_decoded_as_by_llvm() {
    let mut random = Random::new();
    let near: Vec<u32> = uprobes_arch::arm64::vectors::VECTORS
        .iter()
        .filter_map(|vector| Some(u32::from_le_bytes(*vector.code.first_chunk()?)))
        .collect();
    let words: Vec<u32> = (0..cases(500_000))
        .map(|_| {
            let mut word = near[random.below(near.len())];
            for _ in 0..random.below(4) {
                word ^= 1 << random.below(32);
            }
            word
        })
        .collect();
    compare(&words, &mut BTreeMap::new());
}

/// Where distributions have a C library for arm64.
fn libc() -> PathBuf {
    if let Some(path) = std::env::var_os("AARCH64_LIBC") {
        return path.into();
    }
    [
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
        "/usr/aarch64-linux-gnu/lib64/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
    ]
    .map(PathBuf::from)
    .into_iter()
    .find(|path| path.exists())
    .expect("no C library for arm64: install one for cross-compilation, or set AARCH64_LIBC")
}

/// The executable segments of a little-endian 64-bit ELF file, as words.
fn text_of(elf: &[u8]) -> Vec<u32> {
    let half = |at: usize| u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()) as usize;
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01");
    let (start, size, count) = (long(0x20), half(0x36), half(0x38));
    (0..count)
        .map(|n| start + n * size)
        .filter(|&header| word(header) == 1 && word(header + 4) & 1 != 0)
        .flat_map(|header| {
            let (offset, len) = (long(header + 8), long(header + 0x20));
            elf[offset..offset + len].chunks_exact(4)
        })
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

#[test]
fn every_word_of_a_c_library_is_decoded_as_by_llvm() {
    let words = text_of(&std::fs::read(libc()).unwrap());
    assert!(words.len() > 100_000, "{}", words.len());
    let mut counts = BTreeMap::new();
    words
        .chunks(BATCH)
        .for_each(|batch| compare(batch, &mut counts));
    println!("{counts:#?}");
}
