//! Speed and power of a phase on each core type.

use amp_eval::workload::Phase;
use amp_metrics::MAX_CORE_TYPES;
use amp_sched::Topology;

/// What one thread does per second in a phase, by core type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Instructions per second.
    pub ips: [f64; MAX_CORE_TYPES],
    /// Watts while it runs; `None` when the phase does not say.
    pub power: Option<[f64; MAX_CORE_TYPES]>,
}

impl Rates {
    /// The rates of `phase` on the core types of `topology`.
    ///
    /// A phase states the fastest type (`big`) and the slowest (`small`). A type between them, of
    /// capacity c, lies between them geometrically: small·(big/small)^x with x =
    /// ln(c/c_small)/ln(c_big/c_small), so that a type whose capacity is halfway by ratio has a
    /// speedup that is halfway by ratio. When all capacities are equal, x goes by position. With a
    /// single core type there is only `big`.
    pub fn of(phase: &Phase, topology: &Topology) -> Rates {
        let positions = topology.positions();
        let spread = |big: f64, small: f64| {
            let mut out = [0.0; MAX_CORE_TYPES];
            for (o, x) in out.iter_mut().zip(&positions) {
                *o = match (big, small) {
                    (b, _) if *x >= 1.0 => b,
                    (_, s) if *x <= 0.0 => s,
                    // a power may be 0, where there is no ratio
                    (b, s) if b <= 0.0 || s <= 0.0 => s + (b - s) * x,
                    (b, s) => s * (b / s).powf(*x),
                };
            }
            out
        };
        Rates {
            ips: spread(phase.ips_big, phase.ips_small),
            power: phase
                .power_big
                .zip(phase.power_small)
                .map(|(b, s)| spread(b, s)),
        }
    }
}

/// The rates of a whole program: instructions over time, energy over time, by core type. `phases`
/// are lengths in instructions with their rates; power is known when all of them know it.
pub(crate) fn mean(phases: &[(f64, Rates)]) -> Rates {
    let total: f64 = phases.iter().map(|(n, _)| n).sum();
    let time = |t: usize| -> f64 { phases.iter().map(|(n, r)| n / r.ips[t]).sum() };
    let mut out = Rates {
        ips: [0.0; MAX_CORE_TYPES],
        power: None,
    };
    let powers: Option<Vec<_>> = phases
        .iter()
        .map(|(n, r)| r.power.map(|p| (n, r.ips, p)))
        .collect();
    let mut power = [0.0; MAX_CORE_TYPES];
    for t in 0..MAX_CORE_TYPES {
        if phases.iter().any(|(_, r)| r.ips[t] <= 0.0) {
            continue; // no such core type
        }
        out.ips[t] = total / time(t);
        let energy =
            |(n, ips, p): &(&f64, [f64; MAX_CORE_TYPES], [f64; MAX_CORE_TYPES])| *n / ips[t] * p[t];
        power[t] = powers.iter().flatten().map(energy).sum::<f64>() / time(t);
    }
    out.power = powers.map(|_| power);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_eval::workload::Schedule;
    use amp_sched::CoreType;

    fn topology(capacities: &[u32]) -> Topology {
        let t = |(i, c): (usize, &u32)| CoreType {
            name: format!("t{i}"),
            cpus: vec![i as u32],
            capacity: *c,
        };
        Topology::new(capacities.iter().enumerate().map(t).collect()).unwrap()
    }

    fn phase() -> Phase {
        Phase {
            instructions: 1.0,
            ips_big: 4e9,
            ips_small: 1e9,
            power_big: Some(2.0),
            power_small: Some(0.0),
            parallel: true,
            schedule: Schedule::Static,
            loops: 1,
            sleep: 0.0,
            cache: None,
        }
    }

    #[test]
    fn types_between_lie_geometrically() {
        let r = Rates::of(&phase(), &topology(&[1024, 512, 256]));
        assert_eq!((r.ips[0], r.ips[2]), (4e9, 1e9));
        assert!((r.ips[1] - 2e9).abs() < 1.0, "{:?}", r.ips);
        let p = r.power.unwrap();
        assert_eq!((p[0], p[2]), (2.0, 0.0));
        assert!((p[1] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn flat_capacities_go_by_position_and_one_type_is_big() {
        let r = Rates::of(&phase(), &topology(&[1024, 1024, 1024]));
        assert!((r.ips[1] - 2e9).abs() < 1.0 && r.ips[2] == 1e9);
        assert_eq!(Rates::of(&phase(), &topology(&[1024])).ips[0], 4e9);
        let none = Phase {
            power_small: None,
            ..phase()
        };
        assert_eq!(Rates::of(&none, &topology(&[1024, 512])).power, None);
    }
}
