//! Counters that BPF reads at every context switch: what is counted now, and what that came to for
//! each thread since the last look.
//!
//! ```text
//! provider ─► event sets ─► CounterBanks::change ─► perf events, one group per CPU and set ─► BPF
//! Reading ◄── CounterBanks::read ◄── counts per thread and core type ◄── read at every switch ◄┘
//! ```

use amp_bpf::{Counts, CpuEvents, Scheduler, Thread};
use amp_machine::CpuList;
use amp_metrics::perf::OpenSet;
use amp_metrics::{CoreTypeId, EventSets, Nanos, Reading, ThreadKey, MAX_CORE_TYPES};
use amp_sched::Topology;
use anyhow::Result;

mod lost;

use lost::{BackOff, Due, Watch};

/// An error whose text contains its causes already.
fn whole(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{e}")
}

/// Every so many turns of event sets, the set whose turn it is is asked whether it got its
/// counters. Asking interrupts every CPU; between, readings that fail tell.
const TURNS_UNASKED: u32 = 16;

/// The counters of one core type.
struct Bank {
    /// Its event sets, in the provider's order, opened on all its CPUs.
    sets: Vec<OpenSet>,
    /// Number of events of each.
    events: Vec<usize>,
    /// Which one counts.
    active: usize,
    /// Number of changes of set.
    turns: u32,
    /// What BPF calls the present stretch; 0 while nothing counts.
    generation: u64,
    /// Watch of each CPU.
    watches: Vec<(u32, Watch)>,
    /// Why the active set was refused, and when it is tried again.
    refused: Option<(String, BackOff)>,
}

