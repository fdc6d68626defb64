//! Totals of a set that was counted part of the time, with their uncertainty.
//!
//! Each gap between two windows of the set is filled with the rate of both together, and what is
//! before the first and after the last with that of the nearest one. How far a fill may be off is
//! told by how far its two neighbours are apart: were the rate of a window that of the program plus
//! noise, whose variance falls with the window's length, a squared difference d² of neighbours of
//! t₁ and t₂ seconds would come from a noise of d²/(1/t₁ + 1/t₂) per second, and a fill of g
//! seconds be off by g²·(1/g + 2/(t₁ + t₂)) times that: twice, for each window stands in two fills,
//! which are off together. So a program that drifts, or has a few phases, pays for its steps once
//! each, and not for the whole spread of its rates: the estimator of variance from successive
//! differences, for systematic samples [Wolter, Introduction to Variance Estimation, ch. 8]. Few
//! large steps know their own size badly: the degrees of freedom are Satterthwaite's, with the
//! correction of [Johnson & Rust 1992].
//!
//! What no window has seen nobody knows: sets that take turns in step with the program are off by
//! more than they say, which [`super::Turns`] keeps from happening.

use crate::uncertainty::{coverage_factor, Measured};

/// A change of sets is a pair of interrupts: whoever is counted is in the kernel from the first one
/// to its end and from the second one on, and in between in user mode for this part of the time,
/// which cannot be told from outside. On the virtual board it was 0.70 ± 0.03 on little cores and
/// 0.90 ± 0.03 on big ones (docs/evidence/pmc.md); the uncertainty allows for all and for nothing.
const IN_USER_MODE: f64 = 0.8;

/// A window: seconds and counts.
#[derive(Clone, Debug)]
struct Window {
    seconds: f64,
    counts: Vec<f64>,
}

/// A step from one window to the next: differences of rates, and the factor that makes noise per
/// second of their squares.
#[derive(Clone, Debug)]
struct StepBetween {
    rates: Vec<f64>,
    weight: f64,
}

impl StepBetween {
    fn of(a: &Window, b: &Window) -> StepBetween {
        let rates = a.counts.iter().zip(&b.counts);
        StepBetween {
            rates: rates.map(|(x, y)| y / b.seconds - x / a.seconds).collect(),
            weight: 1.0 / (1.0 / a.seconds + 1.0 / b.seconds),
        }
    }

    fn noise(&self, gradient: &[f64]) -> f64 {
        self.weight * dot(&self.rates, gradient).powi(2)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Variance factor of a fill of `gap` seconds from windows of `seconds` on average.
fn spread(gap: f64, seconds: f64) -> f64 {
    gap * gap * (1.0 / gap + 1.0 / seconds)
}

/// What the windows of one set have counted. Keeps sums, not windows: a run may be as long as it
/// likes.
#[derive(Clone, Debug)]
pub struct Sampled {
    windows: u64,
    counts: Vec<u64>,
    time: f64,
    /// Before the first window, between windows, and since the last one.
    lead: f64,
    between: f64,
    since: f64,
    /// While one set gave way to the next, in which an event of user mode counts nothing for part
    /// of the time.
    changing: f64,
    /// What the gaps between windows are filled with.
    fill: Vec<f64>,
    first: Option<Window>,
    last: Option<Window>,
    first_step: Option<StepBetween>,
    last_step: Option<StepBetween>,
    steps: u64,
    /// Sums of products of steps, row by row: as noise per second, and as variance of the fills.
    noise: Vec<f64>,
    variance: Vec<f64>,
    /// Gaps that were filled, and per event the sum of squares of their variances.
    fills: u64,
    fourth: Vec<f64>,
}

impl Sampled {
    /// Nothing counted yet of a set of `events`.
    pub fn new(events: usize) -> Sampled {
        Sampled {
            windows: 0,
            counts: vec![0; events],
            time: 0.0,
            lead: 0.0,
            between: 0.0,
            since: 0.0,
            changing: 0.0,
            fill: vec![0.0; events],
            first: None,
            last: None,
            first_step: None,
            last_step: None,
            steps: 0,
            noise: vec![0.0; events * events],
            variance: vec![0.0; events * events],
            fills: 0,
            fourth: vec![0.0; events],
        }
    }

    /// `seconds` went by on the set's CPUs without it.
    pub fn skip(&mut self, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.since += seconds;
        }
    }

    /// Says that of the time that neither this set nor another one was on, `seconds` went by while
    /// one gave way to the next, and that the set counts user mode only. Most of it is taken for
    /// user mode (`IN_USER_MODE`). Replaces what was said before.
    pub fn change(&mut self, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            self.changing = seconds;
        }
    }

