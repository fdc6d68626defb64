//! The page of plots: predicted over true [PMCTrack fig. 15], and both over time.

use super::over_time;
use super::tables::core_type;
use amp_eval::report::escape;
use amp_models::accuracy::{Predicted, COVERAGE_FACTOR};
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::platform::{Evaluated, Platform};
use amp_models::sample::Target;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, Circle, Color, DashedLineSeries, IntoDrawingArea, IntoFont, LineSeries, RGBColor,
    SVGBackend, SeriesLabelPosition, BLACK, WHITE,
};

/// Programs shown over time.
const PHASED: usize = 2;
/// Colours of the programs that are named in a plot, and of the others.
const NAMED: [RGBColor; 4] = [
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x2c, 0xa0, 0x2c),
];
const OTHERS: RGBColor = RGBColor(0x9a, 0xb4, 0xcc);

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
         the programs with the largest errors have a colour.</p>\n",
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

/// The programs with the largest mean errors, the worst first, by their index in the matched data.
fn worst(e: &Evaluated, programs: usize) -> Vec<usize> {
    let error = |program: usize| {
        let own = || e.predicted.iter().filter(|p| p.program == program);
        let sum: f64 = own().map(|p| p.residual().abs()).sum();
        Some((program, sum / own().count() as f64)).filter(|(_, error)| error.is_finite())
    };
    let mut all: Vec<(usize, f64)> = (0..programs).filter_map(error).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.into_iter().take(NAMED.len()).map(|(p, _)| p).collect()
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
        let worst = worst(e, matched.programs.len());
        let dot = |p: &Predicted, colour: RGBColor| {
            Circle::new((p.truth, p.predicted), 3, colour.mix(0.6).filled())
        };
        let others = e.predicted.iter().filter(|p| !worst.contains(&p.program));
        chart
            .draw_series(others.map(|p| dot(p, OTHERS)))
            .map_err(|e| failed(&e))?;
        for (program, colour) in worst.iter().zip(NAMED) {
            let own = e.predicted.iter().filter(|p| p.program == *program);
            let name = matched.programs.get(*program).map_or("?", |p| &p.name);
            chart
                .draw_series(own.map(|p| dot(p, colour)))
                .map_err(|e| failed(&e))?
                .label(name)
                .legend(move |at| Circle::new((at.0 + 8, at.1), 4, colour.filled()));
        }
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
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .legend_area_size(20)
            .margin(12)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.2))
            .label_font(style)
            .draw()
            .map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_models::sample::Quantity;

    #[test]
    fn the_worst_are_named() {
        let errors = [0.1, 0.5, 0.0, 0.3, 0.2, 0.4];
        let predicted = errors.iter().enumerate().flat_map(|(program, error)| {
            [1.0, -1.0].map(|sign| Predicted {
                program,
                truth: 2.0,
                predicted: 2.0 + sign * error,
            })
        });
        let e = Evaluated {
            on: 0,
            target: Target {
                quantity: Quantity::Speedup,
                of: 0,
            },
            predicted: predicted.collect(),
            windows: [0, 1].repeat(6),
            accuracy: None,
            stated: 0.1,
        };
        // the last program has no window
        assert_eq!(worst(&e, 7), [1, 5, 3, 4]);
    }
}
