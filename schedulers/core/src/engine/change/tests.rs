use super::*;
use crate::machine::Machine;
use crate::policy;
use crate::testing::{Fake, Noisy};
use amp_metrics::{providers, CoreTypeId, CoreTypeSet, ThreadKey};
use proptest::prelude::*;

fn engine(fake: &Fake, name: &str) -> Engine {
    let policy = policy::by_name(name, 1).unwrap();
    Engine::new(
        fake.topology().clone(),
        policy,
        providers::by_name("none").unwrap(),
    )
}

fn known(e: &mut Engine, sf: &[(u64, f64)]) {
    e.set_provider(Box::new(Noisy::new(sf, 0.0, 1)));
}

#[test]
fn parameters_outlive_their_policy_and_may_be_set_before_it() {
    let fake = Fake::new(&[1, 1]);
    let (mut e, mut c) = (engine(&fake, "rr"), Changes::new(1));
    c.set(&mut e, &["threshold=50", "acfs.uf=1.5"]).unwrap();
    assert_eq!(e.policy().knobs().number(0), 50.0);
    assert!(c.policy(&mut e, "acfs").unwrap());
    let shown: Vec<_> = e.policy().knobs().values().collect();
    assert!(shown.contains(&("uf", "1.5".into())), "{shown:?}");
    assert!(c.policy(&mut e, "rr").unwrap());
    assert_eq!(e.policy().knobs().number(0), 50.0);
    assert!(!c.policy(&mut e, "rr").unwrap(), "it is there already");
}

#[test]
fn a_refused_change_names_what_is_wrong_and_changes_nothing() {
    let fake = Fake::new(&[1, 1]);
    let (mut e, mut c) = (engine(&fake, "rr"), Changes::new(1));
    c.set(&mut e, &["threshold=50"]).unwrap();
    for (settings, words) in [
        (
            &["treshold=1"][..],
            &["treshold=1", "`rr`", "did you mean `threshold`?"][..],
        ),
        (&["uf=2"], &["no parameter `uf`", "did you mean `acfs.uf`?"]),
        (&["acfs.unfair=2"], &["acfs.unfair", "t_swap, uf"]),
        (
            &["threshold=60", "threshold=-1"],
            &["threshold=-1", "from 1 to 60000 ms"],
        ),
        (&["threshold=NaN"], &["NaN", "a number from 1"]),
        (&["acfs.uf=inf"], &["uf=inf", "1 to 100"]),
        (
            &["afcs.uf=2"],
            &["unknown policy `afcs`", "did you mean `acfs`?"],
        ),
        (&["eevdf.uf=2"], &["kernel's own scheduler"]),
        (&["uf"], &["uf: want POLICY.KNOB=VALUE"]),
        (&["=1"], &["=1: want"]),
        (&[".uf=1"], &[".uf=1: want"]),
        (&["threshold="], &["threshold=", "from 1 to"]),
    ] {
        let told = c.set(&mut e, settings).unwrap_err().to_string();
        for w in words {
            assert!(told.contains(w), "`{w}` in: {told}");
        }
        assert_eq!(e.policy().knobs().number(0), 50.0, "{settings:?}");
    }
    for (name, words) in [
        (
            "rrr",
            &["unknown policy `rrr`", "did you mean `rr`?", "hsp"][..],
        ),
        ("lavd", &["unknown policy `lavd`", "there are hsp"]),
        ("eevdf", &["kernel's own scheduler"]),
        ("", &["unknown policy ``"]),
    ] {
        let told = c.policy(&mut e, name).unwrap_err().to_string();
        for w in words {
            assert!(told.contains(w), "`{w}` in: {told}");
        }
        assert_eq!(e.policy().name(), "rr");
    }
    // every policy can manage three core types
    let three = Fake::new(&[1, 1, 1]);
    let mut e = engine(&three, "rr");
    c.policy(&mut e, "pareto").unwrap();
    assert_eq!(e.policy().name(), "pareto");
}

