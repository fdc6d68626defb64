//! The protocol on this machine [PMCTrack §4; TR5028]: every program alone on slow cores and with fast ones, then the
//! mix under each policy by turns, so that a drift of the machine meets all of them alike.

use super::apps::{Launcher, Program};
use super::counts::{Counts, Meter};
use super::inputs::WorkDir;
use super::session::{self, MixRun, Rules, Slice, Under};
use super::solo_cache::{self, SoloCache, SoloTimes};
use super::{BenchArgs, BASELINE};
use crate::live::{Live, LiveOptions};
use crate::provider::{self, why_this};
use crate::scheduling::Scheduling;
use amp_eval::evaluation::{
    self, oracle, AppRun, AppSpec, BenchReport, Environment, MachineFacts, PolicyResult, Run, Solo,
    Timeline,
};
use amp_eval::workload::Workload;
use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_host::realtime::become_real_time;
use amp_host::topology::{self, Detected};
use amp_host::user;
use amp_machine::CpuList;
use amp_metrics::providers::{Declarations, Declared, Speedups};
use amp_metrics::uncertainty::Measured;
use amp_metrics::Nanos;
use amp_pmc::CounterInventory;
use amp_sched::policy::Settings;
use anyhow::{Context, Result};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use std::sync::atomic::AtomicBool;

/// Time between attaching a scheduler and starting programs under it: its first ticks, and the end of what loading it
/// stirred up.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(200);

struct Bench<'a> {
    args: &'a BenchArgs,
    detected: Detected,
    programs: Vec<Program>,
    threads: Vec<u32>,
    launcher: Launcher,
    meter: Meter,
    progress: Progress,
    rules: Rules<'a>,
}

/// Runs the whole protocol here.
///
/// # Errors
/// Bad input, a program or the kernel that fails, or [`super::Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    let detected = topology::detect(args.big_cpus.as_ref())?;
    if detected.topology.core_types().len() < 2 {
        return Err(bad_input(
            "all cores of this machine are of one type: name the fast ones with --big-cpus, or use --on board",
        ));
    }
    let user = user::behind_sudo()?;
    let workdir = WorkDir::new(args.workdir.as_deref(), user)?;
    workdir.prepare(workload.apps.iter().filter_map(|a| a.command.as_deref()))?;
    // one that is not possible here is refused before anything is measured
    if args.provider != "declared" {
        let mut inventory =
            CounterInventory::of(&detected.topology)?.with_trust(args.trust.find()?);
        provider::prepare(&mut inventory, &args.provider)?;
    }
    let cpus = detected.llc_of.keys().copied().collect();
    let mut bench = Bench {
        args,
        programs: workload
            .apps
            .iter()
            .map(|a| Program {
                name: a.name.clone(),
                command: a.command.clone().unwrap_or_default(),
                weight: a.weight,
            })
            .collect(),
        threads: workload.apps.iter().map(|a| a.threads).collect(),
        launcher: Launcher {
            workdir: workdir.path().into(),
            user,
            cpus,
        },
        meter: Meter::open(),
        progress: if args.progress_lines {
            Progress::lines()
        } else {
            Progress::bar()
        },
        rules: Rules {
            completions: args.completions as usize,
            interval: Nanos::from_millis(args.interval),
            limit: Nanos(args.timeout * 1_000_000_000),
            cancel,
        },
        detected,
    };
    bench.run(workload)
}

