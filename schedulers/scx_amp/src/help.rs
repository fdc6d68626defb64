//! `scx_amp help`: pages longer than `--help`.

use amp_sched::policy::registry::{BASELINE, ENTRIES};
use std::fmt::Write;

/// What is known of a thread, and how well a policy did: formulas and units.
pub const METRICS: &str = include_str!("help/metrics.txt");

/// What the baseline is, beside the policies' own summaries.
const BASELINE_SUMMARY: &str = "the kernel's own scheduler: a baseline of bench, not to be loaded";

/// What the last column says.
const FOOT: &str = "
Last column: the metrics that a policy needs. SF: speedup factors; EF: efficiency factors, which
need power as well. Threads without them are fair-shared.
`scx_amp help policy NAME` is a page on each, `scx_amp help metrics` one on SF and EF.
";

/// Every policy in a line: its name, what it optimises, and the metrics that it needs.
pub fn policies() -> String {
    let rows = ENTRIES.iter().map(|e| (e.name, e.summary, e.needs));
    let rows = || {
        [(BASELINE, BASELINE_SUMMARY, "-")]
            .into_iter()
            .chain(rows.clone())
    };
    let width = rows().map(|r| r.1.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, summary, needs) in rows() {
        // writing to a String cannot fail
        let _ = writeln!(out, "{name:<7} {summary:<width$}  {needs}");
    }
    out += FOOT;
    out
}
