//! Rounds: one sample of every event set, all from one phase [PMCTrack fig. 7].

use super::phase::{PhaseDetector, PhaseRule};
use crate::event::MAX_EVENTS;
use crate::ids::Nanos;

/// One sample of a set: increments, and the time and coverage they rest on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    deltas: [u64; MAX_EVENTS],
    events: u8,
    at: Nanos,
    coverage: f64,
}

/// What a sample led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The round is not complete yet.
    Collecting,
    /// A new phase: what the round had was dropped, and it starts again with this sample.
    Restarted,
    /// Every set has a sample of this phase; the next sample begins a new round.
    Complete,
}

/// The last complete round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complete {
    /// When its oldest sample was taken.
    pub oldest: Nanos,
    /// The least coverage of its samples, 0 to 1.
    pub coverage: f64,
}

/// Collects rounds for one thread on one core type.
///
/// A set may be sampled more than once in a round (a [`super::Strategy`] may prefer it): the latest
/// sample counts.
#[derive(Clone, Debug)]
pub struct Rounds {
    current: Vec<Option<Sample>>,
    complete: Vec<Option<Sample>>,
    /// Coverage from which on a sample is good.
    good: f64,
    detector: PhaseDetector,
    phase: u32,
    phase_since: Nanos,
}

impl Rounds {
    /// Rounds over `sets` event sets, the first phase beginning at `now`.
    pub fn new(sets: usize, now: Nanos) -> Rounds {
        Rounds {
            current: vec![None; sets],
            complete: vec![None; sets],
            good: 0.0,
            detector: PhaseDetector::default(),
            phase: 0,
            phase_since: now,
        }
    }

    /// A round in which a sample has less than this coverage (0 to 1) is completed again, by better samples in place of that one:
    /// until then nothing is settled.
    #[must_use]
    pub fn with_good(mut self, coverage: f64) -> Rounds {
        self.good = coverage;
        self
    }

    /// Takes in a sample of `set` at time `at`, with the IPC in it. A set that does not exist is
    /// left out, and so is a sample that departs from the phase without beginning one
    /// ([`PhaseRule::confirm`]): it would be of another phase than the rest.
    pub fn add(
        &mut self,
        set: usize,
        deltas: &[u64],
        ipc: f64,
        at: Nanos,
        coverage: f64,
        rule: &PhaseRule,
    ) -> Step {
        if set >= self.current.len() {
            return Step::Collecting;
        }
        let changed = self.detector.step(ipc, rule);
        if self.current.len() > 1 && self.detector.is_departing() {
            return Step::Collecting;
        }
        if changed {
            self.current.fill(None);
            self.phase = self.phase.wrapping_add(1);
            self.phase_since = at;
        }
        let mut sample = Sample {
            deltas: [0; MAX_EVENTS],
            events: deltas.len().min(MAX_EVENTS) as u8,
            at,
            coverage,
        };
        for (to, from) in sample.deltas.iter_mut().zip(deltas) {
            *to = *from;
        }
        self.current[set] = Some(sample);
        if self.current.iter().all(Option::is_some) {
            self.complete.copy_from_slice(&self.current);
            let good = |s: &Option<Sample>| s.is_some_and(|s| s.coverage >= self.good);
            match self.current.iter().all(good) {
                true => self.current.fill(None),
                false => {
                    let poor = self.current.iter_mut().filter(|s| !good(s));
                    poor.for_each(|s| *s = None);
                }
            }
            return Step::Complete;
        }
        if changed {
            Step::Restarted
        } else {
            Step::Collecting
        }
    }

    /// Increments of `set` in the last complete round.
    pub fn deltas(&self, set: usize) -> Option<&[u64]> {
        let s = self.complete.get(set)?.as_ref()?;
        s.deltas.get(..usize::from(s.events))
    }

    /// Age and coverage of the last complete round; `None` before the first.
    pub fn last(&self) -> Option<Complete> {
        let mut out: Option<Complete> = None;
        for s in &self.complete {
            let s = s.as_ref()?;
            let o = out.get_or_insert(Complete {
                oldest: s.at,
                coverage: s.coverage,
            });
            o.oldest = o.oldest.min(s.at);
            o.coverage = o.coverage.min(s.coverage);
        }
        out
    }

    /// Whether the last complete round is good and of the present phase, so that nothing of it is missing.
    pub fn settled(&self) -> bool {
        let of_this_phase = |c: Complete| c.oldest >= self.phase_since && c.coverage >= self.good;
        !self.detector.is_departing() && self.last().is_some_and(of_this_phase)
    }

    /// Whether a sample of `set` brings the round on: it has none yet, or the next sample of any set tells whether the phase
    /// has changed.
    pub fn lacks(&self, set: usize) -> bool {
        let sample = self.current.get(set);
        sample.is_some_and(|s| s.is_none() || self.detector.is_departing())
    }

    /// Number of the present phase, and when it began.
    pub fn phase(&self) -> (u32, Nanos) {
        (self.phase, self.phase_since)
    }