impl Bank {
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

/// The groups of counters that count now.
pub struct CounterBanks {
    /// By core type; none while nothing is counted.
    banks: Vec<Bank>,
    /// Core types of the machine.
    types: usize,
    /// Last readings by slot and core type.
    seen: Vec<Seen>,
}

impl CounterBanks {
    /// Nothing, on a machine with so many core types.
    pub fn new(types: usize) -> CounterBanks {
        CounterBanks {
            banks: Vec::new(),
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
        if sets.is_empty() && self.banks.is_empty() {
            return Ok(());
        }
        let mut next = Vec::new();
        if !sets.is_empty() {
            for (t, core_type) in topology.core_types().iter().enumerate() {
                let of_type = sets.of(CoreTypeId(t as u8));
                let open = |s| OpenSet::open_stopped(s, &core_type.cpus).map_err(whole);
                next.push(Bank {
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
        let mut before = std::mem::take(&mut self.banks);
        stop(scheduler, &mut before);
        match begin(scheduler, &mut next) {
            Ok(()) => {
                self.banks = next;
                Ok(())
            }
            Err(refused) => {
                stop(scheduler, &mut next);
                drop(next);
                let back = begin(scheduler, &mut before);
                self.banks = before;
                match back {
                    Ok(()) => Err(refused),
                    Err(e) => Err(refused.context(format!(
                        "and what was counted before does not count any more: {e:#}"
                    ))),
                }
            }
        }
    }

    /// Counts set `active(t)` of each core type `t` from now on. One that was refused is tried
    /// again, less and less often.
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
        for (t, bank) in self.banks.iter_mut().enumerate() {
            let wanted = active(CoreTypeId(t as u8));
            if wanted == bank.active && bank.generation > 0 || wanted >= bank.sets.len() {
                continue;
            }
            if let Some((why, _)) = bank.refused.as_ref().filter(|(_, b)| !b.due(now)) {
                outcome = Err(anyhow::anyhow!("{why}"));
                continue;
            }
            scheduler.count(t as u8, None)?;
            bank.generation = 0;
            bank.sets[bank.active].stop();
            bank.active = wanted;
            let asked = bank.turns % TURNS_UNASKED == 0 || bank.refused.is_some();
            bank.turns = bank.turns.wrapping_add(1);
            let set = &mut bank.sets[wanted];
            let started = match asked {
                true => set.start(),
                false => set.start_again(),
            };
            match started {
                Ok(()) => {
                    if asked {
                        bank.refused = None;
                        bank.watches.iter_mut().for_each(|(_, w)| w.counts());
                    }
                    bank.count(scheduler, t)?;
                }
                Err(e) => {
                    match &mut bank.refused {
                        Some((_, again)) => again.refused(now),
                        none => *none = Some((e.to_string(), BackOff::new(now))),
                    }
                    outcome = Err(whole(e));
                }
            }
        }
        outcome
    }

    /// Sees whether what should count does, once per interval, and asks again for what was lost.
    /// Says so in the log, once.
    pub fn mend(&mut self, scheduler: &mut Scheduler, now: Nanos) {
        let (mut lost, mut found) = (Vec::new(), Vec::new());
        for (t, bank) in self.banks.iter_mut().enumerate() {
            let Some(set) = bank
                .sets
                .get_mut(bank.active)
                .filter(|_| bank.generation > 0)
            else {
                continue;
            };
            let mut again = false;
            for (cpu, watch) in &mut bank.watches {
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
                if let Err(e) = bank.count(scheduler, t) {
                    bank.generation = 0;
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
        let of_bank = |s: &Bank| match &s.refused {
            Some((why, _)) => Some(why.clone()),
            None => {
                let lost = s.watches.iter().filter_map(|(c, w)| Some((*c, w.why()?)));
                let (cpus, why): (Vec<u32>, Vec<&str>) = lost.unzip();
                let why = why.first()?;
                Some(format!("not counted on CPU {}: {why}", CpuList(cpus)))
            }
        };
        let all: Vec<String> = self.banks.iter().filter_map(of_bank).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What has been counted for `thread` since the last call for it, one reading per core type
    /// that it ran on.
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
            let before = std::mem::replace(&mut seen.runtime, runtime);
            let Some(bank) = self.banks.get(t).filter(|s| ran > 0 && s.generation > 0) else {
                continue;
            };
            let Some(counts) = scheduler.counts(thread, t as u8) else {
                // the next reading covers this time, too
                seen.runtime = before;
                continue;
            };
            let counted = since(&seen.counts, &counts, bank);
            if counts.generation > 0 {
                seen.counts = counts;
            }
            if let Some((counted, deltas)) = counted {
                let n = bank.events.get(bank.active).copied().unwrap_or(0);
                let (set, generation) = (bank.active as u32, counts.generation as u32);
                let deltas = deltas.get(..n).unwrap_or(&deltas);
                let r = Reading::new(key, CoreTypeId(t as u8), set, generation, deltas);
                // CPU time is folded at every tick, counts at switches and some ticks: one may be
                // ahead of the other
                out.push(r.over(Nanos(ran.max(counted)), Nanos(counted)));
            }
        }
    }
}

/// CPU time and counts that were added to `before`; nothing when none were in the present stretch.
fn since(before: &Counts, now: &Counts, bank: &Bank) -> Option<(u64, [u64; amp_bpf::MAX_EVENTS])> {
    if now.generation != bank.generation {
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
fn stop(scheduler: &mut Scheduler, banks: &mut [Bank]) {
    for (t, s) in banks.iter_mut().enumerate() {
        s.generation = 0;
        // it only fails where nothing can be counted
        let _ = scheduler.count(t as u8, None);
        if let Some(set) = s.sets.get_mut(s.active) {
            set.stop();
        }
    }
}

/// Lets the active sets count, and BPF read them.
fn begin(scheduler: &mut Scheduler, banks: &mut [Bank]) -> Result<()> {
    let mut events: Vec<CpuEvents> = Vec::new();
    for bank in banks.iter_mut() {
        for (set, open) in bank.sets.iter().enumerate() {
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
    for (t, bank) in banks.iter_mut().enumerate() {
        if let Some(set) = bank.sets.get_mut(bank.active) {
            set.start().map_err(whole)?;
            bank.refused = None;
            bank.watches.iter_mut().for_each(|(_, w)| w.counts());
            bank.count(scheduler, t)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(generation: u64) -> Bank {
        Bank {
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
        assert_eq!(first(since(&before, &now, &bank(3))), Some((30, 400)));
        // what an earlier one counted is no base, and not what counts now
        let earlier = counts(2, 40, 600);
        assert_eq!(first(since(&earlier, &now, &bank(3))), Some((50, 700)));
        assert_eq!(first(since(&before, &earlier, &bank(3))), None);
        // nothing, or going backwards: no reading
        assert_eq!(first(since(&now, &now, &bank(3))), None);
        assert_eq!(first(since(&now, &before, &bank(3))), None);
        assert_eq!(first(since(&before, &Counts::default(), &bank(3))), None);
    }
}
