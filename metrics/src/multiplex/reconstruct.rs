//! Totals from windows of which each counted one set only.

use super::phase::PhaseRule;
use super::strategy::{Observation, Strategy};
use super::trace::Trace;

/// Which events were counted in each window of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By window, as indices into the trace's.
    pub counted: Vec<Vec<usize>>,
}

impl Plan {
    /// Events 0 to `events` by turns on `counters` counters: sets of neighbours, as even as they
    /// can be.
    pub fn partition(events: usize, counters: usize) -> Vec<Vec<usize>> {
        let sets = events.div_ceil(counters.max(1)).max(1);
        let (least, more) = (events / sets, events % sets);
        let mut next = 0;
        (0..sets)
            .map(|s| {
                let from = next;
                next += least + usize::from(s < more);
                (from..next).collect()
            })
            .collect()
    }

    /// Lets `strategy` count a trace as if it had only one set's counters at a time.
    pub fn of(trace: &Trace, sets: &[Vec<usize>], strategy: &mut dyn Strategy) -> Plan {
        Plan::choosing(trace, sets, 1, strategy)
    }

    /// Lets `strategy` count a trace on so many counters, any events of it beside each other.
    pub fn of_events(trace: &Trace, counters: usize, strategy: &mut dyn Strategy) -> Plan {
        let events: Vec<Vec<usize>> = (0..trace.events.len()).map(|e| vec![e]).collect();
        let counters = counters.min(events.len());
        Plan::choosing(trace, &events, counters, strategy)
    }

    fn choosing(
        trace: &Trace,
        sets: &[Vec<usize>],
        at_once: usize,
        strategy: &mut dyn Strategy,
    ) -> Plan {
        let mut counted = Vec::with_capacity(trace.windows.len());
        let mut now = 0.0;
        let mut counts = Vec::new();
        let mut chosen = vec![0; at_once];
        for w in &trace.windows {
            strategy.choose(now, &mut chosen);
            let mut events = Vec::new();
            for set in &chosen {
                let of = sets.get(*set).map_or(&[][..], Vec::as_slice);
                counts.clear();
                counts.extend(of.iter().filter_map(|e| w.counts.get(*e)));
                strategy.observe(&Observation {
                    subject: 0,
                    set: *set,
                    from: now,
                    to: now + w.ns,
                    counts: &counts,
                    ipc: w.ipc(),
                });
                events.extend(of);
            }
            now += w.ns;
            counted.push(events);
        }
        Plan { counted }
    }

    fn counted(&self, window: usize, event: usize) -> bool {
        let events = self.counted.get(window);
        events.is_some_and(|e| e.contains(&event))
    }
}

/// Per window, the windows before and after it (or itself) in which `event` was counted.
fn neighbours(trace: &Trace, plan: &Plan, event: usize) -> Vec<(Option<usize>, Option<usize>)> {
    let n = trace.windows.len();
    let mut out = vec![(None, None); n];
    let mut last = None;
    for (w, o) in out.iter_mut().enumerate() {
        if plan.counted(w, event) {
            last = Some(w);
        }
        o.0 = last;
    }
    last = None;
    for (w, o) in out.iter_mut().enumerate().rev() {
        if plan.counted(w, event) {
            last = Some(w);
        }
        o.1 = last;
    }
    out
}

fn rate(trace: &Trace, window: usize, event: usize) -> Option<f64> {
    let w = trace.windows.get(window)?;
    Some(w.counts.get(event)? / w.ns)
}

/// Middles of the windows on the time axis.
fn middles(trace: &Trace) -> Vec<f64> {
    let mut now = 0.0;
    let middle = |w: &super::Window| {
        let m = now + w.ns / 2.0;
        now += w.ns;
        m
    };
    trace.windows.iter().map(middle).collect()
}

/// The rate in window `w` on the straight line between its counted neighbours.
fn between(
    trace: &Trace,
    at: &[f64],
    (before, after): (Option<usize>, Option<usize>),
    w: usize,
    event: usize,
) -> Option<f64> {
    match (before, after) {
        (Some(a), Some(b)) if a != b => {
            let (ra, rb) = (rate(trace, a, event)?, rate(trace, b, event)?);
            let part = (at[w] - at[a]) / (at[b] - at[a]);
            Some(ra + (rb - ra) * part)
        }
        (Some(a), _) | (None, Some(a)) => rate(trace, a, event),
        (None, None) => None,
    }
}

