//! `scx_amp pmc validate`: events against kernels whose counts are known.

mod candidates;
mod kernels;
mod measure;
mod usual;
mod verdict;

use super::inventory::CounterInventory;
use amp_host::affinity::stay_on;
use amp_host::{bad_input, write_out};
use amp_machine::page::{Page, PageError};
use amp_metrics::pmu::vendor::{self, Cpu};
use amp_metrics::trust::{CoreTypeTrust, Trust, Verdict, FORMAT};
use amp_metrics::{CoreTypeId, EventSpec};
use amp_workloads::exact::{of_cpu, AdditionCost, Expected, Kernel, Quantity};
use anyhow::{Context, Result};
use candidates::{candidates, groups, Tried};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kernels::{kernels, partner};
use measure::{counted, empty, Counted};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};
use verdict::{compare, judge, places, Comparison, Findings};

/// Options of `scx_amp pmc validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Try this event for what it is to count (instructions, loads, stores, accesses, l1-refills,
    /// l2-accesses, l2-refills, l2-write-backs, branches, mispredicts, l3-accesses, l3-refills,
    /// l3-load-refills, memory-reads, memory-writes, dtlb-misses, dtlb-refills, dtlb-walks,
    /// floating-point, scalar-flops, vector-floating-point, flops, cycles) instead of the usual
    /// ones; may be repeated
    #[arg(short = 'e', long = "event", value_name = "QUANTITY=EVENT", value_parser = quantity_of)]
    events: Vec<(Quantity, String)>,
    /// Times each kernel is run with each event, at least; each event is in each place of a set once
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Write the trust file (TOML) to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write verdicts and the errors of each kernel as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn quantity_of(s: &str) -> Result<(Quantity, String), String> {
    let (quantity, event) = s
        .split_once('=')
        .ok_or("QUANTITY=EVENT, such as loads=ld_retired")?;
    let found = Quantity::by_name(quantity.trim()).ok_or_else(|| {
        let names: Vec<&str> = Quantity::ALL.iter().map(|q| q.name()).collect();
        format!("`{quantity}` is none of {}", names.join(", "))
    })?;
    Ok((found, event.trim().to_owned()))
}

/// The command.
///
/// # Errors
/// [`super::inventory::NoPmu`]; [`amp_host::BadInput`] naming an event that does not exist; others
/// when counting fails.
pub fn main(args: &ValidateArgs, stop: &AtomicBool) -> Result<ExitCode> {
    super::stat::check_outputs(&[&args.out, &args.json])?;
    let inventory = CounterInventory::detect()?;
    for (_, event) in &args.events {
        let spec: EventSpec = event.parse().map_err(bad_input)?;
        inventory.known(&spec).map_err(bad_input)?;
    }
    inventory.need_pmu()?;
    let machine = match Page::open() {
        Ok(page) => Machine::Board(page),
        Err(PageError::NoBoard { .. }) => Machine::Real,
        // only root may read it: no reason not to measure
        Err(e) => {
            log::warn!("{e}");
            Machine::Unread
        }
    };
    let mut trust = Trust {
        format: FORMAT,
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        repetitions: args.repetitions,
        core_types: Vec::new(),
    };
    let mut findings = Vec::new();
    let types: Vec<CoreTypeId> = inventory.core_pmus().map(|(t, _)| t).collect();
    for t in types {
        let (of_type, all) = core_type(args, &inventory, t, &machine, stop)?;
        trust.core_types.push(of_type);
        findings.extend(all);
    }
    let quiet = [&args.out, &args.json]
        .iter()
        .any(|p| p.as_ref().is_some_and(|p| p.as_os_str() == "-"));
    let shown = match quiet {
        true => Ok(()),
        false => amp_host::print(&text(&trust)),
    };
    let file = args
        .out
        .as_ref()
        .map_or(Ok(()), |path| write_out(path, &trust.to_toml()?));
    let json = args.json.as_ref().map_or(Ok(()), |path| {
        let json = serde_json::json!({ "events": findings });
        write_out(path, &format!("{json}\n"))
    });
    amp_host::output::all([shown, file, json])?;
    Ok(ExitCode::SUCCESS)
}

