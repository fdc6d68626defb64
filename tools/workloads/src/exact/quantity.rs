//! What counters may count, and how much of it a kernel makes.

/// What a counter may count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Instructions retired.
    Instructions,
    /// Loads retired.
    Loads,
    /// Stores retired.
    Stores,
    /// Loads and stores.
    Accesses,
    /// Lines brought into the L1 data cache.
    L1Refills,
    /// Accesses to L2 for data.
    L2Accesses,
    /// Lines brought into L2.
    L2Refills,
    /// Changed lines that leave L2 for what comes after it.
    L2WriteBacks,
    /// Branches retired.
    Branches,
    /// Branches mispredicted.
    Mispredicts,
    /// Lines that L3 is asked for.
    L3Accesses,
    /// Lines that L3 is asked for and does not have.
    L3Refills,
    /// Those of them that loads ask for. As [`Quantity::L3Refills`], but compared where nothing is
    /// stored only: for events that leave out stores.
    L3LoadRefills,
    /// Lines that come from memory.
    MemoryReads,
    /// Lines that go to memory.
    MemoryWrites,
    /// Translations that a data TLB lacks, of the first level or of the last: for events of which
    /// that is not known. Not compared where it makes a difference.
    DtlbMisses,
    /// Translations that the first data TLB lacks.
    DtlbRefills,
    /// Translations of data that no TLB has: page tables are read.
    DtlbWalks,
    /// Scalar floating-point instructions; a fused multiply-add is one.
    FloatingPoint,
    /// Operations of scalar floating-point instructions; a fused multiply-add is two.
    ScalarFlops,
    /// Floating-point instructions on vectors.
    VectorFloatingPoint,
    /// Floating-point operations: those of an instruction on vectors are as many as there are
    /// elements, and twice as many where it multiplies and adds.
    Flops,
    /// Cycles of the core's own clock.
    Cycles,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 23] = [
        Quantity::Instructions,
        Quantity::Loads,
        Quantity::Stores,
        Quantity::Accesses,
        Quantity::L1Refills,
        Quantity::L2Accesses,
        Quantity::L2Refills,
        Quantity::L2WriteBacks,
        Quantity::Branches,
        Quantity::Mispredicts,
        Quantity::L3Accesses,
        Quantity::L3Refills,
        Quantity::L3LoadRefills,
        Quantity::MemoryReads,
        Quantity::MemoryWrites,
        Quantity::DtlbMisses,
        Quantity::DtlbRefills,
        Quantity::DtlbWalks,
        Quantity::FloatingPoint,
        Quantity::ScalarFlops,
        Quantity::VectorFloatingPoint,
        Quantity::Flops,
        Quantity::Cycles,
    ];
    /// Those of floating-point work.
    pub const FLOATING_POINT: [Quantity; 4] = [
        Quantity::FloatingPoint,
        Quantity::ScalarFlops,
        Quantity::VectorFloatingPoint,
        Quantity::Flops,
    ];
    /// Those of the data TLBs.
    pub const DTLB: [Quantity; 3] = [
        Quantity::DtlbMisses,
        Quantity::DtlbRefills,
        Quantity::DtlbWalks,
    ];
    /// Those of what comes after L2.
    pub const BEYOND_L2: [Quantity; 5] = [
        Quantity::L3Accesses,
        Quantity::L3Refills,
        Quantity::L3LoadRefills,
        Quantity::MemoryReads,
        Quantity::MemoryWrites,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Instructions => "instructions",
            Quantity::Loads => "loads",
            Quantity::Stores => "stores",
            Quantity::Accesses => "accesses",
            Quantity::L1Refills => "l1-refills",
            Quantity::L2Accesses => "l2-accesses",
            Quantity::L2Refills => "l2-refills",
            Quantity::L2WriteBacks => "l2-write-backs",
            Quantity::Branches => "branches",
            Quantity::Mispredicts => "mispredicts",
            Quantity::L3Accesses => "l3-accesses",
            Quantity::L3Refills => "l3-refills",
            Quantity::L3LoadRefills => "l3-load-refills",
            Quantity::MemoryReads => "memory-reads",
            Quantity::MemoryWrites => "memory-writes",
            Quantity::DtlbMisses => "dtlb-misses",
            Quantity::DtlbRefills => "dtlb-refills",
            Quantity::DtlbWalks => "dtlb-walks",
            Quantity::FloatingPoint => "floating-point",
            Quantity::ScalarFlops => "scalar-flops",
            Quantity::VectorFloatingPoint => "vector-floating-point",
            Quantity::Flops => "flops",
            Quantity::Cycles => "cycles",
        }
    }

    /// The quantity called `name`.
    pub fn by_name(name: &str) -> Option<Quantity> {
        Quantity::ALL.into_iter().find(|q| q.name() == name)
    }
}

/// How much of a quantity a run of a kernel makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Amount.
    pub count: f64,
    /// How far the true count may be from that.
    pub tolerance: f64,
    /// What a count where none is expected is measured against: how often it could have happened.
    pub chances: f64,
}
