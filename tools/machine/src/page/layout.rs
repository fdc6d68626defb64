//! The bytes of the page.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// First word of the page: `SCXAMPPG` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SCXAMPPG");
/// Changes with every incompatible change of the layout.
pub const VERSION: u32 = 1;
/// Size of the page and of the PCI BAR behind it.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Most CPUs of a board.
pub const MAX_CPUS: usize = 64;
/// Most core types of a board.
pub const MAX_TYPES: usize = 8;
/// PCI vendor of the device whose BAR 2 is the page.
pub const PCI_VENDOR: u16 = 0x1af4;
/// PCI device (`ivshmem-plain`).
pub const PCI_DEVICE: u16 = 0x1110;
/// Number of the A64 `hint` that makes the executing CPU publish its totals at once. It is one of
/// the hints the architecture leaves unallocated, so it does nothing anywhere else and user space
/// may execute it. The first one of a guest ends the plugin's quick boot.
pub const PUBLISH_HINT: u32 = 123;
/// Number of the A64 `hint` by which the executing CPU is busy for half a millisecond of its time, or until an interrupt, without
/// executing anything: a busy board then costs its host next to nothing. Also unallocated.
pub const PASS_HINT: u32 = 121;

/// [`CpuRecord::state`]: the CPU has not run yet, or is off.
pub const STATE_OFF: u32 = 0;
/// [`CpuRecord::state`]: the CPU waits for an interrupt.
pub const STATE_IDLE: u32 = 1;
/// [`CpuRecord::state`]: the CPU runs.
pub const STATE_RUNNING: u32 = 2;

/// A total of a CPU since power-on; index into [`CpuRecord::totals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Total {
    /// Virtual time spent running, picoseconds.
    ActivePs = 0,
    /// Core clock cycles spent running.
    Cycles = 1,
    /// Instructions executed.
    Instructions = 2,
    /// Load and store instructions (each one L1 data cache access).
    L1dAccess = 3,
    /// Lines filled into the L1 data cache.
    L1dRefill = 4,
    /// Accesses to L2.
    L2Access = 5,
    /// Lines filled into L2.
    L2Refill = 6,
    /// Branch instructions.
    Branches = 7,
    /// Mispredicted branches.
    Mispredicts = 8,
    /// Virtual time lost after mispredictions, picoseconds.
    StallFrontendPs = 9,
    /// Virtual time lost on cache misses, picoseconds (the PMU's event counts waits for results,
    /// too).
    StallBackendPs = 10,
    /// Energy of events (not of time), picojoules.
    DynamicPj = 11,
    /// Store instructions.
    Stores = 12,
    /// Changed lines that left L2 for memory.
    L2WriteBack = 13,
}

/// Number of [`Total`]s in use.
pub const NR_TOTALS: usize = 14;
/// Slots for totals in a record, some in reserve.
pub const TOTAL_SLOTS: usize = 28;

/// Constants of a core type, from the machine file.
#[repr(C)]
#[derive(Debug)]
pub struct TypeRecord {
    /// Clock, MHz.
    pub mhz: AtomicU32,
    /// Static power while running, microwatts.
    pub active_uw: AtomicU32,
    /// Static power while idle, microwatts.
    pub idle_uw: AtomicU32,
    /// What an addition costs, thousandths of a cycle; 0 where the plugin does not say.
    pub addition: AtomicU16,
    /// The same of one that takes the result of the one right before it.
    pub addition_in_chain: AtomicU16,
}

/// Start of the page. Little-endian, as board and guest are.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Number of CPUs.
    pub nr_cpus: AtomicU32,
    /// Offset of the first [`CpuRecord`].
    pub cpu_offset: AtomicU32,
    /// Distance between [`CpuRecord`]s.
    pub cpu_stride: AtomicU32,
    /// Number of core types.
    pub nr_types: AtomicU32,
    /// Time dilation: virtual seconds per modelled second.
    pub dilation: AtomicU32,
    /// Global virtual time, picoseconds: no running CPU is behind it. Never decreases.
    pub global_ps: AtomicU64,
    /// Host time at the last publication, nanoseconds since the epoch.
    pub host_ns: AtomicU64,
    /// Part of `global_ps` that was skipped because every CPU was idle.
    pub skipped_ps: AtomicU64,
    /// Quantum, picoseconds.
    pub quantum_ps: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 8],
    /// Core types, fastest first.
    pub types: [TypeRecord; MAX_TYPES],
}