/// What this runs on.
enum Machine {
    /// The virtual board, whose model can be asked.
    Board(Page),
    /// The virtual board, but this user may not ask.
    Unread,
    Real,
}

impl Machine {
    fn page(&self) -> Option<&Page> {
        match self {
            Machine::Board(page) => Some(page),
            Machine::Unread | Machine::Real => None,
        }
    }

    /// What additions cost on a CPU, where that is known.
    fn cost(&self, cpu: u32) -> Option<AdditionCost> {
        match self {
            Machine::Board(page) => AdditionCost::on_board(page, cpu),
            Machine::Unread => None,
            Machine::Real => Some(AdditionCost::ONE),
        }
    }
}

fn core_type(
    args: &ValidateArgs,
    inventory: &CounterInventory,
    t: CoreTypeId,
    machine: &Machine,
    stop: &AtomicBool,
) -> Result<(CoreTypeTrust, Vec<Findings>)> {
    let pmu = inventory
        .pmus
        .of_core_type(t)
        .map_or("", |p| p.name.as_str());
    // the first CPU has more interrupts to serve than others
    let cpu = *inventory
        .cpus(t)
        .last()
        .context("a core type without CPUs")?;
    stay_on(&[cpu])?;
    let candidates = candidates(args, inventory, t)?;
    let mut groups = groups(candidates, !args.events.is_empty())
        .with_context(|| format!("core type {} (PMU `{pmu}`)", inventory.name(t)))?;
    let (caches, guessed) = of_cpu(Path::new("/sys"), cpu);
    if !guessed.is_empty() {
        log::warn!(
            "CPU {cpu}: size of {} unknown; taken for {} KiB and {} KiB",
            guessed.join(" and "),
            caches.l1 >> 10,
            caches.l2 >> 10
        );
    }
    let tried: Vec<Quantity> = groups.iter().flat_map(Tried::quantities).collect();
    let page = machine.page();
    let cost = machine.cost(cpu);
    if cost.is_none() && tried.contains(&Quantity::Cycles) {
        log::warn!(
            "CPU {cpu}: what an addition costs is not known: events of cycles are not rated"
        );
    }
    let made = kernels(&caches, partner(inventory, t, cpu), cost, &tried);
    let bar = progress(made.len() as u64, inventory.name(t));
    let mut all: Vec<Vec<Vec<Comparison>>> =
        groups.iter().map(|g| vec![Vec::new(); g.judged]).collect();
    let mut empties: Vec<Vec<Vec<Counted>>> = Vec::new();
    for g in &mut groups {
        let turns = g.turns.iter_mut();
        let of_turns = turns.map(|turn| empty(turn, &g.candidates, page, cpu));
        empties.push(of_turns.collect::<Result<_>>()?);
    }
    for make in made {
        let Some(mut kernel) = make() else { continue };
        // one after the other: their data has the caches to itself
        bar.set_message(kernel.name.clone());
        for (g, (out, empties)) in groups.iter_mut().zip(all.iter_mut().zip(&empties)) {
            // of some kernels hardly anything is known
            if !g
                .quantities()
                .any(|q| known(&kernel, q, &guessed).is_some())
            {
                continue;
            }
            // each place at least once
            let runs = (args.repetitions as usize).max(g.turns.len());
            for run in 0..runs {
                if stop.load(Ordering::Relaxed) {
                    anyhow::bail!("interrupted");
                }
                let at = run % g.turns.len();
                let turn = &mut g.turns[at];
                kernel.prepare();
                let counted = counted(turn, &g.candidates, page, cpu, || kernel.run())?;
                let results = turn.order.iter().zip(counted.iter().zip(&empties[at]));
                for (place, (i, (got, empty))) in results.enumerate() {
                    let expected = known(&kernel, g.candidates[*i].quantity, &guessed);
                    let (Some(out), Some(expected)) = (out.get_mut(*i), expected) else {
                        continue;
                    };
                    let counts = got.0 as f64 - empty.0 as f64;
                    let truth = got.1.zip(empty.1).map(|(t, e)| t.saturating_sub(e));
                    out.push(Comparison {
                        place: place + 1,
                        ..compare(&kernel.name, expected, counts, truth)
                    });
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut findings = Vec::new();
    for (g, comparisons) in groups.iter().zip(all) {
        for (c, comparisons) in g.candidates.iter().zip(comparisons) {
            if let Some((right, wrong)) = places(&comparisons) {
                log::warn!(
                    "core type {} (PMU `{pmu}`): event `{}` counts right as number {} of its set and wrong as number {}: some counters do not count it",
                    inventory.name(t),
                    c.event.name,
                    numbers(&right),
                    numbers(&wrong)
                );
            }
            if let Some(trust) = judge(&c.event.name, c.quantity, &comparisons) {
                findings.push(Findings {
                    core_type: inventory.name(t).to_owned(),
                    pmu: pmu.to_owned(),
                    trust,
                    comparisons_made: comparisons,
                });
            }
        }
    }
    let of_type = CoreTypeTrust {
        name: inventory.name(t).to_owned(),
        pmu: pmu.to_owned(),
        processor: match vendor::processor(Path::new("/"), cpu) {
            Some(Cpu::X86 { model, .. }) => model,
            Some(Cpu::Arm(midr)) => format!("{midr:#x}"),
            None => String::new(),
        },
        cpu,
        events: findings.iter().map(|f| f.trust.clone()).collect(),
    };
    Ok((of_type, findings))
}

/// What a run of the kernel counts; nothing of what comes after an L2 whose size was `guessed`.
fn known(kernel: &Kernel, q: Quantity, guessed: &[&str]) -> Option<Expected> {
    let beyond = Quantity::BEYOND_L2.contains(&q);
    let expected = kernel.expected(q);
    expected.filter(|_| !beyond || !guessed.contains(&"L2"))
}

fn numbers(all: &[usize]) -> String {
    let text: Vec<String> = all.iter().map(usize::to_string).collect();
    text.join(", ")
}

/// A bar on a terminal, nothing elsewhere.
fn progress(kernels: u64, core_type: &str) -> ProgressBar {
    let bar = ProgressBar::new(kernels);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(core_type.to_owned());
    bar
}

fn text(trust: &Trust) -> String {
    let mut out = String::new();
    for t in &trust.core_types {
        out += &format!("{} (PMU {}), on CPU {}\n", t.name, t.pmu, t.cpu);
        let mut table = Builder::default();
        table.push_record([
            "event",
            "counts",
            "verdict",
            "error: least",
            "mean",
            "most",
            "decided by",
        ]);
        for e in &t.events {
            let percent = |v: f64| format!("{:+.3} %", v * 100.0);
            let verdict = match e.verdict {
                Verdict::Usable => {
                    let most = e.error_max.abs().max(e.error_min.abs());
                    format!("usable ± {:.1} %", most * 100.0)
                }
                v => v.name().to_owned(),
            };
            table.push_record([
                e.event.clone(),
                e.quantity.clone(),
                verdict,
                percent(e.error_min),
                percent(e.error_mean),
                percent(e.error_max),
                e.worst_kernel.clone(),
            ]);
        }
        let mut table = table.build();
        table.with(Style::empty()).with(Padding::new(2, 0, 0, 0));
        for line in table.to_string().lines() {
            out += line.trim_end();
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_on_the_command_line() {
        assert_eq!(
            quantity_of("l1-refills=cpu/event=0x3,umask=1/").unwrap(),
            (Quantity::L1Refills, "cpu/event=0x3,umask=1/".to_owned())
        );
        assert!(quantity_of("x=y").unwrap_err().contains("mispredicts"));
        assert!(quantity_of("loads").is_err());
    }
}
