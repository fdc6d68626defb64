use crate::engine::Engine;
use crate::policy::by_name;
use crate::testing::{Fake, Noisy};
use amp_metrics::{
    CoreTypeId, CoreTypeSet, Cost, Estimate, MetricId, ProgramId, Provider, Seat, Snapshot,
    ThreadKey,
};
use proptest::prelude::*;

const BIG: CoreTypeId = CoreTypeId(0);
const LITTLE: CoreTypeId = CoreTypeId(1);

/// Knows factors, and what threads (one program each, numbered as its slot) cost each other.
struct Knowing {
    inner: Noisy,
    costs: Vec<Cost>,
}

impl Provider for Knowing {
    fn name(&self) -> &str {
        "knowing"
    }
    fn observe(&mut self, s: &Snapshot) {
        self.inner.observe(s);
    }
    fn estimate(&self, t: ThreadKey, m: MetricId) -> Option<Estimate> {
        self.inner.estimate(t, m)
    }
    fn costs(&self) -> &[Cost] {
        &self.costs
    }
    fn program(&self, t: ThreadKey) -> Option<ProgramId> {
        Some(ProgramId(t.slot))
    }
}

fn seat(program: u32, on: CoreTypeId) -> Seat {
    Seat {
        program: ProgramId(program),
        on,
    }
}

fn cost(of: (u32, CoreTypeId), beside: (u32, CoreTypeId), ln: f64) -> Cost {
    Cost {
        of: seat(of.0, of.1),
        beside: seat(beside.0, beside.1),
        ln,
    }
}

/// Threads with these factors on so many CPUs, under `hsp`.
fn machine(
    cpus: &[u32],
    sf: &[f64],
    noise: f64,
    costs: Vec<Cost>,
) -> (Fake, Engine, Vec<ThreadKey>) {
    let mut fake = Fake::new(cpus);
    let keys: Vec<ThreadKey> = (1..=sf.len() as u64).map(|a| fake.spawn(a)).collect();
    let sf: Vec<(u64, f64)> = (1..).zip(sf.iter().copied()).collect();
    let provider = Knowing {
        inner: Noisy::new(&sf, noise, 1),
        costs,
    };
    let topology = crate::machine::Machine::topology(&fake).clone();
    let policy = by_name("hsp", 1).unwrap();
    (
        fake,
        Engine::new(topology, policy, Box::new(provider)),
        keys,
    )
}

fn on(fake: &mut Fake, keys: &[ThreadKey], t: CoreTypeId) -> Vec<usize> {
    let placed = |i: &usize| {
        fake.snapshot
            .threads
            .iter()
            .any(|th| th.key == keys[*i] && th.placed == Some(t))
    };
    (0..keys.len()).filter(placed).collect()
}

/// The mix juno-contention: the best placement has one of the two hungry programs on a big core,
/// although four programs have higher factors.
#[test]
fn two_that_share_a_small_cache_are_put_apart() {
    let sf = [2.41, 2.24, 1.84, 1.66, 1.6, 1.6];
    let both = vec![
        cost((4, LITTLE), (5, LITTLE), 0.85),
        cost((5, LITTLE), (4, LITTLE), 0.85),
    ];
    for costs in [Vec::new(), both] {
        let apart = !costs.is_empty();
        let (mut fake, mut engine, keys) = machine(&[2, 4], &sf, 0.03, costs);
        for _ in 0..5 {
            engine.tick(&mut fake).unwrap();
        }
        let big = on(&mut fake, &keys, BIG);
        match apart {
            false => assert_eq!(big, [0, 1]),
            true => assert!(big[0] == 0 && big[1] >= 4, "{big:?}"),
        }
        let before = engine.totals().changes;
        for _ in 0..50 {
            engine.tick(&mut fake).unwrap();
        }
        assert_eq!(engine.totals().changes, before, "and there they stay");
    }
}

