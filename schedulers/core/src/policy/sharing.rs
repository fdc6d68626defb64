//! From shares of fast-core time to seats, on machines of two core types.
//!
//! A policy that gives shares away decides nothing else: who may run where, fair sharing for
//! threads without estimates, steering and seats are the same whatever the shares are.

use crate::machine::Placement;
use crate::policy::room::{Reach, Room};
use crate::policy::seats::Seats;
use crate::policy::steering::Steering;
use crate::policy::turns::Turns;
use crate::view::View;
use amp_metrics::CoreTypeId;

/// Gives threads the shares of fast-core time that a policy decides on. Per decision:
/// [`begin`](Self::begin), [`fast`](Self::fast), [`seat`](Self::seat).
#[derive(Debug, Default)]
pub struct Sharing {
    turns: Turns,
    room: Room,
    steering: Steering,
    seats: Seats,
    /// Per thread of the view: its share and the most it can use.
    shares: Vec<Option<(f64, f64)>>,
}

impl Sharing {
    /// Takes in the interval. `known` says of each thread of the view whether the policy can rate
    /// it itself; a turn lasts about `turn` seconds.
    pub fn begin(&mut self, view: &View<'_>, turn: f64, known: &dyn Fn(usize) -> bool) {
        self.turns.update(view, turn, known);
        self.room.update(view);
    }

    /// Who may run where.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Fast cores that are to be given to the threads that are `known`.
    pub fn fast(&self, view: &View<'_>, known: &dyn Fn(usize) -> bool) -> f64 {
        let owed = self.turns.owed(CoreTypeId::FASTEST);
        self.room.fast(view, owed, known)
    }

    /// Seats the threads so that each comes to have its share in time. `share` gives that of a
    /// known thread out of the most it can use, `None` for others. A thread that may run on one
    /// core type only has all or nothing.
    pub fn seat(
        &mut self,
        view: &View<'_>,
        turn: f64,
        share: &dyn Fn(usize, f64) -> Option<f64>,
        out: &mut Placement,
    ) {
        let room = &self.room;
        self.shares.clear();
        self.shares.extend((0..view.threads.len()).map(|i| {
            let most = room.fast_share(i);
            let share = share(i, most)?;
            Some(match room.reach(i) {
                Reach::Both => (share, most),
                Reach::Fast => (room.cpu(i), room.cpu(i)),
                Reach::Slow => (0.0, 0.0),
            })
        }));
        let shares = &self.shares;
        self.steering.update(view, turn, &|i| shares[i]);
        let (turns, steering) = (&self.turns, &self.steering);
        self.seats.assign(view, &mut |i, t| {
            turns.claim(i, t).unwrap_or_else(|| steering.claim(i, turn))
        });
        self.seats.write(view, out);
    }
}
