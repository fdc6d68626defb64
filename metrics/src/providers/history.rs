//! A phase history table in front of another provider [TD].
//!
//! Some metrics exist on one core type only (the hardware's own classes on P cores; a model that
//! was made for one). The table remembers, per thread, what the inner provider said in a phase of
//! the program, under a key that can be measured on every core type: L1 data cache accesses per
//! thousand instructions, and the part of the instructions that are branches. On the other core
//! types the entry nearest to the present key answers.

use super::threads::Threads;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSet, EventSets, EventSpec};
use crate::ids::{CoreTypeId, CoreTypeSet, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{Caveats, MetricId, Provider};
use crate::sample::{Reading, Snapshot};

/// Settings of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct HistorySettings {
    /// Core types on which the inner provider's estimates are valid.
    pub valid_on: CoreTypeSet,
    /// Event that counts L1 data cache accesses, and branches; the same name has to exist on every
    /// core type.
    pub l1_accesses: String,
    /// Event that counts branches; the same name has to exist on every core type.
    pub branches: String,
    /// Largest distance at which an entry still answers, in parts of the key's values (0 to 1).
    pub tolerance: f64,
    /// Most entries per thread [TD: 64].
    pub entries: usize,
    /// Misses in a row after which the thread is wanted on a core type where the metric exists.
    pub misses: u32,
    /// Least time between two such wishes of a thread.
    pub refresh_every: Nanos,
}

impl Default for HistorySettings {
    fn default() -> HistorySettings {
        HistorySettings {
            valid_on: CoreTypeSet::EMPTY.with(CoreTypeId::FASTEST),
            l1_accesses: "L1-dcache-loads".to_owned(),
            branches: "branches".to_owned(),
            tolerance: 0.1,
            entries: 64,
            misses: 5,
            refresh_every: Nanos::from_millis(1000),
        }
    }
}

/// L1 accesses per thousand instructions, branches per instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    l1: f64,
    branches: f64,
}

