//! Upper triangular matrix times vector, the rows shared out among threads [VAL].

use super::{on_threads, Meeting, Work};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Side of the largest square matrix of `f64` in so many bytes.
fn side(bytes: u64) -> usize {
    ((bytes / 8) as f64).sqrt() as usize
}

/// Rows of thread `t`: a block, or a block of long rows and its mirror image of short ones.
fn rows(n: usize, threads: usize, t: usize, even: bool) -> [Range<usize>; 2] {
    if !even {
        return [n * t / threads..n * (t + 1) / threads, 0..0];
    }
    let half = n / 2;
    let (from, to) = (half * t / threads, half * (t + 1) / threads);
    let middle = if t + 1 == threads {
        half..n - half
    } else {
        0..0
    };
    // an odd side leaves one row in the middle, which the last thread's mirrored block begins with
    let low = if middle.is_empty() {
        n - to
    } else {
        middle.start
    };
    [from..to, low..n - from]
}

pub(super) fn run(even: bool, threads: usize, work: &Work, begin: &(impl Fn(usize) + Sync)) -> u64 {
    let n = side(work.size).max(1);
    let matrix: Vec<f64> = (0..n * n).map(|i| (i % 7) as f64).collect();
    let y: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    let meeting = Meeting::new(threads, work.wait);
    on_threads(threads, |t| {
        begin(t);
        let x: Vec<f64> = (0..n).map(|i| (i % 5) as f64).collect();
        for _ in 0..work.rounds {
            for i in rows(n, threads, t, even).into_iter().flatten() {
                let row = &matrix[n * i + i..n * (i + 1)];
                let product: f64 = row.iter().zip(&x[i..]).map(|(a, x)| a * x).sum();
                y[i].store(product.to_bits(), Relaxed);
            }
            meeting.wait();
        }
        0
    });
    y.iter()
        .fold(0, |sum, y| sum.rotate_left(5) ^ y.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_thread_and_even_means_even() {
        for n in [1, 2, 7, 64, 255, 256] {
            for threads in 1..=6 {
                for even in [false, true] {
                    let mut seen = vec![0; n];
                    let mut work = vec![0; threads];
                    for (t, w) in work.iter_mut().enumerate() {
                        for i in rows(n, threads, t, even).into_iter().flatten() {
                            seen[i] += 1;
                            *w += n - i;
                        }
                    }
                    assert!(
                        seen.iter().all(|s| *s == 1),
                        "{n} {threads} {even} {seen:?}"
                    );
                    if n >= 255 && threads > 1 {
                        let (most, least) =
                            (work.iter().max().unwrap(), work.iter().min().unwrap());
                        let ratio = *most as f64 / *least as f64;
                        assert_eq!(ratio < 1.2, even, "{n} {threads} {work:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn two_halves_differ_by_three() {
        let work = |t| -> usize { rows(256, 2, t, false)[0].clone().map(|i| 256 - i).sum() };
        assert!((work(0) as f64 / work(1) as f64 - 3.0).abs() < 0.05);
    }
}
