//! What a running scheduler is doing: figures, and one line per thread.

use crate::live::Live;
use amp_host::clock;
use amp_metrics::{
    CoreTypeId, Estimate, Health, MetricId, Nanos, Provider, Quality, Seat, Snapshot, Subject,
    ThreadSample, MAX_CORE_TYPES,
};
use amp_sched::{Engine, Topology};
use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// What the scheduler is doing.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Status {
    /// Profile.
    #[stat(desc = "profile; empty once policy or provider were chosen otherwise")]
    #[serde(default)]
    pub profile: String,
    /// Interval.
    #[stat(desc = "milliseconds between two decisions")]
    #[serde(default)]
    pub interval_ms: u64,
    /// Clocks.
    #[stat(
        desc = "what CPUs are to be clocked at, where the governor of frequency scaling is schedutil: `load` or `full`"
    )]
    #[serde(default)]
    pub cpufreq: String,
    /// Rules.
    #[stat(desc = "how many rules for single programs there are, and their file; empty without")]
    #[serde(default)]
    pub rules: String,
    /// Why the file of rules cannot be used.
    #[stat(desc = "why the file of rules as it is now cannot be used; those before hold then")]
    #[serde(default)]
    pub rules_failed: String,
    /// Policy.
    #[stat(desc = "policy")]
    pub policy: String,
    /// Its parameters.
    #[stat(desc = "knobs of the policy and of the engine (`engine.`), and their values")]
    pub knobs: BTreeMap<String, String>,
    /// Provider.
    #[stat(desc = "metric provider")]
    pub provider: String,
    /// Why the provider answers nothing; empty while it works.
    #[stat(desc = "why the provider has failed; empty while it works")]
    pub provider_failed: String,
    /// What should be counted and is not, and why; empty while everything is.
    #[stat(desc = "what should be counted and is not, and why; empty while everything is")]
    #[serde(default)]
    pub uncounted: String,
    /// Virtual counters of the machine, its core types and CPUs, by name.
    #[stat(desc = "virtual counters over the last interval, such as `energy_J big`")]
    pub virtual_counters: BTreeMap<String, f64>,
    /// What one core of each type can do at present.
    #[stat(
        desc = "what one core of each type can do now, 1024 being the most: less where heat, power or a user limits it"
    )]
    #[serde(default)]
    pub capacities: BTreeMap<String, u64>,
    /// What programs cost each other.
    #[stat(
        desc = "how many times faster a program runs without another one, by `NAME on TYPE beside NAME on TYPE`"
    )]
    #[serde(default)]
    pub costs: BTreeMap<String, f64>,
    /// Seconds since the start.
    #[stat(desc = "seconds since the scheduler was attached")]
    pub uptime_s: f64,
    /// Ticks.
    #[stat(desc = "engine ticks since the start")]
    pub ticks: u64,
    /// Looks between two ticks.
    #[stat(
        desc = "looks at the machine between two ticks, while the provider finds something out, since the start"
    )]
    #[serde(default)]
    pub glances: u64,
    /// Changes of policy, knobs or provider.
    #[stat(desc = "changes of policy, knobs or provider since the start")]
    pub changes: u64,
    /// Threads.
    #[stat(desc = "threads seen at the last tick")]
    pub threads: u64,
    /// Active threads.
    #[stat(desc = "threads offered to the policy at the last tick")]
    pub active: u64,
    /// Swaps.
    #[stat(desc = "threads moved between core types by the policy since the start")]
    pub swaps: u64,
    /// Probes.
    #[stat(
        desc = "pairs of threads that changed places to be measured on another core type since the start"
    )]
    #[serde(default)]
    pub probes: u64,
    /// Median swap latency.
    #[stat(
        desc = "median time from the decision to the thread running on its new core type, microseconds (0 = none yet)"
    )]
    pub swap_latency_p50_us: f64,
    /// Placements in effect.
    #[stat(desc = "placements that took effect since the start")]
    pub placements: u64,
    /// Fallbacks.
    #[stat(desc = "times BPF shared fairly by itself because no tick came")]
    pub fallbacks: u64,
    /// Untracked threads.
    #[stat(desc = "threads that found the slot table full since the start")]
    pub untracked: u64,
    /// Failed readings of counters.
    #[stat(
        desc = "readings of hardware counters that failed since the start, with what they would have told"
    )]
    pub unread: u64,
    /// The machine's core types, fastest first.
    #[stat(desc = "core types, fastest first")]
    pub core_types: Vec<String>,
    /// Every CPU, and who is on it.
    #[stat(desc = "CPUs, and the thread on each at this moment")]
    #[serde(default)]
    pub cpus: Vec<CpuStatus>,
    /// What is being recorded (`--record`): `file`, `bytes` written so far, and why it `ended`; empty
    /// without a recording.
    #[stat(desc = "what is being recorded: file, bytes so far, why it ended; empty without")]
    #[serde(default)]
    pub recording: BTreeMap<String, String>,
    /// Memory.
    #[stat(desc = "where is kept what programs were like, and how many there are; empty without")]
    #[serde(default)]
    pub memory: String,
    /// Why memory is not kept.
    #[stat(desc = "why what programs were like is not kept beyond this run; empty while it is")]
    #[serde(default)]
    pub memory_failed: String,
    /// Per thread; those that the policy places, unless all were asked for.
    #[stat(desc = "threads that the policy places")]
    pub per_thread: Vec<ThreadStatus>,
}

