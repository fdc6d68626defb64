//! Hardware counters of this machine: what can be counted, what is counted now, and what that came to for each thread since
//! the last look.
//!
//! ```text
//! Countable::provider ─► event sets ─► Counting::change ─► perf events, one group per CPU and set ─► BPF
//! Reading ◄── Counting::reading ◄── counts per thread and core type ◄── read at every context switch ◄┘
//! ```

use amp_bpf::{Counts, CpuEvents, Scheduler, Thread};
use amp_metrics::perf::{self, OpenSet};
use amp_metrics::providers::{self, Prepared, ProviderError};
use amp_metrics::trust::TrustFile;
use amp_metrics::virtual_counters::{sensor_labels, Roots, VirtualCounters};
use amp_metrics::{
    CoreTypeId, EventSets, Nanos, Pmus, Provider, Reading, ThreadKey, MAX_CORE_TYPES,
};
use amp_sched::{closest, Topology};
use anyhow::{Context as _, Result};
use std::path::Path;

mod lost;

use amp_host::bad_input;
use amp_machine::CpuList;
use amp_pmc::TrustArgs;
use lost::{BackOff, Due, Watch};

/// What can be counted on this machine, found out by trying.
pub struct Countable {
    pmus: Pmus,
    /// Until somebody takes them: see [`Countable::virtual_counters`].
    others: VirtualCounters,
    energy_per_core_type: bool,
    /// Which events are known to be broken.
    trust: Option<TrustFile>,
}

impl Countable {
    /// On the machine of this `topology`, with its trust file.
    ///
    /// # Errors
    /// As [`TrustArgs::find`]; when the kernel's list of PMUs cannot be read.
    pub fn on(topology: &Topology, trust: &TrustArgs) -> Result<Countable> {
        let core_types: Vec<Vec<u32>> = topology
            .core_types()
            .iter()
            .map(|t| t.cpus.clone())
            .collect();
        let pmus = Pmus::discover(Path::new("/sys"))
            .context("the performance monitoring units")?
            .with_core_types(&core_types);
        let names = topology.core_types().iter().map(|t| t.name.as_str());
        let labels = sensor_labels(names, &pmus);
        let others = VirtualCounters::detect(&Roots::default(), &pmus, &labels);
        let trust = trust.find()?;
        Ok(Countable {
            trust,
            ..Countable::of(pmus, others)
        })
    }

    fn of(pmus: Pmus, others: VirtualCounters) -> Countable {
        Countable {
            pmus,
            energy_per_core_type: others.energy_per_core_type(),
            others,
            trust: None,
        }
    }

    /// What is counted by others than core PMUs (energy, cache occupancy), to sample it. It can be had once.
    pub fn virtual_counters(&mut self) -> VirtualCounters {
        std::mem::replace(&mut self.others, VirtualCounters::of(Vec::new()))
    }

    /// Whether there is a PMU at all: without one nothing will ever be counted.
    pub fn anything(&self) -> bool {
        let mut types = self.pmus.core_types();
        types.any(|t| self.pmus.of_core_type(t).is_some())
    }

    /// The provider called `name`, or the one that the TOML file of that path describes, checked for this machine. What a
    /// trial has shown is kept; one that failed is made again the next time.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the ones there are, or the file, line and key at fault; failed work when it is not
    /// possible here, saying why.
    pub fn provider(&mut self, name: &str) -> Result<Prepared> {
        providers::prepare(name, &self.context()).map_err(|e| told(name, e))
    }

    /// As [`provider`](Self::provider) on a machine without counters, for the reason `why`.
    ///
    /// # Errors
    /// The same.
    pub fn without_counters(&mut self, name: &str, why: &str) -> Result<Prepared> {
        let context = providers::Context {
            counters: Err(why.to_owned()),
            ..self.context()
        };
        providers::prepare(name, &context).map_err(|e| told(name, e))
    }

    /// The same for a provider that was made otherwise.
    ///
    /// # Errors
    /// When it is not possible here, saying why.
    pub fn checked(&mut self, provider: Box<dyn Provider>) -> Result<Prepared> {
        providers::check(provider, &self.context()).map_err(whole)
    }

