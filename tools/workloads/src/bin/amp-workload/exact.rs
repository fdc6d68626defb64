//! `amp-workload exact`: kernels whose counts are known exactly.

use crate::machine;
use crate::model::ModelTotals;
use crate::run::Usage;
use amp_machine::page::publish_hint;
use amp_workloads::exact::{Caches, Kernel, Level, Quantity, Traffic};
use amp_workloads::quantity::{parse_count, parse_size};
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use serde_json::{json, Map, Value};

/// As [`Traffic::ALL`], by words of the command line.
const STREAMS: [(&str, Traffic); 6] = [
    ("load", Traffic::Load),
    ("store", Traffic::Store),
    ("copy", Traffic::Copy),
    ("triad", Traffic::Triad),
    ("vector-triad", Traffic::VectorTriad),
    ("dot-product", Traffic::Dot),
];
const NOPS: &str = "nops";
const RANDOM: &str = "random-branches";
/// Caches that data is made for, bytes.
const CACHE: std::ops::RangeInclusive<u64> = 1 << 10..=256 << 20;
/// Rounds, branches or accesses at most: random bits of as many branches have to be held.
const MOST: u64 = 4_000_000_000;

/// Arguments of `exact`.
#[derive(clap::Args)]
pub struct Args {
    /// nops (a loop of instructions that touch no memory), random-branches, or arrays that are walked
    #[arg(value_parser = PossibleValuesParser::new(
        [NOPS, RANDOM].into_iter().chain(STREAMS.map(|(name, _)| name))
    ))]
    kernel: String,
    /// Rounds of the loop, branches, or loads and stores, for example 4M; rounded up to whole passes
    #[arg(long, value_parser = parse_count)]
    work: u64,
    /// Where the data of arrays is
    #[arg(long, value_parser = PossibleValuesParser::new(Level::ALL.map(Level::name)), default_value = "L1")]
    level: String,
    /// Size of the L1 data cache
    #[arg(long, value_parser = parse_size, default_value = "32K")]
    l1: u64,
    /// Size of the L2
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    l2: u64,
    /// Put the data in place, and end: what comes on top of the counts
    #[arg(long)]
    setup_only: bool,
    /// Run on this CPU only; on the board its own totals are printed, too
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
}

impl Args {
    fn kernel(&self) -> Result<Kernel, Usage> {
        for (option, size) in [("--l1", self.l1), ("--l2", self.l2)] {
            if !CACHE.contains(&size) {
                return Err(Usage::new(format!("{option}: a size from 1K to 256M")));
            }
        }
        if self.work > MOST {
            return Err(Usage::new(format!("--work: at most {MOST}")));
        }
        // a size that fits 256 MiB fits any machine's words
        let caches = Caches {
            l1: self.l1 as usize,
            l2: self.l2 as usize,
            last: self.l2 as usize,
        };
        let stream = STREAMS.iter().find(|(name, _)| *name == self.kernel);
        Ok(match (stream, self.kernel.as_str()) {
            (Some((_, traffic)), _) => Kernel::stream(*traffic, self.level(), &caches, self.work),
            (None, NOPS) => Kernel::nops(self.work),
            (None, _) => Kernel::random_branches(self.work, 1),
        })
    }

    fn level(&self) -> Level {
        let mut all = Level::ALL.into_iter();
        all.find(|l| l.name() == self.level).unwrap_or(Level::L1)
    }
}

/// Runs the kernel and prints what it is known to count, as one line of JSON.
///
/// # Errors
/// [`Usage`] naming an option that is out of range; others when the CPU or the board's state page
/// cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let mut kernel = args.kernel()?;
    let mut model = match args.pin {
        Some(cpu) => {
            machine::pin(cpu)?;
            ModelTotals::open(cpu)?
        }
        None => None,
    };
    // a run that only sets up finds this out, too: it may look at all of the data, and is to cost what the other costs
    let mut expected = expected(&kernel);
    if args.setup_only {
        expected.clear();
    }
    if let Some(m) = &mut model {
        publish_hint();
        m.start()?;
    }
    let begin = machine::thread_ns();
    if !args.setup_only {
        kernel.run();
    }
    let cpu_ns = machine::thread_ns() - begin;
    publish_hint();
    let model = model.map_or(Ok(Value::Null), |m| m.since())?;
    let name = &kernel.name;
    let line = json!({"exact": name, "expected": expected, "cpu_ns": cpu_ns, "model": model});
    println!("{line}");
    Ok(())
}

/// What a run of the kernel is known to count, by quantity.
fn expected(kernel: &Kernel) -> Map<String, Value> {
    let known = Quantity::ALL.into_iter().filter_map(|q| {
        let e = kernel.expected(q)?;
        let known = json!({"count": e.count, "tolerance": e.tolerance});
        Some((q.name().to_owned(), known))
    });
    let calculates = kernel.floating_point().map(|n| {
        let known = json!({"count": n, "tolerance": 0});
        ("floating-point".to_owned(), known)
    });
    known.chain(calculates).collect()
}
