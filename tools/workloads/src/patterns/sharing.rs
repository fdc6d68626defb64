//! Threads that write to the same cache lines: without need (counters, bins), and because they pass
//! data on.

use super::{on_threads, Apart, Work};
use crate::rng::Rng;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Additions to a counter in a round.
const ADDITIONS: u64 = 1000;
/// Words of two cache lines: what lies this far from each other shares none.
const FAR: usize = 16;
/// Bins of a histogram.
const BINS: usize = 32;

#[repr(align(128))]
struct Block([AtomicU64; FAR]);

fn words(n: usize) -> Vec<Block> {
    (0..n.div_ceil(FAR))
        .map(|_| Block([const { AtomicU64::new(0) }; FAR]))
        .collect()
}

fn word(blocks: &[Block], i: usize) -> &AtomicU64 {
    &blocks[i / FAR].0[i % FAR]
}

pub(super) fn counters(
    apart: bool,
    threads: usize,
    work: &Work,
    begin: &(impl Fn(usize) + Sync),
) -> u64 {
    let step = if apart { FAR } else { 1 };
    let all = words(threads * step);
    on_threads(threads, |t| {
        begin(t);
        let mine = word(&all, t * step);
        let mut x = t as u64;
        for _ in 0..work.rounds * ADDITIONS {
            // a little work of its own for each
            x = (x ^ x >> 7).wrapping_mul(5).wrapping_add(1);
            mine.store(mine.load(Relaxed).wrapping_add(x & 1), Relaxed);
        }
        mine.load(Relaxed)
    })
}

pub(super) fn histogram(
    apart: bool,
    threads: usize,
    work: &Work,
    begin: &(impl Fn(usize) + Sync),
) -> u64 {
    // beside each other: bin 0 of all threads, bin 1 of all threads, …
    let place = |t: usize, bin: usize| match apart {
        true => t * BINS.next_multiple_of(FAR) + bin,
        false => bin * threads + t,
    };
    let all = words(threads * BINS.next_multiple_of(FAR));
    on_threads(threads, |t| {
        begin(t);
        let mut rng = Rng::new(t as u64 + 1);
        let numbers: Vec<u64> = (0..work.size / 8).map(|_| rng.next()).collect();
        for _ in 0..work.rounds {
            for n in &numbers {
                let bin = word(&all, place(t, *n as usize % BINS));
                bin.store(bin.load(Relaxed) + 1, Relaxed);
            }
        }
        (0..BINS).fold(0, |sum, bin| {
            sum.rotate_left(3) ^ word(&all, place(t, bin)).load(Relaxed)
        })
    })
}

/// Each thread fills a buffer and reads the one that the thread before it filled, a new one in each
/// round out of four, so that nobody waits but for a neighbour who is far behind. How far each has
/// come is on a line of its own.
pub(super) fn handoff(
    apart: bool,
    threads: usize,
    work: &Work,
    begin: &(impl Fn(usize) + Sync),
) -> u64 {
    const BUFFERS: usize = 4;
    let n = (work.size as usize / 8).next_multiple_of(FAR);
    let buffers: Vec<Vec<Block>> = (0..threads).map(|_| words(n * BUFFERS)).collect();
    let written: Vec<Apart<AtomicUsize>> =
        (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect();
    let read: Vec<Apart<AtomicUsize>> = (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect();
    let until = |progress: &Apart<AtomicUsize>, at: usize| {
        while progress.0.load(Acquire) < at {
            std::hint::spin_loop();
        }
    };
    on_threads(threads, |t| {
        begin(t);
        let from = if apart {
            t
        } else {
            (t + threads - 1) % threads
        };
        // who reads what this thread writes
        let reader = if apart { t } else { (t + 1) % threads };
        let mut sum = 0u64;
        for round in 0..work.rounds as usize {
            let at = round % BUFFERS * n;
            until(&read[reader], (round + 1).saturating_sub(BUFFERS));
            for i in 0..n {
                word(&buffers[t], at + i).store((round * t + i) as u64, Relaxed);
            }
            written[t].0.store(round + 1, Release);
            until(&written[from], round + 1);
            for i in 0..n {
                let next = word(&buffers[from], at + i).load(Relaxed);
                sum = sum.rotate_left(1).wrapping_add(next);
            }
            read[t].0.store(round + 1, Release);
        }
        sum
    })
}
