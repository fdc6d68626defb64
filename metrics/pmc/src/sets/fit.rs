//! Sets that a PMU can count at once: one that it cannot is split, as trials show.

use super::{Set, Unit};
use amp_metrics::group::{self, fit, Group, GroupError, Whom};
use amp_metrics::Event;

impl Unit {
    /// Whether its events need no counter of a PMU: they may be on all the time.
    pub fn is_always_on(&self) -> bool {
        self.core_type.is_none() && self.cpus.is_empty()
    }

    /// Whether it is the same PMU on the same CPUs.
    fn is_same_pmu(&self, other: &Unit) -> bool {
        (&self.pmu, self.core_type, &self.cpus) == (&other.pmu, other.core_type, &other.cpus)
    }

    /// Takes in what `other` counts on the same PMU, and it does not.
    fn take_in(&mut self, other: Unit) {
        let Unit {
            events,
            aliases,
            trusted,
            instructions,
            cycles,
            ..
        } = other;
        let mut moved = Vec::with_capacity(events.len());
        for ((event, aliases), trusted) in events.into_iter().zip(aliases).zip(trusted) {
            let there = self.events.iter().position(|e| *e == event);
            moved.push(there.unwrap_or_else(|| {
                self.events.push(event);
                self.aliases.push(aliases);
                self.trusted.push(trusted);
                self.events.len() - 1
            }));
        }
        let at = |i: Option<usize>| moved.get(i?).copied();
        self.instructions = self.instructions.or(at(instructions));
        self.cycles = self.cycles.or(at(cycles));
    }

    /// The same unit with the events at `of` alone.
    fn only(&self, of: &[usize]) -> Unit {
        let at = |i: Option<usize>| of.iter().position(|o| Some(*o) == i);
        Unit {
            events: of.iter().map(|i| self.events[*i].clone()).collect(),
            aliases: of.iter().map(|i| self.aliases[*i].clone()).collect(),
            trusted: of.iter().map(|i| self.trusted(*i)).collect(),
            instances: self.instances.clone(),
            instructions: at(self.instructions),
            cycles: at(self.cycles),
            ..Unit::new(&self.pmu, self.core_type, self.cpus.clone())
        }
    }
}

impl Set {
    /// The set as sets that can be counted by turns, whose events the PMUs here can count at once, as
    /// trials show; one set, itself, where everything fits. Counters that others hold now (the NMI watchdog, a
    /// scheduler, another profiler) do not count as there.
    pub fn fitting(self) -> Vec<Set> {
        self.split(&|unit, events| counts_at_once(unit, events))
    }

    /// Each event as a set of its own: one for each event that the unit with the most has.
    pub fn single_events(self) -> Vec<Set> {
        self.split(&|_, events| events.len() <= 1)
    }

    /// How many of these sets can be on at the same time, whichever they are, as trials of many choices show: of neighbours,
    /// of every second and of every third set.
    pub fn at_once(sets: &[Set]) -> usize {
        largest_choice(sets, &|unit, events| counts_at_once(unit, events))
    }

    /// These sets as one, every event once; `None` of none.
    pub fn joined(sets: Vec<Set>) -> Option<Set> {
        let mut all = sets.into_iter();
        let mut out = all.next()?;
        for set in all {
            for unit in set.units {
                let same = |u: &&mut Unit| u.is_same_pmu(&unit);
                match out.units.iter_mut().find(same) {
                    Some(of) => of.take_in(unit),
                    None => out.units.push(unit),
                }
            }
            for n in set.not_supported {
                if !out.not_supported.contains(&n) {
                    out.not_supported.push(n);
                }
            }
            out.text = out.text + "," + &set.text;
        }
        out.by_core_type();
        Some(out)
    }

