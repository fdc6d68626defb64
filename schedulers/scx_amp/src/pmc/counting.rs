//! Sets of events on their targets, by turns.

use super::formula::{Formula, SECONDS};
use super::sets::{Set, Unit};
use amp_metrics::group::{Group, GroupCounts, GroupError, Whom};
use amp_metrics::multiplex::Sampled;
use amp_metrics::uncertainty::Measured;
use serde::Serialize;

/// Confidence level of the intervals.
pub const LEVEL: f64 = 0.95;
/// One set whose time differs by less than this part from its threads' was on all the time: two clocks are not read at
/// the same moment.
const SAME_TIME: f64 = 0.005;

/// What to count with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads, with those that they start.
    Tasks(Vec<i32>),
    /// All CPUs of the machine.
    Cpus(Vec<u32>),
}

/// The count of an event on a PMU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// The event as it was written.
    pub event: String,
    /// Number of its set, from 1.
    pub set: usize,
    /// The PMU.
    pub pmu: String,
    /// Name of the core type, for PMUs of cores.
    pub core_type: Option<String>,
    /// The CPU, where each has a count of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The count; extrapolated when `coverage` is below 1; `None` when there is no basis for one.
    pub count: Option<f64>,
    /// What was really counted.
    pub counted: u64,
    /// Standard uncertainty of `count`; 0 for what was counted all the time, `None` when unknown.
    pub u: Option<f64>,
    /// Ends of the interval that holds the truth at [`LEVEL`].
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// Part of the time on this PMU's CPUs for which the set was on; `None` when there was no such time.
    pub coverage: Option<f64>,
    /// Seconds for which it was on.
    pub seconds: f64,
    /// Number of stretches of time that is made of.
    pub windows: u64,
}

/// A derived metric on a core type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Derived {
    /// Its name.
    pub metric: String,
    /// Its formula.
    pub formula: String,
    /// The PMU.
    pub pmu: String,
    /// Name of the core type.
    pub core_type: Option<String>,
    /// The CPU, where each has counts of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The value; `None` when an event was not counted, or on a division by zero.
    pub value: Option<f64>,
    /// Standard uncertainty; `None` when unknown.
    pub u: Option<f64>,
}

/// What was counted in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Seconds since counting began, at its end.
    pub at_s: f64,
    /// Number of the set that was on, from 1.
    pub set: usize,
    /// What its events have counted, really.
    pub counts: Vec<WindowCount>,
}

/// The count of an event in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowCount {
    /// The event as it was written.
    pub event: String,
    /// The PMU.
    pub pmu: String,
    /// Name of the core type, for PMUs of cores.
    pub core_type: Option<String>,
    /// The CPU, where each has a count of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The count.
    pub count: u64,
    /// Seconds for which it was on the hardware.
    pub seconds: f64,
}

/// A unit of a set, counting.
struct Part {
    set: usize,
    unit: Unit,
    /// The CPU when this is one CPU's share of the unit.
    cpu: Option<u32>,
    groups: Vec<Group>,
    last: (f64, Vec<u64>),
    sampled: Sampled,
}

/// All sets, of which one is on.
pub struct Counting {
    sets: usize,
    names: Vec<String>,
    parts: Vec<Part>,
    clocks: Vec<Group>,
    system: bool,
    active: usize,
    turns: u64,
}