/// Total of each event: what was counted, times all of the time by that in which it was, as `perf`
/// extrapolates. `None` for an event that was never counted.
pub fn scaled(trace: &Trace, plan: &Plan) -> Vec<Option<f64>> {
    let all: f64 = trace.windows.iter().map(|w| w.ns).sum();
    (0..trace.events.len())
        .map(|e| {
            let windows = trace.windows.iter().enumerate();
            let counted = windows.filter(|(w, _)| plan.counted(*w, e));
            let (sum, time) = counted.fold((0.0, 0.0), |(sum, time), (_, w)| {
                (sum + w.counts.get(e).copied().unwrap_or(0.0), time + w.ns)
            });
            (time > 0.0).then(|| sum * all / time)
        })
        .collect()
}

/// Total of each event: what was counted, and between two windows the rate on the straight line
/// between theirs. Before the first and after the last it is taken as constant. `None` for an event
/// that was never counted.
pub fn linear(trace: &Trace, plan: &Plan) -> Vec<Option<f64>> {
    let at = middles(trace);
    (0..trace.events.len())
        .map(|e| {
            let near = neighbours(trace, plan, e);
            let parts = trace.windows.iter().zip(near).enumerate();
            parts
                .map(|(w, (window, near))| Some(between(trace, &at, near, w, e)? * window.ns))
                .sum()
        })
        .collect()
}

