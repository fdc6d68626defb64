//! The page of plots: predicted over true [PMCTrack fig. 15], and both over time.

use super::over_time;
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::platform::{Evaluated, Platform};
use amp_sched::report::escape;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoFont, LineSeries, RGBColor, SVGBackend,
    BLACK, WHITE,
};

/// Programs shown over time.
const PHASED: usize = 2;
const COLOUR: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

/// A page with a plot per factor: a point per window, which a perfect model has on the diagonal.
///
/// # Errors
/// When plotters cannot draw.
pub fn page(
    platform: &Platform,
    data: &Dataset,
    matched: &MatchedData,
    all: &[Evaluated],
) -> Result<String> {
    let title = escape(&format!(
        "Model {}",
        platform.name().unwrap_or("without name")
    ));
    let mut body = format!(
        "<h1>{title}</h1>\n<p>{} programs; each point is a window of instructions, a perfect prediction is on the diagonal.</p>\n",
        matched.programs.len()
    );
    for e in all.iter().filter(|e| !e.predicted.is_empty()) {
        let name = |t: usize| {
            data.header
                .core_types
                .get(t)
                .map_or("?", |t| t.name.as_str())
        };
        let label = format!(
            "{} of {} from {}",
            e.target.quantity.name(),
            name(e.target.of),
            name(e.on)
        );
        let r = e.accuracy.as_ref().and_then(|a| a.correlation);
        let r = r.map_or(String::new(), |r| format!(", correlation {r}"));
        body += &format!(
            "<figure>{}<figcaption>{}{r}</figcaption></figure>\n",
            plot(e, &label)?,
            escape(&label)
        );
    }
    body += "<h2>Over time</h2>\n<p>The programs whose factors change most; the truth is black, the prediction red.</p>\n";
    for e in all {
        for program in over_time::phased(e, PHASED) {
            let name = |t: usize| {
                let core_type = data.header.core_types.get(t);
                core_type.map_or("?", |t| t.name.as_str())
            };
            let label = format!(
                "{}: {} of {} from {}",
                matched
                    .programs
                    .get(program)
                    .map_or("?", |p| p.name.as_str()),
                e.target.quantity.name(),
                name(e.target.of),
                name(e.on)
            );
            body += &format!(
                "<figure>{}<figcaption>{}</figcaption></figure>\n",
                over_time::plot(e, matched, program, &label)?,
                escape(&label)
            );
        }
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>body{{font-family:sans-serif;margin:2em}}figure{{display:inline-block;margin:1em}}</style></head>\n\
         <body>{body}</body></html>\n"
    ))
}

fn plot(e: &Evaluated, label: &str) -> Result<String> {
    let values = || {
        e.predicted
            .iter()
            .flat_map(|p| [p.truth, p.predicted])
            .filter(|x| x.is_finite())
    };
    let (low, high) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    );
    let margin = (0.05 * (high - low)).max(0.05);
    let (low, high) = (low - margin, high + margin);
    let mut svg = String::new();
    let failed = |e: &dyn std::fmt::Display| anyhow!("{label}: {e}");
    {
        let area = SVGBackend::with_string(&mut svg, (460, 460)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(low..high, low..high)
            .map_err(|e| failed(&e))?;
        let style = ("sans-serif", 14).into_font();
        chart
            .configure_mesh()
            .x_desc("true")
            .y_desc("predicted")
            .label_style(style.clone())
            .axis_desc_style(style)
            .draw()
            .map_err(|e| failed(&e))?;
        chart
            .draw_series(LineSeries::new([(low, low), (high, high)], &BLACK))
            .map_err(|e| failed(&e))?;
        let points = e
            .predicted
            .iter()
            .map(|p| Circle::new((p.truth, p.predicted), 3, COLOUR.mix(0.5).filled()));
        chart.draw_series(points).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}
