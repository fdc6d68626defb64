//! This machine as a laboratory [PMCTrack §4; TR5028]: programs are started as processes, and the
//! kernel's own scheduler or a policy of ours places them.

mod apps;
mod counts;
mod energy_model;
mod passes;
pub mod peer;
mod session;
mod where_ran;

use super::inputs::WorkDir;
use super::measure;
use crate::bench::BenchArgs;
use crate::cpufreq;
use crate::live::{Live, LiveOptions};
use crate::memory::Remembering;
use crate::provider::{self, why_this, Asked};
use crate::recording::{self, RecordArgs, Recording};
use crate::scheduling::Scheduling;
use amp_eval::contender::Scx;
use amp_eval::evaluation::{
    AppRun, BenchReport, Environment, MachineFacts, Pass, SchedulerFacts, Timeline,
};
use amp_eval::lab::{AloneRecord, Cores, Facts, MixSpec, RunRecord};
use amp_eval::solos::{self, SoloCache, SoloTimes};
use amp_eval::workload::{App, Workload};
use amp_eval::{BenchError, Contender, Lab, Plan};
use amp_host::bad_input;
use amp_host::realtime::become_real_time;
use amp_host::topology::{self, Detected};
use amp_host::user;
use amp_machine::CpuList;
use amp_metrics::providers::{Declarations, Declared, DeclaredFactors, Efficiencies, Speedups};
use amp_metrics::Nanos;
use amp_pmc::CounterInventory;
use amp_sched::policy::Settings;
use amp_sched::CoreType;
use anyhow::{Context, Result};
use apps::{Launcher, Program};
use counts::{Counts, Meter};
use energy_model::SwitchedOff;
use passes::InstructionCounter;
use peer::{Installed, Peer, PeerFailed};
use session::{MixRun, Recorded, Rules, Under};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Time between attaching a scheduler and starting programs under it: its first ticks, and the end
/// of what loading it stirred up.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(200);

/// This machine, ready to run the programs of a workload.
struct HostLab<'a> {
    args: &'a BenchArgs,
    workload: &'a Workload,
    detected: Detected,
    programs: Vec<Program>,
    launcher: Launcher,
    meter: Meter,
    /// Counts instructions of a program, where there are counters.
    counter: Option<InstructionCounter>,
    /// Whether the provider needs the counters while the mix runs.
    provider_counts: bool,
    /// What is remembered of programs.
    memory: Option<Remembering>,
    /// The scx schedulers among the contenders.
    peers: Vec<Installed>,
    /// Where the programs run; it goes with the laboratory.
    _workdir: WorkDir,
}

/// Runs the whole protocol here.
///
/// # Errors
/// Bad input, a program or the kernel that fails, or [`crate::bench::Interrupted`].
pub fn bench(args: &BenchArgs, workload: &Workload, cancel: &AtomicBool) -> Result<BenchReport> {
    // a policy of ours that cannot be loaded is told before hours of programs alone
    if args.policies.iter().any(|c| c.policy().is_some()) {
        if let Some(obstacle) = amp_bpf::obstacles(Path::new("/")).into_iter().next() {
            return Err(obstacle.into());
        }
    }
    let mut lab = HostLab::new(args, workload)?;
    let mut kept = SoloCache::open(args.solo_cache.as_deref());
    measure(args, workload, &mut lab, &mut kept, cancel, failed)
}

/// What is declared of an application: the speedup factors of the solo runs, the fastest core type's
/// from the workload file where that has one; the efficiency factors of the solo runs, where their
/// energies are known.
fn factors(app: &App, solo: &SoloTimes) -> DeclaredFactors {
    let mut sf = solo.speedups();
    if let Some(fastest) = app.speedup {
        sf.get_or_insert_with(|| vec![fastest])[0] = fastest;
    }
    DeclaredFactors {
        speedups: sf.and_then(|sf| Speedups::per_type(&sf).ok()),
        efficiencies: solo
            .efficiencies()
            .and_then(|ef| Efficiencies::per_type(&ef).ok()),
    }
}

/// The CPUs for a program of so many threads alone on core type `t`: those of the type; those of all
/// slower ones, too, where it has fewer than the program has threads. `None` is all CPUs.
fn from_type(types: &[CoreType], t: usize, threads: usize) -> Option<Vec<u32>> {
    let cpus = |t: &CoreType| t.cpus.clone();
    match types.get(t) {
        Some(own) if own.cpus.len() >= threads => Some(cpus(own)),
        _ if t == 0 => None,
        _ => Some(types.iter().skip(t).flat_map(cpus).collect()),
    }
}

