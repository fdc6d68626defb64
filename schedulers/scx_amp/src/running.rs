//! A policy at work on this machine, and what may be asked of it meanwhile.
//!
//! When CPUs come or go (hotplug, and so every suspend) the kernel ends the scheduler. It is then
//! loaded again for the machine as it is: the same policy with its parameters as they were turned,
//! the same provider. Meanwhile the kernel schedules by itself. What threads had done by then is
//! forgotten, as if the policy had only begun.

use crate::arrivals::{Tell, Watch};
use crate::control::{refusal, Answer, Order};
use crate::cpufreq::Cpufreq;
use crate::live::{Live, LiveOptions};
use crate::memory::Remembering;
use crate::profile::Profile;
use crate::provider::{self, why_this, Asked};
use crate::recording::Recording;
use crate::rules::Rules;
use crate::run::options::USUAL_INTERVAL;
use crate::run::RunOptions;
use crate::scheduling::Scheduling;
use crate::status::{self, Status};
use amp_host::bad_input;
use amp_host::clock;
use amp_host::topology::{self, Detected};
use amp_machine::CpuList;
use amp_metrics::providers::Prepared;
use amp_metrics::trust::TrustFile;
use amp_metrics::Nanos;
use amp_pmc::CounterInventory;
use amp_sched::policy::registry::ENTRIES;
use amp_sched::{Changes, Engine, Machine, MachineError, Topology};
use anyhow::{bail, Context, Result};
use std::time::Duration;

/// CPUs that come and go in a row, as in a suspend, do so in much less time than this.
const SETTLE: Duration = Duration::from_millis(100);
/// Looks at a machine that keeps changing before that is an error.
const LOOKS: usize = 100;
/// The provider when the one in use cannot be had on the machine as it has become.
const INSTEAD: &str = "auto";

/// Counters that could be had a moment ago cannot be had any more.
#[derive(Debug, thiserror::Error)]
#[error("cannot count")]
struct NoCounters;

/// The scheduler at work, and what was changed while it was.
pub struct Running {
    scheduling: Scheduling,
    inventory: CounterInventory,
    changes: Changes,
    changed: u64,
    began: Nanos,
    options: LiveOptions,
    big_cpus: Option<CpuList>,
    trust: Option<TrustFile>,
    /// The provider as it was asked for.
    provider: Asked,
    /// After the scheduler, which nobody who waits for a disk keeps attached.
    recording: Option<Recording>,
    /// Who is told that threads have come, and what waits for that.
    tell: Option<Tell>,
    watch: Option<Watch>,
    /// As the recording.
    memory: Option<Remembering>,
    /// The profile that is in use; none once policy or provider were chosen otherwise.
    profile: Option<String>,
    /// Time between two decisions, where no profile may change it.
    interval: Option<Nanos>,
    /// What CPUs are to be clocked at, where no profile may change it.
    cpufreq: Option<Cpufreq>,
    rules: Option<Rules>,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// What was due.
    InTime,
    /// The machine has changed, and scheduling has begun anew: a tick is due.
    Anew,
}

impl Running {
    /// Puts to work what the options say.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] for a policy or provider that cannot be had here; when the scheduler cannot be
    /// loaded.
    pub fn begin(asked: &RunOptions, detected: &Detected, only_sched_ext: bool) -> Result<Running> {
        let options = LiveOptions {
            interval: asked.interval(),
            only_sched_ext,
            slots: asked.slots,
            cpufreq: asked.cpufreq(),
        };
        let policy = asked.policy_for(Some(&detected.topology))?;
        let needs = needs(policy.name());
        // what the user names is read before there is anything to schedule
        let profile = Profile::find(&asked.profile)?;
        let provider = Asked::find(&asked.provider)?;
        let trust = asked.trust.find()?;
        let memory = Remembering::begin(asked.memory.as_deref())?;
        let mut inventory = CounterInventory::of(&detected.topology)?.with_trust(trust.clone());
        let prepared = provider::prepare(&mut inventory, &provider)?;
        tell_why(&asked.provider, &prepared);
        let prepared = remembering(memory.as_ref(), prepared, &detected.topology);
        let machine = Live::attach(detected, &mut inventory, &options)?;
        let file = asked.recording.create()?;
        let mut scheduling = Scheduling::counting(machine, policy, prepared)?;
        scheduling.engine_mut().set_knobs(asked.settings.engine());
        let recording = file.map(|f| asked.recording.begin(f, &scheduling, options.interval));
        warn_of_missing(needs, scheduling.engine().provider().name());
        let as_it_says = profile.policy == asked.policy && profile.provider == asked.provider;
        Ok(Running {
            scheduling,
            inventory,
            changes: Changes::with(asked.seed, asked.settings.clone()),
            changed: 0,
            began: clock::now(),
            options,
            big_cpus: asked.big_cpus.clone(),
            trust,
            provider,
            profile: as_it_says.then_some(profile.name),
            interval: asked.interval,
            cpufreq: asked.cpufreq,
            rules: None,
            recording,
            tell: None,
            watch: None,
            memory,
        })
    }

