//! A mix on the simulator, as a table and a page: what `scx_amp bench MIX --on sim` shows by its
//! defaults, from a program that needs neither clang nor the command. `./quickstart` begins with it.
//!
//! `first-table MIX.toml POLICY,… REPORT.json PAGE.html`

use amp_eval::evaluation::BenchReport;
use amp_eval::report;
use amp_eval::workload::Workload;
use amp_eval::Runs;
use amp_machine::MachineFile;
use amp_sim::bench::BenchOptions;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mix, policies, json, page] = &args[..] else {
        eprintln!("usage: first-table MIX.toml POLICY,... REPORT.json PAGE.html");
        return ExitCode::from(2);
    };
    let report = match bench(Path::new(mix), policies) {
        Ok(report) => report,
        Err(e) => {
            eprintln!("first-table: {e}");
            return ExitCode::from(2);
        }
    };
    print!("{}", report::text(&report, None));
    match write(&report, json, page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("first-table: {e}");
            ExitCode::FAILURE
        }
    }
}

fn bench(mix: &Path, policies: &str) -> Result<BenchReport, Box<dyn Error>> {
    let workload = Workload::load(mix)?;
    let machine = workload.machine.as_deref().unwrap_or("juno");
    let machine = MachineFile::load(machine)?;
    let policies: Vec<&str> = policies.split(',').collect();
    let options = BenchOptions {
        runs: Runs::Enough,
        ..BenchOptions::default()
    };
    let mut on = |_: amp_eval::Step<'_>| ControlFlow::Continue(());
    Ok(amp_sim::bench(
        &workload, &machine, &policies, &options, &mut on,
    )?)
}

fn write(report: &BenchReport, json: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let text = serde_json::to_string_pretty(report)?;
    std::fs::write(json, format!("{text}\n")).map_err(|e| format!("{json}: {e}"))?;
    std::fs::write(page, report::html(report)).map_err(|e| format!("{page}: {e}"))?;
    Ok(())
}
