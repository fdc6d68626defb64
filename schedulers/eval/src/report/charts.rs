//! The charts of the page.

use crate::evaluation::{BenchReport, PolicyResult, TimelineEntry};
use crate::report::columns::{Chart, Column};
use crate::report::number::{measured, rounded};
use amp_charts::{Anchor, Scale, Svg};
use amp_metrics::uncertainty::Measured;
use amp_sched::policy::BASELINE;

/// The class that colours policy number `i`: the baseline is neutral, the others have a colour
/// each, in order.
pub fn colour(report: &BenchReport, i: usize) -> String {
    let policies = &report.results;
    match policies.get(i) {
        Some(r) if r.policy == BASELINE => "base".to_owned(),
        _ => {
            let before = policies
                .iter()
                .take(i)
                .filter(|r| r.policy != BASELINE)
                .count();
            amp_charts::colour(before)
        }
    }
}

/// Width of a text in about 12 px, roughly.
fn width(text: &str) -> f64 {
    6.8 * text.chars().count() as f64
}

/// Shortens a text that is longer than `most` characters.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// One horizontal bar per policy with its uncertainty and the mark of the steady-state prediction,
/// `total` CSS pixels wide.
pub fn policy_bars(report: &BenchReport, column: &Column, chart: &Chart, total: f64) -> String {
    let of = |r: &PolicyResult| Some(column.of(r)?.measured().scale(chart.scale));
    let predicted = |r: &PolicyResult| column.prediction(r).map(|p| p * chart.scale);
    const ROW: f64 = 34.0;
    const BAR: f64 = 20.0;
    let results = &report.results;
    let left = results
        .iter()
        .map(|r| width(&r.policy))
        .fold(48.0, f64::max)
        + 12.0;
    let right = 112.0;
    let plot = total - left - right;
    let ends = results.iter().flat_map(|r| {
        let m = of(r).map(|m| [m.value - m.u.unwrap_or(0.0), m.value + m.u.unwrap_or(0.0)]);
        m.into_iter().flatten().chain(predicted(r))
    });
    let (low, high) = ends
        .filter(|x| x.is_finite())
        .fold((chart.origin, chart.origin), |(l, h), x| {
            (l.min(x), h.max(x))
        });
    let scale = Scale::covering(low, high, if total > 400.0 { 4 } else { 3 });
    let x = |v: f64| left + plot * scale.at(v);
    let height = ROW * results.len() as f64 + 30.0;
    let mut svg = Svg::new(total, height, &format!("{} per policy", chart.title));
    for mark in &scale.marks {
        svg.line(x(*mark), 2.0, x(*mark), height - 24.0, "grid");
        svg.text(
            x(*mark),
            height - 8.0,
            Anchor::Middle,
            "mark",
            &scale.label(*mark),
        );
    }
    for (i, r) in results.iter().enumerate() {
        let middle = ROW * (i as f64 + 0.5) + 2.0;
        svg.text(left - 10.0, middle + 4.0, Anchor::End, "name", &r.policy);
        let Some(m) = of(r).filter(|m| m.value.is_finite()) else {
            continue;
        };
        let value = measured(m);
        let title = format!("{}: {value}", r.policy);
        let (a, b) = (x(chart.origin.min(m.value)), x(chart.origin.max(m.value)));
        svg.rect(
            a,
            middle - BAR / 2.0,
            (b - a).max(1.5),
            BAR,
            &colour(report, i),
            &title,
        );
        let mut end = b;
        if let Some(u) = m.u.filter(|u| *u > 0.0) {
            end = x(m.value + u);
            svg.whisker(true, x(m.value - u), end, middle);
        }
        if let Some(o) = predicted(r) {
            svg.diamond(
                x(o),
                middle,
                &format!("{}: steady-state prediction {}", r.policy, rounded(o, 3)),
            );
            end = end.max(x(o) + 5.0);
        }
        svg.text(end + 8.0, middle + 4.0, Anchor::Start, "value", &value);
    }
    svg.line(x(chart.origin), 2.0, x(chart.origin), height - 24.0, "axis");
    svg.finish()
}

