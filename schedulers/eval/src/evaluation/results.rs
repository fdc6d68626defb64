//! What `bench --json` writes.

use crate::evaluation::passes::WorkFrom;
use amp_metrics::uncertainty::Measured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a bench: every policy's figures for one workload on one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Name of the workload.
    pub workload: String,
    /// The machine.
    pub machine: MachineFacts,
    /// Where it ran: `board`, `host` or `sim`.
    pub on: String,
    /// Source of metrics.
    pub provider: String,
    /// What else one must know to repeat it.
    pub environment: Environment,
    /// One entry per policy, in the order they were asked for.
    pub results: Vec<PolicyResult>,
    /// Contenders without figures, in the order they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedContender>,
}

/// A contender that failed: it could not be loaded, or was ended before its last run was over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedContender {
    /// Its label.
    pub policy: String,
    /// The run in which it failed, from 1.
    pub run: u32,
    /// The reason.
    pub why: String,
    /// The program behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerFacts>,
}

/// The program of an scx scheduler, as one must know it to repeat a bench.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerFacts {
    /// Name of the program.
    pub program: String,
    /// What it says of its version; none when it says nothing.
    pub version: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Release of the kernel it was loaded into.
    pub kernel: Option<String>,
}

/// The machine of a bench.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Name of the machine file, or of the host.
    pub name: String,
    /// CPUs of the fastest core type.
    pub big: usize,
    /// All other CPUs.
    pub small: usize,
    /// The core types, fastest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core_types: Vec<CoreTypeFacts>,
}

/// A core type of the machine of a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreTypeFacts {
    /// Its name.
    pub name: String,
    /// Number of its CPUs.
    pub cpus: usize,
}

impl MachineFacts {
    /// The facts about `topology`.
    pub fn of(name: &str, topology: &amp_sched::Topology) -> MachineFacts {
        let types = topology.core_types();
        let core_types: Vec<_> = types
            .iter()
            .map(|t| CoreTypeFacts {
                name: t.name.clone(),
                cpus: t.cpus.len(),
            })
            .collect();
        let big = core_types.first().map_or(0, |t| t.cpus);
        let small = core_types.iter().skip(1).map(|t| t.cpus).sum();
        MachineFacts {
            name: name.to_owned(),
            big,
            small,
            core_types,
        }
    }

    /// How many cores of which type there are, fastest first, for a sentence: `2 big`, `4 small`,
    /// or by the types' names where there are more than two.
    pub fn cores(&self) -> Vec<String> {
        match self.core_types.len() {
            ..=2 => vec![format!("{} big", self.big), format!("{} small", self.small)],
            _ => (self.core_types.iter())
                .map(|t| format!("{} {}", t.cpus, t.name))
                .collect(),
        }
    }

    /// Name of core type `i`, fastest first.
    pub fn core_type_name(&self, i: usize) -> String {
        let named = self.core_types.get(i).map(|t| t.name.clone());
        named.unwrap_or_else(|| match i {
            0 => "big".to_owned(),
            1 => "small".to_owned(),
            i => format!("type {i}"),
        })
    }
}

/// What one must know to repeat a bench. Further facts (machine model version, host, …) go into
/// `more`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Commit of scx_amp.
    #[serde(default)]
    pub commit: Option<String>,
    /// QEMU version; none on a real machine.
    #[serde(default)]
    pub qemu: Option<String>,
    /// Whether times are virtual ones of the board or the simulator.
    #[serde(default)]
    pub virtual_time: bool,
    /// Who sets the clocks: the governors of the kernel's frequency scaling. None where clocks do
    /// not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Seed of the start order and of policies that draw lots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Anything else, by name.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Which placement by pinned threads was the best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedFacts {
    /// Core type of each application, by name; `any` for one that was left free.
    pub placement: BTreeMap<String, String>,
    /// Placements that were tried; 0 when there were too many, and the order of speedup factors
    /// chose.
    pub tried: usize,
    /// Runs of the best one among them; those that were no match for it had one.
    #[serde(default)]
    pub runs_of_best: usize,
    /// ASP of the best and of the worst placement that was tried, each the mean of its runs: what
    /// there is to win. The best one is measured anew: see the policy's own figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asp_of_best_and_worst: Option<(f64, f64)>,
}

