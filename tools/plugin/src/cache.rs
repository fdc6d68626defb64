//! Caches: a private L1 data cache per core, an L2 shared by the cores of a type.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a tag that a salt may change: all but the index of the largest cache. The same for all
/// cores, as tags tell the directory of lines, too.
pub const SALT: u64 = !0xff_ffff;

/// L1 data cache: virtually indexed, tagged with the virtual line and a salt for the address space;
/// least recently used line is replaced. Tag 0 means empty (line 0 is never mapped). Only its core
/// puts lines in; others take them away. A race between the two costs a line, never correctness.
#[derive(Debug)]
pub struct L1 {
    tags: Box<[AtomicU64]>,
    ways: usize,
    mask: u64,
}

impl L1 {
    /// An empty cache. `sets` is a power of two.
    pub fn new(sets: usize, ways: usize) -> L1 {
        L1 {
            tags: (0..sets * ways).map(|_| AtomicU64::new(0)).collect(),
            ways,
            mask: sets as u64 - 1,
        }
    }

    #[inline]
    fn set(&self, tag: u64) -> &[AtomicU64] {
        let first = (tag & self.mask) as usize * self.ways;
        self.tags.get(first..first + self.ways).unwrap_or_default()
    }

    /// Looks `tag` up, whose low bits index the set, and makes it the most recent line; `None` when
    /// it was there, else the line that had to go (0 for none).
    #[inline]
    pub fn access(&self, tag: u64) -> Option<u64> {
        // Move every line one place back until the tag's own place: most hits are near the front.
        let mut moving = tag;
        for way in self.set(tag) {
            let before = way.load(Ordering::Relaxed);
            way.store(moving, Ordering::Relaxed);
            moving = before;
            if moving == tag {
                return None;
            }
        }
        Some(moving)
    }

    /// Whether `tag` is the most recent line of its set, so that [`L1::access`] would find it and
    /// change nothing.
    #[inline]
    pub fn is_first(&self, tag: u64) -> bool {
        let first = (tag & self.mask) as usize * self.ways;
        self.tags
            .get(first)
            .is_some_and(|w| w.load(Ordering::Relaxed) == tag)
    }

    /// Takes back an access to `tag` that missed and put `victim` out.
    pub fn undo(&self, tag: u64, victim: u64) {
        let set = self.set(tag);
        for (i, way) in set.iter().enumerate() {
            let next = set.get(i + 1);
            let line = next.map_or(victim, |w| w.load(Ordering::Relaxed));
            way.store(line, Ordering::Relaxed);
        }
    }

    /// Whether the line is there.
    pub fn has(&self, tag: u64) -> bool {
        self.set(tag)
            .iter()
            .any(|w| w.load(Ordering::Relaxed) == tag)
    }

    /// Takes the line out; whether it was there.
    pub fn remove(&self, tag: u64) -> bool {
        let set = self.set(tag);
        let Some(at) = set.iter().position(|w| w.load(Ordering::Relaxed) == tag) else {
            return false;
        };
        for (i, way) in set.iter().enumerate().skip(at) {
            let next = set.get(i + 1);
            let line = next.map_or(0, |w| w.load(Ordering::Relaxed));
            way.store(line, Ordering::Relaxed);
        }
        true
    }
}

/// Some tags, by their low bits: a small set that forgets.
#[derive(Debug)]
pub struct Tags([AtomicU64; Tags::PLACES]);

impl Tags {
    const PLACES: usize = 512;

    #[inline]
    fn place(&self, tag: u64) -> &AtomicU64 {
        &self.0[tag as usize % Tags::PLACES]
    }

    /// Whether it is among them.
    #[inline]
    pub fn has(&self, tag: u64) -> bool {
        self.place(tag).load(Ordering::Relaxed) == tag
    }

    /// Puts it in, in place of another.
    #[inline]
    pub fn put(&self, tag: u64) {
        self.place(tag).store(tag, Ordering::Relaxed);
    }

