//! From shares of fast-core time to seats.
//!
//! A policy that gives shares away decides nothing else: who may run where, fair sharing for
//! threads without estimates, steering and seats are the same whatever the shares are. Shares are given level by level: of
//! time on the fastest core type, on that and the next one, and so on. On two core types there is one level.

use crate::machine::Placement;
use crate::policy::room::{Reach, Room};
use crate::policy::seats::{Claim, Seats};
use crate::policy::steering::Steering;
use crate::policy::turns::Turns;
use crate::view::View;
use amp_metrics::CoreTypeId;

/// Gives threads the shares of fast-core time that a policy decides on. Per decision:
/// [`begin`](Self::begin), for each level ([`View::fast_types`]) [`fast`](Self::fast) and [`share`](Self::share), [`seat`](Self::seat).
#[derive(Debug, Default)]
pub struct Sharing {
    turns: Turns,
    levels: Vec<Level>,
    seats: Seats,
}

/// Cores of a type and of all faster ones.
#[derive(Debug, Default)]
struct Level {
    room: Room,
    steering: Steering,
    /// Per thread of the view: its share and the most it can use.
    shares: Vec<Option<(f64, f64)>>,
}

impl Sharing {
    /// Takes in the interval. `known` says of each thread of the view whether the policy can rate
    /// it itself; a turn lasts about `turn` seconds.
    pub fn begin(&mut self, view: &View<'_>, turn: f64, known: &dyn Fn(usize) -> bool) {
        self.turns.update(view, turn, known);
        let levels = view.fast_types();
        self.levels.resize_with(levels.len(), Level::default);
        for (l, t) in self.levels.iter_mut().zip(levels) {
            l.room.update(view, t);
        }
    }

    fn level(&self, level: CoreTypeId) -> &Level {
        &self.levels[level.index()]
    }

    /// Who may run where, on level `level`.
    pub fn room(&self, level: CoreTypeId) -> &Room {
        &self.level(level).room
    }

    /// Cores of level `level` that are to be given to the threads that are `known`.
    pub fn fast(&self, level: CoreTypeId, known: &dyn Fn(usize) -> bool) -> f64 {
        self.room(level).fast(self.turns.owed(level), known)
    }

    /// Takes in the shares of time on the cores of level `level`. `share` gives that of a
    /// known thread out of the most it can use, `None` for others. A thread that may run on one
    /// side of the level only has all or nothing.
    pub fn share(
        &mut self,
        view: &View<'_>,
        level: CoreTypeId,
        turn: f64,
        share: &dyn Fn(usize, f64) -> Option<f64>,
    ) {
        let Some(l) = self.levels.get_mut(level.index()) else {
            return;
        };
        let room = &l.room;
        l.shares.clear();
        l.shares.extend((0..view.threads.len()).map(|i| {
            let most = room.fast_share(i);
            let share = share(i, most)?;
            Some(match room.reach(i) {
                Reach::Both => (share, most),
                Reach::Fast => (room.cpu(i), room.cpu(i)),
                Reach::Slow => (0.0, 0.0),
            })
        }));
        let shares = &l.shares;
        l.steering.update(view, level, turn, &|i| shares[i]);
    }

    /// Seats the threads so that each comes to have its shares in time.
    pub fn seat(&mut self, view: &View<'_>, turn: f64, out: &mut Placement) {
        let (turns, levels) = (&self.turns, &self.levels);
        // who is on the slowest type is not chosen for it
        let steering = |t: CoreTypeId| levels.get(t.index()).or(levels.last());
        let nobody = Claim {
            strength: 0.0,
            bonus: turn,
        };
        self.seats.assign(view, &mut |i, t| {
            let claim = || steering(t).map_or(nobody, |l| l.steering.claim(i, turn));
            turns.claim(i, t).unwrap_or_else(claim)
        });
        self.seats.write(view, out);
    }
}