    fn context(&mut self) -> providers::Context<'_> {
        let counters = perf::try_all(&mut self.pmus).map_err(|e| e.to_string());
        providers::Context {
            pmus: &self.pmus,
            counters,
            energy_per_core_type: self.energy_per_core_type,
            models: None,
            trust: self.trust.as_ref(),
        }
    }
}

/// Whether `name` can be a provider on some machine.
///
/// # Errors
/// [`amp_host::BadInput`] naming the ones there are, or the file, line and key at fault.
pub fn check_name(name: &str) -> Result<()> {
    if name.ends_with(".toml") {
        return providers::files_of(Path::new(name))
            .map(drop)
            .map_err(bad_input);
    }
    let known = providers::PROVIDERS.iter().map(|p| p.name);
    if known.chain(["auto"]).any(|n| n == name) {
        return Ok(());
    }
    let unknown = providers::UnknownProvider {
        name: name.to_owned(),
    };
    Err(told(name, unknown.into()))
}

fn told(name: &str, e: ProviderError) -> anyhow::Error {
    match e {
        ProviderError::Unknown(_) => {
            let known = providers::PROVIDERS.iter().map(|p| p.name);
            match closest(name, known.chain(["auto"])).first() {
                Some(meant) => bad_input(format!("{e}; did you mean `{meant}`?")),
                None => bad_input(e),
            }
        }
        ProviderError::File(_) => bad_input(e),
        e => whole(e),
    }
}

/// An error whose text contains its causes already.
fn whole(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{e}")
}

/// Which provider `auto` chose and why none before it, in a sentence; nothing when it was asked for by name.
pub fn why_this(asked: &str, prepared: &Prepared) -> Option<String> {
    (asked == "auto").then(|| {
        let over = prepared.passed_over.iter();
        let over: Vec<String> = over.map(|(n, why)| format!("not `{n}`: {why}")).collect();
        let taken = format!("provider auto: `{}`", prepared.provider.name());
        match over.is_empty() {
            true => taken,
            false => format!("{taken}; {}", over.join("; ")),
        }
    })
}

/// Every so many turns of event sets, the set whose turn it is is asked whether it got its counters. Asking interrupts every CPU;
/// between, readings that fail tell.
const TURNS_UNASKED: u32 = 16;

/// A core type that counts.
struct Side {
    /// Its event sets, in the provider's order, opened on all its CPUs.
    sets: Vec<OpenSet>,
    /// Number of events of each.
    events: Vec<usize>,
    /// Which one counts.
    active: usize,
    /// How often another one took over.
    turns: u32,
    /// What BPF calls the present stretch; 0 while nothing counts.
    generation: u64,
    /// By CPU.
    watches: Vec<(u32, Watch)>,
    /// Why the active set was refused, and when it is tried again.
    refused: Option<(String, BackOff)>,
}

impl Side {
    /// Begins a stretch with the set that is active.
    fn count(&mut self, scheduler: &mut Scheduler, t: usize) -> Result<()> {
        self.generation = scheduler.count(t as u8, Some(self.active as u32))?;
        Ok(())
    }
}

/// What a thread showed at the last look, on one core type.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Generation of the slot.
    owner: u32,
    runtime: u64,
    counts: Counts,
}

/// What is counted now.
pub struct Counting {
    /// By core type; none while nothing is counted.
    sides: Vec<Side>,
    /// Core types of the machine.
    types: usize,
    /// By slot and core type.
    seen: Vec<Seen>,
}

impl Counting {
    /// Nothing, on a machine with so many core types.
    pub fn new(types: usize) -> Counting {
        Counting {
            sides: Vec::new(),
            types: types.min(MAX_CORE_TYPES),
            seen: Vec::new(),
        }
    }

