//! `amp-workload pattern`: programs with a performance pattern, and their twins without.

use crate::machine;
use amp_workloads::patterns::{Wait, Work, PROGRAMS};
use amp_workloads::quantity::{parse_count, parse_size};
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use std::sync::atomic::{AtomicU32, Ordering};

/// Arguments of `pattern`.
#[derive(clap::Args)]
pub struct Args {
    /// load, store, copy, triad, vtriad, dot: bandwidth; triangle, triangle-even: load balance;
    /// counters, histogram and their -apart twins: false sharing; handoff, handoff-apart: true
    /// sharing
    #[arg(value_parser = PossibleValuesParser::new(PROGRAMS.map(|p| p.0)))]
    program: String,
    /// Rounds of each thread: passes over its data, or thousands of additions to a counter
    #[arg(long, value_parser = parse_count)]
    work: u64,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Bytes of data per thread, or of the triangle's matrix, for example 512K
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Wait for other threads asleep, instead of looking again and again (triangle)
    #[arg(long)]
    sleep: bool,
    /// CPUs for the threads, by turns, for example 0,1,4
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    cpus: Vec<u32>,
}

/// Runs the program and prints its result.
///
/// # Errors
/// When a CPU cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let Some((_, program, size)) = PROGRAMS.into_iter().find(|p| p.0 == args.program) else {
        return Ok(()); // clap lets no other name through
    };
    let work = Work {
        program,
        threads: args.threads.into(),
        rounds: args.work,
        size: args.size.unwrap_or(size),
        wait: if args.sleep { Wait::Sleep } else { Wait::Spin },
    };
    let refused = AtomicU32::new(u32::MAX);
    let digest = work.run(|t| {
        let cpu = args.cpus.get(t % args.cpus.len().max(1));
        if let Some(cpu) = cpu.filter(|c| machine::pin(**c).is_err()) {
            refused.store(*cpu, Ordering::Relaxed);
        }
    });
    match refused.into_inner() {
        u32::MAX => println!("{digest:016x}"),
        cpu => machine::pin(cpu)?,
    }
    Ok(())
}
