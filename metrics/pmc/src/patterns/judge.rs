//! From counts to verdicts. Knows nothing of how they were counted.

use super::signatures::{Role, Signatures};
use serde::Serialize;

/// What a thread did on a core type in one interval, or in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ThreadCounts {
    /// CPU time on that core type.
    pub seconds: f64,
    /// Instructions.
    pub instructions: f64,
    /// Cycles.
    pub cycles: f64,
    /// Bytes to and from memory; `None` where the PMU has no event, as below.
    pub bytes: Option<f64>,
    /// Work that a waiting thread does not do.
    pub useful: Option<f64>,
    /// Lines into L1D.
    pub refills: Option<f64>,
    /// Lines that other cores had or took.
    pub shared: Option<f64>,
}

/// Bytes of a line.
const LINE: f64 = 64.0;
/// Part of all instructions below which threads were on a core type in passing.
const VISIT: f64 = 0.05;
/// Useful operations or refills per instruction from which on they are what a program is about.
const ABOUT: f64 = 0.005;

impl ThreadCounts {
    /// Adds a count of `role`.
    pub fn add(&mut self, role: Role, n: f64) {
        let more = |to: &mut Option<f64>, n: f64| *to = Some(to.unwrap_or(0.0) + n);
        match role {
            Role::Instructions => self.instructions += n,
            Role::Cycles => self.cycles += n,
            Role::Lines => more(&mut self.bytes, LINE * n),
            Role::Useful => more(&mut self.useful, n),
            Role::Refills => more(&mut self.refills, n),
            Role::Shared => more(&mut self.shared, n),
        }
    }

    /// Adds all of `o`.
    pub fn join(&mut self, o: &ThreadCounts) {
        self.seconds += o.seconds;
        self.instructions += o.instructions;
        self.cycles += o.cycles;
        let join = |to: &mut Option<f64>, o: Option<f64>| {
            if let Some(o) = o {
                *to = Some(to.unwrap_or(0.0) + o);
            }
        };
        join(&mut self.bytes, o.bytes);
        join(&mut self.useful, o.useful);
        join(&mut self.refills, o.refills);
        join(&mut self.shared, o.shared);
    }
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// CPU time, counted or not, seconds.
    pub cpu_s: f64,
    /// Part of that which was counted: threads are found a little after they start.
    pub coverage: f64,
    /// By core type, in the order of the machine's.
    pub on: Vec<ThreadCounts>,
}

impl Thread {
    fn all(&self) -> ThreadCounts {
        let mut sum = ThreadCounts::default();
        self.on.iter().for_each(|c| sum.join(c));
        sum
    }
}

/// An interval: all threads together, by core type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Its length.
    pub seconds: f64,
    /// Counts by core type.
    pub on: Vec<ThreadCounts>,
    /// Threads that ran for a good part of it.
    pub running: usize,
}

/// The rate that memory can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attainable {
    /// Bytes per second.
    pub rate: f64,
    /// Standard uncertainty; `None` when it was given, not measured.
    pub u: Option<f64>,
}

/// Whether a program has a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The program has the pattern.
    Present,
    /// The program does not have the pattern.
    Absent,
    /// Nobody can tell: something was not counted.
    Unknown,
}

/// A figure that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The name of the figure.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Standard uncertainty; `None` when unknown.
    pub u: Option<f64>,
    /// From where on the pattern is there, for the figure that decides.
    pub threshold: Option<f64>,
}

/// The finding about a pattern.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub pattern: &'static str,
    /// Whether it is there.
    pub verdict: Verdict,
    /// The reason of the verdict.
    pub because: String,
    /// What that rests on, the deciding one first.
    pub figures: Vec<Figure>,
    /// How far the signature can be trusted.
    pub reliability: String,
}

fn figure(what: impl Into<String>, value: f64, u: Option<f64>, threshold: Option<f64>) -> Figure {
    Figure {
        what: what.into(),
        value,
        u,
        threshold,
    }
}

