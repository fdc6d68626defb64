//! What changed from one bench to another, as text and as JSON.

use crate::changes::{changes, circumstances, Verdict, LEVEL};
use crate::evaluation::BenchReport;
use crate::report::number::{measured, rounded, UNKNOWN};
use crate::report::text::draw;
use serde_json::json;

/// A table of what changed from `first` to `second`, with what differs in their circumstances, at
/// most `width` characters wide where one is given. `None` when they have no policy in common, and
/// not one each.
pub fn text(first: &BenchReport, second: &BenchReport, width: Option<usize>) -> Option<String> {
    let all = changes(first, second);
    if all.is_empty() {
        return None;
    }
    let mut out = String::new();
    for (what, a, b) in circumstances(first, second) {
        out += &format!("{what}: {a} → {b}\n");
    }
    let header = [
        "policy",
        "figure",
        "first",
        "second",
        "difference",
        "p",
        "verdict",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for c in &all {
        let p = match c.p {
            None => UNKNOWN.to_owned(),
            Some(p) if p < 0.001 => "< 0.001".to_owned(),
            Some(p) => rounded(p, 3),
        };
        let verdict = match c.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "no difference found",
            Verdict::Unknown => "unknown: fewer than two runs",
        };
        rows.push(vec![
            c.policy.clone(),
            c.title.to_owned(),
            measured(c.first),
            measured(c.second),
            measured(c.difference),
            p,
            verdict.to_owned(),
        ]);
    }
    out += &draw(rows, width);
    out += &format!(
        "\n± is the standard uncertainty. p: probability of such a difference by chance (Welch's test over the \
         runs, corrected for {} figures); below {LEVEL} it counts as one.\n",
        all.iter().filter(|c| c.p.is_some()).count()
    );
    Some(out)
}

/// The same for machines.
pub fn json(first: &BenchReport, second: &BenchReport) -> serde_json::Value {
    let differs = circumstances(first, second).into_iter();
    let differs = differs.map(|(what, a, b)| json!({"what": what, "first": a, "second": b}));
    json!({
        "level": LEVEL,
        "circumstances": differs.collect::<Vec<_>>(),
        "changes": changes(first, second),
    })
}
