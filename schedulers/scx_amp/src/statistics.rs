//! Statistics in the shape of the other sched_ext schedulers, where their tools look for them.
//!
//! Read-only: changes go through the private socket ([`crate::control`]). The shape is that which
//! `scxstats_to_openmetrics` of scx reads: numbers, texts, and dictionaries of structures that name
//! their label.

use crate::control::{self, Answer, Call};
use crate::status::{Status, ThreadStatus};
use anyhow::{Context, Result};
use scx_stats::prelude::*;
use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the tools of scx look.
pub const PATH: &str = "/var/run/scx/root/stats";

/// Most programs (command names) that have figures of their own: those with the most CPU time.
pub const MOST_PROGRAMS: usize = 50;

/// Longest time that an answer is waited for, in milliseconds.
const PATIENCE: u64 = 20_000;

/// Statistics of the scheduler.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "scx_amp statistics", top, _om_prefix = "amp_")]
pub struct Statistics {
    /// Policy.
    #[stat(desc = "policy", _om_skip)]
    pub policy: String,
    /// Profile.
    #[stat(
        desc = "profile; empty once policy or provider were chosen otherwise",
        _om_skip
    )]
    pub profile: String,
    /// Provider.
    #[stat(desc = "metric provider", _om_skip)]
    pub provider: String,
    /// Whether the provider works.
    #[stat(desc = "1 while the provider works, 0 when it has failed")]
    pub provider_working: u64,
    /// Whether all is counted that should be.
    #[stat(desc = "1 while all that should be counted is, else 0")]
    pub counting: u64,
    /// Seconds since the start.
    #[stat(desc = "seconds since the scheduler was attached")]
    pub uptime_s: f64,
    /// Ticks.
    #[stat(desc = "decisions since the start")]
    pub ticks: u64,
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
    #[stat(desc = "pairs of threads that changed places to be measured since the start")]
    pub probes: u64,
    /// Median swap latency.
    #[stat(
        desc = "median microseconds from a decision to the thread running on its new core type, 0 = none yet"
    )]
    pub swap_latency_p50_us: f64,
    /// Fallbacks.
    #[stat(desc = "times BPF shared fairly by itself because no tick came")]
    pub fallbacks: u64,
    /// Untracked threads.
    #[stat(desc = "threads that found the slot table full since the start")]
    pub untracked: u64,
    /// Failed readings of counters.
    #[stat(desc = "readings of hardware counters that failed since the start")]
    pub unread: u64,
    /// By core type.
    #[stat(desc = "core types by name")]
    pub core_types: BTreeMap<String, CoreTypeStatistics>,
    /// By command name.
    #[stat(desc = "the programs with the most CPU time, by command name")]
    pub programs: BTreeMap<String, ProgramStatistics>,
}

/// Statistics of a core type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(
    desc = "core type statistics",
    _om_prefix = "amp_core_",
    _om_label = "core_type"
)]
pub struct CoreTypeStatistics {
    /// CPUs.
    #[stat(desc = "CPUs of this type")]
    pub cpus: u64,
    /// Busy CPUs.
    #[stat(desc = "those of them with a thread on them at this moment")]
    pub busy: u64,
}

/// Statistics of the threads of one command name that are alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(
    desc = "program statistics",
    _om_prefix = "amp_program_",
    _om_label = "program"
)]
pub struct ProgramStatistics {
    /// Threads.
    #[stat(desc = "threads of this name that the policy places")]
    pub threads: u64,
    /// Threads on fast cores.
    #[stat(desc = "those of them that are placed on the fastest core type")]
    pub fast_threads: u64,
    /// CPU time.
    #[stat(desc = "CPU seconds of those threads since they were first seen")]
    pub cpu_s: f64,
    /// CPU time on fast cores.
    #[stat(desc = "the part of it on the fastest core type")]
    pub fast_cpu_s: f64,
    /// CPU time in which speedup factors were known.
    #[stat(desc = "the part of it in which speedup factors were known")]
    pub rated_s: f64,
    /// What the same work would have taken alone.
    #[stat(
        desc = "CPU seconds that the same work would have taken with the fast cores for itself"
    )]
    pub alone_s: f64,
}

impl ProgramStatistics {
    /// How many times as long it took as with the fast cores to itself; none while not known.
    pub fn slowdown(&self) -> Option<f64> {
        (self.alone_s > 0.0).then(|| self.rated_s / self.alone_s)
    }

    fn add(&mut self, t: &ThreadStatus, fastest: &str) {
        self.threads += 1;
        self.fast_threads += u64::from(t.placed == fastest);
        self.cpu_s += t.cpu_s;
        self.fast_cpu_s += t.cpu_s * t.big_time_share;
        self.rated_s += t.rated_s;
        self.alone_s += t.alone_s;
    }
}

