//! From ticks to lines.
//!
//! The recorder does no I/O: whoever owns it hands each [`Chunk`] to something that writes, and
//! says with [`Recorder::taken`] that it was taken. What was not taken is not lost: the next line
//! covers the longer time.

use crate::format::{Change, Factor, Header, ThreadTick, Who};
use amp_metrics::{
    CoreTypeId, Estimate, EventSets, MetricId, Nanos, Provider, Quality, Snapshot, ThreadKey,
    MAX_CORE_TYPES,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The file it belongs to, by number within the recording. A number that is new begins a file.
    pub part: u32,
    /// The bytes: whole lines.
    pub bytes: Vec<u8>,
}

/// Finds the command line of a process; none where its thread `who` is called otherwise by now: it
/// is told again under its new name.
pub type CommandOf = fn(who: &Who) -> Option<Vec<String>>;

/// Turns snapshots into lines.
#[derive(Debug)]
pub struct Recorder {
    header: Header,
    most: u64,
    command_of: Option<CommandOf>,
    /// Where the instructions stand in the deltas of each event set, by core type.
    instructions: [Vec<Option<usize>>; MAX_CORE_TYPES],
    known: FxHashMap<ThreadKey, Known>,
    next_id: u32,
    looks: u64,
    began: Option<Nanos>,
    now: Nanos,
    written_at: u64,
    /// Bytes of the present file so far.
    bytes: u64,
    change: Option<Change>,
    draft: Draft,
}

/// What was told of a thread, and what is still to be told.
#[derive(Debug, Default)]
struct Known {
    id: u32,
    seen: u64,
    gone: bool,
    /// Told in the present file.
    told: bool,
    comm: [u8; 16],
    who: Who,
    runtime: [Nanos; MAX_CORE_TYPES],
    cpu: [u64; MAX_CORE_TYPES],
    counted: [u64; MAX_CORE_TYPES],
    ins: [u64; MAX_CORE_TYPES],
    runnable: bool,
    on: Option<u8>,
    sf: Vec<Option<Factor>>,
    ef: Vec<Option<Factor>>,
    phase: Option<u32>,
}

/// What the line under construction would settle.
#[derive(Debug, Default)]
struct Draft {
    part: u32,
    bytes: u64,
    t: u64,
    threads: Vec<(ThreadKey, Factors)>,
    gone: Vec<ThreadKey>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Factors {
    sf: Vec<Option<Factor>>,
    ef: Vec<Option<Factor>>,
    phase: Option<u32>,
}

impl Recorder {
    /// A recorder whose files have `most` bytes each at most. Instructions are those that `sets`
    /// count. With `command_of`, command lines are recorded.
    pub fn new(
        header: Header,
        most: u64,
        sets: &EventSets,
        command_of: Option<CommandOf>,
    ) -> Recorder {
        let mut recorder = Recorder {
            header: Header {
                commands: command_of.is_some(),
                ..header
            },
            most,
            command_of,
            instructions: Default::default(),
            known: FxHashMap::default(),
            next_id: 0,
            looks: 0,
            began: None,
            now: Nanos::ZERO,
            written_at: 0,
            bytes: 0,
            change: None,
            draft: Draft::default(),
        };
        recorder.count(sets);
        recorder
    }

    /// From now on the events of `sets` are counted.
    pub fn count(&mut self, sets: &EventSets) {
        for (t, places) in self.instructions.iter_mut().enumerate() {
            let sets = sets.of(CoreTypeId(t as u8)).iter();
            *places = sets.map(|s| s.position("instructions")).collect();
        }
    }

    /// The scheduler works in another way from now on.
    pub fn changed(&mut self, change: Change) {
        self.change = Some(change);
    }

    /// The scheduler was loaded again: every thread begins anew.
    pub fn begin_anew(&mut self) {
        for k in self.known.values_mut() {
            k.gone = true;
        }
        // old keys must not meet new ones
        let old: Vec<Known> = self.known.drain().map(|(_, k)| k).collect();
        for k in old.into_iter().filter(|k| k.told) {
            let key = ThreadKey {
                slot: u32::MAX,
                generation: k.id,
            };
            self.known.insert(key, k);
        }
    }

    /// Takes in one tick, and makes the line of it; none at the first tick, before which nothing is
    /// known.
    pub fn tick(&mut self, snapshot: &Snapshot, provider: &dyn Provider) -> Option<Chunk> {
        let first = self.began.is_none();
        let began = *self.began.get_or_insert(snapshot.now);
        self.take_in(snapshot, first);
        let t = self.now.saturating_sub(began).0 / 1000;
        if first || t <= self.written_at {
            return None;
        }
        Some(self.line(t, provider))
    }

    /// Takes in what a glance between two ticks saw: it belongs to the line of the next tick.
    pub fn glance(&mut self, snapshot: &Snapshot) {
        if self.began.is_some() {
            self.take_in(snapshot, false);
        }
    }

