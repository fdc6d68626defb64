//! One self-contained page: no script, no external reference, readable in light and dark.

use crate::evaluation::BenchReport;
use crate::report::charts;
use crate::report::columns::{self, Chart, Column};
use crate::report::number::{measured, percent, rounded};
use crate::report::text::slowdown;
use crate::report::words;
use amp_charts::escape;
use amp_charts::page::{document, figure, header, keys, table};
use amp_sched::policy::BASELINE;

/// The result as an HTML page.
pub fn html(report: &BenchReport) -> String {
    let m = &report.machine;
    let title = format!("{} on {}", report.workload, m.name);
    let virtual_time = if report.environment.virtual_time {
        ", virtual time"
    } else {
        ""
    };
    let subtitle = format!(
        "{} cores, {}{virtual_time}; speedup factors: {}",
        words::list(&m.cores()),
        report.on,
        words::source(report)
    );
    let mut body = header(&title, &subtitle);
    body += &format!("<p class=\"lead\">{}</p>\n", escape(&summary(report)));
    for line in words::failures(report) {
        body += &format!("<p class=\"note\">{}</p>\n", escape(&line));
    }
    body += &aggregate(report);
    body += &slowdowns(report);
    body += &timelines(report);
    body += &tables(report);
    body += &environment(report);
    document(&format!("{title}: ASP and unfairness"), &body)
}

/// The result in a sentence or two.
fn summary(report: &BenchReport) -> String {
    let finite = || report.results.iter().filter(|r| r.asp.value.is_finite());
    let best = finite().max_by(|a, b| a.asp.value.total_cmp(&b.asp.value));
    let fairest = finite().min_by(|a, b| a.unfairness.value.total_cmp(&b.unfairness.value));
    let (Some(best), Some(fairest)) = (best, fairest) else {
        return "No policy has a result.".to_owned();
    };
    let baseline = finite().find(|r| r.policy == BASELINE && r.asp.value > 0.0);
    let against = match baseline {
        // the simulator's baseline is not the kernel's scheduler
        Some(b) if b.policy != best.policy && !words::is_stand_in(report) => {
            let gain = 100.0 * (best.asp.value / b.asp.value - 1.0);
            format!(", {gain:.0} % above {BASELINE}")
        }
        _ => String::new(),
    };
    format!(
        "Highest throughput: {} with an ASP of {}{against}. Fairest: {} with an unfairness of {}.",
        best.policy,
        measured(best.asp),
        fairest.policy,
        measured(fairest.unfairness)
    )
}

fn aggregate(report: &BenchReport) -> String {
    let charts: Vec<(&Column, &Chart)> = columns::known(report)
        .filter_map(|c| Some((c, c.chart.as_ref()?)))
        .collect();
    let (class, width) = match charts.len() {
        0..=2 => ("pair", 500.0),
        _ => ("three", 340.0),
    };
    let mut out = format!("<section class=\"bars {class}\">");
    for (column, chart) in charts {
        let words = column.better.words();
        let note = words.map_or_else(|| chart.note.to_owned(), |w| format!("{}; {w}", chart.note));
        let bars = charts::policy_bars(report, column, chart, width);
        out += &figure(chart.title, &note, &bars);
    }
    out += "</section><p class=\"note\">Whiskers: ± one standard uncertainty.";
    if let Some(prediction) = words::prediction(report) {
        out += " <span class=\"key\"><i class=\"diamond\"></i></span>";
        out += &escape(prediction);
    }
    for note in [words::alone_once(report), words::work(report)] {
        out.extend(note.map(|n| format!(" {n}")));
    }
    if let Some(note) = words::pinned(report) {
        out += "</p><p class=\"note\">";
        out += &escape(&note);
    }
    if let Some(note) = words::stand_in(report) {
        out += "</p><p class=\"note\">";
        out += &escape(&note);
    }
    out + "</p>\n"
}

fn policy_key(report: &BenchReport) -> String {
    let colours = (0..report.results.len()).map(|i| charts::colour(report, i));
    let colours: Vec<String> = colours.collect();
    let names = report.results.iter().map(|r| r.policy.as_str());
    keys(colours.iter().map(String::as_str).zip(names))
}

fn slowdowns(report: &BenchReport) -> String {
    let chart = policy_key(report) + &charts::slowdown_bars(report);
    let note = "completion time in the mix over that with the fast cores to itself; 1 is none";
    format!(
        "<section>{}</section>\n",
        figure("Slowdown per application", note, &chart)
    )
}

