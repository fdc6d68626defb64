//! Fast cores that stay idle, because slow ones have room and it saves energy.

use crate::policy::seats::Seats;
use crate::policy::threads::PerThread;
use crate::view::{ThreadView, View};
use amp_metrics::{CoreTypeId, Nanos};

/// How full slow cores may be, on average, for a thread that comes to them; and for one that is
/// there.
const ROOM: [f64; 2] = [0.8, 0.9];
/// Weight of the last interval in the mean of a thread's load.
const NEWEST: f64 = 0.25;

/// Sends threads to slow cores although there are fast ones for them.
#[derive(Debug, Default)]
pub struct Spare {
    /// What part of a slow core each thread needs, 0 to 1: a mean.
    loads: PerThread<Option<f64>>,
    /// Those of the threads of the view.
    load: Vec<f64>,
    order: Vec<(f64, usize)>,
}

impl Spare {
    /// Seats those threads on slow cores that do not save anything on fast ones, as long as slow ones
    /// have room. `worth` is a thread's efficiency factor where it may go, the lowest goes first;
    /// `sf` its speedup factor.
    pub fn leave(
        &mut self,
        view: &View<'_>,
        seats: &mut Seats,
        worth: &dyn Fn(usize) -> Option<f64>,
        sf: &dyn Fn(usize) -> f64,
    ) {
        let slow = view.topology.slowest();
        let interval = view.interval.as_secs_f64();
        self.loads.begin();
        self.load.clear();
        self.order.clear();
        let mut used = 0.0;
        for (i, th) in view.threads.iter().enumerate() {
            let now = match interval > 0.0 {
                true => (needed(th, sf(i)) / interval).min(1.0),
                false => 0.0,
            };
            let (_, mean) = self.loads.enter(th.key, th.succeeds, || None);
            let load = mean.map_or(now, |m| m + (now - m) * NEWEST);
            *mean = Some(load);
            self.load.push(load);
            match (seats.of(i) == Some(CoreTypeId::FASTEST), worth(i)) {
                (true, Some(worth)) => self.order.push((worth, i)),
                (true, None) => {}
                (false, _) => used += load,
            }
        }
        let first = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        self.order.sort_unstable_by(first);
        for &(_, i) in &self.order {
            let is_there = view.threads[i].placed == Some(slow);
            let room = ROOM[usize::from(is_there)] * view.nr_seats(slow) as f64;
            if used + self.load[i] <= room {
                used += self.load[i];
                seats.put(i, Some(slow));
            }
        }
    }
}

/// Seconds of a slow core that what `th` did in the interval would take.
fn needed(th: &ThreadView, sf: f64) -> f64 {
    let fast = th.ran_up_to(CoreTypeId::FASTEST);
    let all = th.ran.iter().copied().sum::<Nanos>();
    all.as_secs_f64() - fast + fast * sf.max(1.0)
}