    /// Running average of the IPC in the present phase.
    pub fn ipc(&self) -> Option<f64> {
        self.detector.average()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(r: &mut Rounds, set: usize, ipc: f64, at: u64) -> Step {
        r.add(
            set,
            &[at, set as u64],
            ipc,
            Nanos(at),
            1.0,
            &PhaseRule {
                confirm: 1,
                ..PhaseRule::default()
            },
        )
    }

    #[test]
    fn a_sample_that_departs_waits_for_the_next_one() {
        let rule = PhaseRule::default();
        let mut r = Rounds::new(2, Nanos::ZERO);
        let mut add = |set, ipc, at| r.add(set, &[at], ipc, Nanos(at), 1.0, &rule);
        assert_eq!(add(0, 1.0, 1), Step::Collecting);
        // an outlier is part of no round
        assert_eq!(add(1, 3.0, 2), Step::Collecting);
        assert_eq!(add(1, 1.0, 3), Step::Complete);
        // a change: the first sample may be of both phases, the second begins the round
        assert_eq!(add(0, 1.0, 4), Step::Collecting);
        assert_eq!(add(1, 2.0, 5), Step::Collecting);
        assert_eq!(add(0, 3.0, 6), Step::Restarted);
        assert_eq!(add(1, 3.0, 7), Step::Complete);
        assert_eq!((r.deltas(0), r.deltas(1)), (Some(&[6][..]), Some(&[7][..])));
        assert_eq!(r.phase().0, 1);
    }

    #[test]
    fn a_phase_change_restarts_the_round() {
        let mut r = Rounds::new(3, Nanos::ZERO);
        assert_eq!(add(&mut r, 0, 1.0, 1), Step::Collecting);
        assert_eq!(add(&mut r, 1, 1.0, 2), Step::Collecting);
        assert_eq!(add(&mut r, 2, 3.0, 3), Step::Restarted);
        assert_eq!((r.last(), r.phase()), (None, (1, Nanos(3))));
        assert_eq!(add(&mut r, 0, 3.0, 4), Step::Collecting);
        assert_eq!(add(&mut r, 1, 3.0, 5), Step::Complete);
        let c = r.last().unwrap();
        assert_eq!(c.oldest, Nanos(3));
        assert_eq!(r.deltas(0), Some(&[4, 0][..]));
        assert_eq!(r.deltas(2), Some(&[3, 2][..]));
        assert_eq!(r.deltas(9), None);
    }

    #[test]
    fn settled_from_a_complete_round_to_the_next_change() {
        let rule = PhaseRule::default();
        let mut r = Rounds::new(2, Nanos::ZERO);
        let mut settled = |set, ipc, at| {
            r.add(set, &[at], ipc, Nanos(at), 1.0, &rule);
            r.settled()
        };
        assert!(!settled(0, 1.0, 1));
        assert!(settled(1, 1.0, 2));
        // one sample of the next round makes the last one no worse
        assert!(settled(1, 1.0, 3));
        // something else, perhaps; then for sure; then known in full
        assert!(!settled(0, 3.0, 4));
        assert!(!settled(0, 3.0, 5));
        assert!(settled(1, 3.0, 6));
    }

    #[test]
    fn a_poor_sample_is_sampled_again() {
        let rule = PhaseRule::default();
        let mut r = Rounds::new(2, Nanos::ZERO).with_good(0.5);
        let mut add = |set, at, coverage| {
            let step = r.add(set, &[at], 1.0, Nanos(at), coverage, &rule);
            (step, r.settled(), r.lacks(0), r.lacks(1))
        };
        assert_eq!(add(0, 1, 0.3), (Step::Collecting, false, false, true));
        assert_eq!(add(1, 2, 0.9), (Step::Complete, false, true, false));
        // the good sample stays
        assert_eq!(add(0, 3, 0.7), (Step::Complete, true, true, true));
        let deltas = (r.deltas(0).unwrap()[0], r.deltas(1).unwrap()[0]);
        assert_eq!((deltas, r.last().unwrap().coverage), ((3, 2), 0.7));
    }

    #[test]
    fn one_set_is_complete_with_every_sample() {
        let mut r = Rounds::new(1, Nanos::ZERO);
        assert_eq!(add(&mut r, 0, 1.0, 1), Step::Complete);
        assert_eq!(add(&mut r, 0, 9.0, 2), Step::Complete);
        assert_eq!(r.deltas(0), Some(&[2, 0][..]));
    }

    proptest! {
        /// No complete round holds samples of two phases.
        #[test]
        fn rounds_never_mix_phases(
            stream in proptest::collection::vec((0usize..4, prop_oneof![Just(1.0f64), Just(2.0), Just(4.0)]), 1..200),
        ) {
            let mut r = Rounds::new(4, Nanos::ZERO);
            let mut ipcs = Vec::new();
            for (at, (set, ipc)) in stream.into_iter().enumerate() {
                ipcs.push(ipc);
                if add(&mut r, set, ipc, at as u64) == Step::Complete {
                    let times: Vec<usize> = (0..4).map(|s| r.deltas(s).unwrap()[0] as usize).collect();
                    let from = *times.iter().min().unwrap();
                    prop_assert!(ipcs[from..=at].iter().all(|i| *i == ipc));
                }
            }
        }
    }
}
