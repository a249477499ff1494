// SPDX-License-Identifier: GPL-2.0

//! LLVM's disassembler, and what it takes an instruction for.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uprobes_arch::arm64::decode::{Decoded, Indirect, Load, Writeback};

/// Newest and oldest major version of LLVM to look for, by the names that Debian gives.
const VERSIONS: std::ops::RangeInclusive<u32> = 19..=40;

/// What LLVM says of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opinion {
    /// It is this.
    Is(Decoded),
    /// It is no instruction.
    Unknown,
}

/// LLVM's tool `name`, beside the `llvm-objdump` of the environment if there is one.
fn tool(name: &str) -> PathBuf {
    if let Some(objdump) = std::env::var_os("LLVM_OBJDUMP") {
        let objdump = objdump.into_string().unwrap();
        return objdump.replace("llvm-objdump", name).into();
    }
    let versioned = VERSIONS.rev().map(|major| format!("{name}-{major}"));
    versioned
        .chain([name.to_owned()])
        .map(PathBuf::from)
        .find(|tool| {
            let version = Command::new(tool).arg("--version").output();
            version.is_ok_and(|out| out.status.success())
        })
        .unwrap_or_else(|| panic!("no {name}: install LLVM, or set LLVM_OBJDUMP"))
}

/// An object file in the build folder.
struct Object(PathBuf);

impl Object {
    /// Makes one whose text is `words`.
    fn of(words: &[u32]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("arm64-{}-{n}", std::process::id());
        let (raw, object) = (dir.join(&name), dir.join(name + ".o"));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&raw, bytes).unwrap();
        let status = Command::new(tool("llvm-objcopy"))
            .args(["-I", "binary", "-O", "elf64-littleaarch64"])
            .args([
                "--rename-section",
                ".data=.text,code",
                "--strip-symbols=/dev/stdin",
            ])
            .arg("--wildcard")
            .arg(&raw)
            .arg(&object)
            .stdin(Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                // Symbols would make the text longer, twice for some.
                child.stdin.take().unwrap().write_all(b"*\n")?;
                child.wait()
            })
            .unwrap();
        assert!(status.success());
        std::fs::remove_file(raw).unwrap();
        Self(object)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Calls `f` with each word and what LLVM says of it.
pub(crate) fn disassemble(words: &[u32], mut f: impl FnMut(u32, Opinion, &str)) {
    let object = Object::of(words);
    let output = Command::new(tool("llvm-objdump"))
        .args(["-d", "-z", "--mattr=+all", "--no-show-raw-insn"])
        .args(["--no-leading-addr", "--no-print-imm-hex"])
        .arg(&object.0)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter_map(|line| {
        let (margin, insn) = line.split_once('\t')?;
        let insn = insn.split("//").next()?.trim_end();
        margin.trim().is_empty().then_some(insn)
    });
    let mut address = 0;
    for &word in words {
        let line = lines.next().expect("as many lines as words");
        f(word, opinion(line, address), line);
        address += 4;
    }
    assert_eq!(lines.next(), None);
}

/// Number of a register of 64 or 32 bits, 31 for SP and the zero register.
fn reg(name: &str) -> Option<u8> {
    match name {
        "sp" | "wsp" | "xzr" | "wzr" => Some(31),
        "lr" => Some(30),
        _ => name.strip_prefix(['x', 'w'])?.parse().ok(),
    }
}

fn number(text: &str) -> Option<i64> {
    text.strip_prefix('#')?.parse().ok()
}

/// Distance from `address` to the address in `text`.
fn distance(text: &str, address: u64) -> Option<i32> {
    let hex = text.split(' ').next()?.strip_prefix("0x")?;
    let target = u64::from_str_radix(hex, 16).ok()?;
    Some(target.wrapping_sub(address) as i64 as i32)
}

/// Whether the instruction is a load or store exclusive; a load if true.
fn exclusive(mnemonic: &str) -> Option<bool> {
    let rest = mnemonic.trim_end_matches(['b', 'h']);
    match rest {
        "ldxr" | "ldaxr" | "ldxp" | "ldaxp" | "ldtxr" | "ldatxr" => Some(true),
        "stxr" | "stlxr" | "stxp" | "stlxp" | "sttxr" | "stltxr" => Some(false),
        _ => None,
    }
}

fn condition(name: &str) -> Option<u8> {
    const NAMES: [&str; 16] = [
        "eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al",
        "nv",
    ];
    NAMES.iter().position(|&n| n == name).map(|n| n as u8)
}

