//! Groups of events and metrics by a name, as data (`metrics/pmc/groups/`).

use super::formula::Formula;
use super::inventory::CounterInventory;
use super::sets::Set;
use amp_host::bad_input;
use amp_machine::{BadFile, Locator};
use amp_metrics::event::{split_list, SpecKind};
use amp_metrics::group::software;
use amp_metrics::{CoreTypeId, EventSpec};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Name and text of those that come with the command: the files of `groups/`, sorted by name.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/groups.rs"));

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What is counted, in a few words.
    about: String,
    /// What the group measures, its formulas in words, and what good and bad values look like.
    explanation: String,
    variant: Vec<Variant>,
}

/// The events for some machines: the first variant counts all of whose events a machine has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Sets, as behind `-e`.
    pub events: Vec<String>,
    /// Metrics, as behind `-m`.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Virtual counters, as behind `-V`, for metrics that have them.
    #[serde(default)]
    pub virtuals: Vec<String>,
}

fn read(name: &str) -> Result<File> {
    let shipped = SHIPPED.iter().find(|(n, _)| *n == name);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None if name.ends_with(".toml") => {
            let read = amp_machine::read_text(Path::new(name));
            read.map_err(|e| bad_input(format!("-g {name}: {e}")))?.0
        }
        None => {
            let known: Vec<&str> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(bad_input(format!(
                "-g {name}: there is no such group; there are {}, or give a file whose name ends in .toml",
                known.join(", ")
            )));
        }
    };
    parse(name, &text)
}

/// The group with this text, whose file is called `name`.
fn parse(name: &str, text: &str) -> Result<File> {
    let locator = Locator::new(Path::new(name), text);
    let told = |bad: BadFile| bad_input(format!("-g {bad}"));
    let file: File = toml::from_str(text).map_err(|e| told(locator.toml(&e)))?;
    for (key, value) in [("about", &file.about), ("explanation", &file.explanation)] {
        if value.trim().is_empty() {
            let needed = "it is empty: a text is needed";
            return Err(told(locator.key(key, needed)));
        }
    }
    if file.variant.is_empty() {
        let needed = "there is no [[variant]]: at least one is needed";
        return Err(told(locator.key("variant", needed)));
    }
    Ok(file)
}

/// Whether `text` is that of a group whose formulas can be read: for `amp-fuzz`.
pub fn is_group(text: &str) -> bool {
    parse("mutant.toml", text).is_ok_and(|file| {
        file.variant.iter().all(|v| {
            let names = v.events.iter().flat_map(|e| e.split(','));
            let names = names.chain(v.virtuals.iter().map(String::as_str));
            let known: Vec<String> = names.map(str::to_owned).collect();
            let read = |m: &String| Formula::parse_with(m, &known, &[]).is_ok();
            v.metrics.iter().all(read)
        })
    })
}

/// A shipped group, for lists.
#[derive(Debug, Serialize)]
pub struct Listed {
    name: &'static str,
    about: String,
    explanation: String,
}

/// Every shipped group.
///
/// # Errors
/// None in a released version: a unit test reads them.
pub fn shipped() -> Result<Vec<Listed>> {
    let listed = |(name, _): &(&'static str, &str)| {
        let file = read(name)?;
        Ok(Listed {
            name,
            about: file.about,
            explanation: file.explanation,
        })
    };
    SHIPPED.iter().map(listed).collect()
}