fn timelines(report: &BenchReport) -> String {
    let end = charts::timeline_end(report);
    if end <= 0.0 {
        return String::new();
    }
    let types = report
        .results
        .iter()
        .flat_map(|r| &r.timeline)
        .map(|e| e.core_type_share.len());
    let kinds = (0..types.max().unwrap_or(0))
        .map(|t| (format!("c{}", t.min(3)), report.machine.core_type_name(t)));
    let kinds: Vec<(String, String)> = kinds.collect();
    let legend = kinds.iter().map(|(c, n)| (c.as_str(), n.as_str()));
    let mut out = "<section><h2>Who was on which core type when</h2>".to_owned();
    out += &keys(legend.chain([("track", "not running")]));
    for r in report.results.iter().filter(|r| !r.timeline.is_empty()) {
        let swaps = r
            .swaps_per_s
            .map_or_else(String::new, |s| format!("{s:.2} swaps per second"));
        out += &figure(&r.policy, &swaps, &charts::timeline(report, r, end));
    }
    out + "</section>\n"
}

fn tables(report: &BenchReport) -> String {
    let results = &report.results;
    let (titles, rows) = columns::table(report, |_| true);
    let mut out = format!("<section><h2>Data</h2>{}", table(&titles, &rows));

    if let Some(first) = results.first() {
        let mut columns: Vec<String> = [
            "application",
            "weight",
            "alone, slow (s)",
            "alone, fast (s)",
            "SF",
        ]
        .map(str::to_owned)
        .to_vec();
        for r in results {
            columns.push(format!("slowdown, {}", r.policy));
            columns.push(format!("on big, {}", r.policy));
        }
        let rows: Vec<Vec<String>> = (0..first.apps.len())
            .map(|i| {
                let a = &first.apps[i];
                let mut row = vec![
                    a.name.clone(),
                    a.weight.to_string(),
                    rounded(a.ct_slow_s, 3),
                    rounded(a.ct_fast_s, 3),
                    rounded(a.ct_slow_s / a.ct_fast_s, 2),
                ];
                for r in results {
                    row.push(slowdown(r, i));
                    row.push(percent(r.apps.get(i).and_then(|a| a.big_time_share)));
                }
                row
            })
            .collect();
        out += &table(&columns, &rows);
    }
    out += "<details><summary>Completion times</summary>";
    let rows: Vec<Vec<String>> = results
        .iter()
        .flat_map(|r| r.apps.iter().map(move |a| (r, a)))
        .map(|(r, a)| {
            let run = |c: &Vec<f64>| {
                let times: Vec<String> = c.iter().map(|c| rounded(*c, 3)).collect();
                times.join(", ")
            };
            let runs: Vec<String> = a.completions_s.iter().map(run).collect();
            let shares = a.unfinished_share.iter().map(|s| percent(Some(*s)));
            vec![
                r.policy.clone(),
                a.name.clone(),
                rounded(a.ct_sched_s, 3),
                runs.join(" | "),
                shares.collect::<Vec<_>>().join(" | "),
            ]
        })
        .collect();
    let columns = [
        "policy",
        "application",
        "time per pass (s)",
        "completions, run by run (s)",
        "share of the pass cut off",
    ];
    out += &table(&columns.map(str::to_owned), &rows);
    out + "</details></section>\n"
}

fn environment(report: &BenchReport) -> String {
    let (m, e) = (&report.machine, &report.environment);
    let types: Vec<String> = if m.core_types.is_empty() {
        vec![format!("{} big", m.big), format!("{} small", m.small)]
    } else {
        m.core_types
            .iter()
            .map(|t| format!("{} {}", t.cpus, t.name))
            .collect()
    };
    let mut facts = vec![
        ("Workload".to_owned(), report.workload.clone()),
        (
            "Machine".to_owned(),
            format!("{} ({})", m.name, types.join(", ")),
        ),
        ("Ran on".to_owned(), report.on.clone()),
        ("Speedup factors".to_owned(), words::source(report)),
    ];
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(value.map(|v| (name.to_owned(), v)));
    };
    fact("Kernel", e.kernel.clone());
    fact("Clocks set by", e.governor.clone());
    fact("QEMU", e.qemu.clone());
    fact("Commit", e.commit.clone());
    fact("Seed", e.seed.map(|s| s.to_string()));
    for (name, value) in &e.more {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        fact(name, Some(text));
    }
    let list: String = facts
        .iter()
        .map(|(k, v)| format!("<dt>{}</dt><dd>{}</dd>", escape(k), escape(v)))
        .collect();
    let note = if e.virtual_time {
        "<p class=\"note\">All times are virtual: those of the modelled machine, not of the computer it was modelled on.</p>"
    } else {
        ""
    };
    format!("<section><h2>Environment</h2><dl>{list}</dl>{note}</section>\n")
}
