//! Whether repeated runs were made under the same conditions, and how few runs that takes [MET §3].
//!
//! To count M events beside retired instructions, each program is run L times, set by set of events,
//! and with instructions in every set. The L counts of instructions, grouped,
//! are h = L/R measures of one quantity. If the intervals of these measures overlap, all events
//! characterise the same workload, as if they had been counted in one run; if not, the conditions
//! differed and runs are to be repeated.

use amp_metrics::trust::EXACT;
use amp_metrics::uncertainty::Measured;

/// Relative uncertainty below which no measure of counts is believed: an exact event may be off by 0.2 %
/// ([`EXACT`]), and half of that either way makes it.
pub const RESOLUTION: f64 = EXACT / 2.0;

/// When measures count as compatible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Runs in one measure, R, at least 1; see [`sample_size`].
    pub runs: usize,
    /// Coverage factor k of the intervals [MET eq. 4]: 1, 2, 3 for 68.3 %, 95.4 %, 99.7 %. The
    /// report takes 3.
    pub k: f64,
    /// Relative uncertainty below which no measure is believed, u ≥ resolution · μ. The report has
    /// none (0). On a machine that is nearly deterministic, R equal counts have u = 0, and a
    /// difference of one instruction would be incompatible.
    pub resolution: f64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            runs: 3,
            k: 3.0,
            resolution: 0.0,
        }
    }
}

/// The sample size R [MET §2, after eq. 7]: with how many of the samples, taken in order, the
/// relative standard uncertainty u_R/μ_R [MET eq. 1-3] is at most `sigma_ref`. At least 2, as one
/// sample has no uncertainty; `None` when these do not suffice (run once more), or the samples are
/// no positive finite numbers.
pub fn sample_size(samples: &[f64], sigma_ref: f64) -> Option<usize> {
    (2..=samples.len()).find(|r| {
        let mean = Measured::mean(&samples[..*r]);
        let usable = mean.filter(|m| m.value.is_finite() && m.value > 0.0);
        usable
            .and_then(Measured::relative)
            .is_some_and(|u| u <= sigma_ref)
    })
}

/// Partitions the events into as few sets of at most `per_set` events as there can be [MET §3 step 2
/// and eq. 8]. The order of the events is kept, and the sets are as equal in size as can be. Without
/// events there is one set, of instructions alone. Zero for `per_set` is taken for 1.
pub fn partition(events: &[String], per_set: usize) -> Vec<Vec<String>> {
    let m = events.len();
    let sets = m.div_ceil(per_set.max(1)).max(1);
    let (size, longer) = (m / sets, m % sets);
    let mut rest = events;
    (0..sets)
        .map(|i| {
            let (set, after) = rest.split_at(size + usize::from(i < longer));
            rest = after;
            set.to_vec()
        })
        .collect()
}

/// Number of runs of a program, L: the smallest multiple of R that counts each of `sets` sets once, and
/// makes two measures of R runs each: with a single one, nothing could ever disagree. Run n counts set
/// n modulo `sets`. The report's L is the same where there are more sets than R, and it asks for as many
/// sets as runs; R differs from program to program here, and sets are common to all.
pub fn runs(sets: usize, r: usize) -> usize {
    let r = r.max(1);
    sets.max(2 * r).div_ceil(r) * r
}

/// The h = ⌊L/R⌋ measures that L counts of retired instructions make [MET §3 step 4]: of R
/// consecutive runs each, the last one of those left over as well.
pub fn measures(instructions: &[f64], rule: &Rule) -> Vec<Measured> {
    groups(instructions.len(), rule)
        .into_iter()
        .filter_map(|g| {
            let m = Measured::mean(&instructions[g])?;
            let least = rule.resolution.max(0.0) * m.value.abs();
            // a single run: its uncertainty is unknown unless a resolution is given
            Some(match m.u {
                Some(u) => Measured::new(m.value, u.max(least)),
                None if least > 0.0 => Measured::new(m.value, least),
                None => m,
            })
        })
        .collect()
}

/// The runs of each measure.
fn groups(runs: usize, rule: &Rule) -> Vec<std::ops::Range<usize>> {
    let r = rule.runs.max(1);
    let h = (runs / r).max(usize::from(runs > 0));
    (0..h)
        .map(|i| i * r..if i + 1 == h { runs } else { (i + 1) * r })
        .collect()
}

/// What the counts of retired instructions say of the conditions.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The intervals of all measures have a point in common: one workload, and this is its measure.
    Same(Measured),
    /// They have not. These runs (indices, ascending) are to be repeated: those of the measures
    /// outside of the largest group that agrees when that is a majority, otherwise all.
    Repeat(Vec<usize>),
    /// There are fewer than two measures, or one of unknown uncertainty: nothing can be said.
    Unknown,
}

