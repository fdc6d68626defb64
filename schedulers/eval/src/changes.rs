//! What changed from one bench to another, and whether it is more than chance.
//!
//! Every figure of a policy is compared run by run with Welch's test: two means, two scatters, and
//! few runs. The uncertainty of the programs' times alone counts where the two benches measured
//! them separately; where both used the same kept times, it cancels out. A table of many figures
//! finds "differences" by chance, so p values are corrected for their number [Holm 1979]: with
//! nothing changed, one table in twenty or fewer says otherwise.

use crate::evaluation::{BenchReport, Better, PolicyResult};
use crate::report::columns::{columns, Column};
use amp_metrics::distributions::student_above;
use amp_metrics::uncertainty::Measured;
use serde::Serialize;

/// Probability, 0 to 1, below which a difference is no chance.
pub const LEVEL: f64 = 0.05;

/// A difference, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The second one is better.
    Better,
    /// The second one is worse.
    Worse,
    /// No difference that is more than chance.
    Same,
    /// One of them has fewer than two runs, so that nobody knows.
    Unknown,
}

/// A figure of a policy in two benches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The policy; both, when they differ.
    pub policy: String,
    /// Key of the figure, as in the result's JSON.
    pub figure: &'static str,
    /// Its title.
    #[serde(skip)]
    pub title: &'static str,
    /// In the first bench.
    pub first: Measured,
    /// In the second.
    pub second: Measured,
    /// Second minus first, with its standard uncertainty.
    pub difference: Measured,
    /// Probability of a difference as large by chance, corrected for the number of figures.
    pub p: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
}

/// What changed from `first` to `second`: every policy that is in both, or the only policy of each.
/// Nothing when there is no such pair.
pub fn changes(first: &BenchReport, second: &BenchReport) -> Vec<Change> {
    let mut out = Vec::new();
    for (a, b) in pairs(first, second) {
        let policy = match a.policy == b.policy {
            true => a.policy.clone(),
            false => format!("{} → {}", a.policy, b.policy),
        };
        for column in columns().iter().filter(|c| c.is_compared) {
            out.extend(change(&policy, column, a, b));
        }
    }
    correct(&mut out);
    out
}

fn pairs<'a>(
    first: &'a BenchReport,
    second: &'a BenchReport,
) -> Vec<(&'a PolicyResult, &'a PolicyResult)> {
    let of = |a: &'a PolicyResult| {
        let same = second.results.iter().find(|b| b.policy == a.policy);
        same.map(|b| (a, b))
    };
    let same: Vec<_> = first.results.iter().filter_map(of).collect();
    match (&same[..], &first.results[..], &second.results[..]) {
        ([], [a], [b]) => vec![(a, b)],
        _ => same,
    }
}

/// Mean of the runs with the variance of that mean, and its degrees of freedom.
struct Sample {
    mean: f64,
    variance: f64,
    freedom: f64,
}

fn sample(r: &PolicyResult, column: &Column) -> Option<Sample> {
    let values: Option<Vec<f64>> = r.runs.iter().map(|r| column.in_run(r)).collect();
    let values = values.filter(|v| v.len() >= 2)?;
    let mean = Measured::mean(&values)?;
    Some(Sample {
        mean: mean.value,
        variance: mean.u?.powi(2),
        freedom: values.len() as f64 - 1.0,
    })
}

fn change(
    policy: &str,
    column: &'static Column,
    a: &PolicyResult,
    b: &PolicyResult,
) -> Option<Change> {
    let measured = |r| Some(column.of(r)?.measured());
    let (first, second) = (measured(a)?, measured(b)?);
    let samples = sample(a, column).zip(sample(b, column));
    let tested = samples.map(|(x, y)| {
        // what the times alone add to the scatter of the runs
        let alone = match same_solos(a, b) {
            true => 0.0,
            false => {
                let extra = |m: Measured, s: &Sample| m.u.map_or(0.0, |u| u * u - s.variance);
                (extra(first, &x) + extra(second, &y)).max(0.0)
            }
        };
        let runs = x.variance + y.variance;
        let u = (runs + alone).sqrt();
        let difference = y.mean - x.mean;
        // Welch and Satterthwaite
        let freedom = match runs > 0.0 {
            true => {
                runs.powi(2) / (x.variance.powi(2) / x.freedom + y.variance.powi(2) / y.freedom)
            }
            false => f64::INFINITY,
        };
        (
            Measured::new(difference, u),
            p_value(difference, u, freedom),
        )
    });
    let (difference, p) = match tested {
        Some((difference, p)) => (difference, Some(p)),
        None => (Measured::single(second.value - first.value), None),
    };
    Some(Change {
        policy: policy.to_owned(),
        figure: column.key,
        title: column.title,
        first,
        second,
        difference,
        p,
        verdict: Verdict::Unknown,
    })
}

