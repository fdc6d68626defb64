//! A status as OpenMetrics text.

use crate::statistics::{ProgramStatistics, Statistics};
use crate::status::Status;
use anyhow::Result;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// A gauge that takes fractions.
type Figure = Gauge<f64, AtomicU64>;
/// The same for each of several things.
type Figures = Family<Vec<(&'static str, String)>, Figure>;

/// The figures of a status.
///
/// # Errors
/// None that is known: the writer is a text in memory.
pub fn of(s: &Status) -> Result<String> {
    let mut all = Registry::with_prefix("scx_amp");
    let about = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("policy", &s.policy),
        ("profile", &s.profile),
        ("provider", &s.provider),
    ];
    let about = about.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    all.register("scheduler", "What schedules", Info::new(about));
    let seconds = |all: &mut Registry, name: &str, help: &str, value: f64| {
        let gauge = Figure::default();
        gauge.set(value);
        all.register_with_unit(name, help, Unit::Seconds, gauge);
    };
    seconds(
        &mut all,
        "uptime",
        "Time since the scheduler was attached",
        s.uptime_s,
    );
    if s.interval_ms > 0 {
        let interval = s.interval_ms as f64 / 1e3;
        seconds(&mut all, "interval", "Time between two decisions", interval);
    }
    if s.swap_latency_p50_us > 0.0 {
        seconds(
            &mut all,
            "swap_latency_median",
            "Median time from a decision to the thread running on its new core type",
            s.swap_latency_p50_us / 1e6,
        );
    }
    for (name, help, value) in [
        ("ticks", "Decisions", s.ticks),
        ("changes", "Changes of policy, knobs or provider", s.changes),
        (
            "swaps",
            "Threads moved between core types by the policy",
            s.swaps,
        ),
        (
            "probes",
            "Pairs of threads that changed places to be measured",
            s.probes,
        ),
        ("placements", "Placements that took effect", s.placements),
        (
            "fallbacks",
            "Times BPF shared fairly by itself because no tick came",
            s.fallbacks,
        ),
        (
            "untracked",
            "Threads that found the slot table full",
            s.untracked,
        ),
        (
            "unread",
            "Readings of hardware counters that failed",
            s.unread,
        ),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        all.register(name, help, counter);
    }
    let yes = |fine: bool| f64::from(u8::from(fine));
    for (name, help, value) in [
        ("threads", "Threads at the last tick", s.threads as f64),
        (
            "active_threads",
            "Threads offered to the policy at the last tick",
            s.active as f64,
        ),
        (
            "provider_working",
            "1 while the provider works, 0 when it has failed",
            yes(s.provider_failed.is_empty()),
        ),
        (
            "counting",
            "1 while all that should be counted is, else 0",
            yes(s.uncounted.is_empty()),
        ),
        (
            "rules_in_force",
            "1 while the file of rules as it is now holds, or there is none, else 0",
            yes(s.rules_failed.is_empty()),
        ),
    ] {
        let gauge = Figure::default();
        gauge.set(value);
        all.register(name, help, gauge);
    }
    let family = |all: &mut Registry, name: &str, help: &str| {
        let figures = Figures::default();
        all.register(name, help, figures.clone());
        figures
    };
    let cpus = family(&mut all, "cpus", "CPUs of a core type");
    let busy = family(
        &mut all,
        "busy_cpus",
        "CPUs of a core type with a thread on them at this moment",
    );
    let sums = Statistics::of(s);
    for (name, figures) in &sums.core_types {
        let label = vec![("core_type", name.clone())];
        cpus.get_or_create(&label).set(figures.cpus as f64);
        busy.get_or_create(&label).set(figures.busy as f64);
    }
    let knobs = family(&mut all, "knob", "Knobs that are numbers");
    for (name, value) in &s.knobs {
        if let Some(value) = value.parse().ok().filter(|v: &f64| v.is_finite()) {
            knobs
                .get_or_create(&vec![("knob", name.clone())])
                .set(value);
        }
    }
    let readings = family(
        &mut all,
        "virtual_counter",
        "Virtual counters of the machine, core types and CPUs over the last interval",
    );
    for (name, value) in &s.virtual_counters {
        readings
            .get_or_create(&vec![("counter", name.clone())])
            .set(*value);
    }
    programs(&mut all, &sums.programs);
    let mut text = String::new();
    encode(&mut text, &all)?;
    Ok(text)
}