/// Speeds of a program on each core type, that of the slowest one being 1: as measured alone; by
/// capacity where that is not known.
fn speeds(types: &[CoreType], alone: &SoloTimes) -> Vec<f64> {
    if let Some(mut known) = alone.speedups().filter(|s| s.len() + 1 == types.len()) {
        known.push(1.0);
        return known;
    }
    let capacity = |t: Option<&CoreType>| t.map_or(1.0, |t| f64::from(t.capacity));
    let (most, least) = (capacity(types.first()), capacity(types.last()));
    let sf = alone.speedup().unwrap_or(most / least);
    let speed = |t: &CoreType| {
        let place = (capacity(Some(t)) - least) / (most - least).max(1.0);
        1.0 + (sf - 1.0) * place
    };
    let mut speeds: Vec<f64> = types.iter().map(speed).collect();
    // alike capacities tell nothing; the order of the types does
    if let Some(first) = speeds.first_mut() {
        *first = sf;
    }
    speeds
}

/// The release of the running kernel.
pub fn kernel_release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned())
}

/// The governors of this machine's clocks; none where clocks do not change.
fn governor() -> Option<String> {
    let names: Vec<String> = cpufreq::governors(Path::new("/")).into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// What the command says of a failure: errors of a program alone name it themselves.
fn failed(e: BenchError<anyhow::Error>) -> anyhow::Error {
    match e {
        BenchError::Lab(e) | BenchError::Alone { error: e, .. } => e,
        BenchError::Mix { policy, run, error } => {
            error.context(format!("policy `{policy}`, run {run}"))
        }
        BenchError::Evaluation(e) => e.into(),
        BenchError::Keep(e) => e.into(),
        e @ (BenchError::Plan(_) | BenchError::Interrupted) => bad_input(e),
    }
}

impl<'a> HostLab<'a> {
    fn new(args: &'a BenchArgs, workload: &'a Workload) -> Result<HostLab<'a>> {
        let detected = topology::detect(args.big_cpus.as_ref())?;
        if detected.topology.core_types().len() < 2 {
            return Err(bad_input(
                "all cores of this machine are of one type: name the fast ones with --big-cpus, or use --on board",
            ));
        }
        let user = user::behind_sudo()?;
        let workdir = WorkDir::new(args.workdir.as_deref(), user)?;
        workdir.prepare(workload.apps.iter().filter_map(|a| a.command.as_deref()))?;
        let meter = Meter::open(&CounterInventory::of(&detected.topology)?);
        let peers = args.policies.iter().filter_map(Contender::scx);
        let mut peers: Vec<Installed> = peers.map(Installed::find).collect::<Result<_>>()?;
        peers.iter_mut().for_each(Installed::ask_version);
        let programs = workload.apps.iter().map(|a| Program {
            name: a.name.clone(),
            command: a.command.clone().unwrap_or_default(),
            weight: a.weight,
            cpus: None,
        });
        Ok(HostLab {
            args,
            workload,
            programs: programs.collect(),
            launcher: Launcher {
                workdir: workdir.path().into(),
                user,
                cpus: detected.llc_of.keys().copied().collect(),
            },
            meter,
            counter: None,
            provider_counts: false,
            memory: match args.memory.as_deref() {
                None => None,
                named => Remembering::begin(named)?,
            },
            peers,
            _workdir: workdir,
            detected,
        })
    }

    fn rules<'b>(&self, completions: usize, cancel: &'b AtomicBool) -> Rules<'b> {
        Rules {
            completions,
            interval: Nanos::from_millis(self.args.interval),
            limit: Nanos::from_secs(self.args.timeout_s()),
            cancel,
            core_types: self.detected.topology.core_types().len(),
            counter: None,
        }
    }

    /// The thread that measures stays on the slowest cores: real-time threads are drawn to fast
    /// ones, where every tick would cost most.
    fn keep_off_fast_cores(&self) -> Result<()> {
        let t = &self.detected.topology;
        let slow = t
            .core_types()
            .last()
            .map(|t| t.cpus.as_slice())
            .unwrap_or_default();
        amp_host::affinity::stay_on(slow)
    }

    /// What can be counted here.
    fn inventory(&self) -> Result<CounterInventory> {
        Ok(CounterInventory::of(&self.detected.topology)?.with_trust(self.args.trust.find()?))
    }

    /// Puts a policy to work.
    fn attach(&self, policy: &str, solos: &[SoloTimes]) -> Result<Scheduling> {
        let known = Some(&self.detected.topology);
        let settings =
            Settings::new(&self.args.settings, &self.args.policies.names()).map_err(bad_input)?;
        let policy = settings
            .policy(policy, self.args.seed, known)
            .map_err(bad_input)?;
        let options = LiveOptions {
            interval: Nanos::from_millis(self.args.interval),
            only_sched_ext: false,
            slots: None,
            cpufreq: self.args.cpufreq.unwrap_or_default(),
        };
        let mut inventory = self.inventory()?;
        if self.args.provider != "declared" {
            let prepared = provider::prepare(&mut inventory, &Asked::find(&self.args.provider)?)?;
            if let Some(why) = why_this(&self.args.provider, &prepared) {
                log::info!("{why}");
            }
            let prepared = match &self.memory {
                Some(memory) => memory.around(prepared, &self.detected.topology),
                None => prepared,
            };
            let machine = Live::attach(&self.detected, &mut inventory, &options)?;
            let mut s = Scheduling::counting(machine, policy, prepared)?;
            s.engine_mut().set_knobs(settings.engine());
            return Ok(s);
        }
        let machine = Live::attach(&self.detected, &mut inventory, &options)?;
        let declarations = Declarations::default();
        let declared = Box::new(Declared::new(declarations.clone()));
        let provider = provider::checked(&mut inventory, declared)?;
        let mut s = Scheduling::counting(machine, policy, provider)?;
        s.engine_mut().set_knobs(settings.engine());
        let apps = self.workload.apps.iter().zip(solos);
        s.declare(
            declarations,
            apps.map(|(app, solo)| factors(app, solo)).collect(),
        );
        Ok(s)
    }

    /// Puts an scx scheduler to work.
    fn load(&self, scx: &Scx, cancel: &AtomicBool) -> Result<Peer> {
        let installed = self.peers.iter().find(|p| p.is(scx));
        let installed = installed.with_context(|| format!("`{scx}` was not looked for"))?;
        Peer::start(installed, &self.launcher.cpus, cancel)
    }

    /// Begins to record this run of the mix, where the user asked for recordings.
    fn recording(&self, spec: &MixSpec<'_>, s: &Scheduling) -> Result<Option<Recording>> {
        let Some(dir) = &self.args.record else {
            return Ok(None);
        };
        recording::make_folder(dir)?;
        let to = RecordArgs::to(dir.join(format!("{}-{}", spec.policy, spec.run)));
        let interval = Nanos::from_millis(self.args.interval);
        Ok(to.create()?.map(|file| to.begin(file, s, interval)))
    }

    fn record(&self, spec: &MixSpec<'_>, run: &MixRun, counts: Counts) -> RunRecord {
        let types = self.detected.topology.core_types();
        let app = |(app, finished): (usize, &Vec<Pass>)| {
            let on = |t: usize| run.slices.iter().map(|s| s.ran[app][t]).sum::<Nanos>();
            let solo = spec.solos.get(app);
            let speeds = solo.map(|s| speeds(types, s)).unwrap_or_default();
            let alone = solo.and_then(|s| s.progress.as_ref());
            let cut_off = run.cut_off.get(app).and_then(Option::as_ref);
            AppRun {
                completions_s: finished.iter().map(|p| p.took_s).collect(),
                unfinished: passes::unfinished(finished, cut_off, &speeds, alone),
                time_s: (0..types.len()).map(|t| on(t).as_secs_f64()).collect(),
            }
        };
        let labels: Vec<&str> = self.programs.iter().map(|p| p.name.as_str()).collect();
        let mut timeline = Timeline::new(&labels, types.len(), Nanos::ZERO);
        for s in &run.slices {
            for (app, ran) in s.ran.iter().enumerate() {
                timeline.record(app, s.to, s.to.saturating_sub(s.from), ran);
            }
        }
        RunRecord {
            apps: run.finished.iter().enumerate().map(app).collect(),
            duration_s: run.took.as_secs_f64(),
            energy_j: counts.energy_j,
            instructions: counts.instructions,
            swaps: spec.policy.policy().map(|_| run.swaps),
            timeline: timeline.entries(),
        }
    }
}