    /// The line made last was taken: what it says need not be said again.
    pub fn taken(&mut self) {
        let draft = std::mem::take(&mut self.draft);
        if draft.part != self.header.part {
            for k in self.known.values_mut() {
                k.told = false;
            }
        }
        self.header.part = draft.part;
        self.bytes = draft.bytes;
        self.written_at = draft.t;
        if let Some(change) = self.change.take() {
            self.header.policy = change.policy;
            self.header.knobs = change.knobs;
            self.header.provider = change.provider;
        }
        for (key, factors) in draft.threads {
            if let Some(k) = self.known.get_mut(&key) {
                k.told = true;
                (k.sf, k.ef, k.phase) = (factors.sf, factors.ef, factors.phase);
                (k.cpu, k.counted, k.ins) = Default::default();
            }
        }
        for key in draft.gone {
            self.known.remove(&key);
        }
    }

    fn take_in(&mut self, snapshot: &Snapshot, first: bool) {
        self.looks += 1;
        self.now = snapshot.now;
        let began = self.began.unwrap_or(self.now);
        for t in snapshot.everybody() {
            let next_id = &mut self.next_id;
            let k = self.known.entry(t.key).or_insert_with(|| {
                let id = *next_id;
                *next_id += 1;
                Known {
                    id,
                    // what ran before the recording is not in it
                    runtime: match first {
                        true => t.runtime,
                        false => Default::default(),
                    },
                    who: Who {
                        start: self.now.saturating_sub(began).0 / 1000,
                        ..Who::default()
                    },
                    ..Known::default()
                }
            });
            if (k.comm, k.who.weight, k.who.tid, k.who.pid) != (t.comm, t.weight, t.tid, t.app.0) {
                k.comm = t.comm;
                let end = t.comm.iter().position(|c| *c == 0).unwrap_or(t.comm.len());
                k.who = Who {
                    tid: t.tid,
                    pid: t.app.0,
                    start: k.who.start,
                    comm: String::from_utf8_lossy(&t.comm[..end]).into_owned(),
                    weight: t.weight,
                    command: None,
                };
                k.told = false;
            }
            for ((cpu, now), before) in k.cpu.iter_mut().zip(t.runtime).zip(k.runtime) {
                *cpu += now.saturating_sub(before).0;
            }
            k.runtime = t.runtime;
            k.runnable = t.runnable;
            k.on = t.placed.map(|t| t.0);
            k.seen = self.looks;
        }
        // what was counted before the recording is not in it either
        for r in snapshot.readings.iter().filter(|_| !first) {
            let sets = self.instructions.get(r.core_type.index());
            let place = sets.and_then(|s| *s.get(r.set as usize)?);
            let ins = place.and_then(|p| r.deltas().get(p));
            let (Some(ins), Some(k)) = (ins, self.known.get_mut(&r.thread)) else {
                continue;
            };
            let t = r.core_type.index();
            k.ins[t] += ins;
            k.counted[t] += r.counted.0;
        }
        let looks = self.looks;
        self.known.retain(|_, k| {
            if k.seen != looks {
                (k.gone, k.runnable) = (true, false);
            }
            !k.gone || k.told || k.cpu.iter().any(|c| *c > 0)
        });
    }

    /// The line of what is not told yet, in a new file where it does not fit in the present one.
    fn line(&mut self, t: u64, provider: &dyn Provider) -> Chunk {
        let begins = self.bytes == 0;
        let bytes = self.encode(t, provider, begins, self.header.part);
        if begins || self.bytes + bytes.len() as u64 <= self.most {
            self.draft.bytes = self.bytes + bytes.len() as u64;
            return Chunk {
                part: self.header.part,
                bytes,
            };
        }
        let part = self.header.part + 1;
        let bytes = self.encode(t, provider, true, part);
        self.draft.bytes = bytes.len() as u64;
        Chunk { part, bytes }
    }

