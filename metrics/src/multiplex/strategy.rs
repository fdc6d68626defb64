//! Which event set is counted next.

use super::phase::{PhaseDetector, PhaseRule};
use rustc_hash::FxHashMap;
use thiserror::Error;

/// What a set counted for one subject in one window.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Who was counted: a thread, or a whole core type. Subjects are followed apart and their costs
    /// added up.
    pub subject: u64,
    /// The set.
    pub set: usize,
    /// Beginning of the window, in any unit of time that only grows.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Increments of the set's events, without those that are in every set.
    pub counts: &'a [f64],
    /// IPC of the window, from the instructions and cycles that are in every set; 0 when not known.
    pub ipc: f64,
}

/// Decides which of several event sets is counted in the next window.
pub trait Strategy: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Takes in what was counted.
    fn observe(&mut self, o: &Observation<'_>);

    /// The set for the window that begins at `now`; always below the number of sets.
    fn next(&mut self, now: f64) -> usize {
        let mut one = [0];
        self.choose(now, &mut one);
        let [set] = one;
        set
    }

    /// Fills `chosen` with different sets to be counted together in the window that begins at
    /// `now`, the most wanted first: for single events as sets, as many as there are counters.
    /// Where there are fewer sets than that, the rest is 0.
    fn choose(&mut self, now: f64, chosen: &mut [usize]);

    /// Forgets every subject for which `keep` is false.
    fn retain(&mut self, keep: &dyn Fn(u64) -> bool);
}

/// The strategies there are: name, and what it does in one line.
pub const STRATEGIES: &[(&str, &str)] = &[
    ("round-robin", "every set in turn"),
    (
        "rate-of-change",
        "the set whose counts bent most over its last three windows, by the time it has waited [ROC]",
    ),
    (
        "relative-error",
        "the set whose reconstruction would lose most, relative to each event's own rate; all sets once after a phase change",
    ),
];

/// There is no such strategy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown strategy `{0}`: there are `round-robin`, `rate-of-change` and `relative-error`")]
pub struct UnknownStrategy(String);

/// The strategy called `name` for `sets` event sets.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn by_name(name: &str, sets: usize) -> Result<Box<dyn Strategy>, UnknownStrategy> {
    Ok(match name {
        "round-robin" => Box::new(RoundRobin {
            sets: sets.max(1),
            last: None,
        }),
        "rate-of-change" => Box::new(RateOfChange {
            histories: Histories::new(sets),
        }),
        "relative-error" => Box::new(RelativeError {
            histories: Histories::new(sets),
            // a false alarm costs a turn, a late one costs what changed meanwhile
            rule: PhaseRule {
                confirm: 1,
                ..PhaseRule::default()
            },
        }),
        _ => return Err(UnknownStrategy(name.to_owned())),
    })
}

struct RoundRobin {
    sets: usize,
    last: Option<usize>,
}

impl Strategy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn observe(&mut self, _o: &Observation<'_>) {}

    fn choose(&mut self, _now: f64, chosen: &mut [usize]) {
        chosen.fill(0);
        for set in chosen.iter_mut().take(self.sets) {
            let next = self.last.map_or(0, |l| (l + 1) % self.sets);
            self.last = Some(next);
            *set = next;
        }
    }

    fn retain(&mut self, _keep: &dyn Fn(u64) -> bool) {}
}

/// What is known of one event of one subject.
#[derive(Clone, Copy, Debug, Default)]
struct EventHistory {
    /// The last three observations, oldest first: end of a window, count up to there with gaps
    /// filled in.
    points: [(f64, f64); 3],
    /// Rate in the last window.
    rate: f64,
    /// Running mean of the rate, and how fast its square departs per unit of time.
    mean: f64,
    drift: f64,
    windows: u32,
}

/// Weight of a new window in the running mean of the windows' lengths.
const NEW: f64 = 0.3;
/// Least weight of a new window in the running means of [`EventHistory`]; at first all windows
/// weigh the same. The memory is long: an event that has been still for a while is not one that
/// stays so.
const LEAST_NEW: f64 = 0.02;

