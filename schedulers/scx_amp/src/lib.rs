//! What the scx_amp command is made of: [`main`] is all of it.
//!
//! A library only so that `amp-fuzz` can reach its [`parsers`].

// they panic where nobody reads, and a panic ends the scheduler: see `amp_host::output`
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod arrivals;
mod banks;
mod bench;
mod board_cli;
#[cfg(feature = "campaign")]
mod campaign;
#[cfg(feature = "sim")]
mod compare;
mod control;
mod cpufreq;
mod doctor;
mod groups;
mod help;
mod labs;
mod live;
mod memory;
mod model;
mod on_board;
mod only;
mod openmetrics;
#[cfg(feature = "pages")]
mod pages;
pub mod parsers;
mod power;
mod profile;
mod provider;
mod recording;
#[cfg(feature = "sim")]
mod replay;
mod rules;
mod run;
mod running;
mod scheduling;
mod statistics;
mod status;
mod top;

use amp_host::{bad_input, print, stop_flag, topology, write_out, BadInput};
use amp_machine::CpuList;
use anyhow::Result;
#[cfg(any(test, feature = "pages"))]
use clap::CommandFactory;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Schedules machines with fast and slow cores: for throughput, for fairness, or for energy
///
/// Without a command it does as `scx_amp run`: it schedules this machine. Begin with `scx_amp
/// topology`, `scx_amp help policy` and `scx_amp help metrics`.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Schedule this machine (root; a kernel with sched_ext)
    Run(Box<run::RunArgs>),
    /// The configuration of `run`
    Config {
        #[command(subcommand)]
        what: Config,
    },
    /// Talk to a running scheduler (root)
    Ctl {
        #[command(subcommand)]
        what: Ctl,
    },
    /// Show a running scheduler's threads, metrics and placement (root)
    Top(top::TopArgs),
    /// Compare policies on a mix of programs: ASP, unfairness, energy-delay
    Bench(bench::BenchArgs),
    /// Many benches from one file: resumed after an interrupt, split among processes and machines
    #[cfg(feature = "campaign")]
    Campaign(campaign::CampaignArgs),
    /// Compare policies over folders of mixes on the simulator, beside published figures
    #[cfg(feature = "sim")]
    Compare(compare::CompareArgs),
    /// What other policies would have done with what `run --record` recorded, on the simulator
    #[cfg(feature = "sim")]
    Replay(replay::ReplayArgs),
    /// Hardware counters: list, count and sample events, find patterns, check which events to trust
    Pmc {
        #[command(subcommand)]
        what: amp_pmc::Pmc,
    },
    /// Models that predict speedup and efficiency factors from counters
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// The virtual AMP board
    Board(board_cli::BoardArgs),
    /// Show this machine's core types
    Topology {
        /// CPUs of the fast core type, where the kernel cannot distinguish them
        #[arg(long, value_name = "LIST")]
        big_cpus: Option<CpuList>,
        /// Write JSON to FILE, or to standard output with `-`
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Tell whether `run` would work on this machine, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Pages on a topic (for options: `scx_amp COMMAND --help`)
    Help {
        #[command(subcommand)]
        topic: Help,
    },
    /// Print completions of a shell's command line
    #[cfg(feature = "pages")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one per command
    #[cfg(feature = "pages")]
    Man {
        /// Folder for them, made if it is not there
        dir: PathBuf,
    },
}

/// Pages longer than `--help`.
#[derive(Subcommand)]
enum Help {
    /// A page on a policy: what it optimises, formula and source, knobs, when to use it
    Policy {
        /// The policy; without it, every policy in a line
        name: Option<String>,
    },
    /// Profiles in a line each: a policy, its knobs, a provider under one name
    Profiles,
    /// A page on metrics: ASP, unfairness, speedup factor and the others, with formulas and units
    Metrics,
}

#[derive(Subcommand)]
enum Config {
    /// Say whether it can be used
    Check {
        /// The file [default: /etc/scx_amp/config.toml]
        #[arg(value_name = "FILE.toml")]
        file: Option<PathBuf>,
    },
    /// Show what `run` does with it, and where that comes from
    Show {
        /// The file [default: /etc/scx_amp/config.toml]
        #[arg(value_name = "FILE.toml")]
        file: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum Ctl {
    /// What the scheduler is doing, as JSON: policy, knobs, provider, figures, and each thread that
    /// is placed
    Status {
        /// Write it to FILE; without FILE, or with `-`, to standard output
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_value = "-", default_missing_value = "-")]
        json: PathBuf,
    },
    /// Put a profile to work, without detaching
    Profile {
        /// Its name (see `scx_amp help profiles`), or a file of that form
        #[arg(value_name = "NAME|FILE.toml")]
        name: String,
    },
    /// Change the policy, without detaching
    Policy {
        /// Its name (see `scx_amp help policy`)
        name: String,
    },
    /// Change the source of metrics, without detaching
    Provider {
        /// Its name, or a TOML file that describes it
        #[arg(value_name = "NAME|FILE.toml")]
        name: String,
    },
    /// Set knobs of a policy, all or none
    Set {
        /// Such as `acfs.uf=1.5`; without a policy, the one in use is meant. Those of another
        /// policy wait for it. `engine.probes` is the engine's
        #[arg(required = true, value_name = "[POLICY.]KNOB=VALUE")]
        settings: Vec<String>,
    },
    /// What is remembered of programs from run to run: executable, command name, arguments, factors with their
    /// uncertainties, runs in which it was met, time since the last
    #[command(args_conflicts_with_subcommands = true)]
    Memory {
        #[command(subcommand)]
        what: Option<CtlMemory>,
        /// Write it as JSON to FILE; without FILE, or with `-`, to standard output
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
        json: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum CtlMemory {
    /// Forget programs
    Forget {
        /// Which: a pattern over the path of the executable, such as /usr/lib/**; without a /, over
        /// its file name and the command name
        #[arg(required_unless_present = "all")]
        pattern: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "pattern")]
        all: bool,
    },
}

