//! What the simulated machine does, case by case, with numbers that can be worked out by hand.

use crate::common::{app, keys, machine, ms, phase, place, ran_ms, solo};
use amp_eval::workload::{Phase, Schedule};
use amp_metrics::{CoreTypeId, Nanos};
use amp_sched::Machine;
use amp_sim::bench::BenchOptions;
use amp_sim::{Discipline, MachineOptions, SimApp, SimMachine};

fn sim(cpus: &[u32], cost_us: u32, apps: &[SimApp]) -> SimMachine {
    let options = MachineOptions {
        completions: 1,
        ..MachineOptions::default()
    };
    SimMachine::new(&machine(cpus, cost_us), apps, options, 1).unwrap()
}

fn end(sim: &mut SimMachine) -> f64 {
    sim.run_until(ms(1_000_000));
    assert!(sim.is_over());
    sim.audit().unwrap();
    sim.now().as_secs_f64()
}

#[test]
fn alone_and_unplaced_it_is_on_a_fast_core() {
    let mut s = sim(&[1, 2], 50, &[app("a", 1, 10.0, vec![phase(3.0, true)])]);
    assert!((end(&mut s) - 5.0).abs() < 1e-6);
    let stats = s.app_stats(0).unwrap();
    assert!((stats.instructions[0] - 10e9).abs() < 1.0);
    assert!((stats.energy_j.unwrap() - 10.0).abs() < 1e-6);
}

#[test]
fn barriers_wait_for_the_slowest_and_serial_phases_run_alone() {
    // 2 big, 2 small; four threads: 4·10⁹ in parallel is 1 s on small cores, where half of the
    // threads are; then 2·10⁹ by thread 0, which started on a big core: 1 s
    let a = app("a", 4, 6.0, vec![phase(4.0, true), phase(2.0, false)]);
    let mut s = sim(&[2, 2], 0, &[a]);
    s.run_until(ms(1));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 0), (k[1], 0), (k[2], 1), (k[3], 1)]);
    s.run_until(ms(750));
    let t = s.sample().unwrap().threads.clone();
    let runnable: Vec<bool> = t.iter().map(|t| t.runnable).collect();
    assert_eq!(
        runnable,
        [false, false, true, true],
        "the fast ones wait at the barrier"
    );
    s.run_until(ms(1500));
    let runnable: Vec<bool> = s
        .sample()
        .unwrap()
        .threads
        .iter()
        .map(|t| t.runnable)
        .collect();
    assert_eq!(runnable, [true, false, false, false]);
    assert!((end(&mut s) - 2.0).abs() < 1e-6);
    let done: f64 = s.app_stats(0).unwrap().instructions.iter().sum();
    assert!((done - 6e9).abs() < 1.0);
}

/// What two fast cores are worth to four threads of speedup factor 2 depends on how they share
/// work: the sum of their speeds, (2/4)(2-1)+1, with dynamic sharing; next to nothing with static
/// shares of short loops.
#[test]
fn work_sharing_decides_what_fast_cores_are_worth() {
    let alone = |schedule, loops| {
        let p = Phase {
            schedule,
            loops,
            ..phase(4.0, true)
        };
        let s = solo(
            &app("a", 4, 40.0, vec![p]),
            &machine(&[2, 4], 50),
            &BenchOptions::default(),
        );
        assert!((s.slow_s[0] - 10.0).abs() < 0.1, "{s:?}");
        s.slow_s[0] / s.fast_s[0]
    };
    let dynamic = alone(Schedule::Dynamic, 1);
    assert!((dynamic - 1.5).abs() < 0.03, "{dynamic}");
    let dynamic = alone(Schedule::Dynamic, 20);
    assert!((dynamic - 1.5).abs() < 0.05, "{dynamic}");
    let fixed = alone(Schedule::Static, 50);
    assert!((1.0..1.05).contains(&fixed), "{fixed}");
}

