//! Caches: a private L1 data cache per core, an L2 shared by the cores of a type.

use std::sync::atomic::{AtomicU32, Ordering};

/// L1 data cache: virtually indexed, tagged with the virtual line and a salt for the address space; least recently used
/// line is replaced. Tag 0 means empty (line 0 is never mapped).
#[derive(Debug)]
pub struct L1 {
    tags: Box<[u64]>,
    ways: usize,
    mask: u64,
}

impl L1 {
    /// An empty cache. `sets` is a power of two.
    pub fn new(sets: usize, ways: usize) -> L1 {
        L1 {
            tags: vec![0; sets * ways].into(),
            ways,
            mask: sets as u64 - 1,
        }
    }

    /// Bits of a tag that a salt may change: all but the index.
    pub fn salt_mask(&self) -> u64 {
        !self.mask
    }

    /// Looks `tag` up, whose low bits index the set, and makes it the most recent line; whether it was there.
    #[inline]
    pub fn access(&mut self, tag: u64) -> bool {
        let first = (tag & self.mask) as usize * self.ways;
        let Some(set) = self.tags.get_mut(first..first + self.ways) else {
            return true;
        };
        // Move every line one place back until the tag's own place: most hits are near the front.
        let mut moving = tag;
        for way in set {
            moving = std::mem::replace(way, moving);
            if moving == tag {
                return true;
            }
        }
        false
    }
}

/// A small generator for replacement (xorshift; the state is never zero).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that differs by `seed` and `stream`.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random((seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    #[inline]
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as usize * n) >> 32
    }
}

/// L2: physically tagged, random replacement. The index is a hash of the line, so that a working set meets the same
/// conflicts wherever its pages lie. Shared by threads without a lock: a race costs a line, never correctness.
#[derive(Debug)]
pub struct L2 {
    tags: Box<[AtomicU32]>,
    ways: usize,
    sets: u64,
    salt: u64,
}

impl L2 {
    /// An empty cache. `sets` is a power of two.
    pub fn new(sets: usize, ways: usize, seed: u64) -> L2 {
        L2 {
            tags: (0..sets * ways).map(|_| AtomicU32::new(0)).collect(),
            ways,
            sets: sets as u64,
            salt: seed.wrapping_mul(0xd6e8_feb8_6659_fd93),
        }
    }

    /// Looks up the physical line number and fills it on a miss; whether it was there.
    #[inline]
    pub fn access(&self, line: u64, random: &mut Random) -> bool {
        let tag = (line as u32).wrapping_add(1).max(1);
        let mut h = (line ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 32;
        h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let first = (((h >> 32) * self.sets) >> 32) as usize * self.ways;
        let Some(set) = self.tags.get(first..first + self.ways) else {
            return true;
        };
        let mut empty = None;
        for (i, t) in set.iter().enumerate() {
            let t = t.load(Ordering::Relaxed);
            if t == tag {
                return true;
            }
            if t == 0 {
                empty = Some(i);
                break;
            }
        }
        let way = empty.unwrap_or_else(|| random.below(set.len()));
        if let Some(t) = set.get(way) {
            t.store(tag, Ordering::Relaxed);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_replaces_the_least_recent() {
        let mut c = L1::new(4, 2);
        let line = |n: u64| n << 2 | 1; // all in set 1
        assert!(!c.access(line(1)));
        assert!(!c.access(line(2)));
        assert!(c.access(line(1)));
        assert!(!c.access(line(3))); // evicts 2
        assert!(c.access(line(1)));
        assert!(!c.access(line(2)));
        assert!(!c.access(1 << 2)); // another set
        assert!(c.access(line(1)));
    }

    #[test]
    fn l1_holds_what_fits_and_thrashes_beyond() {
        let mut c = L1::new(128, 4);
        let mut walk = |lines: u64| (0x1000..0x1000 + lines).filter(|l| !c.access(*l)).count();
        walk(512);
        assert_eq!(walk(512), 0);
        walk(1024);
        assert_eq!(walk(1024), 1024);
    }

    #[test]
    fn salt_leaves_the_index() {
        let c = L1::new(256, 2);
        assert_eq!(c.salt_mask() & 255, 0);
        assert_eq!(!c.salt_mask(), 255);
    }

    fn steady_misses(lines: impl Fn(u64) -> u64, n: u64, seed: u64) -> usize {
        let (c, mut r) = (L2::new(1024, 16, seed), Random::new(seed, 0));
        for _ in 0..4 {
            (0..n).for_each(|i| {
                c.access(lines(i), &mut r);
            });
        }
        (0..n).filter(|i| !c.access(lines(*i), &mut r)).count()
    }

    #[test]
    fn l2_does_not_care_where_pages_lie() {
        // 512 KiB of 1 MiB in pages that all share their colour without hashing: still no conflict to speak of.
        let n = 8192;
        for seed in 1..5 {
            let contiguous = steady_misses(|i| 0x10_0000 + i, n, seed);
            let coloured = steady_misses(|i| 0x10_0000 + (i & 63) + (i >> 6 << 10), n, seed);
            assert!(
                contiguous < 164 && coloured < 164,
                "{contiguous} {coloured}"
            );
        }
    }

    #[test]
    fn l2_misses_most_of_what_is_eight_times_its_size() {
        let n = 131_072;
        assert!(steady_misses(|i| i, n, 1) > 120_000);
    }
}
