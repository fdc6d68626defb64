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
//! is known to be run again, its place is therefore kept for one interval, however many decisions fall
//! into it ([`Succession::hold`]).

use crate::done::Unrated;
use crate::machine::Placement;
use amp_metrics::{AppId, CoreTypeId, Nanos, ProgramName, ThreadKey, MAX_CORE_TYPES};
use std::collections::VecDeque;

/// How long a place is kept.
const KEPT: Nanos = Nanos::from_millis(1000);
/// Places that are kept.
const MOST: usize = 256;

/// The greatest hash of arguments that stands for none: 0, or 1 of the kernel's own threads.
const UNKNOWN: u64 = 1;

/// What threads must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The program.
    pub program: ProgramName,
    /// Whether it is the first thread of its process.
    pub leads: bool,
}

impl Name {
    /// That of thread `tid` of process `app`, which runs this program.
    pub fn of(program: ProgramName, tid: i32, app: AppId) -> Name {
        let leads = u64::try_from(tid) == Ok(app.0);
        Name { program, leads }
    }

    /// Whether the command names are the same.
    fn is_kin(self, other: Name) -> bool {
        self.program.kin() == other.program.kin() && self.leads == other.leads
    }

    /// Whether the arguments are the same, and known: a program may call itself something else once
    /// it runs.
    fn is_started_alike(self, other: Name) -> bool {
        let arguments = self.program.arguments;
        arguments > UNKNOWN && arguments == other.program.arguments && self.leads == other.leads
    }
}

/// What a thread did that no policy was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Untold {
    /// CPU time after the last decision.
    pub ran: [Nanos; MAX_CORE_TYPES],
    /// What it did before, if it was never known.
    pub unrated: Unrated,
}

/// The place of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    at: Nanos,
    name: Name,
    pub key: ThreadKey,
    pub app: AppId,
    /// The core type it was placed on, if its program is known to be run again.
    seat: Option<CoreTypeId>,
    pub untold: Untold,
}

/// The places of threads that have ended, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Succession {
    left: VecDeque<Place>,
}

impl Succession {
    /// A thread of that `name` has ended. `seat`: the core type that is kept for the next one.
    pub fn leaves(
        &mut self,
        name: Name,
        (key, app): (ThreadKey, AppId),
        seat: Option<CoreTypeId>,
        untold: Untold,
        now: Nanos,
    ) {
        self.keep(Place {
            at: now,
            name,
            key,
            app,
            seat,
            untold,
        });
    }

    /// A thread has ended that was never offered: the place that it would have taken, if there is one,
    /// is kept for the next one, and `ran` goes with it.
    pub fn passes(&mut self, name: Name, ran: &[Nanos; MAX_CORE_TYPES], now: Nanos) {
        if let Some(mut place) = self.take(name, now) {
            place.at = now;
            for (sum, ran) in place.untold.ran.iter_mut().zip(ran) {
                *sum += *ran;
            }
            self.keep(place);
        }
    }

    fn keep(&mut self, place: Place) {
        if self.left.len() >= MOST {
            self.left.pop_front();
        }
        self.left.push_back(place);
    }

    /// Whether there is a place for a thread of this `name`.
    pub fn expects(&self, name: Name, now: Nanos) -> bool {
        let kept = |p: &Place| now.saturating_sub(p.at) <= KEPT;
        let its = |p: &Place| p.name.is_kin(name) || p.name.is_started_alike(name);
        self.left.iter().any(|p| its(p) && kept(p))
    }

    /// The place that a thread of this `name` takes, which is offered for the first time; nobody else
    /// takes it then.
    pub fn take(&mut self, name: Name, now: Nanos) -> Option<Place> {
        while self
            .left
            .front()
            .is_some_and(|p| now.saturating_sub(p.at) > KEPT)
        {
            self.left.pop_front();
        }
        let find = |its: &dyn Fn(Name) -> bool| self.left.iter().position(|p| its(p.name));
        let place = find(&|other| other == name)
            .or_else(|| find(&|other| other.is_started_alike(name)))
            // compilers have other arguments each time
            .or_else(|| find(&|other| other.is_kin(name)))?;
        self.left.remove(place)
    }

