//! Steady single-threaded mixes: the simulated figures are those of the analytic oracle [TR5028].

use crate::common::{solo, NEVER};
use amp_eval::evaluation::{evaluate, oracle, AppSpec, Solo, WorkFrom};
use amp_eval::lab::Cores;
use amp_eval::solos::SoloTimes;
use amp_eval::workload::Workload;
use amp_machine::MachineFile;
use amp_sched::policy::Settings;
use amp_sim::bench::{alone, run_mix, BenchOptions};
use amp_sim::{apps_of, SimApp};
use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::path::Path;

fn machine(big: u32, small: u32) -> MachineFile {
    let text = format!(
        "name = \"{big}B-{small}S\"\n[migration]\ncost_us = 50\n\
         [[core_type]]\nname = \"big\"\ncpus = \"0-{}\"\ncapacity = 1024\n\
         [[core_type]]\nname = \"small\"\ncpus = \"{big}-{}\"\ncapacity = 400\n",
        big - 1,
        big + small - 1
    );
    MachineFile::parse(Path::new("test.toml"), &text).unwrap()
}

/// One of a hundred mixes: n applications on n CPUs, NB of them big, SFs in 1 to 5. Small-core
/// completion takes 300 to 600 s, long against the interval and the policies' thresholds: the
/// oracle knows no transients.
fn mix(rng: &mut ChaCha8Rng) -> (MachineFile, Vec<SimApp>, Vec<f64>, usize) {
    let cpus = rng.random_range(3..=12u32);
    let big = rng.random_range(1..cpus.min(6));
    let mut apps = Vec::new();
    let mut sf = Vec::new();
    for i in 0..cpus {
        let factor = rng.random_range(1.0..5.0);
        let ips_small = rng.random_range(0.3e9..1.5e9);
        let seconds = rng.random_range(300.0..600.0);
        apps.push(SimApp::steady(
            &format!("a{i}"),
            ips_small * seconds,
            ips_small * factor,
            ips_small,
        ));
        sf.push(factor);
    }
    (machine(big, cpus - big), apps, sf, big as usize)
}

struct Case {
    machine: MachineFile,
    apps: Vec<SimApp>,
    specs: Vec<AppSpec>,
    sf: Vec<f64>,
    big: usize,
    solos: Vec<Solo>,
}

/// The oracle jumps where the speedup factors at the edge of the fast cores are equal, and a policy
/// that spares needless swaps does not: hence no hysteresis here.
fn options() -> BenchOptions {
    let settings = Settings::new(&["hsp.hysteresis=0"], &["hsp"]).unwrap();
    BenchOptions {
        settings,
        ..BenchOptions::default()
    }
}

fn cases() -> Vec<Case> {
    let mut rng = ChaCha8Rng::seed_from_u64(2017);
    let case = |_| {
        let (machine, apps, sf, big) = mix(&mut rng);
        let solos = apps.iter().map(|a| solo(a, &machine, &options())).collect();
        let specs = apps
            .iter()
            .map(|a| AppSpec {
                name: a.name.clone(),
                weight: 100,
            })
            .collect();
        Case {
            machine,
            apps,
            specs,
            sf,
            big,
            solos,
        }
    };
    (0..100).map(case).collect()
}

#[test]
fn a_hundred_steady_mixes_meet_the_oracle() {
    let cases = cases();
    for policy in ["hsp", "rr", "acfs"] {
        let mut worst = (0.0f64, 0.0f64);
        let mut out_of_reach = 0;
        for (i, c) in cases.iter().enumerate() {
            let run = run_mix(
                &c.apps,
                &c.machine,
                policy,
                &options(),
                i as u32 + 1,
                &[],
                &NEVER,
            )
            .unwrap();
            let runs = [run.as_run(None)];
            let from = WorkFrom::Instructions;
            let got = evaluate(policy, &c.specs, &c.solos, &runs, from).unwrap();
            let want = oracle::of_policy(policy, &c.sf, &[], c.big, c.sf.len()).unwrap();
            let asp = (got.asp.value / want.asp - 1.0).abs();
            let unfairness = (got.unfairness.value / want.unfairness - 1.0).abs();
            out_of_reach += usize::from(want.unfairness > 1.0 + 1e-6);
            worst = (worst.0.max(asp), worst.1.max(unfairness));
            if asp > 0.02 || unfairness > 0.02 {
                println!(
                    "{policy}, mix {i}: ASP {:.4} for {:.4}, unfairness {:.4} for {:.4}, NB {}, SF {:.2?}",
                    got.asp.value, want.asp, got.unfairness.value, want.unfairness, c.big, c.sf
                );
            }
        }
        let (asp, unfairness) = (worst.0 * 1e2, worst.1 * 1e2);
        println!(
            "{policy}: ASP within {asp:.2} %, unfairness within {unfairness:.2} % in {} mixes, of which it is above 1 in {out_of_reach}",
            cases.len()
        );
        assert!(
            asp <= 2.0 && unfairness <= 2.0,
            "{policy}: {asp:.2} %, {unfairness:.2} %"
        );
    }
}