/// Whether both benches took the programs' times alone from the same measurement.
fn same_solos(a: &PolicyResult, b: &PolicyResult) -> bool {
    let times = |r: &PolicyResult| -> Vec<(f64, f64)> {
        r.apps.iter().map(|a| (a.ct_slow_s, a.ct_fast_s)).collect()
    };
    times(a) == times(b)
}

/// Probability of a difference at least as large when there is none.
fn p_value(difference: f64, u: f64, freedom: f64) -> f64 {
    if difference == 0.0 {
        return 1.0;
    }
    let t = (difference / u).abs();
    // a scatter of nothing, or too little to divide by: exact figures that differ
    if !t.is_finite() {
        return 0.0;
    }
    match freedom.is_nan() {
        true => 1.0,
        false => 2.0 * student_above(t, freedom.max(1.0)),
    }
}

/// Corrects the p values for their number, and judges.
fn correct(all: &mut [Change]) {
    let mut order: Vec<usize> = (0..all.len()).filter(|i| all[*i].p.is_some()).collect();
    let raw = |all: &[Change], i: usize| all[i].p.unwrap_or(1.0);
    order.sort_by(|a, b| raw(all, *a).total_cmp(&raw(all, *b)));
    let many = order.len();
    let mut least = 0.0f64;
    for (rank, i) in order.into_iter().enumerate() {
        least = least.max((raw(all, i) * (many - rank) as f64).min(1.0));
        let change = &mut all[i];
        change.p = Some(least);
        let better = columns().iter().find(|c| c.key == change.figure);
        let up = change.difference.value > 0.0;
        change.verdict = match better.map(|c| c.better) {
            _ if least >= LEVEL => Verdict::Same,
            Some(Better::Higher) if up => Verdict::Better,
            Some(Better::Higher) => Verdict::Worse,
            _ if up => Verdict::Worse,
            _ => Verdict::Better,
        };
    }
}

