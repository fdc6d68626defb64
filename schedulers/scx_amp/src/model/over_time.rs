//! Factors over a program's course, true and predicted [PMCTrack fig. 14].

use super::tables::core_type;
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::phases::phases;
use amp_models::platform::Evaluated;
use amp_models::sample::Target;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, Rectangle,
    SVGBackend, SeriesLabelPosition, BLACK, WHITE,
};

/// Predictions from the core types, fastest first.
const PREDICTED: [RGBColor; 4] = [
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0x94, 0x67, 0xbd),
];
/// Behind every other phase.
const PHASE: RGBColor = RGBColor(0xe8, 0xee, 0xf4);

/// The programs whose phases differ most in speedup: relative standard deviation of the phases' means, each weighing as long as it
/// is. At most `n`, by their index in the matched data; none that has a single phase.
pub fn phased(matched: &MatchedData, n: usize) -> Vec<usize> {
    let spread = |(i, program)| {
        let found = phases(program, 0);
        if found.len() < 2 {
            return None;
        }
        let all = || {
            found
                .iter()
                .map(|p| (p.windows.len() as f64, p.speedup.value))
        };
        let windows: f64 = all().map(|(n, _)| n).sum();
        let mean = all().map(|(n, x)| n * x).sum::<f64>() / windows;
        let variance = all().map(|(n, x)| n * (x - mean).powi(2)).sum::<f64>() / windows;
        Some((i, variance.sqrt() / mean)).filter(|(_, s)| s.is_finite())
    };
    let mut all: Vec<(usize, f64)> = matched
        .programs
        .iter()
        .enumerate()
        .filter_map(spread)
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(n);
    all.into_iter().map(|(p, _)| p).collect()
}

/// A point per window, at its middle: millions of instructions, and the factor.
type Course = Vec<(f64, f64)>;

/// A plot of a factor of one program over its instructions: the truth in black, the prediction from each core type in its colour, every
/// other phase on a grey ground.
///
/// # Errors
/// When plotters cannot draw.
pub fn plot(
    data: &Dataset,
    matched: &MatchedData,
    all: &[Evaluated],
    target: Target,
    program: usize,
) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| anyhow!("factors over time: {e}");
    let Some(of) = matched.programs.get(program) else {
        return Ok(String::new());
    };
    let middle = |w: usize| {
        of.windows
            .get(w)
            .map(|w| (w.position + w.instructions / 2.0) / 1e6)
    };
    let course = |w: usize, y: Option<f64>| Some((middle(w)?, y.filter(|y| y.is_finite())?));
    let truth: Course = (0..of.windows.len())
        .filter_map(|w| course(w, target.truth(&of.windows[w])))
        .collect();
    let predicted: Vec<(&str, Course)> = all
        .iter()
        .filter(|e| e.target == target)
        .map(|e| {
            let own = e.predicted.iter().zip(&e.windows);
            let own = own.filter(|(p, _)| p.program == program);
            let points = own.filter_map(|(p, w)| course(*w, Some(p.predicted)));
            (core_type(data, e.on), points.collect())
        })
        .collect();
    let ys = || {
        truth
            .iter()
            .chain(predicted.iter().flat_map(|(_, c)| c))
            .map(|p| p.1)
    };
    let (low, high) = (
        ys().fold(f64::INFINITY, f64::min),
        ys().fold(f64::NEG_INFINITY, f64::max),
    );
    if !(low.is_finite() && high.is_finite()) {
        return Ok(String::new());
    }
    let margin = (0.1 * (high - low)).max(0.05);
    // room for the legend
    let (low, high) = (
        low - margin,
        high + margin + 0.35 * (high - low + 2.0 * margin),
    );
    let ends =
        |w: &amp_models::matching::Matched| (w.position / 1e6, (w.position + w.instructions) / 1e6);
    let end = of.windows.last().map_or(1.0, |w| ends(w).1);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (620, 340)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, low..high)
            .map_err(|e| failed(&e))?;
        for phase in phases(of, target.of).iter().skip(1).step_by(2) {
            let windows = of.windows.get(phase.windows.clone()).unwrap_or(&[]);
            if let Some((first, last)) = windows.first().zip(windows.last()) {
                let corners = [(ends(first).0, low), (ends(last).1, high)];
                let ground = Rectangle::new(corners, PHASE.filled());
                chart.draw_series([ground]).map_err(|e| failed(&e))?;
            }
        }
        let style = ("sans-serif", 14).into_font();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(BLACK.mix(0.12))
            .x_labels(8)
            .y_labels(7)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.2}"))
            .x_desc("millions of instructions")
            .y_desc(format!("{} factor (ratio)", target.quantity.name()))
            .label_style(style.clone())
            .axis_desc_style(style.clone())
            .draw()
            .map_err(|e| failed(&e))?;
        let mut line = |points: &Course, colour: RGBColor, width: u32, label: String| {
            let series = LineSeries::new(points.iter().copied(), colour.stroke_width(width));
            let drawn = chart.draw_series(series).map_err(|e| failed(&e))?;
            drawn.label(label).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width))
            });
            Ok::<(), anyhow::Error>(())
        };
        line(&truth, BLACK, 2, "true".to_owned())?;
        for ((on, points), colour) in predicted.iter().zip(PREDICTED.iter().cycle()) {
            line(points, *colour, 1, format!("predicted on {on}"))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .legend_area_size(24)
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
    use amp_models::matching::{Matched, OnCoreType, Program};

    #[test]
    fn the_programs_with_phases_are_chosen() {
        let window = |i: usize, sf: f64| Matched {
            position: i as f64,
            instructions: 1.0,
            on: [1.0, sf]
                .map(|time_s| OnCoreType {
                    cycles: 1.0,
                    time_s,
                    energy_j: None,
                    counts: Vec::new(),
                })
                .to_vec(),
        };
        // little change, much, at every window (which is none), none
        let courses: [fn(usize) -> f64; 4] = [
            |w| 2.0 + 0.4 * f64::from(u8::from(w < 5)),
            |w| 1.0 + 2.0 * f64::from(u8::from(w < 5)),
            |w| 1.0 + 5.0 * (w % 2) as f64,
            |_| 2.0,
        ];
        let program = |f: &fn(usize) -> f64| Program {
            name: "x".into(),
            windows: (0..12).map(|w| window(w, f(w))).collect(),
            unmatched: 0.0,
        };
        let matched = MatchedData {
            programs: courses.iter().map(program).collect(),
            ..MatchedData::default()
        };
        assert_eq!(phased(&matched, 9), [1, 0]);
        assert_eq!(phased(&matched, 1), [1]);
    }
}
