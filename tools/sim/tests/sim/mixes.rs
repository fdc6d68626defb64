//! The mixes of the paper's tables: the files are what the generator draws, and what is drawn keeps
//! to the published classes.

#[path = "../../examples/mixes/synth.rs"]
#[allow(dead_code)]
mod synth;

use amp_eval::workload::{App, Workload};
use amp_machine::MachineFile;
use amp_sim::bench::{bench, BenchOptions, Step};
use amp_sim::ProviderSpec;
use std::ops::ControlFlow;
use std::path::PathBuf;

fn folder(platform: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../workloads/mixes", platform]
        .iter()
        .collect()
}

fn mixes(platform: &str) -> Vec<Workload> {
    let published = synth::published().unwrap();
    let p = published
        .platforms
        .iter()
        .find(|p| p.name == platform)
        .unwrap();
    p.mixes
        .iter()
        .map(|m| Workload::load(&folder(platform).join(m.file_name())).unwrap())
        .collect()
}

#[test]
fn the_files_are_what_the_generator_draws() {
    for p in synth::published().unwrap().platforms {
        let mut expected: Vec<String> = p.mixes.iter().map(|m| m.file_name()).collect();
        for m in &p.mixes {
            let path = folder(&p.name).join(m.file_name());
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(
                p.render(m, synth::SEED).unwrap(),
                text,
                "{}: run the generator",
                path.display()
            );
        }
        let mut found: Vec<String> = std::fs::read_dir(folder(&p.name))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{}", p.name);
    }
}

/// What the name of a mix says of its composition: `2STH-1HPM` is two STH and one HPM.
fn classes(name: &str) -> Vec<String> {
    let name = name.trim_end_matches("_B");
    let mut out = Vec::new();
    for part in name.split('-') {
        let (count, class) = part.split_at(1);
        match class {
            "ST{H,M,L}" => out.extend(["STH", "STM", "STL"].map(String::from)),
            _ => out.extend((0..count.parse().unwrap()).map(|_| class.to_owned())),
        }
    }
    out.sort();
    out
}

#[test]
fn compositions_match_the_names() {
    for p in synth::published()
        .unwrap()
        .platforms
        .iter()
        .filter(|p| p.name != "ef")
    {
        assert_eq!(p.mixes.len(), 8);
        for m in &p.mixes {
            let mut got: Vec<String> = m
                .apps
                .iter()
                .map(|a| p.programs[synth::name_and_threads(a).0].class.clone())
                .collect();
            got.sort();
            assert_eq!(got, classes(&m.name), "{}", m.name);
        }
    }
}

#[test]
fn speedup_factors_keep_to_their_class_and_platform() {
    for p in synth::published().unwrap().platforms {
        for w in mixes(&p.name) {
            for app in &w.apps {
                let class = p.class_of(&p.programs[&app.name]).unwrap();
                let sf = app.phases_speedup().unwrap();
                assert!(
                    sf > class.sf.0 - 0.01 && sf < class.sf.1 + 0.01,
                    "{}/{}: {}: SF {sf} of {:?}",
                    p.name,
                    w.name,
                    app.name,
                    class.sf
                );
                for phase in &app.phases {
                    let sf = phase.ips_big / phase.ips_small;
                    assert!(
                        sf > p.phase_sf.0 - 0.01 && sf < p.phase_sf.1 + 0.01,
                        "{}: {sf}",
                        app.name
                    );
                }
                assert!((2..=5).contains(&app.phases.len()));
            }
        }
    }
}

#[test]
fn every_cpu_has_a_thread_and_partially_sequential_programs_are() {
    for (platform, machine) in [
        ("quickia", "quickia"),
        ("opteron", "opteron"),
        ("ef", "juno"),
    ] {
        let cpus = MachineFile::load(machine).unwrap().nr_cpus() as u32;
        for w in mixes(platform) {
            let threads: u32 = w.apps.iter().map(|a| a.threads).sum();
            assert_eq!(threads, cpus, "{platform}/{}", w.name);
            for app in &w.apps {
                let serial = serial_share(app);
                if ["BLAST", "semphy", "blackscholes", "FFTW3D"].contains(&app.name.as_str()) {
                    assert!(serial > 0.25 && serial < 0.7, "{}: {serial}", app.name);
                } else {
                    assert_eq!(serial, 0.0, "{}", app.name);
                }
            }
        }
    }
}

/// Part of the completion time on small cores that is spent in serial phases.
fn serial_share(app: &App) -> f64 {
    let time = |serial: bool| -> f64 {
        let of = app.phases.iter().filter(|p| p.parallel != serial);
        let workers = if serial { 1.0 } else { f64::from(app.threads) };
        of.map(|p| p.instructions / p.ips_small / workers).sum()
    };
    time(true) / (time(true) + time(false))
}

