//! How sure a factor is, where that depends on the metrics.

use crate::accuracy::Predicted;
use crate::sample::Table;
use crate::stumps::{self, Stumps};
use crate::training::Learner;

/// The variance of the logarithm of truth over prediction, by the metrics: boosted stumps fitted to its square in windows of programs
/// that their prediction has not seen, every program weighing the same. `None` where there is nothing to fit. Predictions are kept
/// within `range` first, as the provider keeps them; the speedup factor in an efficiency factor is not, which the provider does.
pub(crate) fn fit<'a>(
    unseen: impl Iterator<Item = (&'a Table, &'a [Predicted])>,
    range: (f64, f64),
    learner: &Learner,
) -> Option<Stumps> {
    let mut squares = Table::default();
    for (table, predicted) in unseen {
        if squares.is_empty() {
            squares = Table {
                programs: table.programs.clone(),
                x: vec![Vec::new(); table.x.len()],
                ..Table::default()
            };
        }
        for (r, p) in predicted.iter().enumerate() {
            let off = (p.truth / p.predicted.clamp(range.0, range.1)).ln();
            if off.is_finite() {
                squares.push(p.program, &table.row(r).collect::<Vec<f64>>(), off * off);
            }
        }
    }
    (!squares.is_empty()).then(|| stumps::train(&squares, &learner.boosting, learner.seed))
}
