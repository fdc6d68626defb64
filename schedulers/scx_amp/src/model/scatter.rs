//! The page of plots: predicted over true [PMCTrack fig. 15], and both over time.

use super::over_time;
use super::tables::core_type;
use amp_charts::page::{document, figure, header, keys};
use amp_charts::{colour, Axis, XyPlot};
use amp_models::accuracy::{Predicted, COVERAGE_FACTOR};
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::platform::{Evaluated, Platform};
use amp_models::sample::Target;

/// Programs shown over time.
const PHASED: usize = 2;
/// Programs that are named in a plot, each in a colour of its own.
const NAMED: usize = 4;
/// Class of the others.
const OTHERS: &str = "base";

/// A page with a plot per factor: a point per window, which a perfect model has on the diagonal.
pub fn page(
    platform: &Platform,
    data: &Dataset,
    matched: &MatchedData,
    all: &[Evaluated],
) -> String {
    let title = format!("Model {}", platform.name().unwrap_or("without name"));
    let mut body = header(&title, &format!("{} programs", matched.programs.len()));
    body +=
        "<p>Each point is a window of instructions, a perfect prediction is on the diagonal. \
         Between the dashed lines is the interval that the model file states, for 95.4 % of the windows of programs it has not seen, \
         where it does not say that it is unsure; \
         the programs with the largest errors have a colour.</p>\n<section class=\"bars pair\">";
    for e in all.iter().filter(|e| !e.predicted.is_empty()) {
        let label = format!(
            "{} factor of {}, predicted on {}",
            e.target.quantity.name(),
            core_type(data, e.target.of),
            core_type(data, e.on)
        );
        let r = e.accuracy.as_ref().and_then(|a| a.correlation);
        let r = r.map_or(String::new(), |r| format!("correlation {r}"));
        body += &figure(&label, &r, &plot(e, matched, &label));
    }
    body += "</section>\n";
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
            let chart = over_time::plot(data, matched, all, *target, program);
            body += &figure(&caption, "", &chart);
        }
    }
    document(&title, &body)
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
    all.into_iter().take(NAMED).map(|(p, _)| p).collect()
}

fn plot(e: &Evaluated, matched: &MatchedData, label: &str) -> String {
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
    let quantity = e.target.quantity.name();
    let axis = |what: &str| Axis::new(&format!("{what} {quantity} factor (ratio)"), low, high);
    let mut plot = XyPlot::new(label, 500.0, 500.0, &axis("true"), &axis("predicted"));
    let dots = |p: &Predicted| (p.truth, p.predicted);
    let worst = worst(e, matched.programs.len());
    let others = e.predicted.iter().filter(|p| !worst.contains(&p.program));
    plot.points(others.map(dots), OTHERS, "other programs");
    let name = |program: usize| matched.programs.get(program).map_or("?", |p| &p.name);
    let named: Vec<(String, &str)> = worst
        .iter()
        .enumerate()
        .map(|(i, p)| (colour(i), name(*p)))
        .collect();
    for (program, (colour, name)) in worst.iter().zip(&named) {
        let own = e.predicted.iter().filter(|p| p.program == *program);
        plot.points(own.map(dots), colour, name);
    }
    plot.line([(low, low), (high, high)], "ink", "perfect prediction");
    let half = COVERAGE_FACTOR * e.stated;
    // the part of a line beside the diagonal that is within the plot
    if half < high - low {
        plot.dashed((low, low + half), (high - half, high));
        plot.dashed((low + half, low), (high, high - half));
    }
    let legend = named.iter().map(|(c, n)| (c.as_str(), *n));
    keys(legend.chain([(OTHERS, "other programs")])) + &plot.finish()
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
            uncertainty: vec![0.1; 12],
            windows: [0, 1].repeat(6),
            accuracy: None,
            stated: 0.1,
        };
        // the last program has no window
        assert_eq!(worst(&e, 7), [1, 5, 3, 4]);
    }
}
