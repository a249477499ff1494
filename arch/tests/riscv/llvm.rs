// SPDX-License-Identifier: GPL-2.0

//! LLVM's disassembler, and what the analysis must make of what it says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uprobes_arch::riscv::insn::{Alu, Cond, Width};
use uprobes_arch::riscv::{Sim, X};

/// Extensions that instructions of user programs may come from.
const EXTENSIONS: &str = "--mattr=+m,+a,+f,+d,+c,+v,+zfh,+zba,+zbb,+zbc,+zbs,+zbkb,+zcb,+zcmop,\
    +zimop,+zicbom,+zicbop,+zicboz,+zicond,+zacas,+zabha,+zawrs,+zihintntl,+zihintpause,\
    +zvkng,+zvksg,+zvbb,+zfa,+zfbfmin";

/// An instruction as LLVM sees it.
pub(crate) struct Line {
    /// Address in the disassembled object.
    pub(crate) addr: u64,
    /// The instruction, in the low half if it has 16 bits.
    pub(crate) raw: u32,
    /// Length in bytes.
    pub(crate) len: usize,
    /// Mnemonic, a space, operands.
    pub(crate) text: String,
}

/// A tool of LLVM, if it is in `PATH`.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let wanted = std::env::var("LLVM")
        .ok()
        .map(|suffix| format!("{name}{suffix}"));
    let version = |file: &str| match file.strip_prefix(name) {
        Some("") => Some(0),
        Some(suffix) => suffix.strip_prefix('-')?.parse::<u32>().ok(),
        None => None,
    };
    std::env::split_paths(&path)
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .filter_map(|entry| {
            let file = entry.ok()?.path();
            let short = file.file_name()?.to_str()?;
            let version = version(short)?;
            let fits = wanted.as_ref().is_none_or(|wanted| wanted == short);
            fits.then_some((version, file))
        })
        .max()
        .map(|(_, file)| file)
}

/// Whether LLVM is at hand; says so if not.
pub(crate) fn is_available() -> bool {
    // Under Miri no process can be started.
    let available = !cfg!(miri) && tool("llvm-objdump").is_some() && tool("llvm-objcopy").is_some();
    if !available {
        eprintln!("skipped: no llvm-objdump and llvm-objcopy in PATH");
    }
    available
}

/// Disassembles code, and calls `each` with each instruction.
pub(crate) fn disassemble(name: &str, code: &[u8], each: impl FnMut(Line)) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let raw = dir.join(format!("{name}-{}.bin", std::process::id()));
    let object = raw.with_extension("o");
    std::fs::write(&raw, code).unwrap();
    let status = Command::new(tool("llvm-objcopy").unwrap())
        .args(["-I", "binary", "-O", "elf64-littleriscv"])
        .args([&raw, &object])
        .status()
        .unwrap();
    assert!(status.success(), "llvm-objcopy");
    dump(&object, &["-D", "-j", ".data"], each);
    std::fs::remove_file(raw).unwrap();
    std::fs::remove_file(object).unwrap();
}

/// Disassembles the code of an ELF file, and calls `each` with each instruction.
pub(crate) fn disassemble_elf(file: &Path, each: impl FnMut(Line)) {
    dump(file, &["-d"], each);
}

fn dump(file: &Path, which: &[&str], mut each: impl FnMut(Line)) {
    let mut objdump = Command::new(tool("llvm-objdump").unwrap())
        .args(which)
        .args(["-M", "no-aliases,numeric", EXTENSIONS])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(objdump.stdout.take().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() != 0 {
        if let Some(line) = parse(&line) {
            each(line);
        }
        line.clear();
    }
    assert!(objdump.wait().unwrap().success(), "llvm-objdump");
}

/// Takes a line of the dump apart; [`None`] if there is no instruction in it.
fn parse(line: &str) -> Option<Line> {
    let (addr, rest) = line.trim().split_once(": ")?;
    let (raw, text) = rest.split_once('\t')?;
    let raw = raw.trim();
    Some(Line {
        addr: u64::from_str_radix(addr, 16).ok()?,
        raw: u32::from_str_radix(raw, 16).ok()?,
        len: raw.len() / 2,
        text: text.replace('\t', " "),
    })
}

/// What the analysis must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Simulated(Sim),
    Stepped,
    Refused,
    /// LLVM knows no such instruction: refused or stepped, to take its fault.
    Unknown,
}

