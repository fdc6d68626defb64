//! More events than counters: sets of them take turns, one for each time that the region is entered.

use crate::region::EventCount;
use crate::Error;
use amp_metrics::group::{counts_at_once, Group, GroupError, Whom};
use amp_metrics::multiplex::Sampled;
use amp_metrics::Event;

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
    state: u64,
}

impl Order {
    fn of(sets: usize) -> Order {
        Order {
            sets: sets.max(1),
            left: Vec::new(),
            state: 1,
        }
    }

    fn next(&mut self) -> usize {
        if self.left.is_empty() {
            self.left = (0..self.sets).collect();
        }
        // a linear congruential generator (Knuth, MMIX); its upper bits
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (self.state >> 33) as usize % self.left.len();
        self.left.swap_remove(at)
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
            let sets = split(of_pmu, &|set| counts_at_once(set, cpu));
            let open = |set: &Vec<Event>| Group::open(set, whom, false).map(Set::new);
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

/// The events in sets that `fits` accepts: each goes into the first that has room for it, and one that fits nowhere, not even
/// alone, has a set of its own, to be refused when it is opened.
fn split(events: Vec<Event>, fits: &dyn Fn(&[Event]) -> bool) -> Vec<Vec<Event>> {
    let mut sets: Vec<Vec<Event>> = Vec::new();
    'events: for event in events {
        for set in &mut sets {
            set.push(event.clone());
            if fits(set) {
                continue 'events;
            }
            set.pop();
        }
        sets.push(vec![event]);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::group::software;

    fn event(name: &str) -> Event {
        let clock = software(&"task-clock:u".parse().unwrap()).unwrap();
        clock.named(name)
    }

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

    #[test]
    fn sets_are_filled_in_the_order_of_writing() {
        let events = || ["a", "b", "c", "d", "e"].map(event).to_vec();
        // `c` does not go with `b`, and no more than two go together
        let fits = |set: &[Event]| {
            let has = |n: &str| set.iter().any(|e| e.name == n);
            set.len() <= 2 && !(has("b") && has("c"))
        };
        let sets = split(events(), &fits);
        let names: Vec<Vec<&str>> = sets
            .iter()
            .map(|s| s.iter().map(|e| e.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        assert_eq!(split(events(), &|_| false).len(), 5);
        assert!(split(Vec::new(), &|_| false).is_empty());
    }
}