/// One CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
pub struct CpuStatus {
    /// Its number.
    #[stat(desc = "number of the CPU")]
    pub cpu: u64,
    /// Its core type.
    #[stat(desc = "core type of the CPU")]
    pub core_type: String,
    /// The thread that runs there, 0 for none that the scheduler knows. The scheduler's own is
    /// among them: whoever asks sees the one that answers.
    #[stat(desc = "thread that runs there, 0 = none that the scheduler knows")]
    pub tid: i64,
    /// That thread's command name.
    #[stat(desc = "command name of that thread; empty without")]
    pub comm: String,
}

/// One thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
pub struct ThreadStatus {
    /// Kernel thread id.
    #[stat(desc = "kernel thread id")]
    pub tid: i64,
    /// Its application.
    #[stat(desc = "process id")]
    pub app: u64,
    /// Command name.
    #[stat(desc = "command name")]
    pub comm: String,
    /// Weight.
    #[stat(desc = "scheduling weight, 100 = nice 0")]
    pub weight: u64,
    /// Core type it ran on last.
    #[stat(desc = "core type it ran on last")]
    pub core_type: String,
    /// Core type it is placed on; empty when it is left to the mechanism.
    #[stat(desc = "core type it is placed on; empty when it is not")]
    pub placed: String,
    /// The rule that holds for it.
    #[stat(desc = "number of the rule that holds for it, and what it says; empty without")]
    #[serde(default)]
    pub rule: String,
    /// CPU time in all.
    #[stat(desc = "CPU seconds since it was first seen")]
    pub cpu_s: f64,
    /// Share of it on the fastest core type.
    #[stat(desc = "share of its CPU time on the fastest core type")]
    pub big_time_share: f64,
    /// CPU time in which its speedup factors were known.
    #[stat(desc = "CPU seconds in which its speedup factors were known")]
    #[serde(default)]
    pub rated_s: f64,
    /// CPU time that the same work would have taken with the fast cores for its application alone.
    /// `rated_s / alone_s` is its slowdown as far as core types are to blame.
    #[stat(
        desc = "CPU seconds that the same work would have taken with the fast cores for itself alone"
    )]
    #[serde(default)]
    pub alone_s: f64,
    /// Number of its present phase and seconds since that began; empty when the provider follows
    /// none.
    #[stat(desc = "number of the present phase and seconds since it began, if known")]
    pub phase: BTreeMap<String, f64>,
    /// Virtual counters of its application, by name.
    #[stat(
        desc = "virtual counters of its application over the last interval, such as `energy_J`"
    )]
    pub virtual_counters: BTreeMap<String, f64>,
    /// What is known of it, by metric; a metric that the provider does not offer is missing.
    #[stat(desc = "metrics by name; those that the provider does not offer are missing")]
    pub metrics: BTreeMap<String, Metric>,
}

/// An estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
pub struct Metric {
    /// Value.
    #[stat(desc = "value")]
    pub value: f64,
    /// Standard uncertainty, in the unit of the value; 0 where the provider states none.
    #[stat(desc = "standard uncertainty; 0 where the provider states none")]
    #[serde(default)]
    pub uncertainty: f64,
    /// Quality.
    #[stat(desc = "exact, multiplexed, partial or stale")]
    pub quality: String,
    /// Age.
    #[stat(desc = "seconds since the data behind it was taken")]
    pub age_s: f64,
}

impl Metric {
    fn of(e: Estimate) -> Option<Metric> {
        let quality = match e.quality {
            Quality::Exact => "exact",
            Quality::Multiplexed => "multiplexed",
            Quality::Partial => "partial",
            Quality::Stale => "stale",
        };
        e.value.is_finite().then(|| Metric {
            value: e.value,
            uncertainty: e.uncertainty.filter(|u| u.is_finite()).unwrap_or(0.0),
            quality: quality.into(),
            age_s: e.age.as_secs_f64(),
        })
    }
}