    /// Keeps the seats of those whose end was seen less than a `period` before this decision, at `now`,
    /// and whose successors are not here yet: of the threads that would come to such a core type from
    /// another one, beyond those that leave it, as many stay where they are. `placed` is where a
    /// thread is.
    pub fn hold(
        &self,
        (now, period): (Nanos, Nanos),
        placed: &dyn Fn(ThreadKey) -> Option<CoreTypeId>,
        decided: &mut Placement,
    ) {
        let mut kept = [0i32; MAX_CORE_TYPES];
        let lately = |p: &&Place| p.at == now || now.saturating_sub(p.at) < period;
        for seat in self.left.iter().rev().take_while(lately) {
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
        let program = ProgramName::any([comm; 16]);
        Name { program, leads }
    }

    fn key(slot: u32) -> ThreadKey {
        ThreadKey {
            slot,
            generation: 1,
        }
    }

    const NONE: Untold = Untold {
        ran: [Nanos::ZERO; MAX_CORE_TYPES],
        unrated: Unrated {
            time: Nanos::ZERO,
            ran: [Nanos::ZERO; MAX_CORE_TYPES],
        },
    };

    /// A thread, and the process that it is.
    fn of(slot: u32) -> (ThreadKey, AppId) {
        (key(slot), AppId(100 + u64::from(slot)))
    }

    fn next(s: &mut Succession, name: Name, now: Nanos) -> Option<ThreadKey> {
        s.take(name, now).map(|p| p.key)
    }

    #[test]
    fn a_place_is_taken_once_by_one_of_its_name_and_soon() {
        let mut s = Succession::default();
        let at = Nanos::from_millis;
        s.leaves(name(1, true), of(1), None, NONE, at(0));
        s.leaves(name(2, true), of(2), None, NONE, at(100));
        s.leaves(name(2, true), of(3), None, NONE, at(200));
        s.leaves(name(2, false), of(4), None, NONE, at(200));
        assert_eq!(next(&mut s, name(2, true), at(300)), Some(key(2)));
        assert_eq!(next(&mut s, name(3, true), at(300)), None);
        assert_eq!(next(&mut s, name(2, true), at(300)), Some(key(3)));
        assert_eq!(next(&mut s, name(2, true), at(300)), None);
        assert_eq!(next(&mut s, name(1, true), at(1001)), None, "too late");
        assert_eq!(next(&mut s, name(2, false), at(1001)), Some(key(4)));
        for n in 0..10_000 {
            s.leaves(name(1, true), of(n), None, NONE, at(2000));
        }
        assert_eq!(s.left.len(), MOST);
    }

    /// Of two scripts of one interpreter each takes its own place; a third one takes what is left.
    #[test]
    fn those_of_the_same_arguments_go_first() {
        let mut s = Succession::default();
        let at = Nanos::from_millis;
        let script = |arguments| {
            let comm = [1; 16];
            let program = ProgramName { comm, arguments };
            Name {
                program,
                leads: true,
            }
        };
        s.leaves(script(1), of(1), None, NONE, at(0));
        s.leaves(script(2), of(2), None, NONE, at(0));
        s.leaves(script(3), of(3), None, NONE, at(0));
        assert_eq!(next(&mut s, script(2), at(1)), Some(key(2)));
        assert_eq!(next(&mut s, script(3), at(1)), Some(key(3)));
        assert_eq!(next(&mut s, script(4), at(1)), Some(key(1)));
        assert_eq!(next(&mut s, script(1), at(1)), None);
    }

    /// A program that has another command name once it runs is known by its arguments at its start; a
    /// first thread's place is not for the other threads of a process.
    #[test]
    fn a_program_that_renames_itself_is_known_by_its_arguments() {
        let mut s = Succession::default();
        let at = Nanos::from_millis;
        let called = |comm, arguments, leads| {
            let comm = [comm; 16];
            let program = ProgramName { comm, arguments };
            Name { program, leads }
        };
        s.leaves(called(2, 7, true), of(1), None, NONE, at(0));
        s.leaves(called(1, 9, true), of(2), None, NONE, at(0));
        assert!(s.expects(called(1, 7, true), at(1)));
        assert!(!s.expects(called(3, 7, false), at(1)));
        assert!(!s.expects(called(3, 8, true), at(1)));
        assert_eq!(next(&mut s, called(1, 7, true), at(1)), Some(key(1)));
        // what is not known is not alike
        for unknown in [0, 1] {
            s.leaves(called(4, unknown, true), of(3), None, NONE, at(1));
            assert!(!s.expects(called(5, unknown, true), at(1)));
            assert_eq!(next(&mut s, called(5, unknown, true), at(1)), None);
        }
    }

    #[test]
    fn what_nobody_was_told_of_goes_to_the_next_run_and_is_told_once() {
        let mut s = Succession::default();
        let at = Nanos::from_millis;
        let ran = |fast, slow| {
            let mut ran = NONE.ran;
            (ran[0], ran[1]) = (at(fast), at(slow));
            ran
        };
        let left = |ran| Untold { ran, ..NONE };
        s.leaves(name(1, true), of(1), None, left(ran(70, 5)), at(100));
        // one that nobody has seen came and went before the next one
        s.passes(name(1, true), &ran(0, 12), at(160));
        s.passes(name(2, true), &ran(0, 9), at(160));
        let place = s.take(name(1, true), at(200)).unwrap();
        assert_eq!((place.key, place.app), of(1));
        assert_eq!(place.untold, left(ran(70, 17)));
        assert_eq!(s.take(name(1, true), at(200)), None);
        assert_eq!(s.take(name(2, true), at(200)), None, "nobody's place");
        // a place lasts from the last run on
        s.leaves(name(1, true), of(3), None, NONE, at(1000));
        s.passes(name(1, true), &ran(1, 0), at(1900));
        assert_eq!(next(&mut s, name(1, true), at(2800)), Some(key(3)));
    }

    #[test]
    fn a_seat_is_kept_for_an_interval() {
        let (fast, slow) = (CoreTypeId(0), CoreTypeId(1));
        let at = Nanos::from_millis;
        let mut s = Succession::default();
        s.leaves(name(1, true), of(1), Some(fast), NONE, at(100));
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
            s.hold((at(ms), at(100)), &placed, &mut p);
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
        // and at an early decision, too
        assert_eq!(after(&s, 112, &[(2, fast)]), [(2, Some(slow))]);
        assert_eq!(after(&s, 199, &[(2, fast)]), [(2, Some(slow))]);
        // an interval later it is free, and so it is once somebody has it
        assert_eq!(after(&s, 200, &[(2, fast)]), [(2, Some(fast))]);
        assert_eq!(next(&mut s, name(1, true), at(100)), Some(key(1)));
        assert_eq!(after(&s, 100, &[(2, fast)]), [(2, Some(fast))]);
    }
}
