//! The lines: what is sent and what is understood (`docs/reference/exec-provider.md`).

use crate::event::{EventSet, EventSets};
use crate::ids::{CoreTypeId, ThreadKey, MAX_CORE_TYPES};
use crate::provider::MetricId;
use crate::sample::{Snapshot, Subject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;

#[derive(Serialize)]
struct Hello<'a> {
    r#type: &'static str,
    protocol: u32,
    /// Names of the events per core type and set, in no particular meaning of order.
    core_types: Vec<Vec<Vec<&'a str>>>,
}

#[derive(Serialize)]
struct SampleLine<'a> {
    r#type: &'static str,
    seq: u64,
    now_ns: u64,
    threads: Vec<ThreadLine<'a>>,
    virtual_counters: Vec<VirtualLine>,
}

#[derive(Serialize)]
struct ThreadLine<'a> {
    slot: u32,
    generation: u32,
    tid: i32,
    app: u64,
    comm: String,
    core_type: u8,
    runnable: bool,
    readings: Vec<ReadingLine<'a>>,
}

#[derive(Serialize)]
struct ReadingLine<'a> {
    core_type: u8,
    set: u32,
    ran_ns: u64,
    counted_ns: u64,
    counts: BTreeMap<&'a str, u64>,
}

#[derive(Serialize)]
struct VirtualLine {
    counter: &'static str,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<u64>,
    value: f64,
    over_ns: u64,
}

/// What the program says of a sample.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub seq: u64,
    #[serde(default)]
    pub estimates: Vec<AnswerEstimate>,
}

impl Answer {
    /// Reads a line.
    ///
    /// # Errors
    /// How the line begins, and what is wrong with it.
    pub fn parse(line: &str) -> Result<Answer, String> {
        serde_json::from_str(line).map_err(|e| {
            let start: String = line.trim_end().chars().take(60).collect();
            format!("it said `{start}`, which is no answer ({e})")
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerEstimate {
    slot: u32,
    generation: u32,
    metric: AnswerMetric,
    core_type: u8,
    pub value: f64,
    #[serde(default)]
    pub u: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerMetric {
    Sf,
    Ef,
    Ipc,
}

impl AnswerEstimate {
    /// The thread it is about.
    pub fn thread(&self) -> ThreadKey {
        ThreadKey {
            slot: self.slot,
            generation: self.generation,
        }
    }

    /// The metric.
    ///
    /// # Errors
    /// What was said, when it is no estimate.
    pub fn metric(&self) -> Result<MetricId, String> {
        let sane = self.value.is_finite()
            && self.value >= 0.0
            && self.u.is_none_or(|u| u.is_finite() && u >= 0.0)
            && usize::from(self.core_type) < MAX_CORE_TYPES;
        if !sane {
            return Err(format!(
                "it said {} for core type {} of slot {}, which is no estimate",
                self.value, self.core_type, self.slot
            ));
        }
        let t = CoreTypeId(self.core_type);
        Ok(match self.metric {
            AnswerMetric::Sf => MetricId::SpeedupFactor(t),
            AnswerMetric::Ef => MetricId::EfficiencyFactor(t),
            AnswerMetric::Ipc => MetricId::Ipc(t),
        })
    }
}

/// The first line: which events there are, per core type and set.
///
/// # Errors
/// When it cannot be written as JSON.
pub(super) fn hello(sets: &EventSets, core_types: usize) -> Result<String, String> {
    fn names(s: &EventSet) -> Vec<&str> {
        s.events.iter().map(|e| e.name.as_str()).collect()
    }
    let of = |t: usize| sets.of(CoreTypeId(t as u8)).iter().map(names).collect();
    line(&Hello {
        r#type: "hello",
        protocol: PROTOCOL,
        core_types: (0..core_types).map(of).collect(),
    })
}

fn line(what: &impl Serialize) -> Result<String, String> {
    let mut text = serde_json::to_string(what).map_err(|e| e.to_string())?;
    text.push('\n');
    Ok(text)
}

/// The line of sample `seq`.
///
/// # Errors
/// When it cannot be written as JSON.
pub(super) fn sample(seq: u64, snapshot: &Snapshot, sets: &EventSets) -> Result<String, String> {
    let mut by_thread: BTreeMap<ThreadKey, Vec<ReadingLine<'_>>> = BTreeMap::new();
    for r in &snapshot.readings {
        let Some(set) = sets.of(r.core_type).get(r.set as usize) else {
            continue;
        };
        by_thread.entry(r.thread).or_default().push(ReadingLine {
            core_type: r.core_type.0,
            set: r.set,
            ran_ns: r.ran.0,
            counted_ns: r.counted.0,
            counts: set
                .events
                .iter()
                .map(|e| e.name.as_str())
                .zip(r.deltas().iter().copied())
                .collect(),
        });
    }
    let threads = snapshot.everybody().map(|t| ThreadLine {
        slot: t.key.slot,
        generation: t.key.generation,
        tid: t.tid,
        app: t.app.0,
        comm: {
            let end = t.comm.iter().position(|b| *b == 0).unwrap_or(t.comm.len());
            String::from_utf8_lossy(&t.comm[..end]).into_owned()
        },
        core_type: t.core_type.0,
        runnable: t.runnable,
        readings: by_thread.remove(&t.key).unwrap_or_default(),
    });
    let virtual_counters = snapshot.virtual_counters.iter().map(|v| {
        let (mut core_type, mut cpu, mut app) = (None, None, None);
        match v.of {
            Subject::Machine => {}
            Subject::CoreType(t) => core_type = Some(t.0),
            Subject::Cpu(c) => cpu = Some(c),
            Subject::App(a) => app = Some(a.0),
        }
        VirtualLine {
            counter: v.counter.name(),
            unit: v.counter.unit(),
            core_type,
            cpu,
            app,
            value: v.value,
            over_ns: v.over.0,
        }
    });
    line(&SampleLine {
        r#type: "sample",
        seq,
        now_ns: snapshot.now.0,
        threads: threads.collect(),
        virtual_counters: virtual_counters.collect(),
    })
}
