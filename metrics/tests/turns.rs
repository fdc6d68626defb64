//! When a model's event sets take turns.

use amp_metrics::providers::{Model, PlatformModel};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Nanos, Pmus, Provider, Reading, Snapshot, ThreadKey,
    ThreadSample, MAX_CORE_TYPES,
};
use std::path::Path;

/// Sets in turn, where nobody waits for one.
const MODEL: &str = r#"
kind = "model"
[settings]
strategy = "round-robin"
settled_ms = 300.0
[[core_type]]
name = "big"
[[core_type.event_set]]
misses = "cache-misses"
[[core_type.event_set]]
branches = "branches"
[[core_type]]
name = "little"
[[core_type.event_set]]
"#;

fn key(slot: u32) -> ThreadKey {
    ThreadKey {
        slot,
        generation: 1,
    }
}

/// The set that was on before and after each interval of 100 ms, in which threads ran on the big
/// cores with these IPCs; one with an IPC of 0 was there and not read.
fn sets(intervals: &[&[(u32, f64)]]) -> Vec<usize> {
    sets_of(MODEL, intervals)
}

fn sets_of(model: &str, intervals: &[&[(u32, f64)]]) -> Vec<usize> {
    let model = PlatformModel::parse(Path::new("m.toml"), model).unwrap();
    let mut p = Model::new(model);
    p.event_sets(&Pmus::generic(&[vec![0], vec![1]], 4))
        .unwrap();
    let big = CoreTypeId(0);
    let mut on = vec![p.active_set(big)];
    for (i, threads) in (1..).zip(intervals) {
        let ran = Nanos::from_millis(100);
        let sample = |slot: u32| ThreadSample {
            key: key(slot),
            tid: slot as i32,
            app: AppId(u64::from(slot)),
            comm: [0; 16],
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: big,
            placed: None,
            runtime: [Nanos::from_millis(100 * i); MAX_CORE_TYPES],
        };
        let set = p.active_set(big) as u32;
        let reading = |(slot, ipc): &(u32, f64)| {
            let (ipc, counted) = match *ipc {
                10.0 => (2.0, Nanos(ran.0 / 3)),
                ipc => (ipc, ran),
            };
            let instructions = (ipc * 1e6) as u64;
            // misses vary, branches do not
            let count = if set == 0 {
                1_000 * (i * 7 % 11)
            } else {
                10_000
            };
            Reading::new(key(*slot), big, set, 1, &[instructions, 1_000_000, count])
                .over(ran, counted)
        };
        p.observe(&Snapshot {
            now: Nanos::from_millis(100 * i),
            threads: threads.iter().map(|(slot, _)| sample(*slot)).collect(),
            readings: threads.iter().filter(|t| t.1 > 0.0).map(reading).collect(),
            ..Snapshot::default()
        });
        on.push(p.active_set(big));
    }
    on
}

#[test]
fn sets_change_while_somebody_waits_and_now_and_then_otherwise() {
    let steady: &[(u32, f64)] = &[(1, 1.0)];
    // a round takes two intervals; then a set stays for three
    assert_eq!(sets(&[steady; 10]), [0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0]);
    // another thread is not known yet
    let two: &[(u32, f64)] = &[(1, 1.0), (2, 2.0)];
    assert_eq!(sets(&[steady, steady, two, two, two]), [0, 1, 1, 0, 0, 0]);
    // the program does something else
    let other: &[(u32, f64)] = &[(1, 3.0)];
    let on = sets(&[steady, steady, other, other, other, other]);
    assert_eq!(on, [0, 1, 1, 0, 1, 1, 1]);
}

/// Counters of a thread that goes on running are not read at every look.
#[test]
fn who_waits_is_not_forgotten_when_only_others_are_read() {
    let read: &[(u32, f64)] = &[(1, 1.0), (2, 2.0)];
    let not_read: &[(u32, f64)] = &[(1, 1.0), (2, 0.0)];
    let steady: &[(u32, f64)] = &[(1, 1.0)];
    // the second thread arrives when the first is known; it has a sample of set 1, and set 0 stays until it has one of that
    let on = sets(&[steady, steady, read, not_read, read, read, read]);
    assert_eq!(on, [0, 1, 1, 0, 0, 0, 0, 1]);
    // one that is read no longer is waited for until sets change by themselves
    let on = sets(&[steady, steady, read, not_read, not_read, not_read, not_read]);
    assert_eq!(on, [0, 1, 1, 0, 0, 0, 1, 1]);
}

/// A strategy may prefer one set for long, because a thread's events of it vary: here one that is known, and that is all right
/// for what is known already.
#[test]
fn who_waits_for_a_set_gets_it() {
    for strategy in ["round-robin", "rate-of-change", "relative-error"] {
        let model = MODEL.replace("round-robin", strategy);
        for arrives in 5..40 {
            let wild = |i: usize| 1.0 + (i * 7 % 5) as f64 / 100.0;
            let all: Vec<Vec<(u32, f64)>> = (0..arrives + 2)
                .map(|i| match i < arrives {
                    true => vec![(1, wild(i))],
                    false => vec![(1, wild(i)), (2, 2.0)],
                })
                .collect();
            let all: Vec<&[(u32, f64)]> = all.iter().map(Vec::as_slice).collect();
            let on = sets_of(&model, &all);
            // the sets of the two windows in which the second thread was counted
            assert_ne!(on[arrives], on[arrives + 1], "{strategy}: {on:?}");
        }
    }
}

/// What rests on a window of which a part was counted is not believed by policies: that is no reason to wait no more.
#[test]
fn who_is_known_in_part_goes_on_waiting() {
    // the second thread is counted for a third of its first window, and in full after it; 10 stands for that
    let part: &[(u32, f64)] = &[(1, 1.0), (2, 10.0)];
    let two: &[(u32, f64)] = &[(1, 1.0), (2, 2.0)];
    let steady: &[(u32, f64)] = &[(1, 1.0)];
    let on = sets(&[steady, steady, part, two, two, two, two]);
    assert_eq!(on, [0, 1, 1, 0, 1, 1, 1, 0]);
}

/// One whose windows on a set are never good for anything does not keep others from theirs.
#[test]
fn who_gets_nothing_of_a_set_does_not_keep_it_on() {
    let steady: &[(u32, f64)] = &[(1, 1.0)];
    // the second comes while set 1 is on, and is not read while set 0 is
    let mut all = vec![steady, steady];
    let mut on = sets(&all);
    for _ in 0..20 {
        let set = on[on.len() - 1];
        all.push(if set == 0 {
            &[(1, 1.0), (2, 0.0), (3, 3.0)]
        } else {
            &[(1, 1.0), (2, 2.0), (3, 3.0)]
        });
        on = sets(&all);
    }
    let late = &on[3..];
    assert!(
        late.windows(4).all(|w| w.contains(&0) && w.contains(&1)),
        "{on:?}"
    );
}

/// One that was not read yet has been there for a moment only.
#[test]
fn who_has_just_come_is_waited_for() {
    let steady: &[(u32, f64)] = &[(1, 1.0)];
    let comes: &[(u32, f64)] = &[(1, 1.0), (2, 0.0)];
    let two: &[(u32, f64)] = &[(1, 1.0), (2, 2.0)];
    assert_eq!(sets(&[steady, steady, comes, two, two]), [0, 1, 1, 0, 1, 1]);
}
