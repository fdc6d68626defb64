//! Axes.

/// A linear axis with round marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Value at the axis' begin.
    pub low: f64,
    /// Value at its end; above `low`.
    pub high: f64,
    /// Values to mark, ascending.
    pub marks: Vec<f64>,
    /// Decimals that the marks need.
    pub decimals: usize,
}

impl Scale {
    /// An axis that covers `low` to `high` with about `marks` marks at round values. Values that
    /// are not finite are treated as 0, and an empty range is widened.
    pub fn covering(low: f64, high: f64, marks: usize) -> Scale {
        let low = if low.is_finite() { low } else { 0.0 };
        let mut high = if high.is_finite() { high } else { low };
        if high - low < 1e-12 * low.abs().max(1.0) {
            high = low + low.abs().max(1.0);
        }
        let raw = (high - low) / marks.max(1) as f64;
        let power = 10f64.powi(raw.log10().floor() as i32);
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * power)
            .find(|s| *s >= raw * (1.0 - 1e-9))
            .unwrap_or(10.0 * power);
        let (first, last) = (
            (low / step).floor() as i64,
            (high / step - 1e-9).ceil() as i64,
        );
        let decimals = (0..12)
            .find(|d| {
                let scaled = step * 10f64.powi(*d);
                (scaled - scaled.round()).abs() < 1e-6
            })
            .unwrap_or(12) as usize;
        let marks: Vec<f64> = (first..=last).map(|i| i as f64 * step).collect();
        Scale {
            low: first as f64 * step,
            high: last as f64 * step,
            marks,
            decimals,
        }
    }

    /// The same axis cut off at `high`.
    pub fn ending_at(mut self, high: f64) -> Scale {
        if high > self.low {
            self.high = high;
            self.marks.retain(|m| *m <= high * (1.0 + 1e-9));
        }
        self
    }

    /// The same axis from `low` to `high` exactly, with the marks that lie there.
    pub fn between(mut self, low: f64, high: f64) -> Scale {
        if low < high && low.is_finite() && high.is_finite() {
            let slack = 1e-9 * (high - low);
            self.marks
                .retain(|m| (low - slack..=high + slack).contains(m));
            (self.low, self.high) = (low, high);
        }
        self
    }

    /// Where `value` lies: 0 at the begin, 1 at the end, not beyond either.
    pub fn at(&self, value: f64) -> f64 {
        if value.is_finite() {
            ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// The text of a mark.
    pub fn label(&self, mark: f64) -> String {
        // -0 would show a sign
        format!("{:.*}", self.decimals, mark + 0.0)
    }

    /// The text of a mark, in thousands (k), millions (M) or thousand millions (G) where the axis
    /// reaches that far.
    pub fn short_label(&self, mark: f64) -> String {
        let far = self.low.abs().max(self.high.abs());
        let (unit, letter) = match far {
            f if f >= 1e10 => (1e9, "G"),
            f if f >= 1e7 => (1e6, "M"),
            f if f >= 1e4 => (1e3, "k"),
            _ => return self.label(mark),
        };
        let step = self.marks.get(1).zip(self.marks.first());
        let step = step.map_or(unit, |(b, a)| b - a) / unit;
        let decimals = (0..3).find(|d| {
            let scaled = step * 10f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-6
        });
        format!(
            "{:.*}{letter}",
            decimals.unwrap_or(3) as usize,
            mark / unit + 0.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_round() {
        let s = Scale::covering(0.0, 3.87, 4);
        assert_eq!((s.low, s.high, s.decimals), (0.0, 4.0, 0));
        assert_eq!(s.marks, [0.0, 1.0, 2.0, 3.0, 4.0]);
        let s = Scale::covering(1.0, 1.37, 4);
        assert_eq!(
            s.marks.iter().map(|m| s.label(*m)).collect::<Vec<_>>(),
            ["1.0", "1.1", "1.2", "1.3", "1.4"]
        );
        assert_eq!(
            Scale::covering(0.0, 100.0, 5).ending_at(63.0).marks,
            [0.0, 20.0, 40.0, 60.0]
        );
        let s = Scale::covering(0.93, 4.1, 4).between(0.93, 4.1);
        assert_eq!((s.low, s.high), (0.93, 4.1));
        assert_eq!(s.marks, [1.0, 2.0, 3.0, 4.0]);
        let s = Scale::covering(0.0, 1.0, 4);
        assert_eq!(s.clone().between(2.0, 2.0), s);
    }

    #[test]
    fn large_marks_are_short() {
        let texts = |high| -> Vec<String> {
            let s = Scale::covering(0.0, high, 4);
            s.marks.iter().map(|m| s.short_label(*m)).collect()
        };
        assert_eq!(texts(2e8), ["0M", "50M", "100M", "150M", "200M"]);
        assert_eq!(texts(1e4), ["0.0k", "2.5k", "5.0k", "7.5k", "10.0k"]);
        assert_eq!(texts(4.0), ["0", "1", "2", "3", "4"]);
    }

    proptest! {
        #[test]
        fn any_range_is_covered(low in -1e6f64..1e6, span in 0.0f64..1e6) {
            let s = Scale::covering(low, low + span, 5);
            prop_assert!(s.low <= low + 1e-6 && s.high >= low + span - 1e-6 && s.high > s.low);
            prop_assert!((2..=13).contains(&s.marks.len()), "{s:?}");
            prop_assert!((0.0..=1.0).contains(&s.at(low)));
        }
    }

    #[test]
    fn nonsense_is_survived() {
        for (a, b) in [
            (f64::NAN, f64::NAN),
            (0.0, f64::INFINITY),
            (5.0, 5.0),
            (3.0, 1.0),
        ] {
            let s = Scale::covering(a, b, 4);
            assert!(s.high > s.low && s.marks.len() >= 2, "{s:?}");
            assert_eq!(s.at(f64::NAN), 0.0);
        }
    }
}
