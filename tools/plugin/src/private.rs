//! What a core has to itself: its L1, and which lines it may store to without asking anybody.
//!
//! Its own thread looks here without a lock, while others' stores take lines away. Two cores that
//! both think that a line is theirs alone would never ask the directory again, so:
//!
//! - what decides (`owned`, L1) goes before what is only remembered of it (`last_line`,
//!   `last_owned`): a core that still found the line has what it remembered of it wiped out
//!   afterwards;
//! - what it remembered may yet reach memory after that, for a fence per access is more than the
//!   host can give. So each core asks the directory now and then about the line that it used last
//!   ([`Private::recheck`]), and goes on wrongly for as long as that at most.

use crate::cache::{Tags, L1};
use std::sync::atomic::{fence, AtomicU64, Ordering::*};

/// A line that no access is to.
pub const NO_LINE: u64 = u64::MAX;

/// A core's caches and what it remembers of them.
#[derive(Debug)]
#[repr(C)]
pub struct Private {
    /// Virtual line last accessed; another core that takes the line away puts [`NO_LINE`] here.
    last_line: AtomicU64,
    /// The same line when it may be stored to.
    last_owned: AtomicU64,
    l1: L1,
    /// Lines in `l1` that this core has stored to since anybody else asked for them: some of them,
    /// without asking the directory.
    owned: Tags,
}

/// What L1 could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The line that had to go for a line that was not there (0 for none); `None` when it was
    /// there.
    pub victim: Option<u64>,
}

impl Private {
    /// An empty L1 of `sets` (a power of two) times `ways` lines.
    pub fn new(sets: usize, ways: usize) -> Private {
        Private {
            last_line: AtomicU64::new(NO_LINE),
            last_owned: AtomicU64::new(NO_LINE),
            l1: L1::new(sets, ways),
            owned: Tags::default(),
        }
    }

    /// Whether a load from virtual line `line` needs nothing else.
    #[inline]
    pub fn may_load(&self, line: u64) -> bool {
        line == self.last_line.load(Relaxed)
    }

    /// Whether a store to virtual line `line` needs nothing else.
    #[inline]
    pub fn may_store(&self, line: u64) -> bool {
        line == self.last_owned.load(Relaxed)
    }

    /// An access to virtual line `line`, known as `tag`, if it changes nothing but what was used
    /// last, as most do; else `false`, and [`Private::access`] is to do it.
    #[inline]
    pub fn quick(&self, line: u64, tag: u64, store: bool) -> bool {
        self.last_line.store(line, Relaxed);
        // before it is looked at
        self.last_owned.store(line, Relaxed);
        // after a load from a line of its own, a store to it is nothing new
        let owned = self.owned.has(tag);
        if !owned {
            self.last_owned.store(NO_LINE, Relaxed);
        }
        self.l1.is_first(tag) && (owned || !store)
    }

    /// An access to virtual line `line`, known as `tag`; `None` when that is all.
    #[inline]
    pub fn access(&self, line: u64, tag: u64, store: bool) -> Option<Question> {
        self.last_line.store(line, Relaxed);
        self.last_owned.store(line, Relaxed);
        let owned = self.owned.has(tag);
        let victim = self.l1.access(tag);
        let asks = victim.is_some() || store && !owned;
        if !store && (asks || !owned) {
            self.last_owned.store(NO_LINE, Relaxed);
        }
        asks.then_some(Question { victim })
    }

    /// The directory is about to be asked: whoever takes the line from now on takes it out here,
    /// too.
    #[inline]
    pub fn ask(&self, tag: u64, store: bool) {
        if store {
            self.owned.put(tag);
        } else {
            self.owned.remove(tag);
        }
    }

    /// The line that was just accessed may not stay.
    pub fn reject(&self, tag: u64, q: Question) {
        self.owned.remove(tag);
        match q.victim {
            Some(victim) => self.l1.undo(tag, victim),
            None => drop(self.l1.remove(tag)),
        }
        self.forget();
    }

    /// Lines have other addresses from now on.
    pub fn forget(&self) {
        self.last_line.store(NO_LINE, Relaxed);
        self.last_owned.store(NO_LINE, Relaxed);
    }

    /// Another core loads the line: it may no longer be stored to without asking. Whether it is
    /// here.
    pub fn share(&self, tag: u64) -> bool {
        self.owned.remove(tag);
        fence(SeqCst);
        self.last_owned.store(NO_LINE, Relaxed);
        self.l1.has(tag)
    }

    /// Another core stores to the line: it goes. Whether it was here.
    pub fn take(&self, tag: u64) -> bool {
        let had = self.l1.remove(tag);
        self.owned.remove(tag);
        fence(SeqCst);
        self.forget();
        had
    }

    /// Asks again about the line that was used last. `known` gives for its virtual line the tag,
    /// and whether, by the directory, the core may have it and may store to it. Changes nothing
    /// when all is well.
    pub fn recheck(&self, known: impl FnOnce(u64) -> (u64, bool, bool)) {
        let line = self.last_line.load(Relaxed);
        if line == NO_LINE {
            return;
        }
        self.forget();
        let (tag, has, owns) = known(line);
        if !owns {
            self.owned.remove(tag);
        }
        if !has {
            self.l1.remove(tag);
        }
    }
}

#[cfg(test)]
impl Private {
    /// Whether L1 has the line.
    pub fn has(&self, tag: u64) -> bool {
        self.l1.has(tag)
    }
}
