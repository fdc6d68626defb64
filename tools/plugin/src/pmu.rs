//! The performance monitors that the guest's driver sees: PMUv3 with six event counters and the
//! cycle counter, counting the model's events.
//!
//! QEMU's own monitors stay underneath and see every write; only the registers whose value the
//! model knows better are answered here. Counters are 32 bits wide (PMUv3 of Armv8.0), the cycle
//! counter 64.
//!
//! A counter that wraps sets its bit in the overflow status; with its interrupt enabled that raises
//! the CPU's line ([`crate::interrupt`]). Cycles and instructions past the wrap until somebody
//! looks are the skid of a sample.

use crate::decode::SysReg;

/// Event numbers of the Arm architecture, and one of our own.
pub mod event {
    pub const L1D_CACHE_REFILL: u16 = 0x03;
    pub const L1D_CACHE: u16 = 0x04;
    pub const LD_RETIRED: u16 = 0x06;
    pub const ST_RETIRED: u16 = 0x07;
    pub const INST_RETIRED: u16 = 0x08;
    pub const BR_MIS_PRED: u16 = 0x10;
    pub const CPU_CYCLES: u16 = 0x11;
    pub const BR_PRED: u16 = 0x12;
    pub const MEM_ACCESS: u16 = 0x13;
    pub const L2D_CACHE: u16 = 0x16;
    pub const L2D_CACHE_REFILL: u16 = 0x17;
    /// Dirty lines that leave L2.
    pub const L2D_CACHE_WB: u16 = 0x18;
    /// Lines that go over the bus behind L2, either way (real cores count beats).
    pub const BUS_ACCESS: u16 = 0x19;
    pub const BR_RETIRED: u16 = 0x21;
    pub const BR_MIS_PRED_RETIRED: u16 = 0x22;
    pub const STALL_FRONTEND: u16 = 0x23;
    pub const STALL_BACKEND: u16 = 0x24;
    /// Floating-point operations, SIMD ones included.
    pub const VFP_SPEC: u16 = 0x75;
    /// Lines of L1D that other cores' stores took away (Cortex-A57 and others, not Cortex-A53).
    pub const L1D_CACHE_INVAL: u16 = 0x48;
    /// Lines that came from another core of the cluster (Cortex-A53: "SCU snooped data from another
    /// CPU for this CPU").
    pub const EXT_SNOOP: u16 = 0xc8;
    /// Part of [`STALL_BACKEND`]: waiting for memory (AMUv1, PMUv3 of Armv8.4).
    pub const STALL_BACKEND_MEM: u16 = 0x4005;
    /// Part of [`STALL_BACKEND`]: waiting for results of instructions (PMUv3 of Armv8.7).
    pub const STALL_BACKEND_ILOCK: u16 = 0x816c;
    /// Integer multiplications and divisions (PMUv3 of Armv9); SIMD ones are among [`VFP_SPEC`], as
    /// the model has one class for all of SIMD.
    pub const INT_MUL_SPEC: u16 = 0x8048;
    pub const INT_DIV_SPEC: u16 = 0x8044;
    /// Refills of L1 data, and of L2, that the hardware prefetcher asked for (PMUv3 of Armv8.8).
    pub const L1D_CACHE_REFILL_HWPRF: u16 = 0x81bc;
    pub const L2D_CACHE_REFILL_HWPRF: u16 = 0x81bd;
    /// Energy of the CPU since power-on in microjoules, whatever the exception level
    /// (implementation-defined range).
    pub const ENERGY_UJ: u16 = 0xe0;
    /// Those that the architecture's identification registers can name.
    pub const COMMON: [u16; 17] = [
        L1D_CACHE_REFILL,
        L1D_CACHE,
        LD_RETIRED,
        ST_RETIRED,
        INST_RETIRED,
        BR_MIS_PRED,
        CPU_CYCLES,
        BR_PRED,
        MEM_ACCESS,
        L2D_CACHE,
        L2D_CACHE_REFILL,
        L2D_CACHE_WB,
        BUS_ACCESS,
        BR_RETIRED,
        BR_MIS_PRED_RETIRED,
        STALL_FRONTEND,
        STALL_BACKEND,
    ];
}

