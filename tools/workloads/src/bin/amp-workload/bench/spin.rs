//! Busy threads, and where and when each of them ran.

use super::occupancy::{Occupancy, Presence};
use crate::{machine, report};
use amp_workloads::busy::{divide, pass};
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
    /// What keeps them busy
    #[arg(long, value_enum, default_value_t)]
    by: Work,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// What a busy thread does.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Work {
    /// Letting time pass, where the board can: its host hardly has to do anything. Few instructions, and no faster on a fast
    /// core. Elsewhere, divisions
    #[default]
    Passing,
    /// Divisions: they take a core long and its emulator not, so that a busy board costs its host
    /// about half of what counting would
    Dividing,
    /// Short loops: many instructions
    Counting,
}

/// Keeps the threads busy for the time and returns the rounds each got done (its share of the
/// machine), its CPU time on each CPU, the longest time it was kept from running, how long each CPU
/// ran them, and the longest time each CPU ran none of them while one waited.
pub fn run(args: &Args) -> Result<()> {
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    let end = machine::now_ns() + (args.seconds.max(0.0) * 1e9) as u64;
    let shares: Vec<Share> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..args.threads)
            .map(|i| {
                s.spawn(move || {
                    machine::name_thread(&format!("{}-{i}", args.name));
                    spin(args.by, end)
                })
            })
            .collect();
        // a thread that only counts does not panic
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_default())
            .collect()
    });
    let rounds: Vec<u64> = shares.iter().map(|s| s.rounds).collect();
    let cpu_ms: Vec<Vec<f64>> = shares.iter().map(|s| s.cpu_ms.clone()).collect();
    let presences: Vec<Presence> = shares.into_iter().map(|s| s.presence).collect();
    let cpus = match args.pin {
        Some(cpu) => vec![cpu],
        None => machine::online_cpus(),
    };
    let with_cores: Vec<(u32, u32)> = cpus.iter().map(|c| (*c, machine::core_of(*c))).collect();
    let seen = Occupancy::of(&presences, &with_cores);
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
        "cpu_ms": cpu_ms,
        "longest_gap_ns": seen.longest_gap,
        "ran_ns": per_cpu(&|i| seen.ran[i]),
        "idle_while_waiting_ns": per_cpu(&|i| seen.idle_in_all[i]),
        "longest_idle_while_waiting_ns": per_cpu(&|i| seen.longest_idle[i]),
        "crowded_core_beside_idle_core_ns": seen.crowded,
    });
    report::print("spin", &fields, args.json);
    Ok(())
}

/// What a thread got.
#[derive(Default)]
struct Share {
    rounds: u64,
    presence: Presence,
    /// CPU time on each CPU, in milliseconds.
    cpu_ms: Vec<f64>,
}

impl Share {
    /// Adds the CPU time of the calling thread since `from` to `cpu`; returns the time it has had
    /// by now.
    fn charge(&mut self, cpu: usize, from: u64) -> u64 {
        let now = machine::thread_ns();
        if self.cpu_ms.len() <= cpu {
            self.cpu_ms.resize(cpu + 1, 0.0);
        }
        self.cpu_ms[cpu] += (now - from) as f64 / 1e6;
        now
    }
}

/// Keeps the calling thread busy until `end`.
fn spin(by: Work, end: u64) -> Share {
    let mut share = Share::default();
    let (mut last, mut from) = (rustix::thread::sched_getcpu(), machine::thread_ns());
    loop {
        let now = machine::now_ns();
        let cpu = rustix::thread::sched_getcpu();
        share.presence.seen(now, cpu as u32);
        if cpu != last || now >= end {
            from = share.charge(last, from);
            last = cpu;
        }
        if now >= end {
            return share;
        }
        match by {
            Work::Passing => pass(),
            Work::Dividing => divide(),
            Work::Counting => count(),
        }
        share.rounds += 1;
    }
}

/// Two thousand rounds of a loop.
fn count() {
    for k in 0..2000u64 {
        std::hint::black_box(k);
    }
}
