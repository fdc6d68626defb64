//! Timer wake-ups.

use crate::{machine, report};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Wake-ups
    #[arg(long, default_value = "500", value_parser = amp_workloads::quantity::parse_count)]
    rounds: u64,
    /// Time between them in microseconds
    #[arg(long, default_value_t = 2000)]
    period_us: u64,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// Sleeps for a period over and over; the latency is how much later than that the thread ran again.
pub fn run(args: &Args) -> Result<()> {
    machine::name_thread("amp-wake");
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    // the kernel may otherwise put a timer off by 50 us to save power
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let period = args.period_us * 1000;
    let mut late = Vec::new();
    for _ in 0..args.rounds {
        let t = machine::now_ns();
        std::thread::sleep(Duration::from_nanos(period));
        late.push((machine::now_ns() - t).saturating_sub(period));
    }
    let [min, p50, p90, p99, p999, max] =
        super::percentiles(&mut late, [0.0, 50.0, 90.0, 99.0, 99.9, 100.0]);
    let fields = json!({
        "bench": "wake",
        "rounds": args.rounds,
        "period_us": args.period_us,
        "latency_ns": {"min": min, "p50": p50, "p90": p90, "p99": p99, "p99.9": p999, "max": max},
    });
    report::print("wake", &fields, args.json);
    Ok(())
}