/// Number of a hint that LLVM gives a name.
fn hint(text: &str) -> Option<u8> {
    let (mnemonic, operand) = text.split_once('\t').unwrap_or((text, ""));
    Some(match (mnemonic, operand) {
        ("hint", operand) => number(operand)? as u8,
        ("nop", "") => 0,
        ("yield", "") => 1,
        ("wfe", "") => 2,
        ("wfi", "") => 3,
        ("sev", "") => 4,
        ("sevl", "") => 5,
        ("dgh", "") => 6,
        ("xpaclri", "") => 7,
        ("pacia1716", "") => 8,
        ("pacib1716", "") => 10,
        ("autia1716", "") => 12,
        ("autib1716", "") => 14,
        ("esb", "") => 16,
        ("psb", "csync") => 17,
        ("tsb", "csync") => 18,
        ("gcsb", "dsync") => 19,
        ("csdb", "") => 20,
        ("clrbhb", "") => 22,
        ("paciaz", "") => 24,
        ("paciasp", "") => 25,
        ("pacibz", "") => 26,
        ("pacibsp", "") => 27,
        ("autiaz", "") => 28,
        ("autiasp", "") => 29,
        ("autibz", "") => 30,
        ("autibsp", "") => 31,
        ("bti", "" | "r") => 32,
        ("bti", "c") => 34,
        ("bti", "j") => 36,
        ("bti", "jc") => 38,
        ("pacm", "") => 39,
        ("chkfeat", "x16") => 40,
        ("stshh", "keep") => 48,
        ("stshh", "strm") => 49,
        ("stshh", operand) => 48 + number(operand)? as u8,
        ("shuh", "") => 50,
        ("shuh", "ph") => 51,
        ("stcph", "") => 52,
        _ => return None,
    })
}

fn indirect(mnemonic: &str) -> Option<Indirect> {
    match mnemonic {
        "br" | "braa" | "braaz" | "brab" | "brabz" => Some(Indirect::Jump),
        "blr" | "blraa" | "blraaz" | "blrab" | "blrabz" => Some(Indirect::Call),
        "ret" | "retaa" | "retab" | "retaasppcr" | "retabsppcr" => Some(Indirect::Return),
        _ => None,
    }
}

/// What the text means.
fn opinion(text: &str, address: u64) -> Opinion {
    if text == "<unknown>" {
        return Opinion::Unknown;
    }
    if let Some(number) = hint(text) {
        return Opinion::Is(Decoded::Hint(number));
    }
    let (mnemonic, operands) = text.split_once('\t').unwrap_or((text, ""));
    let ops: Vec<&str> = operands.split(", ").collect();
    Opinion::Is(parse(mnemonic, &ops, address).unwrap_or(Decoded::Other))
}

