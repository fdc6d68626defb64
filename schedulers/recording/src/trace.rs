//! A recording as a trace in Chrome's JSON format, which ui.perfetto.dev opens.
//!
//! | track | shows |
//! |---|---|
//! | each thread | the core type on which it ran most, as slices, with where it was placed |
//! | each thread, `phase` | its phases, where the provider follows them |
//! | each process, `SF …` | speedup factors of its threads |
//! | `machine` | cores of each type that were busy; changes of policy and provider |

use crate::read::{Ran, Recording};
use serde::Serialize;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The machine's process number in the trace: no kernel gives it to a process.
const MACHINE: u64 = 2_000_000_000;

/// One event of the format.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'a str,
    name: &'a str,
    pid: u64,
    tid: u64,
    /// Microseconds.
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Scope of an instant: `g`, everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

impl<'a> Event<'a> {
    fn new(ph: &'a str, name: &'a str, (pid, tid): (u64, u64), ts: u64) -> Event<'a> {
        Event {
            ph,
            name,
            pid,
            tid,
            ts,
            dur: None,
            cat: None,
            id: None,
            s: None,
            args: Value::Null,
        }
    }
}

/// Where a thread has been since when.
struct Stay {
    core_type: usize,
    placed: Option<u8>,
    begin: u64,
    end: u64,
    cpu_s: f64,
}

/// What is open of a thread.
#[derive(Default)]
struct Track {
    stay: Option<Stay>,
    phase: Option<u32>,
    sf: Option<f64>,
}

/// Writes `recording` to `out` as a trace.
///
/// # Errors
/// When it cannot be written.
pub fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let header = &recording.header;
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
    let about = json!({
        "recorded by": format!("scx_amp {}", header.program),
        "policy": header.policy,
        "provider": header.provider,
    });
    serde_json::to_writer(&mut *out, &about)?;
    write!(out, ",\"traceEvents\":[")?;
    let mut trace = Trace {
        recording,
        out,
        first: true,
        tracks: recording.threads.iter().map(|_| Track::default()).collect(),
    };
    trace.names()?;
    trace.spans()?;
    trace.end()?;
    writeln!(trace.out, "\n]}}")
}

struct Trace<'a> {
    recording: &'a Recording,
    out: &'a mut dyn Write,
    first: bool,
    tracks: Vec<Track>,
}

