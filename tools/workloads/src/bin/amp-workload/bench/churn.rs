//! Threads that come and go.

use crate::{machine, report};
use anyhow::{Context, Result};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Threads to create in all, for example 30k
    #[arg(long, value_parser = amp_workloads::quantity::parse_count)]
    threads: u64,
    /// Threads alive at once: created together, then joined together
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: u64,
    /// Threads per second at most (default as fast as they go)
    #[arg(long)]
    rate: Option<f64>,
    /// Period of the thread whose stalls are measured, in milliseconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    beat_ms: u64,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// Creates and joins the threads, with a beat thread beside them that sleeps for a period over and
/// over: how much later than that it came back, at worst, is the longest stall.
pub fn run(args: &Args) -> Result<()> {
    let stop = AtomicBool::new(false);
    let period = args.beat_ms * 1_000_000;
    let (done, stalls) = std::thread::scope(|s| {
        let beat = s.spawn(|| {
            machine::name_thread("amp-beat");
            let mut late = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let t = machine::now_ns();
                std::thread::sleep(Duration::from_nanos(period));
                late.push((machine::now_ns() - t).saturating_sub(period));
            }
            late
        });
        let done = create_and_join(args);
        stop.store(true, Ordering::Relaxed);
        (done, beat.join())
    });
    let (wall_ns, created) = done?;
    let mut stalls = stalls.map_err(|_| anyhow::anyhow!("the beat thread panicked"))?;
    let [p50, p99, longest] = super::percentiles(&mut stalls, [50.0, 99.0, 100.0]);
    let fields = json!({
        "bench": "churn",
        "threads": created,
        "batch": args.batch,
        "wall_ns": wall_ns,
        "threads_per_s": created as f64 / (wall_ns as f64 * 1e-9).max(1e-9),
        "beats": stalls.len(),
        "stall_ns": {"p50": p50, "p99": p99, "longest": longest},
    });
    report::print("churn", &fields, args.json);
    Ok(())
}

fn create_and_join(args: &Args) -> Result<(u64, u64)> {
    let start = machine::now_ns();
    let mut created = 0;
    while created < args.threads {
        let n = args.batch.min(args.threads - created);
        let mut batch = Vec::with_capacity(n as usize);
        for i in created..created + n {
            let t = std::thread::Builder::new()
                .stack_size(16 << 10)
                .spawn(move || std::hint::black_box(i))
                .with_context(|| format!("thread {i} of {}", args.threads))?;
            batch.push(t);
        }
        for t in batch {
            // a thread that only returns a number does not panic
            let _ = t.join();
        }
        created += n;
        if let Some(rate) = args.rate.filter(|r| *r > 0.0) {
            let due = start + (created as f64 / rate * 1e9) as u64;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(machine::now_ns())));
        }
    }
    Ok((machine::now_ns() - start, created))
}
