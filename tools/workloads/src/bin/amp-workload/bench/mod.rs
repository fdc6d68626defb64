//! `amp-workload bench`: what the scheduler costs.
//!
//! Each benchmark reports virtual time (on the board) and, where it can, instructions of the whole
//! machine per operation. Instructions per operation hardly vary between runs: they are what
//! schedulers are compared by.

mod churn;
mod message;
mod occupancy;
mod pingpong;
mod spin;
mod wake;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Two threads on one CPU that yield to each other
    Yield(pingpong::YieldArgs),
    /// Two threads (or processes) that pass a byte back and forth through pipes
    Pipe(pingpong::PipeArgs),
    #[command(hide = true)]
    PipeEcho(pingpong::EchoArgs),
    /// Threads created and joined as fast as they go, and how long another thread was kept waiting
    /// meanwhile
    Churn(churn::Args),
    /// Busy threads, recognisable by name
    Spin(spin::Args),
    /// How long a reader waits for a writer that goes on computing
    Message(message::Args),
    /// Latency of timer wake-ups
    Wake(wake::Args),
}

/// Runs the benchmark and prints its result.
///
/// # Errors
/// When a CPU cannot be used or the system refuses a thread or a pipe.
pub fn run(args: &Args) -> Result<()> {
    match &args.bench {
        Bench::Yield(a) => pingpong::yields(a),
        Bench::Pipe(a) => pingpong::pipe(a),
        Bench::PipeEcho(a) => pingpong::echo_process(a),
        Bench::Churn(a) => churn::run(a),
        Bench::Spin(a) => spin::run(a),
        Bench::Message(a) => message::run(a),
        Bench::Wake(a) => wake::run(a),
    }
}

/// Percentiles of unsorted samples, nearest rank; empty input gives zeros.
fn percentiles<const N: usize>(samples: &mut [u64], at: [f64; N]) -> [u64; N] {
    samples.sort_unstable();
    at.map(|p| {
        let rank = (p / 100.0 * samples.len() as f64).ceil() as usize;
        samples
            .get(rank.max(1) - 1)
            .or(samples.last())
            .copied()
            .unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::percentiles;

    #[test]
    fn nearest_rank() {
        let mut v: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(
            percentiles(&mut v, [0.0, 50.0, 99.0, 100.0]),
            [1, 50, 99, 100]
        );
        assert_eq!(percentiles(&mut [7], [50.0, 99.0]), [7, 7]);
        assert_eq!(percentiles(&mut [], [50.0]), [0]);
    }
}