/// As [`linear`], but no line is drawn across a phase change. Phases are known by the IPC, which
/// every window has: a window is filled in from those of its own stretch, else from the mean of
/// earlier and later stretches with the same IPC (`rule` says what is the same), else from the
/// line.
pub fn phase_aware(trace: &Trace, plan: &Plan, rule: &PhaseRule) -> Vec<Option<f64>> {
    let at = middles(trace);
    // (kind of phase, number of the stretch) of each window
    let mut kinds: Vec<f64> = Vec::new();
    let mut stretch = 0usize;
    let mut labels: Vec<(usize, usize)> = Vec::with_capacity(trace.windows.len());
    for w in &trace.windows {
        let ipc = w.ipc();
        let same = |k: &f64| !rule.departs(*k, ipc);
        // stay in the present kind while it fits: neighbours overlap
        let present = labels.last().map(|(k, _)| *k);
        let kind = match present.filter(|k| same(&kinds[*k])) {
            Some(k) => k,
            None => match kinds.iter().position(same) {
                Some(k) => k,
                None => {
                    kinds.push(ipc);
                    kinds.len() - 1
                }
            },
        };
        if present.is_some_and(|p| p != kind) {
            stretch += 1;
        }
        labels.push((kind, stretch));
    }
    (0..trace.events.len())
        .map(|e| {
            let near = neighbours(trace, plan, e);
            let mut sums = vec![(0.0, 0.0); kinds.len()];
            for (w, window) in trace.windows.iter().enumerate() {
                if plan.counted(w, e) {
                    let s = &mut sums[labels[w].0];
                    s.0 += window.counts.get(e)?;
                    s.1 += window.ns;
                }
            }
            let mut total = 0.0;
            for (w, window) in trace.windows.iter().enumerate() {
                let (kind, stretch) = labels[w];
                let own = |x: Option<usize>| x.filter(|x| labels[*x].1 == stretch);
                let (before, after) = (own(near[w].0), own(near[w].1));
                let rate = if before.is_some() || after.is_some() {
                    between(trace, &at, (before, after), w, e)
                } else if sums[kind].1 > 0.0 {
                    Some(sums[kind].0 / sums[kind].1)
                } else {
                    between(trace, &at, near[w], w, e)
                };
                total += rate? * window.ns;
            }
            Some(total)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiplex::{by_name, Window};
    use proptest::prelude::*;

    fn trace(rows: &[(f64, f64, f64)]) -> Trace {
        let windows = rows.iter().map(|(ipc, a, b)| Window {
            ns: 1.0,
            instructions: *ipc,
            cycles: 1.0,
            counts: vec![*a, *b],
        });
        Trace {
            events: vec!["a".into(), "b".into()],
            windows: windows.collect(),
        }
    }

    fn plan(order: &[usize]) -> Plan {
        Plan {
            counted: order.iter().map(|e| vec![*e]).collect(),
        }
    }

    #[test]
    fn sets_are_as_even_as_they_can_be() {
        let sizes = |e, c| {
            Plan::partition(e, c)
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(8, 2), [2, 2, 2, 2]);
        assert_eq!(sizes(8, 3), [3, 3, 2]);
        assert_eq!(sizes(8, 4), [4, 4]);
        assert_eq!(sizes(2, 8), [2]);
        assert_eq!(sizes(0, 0), [0]);
    }

    #[test]
    fn a_straight_line_is_reconstructed() {
        let t = trace(&[(1.0, 1.0, 9.0), (1.0, 2.0, 9.0), (1.0, 3.0, 9.0)]);
        assert_eq!(linear(&t, &plan(&[0, 1, 0])), [Some(6.0), Some(27.0)]);
        assert_eq!(linear(&t, &plan(&[0, 0, 0])), [Some(6.0), None]);
        // perf's way knows no lines
        assert_eq!(scaled(&t, &plan(&[0, 0, 1])), [Some(4.5), Some(27.0)]);
        assert_eq!(scaled(&t, &plan(&[0, 0, 0]))[1], None);
    }

    #[test]
    fn no_line_crosses_a_phase() {
        let t = trace(&[
            (1.0, 10.0, 1.0),
            (1.0, 10.0, 1.0),
            (3.0, 100.0, 1.0),
            (3.0, 100.0, 1.0),
        ]);
        let p = plan(&[0, 1, 1, 0]);
        assert_eq!(phase_aware(&t, &p, &PhaseRule::default())[0], Some(220.0));
        assert!(
            (linear(&t, &p)[0].unwrap() - 220.0).abs() < 1e-9,
            "by symmetry"
        );
        // event b is never counted in the second phase; a has only its own line there
        let p = plan(&[0, 1, 0, 1]);
        assert_eq!(phase_aware(&t, &p, &PhaseRule::default())[0], Some(220.0));
        assert!(linear(&t, &p)[0].unwrap() > 260.0);
    }

    proptest! {
        /// Steady rates are reconstructed exactly under any strategy and partition.
        #[test]
        fn steady_programs_are_exact(rates in proptest::collection::vec(0.0f64..1e6, 8), counters in 1usize..9) {
            let windows = (0..40).map(|_| Window { ns: 5.0, instructions: 10.0, cycles: 10.0, counts: rates.clone() });
            let t = Trace { events: (0..8).map(|e| format!("e{e}")).collect(), windows: windows.collect() };
            for (name, _) in crate::multiplex::STRATEGIES {
                let sets = Plan::partition(8, counters);
                let mut s = by_name(name, sets.len()).unwrap();
                let p = Plan::of(&t, &sets, &mut *s);
                for (e, total) in linear(&t, &p).into_iter().enumerate() {
                    let total = total.unwrap();
                    prop_assert!((total - t.total(e)).abs() <= 1e-9 * t.total(e).max(1.0));
                }
                prop_assert_eq!(linear(&t, &p), phase_aware(&t, &p, &PhaseRule::default()));
            }
        }

        /// With every event on a counter of its own, totals are the truth.
        #[test]
        fn without_multiplexing_nothing_is_estimated(rows in proptest::collection::vec((0.1f64..4.0, 0.0f64..1e6, 0.0f64..1e6), 1..50)) {
            let t = trace(&rows);
            let p = Plan { counted: vec![vec![0, 1]; rows.len()] };
            for (e, total) in linear(&t, &p).into_iter().chain(scaled(&t, &p)).enumerate().map(|(i, t)| (i % 2, t)) {
                prop_assert!((total.unwrap() - t.total(e)).abs() <= 1e-9 * t.total(e).max(1.0));
            }
        }
    }
}