fn parse(mnemonic: &str, ops: &[&str], address: u64) -> Option<Decoded> {
    let to = |text: &str| distance(text, address);
    if let Some(load) = exclusive(mnemonic) {
        return Some(Decoded::Exclusive { load });
    }
    if let Some(cond) = mnemonic.strip_prefix("b.") {
        let (cond, offset) = (condition(cond)?, to(ops[0])?);
        return Some(Decoded::BranchIf { cond, offset });
    }
    if let Some(kind) = indirect(mnemonic) {
        return Some(match (mnemonic, ops) {
            ("br" | "blr", [rn]) => Decoded::BranchRegister { kind, rn: reg(rn)? },
            ("ret", [""]) => Decoded::BranchRegister { kind, rn: 30 },
            ("ret", [rn]) => Decoded::BranchRegister { kind, rn: reg(rn)? },
            _ => Decoded::BranchAuthenticated { kind },
        });
    }
    Some(match (mnemonic, ops) {
        ("b" | "bl", [target]) => Decoded::Branch {
            link: mnemonic == "bl",
            offset: to(target)?,
        },
        ("cbz" | "cbnz", [rt, target]) => Decoded::BranchIfZero {
            not: mnemonic == "cbnz",
            wide: rt.starts_with('x'),
            rt: reg(rt)?,
            offset: to(target)?,
        },
        ("tbz" | "tbnz", [rt, bit, target]) => Decoded::BranchIfBit {
            set: mnemonic == "tbnz",
            rt: reg(rt)?,
            bit: number(bit)? as u8,
            offset: to(target)?,
        },
        (_, [.., target]) if mnemonic.starts_with("bc.") || mnemonic.starts_with("cb") => {
            Decoded::BranchIfRecent {
                offset: to(target)?,
            }
        }
        ("adr", [rd, target]) => Decoded::Address {
            page: false,
            rd: reg(rd)?,
            offset: to(target)?,
        },
        ("adrp", [rd, target]) => {
            let hex = target.split(' ').next()?.strip_prefix("0x")?;
            let target = u64::from_str_radix(hex, 16).ok()? as i64;
            Decoded::Address {
                page: true,
                rd: reg(rd)?,
                offset: ((target >> 12) - (address as i64 >> 12)) as i32,
            }
        }
        ("ldr" | "ldrsw" | "prfm", [rt, target]) if target.starts_with("0x") => {
            let load = match (mnemonic, rt.as_bytes()[0]) {
                ("ldr", b'w') => Load::Word,
                ("ldr", b'x') => Load::Double,
                ("ldr", b's') => Load::VectorWord,
                ("ldr", b'd') => Load::VectorDouble,
                ("ldr", b'q') => Load::VectorQuad,
                ("ldrsw", _) => Load::SignedWord,
                _ => Load::Prefetch,
            };
            let vector = || rt[1..].parse().ok();
            let rt = match load {
                Load::Prefetch => prefetch(rt)?,
                _ => reg(rt).or_else(vector)?,
            };
            Decoded::Literal {
                load,
                rt,
                offset: to(target)?,
            }
        }
        ("svc", _) => Decoded::SystemCall,
        ("brk" | "hvc" | "smc" | "hlt" | "dcps1" | "dcps2" | "dcps3" | "tenter", _) => {
            Decoded::Exception
        }
        ("eret" | "eretaa" | "eretab", _) => Decoded::ExceptionReturn,
        ("retaasppc" | "retabsppc" | "autiasppc" | "autibsppc", _)
        | ("paciasppc" | "pacibsppc" | "pacnbiasppc" | "pacnbibsppc", _) => {
            Decoded::SignedByAddress
        }
        ("autiasppcr" | "autibsppcr", _)
        | ("autia" | "autib" | "autiza" | "autizb", ["x30" | "lr", ..]) => {
            Decoded::AuthenticateLink
        }
        ("ldp" | "stp", [rt, rt2, rest @ ..]) if rt.starts_with('x') && rest[0].contains("sp") => {
            let load = mnemonic == "ldp";
            let (base, first) = (rest[0], rest.get(1).copied().unwrap_or("#0"));
            let (offset, writeback) = if base == "[sp]" {
                let writeback = if rest.len() == 2 {
                    Writeback::After
                } else {
                    Writeback::None
                };
                (first, writeback)
            } else if let Some(offset) = first.strip_suffix("]!") {
                (offset, Writeback::Before)
            } else {
                (first.strip_suffix(']')?, Writeback::None)
            };
            Decoded::StackPair {
                load,
                rt: reg(rt)?,
                rt2: reg(rt2)?,
                offset: number(offset)? as i16,
                writeback,
            }
        }
        ("add" | "sub", [rd, rn, constant, shift @ ..]) if constant.starts_with('#') => {
            let shift = shift
                .first()
                .map_or(Some(0), |shift| number(shift.strip_prefix("lsl ")?))?;
            Decoded::AddConstant {
                sub: mnemonic == "sub",
                wide: rd.starts_with('x') || *rd == "sp",
                rd: reg(rd)?,
                rn: reg(rn)?,
                constant: (number(constant)? as u32) << shift,
            }
        }
        // An alias of `add` of zero.
        ("mov", [rd, rn]) if rd.contains("sp") || rn.contains("sp") => Decoded::AddConstant {
            sub: false,
            wide: rd.starts_with('x') || *rd == "sp",
            rd: reg(rd)?,
            rn: reg(rn)?,
            constant: 0,
        },
        _ if [
            "cpyf", "cpyp", "cpym", "cpye", "setp", "setm", "sete", "setg",
        ]
        .iter()
        .any(|start| mnemonic.starts_with(start)) =>
        {
            Decoded::MemoryCopy
        }
        _ => return None,
    })
}

/// Number of a prefetch operation, by name or as such.
fn prefetch(name: &str) -> Option<u8> {
    if let Some(number) = number(name) {
        return Some(number as u8);
    }
    let kind = ["pld", "pli", "pst"]
        .iter()
        .position(|kind| name.starts_with(kind))?;
    let (level, policy) = name[3..].split_at(name[3..].len() - 4);
    let level = match level {
        "l1" => 0,
        "l2" => 1,
        "l3" => 2,
        "slc" => 3,
        _ => return None,
    };
    let policy = match policy {
        "keep" => 0,
        "strm" => 1,
        _ => return None,
    };
    Some(kind as u8 * 8 + level * 2 + policy)
}
