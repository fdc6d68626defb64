//! The analytic oracle: steady single-threaded applications, one core each, no overheads \[TR5028\].
//!
//! With F the share of *time* an application spends on fast cores and f the share of
//! *instructions*:
//!
//! f = 1/((1/F − 1)/SF + 1), slowdown = f + SF·(1 − f), ASP = Σ [1/(f/SF + 1 − f) − 1].

use crate::evaluation::results::{MachineFacts, OracleResult};
use crate::workload::Workload;

/// Share of instructions retired on fast cores, from the share of time `time` (0 to 1) and the
/// speedup factor.
pub fn instruction_share(time: f64, sf: f64) -> f64 {
    if time <= 0.0 {
        return 0.0;
    }
    1.0 / ((1.0 / time - 1.0) / sf + 1.0)
}

/// Completion time over that on a fast core.
pub fn slowdown(time: f64, sf: f64) -> f64 {
    let f = instruction_share(time, sf);
    f + sf * (1.0 - f)
}

/// Speed over that on a slow core.
pub fn speedup(time: f64, sf: f64) -> f64 {
    let f = instruction_share(time, sf);
    1.0 / (f / sf + 1.0 - f)
}

/// HSP: the `big` applications of largest speedup factor have a fast core all the time. Of equals
/// the first in the list goes first.
pub fn hsp(sf: &[f64], big: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..sf.len()).collect();
    order.sort_by(|a, b| sf[*b].total_cmp(&sf[*a]));
    let mut share = vec![0.0; sf.len()];
    for i in order.into_iter().take(big) {
        share[i] = 1.0;
    }
    share
}

/// RR: F = NB/n for all.
pub fn rr(n: usize, big: usize) -> Vec<f64> {
    vec![(big as f64 / n.max(1) as f64).min(1.0); n]
}

/// The fairness optimum: the shares with ΣF = NB (or as much as can be used) for which all weighted
/// slowdowns W·slowdown are equal, as far as 0 ≤ F ≤ 1 allows. `weights` are relative ones; a
/// missing one is 1.
pub fn fair(sf: &[f64], weights: &[f64], big: usize) -> Vec<f64> {
    let weight = |i: usize| weights.get(i).copied().unwrap_or(1.0);
    // slowdown = SF/(F(SF−1)+1), hence F for a target slowdown; it falls as the target rises
    let share = |i: usize, target: f64| {
        let gain = sf[i] - 1.0;
        let s = target / weight(i);
        let f = if gain.abs() < 1e-12 {
            0.0
        } else {
            (sf[i] / s - 1.0) / gain
        };
        f.clamp(0.0, 1.0)
    };
    let n = sf.len();
    let total = |target: f64| (0..n).map(|i| share(i, target)).sum::<f64>();
    let wanted = (big as f64).min(n as f64);
    let largest = |init: f64, f: &dyn Fn(usize) -> f64| (0..n).map(f).fold(init, f64::max);
    let (mut low, mut high) = (1e-9, largest(1.0, &|i| weight(i) * sf[i].max(1.0)));
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if total(middle) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut shares: Vec<f64> = (0..n).map(|i| share(i, high)).collect();
    // What is left over goes to those it does not help (SF = 1): the cores are not idle.
    let mut left = wanted - shares.iter().sum::<f64>();
    for s in &mut shares {
        let more = left.min(1.0 - *s).max(0.0);
        *s += more;
        left -= more;
    }
    shares
}

/// ASP, unfairness and slowdowns that these shares of time lead to. Unfairness counts relative
/// `weights`; a missing one is 1.
pub fn predict(shares: &[f64], sf: &[f64], weights: &[f64]) -> OracleResult {
    let pairs = || shares.iter().zip(sf);
    let slowdowns: Vec<f64> = pairs().map(|(f, sf)| slowdown(*f, *sf)).collect();
    let weighted = || {
        slowdowns
            .iter()
            .enumerate()
            .map(|(i, s)| s * weights.get(i).copied().unwrap_or(1.0))
    };
    let max = weighted().fold(f64::NEG_INFINITY, f64::max);
    let min = weighted().fold(f64::INFINITY, f64::min);
    OracleResult {
        asp: pairs().map(|(f, sf)| speedup(*f, *sf) - 1.0).sum(),
        unfairness: if slowdowns.is_empty() { 1.0 } else { max / min },
        big_time_share: shares.to_vec(),
        slowdown: slowdowns,
    }
}

/// What `policy` should reach, where the oracle applies to it: `hsp`, `rr`, and `acfs` (the
/// fairness optimum), for no more applications than CPUs.
pub fn of_policy(
    policy: &str,
    sf: &[f64],
    weights: &[f64],
    big: usize,
    cpus: usize,
) -> Option<OracleResult> {
    if sf.is_empty() || sf.len() > cpus || sf.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
        return None;
    }
    let shares = match policy {
        "hsp" => hsp(sf, big),
        "rr" => rr(sf.len(), big),
        "acfs" => fair(sf, weights, big),
        _ => return None,
    };
    Some(predict(&shares, sf, weights))
}

