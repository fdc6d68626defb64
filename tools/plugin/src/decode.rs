//! Coarse decoding of A64 instructions: class, registers, and the few system instructions the model acts on.
//!
//! Only what timing needs is told apart. Names of groups follow the Arm Architecture Reference Manual, chapter C4.

use amp_machine::page::PUBLISH_HINT;

/// Class of an instruction, as the machine file's `cpi` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    Alu = 0,
    Mul = 1,
    Div = 2,
    Load = 3,
    Store = 4,
    Branch = 5,
    Fp = 6,
    FpDiv = 7,
    System = 8,
}

/// Number of classes.
pub const NR_CLASSES: usize = 9;

/// How a branch finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// Direct and always taken.
    Always,
    /// Direct and taken or not; the offset in bytes.
    Conditional(i64),
    /// To an address in a register, but for returns.
    Indirect,
    /// Subroutine or exception return.
    Return,
}

/// A register operand: 0 to 30 general, 32 to 63 vector; `None` for the zero register and the stack pointer.
pub type Reg = Option<u8>;

/// A system register, by `op0:op1:CRn:CRm:op2` without the constant bit of op0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysReg(pub u16);

impl SysReg {
    /// From the fields that name the register in the manual.
    pub const fn new(op0: u16, op1: u16, crn: u16, crm: u16, op2: u16) -> SysReg {
        SysReg((op0 & 1) << 14 | op1 << 11 | crn << 7 | crm << 3 | op2)
    }
    fn of(w: u32) -> SysReg {
        SysReg((w >> 5 & 0x7fff) as u16)
    }
    /// CRn.
    pub fn crn(self) -> u16 {
        self.0 >> 7 & 15
    }
    /// CRm.
    pub fn crm(self) -> u16 {
        self.0 >> 3 & 15
    }
    /// op2.
    pub fn op2(self) -> u16 {
        self.0 & 7
    }
    /// Whether it belongs to the performance monitors.
    pub fn is_pmu(self) -> bool {
        let group = self.0 >> 11;
        group == 0b1011
            && match self.crn() {
                9 => matches!(self.crm(), 12 | 13),
                14 => self.crm() >= 8,
                _ => false,
            }
    }
    /// Registers that cores hold close by: a move from or to one is no more than an ALU operation.
    fn is_cheap(self) -> bool {
        const SP_EL0: SysReg = SysReg::new(3, 0, 4, 1, 0);
        const TPIDR_EL0: SysReg = SysReg::new(3, 3, 13, 0, 2);
        const TPIDRRO_EL0: SysReg = SysReg::new(3, 3, 13, 0, 3);
        const TPIDR_EL1: SysReg = SysReg::new(3, 0, 13, 0, 4);
        const NZCV: SysReg = SysReg::new(3, 3, 4, 2, 0);
        [SP_EL0, TPIDR_EL0, TPIDRRO_EL0, TPIDR_EL1, NZCV].contains(&self)
    }
}

/// Translation table base of user space.
pub const TTBR0_EL1: SysReg = SysReg::new(3, 0, 2, 0, 0);

/// A system instruction that the model acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysOp {
    /// `mrs`: the register goes to general register `rt` (31: nowhere).
    Read(SysReg, u8),
    /// `msr` from general register `rt` (31: zero).
    Write(SysReg, u8),
    /// The hint that publishes the CPU's totals.
    Publish,
}

/// What timing needs to know of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub class: Class,
    /// Register written (the first of a pair).
    pub dest: Reg,
    /// Second register of a pair load.
    pub dest2: Reg,
    /// Registers read; for loads and stores the base first.
    pub src: [Reg; 3],
    pub branch: Option<BranchKind>,
    pub sys: Option<SysOp>,
}

fn gpr(field: u32) -> Reg {
    let r = (field & 31) as u8;
    (r != 31).then_some(r)
}

fn vreg(field: u32) -> Reg {
    Some(32 + (field & 31) as u8)
}

fn sign_extend(value: u32, bits: u32) -> i64 {
    i64::from((value << (32 - bits)) as i32 >> (32 - bits))
}

/// Decodes one instruction word.
pub fn decode(w: u32) -> Decoded {
    let op0 = w >> 25 & 15;
    if op0 & 0b1110 == 0b1010 {
        branch_or_system(w)
    } else if op0 & 0b1110 == 0b1000 {
        immediate(w)
    } else if op0 & 0b0101 == 0b0100 {
        load_store(w)
    } else if op0 & 0b0111 == 0b0101 {
        register(w)
    } else if op0 & 0b0111 == 0b0111 {
        vector(w)
    } else {
        plain(Class::Alu)
    }
}

fn plain(class: Class) -> Decoded {
    Decoded { class, dest: None, dest2: None, src: [None; 3], branch: None, sys: None }
}

fn immediate(w: u32) -> Decoded {
    // ADR/ADRP and move-wide (but for MOVK) read no register.
    let reads_rn = w & 0x1f00_0000 != 0x1000_0000 && w & 0x1f80_0000 != 0x1280_0000;
    let movk = w & 0x7f80_0000 == 0x7280_0000;
    let src = match (movk, reads_rn) {
        (true, _) => gpr(w),
        (_, true) => gpr(w >> 5),
        _ => None,
    };
    Decoded { dest: gpr(w), src: [src, None, None], ..plain(Class::Alu) }
}

