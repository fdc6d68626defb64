//! `scx_amp pmc list`.

use super::derived::{self, Listed as Metric};
use super::describe::describe;
use super::groups;
use super::inventory::CounterInventory;
use amp_host::bad_input;
use amp_machine::CpuList;
use amp_metrics::event::closest;
use amp_metrics::group::{SOFTWARE, SOFTWARE_NAMES};
use amp_metrics::Pmu;
use anyhow::Result;
use clap::Args;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

/// Options of `scx_amp pmc list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only events and metrics whose name contains this (of metrics, or the name of a group), or
    /// matches it when there are `*` or `?` in it; upper and lower case are the same
    pattern: Option<String>,
    /// Write JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// An event.
#[derive(Debug, PartialEq, Serialize)]
struct EventRow {
    name: String,
    /// The terms that the name stands for.
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Factor and unit of one count (`64Bytes`).
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
    /// Whether the vendor has replaced it by another event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deprecated: bool,
}

/// A PMU.
#[derive(Debug, Serialize)]
struct PmuRow {
    pmu: String,
    #[serde(rename = "type")]
    type_: u32,
    /// Whether it counts what cores do.
    core: bool,
    core_types: Vec<String>,
    cpus: String,
    /// Counters that can be used at once, by trial.
    counters: Option<usize>,
    /// Why the number of counters is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters_unknown: Option<String>,
    /// Fields of its codes, and where their bits go.
    formats: Vec<String>,
    /// How many of all its events only the vendor's table names.
    from_table: usize,
    events: Vec<EventRow>,
    /// Derived metrics of the vendor's table; none of a PMU that counts no cores.
    metrics: Vec<Metric>,
}

