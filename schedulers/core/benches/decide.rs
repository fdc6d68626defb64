//! What one decision costs, per policy, by number of threads and CPUs; prints the fitted growth.
//!
//! The threads are in a steady state: half of them single-threaded applications, the others in
//! applications of four, factors with ±2 % noise, CPU time as the last decision placed them. Only
//! `Policy::place` is timed. `AMP_BENCH_THREADS=1000,10000` and `AMP_BENCH_POLICIES=acfs,rr` narrow
//! it down.

use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, MetricId, Nanos, Provider, Quality, Snapshot,
    ThreadKey, MAX_CORE_TYPES,
};
use amp_sched::{policy, AppView, CoreType, Placement, Policy, ThreadView, Topology, View};
use criterion::{BenchmarkId, Criterion};
use std::hint::black_box;
use std::time::{Duration, Instant};

const THREADS: &[usize] = &[100, 1_000, 10_000, 100_000];
/// Fast and slow CPUs.
const CPUS: &[(u32, u32)] = &[(2, 6), (16, 48), (256, 768)];
/// Decisions before anything is timed.
const WARM_UP: usize = 8;
/// Goal for ten thousand threads.
const GOAL: Duration = Duration::from_millis(1);

/// Factors by slot, so that looking them up costs next to nothing.
struct Factors {
    sf: Vec<f64>,
    noise: u64,
}

impl Factors {
    fn noisy(&self, slot: u32, salt: u64) -> f64 {
        let x = (u64::from(slot) + salt + self.noise)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
            .wrapping_mul(0xBF58_476D_1CE4_E5B9);
        1.0 + ((x >> 40) as f64 / f64::from(1 << 24) - 0.5) * 0.04
    }
}

impl Provider for Factors {
    fn name(&self) -> &str {
        "bench"
    }