#[test]
fn phases_repeat_and_the_last_is_cut() {
    let mut fast = phase(1.0, true);
    fast.ips_big = 4e9;
    // 0.5 + 0.25 s per pass of 2·10⁹; 5·10⁹ are two passes and the first phase once more
    let mut s = sim(
        &[1, 1],
        0,
        &[app("a", 1, 5.0, vec![phase(1.0, true), fast])],
    );
    assert!((end(&mut s) - 2.0).abs() < 1e-6);
}

#[test]
fn placement_moves_at_once_and_costs() {
    let apps = [
        app("a", 1, 100.0, vec![phase(100.0, true)]),
        app("b", 1, 100.0, vec![phase(100.0, true)]),
    ];
    let mut s = sim(&[1, 1], 1000, &apps);
    s.run_until(ms(10));
    let k = keys(&mut s);
    let on_big = s
        .sample()
        .unwrap()
        .threads
        .iter()
        .position(|t| t.core_type.0 == 0)
        .unwrap();
    place(&mut s, &[(k[on_big], 1), (k[1 - on_big], 0)]);
    s.audit().unwrap();
    s.run_until(ms(110));
    assert_eq!(ran_ms(&mut s, on_big), [10, 100, 0]);
    assert_eq!(ran_ms(&mut s, 1 - on_big), [100, 10, 0]);
    assert_eq!((s.stats().migrations, s.stats().type_changes), (2, 2));
    assert_eq!(s.stats().migration_time, ms(2));
    // 1 ms of the 100 ms did no work
    let total: f64 = (0..2)
        .flat_map(|i| s.app_stats(i).unwrap().instructions)
        .sum();
    assert!(
        (total - (0.109 * 2e9 + 0.109 * 1e9)).abs() < 10.0,
        "{total}"
    );
}

/// A thread that is on the wrong core type, ends its share and thereby wakes the one that belongs
/// there, goes to sleep where it is: evicted to an idle CPU first, it was charged for a migration
/// that it never got to pay.
#[test]
fn who_opens_a_barrier_is_not_moved_to_sleep_elsewhere() {
    let mut opened_foreign = 0;
    for departure in 850..900 {
        let mut a = app("a", 2, 2.1, vec![phase(2.0, true), phase(0.1, false)]);
        a.restart = false;
        let mut b = app("b", 1, 100.0, vec![phase(100.0, true)]);
        b.departure = Some(ms(departure));
        b.affinity = Some(vec![1]);
        let mut s = sim(&[1, 1], 1000, &[a, b]);
        s.run_until(ms(1));
        let k = keys(&mut s);
        let a: Vec<usize> = (0..3)
            .filter(|i| s.sample().unwrap().threads[*i].comm[0] == b'a')
            .collect();
        let b = 3 - a[0] - a[1];
        // a's first thread ends its share at half a second; its second, which shares the small core
        // with b, is then pulled to the big one, and is still there when b departs and it ends its
        // own
        place(&mut s, &[(k[a[0]], 0), (k[a[1]], 1), (k[b], 1)]);
        s.run_until(ms(departure));
        let threads = &s.sample().unwrap().threads;
        let opener = threads.iter().find(|t| t.key == k[a[1]]).unwrap();
        opened_foreign += u32::from(opener.runnable && opener.core_type.0 == 0);
        end(&mut s);
        assert_eq!(s.stats().migration_time, ms(s.stats().migrations));
    }
    assert!(opened_foreign > 0);
}

#[test]
fn a_fast_core_does_not_idle_while_slow_ones_queue() {
    // three threads placed on the small type with its one CPU: the big one takes one of them
    let apps: Vec<_> = (0..3)
        .map(|i| app(&i.to_string(), 1, 50.0, vec![phase(50.0, true)]))
        .collect();
    let mut s = sim(&[1, 1], 0, &apps);
    s.run_until(ms(1));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 1), (k[1], 1), (k[2], 1)]);
    for step in 1..200 {
        s.run_until(ms(1 + step));
        s.audit().unwrap();
    }
    assert_eq!(
        s.stats().idle[..2].iter().copied().sum::<Nanos>(),
        Nanos::ZERO
    );
    // three of equal weight share two CPUs
    for i in 0..3 {
        let ran: u64 = ran_ms(&mut s, i).iter().sum();
        assert!((115..=150).contains(&ran), "{i}: {ran}");
    }
}

