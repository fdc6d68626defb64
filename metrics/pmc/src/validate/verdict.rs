//! What the counts of an event say about it.

use amp_metrics::trust::{EventTrust, Verdict};
use amp_workloads::exact::{Expected, Quantity};
use serde::Serialize;
use std::collections::BTreeMap;

/// How an event did in one run of a kernel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub kernel: String,
    /// Number of the event in its group, from 1.
    pub place: usize,
    pub expected: f64,
    pub tolerance: f64,
    pub counted: f64,
    /// What the board's model has counted, where this is the board.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<u64>,
    /// What errors are relative to: what was expected, or the chances where that is nothing.
    pub scale: f64,
    /// Error relative to what was counted.
    pub error: f64,
    /// Size of the error beyond the tolerance, relative likewise.
    pub beyond: f64,
}

/// An event on a core type, with all comparisons.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub core_type: String,
    pub pmu: String,
    #[serde(flatten)]
    pub trust: EventTrust,
    pub comparisons_made: Vec<Comparison>,
}

pub(super) fn compare(kernel: &str, e: Expected, counted: f64, truth: Option<u64>) -> Comparison {
    let scale = if e.count > 0.0 {
        e.count
    } else {
        e.chances.max(1.0)
    };
    let difference = counted - e.count;
    Comparison {
        kernel: kernel.to_owned(),
        place: 1,
        expected: e.count,
        tolerance: e.tolerance,
        counted,
        truth,
        scale,
        error: difference / scale,
        beyond: (difference.abs() - e.tolerance).max(0.0) / scale,
    }
}

/// The verdict on an event. One that was never expected to count anything is not tried.
pub(super) fn judge(event: &str, quantity: Quantity, all: &[Comparison]) -> Option<EventTrust> {
    let worst = all.iter().max_by(|a, b| a.beyond.total_cmp(&b.beyond))?;
    if !all.iter().any(|c| c.expected > 0.0) {
        return None;
    }
    let errors = || all.iter().map(|c| c.error);
    Some(EventTrust {
        event: event.to_owned(),
        quantity: quantity.name().to_owned(),
        verdict: Verdict::of(worst.beyond),
        error_min: errors().fold(f64::INFINITY, f64::min),
        error_mean: errors().sum::<f64>() / all.len() as f64,
        error_max: errors().fold(f64::NEG_INFINITY, f64::max),
        worst_kernel: worst.kernel.clone(),
        comparisons: u32::try_from(all.len()).unwrap_or(u32::MAX),
    })
}

/// Places in which an event counts right, and those in which it does not, where its place makes
/// all the difference.
pub(super) fn places(all: &[Comparison]) -> Option<(Vec<usize>, Vec<usize>)> {
    let mut worst: BTreeMap<usize, f64> = BTreeMap::new();
    for c in all {
        let w = worst.entry(c.place).or_default();
        *w = w.max(c.beyond);
    }
    let rated: Vec<(usize, Verdict)> = worst
        .into_iter()
        .map(|(place, beyond)| (place, Verdict::of(beyond)))
        .collect();
    let of = |wanted: &dyn Fn(Verdict) -> bool| -> Vec<usize> {
        let some = rated.iter().filter(|(_, v)| wanted(*v));
        some.map(|(place, _)| *place).collect()
    };
    let (right, wrong) = (of(&|v| v <= Verdict::Usable), of(&|v| v == Verdict::Broken));
    let apart = !right.is_empty() && !wrong.is_empty() && right.len() + wrong.len() == rated.len();
    apart.then_some((right, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(count: f64, tolerance: f64) -> Expected {
        Expected {
            count,
            tolerance,
            chances: 1000.0,
        }
    }

    #[test]
    fn errors_are_relative_to_what_was_expected_or_could_have_been() {
        let c = compare("k", expected(100.0, 2.0), 105.0, None);
        assert!((c.error - 0.05).abs() < 1e-12 && (c.beyond - 0.03).abs() < 1e-12);
        let c = compare("k", expected(100.0, 2.0), 98.0, None);
        assert_eq!((c.error, c.beyond), (-0.02, 0.0));
        let c = compare("k", expected(0.0, 0.0), 5.0, None);
        assert!((c.error - 0.005).abs() < 1e-12);
    }

    #[test]
    fn frozen_and_doubled_events_are_broken_and_good_ones_are_not() {
        let verdict = |factor: f64, noise: f64| {
            let all: Vec<Comparison> = [1e6, 0.0, 3e5]
                .iter()
                .map(|e| {
                    compare(
                        "k",
                        Expected {
                            chances: 1e6,
                            ..expected(*e, 0.0)
                        },
                        e * factor + noise,
                        None,
                    )
                })
                .collect();
            judge("e", Quantity::Loads, &all).unwrap().verdict
        };
        assert_eq!(verdict(1.0, 0.0), Verdict::Exact);
        assert_eq!(verdict(1.02, 0.0), Verdict::Usable);
        assert_eq!(verdict(0.7, 0.0), Verdict::Qualitative);
        assert_eq!(verdict(0.0, 0.0), Verdict::Broken);
        assert_eq!(verdict(2.0, 0.0), Verdict::Broken);
        // counts that come from nowhere
        assert_eq!(verdict(1.0, 6e5), Verdict::Broken);
        let silent = [compare("k", expected(0.0, 0.0), 0.0, None)];
        assert!(judge("e", Quantity::Loads, &silent).is_none());
    }

    #[test]
    fn an_event_that_some_counters_do_not_count_is_found_by_its_places() {
        let at = |place: usize, counted: f64| Comparison {
            place,
            ..compare("k", expected(1e6, 0.0), counted, None)
        };
        let standing = [at(1, 1e6), at(2, 0.0), at(3, 1.01e6), at(2, 1e6)];
        assert_eq!(places(&standing), Some((vec![1, 3], vec![2])));
        assert_eq!(
            judge("e", Quantity::Loads, &standing).unwrap().verdict,
            Verdict::Broken
        );
        assert_eq!(places(&[at(1, 1e6), at(2, 1e6)]), None);
        assert_eq!(places(&[at(1, 0.0), at(2, 0.0)]), None, "everywhere");
        assert_eq!(places(&[at(1, 1e6), at(2, 0.0), at(3, 7e5)]), None);
        assert_eq!(places(&[]), None);
    }
}
