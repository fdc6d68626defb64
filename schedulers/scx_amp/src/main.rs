//! The scx_amp command: wiring only.

mod bench;
mod board_cli;
mod clock;
mod control;
mod live;
mod realtime;
mod run;
mod scheduling;
mod topology;
mod usage;

use amp_machine::CpuList;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::Arc;

/// Scheduling for machines whose cores are not alike.
#[derive(Parser)]
#[command(
    version,
    about,
    propagate_version = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Schedule this machine (root; a kernel with sched_ext)
    Run(run::RunArgs),
    /// Talk to a running scheduler (root)
    Ctl {
        #[command(subcommand)]
        what: Ctl,
    },
    /// Compare policies on a mix of programs: ASP, unfairness, energy-delay
    Bench(bench::BenchArgs),
    /// The virtual AMP board
    Board(board_cli::BoardArgs),
    /// Show this machine's core types
    Topology {
        /// CPUs of the fast core type, where the kernel cannot tell them apart
        #[arg(long, value_name = "LIST")]
        big_cpus: Option<CpuList>,
        /// Write JSON to FILE, or to standard output with `-`
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Pages on a topic (for options: `scx_amp COMMAND --help`)
    Help {
        #[command(subcommand)]
        topic: Help,
    },
}

/// Pages longer than `--help`.
#[derive(Subcommand)]
enum Help {
    /// A page on a policy: what it optimises, formula and source, knobs, when to use it
    Policy {
        /// The policy; without it, their names
        name: Option<String>,
    },
}

#[derive(Subcommand)]
enum Ctl {
    /// What the scheduler is doing, as JSON
    Status,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = if matches!(cli.command, Command::Run(_)) {
        log::LevelFilter::Info
    } else {
        log::LevelFilter::Warn
    };
    let config = simplelog::ConfigBuilder::new()
        .set_time_level(log::LevelFilter::Off)
        .build();
    // only a second logger makes this fail, and there is none
    let _ = simplelog::SimpleLogger::init(level, config);
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("scx_amp: {e:#}");
            ExitCode::from(if e.downcast_ref::<usage::BadInput>().is_some() {
                2
            } else {
                1
            })
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args, &stop_signal()?.1)?,
        Command::Ctl { what: Ctl::Status } => {
            println!("{}", serde_json::to_string_pretty(&control::ask()?)?);
        }
        Command::Bench(args) => bench::main(&args, &stop_signal()?.0)?,
        Command::Board(args) => return board_cli::main(args),
        Command::Help {
            topic: Help::Policy { name: None },
        } => {
            println!(
                "{}\n{}",
                amp_sched::policy::BASELINE,
                amp_sched::policy::NAMES.join("\n")
            );
        }
        Command::Help {
            topic: Help::Policy { name: Some(name) },
        } => {
            print!(
                "{}",
                amp_sched::policy::help(&name).map_err(usage::bad_input)?
            );
        }
        Command::Topology { big_cpus, json } => {
            let found = topology::detect(big_cpus.as_ref())?;
            match json {
                Some(path) => write_out(&path, &format!("{:#}\n", topology::to_json(&found)))?,
                None => print!("{}", topology::to_text(&found)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// SIGINT, SIGTERM and SIGHUP set the flag and send on the channel.
fn stop_signal() -> Result<(Arc<AtomicBool>, Receiver<()>)> {
    let flag = Arc::new(AtomicBool::new(false));
    let (tx, rx) = mpsc::channel();
    let shared = flag.clone();
    ctrlc::set_handler(move || {
        shared.store(true, Ordering::Relaxed);
        // nobody listens any more: the command is ending already
        let _ = tx.send(());
    })
    .context("cannot handle signals")?;
    Ok((flag, rx))
}

/// Writes to a file, or to standard output for `-`.
fn write_out(path: &std::path::Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
