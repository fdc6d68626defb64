use super::row::{ACCOUNT, MOST_NEIGHBOURS};
use super::*;
use crate::providers::testing::key;
use proptest::prelude::*;

const MS: u64 = 100;

/// Threads by name: core type and rate.
type Interval<'a> = &'a [(&'a str, u8, f64)];

fn name_of(name: &str) -> ProgramName {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    ProgramName::any(comm)
}

struct Run {
    n: Neighbours,
    now: Nanos,
    runtime: FxHashMap<ThreadKey, [Nanos; MAX_CORE_TYPES]>,
    /// What a thread has run before it is first seen.
    age: Nanos,
}

impl Run {
    fn new() -> Run {
        Run {
            n: Neighbours::default(),
            now: Nanos::ZERO,
            runtime: FxHashMap::default(),
            age: Nanos::from_secs(1),
        }
    }

    /// A thread ran on `t` for this part of the interval, was counted for `counted`, and had this rate.
    fn ran(&mut self, name: &str, t: u8, (part, counted): (f64, f64), rate: f64) {
        let thread = key(name.bytes().map(u32::from).sum());
        let ns = (MS * 1_000_000) as f64;
        // "p1" and "p2" are threads of one process
        let app = match name.starts_with('p') {
            true => AppId(1000),
            false => AppId(u64::from(thread.slot)),
        };
        let of = (thread, name_of(name), app);
        let total = self.runtime.entry(thread).or_insert_with(|| {
            let mut before = [Nanos::ZERO; MAX_CORE_TYPES];
            before[usize::from(t)] = self.age;
            // it was there when it was first seen
            self.n.ran(of, &before, self.now);
            before
        });
        total[usize::from(t)].0 += (part * ns) as u64;
        self.n.ran(of, total, self.now);
        let counted = counted * ns;
        self.n
            .take_in(thread, CoreTypeId(t), (rate * counted, counted));
    }

    /// `times` intervals of the same.
    fn run(&mut self, times: u32, what: Interval<'_>) {
        for _ in 0..times {
            self.now = Nanos(self.now.0 + MS * 1_000_000);
            for (name, t, rate) in what {
                self.ran(name, *t, (1.0, 1.0), *rate);
            }
            self.n.learn(Nanos::from_millis(MS), self.now);
        }
    }

    fn cost(&self, of: (&str, u8), beside: (&str, u8)) -> f64 {
        let seat = |(name, t): (&str, u8)| Seat {
            program: self.n.program(&name_of(name)).unwrap(),
            on: CoreTypeId(t),
        };
        let (of, beside) = (seat(of), seat(beside));
        let found = self
            .n
            .costs()
            .iter()
            .find(|c| c.of == of && c.beside == beside);
        found.map_or(0.0, |c| c.ln)
    }
}

/// `a` and `b` slow each other down to 0.43 on core type 1, and change places with `f` by turns.
fn hungry(run: &mut Run, turns: u32) {
    for _ in 0..turns {
        run.run(
            4,
            &[("a", 1, 0.43), ("b", 1, 0.43), ("f", 0, 2.4), ("m", 0, 2.2)],
        );
        run.run(
            2,
            &[("a", 0, 1.6), ("b", 1, 1.0), ("f", 1, 1.0), ("m", 0, 2.2)],
        );
        run.run(
            4,
            &[("a", 1, 0.43), ("b", 1, 0.43), ("f", 0, 2.4), ("m", 0, 2.2)],
        );
        run.run(
            2,
            &[("a", 1, 1.0), ("b", 0, 1.6), ("f", 1, 1.0), ("m", 0, 2.2)],
        );
    }
}

#[test]
fn two_that_share_a_cache_are_found_and_the_others_are_not_blamed() {
    let mut run = Run::new();
    hungry(&mut run, 3);
    let truth = (1.0f64 / 0.43).ln();
    for (of, beside) in [("a", "b"), ("b", "a")] {
        let cost = run.cost((of, 1), (beside, 1));
        assert!((cost - truth).abs() < 0.15, "{of} beside {beside}: {cost}");
    }
    let blamed = run.n.costs().iter().filter(|c| c.ln > 0.1).count();
    assert_eq!(blamed, 2, "{:?}", run.n.costs());
    // together again: that is what each of them pays
    run.run(2, &[("a", 1, 0.43), ("b", 1, 0.43), ("f", 0, 2.4)]);
    assert!((run.n.paid(&name_of("a"), CoreTypeId(1)) - truth).abs() < 0.15);
    run.run(2, &[("a", 1, 1.0), ("b", 0, 1.6), ("f", 0, 2.4)]);
    assert!(run.n.paid(&name_of("a"), CoreTypeId(1)) < 0.1);
}

#[test]
fn one_turn_is_enough_for_a_first_idea() {
    let mut run = Run::new();
    hungry(&mut run, 1);
    assert!(run.cost(("b", 1), ("a", 1)) > 0.3, "{:?}", run.n.costs());
}

#[test]
fn a_phase_that_begins_as_a_neighbour_arrives_is_not_held_against_it() {
    let mut run = Run::new();
    run.run(6, &[("a", 1, 2.0)]);
    run.run(6, &[("a", 1, 1.2), ("f", 1, 1.0)]);
    assert_eq!(run.cost(("a", 1), ("f", 1)), 0.0, "once is not enough");
    for _ in 0..3 {
        run.run(3, &[("a", 1, 1.2)]);
        run.run(3, &[("a", 1, 1.2), ("f", 1, 1.0)]);
    }
    assert_eq!(run.cost(("a", 1), ("f", 1)), 0.0);
}

/// It was seen to change while nobody came or left, so what it does when somebody does is nobody's fault, however often.
#[test]
fn a_program_of_several_phases_is_taught_nothing() {
    let mut run = Run::new();
    let others = [("m", 1, 1.0), ("f", 0, 2.0)];
    let with = |a: f64| [("a", 1, a), others[0], others[1]];
    // it looks as if `m` were to blame, twice
    for _ in 0..2 {
        run.run(4, &[("a", 1, 2.0), ("f", 0, 2.0)]);
        run.run(4, &with(0.2));
    }
    assert!(run.cost(("a", 1), ("m", 1)) > 1.0, "{:?}", run.n.costs());
    run.run(4, &with(2.0));
    assert!(run.n.costs().is_empty(), "{:?}", run.n.costs());
    for _ in 0..4 {
        run.run(4, &[("a", 1, 2.0), ("f", 0, 2.0)]);
        run.run(4, &with(0.2));
    }
    assert!(run.n.costs().is_empty(), "{:?}", run.n.costs());
}

/// What `a` does changes tenfold in mid-interval, and a policy that sees it moves `f` for that.
#[test]
fn who_is_moved_because_another_is_in_another_phase_is_not_blamed_for_it() {
    for between in [1.0, 1.5, 0.3] {
        let mut run = Run::new();
        for _ in 0..6 {
            run.run(6, &[("a", 1, 2.0), ("f", 0, 2.0)]);
            run.run(1, &[("a", 1, between), ("f", 0, 2.0)]);
            run.run(6, &[("a", 1, 0.2), ("f", 1, 1.0)]);
            run.run(1, &[("a", 1, 2.2 - between), ("f", 1, 1.0)]);
        }
        assert!(run.n.costs().is_empty(), "{between}: {:?}", run.n.costs());
    }
}

/// It loads four times as fast as it works, and others begin meanwhile.
#[test]
fn how_a_program_begins_is_nobodys_fault() {
    let mut run = Run::new();
    run.age = Nanos::ZERO;
    run.run(1, &[("a", 0, 4.0)]);
    run.run(1, &[("a", 0, 4.0), ("b", 1, 1.0)]);
    run.run(4, &[("a", 0, 1.0), ("f", 0, 0.8), ("b", 1, 1.0)]);
    assert_eq!(run.cost(("a", 0), ("f", 0)), 0.0, "{:?}", run.n.costs());
    // what comes later may be, and goes, so that it is seen twice
    run.run(4, &[("a", 0, 0.4), ("f", 0, 0.8), ("g", 0, 0.2)]);
    run.run(4, &[("a", 0, 1.0), ("f", 0, 0.8)]);
    assert!(run.cost(("a", 0), ("g", 0)) > 0.3, "{:?}", run.n.costs());
}

/// It is never there when the other one comes or goes.
#[test]
fn a_thread_that_comes_back_finds_out_who_has_come_meanwhile() {
    let mut run = Run::new();
    run.run(4, &[("b", 1, 1.0), ("f", 0, 2.4)]);
    for _ in 0..2 {
        run.run(3, &[("b", 0, 1.6), ("f", 1, 1.0)]);
        run.run(3, &[("b", 0, 1.6), ("f", 1, 1.0), ("a", 1, 1.0)]);
        run.run(3, &[("b", 1, 0.43), ("f", 0, 2.4), ("a", 1, 0.43)]);
        run.run(3, &[("b", 0, 1.6), ("f", 1, 1.0), ("a", 1, 1.0)]);
        run.run(3, &[("b", 0, 1.6), ("f", 1, 1.0)]);
        run.run(3, &[("b", 1, 1.0), ("f", 0, 2.4)]);
    }
    let cost = run.cost(("b", 1), ("a", 1));
    assert!(cost > 0.5, "{:?}", run.n.costs());
}

#[test]
fn who_is_slow_beside_another_slow_one_is_suspected_until_it_has_been_away() {
    let mut run = Run::new();
    let together = [("a", 1, 0.4), ("b", 1, 0.4), ("f", 1, 1.0), ("m", 0, 2.2)];
    run.run(4, &together);
    let suspected = |run: &Run, name: &str| {
        let slot = u32::from(name.as_bytes()[0]);
        run.n.suspects(key(slot))
    };
    let all = |run: &Run| ["a", "b", "f", "m"].map(|n| suspected(run, n));
    assert_eq!(all(&run), [true, true, false, false]);
    run.run(
        3,
        &[("a", 0, 0.9), ("b", 1, 0.4), ("f", 1, 1.0), ("m", 1, 1.0)],
    );
    run.run(4, &together);
    assert_eq!(all(&run), [false, true, false, false], "a was away");
    run.run(
        3,
        &[("a", 1, 0.4), ("b", 0, 0.9), ("f", 1, 1.0), ("m", 1, 1.0)],
    );
    run.run(4, &together);
    assert_eq!(all(&run), [false; 4]);
    assert!(run.n.costs().is_empty(), "they do not mind");
}

/// Two programs come at once, and the rate falls, and leave at once, and it grows: it was the slow one.
#[test]
fn of_two_that_come_at_once_the_slow_one_is_blamed() {
    let mut run = Run::new();
    run.run(4, &[("a", 1, 1.0), ("b", 0, 1.6), ("f", 0, 2.4)]);
    run.run(4, &[("a", 1, 0.43), ("b", 1, 0.43), ("f", 1, 1.0)]);
    run.run(4, &[("a", 1, 1.0), ("b", 0, 1.6), ("f", 0, 2.4)]);
    assert!(run.cost(("a", 1), ("b", 1)) > 0.5, "{:?}", run.n.costs());
    assert_eq!(run.cost(("a", 1), ("f", 1)), 0.0, "{:?}", run.n.costs());
}

/// What a thread did beside a slow one, whom nobody has seen it without, says little of its own speed.
#[test]
fn who_runs_beside_a_slow_one_is_in_doubt_until_it_was_seen_without() {
    let mut run = Run::new();
    let doubt = |run: &Run, name: &str| {
        let slot = u32::from(name.as_bytes()[0]);
        run.n.doubt(key(slot), 1).sqrt()
    };
    let together = [("a", 1, 0.4), ("b", 1, 0.4), ("f", 1, 1.0), ("m", 0, 2.2)];
    run.run(4, &together);
    assert!(doubt(&run, "a") > 0.3 && doubt(&run, "b") > 0.3);
    assert_eq!(
        doubt(&run, "f"),
        0.0,
        "it is fast: nobody takes anything from it"
    );
    for _ in 0..3 {
        run.run(
            3,
            &[("a", 1, 0.4), ("b", 0, 0.9), ("f", 1, 1.0), ("m", 1, 1.0)],
        );
        run.run(4, &together);
    }
    assert!(doubt(&run, "a") < 0.15, "{}", doubt(&run, "a"));
}

#[test]
fn memory_is_shared_by_all_core_types() {
    let mut run = Run::new();
    for _ in 0..4 {
        run.run(3, &[("s", 1, 1.0)]);
        run.run(3, &[("s", 1, 0.6), ("t", 0, 1.0)]);
    }
    let cost = run.cost(("s", 1), ("t", 0));
    assert!((cost - (1.0f64 / 0.6).ln()).abs() < 0.15, "{cost}");
}

proptest! {
    /// Programs whose rates waver by 5 % and who do not mind each other, by turns as a policy of
    /// fairness has them: nothing is found that would move anybody.
    #[test]
    fn noise_is_no_cost(
        seed in prop::collection::vec((0usize..4, -0.08f64..0.08, -0.08f64..0.08, -0.08f64..0.08, -0.08f64..0.08), 40..120),
    ) {
        let mut run = Run::new();
        let names = ["a", "b", "c", "d"];
        for (out, n0, n1, n2, n3) in seed {
            let noise = [n0, n1, n2, n3];
            let all: Vec<(&str, u8, f64)> = (0..4)
                .map(|i| {
                    let t = u8::from(i != out);
                    let rate = if t == 0 { 2.0 } else { 1.0 };
                    (names[i], t, rate * f64::exp(noise[i]))
                })
                .collect();
            run.run(2, &all);
        }
        for c in run.n.costs() {
            prop_assert!(c.ln < 0.2, "{:?}", c);
        }
    }

    /// Whatever comes, costs are positive, bounded, and few.
    #[test]
    fn anything_goes(
        windows in prop::collection::vec(
            (0u32..500, 0u32..400, 0u8..10, prop_oneof![Just(0.0), 1.0..1e12f64], 0.0..1e9f64, any::<bool>()),
            0..400,
        ),
    ) {
        let mut n = Neighbours::default();
        let mut now = Nanos::ZERO;
        for (slot, name, t, instructions, time, ends) in windows {
            let of = (key(slot), name_of(&format!("p{name}")), AppId(u64::from(slot % 50)));
            let mut total = [Nanos::ZERO; MAX_CORE_TYPES];
            total[usize::from(t) % MAX_CORE_TYPES] = Nanos(time as u64 * u64::from(name % 7));
            n.ran(of, &total, now);
            n.take_in(of.0, CoreTypeId(t), (instructions, time));
            if ends {
                now = Nanos(now.0 + 100_000_000);
                n.learn(Nanos::from_millis(100), now);
            }
        }
        prop_assert!(n.programs.len() <= MOST_PROGRAMS);
        for row in n.rows.values() {
            prop_assert!(row.costs.len() <= MOST_NEIGHBOURS);
        }
        for c in n.costs() {
            prop_assert!(c.ln > 0.0 && c.ln <= *ACCOUNT.end(), "{:?}", c);
        }
    }
}

/// Counters of a thread that goes on running are read now and then, so that short intervals have too much or too
/// little of it. Nobody comes or leaves by that.
#[test]
fn late_readings_are_nobody_who_comes_or_leaves() {
    let mut run = Run::new();
    let mut seed = 1u32;
    // parts of an interval from 0.5 to 1.5, and counted are 0 to all of it
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(seed >> 16) / 65_536.0
    };
    let mut together = |run: &mut Run, times: u32, what: Interval<'_>| {
        for _ in 0..times {
            run.now = Nanos(run.now.0 + MS * 1_000_000);
            for (name, t, rate) in what {
                let part = 0.5 + random();
                let counted = (2.0 * random() - 0.5).max(0.0);
                run.ran(name, *t, (part, counted), *rate);
            }
            run.n.learn(Nanos::from_millis(MS), run.now);
        }
    };
    let contended = [("a", 1, 0.43), ("b", 1, 0.43), ("f", 0, 2.4), ("m", 0, 2.2)];
    let apart = [("a", 0, 1.6), ("b", 1, 1.0), ("f", 1, 1.0), ("m", 0, 2.2)];
    together(&mut run, 20, &contended);
    together(&mut run, 6, &apart);
    together(&mut run, 20, &contended);
    let cost = run.cost(("b", 1), ("a", 1));
    assert!((cost - (1.0f64 / 0.43).ln()).abs() < 0.2, "{cost}");
}

/// The threads of a program that waits at barriers are slow by turns, beside one that is slow because of its own
/// phases. Nobody is blamed for either.
#[test]
fn programs_of_several_threads_are_not_blamed() {
    let mut run = Run::new();
    for i in 0..40 {
        let slow = 0.3 + 0.4 * f64::from(i % 2);
        let without = [("a", 1, slow), ("f", 0, 2.4)];
        let all = [
            ("a", 1, slow),
            ("p1", 1, slow),
            ("p2", 1, 1.0),
            ("f", 0, 2.4),
        ];
        run.run(3 + i % 3, if i % 2 == 0 { &all } else { &without });
    }
    let names: Vec<Seat> = run.n.costs().iter().map(|c| c.of).collect();
    assert!(names.is_empty(), "{names:?}");
    assert!(!run.n.suspects(key(u32::from(b'a'))));
}