    /// Counts `sets` from now on, instead of what was counted before.
    ///
    /// # Errors
    /// When they cannot be counted; what was counted before is counted on then.
    pub fn change(
        &mut self,
        scheduler: &mut Scheduler,
        topology: &Topology,
        sets: &EventSets,
    ) -> Result<()> {
        if sets.is_empty() && self.sides.is_empty() {
            return Ok(());
        }
        let mut next = Vec::new();
        if !sets.is_empty() {
            for (t, core_type) in topology.core_types().iter().enumerate() {
                let of_type = sets.of(CoreTypeId(t as u8));
                let open = |s| OpenSet::open_stopped(s, &core_type.cpus).map_err(whole);
                next.push(Side {
                    sets: of_type.iter().map(open).collect::<Result<_, _>>()?,
                    events: of_type.iter().map(|s| s.events.len()).collect(),
                    active: 0,
                    turns: 0,
                    generation: 0,
                    watches: core_type
                        .cpus
                        .iter()
                        .map(|c| (*c, Watch::default()))
                        .collect(),
                    refused: None,
                });
            }
        }
        // the new ones can only have counters that the old ones let go
        let mut before = std::mem::take(&mut self.sides);
        stop(scheduler, &mut before);
        match begin(scheduler, &mut next) {
            Ok(()) => {
                self.sides = next;
                Ok(())
            }
            Err(refused) => {
                stop(scheduler, &mut next);
                drop(next);
                let back = begin(scheduler, &mut before);
                self.sides = before;
                match back {
                    Ok(()) => Err(refused),
                    Err(e) => Err(refused.context(format!(
                        "and what was counted before does not count any more: {e:#}"
                    ))),
                }
            }
        }
    }

    /// Counts set `active(t)` of each core type `t` from now on. One that was refused is tried again, less and less often.
    ///
    /// # Errors
    /// When a set cannot be counted; nothing is, on that core type.
    pub fn rotate(
        &mut self,
        scheduler: &mut Scheduler,
        now: Nanos,
        active: &dyn Fn(CoreTypeId) -> usize,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for (t, side) in self.sides.iter_mut().enumerate() {
            let wanted = active(CoreTypeId(t as u8));
            if wanted == side.active && side.generation > 0 || wanted >= side.sets.len() {
                continue;
            }
            if let Some((why, _)) = side.refused.as_ref().filter(|(_, b)| !b.due(now)) {
                outcome = Err(anyhow::anyhow!("{why}"));
                continue;
            }
            scheduler.count(t as u8, None)?;
            side.generation = 0;
            side.sets[side.active].stop();
            side.active = wanted;
            let asked = side.turns % TURNS_UNASKED == 0 || side.refused.is_some();
            side.turns = side.turns.wrapping_add(1);
            let set = &mut side.sets[wanted];
            let started = match asked {
                true => set.start(),
                false => set.start_again(),
            };
            match started {
                Ok(()) => {
                    if asked {
                        side.refused = None;
                        side.watches.iter_mut().for_each(|(_, w)| w.counts());
                    }
                    side.count(scheduler, t)?;
                }
                Err(e) => {
                    match &mut side.refused {
                        Some((_, again)) => again.refused(now),
                        none => *none = Some((e.to_string(), BackOff::new(now))),
                    }
                    outcome = Err(whole(e));
                }
            }
        }
        outcome
    }

    /// Sees whether what should count does, once per interval, and asks again for what was lost. Says so in the log, once.
    pub fn mend(&mut self, scheduler: &mut Scheduler, now: Nanos) {
        let (mut lost, mut found) = (Vec::new(), Vec::new());
        for (t, side) in self.sides.iter_mut().enumerate() {
            let Some(set) = side
                .sets
                .get_mut(side.active)
                .filter(|_| side.generation > 0)
            else {
                continue;
            };
            let mut again = false;
            for (cpu, watch) in &mut side.watches {
                match watch.look(scheduler.unread_on(*cpu), now) {
                    Due::Nothing => {}
                    Due::Ask => match set.check(*cpu) {
                        Ok(()) => {
                            watch.counts();
                            again = true;
                        }
                        Err(e) => {
                            watch.is_lost(e.to_string(), now);
                            lost.push((*cpu, e));
                        }
                    },
                    Due::Restart => match set.restart(*cpu) {
                        Ok(()) => {
                            watch.counts();
                            found.push(*cpu);
                            again = true;
                        }
                        Err(e) => watch.is_lost(e.to_string(), now),
                    },
                }
            }
            // what was counted before and after the gap must not be taken for one stretch
            if again {
                if let Err(e) = side.count(scheduler, t) {
                    side.generation = 0;
                    log::warn!("{e:#}");
                }
            }
        }
        if let Some((_, why)) = lost.first() {
            let cpus: Vec<u32> = lost.iter().map(|(cpu, _)| *cpu).collect();
            let cpus = CpuList(cpus);
            log::warn!("nothing is counted on CPU {cpus} any more ({why}); it is tried again, after 1 s at first");
        }
        if !found.is_empty() {
            log::info!("counting on CPU {} again", CpuList(found));
        }
    }