impl Trace<'_> {
    fn put(&mut self, event: &Event<'_>) -> io::Result<()> {
        let separator: &[u8] = if self.first { b"\n" } else { b",\n" };
        self.first = false;
        self.out.write_all(separator)?;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    fn ids(&self, thread: usize) -> (u64, u64) {
        let who = &self.recording.threads[thread];
        (who.pid, u64::try_from(who.tid).unwrap_or(0))
    }

    /// Names of processes and threads.
    fn names(&mut self) -> io::Result<()> {
        let recording = self.recording;
        let mut processes = BTreeMap::from([(MACHINE, "machine")]);
        for who in &recording.threads {
            let first = u64::try_from(who.tid) == Ok(who.pid);
            if first || !processes.contains_key(&who.pid) {
                processes.insert(who.pid, &who.comm);
            }
        }
        let named = |ph, what, ids, name: &str| {
            let mut e = Event::new(ph, what, ids, 0);
            e.args = json!({ "name": name });
            e
        };
        for (pid, comm) in processes {
            self.put(&named("M", "process_name", (pid, pid), comm))?;
        }
        for (i, who) in recording.threads.iter().enumerate() {
            self.put(&named("M", "thread_name", self.ids(i), &who.comm))?;
        }
        Ok(())
    }

    fn spans(&mut self) -> io::Result<()> {
        let recording = self.recording;
        let types = recording.topology.core_types();
        let machine = (MACHINE, MACHINE);
        let mut begin = recording.begin_us;
        for span in &recording.spans {
            if let Some(change) = &span.change {
                let name = format!("{}, provider {}", change.policy, change.provider);
                let mut e = Event::new("i", &name, machine, begin);
                (e.s, e.args) = (Some("g"), json!(change.knobs));
                self.put(&e)?;
            }
            for (t, core_type) in types.iter().enumerate() {
                let busy: f64 = span.ran.iter().map(|r| r.cpu_s[t]).sum();
                let name = format!("busy {}", core_type.name);
                let mut e = Event::new("C", &name, machine, begin);
                e.args = json!({ "cores": round(busy / span.length_s) });
                self.put(&e)?;
            }
            let mut there = BTreeSet::new();
            for ran in &span.ran {
                there.insert(ran.thread);
                self.ran(ran, begin, span.t_us)?;
            }
            for thread in 0..self.tracks.len() {
                if !there.contains(&thread) {
                    self.leave(thread)?;
                }
            }
            for thread in &span.gone {
                self.end_phase(*thread, span.t_us)?;
            }
            begin = span.t_us;
        }
        Ok(())
    }

    fn ran(&mut self, ran: &Ran, begin: u64, end: u64) -> io::Result<()> {
        let thread = ran.thread;
        let cpu_s: f64 = ran.cpu_s.iter().sum();
        let most = (0..ran.cpu_s.len()).max_by(|a, b| ran.cpu_s[*a].total_cmp(&ran.cpu_s[*b]));
        // who only waited has a gap
        match most.filter(|_| cpu_s > 0.0) {
            None => self.leave(thread)?,
            Some(core_type) => {
                let same = |s: &&mut Stay| (s.core_type, s.placed) == (core_type, ran.on);
                if let Some(stay) = self.tracks[thread].stay.as_mut().filter(same) {
                    stay.end = end;
                    stay.cpu_s += cpu_s;
                } else {
                    self.leave(thread)?;
                    self.tracks[thread].stay = Some(Stay {
                        core_type,
                        placed: ran.on,
                        begin,
                        end,
                        cpu_s,
                    });
                }
            }
        }
        if ran.phase != self.tracks[thread].phase {
            self.end_phase(thread, begin)?;
            self.tracks[thread].phase = ran.phase;
            self.phase("b", thread, begin)?;
        }
        let sf = ran.sf.first().copied().flatten().map(|(sf, _)| sf);
        if let Some(sf) = sf.filter(|_| sf != self.tracks[thread].sf) {
            let (pid, tid) = self.ids(thread);
            let name = format!("SF {} {tid}", self.recording.threads[thread].comm);
            let mut e = Event::new("C", &name, (pid, tid), begin);
            e.args = json!({ "SF": sf });
            self.put(&e)?;
        }
        self.tracks[thread].sf = sf;
        Ok(())
    }

    /// The thread's stay is over.
    fn leave(&mut self, thread: usize) -> io::Result<()> {
        let Some(stay) = self.tracks[thread].stay.take() else {
            return Ok(());
        };
        let types = self.recording.topology.core_types();
        let name = |t: usize| types.get(t).map_or("?", |t| &t.name);
        let mut e = Event::new("X", name(stay.core_type), self.ids(thread), stay.begin);
        e.dur = Some(stay.end - stay.begin);
        e.cat = Some("core type");
        e.args = json!({
            "cpu_s": round(stay.cpu_s),
            "placed": stay.placed.map(|t| name(usize::from(t))),
        });
        self.put(&e)
    }

    fn phase(&mut self, ph: &str, thread: usize, ts: u64) -> io::Result<()> {
        let Some(number) = self.tracks[thread].phase else {
            return Ok(());
        };
        let name = format!("phase {number}");
        let mut e = Event::new(ph, &name, self.ids(thread), ts);
        (e.cat, e.id) = (Some("phase"), Some(thread as u64));
        self.put(&e)
    }

    fn end_phase(&mut self, thread: usize, ts: u64) -> io::Result<()> {
        self.phase("e", thread, ts)?;
        self.tracks[thread].phase = None;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let last = self.recording.spans.last().map_or(0, |s| s.t_us);
        for thread in 0..self.tracks.len() {
            self.leave(thread)?;
            self.end_phase(thread, last)?;
        }
        Ok(())
    }
}

/// Four digits behind the point are enough to look at.
fn round(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
