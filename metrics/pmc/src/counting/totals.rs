//! Totals of a run: how long each part could have counted, what is extrapolated, and metrics made
//! of it.

use super::{type_name, Count, Counting, Derived, Judged, Part, Row, LEVEL, SAME_TIME};
use crate::formula::{Formula, SECONDS};
use crate::sets::NotSupported;
use amp_metrics::group::{GroupError, Whom};
use amp_metrics::uncertainty::Measured;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A value that is known beside counts: its name, and the core type and the thread that it is of, or
/// `None` for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Name in formulas.
    pub name: String,
    /// Core type, by name.
    pub core_type: Option<String>,
    /// Thread, where counts are of threads.
    pub tid: Option<i32>,
    /// The value.
    pub value: f64,
    /// Whether it is without error; else nobody knows how large that is.
    pub exact: bool,
}

/// Time for which a part could have counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Whole {
    seconds: f64,
    /// Seconds of it while one set gave way to the next.
    changing: f64,
}

impl Whole {
    fn of(seconds: f64) -> Whole {
        Whole {
            seconds,
            changing: 0.0,
        }
    }
}

impl Counting {
    /// Seconds for which threads ran, or CPUs were there, on the CPUs of each part.
    fn wholes(&mut self) -> Result<Vec<Whole>, GroupError> {
        let mut times = Vec::new();
        let missed = |whom: &Whom| match whom {
            Whom::Thread(tid) => self.missed.get(tid).copied().unwrap_or(0.0),
            _ => 0.0,
        };
        for c in &mut self.clocks {
            let whom = c.whom();
            times.push((whom, c.read()?.enabled.as_secs_f64(), missed(&whom)));
        }
        for (tid, seconds) in &self.ended {
            let whom = Whom::Thread(*tid);
            times.push((whom, *seconds, missed(&whom)));
        }
        if self.system {
            if self.sets.len() == 1 {
                // a CPU's pinned group is on all the time, or reading it fails
                let all = |p: &Part| Whole::of(p.sampled.seconds());
                return Ok(self.parts.iter().map(all).collect());
            }
            let of = |p: &Part| {
                if p.unit.is_always_on() {
                    return Whole::of(p.sampled.seconds());
                }
                let on = |whom: &Whom| p.groups.iter().any(|g| g.whom() == *whom);
                let times = times.iter().filter(|t| on(&t.0)).map(|t| t.1);
                let seconds = match p.unit.is_beside_cores() {
                    true => times.fold(0.0, f64::max),
                    false => times.sum(),
                };
                let here = |o: &&Part| o.key() == p.key();
                let parts = self.parts.iter().filter(here);
                let seen: f64 = parts.map(|o| o.sampled.seconds()).sum();
                // as many sets as are on at the same time have seen it
                let seen = seen / self.at_once() as f64;
                Whole {
                    seconds,
                    changing: (seconds - seen).max(0.0),
                }
            };
            return Ok(self.parts.iter().map(of).collect());
        }
        let mut out = vec![Whole::of(0.0); self.parts.len()];
        let mut rows: BTreeMap<Option<i32>, Vec<usize>> = BTreeMap::new();
        for (i, p) in self.parts.iter().enumerate() {
            rows.entry(p.row.tid).or_default().push(i);
        }
        // by thread; `None`: of all
        let mut sums: HashMap<Option<i32>, (f64, f64)> = HashMap::new();
        for (whom, ran, missed) in &times {
            let thread = match whom {
                Whom::Thread(tid) => Some(Some(*tid)),
                _ => None,
            };
            for of in [None].into_iter().chain(thread) {
                let sum = sums.entry(of).or_default();
                sum.0 += ran;
                sum.1 += missed;
            }
        }
        for (tid, of) in rows {
            let (ran, missed) = sums.get(&tid).copied().unwrap_or_default();
            let parts: Vec<&Part> = of.iter().map(|i| &self.parts[*i]).collect();
            for (i, whole) in of.iter().zip(self.of_row(&parts, ran, missed)) {
                out[*i] = whole;
            }
        }
        Ok(out)
    }

