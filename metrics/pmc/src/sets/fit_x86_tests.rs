//! Splitting on an x86 PMU, whose events are tied to counters as the vendor's table says.
//!
//! The kernel (`x86_schedule_events`) takes a group when it finds a counter for each event. The model
//! here does so too, by a matching of events and counters: 8 general counters and the fixed ones of
//! Golden Cove.

use super::super::Unit;
use super::*;
use crate::groups::tests::{intel, machine};
use crate::inventory::CounterInventory;
use amp_metrics::pmu::vendor::VendorEvents;
use amp_pmu_events::Counters;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use std::collections::{BTreeMap, BTreeSet};

const PMU: &str = "cpu_core";
/// General counters; the fixed ones come behind them.
const GENERAL: usize = 8;
const COUNTERS: usize = GENERAL + 4;

/// The PMU of Alder Lake's fast cores.
struct GoldenCove {
    inventory: CounterInventory,
    /// Counters of each event that the table ties to some: bit *n* for counter *n*.
    counters: BTreeMap<String, u64>,
}

thread_local! {
    // for the rest of the program: a thread per test
    static MADE: &'static GoldenCove = Box::leak(Box::new(GoldenCove::new()));
}

fn golden_cove() -> &'static GoldenCove {
    MADE.with(|made| *made)
}

impl GoldenCove {
    fn new() -> GoldenCove {
        let (core, atom): (Vec<u32>, Vec<u32>) = ((0..16).collect(), (16..24).collect());
        let inventory = machine("alderlake", &intel(151), &[&core, &atom]);
        let events: VendorEvents = inventory.pmus.by_name(PMU).unwrap().vendor.clone();
        let mask = |code: &str, c: Counters| match c {
            Counters::General(mask) => Some(mask),
            // the kernel lets it use general counters too, if that is an event's code at all
            Counters::Fixed(n) if code.split(',').any(|t| t == "event=0") => {
                Some(1 << (GENERAL as u32 + n))
            }
            Counters::Fixed(n) => Some(1 << (GENERAL as u32 + n) | ((1 << GENERAL) - 1)),
            Counters::FreeRunning => None,
        };
        let counters = events
            .iter()
            .filter_map(|(name, e)| Some((name.clone(), mask(&e.code, e.counters?)?)))
            .collect();
        GoldenCove {
            inventory,
            counters,
        }
    }

    /// The set of these events.
    fn set(&self, names: &[&String]) -> Set {
        let text: Vec<String> = names.iter().map(|n| format!("{PMU}/{n}/")).collect();
        Set::parse(&self.inventory, &text.join(",")).unwrap()
    }

    fn masks(&self, events: &[Event]) -> Vec<u64> {
        let bare = |e: &Event| e.name.trim_start_matches("cpu_core/").replace('/', "");
        events.iter().map(|e| self.counters[&bare(e)]).collect()
    }

    /// Names of events that only fixed counters, or that also general ones count.
    fn names(&self, fixed: bool) -> Vec<&String> {
        let of = self.counters.iter();
        of.filter(|(_, m)| (**m >> GENERAL != 0) == fixed)
            .map(|(n, _)| n)
            .collect()
    }
}

/// A counter for each event, fixed ones first, when each counter can be given away `times` times.
fn assigned(masks: &[u64], times: usize) -> Option<Vec<usize>> {
    let mut held: Vec<Vec<usize>> = vec![Vec::new(); COUNTERS];
    for event in 0..masks.len() {
        let mut seen = [false; COUNTERS];
        if !place(event, masks, times, &mut held, &mut seen) {
            return None;
        }
    }
    let of = |event| held.iter().position(|events| events.contains(&event));
    (0..masks.len()).map(of).collect()
}

fn place(
    event: usize,
    masks: &[u64],
    times: usize,
    held: &mut [Vec<usize>],
    seen: &mut [bool],
) -> bool {
    for c in (0..COUNTERS).rev().filter(|c| masks[event] >> c & 1 == 1) {
        if std::mem::replace(&mut seen[c], true) {
            continue;
        }
        if held[c].len() < times {
            held[c].push(event);
            return true;
        }
        for i in 0..held[c].len() {
            if place(held[c][i], masks, times, held, seen) {
                held[c][i] = event;
                return true;
            }
        }
    }
    false
}

/// The fewest sets that these events can be counted in: each counter is there once in each.
fn fewest(masks: &[u64]) -> usize {
    (1..).find(|n| assigned(masks, *n).is_some()).unwrap()
}

fn fits(_: &Unit, events: &[Event]) -> bool {
    assigned(&golden_cove().masks(events), 1).is_some()
}

