//! How far a program was when a run of the mix ended.
//!
//! A run ends while programs are in the middle of a pass. Dropping that pass would favour whoever
//! lets slow passes be the ones that are cut off, so its part counts as work
//! ([`crate::evaluation::evaluate`]).
//!
//! Instructions are not alike. A program that builds its data with many quick instructions and then
//! waits for memory in few slow ones has half of its instructions behind it after a tenth of its
//! time. What a speed is compared with is therefore the speed alone *at the same instructions*: the
//! course of the program alone on slow cores ([`Progress`]) turns instructions into time.

use serde::{Deserialize, Serialize};

/// One pass of a program through its work, finished or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// Time since it began, in seconds.
    pub took_s: f64,
    /// CPU time per core type, fastest first, in seconds.
    pub time_s: Vec<f64>,
    /// Instructions that it retired; `None` where nobody counted.
    pub instructions: Option<f64>,
}

/// What the work of an unfinished pass is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkFrom {
    /// Instructions that it retired, of those of a whole pass.
    Instructions,
    /// CPU time per core type, of that of a whole pass in the same run.
    Time,
}

/// The course of a program alone on slow cores: what share of its time is over when a share of its
/// instructions is.
///
/// Element `k` of `n + 1` is the share of time at the share `k / n` of instructions. The first is 0,
/// the last 1, and none is below the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress(Vec<f64>);

impl Progress {
    /// Steps in which the course is kept.
    const STEPS: usize = 64;

    /// From looks at a program that ran alone: (instructions since its start, seconds since its
    /// start), the last at its end. `None` when nothing was counted, or a count went backwards.
    pub fn of(looks: &[(f64, f64)]) -> Option<Progress> {
        let &(all, took) = looks.last()?;
        let rises = |w: &[(f64, f64)]| w[0].0 <= w[1].0 && w[0].1 <= w[1].1;
        if !(all > 0.0 && took > 0.0 && looks.windows(2).all(rises)) {
            return None;
        }
        let share = |k: usize| {
            let wanted = all * k as f64 / Self::STEPS as f64;
            let after = looks.partition_point(|l| l.0 < wanted);
            let (i0, t0) = after.checked_sub(1).map_or((0.0, 0.0), |b| looks[b]);
            let (i1, t1) = looks[after.min(looks.len() - 1)];
            let part = if i1 > i0 {
                (wanted - i0) / (i1 - i0)
            } else {
                1.0
            };
            ((t0 + part * (t1 - t0)) / took).clamp(0.0, 1.0)
        };
        let mut shares: Vec<f64> = (0..=Self::STEPS).map(share).collect();
        (shares[0], shares[Self::STEPS]) = (0.0, 1.0);
        Some(Progress(shares))
    }

    /// The mean of several; `None` of none.
    pub fn mean(of: &[Progress]) -> Option<Progress> {
        let first = of.first()?;
        let alike = of.iter().all(|p| p.0.len() == first.0.len());
        let at = |k: usize| of.iter().map(|p| p.0[k]).sum::<f64>() / of.len() as f64;
        alike.then(|| Progress((0..first.0.len()).map(at).collect()))
    }

    /// The share of time alone on slow cores, 0 to 1, that the first `share` of the instructions
    /// takes.
    pub fn time(&self, share: f64) -> f64 {
        let steps = self.0.len().saturating_sub(1);
        let place = share.clamp(0.0, 1.0) * steps as f64;
        let below = (place as usize).min(steps.saturating_sub(1));
        match (self.0.get(below), self.0.get(below + 1)) {
            (Some(a), Some(b)) => (a + (place - below as f64) * (b - a)).clamp(0.0, 1.0),
            // nothing is known: as if all instructions took the same time
            _ => share.clamp(0.0, 1.0),
        }
    }
}