/// It costs the others, and gains nothing itself: no factor of its own says so.
#[test]
fn a_thread_that_only_disturbs_is_moved_for_the_others() {
    let sf = [1.5, 1.4, 1.3, 1.0];
    let costs = (0..3)
        .map(|i| cost((i, LITTLE), (3, LITTLE), 0.5))
        .collect();
    let (mut fake, mut engine, keys) = machine(&[1, 3], &sf, 0.0, costs);
    for _ in 0..5 {
        engine.tick(&mut fake).unwrap();
    }
    assert_eq!(on(&mut fake, &keys, BIG), [3]);
}

#[test]
fn what_costs_less_than_the_fast_core_brings_is_left_alone() {
    let sf = [3.0, 2.8, 1.2, 1.2, 1.2, 1.2];
    let costs = vec![cost((4, LITTLE), (5, LITTLE), 0.2)];
    let (mut fake, mut engine, keys) = machine(&[2, 4], &sf, 0.0, costs);
    for _ in 0..5 {
        engine.tick(&mut fake).unwrap();
    }
    assert_eq!(on(&mut fake, &keys, BIG), [0, 1]);
}

/// The sum that is to grow, of a placement.
fn sum(to: &[CoreTypeId], sf: &[f64], costs: &[Cost]) -> f64 {
    let speed = |i: usize| {
        let here = seat(i as u32, to[i]);
        let beside = |c: &&Cost| to.get(c.beside.program.0 as usize) == Some(&c.beside.on);
        let paid: f64 = costs
            .iter()
            .filter(|c| c.of == here)
            .filter(beside)
            .map(|c| c.ln)
            .sum();
        let own = if to[i] == BIG { sf[i] } else { 1.0 };
        own * (-paid).exp()
    };
    (0..to.len()).map(speed).sum()
}

proptest! {
    /// With any costs: affinity holds, every CPU gets its threads, nothing is refused, and the sum is
    /// no worse than it is without knowing of costs, but for the hysteresis.
    #[test]
    fn it_never_gets_worse(
        big in 1u32..4,
        little in 1u32..5,
        sf in prop::collection::vec(1.0f64..4.0, 2..9),
        allowed in prop::collection::vec(1u8..4, 9),
        costs in prop::collection::vec((0u32..9, 0u8..2, 0u32..9, 0u8..2, 0.05f64..2.0), 0..12),
    ) {
        let costs: Vec<Cost> = costs
            .into_iter()
            .filter(|(i, _, j, ..)| i != j)
            .map(|(i, on, j, there, ln)| cost((i, CoreTypeId(on)), (j, CoreTypeId(there)), ln))
            .collect();
        let mut sums = Vec::new();
        for known in [Vec::new(), costs.clone()] {
            let (mut fake, mut engine, keys) = machine(&[big, little], &sf, 0.0, known);
            for (key, bits) in keys.iter().zip(&allowed) {
                // beside threads that may run anywhere, a few that may not
                let set = if *bits == 3 || key.slot % 2 == 0 { CoreTypeSet::ALL } else { CoreTypeSet::from_bits(*bits) };
                fake.thread(*key).allowed = set;
            }
            for _ in 0..6 {
                engine.tick(&mut fake).unwrap();
            }
            prop_assert_eq!(engine.totals().refused, 0);
            let mut to = Vec::new();
            for th in &fake.snapshot.threads {
                let t = th.placed.unwrap();
                prop_assert!(th.allowed.contains(t));
                to.push(t);
            }
            let on_big = to.iter().filter(|t| **t == BIG).count();
            sums.push((sum(&to, &sf, &costs), on_big));
        }
        prop_assert_eq!(sums[0].1, sums[1].1);
        // with more threads than CPUs a neighbour is there for a part of the time only
        if sf.len() <= (big + little) as usize {
            let hysteresis = 0.04 * sf.iter().sum::<f64>() + 0.02;
            prop_assert!(sums[1].0 >= sums[0].0 - hysteresis, "{sums:?}");
        }
    }
}