    /// The line as bytes; the header before it, and everybody introduced, when it begins a file.
    fn encode(&mut self, t: u64, provider: &dyn Provider, begins: bool, part: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        self.draft = Draft {
            part,
            t,
            ..Draft::default()
        };
        if begins {
            let header = Header {
                part,
                ..self.header.clone()
            };
            json(&mut out, &header);
            out.push(b'\n');
        }
        out.extend_from_slice(format!("{{\"t\":{t}").as_bytes());
        if let Some(change) = &self.change {
            out.extend_from_slice(b",\"change\":");
            json(&mut out, change);
        }
        let mut keys: Vec<(u32, ThreadKey)> =
            self.known.iter().map(|(key, k)| (k.id, *key)).collect();
        keys.sort_unstable();
        // room for the ends of the lists
        let most = usize::try_from(self.most)
            .unwrap_or(usize::MAX)
            .saturating_sub(64);
        let mut separator: &[u8] = b",\"threads\":[";
        for (_, key) in &keys {
            let Some(k) = self.known.get_mut(key) else {
                continue;
            };
            if !(k.runnable || k.cpu.iter().any(|c| *c > 0)) {
                continue;
            }
            if !k.told && self.command_of.is_some() && k.who.command.is_none() {
                k.who.command = self.command_of.and_then(|of| of(&k.who));
            }
            let factors = k.factors(*key, provider, self.header.core_types.len());
            let before = out.len();
            out.extend_from_slice(separator);
            json(&mut out, &k.tick(&factors, begins || !k.told));
            if out.len() > most {
                // its turn comes in a later line
                out.truncate(before);
                break;
            }
            separator = b",";
            self.draft.threads.push((*key, factors));
        }
        if separator == b"," {
            out.push(b']');
        }
        let mut separator: &[u8] = b",\"gone\":[";
        for (id, key) in keys {
            let told =
                |k: &Known| k.gone && (k.told || self.draft.threads.iter().any(|d| d.0 == key));
            let fits = out.len() + 16 < most;
            if self.known.get(&key).is_some_and(told) && fits {
                // in a file where it was never mentioned there is nobody to be gone
                if !begins || self.draft.threads.iter().any(|d| d.0 == key) {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(id.to_string().as_bytes());
                    separator = b",";
                }
                self.draft.gone.push(key);
            }
        }
        if separator == b"," {
            out.push(b']');
        }
        out.extend_from_slice(b"}\n");
        out
    }
}

impl Known {
    fn factors(&self, key: ThreadKey, provider: &dyn Provider, types: usize) -> Factors {
        if self.gone {
            return Factors {
                sf: self.sf.clone(),
                ef: self.ef.clone(),
                phase: self.phase,
            };
        }
        let of = |metric: fn(CoreTypeId) -> MetricId, before: &[Option<Factor>]| {
            let one = |t: usize| {
                let now = factor(provider.estimate(key, metric(CoreTypeId(t as u8)))?)?;
                // what has hardly changed is not worth its bytes
                let before = before.get(t).copied().flatten();
                Some(before.filter(|b| alike(b, &now)).unwrap_or(now))
            };
            let all: Vec<Option<Factor>> = (0..types.saturating_sub(1)).map(one).collect();
            match all.iter().all(Option::is_none) {
                true => Vec::new(),
                false => all,
            }
        };
        Factors {
            sf: of(MetricId::SpeedupFactor, &self.sf),
            ef: of(MetricId::EfficiencyFactor, &self.ef),
            phase: provider.phase(key).map(|p| p.number),
        }
    }

    /// The thread's part of a line; everything that holds until it changes when it is `new` to the
    /// file.
    fn tick(&self, factors: &Factors, new: bool) -> ThreadTick {
        let differs = |now: &Vec<Option<Factor>>, told: &Vec<Option<Factor>>| match new {
            true => !now.is_empty(),
            false => now != told,
        };
        ThreadTick {
            id: self.id,
            who: new.then(|| self.who.clone()),
            cpu: trimmed(self.cpu.map(|ns| ns / 1000)),
            ins: trimmed(self.ins),
            counted: trimmed(self.counted.map(|ns| ns / 1000)),
            sf: differs(&factors.sf, &self.sf).then(|| factors.sf.clone()),
            ef: differs(&factors.ef, &self.ef).then(|| factors.ef.clone()),
            phase: factors.phase.filter(|_| new || factors.phase != self.phase),
            on: self.on,
            r: self.runnable,
        }
    }
}

/// An honest estimate as it is recorded: with four digits.
fn factor(e: Estimate) -> Option<Factor> {
    let good = e.value.is_finite() && e.value > 0.0 && e.quality != Quality::Partial;
    let u = e.uncertainty.filter(|u| u.is_finite() && *u >= 0.0);
    good.then(|| (digits(e.value), u.map(digits)))
}

fn alike(a: &Factor, b: &Factor) -> bool {
    let near = |a: f64, b: f64, by: f64| (a - b).abs() <= by * a.abs();
    near(a.0, b.0, 0.01)
        && match (a.1, b.1) {
            (Some(a), Some(b)) => near(a, b, 0.1),
            (a, b) => a.is_none() && b.is_none(),
        }
}

fn digits(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor().clamp(-300.0, 300.0) as i32);
    let rounded = (x * scale).round() / scale;
    // beyond the range of the scale it stays as it is
    if rounded.is_finite() && rounded > 0.0 {
        rounded
    } else {
        x
    }
}

fn trimmed(all: [u64; MAX_CORE_TYPES]) -> Vec<u64> {
    let len = all.iter().rposition(|x| *x > 0).map_or(0, |i| i + 1);
    all[..len].to_vec()
}

fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Only a map with keys that are no strings, or a writer that fails, could make this fail.
    let _ = serde_json::to_writer(out, value);
}
