//! What sysfs says of every online CPU: capacity, design, last-level cache, threads of the same
//! core.

use super::SAME_TYPE;
use amp_machine::CpuList;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Files that rate a CPU, under its folder: the more exact ones first. One that says the same of
/// every CPU says nothing; a driver may also lie so.
const RATINGS: [&str; 5] = [
    "cpufreq/amd_pstate_prefcore_ranking",
    "cpufreq/amd_pstate_highest_perf",
    "acpi_cppc/highest_perf",
    "cpu_capacity",
    "cpufreq/cpuinfo_max_freq",
];
/// Between the ratings of two designs is a gap of this factor at least. Cores of one design differ
/// by binning and turbo, from each to the next by little: the ranks of AMD's preferred cores go
/// down by 5 in 236.
pub(super) const TWO_DESIGNS: f64 = 1.3;
/// Capacity of the fastest CPU, and of every CPU where nothing rates them.
const FULL_CAPACITY: u64 = 1024;
/// The cache level that counts as the last one where CPUs have it. A level beyond is memory's.
const LAST_LEVEL: u32 = 3;
/// The first level that CPUs share.
const SHARED_LEVEL: u32 = 2;

/// What is known of one CPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CpuFacts {
    pub id: u32,
    /// 1024 for the fastest CPU.
    pub capacity: u32,
    /// Whether the capacity is what firmware or the frequency driver make of the CPU, not the
    /// kernel's scheduler.
    pub rated: bool,
    /// Whether it is of the slower design, for CPUs of one capacity.
    pub little: bool,
}

/// What is known of a machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// Online CPUs, ascending.
    pub cpus: Vec<CpuFacts>,
    /// Last-level cache of each CPU, by number.
    pub llc_of: BTreeMap<u32, u32>,
    /// Physical core of each CPU, named after the first online CPU that is a thread of it.
    pub core_of: BTreeMap<u32, u32>,
}

/// Reads it under `sysfs` (`/sys`).
///
/// # Errors
/// When there is no list of online CPUs, naming the file.
pub(super) fn read(sysfs: &Path) -> Result<Machine> {
    let cpus = Cpus {
        devices: sysfs.join("devices"),
    };
    let online = cpus.online()?;
    Ok(Machine {
        llc_of: cpus.llcs(&online),
        core_of: cores(sysfs, &online),
        cpus: cpus.facts(&online),
    })
}

/// The core of each CPU of `online`, named after the first of its CPUs there.
fn cores(sysfs: &Path, online: &[u32]) -> BTreeMap<u32, u32> {
    let first = |cpu: u32| {
        let threads = same_core(sysfs, cpu).into_iter();
        threads.filter(|c| online.contains(c)).min().unwrap_or(cpu)
    };
    online.iter().map(|&cpu| (cpu, first(cpu))).collect()
}

/// CPUs that are threads of the same core as `cpu` (SMT), itself included.
pub fn same_core(sysfs: &Path, cpu: u32) -> Vec<u32> {
    let dir = sysfs.join(format!("devices/system/cpu/cpu{cpu}/topology"));
    // the second is the older name of the first
    let listed = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|f| std::fs::read_to_string(dir.join(f)).ok())
        .and_then(|text| text.trim().parse::<CpuList>().ok());
    let mut cpus = listed.map_or_else(Vec::new, |l| l.0);
    if !cpus.contains(&cpu) {
        cpus.push(cpu);
    }
    cpus
}

/// The folders of CPUs.
struct Cpus {
    devices: PathBuf,
}

impl Cpus {
    fn online(&self) -> Result<Vec<u32>> {
        let path = self.devices.join("system/cpu/online");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let list = text.trim().parse::<CpuList>();
        Ok(list
            .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
            .0)
    }

    fn of(&self, cpu: u32) -> PathBuf {
        self.devices.join(format!("system/cpu/cpu{cpu}"))
    }

    fn facts(&self, online: &[u32]) -> Vec<CpuFacts> {
        let ratings = self.ratings(online);
        let most = ratings.iter().copied().max().unwrap_or(0);
        let slower_design = below_gap(&ratings);
        let cpus = online.iter().zip(ratings);
        let mut facts: Vec<CpuFacts> = cpus
            .map(|(&id, rating)| {
                let scaled = rating * FULL_CAPACITY / most.max(1);
                CpuFacts {
                    id,
                    capacity: self.kernels(id).unwrap_or(scaled as u32),
                    rated: self.kernels(id).is_none(),
                    little: slower_design.is_some_and(|most| rating <= most),
                }
            })
            .collect();
        let kernels = online.iter().map(|c| self.kernels(*c));
        if !kernels
            .collect::<Option<Vec<u32>>>()
            .is_some_and(|c| differ(&c))
        {
            if let Some(slower) = self.slower_design(online) {
                by_design(&mut facts, &slower);
            }
        }
        facts
    }

