//! The table of threads: its order, what is left out, and what only a row of statuses shows.

use crate::status::{Metric, Status, ThreadStatus};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// Looks that a thread's history holds.
pub const HISTORY: usize = 60;

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// CPU time since the last look.
    Cpu,
    /// Speedup factor.
    Speedup,
    /// Efficiency factor.
    Efficiency,
    /// Slowdown.
    Slowdown,
    /// Share of its CPU time on the fastest core type.
    Big,
    /// Kernel thread id.
    Tid,
    /// Command name.
    Name,
}

impl Sort {
    /// All of them, in the order that a key goes through them.
    pub const ALL: [Sort; 7] = [
        Sort::Cpu,
        Sort::Speedup,
        Sort::Efficiency,
        Sort::Slowdown,
        Sort::Big,
        Sort::Tid,
        Sort::Name,
    ];

    /// The one after this, round and round.
    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|s| *s == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// Whether small comes first unless that is reversed.
    fn ascends(self) -> bool {
        matches!(self, Sort::Tid | Sort::Name)
    }
}

/// A thread, and what it did between looks.
#[derive(Clone, Debug)]
pub struct Row {
    /// The thread in the last status.
    pub thread: ThreadStatus,
    /// CPUs' worth of time since the look before, 0 to 1; none at its first.
    pub cpu: Option<f64>,
    /// Between each two looks, the share of its CPU time on the fastest core type; none when it did
    /// not run. The newest is the last.
    pub history: VecDeque<Option<f64>>,
    /// The fastest core type's name.
    fastest: String,
}

impl Row {
    /// A metric: `sf` or `ef` over the slowest core type, of the fastest one.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        let metrics = &self.thread.metrics;
        // with three core types and more, each has factors of its own
        let of_fastest = || metrics.get(&format!("{name}_{}", self.fastest));
        metrics.get(name).or_else(of_fastest)
    }

    /// How many times as long it took as with the fast cores to itself; none while not known.
    pub fn slowdown(&self) -> Option<f64> {
        let t = &self.thread;
        (t.alone_s > 0.0).then(|| t.rated_s / t.alone_s)
    }

    fn by(&self, sort: Sort) -> Option<f64> {
        let value = |name| self.metric(name).map(|m| m.value);
        match sort {
            Sort::Cpu => self.cpu,
            Sort::Speedup => value("sf"),
            Sort::Efficiency => value("ef"),
            Sort::Slowdown => self.slowdown(),
            Sort::Big => Some(self.thread.big_time_share),
            Sort::Tid => Some(self.thread.tid as f64),
            Sort::Name => None,
        }
    }

    /// Whether anything that is shown of it contains the lower-case text.
    fn has(&self, text: &str) -> bool {
        let t = &self.thread;
        let words = [&t.comm, &t.core_type, &t.placed, &t.rule];
        words.iter().any(|w| w.to_lowercase().contains(text))
            || [t.tid.to_string(), t.app.to_string()].contains(&text.to_owned())
    }
}

/// What is remembered of a thread from look to look.
struct Track {
    app: u64,
    cpu_s: f64,
    big_s: f64,
    cpu: Option<f64>,
    history: VecDeque<Option<f64>>,
    missed: usize,
}

/// The threads of the last status in the order of the table.
pub struct Threads {
    rows: Vec<Row>,
    tracks: HashMap<i64, Track>,
    uptime_s: f64,
    /// What they are sorted by.
    pub sort: Sort,
    /// Whether the other way round.
    pub reverse: bool,
    filter: String,
    shown: Vec<usize>,
    selected: Option<i64>,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            rows: Vec::new(),
            tracks: HashMap::new(),
            uptime_s: 0.0,
            sort: Sort::Cpu,
            reverse: false,
            filter: String::new(),
            shown: Vec::new(),
            selected: None,
        }
    }
}

