//! Takes the strongest candidates as long as there is room, without sorting those that do not
//! matter.

/// A thread that could get a seat. The order is that of preference: strongest first, holders before
/// others of equal strength, then as the view has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Strength, mapped so that smaller is stronger.
    strength: u64,
    /// Top bit: does not hold the seat. Rest: index in the view.
    index: u32,
    weight: u32,
}

const STRANGER: u32 = 1 << 31;

impl Candidate {
    /// Thread `index` of the view with this strength; any value has its place, larger before
    /// smaller.
    pub fn new(index: usize, strength: f64, holds: bool, weight: u32) -> Candidate {
        let bits = strength.to_bits();
        // the total order of f64 as that of u64: negative numbers count downwards
        let ascending = if bits >> 63 == 1 {
            !bits
        } else {
            bits | 1 << 63
        };
        Candidate {
            strength: !ascending,
            // a slot table has fewer than 2^31 slots
            index: index as u32 | if holds { 0 } else { STRANGER },
            weight,
        }
    }

    /// Its index in the view.
    pub fn thread(&self) -> usize {
        (self.index & !STRANGER) as usize
    }
}

/// How much room a core type has, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// CPUs of the type.
    pub cpus: usize,
    /// CPUs of slower types.
    pub elsewhere: usize,
    /// Threads that have no seat yet, those seated here included.
    pub waiting: usize,
    /// Weight that the type is to carry when there are more threads than CPUs.
    pub quota: f64,
    /// Threads seated here.
    pub seated: usize,
    /// Their weight.
    pub weight: f64,
}

impl Room {
    /// Seats a thread of this weight.
    pub fn take(&mut self, weight: u32) {
        self.seated += 1;
        self.weight += f64::from(weight);
    }

    /// Whether one more thread of this weight fits: there is a CPU for it, or enough others are
    /// left to fill the slower types and at least half of it is within the quota.
    fn fits(&self, weight: u32) -> bool {
        let spare = self.waiting.saturating_sub(self.seated) > self.elsewhere;
        self.seated < self.cpus || (spare && self.weight + f64::from(weight) / 2.0 <= self.quota)
    }

    /// Whether so many threads of so much weight together fit, each one after the others, in any
    /// order. May say no although they do.
    fn fit_all(&self, n: usize, weight: f64) -> bool {
        let last = self.seated + n.saturating_sub(1);
        let spare = self.waiting.saturating_sub(last) > self.elsewhere;
        self.seated + n <= self.cpus || (spare && self.weight + weight <= self.quota)
    }
}

/// Ranges up to this length are sorted.
const SMALL: usize = 24;

/// Gives seats to the candidates in order, up to the first that does not fit. Only the
/// neighbourhood of that one is sorted: O(n) on average.
pub fn pick(candidates: &mut [Candidate], room: &mut Room, mut seat: impl FnMut(&Candidate)) {
    let mut from = 0;
    while from < candidates.len() {
        let mut to = candidates.len();
        while to - from > SMALL {
            let mid = from + (to - from) / 2;
            candidates[from..to].select_nth_unstable(mid - from);
            let better = &candidates[from..mid];
            let weight = better.iter().map(|c| f64::from(c.weight)).sum();
            if room.fit_all(better.len(), weight) {
                for c in better {
                    room.take(c.weight);
                    seat(c);
                }
                from = mid;
            } else {
                to = mid;
            }
        }
        candidates[from..to].sort_unstable();
        for c in &candidates[from..to] {
            if !room.fits(c.weight) {
                return;
            }
            room.take(c.weight);
            seat(c);
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_order_is_strength_then_holder_then_index() {
        let strengths = [
            f64::NEG_INFINITY,
            -2.5,
            -0.0,
            0.0,
            1e-300,
            1.0,
            7.5,
            f64::INFINITY,
        ];
        for (a, b) in strengths.iter().zip(&strengths[1..]) {
            assert!(Candidate::new(0, *b, false, 1) < Candidate::new(1, *a, true, 1));
        }
        assert!(Candidate::new(5, 1.0, true, 1) < Candidate::new(2, 1.0, false, 1));
        assert!(Candidate::new(2, 1.0, true, 1) < Candidate::new(5, 1.0, true, 1));
        assert_eq!(Candidate::new(7, 1.0, false, 1).thread(), 7);
    }

    proptest! {
        /// The same as sorting everything.
        #[test]
        fn picks_what_sorting_would(
            threads in prop::collection::vec((0u8..40, any::<bool>(), 1u32..500), 0..300),
            cpus in 1usize..40,
            elsewhere in 0usize..200,
            part in 0.0f64..1.0,
        ) {
            let mut all: Vec<_> = threads
                .iter()
                .enumerate()
                .map(|(i, (s, h, w))| Candidate::new(i, f64::from(*s), *h, *w))
                .collect();
            let total: f64 = threads.iter().map(|t| f64::from(t.2)).sum();
            let room = Room {
                cpus,
                elsewhere,
                waiting: all.len(),
                quota: part * total,
                seated: 0,
                weight: 0.0,
            };
            let mut sorted = all.clone();
            sorted.sort();
            let mut r = room;
            let mut want = Vec::new();
            for c in sorted {
                if !r.fits(c.weight) {
                    break;
                }
                r.take(c.weight);
                want.push(c.thread());
            }
            let (mut r, mut got) = (room, Vec::new());
            pick(&mut all, &mut r, |c| got.push(c.thread()));
            want.sort();
            got.sort();
            prop_assert_eq!(got, want);
        }
    }
}