/// What the analysis must make of an instruction at `addr`, by its text.
pub(crate) fn expected(text: &str, addr: u64) -> Expected {
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let operands = Operands::new(operands, addr);
    if mnemonic == "<unknown>" {
        return Expected::Unknown;
    }
    if mnemonic.starts_with("lr.") || mnemonic.starts_with("sc.") {
        return Expected::Refused;
    }
    const REFUSED: [&str; 17] = [
        "ecall",
        "ebreak",
        "c.ebreak",
        "sret",
        "mret",
        "mnret",
        "dret",
        "wfi",
        "sfence.vma",
        "sfence.w.inval",
        "sfence.inval.ir",
        "sinval.vma",
        "hfence.vvma",
        "hfence.gvma",
        "hinval.vvma",
        "hinval.gvma",
        "sctrclr",
    ];
    if REFUSED.contains(&mnemonic) {
        return Expected::Refused;
    }
    simulation(mnemonic, &operands).map_or(Expected::Stepped, Expected::Simulated)
}

/// The instruction that a mnemonic stands for where it is simulated.
fn simulation(mnemonic: &str, o: &Operands<'_>) -> Option<Sim> {
    let base = mnemonic.strip_prefix("c.").unwrap_or(mnemonic);
    let compressed = base.len() != mnemonic.len();
    // A compressed one names its first operand once.
    let second = usize::from(!compressed);
    Some(match base {
        "nop" => Sim::AluImm {
            op: Alu::Add,
            rd: X::ZERO,
            rs1: X::ZERO,
            imm: o.imm_or_zero(0),
        },
        "li" => Sim::Li {
            rd: o.reg(0),
            imm: o.imm(1),
        },
        "lui" => Sim::Li {
            rd: o.reg(0),
            imm: o.upper(1),
        },
        "auipc" if o.reg(0) == X::ZERO => Sim::Lpad {
            label: o.upper(1) as u32,
        },
        "auipc" => Sim::Auipc {
            rd: o.reg(0),
            imm: o.upper(1),
        },
        "mv" => Sim::AluImm {
            op: Alu::Add,
            rd: o.reg(0),
            rs1: o.reg(1),
            imm: 0,
        },
        "j" => Sim::Jal {
            rd: X::ZERO,
            imm: o.distance(0),
        },
        "jal" => Sim::Jal {
            rd: o.reg(0),
            imm: o.distance(1),
        },
        "jr" => Sim::Jalr {
            rd: X::ZERO,
            rs1: o.reg(0),
            imm: 0,
        },
        "jalr" if compressed => Sim::Jalr {
            rd: X::RA,
            rs1: o.reg(0),
            imm: 0,
        },
        "jalr" => Sim::Jalr {
            rd: o.reg(0),
            rs1: o.base(1),
            imm: o.offset(1),
        },
        "beqz" | "bnez" => Sim::Branch {
            cond: cond(base)?,
            rs1: o.reg(0),
            rs2: X::ZERO,
            imm: o.distance(1),
        },
        "addi4spn" => Sim::AluImm {
            op: Alu::Add,
            rd: o.reg(0),
            rs1: o.reg(1),
            imm: o.imm(2),
        },
        "addi16sp" => Sim::AluImm {
            op: Alu::Add,
            rd: o.reg(0),
            rs1: o.reg(0),
            imm: o.imm(1),
        },
        _ => {
            if let Some(cond) = cond(base) {
                return Some(Sim::Branch {
                    cond,
                    rs1: o.reg(0),
                    rs2: o.reg(1),
                    imm: o.distance(2),
                });
            }
            if let Some((width, store)) = access(base.strip_suffix("sp").unwrap_or(base)) {
                let (reg, rs1, imm) = (o.reg(0), o.base(1), o.offset(1));
                return Some(if store {
                    Sim::Store {
                        width,
                        rs2: reg,
                        rs1,
                        imm,
                    }
                } else {
                    Sim::Load {
                        width,
                        rd: reg,
                        rs1,
                        imm,
                    }
                });
            }
            if let Some(op) = alu_reg(base) {
                return Some(Sim::AluReg {
                    op,
                    rd: o.reg(0),
                    rs1: o.reg(second),
                    rs2: o.reg(second + 1),
                });
            }
            if let Some(op) = alu_imm(base.strip_suffix("64").unwrap_or(base)) {
                return Some(Sim::AluImm {
                    op,
                    rd: o.reg(0),
                    rs1: o.reg(second),
                    // A shift by none is written without a distance.
                    imm: o.imm_or_zero(second + 1),
                });
            }
            return None;
        }
    })
}