    /// The same for the parts of one row, whose threads ran for `ran` seconds, and for `missed`
    /// before they were found.
    fn of_row(&self, parts: &[&Part], ran: f64, missed: f64) -> Vec<Whole> {
        let all = ran + missed;
        // as many sets as are on at the same time have seen it
        let time = |p: &Part| p.sampled.seconds() / self.at_once() as f64;
        let on_cores: f64 = parts
            .iter()
            .filter(|p| p.unit.core_type.is_some())
            .map(|p| time(p))
            .sum();
        // The gaps between two turns belong to all core types alike. That holds where every set
        // counts on every core type; else somewhere nobody counted for other reasons.
        let complete = (0..self.sets.len()).all(|s| {
            let core: Vec<_> = parts
                .iter()
                .filter(|p| p.set == s && p.unit.core_type.is_some())
                .collect();
            core.is_empty() || core.len() == self.names.iter().flatten().count()
        });
        let one = self.sets.len() == 1;
        let of_seen = |time: f64| match complete && on_cores > 0.0 {
            true => (time / on_cores).max(1.0),
            false => 1.0,
        };
        let gaps = match of_seen(all) {
            gaps if one && gaps < 1.0 + SAME_TIME => 1.0,
            gaps => gaps,
        };
        let changing = if one { 0.0 } else { of_seen(ran) - 1.0 };
        let of = |p: &&Part| match p.unit.core_type {
            Some(t) => {
                let same = |o: &&&Part| o.unit.core_type == Some(t);
                let seen: f64 = parts.iter().filter(same).map(|p| time(p)).sum();
                Whole {
                    seconds: seen * gaps,
                    changing: seen * changing,
                }
            }
            // what is on all the time missed only threads that were not found yet
            None if one || p.unit.is_always_on() => Whole::of(p.sampled.seconds() + missed),
            None => Whole::of(all),
        };
        parts.iter().map(of).collect()
    }

