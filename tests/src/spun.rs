//! What busy threads (`amp-workload bench spin --json`) say of themselves.

use crate::Reply;
use serde_json::Value;

/// A thread that was busy.
#[derive(Clone, Copy, Debug)]
pub struct Spun {
    /// CPU time that it had, ms.
    pub ran: f64,
    /// The longest time for which it did not run, ms.
    pub gap: f64,
}

/// All threads of the spins that the script told by lines with `label`, which also stand in the test's output, summed up.
///
/// # Panics
/// Where there is no such line, or something else stands there.
pub fn spun(reply: &Reply, label: &str) -> Vec<Spun> {
    let ms = |v: &Value| v.as_f64().expect("milliseconds");
    let mut all = Vec::new();
    for line in reply.lines(label) {
        let spin: Value = serde_json::from_str(line).expect("JSON of amp-workload");
        let of = |key: &str| spin[key].as_array().expect("a list").clone();
        for (on, gap) in of("cpu_ms").iter().zip(of("longest_gap_ns")) {
            let on = on.as_array().expect("a list").iter();
            all.push(Spun {
                ran: on.map(ms).sum(),
                gap: ms(&gap) / 1e6,
            });
        }
    }
    assert!(!all.is_empty(), "no thread of {label}");
    println!(
        "{label}: mean {:.0} ms, least {:.0} ms, longest gap {:.1} ms",
        mean(&all),
        least(&all),
        longest_gap(&all)
    );
    all
}

/// Mean CPU time, ms.
pub fn mean(all: &[Spun]) -> f64 {
    all.iter().map(|t| t.ran).sum::<f64>() / all.len() as f64
}

/// The least CPU time of any, ms.
pub fn least(all: &[Spun]) -> f64 {
    all.iter().map(|t| t.ran).fold(f64::INFINITY, f64::min)
}

/// The longest gap of any, ms.
pub fn longest_gap(all: &[Spun]) -> f64 {
    all.iter().map(|t| t.gap).fold(0.0, f64::max)
}