/// The figures of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Name of the policy, or `eevdf`.
    pub policy: String,
    /// The program behind it, for an scx scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerFacts>,
    /// The placement behind it, for `pinned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedFacts>,
    /// Aggregate speedup by the work done over the whole run, unfinished passes included: each run by
    /// itself, averaged over the runs. Higher is better.
    pub asp: Measured,
    /// The papers' aggregate speedup: by the geometric mean of a run's completion times, averaged
    /// over the runs [PMCTrack eq. 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asp_gm: Option<Measured>,
    /// System throughput: the sum of speeds relative to having the fast cores alone, averaged over
    /// the runs. Higher is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stp: Option<Measured>,
    /// Unfairness, the largest weighted slowdown over the smallest, of each run by itself, averaged
    /// over the runs; 1 is ideal.
    pub unfairness: Measured,
    /// Energy × time / instructions, in J·s per instruction; lower is better. None where energy is
    /// not known.
    #[serde(default)]
    pub edp: Option<Measured>,
    /// Energy × time, in J·s, of as much work as one completion of every program is, a program's work
    /// measured by its time alone on slow cores; lower is better. Unlike `edp` it does not depend on
    /// whose instructions there were more of. None where energy is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edp_by_work: Option<Measured>,
    /// Energy of as many instructions as one completion of every program has, in joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<Measured>,
    /// Pairs of threads that changed places, per second. None for the baseline.
    #[serde(default)]
    pub swaps_per_s: Option<f64>,
    /// Further figures by their keys ([`FIGURES`](super::FIGURES)).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, Measured>,
    /// What the work of unfinished passes is known from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_from: Option<WorkFrom>,
    /// The applications, in the order of the workload file.
    pub apps: Vec<AppResult>,
    /// The repeated runs by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunResult>,
    /// What the analytic oracle says for this policy, where it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oracle: Option<OracleResult>,
    /// Which application was on which core type when, in the first run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelineEntry>,
}

impl PolicyResult {
    /// Standard deviation of ASP from run to run, relative to its mean; `None` with fewer than two
    /// runs.
    pub fn spread(&self) -> Option<f64> {
        let asps: Vec<f64> = self.runs.iter().map(|r| r.asp).collect();
        let mean = Measured::mean(&asps)?;
        Some(mean.u? * (asps.len() as f64).sqrt() / mean.value.abs())
    }
}

/// The figures of one application under one policy. The fields ending in `_u` are standard
/// uncertainties, null when they are not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppResult {
    /// Label of the application.
    pub name: String,
    /// Weight, 100 = default.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Completion time alone on slow cores only, in seconds.
    pub ct_slow_s: f64,
    /// Completion time alone with all fast cores available, in seconds.
    pub ct_fast_s: f64,
    /// Completion time in the mix, in seconds: length of a run over the passes in it, unfinished
    /// ones included. Over several runs the inverse of the mean rate.
    pub ct_sched_s: f64,
    /// `ct_sched_s / ct_fast_s`.
    pub slowdown: f64,
    /// `ct_slow_s / ct_sched_s`.
    pub speedup: f64,
    #[serde(default)]
    /// Uncertainty of `ct_slow_s`.
    pub ct_slow_u: Option<f64>,
    #[serde(default)]
    /// Uncertainty of `ct_fast_s`.
    pub ct_fast_u: Option<f64>,
    #[serde(default)]
    /// Uncertainty of `ct_sched_s`.
    pub ct_sched_u: Option<f64>,
    #[serde(default)]
    /// Uncertainty of `slowdown`.
    pub slowdown_u: Option<f64>,
    #[serde(default)]
    /// Uncertainty of `speedup`.
    pub speedup_u: Option<f64>,
    /// Share of its CPU time that it spent on the fastest core type, 0 to 1; none when nobody
    /// counted.
    #[serde(default)]
    pub big_time_share: Option<f64>,
    /// Every completion time in the mix, in seconds: a list per run.
    pub completions_s: Vec<Vec<f64>>,
    /// Share of the work, 0 to 1, that was done in the pass which the end of the run cut off: one
    /// per run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished_share: Vec<f64>,
    /// The same share from CPU time per core type, where `unfinished_share` is from instructions
    /// and both are known: a check of the one by the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished_by_time: Vec<f64>,
}

fn default_weight() -> u32 {
    100
}

/// The figures of one of several repeated runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Aggregate speedup by work.
    pub asp: f64,
    /// Aggregate speedup by geometric means of completion times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asp_gm: Option<f64>,
    /// System throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stp: Option<f64>,
    /// Unfairness.
    pub unfairness: f64,
    /// EDP in J·s per instruction.
    #[serde(default)]
    pub edp: Option<f64>,
    /// EDP by work, in J·s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edp_by_work: Option<f64>,
    /// Length of the run in seconds.
    pub duration_s: f64,
    /// Further figures by their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// What the analytic oracle predicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OracleResult {
    /// Aggregate speedup.
    pub asp: f64,
    /// Unfairness.
    pub unfairness: f64,
    /// Share of time on fast cores per application.
    pub big_time_share: Vec<f64>,
    /// Slowdown per application.
    pub slowdown: Vec<f64>,
}

/// Where an application was in a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// Label of the application.
    pub app: String,
    /// Begin, in seconds from the start of the run.
    pub t0_s: f64,
    /// End, in seconds.
    pub t1_s: f64,
    /// CPU time per core type, fastest first, over the length of the stretch: cores of that type it
    /// held on average.
    pub core_type_share: Vec<f64>,
}
