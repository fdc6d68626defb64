//! Sets of events on their targets, by turns.

mod change;
mod overflow;
mod results;
mod totals;

pub use overflow::{Missed, Overflows};
pub use results::{Count, Derived, Judged, Row, Rows, Scope, Window, WindowCount};
pub use totals::Known;

use super::sets::{Set, Unit};
use super::virtuals::VirtualCount;
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::multiplex::{Observation, Sampled, Strategy};
use amp_metrics::{CoreTypeId, Event};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Confidence level of the intervals.
pub const LEVEL: f64 = 0.95;
/// The strategy that asks for no counts.
pub const ROUND_ROBIN: &str = "round-robin";
/// One set whose time differs by less than this part from its threads' was on all the time: two
/// clocks are not read at the same moment.
const SAME_TIME: f64 = 0.005;

/// How often a reading is tried, and the last one.
const TRIES: u32 = 5;
const LAST_TRIES: u32 = 20_000;
/// Time between two tries.
const PAUSE: Duration = Duration::from_micros(100);

/// A row's CPU and thread, and the core type; `None` for whichever.
type Place = (Option<u32>, Option<i32>, Option<CoreTypeId>);

/// A unit of a set, counting.
struct Part {
    set: usize,
    unit: Unit,
    /// The CPU when this is one CPU's share of the unit, the thread when it is one thread's.
    row: Row,
    /// None once its thread has ended.
    groups: Vec<Group>,
    /// Seconds and counts of a thread that has ended.
    ended: Option<(f64, Vec<u64>)>,
    last: (f64, Vec<u64>),
    sampled: Sampled,
}

/// How sets take turns.
pub struct Order {
    /// Which of them is next.
    pub strategy: Box<dyn Strategy>,
    /// How many are on at the same time.
    pub at_once: usize,
}

impl Order {
    /// One after the other.
    pub fn one_by_one(strategy: Box<dyn Strategy>) -> Order {
        Order {
            strategy,
            at_once: 1,
        }
    }
}

/// All sets, of which one or some are on.
pub struct Counting {
    sets: Vec<Set>,
    names: Vec<Option<String>>,
    parts: Vec<Part>,
    clocks: Vec<Group>,
    /// Seconds for which threads ran that have ended.
    ended: Vec<(i32, f64)>,
    /// Seconds for which threads had run before they were found.
    missed: BTreeMap<i32, f64>,
    system: bool,
    order: Order,
    /// The sets that are on, [`Order::at_once`] of them, each once.
    active: Vec<usize>,
    /// Time at which they were put on.
    since_s: f64,
    turns: u64,
    /// Where windows are cut by overflow.
    overflows: Option<Overflows>,
}

impl Counting {
    /// Opens every set on the target, none of them on; `order` says which are next.
    /// `core_types` names what is counted under each core type, as
    /// [`counted_names`](crate::CounterInventory::counted_names) does; with `on_exec` the first set starts when its thread
    /// executes a program. `overflows` cuts windows out of the one set there is then, whose rows are
    /// threads or CPUs.
    ///
    /// # Errors
    /// [`GroupError`], naming the event and the thread or CPU. Threads that end meanwhile are left
    /// out, unless they are all.
    pub fn open(
        sets: &[Set],
        core_types: &[Option<String>],
        scope: &Scope,
        rows: Rows,
        on_exec: bool,
        order: Order,
        overflows: Option<Overflows>,
    ) -> Result<Counting, GroupError> {
        let mut counting = Counting {
            sets: sets.to_vec(),
            names: core_types.to_vec(),
            parts: Vec::new(),
            clocks: Vec::new(),
            ended: Vec::new(),
            missed: BTreeMap::new(),
            system: matches!(scope, Scope::Cpus(_)),
            order,
            active: Vec::new(),
            since_s: 0.0,
            turns: 0,
            overflows,
        };
        counting.active = counting.next(0.0);
        match (scope, rows) {
            (Scope::Tasks(tids), Rows::Threads) => {
                let mut gone = None;
                for &tid in tids {
                    match counting.add_thread(tid, on_exec) {
                        Err(e @ GroupError::Gone { .. }) => gone = Some(e),
                        r => r?,
                    }
                }
                match gone {
                    Some(e) if counting.parts.is_empty() => return Err(e),
                    _ => {}
                }
            }
            (Scope::Tasks(tids), _) => {
                let whom: Vec<Whom> = tids.iter().map(|t| Whom::Task(*t)).collect();
                counting.add(&whom, |_| vec![(Row::default(), whom.clone())], on_exec)?;
            }
            (Scope::Cpus(cpus), _) => {
                let whom: Vec<Whom> = cpus.iter().map(|c| Whom::Cpu(*c)).collect();
                counting.add(&whom, |unit| split(unit, cpus, rows), on_exec)?;
            }
        }
        Ok(counting)
    }

