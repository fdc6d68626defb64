//! `amp-workload run`.

use crate::window::Instruments;
use crate::{machine, report};
use amp_workloads::kernels::{Job, Simple, Spec};
use amp_workloads::quantity::{parse_count, parse_size};
use anyhow::Result;
use serde_json::json;

/// The kernels made of others: name, unit of work, what they stress.
pub const COMPOUND: [(&str, &str, &str); 3] = [
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
];

/// Bad input: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

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
    /// A phase of `phased`: KERNEL=UNITS, for example alu=10M or chase@512K=2M; repeated for each
    #[arg(long = "phase", value_parser = parse_phase, value_name = "KERNEL=UNITS")]
    phases: Vec<(Spec, u64)>,
    /// Kernel of `parallel` and `serial`, for example alu or stream@1M
    #[arg(long, default_value = "alu")]
    inner: String,
    /// Units of a thread between two barriers (parallel; default a fiftieth of its share)
    #[arg(long, value_parser = parse_count)]
    step: Option<u64>,
    /// Fraction of the work that only one thread can do (serial)
    #[arg(long, default_value_t = 0.3)]
    serial: f64,
    /// Rounds of one serial and one parallel part each (serial)
    #[arg(long, default_value_t = 10)]
    rounds: u64,
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
        let (units, threads) = (self.work, self.threads);
        if self.kernel != "phased" && !self.phases.is_empty() {
            return Err(Usage(format!(
                "--phase goes with `phased`, not with `{}`",
                self.kernel
            )));
        }
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
                phases: self.phases.clone(),
                rounds: self.work,
            },
            "parallel" => {
                let step = self
                    .step
                    .unwrap_or_else(|| (units / (u64::from(threads.max(1)) * 50)).max(1));
                Job::Parallel {
                    spec: inner()?,
                    units,
                    threads,
                    step,
                }
            }
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
                            Usage(format!("{e}, phased, parallel, serial"))
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
        match job {
            Job::Plain { spec, .. } => spec.to_string(),
            Job::Phased { phases, .. } => phases
                .iter()
                .map(|(s, n)| format!("{s}={n}"))
                .collect::<Vec<_>>()
                .join(" "),
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