fn cond(mnemonic: &str) -> Option<Cond> {
    Some(match mnemonic {
        "beq" | "beqz" => Cond::Eq,
        "bne" | "bnez" => Cond::Ne,
        "blt" => Cond::Lt,
        "bge" => Cond::Ge,
        "bltu" => Cond::Ltu,
        "bgeu" => Cond::Geu,
        _ => return None,
    })
}

/// Width, and whether it is a store.
fn access(mnemonic: &str) -> Option<(Width, bool)> {
    Some(match mnemonic {
        "lw" => (Width::Word, false),
        "lwu" => (Width::WordUnsigned, false),
        "ld" => (Width::Double, false),
        "sw" => (Width::Word, true),
        "sd" => (Width::Double, true),
        _ => return None,
    })
}

fn alu_reg(mnemonic: &str) -> Option<Alu> {
    Some(match mnemonic {
        "add" => Alu::Add,
        "sub" => Alu::Sub,
        "sll" => Alu::Sll,
        "slt" => Alu::Slt,
        "sltu" => Alu::Sltu,
        "xor" => Alu::Xor,
        "srl" => Alu::Srl,
        "sra" => Alu::Sra,
        "or" => Alu::Or,
        "and" => Alu::And,
        "addw" => Alu::AddW,
        "subw" => Alu::SubW,
        "sllw" => Alu::SllW,
        "srlw" => Alu::SrlW,
        "sraw" => Alu::SraW,
        _ => return None,
    })
}

fn alu_imm(mnemonic: &str) -> Option<Alu> {
    Some(match mnemonic {
        "addi" => Alu::Add,
        "slli" => Alu::Sll,
        "slti" => Alu::Slt,
        "sltiu" => Alu::Sltu,
        "xori" => Alu::Xor,
        "srli" => Alu::Srl,
        "srai" => Alu::Sra,
        "ori" => Alu::Or,
        "andi" => Alu::And,
        "addiw" => Alu::AddW,
        "slliw" => Alu::SllW,
        "srliw" => Alu::SrlW,
        "sraiw" => Alu::SraW,
        _ => return None,
    })
}

/// The operands of an instruction, in LLVM's notation.
struct Operands<'a> {
    all: Vec<&'a str>,
    addr: u64,
}

impl<'a> Operands<'a> {
    fn new(text: &'a str, addr: u64) -> Self {
        let text = text.split('<').next().unwrap_or_default();
        let all = text.split(',').map(str::trim).filter(|o| !o.is_empty());
        Operands {
            all: all.collect(),
            addr,
        }
    }

    fn reg(&self, n: usize) -> X {
        register(self.all[n])
    }

    fn imm(&self, n: usize) -> i32 {
        number(self.all[n]) as i32
    }

    fn imm_or_zero(&self, n: usize) -> i32 {
        self.all.get(n).map_or(0, |text| number(text) as i32)
    }

    /// The constant of `lui` and its like, moved to its place.
    fn upper(&self, n: usize) -> i32 {
        (number(self.all[n]) as i32) << 12
    }

    /// From the instruction to an address.
    fn distance(&self, n: usize) -> i32 {
        (number(self.all[n]) as u64).wrapping_sub(self.addr) as i32
    }

    /// The register in an address.
    fn base(&self, n: usize) -> X {
        let (_, base) = self.all[n].split_once('(').unwrap();
        register(base.trim_end_matches(')'))
    }

    /// The constant in an address.
    fn offset(&self, n: usize) -> i32 {
        number(self.all[n].split('(').next().unwrap()) as i32
    }
}

fn register(text: &str) -> X {
    X::new(text.strip_prefix('x').unwrap().parse().unwrap())
}

fn number(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => digits.parse().unwrap(),
    };
    let value = value as i64;
    if negative {
        -value
    } else {
        value
    }
}
