//! Windows of a fixed number of instructions out of readings that were taken at any times
//! [PMCTrack §4.1.2].
//!
//! ```text
//! readings   0────────●───────●──────────────────●───●      cumulative: instructions, and whatever else is counted
//! windows    ├────┤────┤────┤────┤────┤────┤────┤           every `size` instructions, counts interpolated linearly
//! ```
//!
//! What a reading counts beside instructions is up to the caller: cycles, nanoseconds, events,
//! microjoules. Totals are conserved: what the windows hold in all is what was counted up to the
//! last cut, to the last unit.

use std::num::NonZeroU64;

/// Most windows that one reading may fill. A longer stretch without a reading says nothing of what
/// its windows were like, and is taken for a break.
pub const MOST_AT_ONCE: u64 = 10_000;

/// What a reading was to the cutter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The reading continues the one before.
    Continued,
    /// It is a new beginning: the first one, of another generation, lower than the one before, of
    /// another number of counts, or too far from it ([`MOST_AT_ONCE`]). What was counted since the
    /// last cut is dropped.
    Began,
}

/// A complete window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Its index since the last beginning, from 0.
    pub index: u64,
    /// Instructions in it: the cutter's size.
    pub instructions: u64,
    /// The other counts.
    pub counts: &'a [u64],
}

/// Cuts cumulative readings into windows.
#[derive(Clone, Debug)]
pub struct Cutter {
    size: NonZeroU64,
    generation: Option<u64>,
    /// Windows since the beginning.
    index: u64,
    /// Instructions at the last cut.
    boundary: u64,
    /// Counts at the last cut.
    at_boundary: Vec<u64>,
    /// The last reading.
    instructions: u64,
    counts: Vec<u64>,
    /// The window that is handed out.
    window: Vec<u64>,
}

impl Cutter {
    /// Windows of `size` instructions.
    pub fn new(size: NonZeroU64) -> Cutter {
        Cutter {
            size,
            generation: None,
            index: 0,
            boundary: 0,
            at_boundary: Vec::new(),
            instructions: 0,
            counts: Vec::new(),
            window: Vec::new(),
        }
    }

