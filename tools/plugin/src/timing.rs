//! What a block costs on each core type, found once when the block is translated.

use crate::decode::{Class, Decoded, Reg};
use crate::model::TypeModel;

/// Time and energy of one execution of a block whose loads hit the L1 data cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cost {
    /// Picoseconds of virtual time. A block has at most a few hundred instructions: 32 bits are
    /// enough, and keep the block in one cache line.
    pub ps: u32,
    /// Picojoules.
    pub pj: u32,
}

/// Events of one execution of a block: as [`Events`], small enough for a block to stay in one cache
/// line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct BlockEvents(pub [u16; Events::KINDS]);

/// Events of some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Events(pub [u32; Events::KINDS]);

impl Events {
    /// Number of kinds.
    pub const KINDS: usize = 10;
    /// Instructions executed; index into the array, as the others.
    pub const INSTRUCTIONS: usize = 0;
    /// Loads and stores.
    pub const ACCESSES: usize = 1;
    /// Branches of any kind.
    pub const BRANCHES: usize = 2;
    /// Stores.
    pub const STORES: usize = 3;
    /// Floating-point and SIMD instructions.
    pub const FP: usize = 4;
    /// Instructions that read what a load right before them loads.
    pub const LOAD_USES: usize = 5;
    /// Instructions that read what a floating-point instruction right before them computes.
    pub const FP_USES: usize = 6;
    /// Instructions that read what another one right before them computes.
    pub const USES: usize = 7;
    /// Integer multiplications; those of SIMD are among [`Events::FP`].
    pub const MULS: usize = 8;
    /// Integer divisions.
    pub const DIVS: usize = 9;

    /// Adds those of a block.
    #[inline]
    pub fn add(&mut self, o: BlockEvents) {
        for (a, b) in self.0.iter_mut().zip(o.0) {
            *a = a.wrapping_add(u32::from(b));
        }
    }
}

fn reads(insn: &Decoded, reg: Reg) -> bool {
    reg.is_some() && insn.src.contains(&reg)
}

/// What an instruction waits for when it reads a register that the one before it writes.
fn waits_for(insn: &Decoded, before: Option<&Decoded>) -> Option<usize> {
    let b = before.filter(|b| reads(insn, b.dest) || reads(insn, b.dest2))?;
    Some(match b.class {
        Class::Load => Events::LOAD_USES,
        Class::Fp | Class::FpDiv => Events::FP_USES,
        _ => Events::USES,
    })
}

/// Cycles that such a wait costs on a core type.
pub fn stall(kind: usize, t: &TypeModel) -> f64 {
    match kind {
        Events::LOAD_USES => t.load_use_stall,
        Events::FP_USES => t.fp_raw_stall,
        Events::USES => t.raw_stall,
        _ => 0.0,
    }
}

/// Counts the events of a block.
pub fn events(block: &[Decoded]) -> BlockEvents {
    let mut events = BlockEvents::default();
    let mut count = |kind: usize| events.0[kind] = events.0[kind].saturating_add(1);
    let mut before = None;
    for d in block {
        count(Events::INSTRUCTIONS);
        if matches!(d.class, Class::Load | Class::Store) {
            count(Events::ACCESSES);
        }
        if d.branch.is_some() {
            count(Events::BRANCHES);
        }
        if d.class == Class::Store {
            count(Events::STORES);
        }
        if matches!(d.class, Class::Fp | Class::FpDiv) {
            count(Events::FP);
        }
        match d.class {
            Class::Mul => count(Events::MULS),
            Class::Div => count(Events::DIVS),
            _ => {}
        }
        if let Some(kind) = waits_for(d, before) {
            count(kind);
        }
        before = Some(d);
    }
    events
}

/// Cost of a block on a core type: issue cost by class, plus stalls where an instruction reads what
/// the one before it produces.
pub fn cost(block: &[Decoded], t: &TypeModel) -> Cost {
    let mut cycles = 0.0;
    let mut pj = 0.0;
    let mut before: Option<&Decoded> = None;
    for insn in block {
        cycles += t.cpi[insn.class as usize];
        pj += t.instruction_pj;
        if matches!(insn.class, Class::Fp | Class::FpDiv) {
            pj += t.fp_pj;
        }
        if let Some(kind) = waits_for(insn, before) {
            cycles += stall(kind, t);
        }
        before = Some(insn);
    }
    Cost {
        ps: (cycles * t.ps_per_cycle).round() as u32,
        pj: pj.round() as u32,
    }
}