/// Event counters that the modelled cores have (Cortex-A57 and A53: six).
pub const NR_EVENT_COUNTERS: usize = 6;
/// Index of the cycle counter.
const CYCLE: usize = 31;
/// PMCR_EL0: enable, reset event counters, reset cycle counter.
const PMCR_E: u64 = 1;
const PMCR_P: u64 = 2;
const PMCR_C: u64 = 4;
/// PMCR_EL0: the cycle counter overflows at 64 bits, not at 32.
const PMCR_LC: u64 = 1 << 6;
/// Counters that exist.
const COUNTERS: u32 = 1 << CYCLE | ((1 << NR_EVENT_COUNTERS) - 1);
/// More events of a kind than a cycle ever has.
const MOST_PER_CYCLE: u64 = 4;
/// PMEVTYPER: do not count at EL1, at EL0.
const TYPER_P: u64 = 1 << 31;
const TYPER_U: u64 = 1 << 30;

/// A register by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    Counter(usize),
    Type(usize),
    EnableSet,
    EnableClear,
    InterruptSet,
    InterruptClear,
    OverflowSet,
    OverflowClear,
    Control,
    Select,
    EventId(u16),
    Other,
}

/// Totals of an event now: at EL0, at EL1.
pub type EventTotals = [u64; 2];

/// What a counter of this number sees of an event of this number.
pub type TotalsOf<'a> = dyn Fn(usize, u16) -> EventTotals + 'a;

/// Registers of one CPU.
#[derive(Debug)]
pub struct Pmu {
    enabled: u32,
    /// Counters whose overflow interrupts, and those that have overflowed.
    interrupting: u32,
    overflowed: u32,
    control: u64,
    select: usize,
    types: [u64; 32],
    values: [u64; 32],
    starts: [u64; 32],
    /// Words of the events that are announced.
    announced: [u64; 2],
}

impl Default for Pmu {
    fn default() -> Pmu {
        Pmu::without(&[])
    }
}

impl Pmu {
    /// The registers of a CPU that does not have these events.
    pub fn without(lacks: &[u16]) -> Pmu {
        let mut types = [0; 32];
        types[CYCLE] = u64::from(event::CPU_CYCLES);
        Pmu {
            enabled: 0,
            interrupting: 0,
            overflowed: 0,
            control: 0,
            select: 0,
            types,
            values: [0; 32],
            starts: [0; 32],
            announced: [0, 1].map(|word| {
                let there = |e: &&u16| **e >> 5 == word && !lacks.contains(e);
                let bits = event::COMMON.iter().filter(there);
                bits.fold(0, |mask, e| mask | 1 << (e & 31))
            }),
        }
    }

    fn register(&self, r: SysReg) -> Register {
        match (r.crn(), r.crm(), r.op2()) {
            (9, 14, 1) => Register::InterruptSet,
            (9, 14, 2) => Register::InterruptClear,
            (9, 14, 3) => Register::OverflowSet,
            (9, 12, 3) => Register::OverflowClear,
            (14, m @ 8..=11, op2) => Register::Counter(usize::from((m & 3) << 3 | op2)),
            (14, m @ 12..=15, op2) => Register::Type(usize::from((m & 3) << 3 | op2)),
            (9, 12, 0) => Register::Control,
            (9, 12, 1) => Register::EnableSet,
            (9, 12, 2) => Register::EnableClear,
            (9, 12, 5) => Register::Select,
            (9, 12, 6) => Register::EventId(0),
            (9, 12, 7) => Register::EventId(1),
            (9, 13, 0) => Register::Counter(CYCLE),
            (9, 13, 1) => Register::Type(self.select),
            (9, 13, 2) => Register::Counter(self.select),
            _ => Register::Other,
        }
    }

    /// What counter `n` has counted since power-on, through its filter.
    fn total(&self, n: usize, totals: &TotalsOf<'_>) -> u64 {
        let t = self.types[n];
        let event = if n == CYCLE {
            event::CPU_CYCLES
        } else {
            t as u16
        };
        let [user, kernel] = totals(n, event);
        let user = if t & TYPER_U == 0 { user } else { 0 };
        let kernel = if t & TYPER_P == 0 { kernel } else { 0 };
        user.wrapping_add(kernel)
    }

    fn counts(&self, n: usize) -> bool {
        self.control & PMCR_E != 0 && self.enabled >> n & 1 == 1
    }