    /// Seconds of `whole` that neither this set nor another one has seen.
    fn unseen(&self, whole: f64) -> f64 {
        (whole - self.time - self.gaps()).max(0.0)
    }

    /// Seconds of `whole` without the set in which its events may have counted.
    fn missing(&self, whole: f64) -> f64 {
        let kernel = self.changing.min(self.unseen(whole)) * (1.0 - IN_USER_MODE);
        whole - self.time - kernel
    }

    /// Adds a window of `seconds` on the hardware. One without any time shows nothing of rates, but
    /// what it counted counts. Missing counts are taken as 0, surplus ones ignored.
    pub fn add(&mut self, seconds: f64, counts: &[u64]) {
        for (sum, c) in self.counts.iter_mut().zip(counts) {
            *sum = sum.saturating_add(*c);
        }
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        self.windows += 1;
        self.time += seconds;
        let n = self.counts.len();
        let window = Window {
            seconds,
            counts: (0..n)
                .map(|i| counts.get(i).map_or(0.0, |c| *c as f64))
                .collect(),
        };
        let gap = std::mem::take(&mut self.since);
        if let Some(last) = self.last.take() {
            self.between += gap;
            self.step(&last, &window, gap);
        } else {
            self.lead = gap;
            self.first = Some(window.clone());
        }
        self.last = Some(window);
    }

    fn step(&mut self, a: &Window, b: &Window, gap: f64) {
        let n = self.counts.len();
        let step = StepBetween::of(a, b);
        let both = a.seconds + b.seconds;
        let factor = match gap > 0.0 {
            true => spread(gap, both / 2.0) * step.weight,
            false => 0.0,
        };
        for i in 0..n {
            for j in 0..n {
                let product = step.rates[i] * step.rates[j];
                self.noise[i * n + j] += product * step.weight;
                self.variance[i * n + j] += product * factor;
            }
            if gap > 0.0 {
                self.fill[i] += gap * (a.counts[i] + b.counts[i]) / both;
                self.fourth[i] += (step.rates[i].powi(2) * factor).powi(2);
            }
        }
        self.steps += 1;
        self.fills += u64::from(gap > 0.0);
        self.first_step.get_or_insert_with(|| step.clone());
        self.last_step = Some(step);
    }

    /// Windows with time on the hardware.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Seconds on the hardware.
    pub fn seconds(&self) -> f64 {
        self.time
    }

    /// What event `i` has really counted.
    pub fn counted(&self, i: usize) -> u64 {
        self.counts.get(i).copied().unwrap_or(0)
    }

    /// Part of `whole` seconds that the set was on the hardware, 0..=1; `None` when there was no
    /// time at all.
    pub fn coverage(&self, whole: f64) -> Option<f64> {
        (whole > 0.0).then(|| (self.time / whole).clamp(0.0, 1.0))
    }

    /// Gaps that are known of.
    fn gaps(&self) -> f64 {
        self.lead + self.between + self.since
    }

    /// What event `i` is taken to have done in `missing` seconds without the set.
    fn missed(&self, i: usize, missing: f64) -> f64 {
        let rate = |w: &Option<Window>| {
            w.as_ref()
                .map_or(0.0, |w| w.counts.get(i).map_or(0.0, |c| c / w.seconds))
        };
        let gaps = self.gaps();
        if gaps <= 0.0 {
            return self.counted(i) as f64 / self.time * missing;
        }
        let known = self.fill.get(i).copied().unwrap_or(0.0)
            + self.lead * rate(&self.first)
            + self.since * rate(&self.last);
        // what goes by while one set gives way to the next is shared out over all gaps
        known * missing / gaps
    }

