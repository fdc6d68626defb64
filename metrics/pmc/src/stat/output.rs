//! What `pmc stat` prints.

use crate::counting::{Count, Derived, Missed, Row, Window, LEVEL};
use crate::factors::FactorCount;
use crate::trust::Trusted;
use crate::virtuals::VirtualCount;
use amp_metrics::trust::Verdict;
use serde::Serialize;
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object, Rows};
use tabled::settings::{Alignment, Padding, Style};

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Table,
    /// Values separated by commas.
    Csv,
}

/// How sets take turns.
#[derive(Debug, Serialize)]
pub struct Multiplexing {
    /// Which set is next.
    pub strategy: &'static str,
    /// How many are on at the same time.
    pub at_once: usize,
    /// Time for which each set is on.
    pub interval_ms: u64,
    /// Part by which turns differ from that at most; the first ones are shorter. `None` when all
    /// are alike.
    pub spread: Option<f64>,
    /// Number of turns.
    pub turns: u64,
}

/// What is known of a command that ran several times.
#[derive(Debug, Serialize)]
pub struct Repeated {
    /// Number of runs.
    pub runs: usize,
    /// Standard uncertainty of `elapsed_s`, which is a mean then.
    pub elapsed_u: Option<f64>,
    /// Counts of each run.
    pub counts: Vec<Vec<Count>>,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command that was counted, or during which the machine was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The process that was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Whether everything on every CPU was counted.
    pub system_wide: bool,
    /// Seconds from start to end.
    pub elapsed_s: f64,
    /// The sets as they were written.
    pub sets: Vec<String>,
    /// How they took turns; `None` for a single one.
    pub multiplexing: Option<Multiplexing>,
    /// Counts of the whole run.
    pub counts: Vec<Count>,
    /// Metrics of the whole run.
    pub metrics: Vec<Derived>,
    /// Virtual counters over the whole run; empty where none is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_counters: Vec<VirtualCount>,
    /// Instructions in a window, where counts are of windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// What windows by overflow have missed; `None` where they are not cut so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Missed>,
    /// That counts and metrics are means over runs of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
    /// Counts of each interval, or of each window of instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Vec<Window>>,
}

/// What stands for the count of an event that nothing counts here, as perf writes it.
const NOT_SUPPORTED: &str = "<not supported>";

/// A field of CSV, quoted where it must be.
fn field(s: &str) -> String {
    if s.contains([',', '"', '\n']) {
        format!("\"{}\"", s.replace('"', "\"\""))
    } else {
        s.to_owned()
    }
}

fn maybe<T: ToString>(v: Option<T>) -> String {
    v.map_or_else(String::new, |v| v.to_string())
}

