//! More events than counters: sets of them take turns, one for each time that the region is entered.

use crate::region::EventCount;
use crate::Error;
use amp_metrics::group::{counts_at_once, fit, Group, GroupError, Whom};
use amp_metrics::multiplex::Sampled;
use amp_metrics::Event;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;

/// Of the order of turns: the same every time.
const SEED: u64 = 1;

/// Seconds, and counts of the events of a set.
struct Reading(f64, Vec<u64>);

/// One set of a PMU.
struct Set {
    group: Group,
    /// At the end of its last turn.
    last: Reading,
    /// What it has counted, a window for each time. Not seconds: a set of more events takes longer to be started, and none of
    /// that is the region's.
    sampled: Sampled,
}

impl Set {
    fn new(group: Group) -> Set {
        let events = group.events().len();
        Set {
            group,
            last: Reading(0.0, vec![0; events]),
            sampled: Sampled::new(events),
        }
    }

    /// What it says now.
    fn read(&mut self) -> Result<Reading, GroupError> {
        let now = self.group.read()?;
        Ok(Reading(now.running.as_secs_f64(), now.counts))
    }

    /// What is in `now` since the end of its last turn.
    fn since(&self, now: &Reading) -> Reading {
        let Reading(before, counts) = &self.last;
        let counts = now.1.iter().zip(counts);
        Reading(
            (now.0 - before).max(0.0),
            counts.map(|(n, b)| n.saturating_sub(*b)).collect(),
        )
    }
}

/// All sets of a PMU, of which one is on.
struct Unit {
    sets: Vec<Set>,
    /// How often the region was entered, as far as it was on this PMU's cores.
    times: f64,
    /// Seconds on them, whichever set was on.
    seconds: f64,
}

impl Unit {
    fn active(&mut self, turn: usize) -> Option<&mut Set> {
        let n = self.sets.len().max(1);
        self.sets.get_mut(turn % n)
    }

    /// Takes in what the set whose turn it was has counted.
    fn take(&mut self, turn: usize) -> Result<(), GroupError> {
        let n = self.sets.len().max(1);
        let Some(set) = self.active(turn) else {
            return Ok(());
        };
        let now = set.read()?;
        let Reading(seconds, counts) = set.since(&now);
        set.last = now;
        if seconds <= 0.0 {
            // on another PMU's cores
            return Ok(());
        }
        set.sampled.add(1.0, &counts);
        self.times += 1.0;
        self.seconds += seconds;
        for (_, other) in (0..).zip(&mut self.sets).filter(|(i, _)| *i != turn % n) {
            other.sampled.skip(1.0);
        }
        Ok(())
    }

    /// The counts so far, with what goes on in the turn that is `on`.
    fn counts(&mut self, on: Option<usize>, out: &mut Vec<EventCount>) -> Result<(), GroupError> {
        let n = self.sets.len().max(1);
        let (mut times, mut seconds) = (self.times, self.seconds);
        let mut now = None;
        if let (Some(turn), Some(set)) = (on, on.and_then(|t| self.active(t))) {
            let so_far = set.read()?;
            let Reading(more, counts) = set.since(&so_far);
            if more > 0.0 {
                (times, seconds) = (times + 1.0, seconds + more);
                now = Some((turn % n, counts));
            }
        }
        for (i, s) in self.sets.iter().enumerate() {
            let mut sampled = s.sampled.clone();
            match &now {
                Some((at, counts)) if *at == i => sampled.add(1.0, counts),
                Some(_) => sampled.skip(1.0),
                None => {}
            }
            for (e, event) in s.group.events().iter().enumerate() {
                let total = sampled.total(e, times);
                out.push(EventCount {
                    event: event.name.clone(),
                    pmu: event.pmu.clone(),
                    count: total.map_or(0, |t| t.value.max(0.0).round() as u64),
                    seconds,
                    u: total.and_then(|t| t.u),
                    coverage: sampled.coverage(times).unwrap_or(1.0),
                });
            }
        }
        Ok(())
    }
}

