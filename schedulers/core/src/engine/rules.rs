//! Rules: what the user has decided about single threads, whatever the policy thinks.
//!
//! - [`Rule::place`] false: the policy does not see the thread. The mechanism lets it run anywhere.
//! - [`Rule::weight`]: the weight that the policy sees. The mechanism goes by the thread's own.
//! - [`Rule::never_fast`]: the fastest core type is not among those that the policy may place it
//!   on, unless its affinity allows no other. It holds for a thread that rests, too.
//! - [`Rule::prefer`]: laid over the policy's decision. A thread that prefers fast cores changes
//!   places with one that does not, and a thread that prefers slow ones with one that does not
//!   mind. As many threads are on each core type as the policy has decided, and affinity holds for
//!   both.
//! - [`Rule::slowdown`]: a bound. While the thread is slowed down by more, it prefers fast cores,
//!   whatever it prefers otherwise.
//!
//! The policy sees what threads did, and where, as it really was. A policy that shares fast cores
//! goes on trying to take them from a thread that prefers them, and has no success.
//!
//! The mechanism stays as it is: a core that would be idle takes a thread that waits for another
//! core type, a thread that is never to be on a fast core included.

use crate::done::Done;
use crate::machine::{Placement, Topology};
use crate::view::ThreadView;
use amp_metrics::{CoreTypeId, CoreTypeSet, Nanos, ThreadKey, ThreadSample, MAX_CORE_TYPES};
use rustc_hash::FxHashMap;
use std::fmt;

/// Where a thread would rather be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefer {
    /// On slow cores.
    Slow,
    /// Wherever the policy wants it.
    #[default]
    Any,
    /// On fast cores.
    Fast,
}

/// What the user has decided about a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Number of the rule in its file, from 1.
    pub number: u32,
    /// Where it would rather be.
    pub prefer: Prefer,
    /// Never placed on the fastest core type.
    pub never_fast: bool,
    /// Weight, 1 to 10,000, 100 = default; `None` leaves its own.
    pub weight: Option<u32>,
    /// The most it may be slowed down, as a ratio from 1: the time it takes, by the time it would take with all fast cores
    /// for itself. That is what core types are to blame for, over the last [`SLOWDOWN_OVER`] of its CPU time, as far as its
    /// speedup factor is known.
    pub slowdown: Option<f64>,
    /// Whether it is placed at all.
    pub place: bool,
}

/// CPU time of a thread over which its slowdown is held against its bound: what is older counts less and less.
pub const SLOWDOWN_OVER: Nanos = Nanos::from_secs(10);

impl Rule {
    /// Where a thread that has done `lately` would rather be.
    pub(super) fn prefers(&self, lately: &Done) -> Prefer {
        let late = |bound: f64| lately.rated > bound * lately.alone;
        match self.slowdown.is_some_and(late) {
            true => Prefer::Fast,
            false => self.prefer,
        }
    }
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            number: 0,
            prefer: Prefer::Any,
            never_fast: false,
            weight: None,
            slowdown: None,
            place: true,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.number)?;
        match self.prefer {
            Prefer::Fast => write!(f, " prefer fast")?,
            Prefer::Slow => write!(f, " prefer slow")?,
            Prefer::Any => {}
        }
        if self.never_fast {
            write!(f, " never fast")?;
        }
        if let Some(w) = self.weight {
            write!(f, " weight {w}")?;
        }
        if let Some(s) = self.slowdown {
            write!(f, " slowdown {s}")?;
        }
        if !self.place {
            write!(f, " not placed")?;
        }
        Ok(())
    }
}

/// Knows which rule holds for which thread.
pub trait Rulebook: Send {
    /// A tick begins, at `now`.
    fn begin(&mut self, now: Nanos);

    /// The rule for `thread`; `None` when the policy alone decides. Asked once per tick and thread.
    fn rule(&mut self, thread: &ThreadSample) -> Option<Rule>;
}

/// The core types out of `allowed` that `rule` leaves; never none where there were some.
pub(super) fn allowed(rule: &Rule, allowed: CoreTypeSet) -> CoreTypeSet {
    let slower = CoreTypeSet::from_bits(u8::MAX << 1).intersection(allowed);
    if rule.never_fast && slower != CoreTypeSet::EMPTY {
        slower
    } else {
        allowed
    }
}

/// The fastest of these core types.
pub(super) fn fastest(of: CoreTypeSet) -> Option<CoreTypeId> {
    (0..MAX_CORE_TYPES as u8)
        .map(CoreTypeId)
        .find(|t| of.contains(*t))
}