    /// The counts of the whole run, extrapolated where a set was on for part of it, and the metrics
    /// made of them.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn totals(
        &mut self,
        formulas: &[Formula],
        known: &[Known],
    ) -> Result<(Vec<Count>, Vec<Derived>), GroupError> {
        let wholes = self.wholes()?;
        for (p, whole) in self.parts.iter_mut().zip(&wholes) {
            // the kernel's events go on while sets change
            if p.unit.events.iter().all(|e| e.attr.exclude_kernel) {
                p.sampled.change(whole.changing);
            }
        }
        let wholes: Vec<f64> = wholes.iter().map(|w| w.seconds).collect();
        let mut counts = Vec::new();
        for (p, whole) in self.parts.iter().zip(&wholes) {
            if self.is_hidden(p) {
                continue;
            }
            for (i, event) in p.unit.events.iter().enumerate() {
                let total = p.sampled.total(i, *whole);
                let interval = total.and_then(|t| {
                    let half = match t.u? {
                        0.0 => 0.0,
                        u => u * p.sampled.factor(i, LEVEL)?,
                    };
                    // what was counted is there
                    Some((
                        (t.value - half).max(p.sampled.counted(i) as f64),
                        t.value + half,
                    ))
                });
                let trusted = p.unit.trusted(i);
                let u = total.and_then(|t| match &trusted {
                    Some(of) => of.u(t.value, t.u),
                    None => t.u,
                });
                let interval = interval.and_then(|i| match &trusted {
                    Some(of) => of.widen(i),
                    None => Some(i),
                });
                counts.push(Count {
                    event: event.name.clone(),
                    set: p.set + 1,
                    pmu: Some(p.unit.pmu.clone()),
                    core_type: p.type_name(&self.names),
                    row: p.row.clone(),
                    supported: true,
                    count: total.map(|t| t.value),
                    counted: Some(p.sampled.counted(i)),
                    u,
                    low: interval.map(|i| i.0),
                    high: interval.map(|i| i.1),
                    coverage: p.sampled.coverage(*whole),
                    seconds: p.sampled.seconds(),
                    windows: p.sampled.windows(),
                    trusted,
                });
            }
        }
        for (s, set) in self.sets.iter().enumerate() {
            for n in &set.not_supported {
                counts.push(Count {
                    event: n.event.clone(),
                    set: s + 1,
                    pmu: n.pmu.clone(),
                    core_type: type_name(n.core_type, &self.names),
                    row: Row::default(),
                    supported: false,
                    count: None,
                    counted: None,
                    u: None,
                    low: None,
                    high: None,
                    coverage: None,
                    seconds: 0.0,
                    windows: 0,
                    trusted: None,
                });
            }
        }
        let mut derived = Vec::new();
        for f in formulas {
            derived.extend(self.derive(f, &wholes, known));
        }
        Ok((counts, derived))
    }

    fn is_hidden(&self, p: &Part) -> bool {
        self.sets.get(p.set).is_some_and(|s| s.hidden)
    }

    /// A metric on each PMU that counts all its events; without a value where it has an event that
    /// nothing counts.
    fn derive(&self, f: &Formula, wholes: &[f64], known: &[Known]) -> Vec<Derived> {
        let mut out = Vec::new();
        let mut done: HashSet<(&str, Option<u32>, Option<i32>)> = HashSet::new();
        let mut by_key: HashMap<_, Vec<(&Part, f64)>> = HashMap::new();
        let told = |p: &&Part| !self.is_hidden(p);
        for (p, whole) in self.parts.iter().zip(wholes).filter(|(p, _)| told(p)) {
            by_key.entry(p.key()).or_default().push((p, *whole));
        }
        let here = |p: &&Part| f.pmu.as_ref().is_none_or(|pmu| *pmu == p.unit.pmu);
        for p in self.parts.iter().filter(told).filter(here) {
            if !done.insert(p.key()) {
                continue;
            }
            let core_type = p.type_name(&self.names);
            let of = by_key.get(&p.key()).map_or(&[][..], Vec::as_slice);
            let known = |n: &str| beside(known, n, core_type.as_deref(), p.row.tid);
            let Some(value) = evaluate(f, of, &known) else {
                continue;
            };
            let threshold = judged(f, of, &known);
            out.push(Derived {
                metric: f.name.clone(),
                formula: f.text.clone(),
                pmu: Some(p.unit.pmu.clone()),
                core_type,
                row: p.row.clone(),
                unit: f.unit.clone(),
                value: value.map(|v| v.sampled.value),
                u: value.and_then(|v| Some(v.sampled.u?.hypot(v.u_of_events?))),
                u_of_events: value.and_then(|v| v.u_of_events),
                threshold,
                not_supported: Vec::new(),
            });
        }
        self.underived(f, &mut out);
        out
    }

    /// Adds the metric without a value for each PMU that has an event of it only by name.
    fn underived(&self, f: &Formula, out: &mut Vec<Derived>) {
        let all = self.sets.iter().flat_map(|s| &s.not_supported);
        let all: Vec<&NotSupported> = all.collect();
        for n in &all {
            let place = |o: &&&NotSupported| (&o.pmu, o.core_type) == (&n.pmu, n.core_type);
            let there: Vec<&&NotSupported> = all.iter().filter(place).collect();
            let missing = |name: &&String| there.iter().any(|n| n.is(name));
            let missing: Vec<String> = f.names.iter().filter(missing).cloned().collect();
            let elsewhere = f.pmu.is_some() && f.pmu != n.pmu;
            if missing.is_empty() || elsewhere || out.iter().any(|d| d.pmu == n.pmu) {
                continue;
            }
            out.push(Derived {
                metric: f.name.clone(),
                formula: f.text.clone(),
                pmu: n.pmu.clone(),
                core_type: type_name(n.core_type, &self.names),
                row: Row::default(),
                unit: f.unit.clone(),
                value: None,
                u: None,
                u_of_events: None,
                threshold: None,
                not_supported: missing,
            });
        }
    }
}

