//! A core type's parameters in the units of the hot path: dilated picoseconds and picojoules.

use crate::decode::NR_CLASSES;
use amp_machine::page::StaticPower;
use amp_machine::{CoreModel, OperatingPoint, Predictor, SharedLines};

/// How much of a miss the core sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Exposure {
    /// Its address comes from the miss before it: all of it.
    Dependent = 0,
    /// It overlaps with its neighbours.
    Independent = 1,
    /// The prefetcher saw it coming.
    Sequential = 2,
}

/// Index of `transfer_ps` for cores of the same type.
pub const NEAR: usize = 0;

/// A core type.
#[derive(Clone, Debug)]
pub struct TypeModel {
    /// Index of the core type.
    pub index: usize,
    /// Clock in MHz, undilated.
    pub mhz: u64,
    /// Virtual seconds per modelled second.
    pub dilation: u64,
    /// Picoseconds of virtual time per cycle.
    pub ps_per_cycle: f64,
    /// Cycles per instruction by [`Class`](crate::decode::Class).
    pub cpi: [f64; NR_CLASSES],
    pub raw_stall: f64,
    pub load_use_stall: f64,
    pub fp_raw_stall: f64,
    /// Exposed time of a miss that hits L2, by [`Exposure`].
    pub l2_ps: [u64; 3],
    /// Exposed time of a miss that goes to memory, by [`Exposure`].
    pub dram_ps: [u64; 3],
    /// Exposed time of a line that comes from another core's L1: of the same core type ([`NEAR`]),
    /// of another one, by [`Exposure`].
    pub transfer_ps: [[u64; 3]; 2],
    /// What its PMU counts of lines that cores pass to each other.
    pub shared_lines: SharedLines,
    /// Time lost on a misprediction.
    pub mispredict_ps: u64,
    pub gshare: bool,
    pub predictor_entries: usize,
    pub history_bits: u32,
    pub target_entries: usize,
    pub instruction_pj: f64,
    pub fp_pj: f64,
    pub l1d_refill_pj: u64,
    pub l2_refill_pj: u64,
    /// Static power, as readers of the state page know it: at the slowest operating point.
    pub power: StaticPower,
    /// What the clock takes beyond that while running, microwatts.
    pub more_uw: u32,
    /// What a block's time and energy at the fastest clock are multiplied with.
    pub pace: Pace,
    pub line_shift: u32,
    pub l1_sets: usize,
    pub l1_ways: usize,
    pub l2_sets: usize,
    pub l2_ways: usize,
}

/// Time and energy of a block beside those at the core type's fastest clock, in units of
/// 1/[`Pace::ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub time: u64,
    pub energy: u64,
}

impl Pace {
    /// The fastest clock.
    pub const ONE: u64 = 1 << Pace::SHIFT;
    pub const SHIFT: u32 = 16;
}

impl TypeModel {
    /// The core type at one of its operating points. What goes with the clock takes longer, and
    /// what the core's voltage feeds takes less, by its square; memory and lines from other cores
    /// are as fast and cost as much as ever.
    pub fn at(&self, m: &CoreModel, point: OperatingPoint) -> TypeModel {
        let top = m.operating_points.last().copied().unwrap_or(point);
        let slower = f64::from(top.mhz) / f64::from(point.mhz);
        let square = |p: OperatingPoint| (f64::from(p.mv) / f64::from(top.mv)).powi(2);
        let energy = square(point);
        let running = |p: OperatingPoint| {
            f64::from(self.power.active_uw) * square(p) * f64::from(p.mhz) / f64::from(top.mhz)
        };
        let least = m.operating_points.first().copied().unwrap_or(point);
        // an idle core's power does not depend on its clock
        let active_uw = running(least).max(f64::from(self.power.idle_uw));
        let longer = |ps: u64| (ps as f64 * slower).round() as u64;
        TypeModel {
            mhz: u64::from(point.mhz),
            ps_per_cycle: self.ps_per_cycle * slower,
            l2_ps: self.l2_ps.map(longer),
            mispredict_ps: longer(self.mispredict_ps),
            instruction_pj: self.instruction_pj * energy,
            fp_pj: self.fp_pj * energy,
            l1d_refill_pj: (self.l1d_refill_pj as f64 * energy).round() as u64,
            power: StaticPower {
                active_uw: active_uw.round() as u32,
                idle_uw: self.power.idle_uw,
            },
            more_uw: (running(point) - active_uw).max(0.0).round() as u32,
            pace: Pace {
                time: (slower * Pace::ONE as f64).round() as u64,
                energy: (energy * Pace::ONE as f64).round() as u64,
            },
            ..self.clone()
        }
    }

