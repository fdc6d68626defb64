//! What a scheduler is doing as a table of plain text, for pipes and files.

use crate::status::{Metric, Status, ThreadStatus};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A table of everything; `-` for what is not known.
pub fn table(s: &Status) -> String {
    let mut out = String::new();
    let knobs: Vec<String> = s.knobs.iter().map(|(k, v)| format!("{k}={v}")).collect();
    // writing to a String cannot fail
    let _ = writeln!(
        out,
        "policy {} ({})  provider {}  up {:.1} s  {} threads, {} active  {} swaps (median latency {:.0} us)",
        s.policy,
        knobs.join(", "),
        s.provider,
        s.uptime_s,
        s.threads,
        s.active,
        s.swaps,
        s.swap_latency_p50_us
    );
    if !s.provider_failed.is_empty() {
        let _ = writeln!(
            out,
            "provider {} has failed: {}",
            s.provider, s.provider_failed
        );
    }
    if !s.rules_failed.is_empty() {
        let _ = writeln!(out, "{}: the rules before hold on", s.rules_failed);
    }
    if !s.uncounted.is_empty() {
        let _ = writeln!(out, "{}", s.uncounted);
    }
    if !s.virtual_counters.is_empty() {
        let all: Vec<String> = s
            .virtual_counters
            .iter()
            .map(|(k, v)| format!("{k} {v:.4}"))
            .collect();
        let _ = writeln!(out, "{}", all.join("  "));
    }
    for (pair, times) in &s.costs {
        let _ = writeln!(out, "{pair}: {times:.2} times slower");
    }
    // whatever the provider offers, the usual ones first
    const USUAL: [&str; 3] = ["ipc", "sf", "ef"];
    let offered = s.per_thread.iter().flat_map(|t| t.metrics.keys());
    let others: BTreeSet<&str> = offered
        .map(String::as_str)
        .filter(|m| !USUAL.contains(m))
        .collect();
    let metrics: Vec<&str> = USUAL.into_iter().chain(others).collect();
    let counters: BTreeSet<&str> = s
        .per_thread
        .iter()
        .flat_map(|t| t.virtual_counters.keys().map(String::as_str))
        .collect();
    let head = [
        "tid", "app", "comm", "weight", "on", "placed", "cpu s", "big %",
    ];
    let rules: &[&str] = if s.rules.is_empty() { &[] } else { &["rule"] };
    let mut rows: Vec<Vec<String>> = vec![head
        .into_iter()
        .chain(metrics.iter().copied())
        .chain(["phase", "quality", "age s"])
        .chain(counters.iter().copied())
        .chain(rules.iter().copied())
        .map(str::to_owned)
        .collect()];
    rows.extend(s.per_thread.iter().map(|t| {
        let rule = (!rules.is_empty()).then(|| t.rule.clone());
        row(t, &metrics, &counters)
            .into_iter()
            .chain(rule)
            .collect()
    }));
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (c, (cell, w)) in row.iter().zip(&widths).enumerate() {
            let words = matches!(c, 2 | 4 | 5) || c == head.len() + metrics.len() + 1;
            let _ = if words {
                write!(line, "{cell:<w$}  ")
            } else {
                write!(line, "{cell:>w$}  ")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// A value with its standard uncertainty, where there is one.
fn shown(m: &Metric) -> String {
    if m.uncertainty > 0.0 {
        format!("{:.2} ± {:.2}", m.value, m.uncertainty)
    } else {
        format!("{:.2}", m.value)
    }
}

fn row(t: &ThreadStatus, columns: &[&str], counters: &BTreeSet<&str>) -> Vec<String> {
    let known = || "-".to_owned();
    // a row's metrics are as good as the worst of them
    let rank = |m: &Metric| match m.quality.as_str() {
        "exact" => 0,
        "multiplexed" => 1,
        "partial" => 2,
        _ => 3,
    };
    let worst = t.metrics.values().max_by_key(|m| rank(m));
    let oldest = t.metrics.values().map(|m| m.age_s).max_by(f64::total_cmp);
    let mut cells = vec![
        t.tid.to_string(),
        t.app.to_string(),
        t.comm.clone(),
        t.weight.to_string(),
        t.core_type.clone(),
        if t.placed.is_empty() {
            known()
        } else {
            t.placed.clone()
        },
        format!("{:.2}", t.cpu_s),
        format!("{:.1}", t.big_time_share * 100.0),
    ];
    cells.extend(
        columns
            .iter()
            .map(|c| t.metrics.get(*c).map_or_else(known, shown)),
    );
    cells.push(t.phase.get("number").map_or_else(known, |n| format!("{n}")));
    cells.push(worst.map_or_else(known, |m| m.quality.clone()));
    cells.push(oldest.map_or_else(known, |a| format!("{a:.1}")));
    cells.extend(counters.iter().map(|c| {
        let value = t.virtual_counters.get(*c);
        value.map_or_else(known, |v| format!("{v:.4}"))
    }));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let known = Metric {
            value: 2.345,
            uncertainty: 0.127,
            quality: "stale".into(),
            age_s: 1.26,
        };
        let s = Status {
            policy: "rr".into(),
            costs: [("chase on little beside chase on little".to_owned(), 2.349)].into(),
            per_thread: vec![
                ThreadStatus {
                    tid: 7,
                    comm: "fp".into(),
                    core_type: "big".into(),
                    placed: "little".into(),
                    metrics: [("sf".to_owned(), known)].into(),
                    ..ThreadStatus::default()
                },
                ThreadStatus::default(),
            ],
            ..Status::default()
        };
        let text = table(&s);
        let costs = "chase on little beside chase on little: 2.35 times slower\n";
        assert!(text.contains(costs), "{text}");
        assert!(
            text.lines().nth(3).unwrap().contains("2.35 ± 0.13"),
            "{text}"
        );
        assert!(
            text.lines().nth(3).unwrap().ends_with("stale      1.3"),
            "{text}"
        );
        assert!(
            text.lines().nth(4).unwrap().trim_end().ends_with('-'),
            "{text}"
        );
    }
}