#[test]
fn who_belongs_there_gets_the_core_back() {
    // b is placed on the small type and runs on the big one while a, placed there, has not come
    let late = SimApp {
        arrival: ms(50),
        ..app("late", 1, 50.0, vec![phase(50.0, true)])
    };
    let apps = [
        app("x", 1, 50.0, vec![phase(50.0, true)]),
        app("y", 1, 50.0, vec![phase(50.0, true)]),
        late,
    ];
    let mut s = sim(&[1, 1], 0, &apps);
    s.run_until(ms(10));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 1), (k[1], 1)]);
    s.run_until(ms(60));
    let k = keys(&mut s);
    let before = ran_ms(&mut s, 2)[0];
    place(&mut s, &[(k[2], 0)]);
    s.run_until(ms(160));
    assert_eq!(ran_ms(&mut s, 2)[0] - before, 100);
    s.audit().unwrap();
}

#[test]
fn an_idle_fast_core_is_lent_after_a_slice_and_given_back_at_once() {
    let late = SimApp {
        arrival: ms(50),
        ..app("late", 1, 0.1, vec![phase(50.0, true)])
    };
    let apps = [app("x", 1, 50.0, vec![phase(50.0, true)]), late];
    for lending in [false, true] {
        let mut s = sim(&[1, 1], 0, &apps);
        s.lend(lending);
        s.run_until(ms(10));
        let k = keys(&mut s);
        place(&mut s, &[(k[0], 1)]);
        let before = ran_ms(&mut s, 0)[0];
        s.run_until(ms(49));
        let lent = ran_ms(&mut s, 0)[0] - before;
        // it leaves at the first end of a slice at which the core has been idle for one
        match lending {
            true => assert!((29..=34).contains(&lent), "{lent}"),
            false => assert_eq!(lent, 0),
        }
        s.run_until(ms(51));
        let k = keys(&mut s);
        place(&mut s, &[(k[1], 0)]);
        let (own, x) = (ran_ms(&mut s, 1)[0], ran_ms(&mut s, 0)[0]);
        s.run_until(ms(70));
        assert_eq!(ran_ms(&mut s, 1)[0] - own, 19);
        assert_eq!(ran_ms(&mut s, 0)[0], x);
        s.audit().unwrap();
    }
}

#[test]
fn a_slow_core_takes_fast_work_only_after_the_bound() {
    let apps = [
        app("a", 1, 50.0, vec![phase(50.0, true)]),
        app("b", 1, 50.0, vec![phase(50.0, true)]),
    ];
    let mut s = sim(&[1, 1], 0, &apps);
    s.run_until(ms(10));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 0), (k[1], 0)]);
    let small = |s: &mut SimMachine| ran_ms(s, 0)[1] + ran_ms(s, 1)[1];
    let at_first = small(&mut s);
    // slices of 5 ms: nobody ever waits for 20 ms, so the small core stays out of it
    s.run_until(ms(500));
    assert_eq!(small(&mut s), at_first);
    s.audit().unwrap();
    // with slices longer than the bound it helps
    let options = MachineOptions {
        slice: ms(100),
        ..MachineOptions::default()
    };
    let mut s = SimMachine::new(&machine(&[1, 1], 0), &apps, options, 1).unwrap();
    s.run_until(ms(10));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 0), (k[1], 0)]);
    s.run_until(ms(500));
    assert!(small(&mut s) > 300, "{}", small(&mut s));
}