fn register(w: u32) -> Decoded {
    let class = if w & 0x5fe0_f800 == 0x1ac0_0800 {
        Class::Div
    } else if w & 0x1f00_0000 == 0x1b00_0000 {
        Class::Mul
    } else {
        Class::Alu
    };
    let accumulator = if class == Class::Mul { gpr(w >> 10) } else { None };
    Decoded { dest: gpr(w), src: [gpr(w >> 5), gpr(w >> 16), accumulator], ..plain(class) }
}

fn vector(w: u32) -> Decoded {
    // FDIV (scalar), FSQRT (scalar), FDIV and FSQRT (vector).
    let divides = w & 0xff20_fc00 == 0x1e20_1800
        || w & 0xff3f_fc00 == 0x1e21_c000
        || w & 0xbf20_fc00 == 0x2e20_fc00
        || w & 0xbfbf_fc00 == 0x2ea1_f800;
    let class = if divides { Class::FpDiv } else { Class::Fp };
    // Only the scalar fused multiply-add group names a third source there.
    let third = if w & 0x5f00_0000 == 0x1f00_0000 { vreg(w >> 10) } else { None };
    Decoded { dest: vreg(w), src: [vreg(w >> 5), vreg(w >> 16), third], ..plain(class) }
}

fn load_store(w: u32) -> Decoded {
    let v = w >> 26 & 1 == 1;
    let reg = |field| if v { vreg(field) } else { gpr(field) };
    let opc = w >> 22 & 3;
    let (load, pair, indexed) = match w >> 28 & 3 {
        // Structures (V) and exclusive/ordered/compare-and-swap: L is bit 22.
        0 => (opc & 1 == 1, false, false),
        1 if w >> 24 & 1 == 0 => {
            // Literal loads; a prefetch with opc 3.
            let prefetch = !v && w >> 30 == 3;
            let d = plain(if prefetch { Class::Alu } else { Class::Load });
            return Decoded { dest: if prefetch { None } else { reg(w) }, ..d };
        }
        1 => (opc != 0, false, false),
        2 => (opc & 1 == 1, true, false),
        _ => {
            let register_form = w & 0x0120_0000 == 0x0020_0000;
            if !v && register_form && w & 0xc00 == 0 {
                // Atomic operations load and store: they count as loads.
                return Decoded {
                    dest: gpr(w),
                    src: [gpr(w >> 5), gpr(w >> 16), None],
                    ..plain(Class::Load)
                };
            }
            if !v && w >> 30 == 3 && opc == 2 {
                return plain(Class::Alu); // PRFM
            }
            let load = if v { opc & 1 == 1 } else { opc != 0 };
            (load, false, register_form && w & 0xc00 == 0x800)
        }
    };
    let index = if indexed { gpr(w >> 16) } else { None };
    let base = gpr(w >> 5);
    if load {
        let dest2 = if pair { reg(w >> 10) } else { None };
        Decoded { dest: reg(w), dest2, src: [base, index, None], ..plain(Class::Load) }
    } else {
        Decoded { src: [base, index, reg(w)], ..plain(Class::Store) }
    }
}

fn branch_or_system(w: u32) -> Decoded {
    let branch = |kind, src| Decoded {
        src: [src, None, None],
        branch: Some(kind),
        ..plain(Class::Branch)
    };
    let conditional = |field: u32, bits| BranchKind::Conditional(4 * sign_extend(field, bits));
    if w & 0xff00_0000 == 0x5400_0000 {
        return branch(conditional(w >> 5 & 0x7_ffff, 19), None);
    }
    if w & 0x7e00_0000 == 0x3400_0000 {
        return branch(conditional(w >> 5 & 0x7_ffff, 19), gpr(w));
    }
    if w & 0x7e00_0000 == 0x3600_0000 {
        return branch(conditional(w >> 5 & 0x3fff, 14), gpr(w));
    }
    if w & 0x7c00_0000 == 0x1400_0000 {
        return branch(BranchKind::Always, None);
    }
    if w & 0xfe00_0000 == 0xd600_0000 {
        let kind = match w >> 21 & 15 {
            2 | 4 | 5 => BranchKind::Return,
            _ => BranchKind::Indirect,
        };
        return branch(kind, gpr(w >> 5));
    }
    if w & 0xffff_f01f == 0xd503_201f {
        let publish = w >> 5 & 0x7f == PUBLISH_HINT;
        return Decoded { sys: publish.then_some(SysOp::Publish), ..plain(Class::Alu) };
    }
    let rt = (w & 31) as u8;
    let sys = match w >> 20 {
        0xd53 => SysOp::Read(SysReg::of(w), rt),
        0xd51 => SysOp::Write(SysReg::of(w), rt),
        _ => return plain(Class::System),
    };
    let cheap = SysReg::of(w).is_cheap();
    let d = Decoded { sys: Some(sys), ..plain(if cheap { Class::Alu } else { Class::System }) };
    match sys {
        SysOp::Read(..) => Decoded { dest: gpr(w), ..d },
        _ => Decoded { src: [gpr(w), None, None], ..d },
    }
}
