//! When busy threads ran, and on which CPU, from what they saw themselves.

/// A thread that looks at the clock all the time and misses more than this did not run meanwhile
/// (the longest round takes a tenth of it on the slowest core of the board; interrupts are
/// shorter).
const GAP_NS: u64 = 2_000_000;

/// One thread's spans of running.
#[derive(Debug, Default)]
pub struct Presence {
    spans: Vec<Span>,
    longest_gap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: u64,
    to: u64,
    cpu: u32,
}

impl Presence {
    /// The thread runs on `cpu` at `now`.
    pub fn seen(&mut self, now: u64, cpu: u32) {
        match self.spans.last_mut() {
            Some(s) if s.cpu == cpu && now.saturating_sub(s.to) <= GAP_NS => s.to = now,
            last => {
                if let Some(s) = last {
                    self.longest_gap = self.longest_gap.max(now.saturating_sub(s.to));
                }
                self.spans.push(Span {
                    from: now,
                    to: now,
                    cpu,
                });
            }
        }
    }
}

/// All of them together.
#[derive(Debug, PartialEq)]
pub struct Occupancy {
    /// Per thread: the longest time it wanted to run and did not.
    pub longest_gap: Vec<u64>,
    /// Per CPU: time it ran one of them.
    pub ran: Vec<u64>,
    /// Per CPU: time it ran none of them while at least one waited.
    pub idle_in_all: Vec<u64>,
    /// Per CPU: the longest such time in one piece.
    pub longest_idle: Vec<u64>,
    /// Time in which a core ran two of them at once, on CPUs of its own each, while another core ran none.
    pub crowded: u64,
}

impl Occupancy {
    /// Sums up `threads` on `cpus`, each with its core: hardware threads of one core have the same.
    pub fn of(threads: &[Presence], cpus: &[(u32, u32)]) -> Occupancy {
        let n = cpus.len();
        let mut cores: Vec<u32> = cpus.iter().map(|c| c.1).collect();
        cores.sort_unstable();
        cores.dedup();
        let mut o = Occupancy {
            longest_gap: threads.iter().map(|t| t.longest_gap).collect(),
            ran: vec![0; n],
            idle_in_all: vec![0; n],
            longest_idle: vec![0; n],
            crowded: 0,
        };
        // What changes when: a thread wants to run (±1), or runs on a CPU (±1).
        let mut events: Vec<(u64, Option<usize>, i32)> = Vec::new();
        for t in threads {
            if let (Some(first), Some(last)) = (t.spans.first(), t.spans.last()) {
                events.push((first.from, None, 1));
                events.push((last.to, None, -1));
            }
            for s in &t.spans {
                if let Some(cpu) = cpus.iter().position(|c| c.0 == s.cpu) {
                    events.push((s.from, Some(cpu), 1));
                    events.push((s.to, Some(cpu), -1));
                }
            }
        }
        events.sort_unstable_by_key(|e| e.0);
        let (mut wanting, mut running) = (0i32, 0i32);
        let mut on = vec![0i32; n];
        // since when a CPU has been idle while somebody waited
        let mut idle_since: Vec<Option<u64>> = vec![None; n];
        let mut at = 0;
        let mut events = events.into_iter().peekable();
        while let Some((now, what, step)) = events.next() {
            for (cpu, on) in on.iter().enumerate() {
                if *on > 0 {
                    o.ran[cpu] += now - at;
                } else if wanting > running {
                    o.idle_in_all[cpu] += now - at;
                }
            }
            let busy_cpus = |core: &u32| {
                let its = cpus.iter().zip(&on).filter(|(c, _)| c.1 == *core);
                its.filter(|(_, on)| **on > 0).count()
            };
            if cores.iter().any(|c| busy_cpus(c) > 1) && cores.iter().any(|c| busy_cpus(c) == 0) {
                o.crowded += now - at;
            }
            at = now;
            match what {
                None => wanting += step,
                Some(cpu) => {
                    on[cpu] += step;
                    running += step;
                }
            }
            if events.peek().is_some_and(|next| next.0 == now) {
                continue;
            }
            let cpus = on.iter().zip(&mut idle_since).zip(&mut o.longest_idle);
            for ((on, idle_since), longest) in cpus {
                let idle = *on == 0 && wanting > running;
                match (idle, *idle_since) {
                    (true, None) => *idle_since = Some(now),
                    (false, Some(since)) => {
                        *longest = (*longest).max(now - since);
                        *idle_since = None;
                    }
                    _ => {}
                }
            }
        }
        o
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn presence(looks: &[(u64, u32)]) -> Presence {
        let mut p = Presence::default();
        for (ms, cpu) in looks {
            p.seen(ms * MS, *cpu);
        }
        p
    }

    #[test]
    fn a_core_is_crowded_while_it_runs_two_and_another_none() {
        // on CPUs 0 and 1, threads of one core, for 10 ms; then the second is on a core of its own
        let looks = |from, to, cpu: u32| (from..to).map(move |ms| (ms, cpu));
        let a: Vec<_> = looks(0, 30, 0).collect();
        let b: Vec<_> = looks(0, 10, 1).chain(looks(10, 30, 2)).collect();
        let cpus = [(0, 0), (1, 0), (2, 2), (3, 2)];
        let o = Occupancy::of(&[presence(&a), presence(&b)], &cpus);
        assert_eq!(o.crowded, 9 * MS);
        // without a core to go to nobody is crowded
        let o = Occupancy::of(&[presence(&a), presence(&b)], &cpus[..2]);
        assert_eq!(o.crowded, 0);
    }

    #[test]
    fn spans_end_at_gaps_and_changes_of_cpu() {
        let p = presence(&[(0, 0), (1, 0), (2, 0), (10, 0), (11, 0), (12, 3)]);
        let spans: Vec<_> = p
            .spans
            .iter()
            .map(|s| (s.from / MS, s.to / MS, s.cpu))
            .collect();
        assert_eq!(spans, [(0, 2, 0), (10, 11, 0), (12, 12, 3)]);
        assert_eq!(p.longest_gap, 8 * MS);
    }

    #[test]
    fn idleness_counts_while_somebody_waits() {
        let a: Vec<(u64, u32)> = (0..=20).map(|ms| (ms, 0)).collect();
        // waits from 4 to 12, while CPU 1 is idle
        let b: Vec<(u64, u32)> = (0..=4).chain(12..=20).map(|ms| (ms, 1)).collect();
        let o = Occupancy::of(&[presence(&a), presence(&b)], &[(0, 0), (1, 1), (2, 2)]);
        assert_eq!(o.longest_gap, [0, 8 * MS]);
        assert_eq!(o.ran, [20 * MS, 12 * MS, 0]);
        assert_eq!(o.longest_idle, [0, 8 * MS, 8 * MS]);
        assert_eq!(o.idle_in_all, o.longest_idle);
    }

    #[test]
    fn two_that_take_turns_leave_no_cpu_idle() {
        let turn = |mine: u64| {
            let looks: Vec<(u64, u32)> = (0..100)
                .filter(|ms| ms / 10 % 2 == mine)
                .flat_map(|ms| [(ms, 0), (ms + 1, 0)])
                .collect();
            presence(&looks)
        };
        let o = Occupancy::of(&[turn(0), turn(1)], &[(0, 0)]);
        assert_eq!(o.longest_idle, [0]);
        assert_eq!(o.longest_gap, [10 * MS, 10 * MS]);
        assert_eq!(o.ran, [100 * MS]);
    }
}