#[test]
fn weights_share_a_core() {
    let mut apps = [
        app("a", 1, 500.0, vec![phase(500.0, true)]),
        app("b", 1, 500.0, vec![phase(500.0, true)]),
    ];
    for discipline in [Discipline::Placed, Discipline::Fair] {
        apps[0].weight = 300;
        let options = MachineOptions {
            discipline,
            ..MachineOptions::default()
        };
        let mut s = SimMachine::new(&machine(&[1], 0), &apps, options, 1).unwrap();
        s.run_until(ms(20_000));
        let heavy = s.app_stats(0).unwrap().runtime[0].as_secs_f64();
        assert!((heavy - 15.0).abs() < 0.1, "{discipline:?}: {heavy}");
    }
}

#[test]
fn affinity_is_kept_and_named_cpus_must_exist() {
    let mut a = app("a", 1, 4.0, vec![phase(4.0, true)]);
    a.affinity = Some(vec![2]);
    let mut s = sim(&[1, 2], 0, &[a.clone()]);
    s.run_until(ms(1));
    let k = keys(&mut s);
    place(&mut s, &[(k[0], 0)]);
    assert!((end(&mut s) - 4.0).abs() < 1e-6);
    a.affinity = Some(vec![7]);
    let e = SimMachine::new(&machine(&[1, 2], 0), &[a], MachineOptions::default(), 1);
    assert!(e.unwrap_err().to_string().contains("CPU 7"));
}

#[test]
fn arrivals_departures_and_restarts() {
    let departs = SimApp {
        departure: Some(ms(1500)),
        ..app("d", 2, 1e3, vec![phase(1e3, true)])
    };
    let once = SimApp {
        restart: false,
        arrival: ms(500),
        ..app("o", 1, 2.0, vec![phase(2.0, true)])
    };
    let again = app("r", 1, 1.0, vec![phase(1.0, true)]);
    let options = MachineOptions {
        completions: 3,
        ..MachineOptions::default()
    };
    let mut s = SimMachine::new(&machine(&[4], 0), &[departs, once, again], options, 1).unwrap();
    s.run_until(ms(400));
    let first = s
        .sample()
        .unwrap()
        .threads
        .iter()
        .find(|t| t.comm[0] == b'r')
        .unwrap()
        .to_owned();
    s.run_until(ms(1400));
    let sample = s.sample().unwrap();
    assert_eq!(sample.threads.len(), 4);
    let later = sample.threads.iter().find(|t| t.comm[0] == b'r').unwrap();
    assert_ne!(later.app, first.app, "another process");
    assert_ne!(later.key, first.key);
    s.run_until(ms(9000));
    assert!(s.is_over() && s.now() == ms(1500), "{:?}", s.now());
    assert_eq!(s.app_stats(0).unwrap().completions, []);
    assert_eq!(s.app_stats(1).unwrap().completions, [ms(1000)]);
    assert_eq!(s.app_stats(2).unwrap().completions, [ms(500); 3]);
    assert_eq!(s.app_stats(0).unwrap().runtime[0], ms(3000));
}

#[test]
fn three_core_types_fill_from_the_fastest() {
    let apps: Vec<_> = (0..3)
        .map(|i| app(&i.to_string(), 1, 50.0, vec![phase(50.0, true)]))
        .collect();
    let mut s = sim(&[1, 1, 1], 0, &apps);
    s.run_until(ms(100));
    let mut types: Vec<CoreTypeId> = s
        .sample()
        .unwrap()
        .threads
        .iter()
        .map(|t| t.core_type)
        .collect();
    types.sort_unstable();
    assert_eq!(types, [CoreTypeId(0), CoreTypeId(1), CoreTypeId(2)]);
    // the capacity in the middle is halfway by ratio, and so is the speed: √2·10⁹
    let total: f64 = (0..3)
        .map(|i| s.app_stats(i).unwrap().instructions[1])
        .sum();
    assert!((total - 0.1 * 2f64.sqrt() * 1e9).abs() < 10.0, "{total}");
}