impl Statistics {
    /// The statistics of what a scheduler is doing.
    pub fn of(s: &Status) -> Statistics {
        let core_types = s.core_types.iter().map(|name| {
            let of = || s.cpus.iter().filter(|c| c.core_type == *name);
            let figures = CoreTypeStatistics {
                cpus: of().count() as u64,
                busy: of().filter(|c| c.tid != 0).count() as u64,
            };
            (name.clone(), figures)
        });
        Statistics {
            policy: s.policy.clone(),
            profile: s.profile.clone(),
            provider: s.provider.clone(),
            provider_working: u64::from(s.provider_failed.is_empty()),
            counting: u64::from(s.uncounted.is_empty()),
            uptime_s: s.uptime_s,
            ticks: s.ticks,
            threads: s.threads,
            active: s.active,
            swaps: s.swaps,
            probes: s.probes,
            swap_latency_p50_us: s.swap_latency_p50_us,
            fallbacks: s.fallbacks,
            untracked: s.untracked,
            unread: s.unread,
            core_types: core_types.collect(),
            programs: programs(s),
        }
    }

    /// A line for people.
    pub fn line(&self) -> String {
        format!(
            "{:8.1} s  {}  {} ticks  {} threads ({} active)  {} swaps (median latency {:.0} us)  {} untracked",
            self.uptime_s,
            self.policy,
            self.ticks,
            self.threads,
            self.active,
            self.swaps,
            self.swap_latency_p50_us,
            self.untracked
        )
    }
}

/// The programs with the most CPU time.
fn programs(s: &Status) -> BTreeMap<String, ProgramStatistics> {
    let fastest = s.core_types.first().map_or("", String::as_str);
    let mut by_name: BTreeMap<&str, ProgramStatistics> = BTreeMap::new();
    for t in &s.per_thread {
        by_name.entry(&t.comm).or_default().add(t, fastest);
    }
    let mut most: Vec<(&str, ProgramStatistics)> = by_name.into_iter().collect();
    most.sort_by(|(_, a), (_, b)| b.cpu_s.total_cmp(&a.cpu_s));
    let most = most.into_iter().take(MOST_PROGRAMS);
    most.map(|(name, p)| (name.to_owned(), p)).collect()
}

/// What is served, and what is said of each figure.
fn data(submit: impl Fn(Call) -> bool + Send + 'static) -> StatsServerData<(), ()> {
    StatsServerData::new()
        .add_meta(Statistics::meta())
        .add_meta(CoreTypeStatistics::meta())
        .add_meta(ProgramStatistics::meta())
        .add_stats(
            "top",
            Box::new(
                move |_, _| match control::call(&submit, control::Order::Status)? {
                    Answer::Status(s) => Statistics::of(&s).to_json(),
                    other => Err(control::unexpected(&other)),
                },
            ),
        )
}

/// What each figure is, as text.
///
/// # Errors
/// None that is known: the writer is memory.
pub fn described() -> Result<String> {
    let mut text = Vec::new();
    data(|_| false).describe_meta(&mut text, None)?;
    Ok(String::from_utf8(text)?)
}

/// Statistics that are served; they go when this is dropped.
pub struct Server {
    _server: StatsServer<(), ()>,
    path: PathBuf,
    socket: Option<u64>,
}