impl EventHistory {
    fn take_in(&mut self, from: f64, to: f64, count: f64) {
        let length = to - from;
        let rate = count / length;
        let (x, y) = self.points[2];
        // the gap is filled with the mean of the rates at both its ends
        let start = match self.windows {
            0 => 0.0,
            _ => y + (self.rate + rate) / 2.0 * (from - x).max(0.0),
        };
        self.points = [self.points[1], self.points[2], (to, start + count)];
        let before = f64::from(self.windows);
        self.mean += (1.0 / (before + 1.0)).max(LEAST_NEW) * (rate - self.mean);
        if self.windows > 0 {
            // distance between the middles of the two windows
            let apart = (from - x).max(0.0) + length;
            let departed = (rate - self.rate).powi(2) / apart;
            self.drift += (1.0 / before).max(LEAST_NEW) * (departed - self.drift);
        }
        self.rate = rate;
        self.windows = self.windows.saturating_add(1);
    }

    /// Variance that the rate gains per unit of time, relative to the square of its mean.
    fn relative_drift(&self) -> f64 {
        if self.mean > 0.0 {
            self.drift / (self.mean * self.mean)
        } else {
            0.0
        }
    }

    /// How far the middle one of the last three observations lies off the straight line through the
    /// others, halved [ROC eq. 5 without its factor of time], in units of the event's period;
    /// `None` before there are three.
    ///
    /// The paper samples each event with a period of its own, chosen so that every event overflows
    /// about equally often [ROC eq. 8, table 1]. The period here is what the event counts per unit
    /// of time on average.
    fn bend(&self) -> Option<f64> {
        if self.windows < 3 {
            return None;
        }
        if self.mean <= 0.0 {
            return Some(0.0);
        }
        let [(ax, ay), (bx, by), (cx, cy)] = self.points;
        let line = if cx == ax {
            0.0
        } else {
            (cy - ay) / (cx - ax) * (bx - ax)
        };
        Some((by - ay - line).abs() / 2.0 / self.mean)
    }
}

#[derive(Default)]
struct SetHistory {
    events: Vec<EventHistory>,
    last: Option<f64>,
    /// Phase of the subject when the set was counted last.
    phase: u32,
}

#[derive(Default)]
struct Subject {
    sets: Vec<SetHistory>,
    detector: PhaseDetector,
    phase: u32,
    /// End of the last window in which it was counted.
    seen: f64,
}

struct Histories {
    sets: usize,
    subjects: FxHashMap<u64, Subject>,
    /// When each set was handed out last: one that no subject ran under must not be asked for for
    /// ever.
    asked: Vec<Option<u64>>,
    turn: u64,
    /// Running mean of the windows' lengths.
    window: f64,
}

impl Histories {
    fn new(sets: usize) -> Histories {
        let sets = sets.max(1);
        Histories {
            sets,
            subjects: FxHashMap::default(),
            asked: vec![None; sets],
            turn: 0,
            window: 0.0,
        }
    }

    fn observe(&mut self, o: &Observation<'_>, rule: Option<&PhaseRule>) {
        let length = o.to - o.from;
        if o.set >= self.sets || !(length.is_finite() && length > 0.0) {
            return;
        }
        self.window = if self.window > 0.0 {
            (1.0 - NEW) * self.window + NEW * length
        } else {
            length
        };
        let sets = self.sets;
        let s = self.subjects.entry(o.subject).or_default();
        s.sets.resize_with(sets, SetHistory::default);
        s.seen = o.to;
        if rule.is_some_and(|r| s.detector.step(o.ipc, r)) {
            s.phase = s.phase.wrapping_add(1);
        }
        let phase = s.phase;
        let set = &mut s.sets[o.set];
        set.events.resize(o.counts.len(), EventHistory::default());
        for (e, count) in set.events.iter_mut().zip(o.counts) {
            if count.is_finite() && *count >= 0.0 {
                e.take_in(o.from, o.to, *count);
            }
        }
        set.last = Some(o.to);
        set.phase = phase;
    }

