//! Totals of one CPU since power-on.

use crate::model::{Exposure, TypeModel};
use crate::timing::{stall, Events};
use amp_machine::page::{energy_uj, Total, NR_TOTALS};
use amp_machine::SharedLines;

/// Totals at one exception level.
#[derive(Clone, Debug, Default)]
#[repr(C, align(128))]
pub struct Counts {
    /// Time running, picoseconds of virtual time.
    pub ps: u64,
    /// Energy of events, picojoules.
    pub pj: u64,
    /// Events of blocks since [`Counts::settle`] was last called: 32 bits wide so that a block adds
    /// all of them at once.
    pub recent: Events,
    pub l1d_refills: u64,
    pub l2_accesses: u64,
    pub l2_refills: u64,
    /// Dirty lines that left L2 for memory.
    pub l2_writebacks: u64,
    /// Lines that came from the L1 of another core of the cluster.
    pub snoops: u64,
    /// Contended lines that others' stores took away (the others are counted in
    /// [`Vcpu::taken`](crate::vcpu::Vcpu::taken)).
    pub invalidations: u64,
    /// Refills of L1 data that the prefetcher saw coming, and those of L2 among them.
    l1d_prefetched: u64,
    l2_prefetched: u64,
    pub mispredicts: u64,
    pub frontend_ps: u64,
    pub backend_ps: u64,
    instructions: u64,
    accesses: u64,
    branches: u64,
    stores: u64,
    fp: u64,
    muls: u64,
    divs: u64,
    /// Instructions that waited for the one before them, by kind.
    waits: [u64; 3],
    /// What came of time before the clock was last changed.
    before: Before,
}

/// What came of time up to a change of the clock.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Time at the change, and the cycles that it came to by then: running, of the front end, of
    /// the back end.
    ps: [u64; 3],
    cycles: [u64; 3],
    /// Energy of the clock, picojoules.
    clock_pj: u64,
}

/// Indices into [`Before`].
const RUNNING: usize = 0;
const FRONTEND: usize = 1;
const BACKEND: usize = 2;

/// The kinds of waiting.
const WAITS: [usize; 3] = [Events::LOAD_USES, Events::FP_USES, Events::USES];

impl Counts {
    /// Folds recent events into the totals. To be called before totals are read and at least once
    /// per quantum: 32 bits hold more events than a quantum has time for.
    pub fn settle(&mut self) {
        let r = std::mem::take(&mut self.recent);
        self.instructions += u64::from(r.0[Events::INSTRUCTIONS]);
        self.accesses += u64::from(r.0[Events::ACCESSES]);
        self.branches += u64::from(r.0[Events::BRANCHES]);
        self.stores += u64::from(r.0[Events::STORES]);
        self.fp += u64::from(r.0[Events::FP]);
        self.muls += u64::from(r.0[Events::MULS]);
        self.divs += u64::from(r.0[Events::DIVS]);
        for (sum, kind) in self.waits.iter_mut().zip(WAITS) {
            *sum += u64::from(r.0[kind]);
        }
    }

    /// Counts a refill of L1 data as the prefetcher's if it is.
    #[inline]
    pub fn prefetched(&mut self, exposure: Exposure, l2_hit: bool) {
        let sequential = exposure == Exposure::Sequential;
        self.l1d_prefetched += u64::from(sequential);
        self.l2_prefetched += u64::from(sequential && !l2_hit);
    }

    /// Time in which the core waits and executes nothing.
    pub fn pass(&mut self, ps: u64) {
        self.ps += ps;
        self.backend_ps += ps;
    }

    fn times(&self) -> [u64; 3] {
        [self.ps, self.frontend_ps, self.backend_ps]
    }

    /// Cycles that time of one kind has come to; `t` is at the clock of now.
    fn cycles(&self, kind: usize, t: &TypeModel) -> u64 {
        let since = self.times()[kind] - self.before.ps[kind];
        self.before.cycles[kind] + t.cycles(since)
    }

