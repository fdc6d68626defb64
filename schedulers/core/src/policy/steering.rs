//! Steers threads towards given shares of fast-core time.

use crate::policy::seats::Claim;
use crate::policy::threads::{PerThread, Presence};
use crate::view::View;
use amp_metrics::CoreTypeId;

/// Credits are remembered up to so many turns.
const MEMORY: f64 = 4.0;

/// By how many turns a whole core's share goes before none, so that a share that jumps takes effect
/// at once. Above the bonus of one turn that the holder has.
const LOOK_AHEAD: f64 = 2.0;

/// Shares below this, or this close to all of a thread's CPU time, leave it no choice of place.
const NONE: f64 = 1e-9;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Seconds on fast cores that it is still due.
    credit: f64,
    /// The share it was given for the present interval.
    share: f64,
}

/// Error diffusion: per interval a thread earns its share of it and pays for the time it spent on
/// fast cores; who has most left goes there next.
#[derive(Debug, Default)]
pub struct Steering {
    accounts: PerThread<Account>,
    strength: Vec<f64>,
}

impl Steering {
    /// Takes in the interval and new shares of time on cores of type `level` and of faster ones: `share` gives that of thread `i` of the view and the
    /// most it could use, `None` to leave it out. A turn lasts about `turn` seconds.
    pub fn update(
        &mut self,
        view: &View<'_>,
        level: CoreTypeId,
        turn: f64,
        share: &dyn Fn(usize) -> Option<(f64, f64)>,
    ) {
        let interval = view.interval.as_secs_f64();
        self.accounts.begin();
        self.strength.clear();
        // Time that none of them could use is not to be made up for.
        let (mut n, mut sum) = (0u32, 0.0);
        for (i, th) in view.threads.iter().enumerate() {
            let Some((share, most)) = share(i) else {
                continue;
            };
            let (presence, a) = self.accounts.enter(th.key, th.succeeds, Account::default);
            if presence == Presence::Here {
                a.credit += a.share * interval - th.ran_up_to(level);
            }
            a.share = share;
            if share > NONE && share < most - NONE {
                n += 1;
                sum += a.credit;
            }
        }
        let mean = if n > 0 { sum / f64::from(n) } else { 0.0 };
        let bound = MEMORY * turn;
        for (i, th) in view.threads.iter().enumerate() {
            let strength = share(i).and_then(|(share, most)| {
                let a = self.accounts.get_mut(th.key)?;
                a.credit = if share <= NONE {
                    a.credit.clamp(-bound, 0.0)
                } else if share >= most - NONE {
                    a.credit.clamp(0.0, bound)
                } else {
                    (a.credit - mean).clamp(-bound, bound)
                };
                Some(a.credit + LOOK_AHEAD * turn * share)
            });
            self.strength.push(strength.unwrap_or(0.0));
        }
    }

    /// The claim of thread `i` of the view to the fast cores.
    pub fn claim(&self, i: usize, turn: f64) -> Claim {
        Claim {
            strength: self.strength.get(i).copied().unwrap_or(0.0),
            bonus: turn,
        }
    }
}