/// A count with its thousands apart.
fn grouped(v: f64) -> String {
    let digits = format!("{:.0}", v.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if v < 0.0 {
        out.insert(0, '-');
    }
    out
}

/// A count; a mean of few is not a whole number.
fn mean_or_count(v: f64) -> String {
    match v.abs() < 1000.0 && (v - v.round()).abs() > 1e-6 {
        true => format!("{v:.2}"),
        false => grouped(v),
    }
}

/// Where it was counted.
fn place(pmu: Option<&String>, core_type: Option<&str>, row: &Row) -> String {
    row.named(&match (pmu, core_type) {
        (Some(pmu), Some(t)) => format!("{t} ({pmu})"),
        (Some(pmu), None) => pmu.clone(),
        (None, _) => "no PMU".to_owned(),
    })
}

/// The name of a PMU as a field of CSV.
fn pmu_field(pmu: Option<&String>) -> String {
    pmu.map_or_else(String::new, |p| field(p))
}

/// The line above the intervals.
pub fn window_head(format: Format) -> String {
    match format {
        Format::Csv => "time_s,set,cpu,pmu,core_type,event,count,seconds,thread\n".into(),
        Format::Table => format!("{:>12} {:>16}  event\n", "time (s)", "count"),
    }
}

/// One interval.
pub fn window(w: &Window, format: Format) -> String {
    let mut out = String::new();
    for c in &w.counts {
        let _ = match format {
            Format::Csv => writeln!(
                out,
                "{:.6},{},{},{},{},{},{},{},{}",
                w.at_s,
                w.set,
                maybe(c.row.cpu),
                pmu_field(c.pmu.as_ref()),
                field(c.core_type.as_deref().unwrap_or_default()),
                field(&c.event),
                c.count
                    .map_or_else(|| NOT_SUPPORTED.into(), |n| n.to_string()),
                maybe(c.count.map(|_| format!("{:.6}", c.seconds))),
                field(c.row.thread.as_deref().unwrap_or_default())
            ),
            Format::Table => writeln!(
                out,
                "{:>12.6} {:>16}  {} on {} (set {})",
                w.at_s,
                c.count
                    .map_or_else(|| NOT_SUPPORTED.into(), |n| grouped(n as f64)),
                c.event,
                place(c.pmu.as_ref(), c.core_type.as_deref(), &c.row),
                w.set
            ),
        };
    }
    for v in &w.virtual_counters {
        let _ = match format {
            // beside events: of no set, by no PMU
            Format::Csv => writeln!(
                out,
                "{:.6},,,{},{},{},{},,{}",
                w.at_s,
                field(&v.source),
                field(measured_on(v)),
                field(&counter(v)),
                maybe(v.value),
                field(thread(v))
            ),
            Format::Table => writeln!(
                out,
                "{:>12.6} {:>16}  {} in {} of {} ({})",
                w.at_s,
                virtual_value(v),
                counter(v),
                v.unit,
                subject(v),
                v.source
            ),
        };
    }
    out
}

/// Joules with six digits, factors with three, bytes with their thousands apart.
fn virtual_value(v: &VirtualCount) -> String {
    v.value.map_or_else(|| "-".into(), |x| of_unit(x, v.unit))
}

fn of_unit(value: f64, unit: &str) -> String {
    match unit {
        "J" => format!("{value:.6}"),
        "ratio" => format!("{value:.3}"),
        _ => grouped(value),
    }
}

/// The counter; of a factor with the core type that it is of.
fn counter(v: &VirtualCount) -> String {
    match &v.factor {
        Some(f) => format!("{} of {}", v.counter, f.core_type),
        None => v.counter.to_owned(),
    }
}

/// What a counter is of; a factor's with the core type that it is estimated on.
fn subject(v: &VirtualCount) -> String {
    match v.factor.as_ref().and_then(|f| f.on.as_ref()) {
        Some(on) => format!("{} on {on}", v.of),
        None => v.of.clone(),
    }
}

/// The core type of a factor's counters, or what else a counter is of.
fn measured_on(v: &VirtualCount) -> &str {
    match &v.factor {
        Some(f) => f.on.as_deref().unwrap_or_default(),
        None => &v.of,
    }
}

/// The thread of a factor, where it is one's.
fn thread(v: &VirtualCount) -> &str {
    let factor = v.factor.as_ref();
    factor
        .and_then(|f| f.row.thread.as_deref())
        .unwrap_or_default()
}

/// The result.
pub fn report(r: &Report, format: Format) -> String {
    match format {
        Format::Csv => csv(r),
        Format::Table => table(r),
    }
}

fn csv(r: &Report) -> String {
    let mut out = String::from(
        "count,low,high,coverage,event,pmu,core_type,cpu,set,seconds,windows,counted,thread\n",
    );
    for c in &r.counts {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{}",
            match c.supported {
                true => maybe(c.count.map(|v| format!("{v:.0}"))),
                false => NOT_SUPPORTED.to_owned(),
            },
            maybe(c.low.map(|v| format!("{v:.0}"))),
            maybe(c.high.map(|v| format!("{v:.0}"))),
            maybe(c.coverage.map(|v| format!("{v:.4}"))),
            field(&c.event),
            pmu_field(c.pmu.as_ref()),
            field(c.core_type.as_deref().unwrap_or_default()),
            maybe(c.row.cpu),
            c.set,
            maybe(c.supported.then(|| format!("{:.6}", c.seconds))),
            maybe(c.supported.then_some(c.windows)),
            maybe(c.counted),
            field(c.row.thread.as_deref().unwrap_or_default())
        );
    }
    // only vendors' metrics have the last two columns
    let vendors = r
        .metrics
        .iter()
        .any(|m| m.unit.is_some() || m.threshold.is_some());
    if !r.metrics.is_empty() {
        out += "\nvalue,u,metric,pmu,core_type,cpu,thread";
        out += if vendors { ",unit,exceeded\n" } else { "\n" };
    }
    for m in &r.metrics {
        let _ = write!(
            out,
            "{},{},{},{},{},{},{}",
            match m.not_supported.is_empty() {
                true => maybe(m.value),
                false => NOT_SUPPORTED.to_owned(),
            },
            maybe(m.u),
            field(&m.metric),
            pmu_field(m.pmu.as_ref()),
            field(m.core_type.as_deref().unwrap_or_default()),
            maybe(m.row.cpu),
            field(m.row.thread.as_deref().unwrap_or_default())
        );
        if vendors {
            let unit = field(m.unit.as_deref().unwrap_or_default());
            let exceeded = maybe(m.threshold.as_ref().map(|t| t.exceeded));
            let _ = write!(out, ",{unit},{exceeded}");
        }
        out.push('\n');
    }
    if !r.virtual_counters.is_empty() {
        out += "\nvalue,counter,unit,of,source,u,core_type,estimates,coverage,remark\n";
    }
    for v in &r.virtual_counters {
        let factor = v.factor.as_ref();
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{}",
            maybe(v.value),
            field(&counter(v)),
            v.unit,
            field(&v.of),
            field(&v.source),
            maybe(v.u),
            field(factor.and_then(|f| f.on.as_deref()).unwrap_or_default()),
            maybe(factor.map(|f| f.estimates)),
            maybe(factor.and_then(|f| f.coverage).map(|c| format!("{c:.4}"))),
            field(factor.and_then(|f| f.why.as_deref()).unwrap_or_default())
        );
    }
    out
}