    /// Total of event `i` over `whole` seconds. What was counted all the time is exact; with a
    /// single window of a part of it the uncertainty is unknown. `None` when nothing was counted of
    /// a whole that is not empty.
    pub fn total(&self, i: usize, whole: f64) -> Option<Measured> {
        let counted = self.counted(i) as f64;
        let Some(coverage) = self.coverage(whole) else {
            return Some(Measured::exact(counted));
        };
        if self.windows == 0 {
            return None;
        }
        // a difference in the last digits of two clocks is no missing part
        if coverage > 1.0 - 1e-9 {
            return Some(Measured::exact(counted));
        }
        let missing = self.missing(whole);
        let missed = self.missed(i, missing);
        let mut gradient = vec![0.0; self.counts.len()];
        if let Some(g) = gradient.get_mut(i) {
            *g = 1.0;
        }
        // Rare events come by chance. Of one that was never seen there may be 3 in as much time as
        // was looked at, and more in the rest: that many are twice the standard uncertainty.
        let chance = match counted > 0.0 {
            true => missed * (1.0 + missed / counted),
            false => (1.5 * missing / self.time).powi(2),
        };
        let variance = self.variance(&gradient, whole).map(|v| v.max(chance));
        Some(Measured {
            value: counted + missed,
            u: variance.map(f64::sqrt),
        })
    }

    /// Variance of Σ `gradient`\[i\] · total(i): what events counted in the same windows have in
    /// common is accounted for. `None` when it is unknown.
    pub fn variance(&self, gradient: &[f64], whole: f64) -> Option<f64> {
        let Some(f) = self.coverage(whole) else {
            return Some(0.0);
        };
        if f > 1.0 - 1e-9 {
            return Some(0.0);
        }
        if self.windows < 2 {
            return None;
        }
        let n = self.counts.len();
        let of = |sums: &[f64]| -> f64 {
            let rows = gradient.iter().zip(sums.chunks(n));
            rows.map(|(g, row)| g * dot(row, gradient)).sum()
        };
        let mean = of(&self.noise) / self.steps as f64;
        let edge = |gap: f64, near: &Option<StepBetween>, w: &Option<Window>| {
            let (Some(step), Some(w), true) = (near, w, gap > 0.0) else {
                return 0.0;
            };
            step.noise(gradient).max(mean) * spread(gap, w.seconds)
        };
        let known = of(&self.variance)
            + edge(self.lead, &self.first_step, &self.first)
            + edge(self.since, &self.last_step, &self.last);
        let (missing, gaps) = (self.missing(whole), self.gaps());
        let known = match gaps > 0.0 {
            true => known * (missing / gaps).powi(2),
            false => 0.0,
        };
        // while sets change the program may do as much as before, or be kept waiting
        let rate: f64 = (0..n)
            .map(|i| gradient.get(i).unwrap_or(&0.0) * self.counted(i) as f64)
            .sum::<f64>()
            / self.time;
        let unseen = rate * self.unseen(whole);
        Some(known.max(0.0) + unseen * unseen / 3.0)
    }

