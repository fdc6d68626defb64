use super::*;
use crate::engine::Engine;
use crate::policy::contract::Policy;
use crate::policy::{by_name, NAMES};
use crate::testing::{Fake, Noisy};
use crate::view::View;
use amp_metrics::{CoreTypeSet, Estimate, MetricId, Snapshot};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A provider that would like to see threads where it is told to.
struct Curious {
    inner: Noisy,
    wants: Arc<Mutex<FxHashMap<ThreadKey, CoreTypeId>>>,
}

impl Provider for Curious {
    fn name(&self) -> &str {
        "curious"
    }
    fn observe(&mut self, s: &Snapshot) {
        self.inner.observe(s);
    }
    fn estimate(&self, t: ThreadKey, m: MetricId) -> Option<Estimate> {
        self.inner.estimate(t, m)
    }
    fn wanted_on(&self, t: ThreadKey) -> Option<CoreTypeId> {
        self.wants.lock().unwrap().get(&t).copied()
    }
}

type Decisions = Arc<Mutex<FxHashMap<ThreadKey, Option<CoreTypeId>>>>;

/// A policy whose decisions can be read.
struct Watched(Box<dyn Policy>, Decisions, Arc<AtomicBool>);

impl Policy for Watched {
    fn place(&mut self, view: &View<'_>, out: &mut Placement) {
        self.0.place(view, out);
        *self.1.lock().unwrap() = out.iter().collect();
    }
    fn contested(&self, _i: usize) -> bool {
        !self.2.load(Ordering::Relaxed)
    }
    fn knobs(&self) -> &Knobs {
        self.0.knobs()
    }
    fn knobs_mut(&mut self) -> &mut Knobs {
        self.0.knobs_mut()
    }
}

struct Lab {
    fake: Fake,
    engine: Engine,
    keys: Vec<ThreadKey>,
    wants: Arc<Mutex<FxHashMap<ThreadKey, CoreTypeId>>>,
    decided: Decisions,
    /// Whether the policy is sure of every place.
    sure: Arc<AtomicBool>,
}

impl Lab {
    fn new(cpus: &[u32], sf: &[f64], policy: &str) -> Lab {
        use crate::machine::Machine;
        let mut fake = Fake::new(cpus);
        let keys = (1..=sf.len() as u64).map(|a| fake.spawn(a)).collect();
        let sf: Vec<(u64, f64)> = (1..).zip(sf.iter().copied()).collect();
        let (wants, decided) = (Arc::default(), Decisions::default());
        let provider = Curious {
            inner: Noisy::new(&sf, 0.0, 1),
            wants: Arc::clone(&wants),
        };
        let sure = Arc::default();
        let inner = by_name(policy, 1).unwrap();
        let policy = Watched(inner, Arc::clone(&decided), Arc::clone(&sure));
        let topology = fake.topology().clone();
        Lab {
            engine: Engine::new(topology, Box::new(policy), Box::new(provider)),
            fake,
            keys,
            wants,
            decided,
            sure,
        }
    }

    fn tick(&mut self) {
        self.engine.tick(&mut self.fake).unwrap();
    }

    fn placed(&mut self, i: usize) -> Option<CoreTypeId> {
        let key = self.keys[i];
        self.fake.thread(key).placed
    }

    fn probes(&self) -> u64 {
        self.engine.totals().probes
    }
}

const BIG: CoreTypeId = CoreTypeId(0);
const LITTLE: CoreTypeId = CoreTypeId(1);

#[test]
fn two_threads_change_places_for_an_interval_and_the_policy_sees_nothing() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    for _ in 0..5 {
        lab.tick();
    }
    assert_eq!((lab.placed(0), lab.placed(1)), (Some(BIG), Some(LITTLE)));
    assert_eq!(lab.probes(), 0, "nothing is wanted");
    let key = lab.keys[0];
    lab.wants.lock().unwrap().insert(key, LITTLE);
    lab.tick();
    assert_eq!((lab.placed(0), lab.placed(1)), (Some(LITTLE), Some(BIG)));
    let decided = lab.decided.lock().unwrap().clone();
    assert_eq!(decided[&lab.keys[0]], Some(BIG));
    lab.tick();
    assert_eq!((lab.placed(0), lab.placed(1)), (Some(BIG), Some(LITTLE)));
    assert_eq!((lab.probes(), lab.engine.totals().refused), (1, 0));
    // 0.1 s away in 0.6 s: 5 % of the time is not over for long
    for _ in 0..10 {
        lab.tick();
        assert_eq!(lab.probes(), 1);
    }
    for _ in 0..10 {
        lab.tick();
    }
    assert_eq!(lab.probes(), 2);
}