/// The text of these groups with their explanations.
pub fn explained(groups: &[Listed]) -> String {
    let mut out = String::from("Groups for `scx_amp pmc stat -g`:\n");
    for g in groups {
        // writing to a string cannot fail
        let _ = writeln!(out, "  {}: {}", g.name, g.about);
        for line in g.explanation.trim().lines() {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// The end of `pmc stat --help`: the shipped groups.
pub fn help() -> String {
    shipped().map_or_else(|e| format!("{e:#}"), |g| explained(&g))
}

/// The group called `name`, or in the file `name`: what of it suits this machine. Each PMU of cores has the first variant
/// all of whose events it counts; a PMU that has none is left out, which is said.
///
/// # Errors
/// [`amp_host::BadInput`] when there is no such group, its file is not one, or no variant suits:
/// then with what is wrong with the last.
pub fn find(here: &CounterInventory, name: &str) -> Result<Variant> {
    let file = read(name)?;
    let mut chosen: Vec<(String, Option<&Variant>)> = Vec::new();
    for (t, pmu) in here.core_pmus() {
        if chosen.iter().all(|(known, _)| *known != pmu.name) {
            let suits = file.variant.iter().find(|v| v.suits(here, t));
            chosen.push((pmu.name.clone(), suits));
        }
    }
    let suited: Vec<(&str, &Variant)> = chosen
        .iter()
        .filter_map(|(pmu, v)| Some((pmu.as_str(), (*v)?)))
        .collect();
    match suited.as_slice() {
        [] => any(here, name, &file),
        [(_, first), others @ ..]
            if suited.len() == chosen.len() && others.iter().all(|(_, v)| v == first) =>
        {
            Ok((*first).clone())
        }
        _ => {
            for (pmu, _) in chosen.iter().filter(|(_, v)| v.is_none()) {
                log::warn!("-g {name}: PMU `{pmu}` has not all events of any variant, and counts none of it");
            }
            Ok(side_by_side(&suited))
        }
    }
}

/// The first variant whose events are all known, where no PMU of cores has all of one.
fn any(here: &CounterInventory, name: &str, file: &File) -> Result<Variant> {
    let mut refused = None;
    for v in &file.variant {
        match v
            .events
            .iter()
            .try_for_each(|e| Set::parse(here, e).map(drop))
        {
            Ok(()) => return Ok(v.clone()),
            Err(e) => refused = Some(e),
        }
    }
    Err(match refused {
        Some(e) => bad_input(format!("-g {name} ({}): {e}", file.about)),
        None => bad_input(format!("-g {name}: there is no [[variant]]")),
    })
}

impl Variant {
    /// Its events, set by set.
    fn sets(&self) -> impl Iterator<Item = Vec<&str>> {
        self.events.iter().map(|e| split_list(e))
    }

    /// Whether the PMU of core type `t` counts all of its events.
    fn suits(&self, here: &CounterInventory, t: CoreTypeId) -> bool {
        let counted = |text: &str| {
            text.parse().is_ok_and(|spec: EventSpec| {
                software(&spec).is_some() || here.pmus.resolve(t, &spec).is_ok()
            })
        };
        self.sets().flatten().all(counted)
    }
}

/// Each PMU's variant in one: first sets together, then second ones. Events name their PMU, metrics need not: each
/// is worked out where its events are counted.
fn side_by_side(suited: &[(&str, &Variant)]) -> Variant {
    let most = suited.iter().map(|(_, v)| v.events.len()).max();
    let mut sets: Vec<Vec<String>> = vec![Vec::new(); most.unwrap_or(0)];
    let (mut metrics, mut virtuals): (Vec<String>, Vec<String>) = Default::default();
    let add = |to: &mut Vec<String>, from: &[String]| {
        for text in from {
            if !to.contains(text) {
                to.push(text.clone());
            }
        }
    };
    for (pmu, v) in suited {
        for (set, events) in sets.iter_mut().zip(v.sets()) {
            for event in events {
                let event = of_pmu(pmu, event);
                if !set.contains(&event) {
                    set.push(event);
                }
            }
        }
        add(&mut metrics, &v.metrics);
        add(&mut virtuals, &v.virtuals);
    }
    Variant {
        events: sets.iter().map(|s| s.join(",")).collect(),
        metrics,
        virtuals,
    }
}

/// The event, of this PMU alone where it is a name; raw codes, and events that name a PMU, stay as they are.
fn of_pmu(pmu: &str, event: &str) -> String {
    match event.parse::<EventSpec>() {
        Ok(spec) if software(&spec).is_some() => event.to_owned(),
        Ok(EventSpec {
            kind: SpecKind::Name(_) | SpecKind::Generic(_),
            ..
        }) => {
            let (name, modifiers) = event.split_once(':').unwrap_or((event, ""));
            format!("{pmu}/{name}/{modifiers}")
        }
        _ => event.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn shipped_groups_can_be_read() {
        for (name, _) in SHIPPED.iter().copied() {
            let f = read(name).unwrap();
            assert!(
                !f.about.is_empty() && f.variant.iter().all(|v| !v.events.is_empty()),
                "{name}"
            );
            for v in &f.variant {
                let known: Vec<String> = v
                    .events
                    .iter()
                    .flat_map(|e| e.split(','))
                    .map(str::to_owned)
                    .chain(v.virtuals.iter().cloned())
                    .collect();
                for m in &v.metrics {
                    super::super::formula::Formula::parse(m, &known)
                        .unwrap_or_else(|e| panic!("{name}: {e}"));
                }
            }
        }
    }

    #[test]
    fn every_shipped_group_is_explained() {
        let groups = shipped().unwrap();
        let names: Vec<&str> = groups.iter().map(|g| g.name).collect();
        assert!(names.contains(&"caches") && names.is_sorted(), "{names:?}");
        let text = explained(&groups);
        for g in &groups {
            assert!(g.explanation.split_whitespace().count() > 30, "{}", g.name);
            assert!(
                text.contains(&format!("  {}: {}\n    ", g.name, g.about)),
                "{text}"
            );
        }
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert_eq!(help(), text);
    }

    /// A machine whose `/sys` is a fixture of amp-metrics, with this in `/proc/cpuinfo` and these CPUs per core type.
    pub(crate) fn machine(fixture: &str, cpuinfo: &str, types: &[&[u32]]) -> CounterInventory {
        machine_in(tempfile::tempdir().unwrap().path(), fixture, cpuinfo, types)
    }

    /// The same with its files in `root`, for what is read later.
    pub(crate) fn machine_in(
        root: &Path,
        fixture: &str,
        cpuinfo: &str,
        types: &[&[u32]],
    ) -> CounterInventory {
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        };
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        let sysfs = std::fs::read_to_string(fixtures.join(format!("{fixture}.sysfs"))).unwrap();
        for line in sysfs.lines() {
            let (path, content) = line.split_once(" = ").unwrap();
            put(&format!("sys/{path}"), content);
        }
        put("proc/cpuinfo", cpuinfo);
        let types = types
            .iter()
            .enumerate()
            .map(|(i, cpus)| amp_metrics::CoreType {
                name: format!("t{i}"),
                cpus: cpus.to_vec(),
                capacity: 1024 - i as u32,
            });
        let topology = amp_metrics::Topology::new(types.collect()).unwrap();
        CounterInventory::under(root, &topology, None).unwrap()
    }

    /// What `/proc/cpuinfo` says of a processor of Intel's.
    pub(crate) fn intel(model: u32) -> String {
        format!("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nstepping\t: 2")
    }

    fn amd(family: u32, model: u32) -> String {
        format!(
            "vendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: 2"
        )
    }

    /// The metrics of a group on a machine, and what its events are counted by: every one must resolve, and every formula be
    /// read and have all of its names on one PMU.
    fn found(here: &CounterInventory, group: &str) -> Vec<(String, Vec<String>)> {
        let v = find(here, group).unwrap_or_else(|e| panic!("{group}: {e:#}"));
        let sets: Vec<Set> = v
            .events
            .iter()
            .map(|e| Set::parse(here, e).unwrap())
            .collect();
        let known: Vec<String> = sets.iter().flat_map(Set::names).cloned().collect();
        let aliases: Vec<String> = sets.iter().flat_map(Set::aliases).cloned().collect();
        let units = || sets.iter().flat_map(|s| &s.units);
        let counted_by = |metric: &String| {
            let f = Formula::parse_with(metric, &known, &aliases).unwrap();
            let mut pmus: Vec<String> = units().map(|u| u.pmu.clone()).collect();
            pmus.sort();
            pmus.dedup();
            let names: Vec<&String> = f
                .names
                .iter()
                .filter(|n| *n != super::super::formula::SECONDS)
                .collect();
            let of = |pmu: &str, n: &String| units().any(|u| u.pmu == pmu && u.find(n).is_some());
            pmus.retain(|pmu| names.iter().all(|n| of(pmu, n)));
            assert!(!pmus.is_empty(), "{group}: {metric}");
            (f.name, pmus)
        };
        v.metrics.iter().map(counted_by).collect()
    }

    #[test]
    fn hybrids_have_a_variant_for_each_pmu() {
        let (core, atom) = (
            (0..16).collect::<Vec<u32>>(),
            (16..24).collect::<Vec<u32>>(),
        );
        let alder = machine("alderlake", &intel(151), &[&core, &atom]);
        for group in ["topdown", "tlb", "memory", "branches", "caches"] {
            let metrics = found(&alder, group);
            for pmu in ["cpu_core", "cpu_atom"] {
                let of = metrics.iter().filter(|(_, by)| by.iter().any(|p| p == pmu));
                assert!(of.count() >= 3, "{group} on {pmu}: {metrics:?}");
            }
        }
        // one way for each, by events of its own
        let retiring: Vec<Vec<String>> = found(&alder, "topdown")
            .into_iter()
            .filter(|(name, _)| name == "retiring")
            .map(|(_, by)| by)
            .collect();
        assert_eq!(retiring, [["cpu_core"], ["cpu_atom"]]);
        // Gracemont counts no floating-point operations
        let flops = found(&alder, "flops");
        assert!(flops.iter().all(|(_, by)| by == &["cpu_core"]), "{flops:?}");
    }

    #[test]
    fn groups_know_the_events_of_current_processors() {
        let all: Vec<u32> = (0..16).collect();
        let zen = |cpuinfo: &str| machine("zen", cpuinfo, &[&all]);
        for (model, groups) in [
            // Zen 3, 4 and 5
            (amd(25, 33), &["flops", "branches"][..]),
            (
                amd(25, 97),
                &["topdown", "tlb", "memory", "flops", "branches"],
            ),
            (
                amd(26, 68),
                &["topdown", "tlb", "memory", "flops", "branches"],
            ),
        ] {
            let here = zen(&model);
            for group in groups {
                assert!(found(&here, group).len() >= 2, "{group}: {model}");
            }
        }
        // meteor lake's low-power cores have the PMU of the other small ones
        let (core, atom, low) = (
            (0..12).collect::<Vec<u32>>(),
            (12..20).collect::<Vec<u32>>(),
            vec![20, 21],
        );
        let meteor = machine("meteorlake", &intel(170), &[&core, &atom, &low]);
        let flops = found(&meteor, "flops");
        let by = |pmu: &str| flops.iter().any(|(n, by)| n == "flops" && by == &[pmu]);
        assert!(by("cpu_core") && by("cpu_atom"), "{flops:?}");
    }

    #[test]
    fn memory_controllers_are_counted_together() {
        let (core, atom) = (
            (0..16).collect::<Vec<u32>>(),
            (16..24).collect::<Vec<u32>>(),
        );
        let alder = machine("alderlake", &intel(151), &[&core, &atom]);
        let metrics = found(&alder, "bandwidth");
        assert_eq!(metrics.len(), 3, "{metrics:?}");
        assert!(metrics.iter().all(|(_, by)| by == &["uncore_imc"]));
        let all: Vec<u32> = (0..16).collect();
        let zen = machine("zen", &amd(25, 97), &[&all]);
        let metrics = found(&zen, "bandwidth");
        assert!(metrics.iter().all(|(_, by)| by == &["amd_umc"]));
        // two that are read on CPU 0
        let set = Set::parse(&alder, "uncore_imc_free_running/data_read/").unwrap();
        let [unit] = &set.units[..] else {
            panic!("{set:?}");
        };
        assert_eq!(
            (unit.cpus.as_slice(), unit.is_beside_cores()),
            (&[0][..], true)
        );
        let types = |cpu| -> Vec<u32> {
            let opened = unit.opened_on(Some(cpu));
            opened.iter().map(|e| e[0].attr.type_).collect()
        };
        assert_eq!((types(0), types(1)), (vec![20, 21], vec![]));
        let one = Set::parse(&alder, "uncore_imc_free_running_1/data_read/").unwrap();
        assert_eq!(one.units[0].opened_on(Some(0)).len(), 1);
        let e = Set::parse(&alder, "uncore_imc_free_running/no_such/").unwrap_err();
        assert!(e.is::<amp_host::BadInput>(), "{e:#}");
    }

    #[test]
    fn top_down_metrics_want_slots() {
        let (core, atom) = (
            (0..16).collect::<Vec<u32>>(),
            (16..24).collect::<Vec<u32>>(),
        );
        let alder = machine("alderlake", &intel(151), &[&core, &atom]);
        let e = Set::parse(&alder, "topdown-retiring,cycles").unwrap_err();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("-e slots,topdown-retiring"),
            "{e:#}"
        );
        // the small cores count it by an event of its own, and have no `slots`
        let set = Set::parse(&alder, "topdown-retiring,slots").unwrap();
        let counted: Vec<usize> = set.units.iter().map(|u| u.events.len()).collect();
        assert_eq!(counted, [2, 1]);
        assert!(Set::parse(&alder, "cpu_atom/topdown-retiring/").is_ok());
        let all: Vec<u32> = (0..16).collect();
        let zen = machine("zen", &amd(25, 97), &[&all]);
        assert!(Set::parse(&zen, "cpu/event=0x00,umask=0x80/").is_ok());
    }

    #[test]
    fn energy_is_beside_instructions() {
        let juno = machine("juno", "", &[&[1, 2], &[0, 3, 4, 5]]);
        let v = find(&juno, "energy").unwrap();
        assert_eq!(v.virtuals, ["energy"]);
    }

    #[test]
    fn a_machine_that_lacks_a_groups_events_is_told() {
        let juno = machine("juno", "", &[&[1, 2], &[0, 3, 4, 5]]);
        let e = find(&juno, "topdown").unwrap_err();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("-g topdown"),
            "{e:#}"
        );
        let tlb = found(&juno, "tlb");
        assert!(
            tlb.iter()
                .any(|(n, by)| n == "dtlb_misses_per_1000" && by.len() == 2),
            "{tlb:?}"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("g.toml");
        std::fs::write(
            &file,
            "about = \"x\"\nexplanation = \"y\"\nvariant = [{ events = [\"nosuch\"], speed = 1 }]\n",
        )
        .unwrap();
        let file = file.display().to_string();
        let silent = dir.path().join("silent.toml");
        std::fs::write(&silent, "about = \"x\"\nvariant = []\n").unwrap();
        let silent = silent.display().to_string();
        let empty = dir.path().join("empty.toml");
        std::fs::write(&empty, "about = \"x\"\nexplanation = \" \"\nvariant = []\n").unwrap();
        let empty = empty.display().to_string();
        let without = dir.path().join("without.toml");
        std::fs::write(
            &without,
            "about = \"x\"\nexplanation = \"y\"\nvariant = []\n",
        )
        .unwrap();
        let without = without.display().to_string();
        for (name, part) in [
            ("nosuch", "branches, caches"),
            ("/no/such.toml", "/no/such.toml"),
            (&file, "g.toml: line 3: key `variant[0].speed`"),
            (&silent, "silent.toml: line 1"),
            (&silent, "`explanation`"),
            (&empty, "empty.toml: line 2: key `explanation`"),
            (
                &without,
                "without.toml: line 3: key `variant`: there is no [[variant]]",
            ),
        ] {
            let e = read(name).unwrap_err();
            assert!(
                e.is::<amp_host::BadInput>() && format!("{e:#}").contains(part),
                "{e:#}"
            );
        }
    }
}