    /// Energy of events and of the clock; `t` is at the clock of now.
    fn pj(&self, t: &TypeModel) -> u64 {
        let since = self.ps - self.before.ps[RUNNING];
        self.pj + self.before.clock_pj + t.clock_pj(since)
    }

    /// The clock is about to change from that of `t`.
    pub fn clock_changes(&mut self, t: &TypeModel) {
        let cycles = [RUNNING, FRONTEND, BACKEND].map(|kind| self.cycles(kind, t));
        self.before = Before {
            ps: self.times(),
            cycles,
            clock_pj: self.pj(t) - self.pj,
        };
    }

    /// The totals in the order of the state page, settled ones only.
    pub fn totals(&self, t: &TypeModel) -> [u64; NR_TOTALS] {
        let mut out = [0; NR_TOTALS];
        for (total, value) in [
            (Total::ActivePs, self.ps),
            (Total::Cycles, self.cycles(RUNNING, t)),
            (Total::Instructions, self.instructions),
            (Total::L1dAccess, self.accesses),
            (Total::L1dRefill, self.l1d_refills),
            (Total::L2Access, self.l2_accesses),
            (Total::L2Refill, self.l2_refills),
            (Total::Branches, self.branches),
            (Total::Mispredicts, self.mispredicts),
            (Total::StallFrontendPs, self.frontend_ps),
            (Total::StallBackendPs, self.backend_ps),
            (Total::DynamicPj, self.pj(t)),
            (Total::Stores, self.stores),
            (Total::L2WriteBack, self.l2_writebacks),
        ] {
            out[total as usize] = value;
        }
        out
    }

    /// Cycles in which nothing was issued because the result of the instruction before was not
    /// there.
    fn interlocks(&self, t: &TypeModel) -> u64 {
        let waits = self.waits.iter().zip(WAITS);
        waits
            .map(|(n, kind)| *n as f64 * stall(kind, t))
            .sum::<f64>() as u64
    }

    /// Total of a PMU event, settled ones only; `None` when the model does not have the event.
    pub fn event(&self, event: u16, t: &TypeModel) -> Option<u64> {
        use crate::pmu::event as e;
        Some(match event {
            e::CPU_CYCLES => self.cycles(RUNNING, t),
            e::INST_RETIRED => self.instructions,
            e::L1D_CACHE | e::MEM_ACCESS => self.accesses,
            e::L1D_CACHE_REFILL => self.l1d_refills,
            e::L2D_CACHE => self.l2_accesses,
            e::L2D_CACHE_REFILL => self.l2_refills,
            e::L2D_CACHE_WB => self.l2_writebacks,
            e::BUS_ACCESS => self.l2_refills + self.l2_writebacks,
            e::EXT_SNOOP if t.shared_lines == SharedLines::Snoops => self.snoops,
            e::L1D_CACHE_INVAL if t.shared_lines == SharedLines::Invalidations => {
                self.invalidations
            }
            e::LD_RETIRED => self.accesses - self.stores,
            e::ST_RETIRED => self.stores,
            e::BR_MIS_PRED | e::BR_MIS_PRED_RETIRED => self.mispredicts,
            e::BR_PRED | e::BR_RETIRED => self.branches,
            e::STALL_FRONTEND => self.cycles(FRONTEND, t),
            e::STALL_BACKEND => self.cycles(BACKEND, t) + self.interlocks(t),
            e::L1D_CACHE_REFILL_HWPRF => self.l1d_prefetched,
            e::L2D_CACHE_REFILL_HWPRF => self.l2_prefetched,
            e::STALL_BACKEND_MEM => self.cycles(BACKEND, t),
            e::STALL_BACKEND_ILOCK => self.interlocks(t),
            e::VFP_SPEC => self.fp,
            e::INT_MUL_SPEC => self.muls,
            e::INT_DIV_SPEC => self.divs,
            _ => return None,
        })
    }
}