#[test]
fn progress_made_under_one_policy_counts_under_the_next() {
    let mut fake = Fake::new(&[1, 1]);
    let keys = [fake.spawn(1), fake.spawn(2)];
    let (mut e, mut c) = (engine(&fake, "hsp"), Changes::new(1));
    known(&mut e, &[(1, 3.0), (2, 2.0)]);
    for _ in 0..50 {
        e.tick(&mut fake).unwrap();
    }
    // one ran alone on the fast core, the other at half the speed it would have had
    let done = keys.map(|k| e.done(k).unwrap());
    assert!(
        (done[0].alone / done[0].rated - 1.0).abs() < 0.02,
        "{done:?}"
    );
    assert!(
        (done[1].alone / done[1].rated - 0.5).abs() < 0.02,
        "{done:?}"
    );
    c.policy(&mut e, "acfs").unwrap();
    let held = |fake: &mut Fake| keys.map(|k| fake.thread(k).runtime[0]);
    let before = held(&mut fake);
    for _ in 0..15 {
        e.tick(&mut fake).unwrap();
    }
    let after = held(&mut fake);
    let gained = [0, 1].map(|i| (after[i] - before[i]).as_secs_f64());
    // the second is made up for what it lost, at once and alone
    assert!(gained[1] > 1.2 && gained[0] < 0.3, "{gained:?}");
}

/// What was done in the two seconds before speedup factors were known is rated when they are; no longer
/// time, which may have been another phase.
#[test]
fn progress_is_counted_once_speedup_factors_are_known() {
    // ticks without, and seconds that are rated after five ticks with factors: nothing is known of
    // what ran before the first tick
    for (without, rated) in [(5, 0.9), (20, 2.4), (25, 0.5)] {
        let mut fake = Fake::new(&[1, 1]);
        let key = fake.spawn(1);
        let mut e = engine(&fake, "rr");
        for _ in 0..without {
            e.tick(&mut fake).unwrap();
        }
        assert_eq!(e.done(key), Some(super::super::Done::default()));
        known(&mut e, &[(1, 2.0)]);
        for _ in 0..5 {
            e.tick(&mut fake).unwrap();
        }
        let done = e.done(key).unwrap();
        assert!((done.rated - rated).abs() < 1e-9, "{without}: {done:?}");
        let stranger = ThreadKey {
            slot: 77,
            generation: 1,
        };
        assert_eq!(e.done(stranger), None);
    }
}

/// Something that happens between two ticks.
#[derive(Clone, Debug)]
enum Op {
    Policy(usize),
    BadPolicy,
    Knob(usize, usize, f64),
    BadKnob(f64),
    Provider(u8),
    Spawn(u64),
    Exit(usize),
    Sleep(usize),
    Affinity(usize, u8),
    Weight(usize, u32),
    Tick,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..policy::NAMES.len()).prop_map(Op::Policy),
        1 => Just(Op::BadPolicy),
        2 => (0..policy::NAMES.len(), 0..8usize, 0.0..1.0f64).prop_map(|(p, k, v)| Op::Knob(p, k, v)),
        1 => prop_oneof![Just(f64::NAN), Just(-1.0), Just(1e300)].prop_map(Op::BadKnob),
        2 => (0..3u8).prop_map(Op::Provider),
        2 => (0..4u64).prop_map(Op::Spawn),
        1 => (0..32usize).prop_map(Op::Exit),
        1 => (0..32usize).prop_map(Op::Sleep),
        1 => (0..32usize, 1..8u8).prop_map(|(t, a)| Op::Affinity(t, a)),
        1 => (0..32usize, 20..500u32).prop_map(|(t, w)| Op::Weight(t, w)),
        6 => Just(Op::Tick),
    ]
}

fn value_in(kind: crate::policy::KnobKind, at: f64) -> String {
    use crate::policy::KnobKind::{Auto, Choice, Number};
    match kind {
        Number { min, max, .. } | Auto { min, max, .. } => {
            (min + at * (max.min(1e6) - min)).to_string()
        }
        Choice(words) => words[(at * words.len() as f64) as usize].to_owned(),
    }
}