/// Looks at the scheduler between two ticks.
pub fn look(engine: &Engine, machine: &Live, began: Nanos, changes: u64) -> Status {
    let totals = engine.totals();
    let mechanism = machine.mechanism();
    let topology = amp_sched::Machine::topology(machine);
    let snapshot = machine.last();
    let offered: HashSet<_> = engine.offered().iter().map(|t| t.key).collect();
    let mut per_thread: Vec<ThreadStatus> = snapshot
        .everybody()
        .map(|t| (t, engine.rule(t.key)))
        .filter(|(t, rule)| offered.contains(&t.key) || t.placed.is_some() || rule.is_some())
        .map(|(t, rule)| ThreadStatus {
            rule: rule.map(|r| r.to_string()).unwrap_or_default(),
            virtual_counters: virtual_counters(snapshot, |of| {
                (of == Subject::App(t.app)).then(String::new)
            }),
            rated_s: engine.done(t.key).map_or(0.0, |d| d.rated),
            alone_s: engine.done(t.key).map_or(0.0, |d| d.alone),
            ..thread(t, topology, engine.provider())
        })
        .collect();
    per_thread.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s).then(a.tid.cmp(&b.tid)));
    let knobs = engine.policy().knobs().values();
    let knobs = knobs.map(|(k, v)| (k.to_owned(), v));
    let own = engine.knobs().values();
    let own = own.map(|(k, v)| (format!("{}.{k}", engine.knobs().policy()), v));
    Status {
        // whoever asks knows them
        profile: String::new(),
        interval_ms: 0,
        cpufreq: String::new(),
        rules: String::new(),
        rules_failed: String::new(),
        policy: engine.policy().name().to_owned(),
        knobs: knobs.chain(own).collect(),
        provider: engine.provider().name().to_owned(),
        provider_failed: match engine.provider().health() {
            Health::Working => String::new(),
            Health::Failed(why) => why,
        },
        uncounted: machine.uncounted().unwrap_or_default(),
        virtual_counters: virtual_counters(snapshot, |of| match of {
            Subject::Machine => Some(String::new()),
            Subject::CoreType(t) => Some(format!(" {}", core_type_name(topology, t))),
            Subject::Cpu(cpu) => Some(format!(" cpu{cpu}")),
            Subject::App(_) => None,
        }),
        capacities: (0..)
            .map(CoreTypeId)
            .zip(machine.capacities())
            .map(|(t, c)| (core_type_name(topology, t), u64::from(*c)))
            .collect(),
        costs: costs(topology, engine.provider()),
        uptime_s: clock::now().saturating_sub(began).as_secs_f64(),
        ticks: totals.ticks,
        glances: totals.glances,
        changes,
        threads: snapshot.population() as u64,
        active: engine.offered().len() as u64,
        swaps: totals.swaps,
        probes: totals.probes,
        swap_latency_p50_us: mechanism.swap_latency_p50.map_or(0.0, |n| n.0 as f64 / 1e3),
        placements: mechanism.placements,
        fallbacks: mechanism.fallbacks,
        untracked: mechanism.untracked,
        unread: mechanism.unread,
        core_types: topology
            .core_types()
            .iter()
            .map(|t| t.name.clone())
            .collect(),
        cpus: cpus(topology, machine.threads_now()),
        recording: BTreeMap::new(),
        memory: String::new(),
        memory_failed: String::new(),
        per_thread,
    }
}

/// What the provider knows of programs that slow each other down.
fn costs(topology: &Topology, provider: &dyn Provider) -> BTreeMap<String, f64> {
    let seat = |s: Seat| {
        let comm = provider.program_name(s.program)?;
        let on = core_type_name(topology, s.on);
        Some(format!("{} on {on}", command_name(&comm)))
    };
    let known = provider.costs().iter();
    known
        .filter_map(|c| {
            Some((
                format!("{} beside {}", seat(c.of)?, seat(c.beside)?),
                c.ln.exp(),
            ))
        })
        .collect()
}

