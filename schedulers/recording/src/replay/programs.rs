//! Programs of a recording: processes, or processes of one name that follow each other.

use super::stretches::{cut, Source, Stretch};
use crate::read::{Ran, Recording};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Share of a span in which a thread must have run to count as busy, unless it waits at the end.
const BUSY: f64 = 0.1;
/// Share of the CPUs' time from which on a span is full: whoever does not run may be waiting.
const FULL: f64 = 0.95;
/// Share of a program's active time in which it may have had more threads than it is given.
const RARE: f64 = 0.05;
/// Least relative uncertainty of a ratio of speeds in different stretches.
const LEAST_U: f64 = 0.02;

/// A program, cut into stretches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    pub name: String,
    pub threads: u32,
    pub weight: u32,
    pub stretches: Vec<Stretch>,
    /// Everything it did.
    whole: Stretch,
    /// By core type: how much its speed differs from stretch to stretch, relatively.
    scatter: Vec<f64>,
}

impl Program {
    pub fn cpu_s(&self) -> f64 {
        self.whole.busy_s()
    }

    /// The speedup factor of a stretch, fastest core type over slowest, with its uncertainty and
    /// where it is from. `positions` are those of the core types.
    pub fn source(&self, s: &Stretch, positions: &[f64]) -> (Source, Option<(f64, f64)>) {
        if positions.len() < 2 {
            return (Source::Counted, Some((1.0, 0.0)));
        }
        if let Some((sf, ..)) = pair(s, positions) {
            return (Source::Counted, Some((sf, 0.0)));
        }
        let told = s.told_sf().map(|sf| (Source::Provider, sf));
        let own = pair(&self.whole, positions).map(|(sf, a, b)| {
            let scatter = self.scatter[a].hypot(self.scatter[b]).max(LEAST_U);
            (Source::Program, (sf, sf * scatter))
        });
        let mut known: Vec<_> = told.into_iter().chain(own).collect();
        known.sort_by(|(_, (_, u)), (_, (_, v))| u.total_cmp(v));
        match known.first() {
            Some((source, sf)) => (*source, Some(*sf)),
            None => (Source::Nothing, None),
        }
    }

    /// A core type on which the speed of a stretch is known, and that speed: where most was
    /// counted; in the whole program, where nothing was in the stretch.
    pub fn anchor(&self, s: &Stretch) -> Option<(usize, f64)> {
        let best = |s: &Stretch| {
            let types = (0..s.counted_s.len()).filter_map(|t| Some((t, s.ips(t)?)));
            types.max_by(|a, b| s.counted_s[a.0].total_cmp(&s.counted_s[b.0]))
        };
        best(s).or_else(|| best(&self.whole))
    }
}

/// The speedup factor by the two core types farthest apart on which speeds are known, and those.
pub(super) fn pair(s: &Stretch, positions: &[f64]) -> Option<(f64, usize, usize)> {
    let known: Vec<(usize, f64)> = (0..positions.len())
        .filter_map(|t| Some((t, s.ips(t)?)))
        .collect();
    let ((a, fast), (b, slow)) = (*known.first()?, *known.last()?);
    let apart = positions[a] - positions[b];
    (apart > 0.0).then(|| ((fast / slow).powf(1.0 / apart), a, b))
}

/// A process while it is collected.
#[derive(Default)]
struct Process {
    comm: String,
    weight: u32,
    /// What it did, by number of the span.
    spans: BTreeMap<usize, Stretch>,
    /// How many threads were busy, by number of the span.
    busy: BTreeMap<usize, u32>,
}

/// The programs of `recording`.
pub(super) fn of(recording: &Recording) -> Vec<Program> {
    let types = recording.topology.core_types().len();
    let mut processes: FxHashMap<u64, Process> = FxHashMap::default();
    for (n, span) in recording.spans.iter().enumerate() {
        let cpus: usize = recording
            .topology
            .core_types()
            .iter()
            .map(|t| t.cpus.len())
            .sum();
        let busy: f64 = span.ran.iter().flat_map(|r| &r.cpu_s).sum();
        let runnable = span.ran.iter().filter(|r| r.runnable).count();
        let full = busy >= FULL * cpus as f64 * span.length_s || runnable >= cpus;
        for ran in &span.ran {
            let who = &recording.threads[ran.thread];
            let p = processes.entry(who.pid).or_default();
            // a process is called as its first thread is
            if p.comm.is_empty() || u64::try_from(who.tid) == Ok(who.pid) {
                (p.comm, p.weight) = (who.comm.clone(), who.weight.max(1));
            }
            let s = p
                .spans
                .entry(n)
                .or_insert_with(|| Stretch::of(types, span.length_s));
            take_in(s, ran, full);
            let ran_s: f64 = ran.cpu_s.iter().sum();
            if ran.runnable || ran_s >= BUSY * span.length_s {
                *p.busy.entry(n).or_default() += 1;
            }
        }
    }
    let lengths: Vec<f64> = recording.spans.iter().map(|s| s.length_s).collect();
    let programs = queue_up(processes.into_iter().collect());
    programs
        .into_iter()
        .map(|p| finish(p, &lengths, types))
        .collect()
}