    /// Tells that threads have come from now on, so that [`Running::notice`] is called.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn watch(&mut self, tell: Tell) -> Result<()> {
        self.tell = Some(tell);
        self.watch_anew()
    }

    fn watch_anew(&mut self) -> Result<()> {
        if self.tell.is_some() {
            self.scheduling.let_rest();
        }
        let wakes = self.scheduling.wakes();
        let tell = self.tell.iter().cloned();
        let watch = tell.map(|tell| Watch::start(wakes, tell)).next();
        self.watch = watch.transpose()?;
        Ok(())
    }

    /// Takes note of threads that have come: [`Running::due`] may be sooner for that.
    pub fn notice(&mut self) {
        self.scheduling.notice(self.options.interval);
    }

    /// Has these rules hold from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        rules.put(self.scheduling.engine_mut());
        self.rules = Some(rules);
    }

    /// Has the rules hold that their file has come to contain.
    pub fn refresh_rules(&mut self) {
        if let Some(rules) = &mut self.rules {
            rules.refresh(self.scheduling.engine_mut());
        }
    }

    /// When [`Running::call`] is due.
    pub fn due(&self) -> Nanos {
        self.scheduling.due(self.options.interval)
    }

    /// Time between two decisions.
    pub fn interval(&self) -> Nanos {
        self.options.interval
    }

    /// Whether the machine is idle, and decisions come less often.
    pub fn rests(&self) -> bool {
        self.engine().rests()
    }

    /// Tells the mechanism that a decision which is late was put off on purpose.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn alive(&mut self) -> Result<()> {
        self.scheduling.alive().context("scheduling ended")
    }

    /// What is due now: a tick of the engine, or a glance.
    ///
    /// # Errors
    /// When the kernel has ended the scheduler for another reason than CPUs that came or went, or
    /// it cannot be loaded again.
    pub fn call(&mut self) -> Result<Called> {
        match self.scheduling.call(self.options.interval) {
            Ok(ticked) => {
                let decided = ticked.is_some();
                if let Some(recording) = &mut self.recording {
                    recording.called(&self.scheduling, decided);
                }
                return Ok(Called::InTime);
            }
            Err(MachineError::Changed(why)) => log::info!("{why}: looking at the machine again"),
            Err(e) => return Err(e).context("scheduling ended"),
        }
        self.begin_anew()
            .context("scheduling again after CPUs came or went")?;
        if let Some(recording) = &mut self.recording {
            recording.begin_anew(&self.scheduling);
        }
        log::info!("scheduling with {}", self.what_where());
        Ok(Called::Anew)
    }

    fn begin_anew(&mut self) -> Result<()> {
        let big_cpus = self.big_cpus.clone();
        let look = || topology::detect_online(big_cpus.as_ref());
        let mut detected = settled(look, SETTLE)?;
        // why counters are done without
        let mut uncounted: Option<String> = None;
        for _ in 0..LOOKS {
            let loaded = self.load(&detected, uncounted.as_deref());
            // a CPU that came or went while we loaded has ended nothing, but may have taken its counters along
            let now = look()?;
            match loaded {
                _ if now != detected => detected = now,
                Ok(()) => return Ok(()),
                Err(e) if e.is::<NoCounters>() && uncounted.is_none() => {
                    uncounted = Some(format!("{e:#}"));
                }
                Err(e) => return Err(e),
            }
        }
        bail!("CPUs keep coming and going");
    }

    /// Schedules on the machine as it was `detected`; without counters if they are `uncounted`, for the reason given.
    fn load(&mut self, detected: &Detected, uncounted: Option<&str>) -> Result<()> {
        let topology = &detected.topology;
        let policy = self
            .changes
            .policy_for(self.scheduling.engine(), topology)
            .map_err(bad_input)?;
        let knobs = self.scheduling.engine().knobs().clone();
        // there can be only one scheduler, and the counters are needed again
        self.scheduling.let_go();
        let mut inventory = CounterInventory::of(topology)?.with_trust(self.trust.clone());
        let prepared = match uncounted {
            None => provider::prepare(&mut inventory, &self.provider).or_else(|e| {
                self.take_instead(&format!("{e:#}"))?;
                provider::prepare(&mut inventory, &self.provider)
            })?,
            Some(why) => {
                self.take_instead(why)?;
                provider::without_counters(&mut inventory, &self.provider, why)?
            }
        };
        tell_why(self.provider.name(), &prepared);
        let prepared = remembering(self.memory.as_ref(), prepared, topology);
        let machine = Live::attach(detected, &mut inventory, &self.options)?;
        let counts = !prepared.sets.is_empty();
        let begun = Scheduling::counting(machine, policy, prepared);
        self.scheduling = begun.map_err(|e| match counts {
            true => e.context(NoCounters),
            false => e,
        })?;
        self.watch_anew()?;
        self.scheduling.engine_mut().set_knobs(knobs);
        if let Some(rules) = &self.rules {
            rules.put(self.scheduling.engine_mut());
        }
        self.inventory = inventory;
        Ok(())
    }

    /// Takes the provider that can be had on any machine, because of `why`.
    fn take_instead(&mut self, why: &str) -> Result<()> {
        let name = self.provider.name();
        log::warn!("provider `{name}`: {why}; `{INSTEAD}` instead");
        self.provider = Asked::find(INSTEAD)?;
        Ok(())
    }

    /// The engine, for its counts.
    pub fn engine(&self) -> &Engine {
        self.scheduling.engine()
    }

    /// The present status.
    pub fn status(&self) -> Status {
        let (engine, machine) = (self.scheduling.engine(), self.scheduling.machine());
        let recording = self.recording.as_ref().map(Recording::status);
        Status {
            profile: self.profile.clone().unwrap_or_default(),
            interval_ms: self.options.interval.as_millis(),
            cpufreq: self.options.cpufreq.name().to_owned(),
            rules: self.rules.as_ref().map(Rules::what).unwrap_or_default(),
            rules_failed: self
                .rules
                .as_ref()
                .and_then(Rules::failed)
                .unwrap_or_default()
                .to_owned(),
            recording: recording.unwrap_or_default(),
            memory: self
                .memory
                .as_ref()
                .map(Remembering::what)
                .unwrap_or_default(),
            memory_failed: self
                .memory
                .as_ref()
                .and_then(Remembering::failed)
                .unwrap_or_default(),
            ..status::look(engine, machine, self.began, self.changed)
        }
    }

    /// Puts the provider that was asked for to work; says why it is this one where there was a choice.
    /// Counters that could be had at the last trial may be taken by now: `auto` then does without.
    fn change_provider(&mut self, asked: &Asked) -> Result<Option<String>> {
        let name = asked.name();
        let (changes, scheduling) = (&mut self.changes, &mut self.scheduling);
        let topology = scheduling.machine().topology().clone();
        let memory = self.memory.as_ref();
        let mut prepared = provider::prepare(&mut self.inventory, asked)?;
        scheduling.alive()?;
        let counts = !prepared.sets.is_empty();
        let mut why = why_this(name, &prepared);
        prepared = remembering(memory, prepared, &topology);
        if let Err(e) = scheduling.change_provider(changes, prepared) {
            if !(counts && name == "auto") {
                return Err(e);
            }
            prepared = provider::without_counters(&mut self.inventory, asked, &format!("{e:#}"))?;
            why = why_this(name, &prepared);
            prepared = remembering(memory, prepared, &topology);
            scheduling.change_provider(changes, prepared)?;
        }
        asked.clone_into(&mut self.provider);
        Ok(why)
    }

    /// Puts everything that a profile says to work, or nothing of it. Knobs that it does not name
    /// stay as they are.
    fn change_profile(&mut self, profile: &Profile, provider: &Asked) -> Result<Option<String>> {
        let engine = self.scheduling.engine_mut();
        let prepared = self
            .changes
            .prepare(engine, &profile.policy, &profile.settings)
            .map_err(bad_input)?;
        // it is the provider that may not be possible here
        let why = self.change_provider(provider)?;
        self.changes.put(self.scheduling.engine_mut(), prepared);
        let usual = profile.interval.map_or(USUAL_INTERVAL, Nanos::from_millis);
        self.options.interval = self.interval.unwrap_or(usual);
        self.scheduling.set_interval(self.options.interval);
        self.options.cpufreq = self.cpufreq.unwrap_or(profile.cpufreq);
        self.scheduling.set_cpufreq(self.options.cpufreq);
        self.profile = Some(profile.name.clone());
        Ok(why)
    }

    /// Policy with its parameters, and provider, in a line.
    fn what(&self) -> String {
        let engine = self.scheduling.engine();
        let knobs = engine.policy().knobs().values();
        let knobs: Vec<String> = knobs.map(|(k, v)| format!("{k}={v}")).collect();
        format!(
            "{} ({}), provider {}",
            engine.policy().name(),
            knobs.join(", "),
            engine.provider().name()
        )
    }

    /// The same with the core types.
    pub fn what_where(&self) -> String {
        let types = self.scheduling.machine().topology().core_types().iter();
        let types: Vec<String> = types
            .map(|t| format!("{} {}", t.name, CpuList(t.cpus.clone())))
            .collect();
        format!("{}: {}", self.what(), types.join(", "))
    }

    fn answer_of_memory(&self, order: &Order) -> Answer {
        match (&self.memory, order) {
            (None, _) => Answer::Failed("nothing is remembered: `run --memory none`".to_owned()),
            (Some(memory), Order::Forget(which)) => Answer::Done(memory.forget(which.as_ref())),
            (Some(memory), _) => Answer::Memory(memory.list()),
        }
    }

    /// Carries out an order. A refused one has changed nothing.
    pub fn answer(&mut self, order: &Order) -> Answer {
        let mut why = None;
        let engine = self.scheduling.engine_mut();
        let done = match order {
            Order::Status => return Answer::Status(Box::new(self.status())),
            Order::Memory | Order::Forget(_) => return self.answer_of_memory(order),
            Order::Policy(name) => {
                let changed = self.changes.policy(engine, name).map_err(bad_input);
                if matches!(changed, Ok(true)) {
                    self.profile = None;
                }
                changed
            }
            Order::Profile(profile, provider) => {
                self.change_profile(profile, provider).map(|said| {
                    why = said;
                    true
                })
            }
            Order::Set(settings) => {
                let set = self.changes.set(engine, settings);
                set.map(|()| true).map_err(bad_input)
            }
            Order::Provider(asked) => self.change_provider(asked).map(|said| {
                why = said;
                self.profile = None;
                true
            }),
        };
        match done {
            Ok(different) => {
                self.changed += u64::from(different);
                if let Some(recording) = self.recording.as_mut().filter(|_| different) {
                    recording.changed(&self.scheduling);
                }
                if different {
                    log::info!("now {}", self.what());
                    let engine = self.scheduling.engine();
                    warn_of_missing(needs(engine.policy().name()), engine.provider().name());
                }
                Answer::Done(match why {
                    Some(why) => format!("{}\n{why}", self.what()),
                    None => self.what(),
                })
            }
            Err(e) => refusal(&e),
        }
    }
}

