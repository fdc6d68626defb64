//! Linear regression by weighted least squares: the baseline that stumps must beat.

use crate::sample::Table;

/// A linear formula.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Linear {
    /// The constant part.
    pub base: f64,
    /// A coefficient per metric.
    pub coefficients: Vec<f64>,
}

impl Linear {
    /// The prediction for a window with these metrics.
    pub fn predict(&self, x: &[f64]) -> f64 {
        let terms = self.coefficients.iter().zip(x);
        terms.fold(self.base, |sum, (c, v)| sum + c * v)
    }

    /// Whether the formula looks at metric `m`.
    pub fn uses(&self, m: usize) -> bool {
        self.coefficients.get(m).is_some_and(|c| *c != 0.0)
    }

    /// How much each metric moves the prediction: the variance of its term on the table's windows.
    pub fn importance(&self, table: &Table) -> Vec<f64> {
        let weights = table.weights();
        let variance = |(c, column): (&f64, &Vec<f64>)| {
            let mean: f64 = column.iter().zip(&weights).map(|(v, w)| v * w).sum();
            let squares = column
                .iter()
                .zip(&weights)
                .map(|(v, w)| w * (v - mean).powi(2));
            c * c * squares.sum::<f64>()
        };
        let terms = self.coefficients.iter().zip(&table.x);
        terms.map(variance).collect()
    }
}

/// Fits by least squares, every program weighing the same.
///
/// Columns are centred and scaled first, then decomposed (QR with column pivoting; diagonals below
/// ε·max(n, p) of the first count as 0). So metrics that are constant or depend on others linearly
/// do no harm: they get the coefficient 0. Without windows: all zero.
pub fn train(table: &Table) -> Linear {
    let (n, p) = (table.len(), table.x.len());
    let zero = Linear {
        base: 0.0,
        coefficients: vec![0.0; p],
    };
    if n == 0 {
        return zero;
    }
    let weights = table.weights();
    let mean = |column: &[f64]| -> f64 { column.iter().zip(&weights).map(|(v, w)| v * w).sum() };
    let y_mean = mean(&table.y);
    let constant = Linear {
        base: y_mean,
        ..zero
    };
    let moments: Vec<(f64, f64)> = table
        .x
        .iter()
        .map(|c| {
            let m = mean(c);
            let squares = c.iter().zip(&weights).map(|(v, w)| w * (v - m).powi(2));
            (m, squares.sum::<f64>().sqrt())
        })
        .collect();
    // what is left of a constant column is rounding
    let used: Vec<usize> = (0..p)
        .filter(|j| {
            let (m, s) = moments[*j];
            s.is_finite() && s > 1e-12 * m.abs() && s > f64::MIN_POSITIVE
        })
        .collect();
    if used.is_empty() {
        return constant;
    }
    let columns = used.iter().map(|j| {
        let (m, s) = moments[*j];
        let rows = table.x[*j].iter().zip(&weights);
        rows.map(|(v, w)| w.sqrt() * (v - m) / s).collect()
    });
    let rows = table.y.iter().zip(&weights);
    let solution = least_squares(
        columns.collect(),
        rows.map(|(y, w)| w.sqrt() * (y - y_mean)).collect(),
    );
    if !solution.iter().all(|c| c.is_finite()) {
        return constant;
    }
    let mut out = constant;
    for (k, j) in used.iter().enumerate() {
        let (m, s) = moments[*j];
        let c = solution[k] / s;
        out.coefficients[*j] = c;
        out.base -= c * m;
    }
    out
}