    fn split(self, fits: &dyn Fn(&Unit, &[Event]) -> bool) -> Vec<Set> {
        let mut bins: Vec<Vec<Vec<usize>>> = self.units.iter().map(|u| bins(u, fits)).collect();
        let most = bins.iter().map(Vec::len).max().unwrap_or(1);
        if most <= 1 {
            return vec![self];
        }
        for (unit, bins) in self.units.iter().zip(&mut bins) {
            if !unit.is_always_on() {
                // what no set counts on a core type looks like time that nobody spent there
                spread(bins, most);
            }
        }
        let mut sets = Vec::with_capacity(most);
        let mut not_supported = self.not_supported;
        for k in 0..most {
            let units = self.units.iter().zip(&bins);
            let units: Vec<Unit> = units
                .filter_map(|(u, bins)| Some(u.only(bins.get(k)?)))
                .collect();
            let mut names: Vec<&str> = Vec::new();
            for e in units.iter().flat_map(|u| &u.events) {
                if !names.contains(&e.name.as_str()) {
                    names.push(&e.name);
                }
            }
            sets.push(Set {
                text: names.join(","),
                units,
                not_supported: std::mem::take(&mut not_supported),
                hidden: self.hidden,
            });
        }
        sets
    }
}

/// The largest number of sets of which every choice that is tried fits.
fn largest_choice(sets: &[Set], fits: &dyn Fn(&Unit, &[Event]) -> bool) -> usize {
    fit::largest_choice(sets.len(), &|chosen| {
        let units = chosen.iter().flat_map(|s| &sets[*s].units);
        let units: Vec<&Unit> = units.filter(|u| !u.is_always_on()).collect();
        units.iter().enumerate().all(|(i, unit)| {
            // each PMU once
            if units[..i].iter().any(|u| u.is_same_pmu(unit)) {
                return true;
            }
            let of_pmu = units.iter().filter(|u| u.is_same_pmu(unit));
            let events: Vec<Event> = of_pmu.flat_map(|u| &u.events).cloned().collect();
            fits(unit, &events)
        })
    })
}

/// The events of a unit by their numbers, in as few bins as are found ([`fit::bins`]).
fn bins(unit: &Unit, fits: &dyn Fn(&Unit, &[Event]) -> bool) -> Vec<Vec<usize>> {
    let n = unit.events.len();
    if unit.is_always_on() {
        return vec![(0..n).collect()];
    }
    fit::bins(n, &|of| {
        let events: Vec<Event> = of.iter().map(|i| unit.events[*i].clone()).collect();
        fits(unit, &events)
    })
}

/// Makes `n` bins of them: the fullest is halved, and where nothing can be halved, the first is counted again.
fn spread(bins: &mut Vec<Vec<usize>>, n: usize) {
    while bins.len() < n {
        let fullest = (0..bins.len()).rev().max_by_key(|b| bins[*b].len());
        let Some(fullest) = fullest else {
            return;
        };
        let half = bins[fullest].len() / 2;
        let new = match half {
            0 => bins[0].clone(),
            _ => {
                let keep = bins[fullest].len() - half;
                bins[fullest].split_off(keep)
            }
        };
        bins.push(new);
    }
}

/// Whether the events can be on at once now. Only a refusal counts as one: who may not count, or lacks an event, is
/// told so when counting begins.
fn counts_at_once(unit: &Unit, events: &[Event]) -> bool {
    match (unit.core_type, unit.cpus.first()) {
        // a PMU that counts no cores has to be asked on a CPU of its own, where others may be at it
        (None, Some(cpu)) => !is_refusal(&Group::open(events, Whom::Cpu(*cpu), false)),
        (_, cpu) => group::counts_at_once(events, cpu.copied()),
    }
}

