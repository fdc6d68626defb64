//! Which CPUs of this machine are fast and which are slow.
//!
//! Everything is read from sysfs. Where the kernel's `cpu_capacity` differs between CPUs (every
//! arm64 machine, newer Intel hybrids), it decides. Else the designs that the kernel has PMUs for
//! decide (`cpu_core` and `cpu_atom`, Intel's hybrids), else what firmware and frequency driver say
//! of each CPU's speed. `--big-cpus` overrides all of them: in virtual machines nothing differs.

mod sysfs;

use crate::bad_input;
use amp_machine::CpuList;
use amp_metrics::{CoreType, CoreTypeId, Topology};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use sysfs::CpuFacts;

pub use sysfs::same_core;

/// CPUs whose capacity is within this fraction of the fastest of their group are one core type:
/// favoured cores of one design differ by a few percent.
const SAME_TYPE: f64 = 0.9;

/// The machine's cores and how they share caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected {
    /// Core types, fastest first.
    pub topology: Topology,
    /// Last-level cache of each CPU, by number.
    pub llc_of: BTreeMap<u32, u32>,
    /// Physical core of each CPU, by number: hardware threads of one core (SMT) have the same.
    pub core_of: BTreeMap<u32, u32>,
}

/// Reads the machine's topology; `big_cpus` makes those CPUs the fast type and all others the slow
/// one.
///
/// # Errors
/// When sysfs cannot be read, or the list names an offline CPU or every CPU ([`crate::BadInput`]).
pub fn detect(big_cpus: Option<&CpuList>) -> Result<Detected> {
    detect_under(Path::new("/sys"), big_cpus)
}

/// As [`detect`], of the machine whose sysfs is at `sysfs`.
///
/// # Errors
/// The same.
pub fn detect_under(sysfs: &Path, big_cpus: Option<&CpuList>) -> Result<Detected> {
    look(sysfs, big_cpus, true)
}

/// As [`detect`], after CPUs have come or gone: those of `big_cpus` that are offline are passed
/// over.
///
/// # Errors
/// When sysfs cannot be read.
pub fn detect_online(big_cpus: Option<&CpuList>) -> Result<Detected> {
    look(Path::new("/sys"), big_cpus, false)
}

fn look(sysfs: &Path, big_cpus: Option<&CpuList>, strict: bool) -> Result<Detected> {
    let machine = sysfs::read(sysfs).context("cannot read the CPU topology from sysfs")?;
    let facts = machine.cpus;
    let core_types = match big_cpus {
        Some(list) if strict => split_by_list(&facts, list)?,
        Some(list) => split_online(&facts, list),
        None => group(&facts),
    };
    let topology = Topology::new(core_types)?;
    let core_of = whole(machine.core_of, &topology);
    Ok(Detected {
        topology: topology.with_cores(|cpu| core_of.get(&cpu).copied().unwrap_or(cpu)),
        llc_of: machine.llc_of,
        core_of,
    })
}

/// The cores, but for those whose hardware threads are of two core types, by `--big-cpus`: their threads
/// count as cores.
fn whole(mut core_of: BTreeMap<u32, u32>, topology: &Topology) -> BTreeMap<u32, u32> {
    let split: Vec<u32> = core_of
        .iter()
        .filter(|(cpu, core)| topology.core_type_of(**cpu) != topology.core_type_of(**core))
        .map(|(_, core)| *core)
        .collect();
    if let Some(core) = split.first() {
        log::warn!(
            "the hardware threads of CPU {core}'s core are of two core types: each counts as a core"
        );
    }
    for (cpu, core) in &mut core_of {
        if split.contains(core) {
            *core = *cpu;
        }
    }
    core_of
}

/// As [`split_by_list`], with what is online of the list; one core type where that tells nothing
/// apart.
fn split_online(facts: &[CpuFacts], big: &CpuList) -> Vec<CoreType> {
    let online = |c: &u32| facts.iter().any(|f| f.id == *c);
    let list = CpuList(big.0.iter().copied().filter(online).collect());
    match split_by_list(facts, &list) {
        Ok(types) if !list.0.is_empty() => types,
        _ => vec![CoreType {
            name: "core".into(),
            cpus: facts.iter().map(|f| f.id).collect(),
            capacity: facts.iter().map(|f| f.capacity).max().unwrap_or(1024),
        }],
    }
}