fn remark(c: &Count, repeated: bool) -> String {
    if !c.supported {
        return match &c.pmu {
            Some(_) => "the PMU does not count it".into(),
            None => "this machine has no PMU that counts what cores do".into(),
        };
    }
    let how = match repeated {
        true => scattered(c),
        false => extrapolated(c),
    };
    let own = c.trusted.as_ref().and_then(of_the_event);
    let parts = [Some(how), own].into_iter().flatten();
    let parts: Vec<String> = parts.filter(|p| !p.is_empty()).collect();
    parts.join("; ")
}

/// What the trust file says of an event that is not exact.
fn of_the_event(t: &Trusted) -> Option<String> {
    match t.verdict {
        Verdict::Exact => None,
        Verdict::Broken => Some("broken, says the trust file".to_owned()),
        Verdict::Usable | Verdict::Qualitative => Some(format!(
            "{}: the event itself is off by {:+.1} to {:+.1} %",
            t.verdict.name(),
            t.error_min * 100.0,
            t.error_max * 100.0
        )),
    }
}

/// What is known of a mean over runs.
fn scattered(c: &Count) -> String {
    if c.count.is_none() || c.coverage.is_none() {
        return extrapolated(c);
    }
    let mut out = match (c.count, c.u) {
        (Some(v), Some(u)) if v > 0.0 => format!("± {:.3} %", u / v * 100.0),
        (Some(_), Some(u)) => format!("± {}", grouped(u)),
        _ => "± unknown".into(),
    };
    if let Some(part) = c.coverage.filter(|part| *part <= 1.0 - 1e-9) {
        let _ = write!(out, ", counted {:.1} % of the time", part * 100.0);
    }
    out
}

/// Why a metric has no value.
fn without(events: &[String]) -> String {
    let names: Vec<String> = events.iter().map(|e| format!("`{e}`")).collect();
    format!("no value without {}", names.join(", "))
}

fn extrapolated(c: &Count) -> String {
    let Some(coverage) = c.coverage else {
        return "never ran here".into();
    };
    if coverage > 1.0 - 1e-9 {
        return String::new();
    }
    let half = match (c.count, c.low, c.high) {
        (Some(v), Some(low), Some(high)) if v > 0.0 => {
            format!("± {:.2} %", (high - v).max(v - low) / v * 100.0)
        }
        (Some(_), _, Some(high)) => format!("up to {high:.0}"),
        _ => "± unknown".into(),
    };
    format!("{half}, counted {:.1} % of the time", coverage * 100.0)
}

