//! `scx_amp run`: schedules this machine until it is told to stop.

use crate::control::{Server, Status};
use crate::live::{Live, LiveOptions};
use crate::scheduling::Scheduling;
use crate::usage::bad_input;
use crate::{clock, topology};
use amp_machine::CpuList;
use amp_metrics::providers::{self, Declared};
use amp_metrics::{Nanos, Provider};
use amp_sched::policy::{self, Policy};
use amp_sched::Topology;
use anyhow::{Context, Result};
use clap::Args;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Options of `scx_amp run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Policy that places threads on core types.
    #[arg(long, default_value = "rr", value_name = "NAME")]
    pub policy: String,
    /// Set a knob of the policy (see `scx_amp help policy NAME`); may be repeated.
    #[arg(long = "set", value_name = "POLICY.KNOB=VALUE")]
    pub settings: Vec<String>,
    /// Source of the metrics the policy asks for: a name, or a TOML file that declares speedup factors.
    #[arg(long, default_value = "none", value_name = "NAME|FILE.toml")]
    pub provider: String,
    /// CPUs of the fast core type (all others are slow), where the kernel cannot tell them apart.
    #[arg(long, value_name = "LIST")]
    pub big_cpus: Option<CpuList>,
    /// Time between two decisions, in milliseconds.
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub interval: u64,
    /// Print what the scheduler is doing, once per so many seconds.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub stats: Option<u64>,
    /// Seed of policies that draw lots.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Test aid: panic after so many ticks.
    #[arg(long, hide = true)]
    pub panic_after: Option<u64>,
}

/// The policy called `name`, for a machine of that `topology` where it is known, with those of `settings` (`policy.knob=value`) that are meant for it.
///
/// # Errors
/// [`crate::usage::BadInput`] naming the policies there are, or the knob at fault and its range.
pub fn policy_by_name(
    name: &str,
    seed: u64,
    settings: &[String],
    topology: Option<&Topology>,
) -> Result<Box<dyn Policy>> {
    let mut policy = match topology {
        Some(t) => policy::for_machine(name, seed, t).map_err(bad_input)?,
        None => policy::by_name(name, seed).map_err(bad_input)?,
    };
    for setting in settings {
        let (of, knob, value) = parse_setting(setting)?;
        if of == name {
            policy
                .set(knob, value)
                .map_err(|e| bad_input(format!("--set {setting}: {e}")))?;
        }
    }
    Ok(policy)
}

/// Policy, knob and value of a setting.
///
/// # Errors
/// [`crate::usage::BadInput`] when it is not of that form.
pub fn parse_setting(setting: &str) -> Result<(&str, &str, &str)> {
    let parts = setting
        .split_once('=')
        .and_then(|(k, v)| Some((k.split_once('.')?, v)));
    let Some(((of, knob), value)) = parts else {
        return Err(bad_input(format!(
            "--set {setting}: want POLICY.KNOB=VALUE, such as rr.threshold=50"
        )));
    };
    Ok((of, knob, value))
}

/// Every setting is meant for one of `policies`.
///
/// # Errors
/// [`crate::usage::BadInput`] naming the one that is not.
pub fn check_settings(settings: &[String], policies: &[String]) -> Result<()> {
    for setting in settings {
        let (of, ..) = parse_setting(setting)?;
        if !policies.iter().any(|p| p == of) {
            return Err(bad_input(format!(
                "--set {setting}: `{of}` is not a policy in use here ({})",
                policies.join(", ")
            )));
        }
    }
    Ok(())
}

/// The provider called `name`, or the one that the TOML file of that path describes.
///
/// # Errors
/// [`crate::usage::BadInput`] naming the ones there are, or the file, line and key at fault.
pub fn provider_by_name(name: &str) -> Result<Box<dyn Provider>> {
    if name.ends_with(".toml") {
        let declared = Declared::load(Path::new(name)).map_err(bad_input)?;
        return Ok(Box::new(declared));
    }
    providers::by_name(name).map_err(bad_input)
}

/// Runs until `stop` yields.
///
/// # Errors
/// When the scheduler cannot be loaded, or the kernel ends it.
pub fn run(args: &RunArgs, stop: &Receiver<()>) -> Result<()> {
    check_settings(&args.settings, std::slice::from_ref(&args.policy))?;
    policy_by_name(&args.policy, args.seed, &args.settings, None)?;
    let provider = provider_by_name(&args.provider)?;
    let detected = topology::detect(args.big_cpus.as_ref())?;
    let known = Some(&detected.topology);
    let policy = policy_by_name(&args.policy, args.seed, &args.settings, known)?;
    if detected.topology.core_types().len() == 1 {
        log::warn!("all cores are of one type: name the fast ones with --big-cpus");
    }
    let interval = Nanos::from_millis(args.interval);
    let names = (policy.name().to_string(), provider.name().to_string());
    let machine = Live::attach(&detected, &LiveOptions { interval })?;
    let mut scheduling = Scheduling::new(machine, policy, provider);
    let server = Server::start()?;
    let began = clock::now();
    let what: Vec<String> = detected
        .topology
        .core_types()
        .iter()
        .map(|t| format!("{} {}", t.name, topology::compact(&t.cpus)))
        .collect();
    log::info!(
        "scheduling with {} (provider {}): {}",
        names.0,
        names.1,
        what.join(", ")
    );

    let mut next = clock::now() + interval;
    let mut next_print = args.stats.map(|s| clock::now() + Nanos(s * 1_000_000_000));
    loop {
        let wait = Duration::from_nanos(next.saturating_sub(clock::now()).0);
        match stop.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let (offered, threads) = {
            let t = scheduling.tick().context("scheduling ended")?;
            (
                t.offered as u64,
                t.apps.iter().map(|a| u64::from(a.threads)).sum(),
            )
        };
        let status = status(&scheduling, &names, began, offered, threads);
        if let (Some(due), Some(every)) = (next_print, args.stats) {
            if clock::now() >= due {
                print_status(&status);
                next_print = Some(due + Nanos(every * 1_000_000_000));
            }
        }
        server.show(status);
        let ticks = scheduling.engine().totals().ticks;
        if args.panic_after.is_some_and(|n| ticks >= n) {
            panic!("asked for with --panic-after");
        }
        // a round that took longer than the interval is not made up for
        next = (next + interval).max(clock::now());
    }
    let total = scheduling.engine().totals();
    drop(scheduling);
    log::info!("stopped after {} ticks, {} swaps", total.ticks, total.swaps);
    Ok(())
}

fn status(
    s: &Scheduling,
    names: &(String, String),
    began: Nanos,
    active: u64,
    threads: u64,
) -> Status {
    let totals = s.engine().totals();
    let mechanism = s.machine().mechanism();
    Status {
        policy: names.0.clone(),
        provider: names.1.clone(),
        uptime_s: clock::now().saturating_sub(began).as_secs_f64(),
        ticks: totals.ticks,
        threads,
        active,
        swaps: totals.swaps,
        swap_latency_p50_us: mechanism.swap_latency_p50.map_or(0.0, |n| n.0 as f64 / 1e3),
        placements: mechanism.placements,
        fallbacks: mechanism.fallbacks,
        untracked: mechanism.untracked,
    }
}

fn print_status(s: &Status) {
    println!(
        "{:8.1} s  {} ticks  {} threads ({} active)  {} swaps (median latency {:.0} us)  {} untracked",
        s.uptime_s, s.ticks, s.threads, s.active, s.swaps, s.swap_latency_p50_us, s.untracked
    );
}