    /// By what the standard uncertainty of event `i` is to be multiplied for an interval that holds
    /// the truth in `level` (0..1) of all cases: Student's t, as few gaps know their own scatter
    /// badly. `None` with fewer than two windows.
    pub fn factor(&self, i: usize, level: f64) -> Option<f64> {
        self.windows.checked_sub(1).filter(|f| *f > 0)?;
        let n = self.counts.len();
        let (sum, squares) = (
            self.variance.get(i * n + i).copied()?,
            self.fourth.get(i).copied()?,
        );
        let freedom = if squares > 0.0 {
            // squares of normal deviates overstate how unequal the terms are
            let correction = (3.16 - 2.77 / (self.fills as f64).sqrt()).max(1.0);
            (correction * sum * sum / squares).max(1.0)
        } else {
            // no scatter at all, or nothing between windows
            self.steps as f64
        };
        coverage_factor(level, freedom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiplex::{Trace, Turns};
    use rand::{RngExt, SeedableRng};
    use std::time::Duration;

    #[test]
    fn counted_all_the_time_is_exact() {
        let mut s = Sampled::new(2);
        s.add(1.0, &[10, 3]);
        s.add(0.0, &[1, 0]);
        assert_eq!(s.total(0, 1.0), Some(Measured::exact(11.0)));
        assert_eq!(s.total(1, 0.0), Some(Measured::exact(3.0)));
        assert_eq!(Sampled::new(1).total(0, 1.0), None);
        assert_eq!(Sampled::new(1).total(0, 0.0), Some(Measured::exact(0.0)));
    }

    #[test]
    fn a_change_of_sets_is_not_all_user_mode() {
        let mut s = Sampled::new(1);
        s.add(1.0, &[1000]);
        s.skip(1.0);
        s.add(1.0, &[1000]);
        s.skip(1.0);
        // 4 s were seen, by this set or the other one; 0.2 s by none
        assert!((s.total(0, 4.2).unwrap().value - 4200.0).abs() < 1e-9);
        s.change(0.2);
        let t = s.total(0, 4.2).unwrap();
        assert!((t.value - 4160.0).abs() < 1e-9, "{t:?}");
        // a rectangle of ±0.2 s, 1000 a second
        let u2 = s.variance(&[1.0], 4.2).unwrap();
        assert!((u2 - 200.0 * 200.0 / 3.0).abs() < 1e-6, "{u2}");
        // what was not seen for other reasons is the program's
        assert!((s.total(0, 5.2).unwrap().value - 5160.0).abs() < 1e-9);
        // no more is taken away than there is
        s.change(9.0);
        assert!((s.total(0, 4.2).unwrap().value - 4160.0).abs() < 1e-9);
    }

    #[test]
    fn one_window_of_a_part_has_no_known_uncertainty() {
        let mut s = Sampled::new(1);
        s.add(0.5, &[1000]);
        assert_eq!(s.total(0, 1.0), Some(Measured::single(2000.0)));
        assert_eq!(s.factor(0, 0.95), None);
        s.skip(0.5);
        s.add(0.25, &[500]);
        // the same rate in both: nothing but chance
        let t = s.total(0, 1.25).unwrap();
        assert!((t.value - 2500.0).abs() < 1e-9);
        assert!((t.u.unwrap() - (1000.0f64 * (1.0 + 1000.0 / 1500.0)).sqrt()).abs() < 1e-6);
        assert!((s.factor(0, 0.95).unwrap() - 12.706).abs() < 1e-2);
    }

    #[test]
    fn gaps_are_filled_from_both_sides_and_edges_from_one() {
        let mut s = Sampled::new(1);
        s.skip(2.0);
        s.add(1.0, &[100]);
        s.skip(1.0);
        s.add(1.0, &[300]);
        s.skip(3.0);
        // 2·100 + 100 + 200 + 300 + 3·300
        assert!((s.total(0, 8.0).unwrap().value - 1700.0).abs() < 1e-9);
        // a second in which sets changed
        let t = s.total(0, 9.0).unwrap();
        assert!((t.value - (400.0 + 1300.0 * 7.0 / 6.0)).abs() < 1e-9);
        assert!(t.u > s.total(0, 8.0).unwrap().u);
    }

    #[test]
    fn what_was_never_seen_may_have_been_three() {
        let mut s = Sampled::new(1);
        s.add(1.0, &[0]);
        for _ in 0..20 {
            s.skip(1.0);
            s.add(1.0, &[0]);
        }
        let t = s.total(0, 41.0).unwrap();
        let high = t.u.unwrap() * s.factor(0, 0.95).unwrap();
        assert!(t.value == 0.0 && (2.0..4.0).contains(&high), "{high}");
    }

    #[test]
    fn events_that_go_together_have_a_certain_ratio() {
        let mut s = Sampled::new(2);
        for x in [10, 50, 20, 90] {
            s.add(1.0, &[x, 2 * x]);
            s.skip(1.0);
        }
        let total = s.total(0, 8.0).unwrap();
        assert!(total.u.unwrap() > 10.0);
        // gradient of x1/x2 at the totals
        let (a, b) = (total.value, s.total(1, 8.0).unwrap().value);
        let v = s.variance(&[1.0 / b, -a / (b * b)], 8.0).unwrap();
        assert!(v < 1e-15, "{v}");
    }

    /// The interval holds the truth about as often as it says, for counts with noise and slow
    /// drift.
    #[test]
    fn the_interval_covers() {
        let mut rng = rand::rngs::SmallRng::seed_from_u64(7);
        let (mut inside, trials) = (0, 2000);
        for _ in 0..trials {
            let drift: f64 = rng.random_range(-0.5..0.5);
            let all: Vec<u64> = (0..60)
                .map(|i| {
                    let level = 1000.0 * (1.0 + drift * i as f64 / 60.0);
                    (level * rng.random_range(0.5..1.5)) as u64
                })
                .collect();
            let mut s = Sampled::new(1);
            for (i, c) in all.iter().enumerate() {
                match i % 3 {
                    0 => s.add(0.01, &[*c]),
                    _ => s.skip(0.01),
                }
            }
            let t = s.total(0, 0.6).unwrap();
            let half = s.factor(0, 0.95).unwrap() * t.u.unwrap();
            let truth = all.iter().sum::<u64>() as f64;
            inside += u32::from((t.value - truth).abs() <= half);
        }
        let share = f64::from(inside) / f64::from(trials);
        assert!((0.92..=0.99).contains(&share), "{share}");
    }

    /// `trace` from `from` to `to` seconds, counts spread evenly over its windows.
    fn part(trace: &Trace, from: f64, to: f64) -> Vec<f64> {
        let mut out = vec![0.0; trace.events.len()];
        let mut at = 0.0;
        for w in &trace.windows {
            let end = at + w.ns * 1e-9;
            let share = ((to.min(end) - from.max(at)) / (end - at)).max(0.0);
            for (sum, c) in out.iter_mut().zip(&w.counts) {
                *sum += share * c;
            }
            at = end;
        }
        out
    }

    /// Real programs and programs with phases, recorded on the board
    /// (docs/evidence/multiplexing.md): two sets of four events by turns.
    #[test]
    fn the_interval_covers_recorded_programs() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
        let (mut inside, mut all) = (0, 0);
        for file in std::fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            let trace = Trace::load(&path).unwrap();
            let end = trace.windows.iter().map(|w| w.ns).sum::<f64>() * 1e-9;
            let (mut of_this, mut tried) = (0, 0);
            for seed in 0..5 {
                let mut sets = [Sampled::new(4), Sampled::new(4)];
                let mut turns = Turns::new(Duration::from_millis(10), 2, seed);
                let (mut at, mut set) = (0.0, (seed % 2) as usize);
                while at < end {
                    let to = (at + turns.next().as_secs_f64()).min(end);
                    let counts = part(&trace, at, to);
                    let own: Vec<u64> = counts[4 * set..][..4].iter().map(|c| *c as u64).collect();
                    sets[set].add(to - at, &own);
                    sets[1 - set].skip(to - at);
                    (at, set) = (to, 1 - set);
                }
                for e in 0..8 {
                    let s = &sets[e / 4];
                    let t = s.total(e % 4, end).unwrap();
                    let half = s.factor(e % 4, 0.95).unwrap() * t.u.unwrap();
                    of_this += u32::from((t.value - trace.total(e)).abs() <= half);
                    tried += 1;
                }
            }
            println!("{}: {of_this} of {tried}", path.display());
            inside += of_this;
            all += tried;
        }
        assert!(
            all >= 400 && f64::from(inside) >= 0.93 * f64::from(all),
            "{inside} of {all}"
        );
    }
}