/// The value called `name` of a core type and a thread. The whole machine's is no core type's.
fn beside<'a>(
    known: &'a [Known],
    name: &str,
    core_type: Option<&str>,
    tid: Option<i32>,
) -> Option<&'a Known> {
    let of = known.iter().filter(|k| k.name == name);
    let of = of.filter(|k| k.tid.is_none() || k.tid == tid);
    let mut fitting = of.filter(|k| k.core_type.is_none() || k.core_type.as_deref() == core_type);
    fitting.next()
}

/// What a formula gives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Evaluated {
    /// The value, with the uncertainty that comes from extrapolation.
    sampled: Measured,
    /// The uncertainty that comes from the errors of the events themselves; `None` where one is
    /// broken.
    u_of_events: Option<f64>,
}

/// Parts of one PMU, each with the time for which it could have counted.
type Parts<'a> = [(&'a Part, f64)];

/// Where each of these events was counted, as part and event: the set that has most of them first,
/// for a ratio within a set is better than one across.
fn places<'a>(
    names: &'a [String],
    parts: &'a Parts<'_>,
) -> impl Fn(&str) -> Option<(usize, usize)> + 'a {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let has = |k: &usize| {
        let unit = &parts[*k].0.unit;
        let in_it = |n: &&String| unit.find(n).is_some();
        names.iter().filter(in_it).count()
    };
    order.sort_by_key(|k| std::cmp::Reverse(has(k)));
    move |name| {
        order.iter().find_map(|k| {
            let i = parts[*k].0.unit.find(name)?;
            Some((*k, i))
        })
    }
}

/// What the threshold of a metric says of these counts; `None` where it has none, or an event of it
/// was not counted.
fn judged<'k>(
    f: &Formula,
    parts: &Parts<'_>,
    beside: &dyn Fn(&str) -> Option<&'k Known>,
) -> Option<Judged> {
    let threshold = f.threshold.as_ref()?;
    let names = threshold.over_events.leaves();
    let place = places(names, parts);
    let value = |name: &String| match beside(name) {
        Some(known) => Some(known.value),
        None => {
            let (k, i) = place(name)?;
            let (part, whole) = parts[k];
            Some(part.sampled.total(i, whole)?.value)
        }
    };
    let values: Vec<f64> = names.iter().map(value).collect::<Option<_>>()?;
    let (exceeded, _) = threshold.over_events.evaluate(&values)?;
    Some(Judged {
        text: threshold.text.clone(),
        exceeded: exceeded != 0.0,
    })
}

/// The formula over parts of one PMU. What is extrapolated varies together for events of one set, and
/// by itself for each set; the errors of events do so for each event. The outer `None`: an event is
/// not among them.
fn evaluate<'k>(
    f: &Formula,
    parts: &Parts<'_>,
    beside: &dyn Fn(&str) -> Option<&'k Known>,
) -> Option<Option<Evaluated>> {
    let best = places(&f.names, parts);
    let mut places = Vec::new();
    let mut values = Vec::new();
    // of what is no counter's nobody knows how good it is
    let mut unknown = false;
    for name in &f.names {
        if name == SECONDS {
            places.push(None);
            values.push(parts.first().map_or(0.0, |(_, whole)| *whole));
            continue;
        }
        if let Some(known) = beside(name) {
            unknown |= !known.exact;
            places.push(None);
            values.push(known.value);
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
    let mut variance = (!unknown).then_some(0.0);
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
    let mut of_events = Some(0.0);
    for ((at, g), value) in places.iter().zip(&gradient).zip(&values) {
        let trusted = at.and_then(|(k, i)| parts.get(k)?.0.unit.trusted(i));
        if let Some(trusted) = trusted {
            let own = trusted.error().map(|e| (g * value * e.u()).powi(2));
            of_events = of_events.and_then(|sum: f64| Some(sum + own?));
        }
    }
    Some(Some(Evaluated {
        sampled: Measured {
            value,
            u: variance.map(f64::sqrt),
        },
        u_of_events: of_events.map(f64::sqrt),
    }))
}