/// Mean and its standard uncertainty.
pub fn mean(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let m = values.iter().sum::<f64>() / n.max(1.0);
    let square: f64 = values.iter().map(|v| (v - m).powi(2)).sum();
    (m, (n > 1.0).then(|| (square / (n * (n - 1.0))).sqrt()))
}

/// Whether memory is the bottleneck.
pub fn bandwidth(s: &Signatures, all: &[Interval], attainable: Option<Attainable>) -> Finding {
    let limits = &s.bandwidth;
    let mut f = Finding {
        pattern: "bandwidth saturation",
        verdict: Verdict::Unknown,
        because: String::new(),
        figures: Vec::new(),
        reliability: limits.reliability.clone(),
    };
    let bytes = |i: &Interval| -> Option<f64> {
        let worked = i.on.iter().filter(|c| c.seconds > 0.0);
        worked.map(|c| c.bytes).sum()
    };
    let rates: Option<Vec<(f64, f64)>> = all
        .iter()
        .map(|i| Some((i.seconds, bytes(i)? / i.seconds)))
        .collect();
    let Some(rates) = rates.filter(|r| !r.is_empty()) else {
        f.because =
            "no event counts lines to and from memory on every core type that was used".into();
        return f;
    };
    let Some(top) = attainable else {
        f.because = "what memory can do was neither measured nor given (--attainable)".into();
        return f;
    };
    let time: f64 = rates.iter().map(|(s, _)| s).sum();
    let high: Vec<(f64, f64)> = rates
        .iter()
        .filter(|(_, r)| *r >= limits.saturated * top.rate)
        .copied()
        .collect();
    // (an empty sum is -0)
    let part = (high.iter().map(|(s, _)| s).sum::<f64>() / time).abs();
    let of = |r: &[(f64, f64)]| mean(&r.iter().map(|(_, r)| r / top.rate).collect::<Vec<_>>());
    let present = part >= limits.for_part;
    f.verdict = if present {
        Verdict::Present
    } else {
        Verdict::Absent
    };
    let (most, u) = of(if present { &high } else { &rates });
    let relative = top.u.map(|u| u / top.rate);
    let u = u.map(|u| u.hypot(most * relative.unwrap_or(0.0)));
    f.because = format!(
        "{} of the attainable rate or more for {:.0} % of the time",
        limits.saturated,
        100.0 * part
    );
    f.figures = vec![
        figure(
            if present {
                "rate while saturated / attainable"
            } else {
                "mean rate / attainable"
            },
            most,
            u,
            Some(limits.saturated),
        ),
        figure("part of the time", part, None, Some(limits.for_part)),
        figure("attainable rate, bytes/s", top.rate, top.u, None),
    ];
    f
}

/// Most over mean, less 1, and how far what was not counted could move it.
fn spread(values: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let mean = values.iter().map(|(v, _)| v).sum::<f64>() / n;
    let most = values.iter().map(|(v, _)| *v).fold(0.0, f64::max);
    let missed = values
        .iter()
        .map(|(v, c)| v * (1.0 - c))
        .fold(0.0, f64::max);
    (mean > 0.0).then(|| (most / mean - 1.0, missed / mean))
}