fn programs(all: &mut Registry, programs: &BTreeMap<String, ProgramStatistics>) {
    type Value = fn(&ProgramStatistics) -> Option<f64>;
    let figures: [(&str, &str, Option<Unit>, Value); 5] = [
        ("program_threads", "Threads of this name that the policy places", None, |p| {
            Some(p.threads as f64)
        }),
        (
            "program_fast_threads",
            "Those of them that are placed on the fastest core type",
            None,
            |p| Some(p.fast_threads as f64),
        ),
        (
            "program_cpu",
            "CPU time of those threads since they were first seen",
            Some(Unit::Seconds),
            |p| Some(p.cpu_s),
        ),
        (
            "program_fast_cpu",
            "The part of it on the fastest core type",
            Some(Unit::Seconds),
            |p| Some(p.fast_cpu_s),
        ),
        (
            "program_slowdown",
            "CPU time over what the same work would have taken with the fast cores for the program alone; missing while not known",
            None,
            ProgramStatistics::slowdown,
        ),
    ];
    for (name, help, unit, value) in figures {
        let figures = Figures::default();
        for (program, sums) in programs {
            if let Some(value) = value(sums) {
                let label = vec![("program", program.clone())];
                figures.get_or_create(&label).set(value);
            }
        }
        match unit {
            Some(unit) => all.register_with_unit(name, help, unit, figures),
            None => all.register(name, help, figures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::MOST_PROGRAMS;
    use crate::status::{CpuStatus, ThreadStatus};
    use prometheus_parse::{Scrape, Value};
    use std::collections::BTreeSet;

    fn scraped(s: &Status) -> Scrape {
        let text = of(s).unwrap();
        let lines = text.lines().map(|l| Ok(l.to_owned()));
        Scrape::parse(lines).unwrap()
    }

    fn value(scrape: &Scrape, name: &str, label: Option<(&str, &str)>) -> Option<f64> {
        let of = scrape.samples.iter().filter(|s| s.metric == name);
        let mut fits = of.filter(|s| label.is_none_or(|(k, v)| s.labels.get(k) == Some(v)));
        let found = fits.next()?;
        assert!(fits.next().is_none(), "{name} twice");
        match found.value {
            Value::Gauge(v) | Value::Counter(v) | Value::Untyped(v) => Some(v),
            ref other => panic!("{other:?}"),
        }
    }

    fn thread(comm: &str, cpu_s: f64, fast: f64) -> ThreadStatus {
        ThreadStatus {
            comm: comm.into(),
            placed: "big".into(),
            cpu_s,
            big_time_share: fast,
            rated_s: cpu_s,
            alone_s: cpu_s / 2.0,
            ..ThreadStatus::default()
        }
    }

    fn sample() -> Status {
        let cpu = |cpu, core_type: &str, tid| CpuStatus {
            cpu,
            core_type: core_type.into(),
            tid,
            comm: String::new(),
        };
        Status {
            policy: "hsp".into(),
            uptime_s: 12.5,
            ticks: 125,
            swaps: 7,
            swap_latency_p50_us: 40.0,
            provider_failed: "gone".into(),
            knobs: [
                ("threshold".into(), "5".into()),
                ("utility".into(), "camp".into()),
            ]
            .into(),
            virtual_counters: [("energy_J big".into(), 0.25)].into(),
            core_types: vec!["big".into(), "little".into()],
            cpus: vec![cpu(0, "big", 7), cpu(1, "big", 0), cpu(2, "little", 8)],
            per_thread: vec![
                thread("a", 4.0, 0.25),
                thread("a", 2.0, 1.0),
                thread("b", 1.0, 0.0),
            ],
            ..Status::default()
        }
    }

    #[test]
    fn a_parser_of_prometheus_reads_what_the_status_says() {
        let scrape = scraped(&sample());
        let of = |name: &str| value(&scrape, name, None);
        assert_eq!(of("scx_amp_uptime_seconds"), Some(12.5));
        assert_eq!(of("scx_amp_ticks_total"), Some(125.0));
        assert_eq!(of("scx_amp_swaps_total"), Some(7.0));
        assert_eq!(of("scx_amp_swap_latency_median_seconds"), Some(40e-6));
        assert_eq!(of("scx_amp_provider_working"), Some(0.0));
        assert_eq!(of("scx_amp_counting"), Some(1.0));
        assert_eq!(
            value(&scrape, "scx_amp_scheduler_info", Some(("policy", "hsp"))),
            Some(1.0)
        );
        let core = |name: &str, t: &str| value(&scrape, name, Some(("core_type", t)));
        assert_eq!(core("scx_amp_cpus", "big"), Some(2.0));
        assert_eq!(core("scx_amp_busy_cpus", "big"), Some(1.0));
        assert_eq!(core("scx_amp_busy_cpus", "little"), Some(1.0));
        let knob = |name: &str| value(&scrape, "scx_amp_knob", Some(("knob", name)));
        assert_eq!((knob("threshold"), knob("utility")), (Some(5.0), None));
        assert_eq!(
            value(
                &scrape,
                "scx_amp_virtual_counter",
                Some(("counter", "energy_J big"))
            ),
            Some(0.25)
        );
        let program = |name: &str, p: &str| value(&scrape, name, Some(("program", p)));
        assert_eq!(program("scx_amp_program_threads", "a"), Some(2.0));
        assert_eq!(program("scx_amp_program_cpu_seconds", "a"), Some(6.0));
        assert_eq!(program("scx_amp_program_fast_cpu_seconds", "a"), Some(3.0));
        assert_eq!(program("scx_amp_program_slowdown", "b"), Some(2.0));
    }

    /// Names of metrics that the dashboard asks for.
    fn asked_for(dashboard: &str) -> BTreeSet<&str> {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = dashboard.match_indices("scx_amp_").map(|(at, _)| {
            let name = &dashboard[at..];
            &name[..name.find(|c| !part(c)).unwrap_or(name.len())]
        });
        names.collect()
    }

    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../dist/grafana/scx_amp.json"
        );
        // a package of this crate has none
        let Ok(dashboard) = std::fs::read_to_string(path) else {
            amp_skips::skip("a package has no dashboard");
            return;
        };
        serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
        let scrape = scraped(&sample());
        let there: BTreeSet<&str> = scrape.samples.iter().map(|s| s.metric.as_str()).collect();
        let asked = asked_for(&dashboard);
        assert!(asked.len() > 10, "{asked:?}");
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn foreign_names_stay_labels_and_are_bounded() {
        let names = ["x\"} 1\nevil 2", "back\\slash", "tab\tü"];
        let mut s = Status {
            per_thread: names.map(|n| thread(n, 9.0, 0.0)).to_vec(),
            ..Status::default()
        };
        let text = of(&s).unwrap();
        assert!(!text.lines().any(|l| l.starts_with("evil")), "{text}");
        let lines = |text: &str| {
            let of = text
                .lines()
                .filter(|l| l.starts_with("scx_amp_program_threads"));
            of.count()
        };
        assert_eq!(lines(&text), 3);
        s.per_thread = (0..500)
            .map(|i| thread(&format!("p{i}"), 1.0, 0.0))
            .collect();
        assert_eq!(lines(&of(&s).unwrap()), MOST_PROGRAMS);
    }
}
