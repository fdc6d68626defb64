//! Programs of several threads that have one of the performance patterns of \[VAL\], and twins of
//! theirs that do the same work without it.
//!
//! | program | pattern | its twin |
//! |---|---|---|
//! | `load`, `store`, `copy`, `triad`, `vtriad`, `dot` | bandwidth saturation, with enough threads over memory | the same in a cache (`--size`), or on one thread |
//! | `triangle` | load imbalance: the rows of a triangular matrix in halves, so that the first thread has most of them | `triangle-even`: each gets long rows and short ones |
//! | `counters`, `histogram` | false sharing: what each thread counts in lies beside what the others do | `counters-apart`, `histogram-apart` |
//! | `handoff` | true sharing: one thread writes lines, the next reads them | `handoff-apart`: each its own lines |
//!
//! The work is given in rounds; results depend on program, threads, rounds and size only.

mod sharing;
pub mod streams;
mod triangle;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Each thread walks arrays of its own.
    Stream(streams::Kind),
    /// Upper triangular matrix times vector.
    Triangle {
        /// Whether all threads get the same work.
        even: bool,
    },
    /// Each thread adds to a counter of its own.
    Counters {
        /// Whether no two share a line.
        apart: bool,
    },
    /// Each thread sorts numbers of its own into bins of its own.
    Histogram {
        /// Whether no two threads' bins share a line.
        apart: bool,
    },
    /// Threads write lines for the next one to read.
    Handoff {
        /// Whether each reads its own lines instead.
        apart: bool,
    },
}

/// Every program with its name and the size of its data when nothing is said, bytes per thread
/// (`triangle`: of the matrix).
pub const PROGRAMS: [(&str, Program, u64); 14] = [
    ("load", Program::Stream(streams::Kind::Load), 16 << 20),
    ("store", Program::Stream(streams::Kind::Store), 16 << 20),
    ("copy", Program::Stream(streams::Kind::Copy), 16 << 20),
    ("triad", Program::Stream(streams::Kind::Triad), 16 << 20),
    (
        "vtriad",
        Program::Stream(streams::Kind::VectorTriad),
        16 << 20,
    ),
    ("dot", Program::Stream(streams::Kind::Dot), 16 << 20),
    ("triangle", Program::Triangle { even: false }, 512 << 10),
    ("triangle-even", Program::Triangle { even: true }, 512 << 10),
    ("counters", Program::Counters { apart: false }, 0),
    ("counters-apart", Program::Counters { apart: true }, 0),
    ("histogram", Program::Histogram { apart: false }, 8 << 10),
    (
        "histogram-apart",
        Program::Histogram { apart: true },
        8 << 10,
    ),
    ("handoff", Program::Handoff { apart: false }, 4 << 10),
    ("handoff-apart", Program::Handoff { apart: true }, 4 << 10),
];

/// How a thread waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It looks again and again.
    Spin,
    /// It sleeps.
    Sleep,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The program.
    pub program: Program,
    /// Threads, at least 1.
    pub threads: usize,
    /// Rounds: passes over the data, steps, or thousands of additions to a counter.
    pub rounds: u64,
    /// Bytes of data, see [`PROGRAMS`].
    pub size: u64,
    /// How threads wait for each other.
    pub wait: Wait,
}

impl Work {
    /// Does it, with `begin` called first on each thread, by number. A digest of the result.
    pub fn run(&self, begin: impl Fn(usize) + Sync) -> u64 {
        let threads = self.threads.max(1);
        match self.program {
            Program::Stream(kind) => streams::run(kind, threads, self, &begin),
            Program::Triangle { even } => triangle::run(even, threads, self, &begin),
            Program::Counters { apart } => sharing::counters(apart, threads, self, &begin),
            Program::Histogram { apart } => sharing::histogram(apart, threads, self, &begin),
            Program::Handoff { apart } => sharing::handoff(apart, threads, self, &begin),
        }
    }
}

/// Runs `body` on so many threads and folds what they return.
fn on_threads(n: usize, body: impl Fn(usize) -> u64 + Sync) -> u64 {
    let body = &body;
    std::thread::scope(|s| {
        let all: Vec<_> = (1..n).map(|t| s.spawn(move || body(t))).collect();
        let first = body(0);
        all.into_iter().fold(first, |sum, t| {
            // a thread that panics has said so
            sum.rotate_left(7) ^ t.join().unwrap_or(0)
        })
    })
}

/// A place where threads wait for each other.
struct Meeting {
    threads: usize,
    arrived: Apart<AtomicUsize>,
    turn: Apart<AtomicUsize>,
    barrier: Option<Barrier>,
}

/// Something on cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

impl Meeting {
    fn new(threads: usize, wait: Wait) -> Meeting {
        Meeting {
            threads,
            arrived: Apart(AtomicUsize::new(0)),
            turn: Apart(AtomicUsize::new(0)),
            barrier: (wait == Wait::Sleep).then(|| Barrier::new(threads)),
        }
    }

    fn wait(&self) {
        if let Some(b) = &self.barrier {
            b.wait();
            return;
        }
        let turn = self.turn.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.turn.0.store(turn + 1, Ordering::Release);
        } else {
            while self.turn.0.load(Ordering::Acquire) == turn {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(name: &str, threads: usize, wait: Wait) -> u64 {
        let (_, program, size) = PROGRAMS.into_iter().find(|p| p.0 == name).unwrap();
        let begun = AtomicUsize::new(0);
        let work = Work {
            program,
            threads,
            rounds: 3,
            size: size.min(64 << 10),
            wait,
        };
        let digest = work.run(|_| {
            begun.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(begun.into_inner(), threads, "{name}");
        digest
    }

    #[test]
    fn results_do_not_depend_on_how_threads_wait_or_where_data_lies() {
        for (name, ..) in PROGRAMS {
            for threads in [1, 2, 3] {
                let spun = digest(name, threads, Wait::Spin);
                assert_eq!(spun, digest(name, threads, Wait::Sleep), "{name} {threads}");
                let twin = [format!("{name}-apart"), format!("{name}-even")];
                if let Some((t, ..)) = PROGRAMS.iter().find(|p| twin.iter().any(|t| t == p.0)) {
                    if *t != "handoff-apart" {
                        assert_eq!(spun, digest(t, threads, Wait::Sleep), "{name} {threads}");
                    }
                }
            }
        }
    }
}
