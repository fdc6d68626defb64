//! Factors over a program's course, true and predicted [PMCTrack fig. 14].

use amp_models::matching::MatchedData;
use amp_models::platform::Evaluated;
use anyhow::{anyhow, Result};
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, RGBColor, SVGBackend, BLACK, WHITE,
};

const PREDICTED: RGBColor = RGBColor(0xd6, 0x27, 0x28);
/// Fewest windows of a program whose course is worth a plot.
const FEWEST_WINDOWS: usize = 8;

/// The programs whose true factor changes most over their course, relative to its mean: at most `n`, by their index in the
/// matched data.
pub fn phased(e: &Evaluated, n: usize) -> Vec<usize> {
    let mut of: Vec<usize> = e.predicted.iter().map(|p| p.program).collect();
    of.dedup();
    let spread = |program: usize| {
        let own = || e.predicted.iter().filter(|p| p.program == program);
        let count = own().count();
        if count < FEWEST_WINDOWS {
            return None;
        }
        let mean = own().map(|p| p.truth).sum::<f64>() / count as f64;
        let variance = own().map(|p| (p.truth - mean).powi(2)).sum::<f64>() / count as f64;
        Some((program, variance.sqrt() / mean)).filter(|(_, s)| s.is_finite())
    };
    let mut all: Vec<(usize, f64)> = of.into_iter().filter_map(spread).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(n);
    all.into_iter().map(|(p, _)| p).collect()
}

/// A plot of the factor of one program over its instructions: the truth in black, the prediction in red.
///
/// # Errors
/// When plotters cannot draw.
pub fn plot(e: &Evaluated, matched: &MatchedData, program: usize, label: &str) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| anyhow!("{label}: {e}");
    let windows = matched
        .programs
        .get(program)
        .map_or(&[][..], |p| &p.windows);
    let known = windows.iter().filter(|w| e.target.truth(w).is_some());
    let own = e.predicted.iter().filter(|p| p.program == program);
    // in millions of instructions, at the middle of the window
    let points: Vec<(f64, f64, f64)> = known
        .zip(own)
        .map(|(w, p)| {
            (
                (w.position + w.instructions / 2.0) / 1e6,
                p.truth,
                p.predicted,
            )
        })
        .collect();
    let ys = || {
        points
            .iter()
            .flat_map(|p| [p.1, p.2])
            .filter(|y| y.is_finite())
    };
    let (low, high) = (
        ys().fold(f64::INFINITY, f64::min),
        ys().fold(f64::NEG_INFINITY, f64::max),
    );
    let margin = (0.1 * (high - low)).max(0.05);
    let end = points.last().map_or(1.0, |p| p.0);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (620, 320)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..end, low - margin..high + margin)
            .map_err(|e| failed(&e))?;
        let style = ("sans-serif", 14).into_font();
        chart
            .configure_mesh()
            .x_desc("million instructions")
            .y_desc(e.target.quantity.name())
            .label_style(style.clone())
            .axis_desc_style(style)
            .draw()
            .map_err(|e| failed(&e))?;
        let line = |f: fn(&(f64, f64, f64)) -> f64| points.iter().map(move |p| (p.0, f(p)));
        chart
            .draw_series(LineSeries::new(line(|p| p.1), BLACK.stroke_width(2)))
            .map_err(|e| failed(&e))?;
        chart
            .draw_series(LineSeries::new(line(|p| p.2), PREDICTED.stroke_width(1)))
            .map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_models::accuracy::Predicted;
    use amp_models::sample::{Quantity, Target};

    #[test]
    fn the_programs_with_phases_are_chosen() {
        let mut predicted = Vec::new();
        for (program, phases) in [[2.0, 2.1], [1.0, 3.0], [1.0, 9.0], [1.5, 2.5]]
            .iter()
            .enumerate()
        {
            // the third has too few windows to be called a course
            let windows = if program == 2 { 4 } else { 10 };
            predicted.extend((0..windows).map(|w| Predicted {
                program,
                truth: phases[w % 2],
                predicted: 2.0,
            }));
        }
        let e = Evaluated {
            on: 0,
            target: Target {
                quantity: Quantity::Speedup,
                of: 0,
            },
            predicted,
            accuracy: None,
            stated: 0.1,
        };
        assert_eq!(phased(&e, 2), [1, 3]);
    }
}
