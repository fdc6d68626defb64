//! Kernels with something of everything.

use super::Kernel;
use crate::rng::Rng;

/// Elements that one unit of [`Sort`] sorts.
pub(super) const SORT_ELEMENTS: usize = 1024;

/// Fills a block with random numbers and sorts it: unpredictable branches, loads and stores that
/// hit the L1. The algorithm is our own (quicksort down to insertion sort) because the library's
/// changes between releases.
pub(super) struct Sort {
    r: Rng,
    block: Vec<u32>,
    sum: u64,
}

impl Sort {
    pub(super) fn new(seed: u64) -> Sort {
        Sort {
            r: Rng::new(seed),
            block: vec![0; SORT_ELEMENTS],
            sum: 0,
        }
    }
}

impl Kernel for Sort {
    fn run(&mut self, units: u64) {
        for _ in 0..units {
            for w in &mut self.block {
                *w = self.r.next() as u32;
            }
            quicksort(&mut self.block);
            // a digest that depends on the order
            self.sum = self
                .block
                .iter()
                .step_by(64)
                .fold(self.sum, |s, w| s.rotate_left(7) ^ u64::from(*w));
        }
    }

    fn checksum(&self) -> u64 {
        self.sum
    }
}

fn quicksort(mut v: &mut [u32]) {
    // recursion on the smaller part, loop on the larger: the depth stays below log2 of the length
    while v.len() > 16 {
        let m = partition(v);
        let (a, b) = v.split_at_mut(m);
        if a.len() < b.len() {
            quicksort(a);
            v = b;
        } else {
            quicksort(b);
            v = a;
        }
    }
    for i in 1..v.len() {
        let mut j = i;
        while j > 0 && v[j - 1] > v[j] {
            v.swap(j - 1, j);
            j -= 1;
        }
    }
}

/// Hoare's partition around the middle element; returns the length of the left part, between 1 and
/// `len − 1`.
fn partition(v: &mut [u32]) -> usize {
    let pivot = v[(v.len() - 1) / 2];
    let (mut i, mut j) = (0, v.len() - 1);
    loop {
        while v[i] < pivot {
            i += 1;
        }
        while v[j] > pivot {
            j -= 1;
        }
        if i >= j {
            return j + 1;
        }
        v.swap(i, j);
        i += 1;
        j -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::quicksort;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts(mut v in prop::collection::vec(0u32..50, 0..300)) {
            let mut expected = v.clone();
            expected.sort_unstable();
            quicksort(&mut v);
            prop_assert_eq!(v, expected);
        }
    }
}