/// The command.
///
/// # Errors
/// [`amp_host::BadInput`] when nothing matches, with the closest names.
pub fn main(args: &ListArgs) -> Result<ExitCode> {
    let inventory = CounterInventory::detect()?;
    let wanted = args.pattern.as_deref().map(matcher).transpose()?;
    let metrics = inventory.vendor_metrics()?;
    let row = |p: &Pmu| {
        let mut row = row(&inventory, p, wanted.as_ref());
        let of = metrics.iter().filter(|m| m.pmu == p.name);
        row.metrics = of.flat_map(|m| derived::listed(&inventory, m)).collect();
        if let Some(w) = &wanted {
            row.metrics.retain(|m| m.matches(&|name| w.is_match(name)));
        }
        row
    };
    let rows = inventory.pmus.iter().map(row);
    let rows: Vec<PmuRow> = rows
        .filter(|r| wanted.is_none() || !r.events.is_empty() || !r.metrics.is_empty())
        .collect();
    if let (Some(pattern), true) = (&args.pattern, rows.is_empty()) {
        let all = inventory.pmus.iter().flat_map(names);
        let events = all.map(|(name, _)| name.to_owned());
        let derived = metrics.iter().flat_map(|m| m.iter());
        let close = closest(pattern, events.chain(derived.map(|m| m.name.clone())));
        return Err(bad_input(format!(
            "no PMU here has an event or a metric like `{pattern}`{close}; `scx_amp pmc list` shows all"
        )));
    }
    match &args.json {
        Some(path) => {
            let list = serde_json::json!({ "pmus": rows, "groups": groups::shipped()? });
            let text = serde_json::to_string_pretty(&list)?;
            amp_host::write_out(path, &format!("{text}\n"))?;
        }
        None => {
            let mut out = text(&rows);
            if let Err(why) = inventory.need_pmu() {
                let _ = writeln!(
                    out,
                    "{why}. Hardware events (cycles, instructions, …) are <not supported> here"
                );
            }
            if wanted.is_none() {
                out += &groups::explained(&groups::shipped()?);
            }
            amp_host::write_out("-".as_ref(), &out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every event of a PMU with the terms it stands for. Those of the kernel itself are not in sysfs.
fn names(pmu: &Pmu) -> impl Iterator<Item = (&str, String)> {
    let own = pmu.names().map(|(n, code)| (n, code.to_owned()));
    let software = SOFTWARE_NAMES.iter().filter(|_| pmu.type_ == SOFTWARE);
    own.chain(software.map(|(n, config)| (*n, format!("config={config}"))))
}

/// What a pattern of the command line matches.
fn matcher(pattern: &str) -> Result<Regex> {
    let escaped = regex::escape(pattern);
    let text = if pattern.contains(['*', '?']) {
        format!("^{}$", escaped.replace(r"\*", ".*").replace(r"\?", "."))
    } else {
        escaped
    };
    let built = RegexBuilder::new(&text).case_insensitive(true).build();
    built.map_err(|e| bad_input(format!("pattern `{pattern}`: {e}")))
}

fn row(inventory: &CounterInventory, pmu: &Pmu, wanted: Option<&Regex>) -> PmuRow {
    let types: Vec<_> = inventory.types_of(pmu).collect();
    let first = types
        .iter()
        .find_map(|t| Some((*t, *inventory.cpus(*t).first()?)));
    let trial = first.map(|(t, cpu)| inventory.usable_counters(t, cpu));
    let (counters, counters_unknown) = match trial {
        None => (None, None),
        Some(Ok(n)) => (Some(n), None),
        Some(Err(e)) => (None, Some(e.to_string())),
    };
    let events = names(pmu).filter(|(name, _)| wanted.is_none_or(|w| w.is_match(name)));
    PmuRow {
        pmu: pmu.name.clone(),
        type_: pmu.type_,
        core: pmu.core,
        core_types: types
            .iter()
            .map(|t| inventory.name(*t).to_owned())
            .collect(),
        cpus: CpuList(pmu.cpus.clone()).to_string(),
        counters,
        counters_unknown,
        formats: pmu.formats.keys().cloned().collect(),
        from_table: pmu.names().count() - pmu.events.len(),
        events: events
            .map(|(name, code)| {
                let vendors = pmu.vendor.get(&name.to_lowercase());
                EventRow {
                    name: name.to_owned(),
                    code,
                    description: vendors
                        .and_then(|e| e.description.as_deref())
                        .or_else(|| describe(name))
                        .map(str::to_owned),
                    scale: vendors.and_then(|e| e.scale.clone()),
                    deprecated: vendors.is_some_and(|e| e.deprecated),
                }
            })
            .collect(),
        metrics: Vec::new(),
    }
}

fn text(rows: &[PmuRow]) -> String {
    let mut out = String::new();
    for r in rows {
        // writing to a string cannot fail
        let _ = write!(out, "{} (type {})", r.pmu, r.type_);
        if r.core {
            let _ = write!(out, ": core type {}", r.core_types.join(", "));
        }
        if !r.cpus.is_empty() {
            let _ = write!(out, ", CPUs {}", r.cpus);
        }
        match (r.counters, &r.counters_unknown) {
            (Some(n), _) => {
                let _ = write!(out, ", {n} events at once");
            }
            (None, Some(why)) => {
                let _ = write!(out, "\n  number of counters not known: {why}");
            }
            (None, None) => {}
        }
        out.push('\n');
        if r.from_table > 0 {
            let _ = writeln!(
                out,
                "  {} events only from the vendor's table (experimental: not tried on hardware)",
                r.from_table
            );
        }
        if !r.events.is_empty() {
            let mut table = Builder::default();
            for e in &r.events {
                let mut description = e.description.clone().unwrap_or_default();
                if let Some(scale) = &e.scale {
                    let _ = write!(description, " (one count: {scale})");
                }
                table.push_record([e.name.clone(), e.code.clone(), description]);
            }
            add(&mut out, table);
        }
        if !r.metrics.is_empty() {
            let _ = writeln!(
                out,
                "  metrics for `scx_amp pmc stat -M` (experimental: not tried on hardware)"
            );
            let mut table = Builder::default();
            for m in &r.metrics {
                let mut description = m.description.clone().unwrap_or_default();
                if let Some(why) = &m.not_here {
                    let _ = write!(description, " (not here: {why})");
                }
                // descriptions may have several lines
                let description = description.replace('\n', " ");
                table.push_record([
                    m.name.clone(),
                    m.unit.clone().unwrap_or_default(),
                    description,
                ]);
            }
            add(&mut out, table);
        }
    }
    out
}

/// Adds a table, indented.
fn add(out: &mut String, table: Builder) {
    let mut table = table.build();
    table.with(Style::empty()).with(Padding::new(2, 0, 0, 0));
    for line in table.to_string().lines() {
        // writing to a string cannot fail
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_or_globs() {
        let m = |p: &str, name: &str| matcher(p).unwrap().is_match(name);
        assert!(m("l1d", "L1D_CACHE") && m("cache", "l1d_cache_refill"));
        assert!(!m("l2", "l1d_cache"));
        assert!(m("l?d_*refill", "l2d_cache_refill") && !m("l?d", "l1d_cache"));
        assert!(!m("a.c", "abc") && m("(", "a(b"));
    }

    #[test]
    fn the_table_tells_what_is_known_and_what_is_not() {
        let pmu = |counters, unknown: Option<&str>| PmuRow {
            pmu: "armv8_cortex_a57".into(),
            type_: 9,
            core: true,
            core_types: vec!["big".into()],
            cpus: "0-1".into(),
            counters,
            counters_unknown: unknown.map(str::to_owned),
            formats: vec![],
            from_table: 0,
            events: vec![EventRow {
                name: "l1d_cache".into(),
                code: "event=0x004".into(),
                description: Some("accesses".into()),
                scale: None,
                deprecated: false,
            }],
            metrics: vec![],
        };
        let known = text(&[pmu(Some(7), None)]);
        assert_eq!(
            known,
            "armv8_cortex_a57 (type 9): core type big, CPUs 0-1, 7 events at once\n  l1d_cache  event=0x004  accesses\n"
        );
        let tables = text(&[PmuRow {
            from_table: 12,
            ..pmu(Some(7), None)
        }]);
        assert!(tables.contains("\n  12 events only from"), "{tables}");
        let unknown = text(&[pmu(None, Some("not permitted"))]);
        assert!(unknown.contains("not known: not permitted"), "{unknown}");
    }
}