/// Every thread that wants a core has a place that its affinity admits.
fn check(e: &Engine, fake: &Fake) {
    assert_eq!(e.totals().refused, 0);
    for th in e.offered() {
        let now = fake
            .snapshot
            .threads
            .iter()
            .find(|t| t.key == th.key)
            .unwrap();
        let placed = now.placed.expect("a thread that was offered has a place");
        assert!(th.allowed.contains(placed), "{th:?} on {placed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_loses_a_thread_or_breaks_an_affinity(
        three in any::<bool>(),
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let mut fake = Fake::new(if three { &[1, 2, 2] } else { &[2, 4] });
        let all = CoreTypeSet::from_bits(if three { 7 } else { 3 });
        let (mut e, mut c) = (engine(&fake, "rr"), Changes::new(1));
        for i in 0..4 {
            fake.spawn(i);
        }
        for op in ops {
            let n = fake.snapshot.threads.len();
            let was = (e.policy().name(), e.policy().knobs().to_string());
            match op {
                Op::Policy(p) => {
                    let taken = c.policy(&mut e, policy::NAMES[p]);
                    prop_assert!(taken.is_ok() || three);
                }
                Op::BadPolicy => {
                    prop_assert!(c.policy(&mut e, "best").is_err());
                    prop_assert_eq!(&was, &(e.policy().name(), e.policy().knobs().to_string()));
                }
                Op::Knob(p, k, at) => {
                    let of = policy::by_name(policy::NAMES[p], 1).unwrap();
                    let knobs: Vec<_> = of.knobs().iter().collect();
                    let knob = knobs[k % knobs.len()];
                    let text = format!("{}.{}={}", of.name(), knob.key, value_in(knob.kind, at));
                    let set = c.set(&mut e, &[&text]);
                    prop_assert!(set.is_ok() || three, "{}: {:?}", text, set);
                }
                Op::BadKnob(v) => {
                    let bad = format!("rr.threshold={v}");
                    prop_assert!(c.set(&mut e, &[bad]).is_err());
                    prop_assert_eq!(&was, &(e.policy().name(), e.policy().knobs().to_string()));
                }
                Op::Provider(0) => c.provider(&mut e, providers::by_name("none").unwrap()),
                Op::Provider(i) => known(&mut e, &[(0, 3.0), (1, 1.0 + f64::from(i)), (2, 1.2)]),
                Op::Spawn(app) if n < 24 => {
                    fake.spawn(app);
                }
                Op::Exit(i) if n > 0 => {
                    let key = fake.snapshot.threads[i % n].key;
                    fake.exit(key);
                }
                Op::Sleep(i) if n > 0 => {
                    let t = &mut fake.snapshot.threads[i % n];
                    t.runnable = !t.runnable;
                }
                Op::Affinity(i, bits) if n > 0 => {
                    let allowed = CoreTypeSet::from_bits(bits).intersection(all);
                    if allowed != CoreTypeSet::EMPTY {
                        fake.snapshot.threads[i % n].allowed = allowed;
                    }
                }
                Op::Weight(i, w) if n > 0 => fake.snapshot.threads[i % n].weight = w,
                _ => {
                    e.tick(&mut fake).unwrap();
                    check(&e, &fake);
                }
            }
        }
        // Whoever is still there and runnable has its place soon, and its time sooner or later: the
        // fake machine lets newcomers catch up with all that others have ever run.
        let before: Vec<_> = fake.snapshot.threads.iter().map(|t| (t.key, t.runtime)).collect();
        let mut ticks = 0;
        loop {
            e.tick(&mut fake).unwrap();
            check(&e, &fake);
            ticks += 1;
            if ticks < 5 {
                continue;
            }
            let waiting = before.iter().find(|(key, ran)| {
                let t = fake.thread(*key);
                t.runnable && t.runtime == *ran
            });
            for t in fake.snapshot.threads.iter().filter(|t| t.runnable) {
                prop_assert!(t.placed.is_some_and(|p: CoreTypeId| t.allowed.contains(p)), "{t:?}");
            }
            let Some((key, _)) = waiting else { break };
            prop_assert!(ticks < 3000, "{key:?} was lost");
        }
    }
}
