//! What the report says in words, alike in text and on the page.

use crate::contender::PINNED;
use crate::evaluation::{BenchReport, WorkFrom};
use amp_sched::policy::BASELINE;

/// Where the speedup factors were from.
pub fn source(report: &BenchReport) -> String {
    let provider = report.provider.as_str();
    let ours = report.on == "sim" && provider.starts_with("true");
    // `true` or `true(…)`, and what else there is: `, eqp: ipc-sampling`
    let end = match (ours, provider.find(')')) {
        (true, Some(end)) if provider.starts_with("true(") => end + 1,
        (true, _) => "true".len(),
        (false, _) => return provider.to_owned(),
    };
    let (truth, rest) = provider.split_at(end);
    format!("true values of the phase (provider `{truth}`){rest}")
}

/// Whether what is called the baseline is only a stand-in for the kernel's scheduler.
pub fn is_stand_in(report: &BenchReport) -> bool {
    report.on == "sim" && report.results.iter().any(|r| r.policy == BASELINE)
}

/// What there is to know about the simulator's baseline, where the report has one.
pub fn stand_in(report: &BenchReport) -> Option<String> {
    is_stand_in(report).then(|| {
        format!(
            "{BASELINE} is a stand-in here: a fair scheduler that does not know core types. How the kernel's own \
             does is measured on the board or on a host."
        )
    })
}

/// What the steady-state prediction is, where the report has one.
pub fn prediction(report: &BenchReport) -> Option<&'static str> {
    let any = report.results.iter().any(|r| r.oracle.is_some());
    any.then_some(
        "steady-state prediction: single-threaded programs of constant speedup factors, as measured alone, without \
         overheads; a policy that follows phases can exceed it.",
    )
}

/// A line on every contender without figures: why it has none.
pub fn failures(report: &BenchReport) -> impl Iterator<Item = String> + '_ {
    report
        .failed
        .iter()
        .map(|f| format!("{} failed in run {}: {}", f.policy, f.run, f.why))
}

/// Which placement by pinned threads was the best, and what there was to win.
pub fn pinned(report: &BenchReport) -> Option<String> {
    let pinned = report.results.iter().find_map(|r| r.pinned.as_ref())?;
    // the rest is on the slowest type, and programs that were left free anywhere
    let types = report.machine.core_types.len().max(2) - 1;
    let on = |t: usize| {
        let name = report.machine.core_type_name(t);
        let apps = pinned.placement.iter().filter(|(_, t)| **t == name);
        let apps: Vec<&str> = apps.map(|(app, _)| app.as_str()).collect();
        format!("{} on {name}", apps.join(", "))
    };
    let how = match pinned.asp_of_best_and_worst {
        Some((best, worst)) => format!(
            "the best of {} placements, tried once each{}: ASP from {worst:.3} to {best:.3}",
            pinned.tried,
            match pinned.runs_of_best {
                0 | 1 => String::new(),
                n => format!(", the best ones {n} times"),
            }
        ),
        None => "chosen by speedup factors: there are too many placements to try".to_owned(),
    };
    let on: Vec<String> = (0..types).map(on).collect();
    Some(format!("{PINNED}: {}; {how}.", on.join("; ")))
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What ± leaves out, where programs ran alone once and the mix more often.
pub fn alone_once(report: &BenchReport) -> Option<&'static str> {
    let repeated = report.results.iter().filter(|r| r.runs.len() > 1);
    let mut apps = repeated.flat_map(|r| &r.apps);
    apps.any(|a| a.ct_slow_u.is_none() || a.ct_fast_u.is_none())
        .then_some("Programs ran alone once: ± leaves out what those times are uncertain by.")
}

/// What the work of passes that the end of a run cut off is known from.
pub fn work(report: &BenchReport) -> Option<&'static str> {
    let from = report.results.iter().find_map(|r| r.work_from)?;
    Some(match from {
        WorkFrom::Instructions => {
            "Unfinished passes count by their own instructions, and the time that these take alone on slow cores."
        },
        WorkFrom::Time => {
            "Unfinished passes count by their CPU time per core type: no instructions were counted per program."
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_does_not_read_as_a_boolean() {
        let report = |on: &str, provider: &str| BenchReport {
            workload: "w".into(),
            machine: Default::default(),
            on: on.into(),
            provider: provider.into(),
            environment: Default::default(),
            results: Vec::new(),
            failed: Vec::new(),
        };
        for (on, provider, wanted) in [
            ("sim", "true", "true values of the phase (provider `true`)"),
            (
                "sim",
                "true, eqp: ipc-sampling",
                "true values of the phase (provider `true`), eqp: ipc-sampling",
            ),
            (
                "sim",
                "true(sigma=0.1, latency=2)",
                "true values of the phase (provider `true(sigma=0.1, latency=2)`)",
            ),
            ("sim", "average", "average"),
            ("board", "declared", "declared"),
        ] {
            assert_eq!(source(&report(on, provider)), wanted);
        }
    }
}
