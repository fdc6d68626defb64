//! A recording as a workload and a machine for the simulator.
//!
//! | of the recording | in the workload |
//! |---|---|
//! | a process | an application of as many threads as were busy at a time |
//! | processes of one name that follow each other | one application |
//! | a stretch of steady behaviour | a phase: its instructions, its speed on each core type, its sleep |
//! | speed on both core types, counted in the stretch | that of the phase |
//! | on one of them only | the other's by a speedup factor: of the provider, or of the whole program, whichever is less uncertain |
//! | no speedup factor | drawn between 1 and the square of the ratio of capacities |
//! | no counted instructions | CPU time; a second on the slowest core type is 10⁹ instructions |
//! | time in which nobody ran and nobody waited | sleep, as long under any policy |
//!
//! What a recording cannot know is drawn ([`Replay::draws`]): each draw is a workload that may have
//! been the one that was recorded. Contention for caches and memory is in the speeds as it was.

mod programs;
mod stretches;

use crate::read::Recording;
use amp_eval::workload::{App, Phase, Schedule, Workload};
use amp_machine::{BadFile, CpuList, MachineFile, Migration};
use amp_metrics::distributions::normal_quantile;
use amp_metrics::Topology;
use programs::Program;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use stretches::{Source, Stretch};

/// Applications that are simulated: those with the most CPU time.
const MOST_APPS: usize = 64;
/// Share of the recorded CPU time below which a program is left out.
const LEAST_SHARE: f64 = 0.005;
/// What a migration costs the simulated machine, in microseconds: as the shipped machines.
const MIGRATION_US: f64 = 50.0;
/// Instructions of a second on the slowest core type, where nobody counted.
const NOMINAL_IPS: f64 = 1e9;
/// The ratio of speeds that is taken to be as likely too high as too low where capacities are
/// equal.
const FLAT_RATIO: f64 = 2.0;
/// About how long a sleep is: what slept half of the time did so in pieces.
const NAP_S: f64 = 0.01;
/// Most pieces that the sleep of a stretch is cut into.
const MOST_NAPS: f64 = 1000.0;

/// A recording, ready to be drawn from.
#[derive(Clone, Debug)]
pub struct Replay {
    name: String,
    positions: Vec<f64>,
    /// The largest factor that is drawn where nothing is known.
    most_sf: f64,
    programs: Vec<Program>,
    /// The machine that was recorded.
    pub machine: MachineFile,
    /// What it knows and what it does not.
    pub facts: ReplayFacts,
}

/// What a replay rests on. Shares are of the CPU time of the programs in it, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayFacts {
    /// Recorded time in seconds.
    pub recorded_s: f64,
    /// Policy that was recorded first.
    pub policy: String,
    /// Whether it was changed meanwhile.
    pub policy_changed: bool,
    /// Share whose speed was counted on two core types within the stretch.
    pub counted_on_both: f64,
    /// Share whose speed elsewhere is from the provider's speedup factor.
    pub by_provider: f64,
    /// Share whose speed elsewhere is from other stretches of the program.
    pub by_program: f64,
    /// Share of which nothing is known of its speed elsewhere.
    pub unknown: f64,
    /// Share without counted instructions.
    pub uncounted: f64,
    /// Share of the time of the programs in which they slept.
    pub slept: f64,
    /// Programs that are left out.
    pub left_out: usize,
    /// Their share of all CPU time that was recorded.
    pub left_out_share: f64,
    /// What reading the recording had to say.
    pub notes: Vec<String>,
    /// Per application, by name: share of its CPU time on the fastest core type.
    pub big_time_share: std::collections::BTreeMap<String, f64>,
}

impl Replay {
    /// Makes a workload of what was recorded.
    ///
    /// # Errors
    /// When no thread ran in it.
    pub fn of(recording: &Recording) -> Result<Replay, BadFile> {
        let topology = &recording.topology;
        let mut programs = programs::of(recording);
        let total: f64 = programs.iter().map(Program::cpu_s).sum();
        programs.sort_by(|a, b| b.cpu_s().total_cmp(&a.cpu_s()));
        let all = programs.len();
        programs.retain(|p| p.cpu_s() > 0.0 && p.cpu_s() >= LEAST_SHARE * total);
        programs.truncate(MOST_APPS);
        if programs.is_empty() {
            let message = "no thread ran while it was recorded: there is nothing to replay";
            return Err(BadFile::whole(&recording.path, message));
        }
        programs::name(&mut programs);
        let kept: f64 = programs.iter().map(Program::cpu_s).sum();
        let mut facts = ReplayFacts {
            recorded_s: recording.length_s(),
            policy: recording.header.policy.clone(),
            policy_changed: recording.spans.iter().any(|s| {
                let other = |c: &crate::format::Change| c.policy != recording.header.policy;
                s.change.as_ref().is_some_and(other)
            }),
            left_out: all - programs.len(),
            left_out_share: 1.0 - kept / total,
            notes: recording.notes.clone(),
            ..ReplayFacts::default()
        };
        for p in &mut programs {
            for s in &mut p.stretches {
                if let Some((sf, a, b)) = programs::pair(s, &topology.positions()) {
                    s.doubt(sf, a, b);
                }
            }
        }
        for p in &programs {
            let big: f64 = p.stretches.iter().map(|s| s.cpu_s[0]).sum();
            facts.big_time_share.insert(p.name.clone(), big / p.cpu_s());
            for s in &p.stretches {
                let share = s.busy_s() / kept;
                match p.source(s, &topology.positions()).0 {
                    Source::Counted => facts.counted_on_both += share,
                    Source::Provider => facts.by_provider += share,
                    Source::Program => facts.by_program += share,
                    Source::Nothing => facts.unknown += share,
                }
                if s.counted_s.iter().sum::<f64>() <= 0.0 {
                    facts.uncounted += share;
                }
                let lifetimes = facts.recorded_s * programs.len() as f64;
                facts.slept += s.sleep_s(p.threads) / lifetimes;
            }
        }
        let first = topology.core_types()[0].capacity.max(1);
        let last = topology.core_types()[topology.slowest().index()]
            .capacity
            .max(1);
        let ratio = f64::from(first) / f64::from(last);
        Ok(Replay {
            name: format!("replay of {}", recording.path.display()),
            positions: topology.positions(),
            most_sf: if ratio > 1.0 { ratio } else { FLAT_RATIO }.powi(2),
            machine: machine(topology),
            programs,
            facts,
        })
    }

