//! `amp-workload run`.

use crate::window::Instruments;
use crate::{machine, report};
use amp_workloads::kernels::{Build, Interactive, Job, Pipeline, Queue, Server, Simple, Spec};
use amp_workloads::quantity::{parse_count, parse_size};
use anyhow::Result;
use serde_json::json;

/// The kernels made of others: name, unit of work, what they stress.
pub const COMPOUND: [(&str, &str, &str); 8] = [
    (
        "phased",
        "one round through all --phase",
        "reaction to phase changes",
    ),
    (
        "parallel",
        "that of --inner, shared out, barrier every --step",
        "threads that wait for the slowest",
    ),
    (
        "serial",
        "that of --inner, --serial of it on one thread",
        "serial phases of threaded programs",
    ),
    (
        "queue",
        "that of --inner, in chunks of --step that free threads take",
        "dynamic sharing",
    ),
    (
        "pipeline",
        "one item through all --phase, a thread each",
        "stages that wait for each other",
    ),
    (
        "server",
        "one request: a pause, then --step units of --inner",
        "many threads that mostly sleep",
    ),
    (
        "interactive",
        "one event: a pause, then --step units of --inner",
        "short bursts after sleep",
    ),
    (
        "build",
        "one process that does a --phase, --threads at a time",
        "programs that are new each time",
    ),
];

/// Bad input: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

impl Usage {
    /// What is wrong with the arguments.
    pub fn new(what: String) -> Usage {
        Usage(what)
    }
}

#[derive(clap::Args)]
pub struct Args {
    /// One of those that `amp-workload list` shows
    kernel: String,
    /// Units of work, for example 40M
    #[arg(long, value_parser = parse_count)]
    work: u64,
    /// Size of the data, for example 512K (stream, chase, hash)
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Probability that a branch is taken (branchy; default 0.5)
    #[arg(long)]
    probability: Option<f64>,
    /// Threads that share the work out
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// A phase of `phased`, a stage of `pipeline`, a kind of process of `build`: KERNEL=UNITS, for
    /// example alu=10M or chase@512K=2M; repeated for each
    #[arg(long = "phase", value_parser = parse_phase, value_name = "KERNEL=UNITS")]
    phases: Vec<(Spec, u64)>,
    /// Kernel of `parallel`, `serial`, `queue`, `server` and `interactive`, for example alu or
    /// stream@1M
    #[arg(long, default_value = "alu")]
    inner: String,
    /// Units of a thread between two barriers (parallel), of a chunk (queue; of both the default is a
    /// fiftieth of a thread's share), of a request (server) or of a small event (interactive)
    #[arg(long, value_parser = parse_count)]
    step: Option<u64>,
    /// Fraction of the work that only one thread can do (serial)
    #[arg(long, default_value_t = 0.3)]
    serial: f64,
    /// Rounds of one serial and one parallel part each (serial)
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Mean pause before a request or an event, in milliseconds (server, interactive)
    #[arg(long, default_value_t = 50, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=600_000))]
    pause: u64,
    /// Items that may wait between two stages (pipeline)
    #[arg(long, default_value_t = 4)]
    depth: u32,
    /// Seed of pauses (server, interactive) and of what processes do (build)
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run on this CPU only
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// Count instructions, cycles, cache refills and branch misses; needs --pin, which chooses the
    /// PMU
    #[arg(long, requires = "pin")]
    count: bool,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

fn parse_phase(s: &str) -> Result<(Spec, u64), String> {
    let (spec, units) = s
        .split_once('=')
        .ok_or("KERNEL=UNITS, for example chase@512K=2M")?;
    let spec = spec
        .parse()
        .map_err(|e: amp_workloads::kernels::SpecError| e.to_string())?;
    Ok((spec, parse_count(units)?))
}

impl Args {
    fn job(&self) -> Result<Job, Usage> {
        let usage = |e: amp_workloads::kernels::SpecError| Usage(e.to_string());
        let (units, threads, seed) = (self.work, self.threads, self.seed);
        let phases = || self.phases.clone();
        if !["phased", "pipeline", "build"].contains(&&*self.kernel) && !self.phases.is_empty() {
            return Err(Usage(format!(
                "--phase goes with `phased`, `pipeline` and `build`, not with `{}`",
                self.kernel
            )));
        }
        let one_thread_each = ["phased", "pipeline", "interactive"];
        if one_thread_each.contains(&&*self.kernel) && threads != 1 {
            return Err(Usage(format!(
                "`{}` takes no --threads: a pipeline has one for each --phase, the others have one",
                self.kernel
            )));
        }
        let a_fiftieth = (units / (u64::from(threads.max(1)) * 50)).max(1);
        let step = || {
            let what = "units of --inner for each request or event, for example --step 20k";
            self.step
                .ok_or_else(|| Usage(format!("`{}` needs --step: {what}", self.kernel)))
        };
        let inner = || -> Result<Spec, Usage> {
            if self.size.is_some() || self.probability.is_some() {
                return Err(Usage(format!(
                    "`{}` takes the size or probability with its kernel: --inner {}@…",
                    self.kernel, self.inner
                )));
            }
            self.inner.parse().map_err(usage)
        };
        Ok(match self.kernel.as_str() {
            "phased" => Job::Phased {
                phases: phases(),
                rounds: units,
            },
            "pipeline" => Job::Pipeline(Pipeline {
                stages: phases(),
                items: units,
                depth: self.depth,
            }),
            "build" => Job::Build(Build {
                // where there is no /proc: the one in PATH
                program: std::env::current_exe().unwrap_or_else(|_| "amp-workload".into()),
                kinds: phases(),
                processes: units,
                at_a_time: threads,
                seed,
            }),
            "server" => Job::Server(Server {
                spec: inner()?,
                requests: units,
                threads,
                step: step()?,
                pause_us: self.pause * 1000,
                seed,
            }),
            "interactive" => Job::Interactive(Interactive {
                spec: inner()?,
                events: units,
                step: step()?,
                pause_us: self.pause * 1000,
                seed,
            }),
            "queue" => Job::Queue(Queue {
                spec: inner()?,
                units,
                threads,
                chunk: self.step.unwrap_or(a_fiftieth),
            }),
            "parallel" => Job::Parallel {
                spec: inner()?,
                units,
                threads,
                step: self.step.unwrap_or(a_fiftieth),
            },
            "serial" => Job::Serial {
                spec: inner()?,
                units,
                threads,
                fraction: self.serial,
                rounds: self.rounds,
            },
            name => {
                let kernel: Simple =
                    name.parse()
                        .map_err(|e: amp_workloads::kernels::SpecError| {
                            let more = COMPOUND.map(|(name, ..)| name).join(", ");
                            Usage(format!("{e}, {more}"))
                        })?;
                let spec = Spec::new(kernel, self.size, self.probability).map_err(usage)?;
                Job::Plain {
                    spec,
                    units,
                    threads,
                }
            }
        })
    }

