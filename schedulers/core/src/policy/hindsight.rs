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
/// Seconds after which what is due is charged: a factor may change before it is known that the phase did.
const SETTLES: f64 = 0.3;

/// What one thread did in its present phase.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    phase: Option<u32>,
    /// Seconds per core type, as if alone.
    seconds: [f64; MAX_CORE_TYPES],
    /// What was charged for them, in seconds on the fastest cores.
    charged: f64,
    /// The least that was due since it was last charged or changed its sign, and for how long.
    due: f64,
    lasts: f64,
}

/// What threads did in their present phases. Successors begin anew: they load first.
#[derive(Debug, Default)]
pub struct Hindsight {
    spent: PerThread<Spent>,
    /// Length of the interval in seconds, and what is left of what was charged after it.
    interval: f64,
    kept: f64,
}

impl Hindsight {
    /// Begins a round.
    pub fn begin(&mut self, view: &View<'_>) {
        self.spent.begin();
        self.interval = view.interval.as_secs_f64();
        self.kept = (-self.interval / FADES).exp();
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
        let (mut worth, mut now) = (0.0, 0.0);
        for t in view.core_types().map(|t| t.index()) {
            let speed = factors[t] / factors[0];
            worth += spent.seconds[t] * speed;
            now += ran[t] * speed;
            spent.seconds[t] = spent.seconds[t] * self.kept + ran[t];
        }
        let late = spent.late(worth - spent.charged, self.interval);
        spent.charged = (spent.charged + late) * self.kept + now;
        late
    }
}

impl Spent {
    /// What is charged of the `due`, `interval` seconds after this was asked last: what has been due all the time.
    fn late(&mut self, due: f64, interval: f64) -> f64 {
        if due * self.due <= 0.0 {
            (self.due, self.lasts) = (due, 0.0);
            return 0.0;
        }
        self.due = self.due.abs().min(due.abs()).copysign(due);
        self.lasts += interval;
        if self.lasts < SETTLES {
            return 0.0;
        }
        let late = self.due;
        (self.due, self.lasts) = (0.0, 0.0);
        late
    }
}
