//! Who ran where in an interval, and who came and left.

use crate::contention::Seat;
use rustc_hash::FxHashMap;

/// Change of presence that is an event.
const EVENT: f64 = 0.25;
/// Neighbours that may change at once; of more nobody can tell who it was.
pub(super) const MOST_CHANGES: usize = 8;

/// Parts of an interval up to which a thread is not there, and from which on it is there all the time.
const THERE: [f64; 2] = [0.1, 0.5];

/// How much of a neighbour a thread is that ran for this part of an interval, 0 to 1.
///
/// CPU time is told to a tick, a good part of a short interval. Taken for a neighbour who leaves and comes back,
/// that would teach that nobody costs anything. A cache does not mind either: who has it for half of the time keeps
/// it.
pub(super) fn there(part: f64) -> f64 {
    ((part - THERE[0]) / (THERE[1] - THERE[0])).clamp(0.0, 1.0)
}

/// How much of a program ran on a core type.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Present {
    /// Threads, see [`there`].
    pub threads: f64,
    /// From 0, as fast as anything there, to 1, as slow as what waits for memory.
    pub slow: f64,
}

/// Who ran where in an interval.
pub(super) type Presence = FxHashMap<Seat, Present>;

/// A program whose presence changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub beside: Seat,
    /// Threads more.
    pub by: f64,
    /// As in [`Present`], the greater one of before and after.
    pub slow: f64,
}

/// Whose presence changed from one interval to another, and by how much.
pub(super) fn changes_between(before: &Presence, after: &Presence) -> Vec<Change> {
    let change = |beside: Seat, was: Present, is: Present| Change {
        beside,
        by: is.threads - was.threads,
        slow: was.slow.max(is.slow),
    };
    let came = after
        .iter()
        .map(|(s, p)| change(*s, before.get(s).copied().unwrap_or_default(), *p));
    let left = before.iter().filter(|(s, _)| !after.contains_key(s));
    let left = left.map(|(s, p)| change(*s, *p, Present::default()));
    let mut changes: Vec<Change> = came.chain(left).collect();
    changes.retain(Change::is_one);
    changes.sort_unstable_by_key(|c| c.beside);
    changes
}

impl Change {
    pub fn is_one(&self) -> bool {
        self.by.abs() >= EVENT / 2.0
    }
}

/// Takes out of `changes` what a thread of `seat` contributed itself: it is no neighbour of its own.
pub(super) fn own_part(changes: &mut Vec<Change>, seat: Seat, by: f64) {
    for c in changes.iter_mut().filter(|c| c.beside == seat) {
        c.by -= by;
    }
    changes.retain(Change::is_one);
}

/// Adds `more` to `changes`.
pub(super) fn add_up(changes: &mut Vec<Change>, more: Vec<Change>) {
    for m in more {
        match changes.iter_mut().find(|c| c.beside == m.beside) {
            Some(c) => {
                c.by += m.by;
                c.slow = c.slow.max(m.slow);
            }
            None => changes.push(m),
        }
    }
    changes.retain(Change::is_one);
}

/// Whether something can be learned from these changes.
pub(super) fn is_event(changes: &[Change]) -> bool {
    changes.len() <= MOST_CHANGES && changes.iter().any(|c| c.by.abs() >= EVENT)
}
