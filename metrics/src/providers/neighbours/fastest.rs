//! How fast programs are on a core type, beside the fastest.

use crate::contention::ProgramId;

/// Part of the fastest rate on a core type below which a thread is slow there, and what is left of that
/// rate after an interval.
const SLOW: f64 = 0.5;
const FADES: f64 = 0.999;

/// The two fastest programs on a core type, by instructions per nanosecond of CPU time, the faster one first.
/// What they did fades.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fastest([Option<(ProgramId, f64)>; 2]);

impl Fastest {
    pub fn take_in(&mut self, program: ProgramId, rate: f64) {
        let [first, second] = &mut self.0;
        if first.is_none_or(|(p, _)| p == program) {
            *first = Some((program, first.map_or(rate, |(_, r)| r.max(rate))));
        } else if second.is_none_or(|(p, r)| p == program || r < rate) {
            *second = Some((
                program,
                rate.max(second.filter(|(p, _)| *p == program).map_or(0.0, |s| s.1)),
            ));
        }
        if let (Some(a), Some(b)) = (*first, *second) {
            if b.1 > a.1 {
                self.0 = [Some(b), Some(a)];
            }
        }
    }

    pub fn fade(&mut self) {
        for (_, rate) in self.0.iter_mut().flatten() {
            *rate *= FADES;
        }
    }

    /// Whether this rate is that of a slow program.
    pub fn is_slow(&self, rate: f64) -> bool {
        self.0[0].is_some_and(|(_, fastest)| rate < SLOW * fastest)
    }

    /// How slow `program` is at this rate, 0 to 1, beside the fastest other one. Of whom there is nobody to
    /// compare with the worst is assumed.
    pub fn how_slow(&self, program: ProgramId, rate: f64) -> f64 {
        let other = self.0.iter().flatten().find(|(p, _)| *p != program);
        let slow = other.map_or(1.0, |(_, fastest)| (1.0 - rate / fastest) / (1.0 - SLOW));
        if slow.is_nan() {
            1.0
        } else {
            slow.clamp(0.0, 1.0)
        }
    }
}
