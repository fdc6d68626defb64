//! The page of plots: predicted over true [PMCTrack fig. 15], and both over time.

use super::over_time;
use super::tables::core_type;
use amp_models::accuracy::{Predicted, COVERAGE_FACTOR};
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::platform::{Evaluated, Platform};
use amp_models::sample::Target;
use amp_sched::report::escape;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, Circle, Color, DashedLineSeries, EmptyElement, IntoDrawingArea, IntoFont,
    LineSeries, RGBColor, SVGBackend, Text, BLACK, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Programs shown over time.
const PHASED: usize = 2;
/// Programs that are named in a plot.
const NAMED: usize = 5;
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
        "<h1>{title}</h1>\n<p>{} programs; each point is a window of instructions, a perfect prediction is on the diagonal. \
         Between the dashed lines is the interval that the model file states, for 95.4 % of the windows of programs it has not seen; \
         the {NAMED} programs with the largest errors are named.</p>\n",
        matched.programs.len()
    );
    for e in all.iter().filter(|e| !e.predicted.is_empty()) {
        let label = format!(
            "{} factor of {}, predicted on {}",
            e.target.quantity.name(),
            core_type(data, e.target.of),
            core_type(data, e.on)
        );
        let r = e.accuracy.as_ref().and_then(|a| a.correlation);
        let r = r.map_or(String::new(), |r| format!(": correlation {r}"));
        body += &format!(
            "<figure>{}<figcaption>{}{r}</figcaption></figure>\n",
            plot(e, matched, &label)?,
            escape(&label)
        );
    }
    body += "<h2>Over time</h2>\n";
    let programs = over_time::phased(matched, PHASED);
    body += match programs.is_empty() {
        true => "<p>No program has more than one phase.</p>\n",
        false => {
            "<p>The programs whose phases differ most; every other phase is on a grey ground.</p>\n"
        }
    };
    let mut targets: Vec<Target> = all.iter().map(|e| e.target).collect();
    targets.sort_unstable();
    targets.dedup();
    for program in programs {
        let name = matched
            .programs
            .get(program)
            .map_or("?", |p| p.name.as_str());
        for target in &targets {
            let caption = format!(
                "{name}: {} factor of {}",
                target.quantity.name(),
                core_type(data, target.of)
            );
            body += &format!(
                "<figure>{}<figcaption>{}</figcaption></figure>\n",
                over_time::plot(data, matched, all, *target, program)?,
                escape(&caption)
            );
        }
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>body{{font-family:sans-serif;margin:2em}}figure{{display:inline-block;margin:1em}}</style></head>\n\
         <body>{body}</body></html>\n"
    ))
}

/// The programs with the largest mean errors, with where their points are: the middle of them.
fn worst(e: &Evaluated, matched: &MatchedData) -> Vec<(String, (f64, f64))> {
    let mut all: Vec<(f64, String, (f64, f64))> = Vec::new();
    for (i, program) in matched.programs.iter().enumerate() {
        let own = || e.predicted.iter().filter(|p| p.program == i);
        let n = own().count() as f64;
        let mean = |f: fn(&Predicted) -> f64| own().map(f).sum::<f64>() / n;
        let error = mean(|p| p.residual().abs());
        if error.is_finite() {
            let at = (mean(|p| p.truth), mean(|p| p.predicted));
            all.push((error, program.name.clone(), at));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = all.into_iter().take(NAMED);
    named.map(|(_, name, at)| (name, at)).collect()
}

/// Moves labels apart that would be on top of each other: at least `height` between those that are close in x.
fn apart(labels: &mut [(String, (f64, f64))], width: f64, height: f64) {
    labels.sort_by(|a, b| a.1 .1.total_cmp(&b.1 .1));
    for i in 1..labels.len() {
        for j in 0..i {
            let (below, at) = (labels[j].1, labels[i].1);
            if (at.0 - below.0).abs() < width && at.1 - below.1 < height {
                labels[i].1 .1 = below.1 + height;
            }
        }
    }
}

fn plot(e: &Evaluated, matched: &MatchedData, label: &str) -> Result<String> {
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
        let area = SVGBackend::with_string(&mut svg, (480, 480)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(low..high, low..high)
            .map_err(|e| failed(&e))?;
        let style = ("sans-serif", 14).into_font();
        let quantity = e.target.quantity.name();
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(BLACK.mix(0.12))
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&|x| format!("{x:.2}"))
            .y_label_formatter(&|y| format!("{y:.2}"))
            .x_desc(format!("true {quantity} factor (ratio)"))
            .y_desc(format!("predicted {quantity} factor (ratio)"))
            .label_style(style.clone())
            .axis_desc_style(style.clone())
            .draw()
            .map_err(|e| failed(&e))?;
        let points = e
            .predicted
            .iter()
            .map(|p| Circle::new((p.truth, p.predicted), 3, COLOUR.mix(0.5).filled()));
        chart.draw_series(points).map_err(|e| failed(&e))?;
        chart
            .draw_series(LineSeries::new([(low, low), (high, high)], &BLACK))
            .map_err(|e| failed(&e))?;
        let half = COVERAGE_FACTOR * e.stated;
        // the part of a line beside the diagonal that is within the plot
        for (a, b) in [
            ((low, low + half), (high - half, high)),
            ((low + half, low), (high, high - half)),
        ] {
            if half < high - low {
                let line = DashedLineSeries::new([a, b], 6, 4, BLACK.mix(0.6).stroke_width(1));
                chart.draw_series(line).map_err(|e| failed(&e))?;
            }
        }
        let mut labels = worst(e, matched);
        apart(&mut labels, 0.25 * (high - low), 0.035 * (high - low));
        // beside the points: to the left in the right half
        let font = ("sans-serif", 12).into_font().color(&BLACK.mix(0.8));
        let text = |(name, at): (String, (f64, f64))| {
            let right = at.0 > (low + high) / 2.0;
            let pos = if right { HPos::Right } else { HPos::Left };
            let style = font.clone().pos(Pos::new(pos, VPos::Center));
            EmptyElement::at(at) + Text::new(name, (if right { -8 } else { 8 }, 0), style)
        };
        let labels = labels.into_iter().map(text);
        chart.draw_series(labels).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_not_on_top_of_each_other() {
        let label = |x: f64, y: f64| (String::new(), (x, y));
        let mut all = [
            label(1.0, 1.0),
            label(1.1, 1.01),
            label(1.2, 1.05),
            label(9.0, 1.0),
        ];
        apart(&mut all, 1.0, 0.1);
        let near: Vec<f64> = all
            .iter()
            .filter(|l| l.1 .0 < 2.0)
            .map(|l| l.1 .1)
            .collect();
        assert!(near.windows(2).all(|w| w[1] - w[0] > 0.099), "{near:?}");
        // those far away stay
        assert!(all.iter().any(|l| l.1 == (9.0, 1.0)));
    }
}