impl Counting {
    /// Opens every set on the target, none of them on. `core_types` names the core types; with `per_cpu`, which goes
    /// with [`Scope::Cpus`], each CPU is counted for itself; with `on_exec` the first set starts when its thread
    /// executes a program.
    ///
    /// # Errors
    /// [`GroupError`], naming the event and the thread or CPU. Threads that end meanwhile are left out, unless they are
    /// all.
    pub fn open(
        sets: &[Set],
        core_types: &[String],
        scope: &Scope,
        per_cpu: bool,
        on_exec: bool,
    ) -> Result<Counting, GroupError> {
        let mut parts = Vec::new();
        for (s, set) in sets.iter().enumerate() {
            for unit in &set.units {
                let whole = split(unit, scope, per_cpu);
                for (cpu, whom) in whole {
                    let groups =
                        open_all(whom, |w| Group::open(&unit.events, w, on_exec && s == 0))?;
                    parts.push(Part {
                        set: s,
                        unit: unit.clone(),
                        cpu,
                        groups,
                        last: (0.0, vec![0; unit.events.len()]),
                        sampled: Sampled::new(unit.events.len()),
                    });
                }
            }
        }
        let whom = match scope {
            Scope::Tasks(tids) => tids.iter().map(|t| Whom::Task(*t)).collect(),
            Scope::Cpus(cpus) => cpus.iter().map(|c| Whom::Cpu(*c)).collect::<Vec<_>>(),
        };
        Ok(Counting {
            sets: sets.len(),
            names: core_types.to_vec(),
            parts,
            clocks: open_all(whom, |w| Group::clock(w, on_exec))?,
            system: matches!(scope, Scope::Cpus(_)),
            active: 0,
            turns: 0,
        })
    }