/// What `policy` should reach with `workload`, from the speedup factors `sf` of its whole programs:
/// the steady-state prediction of a bench. Mixes of single-threaded programs on two core types have
/// one; programs with phases make it an approximation, which policies that follow the phases can
/// beat.
pub fn of_mix(
    policy: &str,
    workload: &Workload,
    sf: &[f64],
    machine: &MachineFacts,
) -> Option<OracleResult> {
    let [big, small] = &machine.core_types[..] else {
        return None;
    };
    if workload.apps.iter().any(|a| a.threads != 1) {
        return None;
    }
    let weights = workload.apps.iter().map(|a| f64::from(a.weight) / 100.0);
    let weights: Vec<f64> = weights.collect();
    of_policy(policy, sf, &weights, big.cpus, big.cpus + small.cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_of_the_scale() {
        for (got, want) in [
            (slowdown(1.0, 2.5), 1.0),
            (slowdown(0.0, 2.5), 2.5),
            (speedup(1.0, 2.5), 2.5),
            (speedup(0.0, 2.5), 1.0),
        ] {
            assert!((got - want).abs() < 1e-12, "{got} for {want}");
        }
    }

    #[test]
    fn a_worked_example() {
        // half the time at speed 3, half at 1: speed 2, 3/4 of the instructions on the fast core
        assert!((instruction_share(0.5, 3.0) - 0.75).abs() < 1e-12);
        assert!((slowdown(0.5, 3.0) - 1.5).abs() < 1e-12);
        let r = predict(&rr(4, 2), &[3.0, 3.0, 1.0, 1.0], &[]);
        assert!((r.asp - 2.0).abs() < 1e-12 && (r.unfairness - 1.5).abs() < 1e-12);
        let h = of_policy("hsp", &[1.0, 3.0, 1.0, 3.0], &[], 2, 4).unwrap();
        assert_eq!(h.big_time_share, [0.0, 1.0, 0.0, 1.0]);
        assert!((h.asp - 4.0).abs() < 1e-12 && (h.unfairness - 1.0).abs() < 1e-12);
        assert_eq!(of_policy("hsp", &[1.0; 5], &[], 2, 4), None);
        assert_eq!(of_policy("eevdf", &[1.0; 4], &[], 2, 4), None);
    }

    proptest! {
        /// Speed is the time-weighted mean of the speeds on either core: the formulas of the papers
        /// reduce to it.
        #[test]
        fn formulas_agree_with_first_principles(time in 0.0f64..=1.0, sf in 1.0f64..5.0) {
            let speed = time * sf + (1.0 - time);
            prop_assert!((speedup(time, sf) - speed).abs() < 1e-9);
            prop_assert!((slowdown(time, sf) - sf / speed).abs() < 1e-9);
        }

        /// At the fairness optimum everyone who has a share strictly inside (0, 1) has the same
        /// weighted slowdown, the cores are used up, and no plan of the other two is fairer.
        #[test]
        fn fairness_optimum(
            sf in prop::collection::vec(1.0f64..4.0, 1..10),
            heavy in any::<bool>(),
            big in 1usize..5,
        ) {
            let weights: Vec<f64> =
                (0..sf.len()).map(|i| if heavy && i == 0 { 1.3 } else { 1.0 }).collect();
            let f = fair(&sf, &weights, big);
            prop_assert!(f.iter().all(|f| (0.0..=1.0).contains(f)));
            prop_assert!((f.iter().sum::<f64>() - big.min(sf.len()) as f64).abs() < 1e-6);
            let inner: Vec<f64> = (0..sf.len())
                .filter(|&i| f[i] > 1e-6 && f[i] < 1.0 - 1e-6 && sf[i] > 1.001)
                .map(|i| weights[i] * slowdown(f[i], sf[i]))
                .collect();
            prop_assert!(inner.windows(2).all(|w| (w[0] / w[1] - 1.0).abs() < 1e-4), "{inner:?}");
            let best = predict(&f, &sf, &weights).unfairness;
            for other in [hsp(&sf, big), rr(sf.len(), big)] {
                prop_assert!(best <= predict(&other, &sf, &weights).unfairness + 1e-4);
            }
        }

        /// HSP has the largest ASP of all.
        #[test]
        fn hsp_is_the_throughput_optimum(sf in prop::collection::vec(1.0f64..4.0, 1..10), big in 1usize..5) {
            let top = predict(&hsp(&sf, big), &sf, &[]).asp;
            prop_assert!(top + 1e-9 >= predict(&rr(sf.len(), big), &sf, &[]).asp);
            prop_assert!(top + 1e-9 >= predict(&fair(&sf, &[], big), &sf, &[]).asp);
        }
    }
}
