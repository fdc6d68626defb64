//! Dynamic sharing: threads take the next piece of work from one queue whenever they are free.

use super::crew::on_threads;
use super::{range, JobError};
use crate::kernels::Spec;
use crate::rng::Rng;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work that is dealt out in chunks, so that a fast core does more of them than a slow one.
///
/// A chunk starts from data of its own, whose seed is the chunk's number. So the result does not
/// depend on which thread did which chunk, and filling the data is part of the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// The kernel of every chunk.
    pub spec: Spec,
    /// Units in all.
    pub units: u64,
    /// Threads, at least 1.
    pub threads: u32,
    /// Units of a chunk, at least 1; the last one may be smaller.
    pub chunk: u64,
}

impl Queue {
    pub(super) fn check(&self) -> Result<(), JobError> {
        match self.chunk {
            0 => Err(range("step", 0, "at least 1 unit per chunk")),
            _ => Ok(()),
        }
    }

    /// Does the work and returns the checksum.
    pub(super) fn run(&self) -> u64 {
        let chunks = self.units.div_ceil(self.chunk);
        let (next, digest) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut threads = vec![(); self.threads as usize];
        on_threads(&mut threads, |_, ()| loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= chunks {
                return;
            }
            let mut kernel = self.spec.prepare(n);
            kernel.run(self.chunk.min(self.units - n * self.chunk));
            // chunks that come to the same result do not cancel each other
            let sum = Rng::new(kernel.checksum() ^ Rng::new(n).next()).next();
            digest.fetch_xor(sum, Ordering::Relaxed);
        });
        digest.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Job;

    fn queue(spec: &str, units: u64, threads: u32, chunk: u64) -> Job {
        Job::Queue(Queue {
            spec: spec.parse().unwrap(),
            units,
            threads,
            chunk,
        })
    }

    fn run(job: &Job) -> u64 {
        job.prepare().unwrap().run()
    }

    #[test]
    fn who_does_which_chunk_changes_nothing() {
        for spec in ["alu", "sort", "hash@4K"] {
            let alone = run(&queue(spec, 103, 1, 10));
            for threads in [1, 2, 5, 40] {
                assert_eq!(run(&queue(spec, 103, threads, 10)), alone, "{spec}");
            }
            assert_ne!(run(&queue(spec, 104, 3, 10)), alone, "{spec}");
        }
    }

    #[test]
    fn every_chunk_is_done_once() {
        let spec: Spec = "alu".parse().unwrap();
        let expected = [(0, 4), (1, 4), (2, 2)].map(|(n, units)| {
            let mut k = spec.prepare(n);
            k.run(units);
            Rng::new(k.checksum() ^ Rng::new(n).next()).next()
        });
        let expected = expected.iter().fold(0, |a, b| a ^ b);
        assert_eq!(run(&queue("alu", 10, 2, 4)), expected);
        assert_eq!(run(&queue("alu", 0, 2, 4)), 0);
    }

    #[test]
    fn a_chunk_of_nothing_is_refused() {
        let e = queue("alu", 10, 2, 0).prepare().err().unwrap().to_string();
        assert!(e.contains("step 0"), "{e}");
    }
}