fn table(r: &Report) -> String {
    let mut out = String::from("\n Counts ");
    let _ = match (&r.command, r.pid) {
        (Some(c), _) if r.system_wide => {
            writeln!(out, "of the whole machine during `{}`", c.join(" "))
        }
        (Some(c), _) => writeln!(out, "of `{}`", c.join(" ")),
        (None, Some(pid)) => writeln!(out, "of process {pid}"),
        (None, None) => writeln!(out, "of the whole machine"),
    };
    if let Some(m) = &r.multiplexing {
        let _ = writeln!(
            out,
            " {} sets by turns ({}{}, each for {} ms{}, {} turns){}",
            r.sets.len(),
            m.strategy,
            match m.at_once {
                0 | 1 => String::new(),
                n => format!(", {n} at once"),
            },
            m.interval_ms,
            m.spread
                .map_or_else(String::new, |s| format!(" ± {:.0} %", s * 100.0)),
            m.turns,
            match r.repeated {
                Some(_) => String::new(),
                None => format!("; ± is the {:.0} % interval", LEVEL * 100.0),
            }
        );
        for (i, s) in r.sets.iter().enumerate() {
            let _ = writeln!(out, "   set {}: {s}", i + 1);
        }
    }
    if let Some(repeated) = &r.repeated {
        let _ = writeln!(
            out,
            " mean of {} runs; ± is the standard uncertainty of the mean",
            repeated.runs
        );
    }
    out.push('\n');
    let mut rows = Builder::default();
    for c in &r.counts {
        let mut event = c.event.clone();
        if r.sets.len() > 1 {
            let _ = write!(event, " [{}]", c.set);
        }
        rows.push_record([
            match c.supported {
                true => c.count.map_or_else(|| "not counted".into(), mean_or_count),
                false => NOT_SUPPORTED.to_owned(),
            },
            event,
            place(c.pmu.as_ref(), c.core_type.as_deref(), &c.row),
            remark(c, r.repeated.is_some()),
        ]);
    }
    for m in &r.metrics {
        let value = m.value.map_or_else(|| "-".into(), |v| format!("{v:.4}"));
        let u = m.u.filter(|u| *u > 0.0);
        let named = match &m.unit {
            Some(unit) => format!("{} ({unit})", m.metric),
            None => m.metric.clone(),
        };
        let how_good = match (m.value, u) {
            _ if !m.not_supported.is_empty() => without(&m.not_supported),
            (Some(_), Some(u)) => format!("± {u:.4} (standard uncertainty)"),
            (Some(_), None) if m.u.is_none() => "± unknown".into(),
            _ => String::new(),
        };
        let exceeded = m.threshold.as_ref().filter(|t| t.exceeded);
        let exceeded = exceeded.map(|t| format!("worth a look: {}", t.text));
        let remarks = [Some(how_good).filter(|t| !t.is_empty()), exceeded];
        let remarks: Vec<String> = remarks.into_iter().flatten().collect();
        rows.push_record([
            value,
            named,
            place(m.pmu.as_ref(), m.core_type.as_deref(), &m.row),
            remarks.join("; "),
        ]);
    }
    for v in &r.virtual_counters {
        rows.push_record([
            virtual_value(v),
            format!("{} ({})", counter(v), v.unit),
            subject(v),
            match (&v.factor, v.readings) {
                (Some(f), _) => estimated(v, f),
                (None, Some(n)) => format!("mean of {n} readings, {}{}", v.source, scatter(v)),
                (None, None) => format!("as {} says, whoever ran{}", v.source, scatter(v)),
            },
        ]);
    }
    let mut rows = rows.build();
    rows.with(Style::empty())
        .with(Padding::new(2, 0, 0, 0))
        .modify(
            Columns::first().intersect(Rows::new(..)),
            Alignment::right(),
        );
    for line in rows.to_string().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let u = r.repeated.as_ref().and_then(|r| r.elapsed_u);
    let u = u.map_or_else(String::new, |u| format!(" ± {u:.6}"));
    let _ = writeln!(out, "\n {:.6}{u} seconds elapsed\n", r.elapsed_s);
    out
}

fn scatter(v: &VirtualCount) -> String {
    let u = v.u.map(|u| format!(", ± {}", of_unit(u, v.unit)));
    u.unwrap_or_default()
}

/// What a factor rests on, or why there is none.
fn estimated(v: &VirtualCount, f: &FactorCount) -> String {
    if let Some(why) = &f.why {
        return why.clone();
    }
    let mut out = match v.u {
        Some(u) => format!("± {} (standard uncertainty)", of_unit(u, v.unit)),
        None => "± unknown".into(),
    };
    let _ = write!(out, ", {}: {} estimates", v.source, f.estimates);
    if let Some(part) = f.coverage {
        let _ = write!(out, " of {:.1} % of the time there", part * 100.0);
    }
    if f.extrapolated > 0 {
        let _ = write!(out, ", {} beyond the model's data", f.extrapolated);
    }
    out
}

#[cfg(test)]
mod tests;