    /// Whether every draw is the same: nothing that matters is uncertain.
    pub fn is_certain(&self) -> bool {
        let sure = |p: &Program, s: &Stretch| {
            let (source, sf) = p.source(s, &self.positions);
            source != Source::Nothing && sf.is_none_or(|(_, u)| u <= 0.0)
        };
        self.programs
            .iter()
            .all(|p| p.stretches.iter().all(|s| sure(p, s)))
    }

    /// The largest speedup factor that is drawn where nothing is known.
    pub fn largest_factor(&self) -> f64 {
        self.most_sf
    }

    /// `n` workloads that may have been recorded. The speedup factors of a program err together,
    /// those of different programs do not. Draws are spread evenly over what is possible (a Latin
    /// hypercube), so that few of them show its width.
    pub fn draws(&self, n: usize, seed: u64) -> Vec<Workload> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut out = vec![Vec::with_capacity(self.programs.len()); n];
        for p in &self.programs {
            let mut strata: Vec<usize> = (0..n).collect();
            strata.shuffle(&mut rng);
            for (apps, stratum) in out.iter_mut().zip(strata) {
                let q = (stratum as f64 + rng.random_range(0.001..0.999)) / n as f64;
                apps.push(self.app(p, q));
            }
        }
        let workload = |apps| Workload {
            name: self.name.clone(),
            machine: None,
            apps,
        };
        out.into_iter().map(workload).collect()
    }

    /// The program at quantile `q` of what it may be.
    fn app(&self, p: &Program, q: f64) -> App {
        let phases: Vec<Phase> = p
            .stretches
            .iter()
            .flat_map(|s| self.phases(p, s, q))
            .collect();
        App {
            name: p.name.clone(),
            threads: p.threads,
            weight: p.weight,
            speedup: None,
            command: None,
            instructions: Some(phases.iter().map(|p| p.instructions).sum()),
            phases,
        }
    }

    /// A stretch as one phase or several equal ones.
    fn phases(&self, p: &Program, s: &Stretch, q: f64) -> Vec<Phase> {
        let sf = match p.source(s, &self.positions) {
            (_, Some((sf, u))) => sf * (u / sf * normal_quantile(q)).exp(),
            (_, None) => self.most_sf.powf(q),
        };
        let sf = sf.clamp(0.05, 100.0);
        let (anchor, ips) = p
            .anchor(s)
            .unwrap_or((self.positions.len() - 1, NOMINAL_IPS));
        let small = ips / sf.powf(self.positions[anchor]);
        let there = |t: usize| match s.ips(t) {
            Some(ips) => ips,
            None => small * sf.powf(self.positions[t]),
        };
        let done: f64 = s
            .cpu_s
            .iter()
            .enumerate()
            .map(|(t, cpu)| cpu * there(t))
            .sum();
        let sleep = s.sleep_s(p.threads);
        let serial = s.is_serial(p.threads);
        let pieces = (sleep / NAP_S).ceil().clamp(1.0, MOST_NAPS);
        // what nobody did takes no time
        let idle = done <= 1.0;
        let pieces = if idle { 1.0 } else { pieces };
        let (phases, loops) = if serial { (pieces, 1.0) } else { (1.0, pieces) };
        let phase = Phase {
            instructions: done.max(1.0) / phases,
            ips_big: small * sf,
            ips_small: small,
            power_big: None,
            power_small: None,
            parallel: !serial,
            schedule: Schedule::Dynamic,
            loops: loops as u32,
            sleep: sleep / pieces,
            cache: None,
        };
        vec![phase; phases as usize]
    }
}

fn machine(topology: &Topology) -> MachineFile {
    let types = topology.core_types().iter();
    MachineFile {
        name: "recorded".to_owned(),
        core_types: types
            .map(|t| amp_machine::CoreType {
                name: t.name.clone(),
                cpus: CpuList(t.cpus.clone()),
                capacity: t.capacity,
                model: None,
            })
            .collect(),
        migration: Migration {
            cost_us: MIGRATION_US,
        },
        board: None,
    }
}