    /// The sets with the highest cost, the one that waits longest among equals. `cost` is told how
    /// long the set will have waited at the end of the coming window if it is not counted in it (so
    /// that one that was counted just now may be counted again), and is infinite for a set that has
    /// to be counted first. Who was not counted for [`LONGEST_WAIT`] rounds is asleep or elsewhere, whichever set is on, and
    /// has no cost.
    fn pick(
        &mut self,
        now: f64,
        chosen: &mut [usize],
        cost: impl Fn(&Subject, &SetHistory, f64) -> f64,
    ) {
        let end = now + self.window;
        let longest = LONGEST_WAIT * self.sets as f64 * self.window;
        chosen.fill(0);
        for k in 0..chosen.len().min(self.sets) {
            self.turn += 1;
            let (mut best, mut best_cost, mut best_asked) = (None, f64::NEG_INFINITY, None);
            for i in (0..self.sets).filter(|i| !chosen[..k].contains(i)) {
                let mut total = 0.0;
                for s in self.subjects.values().filter(|s| now - s.seen <= longest) {
                    if let Some(h) = s.sets.get(i) {
                        total += cost(s, h, h.last.map_or(f64::INFINITY, |l| (end - l).max(0.0)));
                    }
                }
                // nobody ran while it was on: it is as good as unknown, but others go first that
                // have waited longer
                let total = if total.is_nan() { 0.0 } else { total };
                let asked = self.asked[i];
                if best.is_none() || total > best_cost || (total == best_cost && asked < best_asked)
                {
                    (best, best_cost, best_asked) = (Some(i), total, asked);
                }
            }
            let best = best.unwrap_or(0);
            self.asked[best] = Some(self.turn);
            chosen[k] = best;
        }
    }
}

/// [ROC]: cost = |B_y − A_y − δ_y|/2 · δ_t, summed over the events of a set. δ_t is the time since the set ran, so one that
/// ran just now has the cost 0 and is not counted twice in a row. On the programs of
/// docs/evidence/multiplexing.md it is worse than round-robin.
struct RateOfChange {
    histories: Histories,
}

impl Strategy for RateOfChange {
    fn name(&self) -> &'static str {
        "rate-of-change"
    }

    fn observe(&mut self, o: &Observation<'_>) {
        self.histories.observe(o, None);
    }

    fn choose(&mut self, now: f64, chosen: &mut [usize]) {
        let window = self.histories.window;
        self.histories.pick(now, chosen, |_, set, waited| {
            let waited = (waited - window).max(0.0);
            if set.events.is_empty() {
                return f64::INFINITY;
            }
            let bends = set.events.iter().map(EventHistory::bend);
            // three observations are needed for a first cost
            bends
                .sum::<Option<f64>>()
                .map_or(f64::INFINITY, |b| b * waited)
        });
    }

    fn retain(&mut self, keep: &dyn Fn(u64) -> bool) {
        self.histories.subjects.retain(|s, _| keep(*s));
    }
}

/// Ours. If an event's rate wanders with variance q per unit of time, what linear interpolation
/// loses in a gap of length g has the variance q·g³/12 (the integral of a Brownian bridge), and
/// waiting longer adds q·g²/4 per unit of time: the set for which that is largest goes next,
/// relative to the square of each event's mean rate, so that a rare event counts as much as a
/// frequent one. q is estimated from the windows of the event and drawn halfway towards the mean of
/// all events, because a program's events change together and one that was still so far need not
/// stay so. After a phase change a set that was not counted since weighs [`PHASE_BOOST`] times as
/// much, and none waits longer than [`LONGEST_WAIT`] rounds.
struct RelativeError {
    histories: Histories,
    rule: PhaseRule,
}

/// How far an event's drift is drawn towards the mean of all events'. Found by trial on the
/// synthetic and recorded programs of `examples/multiplexing`, as the two constants below and
/// [`LEAST_NEW`] (docs/evidence/multiplexing.md): the nearer to 1, the nearer the order is to
/// round-robin's.
const SHRINK: f64 = 0.3;
/// Factor on the cost of a set that was not counted in the present phase.
const PHASE_BOOST: f64 = 3.0;
/// Rounds (windows by sets) after which a set is counted in any case, for whoever was counted within so many.
const LONGEST_WAIT: f64 = 2.0;

