//! Counts over time, as a page.

use super::counting::{Window, WindowCount};
use super::output::Report;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, SVGBackend, BLACK,
    WHITE,
};
use std::collections::BTreeMap;

/// One per place that counts.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x17, 0xbe, 0xcf),
];

/// Points of a line, by the place that counts.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

/// A plot per event: over time, what it counted per second of the time counted, or per thousand
/// instructions in windows of instructions.
///
/// # Errors
/// When plotters cannot draw.
pub fn page(report: &Report, windows: &[Window]) -> Result<String> {
    let what = match (&report.command, report.pid) {
        (Some(c), _) => c.join(" "),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) => "the whole machine".to_owned(),
    };
    let unit = match report.window {
        Some(_) => "per 1000 instructions",
        None => "per second",
    };
    let mut names: Vec<&str> = Vec::new();
    for c in windows.iter().flat_map(|w| &w.counts) {
        if !names.contains(&c.event.as_str()) {
            names.push(&c.event);
        }
    }
    let mut body = format!("<h1>{}</h1>\n", escape(&what));
    if let Some(n) = report.window {
        body += &format!("<p>Windows of {n} instructions.</p>\n");
    }
    for name in names {
        let lines = lines(windows, name, report.window);
        if !lines.is_empty() {
            let svg = plot(&lines, unit).map_err(|e| anyhow!("{name}: {e}"))?;
            body += &format!(
                "<figure>{svg}<figcaption>{}, {unit}</figcaption></figure>\n",
                escape(name)
            );
        }
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <style>body{{font-family:sans-serif;margin:2em}}figure{{margin:1em 0}}svg{{max-width:100%;height:auto}}</style></head>\n\
         <body>{body}</body></html>\n",
        escape(&what)
    ))
}

fn lines(windows: &[Window], event: &str, window: Option<u64>) -> Lines {
    let mut out = Lines::new();
    for w in windows {
        for c in w.counts.iter().filter(|c| c.event == event) {
            let per = match window {
                // instructions themselves: how long a window took says more than that it has a
                // thousand per thousand
                Some(n) => n as f64 / 1e3,
                None => c.seconds,
            };
            if per > 0.0 {
                out.entry(place(c))
                    .or_default()
                    .push((w.at_s, c.count as f64 / per));
            }
        }
    }
    out
}

fn place(c: &WindowCount) -> String {
    let place = c.core_type.as_deref().unwrap_or(&c.pmu);
    c.row.named(place)
}

fn plot(lines: &Lines, unit: &str) -> Result<String, String> {
    let points = || lines.values().flatten();
    let end = points().map(|p| p.0).fold(0.0, f64::max);
    let top = points().map(|p| p.1).fold(0.0, f64::max);
    let (end, top) = (end.max(1e-9), if top > 0.0 { 1.05 * top } else { 1.0 });
    let mut svg = String::new();
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 260)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let style = ("sans-serif", 14).into_font();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(|e| failed(&e))?;
        chart
            .configure_mesh()
            .x_desc("time (s)")
            .y_desc(unit)
            .y_label_formatter(&|v| {
                if *v >= 1e4 {
                    format!("{v:.1e}")
                } else {
                    format!("{v}")
                }
            })
            .label_style(style.clone())
            .axis_desc_style(style.clone())
            .draw()
            .map_err(|e| failed(&e))?;
        for ((name, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour))
                .map_err(|e| failed(&e))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        chart
            .configure_series_labels()
            .border_style(BLACK)
            .background_style(WHITE)
            .label_font(style)
            .draw()
            .map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

/// Text made safe for HTML.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