impl Server {
    /// Starts serving on the socket `path`; what is asked goes to `submit`, which is false when
    /// nobody will ever answer.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, submit: impl Fn(Call) -> bool + Send + 'static) -> Result<Server> {
        let server = StatsServer::new(data(submit))
            .set_path(path)
            .launch()
            .with_context(|| format!("cannot serve statistics on {}", path.display()))?;
        Ok(Server {
            _server: server,
            path: path.to_owned(),
            socket: inode(path),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // another scheduler may have put its own there
        if self.socket.is_some() && inode(&self.path) == self.socket {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some(meta.ino())
}

/// Prints a line of the statistics on the socket `path` through `print` every so often, until
/// `wait` says that it is enough.
///
/// # Errors
/// When no scheduler serves statistics there, or those of another one.
pub fn monitor(
    path: &Path,
    mut print: impl FnMut(&str) -> bool,
    mut wait: impl FnMut() -> bool,
) -> Result<()> {
    let mut client = StatsClient::new()
        .set_path(path)
        .connect(Some(PATIENCE))
        .with_context(|| {
            format!(
                "{}: no scx_amp is running, or you are not root",
                path.display()
            )
        })?;
    loop {
        let answer: serde_json::Value = client
            .request("stats", Vec::new())
            .context("the running scheduler does not answer")?;
        let statistics: Statistics = serde_json::from_value(answer)
            .with_context(|| format!("{}: not the statistics of scx_amp", path.display()))?;
        if !print(&statistics.line()) || wait() {
            return Ok(());
        }
    }
}

/// A number of seconds as an option says it.
///
/// # Errors
/// What would be right.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let secs = text.parse().ok().filter(|s| (0.1..=86_400.0).contains(s));
    let secs = secs.map(Duration::from_secs_f64);
    secs.ok_or_else(|| "a number of seconds from 0.1 to 86400 is needed".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::CpuStatus;
    use scx_stats::{StatsData, StatsKind};
    use std::collections::BTreeSet;

    fn status() -> Status {
        let thread = |comm: &str, placed: &str| ThreadStatus {
            comm: comm.into(),
            placed: placed.into(),
            cpu_s: 4.0,
            big_time_share: 0.25,
            rated_s: 3.0,
            alone_s: 2.0,
            ..ThreadStatus::default()
        };
        Status {
            policy: "hsp".into(),
            uptime_s: 2.5,
            swaps: 7,
            uncounted: "set 1".into(),
            core_types: vec!["big".into(), "little".into()],
            cpus: vec![
                CpuStatus {
                    cpu: 0,
                    core_type: "big".into(),
                    tid: 7,
                    comm: "a".into(),
                },
                CpuStatus {
                    cpu: 1,
                    core_type: "little".into(),
                    ..CpuStatus::default()
                },
            ],
            per_thread: vec![thread("a", "big"), thread("a", "little"), thread("b", "")],
            ..Status::default()
        }
    }

    #[test]
    fn threads_of_a_name_are_summed_and_names_are_bounded() {
        let s = Statistics::of(&status());
        assert_eq!((s.provider_working, s.counting), (1, 0));
        assert_eq!(s.core_types["big"], CoreTypeStatistics { cpus: 1, busy: 1 });
        assert_eq!(s.core_types["little"].busy, 0);
        let a = &s.programs["a"];
        assert_eq!(
            (a.threads, a.fast_threads, a.cpu_s, a.fast_cpu_s),
            (2, 1, 8.0, 2.0)
        );
        assert_eq!(a.slowdown(), Some(1.5));
        let mut many = status();
        many.per_thread = (0..500)
            .map(|i| ThreadStatus {
                comm: format!("p{i}"),
                cpu_s: f64::from(i),
                ..ThreadStatus::default()
            })
            .collect();
        let s = Statistics::of(&many);
        assert_eq!(s.programs.len(), MOST_PROGRAMS);
        assert!(s.programs.contains_key("p499") && s.programs["p499"].slowdown().is_none());
    }

    /// What upstream's script does with descriptions: numbers become figures, dictionaries of
    /// structures become figures with a label, and names have to be unique.
    #[test]
    fn upstreams_script_can_read_every_field() {
        let described = [
            Statistics::meta(),
            CoreTypeStatistics::meta(),
            ProgramStatistics::meta(),
        ];
        let of = |name: &str| described.iter().find(|m| m.name == name).unwrap();
        let mut names = BTreeSet::new();
        for meta in &described {
            let prefix = &meta.attrs.user["_om_prefix"];
            for (field, described) in &meta.fields {
                let skipped = described.attrs.user.contains_key("_om_skip");
                match &described.data {
                    StatsData::Datum(StatsKind::String) => assert!(skipped, "{field}"),
                    StatsData::Datum(_) => {
                        assert!(names.insert(format!("{prefix}{field}")), "{field} twice");
                    }
                    StatsData::Dict {
                        datum: StatsKind::Struct(inner),
                        ..
                    } => assert!(of(inner).attrs.user.contains_key("_om_label"), "{field}"),
                    other => panic!("{field}: {other}"),
                }
            }
        }
        assert!(described[0].attrs.top.is_some());
        assert!(names.contains("amp_swaps") && names.contains("amp_core_busy"));
    }

    #[test]
    fn statistics_are_served_monitored_and_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root/stats");
        let e = monitor(&path, |_| true, || true).unwrap_err().to_string();
        assert!(e.contains("no scx_amp is running"), "{e}");
        let server = Server::start(&path, |call| {
            assert!(matches!(call.order, control::Order::Status));
            call.answer.send(Answer::Status(Box::new(status()))).is_ok()
        })
        .unwrap();
        let (mut lines, mut waits) = (Vec::new(), 0);
        monitor(
            &path,
            |line| {
                lines.push(line.to_owned());
                true
            },
            || {
                waits += 1;
                waits == 3
            },
        )
        .unwrap();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].contains("hsp") && lines[0].contains("7 swaps"),
            "{lines:?}"
        );
        // whoever has had enough ends it, too
        monitor(&path, |_| false, || panic!("it waits")).unwrap();
        // nothing can be changed here
        let mut client = StatsClient::new()
            .set_path(&path)
            .connect(Some(PATIENCE))
            .unwrap();
        let args = vec![("target".to_owned(), "change".to_owned())];
        let refused: Result<serde_json::Value> = client.request("stats", args);
        assert!(refused.is_err());
        drop(server);
        assert!(!path.exists());
        // that of another scheduler stays
        let server = Server::start(&path, |_| false).unwrap();
        std::fs::rename(&path, dir.path().join("ours")).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(server);
        assert!(path.exists());
    }

    #[test]
    fn figures_are_described() {
        let text = described().unwrap();
        for wants in [
            "[Statistics",
            "fast_cpu_s",
            "threads moved between core types",
        ] {
            assert!(text.contains(wants), "{text}");
        }
    }
}