/// Mixes of programs of seconds, where a pass that is cut off weighs most: whatever the policy, and
/// under the stand-in for the kernel's scheduler, nobody gets more work out of the cores than the
/// best placement does. By geometric means of completion times eevdf does.
#[test]
fn nobody_is_above_the_analytic_maximum() {
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let (mut above_by_gm, mut nearest) = (0, 0.0f64);
    for i in 0..200u32 {
        let (machine, mut apps, sf, big) = mix(&mut rng);
        for app in &mut apps {
            app.instructions /= rng.random_range(100.0..300.0);
        }
        let solos: Vec<Solo> = apps.iter().map(|a| solo(a, &machine, &options())).collect();
        let specs = apps.iter().map(|a| AppSpec {
            name: a.name.clone(),
            weight: 100,
        });
        let specs: Vec<AppSpec> = specs.collect();
        let most = oracle::of_policy("hsp", &sf, &[], big, sf.len())
            .unwrap()
            .asp;
        for policy in std::iter::once(&"eevdf").chain(amp_sched::policy::NAMES) {
            let run = run_mix(&apps, &machine, policy, &options(), i + 1, &[], &NEVER).unwrap();
            let runs = [run.as_run(None)];
            let got = evaluate(policy, &specs, &solos, &runs, WorkFrom::Instructions).unwrap();
            assert!(
                got.asp.value <= most * (1.0 + 1e-9) + 1e-9,
                "{policy}, mix {i}: {:?} of {most}, NB {big}, SF {sf:.2?}",
                got.asp
            );
            nearest = nearest.max(got.asp.value / most);
            above_by_gm += u32::from(got.asp_gm.unwrap().value > most * 1.01);
        }
    }
    println!("nearest: {nearest:.4} of the maximum; above it by geometric means: {above_by_gm}");
    // or the mixes are none that this measure was made for
    assert!(above_by_gm > 0 && nearest > 0.9);
}

/// A program that retires half of its instructions in a tenth of its time runs as fast as alone,
/// pinned to a slow core: wherever the end of the run cuts it off, its speed is that of alone.
#[test]
fn phases_of_other_speeds_do_not_bias_the_work_of_a_pass_that_is_cut_off() {
    let text = |other: f64| {
        format!(
            "name = \"cut off\"\n\
             [[app]]\nname = \"phases\"\ninstructions = 10e9\nphases = [\n\
             {{ instructions = 5e9, ips_big = 12e9, ips_small = 5e9 }},\n\
             {{ instructions = 5e9, ips_big = 0.6e9, ips_small = 0.5e9 }} ]\n\
             [[app]]\nname = \"other\"\ninstructions = {other:e}\nphases = [\n\
             {{ instructions = 1e9, ips_big = 2e9, ips_small = 1e9 }} ]\n"
        )
    };
    let machine = MachineFile::load("juno").unwrap();
    let mut worst_without = 0.0f64;
    // the other one's three passes end the run in the first pass of `phases` or in the fifth
    for tenth in 12..60 {
        let workload = Workload::parse(Path::new("w.toml"), &text(tenth as f64 * 1e9)).unwrap();
        let mut apps = apps_of(&workload).unwrap();
        apps.iter_mut()
            .zip([vec![2], vec![3]])
            .for_each(|(a, cpu)| a.affinity = Some(cpu));
        let times = |app: &SimApp| {
            let r = alone(app, Cores::Slow, &machine, &options(), &NEVER).unwrap();
            SoloTimes {
                slow_s: vec![r.took_s, r.took_s],
                fast_s: vec![r.took_s, r.took_s],
                progress: r.progress,
                ..SoloTimes::default()
            }
        };
        let solos: Vec<SoloTimes> = apps.iter().map(times).collect();
        let speed = |known: &[SoloTimes]| {
            let run = run_mix(&apps, &machine, "eevdf", &options(), 1, known, &NEVER).unwrap();
            let specs = workload.apps.iter().map(|a| AppSpec {
                name: a.name.clone(),
                weight: 100,
            });
            let specs: Vec<AppSpec> = specs.collect();
            let alone: Vec<Solo> = solos.iter().map(SoloTimes::times).collect();
            let runs = [run.as_run(None)];
            let got = evaluate("eevdf", &specs, &alone, &runs, WorkFrom::Instructions).unwrap();
            got.apps[0].speedup
        };
        let with = speed(&solos);
        assert!((with - 1.0).abs() < 0.01, "{tenth}: {with}");
        worst_without = worst_without.max((speed(&[]) - 1.0).abs());
    }
    println!("without the course alone: off by up to {worst_without:.3}");
    // or the mix is none that this was made for
    assert!(worst_without > 0.1);
}