    /// The parameters that matter for this kernel, as text.
    fn parameters(&self, job: &Job) -> String {
        let list = |phases: &[(Spec, u64)]| -> String {
            let each = phases.iter().map(|(s, n)| format!("{s}={n}"));
            each.collect::<Vec<_>>().join(" ")
        };
        let pauses = format!("pause={}ms seed={}", self.pause, self.seed);
        match job {
            Job::Plain { spec, .. } => spec.to_string(),
            Job::Phased { phases, .. } => list(phases),
            Job::Pipeline(p) => format!("{} depth={}", list(&p.stages), p.depth),
            Job::Build(b) => format!("{} seed={}", list(&b.kinds), b.seed),
            Job::Queue(q) => format!("{} step={}", q.spec, q.chunk),
            Job::Server(s) => format!("{} step={} {pauses}", s.spec, s.step),
            Job::Interactive(i) => format!("{} step={} {pauses}", i.spec, i.step),
            Job::Parallel { spec, step, .. } => format!("{spec} step={step}"),
            Job::Serial {
                spec,
                fraction,
                rounds,
                ..
            } => {
                format!("{spec} serial={fraction} rounds={rounds}")
            }
        }
    }
}

/// Does the work and reports what was done.
///
/// # Errors
/// [`Usage`] for a kernel or parameter that does not exist or is out of range; otherwise when the
/// CPU cannot be used or counted on.
pub fn run(args: &Args) -> Result<()> {
    let job = args.job()?;
    machine::name_thread(&format!("amp-{}", args.kernel));
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    let prepared = job.prepare().map_err(|e| Usage(e.to_string()))?;
    let instruments = Instruments::open(args.pin.filter(|_| args.count))?;
    let (checksum, measured) = instruments.measure(|| prepared.run())?;
    let fields = json!({
        "kernel": args.kernel,
        "parameters": args.parameters(&job),
        "work": args.work,
        "threads": job.threads(),
        "cpu": args.pin,
        "wall_ns": measured.wall_ns,
        "checksum": format!("{checksum:016x}"),
        "perf": measured.perf,
        "model": measured.model,
    });
    report::print("done", &fields, args.json);
    Ok(())
}