/// The x that makes |Σ x_j·columns_j − b| least; 0 for columns that depend on others.
///
/// Gram and Schmidt's process in its stable order with column pivoting, `b` carried along as if it
/// were the last column: as accurate as reflections. Written out here because crates that decompose
/// with pivoting cost a minute of building, or a licence that does not go with this one, for some
/// twenty columns.
fn least_squares(mut columns: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let (n, p) = (b.len(), columns.len());
    // the k-th of `columns` is the caller's `order[k]`; `rows[k]` is row k of R
    let mut order: Vec<usize> = (0..p).collect();
    let (mut rows, mut projected) = (Vec::<Vec<f64>>::new(), Vec::new());
    let mut tolerance = None;
    for k in 0..n.min(p) {
        let norms = columns[k..].iter().map(|c| dot(c, c).sqrt());
        let Some((longest, norm)) = norms.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            break;
        };
        let least = *tolerance.get_or_insert(norm * f64::EPSILON * n.max(p) as f64);
        // what is left of every column is rounding
        if norm <= least {
            break;
        }
        columns.swap(k, k + longest);
        order.swap(k, k + longest);
        rows.iter_mut().for_each(|r| r.swap(k, k + longest));
        let (q, rest) = columns[k..].split_first_mut().expect("k < p");
        q.iter_mut().for_each(|v| *v /= norm);
        let mut row = vec![0.0; p];
        row[k] = norm;
        let leave_out = |c: &mut [f64]| {
            let along = dot(q, c);
            c.iter_mut()
                .zip(q.iter())
                .for_each(|(c, q)| *c -= along * q);
            along
        };
        for (r, c) in row[k + 1..].iter_mut().zip(rest) {
            *r = leave_out(c);
        }
        projected.push(leave_out(&mut b));
        rows.push(row);
    }
    let mut x = vec![0.0; p];
    for (k, row) in rows.iter().enumerate().rev() {
        let known: f64 = (k + 1..rows.len()).map(|j| row[j] * x[order[j]]).sum();
        x[order[k]] = (projected[k] - known) / row[k];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(rows: &[(usize, Vec<f64>)], f: impl Fn(&[f64]) -> f64) -> Table {
        let columns = rows.first().map_or(0, |r| r.1.len());
        let mut t = Table {
            programs: vec![String::new(); 8],
            x: vec![vec![]; columns],
            ..Table::default()
        };
        for (p, x) in rows {
            t.push(*p, x, f(x));
        }
        t
    }

    #[test]
    fn a_line_by_hand() {
        // (0,1) (1,3) (2,5) with an outlier at (1,7) of its own program: weights 1/6 each and 1/2
        let mut t = table(&[(0, vec![0.0]), (0, vec![1.0]), (0, vec![2.0])], |x| {
            1.0 + 2.0 * x[0]
        });
        assert!(
            (train(&t).base - 1.0).abs() < 1e-12 && (train(&t).coefficients[0] - 2.0).abs() < 1e-12
        );
        t.push(1, &[1.0], 7.0);
        // slope stays 2 (the outlier is at the mean), the mean is 3/2 + 7/2 = 5
        let l = train(&t);
        assert!(
            (l.coefficients[0] - 2.0).abs() < 1e-12 && (l.base - 3.0).abs() < 1e-12,
            "{l:?}"
        );
    }

    #[test]
    fn rank_deficient_tables() {
        let rows: Vec<(usize, Vec<f64>)> = (0..30)
            .map(|i| {
                let a = f64::from(i % 7);
                (i as usize % 3, vec![a, 2.0 * a + 1.0, 5.0, f64::from(i)])
            })
            .collect();
        let f = |x: &[f64]| 1.0 + 0.5 * x[0] - 0.25 * x[3];
        let t = table(&rows, f);
        let l = train(&t);
        assert!(
            rows.iter().all(|(_, x)| (l.predict(x) - f(x)).abs() < 1e-9),
            "{l:?}"
        );
        assert_eq!(l.coefficients[2], 0.0);
        // of two columns that are one, the other is left out: none explodes
        assert!(l.coefficients[..2].contains(&0.0), "{l:?}");
        assert!(l.coefficients.iter().all(|c| c.abs() < 1.0), "{l:?}");
        // more metrics than windows, one window, none
        let few = table(&rows[..2], f);
        assert!((train(&few).predict(&rows[0].1) - f(&rows[0].1)).abs() < 1e-9);
        assert_eq!(train(&table(&rows[..1], f)).base, f(&rows[0].1));
        assert_eq!(train(&table(&[], f)), Linear::default());
    }

    proptest! {
        /// Whatever columns are made of which others, a linear function of them is recovered.
        #[test]
        fn lack_of_rank_does_no_harm(
            rows in proptest::collection::vec((0usize..8, -100i32..100, -100i32..100), 1..40),
            made in proptest::collection::vec((-3i32..4, -3i32..4), 1..6),
        ) {
            let rows: Vec<(usize, Vec<f64>)> = rows
                .iter()
                .map(|(p, a, b)| (*p, made.iter().map(|(c, d)| f64::from(c * a + d * b)).collect()))
                .collect();
            let f = |x: &[f64]| 1.0 + x.iter().sum::<f64>();
            let l = train(&table(&rows, f));
            for (_, x) in &rows {
                prop_assert!((l.predict(x) - f(x)).abs() < 1e-6, "{:?}", l);
            }
        }

        #[test]
        fn linear_recovers_linear(
            rows in proptest::collection::vec((0usize..8, proptest::collection::vec(-100.0f64..100.0, 3)), 12..60),
            c in proptest::collection::vec(-10.0f64..10.0, 4),
        ) {
            let f = |x: &[f64]| c[0] + c[1] * x[0] + c[2] * x[1] + c[3] * x[2];
            let l = train(&table(&rows, f));
            for (_, x) in &rows {
                prop_assert!((l.predict(x) - f(x)).abs() < 1e-6, "{:?}", l);
            }
        }

        #[test]
        fn any_numbers_are_survived(
            rows in proptest::collection::vec((0usize..8, proptest::collection::vec(any::<f64>(), 2)), 0..12),
        ) {
            let l = train(&table(&rows, |x| x[0]));
            prop_assert!(rows.is_empty() || l.coefficients.len() == 2);
        }
    }
}
