//! Busy threads, and where and when each of them ran.

use super::occupancy::{Occupancy, Presence};
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

/// Keeps the threads busy for the time and tells the rounds each got done (its share of the machine), the longest time each was kept
/// from running, how long each CPU ran them, and the longest time each CPU ran none of them while one waited.
pub fn run(args: &Args) -> Result<()> {
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    let end = machine::now_ns() + (args.seconds.max(0.0) * 1e9) as u64;
    let threads: Vec<(u64, Presence)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..args.threads)
            .map(|i| {
                s.spawn(move || {
                    machine::name_thread(&format!("{}-{i}", args.name));
                    spin(end)
                })
            })
            .collect();
        // a thread that only counts does not panic
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_default())
            .collect()
    });
    let rounds: Vec<u64> = threads.iter().map(|(r, _)| *r).collect();
    let presences: Vec<Presence> = threads.into_iter().map(|(_, p)| p).collect();
    let cpus = match args.pin {
        Some(cpu) => vec![cpu],
        None => machine::online_cpus(),
    };
    let seen = Occupancy::of(&presences, &cpus);
    let per_cpu = |f: &dyn Fn(usize) -> u64| {
        let of: serde_json::Map<_, _> = cpus
            .iter()
            .enumerate()
            .map(|(i, cpu)| (cpu.to_string(), json!(f(i))))
            .collect();
        of
    };
    let fields = json!({
        "bench": "spin",
        "seconds": args.seconds,
        "rounds": rounds,
        "longest_gap_ns": seen.longest_gap,
        "ran_ns": per_cpu(&|i| seen.ran[i]),
        "idle_while_waiting_ns": per_cpu(&|i| seen.idle_in_all[i]),
        "longest_idle_while_waiting_ns": per_cpu(&|i| seen.longest_idle[i]),
    });
    report::print("spin", &fields, args.json);
    Ok(())
}

fn spin(end: u64) -> (u64, Presence) {
    let mut rounds = 0u64;
    let mut presence = Presence::default();
    loop {
        let now = machine::now_ns();
        presence.seen(now, rustix::thread::sched_getcpu() as u32);
        if now >= end {
            return (rounds, presence);
        }
        for k in 0..2000u64 {
            std::hint::black_box(k);
        }
        rounds += 1;
    }
}
