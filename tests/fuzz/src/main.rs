//! `amp-fuzz`: mutates seeds for a stated time, gives the mutants to every parser, and tells of
//! panics and hangs.
//!
//! A mutant that makes a parser panic, or take longer than a second (twice), is kept as a file; so is the
//! one at which the process was aborted. The exit status is 1 when there was any.

mod mutate;
mod targets;

use anyhow::{Context, Result};
use chacha20::ChaCha8Rng;
use clap::Parser;
use mutate::{mutate, Words};
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use targets::Target;

/// A parser that takes longer than this, twice, hangs.
const SLOW: Duration = Duration::from_secs(1);
/// After so long the process is ended: it hangs for good.
const HUNG: Duration = Duration::from_secs(20);
/// Mutants that each target is given in a row.
const ROUND: u32 = 500;

/// Mutates what scx_amp reads, and looks whether its parsers panic or hang.
#[derive(Parser)]
struct Cli {
    /// Seconds that it takes.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the random numbers; the time of day unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this target.
    #[arg(long)]
    only: Option<String>,
    /// The source tree that the seeds are in.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Folder for what makes a parser panic or hang.
    #[arg(long, default_value = "results/fuzz")]
    out: PathBuf,
    /// Gives FILEs to the target of `--only` instead of mutants.
    #[arg(requires = "only")]
    files: Vec<PathBuf>,
}

/// What happened at one target.
#[derive(Default)]
struct Tally {
    executions: u64,
    accepted: u64,
    panics: u64,
    hangs: u64,
    /// Mutants that were accepted and became seeds.
    grown: usize,
}

/// The mutant in work, on disk so that it outlives an abort, and since when.
struct Current {
    file: File,
    begun: Arc<AtomicU64>,
    epoch: Instant,
}

impl Current {
    fn begin(&self, input: &[u8]) -> std::io::Result<Instant> {
        self.file.set_len(0)?;
        self.file.write_all_at(input, 0)?;
        let now = Instant::now();
        let since = now.duration_since(self.epoch).as_millis() as u64;
        self.begun.store(since + 1, Ordering::Relaxed);
        Ok(now)
    }

    fn end(&self) {
        self.begun.store(0, Ordering::Relaxed);
    }
}

/// Ends the process when a mutant is in work for too long.
fn watch(begun: Arc<AtomicU64>, epoch: Instant, current: PathBuf) {
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_millis(500));
        let since = begun.load(Ordering::Relaxed);
        let now = epoch.elapsed().as_millis() as u64;
        if since > 0 && now.saturating_sub(since) > HUNG.as_millis() as u64 {
            eprintln!("a parser hangs for good: {}", current.display());
            std::process::exit(1);
        }
    });
}

/// Gives one input to a target; whether it went well.
fn give(
    target: &mut Target,
    input: &[u8],
    current: &Current,
    tally: &mut Tally,
) -> Result<Verdict> {
    let begun = current.begin(input)?;
    let parse = &mut target.parse;
    let mut done = catch_unwind(AssertUnwindSafe(|| parse(input)));
    let mut took = begun.elapsed();
    if done.is_ok() && took > SLOW {
        // a busy host may have stood still: what is slow is slow again
        let begun = Instant::now();
        done = catch_unwind(AssertUnwindSafe(|| parse(input)));
        took = begun.elapsed();
    }
    current.end();
    tally.executions += 1;
    Ok(match done {
        Err(_) => {
            tally.panics += 1;
            Verdict::Bad("panic")
        }
        Ok(_) if took > SLOW => {
            tally.hangs += 1;
            Verdict::Bad("slow")
        }
        Ok(true) => {
            tally.accepted += 1;
            Verdict::Accepted
        }
        Ok(false) => Verdict::Refused,
    })
}

