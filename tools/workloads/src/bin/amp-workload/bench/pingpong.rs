//! Context switches: by yielding and through pipes.

use crate::meter::{Meter, Window};
use crate::{machine, report};
use anyhow::{bail, Context, Result};
use rustix::fd::OwnedFd;
use serde_json::{json, Value};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Round trips before measuring starts, so that code, caches and the scheduler's tables are warm.
const WARM_UP: u64 = 200;

#[derive(clap::Args)]
pub struct YieldArgs {
    /// The CPU
    #[arg(long)]
    cpu: u32,
    /// Yields of each thread
    #[arg(long, default_value = "20k", value_parser = amp_workloads::quantity::parse_count)]
    rounds: u64,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

/// Two threads on one CPU call sched_yield by turns; an operation is one yield of one of them.
pub fn yields(args: &YieldArgs) -> Result<()> {
    machine::pin(args.cpu)?;
    let meter = Meter::open();
    let ready = AtomicU32::new(0);
    let both_ready = || {
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
    };
    let passed = std::thread::scope(|s| {
        s.spawn(|| {
            machine::name_thread("amp-yield-b");
            both_ready();
            // until the measuring thread says so: it must never yield to nobody
            while ready.load(Ordering::Relaxed) == 2 {
                std::thread::yield_now();
            }
        });
        machine::name_thread("amp-yield-a");
        both_ready();
        let measured = (|| {
            for _ in 0..WARM_UP {
                std::thread::yield_now();
            }
            let window = Window::start(meter)?;
            for _ in 0..args.rounds {
                std::thread::yield_now();
            }
            window.end()
        })();
        ready.store(3, Ordering::SeqCst);
        measured
    })?;
    // fair schedulers let the two yield equally often; one that does not is dearer per yield of
    // this thread
    let mut fields = passed.per_operation(2 * args.rounds);
    merge(
        &mut fields,
        json!({"bench": "yield", "cpu": args.cpu, "rounds": args.rounds}),
    );
    report::print("yield", &fields, args.json);
    Ok(())
}

#[derive(clap::Args)]
pub struct PipeArgs {
    /// CPUs of the two ends, for example 1,1
    #[arg(
        long,
        value_delimiter = ',',
        num_args = 1,
        value_name = "A,B",
        conflicts_with = "unpinned"
    )]
    cpus: Vec<u32>,
    /// Let the scheduler choose
    #[arg(long)]
    unpinned: bool,
    /// Two processes instead of two threads
    #[arg(long)]
    processes: bool,
    /// Round trips
    #[arg(long, default_value = "10k", value_parser = amp_workloads::quantity::parse_count)]
    rounds: u64,
    /// One JSON line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct EchoArgs {
    #[arg(long)]
    cpu: Option<u32>,
    #[arg(long)]
    rounds: u64,
}

/// A byte goes to the other end and back; an operation is one round trip (two wake-ups, two
/// switches).
pub fn pipe(args: &PipeArgs) -> Result<()> {
    let (a, b) = match (args.cpus.as_slice(), args.unpinned) {
        ([], true) => (None, None),
        ([a, b], false) => (Some(*a), Some(*b)),
        _ => bail!("--cpus A,B with two CPUs, or --unpinned"),
    };
    let meter = Meter::open();
    let (to_read, to_write) = rustix::pipe::pipe().context("pipe")?;
    let (from_read, from_write) = rustix::pipe::pipe().context("pipe")?;
    let total = args.rounds + WARM_UP;
    let ping = move || -> Result<_> {
        machine::name_thread("amp-pipe-a");
        if let Some(cpu) = a {
            machine::pin(cpu)?;
        }
        round_trips(&to_write, &from_read, WARM_UP)?;
        let window = Window::start(meter)?;
        round_trips(&to_write, &from_read, args.rounds)?;
        window.end()
    };
    let passed = if args.processes {
        let me = std::env::current_exe().context("this program's own path")?;
        let mut echo = Command::new(me);
        echo.args(["bench", "pipe-echo", "--rounds", &total.to_string()]);
        if let Some(cpu) = b {
            echo.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = echo
            .stdin(Stdio::from(to_read))
            .stdout(Stdio::from(from_write))
            .spawn()
            .context("starting the other end")?;
        drop(echo); // it holds our copies of the child's ends: a dead child must show as a closed pipe
        let passed = ping();
        child.wait().context("waiting for the other end")?;
        passed?
    } else {
        std::thread::scope(|s| {
            let other = s.spawn(move || -> Result<()> {
                machine::name_thread("amp-pipe-b");
                if let Some(cpu) = b {
                    machine::pin(cpu)?;
                }
                echo(&to_read, &from_write, total)
            });
            let passed = ping();
            match other.join() {
                Ok(done) => done.and(passed),
                Err(_) => bail!("the other end panicked"),
            }
        })?
    };
    let mut fields = passed.per_operation(args.rounds);
    let ends = if args.processes {
        "processes"
    } else {
        "threads"
    };
    let cpus = a.zip(b).map(|(a, b)| vec![a, b]);
    merge(
        &mut fields,
        json!({"bench": "pipe", "ends": ends, "cpus": cpus, "rounds": args.rounds}),
    );
    report::print("pipe", &fields, args.json);
    Ok(())
}

/// The other end as a process: standard input to standard output.
pub fn echo_process(args: &EchoArgs) -> Result<()> {
    machine::name_thread("amp-pipe-b");
    if let Some(cpu) = args.cpu {
        machine::pin(cpu)?;
    }
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let mut byte = [0u8];
    for _ in 0..args.rounds {
        if rustix::io::read(&stdin, &mut byte)? == 0 {
            break;
        }
        rustix::io::write(&stdout, &byte)?;
    }
    Ok(())
}

fn echo(from: &OwnedFd, to: &OwnedFd, rounds: u64) -> Result<()> {
    let mut byte = [0u8];
    for _ in 0..rounds {
        if rustix::io::read(from, &mut byte)? == 0 {
            break;
        }
        rustix::io::write(to, &byte)?;
    }
    Ok(())
}

fn round_trips(to: &OwnedFd, from: &OwnedFd, rounds: u64) -> Result<()> {
    let mut byte = [0u8];
    for _ in 0..rounds {
        rustix::io::write(to, &byte)?;
        if rustix::io::read(from, &mut byte)? == 0 {
            bail!("the other end has gone");
        }
    }
    Ok(())
}

/// Adds the fields of `more` to `fields`; both are objects.
fn merge(fields: &mut Value, more: Value) {
    if let (Value::Object(f), Value::Object(m)) = (fields, more) {
        f.extend(m);
    }
}