fn is_refusal<T>(tried: &Result<T, GroupError>) -> bool {
    matches!(tried, Err(GroupError::Refused { .. }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::inventory;
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> Set {
        Set::parse(&inventory(true), text).unwrap()
    }

    /// A PMU with so many counters, of which events with an even code have the first two only.
    fn with(counters: usize) -> impl Fn(&Unit, &[Event]) -> bool {
        move |unit, events| {
            let tied = events.iter().filter(|e| e.attr.config % 2 == 0).count();
            unit.is_always_on() || (events.len() <= counters && tied <= 2)
        }
    }

    fn names(sets: &[Set]) -> Vec<Vec<String>> {
        let of = |u: &Unit| {
            let events: Vec<&str> = u.events.iter().map(|e| e.name.as_str()).collect();
            format!("{}: {}", u.pmu, events.join(" "))
        };
        sets.iter()
            .map(|s| s.units.iter().map(of).collect())
            .collect()
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let one = set("both,task-clock,a57/event=3/");
        assert_eq!(one.clone().split(&with(4)), [one]);
    }

    #[test]
    fn single_events_are_as_many_at_once_as_always_fit() {
        let wide = set("a57/event=2/,task-clock,both,a57/event=4/,a57/event=6/,instructions");
        let single = wide.clone().single_events();
        assert_eq!(single.len(), 5);
        assert!(single
            .iter()
            .all(|s| s.units[0].events.len() == 1 && s.units[1].events.len() == 1));
        let software = single
            .iter()
            .filter(|s| s.units.iter().any(Unit::is_always_on));
        assert_eq!(software.count(), 1);
        // of three neighbours with even codes two fit
        assert_eq!(largest_choice(&single, &with(3)), 2);
        assert_eq!(largest_choice(&single, &with(1)), 1);
        let any = |n: usize| move |_: &Unit, events: &[Event]| events.len() <= n;
        assert_eq!(largest_choice(&single, &any(4)), 4);
        assert_eq!(largest_choice(&single, &any(9)), 5);
        // what fits at once is the set again
        let joined = Set::joined(single).unwrap();
        let events = |s: &Set| {
            let mut names: Vec<String> = s.names().cloned().collect();
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(events(&joined), events(&wide));
        assert_eq!(joined.units.len(), 3);
        assert_eq!(joined.units[0].events.len(), 5);
        let named = |s: &Set| {
            s.units[0]
                .instructions
                .map(|i| s.units[0].events[i].name.clone())
        };
        assert_eq!(named(&joined), named(&wide));
        assert!(Set::joined(Vec::new()).is_none());
    }

    #[test]
    fn what_does_not_fit_takes_turns_and_software_is_on_all_the_time() {
        let wide = set("a57/event=2/,task-clock,both,a57/event=4/,a57/event=6/,instructions");
        let sets = wide.split(&with(3));
        assert_eq!(
            names(&sets),
            [
                vec![
                    "a57: a57/event=2/ both a57/event=4/".to_owned(),
                    "a53: both".to_owned(),
                    "software: task-clock".to_owned()
                ],
                vec![
                    "a57: a57/event=6/ instructions".to_owned(),
                    "a53: instructions".to_owned()
                ],
            ]
        );
        assert_eq!(sets[0].text, "a57/event=2/,both,a57/event=4/,task-clock");
        assert_eq!(sets[1].units[0].instructions, Some(1));
        assert_eq!(sets[0].units[0].instructions, None);
        assert_eq!(sets[1].units[1].find("a53/event=0x1/"), None);
        // a core type of one event is counted whenever the others are
        let sets = set("a57/event=2/,a57/event=4/,a57/event=6/,a53/event=3/").split(&with(4));
        assert_eq!(sets.len(), 2);
        assert!(sets
            .iter()
            .all(|s| s.units[1].find("a53/event=3/") == Some(0)));
    }

    proptest! {
        #[test]
        fn every_event_is_counted_and_every_set_fits(
            codes in proptest::collection::vec(1u64..40, 1..14),
            counters in 1usize..6,
        ) {
            let text: Vec<String> = codes.iter().map(|c| format!("a57/event={c}/")).collect();
            let wide = set(&format!("{},both,cs", text.join(",")));
            let sets = wide.clone().split(&with(counters));
            for unit in sets.iter().flat_map(|s| &s.units) {
                prop_assert!(!unit.events.is_empty());
                prop_assert!(with(counters)(unit, &unit.events), "{:?}", unit.events);
                prop_assert_eq!(unit.events.len(), unit.aliases.len());
                prop_assert_eq!(unit.events.len(), unit.trusted.len());
            }
            for event in wide.units.iter().flat_map(|u| &u.events) {
                let units = sets.iter().flat_map(|s| &s.units);
                let times = units.flat_map(|u| &u.events).filter(|e| *e == event).count();
                prop_assert!(times >= 1, "{}", event.name);
            }
            let software = |s: &&Set| s.units.iter().any(Unit::is_always_on);
            prop_assert_eq!(sets.iter().filter(software).count(), 1);
        }
    }
}

#[cfg(test)]
#[path = "fit_x86_tests.rs"]
mod x86_tests;