/// Whether threads have unequal work.
pub fn imbalance(s: &Signatures, threads: &[Thread]) -> Finding {
    let limits = &s.imbalance;
    let mut f = Finding {
        pattern: "load imbalance",
        verdict: Verdict::Unknown,
        because: String::new(),
        figures: Vec::new(),
        reliability: limits.reliability.clone(),
    };
    let busiest = threads.iter().map(|t| t.cpu_s).fold(0.0, f64::max);
    let workers: Vec<(&Thread, ThreadCounts)> = threads
        .iter()
        .filter(|t| t.cpu_s > limits.negligible * busiest)
        .map(|t| (t, t.all()))
        .collect();
    if workers.len() < 2 {
        f.verdict = Verdict::Absent;
        f.because = "one thread does the work".into();
        f.figures = vec![figure(
            "working threads",
            workers.len() as f64,
            None,
            Some(2.0),
        )];
        return f;
    }
    let instructions: f64 = workers.iter().map(|(_, c)| c.instructions).sum();
    let by = |get: fn(&ThreadCounts) -> Option<f64>| -> Option<Vec<(f64, f64)>> {
        workers
            .iter()
            .map(|(t, c)| Some((get(c)?, t.coverage)))
            .collect()
    };
    let worth = |v: &Vec<(f64, f64)>| v.iter().map(|(v, _)| v).sum::<f64>() >= ABOUT * instructions;
    // what waits asleep shows in time; what spins, in work
    let useful = by(|c| c.useful).filter(worth);
    // lines that others took away come back without any work
    let refills = by(|c| Some((c.refills? - c.shared.unwrap_or(0.0)).max(0.0))).filter(worth);
    let executed: Vec<_> = workers
        .iter()
        .map(|(t, c)| (c.instructions, t.coverage))
        .collect();
    let time: Vec<_> = workers.iter().map(|(t, _)| (t.cpu_s, 1.0)).collect();
    let (what, deciding) = match (&useful, &refills) {
        (Some(v), _) => ("useful operations", v),
        (None, Some(v)) => ("lines into L1D", v),
        (None, None) => ("instructions", &executed),
    };
    let Some((most, u)) = spread(deciding) else {
        f.because = "nothing was counted".into();
        return f;
    };
    let present = most >= limits.at_least;
    f.verdict = if present {
        Verdict::Present
    } else {
        Verdict::Absent
    };
    f.because = format!(
        "by {what}, the busiest of {} threads does {:.0} % more than the mean",
        workers.len(),
        100.0 * most
    );
    f.figures.push(figure(
        format!("{what}, most / mean - 1"),
        most,
        Some(u),
        Some(limits.at_least),
    ));
    for (name, values) in [
        ("instructions", Some(&executed)),
        ("lines into L1D", refills.as_ref()),
        ("CPU time", Some(&time)),
    ] {
        if let Some((value, u)) = values.filter(|_| name != what).and_then(|v| spread(v)) {
            f.figures.push(figure(
                format!("{name}, most / mean - 1"),
                value,
                Some(u),
                None,
            ));
        }
    }
    f
}

/// Whether lines go to and fro between cores. `names` are those of the core types.
pub fn sharing(s: &Signatures, all: &[Interval], names: &[String]) -> Finding {
    let limits = &s.sharing;
    let mut f = Finding {
        pattern: "false sharing",
        verdict: Verdict::Unknown,
        because: "no event counts lines that other cores had, on the core types that were used"
            .into(),
        figures: Vec::new(),
        reliability: limits.reliability.clone(),
    };
    let mut worst: Option<Figure> = None;
    let on_all = all.iter().flat_map(|i| &i.on);
    let executed: f64 = on_all.map(|c| c.instructions).sum();
    for (t, name) in names.iter().enumerate() {
        let on: Vec<&ThreadCounts> = all.iter().filter_map(|i| i.on.get(t)).collect();
        let mut sum = ThreadCounts::default();
        on.iter().for_each(|c| sum.join(c));
        let Some(shared) = sum.shared.filter(|_| sum.instructions > VISIT * executed) else {
            continue;
        };
        // intervals without instructions say nothing
        let each: Vec<f64> = on
            .iter()
            .filter(|c| c.instructions > 0.01 * sum.instructions / on.len() as f64)
            .filter_map(|c| Some(1000.0 * c.shared? / c.instructions))
            .collect();
        let per_1000 = 1000.0 * shared / sum.instructions;
        let what = format!("shared lines per 1000 instructions on {name}");
        let next = figure(what, per_1000, mean(&each).1, Some(limits.per_1000));
        if worst.as_ref().is_none_or(|w| next.value > w.value) {
            f.figures.insert(0, next.clone());
            worst = Some(next);
        } else {
            f.figures.push(next);
        }
    }
    if let Some(w) = worst {
        let present = w.value >= limits.per_1000;
        f.verdict = if present {
            Verdict::Present
        } else {
            Verdict::Absent
        };
        f.because = format!("{:.2} {}", w.value, w.what);
    }
    f
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