    /// Opens every set on whom `split` says for its unit, and clocks for `whom`.
    fn add(
        &mut self,
        whom: &[Whom],
        split: impl Fn(&Unit) -> Vec<(Row, Vec<Whom>)>,
        on_exec: bool,
    ) -> Result<(), GroupError> {
        let mut parts = Vec::new();
        for (s, set) in self.sets.iter().enumerate() {
            for unit in &set.units {
                for (row, whom) in split(unit) {
                    let on_exec = on_exec && (self.active.contains(&s) || unit.is_always_on());
                    // one interruption of whoever is counted per reading, not one per event
                    let open = |events: &[Event], w| match (&self.overflows, unit.instructions) {
                        (Some(o), Some(leader)) => o.open(events, leader, w, on_exec),
                        _ => Group::open_at_once(events, w, on_exec),
                    };
                    let each = |w: &Whom| {
                        let w = *w;
                        unit.opened_on(w.cpu()).into_iter().map(move |e| (e, w))
                    };
                    let groups = open_all(whom.iter().flat_map(each), |(e, w)| open(&e, w))?;
                    parts.push(Part {
                        set: s,
                        unit: unit.clone(),
                        row,
                        groups,
                        ended: None,
                        last: (0.0, vec![0; unit.events.len()]),
                        sampled: Sampled::new(unit.events.len()),
                    });
                }
            }
        }
        let clocks = open_all(whom, |w| Group::clock(*w, on_exec))?;
        if let Some(o) = &mut self.overflows {
            o.watch(&parts, self.parts.len())?;
        }
        self.clocks.extend(clocks);
        self.parts.extend(parts);
        Ok(())
    }

    fn add_thread(&mut self, tid: i32, on_exec: bool) -> Result<(), GroupError> {
        let row = Row {
            cpu: None,
            tid: Some(tid),
            thread: Some(name(tid)),
        };
        let whom = [Whom::Thread(tid)];
        self.add(&whom, |_| vec![(row.clone(), whom.to_vec())], on_exec)
    }

    /// Takes in a thread that was found while counting, which has run for `before_s` seconds. One
    /// that is gone already is left out.
    ///
    /// # Errors
    /// As [`Counting::open`].
    pub fn adopt(&mut self, tid: i32, before_s: f64) -> Result<(), GroupError> {
        let (parts, clocks) = (self.parts.len(), self.clocks.len());
        match self.add_thread(tid, false) {
            Err(GroupError::Gone { .. }) => return Ok(()),
            r => r?,
        }
        self.missed.insert(tid, before_s);
        let new = self.parts.iter_mut().skip(parts);
        let groups = new.filter(|p| p.is_on_with(&self.active));
        let groups = groups.flat_map(|p| &mut p.groups);
        let clocks = self.clocks.iter_mut().skip(clocks);
        groups.chain(clocks).try_for_each(Group::start)
    }