    /// Takes it out.
    pub fn remove(&self, tag: u64) {
        if self.has(tag) {
            self.place(tag).store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Tags {
    fn default() -> Tags {
        Tags([const { AtomicU64::new(0) }; Tags::PLACES])
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

/// L2: physically tagged, random replacement. The index is a hash of the line, so that a working
/// set meets the same conflicts wherever its pages lie. Shared by threads without a lock: a race
/// costs a line, never correctness.
#[derive(Debug)]
pub struct L2 {
    tags: Box<[AtomicU32]>,
    ways: usize,
    sets: u64,
    salt: u64,
}

/// What an access to L2 came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Access {
    /// It was there.
    Hit,
    /// It is there now.
    Filled {
        /// The line that had to go goes to memory: somebody stored to it.
        written_back: bool,
    },
}

/// Bit of an L2 tag: somebody stored to the line.
const DIRTY: u32 = 1 << 31;

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

    fn tag(line: u64) -> u32 {
        ((line as u32).wrapping_add(1) & !DIRTY).max(1)
    }

    #[inline]
    fn set(&self, line: u64) -> &[AtomicU32] {
        let mut h = (line ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 32;
        h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let first = (((h >> 32) * self.sets) >> 32) as usize * self.ways;
        self.tags.get(first..first + self.ways).unwrap_or_default()
    }

    /// Looks up the physical line number and fills it on a miss, into one of the ways whose bits
    /// are set in `fills`. A line that is fetched for a store is dirty from then on.
    #[inline]
    pub fn access(&self, line: u64, store: bool, fills: u64, random: &mut Random) -> L2Access {
        let (tag, set) = (Self::tag(line), self.set(line));
        let dirty = if store { DIRTY } else { 0 };
        let mut empty = None;
        for (i, t) in set.iter().enumerate() {
            let found = t.load(Ordering::Relaxed);
            if found & !DIRTY == tag {
                if found | dirty != found {
                    t.store(found | dirty, Ordering::Relaxed);
                }
                return L2Access::Hit;
            }
            if found == 0 && empty.is_none() && fills >> i & 1 == 1 {
                empty = Some(i);
            }
        }
        let way = empty.unwrap_or_else(|| match fills.count_ones() as usize {
            ways if ways == set.len() => random.below(ways),
            ways => nth_bit(fills, random.below(ways)),
        });
        let written_back = set.get(way).is_some_and(|t| {
            let victim = t.load(Ordering::Relaxed);
            t.store(tag | dirty, Ordering::Relaxed);
            victim & DIRTY != 0
        });
        L2Access::Filled { written_back }
    }

    /// Bits of all ways.
    pub fn all_ways(&self) -> u64 {
        u64::MAX >> (64 - self.ways.clamp(1, 64))
    }

    /// The ways that a guest wants filled which has said `wanted`: all of them where none of those
    /// is there.
    pub fn ways_of(&self, wanted: u64) -> u64 {
        match wanted & self.all_ways() {
            0 => self.all_ways(),
            some => some,
        }
    }

    /// Somebody stores to a line that L1 has: it will go to memory when it leaves. Nothing happens
    /// to a line that is not here.
    pub fn stored(&self, line: u64) {
        let tag = Self::tag(line);
        if let Some(t) = self
            .set(line)
            .iter()
            .find(|t| t.load(Ordering::Relaxed) == tag)
        {
            t.store(tag | DIRTY, Ordering::Relaxed);
        }
    }
}

/// The number of the bit that is the `n`th one set, from 0.
#[inline]
fn nth_bit(mut bits: u64, n: usize) -> usize {
    for _ in 0..n {
        bits &= bits.wrapping_sub(1);
    }
    bits.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_replaces_the_least_recent() {
        let c = L1::new(4, 2);
        let line = |n: u64| n << 2 | 1; // all in set 1
        let hit = None;
        assert_eq!(c.access(line(1)), Some(0));
        assert_eq!(c.access(line(2)), Some(0));
        assert_eq!(c.access(line(1)), hit);
        assert_eq!(c.access(line(3)), Some(line(2)));
        assert_eq!(c.access(line(1)), hit);
        assert_eq!(c.access(line(2)), Some(line(3)));
        assert_eq!(c.access(1 << 2), Some(0)); // another set
        assert_eq!(c.access(line(1)), hit);
    }

    #[test]
    fn lines_can_be_taken_out_and_accesses_back() {
        let c = L1::new(4, 4);
        let line = |n: u64| n << 2 | 1;
        for n in 1..=4 {
            c.access(line(n));
        }
        let victim = c.access(line(5)).unwrap();
        assert_eq!(victim, line(1));
        c.undo(line(5), victim);
        assert!(c.has(line(1)) && !c.has(line(5)));
        assert_eq!(c.access(line(6)), Some(line(1)), "still the oldest");
        assert!(c.remove(line(4)) && !c.remove(line(4)));
        assert_eq!(c.access(line(7)), Some(0), "into the place that is free");
        assert!((2..=3).all(|n| c.has(line(n))));
    }

    #[test]
    fn tags_forget_and_never_invent() {
        let t = Tags::default();
        assert!(!t.has(7));
        t.put(7);
        t.put(8);
        assert!(t.has(7) && t.has(8) && !t.has(7 + 512));
        t.remove(7 + 512);
        assert!(t.has(7));
        t.put(7 + 512);
        assert!(t.has(7 + 512) && !t.has(7));
        t.remove(8);
        assert!(!t.has(8));
    }

    #[test]
    fn what_was_stored_to_is_written_back() {
        let (c, mut r) = (L2::new(1, 2, 1), Random::new(1, 0));
        let clean = L2Access::Filled {
            written_back: false,
        };
        assert_eq!(c.access(10, true, 3, &mut r), clean);
        assert_eq!(c.access(11, false, 3, &mut r), clean);
        assert_eq!(c.access(11, false, 3, &mut r), L2Access::Hit);
        let backs = |c: &L2, r: &mut Random, lines: std::ops::Range<u64>| {
            lines
                .filter(|l| c.access(*l, false, 3, r) == L2Access::Filled { written_back: true })
                .count()
        };
        assert_eq!(backs(&c, &mut r, 20..60), 1, "once, and only line 10");
        let last = 59;
        c.stored(last);
        c.stored(10); // not there
        assert_eq!(c.access(last, false, 3, &mut r), L2Access::Hit);
        assert_eq!(backs(&c, &mut r, 70..110), 1);
    }

    #[test]
    fn who_may_fill_some_ways_has_as_much_as_a_cache_of_those() {
        let misses = |ways: usize, fills: u64, lines: u64| {
            let (c, mut r) = (L2::new(64, ways, 1), Random::new(1, 0));
            let mut walk = || {
                let missed = |l: &u64| c.access(*l, false, fills, &mut r) != L2Access::Hit;
                (0..lines).filter(missed).count()
            };
            for _ in 0..8 {
                walk();
            }
            (0..8).map(|_| walk()).sum::<usize>()
        };
        for lines in [100, 200, 400, 800] {
            let (some, small) = (misses(16, 0b1011_0010, lines), misses(4, 0b1111, lines));
            assert_eq!(some, small, "{lines}");
        }
    }

    #[test]
    fn what_lies_in_other_ways_is_found_until_somebody_fills_them() {
        let (c, mut r) = (L2::new(1, 4, 1), Random::new(1, 0));
        let [of_one, of_others] = [0b0011, 0b1100];
        c.access(1, false, of_others, &mut r);
        assert_eq!(c.access(1, false, of_one, &mut r), L2Access::Hit);
        for line in 10..100 {
            c.access(line, false, of_one, &mut r);
        }
        assert_eq!(c.access(1, false, of_one, &mut r), L2Access::Hit);
        for line in 100..200 {
            c.access(line, false, of_others, &mut r);
        }
        assert_ne!(c.access(1, false, of_one, &mut r), L2Access::Hit);
        assert_eq!(
            [0, 0b0100, 0b1_0000, u64::MAX].map(|w| c.ways_of(w)),
            [0b1111, 0b0100, 0b1111, 0b1111]
        );
    }

    #[test]
    fn l1_holds_what_fits_and_thrashes_beyond() {
        let c = L1::new(128, 4);
        let walk = |lines: u64| {
            (0x1000..0x1000 + lines)
                .filter(|l| c.access(*l).is_some())
                .count()
        };
        walk(512);
        assert_eq!(walk(512), 0);
        walk(1024);
        assert_eq!(walk(1024), 1024);
    }

    #[test]
    fn salt_leaves_the_index() {
        // the most sets that a machine file allows
        let sets = (1 << 16) * 1024 / 16;
        assert_eq!(SALT & (sets - 1), 0);
    }

    fn steady_misses(lines: impl Fn(u64) -> u64, n: u64, seed: u64) -> usize {
        let (c, mut r) = (L2::new(1024, 16, seed), Random::new(seed, 0));
        for _ in 0..4 {
            (0..n).for_each(|i| {
                c.access(lines(i), false, c.all_ways(), &mut r);
            });
        }
        (0..n)
            .filter(|i| c.access(lines(*i), false, c.all_ways(), &mut r) != L2Access::Hit)
            .count()
    }

    #[test]
    fn l2_does_not_care_where_pages_lie() {
        // 512 KiB of 1 MiB in pages that all share their colour without hashing: still no conflict
        // to speak of.
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
