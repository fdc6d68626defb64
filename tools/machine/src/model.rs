//! The virtual board's model of one core type.

use serde::Deserialize;

/// Geometry of a cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Capacity in KiB, a power of two.
    pub size_kib: u32,
    /// Associativity, a power of two.
    pub ways: u32,
    /// Line length in bytes, a power of two.
    pub line: u32,
}

impl Cache {
    /// Number of sets (0 for a geometry that [`MachineFile`](crate::MachineFile) would refuse).
    pub fn sets(&self) -> u32 {
        let way = u64::from(self.ways) * u64::from(self.line);
        if way == 0 {
            return 0;
        }
        (u64::from(self.size_kib) * 1024 / way) as u32
    }
}

/// Model of one core type on the virtual board.
///
/// Time is modelled per basic block: the sum of [`Cpi`] over its instructions, plus [`Pipeline`]
/// stalls for operands that are not ready, plus the exposed part of cache misses ([`Memory`]) and
/// mispredictions ([`Branch`]).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreModel {
    /// Device-tree `compatible` of the CPU, for example `arm,cortex-a57`.
    pub compatible: String,
    /// Device-tree `compatible` of its PMU, for example `arm,cortex-a57-pmu`. No two core types may
    /// share it: the kernel registers one PMU by each.
    pub pmu: String,
    /// What its PMU counts of lines that cores pass to each other.
    pub shared_lines: SharedLines,
    /// Clock in MHz (undilated).
    pub mhz: u32,
    /// L1 data cache, per core.
    pub l1d: Cache,
    /// L2 cache, shared by the cores of the type.
    pub l2: Cache,
    /// Issue cost by instruction class.
    pub cpi: Cpi,
    /// Cost of operands that are not ready.
    pub pipeline: Pipeline,
    /// Branch prediction.
    pub branch: Branch,
    /// Latencies behind the L1 data cache.
    pub memory: Memory,
    /// Energy.
    pub energy: Energy,
    /// What its clock can be set to, slowest first, the last one with the clock `mhz`: all cores of
    /// the type share one. Empty where it is always `mhz`. Time and energy above are those of the
    /// last one.
    #[serde(default)]
    pub operating_points: Vec<OperatingPoint>,
    /// What the kernel's energy model is told: a core's power while it runs, in microwatts per MHz
    /// and square volt. Where there are operating points, and nowhere else.
    pub power_coefficient: Option<u32>,
}

/// A clock and the voltage that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    /// Clock in MHz (undilated).
    pub mhz: u32,
    /// Voltage in millivolts.
    pub mv: u32,
}

/// Which of the events of shared lines a PMU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedLines {
    /// L1D_CACHE_INVAL (0x48): lines that other cores' stores took away, as Cortex-A57.
    Invalidations,
    /// EXT_SNOOP (0xc8): lines that came from another core of the same type, as Cortex-A53.
    Snoops,
}

/// Cycles per instruction of each class when operands are ready and the L1 data cache hits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpi {
    /// Integer arithmetic, logic, moves, hints.
    pub alu: f64,
    /// Integer multiplication.
    pub mul: f64,
    /// Integer division.
    pub div: f64,
    /// Loads, including atomics.
    pub load: f64,
    /// Stores.
    pub store: f64,
    /// Branches that are predicted.
    pub branch: f64,
    /// Floating point and SIMD, but for division and square root.
    pub fp: f64,
    /// Floating-point division and square root.
    pub fp_div: f64,
    /// Barriers, system registers, exception calls.
    pub system: f64,
}

/// Stalls of the pipeline on operands.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Whether the core issues in order. Descriptive: it selects no other number, but an in-order
    /// core whose `overlap_independent` says that misses overlap freely is refused.
    pub in_order: bool,
    /// Cycles lost when an instruction reads the result of the one before it.
    pub raw_stall: f64,
    /// Cycles lost when an instruction reads what the one before it loads.
    pub load_use_stall: f64,
    /// Cycles lost when a floating-point instruction reads the result of the one before it.
    pub fp_raw_stall: f64,
}

/// How conditional branches are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Predictor {
    /// Two-bit counters indexed by address.
    Bimodal,
    /// Two-bit counters indexed by address xor global history.
    Gshare,
}

/// Branch prediction. Direct branches and returns are always predicted; conditional branches by
/// `predictor`, indirect ones by their last target.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Kind of direction predictor.
    pub predictor: Predictor,
    /// Two-bit counters. Where it is no power of two, the addresses beyond share the first ones.
    pub entries: u32,
    /// Bits of global history (0 to 16; 0 for `bimodal`).
    pub history: u32,
    /// Entries of the table of indirect targets, a power of two.
    pub targets: u32,
    /// Cycles lost on a misprediction.
    pub penalty: f64,
}

/// Latencies behind the L1 data cache and how much of them the core hides.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Cycles of an L1 miss that hits L2.
    pub l2_latency: f64,
    /// Nanoseconds of a miss that goes to memory (undilated).
    pub dram_ns: f64,
    /// Part of a miss's latency that is exposed when its address does not depend on another miss (0
    /// to 1).
    pub overlap_independent: f64,
    /// Part that is exposed when the miss follows a stream that the prefetcher sees (0 to 1).
    pub overlap_sequential: f64,
    /// Nanoseconds of a line that comes from the L1 of another core of the type. All core types
    /// have it, or caches are not kept coherent and sharing costs nothing.
    pub transfer_ns: Option<f64>,
    /// Nanoseconds of a line that comes from a core of another type.
    pub transfer_far_ns: Option<f64>,
}

/// Energy: per event, and power over time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Picojoules per instruction.
    pub instruction_pj: f64,
    /// Picojoules that a floating-point or SIMD instruction costs on top.
    pub fp_pj: f64,
    /// Picojoules per L1 data refill.
    pub l1d_refill_pj: f64,
    /// Picojoules per L2 refill.
    pub l2_refill_pj: f64,
    /// Static milliwatts of a core that is running (clock tree included).
    pub active_mw: f64,
    /// Static milliwatts of a core that is idle; at most `active_mw`.
    pub idle_mw: f64,
}
