//! Busy threads.

use crate::{machine, report};
use anyhow::Result;
use serde_json::json;

#[derive(clap::Args)]
pub struct Args {
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
    /// How long, in seconds (virtual ones on the board)
    #[arg(long)]
    seconds: f64,
    /// Names of the threads: this, a dash and a number
    #[arg(long, default_value = "amp-spin")]
    name: String,
    /// Run all of them on this CPU
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// Keeps the threads busy for the time and tells the rounds each got done: its share of the machine.
pub fn run(args: &Args) -> Result<()> {
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    let end = machine::now_ns() + (args.seconds.max(0.0) * 1e9) as u64;
    let rounds: Vec<u64> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..args.threads)
            .map(|i| {
                s.spawn(move || {
                    machine::name_thread(&format!("{}-{i}", args.name));
                    let mut rounds = 0u64;
                    while machine::now_ns() < end {
                        for k in 0..2000u64 {
                            std::hint::black_box(k);
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        // a thread that only counts does not panic
        threads.into_iter().map(|t| t.join().unwrap_or(0)).collect()
    });
    let fields = json!({"bench": "spin", "seconds": args.seconds, "rounds": rounds});
    report::print("spin", &fields, args.json);
    Ok(())
}
