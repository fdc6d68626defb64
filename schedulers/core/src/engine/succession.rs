//! Programs that are run again: which thread goes on in the place of one that has ended.
//!
//! A shell loop, `make`, a bench: the next process of a program does what the last one did. To a
//! policy that evens things out it would be a newcomer each time, behind everybody who was there
//! before; a program of short runs never gets its share like that. So a thread of the same name
//! that comes soon after goes on where the other one was: with what it is owed, and with what it
//! owes.

use amp_metrics::{Nanos, ThreadKey};
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

/// The places of threads that have ended, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Succession {
    left: VecDeque<(Nanos, Name, ThreadKey)>,
}

impl Succession {
    /// Thread `key` has ended.
    pub fn leaves(&mut self, name: Name, key: ThreadKey, now: Nanos) {
        if self.left.len() >= MOST {
            self.left.pop_front();
        }
        self.left.push_back((now, name, key));
    }

    /// Whose place a thread of this `name`, which is offered for the first time, takes; nobody else
    /// takes it then.
    pub fn succeeds(&mut self, name: Name, now: Nanos) -> Option<ThreadKey> {
        while self
            .left
            .front()
            .is_some_and(|(at, ..)| now.saturating_sub(*at) > KEPT)
        {
            self.left.pop_front();
        }
        let place = self.left.iter().position(|(_, n, _)| *n == name)?;
        self.left.remove(place).map(|(_, _, key)| key)
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
        s.leaves(name(1, true), key(1), at(0));
        s.leaves(name(2, true), key(2), at(100));
        s.leaves(name(2, true), key(3), at(200));
        s.leaves(name(2, false), key(4), at(200));
        assert_eq!(s.succeeds(name(2, true), at(300)), Some(key(2)));
        assert_eq!(s.succeeds(name(3, true), at(300)), None);
        assert_eq!(s.succeeds(name(2, true), at(300)), Some(key(3)));
        assert_eq!(s.succeeds(name(2, true), at(300)), None);
        assert_eq!(s.succeeds(name(1, true), at(1001)), None, "too late");
        assert_eq!(s.succeeds(name(2, false), at(1001)), Some(key(4)));
        for n in 0..10_000 {
            s.leaves(name(1, true), key(n), at(2000));
        }
        assert_eq!(s.left.len(), MOST);
    }
}
