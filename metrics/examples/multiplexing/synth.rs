//! Programs with phases, made up.
//!
//! What is assumed of them: a phase has its own IPC and event rates; rates differ between phases by
//! factors (log-normal, the spread differs from event to event: some hardly change, some by a
//! factor of ten); within a phase each window scatters by a few percent. Kinds: `phased` (phases of
//! random length, never the same twice), `loop` (a few phases over and over), `drift` (rates
//! wander), `burst` (rare spikes in two or three events), `steady`.

use amp_metrics::multiplex::{Trace, Window};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};

const EVENTS: [&str; 8] = [
    "l1d_refill",
    "l2d_refill",
    "br_mis_pred",
    "l1d_tlb_refill",
    "l1i_refill",
    "mem_access",
    "br_retired",
    "stall_backend",
];
/// Typical counts per thousand instructions.
const PER_KILO: [f64; 8] = [12.0, 2.5, 4.0, 0.6, 3.0, 350.0, 180.0, 300.0];
/// Standard deviation of the logarithm of the rate between phases.
const SPREAD: [f64; 8] = [0.9, 1.1, 0.8, 1.2, 0.7, 0.25, 0.3, 0.5];
const WINDOWS: usize = 1200;
const PROGRAMS_PER_KIND: u64 = 8;
const WINDOW_NS: f64 = 10e6;
const CYCLES: f64 = 11e6;

struct Phase {
    ipc: f64,
    rates: [f64; 8],
}

fn normal(rng: &mut SmallRng, sigma: f64) -> f64 {
    // 0 and finite positive deviations are valid
    Normal::new(0.0, sigma).map_or(0.0, |n| n.sample(rng))
}

fn phase(rng: &mut SmallRng) -> Phase {
    let mut rates = PER_KILO;
    for (r, s) in rates.iter_mut().zip(SPREAD) {
        *r *= normal(rng, s).exp();
    }
    Phase {
        ipc: 1.2 * normal(rng, 0.45).exp(),
        rates,
    }
}

fn window(rng: &mut SmallRng, p: &Phase, scatter: f64) -> Window {
    let ipc = p.ipc * normal(rng, scatter / 2.0).exp();
    let instructions = CYCLES * ipc;
    let counts = p
        .rates
        .iter()
        .map(|r| (instructions / 1e3 * r * normal(rng, scatter).exp()).round());
    Window {
        ns: WINDOW_NS,
        instructions: instructions.round(),
        cycles: CYCLES,
        counts: counts.collect(),
    }
}

fn length(rng: &mut SmallRng, mean: f64) -> usize {
    1 + (-rng.random_range(1e-9f64..1.0).ln() * mean) as usize
}

/// A program with phases of random length, and where each begins with the quotient of its IPC and
/// the last one's.
pub fn phases(seed: u64, mean: f64) -> (Vec<Window>, Vec<(usize, f64)>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut windows, mut changes, mut last) = (Vec::new(), Vec::new(), None);
    while windows.len() < WINDOWS {
        let p = phase(&mut rng);
        if let Some(last) = last {
            changes.push((windows.len(), p.ipc / last));
        }
        last = Some(p.ipc);
        for _ in 0..length(&mut rng, mean) + 2 {
            windows.push(window(&mut rng, &p, 0.04));
        }
    }
    (windows, changes)
}

/// Every program: `KIND-N` and its trace. The same ones every time.
pub fn programs() -> Vec<(String, Trace)> {
    let mut all = Vec::new();
    for kind in ["phased", "loop", "drift", "burst", "steady"] {
        for n in 0..PROGRAMS_PER_KIND {
            let mut rng = SmallRng::seed_from_u64(n * 31 + kind.len() as u64 * 1009);
            // phases of 5 to 40 windows on average
            let mean = 5.0 * 2f64.powi((n % 4) as i32);
            let mut windows = Vec::with_capacity(WINDOWS);
            let r = &mut rng;
            match kind {
                "phased" => {
                    while windows.len() < WINDOWS {
                        let p = phase(r);
                        for _ in 0..length(r, mean) {
                            windows.push(window(r, &p, 0.04));
                        }
                    }
                }
                "loop" => {
                    let body: Vec<Phase> = (0..2 + n % 4).map(|_| phase(r)).collect();
                    let lengths: Vec<f64> =
                        body.iter().map(|_| mean * normal(r, 0.5).exp()).collect();
                    while windows.len() < WINDOWS {
                        for (p, l) in body.iter().zip(&lengths) {
                            for _ in 0..(l * normal(r, 0.1).exp()).round().max(1.0) as usize {
                                windows.push(window(r, p, 0.04));
                            }
                        }
                    }
                }
                "drift" => {
                    let mut p = phase(r);
                    let speed: Vec<f64> = SPREAD.iter().map(|s| s * 0.08).collect();
                    for _ in 0..WINDOWS {
                        windows.push(window(r, &p, 0.03));
                        for ((rate, s), typical) in p.rates.iter_mut().zip(&speed).zip(PER_KILO) {
                            // wanders, drawn back to what is typical
                            *rate *= (normal(r, *s) + 0.02 * (typical / *rate).ln()).exp();
                        }
                    }
                }
                "burst" => {
                    let quiet = phase(r);
                    let chance = 1.0 / (10.0 * mean);
                    while windows.len() < WINDOWS {
                        windows.push(window(r, &quiet, 0.04));
                        if r.random_range(0.0f64..1.0) < chance {
                            let mut p = Phase { ..quiet };
                            for e in [n as usize % 8, (n as usize * 3 + 1) % 8] {
                                p.rates[e] *= r.random_range(3.0f64..20.0);
                            }
                            p.ipc *= 0.7;
                            for _ in 0..length(r, 4.0) {
                                windows.push(window(r, &p, 0.04));
                            }
                        }
                    }
                }
                _ => {
                    let p = phase(r);
                    windows.extend((0..WINDOWS).map(|_| window(r, &p, 0.05)));
                }
            }
            windows.truncate(WINDOWS);
            all.push((
                format!("{kind}-{n}"),
                Trace {
                    events: EVENTS.map(str::to_owned).into(),
                    windows,
                },
            ));
        }
    }
    all
}