/// In which order sets are on: each once in as many times as there are sets, and by chance within those, or a region whose every
/// second time is another one would be seen by halves.
struct Order {
    sets: usize,
    left: Vec<usize>,
    rng: SmallRng,
}

impl Order {
    fn of(sets: usize) -> Order {
        Order {
            sets: sets.max(1),
            left: Vec::new(),
            rng: SmallRng::seed_from_u64(SEED),
        }
    }

    fn next(&mut self) -> usize {
        if self.left.is_empty() {
            self.left = (0..self.sets).collect();
            self.left.shuffle(&mut self.rng);
        }
        // there is one at least
        self.left.pop().unwrap_or_default()
    }
}

/// Sets that take turns, on every PMU.
pub(crate) struct Turns {
    units: Vec<Unit>,
    order: Order,
    turn: usize,
}

impl Turns {
    /// Opens `events`, by PMU, in as many sets as trials ask for; `cpu` says a CPU of a PMU's.
    ///
    /// # Errors
    /// When the kernel refuses an event by itself.
    pub fn open(
        events: Vec<Vec<Event>>,
        whom: Whom,
        cpu: impl Fn(&str) -> Option<u32>,
    ) -> Result<Turns, GroupError> {
        let mut units = Vec::new();
        for of_pmu in events {
            let cpu = of_pmu.first().and_then(|e| cpu(&e.pmu));
            let of =
                |set: &[usize]| -> Vec<Event> { set.iter().map(|i| of_pmu[*i].clone()).collect() };
            let sets = fit::bins(of_pmu.len(), &|set| counts_at_once(&of(set), cpu));
            let open = |set: &Vec<usize>| Group::open(&of(set), whom, false).map(Set::new);
            let sets: Result<Vec<Set>, GroupError> = sets.iter().map(open).collect();
            units.push(Unit {
                sets: sets?,
                times: 0.0,
                seconds: 0.0,
            });
        }
        let most = units.iter().map(|u: &Unit| u.sets.len()).max();
        let mut order = Order::of(most.unwrap_or(1));
        Ok(Turns {
            units,
            turn: order.next(),
            order,
        })
    }

    /// How many sets take turns, at most.
    pub fn len(&self) -> usize {
        self.order.sets
    }

    pub fn start(&mut self) -> Result<(), Error> {
        let turn = self.turn;
        for u in &mut self.units {
            if let Some(s) = u.active(turn) {
                s.group.start()?;
            }
        }
        Ok(())
    }

    /// Stops, and has another set be on the next time.
    pub fn stop(&mut self) -> Result<(), Error> {
        let turn = self.turn;
        // the last to be started first: the first counts what is between
        for u in self.units.iter_mut().rev() {
            if let Some(s) = u.active(turn) {
                s.group.stop()?;
            }
        }
        for u in &mut self.units {
            u.take(turn)?;
        }
        self.turn = self.order.next();
        Ok(())
    }

    /// Counts over all times that the region was entered; of one that runs, up to now.
    pub fn read(&mut self, running: bool) -> Result<Vec<EventCount>, Error> {
        let on = running.then_some(self.turn);
        let mut out = Vec::new();
        for u in &mut self.units {
            u.counts(on, &mut out)?;
        }
        Ok(out)
    }

    /// From 0 again; whose turn it is stays.
    pub fn reset(&mut self) -> Result<(), Error> {
        for u in &mut self.units {
            (u.times, u.seconds) = (0.0, 0.0);
            for s in &mut u.sets {
                s.last = s.read()?;
                s.sampled = Sampled::new(s.group.events().len());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_has_its_turn_and_none_a_rhythm() {
        let mut order = Order::of(3);
        let turns: Vec<usize> = (0..300).map(|_| order.next()).collect();
        let mut firsts = [0; 3];
        for block in turns.chunks(3) {
            let mut sorted = block.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            firsts[block[0]] += 1;
        }
        assert!(firsts.iter().all(|n| (15..60).contains(n)), "{firsts:?}");
        assert_eq!(Order::of(1).next(), 0);
    }
}
