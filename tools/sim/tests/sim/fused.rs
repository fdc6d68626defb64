//! What policies make of measured ratios and probes.

use amp_eval::evaluation::BenchReport;
use amp_eval::workload::Workload;
use amp_eval::Runs;
use amp_machine::MachineFile;
use amp_sched::policy::Settings;
use amp_sim::bench::{bench, BenchOptions};
use amp_sim::ProviderSpec;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Six programs of these instruction rates (big, small; 10⁹/s), each `seconds` long on a small
/// core.
fn mix(rates: &[(f64, f64)], seconds: f64) -> Workload {
    let mut text = "name = \"mix\"\n".to_owned();
    for (i, (big, small)) in rates.iter().enumerate() {
        let n = small * seconds;
        text += &format!(
            "[[app]]\nname = \"p{i}\"\ninstructions = {n}e9\nphases = [{{ instructions = {n}e9, \
             ips_big = {big}e9, ips_small = {small}e9, power_big = 1, power_small = 0.5 }}]\n"
        );
    }
    Workload::parse(Path::new("mix.toml"), &text).unwrap()
}

const RATES: [(f64, f64); 6] = [
    (1.1, 1.0),
    (2.4, 0.8),
    (1.8, 1.5),
    (3.0, 1.0),
    (0.9, 0.6),
    (2.0, 1.3),
];

fn run(seconds: f64, provider: &str, settings: &[&str], policies: &[&str]) -> BenchReport {
    let options = BenchOptions {
        provider: ProviderSpec::named(provider).unwrap(),
        settings: Settings::new(settings, policies).unwrap(),
        runs: Runs::Exactly(3),
        ..BenchOptions::default()
    };
    let machine = crate::common::machine(&[2, 4], 50);
    let workload = mix(&RATES, seconds);
    bench(&workload, &machine, policies, &options, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

fn asp(report: &BenchReport) -> f64 {
    report.results[0].asp.value
}

/// The ASP of a policy on a shipped machine, in five runs.
fn asp_on(machine: &str, workload: &Workload, policy: &str, provider: &str) -> f64 {
    let machine = MachineFile::load(machine).unwrap();
    let options = BenchOptions {
        provider: ProviderSpec::named(provider).unwrap(),
        runs: Runs::Exactly(5),
        ..BenchOptions::default()
    };
    let report = bench(workload, &machine, &[policy], &options, &mut |_| {
        ControlFlow::Continue(())
    });
    asp(&report.unwrap())
}

/// Who knows every factor wants nothing measured.
#[test]
fn with_true_factors_probes_cost_nothing_at_all() {
    let policies = ["hsp", "acfs", "rr"];
    let with = run(5.0, "true", &[], &policies);
    let without = run(5.0, "true", &["engine.probes=0"], &policies);
    assert_eq!(
        serde_json::to_string(&with).unwrap(),
        serde_json::to_string(&without).unwrap()
    );
}

/// Measured ratios come near the true factors, from a cold start.
#[test]
fn hsp_finds_the_right_threads_by_itself() {
    let best = asp(&run(20.0, "true", &[], &["hsp"]));
    let fused = asp(&run(20.0, "fused", &[], &["hsp"]));
    assert!(fused > 0.97 * best, "{fused} of {best}");
}

/// Once everybody is known, probes are rare: what they cost is less than 1 % of ASP.
#[test]
fn looking_again_costs_less_than_a_percent() {
    let best = asp(&run(120.0, "true", &[], &["hsp"]));
    let fused = asp(&run(120.0, "fused", &[], &["hsp"]));
    assert!(fused > 0.99 * best, "{fused} of {best}");
}

/// Two programs that evict each other's lines from the little cores' cache: sorting by factors leaves
/// both there, a fourth below the best placement. What is learned of costs brings most of that back: of the
/// best placement 0.915 with this seed, 0.942, 0.934 and 0.950 with the three after it (five runs each).
#[test]
fn measured_factors_do_not_lose_where_a_cache_is_shared() {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../workloads/mixes/juno-contention.toml",
    ]
    .iter()
    .collect();
    let workload = Workload::load(&path).unwrap();
    let asp = |policy, provider| asp_on("juno", &workload, policy, provider);
    let best = asp("pinned", "true");
    let unaware = asp("hsp", "true");
    let aware = asp("hsp", "fused");
    assert!(unaware < 0.8 * best, "{unaware} of {best}");
    assert!(aware > 0.9 * best, "{aware} beside {unaware}, of {best}");
}

/// Two programs of a hash table and a list of pointers, two of other phases, out of step: seconds of a phase, its rates on fast
/// and slow cores in 10⁹/s.
const PHASES: [[(f64, f64, f64); 2]; 2] = [
    [(2.4, 1.5, 0.3), (2.4, 0.037, 0.03)],
    [(3.0, 1.26, 0.35), (3.0, 1.06, 0.45)],
];

/// A pinned placement cannot follow phases. With the factor of one phase held for that of the other `hsp` did less than the best
/// of them: 0.83 of it. It does 1.14 of it with this seed, and 1.14, 1.14 and 1.16 with the three after it.
#[test]
fn phases_that_nobody_knows_are_followed() {
    let mut text = "name = \"phases\"\n".to_owned();
    for (program, phases) in PHASES.iter().enumerate() {
        for first in [0, 1] {
            let [a, b] = [first, 1 - first].map(|i| {
                let (seconds, big, small) = phases[i];
                let n = seconds * small;
                let phase =
                    format!("{{ instructions = {n}e9, ips_big = {big}e9, ips_small = {small}e9 }}");
                (n, phase)
            });
            let n = 2.0 * (a.0 + b.0);
            text += &format!(
                "[[app]]\nname = \"p{program}{first}\"\ninstructions = {n}e9\nphases = [{}, {}]\n",
                a.1, b.1
            );
        }
    }
    let workload = Workload::parse(Path::new("phases.toml"), &text).unwrap();
    let asp = |policy| asp_on("quickia", &workload, policy, "measured");
    let (best, hsp) = (asp("pinned"), asp("hsp"));
    assert!(hsp > 1.05 * best, "{hsp} of {best}");
}
