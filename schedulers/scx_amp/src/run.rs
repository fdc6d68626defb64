//! `scx_amp run`: schedules this machine until it is stopped.

use crate::control::{Call, Server};
use crate::only::OnlyCgroup;
use crate::provider::check_name;
use crate::recording::RecordArgs;
use crate::running::{Running, Ticked};
use crate::status::Status;
use amp_host::bad_input;
use amp_host::clock;
use amp_machine::CpuList;
use amp_metrics::Nanos;
use amp_pmc::TrustArgs;
use amp_sched::policy::{Policy, Settings};
use amp_sched::Topology;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Options of `scx_amp run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Policy that places threads on core types.
    #[arg(long, default_value = "rr", value_name = "NAME")]
    pub policy: String,
    /// Set a knob of the policy (see `scx_amp help policy NAME`); may be repeated.
    #[arg(long = "set", value_name = "[POLICY.]KNOB=VALUE")]
    pub settings: Vec<String>,
    /// Source of the metrics the policy asks for: a name, `auto` for the best one that is possible
    /// here, or a TOML file.
    #[arg(long, default_value = "none", value_name = "NAME|FILE.toml")]
    pub provider: String,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// CPUs of the fast core type (all others are slow), where the kernel cannot distinguish them.
    #[arg(long, value_name = "LIST")]
    pub big_cpus: Option<CpuList>,
    /// Time between two decisions, in milliseconds.
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub interval: u64,
    /// Schedule only the threads of this control group and those below it, absolute or below
    /// /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub only_cgroup: Option<PathBuf>,
    #[command(flatten)]
    pub recording: RecordArgs,
    /// Print what the scheduler is doing, once per so many seconds.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub stats: Option<u64>,
    /// Seed of policies that choose at random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Test aid: panic after so many ticks.
    #[arg(long, hide = true)]
    pub panic_after: Option<u64>,
}

impl RunArgs {
    /// The policy that was asked for, with what was set for it, for a machine of that `topology`
    /// where it is known.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the policies there are, or the knob at fault and its range.
    pub fn policy_for(&self, topology: Option<&Topology>) -> Result<Box<dyn Policy>> {
        self.settings()?
            .policy(&self.policy, self.seed, topology)
            .map_err(bad_input)
    }

    /// What was set.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the policies there are, or the knob at fault and its range.
    pub fn settings(&self) -> Result<Settings> {
        Settings::new(&self.settings, std::slice::from_ref(&self.policy)).map_err(bad_input)
    }
}

/// Time between two looks at who is in the control group: children inherit, only those moved into
/// it wait.
const LOOK: Nanos = Nanos::from_millis(500);

/// What wakes the scheduling thread between two ticks.
pub enum Event {
    /// The user wants to stop.
    Stop,
    /// Somebody asks, or wants something changed.
    Call(Call),
}

/// Runs until [`Event::Stop`] comes through `events`, whose other end is `sender`.
///
/// # Errors
/// When the scheduler cannot be loaded, or the kernel ends it.
pub fn run(args: &RunArgs, sender: &Sender<Event>, events: &Receiver<Event>) -> Result<()> {
    args.policy_for(None)?;
    // 256 CPUs with two sets of five events have 2,560 descriptors; the usual limit is 1,024
    amp_host::limits::open_many_files();
    check_name(&args.provider)?;
    args.recording.check()?;
    let mut only = args
        .only_cgroup
        .as_deref()
        .map(OnlyCgroup::new)
        .transpose()?;
    if only.is_some() {
        log::warn!("{}", crate::only::BELOW_OTHERS);
    }
    let interval = Nanos::from_millis(args.interval);
    let mut running = Running::begin(args, interval, only.is_some())?;
    let sender = sender.clone();
    let _server = Server::start(move |call| sender.send(Event::Call(call)).is_ok())?;
    log::info!("scheduling with {}", running.what_where());

    let mut next = clock::now() + interval;
    let mut next_look = clock::now();
    let mut next_print = args.stats.map(|s| clock::now() + Nanos(s * 1_000_000_000));
    loop {
        let wait = Duration::from_nanos(next.saturating_sub(clock::now()).0);
        match events.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Call(call)) => {
                let answer = running.answer(call.request);
                // whoever asked may have gone meanwhile
                let _ = call.answer.send(answer);
                // however many ask, the next tick comes in time
                if clock::now() < next {
                    continue;
                }
            }
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some(only) = only.as_mut().filter(|_| clock::now() >= next_look) {
            only.refresh()?;
            next_look = clock::now() + LOOK;
        }
        if running.tick()? == Ticked::Anew {
            next = clock::now();
        }
        if let (Some(due), Some(every)) = (next_print, args.stats) {
            if clock::now() >= due {
                print_status(&running.status());
                next_print = Some(due + Nanos(every * 1_000_000_000));
            }
        }
        let ticks = running.engine().totals().ticks;
        if args.panic_after.is_some_and(|n| ticks >= n) {
            panic!("asked for with --panic-after");
        }
        // a round that took longer than the interval is not made up for
        next = (next + interval).max(clock::now());
    }
    let total = running.engine().totals();
    drop(running);
    log::info!("stopped after {} ticks, {} swaps", total.ticks, total.swaps);
    Ok(())
}

fn print_status(s: &Status) {
    println!(
        "{:8.1} s  {}  {} ticks  {} threads ({} active)  {} swaps (median latency {:.0} us)  {} untracked",
        s.uptime_s, s.policy, s.ticks, s.threads, s.active, s.swaps, s.swap_latency_p50_us, s.untracked
    );
}
