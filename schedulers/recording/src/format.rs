//! The lines of a recording.
//!
//! A recording is JSON, one object a line. The first line of each file is a [`Header`]; every other
//! one is a [`Tick`]. Unknown keys are errors: what a program does not know it cannot replay.
//!
//! ```text
//! {"scx_amp_recording":1,"program":"0.1.0","run":"…","part":0,"interval_us":100000,"core_types":[…],"policy":"rr",…}
//! {"t":100000,"threads":[{"id":0,"who":{"tid":812,"pid":812,"start":0,"comm":"bzip2","weight":100},"cpu":[98000],"ins":[91000000],"counted":[98000],"r":true}]}
//! {"t":200000,"threads":[{"id":0,"cpu":[0,99000],"ins":[0,48000000],"counted":[0,99000],"sf":[[1.9,0.1]],"on":1,"r":true}],"gone":[3]}
//! ```

use amp_machine::CpuList;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format. A reader refuses any other.
pub const VERSION: u32 = 1;

/// The first line of a file: what one must know to read the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format, [`VERSION`].
    pub scx_amp_recording: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// A name for the recording that no other one has: files with the same one belong together.
    pub run: String,
    /// Number of the file within the recording, from 0.
    pub part: u32,
    /// Time between two ticks, in microseconds.
    pub interval_us: u64,
    /// Core types, fastest first.
    pub core_types: Vec<RecordedCoreType>,
    /// Policy at the beginning of this file.
    pub policy: String,
    /// Its knobs.
    #[serde(default)]
    pub knobs: BTreeMap<String, String>,
    /// Source of metrics at the beginning of this file.
    pub provider: String,
    /// Kernel release; none for a simulated machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether command lines are recorded.
    #[serde(default)]
    pub commands: bool,
}

/// A core type of the recorded machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCoreType {
    /// Name, such as `big`.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuList,
    /// Capacity, 1024 for the fastest.
    pub capacity: u32,
}

/// One tick: what was done since the line before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    /// Microseconds since the recording began; grows from line to line.
    pub t: u64,
    /// Threads that ran or wait for a CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadTick>,
    /// Numbers of threads that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u32>,
    /// What was changed in the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// What was changed in the scheduler while it ran: as it is from this tick on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The policy.
    pub policy: String,
    /// Its knobs.
    #[serde(default)]
    pub knobs: BTreeMap<String, String>,
    /// The source of metrics.
    pub provider: String,
}

/// A factor with its standard uncertainty, which is none where the source states none.
pub type Factor = (f64, Option<f64>);

/// One thread in one tick. Lists go by core type, fastest first; what is missing at the end is 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadTick {
    /// Its number in the recording.
    pub id: u32,
    /// Who it is: where it is first mentioned in a file, and again when that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// CPU time, in microseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu: Vec<u64>,
    /// Instructions in the part of the CPU time that was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ins: Vec<u64>,
    /// That part of the CPU time, in microseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<u64>,
    /// Speedup factors of all core types but the slowest; `null` where there is none, no list where
    /// they are those of the line before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sf: Option<Vec<Option<Factor>>>,
    /// Efficiency factors, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ef: Option<Vec<Option<Factor>>>,
    /// Number of its phase, where that is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u32>,
    /// Core type it is placed on; none when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<u8>,
    /// Whether it was running or waiting for a CPU at the end of the tick.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub r: bool,
}

/// Who a thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Kernel thread id.
    pub tid: i32,
    /// Process id.
    pub pid: u64,
    /// When it was first seen, in microseconds since the recording began.
    pub start: u64,
    /// Command name, up to 15 bytes.
    pub comm: String,
    /// Scheduling weight, 100 = nice 0.
    pub weight: u32,
    /// Its command line, where those are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}
