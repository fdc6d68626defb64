//! How far a program was when a run of the mix ended.
//!
//! A run ends while programs are in the middle of a pass. Dropping that pass would favour whoever
//! lets slow passes be the ones that are cut off, so its part counts as work
//! ([`crate::evaluation::evaluate`]).

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

/// Share of its work, 0 to 1, that a program had done in the pass that was cut off, by each way to
/// know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// From instructions; `None` where they were not counted.
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
    /// second on a fast core is more work than one on a slow core.
    ///
    /// By time the finished passes are the scale, so that a slowdown by neighbours, which they met
    /// as well, cancels out. What is left is the difference between phases.
    pub fn of(finished: &[Pass], begun: &Pass, speeds: &[f64]) -> Unfinished {
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
            by_instructions: share(&|p| p.instructions),
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
        let share = |p| Unfinished::of(&finished, &p, &[2.0, 1.0]);
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

    #[test]
    fn without_a_finished_pass_nothing_is_known() {
        let u = Unfinished::of(&[], &pass(1.0, 1.0, 0.0, Some(1e9)), &[2.0, 1.0]);
        assert_eq!(u, Unfinished::default());
        assert_eq!(u.share(WorkFrom::Time), 0.0);
    }

    proptest! {
        /// A neighbour that slows a program down in every pass makes no difference.
        #[test]
        fn slowdown_by_neighbours_cancels_out(
            slow in 1.0f64..3.0, part in 0.01f64..0.99, big in 0.0f64..1.0, sf in 1.1f64..4.0,
        ) {
            // a pass of 10 s of work on small cores, `big` of its work done on big ones
            let whole = |work: f64| pass(0.0, slow * work * big / sf, slow * work * (1.0 - big), None);
            let u = Unfinished::of(&[whole(10.0), whole(10.0)], &whole(10.0 * part), &[sf, 1.0]);
            prop_assert!((u.by_time.unwrap() - part).abs() < 1e-9);
        }
    }
}