fn take_in(s: &mut Stretch, ran: &Ran, full: bool) {
    let lists = [
        (&mut s.cpu_s, &ran.cpu_s),
        (&mut s.instructions, &ran.instructions),
        (&mut s.counted_s, &ran.counted_s),
    ];
    for (to, from) in lists {
        for (to, from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
    let cpu: f64 = ran.cpu_s.iter().sum();
    match full {
        true => {
            s.full_s += cpu;
            s.wanted_s += if ran.runnable { s.length_s } else { 0.0 };
        }
        false => s.free_s += cpu,
    }
    if let Some(Some((sf, u))) = ran.sf.first() {
        s.sf += sf * cpu;
        s.sf_u += u.unwrap_or(0.0) * cpu;
        s.sf_s += cpu;
    }
}

/// Puts processes of one name behind each other where they do not overlap.
fn queue_up(processes: Vec<(u64, Process)>) -> Vec<Process> {
    let first = |p: &Process| p.spans.keys().next().copied().unwrap_or(0);
    let last = |p: &Process| p.spans.keys().next_back().copied().unwrap_or(0);
    let mut processes = processes;
    processes.sort_by(|(i, a), (j, b)| (&a.comm, first(a), i).cmp(&(&b.comm, first(b), j)));
    let mut out: Vec<Process> = Vec::new();
    for (_, p) in processes {
        // one that ends and one that begins may share a span
        let place = out
            .iter_mut()
            .find(|o| o.comm == p.comm && last(o) <= first(&p));
        let Some(before) = place else {
            out.push(p);
            continue;
        };
        for (n, s) in p.spans {
            match before.spans.entry(n) {
                std::collections::btree_map::Entry::Vacant(e) => drop(e.insert(s)),
                std::collections::btree_map::Entry::Occupied(mut e) => {
                    let length_s = s.length_s;
                    e.get_mut().add(&s);
                    e.get_mut().length_s = length_s;
                }
            }
        }
        for (n, busy) in p.busy {
            let before = before.busy.entry(n).or_default();
            *before = busy.max(*before);
        }
    }
    out
}

fn finish(mut p: Process, lengths: &[f64], types: usize) -> Program {
    let mut counts: Vec<(u32, f64)> = p.busy.iter().map(|(n, b)| (*b, lengths[*n])).collect();
    counts.sort_unstable_by_key(|c| std::cmp::Reverse(c.0));
    let active: f64 = counts.iter().map(|c| c.1).sum();
    let mut above = 0.0;
    let usual = counts.iter().find(|(_, length)| {
        above += length;
        above > RARE * active
    });
    let threads = usual.map_or(1, |c| c.0).max(1);
    let spans = lengths.iter().enumerate().map(|(n, length)| {
        let mut s = p
            .spans
            .remove(&n)
            .unwrap_or_else(|| Stretch::of(types, *length));
        if let Some(busy) = p.busy.get(&n) {
            s.threads_s = f64::from(*busy) * length;
            s.active_s = *length;
        }
        s
    });
    let stretches = cut(spans);
    let mut whole = Stretch::of(types, 0.0);
    stretches.iter().for_each(|s| whole.add(s));
    let scatter = (0..types).map(|t| scatter(&stretches, t)).collect();
    Program {
        name: p.comm,
        threads,
        weight: p.weight.max(1),
        stretches,
        whole,
        scatter,
    }
}

/// Standard deviation of the logarithm of the speed on core type `t`, by counted time.
fn scatter(stretches: &[Stretch], t: usize) -> f64 {
    let known = || {
        stretches
            .iter()
            .filter_map(|s| Some((s.ips(t)?.ln(), s.counted_s[t])))
    };
    let total: f64 = known().map(|(_, w)| w).sum();
    let mean = known().map(|(x, w)| x * w).sum::<f64>() / total;
    let spread = known().map(|(x, w)| (x - mean).powi(2) * w).sum::<f64>() / total;
    if spread.is_finite() {
        spread.sqrt()
    } else {
        0.0
    }
}

/// Gives every program a name of its own.
pub(super) fn name(programs: &mut [Program]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let taken: std::collections::BTreeSet<String> =
        programs.iter().map(|p| p.name.clone()).collect();
    for p in programs {
        if p.name.trim().is_empty() {
            p.name = "?".to_owned();
        }
        let n = seen.entry(p.name.clone()).or_default();
        *n += 1;
        if *n > 1 {
            let numbered = (*n..).map(|i| format!("{}-{i}", p.name));
            p.name = numbered
                .into_iter()
                .find(|n| !taken.contains(n))
                .unwrap_or_default();
        }
    }
}