    /// Starts the first set, where no program's start does.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<(), GroupError> {
        self.clocks.iter_mut().try_for_each(Group::start)?;
        self.switch(self.active, true)
    }

    fn switch(&mut self, set: usize, on: bool) -> Result<(), GroupError> {
        let groups = self
            .parts
            .iter_mut()
            .filter(|p| p.set == set)
            .flat_map(|p| &mut p.groups);
        for g in groups {
            if on {
                g.start()?;
            } else {
                g.stop()?;
            }
        }
        Ok(())
    }

    /// Ends an interval at `at_s` seconds: notes what the set that is on has counted, and puts the next one on unless
    /// it was the `last`.
    ///
    /// # Errors
    /// [`GroupError::Taken`] when the counters were taken.
    pub fn turn(&mut self, at_s: f64, last: bool) -> Result<Window, GroupError> {
        let set = self.active;
        if last {
            self.clocks.iter_mut().try_for_each(Group::stop)?;
        }
        if last || self.sets > 1 {
            self.switch(set, false)?;
        }
        let mut window = Window {
            at_s,
            set: set + 1,
            counts: Vec::new(),
        };
        for p in self.parts.iter_mut().filter(|p| p.set == set) {
            let (seconds, counts) = p.advance()?;
            p.sampled.add(seconds, &counts);
            for (event, count) in p.unit.events.iter().zip(counts) {
                window.counts.push(WindowCount {
                    event: event.name.clone(),
                    pmu: p.unit.pmu.clone(),
                    core_type: p.type_name(&self.names),
                    cpu: p.cpu,
                    count,
                    seconds,
                });
            }
        }
        self.turns += 1;
        if !last && self.sets > 1 {
            self.active = (set + 1) % self.sets;
            self.switch(self.active, true)?;
        }
        Ok(window)
    }

    /// How many intervals there were.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Seconds for which threads ran, or CPUs were there, on the CPUs of each part.
    fn wholes(&mut self) -> Result<Vec<f64>, GroupError> {
        let mut times = Vec::new();
        for c in &mut self.clocks {
            times.push((c.whom(), c.read()?.enabled.as_secs_f64()));
        }
        let all: f64 = times.iter().map(|(_, t)| t).sum();
        let parts = &self.parts;
        if self.system {
            if self.sets == 1 {
                // a CPU's pinned group is on all the time, or reading it fails
                return Ok(parts.iter().map(|p| p.sampled.seconds()).collect());
            }
            let of = |p: &Part| {
                let on = |whom: &Whom| p.groups.iter().any(|g| g.whom() == *whom);
                times.iter().filter(|(w, _)| on(w)).map(|(_, t)| t).sum()
            };
            return Ok(parts.iter().map(of).collect());
        }
        let time = |p: &Part| p.sampled.seconds();
        let on_cores: f64 = parts
            .iter()
            .filter(|p| p.unit.core_type.is_some())
            .map(time)
            .sum();
        // The gaps between two turns belong to all core types alike. That holds where every set counts on every core
        // type; else somewhere nobody counted for other reasons.
        let complete = (0..self.sets).all(|s| {
            let core: Vec<_> = parts
                .iter()
                .filter(|p| p.set == s && p.unit.core_type.is_some())
                .collect();
            core.is_empty() || core.len() == self.names.len()
        });
        let gaps = if complete && on_cores > 0.0 {
            (all / on_cores).max(1.0)
        } else {
            1.0
        };
        let gaps = if self.sets == 1 && gaps < 1.0 + SAME_TIME {
            1.0
        } else {
            gaps
        };
        let of = |p: &Part| match p.unit.core_type {
            Some(t) => {
                let same = |o: &&Part| o.unit.core_type == Some(t);
                parts.iter().filter(same).map(time).sum::<f64>() * gaps
            }
            None if self.sets == 1 => time(p),
            None => all,
        };
        Ok(parts.iter().map(of).collect())
    }

    /// The counts of the whole run, extrapolated where a set was on for part of it, and the metrics made of them.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn totals(
        &mut self,
        formulas: &[Formula],
    ) -> Result<(Vec<Count>, Vec<Derived>), GroupError> {
        let wholes = self.wholes()?;
        let mut counts = Vec::new();
        for (p, whole) in self.parts.iter().zip(&wholes) {
            for (i, event) in p.unit.events.iter().enumerate() {
                let total = p.sampled.total(i, *whole);
                let interval = total.and_then(|t| {
                    let half = match t.u? {
                        0.0 => 0.0,
                        u => u * p.sampled.factor(LEVEL)?,
                    };
                    // what was counted is there
                    Some((
                        (t.value - half).max(p.sampled.counted(i) as f64),
                        t.value + half,
                    ))
                });
                counts.push(Count {
                    event: event.name.clone(),
                    set: p.set + 1,
                    pmu: p.unit.pmu.clone(),
                    core_type: p.type_name(&self.names),
                    cpu: p.cpu,
                    count: total.map(|t| t.value),
                    counted: p.sampled.counted(i),
                    u: total.and_then(|t| t.u),
                    low: interval.map(|i| i.0),
                    high: interval.map(|i| i.1),
                    coverage: p.sampled.coverage(*whole),
                    seconds: p.sampled.seconds(),
                    windows: p.sampled.windows(),
                });
            }
        }
        let mut derived = Vec::new();
        for f in formulas {
            derived.extend(self.derive(f, &wholes));
        }
        Ok((counts, derived))
    }

    /// A metric on each PMU that counts all its events.
    fn derive(&self, f: &Formula, wholes: &[f64]) -> Vec<Derived> {
        let mut out = Vec::new();
        let mut done: Vec<(&str, Option<u32>)> = Vec::new();
        for p in &self.parts {
            let key = (p.unit.pmu.as_str(), p.cpu);
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let of: Vec<(&Part, f64)> = self
                .parts
                .iter()
                .zip(wholes.iter().copied())
                .filter(|(o, _)| (o.unit.pmu.as_str(), o.cpu) == key)
                .collect();
            let Some(value) = evaluate(f, &of) else {
                continue;
            };
            out.push(Derived {
                metric: f.name.clone(),
                formula: f.text.clone(),
                pmu: p.unit.pmu.clone(),
                core_type: p.type_name(&self.names),
                cpu: p.cpu,
                value: value.map(|v| v.value),
                u: value.and_then(|v| v.u),
            });
        }
        out
    }
}

