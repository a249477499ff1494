// SPDX-License-Identifier: GPL-2.0

//! What an instruction is, as far as it matters where it runs.
//!
//! A64 instructions are words of 32 bits; sections of the Arm Architecture Reference Manual (DDI
//! 0487) stand beside the encodings.

/// Bytes of an instruction.
pub const INSN_BYTES: usize = 4;

/// A decoded instruction. Offsets are in bytes from the instruction itself; registers are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoded {
    /// `b`, `bl`.
    Branch {
        /// Whether the return address goes to the link register.
        link: bool,
        /// Distance of the target.
        offset: i32,
    },
    /// `b.cond`.
    BranchIf {
        /// The condition.
        cond: u8,
        /// Distance of the target.
        offset: i32,
    },
    /// `cbz`, `cbnz`.
    BranchIfZero {
        /// Branches if the register is not zero.
        not: bool,
        /// 64-bit.
        wide: bool,
        /// The register.
        rt: u8,
        /// Distance of the target.
        offset: i32,
    },
    /// `tbz`, `tbnz`.
    BranchIfBit {
        /// Branches if the bit is set.
        set: bool,
        /// The register.
        rt: u8,
        /// Number of the bit.
        bit: u8,
        /// Distance of the target.
        offset: i32,
    },
    /// `bc.cond`, `cb<cond>`, `cbb<cond>`, `cbh<cond>`: not on every CPU.
    BranchIfRecent {
        /// Distance of the target.
        offset: i32,
    },
    /// `br`, `blr`, `ret`.
    BranchRegister {
        /// Which of them.
        kind: Indirect,
        /// Holds the target.
        rn: u8,
    },
    /// `braa`, `blraa`, `retaa` and their like: the target is authenticated.
    BranchAuthenticated {
        /// Which of them.
        kind: Indirect,
    },
    /// `adr`, `adrp`.
    Address {
        /// Whether it is about pages.
        page: bool,
        /// Where to.
        rd: u8,
        /// Distance in bytes or pages.
        offset: i32,
    },
    /// `ldr`, `ldrsw`, `prfm` of a literal.
    Literal {
        /// What is loaded.
        load: Load,
        /// Where to.
        rt: u8,
        /// Distance of the literal.
        offset: i32,
    },
    /// A hint.
    Hint(
        /// Its number: CRm and op2.
        u8,
    ),
    /// `svc`.
    SystemCall,
    /// Any other instruction that generates an exception: `hvc`, `smc`, `brk`, `hlt`, `dcps`.
    Exception,
    /// `eret` and its like.
    ExceptionReturn,
    /// A load or store exclusive.
    Exclusive {
        /// Whether it is a load.
        load: bool,
    },
    /// One of the three instructions, in a row, that copy or set memory.
    MemoryCopy,
    /// Signs or authenticates with its own address.
    SignedByAddress,
    /// Authenticates the link register.
    AuthenticateLink,
    /// `stp`, `ldp` of two 64-bit general registers with the stack pointer as base.
    StackPair {
        /// Whether it is a load.
        load: bool,
        /// The register at the lower address.
        rt: u8,
        /// The other.
        rt2: u8,
        /// Distance from the stack pointer in bytes.
        offset: i16,
        /// What becomes of the stack pointer.
        writeback: Writeback,
    },
    /// `add`, `sub` of a constant, flags left alone.
    AddConstant {
        /// Whether it subtracts.
        sub: bool,
        /// 64-bit.
        wide: bool,
        /// Where to, 31 for the stack pointer.
        rd: u8,
        /// Where from, 31 for the stack pointer.
        rn: u8,
        /// The constant.
        constant: u32,
    },
    /// Anything else: does the same wherever it runs, or faults.
    Other,
}

/// Kind of an indirect branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indirect {
    /// Jump.
    Jump,
    /// Call: the return address goes to the link register.
    Call,
    /// Return.
    Return,
}

/// What a literal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
    /// 32 bits, extended by the sign.
    SignedWord,
    /// Nothing is loaded, only prefetched.
    Prefetch,
    /// 32 bits, to a vector register.
    VectorWord,
    /// 64 bits, to a vector register.
    VectorDouble,
    /// 128 bits, to a vector register.
    VectorQuad,
}

/// What becomes of the base register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writeback {
    /// It stays.
    None,
    /// The offset is added before the access.
    Before,
    /// The offset is added after the access.
    After,
}

/// The `len` bits from `low` on.
const fn bits(word: u32, low: u32, len: u32) -> u32 {
    word >> low & ((1 << len) - 1)
}

/// A register field.
const fn reg(word: u32, low: u32) -> u8 {
    // CAST: five bits.
    bits(word, low, 5) as u8
}