impl Strategy for RelativeError {
    fn name(&self) -> &'static str {
        "relative-error"
    }

    fn observe(&mut self, o: &Observation<'_>) {
        self.histories.observe(o, Some(&self.rule));
    }

    fn choose(&mut self, now: f64, chosen: &mut [usize]) {
        let longest = LONGEST_WAIT * self.histories.sets as f64 * self.histories.window;
        let (mut sum, mut n) = (0.0, 0.0);
        for s in self.histories.subjects.values() {
            for e in s.sets.iter().flat_map(|s| &s.events) {
                sum += e.relative_drift();
                n += 1.0;
            }
        }
        let common = if n > 0.0 { sum / n } else { 0.0 };
        self.histories.pick(now, chosen, |subject, set, waited| {
            if set.events.is_empty() || set.events.iter().any(|e| e.windows < 2) {
                return f64::INFINITY;
            }
            let q = |e: &EventHistory| (1.0 - SHRINK) * e.relative_drift() + SHRINK * common;
            // still programs are counted in turn: the wait alone decides
            let q = set
                .events
                .iter()
                .map(q)
                .sum::<f64>()
                .max(f64::MIN_POSITIVE.sqrt());
            let cost = q * waited.powi(2);
            if waited > longest {
                1e30 * (1.0 + cost)
            } else if set.phase == subject.phase {
                cost
            } else {
                PHASE_BOOST * cost
            }
        });
    }

    fn retain(&mut self, keep: &dyn Fn(u64) -> bool) {
        self.histories.subjects.retain(|s, _| keep(*s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(
        name: &str,
        rates: &dyn Fn(usize, usize) -> f64,
        sets: usize,
        windows: usize,
    ) -> Vec<usize> {
        let mut s = by_name(name, sets).unwrap();
        (0..windows)
            .map(|w| {
                let set = s.next(w as f64);
                s.observe(&Observation {
                    subject: 0,
                    set,
                    from: w as f64,
                    to: w as f64 + 1.0,
                    counts: &[rates(set, w)],
                    ipc: 1.0,
                });
                set
            })
            .collect()
    }

    fn share(order: &[usize], set: usize) -> f64 {
        order.iter().filter(|s| **s == set).count() as f64 / order.len() as f64
    }

    #[test]
    fn every_listed_name_is_there() {
        for (name, _) in STRATEGIES {
            assert_eq!(by_name(name, 2).unwrap().name(), *name);
        }
        let e = by_name("rr", 2).err().unwrap().to_string();
        assert!(e.contains("`rr`") && e.contains("`relative-error`"), "{e}");
    }

    #[test]
    fn round_robin_goes_round() {
        assert_eq!(run("round-robin", &|_, _| 1.0, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_cost_is_that_of_the_paper() {
        let mut e = EventHistory::default();
        // rates 10, 20, 10 in windows side by side: y = 10, 30, 40; the line from A to C is at 25
        // at B
        for (w, rate) in [10.0, 20.0, 10.0].into_iter().enumerate() {
            e.take_in(w as f64, w as f64 + 1.0, rate);
        }
        // the mean of the rates is 40/3
        assert!((e.bend().unwrap() - 2.5 / (40.0 / 3.0)).abs() < 1e-12);
        let mut still = EventHistory::default();
        for w in 0..3 {
            still.take_in(w as f64, w as f64 + 1.0, 7.0);
        }
        assert_eq!(still.bend(), Some(0.0));
    }

    #[test]
    fn several_at_once_are_different_ones() {
        for (name, _) in STRATEGIES {
            let mut s = by_name(name, 5).unwrap();
            for w in 0..50 {
                let mut chosen = [9; 3];
                s.choose(f64::from(w), &mut chosen);
                let [a, b, c] = chosen;
                assert!(
                    a != b && b != c && a != c && chosen.iter().all(|s| *s < 5),
                    "{name}: {chosen:?}"
                );
                for set in chosen {
                    s.observe(&Observation {
                        subject: 0,
                        set,
                        from: f64::from(w),
                        to: f64::from(w + 1),
                        counts: &[f64::from((w * 31 + 7 * set as i32) % 11)],
                        ipc: 1.0,
                    });
                }
            }
            // more counters than events
            let mut all = [9; 7];
            s.choose(50.0, &mut all);
            all[..5].sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 0, 0], "{name}");
        }
    }

    #[test]
    fn what_changes_is_counted_more_often() {
        let rates = |set: usize, w: usize| match set {
            0 if (w / 5).is_multiple_of(2) => 1000.0,
            0 => 100.0,
            _ => 500.0,
        };
        for name in ["rate-of-change", "relative-error"] {
            let order = run(name, &rates, 4, 2000);
            assert!(share(&order, 0) > 0.35, "{name}: {}", share(&order, 0));
        }
    }

    #[test]
    fn a_rare_event_weighs_as_much_as_a_frequent_one() {
        // set 0 is rare and varies, the others are frequent and nearly still
        let rates = |set: usize, w: usize| match (set, w % 7 < 3) {
            (0, true) => 1.0,
            (0, false) => 3.0,
            (_, true) => 1e6,
            (_, false) => 1.02e6,
        };
        let order = run("relative-error", &rates, 5, 1000);
        assert!(share(&order, 0) > 1.3 / 5.0, "{}", share(&order, 0));
    }

    /// Threads sleep, or go to other core types.
    #[test]
    fn who_is_gone_asks_for_no_set() {
        for (name, _) in STRATEGIES {
            let mut s = by_name(name, 2).unwrap();
            let mut seen = [0; 2];
            for w in 0..100u32 {
                let set = s.next(f64::from(w));
                let (gone, stays) = (w < 20, w >= 30);
                // one whose first set varies; later one that does the same all the time
                let wild = [1.0 + f64::from(w * 7 % 5), 1.0][set];
                for (subject, count) in [(1, gone.then_some(wild)), (2, stays.then_some(1.0))] {
                    let Some(count) = count else { continue };
                    s.observe(&Observation {
                        subject,
                        set,
                        from: f64::from(w),
                        to: f64::from(w + 1),
                        counts: &[count],
                        ipc: 1.0,
                    });
                }
                seen[set] += u32::from(w >= 40);
            }
            assert!(seen.iter().all(|n| *n >= 20), "{name}: {seen:?}");
        }
    }

    #[test]
    fn after_a_phase_change_every_set_is_counted_soon() {
        let mut s = by_name("relative-error", 4).unwrap();
        let mut order = Vec::new();
        for w in 0..200 {
            let set = s.next(w as f64);
            order.push(set);
            // set 2 wanders, so that it is preferred
            let c = if set == 2 {
                100.0 + (w * 37 % 50) as f64
            } else {
                100.0
            };
            let ipc = if w < 150 { 1.0 } else { 2.0 };
            s.observe(&Observation {
                subject: 0,
                set,
                from: w as f64,
                to: w as f64 + 1.0,
                counts: &[c],
                ipc,
            });
        }
        let after = &order[150..156];
        assert!((0..4).all(|s| after.contains(&s)), "{:?}", &order[145..160]);
    }

    proptest! {
        /// Nothing starves, whatever is counted: every set is seen again within a bounded number of
        /// windows.
        #[test]
        fn nothing_starves(seed in 0u64..1000, sets in 1usize..6) {
            let noise = |set: usize, w: usize| {
                let x = (seed + set as u64 * 7919 + w as u64 * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if set == 0 { (x >> 40) as f64 } else { 100.0 + (x >> 60) as f64 }
            };
            for (name, _) in STRATEGIES {
                let order = run(name, &noise, sets, 600);
                for set in 0..sets {
                    prop_assert!(order.contains(&set), "{} never counts set {}", name, set);
                    if *name == "relative-error" || *name == "round-robin" {
                        let gap = order.iter().rev().position(|s| *s == set).unwrap();
                        prop_assert!(gap < 150, "{}: set {} waits {}", name, set, gap);
                    }
                }
            }
        }

        #[test]
        fn any_numbers_do(
            stream in proptest::collection::vec(
                (0u64..3, 0usize..5, proptest::num::f64::ANY, proptest::num::f64::ANY, proptest::num::f64::ANY), 0..60),
        ) {
            for (name, _) in STRATEGIES {
                let mut s = by_name(name, 3).unwrap();
                for (subject, set, from, to, count) in &stream {
                    s.observe(&Observation {
                        subject: *subject, set: *set, from: *from, to: *to, counts: &[*count, 1.0], ipc: *count,
                    });
                    prop_assert!(s.next(*to) < 3);
                }
            }
        }
    }
}