    /// A CPU's capacity as the kernel's scheduler has it.
    fn kernels(&self, cpu: u32) -> Option<u32> {
        value(&self.of(cpu).join("cpu_capacity")).filter(|c| *c > 0)
    }

    /// A number for each CPU, larger for faster ones: from the first file that distinguishes CPUs,
    /// else from the last one there is.
    fn ratings(&self, online: &[u32]) -> Vec<u64> {
        let mut ratings = vec![FULL_CAPACITY; online.len()];
        for file in RATINGS {
            let read = |c: &u32| value::<u64>(&self.of(*c).join(file)).filter(|r| *r > 0);
            let found: Vec<Option<u64>> = online.iter().map(read).collect();
            let Some(most) = found.iter().copied().flatten().max() else {
                continue;
            };
            // a CPU of which nothing is said is as fast as any
            ratings = found.into_iter().map(|r| r.unwrap_or(most)).collect();
            if ratings.iter().any(|r| *r != most) {
                break;
            }
        }
        ratings
    }

    /// CPUs of the slower design where the kernel names designs, as it does on Intel's hybrids:
    /// there is a PMU for each.
    fn slower_design(&self, online: &[u32]) -> Option<BTreeSet<u32>> {
        let list = |pmu: &str| value::<CpuList>(&self.devices.join(pmu).join("cpus"));
        let core = list("cpu_core")?.0;
        let slower: BTreeSet<u32> = list("cpu_atom")?.0.into_iter().collect();
        let online = |c: &&u32| online.contains(c);
        let both = core.iter().any(|c| online(&c)) && slower.iter().any(|c| online(&c));
        both.then_some(slower)
    }

    /// The last-level cache of each CPU, numbered from 0. CPUs whose caches are unknown share one
    /// per node and package.
    fn llcs(&self, online: &[u32]) -> BTreeMap<u32, u32> {
        let node_of = self.nodes();
        let mut in_order: Vec<(u32, u32)> = online
            .iter()
            .map(|c| (node_of.get(c).copied().unwrap_or(0), *c))
            .collect();
        in_order.sort_unstable();
        let mut numbers = BTreeMap::new();
        let mut llc_of = BTreeMap::new();
        for (node, cpu) in in_order {
            let package = value::<i64>(&self.of(cpu).join("topology/physical_package_id"));
            let key = (node, package.unwrap_or(-1), self.last_level(cpu));
            let next = numbers.len() as u32;
            llc_of.insert(cpu, *numbers.entry(key).or_insert(next));
        }
        llc_of
    }

    /// Level of a CPU's last-level cache, and what it shares with no other cache of that level.
    fn last_level(&self, cpu: u32) -> Option<(u32, String)> {
        let caches = std::fs::read_dir(self.of(cpu).join("cache")).ok()?;
        let all = caches.flatten().filter_map(|e| {
            let level = value::<u32>(&e.path().join("level"))?;
            (SHARED_LEVEL..=LAST_LEVEL)
                .contains(&level)
                .then(|| (level, e.path()))
        });
        let (level, dir) = all.max()?;
        let id = value::<String>(&dir.join("id")).map(|id| format!("id {id}"));
        let cpus = || value::<String>(&dir.join("shared_cpu_list"));
        Some((level, id.or_else(cpus)?))
    }

    /// Node of each CPU, on a machine that has nodes.
    fn nodes(&self) -> BTreeMap<u32, u32> {
        let mut node_of = BTreeMap::new();
        let dirs = std::fs::read_dir(self.devices.join("system/node"));
        for dir in dirs.into_iter().flatten().flatten() {
            let name = dir.file_name().to_string_lossy().into_owned();
            let node = name.strip_prefix("node").and_then(|n| n.parse().ok());
            let cpus = value::<CpuList>(&dir.path().join("cpulist"));
            if let (Some(node), Some(cpus)) = (node, cpus) {
                node_of.extend(cpus.0.into_iter().map(|c| (c, node)));
            }
        }
        node_of
    }
}

/// The highest rating of the slower design: the one below the widest gap, if that is wide enough.
fn below_gap(ratings: &[u64]) -> Option<u64> {
    let mut sorted = ratings.to_vec();
    sorted.sort_unstable();
    let gap = |pair: &[u64]| pair[1] as f64 / pair[0] as f64;
    let widest = sorted
        .windows(2)
        .max_by(|a, b| gap(a).total_cmp(&gap(b)))
        .filter(|pair| gap(pair) >= TWO_DESIGNS)?;
    Some(widest[0])
}

