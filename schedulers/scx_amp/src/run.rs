//! `scx_amp run`: schedules this machine until it is stopped.

mod budget;
pub mod config;
pub mod options;
mod service_manager;
mod stop;

pub use options::{RunArgs, RunOptions};

use crate::control::{Call, Server};
use crate::only::OnlyCgroup;
use crate::openmetrics::{self, Endpoint};
use crate::power;
use crate::rules::Rules;
use crate::running::{Called, Running};
use crate::statistics::{self, Statistics};
use amp_host::printer::Printer;
use amp_host::{clock, realtime, rights, topology};
use amp_metrics::Nanos;
use anyhow::{bail, Result};
use budget::Budget;
use rustix::thread::CapabilitySet;
use service_manager::ServiceManager;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::Duration;
use stop::Signals;

/// Why there is nothing to do.
const ALIKE: &str =
    "all cores of this machine are of one type, so that there is little to decide; if some are faster, name them \
     with --big-cpus";

/// Time between two looks at who is in the control group (children inherit, only those moved into
/// it wait).
const LOOK: Nanos = Nanos::from_millis(500);

/// What wakes the scheduling thread between two ticks.
pub enum Event {
    /// The user wants to stop.
    Stop,
    /// Somebody asks, or wants something changed.
    Call(Call),
    /// Threads have come; an answer says that this was noted.
    Arrived(Sender<()>),
}