    /// The core type `index` of a machine, slowed down `dilation` times. `m` has passed the machine
    /// file's checks.
    pub fn new(index: usize, m: &CoreModel, dilation: u32) -> TypeModel {
        let ps_per_cycle = 1e6 / f64::from(m.mhz) * f64::from(dilation);
        let exposed = |ps: f64| {
            [
                1.0,
                m.memory.overlap_independent,
                m.memory.overlap_sequential,
            ]
            .map(|part| (ps * part).round() as u64)
        };
        let c = &m.cpi;
        let uw = |mw: f64| (mw * 1000.0).round() as u32;
        TypeModel {
            index,
            mhz: m.mhz.into(),
            dilation: dilation.into(),
            ps_per_cycle,
            cpi: [
                c.alu, c.mul, c.div, c.load, c.store, c.branch, c.fp, c.fp_div, c.system,
            ],
            raw_stall: m.pipeline.raw_stall,
            load_use_stall: m.pipeline.load_use_stall,
            fp_raw_stall: m.pipeline.fp_raw_stall,
            l2_ps: exposed(m.memory.l2_latency * ps_per_cycle),
            dram_ps: exposed(m.memory.dram_ns * 1000.0 * f64::from(dilation)),
            transfer_ps: [m.memory.transfer_ns, m.memory.transfer_far_ns]
                .map(|ns| exposed(ns.unwrap_or(0.0) * 1000.0 * f64::from(dilation))),
            shared_lines: m.shared_lines,
            mispredict_ps: (m.branch.penalty * ps_per_cycle).round() as u64,
            gshare: m.branch.predictor == Predictor::Gshare,
            predictor_entries: m.branch.entries as usize,
            history_bits: m.branch.history,
            target_entries: m.branch.targets as usize,
            instruction_pj: m.energy.instruction_pj,
            fp_pj: m.energy.fp_pj,
            l1d_refill_pj: m.energy.l1d_refill_pj.round() as u64,
            l2_refill_pj: m.energy.l2_refill_pj.round() as u64,
            power: StaticPower {
                active_uw: uw(m.energy.active_mw),
                idle_uw: uw(m.energy.idle_mw),
            },
            more_uw: 0,
            pace: Pace {
                time: Pace::ONE,
                energy: Pace::ONE,
            },
            line_shift: m.l1d.line.trailing_zeros(),
            l1_sets: m.l1d.sets() as usize,
            l1_ways: m.l1d.ways as usize,
            l2_sets: m.l2.sets() as usize,
            l2_ways: m.l2.ways as usize,
        }
    }

    /// Core clock cycles in `ps` of virtual time.
    pub fn cycles(&self, ps: u64) -> u64 {
        let cycles = u128::from(ps) * u128::from(self.mhz) / 1_000_000 / u128::from(self.dilation);
        cycles as u64
    }

    /// What the clock takes beyond static power while running for `ps` of virtual time, picojoules.
    pub fn clock_pj(&self, ps: u64) -> u64 {
        // uW * ps = 1e-6 pJ
        let pj = u128::from(ps) * u128::from(self.more_uw) / 1_000_000 / u128::from(self.dilation);
        pj as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use amp_machine::MachineFile;

    /// The core types of juno at dilation 8.
    pub(crate) fn juno() -> Vec<TypeModel> {
        let m = MachineFile::load("juno").unwrap();
        let (_, models) = m.board_models().unwrap();
        models
            .iter()
            .enumerate()
            .map(|(i, m)| TypeModel::new(i, m, 8))
            .collect()
    }

    #[test]
    fn units() {
        let t = &juno()[0];
        assert!((t.ps_per_cycle - 8e6 / 1100.0).abs() < 1e-9);
        assert_eq!(t.cycles(8_000_000), 1100);
        assert_eq!(t.dram_ps[0], 880_000);
        assert_eq!(
            (t.l1_sets, t.l1_ways, t.l2_sets, t.l2_ways),
            (256, 2, 2048, 16)
        );
        assert_eq!(
            t.power,
            StaticPower {
                active_uw: 170_000,
                idle_uw: 30_000
            }
        );
    }

    #[test]
    fn less_is_exposed_of_what_overlaps() {
        for t in juno() {
            for e in [t.l2_ps, t.dram_ps] {
                assert!(e[0] > e[1] && e[1] > e[2], "{e:?}");
            }
        }
    }

    #[test]
    fn a_slower_clock_takes_longer_and_less() {
        let file = MachineFile::load("juno").unwrap();
        let (_, models) = file.board_models().unwrap();
        for (fast, m) in juno().iter().zip(models) {
            let at: Vec<TypeModel> = m.operating_points.iter().map(|p| fast.at(m, *p)).collect();
            let top = at.last().unwrap();
            assert_eq!(top.pace, fast.pace);
            assert_eq!((top.mhz, top.l2_ps), (fast.mhz, fast.l2_ps));
            assert_eq!(top.power.active_uw + top.more_uw, fast.power.active_uw);
            for pair in at.windows(2) {
                let (slow, fast) = (&pair[0], &pair[1]);
                assert_eq!(slow.power, fast.power);
                assert!(slow.more_uw < fast.more_uw);
                assert!(slow.pace.time > fast.pace.time && slow.pace.energy < fast.pace.energy);
                assert!(slow.l2_ps[0] > fast.l2_ps[0]);
                assert_eq!(slow.dram_ps, fast.dram_ps);
                assert!(slow.cycles(1 << 40) < fast.cycles(1 << 40));
            }
        }
    }

    #[test]
    fn power_falls_with_clock_and_voltage_as_published() {
        // [EAS] 168 mW at 450 MHz beside 616 at 1100
        let file = MachineFile::load("juno").unwrap();
        let (_, models) = file.board_models().unwrap();
        let (fast, m) = (&juno()[0], models[0]);
        let slow = fast.at(m, m.operating_points[0]);
        let clock = |t: &TypeModel| f64::from(t.power.active_uw + t.more_uw);
        let rate = |t: &TypeModel| t.instruction_pj / t.ps_per_cycle;
        for ratio in [clock(&slow) / clock(fast), rate(&slow) / rate(fast)] {
            assert!((ratio - 168.0 / 616.0).abs() < 0.003, "{ratio}");
        }
    }

    #[test]
    fn cycles_of_long_runs_do_not_wrap() {
        assert_eq!(juno()[0].cycles(u64::MAX), 2_536_427_310_135_063);
    }
}