/// Energy of a CPU up to `now_ps`, microjoules.
pub fn energy(user: &Counts, kernel: &Counts, t: &TypeModel, now_ps: u64) -> u64 {
    energy_uj(
        t.power,
        t.dilation as u32,
        now_ps,
        user.ps + kernel.ps,
        user.pj(t) + kernel.pj(t),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::juno;
    use crate::pmu::event;

    #[test]
    fn recent_events_count_once() {
        let t = &juno()[0];
        let mut c = Counts {
            recent: Events([10, 4, 2, 1, 3, 2, 1, 0, 5, 6]),
            backend_ps: 8_000_000,
            ..Counts::default()
        };
        c.settle();
        c.settle();
        assert_eq!(c.event(event::INST_RETIRED, t), Some(10));
        assert_eq!(c.event(event::LD_RETIRED, t), Some(3));
        assert_eq!(c.event(event::ST_RETIRED, t), Some(1));
        assert_eq!(c.totals(t)[Total::Branches as usize], 2);
        assert_eq!(c.event(event::VFP_SPEC, t), Some(3));
        assert_eq!(c.event(event::INT_MUL_SPEC, t), Some(5));
        assert_eq!(c.event(event::INT_DIV_SPEC, t), Some(6));
        let stalls = 2.0 * t.load_use_stall + t.fp_raw_stall;
        assert_eq!(c.event(event::STALL_BACKEND_ILOCK, t), Some(stalls as u64));
        assert_eq!(c.event(event::STALL_BACKEND_MEM, t), Some(1100));
        assert_eq!(c.event(event::STALL_BACKEND, t), Some(1100 + stalls as u64));
    }

    #[test]
    fn prefetches_are_refills_that_were_seen_coming() {
        let mut c = Counts::default();
        for (exposure, hit) in [
            (Exposure::Sequential, true),
            (Exposure::Sequential, false),
            (Exposure::Independent, false),
            (Exposure::Dependent, true),
        ] {
            c.prefetched(exposure, hit);
        }
        let t = &juno()[0];
        assert_eq!(c.event(event::L1D_CACHE_REFILL_HWPRF, t), Some(2));
        assert_eq!(c.event(event::L2D_CACHE_REFILL_HWPRF, t), Some(1));
    }

    #[test]
    fn cycles_and_energy_go_on_over_a_change_of_the_clock() {
        let file = amp_machine::MachineFile::load("juno").unwrap();
        let (_, models) = file.board_models().unwrap();
        let (fast, m) = (&juno()[0], models[0]);
        let [slow, fast] = [0, 4].map(|i| fast.at(m, m.operating_points[i]));
        let mut c = Counts {
            ps: 8_000_000,
            backend_ps: 4_000_000,
            ..Counts::default()
        };
        let pj = c.pj(&fast);
        assert_eq!(
            (c.cycles(RUNNING, &fast), c.cycles(BACKEND, &fast)),
            (1100, 550)
        );
        c.clock_changes(&fast);
        let same = (
            c.cycles(RUNNING, &slow),
            c.cycles(BACKEND, &slow),
            c.pj(&slow),
        );
        assert_eq!(same, (1100, 550, pj));
        c.ps += 8_000_000;
        assert_eq!(c.cycles(RUNNING, &slow), 1550);
        // at the slowest clock, static power is all there is
        assert_eq!(c.pj(&slow), pj);
        c.clock_changes(&slow);
        c.ps += 8_000_000;
        assert_eq!(c.event(event::CPU_CYCLES, &fast), Some(2650));
        assert_eq!(c.totals(&fast)[Total::DynamicPj as usize], 2 * pj);
    }

    #[test]
    fn cycles_come_from_time() {
        let t = &juno()[1];
        let c = Counts {
            ps: 8_000_000_000,
            ..Counts::default()
        };
        assert_eq!(c.event(event::CPU_CYCLES, t), Some(850_000));
        assert_eq!(c.totals(t)[Total::Cycles as usize], 850_000);
        assert_eq!(c.event(0x3f, t), None);
    }
}