impl Bench<'_> {
    fn run(&mut self, workload: &Workload) -> Result<BenchReport> {
        match become_real_time() {
            Ok(()) => self.keep_off_fast_cores()?,
            // without root only the baseline can be measured anyway, and roughly
            Err(e) => log::warn!("{e:#}: completion times will be less exact"),
        }
        let solos = self.solos()?;
        let mut runs: Vec<Vec<(MixRun, Option<Counts>)>> =
            self.args.policies.iter().map(|_| Vec::new()).collect();
        self.progress
            .expect(u64::from(self.args.runs) * runs.len() as u64);
        let mut rng = SmallRng::seed_from_u64(self.args.seed);
        for r in 1..=self.args.runs {
            // every policy meets the same start order
            let mut order: Vec<usize> = (0..self.programs.len()).collect();
            order.shuffle(&mut rng);
            for (p, name) in self.args.policies.iter().enumerate() {
                self.progress
                    .begin(&format!("{name}, run {r} of {}", self.args.runs));
                let run = self.mix(name, &order, &solos, workload);
                runs[p].push(run.with_context(|| format!("policy `{name}`, run {r}"))?);
                self.progress.end();
            }
        }
        let results = self.args.policies.iter().zip(&runs);
        Ok(BenchReport {
            workload: workload.name.clone(),
            machine: MachineFacts::of(
                self.args.machine.as_deref().unwrap_or("host"),
                &self.detected.topology,
            ),
            on: "host".into(),
            provider: self.args.provider.clone(),
            environment: Environment {
                kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                    .ok()
                    .map(|s| s.trim().into()),
                virtual_time: self.meter.is_board(),
                seed: Some(self.args.seed),
                ..Environment::default()
            },
            results: results
                .map(|(name, runs)| self.evaluate(name, runs, &solos))
                .collect::<Result<_>>()?,
        })
    }

    /// The thread that measures stays on the slowest cores: real-time threads are drawn to fast ones, where every tick
    /// would cost most.
    fn keep_off_fast_cores(&self) -> Result<()> {
        let t = &self.detected.topology;
        let slow = t
            .core_types()
            .last()
            .map(|t| t.cpus.as_slice())
            .unwrap_or_default();
        amp_host::affinity::stay_on(slow)
    }

    fn solos(&mut self) -> Result<Vec<SoloTimes>> {
        let mut cache = SoloCache::open(self.args.solo_cache.as_deref());
        let keys: Vec<String> = self.programs.iter().map(|p| self.key(p)).collect();
        let missing = keys.iter().filter(|k| !self.enough(cache.get(k))).count() as u64;
        self.progress
            .expect(missing * u64::from(self.args.solo_runs) * 2);
        let mut out = Vec::new();
        for (i, key) in keys.into_iter().enumerate() {
            let times = match cache.get(&key) {
                Some(t) if self.enough(Some(t)) => t.clone(),
                _ => {
                    let t = self.alone(i)?;
                    cache.put(key, t.clone())?;
                    t
                }
            };
            out.push(times);
        }
        Ok(out)
    }

    fn enough(&self, times: Option<&SoloTimes>) -> bool {
        let n = self.args.solo_runs as usize;
        times.is_some_and(|t| t.slow_s.len() >= n && t.fast_s.len() >= n)
    }

    fn key(&self, program: &Program) -> String {
        let types: Vec<String> = self
            .detected
            .topology
            .core_types()
            .iter()
            .map(|t| format!("{}={}", t.capacity, CpuList(t.cpus.clone())))
            .collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
        let parts = [
            self.args.machine.as_deref().unwrap_or("host"),
            &self.args.model_version,
            &types.join(" "),
            &kernel,
        ];
        solo_cache::key(&parts, &program.command, &self.launcher.workdir)
    }

    /// One program alone: on the slowest cores, and with the fastest ones available.
    fn alone(&mut self, app: usize) -> Result<SoloTimes> {
        let program = &self.programs[app];
        let types = self.detected.topology.core_types();
        let slow = types.last().map(|t| t.cpus.clone()).unwrap_or_default();
        let fast = types.first().map(|t| t.cpus.clone()).unwrap_or_default();
        // More threads than fast cores: the fast ones are available, and so are the others.
        let fast = (self.threads[app] as usize <= fast.len()).then_some(fast);
        let mut times = SoloTimes {
            name: program.name.clone(),
            ..SoloTimes::default()
        };
        let mut instructions = Vec::new();
        for _ in 0..self.args.solo_runs {
            for (cpus, on) in [(Some(&slow), "slow cores"), (fast.as_ref(), "fast cores")] {
                self.progress
                    .begin(&format!("{} alone, {on}", program.name));
                let before = self.meter.read()?;
                let cpus = cpus.map(Vec::as_slice);
                let took = session::solo(program, cpus, &self.launcher, &self.rules)?;
                if let (Some(before), Some(after)) = (before, self.meter.read()?) {
                    instructions.push(after.since(before).instructions);
                }
                let to = if on == "slow cores" {
                    &mut times.slow_s
                } else {
                    &mut times.fast_s
                };
                to.push(took.as_secs_f64());
                self.progress.end();
            }
        }
        times.instructions = Measured::mean(&instructions).map(|m| m.value);
        Ok(times)
    }

    /// One run of the mix under one policy.
    fn mix(
        &self,
        policy: &str,
        order: &[usize],
        solos: &[SoloTimes],
        workload: &Workload,
    ) -> Result<(MixRun, Option<Counts>)> {
        let mut scheduling = if policy == BASELINE {
            None
        } else {
            Some(self.attach(policy, solos, workload)?)
        };
        let began = amp_host::clock::now();
        while amp_host::clock::now().saturating_sub(began).0 < SETTLE.as_nanos() as u64 {
            if let Some(s) = &mut scheduling {
                s.tick()?;
            }
            std::thread::sleep(SETTLE / 4);
        }
        let under = match &mut scheduling {
            None => Under::Kernel(&self.detected.topology),
            Some(s) => Under::Policy(s),
        };
        let before = self.meter.read()?;
        let run = session::run(&self.programs, order, &self.launcher, &self.rules, under)?;
        let counts = match (before, self.meter.read()?) {
            (Some(before), Some(after)) => Some(after.since(before)),
            _ => None,
        };
        Ok((run, counts))
    }

    fn attach(&self, policy: &str, solos: &[SoloTimes], workload: &Workload) -> Result<Scheduling> {
        let known = Some(&self.detected.topology);
        let policy = Settings::new(&self.args.settings, &self.args.policies)
            .and_then(|s| s.policy(policy, self.args.seed, known))
            .map_err(bad_input)?;
        let options = LiveOptions {
            interval: self.rules.interval,
            only_sched_ext: false,
        };
        let mut inventory =
            CounterInventory::of(&self.detected.topology)?.with_trust(self.args.trust.find()?);
        if self.args.provider != "declared" {
            let prepared = provider::prepare(&mut inventory, &self.args.provider)?;
            if let Some(why) = why_this(&self.args.provider, &prepared) {
                log::info!("{why}");
            }
            let machine = Live::attach(&self.detected, &mut inventory, &options)?;
            return Scheduling::counting(machine, policy, prepared);
        }
        let machine = Live::attach(&self.detected, &mut inventory, &options)?;
        let declarations = Declarations::default();
        let provider = provider::checked(
            &mut inventory,
            Box::new(Declared::new(declarations.clone())),
        )?;
        let mut s = Scheduling::counting(machine, policy, provider)?;
        let speedups = workload.apps.iter().zip(solos).map(|(app, solo)| {
            let sf = app.speedup.or_else(|| measured_sf(solo).map(|m| m.value))?;
            Speedups::fastest(sf).ok()
        });
        s.declare(declarations, speedups.collect());
        Ok(s)
    }

    fn evaluate(
        &self,
        policy: &str,
        runs: &[(MixRun, Option<Counts>)],
        solos: &[SoloTimes],
    ) -> Result<PolicyResult> {
        let specs: Vec<AppSpec> = self
            .programs
            .iter()
            .map(|p| AppSpec {
                name: p.name.clone(),
                weight: p.weight,
            })
            .collect();
        let times: Vec<Solo> = solos
            .iter()
            .map(|s| Solo {
                slow_s: s.slow_s.clone(),
                fast_s: s.fast_s.clone(),
            })
            .collect();
        let once: Option<f64> = solos.iter().map(|s| s.instructions).sum();
        let data: Vec<Run> = runs
            .iter()
            .map(|(run, counts)| self.data(policy, run, *counts, once))
            .collect();
        let mut result = evaluation::evaluate(policy, &specs, &times, &data)?;
        result.oracle = self.oracle(policy, solos);
        if let Some((last, _)) = runs.last() {
            result.timeline = self.timeline(&last.slices);
        }
        Ok(result)
    }

    /// A run as the evaluation takes it. Energy is that of `once` instructions, one completion of every program.
    fn data(&self, policy: &str, run: &MixRun, counts: Option<Counts>, once: Option<f64>) -> Run {
        let nr_types = self.detected.topology.core_types().len();
        let apps = run
            .completions
            .iter()
            .enumerate()
            .map(|(app, completions)| {
                let on = |t: usize| {
                    run.slices
                        .iter()
                        .map(|s| s.ran[app][t])
                        .sum::<Nanos>()
                        .as_secs_f64()
                };
                AppRun {
                    completions_s: completions.iter().map(|c| c.as_secs_f64()).collect(),
                    time_s: (0..nr_types).map(on).collect(),
                }
            });
        let scale = counts
            .zip(once)
            .map(|(c, once)| once / c.instructions.max(1.0));
        Run {
            apps: apps.collect(),
            duration_s: run.took.as_secs_f64(),
            energy_j: counts.zip(scale).map(|(c, s)| c.energy_j * s),
            instructions: counts.map(|c| c.instructions),
            swaps: (policy != BASELINE).then_some(run.swaps),
        }
    }

    /// What the policy would do to steady programs without overheads, contention or restarts, from the measured speedup
    /// factors. Only single-threaded mixes on two core types have one.
    fn oracle(&self, policy: &str, solos: &[SoloTimes]) -> Option<evaluation::OracleResult> {
        let types = self.detected.topology.core_types();
        if types.len() != 2 || self.threads.iter().any(|t| *t != 1) {
            return None;
        }
        let sf: Option<Vec<f64>> = solos
            .iter()
            .map(|s| measured_sf(s).map(|m| m.value))
            .collect();
        let weights: Vec<f64> = self
            .programs
            .iter()
            .map(|p| f64::from(p.weight) / 100.0)
            .collect();
        let cpus = types.iter().map(|t| t.cpus.len()).sum();
        oracle::of_policy(policy, &sf?, &weights, types[0].cpus.len(), cpus)
    }

    fn timeline(&self, slices: &[Slice]) -> Vec<evaluation::TimelineEntry> {
        let labels: Vec<&str> = self.programs.iter().map(|p| p.name.as_str()).collect();
        let types = self.detected.topology.core_types().len();
        let mut timeline = Timeline::new(&labels, types, Nanos::ZERO);
        for s in slices {
            for (app, ran) in s.ran.iter().enumerate() {
                timeline.record(app, s.to, s.to.saturating_sub(s.from), ran);
            }
        }
        timeline.entries()
    }
}

/// Speedup factor of a program from its times alone.
fn measured_sf(solo: &SoloTimes) -> Option<Measured> {
    let slow = Measured::geometric_mean(&solo.slow_s)?;
    Some(slow / Measured::geometric_mean(&solo.fast_s)?)
}
