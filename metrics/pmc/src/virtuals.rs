//! Virtual counters beside the events: `-V energy,llc`.

use super::counting::Known;
use super::factors::{Factor, FactorCount};
use super::inventory::CounterInventory;
use amp_host::bad_input;
use amp_metrics::virtual_counters::VirtualCounters;
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Nanos, Snapshot, Subject, ThreadKey, ThreadSample,
    VirtualCounter, MAX_CORE_TYPES,
};
use anyhow::{bail, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// Names behind `-V`, but those of [`Factor`].
const NAMES: [(&str, VirtualCounter); 3] = [
    ("energy", VirtualCounter::Energy),
    ("llc", VirtualCounter::LlcOccupancy),
    ("traffic", VirtualCounter::MemoryTraffic),
];

fn name(counter: VirtualCounter) -> &'static str {
    let named = NAMES.iter().find(|(_, c)| *c == counter);
    named.map_or(counter.name(), |(n, _)| n)
}

/// The value of a virtual counter: over an interval, or over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualCount {
    /// Its name, as behind `-V`.
    pub counter: &'static str,
    /// What it is of: `machine`, a core type, `CPU n`, `program` or a thread. Energy is that of the
    /// hardware, whoever ran there.
    pub of: String,
    /// The value: an increment, of a level the mean over its readings, or a factor. `None` where a
    /// factor has no estimate; `why` says why then.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// Source of the value.
    pub source: String,
    /// How often a level was read; `None` for increments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readings: Option<u64>,
    /// Standard uncertainty: that of a factor as the model states it, and of a mean over runs of a
    /// command; otherwise unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub u: Option<f64>,
    /// What a factor is of; `None` for other counters.
    #[serde(flatten)]
    pub factor: Option<FactorCount>,
}

#[derive(Default)]
struct Sum {
    value: f64,
    readings: u64,
}

/// The sources in use, and what they have said so far.
pub struct Virtuals {
    sources: VirtualCounters,
    wanted: Vec<VirtualCounter>,
    core_types: Vec<String>,
    per_cpu: bool,
    /// Sources that were not there to begin with.
    absent: usize,
    sums: BTreeMap<(VirtualCounter, Subject), Sum>,
}

impl Virtuals {
    /// Finds what `names` ask for. Each CPU has values of its own with `per_cpu`.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] for a name that there is not; else, when the machine has no source,
    /// where it was looked for.
    pub fn open(inventory: &CounterInventory, names: &[String], per_cpu: bool) -> Result<Virtuals> {
        let mut wanted = Vec::new();
        for n in names {
            let found = NAMES.iter().find(|(known, c)| n == known || n == c.name());
            let Some((_, counter)) = found else {
                let factors = Factor::ALL.iter().map(|f| f.name());
                let known: Vec<&str> = NAMES.iter().map(|(n, _)| *n).chain(factors).collect();
                return Err(bad_input(format!(
                    "-V {n}: there is no such virtual counter; there are {}",
                    known.join(", ")
                )));
            };
            wanted.push(*counter);
        }
        let energy = wanted.contains(&VirtualCounter::Energy);
        let cache = wanted.iter().any(|w| *w != VirtualCounter::Energy);
        let mut parts = Vec::new();
        if energy {
            parts.push(("energy", inventory.energy_sources()));
        }
        if cache {
            parts.push(("llc and traffic", inventory.cache_sources()));
        }
        let mut sources = VirtualCounters::of(Vec::new());
        for (what, of) in parts {
            if of.names().next().is_none() {
                bail!(
                    "-V: nothing measures {what} on this machine: {}",
                    of.missing().join("; ")
                );
            }
            sources.extend(of);
        }
        Ok(Virtuals {
            absent: sources.missing().len(),
            sources,
            wanted,
            core_types: inventory.core_types.clone(),
            per_cpu,
            sums: BTreeMap::new(),
        })
    }

