//! Coarse decoding of A64 instructions: class, registers, and the few system instructions the model
//! acts on.
//!
//! Distinguishes only what timing needs. Names of groups follow the Arm Architecture Reference
//! Manual, chapter C4.

use amp_machine::page::{PASS_HINT, PUBLISH_HINT};

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

/// A register operand: 0 to 30 general, 32 to 63 vector; `None` for the zero register and the stack
/// pointer.
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
        match (self.0 >> 11, self.crn()) {
            // op0 3, op1 3
            (0b1011, 9) => matches!(self.crm(), 12..=14),
            (0b1011, 14) => self.crm() >= 8,
            // op0 3, op1 0: the interrupt enables
            (0b1000, 9) => self.crm() == 14 && matches!(self.op2(), 1 | 2),
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
    /// The hint that lets time pass.
    Pass,
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
    Decoded {
        class,
        dest: None,
        dest2: None,
        src: [None; 3],
        branch: None,
        sys: None,
    }
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
    Decoded {
        dest: gpr(w),
        src: [src, None, None],
        ..plain(Class::Alu)
    }
}

fn register(w: u32) -> Decoded {
    let class = if w & 0x5fe0_f800 == 0x1ac0_0800 {
        Class::Div
    } else if w & 0x1f00_0000 == 0x1b00_0000 {
        Class::Mul
    } else {
        Class::Alu
    };
    let accumulator = if class == Class::Mul {
        gpr(w >> 10)
    } else {
        None
    };
    Decoded {
        dest: gpr(w),
        src: [gpr(w >> 5), gpr(w >> 16), accumulator],
        ..plain(class)
    }
}

fn vector(w: u32) -> Decoded {
    // FDIV (scalar), FSQRT (scalar), FDIV and FSQRT (vector).
    let divides = w & 0xff20_fc00 == 0x1e20_1800
        || w & 0xff3f_fc00 == 0x1e21_c000
        || w & 0xbf20_fc00 == 0x2e20_fc00
        || w & 0xbfbf_fc00 == 0x2ea1_f800;
    let class = if divides { Class::FpDiv } else { Class::Fp };
    // Only the scalar fused multiply-add group names a third source there.
    let third = if w & 0x5f00_0000 == 0x1f00_0000 {
        vreg(w >> 10)
    } else {
        None
    };
    Decoded {
        dest: vreg(w),
        src: [vreg(w >> 5), vreg(w >> 16), third],
        ..plain(class)
    }
}