impl Key {
    /// Largest relative difference of the two parts.
    fn distance(self, o: Key) -> f64 {
        let d = |a: f64, b: f64| {
            let m = a.max(b);
            if m > 0.0 {
                (a - b).abs() / m
            } else {
                0.0
            }
        };
        d(self.l1, o.l1).max(d(self.branches, o.branches))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    /// Speedup and efficiency factor per core type, as the inner provider said.
    factors: [[Option<Estimate>; MAX_CORE_TYPES]; 2],
    at: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Most recently used first.
    table: Vec<Entry>,
    /// What answers now: an entry of the table, or its mean.
    now: Option<(Entry, bool)>,
    here: bool,
    misses: u32,
    wanted: bool,
    wished: Option<Nanos>,
}

/// Where the key's events stand in a core type's sets.
#[derive(Clone, Copy, Debug)]
struct Places {
    instructions: usize,
    l1: usize,
    branches: usize,
}

/// The table in front of `inner`.
pub struct History {
    name: String,
    inner: Box<dyn Provider>,
    settings: HistorySettings,
    places: [Vec<Places>; MAX_CORE_TYPES],
    threads: Threads<Thread>,
    now: Nanos,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl History {
    /// A table in front of `inner`.
    pub fn new(inner: Box<dyn Provider>, settings: HistorySettings) -> History {
        History {
            name: format!("history({})", inner.name()),
            inner,
            settings,
            places: Default::default(),
            threads: Threads::default(),
            now: Nanos::ZERO,
        }
    }

    fn key(&self, r: &Reading) -> Option<Key> {
        let p = self.places.get(r.core_type.index())?.get(r.set as usize)?;
        let at = |i: usize| r.deltas().get(i).map(|c| *c as f64);
        let instructions = at(p.instructions).filter(|i| *i > 0.0)?;
        Some(Key {
            l1: 1000.0 * at(p.l1)? / instructions,
            branches: at(p.branches)? / instructions,
        })
    }

    fn factors(&self, thread: ThreadKey) -> [[Option<Estimate>; MAX_CORE_TYPES]; 2] {
        // what the inner provider is not sure of itself is not remembered
        let good = |e: &Estimate| e.quality != Quality::Partial && e.quality != Quality::Stale;
        let mut out = [[None; MAX_CORE_TYPES]; 2];
        let metrics = [MetricId::SpeedupFactor, MetricId::EfficiencyFactor];
        for (row, metric) in out.iter_mut().zip(metrics) {
            for (t, cell) in row.iter_mut().enumerate() {
                let said = self.inner.estimate(thread, metric(CoreTypeId(t as u8)));
                *cell = said.filter(good);
            }
        }
        out
    }

    fn take_in(&mut self, r: &Reading) {
        let Some(key) = self.key(r) else {
            return;
        };
        let valid = self.settings.valid_on.contains(r.core_type);
        let factors = if valid {
            self.factors(r.thread)
        } else {
            Default::default()
        };
        let (s, now) = (&self.settings, self.now);
        let Some(t) = self.threads.get_mut(r.thread) else {
            return;
        };
        let nearest = t
            .table
            .iter()
            .enumerate()
            .map(|(i, e)| (i, e.key.distance(key)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, d)| *d <= s.tolerance);
        t.here = valid;
        if valid {
            if factors.iter().flatten().all(Option::is_none) {
                return;
            }
            let entry = Entry {
                key,
                factors,
                at: now,
            };
            if let Some((i, _)) = nearest {
                t.table.remove(i);
            }
            t.table.truncate(s.entries.max(1) - 1);
            t.table.insert(0, entry);
            t.now = None;
            (t.misses, t.wanted) = (0, false);
            return;
        }
        if let Some((i, _)) = nearest {
            let entry = t.table.remove(i);
            t.table.insert(0, entry);
            t.now = Some((entry, true));
            (t.misses, t.wanted) = (0, false);
            return;
        }
        t.now = mean(&t.table).map(|e| (e, false));
        t.misses = t.misses.saturating_add(1);
        let due = t
            .wished
            .is_none_or(|w| now.saturating_sub(w) >= s.refresh_every);
        if t.misses >= s.misses && due {
            t.wanted = true;
            t.wished = Some(now);
        }
    }
}

/// What the table says on average; `None` when it is empty.
fn mean(table: &[Entry]) -> Option<Entry> {
    let mut out = *table.first()?;
    for (kind, row) in out.factors.iter_mut().enumerate() {
        for (t, cell) in row.iter_mut().enumerate() {
            let values = || table.iter().filter_map(|e| e.factors[kind][t]);
            let n = values().count() as f64;
            let Some(mut e) = values().next() else {
                *cell = None;
                continue;
            };
            e.value = values().map(|e| e.value).sum::<f64>() / n;
            // not knowing which entry it is: their spread
            let spread = values().map(|x| (x.value - e.value).powi(2)).sum::<f64>() / n;
            e.uncertainty = Some(spread.sqrt().max(e.uncertainty.unwrap_or(0.0)));
            *cell = Some(e);
        }
    }
    out.at = table.iter().map(|e| e.at).min()?;
    Some(out)
}

impl Provider for History {
    fn name(&self) -> &str {
        &self.name
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    /// The inner provider's sets, each with the two events of the key (and instructions) added; a
    /// set of these where the inner one has none.
    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        let inner = self.inner.event_sets(pmus)?;
        let mut out = EventSets::default();
        self.places = Default::default();
        for t in pmus.core_types() {
            let empty = [EventSet::default()];
            let sets = match inner.of(t) {
                [] => &empty[..],
                sets => sets,
            };
            for set in sets {
                let mut set = set.clone();
                let mut place = |name: &str| -> Result<usize, EventError> {
                    let event = pmus.resolve(t, &name.parse::<EventSpec>()?)?;
                    if let Some(i) = set.events.iter().position(|e| e.attr == event.attr) {
                        return Ok(i);
                    }
                    set.events.push(event);
                    Ok(set.events.len() - 1)
                };
                let places = Places {
                    instructions: place("instructions")?,
                    l1: place(&self.settings.l1_accesses)?,
                    branches: place(&self.settings.branches)?,
                };
                if let Some(p) = self.places.get_mut(t.index()) {
                    p.push(places);
                }
                out.push(t, set);
            }
        }
        Ok(out)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.now = snapshot.now;
        self.inner.observe(snapshot);
        self.threads.keep(snapshot, |_| Thread::default());
        for r in &snapshot.readings {
            self.take_in(r);
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (kind, c) = match metric {
            MetricId::SpeedupFactor(c) => (0, c),
            MetricId::EfficiencyFactor(c) => (1, c),
            MetricId::Ipc(_) => return self.inner.estimate(thread, metric),
        };
        let Some(t) = self.threads.get(thread).filter(|t| !t.here) else {
            return self.inner.estimate(thread, metric);
        };
        let (entry, hit) = t.now.as_ref()?;
        let mut e = (*entry.factors.get(kind)?.get(c.index())?)?;
        e.age = self.now.saturating_sub(entry.at);
        e.quality = if *hit {
            Quality::Multiplexed
        } else {
            Quality::Stale
        };
        Some(e)
    }

    fn caveats(&self, thread: ThreadKey) -> Caveats {
        let missed = |t: &Thread| !t.here && !t.now.is_some_and(|(_, hit)| hit);
        Caveats {
            other_phase: self.threads.get(thread).is_some_and(missed),
            ..self.inner.caveats(thread)
        }
    }

    fn wanted_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        let t = self.threads.get(thread)?;
        let mut types = (0..MAX_CORE_TYPES as u8).map(CoreTypeId);
        if t.wanted {
            types.find(|c| self.settings.valid_on.contains(*c))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::testing::{key, readings, snapshot};

    const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

    /// Says what it was told, as long as the thread runs on the big core.
    struct Told(std::sync::Arc<std::sync::Mutex<f64>>);

    impl Provider for Told {
        fn name(&self) -> &str {
            "told"
        }
        fn observe(&mut self, _s: &Snapshot) {}
        fn estimate(&self, _t: ThreadKey, m: MetricId) -> Option<Estimate> {
            (m == SF).then(|| Estimate {
                value: *self.0.lock().unwrap(),
                uncertainty: Some(0.1),
                age: Nanos::ZERO,
                quality: Quality::Exact,
            })
        }
    }

    fn table() -> (History, std::sync::Arc<std::sync::Mutex<f64>>) {
        let said = std::sync::Arc::new(std::sync::Mutex::new(1.0));
        let mut h = History::new(Box::new(Told(said.clone())), HistorySettings::default());
        let pmus = Pmus::generic(&[vec![0], vec![1]], 6);
        let sets = h.event_sets(&pmus).unwrap();
        assert_eq!(sets.of(CoreTypeId(1))[0].events.len(), 3);
        (h, said)
    }

    fn run(h: &mut History, ms: u64, t: u8, l1: u64, branches: u64) {
        h.observe(&snapshot(
            ms,
            &[1],
            vec![readings(
                1,
                t,
                0,
                100,
                &[1_000_000, l1 * 1000, branches * 10_000],
            )],
        ));
    }

    #[test]
    fn phases_are_remembered_on_the_core_type_that_cannot_measure() {
        let (mut h, said) = table();
        *said.lock().unwrap() = 3.0;
        run(&mut h, 0, 0, 300, 10);
        *said.lock().unwrap() = 1.2;
        run(&mut h, 100, 0, 500, 20);
        assert_eq!(h.estimate(key(1), SF).unwrap().value, 1.2);
        // on the little core, in the first phase again
        run(&mut h, 200, 1, 290, 10);
        let e = h.estimate(key(1), SF).unwrap();
        assert_eq!(
            (e.value, e.quality, e.age),
            (3.0, Quality::Multiplexed, Nanos::from_millis(200))
        );
        // in a phase nobody has seen: the mean, and it says so
        run(&mut h, 300, 1, 50, 3);
        let e = h.estimate(key(1), SF).unwrap();
        assert!(
            (e.value - 2.1).abs() < 1e-9
                && e.quality == Quality::Stale
                && e.uncertainty.unwrap() > 0.8
        );
        assert!(h.caveats(key(1)).other_phase);
    }

    #[test]
    fn misses_ask_for_a_refresh_but_not_all_the_time() {
        let (mut h, said) = table();
        *said.lock().unwrap() = 3.0;
        run(&mut h, 0, 0, 300, 10);
        for i in 1..5 {
            run(&mut h, 100 * i, 1, 50, 3);
            assert_eq!(h.wanted_on(key(1)), None);
        }
        run(&mut h, 500, 1, 50, 3);
        assert_eq!(h.wanted_on(key(1)), Some(CoreTypeId(0)));
        run(&mut h, 600, 0, 50, 3);
        assert_eq!(h.wanted_on(key(1)), None);
        for i in 7..14 {
            run(&mut h, 100 * i, 1, 900, 3);
        }
        assert_eq!(h.wanted_on(key(1)), None, "throttled");
        run(&mut h, 1500, 1, 900, 3);
        assert_eq!(h.wanted_on(key(1)), Some(CoreTypeId(0)));
    }

    #[test]
    fn the_table_is_bounded_and_empty_it_says_nothing() {
        let (mut h, _) = table();
        run(&mut h, 0, 1, 100, 10);
        assert_eq!(h.estimate(key(1), SF), None);
        for i in 0..200 {
            run(&mut h, i, 0, 1 << (i % 30), 10);
        }
        assert!(h.threads.get(key(1)).unwrap().table.len() <= 64);
    }
}