fn split_by_list(facts: &[CpuFacts], big: &CpuList) -> Result<Vec<CoreType>> {
    if let Some(cpu) = big.0.iter().find(|c| facts.iter().all(|f| f.id != **c)) {
        let online: Vec<u32> = facts.iter().map(|f| f.id).collect();
        return Err(bad_input(format!(
            "--big-cpus: CPU {cpu} is not online (online: {})",
            CpuList(online)
        )));
    }
    if facts.iter().all(|f| big.0.contains(&f.id)) {
        return Err(bad_input(
            "--big-cpus names every online CPU: leave out the slow ones, or omit the flag on a machine whose \
             cores are alike",
        ));
    }
    let part = |name: &str, in_list: bool| {
        let of: Vec<&CpuFacts> = facts
            .iter()
            .filter(|f| big.0.contains(&f.id) == in_list)
            .collect();
        CoreType {
            name: name.into(),
            cpus: of.iter().map(|f| f.id).collect(),
            capacity: of.iter().map(|f| f.capacity).max().unwrap_or(1024),
        }
    };
    Ok(vec![part("big", true), part("little", false)])
}

/// Whether `f` is of the core type of the faster CPUs `group`, which has one at least. The kernel's
/// capacities are of designs; ratings differ within a design, and only a gap tells two apart.
fn same_type(group: &[CpuFacts], f: &CpuFacts) -> bool {
    let last = &group[group.len() - 1];
    match f.rated && last.rated {
        true => f64::from(last.capacity) < sysfs::TWO_DESIGNS * f64::from(f.capacity),
        false => f64::from(f.capacity) >= SAME_TYPE * f64::from(group[0].capacity),
    }
}

/// Groups CPUs by capacity, fastest first; by kind where capacity does not differ.
fn group(facts: &[CpuFacts]) -> Vec<CoreType> {
    let mut sorted = facts.to_vec();
    sorted.sort_by_key(|f| (std::cmp::Reverse(f.capacity), f.id));
    let mut groups: Vec<Vec<CpuFacts>> = Vec::new();
    for f in sorted {
        match groups.last_mut() {
            Some(g) if same_type(g, &f) => g.push(f),
            _ => groups.push(vec![f]),
        }
    }
    if groups.len() == 1 {
        let (little, big): (Vec<_>, Vec<_>) = groups.remove(0).into_iter().partition(|f| f.little);
        groups = [big, little]
            .into_iter()
            .filter(|g| !g.is_empty())
            .collect();
    }
    let names: &[&str] = match groups.len() {
        1 => &["core"],
        2 => &["big", "little"],
        3 => &["prime", "big", "little"],
        _ => &[],
    };
    groups
        .into_iter()
        .enumerate()
        .map(|(i, g)| {
            let mut cpus: Vec<u32> = g.iter().map(|f| f.id).collect();
            cpus.sort_unstable();
            let name = names
                .get(i)
                .map_or_else(|| format!("type{i}"), |n| (*n).to_string());
            CoreType {
                name,
                cpus,
                capacity: g[0].capacity,
            }
        })
        .collect()
}

/// One core type, for `scx_amp topology --json`.
#[derive(Serialize)]
struct Row {
    name: String,
    cpus: String,
    capacity: u32,
    /// Physical cores; fewer than CPUs with SMT.
    cores: usize,
    llcs: usize,
}

/// The topology as JSON.
pub fn to_json(d: &Detected) -> serde_json::Value {
    serde_json::json!({ "core_types": rows(d) })
}

/// The topology as a table for people.
pub fn to_text(d: &Detected) -> String {
    let mut out = String::from("core type   capacity  cores  LLCs  CPUs\n");
    for r in rows(d) {
        out += &format!(
            "{:<10}  {:>8}  {:>5}  {:>4}  {}\n",
            r.name, r.capacity, r.cores, r.llcs, r.cpus
        );
    }
    if d.topology.core_types().len() == 1 {
        out += "All cores are alike: name the fast ones with --big-cpus if they are not.\n";
    }
    out
}

