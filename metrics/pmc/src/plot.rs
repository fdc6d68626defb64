//! Counts over time, as a page.

use super::counting::{Window, WindowCount};
use super::stat::output::Report;
use amp_charts::page::{document, figure, header, keys};
use amp_charts::{colour, Axis, XyPlot};
use std::collections::BTreeMap;

/// What stands beside the axis of a factor.
const FACTOR: &str = "over the slowest core type";

/// Points of a line, by the place that counts.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

/// A page with a plot per event: over time, what it counted per second of the time counted, or per
/// thousand instructions in windows of instructions; and one per factor that was estimated.
pub fn page(report: &Report, windows: &[Window]) -> String {
    let what = match (&report.command, report.pid) {
        (Some(c), _) => c.join(" "),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) => "the whole machine".to_owned(),
    };
    let (unit, subtitle) = match report.window {
        Some(n) => (
            "per 1000 instructions",
            format!("Events per 1000 instructions, in windows of {n} instructions"),
        ),
        None => (
            "per second",
            "Events per second of the time counted".to_owned(),
        ),
    };
    let mut names: Vec<&str> = Vec::new();
    for c in windows.iter().flat_map(|w| &w.counts) {
        if !names.contains(&c.event.as_str()) {
            names.push(&c.event);
        }
    }
    let mut body = header(&what, &subtitle);
    for name in names {
        let lines = lines(windows, name, report.window);
        if !lines.is_empty() {
            body += &figure(name, unit, &plot(name, &lines, unit));
        }
    }
    for (name, lines) in factors(windows) {
        body += &figure(&name, FACTOR, &plot(&name, &lines, FACTOR));
    }
    document(&what, &body)
}

/// Estimates of each factor, by the program or thread and the core type on which it was.
fn factors(windows: &[Window]) -> BTreeMap<String, Lines> {
    let mut out: BTreeMap<String, Lines> = BTreeMap::new();
    for w in windows {
        for v in &w.virtual_counters {
            let (Some(f), Some(value)) = (&v.factor, v.value) else {
                continue;
            };
            let lines = out
                .entry(format!("{} of {}", v.counter, f.core_type))
                .or_default();
            let place = f.on.as_deref().unwrap_or_default();
            let line = lines.entry(format!("{} on {place}", v.of)).or_default();
            line.push((w.at_s, value));
        }
    }
    out
}

fn lines(windows: &[Window], event: &str, window: Option<u64>) -> Lines {
    let mut out = Lines::new();
    for w in windows {
        for c in w.counts.iter().filter(|c| c.event == event) {
            let Some(count) = c.count else {
                continue;
            };
            let per = match window {
                // instructions themselves: how long a window took says more than that it has a
                // thousand per thousand
                Some(n) => n as f64 / 1e3,
                None => c.seconds,
            };
            if per > 0.0 {
                out.entry(place(c))
                    .or_default()
                    .push((w.at_s, count as f64 / per));
            }
        }
    }
    out
}

fn place(c: &WindowCount) -> String {
    let place = c.core_type.as_deref().or(c.pmu.as_deref());
    c.row.named(place.unwrap_or_default())
}

fn plot(name: &str, lines: &Lines, unit: &str) -> String {
    let points = || lines.values().flatten();
    let end = points().map(|p| p.0).fold(0.0, f64::max);
    let top = points().map(|p| p.1).fold(0.0, f64::max);
    let x = Axis::new("time (s)", 0.0, end.max(1e-9));
    let y = Axis::new(unit, 0.0, if top > 0.0 { 1.05 * top } else { 1.0 });
    let mut plot = XyPlot::new(&format!("{name} over time"), 1000.0, 260.0, &x, &y);
    let colours: Vec<String> = (0..lines.len()).map(colour).collect();
    for ((name, points), colour) in lines.iter().zip(&colours) {
        plot.line(points.iter().copied(), colour, name);
    }
    let legend = colours.iter().zip(lines.keys());
    keys(legend.map(|(c, n)| (c.as_str(), n.as_str()))) + &plot.finish()
}