/// Share of its work, 0 to 1, that a program had done in the pass that was cut off, by each way to
/// know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// From instructions, by the time that they take alone on slow cores where that is known;
    /// `None` where they were not counted.
    #[serde(default)]
    pub by_instructions: Option<f64>,
    /// From CPU time; `None` where that is not known.
    #[serde(default)]
    pub by_time: Option<f64>,
}

impl Unfinished {
    /// No pass was cut off, or it had just begun.
    pub const NOTHING: Unfinished = Unfinished {
        by_instructions: Some(0.0),
        by_time: Some(0.0),
    };

    /// A share that is known exactly, as in a simulation.
    pub fn exactly(share: f64) -> Unfinished {
        let share = Some(share.clamp(0.0, 1.0));
        Unfinished {
            by_instructions: share,
            by_time: share,
        }
    }

    /// The share of the pass `begun`, by comparison with the passes that were finished in the same
    /// run. `speeds` are the program's speeds on each core type, fastest first, in any unit: a
    /// second on a fast core is more work than one on a slow core. `alone` is its course alone.
    ///
    /// By time the finished passes are the scale, so that a slowdown by neighbours, which they met
    /// as well, cancels out. What is left is the difference between phases.
    pub fn of(
        finished: &[Pass],
        begun: &Pass,
        speeds: &[f64],
        alone: Option<&Progress>,
    ) -> Unfinished {
        let share = |of: &dyn Fn(&Pass) -> Option<f64>| {
            let whole: Option<Vec<f64>> = finished.iter().map(of).collect();
            let whole = whole.filter(|w| !w.is_empty())?;
            let whole = whole.iter().sum::<f64>() / whole.len() as f64;
            let share = of(begun)? / whole;
            share.is_finite().then(|| share.clamp(0.0, 1.0))
        };
        let weighed = |p: &Pass| {
            let sum: f64 = p.time_s.iter().zip(speeds).map(|(t, v)| t * v).sum();
            (sum > 0.0).then_some(sum)
        };
        let nothing_ran = weighed(begun).is_none();
        Unfinished {
            by_instructions: share(&|p| p.instructions)
                .map(|share| alone.map_or(share, |a| a.time(share))),
            by_time: match nothing_ran {
                // it was seen nowhere: its time says as much as there is to say
                true => share(&|p| Some(p.took_s)),
                false => share(&weighed),
            },
        }
    }