/// What differs in the circumstances of two benches: name, first, second.
pub fn circumstances(a: &BenchReport, b: &BenchReport) -> Vec<(&'static str, String, String)> {
    let seed = |r: &BenchReport| r.environment.seed.map(|s| s.to_string());
    let all = [
        (
            "workload",
            Some(a.workload.clone()),
            Some(b.workload.clone()),
        ),
        (
            "machine",
            Some(a.machine.name.clone()),
            Some(b.machine.name.clone()),
        ),
        ("ran on", Some(a.on.clone()), Some(b.on.clone())),
        (
            "speedup factors",
            Some(a.provider.clone()),
            Some(b.provider.clone()),
        ),
        (
            "kernel",
            a.environment.kernel.clone(),
            b.environment.kernel.clone(),
        ),
        (
            "commit",
            a.environment.commit.clone(),
            b.environment.commit.clone(),
        ),
        (
            "QEMU",
            a.environment.qemu.clone(),
            b.environment.qemu.clone(),
        ),
        ("seed", seed(a), seed(b)),
    ];
    let or = |x: Option<String>| x.unwrap_or_else(|| "unknown".to_owned());
    let differs = all.into_iter().filter(|(_, a, b)| a != b);
    differs.map(|(name, a, b)| (name, or(a), or(b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{evaluate, AppRun, AppSpec, Run, Solo, Unfinished, WorkFrom};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    /// Roughly normal, of mean 0 and standard deviation 1.
    fn normal(rng: &mut SmallRng) -> f64 {
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A bench of these policies, whose completion times are so long with so much scatter; times
    /// alone are measured anew when `alone` is above 0.
    fn report(policies: &[(&str, f64)], sd: f64, alone: f64, rng: &mut SmallRng) -> BenchReport {
        let mut solo =
            |t: f64| -> Vec<f64> { (0..3).map(|_| t * (1.0 + alone * normal(rng))).collect() };
        let solos = [
            Solo {
                slow_s: solo(40.0),
                fast_s: solo(10.0),
            },
            Solo {
                slow_s: solo(30.0),
                fast_s: solo(15.0),
            },
        ];
        let specs = ["a", "b"].map(|name| AppSpec {
            name: name.into(),
            weight: 100,
        });
        let of = |&(name, ct): &(&str, f64)| {
            let mut run = |_| {
                let mut app = |t: f64| {
                    // three minutes at this speed
                    let t = t * (1.0 + sd * normal(rng));
                    let passes = 180.0 / t;
                    AppRun {
                        completions_s: vec![t; passes as usize],
                        unfinished: Unfinished::exactly(passes.fract()),
                        time_s: Vec::new(),
                    }
                };
                let apps = vec![app(ct), app(20.0)];
                Run {
                    apps,
                    duration_s: 180.0,
                    ..Run::default()
                }
            };
            let runs: Vec<Run> = (0..5).map(&mut run).collect();
            evaluate(name, &specs, &solos, &runs, WorkFrom::Instructions).unwrap()
        };
        BenchReport {
            workload: "w".into(),
            machine: Default::default(),
            on: "sim".into(),
            provider: "declared".into(),
            environment: Default::default(),
            results: policies.iter().map(of).collect(),
            failed: Vec::new(),
        }
    }

    #[test]
    fn the_same_thing_twice_differs_in_one_table_of_twenty_at_most() {
        let mut rng = SmallRng::seed_from_u64(1979);
        let policies = [("rr", 18.0), ("hsp", 15.0), ("acfs", 17.0)];
        for alone in [0.0, 0.02] {
            let mut found = 0;
            for _ in 0..400 {
                let mut again = || report(&policies, 0.03, alone, &mut rng);
                let (a, b) = (again(), again());
                let differs = |c: &Change| c.verdict != Verdict::Same;
                found += u32::from(changes(&a, &b).iter().any(differs));
            }
            println!("alone ± {alone}: {found} of 400 tables find a difference");
            // 5 % are 20; three standard deviations more are 33
            assert!(found <= 33, "{found}");
        }
    }

    #[test]
    fn a_difference_that_is_there_is_found() {
        let mut rng = SmallRng::seed_from_u64(1);
        let a = report(&[("rr", 18.0), ("hsp", 15.0)], 0.01, 0.0, &mut rng);
        let b = report(&[("hsp", 13.0), ("rr", 18.0)], 0.01, 0.0, &mut rng);
        let all = changes(&a, &b);
        let verdict = |policy: &str, figure: &str| {
            let found = all
                .iter()
                .find(|c| c.policy == policy && c.figure == figure);
            found.unwrap().verdict
        };
        assert_eq!(verdict("hsp", "asp"), Verdict::Better);
        assert_eq!(verdict("hsp", "stp"), Verdict::Better);
        assert_eq!(verdict("rr", "asp"), Verdict::Same);
        // nothing is known of energy
        assert!(all.iter().all(|c| !c.figure.starts_with("edp")));
        // and the other way round
        let back = changes(&b, &a);
        let hsp = back.iter().find(|c| c.policy == "hsp" && c.figure == "asp");
        assert_eq!(hsp.unwrap().verdict, Verdict::Worse);
        // two benches of one policy each are of these two
        let one = |r: &BenchReport, i: usize| BenchReport {
            results: vec![r.results[i].clone()],
            ..r.clone()
        };
        let across = changes(&one(&a, 0), &one(&a, 1));
        assert_eq!(across[0].policy, "rr → hsp");
        assert_eq!(across[0].verdict, Verdict::Better);
        assert!(changes(&one(&a, 0), &b).iter().all(|c| c.policy == "rr"));
    }

    #[test]
    fn single_runs_and_exact_figures() {
        let mut rng = SmallRng::seed_from_u64(2);
        let exact = report(&[("rr", 18.0)], 0.0, 0.0, &mut rng);
        let other = report(&[("rr", 17.0)], 0.0, 0.0, &mut rng);
        let asp = |a: &BenchReport, b: &BenchReport| changes(a, b)[0].clone();
        assert_eq!(asp(&exact, &exact).verdict, Verdict::Same);
        assert_eq!(asp(&exact, &other).verdict, Verdict::Better);
        let mut single = exact.clone();
        single.results[0].runs.truncate(1);
        let c = asp(&single, &other);
        assert_eq!((c.verdict, c.p), (Verdict::Unknown, None));
    }

    #[test]
    fn circumstances_are_named() {
        let mut rng = SmallRng::seed_from_u64(3);
        let a = report(&[("rr", 18.0)], 0.0, 0.0, &mut rng);
        let mut b = a.clone();
        assert!(circumstances(&a, &b).is_empty());
        b.provider = "auto".into();
        b.environment.seed = Some(7);
        let names: Vec<&str> = circumstances(&a, &b).iter().map(|c| c.0).collect();
        assert_eq!(names, ["speedup factors", "seed"]);
    }
}
