//! A provider that knows speedup and efficiency factors of applications, with noise and
//! uncertainty.

use amp_metrics::{
    AppId, CoreTypeId, Estimate, MetricId, Nanos, Provider, Quality, Snapshot, ThreadKey,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

/// Factors of one application, fastest core type over slowest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub app: u64,
    pub sf: Option<f64>,
    pub ef: Option<f64>,
    /// Relative standard uncertainty that is stated for EF.
    pub u: Option<f64>,
}

pub struct Table {
    rows: Vec<Row>,
    noise: f64,
    rng: SmallRng,
    threads: HashMap<ThreadKey, (AppId, f64)>,
}

impl Table {
    pub fn new(rows: Vec<Row>, noise: f64, seed: u64) -> Table {
        Table {
            rows,
            noise,
            rng: SmallRng::seed_from_u64(seed),
            threads: HashMap::new(),
        }
    }
}

impl Provider for Table {
    fn name(&self) -> &str {
        "table"
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        for t in &snapshot.threads {
            let noise = 1.0 + self.rng.random_range(-1.0..=1.0) * self.noise;
            self.threads.insert(t.key, (t.app, noise));
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (app, noise) = self.threads.get(&thread)?;
        let row = self.rows.iter().find(|r| r.app == app.0)?;
        let (value, u) = match metric {
            MetricId::SpeedupFactor(CoreTypeId(0)) => (row.sf?, None),
            MetricId::EfficiencyFactor(CoreTypeId(0)) => (row.ef?, row.u),
            _ => return None,
        };
        Some(Estimate {
            value: value * noise,
            uncertainty: u.map(|u| u * value),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}