    /// The share by the way `from`; 0 where that is not known.
    pub fn share(&self, from: WorkFrom) -> f64 {
        let known = match from {
            WorkFrom::Instructions => self.by_instructions,
            WorkFrom::Time => self.by_time,
        };
        known.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pass(took_s: f64, big: f64, small: f64, instructions: Option<f64>) -> Pass {
        Pass {
            took_s,
            time_s: vec![big, small],
            instructions,
        }
    }

    #[test]
    fn a_second_on_a_fast_core_is_more_work() {
        // twice as fast on big: 10 s there are a pass, or 20 s on small
        let finished = [
            pass(10.0, 10.0, 0.0, Some(8e9)),
            pass(20.0, 0.0, 20.0, Some(8e9)),
        ];
        let share = |p| Unfinished::of(&finished, &p, &[2.0, 1.0], None);
        let on_big = share(pass(5.0, 5.0, 0.0, Some(4e9)));
        assert_eq!(on_big, Unfinished::exactly(0.5));
        let on_small = share(pass(5.0, 0.0, 5.0, None));
        assert_eq!(
            (on_small.by_instructions, on_small.by_time),
            (None, Some(0.25))
        );
        // nowhere seen: its age; longer than a pass: no more than one
        assert_eq!(share(pass(3.0, 0.0, 0.0, None)).by_time, Some(0.2));
        assert_eq!(
            share(pass(99.0, 99.0, 0.0, Some(9e9))),
            Unfinished::exactly(1.0)
        );
    }

    /// Half of the instructions in the first tenth of the time: a pass that has just done them is a
    /// tenth of the work, not half. Seen with `chase` on the board, which was 9 % too fast under rr.
    #[test]
    fn quick_instructions_are_little_work() {
        let looks = [(0.0, 0.0), (5e8, 1.0), (6e8, 2.8), (1e9, 10.0)];
        let alone = Progress::of(&looks).unwrap();
        let finished = [pass(10.0, 0.0, 10.0, Some(1e9))];
        let share = |instructions| {
            let begun = pass(1.0, 0.0, 1.0, Some(instructions));
            let u = Unfinished::of(&finished, &begun, &[2.0, 1.0], Some(&alone));
            u.by_instructions.unwrap()
        };
        assert!((share(5e8) - 0.1).abs() < 1e-9, "{}", share(5e8));
        assert!((share(7.5e8) - 0.55).abs() < 1e-9, "{}", share(7.5e8));
        assert_eq!((share(0.0), share(1e9)), (0.0, 1.0));
    }

    #[test]
    fn a_course_that_makes_no_sense_is_none() {
        for looks in [
            &[][..],
            &[(0.0, 1.0)],
            &[(1e9, 0.0)],
            &[(2e9, 1.0), (1e9, 2.0)],
            &[(1e9, 3.0), (2e9, 2.0)],
            &[(f64::NAN, 1.0)],
        ] {
            assert_eq!(Progress::of(looks), None, "{looks:?}");
        }
        // as a file may have it
        assert_eq!(Progress(Vec::new()).time(0.3), 0.3);
        assert_eq!(Progress(vec![1.0]).time(0.3), 0.3);
        assert_eq!(
            Progress::mean(&[Progress(vec![0.0]), Progress(vec![])]),
            None
        );
    }

    #[test]
    fn without_a_finished_pass_nothing_is_known() {
        let u = Unfinished::of(&[], &pass(1.0, 1.0, 0.0, Some(1e9)), &[2.0, 1.0], None);
        assert_eq!(u, Unfinished::default());
        assert_eq!(u.share(WorkFrom::Time), 0.0);
    }

    proptest! {
        /// However a program's speed varies, and whatever its looks are, its course rises from 0
        /// to 1 and is right to within a step.
        #[test]
        fn a_course_is_the_time_that_instructions_take(
            rates in proptest::collection::vec(0.1f64..10.0, 1..40), part in 0.0f64..1.0,
        ) {
            // a second at each rate
            let mut looks = vec![(0.0, 0.0)];
            for r in &rates {
                let (i, t) = looks[looks.len() - 1];
                looks.push((i + r, t + 1.0));
            }
            let all: f64 = rates.iter().sum();
            let course = Progress::of(&looks).unwrap();
            prop_assert!(course.0.windows(2).all(|w| w[0] <= w[1]));
            let time = part * rates.len() as f64;
            let whole = time as usize;
            let done: f64 = rates.iter().take(whole).sum::<f64>()
                + rates.get(whole).map_or(0.0, |r| r * time.fract());
            // in a step of instructions the slowest speed decides how far off it may be
            let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let bound = all / 64.0 / slowest / rates.len() as f64 + 1e-9;
            prop_assert!((course.time(done / all) - part).abs() <= bound);
        }

        /// A neighbour that slows a program down in every pass makes no difference.
        #[test]
        fn slowdown_by_neighbours_cancels_out(
            slow in 1.0f64..3.0, part in 0.01f64..0.99, big in 0.0f64..1.0, sf in 1.1f64..4.0,
        ) {
            // a pass of 10 s of work on small cores, `big` of its work done on big ones
            let whole = |work: f64| pass(0.0, slow * work * big / sf, slow * work * (1.0 - big), None);
            let finished = [whole(10.0), whole(10.0)];
            let u = Unfinished::of(&finished, &whole(10.0 * part), &[sf, 1.0], None);
            prop_assert!((u.by_time.unwrap() - part).abs() < 1e-9);
        }
    }
}