    /// Closes the events of threads that have ended, by `has_ended`, which is asked once for each that has open ones, and keeps what they
    /// have counted: a process may start more threads than there may be open files. Those whose windows are yet to be taken out come later.
    ///
    /// # Errors
    /// As [`Counting::turn`].
    pub fn let_go_of(&mut self, has_ended: impl Fn(i32) -> bool) -> Result<(), GroupError> {
        let tid_of = |clock: &Group| match clock.whom() {
            Whom::Thread(tid) => Some(tid),
            _ => None,
        };
        let open = self.parts.iter().filter(|p| !p.groups.is_empty());
        let open = open.filter_map(|p| p.row.tid);
        let open: BTreeSet<i32> = open.chain(self.clocks.iter().filter_map(tid_of)).collect();
        let gone: BTreeSet<i32> = open.into_iter().filter(|t| has_ended(*t)).collect();
        let has_ended = |tid: Option<i32>| tid.is_some_and(|t| gone.contains(&t));
        for p in self.parts.iter_mut().filter(|p| has_ended(p.row.tid)) {
            let cut = || self.overflows.as_ref().is_some_and(|o| o.reads(&p.row));
            if p.groups.is_empty() || cut() {
                continue;
            }
            match p.counted(TRIES) {
                Ok(all) => p.ended = Some(all),
                Err(e) if e.is_passing() => continue,
                Err(e) => return Err(e),
            }
            p.groups.clear();
        }
        let mut i = 0;
        while let Some(clock) = self.clocks.get_mut(i) {
            match tid_of(clock).filter(|tid| gone.contains(tid)) {
                Some(tid) => {
                    self.ended.push((tid, clock.read()?.enabled.as_secs_f64()));
                    self.clocks.swap_remove(i);
                }
                None => i += 1,
            }
        }
        Ok(())
    }

    /// Looks up the names of threads anew: a thread may have named itself, or have become another
    /// program.
    pub fn rename(&mut self) {
        let mut names: BTreeMap<i32, String> = BTreeMap::new();
        for p in self.parts.iter_mut().filter(|p| p.ended.is_none()) {
            if let Some(tid) = p.row.tid {
                let now = names.entry(tid).or_insert_with(|| name(tid));
                // the last name of one that is gone is kept
                if !now.starts_with('?') {
                    p.row.thread = Some(now.clone());
                }
            }
        }
    }

    /// Starts the first set, where no program's start does.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<(), GroupError> {
        self.clocks.iter_mut().try_for_each(Group::start)?;
        self.switch_always_on(true)?;
        self.switch_active(true)
    }

    /// Ends an interval at `at_s` seconds: notes what the sets that are on have counted, and puts the
    /// next ones on unless it was the `last`.
    ///
    /// # Errors
    /// [`GroupError::Taken`] when the counters were taken.
    pub fn turn(&mut self, at_s: f64, last: bool) -> Result<Window, GroupError> {
        let on = self.active.clone();
        if last {
            self.clocks.iter_mut().try_for_each(Group::stop)?;
            self.switch_always_on(false)?;
        }
        let many = self.sets.len() > 1;
        // a choice that does not depend on what was counted need not wait for it: the less time
        // goes by uncounted
        let blind = self.strategy() == ROUND_ROBIN;
        if many && !last && blind {
            self.active = self.next(at_s);
            self.replace_by_active(&on)?;
        } else if last || many {
            self.switch_active(false)?;
        }
        let window = self.read(&on, at_s, last)?;
        self.turns += 1;
        if many && !last && !blind {
            self.active = self.next(at_s);
            self.switch_active(true)?;
        }
        self.since_s = at_s;
        Ok(window)
    }

    /// What the sets `on` have counted since they were read last, and that the others have not.
    fn read(&mut self, on: &[usize], at_s: f64, last: bool) -> Result<Window, GroupError> {
        let mut window = Window {
            at_s,
            set: on.first().map_or(0, |s| s + 1),
            counts: Vec::new(),
            virtual_counters: Vec::new(),
        };
        // time by row and core type, and by row on whichever
        let mut times: HashMap<Place, f64> = HashMap::new();
        let mut seen: BTreeMap<(u64, usize), (Vec<f64>, f64, f64)> = BTreeMap::new();
        let counts = |p: &&mut Part| p.is_on_with(on) && !p.is_told();
        for p in self.parts.iter_mut().filter(counts) {
            let (seconds, counts) = p.advance(last)?;
            p.sampled.add(seconds, &counts);
            let (cpu, tid, core_type) = (p.row.cpu, p.row.tid, p.unit.core_type);
            let of_type = times.entry((cpu, tid, core_type)).or_default();
            *of_type = of_type.max(seconds);
            if let Some(t) = core_type {
                // each set that is on adds the same time
                *times.entry((cpu, tid, None)).or_default() += seconds / on.len() as f64;
                // one subject per core type and row
                let subject = t.index() as u64 | (row_number(cpu, tid) << 8);
                let o = seen.entry((subject, p.set)).or_default();
                o.0.extend(counts.iter().map(|c| *c as f64));
                let of = |i: Option<usize>| i.and_then(|i| counts.get(i)).map(|c| *c as f64);
                o.1 = of(p.unit.instructions).unwrap_or(o.1);
                o.2 = of(p.unit.cycles).unwrap_or(o.2);
            }
            for (event, count) in p.unit.events.iter().zip(counts) {
                window.counts.push(WindowCount {
                    event: event.name.clone(),
                    pmu: Some(p.unit.pmu.clone()),
                    core_type: p.type_name(&self.names),
                    row: p.row.clone(),
                    count: Some(count),
                    seconds,
                });
            }
        }
        let not_supported = on.iter().filter_map(|s| self.sets.get(*s));
        for n in not_supported.flat_map(|s| &s.not_supported) {
            window.counts.push(WindowCount {
                event: n.event.clone(),
                pmu: n.pmu.clone(),
                core_type: type_name(n.core_type, &self.names),
                row: Row::default(),
                count: None,
                seconds: 0.0,
            });
        }
        for p in self.parts.iter_mut().filter(|p| !p.is_on_with(on)) {
            let key = (p.row.cpu, p.row.tid, p.unit.core_type);
            p.sampled.skip(times.get(&key).copied().unwrap_or(0.0));
        }
        let (from, to) = (self.since_s, at_s);
        for ((subject, set), (counts, instructions, cycles)) in seen {
            // a length of nothing has no rates
            if to > from {
                self.order.strategy.observe(&Observation {
                    subject,
                    set,
                    from,
                    to,
                    counts: &counts,
                    ipc: if cycles > 0.0 {
                        instructions / cycles
                    } else {
                        0.0
                    },
                });
            }
        }
        Ok(window)
    }

    /// Number of intervals.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The strategy's name.
    pub fn strategy(&self) -> &'static str {
        self.order.strategy.name()
    }

    /// How many sets are on at the same time.
    pub fn at_once(&self) -> usize {
        self.active.len().max(1)
    }
}