impl Threads {
    /// Those of the next status.
    pub fn take_in(&mut self, status: &Status) {
        let before = self.at();
        let passed = status.uptime_s - self.uptime_s;
        if passed < 0.0 {
            // another scheduler, which counts from the start
            self.tracks.clear();
        }
        self.uptime_s = status.uptime_s;
        for track in self.tracks.values_mut() {
            track.missed += 1;
        }
        let fastest = status.core_types.first().cloned().unwrap_or_default();
        self.rows.clear();
        for t in &status.per_thread {
            let track = self.tracks.remove(&t.tid);
            // another thread may have got the number
            let same = track.filter(|k| k.app == t.app && k.cpu_s <= t.cpu_s);
            let track = next(same, t, passed);
            self.rows.push(Row {
                thread: t.clone(),
                cpu: track.cpu,
                history: track.history.clone(),
                fastest: fastest.clone(),
            });
            self.tracks.insert(t.tid, track);
        }
        // those that rest are not in every status
        self.tracks.retain(|_, t| t.missed < HISTORY);
        self.arrange();
        if let (Some(before), None) = (before, self.at()) {
            self.select(before);
        }
    }

    /// All threads of the last status.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Those that the filter leaves, in order.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.shown.iter().map(|i| &self.rows[*i])
    }

    /// What names, core types, rules or numbers of those shown have to contain.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows only what contains that text.
    pub fn set_filter(&mut self, text: &str) {
        text.clone_into(&mut self.filter);
        self.arrange();
        if self.selected.is_some() && self.at().is_none() {
            self.selected = None;
        }
    }

    /// Sorts otherwise.
    pub fn set_sort(&mut self, sort: Sort, reverse: bool) {
        (self.sort, self.reverse) = (sort, reverse);
        self.arrange();
    }

    /// Which of those shown is selected.
    pub fn at(&self) -> Option<usize> {
        let tid = self.selected?;
        self.shown().position(|r| r.thread.tid == tid)
    }

    /// Selects the one at that place, or the last one.
    pub fn select(&mut self, at: usize) {
        let last = self.shown.len().checked_sub(1);
        let found = last.map(|last| self.shown[at.min(last)]);
        self.selected = found.map(|i| self.rows[i].thread.tid);
    }

    /// Selects none.
    pub fn select_none(&mut self) {
        self.selected = None;
    }

    fn arrange(&mut self) {
        let text = self.filter.to_lowercase();
        let (rows, sort) = (&self.rows, self.sort);
        let turned = sort.ascends() == self.reverse;
        self.shown = (0..rows.len()).filter(|i| rows[*i].has(&text)).collect();
        self.shown.sort_by(|a, b| {
            let (a, b) = (&rows[*a], &rows[*b]);
            let order = match (sort, a.by(sort), b.by(sort)) {
                (Sort::Name, ..) => a.thread.comm.cmp(&b.thread.comm),
                (_, Some(a), Some(b)) => a.total_cmp(&b),
                // what is not known comes last either way
                (_, None, None) => Ordering::Equal,
                (_, Some(_), None) => return Ordering::Less,
                (_, None, Some(_)) => return Ordering::Greater,
            };
            let order = if turned { order.reverse() } else { order };
            order.then(a.thread.tid.cmp(&b.thread.tid))
        });
    }
}

/// What is remembered of `t` now, `passed` seconds after what was remembered.
fn next(before: Option<Track>, t: &ThreadStatus, passed: f64) -> Track {
    let big_s = t.cpu_s * t.big_time_share;
    let Some(mut track) = before else {
        return Track {
            app: t.app,
            cpu_s: t.cpu_s,
            big_s,
            cpu: None,
            history: VecDeque::new(),
            missed: 0,
        };
    };
    // in the looks that it was missing from it rested
    for _ in 1..track.missed.min(HISTORY) {
        track.history.push_back(None);
    }
    let ran = t.cpu_s - track.cpu_s;
    if passed > 0.0 {
        let share = ((big_s - track.big_s) / ran).clamp(0.0, 1.0);
        track.history.push_back((ran > 0.0).then_some(share));
        track.cpu = Some((ran / passed).clamp(0.0, 1.0));
    }
    while track.history.len() > HISTORY {
        track.history.pop_front();
    }
    (track.cpu_s, track.big_s, track.missed) = (t.cpu_s, big_s, 0);
    track
}
