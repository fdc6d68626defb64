//! Events that count nothing: a driver of Arm takes any raw code, and counts 0 for one that the
//! core does not have.
//!
//! A short loop makes what it can happen: instructions of every common kind, misses of caches and
//! of the predictor. An event that the loop is sure to cause and that stays at 0 counts nothing
//! here. Of any other event a 0 may be the truth.

use amp_metrics::event::Generic;
use amp_metrics::{Event, Pmu};
use std::hint::black_box;

/// Bytes that the loop goes through: more than an L2 cache of a core has.
const BYTES: usize = 4 << 20;
/// Rounds of the loop.
const ROUNDS: u64 = 50_000;

/// Events of the Arm architecture that the loop is sure to cause wherever a core has them [Arm ARM,
/// PMUv3 events].
const ARM: &[u64] = &[
    0x03, 0x04, // L1D_CACHE_REFILL, L1D_CACHE
    0x06, 0x07, // LD_RETIRED, ST_RETIRED
    0x08, 0x10, 0x11, 0x12, // INST_RETIRED, BR_MIS_PRED, CPU_CYCLES, BR_PRED
    0x13, 0x14, // MEM_ACCESS, L1I_CACHE
    0x16, 0x17, // L2D_CACHE, L2D_CACHE_REFILL
    0x19, 0x1b, 0x1d, // BUS_ACCESS, INST_SPEC, BUS_CYCLES
    0x21, 0x22, 0x24, // BR_RETIRED, BR_MIS_PRED_RETIRED, STALL_BACKEND
    0x3a, 0x3b, // OP_RETIRED, OP_SPEC
    0x40, 0x41, 0x42, // L1D_CACHE_RD, L1D_CACHE_WR, L1D_CACHE_REFILL_RD
    0x50, 0x52, // L2D_CACHE_RD, L2D_CACHE_REFILL_RD
    0x60, 0x66, 0x67, // BUS_ACCESS_RD, MEM_ACCESS_RD, MEM_ACCESS_WR
    0x70, 0x71, 0x72, 0x73, 0x75,   // LD_SPEC, ST_SPEC, LDST_SPEC, DP_SPEC, VFP_SPEC
    0x78,   // BR_IMMED_SPEC
    0x4005, // STALL_BACKEND_MEM
    0x8044, 0x8048, // INT_DIV_SPEC, INT_MUL_SPEC
];

/// Generic events that the loop is sure to cause.
const GENERIC: &[&str] = &[
    "instructions",
    "cycles",
    "branches",
    "branch-misses",
    "cache-references",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "L1-dcache-stores",
];

/// What an event's count beside the loop says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It counts.
    Counts,
    /// It stayed at 0 where it must not.
    Nothing,
    /// It stayed at 0, and nobody knows whether it had to.
    Zero,
    /// The loop's instructions were not counted either: the count says nothing.
    Unseen,
}

/// The finding for an event that counted `count` beside `instructions` of the loop, which is `sure`
/// to cause it or not.
pub fn judge(instructions: u64, count: u64, sure: bool) -> Finding {
    match (count, instructions, sure) {
        (1.., _, _) => Finding::Counts,
        // interrupts alone have some thousands
        (0, ..ROUNDS, _) => Finding::Unseen,
        (0, _, true) => Finding::Nothing,
        (0, _, false) => Finding::Zero,
    }
}

/// Whether the loop is sure to cause `event` of `pmu`, if the core has it.
pub fn is_caused(pmu: &Pmu, event: &Event) -> bool {
    let a = &event.attr;
    if a.is_generic() {
        // the upper half says which PMU
        let config = a.config & u64::from(u32::MAX);
        let mut known = GENERIC.iter().filter_map(|n| Generic::by_name(n));
        return known.any(|g| (g.type_, g.config) == (a.type_, config));
    }
    // others number their events as they like
    pmu.name.starts_with("arm") && (a.config1, a.config2) == (0, 0) && ARM.contains(&a.config)
}

/// Runs the loop once; what it has worked out.
pub fn run() -> u64 {
    let words = BYTES / size_of::<u64>();
    let mut memory = vec![1u64; words];
    let (mut x, mut real, mut sum) = (0x9e37_79b9_7f4a_7c15u64, 1.0f64, 0u64);
    for round in 1..=ROUNDS {
        // nobody predicts the address, nor the branch
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (x >> 33) as usize % words;
        if black_box(memory[at] ^ (x >> 40)) & 1 == 0 {
            sum = sum.wrapping_add(x / black_box(round));
        } else {
            real = black_box(real * 1.000_001 + 0.5);
        }
        memory[at] = sum;
    }
    black_box(sum ^ real.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::{CoreTypeId, Pmus};

    #[test]
    fn a_zero_counts_against_an_event_that_was_sure_to_happen() {
        for (instructions, count, sure, finding) in [
            (9_000_000, 5, true, Finding::Counts),
            (9_000_000, 5, false, Finding::Counts),
            (9_000_000, 0, true, Finding::Nothing),
            (9_000_000, 0, false, Finding::Zero),
            (4_000, 0, true, Finding::Unseen),
            (0, 0, false, Finding::Unseen),
            // whatever it counts, it counts
            (0, 5, true, Finding::Counts),
        ] {
            let got = judge(instructions, count, sure);
            assert_eq!(got, finding, "{instructions} {count} {sure}");
        }
    }

    #[test]
    fn rare_events_are_not_expected() {
        let pmu = |name: &str| Pmu {
            name: name.into(),
            type_: 9,
            cpus: vec![0],
            core: true,
            formats: [("event".to_owned(), "config:0-15".parse().unwrap())].into(),
            events: [("vfp".to_owned(), "event=0x75".to_owned())].into(),
            ..Pmu::default()
        };
        for (name, event, sure) in [
            ("armv8_cortex_a57", "r0075", true),
            ("armv8_cortex_a57", "armv8_cortex_a57/event=0x75/u", true),
            ("armv8_cortex_a57", "vfp", true),
            ("armv8_cortex_a57", "branch-misses", true),
            // refills that a prefetcher asked for, memory errors, accesses of another socket
            ("armv8_cortex_a57", "r81bc", false),
            ("armv8_cortex_a57", "r1a", false),
            ("armv8_cortex_a57", "r31", false),
            ("armv8_cortex_a57", "node-load-misses", false),
            // another architecture's numbers
            ("cpu_atom", "r0075", false),
            ("cpu_atom", "L1-dcache-loads", true),
        ] {
            let pmus = Pmus::from_list(vec![pmu(name)], &[vec![0]]);
            let resolved = pmus.resolve(CoreTypeId(0), &event.parse().unwrap());
            let pmu = pmus.of_core_type(CoreTypeId(0)).unwrap();
            assert_eq!(is_caused(pmu, &resolved.unwrap()), sure, "{name} {event}");
        }
    }

    #[test]
    fn the_loop_ends_and_works_the_same_out_each_time() {
        assert_eq!(run(), run());
    }
}