/// State of one CPU, written by that CPU's thread alone under a sequence lock.
#[repr(C, align(512))]
#[derive(Debug)]
pub struct CpuRecord {
    /// Odd while the record is being written; changes with every publication.
    pub seq: AtomicU64,
    /// Index of the core type.
    pub core_type: AtomicU32,
    /// [`STATE_OFF`], [`STATE_IDLE`] or [`STATE_RUNNING`].
    pub state: AtomicU32,
    /// The CPU's own virtual time at publication, picoseconds.
    pub time_ps: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 5],
    /// Totals by [`Total`], each for user (0) and kernel (1).
    pub totals: [[AtomicU64; 2]; TOTAL_SLOTS],
}

/// The L2 cache that the cores of a type share.
#[repr(C)]
#[derive(Debug)]
pub struct L2Record {
    /// Ways; 0 where there is no such type.
    pub ways: AtomicU32,
    /// Bytes of a way.
    pub way_bytes: AtomicU32,
}

/// Which ways of its L2 each CPU may fill: the only part of the page that the guest writes.
#[repr(C)]
#[derive(Debug)]
pub struct CacheAllocation {
    /// By core type.
    pub l2: [L2Record; MAX_TYPES],
    /// By CPU, bit *n* for way *n*; 0 for all of them. What lies in other ways is found as before.
    pub fills: [AtomicU64; MAX_CPUS],
}

/// The whole page.
#[repr(C)]
#[derive(Debug)]
pub struct Layout {
    /// The header.
    pub header: Header,
    _pad: [u8; 512 - size_of::<Header>()],
    /// One record per CPU; those from `nr_cpus` on are zero.
    pub cpus: [CpuRecord; MAX_CPUS],
    /// How the caches are divided.
    pub allocation: CacheAllocation,
}

const _: () = {
    assert!(offset_of!(Header, magic) == 0);
    assert!(offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, nr_cpus) == 12);
    assert!(offset_of!(Header, cpu_offset) == 16);
    assert!(offset_of!(Header, cpu_stride) == 20);
    assert!(offset_of!(Header, nr_types) == 24);
    assert!(offset_of!(Header, dilation) == 28);
    assert!(offset_of!(Header, global_ps) == 32);
    assert!(offset_of!(Header, host_ns) == 40);
    assert!(offset_of!(Header, skipped_ps) == 48);
    assert!(offset_of!(Header, quantum_ps) == 56);
    assert!(offset_of!(Header, types) == 128);
    assert!(offset_of!(TypeRecord, addition) == 12);
    assert!(offset_of!(TypeRecord, addition_in_chain) == 14);
    assert!(size_of::<TypeRecord>() == 16);
    assert!(size_of::<Header>() == 256);
    assert!(offset_of!(CpuRecord, seq) == 0);
    assert!(offset_of!(CpuRecord, core_type) == 8);
    assert!(offset_of!(CpuRecord, state) == 12);
    assert!(offset_of!(CpuRecord, time_ps) == 16);
    assert!(offset_of!(CpuRecord, totals) == 64);
    assert!(size_of::<CpuRecord>() == 512);
    assert!(offset_of!(Layout, cpus) == 512);
    assert!(offset_of!(Layout, allocation) == 512 * (1 + MAX_CPUS));
    assert!(offset_of!(CacheAllocation, fills) == 8 * MAX_TYPES);
    assert!(size_of::<Layout>() <= PAGE_BYTES);
    assert!(NR_TOTALS <= TOTAL_SLOTS);
    assert!(Total::L2WriteBack as usize == NR_TOTALS - 1);
};