/// A command name without its padding.
fn command_name(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|c| *c == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

/// Every CPU with the thread that runs there.
fn cpus(topology: &Topology, threads: impl Iterator<Item = amp_bpf::Thread>) -> Vec<CpuStatus> {
    let running = threads.filter(|t| t.state == amp_bpf::State::Running);
    let on: BTreeMap<u32, amp_bpf::Thread> = running.map(|t| (t.cpu, t)).collect();
    let types = topology.core_types().iter();
    let all = types.flat_map(|t| t.cpus.iter().map(|cpu| (*cpu, t.name.clone())));
    all.map(|(cpu, core_type)| {
        let there = on.get(&cpu);
        CpuStatus {
            cpu: u64::from(cpu),
            core_type,
            tid: there.map_or(0, |t| i64::from(t.pid)),
            comm: there.map(amp_bpf::Thread::name).unwrap_or_default(),
        }
    })
    .collect()
}

fn core_type_name(topology: &Topology, id: CoreTypeId) -> String {
    let found = topology.core_types().get(id.index());
    found.map_or_else(|| id.to_string(), |t| t.name.clone())
}

/// The readings that `wanted` names, under the counter's name, its unit and that name.
fn virtual_counters(
    snapshot: &Snapshot,
    wanted: impl Fn(Subject) -> Option<String>,
) -> BTreeMap<String, f64> {
    let readings = snapshot.virtual_counters.iter();
    readings
        .filter_map(|r| {
            let key = format!("{}_{}{}", r.counter.name(), r.counter.unit(), wanted(r.of)?);
            r.value.is_finite().then_some((key, r.value))
        })
        .collect()
}

fn thread(t: &ThreadSample, topology: &Topology, provider: &dyn Provider) -> ThreadStatus {
    let name = |id: CoreTypeId| core_type_name(topology, id);
    let cpu_s = t.runtime.iter().copied().sum::<Nanos>().as_secs_f64();
    let big = t.runtime[CoreTypeId::FASTEST.index()].as_secs_f64();
    let mut metrics = BTreeMap::new();
    let types = topology.core_types().len().min(MAX_CORE_TYPES) as u8;
    for id in (0..types.saturating_sub(1)).map(CoreTypeId) {
        // with two core types there is one factor of each kind
        let of = if types == 2 {
            String::new()
        } else {
            format!("_{}", name(id))
        };
        for (metric, what) in [
            (MetricId::SpeedupFactor(id), "sf"),
            (MetricId::EfficiencyFactor(id), "ef"),
        ] {
            if let Some(m) = provider.estimate(t.key, metric).and_then(Metric::of) {
                metrics.insert(format!("{what}{of}"), m);
            }
        }
    }
    // what was measured where it runs; the other core types' are in the factors
    let ipc = provider.estimate(t.key, MetricId::Ipc(t.core_type));
    if let Some(m) = ipc.and_then(Metric::of) {
        metrics.insert("ipc".to_owned(), m);
    }
    let phase = provider.phase(t.key).map(|p| {
        [
            ("number".to_owned(), f64::from(p.number)),
            ("age_s".to_owned(), p.age.as_secs_f64()),
        ]
    });
    ThreadStatus {
        // whoever asks knows it
        rule: String::new(),
        phase: phase.into_iter().flatten().collect(),
        virtual_counters: BTreeMap::new(),
        tid: i64::from(t.tid),
        app: t.app.0,
        comm: command_name(&t.comm),
        weight: u64::from(t.weight),
        core_type: name(t.core_type),
        placed: t.placed.map(name).unwrap_or_default(),
        cpu_s,
        big_time_share: if cpu_s > 0.0 { big / cpu_s } else { 0.0 },
        // whoever asks knows it
        rated_s: 0.0,
        alone_s: 0.0,
        metrics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_sched::CoreType;

    #[test]
    fn every_cpu_has_the_thread_that_runs_there() {
        let core = |name: &str, cpus: &[u32], capacity| CoreType {
            name: name.into(),
            cpus: cpus.to_vec(),
            capacity,
        };
        let topology =
            Topology::new(vec![core("big", &[4, 5], 1024), core("little", &[0], 400)]).unwrap();
        let thread = |pid, cpu, state| amp_bpf::Thread {
            slot: 1,
            generation: 1,
            pid,
            tgid: pid,
            comm: *b"fp\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            arguments: 0,
            own_weight: 100,
            weight: 100,
            group: 1,
            allowed: 3,
            state,
            cpu,
            core_type: 0,
            placement: None,
            runtime: [0; MAX_CORE_TYPES],
            stolen: 0,
            swaps: 0,
        };
        let threads = [
            thread(7, 5, amp_bpf::State::Running),
            thread(8, 0, amp_bpf::State::Queued),
            thread(9, 4, amp_bpf::State::Sleeping),
        ];
        let all = cpus(&topology, threads.into_iter());
        let seen: Vec<_> = all
            .iter()
            .map(|c| (c.cpu, c.core_type.as_str(), c.tid, c.comm.as_str()))
            .collect();
        assert_eq!(
            seen,
            [(4, "big", 0, ""), (5, "big", 7, "fp"), (0, "little", 0, "")]
        );
    }
}