/// Whether runs were made under the same conditions: whether the intervals μ ± k·u of their
/// measures [MET eq. 4] overlap [MET §3 steps 4-6]. `instructions` has the retired instructions of
/// each run, in the order in which they were made.
///
/// Two intervals that overlap have a point in common, and if all pairs of intervals overlap, so do
/// all together (Helly).
pub fn compatible(instructions: &[f64], rule: &Rule) -> Verdict {
    let measures = measures(instructions, rule);
    let usable = |m: &Measured| {
        let ends = m.interval(rule.k);
        ends.filter(|(a, b)| a.is_finite() && b.is_finite())
    };
    let Some(intervals) = measures.iter().map(usable).collect::<Option<Vec<_>>>() else {
        return Verdict::Unknown;
    };
    if intervals.len() < 2 {
        return Verdict::Unknown;
    }
    // the most intervals over one point: that point can be taken to be the beginning of one
    let over = |x: f64| {
        let all = intervals.iter().enumerate();
        all.filter(move |(_, (a, b))| *a <= x && x <= *b)
            .map(|(i, _)| i)
    };
    let mut most: Vec<usize> = Vec::new();
    for (a, _) in &intervals {
        let here: Vec<usize> = over(*a).collect();
        if here.len() > most.len() {
            most = here;
        }
    }
    if most.len() == intervals.len() {
        return match Measured::mean(instructions) {
            Some(m) => Verdict::Same(m),
            None => Verdict::Unknown,
        };
    }
    let majority = 2 * most.len() > intervals.len();
    let groups = groups(instructions.len(), rule).into_iter().enumerate();
    let wrong = groups.filter(|(i, _)| !(majority && most.contains(i)));
    Verdict::Repeat(wrong.flat_map(|(_, g)| g).collect())
}

/// How many runs the method takes, and what others would: sums over programs and core types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saving {
    /// Runs that were made, repeated ones included.
    pub made: usize,
    /// R runs of each set.
    pub set_by_set: usize,
    /// R runs of each event, c = 1 in the report's comparison [MET §4.1].
    pub event_by_event: usize,
}

impl Saving {
    /// Takes in a program on a core type, of which `made` runs were made, R making a measure, with
    /// `sets` sets of `events` events together.
    pub fn add(&mut self, made: usize, r: usize, sets: usize, events: usize) {
        self.made += made;
        self.set_by_set += sets * r;
        self.event_by_event += events.max(1) * r;
    }