    /// Brings counter `n` up to now.
    fn settle(&mut self, n: usize, totals: &TotalsOf<'_>) {
        let total = self.total(n, totals);
        if self.counts(n) {
            let more = total.wrapping_sub(self.starts[n]);
            if more > self.room(n) {
                self.overflowed |= 1 << n;
            }
            let value = self.values[n].wrapping_add(more);
            self.values[n] = if n == CYCLE {
                value
            } else {
                value & u64::from(u32::MAX)
            };
        }
        self.starts[n] = total;
    }

    /// What counter `n` can count before it overflows.
    fn room(&self, n: usize) -> u64 {
        if n == CYCLE && self.control & PMCR_LC != 0 {
            u64::MAX - self.values[n]
        } else {
            u64::from(!(self.values[n] as u32))
        }
    }

    /// Looks which counters have overflowed. Whether the interrupt line is to be up, and how many
    /// cycles it takes until one more may have overflowed that interrupts.
    pub fn look(&mut self, totals: &TotalsOf<'_>) -> (bool, Option<u64>) {
        let counting = self.enabled & self.interrupting & COUNTERS;
        if counting == 0 || self.control & PMCR_E == 0 {
            return (false, None);
        }
        let each = (0..32).filter(|n| counting >> n & 1 == 1);
        each.clone().for_each(|n| self.settle(n, totals));
        let next = each
            .filter(|n| self.overflowed >> n & 1 == 0)
            .map(|n| match n {
                CYCLE => self.room(n),
                n => self.room(n) / MOST_PER_CYCLE,
            })
            .min();
        (self.overflowed & counting != 0, next)
    }

    fn settle_all(&mut self, totals: &TotalsOf<'_>) {
        for n in (0..NR_EVENT_COUNTERS).chain([CYCLE]) {
            self.settle(n, totals);
        }
    }