enum Verdict {
    Accepted,
    Refused,
    Bad(&'static str),
}

fn keep(out: &Path, target: &str, what: &str, n: u64, input: &[u8]) -> Result<()> {
    // a handful of each is enough to mend it
    if n <= 20 {
        let file = out.join(format!("{what}-{}-{n}", target.replace(' ', "-")));
        std::fs::write(&file, input).with_context(|| file.display().to_string())?;
        eprintln!("{what} in {target}: {}", file.display());
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    std::fs::create_dir_all(&cli.out).with_context(|| cli.out.display().to_string())?;
    let mut targets = targets::all(&cli.root).context("seeds (use --root)")?;
    if let Some(only) = &cli.only {
        targets.retain(|t| t.name == *only);
        anyhow::ensure!(!targets.is_empty(), "no target `{only}`");
    }
    let path = cli.out.join("current");
    let current = Current {
        file: File::create(&path)?,
        begun: Arc::default(),
        epoch: Instant::now(),
    };
    watch(current.begun.clone(), current.epoch, path);
    if !cli.files.is_empty() {
        return replay(&cli, &mut targets[0], &current);
    }
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
    let seed = cli.seed.unwrap_or_else(now);
    println!("seed {seed}, {} s, {} targets", cli.seconds, targets.len());
    // once is enough to see where
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        if TOLD.fetch_add(1, Ordering::Relaxed) < 20 {
            usual(info);
        }
    }));
    let mut tallies: Vec<Tally> = targets.iter().map(|_| Tally::default()).collect();
    let words: Vec<Words> = targets.iter().map(|t| Words::of(&t.seeds)).collect();
    // the seeds themselves first
    for (target, tally) in targets.iter_mut().zip(&mut tallies) {
        for input in target.seeds.clone() {
            if let Verdict::Bad(what) = give(target, &input, &current, tally)? {
                keep(
                    &cli.out,
                    target.name,
                    what,
                    tally.panics + tally.hangs,
                    &input,
                )?;
            }
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let end = Instant::now() + Duration::from_secs(cli.seconds);
    'all: loop {
        for ((target, tally), words) in targets.iter_mut().zip(&mut tallies).zip(&words) {
            for _ in 0..ROUND {
                if Instant::now() >= end {
                    break 'all;
                }
                let at = random.random_range(0..target.seeds.len());
                let mut input = target.seeds[at].clone();
                mutate(&mut input, &target.seeds, words, &mut random);
                match give(target, &input, &current, tally)? {
                    Verdict::Bad(what) => {
                        keep(
                            &cli.out,
                            target.name,
                            what,
                            tally.panics + tally.hangs,
                            &input,
                        )?;
                    }
                    // mutants of mutants reach what one change does not
                    Verdict::Accepted if tally.grown < 2000 && input.len() < 64 << 10 => {
                        tally.grown += 1;
                        target.seeds.push(input);
                    }
                    Verdict::Accepted | Verdict::Refused => {}
                }
            }
        }
    }
    Ok(report(&targets, &tallies))
}

fn report(targets: &[Target], tallies: &[Tally]) -> ExitCode {
    println!("target                    executions    accepted  panics  hangs");
    let line = |name: &str, t: &Tally| {
        let Tally {
            executions,
            accepted,
            panics,
            hangs,
            ..
        } = t;
        println!("{name:24} {executions:11} {accepted:11} {panics:7} {hangs:6}");
    };
    let mut sum = Tally::default();
    for (target, t) in targets.iter().zip(tallies) {
        line(target.name, t);
        sum.executions += t.executions;
        sum.accepted += t.accepted;
        sum.panics += t.panics;
        sum.hangs += t.hangs;
    }
    line("all", &sum);
    ExitCode::from(u8::from(sum.panics + sum.hangs > 0))
}

/// Gives files to a target, such as those that were kept.
fn replay(cli: &Cli, target: &mut Target, current: &Current) -> Result<ExitCode> {
    let mut bad = 0;
    for file in &cli.files {
        let input = std::fs::read(file).with_context(|| file.display().to_string())?;
        let said = match give(target, &input, current, &mut Tally::default())? {
            Verdict::Accepted => "accepted",
            Verdict::Refused => "refused",
            Verdict::Bad(what) => {
                bad += 1;
                what
            }
        };
        println!("{}: {said}", file.display());
    }
    Ok(ExitCode::from(u8::from(bad > 0)))
}
