//! What deciding may cost. A decision takes time for each busy thread, and the thread that decides goes before others: on a
//! machine with thousands of them it would take a core for itself.

use amp_host::clock;
use amp_metrics::Nanos;

/// Of one CPU's time, decisions take at most the part of which this is the denominator.
const OF_A_CPU: u64 = 4;

/// Decides when there may be a decision again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    next: Nanos,
}

impl Budget {
    /// Runs a round of deciding, and takes note of what it cost.
    pub fn spend<T>(&mut self, round: impl FnOnce() -> T) -> T {
        let (began, had) = (clock::now(), clock::cpu_time());
        let result = round();
        self.note(began, Nanos(clock::cpu_time().0 - had.0));
        result
    }

    fn note(&mut self, began: Nanos, cost: Nanos) {
        self.next = Nanos(began.0 + cost.0 * OF_A_CPU);
    }

    /// When a round that is due at `due` may begin.
    pub fn from(&self, due: Nanos) -> Nanos {
        due.max(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_take_no_more_than_their_part_of_a_cpu() {
        let ms = Nanos::from_millis;
        let mut budget = Budget::default();
        let mut now = ms(1_000);
        let (mut spent, from) = (0, now);
        for cost in [1, 80, 300, 2, 40, 90, 1] {
            assert_eq!(budget.from(now), now);
            budget.note(now, ms(cost));
            spent += cost;
            // due every tenth of a second, and at once where a round took longer
            now = budget.from(now + ms(100).max(ms(cost)));
        }
        assert!(
            spent * OF_A_CPU <= (now.0 - from.0) / 1_000_000,
            "{spent} ms until {now:?}"
        );
    }

    #[test]
    fn cheap_rounds_come_when_they_are_due() {
        let mut budget = Budget::default();
        let due = Nanos::from_millis(100);
        assert_eq!(budget.spend(|| 7), 7);
        let soon = clock::now() + due;
        assert_eq!(budget.from(soon), soon);
    }
}
