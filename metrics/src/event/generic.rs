//! The kernel's generic events: names that mean the same on every PMU, as far as the PMU has them.

/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_TYPE_HW_CACHE`.
pub const CACHE: u32 = 3;

/// A generic event, as `perf_event.h` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generic {
    /// `PERF_TYPE_HARDWARE` or `PERF_TYPE_HW_CACHE`.
    pub type_: u32,
    /// Its number, without a PMU type in the upper half.
    pub config: u64,
}

const HARDWARE_NAMES: &[(&str, u64)] = &[
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("ref-cycles", 9),
];

const CACHES: &[(&str, u64)] = &[
    ("L1-dcache", 0),
    ("L1-icache", 1),
    ("LLC", 2),
    ("dTLB", 3),
    ("iTLB", 4),
    ("branch", 5),
    ("node", 6),
];

/// Operation and result of the cache events, packed as the kernel packs them.
const OPERATIONS: &[(&str, u64)] = &[
    ("loads", 0),
    ("load-misses", 1 << 16),
    ("stores", 1 << 8),
    ("store-misses", 1 << 16 | 1 << 8),
    ("prefetches", 2 << 8),
    ("prefetch-misses", 1 << 16 | 2 << 8),
];

impl Generic {
    /// The generic event that perf calls `name`, in any case; `None` when it is not one.
    pub fn by_name(name: &str) -> Option<Generic> {
        if let Some((_, config)) = HARDWARE_NAMES
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
        {
            return Some(Generic {
                type_: HARDWARE,
                config: *config,
            });
        }
        CACHES.iter().find_map(|(cache, id)| {
            let prefix = name.get(..cache.len())?;
            let rest = name.get(cache.len()..)?.strip_prefix('-')?;
            let (_, operation) = OPERATIONS
                .iter()
                .find(|(n, _)| n.eq_ignore_ascii_case(rest))?;
            prefix.eq_ignore_ascii_case(cache).then_some(Generic {
                type_: CACHE,
                config: id | operation,
            })
        })
    }

    /// Every generic name.
    pub fn names() -> impl Iterator<Item = String> {
        let caches = CACHES
            .iter()
            .flat_map(|(c, _)| OPERATIONS.iter().map(move |(o, _)| format!("{c}-{o}")));
        HARDWARE_NAMES
            .iter()
            .map(|(n, _)| (*n).to_owned())
            .chain(caches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel_header() {
        for (name, type_, config) in [
            ("cycles", 0, 0),
            ("instructions", 0, 1),
            ("branch-misses", 0, 5),
            ("L1-dcache-load-misses", 3, 0x1_0000),
            ("l1-dcache-loads", 3, 0),
            ("LLC-store-misses", 3, 0x1_0102),
            ("dTLB-prefetches", 3, 0x203),
        ] {
            assert_eq!(
                Generic::by_name(name),
                Some(Generic { type_, config }),
                "{name}"
            );
        }
        for name in ["", "cycle", "L1-dcache", "L1-dcache-", "LLC-loads-", "é"] {
            assert_eq!(Generic::by_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_name_is_known() {
        assert!(Generic::names().all(|n| Generic::by_name(&n).is_some()));
    }
}