fn rows(d: &Detected) -> Vec<Row> {
    let types = d.topology.core_types().iter().enumerate();
    types
        .map(|(i, t)| {
            let llcs: std::collections::BTreeSet<_> =
                t.cpus.iter().filter_map(|c| d.llc_of.get(c)).collect();
            Row {
                name: t.name.clone(),
                cpus: CpuList(t.cpus.clone()).to_string(),
                capacity: t.capacity,
                cores: d.topology.nr_cores(CoreTypeId(i as u8)),
                llcs: llcs.len(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(caps: &[u32]) -> Vec<CpuFacts> {
        let fact = |(i, c): (usize, &u32)| CpuFacts {
            id: i as u32,
            capacity: *c,
            rated: false,
            little: false,
        };
        caps.iter().enumerate().map(fact).collect()
    }

    fn list(s: &str) -> CpuList {
        s.parse().unwrap()
    }

    #[test]
    fn juno_has_two_types() {
        let t = group(&cpus(&[446, 1024, 1024, 446, 446, 446]));
        assert_eq!(t.len(), 2);
        assert_eq!(
            (t[0].name.as_str(), t[0].cpus.as_slice()),
            ("big", &[1, 2][..])
        );
        assert_eq!(
            (t[1].capacity, t[1].cpus.as_slice()),
            (446, &[0, 3, 4, 5][..])
        );
    }

    #[test]
    fn three_clusters_stay_three_and_favoured_cores_do_not_split() {
        let t = group(&cpus(&[250, 250, 640, 660, 1024]));
        let got: Vec<_> = t.iter().map(|t| t.cpus.clone()).collect();
        assert_eq!(got, [vec![4], vec![2, 3], vec![0, 1]]);
        assert_eq!(group(&cpus(&[1024, 1009, 1024, 1009])).len(), 1);
    }

    /// The ranks of an eight-core Ryzen, and those of one with two kinds of Zen cores.
    #[test]
    fn preferred_cores_are_of_one_type_and_compact_ones_of_another() {
        let ranks = |ranks: &[u32]| {
            let sysfs = tempfile::tempdir().unwrap();
            let cpu = |i: usize| {
                sysfs
                    .path()
                    .join(format!("devices/system/cpu/cpu{i}/cpufreq"))
            };
            for (i, rank) in ranks.iter().enumerate() {
                std::fs::create_dir_all(cpu(i)).unwrap();
                let file = cpu(i).join("amd_pstate_prefcore_ranking");
                std::fs::write(file, format!("{rank}\n")).unwrap();
            }
            let online = format!("0-{}\n", ranks.len() - 1);
            std::fs::write(sysfs.path().join("devices/system/cpu/online"), online).unwrap();
            let found = detect_under(sysfs.path(), None).unwrap();
            let types = found.topology.core_types().iter();
            types.map(|t| t.cpus.clone()).collect::<Vec<_>>()
        };
        let alike = [236, 231, 226, 221, 216, 211, 206, 201];
        assert_eq!(ranks(&alike), [(0..8).collect::<Vec<u32>>()]);
        // sixteen: the last is 1.47 times below the first, each 1.03 below the one before
        let alike: Vec<u32> = (0..16).map(|i| 236 - 5 * i).collect();
        assert_eq!(ranks(&alike), [(0..16).collect::<Vec<u32>>()]);
        let two = [196, 191, 186, 181, 125, 120, 115, 110];
        assert_eq!(ranks(&two), [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
    }

    #[test]
    fn flat_capacity_falls_back_on_kind() {
        let mut f = cpus(&[1024; 4]);
        f[3].little = true;
        let t = group(&f);
        assert_eq!((t.len(), t[1].cpus.as_slice()), (2, &[3][..]));
        assert_eq!(group(&cpus(&[1024; 4])).len(), 1);
    }

    #[test]
    fn big_cpus_is_checked_against_the_machine() {
        let f = cpus(&[1024; 4]);
        let t = split_by_list(&f, &list("0-1")).unwrap();
        assert_eq!(
            (t[0].cpus.as_slice(), t[1].cpus.as_slice()),
            (&[0, 1][..], &[2, 3][..])
        );
        let e = split_by_list(&f, &list("2,7")).unwrap_err().to_string();
        assert!(e.contains("CPU 7") && e.contains("0-3"), "{e}");
        let e = split_by_list(&f, &list("0-3")).unwrap_err();
        assert!(e.is::<crate::BadInput>() && e.to_string().contains("every online CPU"));
    }

    #[test]
    fn a_core_of_two_types_is_two() {
        let types = split_by_list(&cpus(&[1024; 6]), &list("0-2")).unwrap();
        let topology = Topology::new(types).unwrap();
        let core_of = BTreeMap::from([(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (5, 4)]);
        let whole = Vec::from_iter(whole(core_of, &topology));
        assert_eq!(whole, [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (5, 4)]);
    }

    #[test]
    fn a_list_holds_for_what_is_online_of_it() {
        let mut f = cpus(&[1024; 4]);
        f.remove(1);
        let types = |f: &[CpuFacts], l: &str| -> Vec<Vec<u32>> {
            let of = split_online(f, &list(l)).into_iter();
            of.map(|t| t.cpus).collect()
        };
        assert_eq!(types(&f, "0-1"), [vec![0], vec![2, 3]]);
        assert_eq!(types(&f, "1"), [vec![0, 2, 3]], "no fast one is left");
        assert_eq!(types(&f[..1], "0-1"), [vec![0]], "no slow one is left");
    }
}
