//! A command counted several times: means over its runs.

use super::output::{Repeated, Report};
use super::{virtuals, Measurement, Shown};
use crate::counting::{Count, Derived, Judged, LEVEL};
use crate::factors::FactorCount;
use crate::virtuals::{VirtualCount, Virtuals};
use amp_metrics::uncertainty::{coverage_factor, Measured};
use anyhow::Result;
use indicatif::ProgressBar;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

impl Measurement<'_> {
    /// Counts so many runs; one that was interrupted is left out unless it is the first. The status
    /// is the first that is none of success.
    pub(super) fn repeat(
        &self,
        runs: u32,
        first: Option<Virtuals>,
        out: &mut Shown,
        stop: &AtomicBool,
    ) -> Result<(Report, ExitCode)> {
        let mut first = Some(first);
        let bar = ProgressBar::new(u64::from(runs));
        let mut reports: Vec<Report> = Vec::new();
        let mut status = ExitCode::SUCCESS;
        for _ in 0..runs {
            let others = match first.take() {
                Some(others) => others,
                None => virtuals(self.args, &self.virtuals, &self.inventory)?,
            };
            let (report, of_run) = self.count(others, out, stop)?;
            let stopped = stop.load(Ordering::Relaxed);
            if !stopped || reports.is_empty() {
                reports.push(report);
                if status == ExitCode::SUCCESS {
                    status = of_run;
                }
            }
            if stopped {
                break;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((mean(reports)?, status))
    }
}

/// Mean of the values that there are, with its standard uncertainty, and half of the interval at
/// [`LEVEL`].
fn mean_of(values: &[f64]) -> Option<(Measured, Option<f64>)> {
    let mean = Measured::mean(values)?;
    let factor = coverage_factor(LEVEL, values.len() as f64 - 1.0);
    let half = mean.u.zip(factor).map(|(u, t)| u * t);
    Some((mean, half))
}

/// What identifies a count from run to run.
fn same_count(a: &Count, b: &Count) -> bool {
    (&a.event, a.set, &a.pmu, &a.row) == (&b.event, b.set, &b.pmu, &b.row)
}

/// Takes a part out of every report.
fn parts<T>(reports: &mut [Report], part: fn(&mut Report) -> &mut Vec<T>) -> Vec<Vec<T>> {
    let all = reports.iter_mut();
    all.map(|r| std::mem::take(part(r))).collect()
}

/// The report of all runs, of which there is one at least.
fn mean(mut reports: Vec<Report>) -> Result<Report> {
    let counts = parts(&mut reports, |r| &mut r.counts);
    let metrics = parts(&mut reports, |r| &mut r.metrics);
    let others = parts(&mut reports, |r| &mut r.virtual_counters);
    let elapsed: Vec<f64> = reports.iter().map(|r| r.elapsed_s).collect();
    let turns = reports.iter().filter_map(|r| r.multiplexing.as_ref());
    let turns = turns.map(|m| m.turns).sum();
    let runs = reports.len();
    // the last is the frame: sets and strategy are the same in all
    let Some(mut out) = reports.pop() else {
        anyhow::bail!("the command never ran");
    };
    out.counts = means_of_counts(&counts);
    out.metrics = means_of_metrics(&metrics);
    out.virtual_counters = means_of_virtuals(&others);
    let mean = Measured::mean(&elapsed).unwrap_or(Measured::single(out.elapsed_s));
    out.elapsed_s = mean.value;
    if let Some(m) = &mut out.multiplexing {
        m.turns = turns;
    }
    out.repeated = Some(Repeated {
        runs,
        elapsed_u: mean.u,
        counts,
    });
    Ok(out)
}

/// All that are in any run, as the first that has it has them in order.
fn kinds<T>(runs: &[Vec<T>], same: fn(&T, &T) -> bool) -> Vec<&T> {
    let mut out: Vec<&T> = Vec::new();
    for x in runs.iter().flatten() {
        if !out.iter().any(|o| same(o, x)) {
            out.push(x);
        }
    }
    out
}

fn means_of_counts(runs: &[Vec<Count>]) -> Vec<Count> {
    let of_kind = |kind: &Count| {
        let all: Vec<&Count> = runs
            .iter()
            .filter_map(|r| r.iter().find(|c| same_count(c, kind)))
            .collect();
        // a core type on which the program did not run this time has counted nothing there; a count
        // without a basis is no such
        let unknown = |c: &&Count| c.coverage.is_some() && c.count.is_none();
        let never = all.iter().all(|c| c.count.is_none());
        let mut values: Vec<f64> = all.iter().map(|c| c.count.unwrap_or(0.0)).collect();
        values.resize(runs.len(), 0.0);
        let mean = mean_of(&values).filter(|_| !never && !all.iter().any(unknown));
        let coverages: Vec<f64> = all.iter().filter_map(|c| c.coverage).collect();
        let u = mean.and_then(|m| m.0.u);
        let interval = mean.and_then(|(m, half)| {
            let half = half?;
            Some(((m.value - half).max(0.0), m.value + half))
        });
        // the event's own error is the same in each run
        let (u, interval) = match (&kind.trusted, mean) {
            (Some(t), Some((m, _))) => (t.u(m.value, u), interval.and_then(|i| t.widen(i))),
            _ => (u, interval),
        };
        Count {
            count: mean.map(|m| m.0.value),
            u,
            low: interval.map(|i| i.0),
            high: interval.map(|i| i.1),
            counted: all.iter().map(|c| c.counted).sum(),
            coverage: Measured::mean(&coverages).map(|m| m.value),
            seconds: all.iter().map(|c| c.seconds).sum::<f64>() / runs.len() as f64,
            windows: all.iter().map(|c| c.windows).sum(),
            ..kind.clone()
        }
    };
    kinds(runs, same_count).into_iter().map(of_kind).collect()
}

fn means_of_metrics(runs: &[Vec<Derived>]) -> Vec<Derived> {
    let same = |a: &Derived, b: &Derived| {
        let key = |d: &Derived| (d.metric.clone(), d.pmu.clone(), d.row.clone());
        key(a) == key(b)
    };
    let of_kind = |kind: &Derived| {
        let found = runs.iter().flatten().filter(|d| same(d, kind));
        let found: Vec<&Derived> = found.collect();
        let values: Vec<f64> = found.iter().filter_map(|d| d.value).collect();
        let mean = Measured::mean(&values);
        let of_events: Vec<f64> = found.iter().filter_map(|d| d.u_of_events).collect();
        let of_events = Measured::mean(&of_events).map(|m| m.value);
        Derived {
            value: mean.map(|m| m.value),
            u: mean.and_then(|m| Some(m.u?.hypot(of_events?))),
            u_of_events: of_events,
            threshold: in_most(&found),
            ..kind.clone()
        }
    };
    kinds(runs, same).into_iter().map(of_kind).collect()
}

/// What a threshold says in most of the runs in which it says something.
fn in_most(runs: &[&Derived]) -> Option<Judged> {
    let judged: Vec<&Judged> = runs.iter().filter_map(|d| d.threshold.as_ref()).collect();
    let first = judged.first()?;
    let exceeded = judged.iter().filter(|j| j.exceeded).count();
    Some(Judged {
        text: first.text.clone(),
        exceeded: 2 * exceeded > judged.len(),
    })
}

fn means_of_virtuals(runs: &[Vec<VirtualCount>]) -> Vec<VirtualCount> {
    let same = |a: &VirtualCount, b: &VirtualCount| {
        let types = |v: &VirtualCount| {
            v.factor
                .as_ref()
                .map(|f| (f.core_type.clone(), f.on.clone()))
        };
        (a.counter, &a.of, &a.source) == (b.counter, &b.of, &b.source) && types(a) == types(b)
    };
    let of_kind = |kind: &VirtualCount| {
        let found: Vec<_> = runs.iter().flatten().filter(|v| same(v, kind)).collect();
        let values: Vec<f64> = found.iter().filter_map(|v| v.value).collect();
        let mean = Measured::mean(&values);
        let factor = mean_of_factors(&found);
        VirtualCount {
            value: mean.map(|m| m.value),
            u: match factor {
                None => mean.and_then(|m| m.u),
                Some(_) => mean.and_then(|m| with_stated(m, &found)),
            },
            readings: kind
                .readings
                .map(|_| found.iter().filter_map(|v| v.readings).sum()),
            factor,
            ..kind.clone()
        }
    };
    kinds(runs, same).into_iter().map(of_kind).collect()
}

/// Standard uncertainty of a mean of factors: their scatter, and what the model states, which is the
/// same program's in each run, so that no number of runs makes it less. Unknown where the model
/// states none.
fn with_stated(mean: Measured, found: &[&VirtualCount]) -> Option<f64> {
    let stated: Vec<f64> = found.iter().filter_map(|v| v.u).collect();
    let stated = Measured::mean(&stated)?.value;
    Some(stated.hypot(mean.u.unwrap_or(0.0)))
}

/// What the factors of all runs rest on; `None` where they are none. A run without an estimate is no
/// reason for there being none.
fn mean_of_factors(found: &[&VirtualCount]) -> Option<FactorCount> {
    let all: Vec<&FactorCount> = found.iter().filter_map(|v| v.factor.as_ref()).collect();
    let with = all.iter().find(|f| f.why.is_none()).or(all.first())?;
    let coverages: Vec<f64> = all.iter().filter_map(|f| f.coverage).collect();
    Some(FactorCount {
        estimates: all.iter().map(|f| f.estimates).sum(),
        extrapolated: all.iter().map(|f| f.extrapolated).sum(),
        coverage: Measured::mean(&coverages).map(|m| m.value),
        ..(*with).clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Row;
    use crate::trust::Trusted;

    fn count(core_type: &str, count: Option<f64>) -> Count {
        Count {
            event: "cycles".into(),
            set: 1,
            pmu: Some(core_type.into()),
            core_type: Some(core_type.into()),
            row: Row::default(),
            supported: true,
            count,
            counted: Some(count.map_or(0, |c| c as u64)),
            u: Some(0.0),
            low: count,
            high: count,
            coverage: count.map(|_| 1.0),
            seconds: 1.0,
            windows: 1,
            trusted: None,
        }
    }

    #[test]
    fn means_have_the_scatter_of_the_runs() {
        let runs = [
            vec![count("big", Some(100.0)), count("little", None)],
            vec![count("big", Some(104.0)), count("little", None)],
            vec![count("big", Some(96.0))],
        ];
        let out = means_of_counts(&runs);
        assert_eq!(out.len(), 2);
        let big = &out[0];
        assert_eq!((big.count, big.counted), (Some(100.0), Some(300)));
        // s = 4, u = 4/√3, t(2; 95 %) = 4.3027
        let u = 4.0 / 3f64.sqrt();
        assert!((big.u.unwrap() - u).abs() < 1e-12);
        assert!((big.high.unwrap() - 100.0 - 4.302_653 * u).abs() < 1e-4);
        assert_eq!((out[1].count, out[1].u), (None, None));
    }

    #[test]
    fn more_runs_do_not_mend_an_event_that_is_off() {
        let error = amp_metrics::trust::CountError {
            min: -0.2,
            max: 0.0,
        };
        let run = |n: f64| {
            vec![Count {
                trusted: Some(Trusted {
                    verdict: amp_metrics::trust::Verdict::Qualitative,
                    error_min: error.min,
                    error_max: error.max,
                }),
                ..count("big", Some(n))
            }]
        };
        let out = means_of_counts(&[run(99.0), run(101.0)]);
        let c = &out[0];
        // four of five may have been counted; the scatter is 1
        let own = 100.0 * 0.25 / 3f64.sqrt();
        assert!((c.u.unwrap() - own.hypot(1.0)).abs() < 1e-9, "{c:?}");
        let half = 12.706_205;
        assert!((c.low.unwrap() - (100.0 - half)).abs() < 1e-4, "{c:?}");
        assert!(
            (c.high.unwrap() - (100.0 + half) / 0.8).abs() < 1e-4,
            "{c:?}"
        );
    }

    #[test]
    fn a_core_type_that_was_used_once_has_a_mean_over_all_runs() {
        let runs = [
            vec![count("big", Some(90.0))],
            vec![count("big", None), count("little", Some(60.0))],
        ];
        let out = means_of_counts(&runs);
        let of = |t: &str| out.iter().find(|c| c.pmu.as_deref() == Some(t)).unwrap();
        assert_eq!(of("big").count, Some(45.0));
        assert_eq!(of("little").count, Some(30.0));
    }

    #[test]
    fn one_run_has_no_uncertainty() {
        let out = means_of_counts(&[vec![count("big", Some(7.0))]]);
        assert_eq!(
            (out[0].count, out[0].u, out[0].high),
            (Some(7.0), None, None)
        );
    }

    #[test]
    fn virtual_counters_and_metrics_too() {
        let energy = |v: f64| VirtualCount {
            counter: "energy",
            of: "machine".into(),
            value: Some(v),
            unit: "J",
            source: "board".into(),
            readings: None,
            u: None,
            factor: None,
        };
        let factor = |value: Option<f64>, on: &str| VirtualCount {
            counter: "sf",
            unit: "ratio",
            value,
            u: value.map(|_| 0.3),
            factor: Some(FactorCount {
                row: Row::default(),
                core_type: "big".into(),
                on: Some(on.into()),
                estimates: value.map_or(0, |_| 5),
                extrapolated: 0,
                coverage: Some(0.5),
                why: value.is_none().then(|| "too short".into()),
            }),
            ..energy(0.0)
        };
        let out = means_of_virtuals(&[
            vec![factor(None, "big"), factor(Some(9.0), "little")],
            vec![factor(Some(2.0), "big")],
            vec![factor(Some(2.8), "big")],
        ]);
        let of = |v: &VirtualCount| {
            let f = v.factor.as_ref().unwrap();
            (f.estimates, f.coverage, f.why.clone())
        };
        assert_eq!((out.len(), out[0].value), (2, Some(2.4)));
        // the scatter is 0.4, and what the model states does not get less
        assert!((out[0].u.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(of(&out[0]), (10, Some(0.5), None));
        assert_eq!((out[1].value, out[1].u), (Some(9.0), Some(0.3)));
        let none = means_of_virtuals(&[vec![factor(None, "big")], vec![factor(None, "big")]]);
        assert_eq!((none[0].value, none[0].u), (None, None));
        assert_eq!(of(&none[0]).2.as_deref(), Some("too short"));
        let out = means_of_virtuals(&[vec![energy(2.0)], vec![energy(4.0)]]);
        assert_eq!((out[0].value, out[0].u), (Some(3.0), Some(1.0)));
        let ipc = |v: Option<f64>| Derived {
            metric: "ipc".into(),
            formula: "i/c".into(),
            pmu: Some("p".into()),
            core_type: None,
            row: Row::default(),
            unit: None,
            value: v,
            u: Some(0.0),
            u_of_events: Some(0.0),
            threshold: None,
            not_supported: vec![],
        };
        let out = means_of_metrics(&[vec![ipc(Some(1.0))], vec![ipc(Some(1.2))], vec![ipc(None)]]);
        assert!((out[0].value.unwrap() - 1.1).abs() < 1e-12);
        assert!((out[0].u.unwrap() - 0.1).abs() < 1e-12);
    }
}