fn type_name(t: Option<CoreTypeId>, names: &[Option<String>]) -> Option<String> {
    names.get(t?.index()).cloned().flatten()
}

/// A number for a row that no other row of the same run has.
fn row_number(cpu: Option<u32>, tid: Option<i32>) -> u64 {
    match (cpu, tid) {
        (Some(c), _) => u64::from(c) + 1,
        (None, Some(t)) => u64::from(t.unsigned_abs()),
        (None, None) => 0,
    }
}

/// `name-tid` of a thread, as perf writes it.
fn name(tid: i32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{tid}/comm"));
    format!(
        "{}-{tid}",
        comm.map_or_else(|_| "?".into(), |c| c.trim().to_owned())
    )
}

impl Part {
    /// What has metrics of its own: PMU, CPU, thread.
    fn key(&self) -> (&str, Option<u32>, Option<i32>) {
        (&self.unit.pmu, self.row.cpu, self.row.tid)
    }

    /// Whether it counts while these sets are on: what needs no counter does so all the time.
    fn is_on_with(&self, sets: &[usize]) -> bool {
        sets.contains(&self.set) || self.unit.is_always_on()
    }

    fn type_name(&self, names: &[Option<String>]) -> Option<String> {
        type_name(self.unit.core_type, names)
    }

    /// Whether its thread has ended, and all that it counted has been taken.
    fn is_told(&self) -> bool {
        self.ended.as_ref() == Some(&self.last)
    }

    /// Seconds and counts since the last call. None at all where a thread that was started ends
    /// just now: the next call has them, and the `last` one waits.
    fn advance(&mut self, last: bool) -> Result<(f64, Vec<u64>), GroupError> {
        let now = match self.counted(if last { LAST_TRIES } else { TRIES }) {
            Err(e) if e.is_passing() && !last => return Ok((0.0, vec![0; self.unit.events.len()])),
            now => now?,
        };
        let before = std::mem::replace(&mut self.last, now.clone());
        let counts = now.1.iter().zip(&before.1);
        Ok((
            (now.0 - before.0).max(0.0),
            counts.map(|(a, b)| a.saturating_sub(*b)).collect(),
        ))
    }

