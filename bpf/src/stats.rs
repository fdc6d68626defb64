//! What the mechanism counts.

/// How long placements took to take effect, from the write to running on the new core type; the
/// last few thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Placements that took effect since loading.
    pub count: u64,
    /// Median in ns.
    pub p50: u64,
    /// 90th percentile in ns.
    pub p90: u64,
    /// 99th percentile in ns.
    pub p99: u64,
    /// Longest in ns.
    pub max: u64,
}

impl Latency {
    /// From `count` measurements in all, of which `kept` are at hand.
    pub(crate) fn of(count: u64, mut kept: Vec<u64>) -> Latency {
        kept.sort_unstable();
        let at = |percent: usize| {
            let rank = (kept.len() * percent).div_ceil(100);
            kept.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Latency {
            count,
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

/// Totals since loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How prompt placements are.
    pub swap_latency: Latency,
    /// Times a thread was put into a queue.
    pub queued: u64,
    /// Runs that a CPU took from the queue of the same type behind another cache, or of a slower
    /// type.
    pub taken_up: u64,
    /// Runs that a CPU took from the queue of a faster type.
    pub taken_down: u64,
    /// Runs on a CPU of a faster type than the thread is placed on, because it was idle.
    pub lent: u64,
    /// CPUs that a commit made reschedule.
    pub kicks: u64,
    /// Commits.
    pub commits: u64,
    /// Whether BPF shares by itself now.
    pub fallback: bool,
    /// Times it started to.
    pub fallbacks: u64,
    /// Pairs of threads that it swapped.
    pub rotations: u64,
    /// Threads put in front because they had waited past the starvation bound.
    pub rescued: u64,
    /// Programs that began on the core type that the last one of their name was placed on.
    pub seats: u64,
    /// Threads that found the table full.
    pub untracked: u64,
    /// Readings of counters that failed, with what they would have told.
    pub unread: u64,
    /// Slots ever used.
    pub slots_used: u32,
    /// Slots in use.
    pub slots_live: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let l = Latency::of(7000, (1..=100).rev().collect());
        assert_eq!(
            l,
            Latency {
                count: 7000,
                p50: 50,
                p90: 90,
                p99: 99,
                max: 100
            }
        );
        assert_eq!(Latency::of(0, vec![]), Latency::default());
        assert_eq!(Latency::of(1, vec![9]).p50, 9);
    }
}