    fn observe(&mut self, _: &Snapshot) {}

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let sf = self.sf.get(thread.slot as usize)?;
        let value = match metric {
            MetricId::SpeedupFactor(_) => sf * self.noisy(thread.slot, 0),
            MetricId::EfficiencyFactor(_) => (5.0 - sf) / 2.0 * self.noisy(thread.slot, 1 << 32),
            _ => return None,
        };
        Some(Estimate {
            value,
            uncertainty: Some(value * 0.02),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}

/// A machine full of threads, one interval after another.
struct Stage {
    topology: Topology,
    threads: Vec<ThreadView>,
    apps: Vec<AppView>,
    factors: Factors,
    now: Nanos,
    placement: Placement,
}

const INTERVAL: Nanos = Nanos::from_millis(100);

impl Stage {
    fn new(n: usize, (fast, slow): (u32, u32)) -> Stage {
        let core_type = |name: &str, cpus: std::ops::Range<u32>, capacity| CoreType {
            name: name.into(),
            cpus: cpus.collect(),
            capacity,
        };
        let topology = Topology::new(vec![
            core_type("big", 0..fast, 1024),
            core_type("little", fast..fast + slow, 446),
        ])
        .expect("two core types of different CPUs");
        let app = |i: usize| {
            if i < n / 2 {
                i
            } else {
                n / 2 + (i - n / 2) / 4
            }
        };
        let mut apps: Vec<AppView> = Vec::new();
        for i in 0..n {
            match apps.last_mut().filter(|a| a.id.0 == app(i) as u64) {
                Some(a) => {
                    a.threads.end += 1;
                    a.runnable += 1;
                }
                None => apps.push(AppView {
                    succeeds: None,
                    id: AppId(app(i) as u64),
                    threads: i..i + 1,
                    runnable: 1,
                    busy: [1.0; amp_metrics::MAX_CORE_TYPES],
                }),
            }
        }
        let threads = (0..n).map(|i| ThreadView {
            key: ThreadKey {
                slot: i as u32,
                generation: 1,
            },
            tid: i as i32,
            app_id: AppId(app(i) as u64),
            app: app(i),
            weight: if i % 10 == 0 { 200 } else { 100 },
            allowed: CoreTypeSet::ALL,
            placed: None,
            core_type: CoreTypeId(1),
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
            ran: [Nanos::ZERO; MAX_CORE_TYPES],
            done: Default::default(),
            unrated: Default::default(),
            succeeds: None,
        });
        Stage {
            topology,
            threads: threads.collect(),
            apps,
            factors: Factors {
                sf: (0..n)
                    .map(|i| 1.1 + (i * 7919 % 1000) as f64 / 350.0)
                    .collect(),
                noise: 0,
            },
            now: Nanos::ZERO,
            placement: Placement::default(),
        }
    }

    /// One decision, timed; then one interval passes.
    fn decide(&mut self, policy: &mut dyn Policy) -> Duration {
        self.placement.clear();
        let view = View::new(
            &self.topology,
            self.now,
            INTERVAL,
            &self.threads,
            &self.apps,
            &self.factors,
        );
        let begin = Instant::now();
        policy.place(black_box(&view), &mut self.placement);
        let took = begin.elapsed();
        let mut on = [0u64; MAX_CORE_TYPES];
        for (key, to) in self.placement.iter() {
            self.threads[key.slot as usize].placed = to;
            on[to.map_or(0, CoreTypeId::index)] += 1;
        }
        for th in &mut self.threads {
            th.ran = [Nanos::ZERO; MAX_CORE_TYPES];
            let t = th.placed.map_or(0, CoreTypeId::index);
            let cpus = self.topology.nr_cpus(CoreTypeId(t as u8)) as u64;
            th.ran[t] = Nanos(INTERVAL.0 * cpus.min(on[t]) / on[t].max(1));
            th.runtime[t] += th.ran[t];
        }
        self.now += INTERVAL;
        self.factors.noise += 1;
        took
    }
}

/// Slope of ln time over ln n: 1 is linear; n log n over this range is 1.1 to 1.2.
fn exponent(points: &[(usize, Duration)]) -> f64 {
    let xy: Vec<(f64, f64)> = points
        .iter()
        .map(|(n, t)| ((*n as f64).ln(), t.as_secs_f64().ln()))
        .collect();
    let n = xy.len() as f64;
    let (mx, my) = xy
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let (sxy, sxx) = xy.iter().fold((0.0, 0.0), |(a, b), (x, y)| {
        (a + (x - mx) * (y - my), b + (x - mx) * (x - mx))
    });
    sxy / sxx
}

fn chosen(variable: &str) -> Option<Vec<String>> {
    let list = std::env::var(variable).ok()?;
    Some(list.split(',').map(|s| s.trim().to_owned()).collect())
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    let wanted = |list: &Option<Vec<String>>, x: &str| {
        list.as_ref().is_none_or(|l| l.iter().any(|w| w == x))
    };
    let (policies, sizes) = (chosen("AMP_BENCH_POLICIES"), chosen("AMP_BENCH_THREADS"));
    let mut table = Vec::new();
    for name in policy::NAMES.iter().filter(|p| wanted(&policies, p)) {
        let mut group = criterion.benchmark_group(format!("decide/{name}"));
        for cpus in CPUS {
            let mut points = Vec::new();
            for n in THREADS.iter().filter(|n| wanted(&sizes, &n.to_string())) {
                let mut stage = Stage::new(*n, *cpus);
                let mut p = policy::by_name(name, 1).expect("a name from the list of names");
                for _ in 0..WARM_UP {
                    stage.decide(&mut *p);
                }
                // The fastest decision: what it costs when nothing else disturbs it.
                let mut best = Duration::MAX;
                let id = BenchmarkId::new(format!("{}-cpus", cpus.0 + cpus.1), n);
                group.bench_function(id, |b| {
                    b.iter_custom(|times| {
                        (0..times)
                            .map(|_| {
                                let took = stage.decide(&mut *p);
                                best = best.min(took);
                                took
                            })
                            .sum()
                    })
                });
                // a filter of criterion's own may have left it out
                if best < Duration::MAX {
                    points.push((*n, best));
                }
            }
            table.push((*name, cpus.0 + cpus.1, points));
        }
        group.finish();
    }
    println!("\nfastest decision, and growth with the number of threads (n log n: 1.1 to 1.2)");
    for (name, cpus, points) in table.iter().filter(|t| !t.2.is_empty()) {
        let times: Vec<String> = points
            .iter()
            .map(|(n, t)| {
                let late = if *n == 10_000 && *t > GOAL {
                    " (over 1 ms)"
                } else {
                    ""
                };
                format!("{n}: {:.1} us{late}", t.as_secs_f64() * 1e6)
            })
            .collect();
        let growth = if points.len() > 1 {
            format!("n^{:.2}", exponent(points))
        } else {
            String::new()
        };
        println!("{name:>7} {cpus:>5} CPUs  {growth}  {}", times.join("  "));
    }
}