/// Whether these capacities are of several core types.
fn differ(capacities: &[u32]) -> bool {
    let most = capacities.iter().copied().max().unwrap_or(0);
    capacities
        .iter()
        .any(|c| f64::from(*c) < SAME_TYPE * f64::from(most))
}

/// Makes the CPUs of each design alike: those of the design `slower`, and the others.
fn by_design(facts: &mut [CpuFacts], slower: &BTreeSet<u32>) {
    let capacity = |facts: &[CpuFacts], little: bool| {
        let of = facts.iter().filter(|f| slower.contains(&f.id) == little);
        of.map(|f| f.capacity).max().unwrap_or(0)
    };
    let big = capacity(facts, false);
    let little = capacity(facts, true).min(big);
    for f in facts {
        f.rated = false;
        f.little = slower.contains(&f.id);
        f.capacity = if f.little { little } else { big };
    }
}

/// What a file of one value says; nothing where it is missing or says something else.
fn value<T: FromStr>(path: &Path) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs of our own.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(online: &str) -> Fake {
            let fake = Fake(tempfile::tempdir().unwrap());
            fake.file("devices/system/cpu/online", online);
            fake
        }

        fn file(&self, path: &str, text: &str) -> &Fake {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
            self
        }

        /// The same file of each CPU, from CPU 0 on.
        fn each(&self, file: &str, values: &[&str]) -> &Fake {
            for (cpu, v) in values.iter().enumerate() {
                self.file(&format!("devices/system/cpu/cpu{cpu}/{file}"), v);
            }
            self
        }

        fn cache(&self, index: u32, level: &str, shared: &[&str]) -> &Fake {
            let levels = vec![level; shared.len()];
            self.each(&format!("cache/index{index}/level"), &levels)
                .each(&format!("cache/index{index}/shared_cpu_list"), shared)
        }

        fn read(&self) -> Machine {
            read(self.0.path()).unwrap()
        }

        fn facts(&self) -> Vec<(u32, bool)> {
            let cpus = self.read().cpus.into_iter();
            cpus.map(|f| (f.capacity, f.little)).collect()
        }

        fn llcs(&self) -> Vec<u32> {
            self.read().llc_of.into_values().collect()
        }
    }

    #[test]
    fn the_kernels_capacity_is_taken_as_it_is() {
        let juno = Fake::new("0-2");
        juno.each("cpu_capacity", &["446", "1024", "1024"]);
        let frequency = ["2000000", "1000000", "1000000"];
        juno.each("cpufreq/cpuinfo_max_freq", &frequency);
        let capacities: Vec<u32> = juno.facts().iter().map(|f| f.0).collect();
        assert_eq!(capacities, [446, 1024, 1024]);
    }

    #[test]
    fn flat_capacity_falls_back_on_frequency() {
        let flat = Fake::new("0-3");
        flat.each("cpu_capacity", &["1024"; 4]);
        assert_eq!(flat.facts(), [(1024, false); 4]);
        let frequency = ["3000000", "3000000", "1500000", "1500000"];
        flat.each("cpufreq/cpuinfo_max_freq", &frequency);
        let (big, little) = ((1024, false), (1024, true));
        assert_eq!(flat.facts(), [big, big, little, little]);
        // bins of one design
        let binned = ["3000000", "3000000", "2500000", "2500000"];
        flat.each("cpufreq/cpuinfo_max_freq", &binned);
        assert_eq!(flat.facts(), [big; 4]);
    }

    #[test]
    fn without_capacity_the_first_file_that_differs_rates() {
        let fake = Fake::new("0-1");
        fake.each("cpufreq/cpuinfo_max_freq", &["4000000", "1000000"]);
        assert_eq!(fake.facts(), [(1024, false), (256, true)]);
        // a driver that says the same of all of them says nothing
        fake.each("acpi_cppc/highest_perf", &["255", "255"]);
        assert_eq!(fake.facts(), [(1024, false), (256, true)]);
        fake.each("acpi_cppc/highest_perf", &["64", "32"]);
        assert_eq!(fake.facts(), [(1024, false), (512, true)]);
        fake.each("acpi_cppc/highest_perf", &["64", "?"]);
        assert_eq!(fake.facts(), [(1024, false), (256, true)]);
        assert_eq!(Fake::new("0-1").facts(), [(1024, false); 2]);
    }

    #[test]
    fn designs_that_have_a_pmu_each_are_known() {
        let hybrid = Fake::new("0-3");
        hybrid.each("acpi_cppc/highest_perf", &["68", "58", "46", "40"]);
        hybrid.file("devices/cpu_core/cpus", "0-1");
        assert_eq!(hybrid.facts()[1], (873, false), "one PMU is no hybrid");
        hybrid.file("devices/cpu_atom/cpus", "2-3");
        let (big, little) = ((1024, false), (692, true));
        assert_eq!(hybrid.facts(), [big, big, little, little]);
        // as in a virtual machine
        hybrid.each("acpi_cppc/highest_perf", &["255"; 4]);
        let (big, little) = ((1024, false), (1024, true));
        assert_eq!(hybrid.facts(), [big, big, little, little]);
        // what the kernel's scheduler goes by comes first
        hybrid.each("cpu_capacity", &["1024", "1024", "1009", "600"]);
        let capacities: Vec<u32> = hybrid.facts().iter().map(|f| f.0).collect();
        assert_eq!(capacities, [1024, 1024, 1009, 600]);
        // no atom is online
        hybrid.file("devices/system/cpu/online", "0-1");
        assert_eq!(hybrid.facts(), [(1024, false); 2]);
    }

    #[test]
    fn the_last_level_is_the_third_or_the_last_there_is() {
        let fake = Fake::new("0-3");
        assert_eq!(fake.llcs(), [0; 4], "nothing is known");
        fake.cache(0, "1", &["0", "1", "2", "3"]);
        assert_eq!(fake.llcs(), [0; 4], "no CPU shares its first level");
        // juno: one L2 per cluster
        fake.cache(2, "2", &["0,3", "1-2", "1-2", "0,3"]);
        assert_eq!(fake.llcs(), [0, 1, 1, 0]);
        fake.cache(3, "3", &["0-3"; 4]);
        assert_eq!(fake.llcs(), [0; 4]);
        fake.each("cache/index3/id", &["4", "4", "9", "9"]);
        assert_eq!(fake.llcs(), [0, 0, 1, 1]);
        // memory's
        fake.cache(4, "4", &["0-3"; 4]);
        assert_eq!(fake.llcs(), [0, 0, 1, 1]);
    }

    #[test]
    fn packages_and_nodes_share_no_cache() {
        let fake = Fake::new("0-3");
        fake.cache(3, "3", &["0-3"; 4]);
        fake.each("cache/index3/id", &["0"; 4]);
        fake.each("topology/physical_package_id", &["0", "0", "1", "1"]);
        assert_eq!(fake.llcs(), [0, 0, 1, 1]);
        fake.each("topology/physical_package_id", &["0"; 4]);
        fake.file("devices/system/node/node0/cpulist", "0,3");
        fake.file("devices/system/node/node1/cpulist", "1-2");
        fake.file("devices/system/node/has_cpu", "0-1");
        assert_eq!(fake.llcs(), [0, 1, 1, 0]);
    }

    #[test]
    fn a_core_is_what_is_online_of_its_threads() {
        let fake = Fake::new("0-1");
        let cores = || Vec::from_iter(fake.read().core_of);
        assert_eq!(cores(), [(0, 0), (1, 1)]);
        fake.each(
            "topology/thread_siblings_list",
            &["0,2", "1,3", "0,2", "1,3"],
        );
        assert_eq!(cores(), [(0, 0), (1, 1)], "the other threads are offline");
        fake.file("devices/system/cpu/online", "0-3");
        assert_eq!(cores(), [(0, 0), (1, 1), (2, 0), (3, 1)]);
        fake.file("devices/system/cpu/online", "1-3");
        assert_eq!(cores(), [(1, 1), (2, 2), (3, 1)]);
    }

    #[test]
    fn threads_of_a_core_are_known() {
        let fake = Fake::new("0-7");
        let sysfs = fake.0.path();
        let set = |file: &str, text: &str| {
            fake.file(&format!("devices/system/cpu/cpu3/topology/{file}"), text);
        };
        assert_eq!(same_core(sysfs, 3), [3]);
        set("thread_siblings_list", "2-3");
        assert_eq!(same_core(sysfs, 3), [2, 3]);
        set("core_cpus_list", "3,7");
        assert_eq!(same_core(sysfs, 3), [3, 7]);
        set("core_cpus_list", "?");
        assert_eq!(same_core(sysfs, 3), [3]);
    }

    #[test]
    fn only_online_cpus_are_there() {
        let fake = Fake::new("0,2");
        fake.each("cpu_capacity", &["1024", "512", "512"]);
        let ids: Vec<u32> = fake.read().cpus.iter().map(|f| f.id).collect();
        assert_eq!(ids, [0, 2]);
        assert_eq!(fake.read().llc_of.len(), 2);
        let nothing = tempfile::tempdir().unwrap();
        let e = format!("{:#}", read(nothing.path()).unwrap_err());
        assert!(e.contains("cpu/online"), "{e}");
        fake.file("devices/system/cpu/online", "0-x");
        let e = format!("{:#}", read(fake.0.path()).unwrap_err());
        assert!(e.contains("`0-x`"), "{e}");
    }
}
