//! Of whom moves are believed in place of the model: one thread after the other.

use crate::ids::{Nanos, ThreadKey};
use crate::providers::threads::Threads;
use crate::sample::Snapshot;

/// How long the next one waits, at least and at most.
const APART: [Nanos; 2] = [Nanos::from_millis(400), Nanos::from_millis(1000)];
/// CPU time on a fast core of one who is believed, in units of 100 ms, after which those that it left behind have shown whether they do
/// better without it.
const LEFT: f64 = 4.0;
/// CPU time of a thread, in units of 100 ms, after which it is seen what it does, and not only what others of its program did.
const SEEN: f64 = 2.0;
/// The same on a fast core, after which it has its seat there: a trial takes half of that.
const SEAT: f64 = 2.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It has not been counted yet: what others of its program showed is believed where nobody believed is on a fast core.
    #[default]
    New,
    /// There is nothing to believe, or its turn has not come.
    Waits,
    Believed,
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
    threads: Threads<Turn>,
    waiting: Vec<Waiting>,
    /// Who is believed and ran on a fast core in this interval.
    there: u32,
    /// Whether one of them has come lately.
    coming: bool,
    /// When somebody's turn came last.
    last: Option<Nanos>,
    now: Nanos,
}

impl Turns {
    /// Begins an interval.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        self.threads.keep(snapshot, |_| Turn::default());
        self.waiting.clear();
        (self.there, self.coming) = (0, false);
    }

    /// A thread ran in this interval. `more`: the logarithm of what moves show over what the model says, where that is to be believed;
    /// `units`: CPU time of the thread, in units of 100 ms; `fast`: that since it came to the fastest core type, if it is there.
    pub fn claim(&mut self, thread: ThreadKey, fast: Option<f64>, more: Option<f64>, units: f64) {
        let Some(turn) = self.threads.get_mut(thread) else {
            return;
        };
        match more {
            None => *turn = Turn::Waits,
            Some(_) if *turn == Turn::Believed => {}
            // nobody is left behind by it
            Some(more) if more <= 0.0 || fast.is_some_and(|stay| stay >= SEAT) => {
                *turn = Turn::Believed
            }
            Some(more) => {
                *turn = Turn::Waits;
                let seen = units >= SEEN;
                self.waiting.push(Waiting { thread, more, seen });
            }
        }
        if let Some(stay) = fast.filter(|_| *turn == Turn::Believed) {
            self.there += 1;
            self.coming |= stay < LEFT;
        }
    }

    /// All who ran have been heard: whose turn it is.
    pub fn next(&mut self, now: Nanos) {
        self.now = now;
        if !self.is_next() {
            return;
        }
        let alone = self.there == 0;
        let may = self.waiting.iter().filter(|w| w.seen || alone);
        let most = may.max_by(|a, b| (a.more.total_cmp(&b.more)).then(b.thread.cmp(&a.thread)));
        if let Some(turn) = most.and_then(|w| self.threads.get_mut(w.thread)) {
            *turn = Turn::Believed;
            self.last = Some(now);
        }
    }

    /// An earlier run of the scheduler remembers what moves have shown of a thread's program.
    pub fn recall(&mut self, thread: ThreadKey) {
        let next = self.is_next();
        let turn = self.threads.get_mut(thread);
        if let Some(turn) = turn.filter(|t| next && **t != Turn::Believed) {
            *turn = Turn::Believed;
            self.last = Some(self.now);
        }
    }

    /// Whether somebody's turn may come.
    fn is_next(&self) -> bool {
        let [least, most] = APART;
        let soon = |last: Nanos| {
            let passed = self.now.saturating_sub(last);
            passed < least || self.coming && passed < most
        };
        !self.last.is_some_and(soon)
    }

    /// Whether what moves show of a thread is believed.
    pub fn is_believed(&self, thread: ThreadKey) -> bool {
        match self.threads.get(thread) {
            Some(Turn::Believed) => true,
            Some(Turn::New) | None => self.there == 0,
            Some(Turn::Waits) => false,
        }
    }
}