/// Decisions that are made early do not cut it short.
#[test]
fn a_probe_lasts_an_interval_whatever_else_is_decided() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    lab.engine.period = Some(lab.fake.interval);
    let usual = lab.fake.interval;
    for _ in 0..5 {
        lab.tick();
    }
    let key = lab.keys[0];
    lab.wants.lock().unwrap().insert(key, LITTLE);
    lab.tick();
    lab.fake.interval = Nanos(usual.0 / 4);
    for _ in 0..3 {
        assert_eq!(lab.placed(0), Some(LITTLE));
        lab.tick();
    }
    assert_eq!(lab.placed(0), Some(BIG));
}

/// Nothing is gained by it, unless what is told of the thread is wrong.
#[test]
fn a_thread_whose_place_is_not_contested_is_looked_at_rarely() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    lab.sure.store(true, Ordering::Relaxed);
    let key = lab.keys[0];
    lab.wants.lock().unwrap().insert(key, LITTLE);
    // an interval is 2 % of five seconds
    for _ in 0..48 {
        lab.tick();
        assert_eq!(lab.probes(), 0);
    }
    for _ in 0..10 {
        lab.tick();
    }
    assert_eq!(lab.probes(), 1);
}

/// Otherwise a program of short runs would be away in every one of them.
#[test]
fn the_next_run_of_a_program_has_the_account_of_the_one_before() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    for _ in 0..5 {
        lab.tick();
    }
    for run in 0..3 {
        let first = lab.keys[0];
        lab.wants.lock().unwrap().insert(first, LITTLE);
        // 17 intervals in all, and 5 % of 20 are the next probe
        for _ in 0..2 {
            lab.tick();
        }
        assert_eq!(lab.probes(), 1, "run {run}");
        for (i, key) in lab.keys.clone().into_iter().enumerate() {
            let comm = lab.fake.thread(key).comm;
            lab.fake.exit(key);
            lab.tick();
            lab.keys[i] = lab.fake.spawn(i as u64 + 1);
            let key = lab.keys[i];
            lab.fake.thread(key).comm = comm;
        }
    }
}

#[test]
fn a_probe_ends_with_the_partner_and_there_is_none_without_one() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    for _ in 0..5 {
        lab.tick();
    }
    let (key, other) = (lab.keys[0], lab.keys[1]);
    lab.wants.lock().unwrap().insert(key, LITTLE);
    lab.tick();
    assert_eq!(lab.placed(0), Some(LITTLE));
    lab.fake.exit(other);
    lab.tick();
    assert_eq!(lab.placed(0), Some(BIG));
    for _ in 0..100 {
        lab.tick();
        assert_eq!(lab.placed(0), Some(BIG), "alone, it keeps the fast core");
    }
    assert_eq!(lab.probes(), 1);
}

#[test]
fn never_for_who_may_not_run_there_nor_under_a_policy_without_metrics() {
    let mut lab = Lab::new(&[1, 1], &[3.0, 1.5], "hsp");
    let key = lab.keys[0];
    lab.fake.thread(key).allowed = CoreTypeSet::EMPTY.with(BIG);
    lab.wants.lock().unwrap().insert(key, LITTLE);
    for _ in 0..50 {
        lab.tick();
    }
    assert_eq!(lab.probes(), 0);
    for policy in NAMES {
        let by_metrics = crate::policy::registry::uses_metrics(policy);
        let mut lab = Lab::new(&[1, 3], &[3.0, 2.5, 1.5, 1.2], policy);
        for i in 0..60 {
            for key in lab.keys.clone() {
                lab.wants
                    .lock()
                    .unwrap()
                    .insert(key, CoreTypeId((i / 10) % 2));
            }
            lab.tick();
        }
        assert_eq!(lab.probes() > 0, by_metrics, "{policy}");
        lab.engine.knobs.set("probes", "0").unwrap();
        let before = lab.probes();
        for _ in 0..50 {
            lab.tick();
        }
        assert_eq!(lab.probes(), before, "{policy}");
    }
}