    /// Reads a register; `None` when QEMU's own value is right.
    pub fn read(&mut self, r: SysReg, totals: &TotalsOf<'_>) -> Option<u64> {
        match self.register(r) {
            Register::Counter(n) if n < NR_EVENT_COUNTERS || n == CYCLE => {
                self.settle(n, totals);
                Some(self.values[n])
            }
            Register::EventId(word) => self.announced.get(usize::from(word)).copied(),
            Register::OverflowSet | Register::OverflowClear => {
                self.settle_all(totals);
                Some(self.overflowed.into())
            }
            _ => None,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, r: SysReg, x: u64, totals: &TotalsOf<'_>) {
        match self.register(r) {
            Register::Counter(n) => {
                self.settle(n, totals);
                self.values[n] = if n == CYCLE {
                    x
                } else {
                    x & u64::from(u32::MAX)
                };
            }
            Register::Type(n) => {
                self.settle(n, totals);
                self.types[n] = x;
                self.starts[n] = self.total(n, totals);
            }
            Register::EnableSet => {
                self.settle_all(totals);
                self.enabled |= x as u32;
            }
            Register::EnableClear => {
                self.settle_all(totals);
                self.enabled &= !(x as u32);
            }
            Register::InterruptSet => self.interrupting |= x as u32,
            Register::InterruptClear => self.interrupting &= !(x as u32),
            Register::OverflowSet => {
                self.settle_all(totals);
                self.overflowed |= x as u32 & COUNTERS;
            }
            Register::OverflowClear => {
                self.settle_all(totals);
                self.overflowed &= !(x as u32);
            }
            Register::Control => {
                self.settle_all(totals);
                if x & PMCR_P != 0 {
                    self.values[..CYCLE].fill(0);
                }
                if x & PMCR_C != 0 {
                    self.values[CYCLE] = 0;
                }
                self.control = x;
            }
            Register::Select => self.select = (x & 31) as usize,
            Register::EventId(_) | Register::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const PMCR: SysReg = SysReg::new(3, 3, 9, 12, 0);
    const PMCNTENSET: SysReg = SysReg::new(3, 3, 9, 12, 1);
    const PMCNTENCLR: SysReg = SysReg::new(3, 3, 9, 12, 2);
    const PMSELR: SysReg = SysReg::new(3, 3, 9, 12, 5);
    const PMCEID0: SysReg = SysReg::new(3, 3, 9, 12, 6);
    const PMCEID1: SysReg = SysReg::new(3, 3, 9, 12, 7);
    const PMCCNTR: SysReg = SysReg::new(3, 3, 9, 13, 0);
    const PMXEVTYPER: SysReg = SysReg::new(3, 3, 9, 13, 1);
    const PMXEVCNTR: SysReg = SysReg::new(3, 3, 9, 13, 2);
    const PMINTENSET: SysReg = SysReg::new(3, 0, 9, 14, 1);
    const PMINTENCLR: SysReg = SysReg::new(3, 0, 9, 14, 2);
    const PMOVSSET: SysReg = SysReg::new(3, 3, 9, 14, 3);
    const PMOVSCLR: SysReg = SysReg::new(3, 3, 9, 12, 3);
    const fn pmevcntr(n: u16) -> SysReg {
        SysReg::new(3, 3, 14, 8 | n >> 3, n & 7)
    }
    const fn pmevtyper(n: u16) -> SysReg {
        SysReg::new(3, 3, 14, 12 | n >> 3, n & 7)
    }

    #[test]
    fn a_counter_counts_between_start_and_stop() {
        let now = Cell::new(0u64);
        let totals = |_: usize, e: u16| {
            if e == event::INST_RETIRED {
                [now.get(), 10 * now.get()]
            } else {
                [0; 2]
            }
        };
        let mut p = Pmu::default();
        p.write(pmevtyper(2), u64::from(event::INST_RETIRED), &totals);
        p.write(pmevcntr(2), 5, &totals);
        now.set(100); // neither enabled
        p.write(PMCNTENSET, 1 << 2, &totals);
        now.set(200); // not globally
        p.write(PMCR, PMCR_E, &totals);
        now.set(300);
        assert_eq!(p.read(pmevcntr(2), &totals), Some(5 + 1100));
        p.write(PMCNTENCLR, 1 << 2, &totals);
        now.set(400);
        assert_eq!(p.read(pmevcntr(2), &totals), Some(5 + 1100));
        p.write(PMCNTENSET, 1 << 2, &totals);
        now.set(500);
        assert_eq!(p.read(pmevcntr(2), &totals), Some(5 + 2200));
    }

    #[test]
    fn filters_choose_the_level() {
        let now = Cell::new(0u64);
        let totals = |_: usize, _: u16| [now.get(), 10 * now.get()];
        let mut p = Pmu::default();
        for (n, filter) in [(0, 0), (1, TYPER_U), (2, TYPER_P), (3, TYPER_U | TYPER_P)] {
            p.write(
                pmevtyper(n),
                filter | u64::from(event::INST_RETIRED),
                &totals,
            );
        }
        p.write(PMCNTENSET, u64::from(u32::MAX), &totals);
        p.write(PMCR, PMCR_E, &totals);
        now.set(7);
        let got: Vec<_> = (0..4)
            .map(|n| p.read(pmevcntr(n), &totals).unwrap())
            .collect();
        assert_eq!(got, [77, 70, 7, 0]);
        // The cycle counter counts cycles whatever its type register says.
        assert_eq!(p.read(PMCCNTR, &totals), Some(77));
    }

    #[test]
    fn event_counters_wrap_at_32_bits_and_cycles_do_not() {
        let now = Cell::new(0u64);
        let totals = |_: usize, _: u16| [now.get(), 0];
        let mut p = Pmu::default();
        p.write(PMCNTENSET, 1 << 31 | 1, &totals);
        p.write(PMCR, PMCR_E, &totals);
        p.write(pmevcntr(0), 0xffff_ffff_ffff_fffe, &totals);
        p.write(PMCCNTR, 0xffff_fffe, &totals);
        now.set(3);
        assert_eq!(p.read(pmevcntr(0), &totals), Some(1));
        assert_eq!(p.read(PMCCNTR, &totals), Some(0x1_0000_0001));
    }

    #[test]
    fn an_overflow_interrupts_once_enabled_until_cleared() {
        let now = Cell::new(0u64);
        let totals = |_: usize, _: u16| [now.get(), 0];
        let mut p = Pmu::default();
        p.write(PMCR, PMCR_E | PMCR_LC, &totals);
        p.write(pmevcntr(1), 0xffff_ff00, &totals);
        p.write(PMCCNTR, u64::MAX - 999, &totals);
        p.write(PMCNTENSET, 1 << 31 | 1 << 1, &totals);
        assert_eq!(p.look(&totals), (false, None), "nobody is to be told");
        p.write(PMINTENSET, 1 << 31 | 1 << 1, &totals);
        // 255 more fit, at up to four per cycle
        assert_eq!(p.look(&totals), (false, Some(63)));
        now.set(255);
        assert_eq!(p.look(&totals), (false, Some(0)));
        now.set(260);
        assert_eq!(p.look(&totals), (true, Some(739)));
        assert_eq!(p.read(PMOVSCLR, &totals), Some(1 << 1));
        assert_eq!(p.read(pmevcntr(1), &totals), Some(4), "the skid");
        p.write(PMOVSCLR, 1 << 1, &totals);
        assert_eq!(p.look(&totals), (false, Some(739)));
        // the cycle counter, at 64 bits
        now.set(1000);
        assert!(p.look(&totals).0);
        assert_eq!(p.read(PMOVSSET, &totals), Some(1 << 31));
        p.write(PMINTENCLR, 1 << 31, &totals);
        assert!(!p.look(&totals).0);
        assert_eq!(p.read(PMOVSSET, &totals), Some(1 << 31));
        // stopped, nothing interrupts
        p.write(PMINTENSET, 1 << 31, &totals);
        assert!(p.look(&totals).0);
        p.write(PMCR, PMCR_LC, &totals);
        assert_eq!(p.look(&totals), (false, None));
    }

    #[test]
    fn resets_and_selection() {
        let totals = |_: usize, _: u16| [0, 0];
        let mut p = Pmu::default();
        p.write(PMSELR, 3, &totals);
        p.write(PMXEVTYPER, u64::from(event::L2D_CACHE), &totals);
        p.write(PMXEVCNTR, 42, &totals);
        assert_eq!(p.read(pmevcntr(3), &totals), Some(42));
        p.write(PMCCNTR, 9, &totals);
        p.write(PMCR, PMCR_P, &totals);
        assert_eq!(
            (p.read(pmevcntr(3), &totals), p.read(PMCCNTR, &totals)),
            (Some(0), Some(9))
        );
        p.write(PMCR, PMCR_C, &totals);
        assert_eq!(p.read(PMCCNTR, &totals), Some(0));
        assert_eq!(p.read(pmevcntr(6), &totals), None);
        assert_eq!(p.read(PMCR, &totals), None);
    }

    #[test]
    fn identification_names_every_common_event() {
        let mut p = Pmu::default();
        let totals = |_: usize, _: u16| [0, 0];
        let ids = [
            p.read(PMCEID0, &totals).unwrap(),
            p.read(PMCEID1, &totals).unwrap(),
        ];
        for e in 0..64u16 {
            let named = ids[usize::from(e >> 5)] >> (e & 31) & 1 == 1;
            assert_eq!(named, event::COMMON.contains(&e), "{e:#x}");
        }
    }

    #[test]
    fn events_that_a_core_lacks_are_not_announced() {
        let totals = |_: usize, _: u16| [0, 0];
        let all = Pmu::default().read(PMCEID0, &totals).unwrap();
        let mut p = Pmu::without(&[event::BR_MIS_PRED, 0x8000]);
        assert_eq!(
            p.read(PMCEID0, &totals),
            Some(all & !(1 << event::BR_MIS_PRED))
        );
    }

    #[test]
    fn registers_are_told_from_others() {
        for r in [
            PMCR,
            PMCEID1,
            PMCCNTR,
            pmevcntr(5),
            pmevtyper(31),
            PMINTENSET,
            PMINTENCLR,
            PMOVSSET,
            PMOVSCLR,
        ] {
            assert!(r.is_pmu());
        }
        let midr = SysReg::new(3, 0, 0, 0, 0);
        let cntvct = SysReg::new(3, 3, 14, 0, 2);
        assert!(!midr.is_pmu() && !cntvct.is_pmu() && !crate::decode::TTBR0_EL1.is_pmu());
    }

    #[test]
    fn an_event_stands_still_in_counters_that_do_not_see_it() {
        let now = Cell::new(0u64);
        let totals = |n: usize, _: u16| if n == 1 { [now.get(), 0] } else { [0; 2] };
        let mut p = Pmu::default();
        for n in 0..3 {
            p.write(pmevtyper(n), u64::from(event::BR_MIS_PRED), &totals);
        }
        p.write(PMCNTENSET, 0b111, &totals);
        p.write(PMCR, PMCR_E, &totals);
        now.set(7);
        let got = [0, 1, 2].map(|n| p.read(pmevcntr(n), &totals));
        assert_eq!(got, [Some(0), Some(7), Some(0)]);
    }
}