/// Lays preferences over the policy's decision. Keeps its buffers from decision to decision.
#[derive(Debug, Default)]
pub(super) struct Preferences {
    to: Vec<Option<CoreTypeId>>,
    /// Who has changed places.
    moved: Vec<bool>,
    old: Vec<(ThreadKey, Option<CoreTypeId>)>,
    index: FxHashMap<ThreadKey, usize>,
    /// Per core type: who may be asked to leave it.
    donors: Vec<Vec<usize>>,
}

impl Preferences {
    /// Has threads change places by what they prefer; `prefer` is theirs, in the order of
    /// `offered`.
    pub fn lay_over(
        &mut self,
        topology: &Topology,
        offered: &[ThreadView],
        prefer: &[Prefer],
        decided: &mut Placement,
    ) {
        if prefer.iter().all(|p| *p == Prefer::Any) {
            return;
        }
        self.index.clear();
        self.index
            .extend(offered.iter().enumerate().map(|(i, t)| (t.key, i)));
        self.to.clear();
        self.to.extend(offered.iter().map(|t| t.placed));
        for (key, to) in decided.iter() {
            if let Some(i) = self.index.get(&key) {
                self.to[*i] = to;
            }
        }
        let types = topology.core_types().len();
        let up: Vec<usize> = (0..types).collect();
        let down: Vec<usize> = (0..types).rev().collect();
        self.moved.clear();
        self.moved.resize(offered.len(), false);
        self.pass(Prefer::Fast, &up, offered, prefer);
        self.pass(Prefer::Slow, &down, offered, prefer);
        self.old.clear();
        self.old.extend(decided.iter());
        decided.clear();
        let mut place = |key, to| match to {
            Some(t) => decided.place(key, t),
            None => decided.release(key),
        };
        for (key, to) in &self.old {
            let moved = self.index.get(key).copied().filter(|i| self.moved[*i]);
            match moved {
                Some(i) => {
                    self.moved[i] = false;
                    place(*key, self.to[i]);
                }
                None => place(*key, *to),
            }
        }
        // those on whom the policy has decided nothing
        for (i, th) in offered.iter().enumerate().filter(|(i, _)| self.moved[*i]) {
            place(th.key, self.to[i]);
        }
    }

    /// Threads that prefer `what` get places on the core types that come first in `order`, from
    /// threads that prefer it less.
    fn pass(&mut self, what: Prefer, order: &[usize], offered: &[ThreadView], prefer: &[Prefer]) {
        if !prefer.contains(&what) {
            return;
        }
        // how little a thread minds leaving; whoever prefers `what` too is not asked
        let minds = |i: usize| match (what, prefer[i]) {
            (Prefer::Slow, Prefer::Fast) | (Prefer::Fast, Prefer::Slow) => 0,
            _ => 1,
        };
        self.donors.clear();
        self.donors.resize(order.len(), Vec::new());
        for (i, to) in self.to.iter().enumerate() {
            if let (Some(t), true) = (to, prefer[i] != what) {
                if let Some(d) = self.donors.get_mut(t.index()) {
                    d.push(i);
                }
            }
        }
        for (t, donors) in self.donors.iter_mut().enumerate() {
            // last is asked first: who minds least, then who is only about to come here, so that
            // the same threads stay where they are from decision to decision
            donors.sort_by_key(|i| {
                let here = offered[*i].placed.is_some_and(|p| p.index() == t);
                std::cmp::Reverse((minds(*i), here))
            });
        }
        // whoever is there already goes first, for the same reason
        let mut wanting: Vec<usize> = (0..offered.len()).filter(|i| prefer[*i] == what).collect();
        let rank = |t: Option<CoreTypeId>| {
            let place = t.and_then(|t| order.iter().position(|o| *o == t.index()));
            place.unwrap_or(usize::MAX)
        };
        wanting.sort_by_key(|i| rank(offered[*i].placed));
        for i in wanting {
            let Some(from) = self.to[i] else { continue };
            let better = order.iter().take_while(|t| **t != from.index());
            for t in better {
                let there = CoreTypeId(*t as u8); // at most MAX_CORE_TYPES
                if !offered[i].allowed.contains(there) {
                    continue;
                }
                let Some(donors) = self.donors.get_mut(*t) else {
                    continue;
                };
                let Some(at) = donors
                    .iter()
                    .rposition(|j| offered[*j].allowed.contains(from))
                else {
                    continue;
                };
                let j = donors.remove(at);
                (self.to[i], self.to[j]) = (Some(there), Some(from));
                (self.moved[i], self.moved[j]) = (true, true);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
