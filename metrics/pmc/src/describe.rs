//! What events mean, for those whose meaning is the same everywhere and where no table says more.

/// Generic events of the kernel, and common events of the Arm architecture under their names in
/// sysfs.
const KNOWN: &[(&str, &str)] = &[
    (
        "cpu-clock",
        "time on CPUs in nanoseconds, by a timer of each CPU",
    ),
    ("task-clock", "time for which threads ran, in nanoseconds"),
    ("page-faults", "page faults, minor and major ones"),
    ("faults", "page faults, minor and major ones"),
    ("minor-faults", "page faults that needed no disk"),
    ("major-faults", "page faults that waited for a disk"),
    ("context-switches", "switches to another thread"),
    ("cs", "switches to another thread"),
    (
        "cgroup-switches",
        "switches to a thread of another control group",
    ),
    ("cpu-migrations", "moves of a thread to another CPU"),
    ("migrations", "moves of a thread to another CPU"),
    (
        "alignment-faults",
        "unaligned accesses that the kernel dealt with",
    ),
    ("emulation-faults", "instructions that the kernel emulated"),
    ("cpu_cycles", "core clock cycles"),
    ("cycles", "core clock cycles"),
    ("cpu-cycles", "core clock cycles"),
    ("inst_retired", "instructions retired"),
    ("instructions", "instructions retired"),
    ("branches", "branches retired"),
    ("branch-instructions", "branches retired"),
    ("branch-misses", "mispredicted branches"),
    ("br_retired", "branches retired"),
    ("br_pred", "branches that could be predicted"),
    (
        "br_mis_pred",
        "mispredicted or not predicted branches, also of wrong paths",
    ),
    ("br_mis_pred_retired", "mispredicted branches retired"),
    (
        "br_immed_retired",
        "branches with an immediate target retired",
    ),
    ("br_return_retired", "returns retired"),
    (
        "pc_write_retired",
        "software changes of the program counter retired",
    ),
    (
        "l1d_cache",
        "accesses to the L1 data cache, loads and stores",
    ),
    ("l1d_cache_refill", "lines brought into the L1 data cache"),
    ("l1d_cache_wb", "lines written back from the L1 data cache"),
    ("l1d_tlb_refill", "L1 data TLB misses"),
    ("l1i_cache", "accesses to the L1 instruction cache"),
    (
        "l1i_cache_refill",
        "lines brought into the L1 instruction cache",
    ),
    ("l1i_tlb_refill", "L1 instruction TLB misses"),
    ("l2d_cache", "accesses to the L2 cache"),
    ("l2d_cache_refill", "lines brought into the L2 cache"),
    ("l2d_cache_wb", "lines written back from the L2 cache"),
    ("mem_access", "data memory accesses, loads and stores"),
    ("bus_access", "accesses to the bus behind the caches"),
    ("bus_cycles", "bus clock cycles"),
    ("bus-cycles", "bus clock cycles"),
    ("ld_retired", "load instructions retired"),
    ("st_retired", "store instructions retired"),
    (
        "ldst_spec",
        "loads and stores executed, also on wrong paths",
    ),
    (
        "unaligned_ldst_retired",
        "unaligned loads and stores retired",
    ),
    ("exc_taken", "exceptions taken"),
    ("exc_return", "exception returns"),
    ("sw_incr", "software increments"),
    ("ttbr_write_retired", "writes to the translation table base"),
    ("cid_write_retired", "writes to the context id"),
    ("memory_error", "memory errors"),
    ("inst_spec", "instructions executed, also on wrong paths"),
    (
        "stall_frontend",
        "cycles without an instruction from the frontend",
    ),
    (
        "stall_backend",
        "cycles in which the backend took no instruction",
    ),
    (
        "stalled-cycles-frontend",
        "cycles without an instruction from the frontend",
    ),
    (
        "stalled-cycles-backend",
        "cycles in which the backend took no instruction",
    ),
    (
        "cache-references",
        "accesses to the last-level cache, or what the PMU takes for them",
    ),
    (
        "cache-misses",
        "misses of the last-level cache, or what the PMU takes for them",
    ),
    (
        "ref-cycles",
        "cycles of a clock that does not change with frequency",
    ),
    ("energy-pkg", "energy of the package"),
    ("energy-cores", "energy of the cores"),
    ("energy-ram", "energy of the memory"),
    ("energy-gpu", "energy of the graphics unit"),
    ("energy-psys", "energy of the whole system"),
];

/// The meaning of event `name`, if it has one everywhere.
pub fn describe(name: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    known.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_once() {
        let mut names: Vec<_> = KNOWN.iter().map(|(n, _)| n).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(describe("INST_RETIRED"), Some("instructions retired"));
        assert_eq!(describe("l1d_cache_"), None);
    }
}