/// Does what the command line of this process says; its exit status: 2 for bad input, 1 for failed work.
pub fn main() -> ExitCode {
    let command = Cli::parse()
        .command
        .unwrap_or_else(|| Command::Run(Box::new(run::RunArgs::none())));
    let level = if matches!(command, Command::Run(_)) {
        log::LevelFilter::Info
    } else {
        log::LevelFilter::Warn
    };
    let config = simplelog::ConfigBuilder::new()
        .set_time_level(log::LevelFilter::Off)
        .build();
    // Standard output is for results (`--json -`). Only a second logger makes this fail, and there
    // is none.
    let _ = simplelog::WriteLogger::init(level, config, std::io::stderr());
    match dispatch(command) {
        Ok(code) => code,
        Err(e) => {
            amp_host::tell(&format!("scx_amp: {e:#}"));
            ExitCode::from(if e.downcast_ref::<BadInput>().is_some() {
                2
            } else {
                1
            })
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(*args)?,
        Command::Config { what } => match what {
            Config::Check { file } => {
                print(&format!("{}\n", run::config::check(file.as_deref())?))?
            }
            Config::Show { file } => print(&run::config::show(file.as_deref())?)?,
        },
        Command::Ctl { what } => ctl(what)?,
        Command::Top(args) => top::main(&args)?,
        Command::Bench(args) => bench::main(&args, stop_flag()?.as_ref())?,
        #[cfg(feature = "campaign")]
        Command::Campaign(args) => campaign::main(&args, stop_flag()?.as_ref())?,
        #[cfg(feature = "sim")]
        Command::Compare(args) => compare::main(&args, stop_flag()?.as_ref())?,
        #[cfg(feature = "sim")]
        Command::Replay(args) => replay::main(&args, stop_flag()?.as_ref())?,
        Command::Pmc { what } => return amp_pmc::main(&what, stop_flag),
        Command::Model(what) => model::main(&what, stop_flag)?,
        Command::Board(args) => return board_cli::main(args),
        Command::Doctor(args) => return doctor::main(&args),
        Command::Help {
            topic: Help::Policy { name: None },
        } => print(&help::policies())?,
        Command::Help {
            topic: Help::Profiles,
        } => print(&profile::list()?)?,
        Command::Help {
            topic: Help::Metrics,
        } => print(help::METRICS)?,
        Command::Help {
            topic: Help::Policy { name: Some(name) },
        } => {
            print(&amp_sched::policy::help(&name).map_err(bad_input)?)?;
        }
        #[cfg(feature = "pages")]
        Command::Completions { shell } => pages::completions(Cli::command(), shell)?,
        #[cfg(feature = "pages")]
        Command::Man { dir } => pages::man(Cli::command(), &dir)?,
        Command::Topology { big_cpus, json } => {
            let found = topology::detect(big_cpus.as_ref())?;
            match json {
                Some(path) => write_out(&path, &format!("{:#}\n", topology::to_json(&found)))?,
                None => print(&topology::to_text(&found))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ctl(what: Ctl) -> Result<()> {
    let request = match what {
        Ctl::Status { json } => {
            let text = serde_json::to_string_pretty(&control::ask()?)?;
            return write_out(&json, &format!("{text}\n"));
        }
        Ctl::Policy { name } => control::Request::Policy(name),
        Ctl::Set { settings } => control::Request::Set(settings),
        Ctl::Provider { name } => control::Request::Provider(absolute_file(name)?),
        Ctl::Profile { name } => control::Request::Profile(absolute_file(name)?),
        Ctl::Memory { what: None, json } => {
            let lines = control::memory()?;
            return match json {
                None => print(&memory::table(&lines)),
                Some(path) => {
                    let text = serde_json::to_string_pretty(&lines)?;
                    write_out(&path, &format!("{text}\n"))
                }
            };
        }
        Ctl::Memory {
            what: Some(CtlMemory::Forget { pattern, .. }),
            ..
        } => control::Request::Forget(pattern),
    };
    print(&format!("{}\n", control::change(&request)?))
}

/// A name as it is; a file by its absolute path, because the scheduler was started in another
/// folder.
fn absolute_file(name: String) -> Result<String> {
    Ok(if name.ends_with(".toml") {
        std::path::absolute(&name)?.display().to_string()
    } else {
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// clap looks for that itself, but not in an optimised build.
    fn no_option_twice(command: &clap::Command) {
        let mut seen = HashSet::new();
        for a in command.get_arguments() {
            let long = a.get_long_and_visible_aliases().unwrap_or_default();
            let short = a.get_short_and_visible_aliases().unwrap_or_default();
            let all = long.into_iter().map(str::to_owned);
            for name in all.chain(short.into_iter().map(String::from)) {
                assert!(seen.insert(name.clone()), "{}: -{name}", command.get_name());
            }
        }
        command.get_subcommands().for_each(no_option_twice);
    }

    #[test]
    fn every_option_is_there_once() {
        let mut command = Cli::command();
        command.build();
        no_option_twice(&command);
    }
}
