//! Of whom moves are believed in place of the model: one thread after the other.

use crate::ids::{Nanos, ThreadKey};
use crate::providers::threads::Threads;
use crate::sample::{ProgramName, Snapshot};

/// How long it takes from one turn to the next, at least and at most.
const APART: [Nanos; 2] = [Nanos::from_millis(400), Nanos::from_millis(1000)];
/// CPU time on a fast core of whoever had the last turn, in units of 100 ms, after which those that it left behind have shown whether
/// they do better without it.
const LEFT: f64 = 4.0;
/// CPU time of a thread, in units of 100 ms, after which it is seen what it does, and not only what others of its program did.
const SEEN: f64 = 2.0;
/// The same on a fast core, after which it has its seat there: a trial takes half of that where an interval is 100 ms.
const SEAT: f64 = 2.0;
/// For how long a thread keeps its turn while there is nothing to believe: a model may be right of it on the one core type and wrong
/// on the other.
const KEPT: Nanos = Nanos::from_millis(2000);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Turn {
    /// It has not been counted yet: what others of its program showed is believed where nobody who gains by it is on a fast core.
    #[default]
    New,
    /// There is nothing to believe, or its turn has not come.
    Waits,
    Believed {
        /// When there was something to believe last.
        at: Nanos,
        /// Whether it gains more than the model says.
        gains: bool,
    },
}

/// Who waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    thread: ThreadKey,
    /// Logarithm of what moves show over what the model says.
    more: f64,
    /// Whether it has shown what it does.
    seen: bool,
}

/// Who is believed.
///
/// What moves show of a thread was measured beside others. Two that take each other's cache gain much from a fast core, each of them as
/// long as the other is beside it: were both sent there at once, they would have both fast cores for a gain that was one's leaving the
/// other. So only one at a time is; what that shows of the others is in their rates before it is their turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// With the program that they run: an exec makes a thread another one.
    threads: Threads<(ProgramName, Turn)>,
    waiting: Vec<Waiting>,
    /// How many gain more than the model says, are believed and ran on a fast core in this interval.
    there: u32,
    /// Whose turn came last, and when.
    last: Option<(ThreadKey, Nanos)>,
    /// Whether that one has come to a fast core lately.
    coming: bool,
    now: Nanos,
}

impl Turns {
    /// Begins an interval.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        let threads = &mut self.threads;
        threads.keep(snapshot, |t| (t.program(), Turn::New));
        for t in &snapshot.threads {
            match threads.get_mut(t.key) {
                Some(turn) if turn.0 != t.program() => *turn = (t.program(), Turn::New),
                _ => {}
            }
        }
        self.waiting.clear();
        (self.there, self.coming) = (0, false);
        self.now = snapshot.now;
    }

    /// A thread ran in this interval. `more`: the logarithm of what moves show over what the model says, where that is to be believed;
    /// `units`: CPU time of the thread, in units of 100 ms; `fast`: that since it came to the fastest core type, if it is there.
    pub fn claim(&mut self, thread: ThreadKey, fast: Option<f64>, more: Option<f64>, units: f64) {
        let Some((_, turn)) = self.threads.get_mut(thread) else {
            return;
        };
        let now = self.now;
        let believed = |more: f64| Turn::Believed {
            at: now,
            gains: more > 0.0,
        };
        match (more, *turn) {
            (None, Turn::Believed { at, .. }) if now.saturating_sub(at) < KEPT => {}
            (None, _) => *turn = Turn::Waits,
            (Some(more), Turn::Believed { .. }) => *turn = believed(more),
            // nobody is left behind by it
            (Some(more), _) if more <= 0.0 || fast.is_some_and(|stay| stay >= SEAT) => {
                *turn = believed(more);
            }
            (Some(more), _) => {
                *turn = Turn::Waits;
                let seen = units >= SEEN;
                self.waiting.push(Waiting { thread, more, seen });
            }
        }
        let gains = matches!(turn, Turn::Believed { gains: true, .. });
        if let Some(stay) = fast.filter(|_| gains) {
            self.there += 1;
            let latest = self.last.is_some_and(|(last, _)| last == thread);
            self.coming |= latest && stay < LEFT;
        }
    }

    /// All who ran have been heard: whose turn it is.
    pub fn next(&mut self) {
        if !self.is_next() {
            return;
        }
        let all = self.there == 0 || self.passed() >= APART[1];
        let may = |w: &&Waiting| {
            let waits = |(_, turn): &(ProgramName, Turn)| *turn == Turn::Waits;
            (w.seen || all) && self.threads.get(w.thread).is_some_and(waits)
        };
        let may = self.waiting.iter().filter(may);
        let most = may.max_by(|a, b| (a.more.total_cmp(&b.more)).then(b.thread.cmp(&a.thread)));
        if let Some(thread) = most.map(|w| w.thread) {
            self.give(thread);
        }
    }

    /// An earlier run of the scheduler remembers that a thread's program gains more than the model says.
    pub fn recall(&mut self, thread: ThreadKey) {
        let believed = |(_, turn): &(ProgramName, Turn)| matches!(turn, Turn::Believed { .. });
        if self.is_next() && !self.threads.get(thread).is_some_and(believed) {
            self.give(thread);
        }
    }

    fn give(&mut self, thread: ThreadKey) {
        if let Some((_, turn)) = self.threads.get_mut(thread) {
            *turn = Turn::Believed {
                at: self.now,
                gains: true,
            };
            self.last = Some((thread, self.now));
        }
    }

    /// Since somebody's turn came last.
    fn passed(&self) -> Nanos {
        let since = |(_, at): (ThreadKey, Nanos)| self.now.saturating_sub(at);
        self.last.map_or(Nanos(u64::MAX), since)
    }

    /// Whether somebody's turn may come.
    fn is_next(&self) -> bool {
        let [least, most] = APART;
        let passed = self.passed();
        passed >= most || passed >= least && !self.coming
    }

    /// Whether what moves show of a thread is believed.
    pub fn is_believed(&self, thread: ThreadKey) -> bool {
        match self.threads.get(thread).map(|(_, turn)| turn) {
            Some(Turn::Believed { .. }) => true,
            Some(Turn::New) | None => self.there == 0,
            Some(Turn::Waits) => false,
        }
    }
}