    /// Why nothing is counted where something should be; nothing while all is well.
    pub fn trouble(&self) -> Option<String> {
        let of_side = |s: &Side| match &s.refused {
            Some((why, _)) => Some(why.clone()),
            None => {
                let lost = s.watches.iter().filter_map(|(c, w)| Some((*c, w.why()?)));
                let (cpus, why): (Vec<u32>, Vec<&str>) = lost.unzip();
                let why = why.first()?;
                Some(format!("not counted on CPU {}: {why}", CpuList(cpus)))
            }
        };
        let all: Vec<String> = self.sides.iter().filter_map(of_side).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What has been counted for `thread` since the last call for it, one reading per core type that it ran on.
    pub fn read(&mut self, scheduler: &Scheduler, thread: &Thread, out: &mut Vec<Reading>) {
        let first = thread.slot as usize * self.types;
        if self.seen.len() < first + self.types {
            self.seen.resize(first + self.types, Seen::default());
        }
        let key = ThreadKey {
            slot: thread.slot,
            generation: thread.generation,
        };
        let of_thread = self.seen.iter_mut().skip(first).take(self.types);
        for (t, (seen, runtime)) in of_thread.zip(thread.runtime).enumerate() {
            if seen.owner != thread.generation {
                *seen = Seen {
                    owner: thread.generation,
                    ..Seen::default()
                };
            }
            let ran = runtime.saturating_sub(seen.runtime);
            seen.runtime = runtime;
            let Some(side) = self.sides.get(t).filter(|s| ran > 0 && s.generation > 0) else {
                continue;
            };
            let counts = scheduler.counts(thread, t as u8);
            let counted = since(&seen.counts, &counts, side);
            if counts.generation > 0 {
                seen.counts = counts;
            }
            if let Some((counted, deltas)) = counted {
                let n = side.events.get(side.active).copied().unwrap_or(0);
                let (set, generation) = (side.active as u32, counts.generation as u32);
                let deltas = deltas.get(..n).unwrap_or(&deltas);
                let r = Reading::new(key, CoreTypeId(t as u8), set, generation, deltas);
                // CPU time is folded at every tick, counts at switches and some ticks: one may be ahead of the other
                out.push(r.over(Nanos(ran.max(counted)), Nanos(counted)));
            }
        }
    }
}

/// CPU time and counts that were added to `before`; nothing when none were in the present stretch.
fn since(before: &Counts, now: &Counts, side: &Side) -> Option<(u64, [u64; amp_bpf::MAX_EVENTS])> {
    if now.generation != side.generation {
        return None;
    }
    let base = match before.generation == now.generation {
        true => *before,
        false => Counts::default(),
    };
    let counted = now
        .counted_ns
        .checked_sub(base.counted_ns)
        .filter(|n| *n > 0)?;
    let mut deltas = now.values;
    for (d, b) in deltas.iter_mut().zip(base.values) {
        *d = d.checked_sub(b)?;
    }
    Some((counted, deltas))
}

/// Lets go of the counters.
fn stop(scheduler: &mut Scheduler, sides: &mut [Side]) {
    for (t, s) in sides.iter_mut().enumerate() {
        s.generation = 0;
        // it only fails where nothing can be counted
        let _ = scheduler.count(t as u8, None);
        if let Some(set) = s.sets.get_mut(s.active) {
            set.stop();
        }
    }
}

/// Lets the active sets count, and BPF read them.
fn begin(scheduler: &mut Scheduler, sides: &mut [Side]) -> Result<()> {
    let mut events: Vec<CpuEvents> = Vec::new();
    for side in sides.iter_mut() {
        for (set, open) in side.sets.iter().enumerate() {
            for (cpu, i, fd) in open.fds() {
                if i == 0 {
                    events.push(CpuEvents {
                        cpu,
                        set: set as u32,
                        events: Vec::new(),
                    });
                }
                if let Some(of_cpu) = events.last_mut() {
                    of_cpu.events.push(fd);
                }
            }
        }
    }
    scheduler.set_counters(&events)?;
    for (t, side) in sides.iter_mut().enumerate() {
        if let Some(set) = side.sets.get_mut(side.active) {
            set.start().map_err(whole)?;
            side.refused = None;
            side.watches.iter_mut().for_each(|(_, w)| w.counts());
            side.count(scheduler, t)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_host::BadInput;

    fn side(generation: u64) -> Side {
        Side {
            sets: Vec::new(),
            events: Vec::new(),
            active: 0,
            turns: 0,
            generation,
            watches: Vec::new(),
            refused: None,
        }
    }

    fn counts(generation: u64, counted_ns: u64, first: u64) -> Counts {
        let mut values = [0; amp_bpf::MAX_EVENTS];
        values[0] = first;
        Counts {
            generation,
            counted_ns,
            values,
        }
    }

    #[test]
    fn a_difference_is_never_taken_across_generations() {
        let first = |c: Option<(u64, [u64; amp_bpf::MAX_EVENTS])>| c.map(|(ns, v)| (ns, v[0]));
        let now = counts(3, 50, 700);
        let before = counts(3, 20, 300);
        assert_eq!(first(since(&before, &now, &side(3))), Some((30, 400)));
        // what an earlier one counted is no base, and not what counts now
        let earlier = counts(2, 40, 600);
        assert_eq!(first(since(&earlier, &now, &side(3))), Some((50, 700)));
        assert_eq!(first(since(&before, &earlier, &side(3))), None);
        // nothing, or going backwards: no reading
        assert_eq!(first(since(&now, &now, &side(3))), None);
        assert_eq!(first(since(&now, &before, &side(3))), None);
        assert_eq!(first(since(&before, &Counts::default(), &side(3))), None);
    }

    #[test]
    fn names_are_checked_without_a_machine() {
        for name in ["auto", "none", "model", "ipc-sampling"] {
            check_name(name).unwrap();
        }
        for (name, wants) in [("nome", "did you mean `none`?"), ("/no.toml", "/no.toml")] {
            let e = check_name(name).unwrap_err();
            assert!(e.is::<BadInput>() && e.to_string().contains(wants), "{e}");
        }
    }

    #[test]
    fn auto_says_what_it_took_and_why() {
        let topology = amp_sched::Topology::new(vec![amp_sched::CoreType {
            name: "only".into(),
            cpus: vec![0],
            capacity: 1024,
        }])
        .unwrap();
        let none = Pmus::none().with_core_types(&[topology.core_types()[0].cpus.clone()]);
        let mut nothing = Countable::of(none, VirtualCounters::of(Vec::new()));
        assert!(!nothing.anything());
        let auto = nothing.provider("auto").unwrap();
        let why = why_this("auto", &auto).unwrap();
        assert!(
            why.starts_with("provider auto: `declared`; not `model`: ")
                && why.contains("not `remembered`: ")
                && why.contains("no PMU"),
            "{why}"
        );
        assert_eq!(why_this("declared", &auto), None);
        let e = nothing.provider("ipc-sampling").unwrap_err();
        assert!(!e.is::<BadInput>(), "{e}");
        assert_eq!(
            format!("{e:#}").matches("no PMU counts").count(),
            1,
            "{e:#}"
        );
    }
}