    /// Takes a reading: instructions and other counts since some beginning, which is another one
    /// when `generation` is (another run, counters programmed anew). Calls `window` with each
    /// window that it completes, in order.
    pub fn read(
        &mut self,
        generation: u64,
        instructions: u64,
        counts: &[u64],
        mut window: impl FnMut(Window<'_>),
    ) -> Step {
        let size = self.size.get();
        let follows = self.generation == Some(generation)
            && counts.len() == self.counts.len()
            && instructions >= self.instructions
            && counts
                .iter()
                .zip(&self.counts)
                .all(|(now, last)| now >= last)
            && (instructions - self.boundary) / size <= MOST_AT_ONCE;
        if !follows {
            self.begin(generation, instructions, counts);
            return Step::Began;
        }
        let grown = u128::from(instructions - self.instructions);
        while instructions - self.boundary >= size {
            // ends after the last reading, or there would have been a cut then: `grown` is above 0
            let end = self.boundary + size;
            let into = u128::from(end - self.instructions);
            self.window.clear();
            for ((at, last), now) in self.at_boundary.iter_mut().zip(&self.counts).zip(counts) {
                let share = u128::from(now - last) * into / grown;
                // not above `now`, as `into` is not above `grown`
                let here = last + share as u64;
                self.window.push(here - *at);
                *at = here;
            }
            self.boundary = end;
            window(Window {
                index: self.index,
                instructions: size,
                counts: &self.window,
            });
            self.index += 1;
        }
        self.instructions = instructions;
        self.counts.copy_from_slice(counts);
        Step::Continued
    }

    /// Instructions and counts since the last cut: those of no window yet.
    pub fn rest(&self) -> (u64, impl Iterator<Item = u64> + '_) {
        let counts = self.counts.iter().zip(&self.at_boundary);
        (
            self.instructions - self.boundary,
            counts.map(|(now, at)| now - at),
        )
    }

    fn begin(&mut self, generation: u64, instructions: u64, counts: &[u64]) {
        self.generation = Some(generation);
        self.index = 0;
        (self.boundary, self.instructions) = (instructions, instructions);
        self.counts.clear();
        self.counts.extend_from_slice(counts);
        self.at_boundary.clone_from(&self.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cutter(size: u64) -> Cutter {
        Cutter::new(NonZeroU64::new(size).unwrap())
    }

    /// Index, instructions, counts of the windows that a reading completes.
    fn read(
        c: &mut Cutter,
        generation: u64,
        n: u64,
        counts: &[u64],
    ) -> (Step, Vec<(u64, Vec<u64>)>) {
        let mut out = Vec::new();
        let step = c.read(generation, n, counts, |w| {
            out.push((w.index, w.counts.to_vec()));
        });
        (step, out)
    }

    #[test]
    fn a_window_ends_between_two_readings() {
        let mut c = cutter(100);
        assert_eq!(read(&mut c, 0, 1000, &[7, 0]), (Step::Began, vec![]));
        assert_eq!(read(&mut c, 0, 1080, &[27, 8]), (Step::Continued, vec![]));
        // 20 of the 40 instructions since: half of the counts since
        let (step, windows) = read(&mut c, 0, 1120, &[31, 108]);
        assert_eq!(step, Step::Continued);
        assert_eq!(windows, [(0, vec![20 + 2, 8 + 50])]);
        let (n, rest) = c.rest();
        assert_eq!((n, rest.collect::<Vec<_>>()), (20, vec![2, 50]));
    }

    #[test]
    fn several_windows_in_one_reading() {
        let mut c = cutter(10);
        read(&mut c, 0, 0, &[0]);
        let (_, windows) = read(&mut c, 0, 35, &[70]);
        assert_eq!(windows, [(0, vec![20]), (1, vec![20]), (2, vec![20])]);
        // a reading at a boundary completes it
        assert_eq!(read(&mut c, 0, 40, &[90]).1, [(3, vec![30])]);
        assert_eq!(read(&mut c, 0, 40, &[95]).1, []);
        assert_eq!(read(&mut c, 0, 50, &[95]).1, [(4, vec![5])]);
    }

    #[test]
    fn whatever_does_not_follow_begins_afresh() {
        let mut c = cutter(10);
        assert_eq!(read(&mut c, 0, 5, &[5]).0, Step::Began);
        assert_eq!(read(&mut c, 0, 12, &[12]).0, Step::Continued);
        // instructions, a count, the generation, the number of counts
        assert_eq!(read(&mut c, 0, 3, &[12]).0, Step::Began);
        assert_eq!(read(&mut c, 0, 9, &[11]).0, Step::Began);
        assert_eq!(read(&mut c, 1, 15, &[20]), (Step::Began, vec![]));
        assert_eq!(read(&mut c, 1, 16, &[20, 1]).0, Step::Began);
        // counted from there, with windows from 0
        assert_eq!(read(&mut c, 1, 26, &[30, 1]).1, [(0, vec![10, 0])]);
        // too far
        assert_eq!(
            read(&mut c, 1, u64::MAX, &[u64::MAX, 1]),
            (Step::Began, vec![])
        );
        assert_eq!(read(&mut c, 1, u64::MAX, &[u64::MAX, 1]).0, Step::Continued);
    }

    proptest! {
        /// What the windows and the rest hold together is what was counted, to the last unit.
        #[test]
        fn totals_are_conserved(
            size in 1u64..1000,
            from in (0u64..1 << 60, 0u64..1 << 60, 0u64..1 << 60),
            steps in proptest::collection::vec((0u64..5000, 0u64..1 << 50, 0u64..100), 1..40),
        ) {
            let mut c = cutter(size);
            let (mut n, mut a, mut b) = from;
            c.read(0, n, &[a, b], |_| {});
            let mut sums = (0, 0, 0);
            let mut next = 0;
            for (dn, da, db) in steps {
                (n, a, b) = (n + dn, a + da, b + db);
                let step = c.read(0, n, &[a, b], |w| {
                    assert_eq!((w.index, w.instructions), (next, size));
                    next += 1;
                    sums = (sums.0 + size, sums.1 + w.counts[0], sums.2 + w.counts[1]);
                });
                prop_assert_eq!(step, Step::Continued);
                let (rest, counts) = c.rest();
                let counts: Vec<u64> = counts.collect();
                prop_assert!(rest < size);
                prop_assert_eq!(sums.0 + rest, n - from.0);
                prop_assert_eq!(sums.1 + counts[0], a - from.1);
                prop_assert_eq!(sums.2 + counts[1], b - from.2);
            }
        }

        /// Counts in step with instructions are in step in every window, however often they are
        /// read.
        #[test]
        fn a_steady_program_has_equal_windows(size in 1u64..1000, pace in 1u64..50, steps in proptest::collection::vec(0u64..3000, 1..40)) {
            let mut c = cutter(size);
            let mut n = 0;
            c.read(0, 0, &[0], |_| {});
            for d in steps {
                n += d;
                c.read(0, n, &[n * pace], |w| assert_eq!(w.counts, [size * pace]));
            }
        }

        #[test]
        fn any_readings_are_taken(size in 1u64.., all in proptest::collection::vec((0u64..2, any::<u64>(), any::<u64>()), 0..20)) {
            let mut c = cutter(size);
            for (generation, n, count) in all {
                let mut windows = 0;
                c.read(generation, n, &[count], |_| windows += 1);
                prop_assert!(windows <= MOST_AT_ONCE);
            }
        }
    }
}
