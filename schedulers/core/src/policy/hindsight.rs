//! What a thread was charged, put right when its factors are known better.
//!
//! A thread is charged for an interval by the factors that it was thought to have then. A model may be wrong about a
//! program until moves have shown that, and by then half of the program's time may be over. As long as it is in
//! the same phase, its factors were then what they are known to be now.

use crate::policy::speedups::Speedups;
use crate::policy::threads::PerThread;
use crate::view::{ThreadView, View};
use amp_metrics::MAX_CORE_TYPES;

/// Seconds in which what was charged fades from what can be put right: the factor that is known now tells less and less of
/// what was then.
const FADES: f64 = 5.0;

/// What one thread did in its present phase.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    phase: Option<u32>,
    /// Seconds per core type, as if alone.
    seconds: [f64; MAX_CORE_TYPES],
    /// Speed per core type over the fastest one by which they were charged.
    speed: Speedups,
}

/// What threads did in their present phases. Successors begin anew: they load first.
#[derive(Debug, Default)]
pub struct Hindsight {
    spent: PerThread<Spent>,
    /// What is left of it after the interval.
    kept: f64,
}

impl Hindsight {
    /// Begins a round.
    pub fn begin(&mut self, view: &View<'_>) {
        self.spent.begin();
        self.kept = (-view.interval.as_secs_f64() / FADES).exp();
    }

    /// Takes in that thread `th` of the view is charged for `ran` seconds per core type by the `factors` that it has now. What
    /// is to be charged beside that for what it did before in this phase, in seconds on the fastest cores; negative where it
    /// was charged too much.
    pub fn charge(
        &mut self,
        view: &View<'_>,
        th: &ThreadView,
        ran: &[f64; MAX_CORE_TYPES],
        factors: &Speedups,
    ) -> f64 {
        // nobody knows how long its factors have been what they are
        let Some(phase) = view.phase(th) else {
            return 0.0;
        };
        let (_, spent) = self.spent.enter(th.key, None, Spent::default);
        if spent.phase != Some(phase) {
            *spent = Spent {
                phase: Some(phase),
                ..Spent::default()
            };
        }
        let mut right = 0.0;
        for t in view.core_types().map(|t| t.index()) {
            let speed = factors[t] / factors[0];
            right += spent.seconds[t] * (speed - spent.speed[t]);
            spent.speed[t] = speed;
            spent.seconds[t] = spent.seconds[t] * self.kept + ran[t];
        }
        right
    }
}