    /// Seconds and counts since it was opened; each group is tried so many times.
    fn counted(&mut self, tries: u32) -> Result<(f64, Vec<u64>), GroupError> {
        if let Some(all) = &self.ended {
            return Ok(all.clone());
        }
        let mut all = (0.0, vec![0u64; self.unit.events.len()]);
        for g in &mut self.groups {
            let read = patient(|| g.read(), tries)?;
            all.0 += read.running.as_secs_f64();
            for (sum, c) in all.1.iter_mut().zip(read.counts) {
                *sum = sum.wrapping_add(c);
            }
        }
        if self.unit.is_beside_cores() {
            // the time that passed, and not as often as there are memory controllers
            all.0 /= self.groups.len().max(1) as f64;
        }
        Ok(all)
    }
}

/// Reads a group, up to so many times while the kernel takes one of its children apart.
fn patient<T>(
    mut read: impl FnMut() -> Result<T, GroupError>,
    tries: u32,
) -> Result<T, GroupError> {
    for _ in 1..tries {
        match read() {
            Err(e) if e.is_passing() => std::thread::sleep(PAUSE),
            r => return r,
        }
    }
    read()
}

/// On which CPUs a unit is opened; one entry for each count that is to be shown.
fn split(unit: &Unit, all: &[u32], rows: Rows) -> Vec<(Row, Vec<Whom>)> {
    let here = |c: &&u32| unit.cpus.is_empty() || unit.cpus.contains(c);
    let cpus = all.iter().filter(here).copied();
    match rows {
        Rows::Cpus => cpus
            .map(|c| {
                let row = Row {
                    cpu: Some(c),
                    ..Row::default()
                };
                (row, vec![Whom::Cpu(c)])
            })
            .collect(),
        _ => vec![(Row::default(), cpus.map(Whom::Cpu).collect())],
    }
}

/// Opens a group on each; threads that are gone are left out, unless they are all.
fn open_all<W>(
    whom: impl IntoIterator<Item = W>,
    open: impl Fn(W) -> Result<Group, GroupError>,
) -> Result<Vec<Group>, GroupError> {
    let mut groups = Vec::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> GroupError {
        GroupError::Io {
            event: "cycles".into(),
            whom: Whom::Task(7),
            source: std::io::Error::from_raw_os_error(code),
        }
    }

    #[test]
    fn a_reading_waits_for_a_child_that_ends_and_for_nothing_else() {
        let tried = |mut errors: Vec<i32>, tries| {
            let mut calls = 0;
            let mut read = || {
                calls += 1;
                errors.pop().map_or(Ok(()), |code| Err(error(code)))
            };
            let done = patient(&mut read, tries).map_err(|e| e.is_passing());
            (done, calls)
        };
        assert_eq!(tried(vec![], 5), (Ok(()), 1));
        assert_eq!(tried(vec![libc::ECHILD; 2], 5), (Ok(()), 3));
        assert_eq!(tried(vec![libc::ECHILD; 9], 5), (Err(true), 5));
        assert_eq!(tried(vec![libc::EIO; 9], 5), (Err(false), 1));
    }

    #[test]
    fn a_row_is_opened_where_it_counts() {
        let here = |cpus: &[u32]| Unit::of_cpus("p", cpus);
        let whom = |unit: &Unit, rows| -> Vec<Vec<Whom>> {
            let all = split(unit, &[0, 1, 2], rows);
            all.into_iter().map(|(_, whom)| whom).collect()
        };
        let two = here(&[1, 2]);
        assert_eq!(whom(&two, Rows::Summed), [[Whom::Cpu(1), Whom::Cpu(2)]]);
        assert_eq!(whom(&two, Rows::Cpus), [[Whom::Cpu(1)], [Whom::Cpu(2)]]);
        assert_eq!(whom(&here(&[]), Rows::Cpus).len(), 3, "software events");
    }
}