/// HSP and EF-driven assignments of Table 5 differ, as the paper selected them; every SF and EF is
/// above 1.
#[test]
fn efficiency_and_speedup_put_other_programs_first() {
    for w in mixes("ef") {
        let factors: Vec<(f64, f64)> = w.apps.iter().map(sf_and_ef).collect();
        assert!(
            factors.iter().all(|(sf, ef)| *sf > 1.0 && *ef > 1.0),
            "{}: {factors:?}",
            w.name
        );
        let top_two = |of: fn(&(f64, f64)) -> f64| {
            let mut order: Vec<usize> = (0..6).collect();
            order.sort_by(|a, b| of(&factors[*b]).total_cmp(&of(&factors[*a])));
            order.truncate(2);
            order.sort_unstable();
            order
        };
        assert_ne!(top_two(|f| f.0), top_two(|f| f.1), "{}", w.name);
    }
}

/// With declared factors, `ef` gives big cores to those who use energy best there, and `hsp` to the
/// fastest: in each mix both differ.
#[test]
fn with_declared_factors_ef_orders_by_efficiency() {
    let juno = MachineFile::load("juno").unwrap();
    let options = BenchOptions {
        provider: ProviderSpec::named("declared").unwrap(),
        runs: amp_eval::Runs::Exactly(1),
        completions: 1,
        ..BenchOptions::default()
    };
    for w in mixes("ef") {
        let factors: Vec<(f64, f64)> = w.apps.iter().map(sf_and_ef).collect();
        let go = &mut |_: Step<'_>| ControlFlow::Continue(());
        let report = bench(&w, &juno, &["ef", "hsp"], &options, go).unwrap();
        // mean factor on big cores: of SF, and of EF
        let on_big = |policy: usize| {
            let share = |i: usize| report.results[policy].apps[i].big_time_share.unwrap();
            let all: f64 = (0..factors.len()).map(share).sum();
            let sf = (0..factors.len()).map(|i| share(i) * factors[i].0);
            let ef = (0..factors.len()).map(|i| share(i) * factors[i].1);
            (sf.sum::<f64>() / all, ef.sum::<f64>() / all)
        };
        let (by_ef, by_sf) = (on_big(0), on_big(1));
        println!(
            "{}: (SF, EF) {by_ef:.3?} under ef, {by_sf:.3?} under hsp",
            w.name
        );
        assert!(by_ef.1 > by_sf.1, "{}: {by_ef:?} {by_sf:?}", w.name);
        assert!(by_sf.0 > by_ef.0, "{}: {by_ef:?} {by_sf:?}", w.name);
    }
}

/// Over thirty runs: with two, as on the board, one of four seeds has shares that differ by more than
/// 0.04, because a turn of rr is a tenth of a short run.
#[test]
fn rr_gives_every_program_the_same_share_of_big_cores() {
    let file = folder("").join("juno-2h4l.toml");
    let (w, juno) = (
        Workload::load(&file).unwrap(),
        MachineFile::load("juno").unwrap(),
    );
    let options = BenchOptions {
        runs: amp_eval::Runs::Exactly(30),
        ..BenchOptions::default()
    };
    let go = &mut |_: Step<'_>| ControlFlow::Continue(());
    let report = bench(&w, &juno, &["rr"], &options, go).unwrap();
    let shares = report.results[0].apps.iter().map(|a| a.big_time_share);
    let shares: Vec<f64> = shares.map(Option::unwrap).collect();
    let (least, most) = (shares.iter()).fold((f64::MAX, f64::MIN), |(least, most), s| {
        (least.min(*s), most.max(*s))
    });
    println!("shares {shares:.3?}");
    assert!(most - least <= 0.03, "{shares:.3?}");
}

/// Mean factors of a program: EF = EDP on the small core over EDP on the big one [PMCTrack eq. 3].
fn sf_and_ef(app: &App) -> (f64, f64) {
    let sum = |f: &dyn Fn(&amp_eval::workload::Phase) -> f64| app.phases.iter().map(f).sum::<f64>();
    let (small, big) = (
        sum(&|p| p.instructions / p.ips_small),
        sum(&|p| p.instructions / p.ips_big),
    );
    let e_small = sum(&|p| p.instructions / p.ips_small * p.power_small.unwrap());
    let e_big = sum(&|p| p.instructions / p.ips_big * p.power_big.unwrap());
    (small / big, e_small * small / (e_big * big))
}
