//! Factors over a program's course, true and predicted [PMCTrack fig. 14].

use super::tables::core_type;
use amp_charts::page::keys;
use amp_charts::{colour, Axis, XyPlot};
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::phases::phases;
use amp_models::platform::Evaluated;
use amp_models::sample::Target;

/// The programs whose phases differ most in speedup: relative standard deviation of the phases'
/// means, each weighing as long as it is. At most `n`, by their index in the matched data; none
/// that has a single phase.
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

/// A plot of a factor of one program over its instructions: the truth in the text's colour, the
/// prediction from each core type in a colour of its own, every other phase on a grey ground. Empty
/// when there is nothing to show.
pub fn plot(
    data: &Dataset,
    matched: &MatchedData,
    all: &[Evaluated],
    target: Target,
    program: usize,
) -> String {
    let Some(of) = matched.programs.get(program) else {
        return String::new();
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
        return String::new();
    }
    let margin = (0.1 * (high - low)).max(0.05);
    let (low, high) = (low - margin, high + margin);
    let ends =
        |w: &amp_models::matching::Matched| (w.position / 1e6, (w.position + w.instructions) / 1e6);
    let end = of.windows.last().map_or(1.0, |w| ends(w).1);
    let quantity = format!("{} factor (ratio)", target.quantity.name());
    let label = format!("{quantity} of {} over its instructions", of.name);
    let x = Axis::new("millions of instructions", 0.0, end);
    let mut plot = XyPlot::new(&label, 1000.0, 320.0, &x, &Axis::new(&quantity, low, high));
    for phase in phases(of, target.of).iter().skip(1).step_by(2) {
        let windows = of.windows.get(phase.windows.clone()).unwrap_or(&[]);
        if let Some((first, last)) = windows.first().zip(windows.last()) {
            plot.shade(ends(first).0, ends(last).1);
        }
    }
    let legend = predicted.iter().enumerate();
    let legend: Vec<(String, String)> = legend
        .map(|(i, (on, _))| (colour(i), format!("predicted on {on}")))
        .collect();
    for ((_, points), (colour, name)) in predicted.iter().zip(&legend) {
        plot.line(points.iter().copied(), colour, name);
    }
    plot.line(truth, "ink", "true");
    let legend = legend.iter().map(|(c, n)| (c.as_str(), n.as_str()));
    keys([("ink", "true")].into_iter().chain(legend)) + &plot.finish()
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