    /// Names that formulas may use.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.wanted.iter().map(|w| name(*w).to_owned())
    }

    /// Whether one of them is measured per application only.
    pub fn needs_program(&self) -> bool {
        self.wanted.iter().any(|w| *w != VirtualCounter::Energy)
    }

    /// What was counted since the last call, at `at_s` seconds, of the program with process number
    /// `pid`.
    pub fn sample(&mut self, at_s: f64, pid: Option<i32>) -> Vec<VirtualCount> {
        let mut s = Snapshot {
            // 0 is no time
            now: Nanos((at_s.max(0.0) * 1e9) as u64 + 1),
            threads: pid.map(threads).unwrap_or_default(),
            ..Snapshot::default()
        };
        self.sources.sample(&mut s);
        let mut out = Vec::new();
        for r in &s.virtual_counters {
            let shown = match r.of {
                Subject::Cpu(_) => self.per_cpu,
                Subject::CoreType(_) | Subject::Machine | Subject::App(_) => true,
            };
            if !shown || !self.wanted.contains(&r.counter) {
                continue;
            }
            let sum = self.sums.entry((r.counter, r.of)).or_default();
            sum.value += r.value;
            sum.readings += 1;
            out.push(self.told(r.counter, r.of, r.value, None));
        }
        out
    }

    fn told(
        &self,
        counter: VirtualCounter,
        of: Subject,
        value: f64,
        readings: Option<u64>,
    ) -> VirtualCount {
        let energy = counter == VirtualCounter::Energy;
        let source = self.sources.names().find(|n| energy != (*n == "resctrl"));
        VirtualCount {
            counter: name(counter),
            of: match of {
                Subject::Machine => "machine".into(),
                Subject::CoreType(t) => self.type_name(t),
                Subject::Cpu(c) => format!("CPU {c}"),
                Subject::App(_) => "program".into(),
            },
            value: Some(value),
            unit: counter.unit(),
            source: source.unwrap_or("a source that has failed").to_owned(),
            readings,
            u: None,
            factor: None,
        }
    }

    fn type_name(&self, t: CoreTypeId) -> String {
        let name = self.core_types.get(t.index());
        name.cloned()
            .unwrap_or_else(|| format!("core type {}", t.0))
    }

    /// The whole run's: sums of increments, means of levels.
    pub fn totals(&self) -> Vec<VirtualCount> {
        let total = |((counter, of), sum): (&(VirtualCounter, Subject), &Sum)| match counter {
            VirtualCounter::LlcOccupancy => {
                let mean = sum.value / sum.readings.max(1) as f64;
                self.told(*counter, *of, mean, Some(sum.readings))
            }
            _ => self.told(*counter, *of, sum.value, None),
        };
        self.sums.iter().map(total).collect()
    }

    /// The same as values for formulas: a core type's own, or what is of no core type in
    /// particular. The whole machine's is a core type's where there is no other.
    pub fn known(&self) -> Vec<Known> {
        let all = self.totals();
        let subjects = self.sums.keys().map(|(_, of)| *of);
        let known = |(c, of): (VirtualCount, Subject)| {
            let core_type = match of {
                Subject::CoreType(t) => Some(self.type_name(t)),
                Subject::Machine if self.core_types.len() == 1 => None,
                Subject::App(_) => None,
                Subject::Machine | Subject::Cpu(_) => return None,
            };
            Some(Known {
                name: c.counter.to_owned(),
                core_type,
                tid: None,
                value: c.value?,
                exact: false,
            })
        };
        all.into_iter().zip(subjects).filter_map(known).collect()
    }

    /// What has failed meanwhile, or at the last sample.
    pub fn failed(&self) -> Vec<String> {
        let lost = self.sources.missing().iter().skip(self.absent).cloned();
        lost.chain(self.sources.silent()).collect()
    }
}

/// A process's threads, as resctrl is to follow them.
fn threads(pid: i32) -> Vec<ThreadSample> {
    let thread = |(i, tid): (usize, i32)| {
        let mut runtime = [Nanos::ZERO; MAX_CORE_TYPES];
        runtime[0] = Nanos::from_millis((super::target::ran(tid) * 1e3) as u64);
        ThreadSample {
            key: ThreadKey {
                slot: i as u32,
                generation: 0,
            },
            tid,
            app: AppId(pid.unsigned_abs().into()),
            comm: [0; 16],
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::default(),
            runnable: true,
            core_type: CoreTypeId(0),
            placed: None,
            runtime,
        }
    };
    let tids = super::target::task(pid).unwrap_or_default().into_iter();
    tids.enumerate().map(thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::virtual_counters::{VirtualError, VirtualSource};
    use amp_metrics::{Pmus, VirtualReading};

    struct Fake(Subject);

    impl VirtualSource for Fake {
        fn name(&self) -> &'static str {
            "fake"
        }
        fn sample(
            &mut self,
            now: Nanos,
            _threads: &[ThreadSample],
            out: &mut Vec<VirtualReading>,
        ) -> Result<(), VirtualError> {
            out.push(VirtualReading {
                counter: VirtualCounter::Energy,
                of: self.0,
                value: 2.0,
                over: now,
            });
            Ok(())
        }
    }

    fn virtuals(of: Subject, core_types: usize) -> Virtuals {
        Virtuals {
            sources: VirtualCounters::of(vec![Box::new(Fake(of))]),
            wanted: vec![VirtualCounter::Energy],
            core_types: ["big", "little"][..core_types]
                .iter()
                .map(|s| (*s).to_owned())
                .collect(),
            per_cpu: false,
            absent: 0,
            sums: BTreeMap::new(),
        }
    }

    #[test]
    fn increments_are_summed_and_named_by_core_type() {
        let mut v = virtuals(Subject::CoreType(CoreTypeId(1)), 2);
        assert_eq!(v.sample(0.1, None)[0].value, Some(2.0));
        v.sample(0.2, None);
        let t = &v.totals()[0];
        assert_eq!(
            (t.counter, t.of.as_str(), t.value, t.unit, t.source.as_str()),
            ("energy", "little", Some(4.0), "J", "fake")
        );
        assert_eq!(v.known()[0].core_type.as_deref(), Some("little"));
    }

    #[test]
    fn the_machines_energy_is_no_core_types() {
        let mut v = virtuals(Subject::Machine, 2);
        v.sample(0.1, None);
        assert_eq!(v.known(), []);
        let mut v = virtuals(Subject::Machine, 1);
        v.sample(0.1, None);
        assert_eq!(v.known()[0].value, 2.0);
        let mut v = virtuals(Subject::Cpu(0), 1);
        assert!(v.sample(0.1, None).is_empty(), "only with -A");
    }

    #[test]
    fn what_there_is_not_is_said() {
        let none = VirtualCounters::of(Vec::new());
        let inventory = CounterInventory::from_parts(Pmus::none(), &["big"], none);
        let e = Virtuals::open(&inventory, &["joules".into()], false)
            .err()
            .unwrap();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("energy, llc, traffic, sf, ef"),
            "{e}"
        );
    }
}
