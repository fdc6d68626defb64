//! What threads have done, measured by what they would have needed alone.

use amp_metrics::{Nanos, MAX_CORE_TYPES};
use std::ops::AddAssign;

/// What a thread has done so far, in seconds. The engine keeps it, so that it outlives policies.
///
/// `alone / rated` is the thread's progress relative to running alone with all fast cores, over all
/// phases it went through: the inverse of its slowdown, as far as core types are to blame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// CPU time in which its speedup factors were known, and up to two seconds before that.
    pub rated: f64,
    /// CPU time that the same work would have taken with the fast cores for the application alone:
    /// per second on core type t, SP_t/SP_fastest, SP being the application-wide speedup
    /// [TR5028 §4] at the time.
    pub alone: f64,
}

impl Done {
    /// Has it count for e^−`by` of what it was.
    pub(crate) fn fade(&mut self, by: f64) {
        let left = (-by).exp();
        self.rated *= left;
        self.alone *= left;
    }
}

/// What a thread did while its speedup factor was not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unrated {
    /// How long that was, from when it appeared; at most two seconds. Whoever is unknown for longer may have
    /// been another than it turns out to be now.
    pub time: Nanos,
    /// CPU time per core type.
    pub ran: [Nanos; MAX_CORE_TYPES],
}

impl Unrated {
    /// The longest time that is worth telling.
    const MOST: Nanos = Nanos::from_secs(2);

    /// Takes in an interval that was not rated.
    pub(crate) fn take_in(&mut self, interval: Nanos, ran: &[Nanos; MAX_CORE_TYPES]) {
        // when in its first interval it appeared is not known: no later than what it ran before the end
        let present = match self.time {
            Nanos::ZERO => interval.min(ran.iter().copied().sum()),
            _ => interval,
        };
        self.time += present;
        for (sum, ran) in self.ran.iter_mut().zip(ran) {
            *sum += *ran;
        }
    }

    /// What there is to tell; there is nothing afterwards.
    pub(crate) fn told(&mut self) -> Unrated {
        let all = std::mem::take(self);
        match all.time <= Unrated::MOST {
            true => all,
            false => Unrated::default(),
        }
    }
}

impl AddAssign for Done {
    fn add_assign(&mut self, o: Done) {
        self.rated += o.rated;
        self.alone += o.alone;
    }
}