/// The formula over parts of one PMU, with the uncertainty that comes from extrapolation: events of one set vary
/// together, sets do not. The outer `None`: an event is not among them.
fn evaluate(f: &Formula, parts: &[(&Part, f64)]) -> Option<Option<Measured>> {
    // the set that has most of the names first: a ratio within a set is better than one across
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let has = |k: &usize| {
        let events = &parts[*k].0.unit.events;
        let in_it = |n: &&String| events.iter().any(|e| e.name == **n);
        f.names.iter().filter(in_it).count()
    };
    order.sort_by_key(|k| std::cmp::Reverse(has(k)));
    let best = |name: &String| {
        order.iter().find_map(|k| {
            let i = parts[*k]
                .0
                .unit
                .events
                .iter()
                .position(|e| e.name == *name)?;
            Some((*k, i))
        })
    };
    let mut places = Vec::new();
    let mut values = Vec::new();
    for name in &f.names {
        if name == SECONDS {
            places.push(None);
            values.push(parts.first().map_or(0.0, |(_, whole)| *whole));
            continue;
        }
        let at = best(name)?;
        let Some(total) = parts[at.0].0.sampled.total(at.1, parts[at.0].1) else {
            return Some(None);
        };
        places.push(Some(at));
        values.push(total.value);
    }
    let Some((value, gradient)) = f.evaluate(&values) else {
        return Some(None);
    };
    let mut variance = Some(0.0);
    for (k, (p, whole)) in parts.iter().enumerate() {
        let mut of_set = vec![0.0; p.unit.events.len()];
        for (at, g) in places.iter().zip(&gradient) {
            if let Some((_, i)) = at.filter(|(at, _)| *at == k) {
                of_set[i] += g;
            }
        }
        if of_set.iter().any(|g| *g != 0.0) {
            let v = p.sampled.variance(&of_set, *whole);
            variance = variance.and_then(|a: f64| Some(a + v?));
        }
    }
    Some(Some(Measured {
        value,
        u: variance.map(f64::sqrt),
    }))
}

impl Part {
    fn type_name(&self, names: &[String]) -> Option<String> {
        let t = self.unit.core_type?;
        names.get(t.index()).cloned()
    }

    /// Seconds and counts since the last call.
    fn advance(&mut self) -> Result<(f64, Vec<u64>), GroupError> {
        let mut now = (0.0, vec![0u64; self.unit.events.len()]);
        for g in &mut self.groups {
            let GroupCounts {
                running, counts, ..
            } = g.read()?;
            now.0 += running.as_secs_f64();
            for (sum, c) in now.1.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(c);
            }
        }
        let before = std::mem::replace(&mut self.last, now.clone());
        let counts = now.1.iter().zip(&before.1);
        Ok((
            (now.0 - before.0).max(0.0),
            counts.map(|(a, b)| a.saturating_sub(*b)).collect(),
        ))
    }
}

/// On whom a unit is opened; one entry for each count that is to be shown.
fn split(unit: &Unit, scope: &Scope, per_cpu: bool) -> Vec<(Option<u32>, Vec<Whom>)> {
    match scope {
        Scope::Tasks(tids) => vec![(None, tids.iter().map(|t| Whom::Task(*t)).collect())],
        Scope::Cpus(all) => {
            let here = |c: &&u32| unit.cpus.is_empty() || unit.cpus.contains(c);
            let cpus = all.iter().filter(here).copied();
            if per_cpu {
                cpus.map(|c| (Some(c), vec![Whom::Cpu(c)])).collect()
            } else {
                vec![(None, cpus.map(Whom::Cpu).collect())]
            }
        }
    }
}

fn open_all(
    whom: Vec<Whom>,
    open: impl Fn(Whom) -> Result<Group, GroupError>,
) -> Result<Vec<Group>, GroupError> {
    let mut groups = Vec::with_capacity(whom.len());
    let mut gone = None;
    for w in whom {
        match open(w) {
            Ok(g) => groups.push(g),
            Err(e @ GroupError::Gone { .. }) => gone = Some(e),
            Err(e) => return Err(e),
        }
    }
    match gone {
        Some(e) if groups.is_empty() => Err(e),
        _ => Ok(groups),
    }
}