    /// Runs saved against R runs of each set; negative when more were repeated than that.
    pub fn saved(&self) -> i64 {
        self.set_by_set as i64 - self.made as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(m: usize) -> Vec<String> {
        (0..m).map(|i| format!("e{i}")).collect()
    }

    #[test]
    fn as_many_samples_as_the_uncertainty_asks_for() {
        // 98, 102: μ 100, σ √8, u 2 [MET eq. 1-3]; with 100 more: σ 2, u 2/√3 = 1.155; with 100
        // again: u = √(8/3)/2 = 0.816
        let samples = [98.0, 102.0, 100.0, 100.0];
        assert_eq!(sample_size(&samples, 0.02), Some(2));
        assert_eq!(sample_size(&samples, 0.0199), Some(3));
        assert_eq!(sample_size(&samples, 0.01), Some(4));
        assert_eq!(sample_size(&samples, 0.008), None);
        assert_eq!(sample_size(&samples[..1], 1.0), None);
        assert_eq!(sample_size(&[f64::NAN, 1.0], 1.0), None);
        assert_eq!(sample_size(&[5.0, 5.0], 0.0), Some(2));
    }

    #[test]
    fn the_partition_of_the_report() {
        // table 4: M = 9 events beside instructions, two at a time, R = 3: L = 6 runs, h = 2
        let sets = partition(&events(9), 2);
        assert_eq!(
            sets.iter().map(Vec::len).collect::<Vec<_>>(),
            [2, 2, 2, 2, 1]
        );
        assert_eq!((runs(sets.len(), 3), sets.concat()), (6, events(9)));
        // 28 × 6 runs instead of 28 × 3 × 9
        let mut saving = Saving::default();
        for _ in 0..28 {
            saving.add(runs(sets.len(), 3), 3, sets.len(), 9);
        }
        assert_eq!((saving.made, saving.event_by_event), (168, 756));
        assert_eq!((saving.set_by_set, saving.saved()), (28 * 5 * 3, 252));
        saving.add(300, 0, 0, 0);
        assert_eq!(saving.saved(), -48);
    }

    #[test]
    fn fewer_sets_than_runs() {
        assert_eq!(partition(&events(2), 4).len(), 1);
        assert_eq!(partition(&[], 4), [Vec::<String>::new()]);
        assert_eq!((runs(1, 3), runs(1, 2), runs(0, 0)), (6, 4, 2));
        assert_eq!((runs(5, 2), runs(7, 3), runs(3, 1)), (6, 9, 3));
    }

    #[test]
    fn measures_of_consecutive_runs() {
        let m = measures(&[98.0, 102.0, 100.0, 101.0, 103.0, 102.0], &Rule::default());
        assert_eq!(m.len(), 2);
        assert_eq!((m[0].value, m[1].value), (100.0, 102.0));
        let u = [2.0 / 3f64.sqrt(), 1.0 / 3f64.sqrt()];
        assert!(m
            .iter()
            .zip(u)
            .all(|(m, u)| (m.u.unwrap() - u).abs() < 1e-12));
        assert_eq!(measures(&[1.0; 8], &Rule::default()).len(), 2);
        assert!(measures(&[], &Rule::default()).is_empty());
    }

    #[test]
    fn conditions() {
        let rule = |k| Rule {
            runs: 3,
            k,
            resolution: 0.0,
        };
        // 100 ± 1.155·k and 105 ± 1.155·k overlap from k = 2.165 on
        let counts = [98.0, 102.0, 100.0, 103.0, 107.0, 105.0];
        assert!(matches!(compatible(&counts, &rule(3.0)), Verdict::Same(m) if m.value == 102.5));
        assert_eq!(
            compatible(&counts, &rule(2.0)),
            Verdict::Repeat((0..6).collect())
        );
        // two of three agree: only the third is repeated
        let third = [98.0, 102.0, 100.0, 203.0, 207.0, 205.0, 99.0, 103.0, 101.0];
        assert_eq!(
            compatible(&third, &rule(3.0)),
            Verdict::Repeat(vec![3, 4, 5])
        );
        assert_eq!(compatible(&counts[..5], &rule(3.0)), Verdict::Unknown);
        assert_eq!(compatible(&[f64::NAN; 6], &rule(3.0)), Verdict::Unknown);
        assert_eq!(compatible(&[], &rule(3.0)), Verdict::Unknown);
    }

    #[test]
    fn equal_counts_need_a_resolution() {
        let counts = [1e9, 1e9, 1e9 + 1.0, 1e9 + 1.0];
        let exact = Rule {
            runs: 2,
            ..Rule::default()
        };
        assert!(matches!(compatible(&counts, &exact), Verdict::Repeat(_)));
        let sane = Rule {
            resolution: 1e-6,
            ..exact
        };
        assert!(matches!(compatible(&counts, &sane), Verdict::Same(_)));
        let singly = Rule { runs: 1, ..sane };
        assert!(matches!(compatible(&counts, &singly), Verdict::Same(_)));
        assert_eq!(
            compatible(&counts, &Rule { runs: 1, ..exact }),
            Verdict::Unknown
        );
    }

    proptest! {
        #[test]
        fn partitions_are_partitions(m in 0usize..40, per_set in 0usize..8, r in 0usize..6) {
            let sets = partition(&events(m), per_set);
            prop_assert_eq!(sets.concat(), events(m));
            prop_assert!(sets.iter().all(|s| s.len() <= per_set.max(1)));
            // one set fewer would not do
            prop_assert!(sets.len() == 1 || (sets.len() - 1) * per_set.max(1) < m);
            let l = runs(sets.len(), r);
            prop_assert_eq!(l % r.max(1), 0);
            prop_assert!(l >= sets.len() && l / r.max(1) >= 2);
            // nor would one multiple of R
            let fewer = l - r.max(1);
            prop_assert!(fewer < sets.len() || fewer / r.max(1) < 2);
        }

        /// Counts of one workload, with an error well below σ_ref, agree; another workload's never
        /// do.
        #[test]
        fn same_and_other_conditions(noise in proptest::collection::vec(-1.0f64..1.0, 9), size in 1e6f64..1e12) {
            let rule = Rule { runs: 3, k: 3.0, resolution: 1e-3 };
            let mut counts: Vec<f64> = noise.iter().map(|e| size * (1.0 + 5e-4 * e)).collect();
            let same = matches!(compatible(&counts, &rule), Verdict::Same(m) if (m.value / size - 1.0).abs() < 1e-3);
            prop_assert!(same);
            counts[6..].iter_mut().for_each(|c| *c *= 1.2);
            prop_assert_eq!(compatible(&counts, &rule), Verdict::Repeat(vec![6, 7, 8]));
        }

        #[test]
        fn any_counts_get_a_verdict(counts in proptest::collection::vec(any::<f64>(), 0..12), runs in 0usize..5, k in any::<f64>()) {
            match compatible(&counts, &Rule { runs, k, resolution: 0.0 }) {
                Verdict::Repeat(which) => prop_assert!(which.iter().all(|i| *i < counts.len()) && !which.is_empty()),
                Verdict::Same(_) => prop_assert!(counts.len() >= 2),
                Verdict::Unknown => {}
            }
        }
    }
}