/// The provider with the memory around it, where there is one.
fn remembering(memory: Option<&Remembering>, prepared: Prepared, topology: &Topology) -> Prepared {
    match memory {
        Some(memory) => memory.around(prepared, topology),
        None => prepared,
    }
}

/// The metrics that the policy called `name` cannot do its work without; none where it needs none.
fn needs(name: &str) -> Option<(&'static str, &'static str)> {
    let entry = ENTRIES.iter().find(|e| e.name == name)?;
    entry.uses_metrics.then_some((entry.name, entry.needs))
}

/// Says so where a policy lacks what it needs.
fn warn_of_missing(needs: Option<(&str, &str)>, provider: &str) {
    // both know only what somebody has told them, and here nobody has
    if let (Some((policy, metrics)), "none" | "declared") = (needs, provider) {
        log::warn!(
            "policy `{policy}` needs {metrics}, and provider `{provider}` knows none: fast cores are shared equally \
             (`scx_amp help metrics`; other providers: `--provider`)"
        );
    }
}

fn tell_why(asked: &str, prepared: &Prepared) {
    if let Some(why) = why_this(asked, prepared) {
        log::info!("{why}");
    }
}

/// What `look` sees when it has seen it twice, `pause` apart; after enough looks, what it saw last.
fn settled<T: PartialEq>(mut look: impl FnMut() -> Result<T>, pause: Duration) -> Result<T> {
    let mut before = look()?;
    for _ in 0..LOOKS {
        std::thread::sleep(pause);
        let now = look()?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_in_change_is_waited_for() {
        let mut seen = [1, 2, 3, 3, 4].into_iter();
        let look = || seen.next().context("no more");
        assert_eq!(settled(look, Duration::ZERO).unwrap(), 3);
        let mut n = 0;
        let restless = settled(
            || {
                n += 1;
                Ok(n)
            },
            Duration::ZERO,
        );
        assert_eq!(restless.unwrap(), LOOKS + 1);
        assert!(settled(|| -> Result<u32> { bail!("gone") }, Duration::ZERO).is_err());
    }
}