/// The signed number in the `len` bits from `low` on.
const fn signed(word: u32, low: u32, len: u32) -> i32 {
    // CAST: the two's complement is meant.
    (word << (32 - low - len)) as i32 >> (32 - len)
}

/// Decodes `word`.
pub fn decode(word: u32) -> Decoded {
    // C4.1: op0, bits 28 to 25.
    match bits(word, 25, 4) {
        0b1000 | 0b1001 => immediate(word),
        0b1010 | 0b1011 => branch(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => load_store(word),
        0b0101 | 0b1101 => register(word),
        _ => Decoded::Other,
    }
}

/// Data processing with a constant (C4.1, "Data Processing -- Immediate").
fn immediate(word: u32) -> Decoded {
    // ADR, ADRP (C6.2).
    if word & 0x1f00_0000 == 0x1000_0000 {
        return Decoded::Address {
            page: word >> 31 != 0,
            rd: reg(word, 0),
            // CAST: two bits.
            offset: signed(word, 5, 19) << 2 | bits(word, 29, 2) as i32,
        };
    }
    // ADD, SUB (immediate) (C6.2).
    if word & 0x3f80_0000 == 0x1100_0000 {
        return Decoded::AddConstant {
            sub: word >> 30 & 1 != 0,
            wide: word >> 31 != 0,
            rd: reg(word, 0),
            rn: reg(word, 5),
            constant: bits(word, 10, 12) << (12 * bits(word, 22, 1)),
        };
    }
    // AUTIASPPC, AUTIBSPPC (C6.2).
    if word & 0xffc0_001f == 0xf380_001f {
        return Decoded::SignedByAddress;
    }
    Decoded::Other
}

/// Branches, exceptions, system instructions (C4.1, "Branches, Exception Generating and System
/// instructions").
fn branch(word: u32) -> Decoded {
    // B, BL (C6.2).
    if word & 0x7c00_0000 == 0x1400_0000 {
        return Decoded::Branch {
            link: word >> 31 != 0,
            offset: signed(word, 0, 26) << 2,
        };
    }
    match word >> 24 {
        // B.cond (C6.2), BC.cond (C6.2).
        0x54 if word & 0x10 == 0 => Decoded::BranchIf {
            // CAST: four bits.
            cond: bits(word, 0, 4) as u8,
            offset: signed(word, 5, 19) << 2,
        },
        0x54 => Decoded::BranchIfRecent {
            offset: signed(word, 5, 19) << 2,
        },
        // RETAASPPC, RETABSPPC (C6.2): the address of the signature is relative.
        0x55 if word & 0xffc0_001f == 0x5500_001f => Decoded::SignedByAddress,
        // CBZ, CBNZ (C6.2).
        0x34 | 0x35 | 0xb4 | 0xb5 => Decoded::BranchIfZero {
            not: word >> 24 & 1 != 0,
            wide: word >> 31 != 0,
            rt: reg(word, 0),
            offset: signed(word, 5, 19) << 2,
        },
        // TBZ, TBNZ (C6.2).
        0x36 | 0x37 | 0xb6 | 0xb7 => Decoded::BranchIfBit {
            set: word >> 24 & 1 != 0,
            rt: reg(word, 0),
            // CAST: six bits.
            bit: (word >> 31 << 5 | bits(word, 19, 5)) as u8,
            offset: signed(word, 5, 14) << 2,
        },
        // CB<cc>, CBB<cc>, CBH<cc>, of a register or a constant (C6.2).
        0x74 | 0x75 | 0xf4 | 0xf5 => Decoded::BranchIfRecent {
            offset: signed(word, 5, 9) << 2,
        },
        // Exception generation (C4.1, "Exception generation"). SVC (C6.2).
        0xd4 if word & 0x00e0_001f == 1 => Decoded::SystemCall,
        0xd4 => Decoded::Exception,
        // Hints (C4.1, "Hints").
        0xd5 if word & 0xffff_f01f == 0xd503_201f => {
            // CAST: seven bits.
            Decoded::Hint(bits(word, 5, 7) as u8)
        }
        0xd6 | 0xd7 => branch_register(word),
        _ => Decoded::Other,
    }
}

/// Unconditional branch to a register (C4.1, "Unconditional branch (register)").
fn branch_register(word: u32) -> Decoded {
    let kind = match bits(word, 21, 2) {
        0 => Indirect::Jump,
        1 => Indirect::Call,
        _ => Indirect::Return,
    };
    let rn = reg(word, 5);
    let zero_modifier = bits(word, 0, 5) == 0x1f;
    match word & 0xffff_fc00 {
        // BR, BLR, RET (C6.2).
        0xd61f_0000 | 0xd63f_0000 | 0xd65f_0000 if bits(word, 0, 5) == 0 => {
            Decoded::BranchRegister { kind, rn }
        }
        // BRAAZ, BRABZ, BLRAAZ, BLRABZ (C6.2).
        0xd61f_0800 | 0xd61f_0c00 | 0xd63f_0800 | 0xd63f_0c00 if zero_modifier => {
            Decoded::BranchAuthenticated { kind }
        }
        // BRAA, BRAB, BLRAA, BLRAB (C6.2).
        0xd71f_0800 | 0xd71f_0c00 | 0xd73f_0800 | 0xd73f_0c00 => {
            Decoded::BranchAuthenticated { kind }
        }
        // RETAA, RETAB (C6.2); with a register, RETAASPPCR, RETABSPPCR (C6.2).
        0xd65f_0800 | 0xd65f_0c00 if rn == 0x1f => Decoded::BranchAuthenticated { kind },
        // ERET, ERETAA, ERETAB (C6.2).
        0xd69f_0000 if rn == 0x1f && bits(word, 0, 5) == 0 => Decoded::ExceptionReturn,
        0xd69f_0800 | 0xd69f_0c00 if rn == 0x1f && zero_modifier => Decoded::ExceptionReturn,
        _ => Decoded::Other,
    }
}

/// Loads and stores (C4.1, "Loads and Stores").
fn load_store(word: u32) -> Decoded {
    // LDR, LDRSW, PRFM (literal) (C6.2, C7.2).
    if word & 0x3b00_0000 == 0x1800_0000 {
        let load = match (word >> 26 & 1, word >> 30) {
            (0, 0) => Load::Word,
            (0, 1) => Load::Double,
            (0, 2) => Load::SignedWord,
            (0, _) => Load::Prefetch,
            (_, 0) => Load::VectorWord,
            (_, 1) => Load::VectorDouble,
            (_, 2) => Load::VectorQuad,
            _ => return Decoded::Other,
        };
        return Decoded::Literal {
            load,
            rt: reg(word, 0),
            offset: signed(word, 5, 19) << 2,
        };
    }
    // Load/store exclusive register and pair (C4.1); with bit 21 and without bit 31, CASP. Bit 24:
    // the unprivileged ones (C4.1), which have no pair.
    let load = word >> 22 & 1 != 0;
    let size_w_or_x = word >> 31 != 0;
    let o1 = word >> 21 & 1 != 0;
    match word & 0x3f80_0000 {
        0x0800_0000 if !o1 || size_w_or_x => return Decoded::Exclusive { load },
        0x0900_0000 if !o1 && size_w_or_x => return Decoded::Exclusive { load },
        _ => (),
    }
    // Memory copy and set (C4.1, "Memory Copy and Memory Set").
    // CPY*, SET*, SETG*; SETGO* have no size register.
    if word & 0xfb20_0c00 == 0x1900_0400 || word & 0xffe0_0c00 == 0x1dc0_0000 {
        return Decoded::MemoryCopy;
    }
    // LDP, STP of 64-bit registers (C6.2), all modes but the one without allocation, with SP as
    // base.
    if word & 0xfe00_0000 == 0xa800_0000 && reg(word, 5) == 31 {
        let writeback = match bits(word, 23, 2) {
            1 => Writeback::After,
            2 => Writeback::None,
            3 => Writeback::Before,
            _ => return Decoded::Other,
        };
        return Decoded::StackPair {
            load,
            rt: reg(word, 0),
            rt2: reg(word, 10),
            // CAST: seven bits, scaled by eight.
            offset: (signed(word, 15, 7) * 8) as i16,
            writeback,
        };
    }
    Decoded::Other
}

/// Data processing on registers (C4.1, "Data Processing -- Register").
fn register(word: u32) -> Decoded {
    match word {
        // PACNBIASPPC, PACNBIBSPPC, PACIASPPC, PACIBSPPC (C6.2).
        0xdac1_83fe | 0xdac1_87fe | 0xdac1_a3fe | 0xdac1_a7fe => Decoded::SignedByAddress,
        // AUTIA, AUTIZA, AUTIB, AUTIZB (C6.2) of the link register.
        _ if word & 0xffff_f81f == 0xdac1_101e || word & 0xffff_fbff == 0xdac1_33fe => {
            Decoded::AuthenticateLink
        }
        // AUTIASPPCR, AUTIBSPPCR (C6.2): the address comes in a register.
        _ if word & 0xffff_fc1f == 0xdac1_901e || word & 0xffff_fc1f == 0xdac1_941e => {
            Decoded::AuthenticateLink
        }
        _ => Decoded::Other,
    }
}