/// For each instruction of a block, whether it is a load whose address depends on an earlier load
/// in a chain, so that their misses cannot overlap (pointer chasing).
///
/// In a block that loops to itself the chain must go round the loop: `a[b[i]]` overlaps with the
/// next iteration, a list walk does not. In others a chain within the block counts, and a load that
/// replaces its own base.
pub fn dependent_loads(block: &[Decoded], loops: bool) -> Vec<bool> {
    // Per register, the loads (by number in the block, the first 64) its value depends on.
    let mut taint = [0u64; 64];
    let mut out = vec![false; block.len()];
    for pass in 0..if loops { 2 } else { 1 } {
        let mut nr_loads = 0;
        for (i, insn) in block.iter().enumerate() {
            let of = |r: Reg| r.map_or(0, |r| taint[r as usize & 63]);
            let address = of(insn.src[0]) | of(insn.src[1]);
            let mut result = insn.src.iter().fold(0, |a, r| a | of(*r));
            if insn.class == Class::Load {
                let own = if nr_loads < 64 { 1 << nr_loads } else { 0 };
                nr_loads += 1;
                out[i] = match (loops, pass) {
                    (true, 0) => false,
                    (true, _) => address & own != 0,
                    (false, _) => address != 0 || reads(insn, insn.dest),
                };
                result = address | own;
            }
            for reg in [insn.dest, insn.dest2].into_iter().flatten() {
                taint[reg as usize & 63] = result;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::model::tests::juno;

    fn block(words: &[u32]) -> Vec<Decoded> {
        words.iter().map(|w| decode(*w)).collect()
    }

    const LDR_X0_X0: u32 = 0xf940_0000; // ldr x0, [x0]
    const LDR_X1_X0: u32 = 0xf940_0001; // ldr x1, [x0]
    const LDR_X2_X1: u32 = 0xf940_0022; // ldr x2, [x1]
    const ADD_X0_8: u32 = 0x9100_2000; // add x0, x0, #8
    const ADD_X3_X2: u32 = 0x8b02_0063; // add x3, x3, x2
    const SUBS: u32 = 0xf100_0484; // subs x4, x4, #1
    const STR_X3_X0: u32 = 0xf900_0003; // str x3, [x0]
    const MUL: u32 = 0x9b02_7c20; // mul x0, x1, x2
    const UDIV: u32 = 0x9ac2_0820; // udiv x0, x1, x2
    const FADD: u32 = 0x1e61_2800; // fadd d0, d0, d1

    #[test]
    fn costs_add_up() {
        let t = &juno()[1];
        let ps = |cycles: f64| (cycles * t.ps_per_cycle).round() as u32;
        assert_eq!(cost(&block(&[SUBS, ADD_X0_8]), t).ps, ps(2.0 * t.cpi[0]));
        assert_eq!(
            cost(&block(&[SUBS, SUBS]), t).ps,
            ps(2.0 * t.cpi[0] + t.raw_stall)
        );
        let load_use = cost(&block(&[LDR_X2_X1, ADD_X3_X2]), t).ps;
        assert_eq!(load_use, ps(t.cpi[3] + t.cpi[0] + t.load_use_stall));
        let fp = cost(&block(&[FADD, FADD]), t);
        assert_eq!(fp.ps, ps(2.0 * t.cpi[6] + t.fp_raw_stall));
        assert_eq!(fp.pj, (2.0 * (t.instruction_pj + t.fp_pj)).round() as u32);
        assert_eq!(cost(&[], t), Cost::default());
    }

    #[test]
    fn a_store_reads_what_it_stores() {
        let t = &juno()[1];
        let stalled = cost(&block(&[ADD_X3_X2, STR_X3_X0]), t).ps;
        assert_eq!(
            stalled,
            ((t.cpi[0] + t.cpi[4] + t.raw_stall) * t.ps_per_cycle).round() as u32
        );
    }

    #[test]
    fn events_are_counted() {
        let e = events(&block(&[LDR_X0_X0, STR_X3_X0, SUBS, 0x54ff_ffa1]));
        assert_eq!(e, BlockEvents([4, 2, 1, 1, 0, 1, 0, 0, 0, 0]));
        let e = events(&block(&[FADD, FADD, SUBS, SUBS]));
        assert_eq!(e, BlockEvents([4, 0, 0, 0, 2, 0, 1, 1, 0, 0]));
        let e = events(&block(&[MUL, MUL, UDIV]));
        assert_eq!(e, BlockEvents([3, 0, 0, 0, 0, 0, 0, 0, 2, 1]));
    }

    #[test]
    fn a_list_walk_depends() {
        assert_eq!(
            dependent_loads(&block(&[LDR_X0_X0, SUBS]), true),
            [true, false]
        );
        assert_eq!(
            dependent_loads(&block(&[LDR_X0_X0, SUBS]), false),
            [true, false]
        );
        // x1 = *x0; x0 = x1 by an add of zero: the chain goes through the ALU.
        let mov = 0x9100_0020; // add x0, x1, #0
        assert_eq!(
            dependent_loads(&block(&[LDR_X1_X0, mov]), true),
            [true, false]
        );
    }

    #[test]
    fn an_array_does_not() {
        assert_eq!(
            dependent_loads(&block(&[LDR_X1_X0, ADD_X0_8, SUBS]), true),
            [false; 3]
        );
        // Indirect: the second load depends on the first, but not round the loop.
        let indirect = block(&[LDR_X1_X0, LDR_X2_X1, ADD_X0_8]);
        assert_eq!(dependent_loads(&indirect, true), [false; 3]);
        assert_eq!(dependent_loads(&indirect, false), [false, true, false]);
    }
}
