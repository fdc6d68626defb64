//! What core types can do at present.

use amp_metrics::{CoreTypeId, Subject, VirtualCounter, VirtualReading, MAX_CORE_TYPES};
use amp_sched::Topology;

/// The capacity of the fastest core type.
const FASTEST: f64 = 1024.0;

/// The capacity of one core of each type, 1 to 1024: what the machine's files said at the start, put right by what
/// virtual counters say now. Where the hardware rates every core type, that counts: the best of them has
/// 1024. Elsewhere it is the part of it that limits of clocks leave.
#[derive(Debug)]
pub struct Capacities {
    at_best: Vec<u32>,
    now: Vec<u32>,
}

impl Capacities {
    /// Of core types at their best.
    pub fn of(topology: &Topology) -> Capacities {
        let types = topology.core_types().iter();
        let at_best: Vec<u32> = types.map(|t| t.capacity.clamp(1, 1024)).collect();
        Capacities {
            now: at_best.clone(),
            at_best,
        }
    }

    /// By core type, fastest first.
    pub fn now(&self) -> &[u32] {
        &self.now
    }

    /// Takes in what virtual counters say, and answers which core types have another capacity now.
    pub fn update(&mut self, said: &[VirtualReading]) -> Vec<(CoreTypeId, u32)> {
        let nr = self.now.len();
        let (mut rated, mut limits) = ([None; MAX_CORE_TYPES], [None; MAX_CORE_TYPES]);
        for r in said.iter().filter(|r| r.value.is_finite()) {
            let Subject::CoreType(t) = r.of else { continue };
            let levels = match r.counter {
                VirtualCounter::Performance => &mut rated,
                VirtualCounter::ClockLimit => &mut limits,
                _ => continue,
            };
            if let Some(level) = levels.get_mut(t.index()) {
                *level = Some(r.value);
            }
        }
        let all_rated = rated.iter().take(nr).all(Option::is_some);
        let best = rated.iter().flatten().copied().fold(0.0, f64::max);
        let mut changed = Vec::new();
        for (t, now) in self.now.iter_mut().enumerate() {
            let level = |of: &[Option<f64>]| of.get(t).copied().flatten();
            let capacity = match level(&rated).filter(|_| all_rated && best > 0.0) {
                Some(rated) => FASTEST * rated / best,
                None => f64::from(self.at_best[t]) * level(&limits).unwrap_or(1.0),
            };
            let capacity = capacity.round().clamp(1.0, FASTEST) as u32;
            if capacity != std::mem::replace(now, capacity) {
                changed.push((CoreTypeId(t as u8), capacity));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::virtual_counters::{Messages, ThreadDirector, VirtualCounters};
    use amp_metrics::{Nanos, Snapshot};
    use amp_sched::CoreType;
    use std::sync::{Arc, Mutex};

    fn capacities() -> Capacities {
        let t = |name: &str, cpus: &[u32], capacity| CoreType {
            name: name.into(),
            cpus: cpus.to_vec(),
            capacity,
        };
        let types = vec![t("P", &[0, 1], 1024), t("E", &[2, 3], 600)];
        Capacities::of(&Topology::new(types).unwrap())
    }

    fn said(levels: &[(VirtualCounter, u8, f64)]) -> Vec<VirtualReading> {
        let reading = |(counter, t, value): &(VirtualCounter, u8, f64)| VirtualReading {
            counter: *counter,
            of: Subject::CoreType(CoreTypeId(*t)),
            value: *value,
            over: Nanos::ZERO,
        };
        levels.iter().map(reading).collect()
    }

    fn update(c: &mut Capacities, said: &[VirtualReading]) -> Vec<(u8, u32)> {
        c.update(said)
            .into_iter()
            .map(|(t, capacity)| (t.0, capacity))
            .collect()
    }

    #[test]
    fn a_limit_of_clocks_leaves_a_part() {
        use VirtualCounter::ClockLimit;
        let mut c = capacities();
        assert_eq!(update(&mut c, &[]), []);
        assert_eq!(update(&mut c, &said(&[(ClockLimit, 0, 0.5)])), [(0, 512)]);
        assert_eq!(update(&mut c, &said(&[(ClockLimit, 0, 0.5)])), []);
        let both = said(&[(ClockLimit, 0, 1.0), (ClockLimit, 1, 0.0)]);
        assert_eq!(update(&mut c, &both), [(0, 1024), (1, 1)]);
        // what is said no more is as it was
        assert_eq!(update(&mut c, &[]), [(1, 600)]);
        assert_eq!(update(&mut c, &said(&[(ClockLimit, 0, f64::NAN)])), []);
    }

    #[test]
    fn what_the_hardware_says_of_all_core_types_goes_first() {
        use VirtualCounter::{ClockLimit, Performance};
        let mut c = capacities();
        // of one type alone: nobody knows what that is beside the other
        assert_eq!(update(&mut c, &said(&[(Performance, 0, 0.4)])), []);
        let all = [
            (Performance, 0, 0.4),
            (Performance, 1, 0.3),
            (ClockLimit, 0, 0.5),
        ];
        assert_eq!(update(&mut c, &said(&all)), [(1, 768)]);
        // throttled below the efficient cores
        let hot = [(Performance, 0, 0.1), (Performance, 1, 0.2)];
        assert_eq!(update(&mut c, &said(&hot)), [(0, 512), (1, 1024)]);
        let none = [(Performance, 0, 0.0), (Performance, 1, 0.0)];
        assert_eq!(update(&mut c, &said(&none)), [(0, 1024), (1, 600)]);
    }

    /// What was sent and not yet read.
    #[derive(Clone, Default)]
    struct Sent(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Messages for Sent {
        fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
            Ok(self.0.lock().unwrap().pop())
        }
    }

    /// As `intel_hfi` would say it of one CPU, in bytes.
    fn message(cpu: u32, performance: u32) -> Vec<u8> {
        let field = |kind: u16, n: u32| {
            let mut f = 8u16.to_ne_bytes().to_vec();
            f.extend(kind.to_ne_bytes());
            f.extend(n.to_ne_bytes());
            f
        };
        let mut m = 48u32.to_ne_bytes().to_vec();
        m.extend(0x1cu16.to_ne_bytes());
        m.extend([0; 10]);
        m.extend([14, 1, 0, 0]);
        m.extend(28u16.to_ne_bytes());
        m.extend(20u16.to_ne_bytes());
        for (kind, n) in [(21, cpu), (22, performance), (23, 0)] {
            m.extend(field(kind, n));
        }
        m
    }

    #[test]
    fn a_change_that_was_sent_is_followed_at_the_next_sample() {
        let sent = Sent::default();
        let cpus = vec![vec![0, 1], vec![2, 3]];
        let director = ThreadDirector::of(Box::new(sent.clone()), 0x1c, cpus);
        let mut counters = VirtualCounters::of(vec![Box::new(director)]);
        let mut snapshot = Snapshot::default();
        let mut c = capacities();
        let mut step = |messages: Vec<Vec<u8>>| {
            sent.0.lock().unwrap().extend(messages);
            snapshot.now += Nanos::from_millis(500);
            counters.sample(&mut snapshot);
            update(&mut c, &snapshot.virtual_counters)
        };
        assert_eq!(step(vec![]), []);
        assert_eq!(step(vec![message(0, 1000), message(2, 500)]), [(1, 512)]);
        // heat; a message that is no message changes nothing
        assert_eq!(step(vec![vec![7; 30], message(0, 600)]), [(1, 853)]);
        assert_eq!(step(vec![]), []);
        // a CPU that is to be left alone is no slow one, nor is a core type of such CPUs: at capacity 1 hardly any
        // thread without a place would wait for it, for as long as the hardware says no more
        assert_eq!(step(vec![message(1, 0)]), []);
        assert_eq!(step(vec![message(2, 0), message(3, 0)]), []);
        assert_eq!(step(vec![message(0, 0)]), []);
        assert_eq!(step(vec![message(3, 300)]), [(1, 512)]);
    }
}
