//! Collects which application ran on which core type when.

use crate::evaluation::results::TimelineEntry;
use amp_metrics::{Nanos, MAX_CORE_TYPES};

/// Most stretches that a timeline is cut into.
const MAX_BINS: usize = 400;

/// A timeline under construction. Intervals are gathered into stretches of equal length; when there
/// get to be too many, neighbours are merged, so that its size does not grow with the length of the
/// run.
#[derive(Clone, Debug)]
pub struct Timeline {
    labels: Vec<String>,
    core_types: usize,
    start: Nanos,
    /// Length of a stretch.
    width: u64,
    /// Per stretch and application: CPU time per core type, in nanoseconds.
    bins: Vec<Vec<[f64; MAX_CORE_TYPES]>>,
    end: Nanos,
}

impl Timeline {
    /// A timeline that begins at `start`, for applications with these labels on a machine with
    /// `core_types` core types.
    pub fn new(labels: &[&str], core_types: usize, start: Nanos) -> Timeline {
        Timeline {
            labels: labels.iter().map(|l| (*l).to_owned()).collect(),
            core_types: core_types.min(MAX_CORE_TYPES),
            start,
            width: 0,
            bins: Vec::new(),
            end: start,
        }
    }

    /// Adds what application number `app` (as in the labels) ran between `now - interval` and
    /// `now`. The first interval sets the finest resolution. Unknown applications, and intervals of
    /// no length or before the start, are left out.
    pub fn record(
        &mut self,
        app: usize,
        now: Nanos,
        interval: Nanos,
        ran: &[Nanos; MAX_CORE_TYPES],
    ) {
        let t1 = now.saturating_sub(self.start).0;
        let t0 = t1.saturating_sub(interval.0);
        if app >= self.labels.len() || t1 <= t0 {
            return;
        }
        if self.width == 0 {
            self.width = interval.0;
        }
        while t1.div_ceil(self.width) as usize > MAX_BINS {
            self.coarsen();
        }
        self.end = self.end.max(now);
        let bins = t1.div_ceil(self.width) as usize;
        if self.bins.len() < bins {
            let empty = vec![[0.0; MAX_CORE_TYPES]; self.labels.len()];
            self.bins.resize(bins, empty);
        }
        // spread over the stretches that the interval touches
        for bin in (t0 / self.width) as usize..bins {
            let (b0, b1) = (bin as u64 * self.width, (bin as u64 + 1) * self.width);
            let part = (t1.min(b1) - t0.max(b0)) as f64 / (t1 - t0) as f64;
            for (sum, r) in self.bins[bin][app].iter_mut().zip(ran) {
                *sum += part * r.0 as f64;
            }
        }
    }

    fn coarsen(&mut self) {
        self.width *= 2;
        let merged = self.bins.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            for (apps, more) in sum.iter_mut().zip(pair.get(1).into_iter().flatten()) {
                for (s, m) in apps.iter_mut().zip(more) {
                    *s += m;
                }
            }
            sum
        });
        self.bins = merged.collect();
    }

    /// The stretches in which each application ran, by application and time.
    pub fn entries(&self) -> Vec<TimelineEntry> {
        let mut out = Vec::new();
        let end = self.end.saturating_sub(self.start).0;
        for (app, label) in self.labels.iter().enumerate() {
            for (i, bin) in self.bins.iter().enumerate() {
                let t0 = i as u64 * self.width;
                let t1 = (t0 + self.width).min(end);
                let ran = &bin[app][..self.core_types];
                if t1 > t0 && ran.iter().any(|r| *r > 0.0) {
                    out.push(TimelineEntry {
                        app: label.clone(),
                        t0_s: t0 as f64 / 1e9,
                        t1_s: t1 as f64 / 1e9,
                        core_type_share: ran.iter().map(|r| r / (t1 - t0) as f64).collect(),
                    });
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(big: u64, small: u64) -> [Nanos; MAX_CORE_TYPES] {
        let mut r = [Nanos::ZERO; MAX_CORE_TYPES];
        r[0] = Nanos(big);
        r[1] = Nanos(small);
        r
    }

    #[test]
    fn intervals_become_shares() {
        let start = Nanos(1000);
        let mut t = Timeline::new(&["a", "b"], 2, start);
        t.record(0, Nanos(1100), Nanos(100), &ran(100, 0));
        t.record(1, Nanos(1100), Nanos(100), &ran(0, 50));
        t.record(0, Nanos(1200), Nanos(100), &ran(25, 75));
        t.record(7, Nanos(1200), Nanos(100), &ran(25, 75));
        t.record(0, Nanos(1200), Nanos(0), &ran(25, 75));
        let e = t.entries();
        assert_eq!(e.len(), 3);
        assert_eq!((e[1].t0_s, e[1].t1_s), (100e-9, 200e-9));
        assert_eq!(e[1].core_type_share, [0.25, 0.75]);
        assert_eq!(
            (e[2].app.as_str(), &e[2].core_type_share[..]),
            ("b", &[0.0, 0.5][..])
        );
    }

    #[test]
    fn a_long_run_is_merged_and_no_time_is_lost() {
        let mut t = Timeline::new(&["a"], 2, Nanos::ZERO);
        for i in 1..=10_001u64 {
            t.record(0, Nanos(i * 1000), Nanos(1000), &ran(600, 400));
        }
        let e = t.entries();
        assert!(e.len() <= MAX_BINS && e.len() > MAX_BINS / 3, "{}", e.len());
        let big: f64 = e
            .iter()
            .map(|e| e.core_type_share[0] * (e.t1_s - e.t0_s))
            .sum();
        assert!((big - 10_001.0 * 600e-9).abs() < 1e-12, "{big}");
        assert!((e.last().unwrap().t1_s - 10_001e-6).abs() < 1e-12);
    }
}
