// SPDX-License-Identifier: GPL-2.0

//! The kernel's decoder, built from the tree that `KERNEL_DIR` names, in a process of its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use uprobes_arch::x86_64::decode::Field;
use uprobes_arch::x86_64::{Decode, Decoded};
use uprobes_core::arch::{Bitness, MAX_INSN_BYTES};
use uprobes_core::errno::Errno;

/// Decodes with the kernel's `insn_decode()`.
pub(crate) struct Kernel;

impl Kernel {
    /// Whether a kernel tree is at hand; says so if not.
    pub(crate) fn is_available() -> bool {
        // Under Miri no process can be started.
        let available = !cfg!(miri) && program().is_some();
        if !available {
            eprintln!("skipped: KERNEL_DIR names no kernel tree to take insn.c from");
        }
        available
    }
}

/// Builds the program once and answers where it is.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| std::env::var_os("KERNEL_DIR").map(|dir| build(Path::new(&dir))))
        .as_deref()
}

fn build(kernel: &Path) -> PathBuf {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let x86 = kernel.join("tools/arch/x86");
    let tables = Command::new("awk")
        .arg("-f")
        .arg(x86.join("tools/gen-insn-attr-x86.awk"))
        .arg(x86.join("lib/x86-opcode-map.txt"))
        .output()
        .expect("awk");
    assert!(tables.status.success(), "gen-insn-attr-x86.awk: {tables:?}");
    std::fs::write(out.join("inat-tables.c"), tables.stdout).unwrap();
    let program = out.join(format!("kernel-decoder-{}", std::process::id()));
    let status = Command::new("cc")
        .args(["-O2", "-w", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/x86_64/kernel_decoder.c"))
        .arg("-I")
        .arg(&out)
        .arg("-I")
        .arg(x86.join("lib"))
        .arg("-I")
        .arg(x86.join("include"))
        .arg("-I")
        .arg(kernel.join("tools/include"))
        .status()
        .expect("cc");
    assert!(status.success(), "the kernel's decoder does not build");
    program
}

thread_local! {
    static PROCESS: RefCell<Option<Child>> = const { RefCell::new(None) };
}

/// Records that fit into a pipe either way.
const RECORDS: usize = 1024;
/// Bytes of a question.
const QUESTION_LEN: usize = 17;
/// Bytes of an answer.
const ANSWER_LEN: usize = 47;

impl Kernel {
    /// Decodes many pieces of code at once.
    fn decode_all(codes: &[[u8; MAX_INSN_BYTES]], bitness: Bitness) -> Vec<Result<Decoded, Errno>> {
        let mut all = Vec::with_capacity(codes.len());
        PROCESS.with_borrow_mut(|process| {
            let process = process.get_or_insert_with(|| {
                Command::new(program().expect("KERNEL_DIR"))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            });
            for codes in codes.chunks(RECORDS) {
                let mut questions = Vec::with_capacity(codes.len() * QUESTION_LEN);
                for code in codes {
                    questions.push(u8::from(bitness == Bitness::Bits64));
                    questions.extend_from_slice(code);
                }
                process
                    .stdin
                    .as_mut()
                    .unwrap()
                    .write_all(&questions)
                    .unwrap();
                let mut answers = vec![0; codes.len() * ANSWER_LEN];
                process
                    .stdout
                    .as_mut()
                    .unwrap()
                    .read_exact(&mut answers)
                    .unwrap();
                all.extend(answers.chunks_exact(ANSWER_LEN).map(parse));
            }
        });
        all
    }
}

fn parse(answer: &[u8]) -> Result<Decoded, Errno> {
    if answer[0] == 0 {
        return Err(Errno::ENOEXEC);
    }
    let mut fields = answer[2..].chunks_exact(5).map(|f| Field {
        bytes: f[..4].try_into().unwrap(),
        nbytes: f[4],
    });
    let mut field = || fields.next().unwrap();
    Ok(Decoded {
        prefixes: field(),
        rex: field(),
        vex: field(),
        opcode: field(),
        modrm: field(),
        sib: field(),
        displacement: field(),
        immediate: field(),
        immediate2: field(),
        length: answer[1],
    })
}

thread_local! {
    /// Answers to what was asked ahead.
    static REMEMBERED: RefCell<HashMap<Question, Result<Decoded, Errno>>> =
        RefCell::new(HashMap::new());
}

/// Whether it is 64-bit code, and the code.
type Question = (bool, [u8; MAX_INSN_BYTES]);

impl Kernel {
    /// Decodes many pieces of code ahead of their use, which is much faster than one by one.
    pub(crate) fn remember(codes: &[[u8; MAX_INSN_BYTES]], bitness: Bitness) {
        let bits64 = bitness == Bitness::Bits64;
        let answers = Kernel::decode_all(codes, bitness);
        REMEMBERED.with_borrow_mut(|all| {
            all.extend(codes.iter().map(|&code| (bits64, code)).zip(answers));
        });
    }
}

impl Decode for Kernel {
    fn decode(bytes: &[u8; MAX_INSN_BYTES], bitness: Bitness) -> Result<Decoded, Errno> {
        let key = (bitness == Bitness::Bits64, *bytes);
        REMEMBERED
            .with_borrow(|all| all.get(&key).copied())
            .unwrap_or_else(|| Kernel::decode_all(&[*bytes], bitness).pop().unwrap())
    }
}
