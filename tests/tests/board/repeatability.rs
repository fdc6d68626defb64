//! The board is a measuring instrument: the same work takes the same virtual time, whatever the
//! host does beside it.

use amp_tests::{coefficient_of_variation, HostLoad, Lab};
use std::collections::BTreeMap;

const BIG: u32 = 1;
const LITTLE: u32 = 4;

/// Kernels with enough work for what starting them stirs up not to show.
const KERNELS: [&str; 6] = [
    "alu --work 4M",
    "fp --work 1M",
    "branchy --work 2M",
    "stream --size 8M --work 3M",
    "chase --size 8M --work 900K",
    "chase --size 512K --work 3M",
];

fn script() -> String {
    let mut s = String::from("sleep 5\n");
    for k in KERNELS {
        for cpu in [BIG, LITTLE] {
            for _ in 0..5 {
                s += &format!("amp-workload run {k} --pin {cpu} --json\n");
            }
        }
    }
    s
}

type Times = BTreeMap<(String, u64), Vec<f64>>;

/// Virtual seconds by kernel and CPU.
fn times() -> Times {
    let reply = Lab::board("juno").alone().run(&script()).ok();
    let mut all = Times::new();
    for j in reply.json() {
        let key = (
            format!(
                "{} {}",
                j["kernel"].as_str().unwrap(),
                j["parameters"].as_str().unwrap()
            ),
            j["cpu"].as_u64().unwrap(),
        );
        all.entry(key)
            .or_default()
            .push(j["wall_ns"].as_f64().unwrap() * 1e-9);
    }
    assert_eq!(all.len(), KERNELS.len() * 2);
    all
}

#[test]
fn the_same_work_takes_the_same_virtual_time_with_and_without_load_on_the_host() {
    let quiet = times();
    let loaded = {
        let _load = HostLoad::start();
        times()
    };
    for (what, times) in [("quiet host", &quiet), ("loaded host", &loaded)] {
        for ((kernel, cpu), t) in times {
            let cv = coefficient_of_variation(t);
            println!(
                "{what}: {kernel} on CPU {cpu}: {:.4} s, CV {:.2} %",
                t[0],
                cv * 100.0
            );
            assert!(
                cv <= 0.01,
                "{what}: {kernel} on CPU {cpu}: CV {cv:.4}: {t:?}"
            );
        }
    }
    for (key, t) in &quiet {
        let both: Vec<f64> = t.iter().chain(&loaded[key]).copied().collect();
        let cv = coefficient_of_variation(&both);
        assert!(
            cv <= 0.01,
            "{key:?}: quiet and loaded host together: CV {cv:.4}: {both:?}"
        );
    }
    let mean = |key: (String, u64)| {
        let t = &quiet[&key];
        t.iter().sum::<f64>() / t.len() as f64
    };
    let kernels: Vec<String> = quiet.keys().map(|k| k.0.clone()).collect();
    let mut speedups: Vec<(f64, String)> = kernels
        .into_iter()
        .map(|k| {
            (
                mean((k.clone(), u64::from(LITTLE))) / mean((k.clone(), u64::from(BIG))),
                k,
            )
        })
        .collect();
    speedups.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("speedups: {speedups:.2?}");
    let (low, high) = (speedups[0].0, speedups[speedups.len() - 1].0);
    assert!(
        low >= 1.05 && high <= 3.6 && high / low > 1.8,
        "speedups {speedups:?}"
    );
}
