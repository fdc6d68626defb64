//! Programs that are run again: which thread goes on in the place of one that has ended.
//!
//! A shell loop, `make`, a bench: the next process of a program does what the last one did. To a
//! policy that evens things out it would be a newcomer each time, behind everybody who was there
//! before; a program of short runs never gets its share like that. So a thread of the same name
//! that comes soon after goes on where the other one was: with what it is owed, and with what it
//! owes.
//!
//! Between two runs the program is not there. A decision that falls into that gap would give its
//! place on a core type to somebody else, who would be sent back at the next one. Where a program
//! is known to be run again, its place is therefore kept for one decision ([`Succession::hold`]).

use crate::machine::Placement;
use amp_metrics::{CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use std::collections::VecDeque;

/// How long a place is kept.
const KEPT: Nanos = Nanos::from_millis(1000);
/// Places that are kept.
const MOST: usize = 256;

/// What threads must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The command name.
    pub comm: [u8; 16],
    /// Whether it is the first thread of its process.
    pub leads: bool,
}

/// The place of a thread that has ended.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: Nanos,
    name: Name,
    key: ThreadKey,
    /// The core type it was placed on, if its program is known to be run again.
    seat: Option<CoreTypeId>,
}

/// The places of threads that have ended, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Succession {
    left: VecDeque<Place>,
}

impl Succession {
    /// Thread `key` has ended. `seat`: the core type that is kept for the next one of its name.
    pub fn leaves(&mut self, name: Name, key: ThreadKey, seat: Option<CoreTypeId>, now: Nanos) {
        if self.left.len() >= MOST {
            self.left.pop_front();
        }
        self.left.push_back(Place {
            at: now,
            name,
            key,
            seat,
        });
    }

    /// Whose place a thread of this `name`, which is offered for the first time, takes; nobody else
    /// takes it then.
    pub fn succeeds(&mut self, name: Name, now: Nanos) -> Option<ThreadKey> {
        while self
            .left
            .front()
            .is_some_and(|p| now.saturating_sub(p.at) > KEPT)
        {
            self.left.pop_front();
        }
        let place = self.left.iter().position(|p| p.name == name)?;
        self.left.remove(place).map(|p| p.key)
    }

    /// Keeps the seats of those who have ended since the decision before this one, at `now`, and
    /// whose successors are not here yet: of the threads that would come to such a core type from
    /// another one, beyond those that leave it, as many stay where they are. `placed` is where a
    /// thread is.
    pub fn hold(
        &self,
        now: Nanos,
        placed: &dyn Fn(ThreadKey) -> Option<CoreTypeId>,
        decided: &mut Placement,
    ) {
        let mut kept = [0i32; MAX_CORE_TYPES];
        for seat in self.left.iter().rev().take_while(|p| p.at == now) {
            if let Some(kept) = seat.seat.and_then(|t| kept.get_mut(t.index())) {
                *kept += 1;
            }
        }
        for (t, kept) in kept.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let t = CoreTypeId(t as u8);
            let more = |(key, to): (ThreadKey, Option<CoreTypeId>)| {
                i32::from(to == Some(t)) - i32::from(placed(key) == Some(t))
            };
            let mut many = decided.iter().map(more).sum::<i32>().min(kept);
            decided.revise(|key, to| match placed(key) {
                Some(from) if *to == Some(t) && from != t && many > 0 => {
                    many -= 1;
                    *to = Some(from);
                }
                _ => {}
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(comm: u8, leads: bool) -> Name {
        let comm = [comm; 16];
        Name { comm, leads }
    }

    fn key(slot: u32) -> ThreadKey {
        ThreadKey {
            slot,
            generation: 1,
        }
    }

    #[test]
    fn a_place_is_taken_once_by_one_of_its_name_and_soon() {
        let mut s = Succession::default();
        let at = Nanos::from_millis;
        s.leaves(name(1, true), key(1), None, at(0));
        s.leaves(name(2, true), key(2), None, at(100));
        s.leaves(name(2, true), key(3), None, at(200));
        s.leaves(name(2, false), key(4), None, at(200));
        assert_eq!(s.succeeds(name(2, true), at(300)), Some(key(2)));
        assert_eq!(s.succeeds(name(3, true), at(300)), None);
        assert_eq!(s.succeeds(name(2, true), at(300)), Some(key(3)));
        assert_eq!(s.succeeds(name(2, true), at(300)), None);
        assert_eq!(s.succeeds(name(1, true), at(1001)), None, "too late");
        assert_eq!(s.succeeds(name(2, false), at(1001)), Some(key(4)));
        for n in 0..10_000 {
            s.leaves(name(1, true), key(n), None, at(2000));
        }
        assert_eq!(s.left.len(), MOST);
    }

    #[test]
    fn a_seat_is_kept_for_one_decision() {
        let (fast, slow) = (CoreTypeId(0), CoreTypeId(1));
        let at = Nanos::from_millis;
        let mut s = Succession::default();
        s.leaves(name(1, true), key(1), Some(fast), at(100));
        // thread n is on the slow type, but for 8 on the fast one and 9 on none
        let placed = |k: ThreadKey| match k.slot {
            8 => Some(fast),
            9 => None,
            _ => Some(slow),
        };
        let after = |s: &Succession, ms, decided: &[(u32, CoreTypeId)]| {
            let mut p = Placement::default();
            for (slot, t) in decided {
                p.place(key(*slot), *t);
            }
            s.hold(at(ms), &placed, &mut p);
            p.iter().map(|(k, to)| (k.slot, to)).collect::<Vec<_>>()
        };
        // whoever would take it stays
        assert_eq!(after(&s, 100, &[(2, fast)]), [(2, Some(slow))]);
        assert_eq!(
            after(&s, 100, &[(2, fast), (3, fast)]),
            [(2, Some(slow)), (3, Some(fast))]
        );
        // threads that change places, newcomers, and those who go elsewhere do not take it
        for others in [&[(2, fast), (8, slow)][..], &[(9, fast)], &[(8, slow)]] {
            let same: Vec<_> = others.iter().map(|(k, t)| (*k, Some(*t))).collect();
            assert_eq!(after(&s, 100, others), same);
        }
        // one decision later it is free, and so it is once somebody has it
        assert_eq!(after(&s, 200, &[(2, fast)]), [(2, Some(fast))]);
        assert_eq!(s.succeeds(name(1, true), at(100)), Some(key(1)));
        assert_eq!(after(&s, 100, &[(2, fast)]), [(2, Some(fast))]);
    }
}