proptest! {
    /// A provider that always wants something, threads that sleep, end and are bound to core types:
    /// as many threads are on each core type as the policy decided, each where it may be, and none
    /// is away for longer than its share and one probe, by what its changes of place cost.
    #[test]
    fn probes_keep_counts_affinity_and_shares(
        cpus in prop::collection::vec(1u32..4, 2..4),
        threads in prop::collection::vec((1.0f64..4.0, 1u8..8, any::<u64>()), 2..12),
        policy in 0..NAMES.len(),
        share in 1u32..30,
        seed in any::<u64>(),
    ) {
        let policy = NAMES[policy];
        prop_assume!(cpus.len() == 2 || !matches!(policy, "eqp" | "propsp" | "prim" | "pareto" | "ef"));
        let sf: Vec<f64> = threads.iter().map(|t| t.0).collect();
        let mut lab = Lab::new(&cpus, &sf, policy);
        lab.engine.knobs.set("probes", &share.to_string()).unwrap();
        let all = (1u8 << cpus.len()) - 1;
        for (i, (_, allowed, _)) in threads.iter().enumerate() {
            let bits = if allowed & all == 0 { all } else { allowed & all };
            let key = lab.keys[i];
            lab.fake.thread(key).allowed = CoreTypeSet::from_bits(bits);
        }
        let mut away = vec![0u32; threads.len()];
        let mut offered = vec![0u32; threads.len()];
        for round in 0..120u64 {
            for (i, (_, _, rests)) in threads.iter().enumerate() {
                let key = lab.keys[i];
                lab.fake.thread(key).runnable = rests >> (round / 10) & 7 != 0;
                let t = seed.wrapping_mul(i as u64 + 3).wrapping_add(round / 5) % cpus.len() as u64;
                lab.wants.lock().unwrap().insert(key, CoreTypeId(t as u8));
            }
            lab.tick();
            let decided = lab.decided.lock().unwrap().clone();
            let mut counts = [[0; 3]; 2];
            for (i, key) in lab.keys.clone().into_iter().enumerate() {
                let th = *lab.fake.thread(key);
                if let Some(p) = th.placed {
                    prop_assert!(th.allowed.contains(p), "{policy}: {key:?} on {p}");
                }
                let Some(Some(to)) = decided.get(&key) else { continue };
                offered[i] += 1;
                away[i] += u32::from(th.placed != Some(*to));
                counts[0][to.index()] += 1;
                counts[1][th.placed.unwrap().index()] += 1;
            }
            prop_assert_eq!(counts[0], counts[1], "{}", policy);
            prop_assert_eq!(lab.engine.totals().refused, 0);
        }
        for (i, (away, offered)) in away.iter().zip(&offered).enumerate() {
            let most = share as f64 / 100.0 * f64::from(*offered) + 1.0;
            // what it costs to change places with the nearest of the others, of more types with anybody
            let others = (0..sf.len()).filter(|j| *j != i);
            let nearest = others.map(|j| (sf[i] / sf[j]).ln().abs()).fold(f64::MAX, f64::min);
            let least = match cpus.len() {
                2 => (nearest / DEAR.ln()).clamp(LEAST_COST, 1.0),
                _ => LEAST_COST,
            };
            prop_assert!(f64::from(*away) * least <= most + 1e-9, "{away} of {offered}");
        }
    }
}

/// Two threads of nearly the same factor change places for less than two that differ.
#[test]
fn near_factors_are_cheap_to_compare() {
    let probes = |sf: [f64; 2]| {
        let mut lab = Lab::new(&[1, 1], &sf, "hsp");
        for _ in 0..400 {
            let key = lab.keys[1];
            lab.wants.lock().unwrap().insert(key, BIG);
            lab.tick();
        }
        lab.probes()
    };
    let (dear, cheap) = (probes([3.0, 1.2]), probes([1.25, 1.2]));
    assert!(dear > 0 && cheap >= 2 * dear, "{dear} and {cheap}");
}