#[test]
fn the_baseline_is_work_conserving_and_blind() {
    let apps: Vec<_> = (0..5)
        .map(|i| app(&i.to_string(), 1, 500.0, vec![phase(500.0, true)]))
        .collect();
    let mut on_big_at_start = [0; 2];
    for seed in 0..40 {
        let options = MachineOptions {
            discipline: Discipline::Fair,
            ..MachineOptions::default()
        };
        let mut s = SimMachine::new(&machine(&[1, 3], 50), &apps[..2], options, seed).unwrap();
        for step in 1..=20 {
            s.run_until(ms(step * 10));
            s.audit().unwrap();
        }
        for (i, n) in on_big_at_start.iter_mut().enumerate() {
            *n += usize::from(s.app_stats(i).unwrap().runtime[0] > Nanos::ZERO);
        }
        // with more threads than CPUs nobody is on the crowded CPU for good
        let mut s = SimMachine::new(&machine(&[1, 3], 50), &apps, options, seed).unwrap();
        for step in 1..=400 {
            s.run_until(ms(step * 50));
            s.audit().unwrap();
        }
        for i in 0..5 {
            let ran: f64 = s
                .app_stats(i)
                .unwrap()
                .runtime
                .iter()
                .map(|r| r.as_secs_f64())
                .sum();
            assert!((ran / 16.0 - 1.0).abs() < 0.15, "seed {seed}, {i}: {ran}");
        }
    }
    // a quarter of 40 each, by chance
    assert!(
        on_big_at_start.iter().all(|n| (3..=20).contains(n)),
        "{on_big_at_start:?}"
    );
}

#[test]
fn idle_power_comes_from_the_machine_file() {
    let juno = amp_machine::MachineFile::load("juno").unwrap();
    let idle_mw: Vec<f64> = juno
        .core_types
        .iter()
        .map(|t| t.model.as_ref().unwrap().energy.idle_mw)
        .collect();
    let options = MachineOptions {
        idle_power: true,
        completions: 1,
        ..MachineOptions::default()
    };
    let a = app("a", 1, 2.0, vec![phase(2.0, true)]);
    let mut s = SimMachine::new(&juno, &[a], options, 1).unwrap();
    end(&mut s);
    // one second; one big core is busy, the other and four small ones are idle
    let want = (idle_mw[0] + 4.0 * idle_mw[1]) * 1e-3;
    assert!(
        (s.stats().idle_energy_j - want).abs() < 1e-9,
        "{}",
        s.stats().idle_energy_j
    );
}

#[test]
fn sleep_takes_as_long_on_any_core_and_leaves_the_core_to_others() {
    // 2·10⁹ instructions in two loops of half a second on the big core, 0.25 s of sleep after each
    let sleeper = |name| {
        let p = Phase {
            loops: 2,
            sleep: 0.25,
            ..phase(2.0, true)
        };
        app(name, 1, 2.0, vec![p])
    };
    let mut s = sim(&[1], 0, &[sleeper("a")]);
    assert!((end(&mut s) - 1.5).abs() < 1e-6);
    assert_eq!(s.app_stats(0).unwrap().completions, [ms(1500)]);
    // asleep it is not runnable and takes no CPU
    let mut s = sim(&[1], 0, &[sleeper("a")]);
    s.run_until(ms(600));
    let t = s.sample().unwrap().threads[0];
    assert!(!t.runnable && t.runtime[0] == ms(500));
    // on the slow core its work takes twice as long, its sleep does not
    let options = BenchOptions::default();
    let alone = solo(&sleeper("a"), &machine(&[1, 1], 0), &options);
    assert!((alone.slow_s[0] - 2.5).abs() < 1e-6 && (alone.fast_s[0] - 1.5).abs() < 1e-6);
    // all threads of a program sleep, and one that is killed meanwhile does not wake up
    let both = SimApp {
        departure: Some(ms(400)),
        ..SimApp {
            threads: 2,
            ..sleeper("b")
        }
    };
    let mut s = sim(&[3], 0, &[both, app("x", 1, 6.0, vec![phase(6.0, true)])]);
    s.run_until(ms(300));
    let asleep = s
        .sample()
        .unwrap()
        .threads
        .iter()
        .filter(|t| !t.runnable)
        .count();
    assert_eq!(asleep, 2);
    assert!((end(&mut s) - 3.0).abs() < 1e-6);
}