/// Checks the sets made of these events; how many there are, and the fewest that there can be.
fn split(names: &[&String]) -> (usize, usize) {
    let cove = golden_cove();
    let wide = cove.set(names);
    let sets = wide.clone().split(&fits);
    let mut counted = Vec::new();
    for set in &sets {
        assert_eq!(set.units.len(), 1);
        let masks = cove.masks(&set.units[0].events);
        let at = assigned(&masks, 1).expect("a counter for every event");
        for (mask, counter) in masks.iter().zip(&at) {
            // on a general counter for want of a fixed one only
            let free = |c: &usize| mask >> c & 1 == 1 && !at.contains(c);
            let needless = *counter < GENERAL && (GENERAL..COUNTERS).any(|c| free(&c));
            assert!(!needless, "{}: {at:?}", set.text);
        }
        counted.extend(set.units[0].events.iter().map(|e| e.name.clone()));
    }
    let mut all: Vec<String> = wide.names().cloned().collect();
    all.sort();
    counted.sort();
    assert_eq!(counted, all, "each event once");
    (sets.len(), fewest(&cove.masks(&wide.units[0].events)))
}

#[test]
fn the_table_ties_events() {
    let cove = golden_cove();
    let with = |mask: u64| cove.counters.values().filter(|m| **m == mask).count();
    assert!(
        with(0xff) > 100 && with(0xf) > 100 && with(1) > 0 && with(0xfe) > 0,
        "{:?}",
        cove.counters
    );
    assert_eq!(cove.names(true).len(), 5);
    let fixed = |name: &str| cove.counters[name] >> GENERAL;
    assert_eq!(fixed("inst_retired.any"), 1);
    assert_eq!(fixed("cpu_clk_unhalted.thread"), 2);
    assert_eq!(fixed("topdown.slots"), 8);
}

#[test]
fn events_that_any_counter_counts_leave_the_others_to_tied_ones() {
    let cove = golden_cove();
    let with = |mask: u64| cove.counters.iter().filter(move |(_, m)| **m == mask);
    let free = with(0xff).map(|(n, _)| n).take(8);
    let tied = with(0xf).map(|(n, _)| n).take(8);
    let names: Vec<&String> = free.chain(tied).collect();
    // in the order of writing all free ones would be together, and the others need two more sets
    assert_eq!(split(&names), (2, 2));
    let sets = cove.set(&names).split(&fits);
    let first = &sets[0].units[0].events[0].name;
    assert!(first.contains(names[0].as_str()), "{first}");
}

#[test]
fn two_hundred_sets_are_as_few_as_can_be() {
    let cove = golden_cove();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut names: Vec<&String> = cove.counters.keys().collect();
    let kinds: BTreeSet<u64> = cove.counters.values().copied().collect();
    let (mut sets, mut best, mut plain) = (0, 0, 0);
    for i in 0..200 {
        names.shuffle(&mut rng);
        let mut some: Vec<&String> = names[..10 + i % 25].to_vec();
        if i % 2 == 1 {
            // as many of the rare kinds as of the frequent ones
            let of = |kind| names.iter().filter(move |n| cove.counters[**n] == kind);
            some = kinds
                .iter()
                .flat_map(|k| of(*k).take(1 + i % 7))
                .copied()
                .collect();
            some.shuffle(&mut rng);
        }
        let (n, fewest) = split(&some);
        assert_eq!(n, fewest, "{some:?}");
        sets += n;
        best += fewest;
        let unit = &cove.set(&some).units[0];
        let written =
            |of: &[usize]| -> Vec<Event> { of.iter().map(|i| unit.events[*i].clone()).collect() };
        let bins = fit::first_fit((0..some.len()).collect(), &|of| fits(unit, &written(of)));
        plain += bins.len();
    }
    println!("{sets} sets of 200 lists, {best} are the fewest, {plain} in the order of writing");
    assert!(plain > sets);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sets_of_golden_cove_can_be_assigned(
        names in proptest::sample::subsequence(
            golden_cove().counters.keys().collect::<Vec<_>>(), 1..40).prop_shuffle(),
    ) {
        let (n, fewest) = split(&names);
        prop_assert!(n <= fewest + 1, "{} sets, {}: {:?}", n, fewest, names);
    }

    #[test]
    fn events_of_fixed_counters_come_on_top(
        names in proptest::sample::subsequence(golden_cove().names(false), 9..30).prop_shuffle(),
        at in 0usize..9,
    ) {
        let (without, _) = split(&names);
        let mut with = names;
        for name in golden_cove().names(true) {
            // shares its counter with `inst_retired.any`
            if name != "inst_retired.prec_dist" {
                with.insert(at, name);
            }
        }
        prop_assert_eq!(split(&with).0, without);
    }
}