fn load_store(w: u32) -> Decoded {
    let v = w >> 26 & 1 == 1;
    let reg = |field| if v { vreg(field) } else { gpr(field) };
    let opc = w >> 22 & 3;
    if w & 0x3fa0_7c00 == 0x08a0_7c00 {
        // Compare and swap: loads and perhaps stores.
        return Decoded {
            dest: gpr(w >> 16),
            src: [gpr(w >> 5), gpr(w >> 16), gpr(w)],
            ..plain(Class::Load)
        };
    }
    let (load, pair, indexed) = match w >> 28 & 3 {
        // Structures (V) and exclusive/ordered/compare-and-swap: L is bit 22.
        0 => (opc & 1 == 1, false, false),
        1 if w >> 24 & 1 == 0 => {
            // Literal loads; a prefetch with opc 3.
            let prefetch = !v && w >> 30 == 3;
            let d = plain(if prefetch { Class::Alu } else { Class::Load });
            return Decoded {
                dest: if prefetch { None } else { reg(w) },
                ..d
            };
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
        Decoded {
            dest: reg(w),
            dest2,
            src: [base, index, None],
            ..plain(Class::Load)
        }
    } else {
        Decoded {
            src: [base, index, reg(w)],
            ..plain(Class::Store)
        }
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
        let sys = match w >> 5 & 0x7f {
            PUBLISH_HINT => Some(SysOp::Publish),
            PASS_HINT => Some(SysOp::Pass),
            _ => None,
        };
        return Decoded {
            sys,
            ..plain(Class::Alu)
        };
    }
    let rt = (w & 31) as u8;
    let sys = match w >> 20 {
        0xd53 => SysOp::Read(SysReg::of(w), rt),
        0xd51 => SysOp::Write(SysReg::of(w), rt),
        _ => return plain(Class::System),
    };
    let cheap = SysReg::of(w).is_cheap();
    let d = Decoded {
        sys: Some(sys),
        ..plain(if cheap { Class::Alu } else { Class::System })
    };
    match sys {
        SysOp::Read(..) => Decoded { dest: gpr(w), ..d },
        _ => Decoded {
            src: [gpr(w), None, None],
            ..d
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::*;

    const V: u8 = 32;

    /// What matters of an instruction: class, registers written, registers read.
    fn check(w: u32, class: Class, dest: &[u8], src: &[u8]) {
        let d = decode(w);
        let dests: Vec<u8> = [d.dest, d.dest2].into_iter().flatten().collect();
        let srcs: Vec<u8> = d.src.into_iter().flatten().collect();
        assert_eq!(
            (d.class, &dests[..], &srcs[..]),
            (class, dest, src),
            "{w:08x}"
        );
    }

    #[test]
    fn integer() {
        check(0x9100_2020, Alu, &[0], &[1]); // add x0, x1, #8
        check(0x1000_0003, Alu, &[3], &[]); // adr x3, .
        check(0xd280_00e4, Alu, &[4], &[]); // movz x4, #7
        check(0xf2a0_0124, Alu, &[4], &[4]); // movk x4, #9, lsl #16
        check(0x8b07_00c5, Alu, &[5], &[6, 7]); // add x5, x6, x7
        check(0x9b03_1041, Mul, &[1], &[2, 3, 4]); // madd x1, x2, x3, x4
        check(0x9ac3_0841, Div, &[1], &[2, 3]); // udiv x1, x2, x3
        check(0x1ac3_0c41, Div, &[1], &[2, 3]); // sdiv w1, w2, w3
        check(0x9ac3_2041, Alu, &[1], &[2, 3]); // lsl x1, x2, x3
        check(0x9a83_0041, Alu, &[1], &[2, 3]); // csel x1, x2, x3, eq
    }

    #[test]
    fn vector() {
        check(0x1e62_2820, Fp, &[V], &[V + 1, V + 2]); // fadd d0, d1, d2
        check(0x1f42_0c20, Fp, &[V], &[V + 1, V + 2, V + 3]); // fmadd d0, d1, d2, d3
        check(0x1e62_1820, FpDiv, &[V], &[V + 1, V + 2]); // fdiv d0, d1, d2
        check(0x1e22_1820, FpDiv, &[V], &[V + 1, V + 2]); // fdiv s0, s1, s2
        assert_eq!(decode(0x1e61_c020).class, FpDiv); // fsqrt d0, d1
        assert_eq!(decode(0x6e62_fc20).class, FpDiv); // fdiv v0.2d, v1.2d, v2.2d
        assert_eq!(decode(0x6ea1_f820).class, FpDiv); // fsqrt v0.4s, v1.4s
        check(0x6e22_dc20, Fp, &[V], &[V + 1, V + 2]); // fmul v0.4s, v1.4s, v2.4s
    }

    #[test]
    fn loads() {
        check(0xf940_0020, Load, &[0], &[1]); // ldr x0, [x1]
        check(0xf862_6820, Load, &[0], &[1, 2]); // ldr x0, [x1, x2]
        check(0xf840_8420, Load, &[0], &[1]); // ldr x0, [x1], #8
        check(0xf840_8c20, Load, &[0], &[1]); // ldr x0, [x1, #8]!
        check(0xf85f_8020, Load, &[0], &[1]); // ldur x0, [x1, #-8]
        check(0x3940_0020, Load, &[0], &[1]); // ldrb w0, [x1]
        check(0xb980_0020, Load, &[0], &[1]); // ldrsw x0, [x1]
        check(0xa940_0440, Load, &[0, 1], &[2]); // ldp x0, x1, [x2]
        check(0x6cc1_0440, Load, &[V, V + 1], &[2]); // ldp d0, d1, [x2], #16
        check(0x3dc0_0041, Load, &[V + 1], &[2]); // ldr q1, [x2]
        check(0xfc63_6841, Load, &[V + 1], &[2, 3]); // ldr d1, [x2, x3]
        check(0x5800_0000, Load, &[0], &[]); // ldr x0, .
        check(0x9c00_0000, Load, &[V], &[]); // ldr q0, .
        check(0xc85f_7c20, Load, &[0], &[1]); // ldxr x0, [x1]
        check(0xc8df_fc20, Load, &[0], &[1]); // ldar x0, [x1]
        check(0xf820_0041, Load, &[1], &[2, 0]); // ldadd x0, x1, [x2]
        check(0xf820_8041, Load, &[1], &[2, 0]); // swp x0, x1, [x2]
        check(0xc8a0_7c41, Load, &[0], &[2, 0, 1]); // cas x0, x1, [x2]
        assert_eq!(decode(0xf8bf_c020).class, Load); // ldapr x0, [x1]
        check(0x4c40_7000, Load, &[V], &[0]); // ld1 {v0.16b}, [x0]
        check(0xf980_0000, Alu, &[], &[]); // prfm pldl1keep, [x0]
    }

    #[test]
    fn stores() {
        check(0xf900_0020, Store, &[], &[1, 0]); // str x0, [x1]
        check(0xf822_6820, Store, &[], &[1, 2, 0]); // str x0, [x1, x2]
        check(0xb900_03ff, Store, &[], &[]); // str wzr, [sp]
        check(0x3900_0020, Store, &[], &[1, 0]); // strb w0, [x1]
        check(0xa900_0440, Store, &[], &[2, 0]); // stp x0, x1, [x2]
        check(0xadbf_0440, Store, &[], &[2, V]); // stp q0, q1, [x2, #-32]!
        check(0x3d80_0020, Store, &[], &[1, V]); // str q0, [x1]
        check(0xfd00_0020, Store, &[], &[1, V]); // str d0, [x1]
        check(0xf81f_8020, Store, &[], &[1, 0]); // stur x0, [x1, #-8]
        check(0xc803_7c20, Store, &[], &[1, 0]); // stxr w3, x0, [x1]
        check(0xc89f_fc20, Store, &[], &[1, 0]); // stlr x0, [x1]
        check(0x4c00_7000, Store, &[], &[0, V]); // st1 {v0.16b}, [x0]
    }

    #[test]
    fn branches() {
        use BranchKind::*;
        for (w, kind, src) in [
            (0x1400_0002, Always, None),              // b .+8
            (0x9400_0002, Always, None),              // bl .+8
            (0x54ff_ffc1, Conditional(-8), None),     // b.ne .-8
            (0xb400_0083, Conditional(16), Some(3)),  // cbz x3, .+16
            (0x35ff_ff83, Conditional(-16), Some(3)), // cbnz w3, .-16
            (0x3628_0103, Conditional(32), Some(3)),  // tbz w3, #5, .+32
            (0x372f_ff03, Conditional(-32), Some(3)), // tbnz w3, #5, .-32
            (0xd61f_0060, Indirect, Some(3)),         // br x3
            (0xd63f_0060, Indirect, Some(3)),         // blr x3
            (0xd65f_03c0, Return, Some(30)),          // ret
            (0xd69f_03e0, Return, None),              // eret
        ] {
            let d = decode(w);
            assert_eq!(
                (d.class, d.branch, d.src[0]),
                (Branch, Some(kind), src),
                "{w:08x}"
            );
        }
    }

    #[test]
    fn system() {
        for (w, class, sys) in [
            (0xd400_0001, System, None),              // svc #0
            (0xd503_201f, Alu, None),                 // nop
            (0xd503_2f7f, Alu, Some(SysOp::Publish)), // hint #123
            (0xd503_2f5f, Alu, None),                 // hint #122
            (0xd503_2f3f, Alu, Some(SysOp::Pass)),    // hint #121
            (0xd503_3fdf, System, None),              // isb
            (0xd503_3f9f, System, None),              // dsb sy
            (0xd503_42df, System, None),              // msr daifset, #2
            (0xd50b_7427, System, None),              // dc zva, x7
        ] {
            let d = decode(w);
            assert_eq!((d.class, d.sys), (class, sys), "{w:08x}");
        }
    }

    #[test]
    fn system_registers() {
        let sys = |w: u32| decode(w).sys.unwrap();
        let pmccntr = SysReg::new(3, 3, 9, 13, 0);
        let pmevcntr2 = SysReg::new(3, 3, 14, 8, 2);
        assert_eq!(sys(0xd53b_9d03), SysOp::Read(pmccntr, 3));
        assert_eq!(sys(0xd53b_e844), SysOp::Read(pmevcntr2, 4));
        assert_eq!(
            sys(0xd51b_9c05),
            SysOp::Write(SysReg::new(3, 3, 9, 12, 0), 5)
        );
        assert_eq!(
            sys(0xd51b_9c3f),
            SysOp::Write(SysReg::new(3, 3, 9, 12, 1), 31)
        );
        assert_eq!(sys(0xd518_2006), SysOp::Write(TTBR0_EL1, 6));
        assert_eq!(
            (pmevcntr2.crn(), pmevcntr2.crm(), pmevcntr2.op2()),
            (14, 8, 2)
        );
        check(0xd538_4100, Alu, &[0], &[]); // mrs x0, sp_el0
        check(0xd53b_d041, Alu, &[1], &[]); // mrs x1, tpidr_el0
        check(0xd53b_e042, System, &[2], &[]); // mrs x2, cntvct_el0
        check(0xd51b_9c05, System, &[], &[5]); // msr pmcr_el0, x5
    }

    #[test]
    fn every_word_decodes() {
        let mut w = 1u32;
        for _ in 0..2_000_000 {
            w = w.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let d = decode(w ^ w >> 13);
            let regs = d.src.into_iter().chain([d.dest, d.dest2]).flatten();
            assert!(regs.clone().all(|r| r < 64 && r != 31), "{w:08x}");
        }
    }
}
