//! What `pmc mrc` shows.

use super::curve::{Point, Value};
use amp_charts::page::{document, figure, header, keys};
use amp_charts::{colour, Axis, XyPlot};
use serde::Serialize;
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object, Rows};
use tabled::settings::{Alignment, Padding, Style};

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command that was confined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The process that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Seconds from the start to the last window's end.
    pub elapsed_s: f64,
    /// Level of the cache.
    pub level: u32,
    /// Its ways.
    pub ways: u32,
    /// Its size.
    pub bytes: u64,
    /// The events that were counted.
    pub events: String,
    /// Milliseconds before each window.
    pub settle_ms: u64,
    /// Milliseconds of a window.
    pub interval_ms: u64,
    /// How often every size had its turn.
    pub sweeps: u32,
    /// The curve, by core type and size.
    pub points: Vec<Point>,
}

impl Report {
    fn what(&self) -> String {
        match (&self.command, self.pid) {
            (Some(c), _) => c.join(" "),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => String::new(),
        }
    }

    fn cache(&self) -> String {
        format!(
            "L{} of {} KiB in {} ways",
            self.level,
            self.bytes >> 10,
            self.ways
        )
    }

    /// Names of the metrics.
    fn metrics(&self) -> Vec<&str> {
        let first = self.points.first();
        let all = first.map_or(&[][..], |p| &p.metrics).iter();
        all.map(|v| v.metric.as_str()).collect()
    }

    /// Names of the core types, each once.
    fn core_types(&self) -> Vec<&str> {
        let mut out: Vec<&str> = Vec::new();
        for p in &self.points {
            if !out.contains(&name(p)) {
                out.push(name(p));
            }
        }
        out
    }
}

fn name(p: &Point) -> &str {
    p.core_type.as_deref().unwrap_or(&p.pmu)
}

fn value(v: &Value) -> String {
    match (v.value, v.u) {
        (Some(value), Some(u)) => format!("{value:.4} ± {u:.4}"),
        (Some(value), None) => format!("{value:.4} ± unknown"),
        (None, _) => "-".to_owned(),
    }
}

/// The report as text.
pub fn text(r: &Report) -> String {
    let mut out = format!("\n Miss-rate curve of `{}`\n", r.what());
    // writing to a string cannot fail
    let _ = writeln!(
        out,
        " {}, {} sweeps, windows of {} ms; ± is the standard uncertainty of the mean over windows\n",
        r.cache(),
        r.sweeps,
        r.interval_ms
    );
    if r.points.is_empty() {
        return out + " It ended before the first window.\n";
    }
    let mut rows = Builder::default();
    let head = ["KiB", "ways", "core type", "windows"];
    let head = head.into_iter().chain(r.metrics());
    rows.push_record(head);
    for p in &r.points {
        let place = [
            (p.bytes >> 10).to_string(),
            p.ways.to_string(),
            name(p).to_owned(),
            p.windows.to_string(),
        ];
        rows.push_record(place.into_iter().chain(p.metrics.iter().map(value)));
    }
    let mut table = rows.build();
    table
        .with(Style::empty())
        .modify(Columns::new(..2), Alignment::right())
        .modify(Columns::new(3..), Alignment::right())
        .modify(
            Columns::new(..).intersect(Rows::new(..)),
            Padding::new(2, 0, 0, 0),
        );
    let _ = writeln!(out, "{table}");
    out
}

/// A page with a plot per metric.
pub fn page(r: &Report) -> String {
    let what = r.what();
    let subtitle = format!(
        "Miss-rate curve: {}, {} sweeps, windows of {} ms. Bars are standard uncertainties.",
        r.cache(),
        r.sweeps,
        r.interval_ms
    );
    let mut body = header(&what, &subtitle);
    for (i, metric) in r.metrics().into_iter().enumerate() {
        body += &figure(metric, "by how much of the cache it may fill", &plot(r, i));
    }
    document(&what, &body)
}

/// The plot of metric number `i`.
fn plot(r: &Report, i: usize) -> String {
    let of = |core_type: &str| -> Vec<(f64, f64, f64)> {
        let all = r.points.iter().filter(|p| name(p) == core_type);
        all.filter_map(|p| {
            let v = p.metrics.get(i)?;
            Some(((p.bytes >> 10) as f64, v.value?, v.u.unwrap_or(0.0)))
        })
        .collect()
    };
    let types = r.core_types();
    let top = types.iter().flat_map(|t| of(t)).map(|p| p.1 + p.2);
    let top = top.fold(0.0, f64::max);
    let metric = r.metrics().get(i).copied().unwrap_or_default();
    let x = Axis::new("KiB", 0.0, ((r.bytes >> 10) as f64).max(1.0));
    let y = Axis::new(metric, 0.0, if top > 0.0 { 1.05 * top } else { 1.0 });
    let label = format!("{metric} by size of the cache");
    let mut plot = XyPlot::new(&label, 1000.0, 260.0, &x, &y);
    let colours: Vec<String> = (0..types.len()).map(colour).collect();
    for (core_type, colour) in types.iter().zip(&colours) {
        let points = of(core_type);
        for (x, y, u) in &points {
            plot.line([(*x, y - u), (*x, y + u)], colour, "");
        }
        let line = || points.iter().map(|(x, y, _)| (*x, *y));
        plot.line(line(), colour, core_type);
        plot.points(line(), colour, core_type);
    }
    let legend = colours.iter().zip(&types);
    keys(legend.map(|(c, n)| (c.as_str(), *n))) + &plot.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(points: Vec<Point>) -> Report {
        Report {
            command: Some(vec!["a".into(), "b".into()]),
            pid: None,
            elapsed_s: 1.0,
            level: 3,
            ways: 12,
            bytes: 12 << 20,
            events: "x".into(),
            settle_ms: 1,
            interval_ms: 100,
            sweeps: 5,
            points,
        }
    }

    fn point(ways: u32, core_type: &str, value: Option<f64>, u: Option<f64>) -> Point {
        Point {
            ways,
            bytes: u64::from(ways) << 20,
            core_type: Some(core_type.into()),
            pmu: "cpu".into(),
            windows: 5,
            metrics: vec![Value {
                metric: "llc_mpki".into(),
                value,
                u,
            }],
        }
    }

    #[test]
    fn each_size_has_a_line_and_each_metric_a_plot() {
        let r = report(vec![
            point(1, "big", Some(20.5), Some(0.25)),
            point(12, "big", Some(1.5), None),
            point(1, "little", None, None),
        ]);
        let text = text(&r);
        for part in [
            "L3 of 12288 KiB in 12 ways, 5 sweeps",
            "20.5000 ± 0.2500",
            "1.5000 ± unknown",
            "-",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().filter(|l| l.contains("big")).count(), 2);
        let page = page(&r);
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(
            page.contains("llc_mpki") && page.contains("little"),
            "{page}"
        );
        assert!(super::text(&report(Vec::new())).contains("before the first window"));
        assert!(!super::page(&report(Vec::new())).contains("<svg"));
    }
}