/// Slowdown of every application under every policy: a group of bars per application.
pub fn slowdown_bars(report: &BenchReport) -> String {
    let results = &report.results;
    let Some(first) = results.first() else {
        return String::new();
    };
    let (n, k) = (first.apps.len(), results.len());
    const WIDTH: f64 = 1000.0;
    // As wide as the page while bars stay between slim and stout; wider (and scrolled) when there
    // are very many.
    let bar = ((WIDTH - 50.0) / (n as f64 * (k as f64 + 1.5)).max(1.0)).clamp(6.0, 40.0);
    let gap = ((WIDTH - 50.0) / n.max(1) as f64 - bar * k as f64).clamp(bar.max(12.0), 90.0);
    let group = bar * k as f64 + gap;
    let (left, top, plot) = (40.0, 10.0, 210.0);
    let total = (left + group * n as f64 + 10.0).max(320.0);
    let all = || results.iter().flat_map(|r| &r.apps);
    let ends = all().flat_map(|a| {
        let u = a.slowdown_u.unwrap_or(0.0);
        [a.slowdown - u, a.slowdown + u]
    });
    let (low, high) = ends
        .filter(|x| x.is_finite())
        .fold((1.0f64, 1.0f64), |(l, h), x| (l.min(x), h.max(x)));
    // Measurement noise puts a slowdown a little below 1: no need for a whole step of the axis.
    let low = if low > 0.97 { 1.0 } else { low };
    let scale = Scale::covering(low, high, 5);
    let y = |v: f64| top + plot * (1.0 - scale.at(v));
    // names that do not fit side by side are slanted by breaking them over two alternating lines
    let most = (group / 6.8) as usize;
    let long = first.apps.iter().any(|a| a.name.chars().count() > most);
    let lines = if long { 2 } else { 1 };
    let height = top + plot + 12.0 + 18.0 * f64::from(lines);
    let mut svg = Svg::new(total, height, "Slowdown per application and policy");
    for mark in &scale.marks {
        svg.line(left, y(*mark), total - 6.0, y(*mark), "grid");
        svg.text(
            left - 8.0,
            y(*mark) + 4.0,
            Anchor::End,
            "mark",
            &scale.label(*mark),
        );
    }
    for (i, app) in first.apps.iter().enumerate() {
        let x0 = left + group * i as f64 + gap / 2.0;
        for (j, r) in results.iter().enumerate() {
            let Some(a) = r.apps.get(i) else { continue };
            let m = Measured {
                value: a.slowdown,
                u: a.slowdown_u,
            };
            let title = format!("{} under {}: slowdown {}", a.name, r.policy, measured(m));
            let (from, to) = (y(1.0f64.max(a.slowdown)), y(1.0f64.min(a.slowdown)));
            let x = x0 + bar * j as f64;
            svg.rect(
                x + 1.0,
                from,
                bar - 2.0,
                (to - from).max(1.5),
                &colour(report, j),
                &title,
            );
            if let Some(u) = a.slowdown_u.filter(|u| *u > 0.0) {
                svg.whisker(false, y(a.slowdown - u), y(a.slowdown + u), x + bar / 2.0);
            }
        }
        let line = if long { 18.0 * (i % 2) as f64 } else { 0.0 };
        let label = shortened(&app.name, if long { 2 * most } else { most.max(1) });
        let x = x0 + bar * k as f64 / 2.0;
        svg.text(x, top + plot + 20.0 + line, Anchor::Middle, "name", &label);
    }
    svg.line(left, y(1.0), total - 6.0, y(1.0), "axis");
    svg.finish()
}

/// Latest end of all timelines, in seconds: the common time axis.
pub fn timeline_end(report: &BenchReport) -> f64 {
    let ends = report
        .results
        .iter()
        .flat_map(|r| &r.timeline)
        .map(|e| e.t1_s);
    ends.filter(|t| t.is_finite()).fold(0.0, f64::max)
}

