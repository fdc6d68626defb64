//! A writer that goes on computing after it has woken its reader.

use crate::{machine, report};
use anyhow::{bail, Context, Result};
use serde_json::json;

#[derive(clap::Args)]
pub struct Args {
    /// Messages
    #[arg(long, default_value = "50", value_parser = amp_workloads::quantity::parse_count)]
    rounds: u64,
    /// Time that the writer computes after each, in microseconds
    #[arg(long, default_value_t = 20_000)]
    compute_us: u64,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// A thread writes the time to a pipe, computes for a while and sleeps as long, over and over; the
/// latency is how much later another thread has read that time.
///
/// Writing to a pipe tells the scheduler that the writer is about to sleep. This one is not.
pub fn run(args: &Args) -> Result<()> {
    let (read, write) = rustix::pipe::pipe().context("pipe")?;
    let compute = args.compute_us * 1000;
    let mut late = std::thread::scope(|s| {
        let reader = s.spawn(move || -> Result<Vec<u64>> {
            machine::name_thread("amp-reader");
            let mut late = Vec::new();
            let mut sent = [0u8; 8];
            while rustix::io::read(&read, &mut sent)? == sent.len() {
                late.push(machine::now_ns().saturating_sub(u64::from_ne_bytes(sent)));
            }
            Ok(late)
        });
        machine::name_thread("amp-writer");
        for _ in 0..args.rounds {
            let sent = machine::now_ns();
            rustix::io::write(&write, &sent.to_ne_bytes()).context("the pipe")?;
            while machine::now_ns() < sent + compute {
                std::hint::spin_loop();
            }
            std::thread::sleep(std::time::Duration::from_nanos(compute));
        }
        drop(write);
        match reader.join() {
            Ok(late) => late,
            Err(_) => bail!("the reader panicked"),
        }
    })?;
    let [min, p50, p90, p99, max] = super::percentiles(&mut late, [0.0, 50.0, 90.0, 99.0, 100.0]);
    let fields = json!({
        "bench": "message",
        "rounds": late.len(),
        "compute_us": args.compute_us,
        "latency_ns": {"min": min, "p50": p50, "p90": p90, "p99": p99, "max": max},
    });
    report::print("message", &fields, args.json);
    Ok(())
}