impl Lab for HostLab<'_> {
    type Error = anyhow::Error;

    fn facts(&self, _: &Plan<'_>) -> Facts {
        Facts {
            machine: MachineFacts::of(
                self.args.machine.as_deref().unwrap_or("host"),
                &self.detected.topology,
            ),
            on: "host".into(),
            provider: self.args.provider.clone(),
            environment: Environment {
                kernel: kernel_release(),
                virtual_time: self.meter.is_board(),
                governor: governor(),
                ..Environment::default()
            },
        }
    }

    fn prepare(&mut self, _: &Plan<'_>) -> Result<()> {
        // one that is not possible here is refused before anything is measured
        let mut inventory = self.inventory()?;
        self.provider_counts = match self.args.provider.as_str() {
            "declared" => false,
            name => !provider::prepare(&mut inventory, &Asked::find(name)?)?
                .sets
                .is_empty(),
        };
        if inventory.has_pmu() {
            self.counter = Some(InstructionCounter::of(&inventory));
        }
        match become_real_time() {
            Ok(()) => self.keep_off_fast_cores()?,
            // without root only the baseline can be measured anyway, and roughly
            Err(e) => log::warn!("{e:#}: completion times will be less exact"),
        }
        Ok(())
    }

    fn scheduler(&self, contender: &Contender) -> Option<SchedulerFacts> {
        let scx = contender.scx()?;
        let installed = self.peers.iter().find(|p| p.is(scx))?;
        Some(installed.facts(kernel_release()))
    }

    fn gave_up(error: &anyhow::Error) -> Option<String> {
        error.downcast_ref().map(|PeerFailed(why)| why.clone())
    }

    fn key(&self, app: usize) -> Option<String> {
        let types: Vec<String> = self
            .detected
            .topology
            .core_types()
            .iter()
            .map(|t| format!("{}={}", t.capacity, CpuList(t.cpus.clone())))
            .collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
        let parts = [
            // what is kept of a program; other versions of this program kept less
            "times and course of its own instructions",
            self.args.machine.as_deref().unwrap_or("host"),
            &self.args.model_version,
            &types.join(" "),
            &kernel,
        ];
        let command = &self.programs[app].command;
        Some(solos::key(&parts, command, &self.launcher.workdir))
    }

    /// Only where factors are declared: nobody else asks for energies.
    fn tells_energy(&self) -> bool {
        self.args.provider == "declared" && self.meter.tells_energy()
    }

    fn alone(&mut self, app: usize, cores: Cores, cancel: &AtomicBool) -> Result<AloneRecord> {
        let types = self.detected.topology.core_types();
        let threads = self.workload.apps[app].threads as usize;
        let cpus = match cores {
            Cores::Slow => from_type(types, types.len().saturating_sub(1), threads),
            Cores::Fast => from_type(types, 0, threads),
            Cores::Between(t) => from_type(types, t, threads),
        };
        let before = self.meter.read()?;
        let rules = Rules {
            counter: self.counter.as_ref(),
            ..self.rules(1, cancel)
        };
        let (took, progress) =
            session::solo(&self.programs[app], cpus.as_deref(), &self.launcher, &rules)?;
        let counts = self.meter.read()?.since(before);
        Ok(AloneRecord {
            took_s: took.as_secs_f64(),
            instructions: counts.instructions,
            energy_j: counts.working_j,
            progress,
        })
    }

    fn mix(&mut self, spec: &MixSpec<'_>, cancel: &AtomicBool) -> Result<RunRecord> {
        let mut peer = None;
        // on again when the run is over, however it ends
        let _no_eas = match spec.policy {
            Contender::KernelWithoutEas => Some(SwitchedOff::begin(Path::new("/"))?),
            _ => None,
        };
        let mut under = match spec.policy {
            Contender::Kernel | Contender::KernelWithoutEas | Contender::Pinned => {
                Under::Kernel(&self.detected.topology)
            }
            Contender::Policy(name) => {
                let scheduling = self.attach(name, spec.solos)?;
                let recording = self.recording(spec, &scheduling)?;
                Under::Policy(Box::new(Recorded::new(scheduling, recording)))
            }
            Contender::Scx(scx) => {
                peer = Some(self.load(scx, cancel)?);
                Under::Kernel(&self.detected.topology)
            }
        };
        let began = amp_host::clock::now();
        while amp_host::clock::now().saturating_sub(began).0 < SETTLE.as_nanos() as u64 {
            if let Under::Policy(p) = &mut under {
                p.tick(|_| ())?;
            }
            std::thread::sleep(SETTLE / 4);
        }
        let before = self.meter.read()?;
        let rules = self.rules(spec.completions, cancel);
        let rules = Rules {
            counter: self.counter.as_ref().filter(|_| !self.provider_counts),
            ..rules
        };
        let meter = &mut self.meter;
        let launcher = &self.launcher;
        let types = self.detected.topology.core_types();
        let cpus = |app: usize| {
            let t = spec.pinned?.get(app).copied().flatten()?;
            types.get(t).map(|t| t.cpus.clone())
        };
        let there = |(app, p): (usize, &Program)| Program {
            cpus: cpus(app),
            ..p.clone()
        };
        let programs: Vec<Program> = self.programs.iter().enumerate().map(there).collect();
        let mut each_interval = || {
            peer.as_mut().map_or(Ok(()), Peer::check)?;
            meter.interval()
        };
        let run = session::run(
            &programs,
            spec.order,
            launcher,
            &rules,
            &mut under,
            &mut each_interval,
        )?;
        let counts = self.meter.read()?.since(before);
        peer.map_or(Ok(()), Peer::end)?;
        Ok(self.record(spec, &run, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::CoreTypeId;
    use std::path::Path;

    #[test]
    fn solo_runs_with_energies_declare_efficiency() {
        let text = "name = \"w\"\n[[app]]\nname = \"a\"\ncommand = [\"true\"]\n";
        let mut app = Workload::parse(Path::new("w.toml"), text)
            .unwrap()
            .apps
            .remove(0);
        let fast = CoreTypeId::FASTEST;
        let declared = |app: &App, solo: &SoloTimes| {
            let f = factors(app, solo);
            let sf = f.speedups.and_then(|s| s.on(fast));
            (sf, f.efficiencies.and_then(|e| e.on(fast)))
        };
        let mut solo = SoloTimes {
            slow_s: vec![30.0],
            fast_s: vec![10.0],
            ..SoloTimes::default()
        };
        assert_eq!(declared(&app, &solo), (Some(3.0), None));
        // ER = 12 J / 5 J for the same work: EF = 3 / 2.4
        (solo.slow_j, solo.fast_j) = (vec![5.0], vec![12.0]);
        app.speedup = Some(2.0);
        let (sf, ef) = declared(&app, &solo);
        assert_eq!(sf, Some(2.0), "the file's word goes first");
        assert!((ef.unwrap() - 1.25).abs() < 1e-9, "{ef:?}");
        solo.fast_j = vec![0.0];
        assert_eq!(declared(&app, &solo).1, None);
        assert_eq!(declared(&app, &SoloTimes::default()), (Some(2.0), None));
    }

    #[test]
    fn every_core_type_but_the_slowest_has_a_factor() {
        let text = "name = \"w\"\n[[app]]\nname = \"a\"\ncommand = [\"true\"]\n";
        let mut app = Workload::parse(Path::new("w.toml"), text)
            .unwrap()
            .apps
            .remove(0);
        let solo = SoloTimes {
            slow_s: vec![30.0],
            fast_s: vec![5.0],
            between_s: vec![vec![7.5]],
            ..SoloTimes::default()
        };
        let declared = |app: &App| {
            let speedups = factors(app, &solo).speedups.unwrap();
            [0, 1, 2].map(|t| speedups.on(CoreTypeId(t)))
        };
        assert_eq!(declared(&app), [Some(6.0), Some(4.0), None]);
        app.speedup = Some(5.0);
        assert_eq!(declared(&app), [Some(5.0), Some(4.0), None]);
        let types = |capacities: [u32; 3]| {
            capacities.map(|capacity| CoreType {
                name: capacity.to_string(),
                cpus: vec![capacity, capacity + 1],
                capacity,
            })
        };
        let types = types([1024, 718, 158]);
        assert_eq!(speeds(&types, &solo), [6.0, 4.0, 1.0]);
        // of a bench on two core types
        let ends = SoloTimes {
            between_s: Vec::new(),
            ..solo.clone()
        };
        let by_capacity = speeds(&types, &ends);
        assert_eq!((by_capacity[0], by_capacity[2]), (6.0, 1.0));
        assert!((by_capacity[1] - (1.0 + 5.0 * 560.0 / 866.0)).abs() < 1e-9);
        // where they do not fit, they may use slower ones, too
        assert_eq!(from_type(&types, 1, 2), Some(vec![718, 719]));
        assert_eq!(from_type(&types, 1, 3), Some(vec![718, 719, 158, 159]));
        assert_eq!(from_type(&types, 0, 3), None);
        assert_eq!(from_type(&types, 2, 9), Some(vec![158, 159]));
    }
}