/// One row per application: from the bottom the share on the fastest core type, above it that on
/// slower ones.
pub fn timeline(report: &BenchReport, r: &PolicyResult, end: f64) -> String {
    const ROW: f64 = 26.0;
    const BAND: f64 = 20.0;
    let names: Vec<&str> = r.apps.iter().map(|a| a.name.as_str()).collect();
    let labels: Vec<String> = names.iter().map(|n| shortened(n, 18)).collect();
    let left = labels.iter().map(|n| width(n)).fold(48.0, f64::max) + 12.0;
    let (total, right) = (1000.0, 58.0);
    let plot = total - left - right;
    let scale = Scale::covering(0.0, end, 8).ending_at(end);
    let x = |t: f64| left + plot * scale.at(t);
    let height = ROW * names.len() as f64 + 36.0;
    let label = format!("Core type of each application over time under {}", r.policy);
    let mut svg = Svg::new(total, height, &label);
    svg.text(total - right + 8.0, 10.0, Anchor::Start, "mark", "on big");
    for (i, name) in names.iter().enumerate() {
        let top = 16.0 + ROW * i as f64;
        svg.text(
            left - 10.0,
            top + BAND - 5.0,
            Anchor::End,
            "name",
            &labels[i],
        );
        svg.rect(left, top, plot, BAND, "track", name);
        let entries: Vec<&TimelineEntry> = r.timeline.iter().filter(|e| e.app == *name).collect();
        for (t, rects) in bands(&entries, top, BAND, &x).iter().enumerate() {
            let kind = report.machine.core_type_name(t);
            svg.rects(
                rects,
                &format!("c{}", t.min(3)),
                &format!("{name} on {kind}"),
            );
        }
        if let Some(share) = r.apps[i].big_time_share {
            let text = format!("{:.0} %", 100.0 * share);
            svg.text(
                total - right + 8.0,
                top + BAND - 5.0,
                Anchor::Start,
                "value",
                &text,
            );
        }
    }
    for mark in &scale.marks {
        let bottom = height - 18.0;
        svg.line(x(*mark), bottom - 4.0, x(*mark), bottom, "axis");
        svg.text(
            x(*mark),
            height - 5.0,
            Anchor::Middle,
            "mark",
            &format!("{} s", scale.label(*mark)),
        );
    }
    svg.finish()
}

/// Rectangles per core type. Neighbouring stretches of equal shares become one.
fn bands(
    entries: &[&TimelineEntry],
    top: f64,
    band: f64,
    x: &dyn Fn(f64) -> f64,
) -> Vec<Vec<(f64, f64, f64, f64)>> {
    let types = entries
        .iter()
        .map(|e| e.core_type_share.len())
        .max()
        .unwrap_or(0);
    // an application of several threads fills its row when all of them run
    let sum = |e: &TimelineEntry| e.core_type_share.iter().sum::<f64>();
    let full = entries
        .iter()
        .map(|e| sum(e))
        .filter(|s| s.is_finite())
        .fold(1.0, f64::max);
    let mut rects = vec![Vec::new(); types];
    let mut i = 0;
    while i < entries.len() {
        let first = entries[i];
        let mut end = first.t1_s;
        i += 1;
        while let Some(next) = entries.get(i) {
            let alike = next.core_type_share.len() == first.core_type_share.len()
                && (next.core_type_share.iter().zip(&first.core_type_share))
                    .all(|(a, b)| (a - b).abs() < 0.01);
            if !alike || (next.t0_s - end).abs() > 1e-9 * end.abs() {
                break;
            }
            end = next.t1_s;
            i += 1;
        }
        let (x0, x1) = (x(first.t0_s), x(end));
        let mut bottom = top + band;
        for (t, share) in first.core_type_share.iter().enumerate() {
            let h = band * (share / full).clamp(0.0, 1.0);
            if h > 0.05 {
                bottom -= h;
                rects[t].push((x0, bottom, x1 - x0, h));
            }
        }
    }
    rects
}