/// Capabilities that a scheduler needs for as long as it runs: whatever is done once may be done
/// again, when CPUs come or go. The unit of the packages has the first four alone.
fn needed(options: &RunOptions) -> CapabilitySet {
    // loads the scheduler
    let mut needed = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
    // counts, and moves threads of a control group
    needed |= CapabilitySet::PERFMON | CapabilitySet::SYS_NICE;
    // files of other users that `ctl` and provider files name
    needed |= CapabilitySet::DAC_READ_SEARCH;
    // programs of `exec` providers run as another user, and are ended
    needed |= CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
    // which executables other users' programs are of
    needed |= CapabilitySet::SYS_PTRACE;
    if options.recording.record.is_some() {
        // a recording has parts, which are made in a folder that may be another user's
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    needed
}

/// Runs until a signal ends it.
///
/// # Errors
/// When the scheduler cannot be loaded, or the kernel ends it.
pub fn run(args: RunArgs) -> Result<()> {
    if args.help_stats {
        return amp_host::print(&statistics::described()?);
    }
    if let Some(every) = args.monitor {
        let signals = Signals::new()?;
        // a pipe that was closed ends it, and so does a signal
        let print = |line: &str| writeln!(std::io::stdout(), "{line}").is_ok();
        let stopped = || !matches!(signals.next(every), Err(RecvTimeoutError::Timeout));
        return statistics::monitor(Path::new(statistics::PATH), print, stopped);
    }
    let options = RunOptions::new(args, config::Configuration::find(None)?)?;
    // 256 CPUs with two sets of five events have 2,560 descriptors; the usual limit is 1,024
    amp_host::limits::open_many_files();
    // before anything is loaded: the address may be taken
    let listener = options.metrics.map(openmetrics::listen).transpose()?;
    // the limit and the port may have taken rights that nothing else does; no thread has begun yet
    rights::keep_only(needed(&options))?;
    let signals = Signals::new()?;
    let sender = signals.sender.clone();
    let mut manager = ServiceManager::of_environment();
    let exclude = options.exclude_cgroup.as_deref();
    let exclude = exclude.map(|p| crate::only::name("--exclude-cgroup", p));
    let rules = Rules::new(options.rules.as_deref(), exclude.transpose()?)?;
    options.recording.check()?;
    let mut only = options
        .only_cgroup
        .as_deref()
        .map(OnlyCgroup::new)
        .transpose()?;
    if only.is_some() {
        log::warn!("{}", crate::only::BELOW_OTHERS);
    }
    let detected = topology::detect(options.big_cpus.as_ref())?;
    if detected.topology.core_types().len() == 1 {
        // a kernel that cannot is told of first
        let can = Path::new("/sys/kernel/sched_ext").exists();
        match (options.if_hybrid, options.by_name || !can) {
            (true, _) => {
                log::info!("{ALIKE}: the kernel's own scheduler stays");
                // whoever waits for a service to be up takes one that ends without it for one that failed
                manager.ready("the kernel's own scheduler stays");
                return Ok(());
            }
            (false, true) => log::warn!("{ALIKE}"),
            (false, false) => bail!("{ALIKE}: the kernel's own scheduler stays"),
        }
    }
    let endpoint = listener.map(|listener| {
        if let Some(warning) = options.metrics.and_then(|address| address.warning()) {
            log::warn!("{warning}");
        }
        let sender = sender.clone();
        Endpoint::start(listener, move |call| sender.send(Event::Call(call)).is_ok())
    });
    let endpoint = endpoint.transpose()?;
    let mut running = Running::begin(&options, &detected, only.is_some())?;
    if !rules.is_empty() {
        log::info!("{}", rules.what());
        running.set_rules(rules);
    }
    let tells = sender.clone();
    running.watch(Arc::new(move |noted| {
        tells.send(Event::Arrived(noted)).is_ok()
    }))?;
    let asks = sender.clone();
    let public = statistics::Server::start(Path::new(statistics::PATH), move |call| {
        asks.send(Event::Call(call)).is_ok()
    });
    // the unit of the packages may not write there
    let public = public.map_err(|e| log::info!("nothing for the tools of scx: {e:#}"));
    if options.autopower {
        let asks = sender.clone();
        power::follow(options.profile.clone(), move |call| {
            asks.send(Event::Call(call)).is_ok()
        })?;
    }
    let sender = sender.clone();
    let _server = Server::start(move |call| sender.send(Event::Call(call)).is_ok())?;
    log::info!("scheduling with {}", running.what_where());
    manager.ready(&running.what_where());
    if let Some(endpoint) = &endpoint {
        log::info!("figures at http://{}/metrics", endpoint.address());
    }

    if let Err(e) = realtime::become_heavy() {
        log::info!("decisions wait for a CPU like any other thread: {e:#}");
    }
    let mut noted: Option<Sender<()>> = None;
    let mut budget = Budget::default();
    // the first look is what later ones are held against: whoever comes after it is new
    let mut next = clock::now();
    let mut next_look = clock::now();
    let mut next_print = options.stats.map(|s| clock::now() + Nanos::from_secs(s));
    let printer = options.stats.map(|_| Printer::stdout());
    loop {
        manager.alive();
        let wait = match next.saturating_sub(clock::now()) {
            // nobody misses us
            wait if running.rests() => wait,
            wait => wait.min(running.interval()),
        };
        match signals.next(Duration::from_nanos(wait.0)) {
            Err(RecvTimeoutError::Timeout) if clock::now() < next => {
                // a decision that was put off is no silence
                running.alive()?;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Call(call)) => {
                let answer = running.answer(&call.order);
                // whoever asked may have gone meanwhile
                let _ = call.answer.send(answer);
                manager.status(&running.what_where());
                // however many ask, the next tick comes in time
                if clock::now() < next {
                    continue;
                }
            }
            Ok(Event::Arrived(seen)) => {
                running.notice();
                noted = Some(seen);
                next = budget.from(next.min(running.due()));
                if clock::now() < next {
                    continue;
                }
            }
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
        }
        if clock::now() >= next_look {
            if let Some(only) = &mut only {
                only.refresh();
            }
            next_look = clock::now() + LOOK;
        }
        running.refresh_rules();
        let called = budget.spend(|| running.call())?;
        // until the next look more news would change nothing: once per look is often enough
        if let Some(noted) = noted.take() {
            // it may have ended meanwhile
            let _ = noted.send(());
        }
        if let (Some(due), Some(every), Some(printer)) = (next_print, options.stats, &printer) {
            if clock::now() >= due {
                printer.say(Statistics::of(&running.status()).line());
                next_print = Some(due + Nanos::from_secs(every));
            }
        }
        let ticks = running.engine().totals().ticks;
        if options.panic_after.is_some_and(|n| ticks >= n) {
            panic!("asked for with --panic-after");
        }
        while options.wedge_after.is_some_and(|n| ticks >= n) {
            std::thread::park();
        }
        next = match called {
            // a round that took longer than the interval is not made up for
            Called::InTime => budget.from(running.due().max(clock::now())),
            Called::Anew => {
                manager.status(&running.what_where());
                // to load the programs again is no decision, and costs more than any
                budget = Budget::default();
                clock::now()
            }
        };
    }
    manager.stopping();
    let total = running.engine().totals();
    // before another scheduler can have its own there
    drop(public);
    drop(running);
    log::info!("stopped after {} ticks, {} swaps", total.ticks, total.swaps);
    Ok(())
}
