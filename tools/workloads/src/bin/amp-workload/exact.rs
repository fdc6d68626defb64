//! `amp-workload exact`: kernels whose counts are known exactly.

use crate::machine;
use crate::model::ModelTotals;
use crate::run::Usage;
use amp_machine::page::{publish_hint, Page, PageError};
use amp_workloads::exact::{
    largest_of_cpu, AdditionCost, Arithmetic, Caches, Kernel, Level, Quantity, Reach, Traffic, LINE,
};
use amp_workloads::quantity::{parse_count, parse_size};
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use serde_json::{json, Map, Value};
use std::path::Path;

/// As [`Traffic::ALL`], by words of the command line.
const STREAMS: [(&str, Traffic); 6] = [
    ("load", Traffic::Load),
    ("store", Traffic::Store),
    ("copy", Traffic::Copy),
    ("triad", Traffic::Triad),
    ("vector-triad", Traffic::VectorTriad),
    ("dot-product", Traffic::Dot),
];
/// As [`Arithmetic::ALL`].
const ARITHMETIC: [(&str, Arithmetic); 3] = [
    ("scalar-arithmetic", Arithmetic::Scalar),
    ("fused-arithmetic", Arithmetic::Fused),
    ("vector-arithmetic", Arithmetic::Vector),
];
/// As [`Reach::ALL`].
const PAGES: [(&str, Reach); 3] = [
    ("few-pages", Reach::Few),
    ("some-pages", Reach::Some),
    ("many-pages", Reach::Many),
];
const NOPS: &str = "nops";
const RANDOM: &str = "random-branches";
const CHAIN: &str = "additions";
const TWO_CHAINS: &str = "additions-abreast";
/// Caches that data is made for, bytes.
const CACHE: std::ops::RangeInclusive<u64> = 1 << 10..=256 << 20;
/// Rounds, branches or accesses at most: random bits of as many branches have to be held.
const MOST: u64 = 4_000_000_000;

/// Arguments of `exact`.
#[derive(clap::Args)]
pub struct Args {
    /// nops (a loop of instructions that touch no memory), random-branches, additions that wait for each other, floating-point
    /// arithmetic on registers, a load per page, or arrays that are walked
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    kernel: String,
    /// Rounds of the loop of nops, branches, additions, floating-point instructions, or loads and stores, for example 4M;
    /// rounded up to whole passes
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
    /// Size of the L3, where there is one
    #[arg(long, value_parser = parse_size)]
    l3: Option<u64>,
    /// Put the data in place, and end: what comes on top of the counts
    #[arg(long)]
    setup_only: bool,
    /// Run on this CPU only; on the board its own totals are printed, too
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
}

/// All kernels.
fn names() -> impl Iterator<Item = &'static str> {
    let streams = STREAMS.iter().map(|(name, _)| *name);
    let calculating = ARITHMETIC.iter().map(|(name, _)| *name);
    let pages = PAGES.iter().map(|(name, _)| *name);
    let plain = [NOPS, RANDOM, CHAIN, TWO_CHAINS].into_iter();
    plain.chain(calculating).chain(pages).chain(streams)
}

/// What is called `name`.
fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(n, _)| *n == name).map(|(_, what)| *what)
}

impl Args {
    fn kernel(&self) -> Result<Kernel, Usage> {
        let sizes = [
            ("--l1", Some(self.l1)),
            ("--l2", Some(self.l2)),
            ("--l3", self.l3),
        ];
        for (option, size) in sizes {
            if size.is_some_and(|s| !CACHE.contains(&s)) {
                return Err(Usage::new(format!("{option}: a size from 1K to 256M")));
            }
        }
        if self.work > MOST {
            return Err(Usage::new(format!("--work: at most {MOST}")));
        }
        let name = self.kernel.as_str();
        if let Some(kind) = named(&ARITHMETIC, name) {
            return Kernel::float(kind, self.work).ok_or_else(|| {
                Usage::new(format!("{name}: this processor has no such instructions"))
            });
        }
        if let Some(reach) = named(&PAGES, name) {
            return Kernel::pages(reach, self.work).ok_or_else(|| {
                Usage::new(format!(
                    "{name}: the kernel gives no pages that are sure to be small"
                ))
            });
        }
        if let Some(traffic) = named(&STREAMS, name) {
            let caches = self.caches();
            return Kernel::stream(traffic, self.level(), &caches, self.work).ok_or_else(|| {
                Usage::new("--level L3: needs --l3, at least eight times the size of --l2".into())
            });
        }
        Ok(match name {
            CHAIN | TWO_CHAINS => Kernel::additions(self.work, name == TWO_CHAINS, self.cost()),
            NOPS => Kernel::nops(self.work),
            _ => Kernel::random_branches(self.work, 1),
        })
    }

    /// The caches as they were told; what is to be in none fits none of this machine's either.
    fn caches(&self) -> Caches {
        // a size that fits 256 MiB fits any machine's words
        let (l2, l3) = (self.l2 as usize, self.l3.map(|s| s as usize));
        let listed = largest_of_cpu(Path::new("/sys"), self.pin.unwrap_or(0));
        Caches {
            l1: self.l1 as usize,
            l2,
            l3,
            last: l2.max(l3.unwrap_or(0)).max(listed.unwrap_or(0)),
        }
    }

    /// What additions cost here; on the board that differs between core types.
    fn cost(&self) -> Option<AdditionCost> {
        match Page::open() {
            Ok(page) => AdditionCost::on_board(&page, self.pin?),
            Err(PageError::NoBoard { .. }) => Some(AdditionCost::ONE),
            Err(_) => None,
        }
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
    let traffic = match args.setup_only {
        true => Value::Null,
        false => traffic(&kernel, cpu_ns),
    };
    let line = json!({"exact": name, "expected": expected, "cpu_ns": cpu_ns, "traffic": traffic, "model": model});
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
    known.collect()
}

/// Bytes that a run moves from memory and to it, and how many per second of CPU time; nothing where
/// that is not known or none are.
fn traffic(kernel: &Kernel, cpu_ns: u64) -> Value {
    let bytes = |q| {
        let lines = kernel.expected(q)?.count;
        Some(lines * LINE as f64)
    };
    let (Some(read), Some(written)) = (bytes(Quantity::MemoryReads), bytes(Quantity::MemoryWrites))
    else {
        return Value::Null;
    };
    if read + written == 0.0 || cpu_ns == 0 {
        return Value::Null;
    }
    let per_second = |bytes: f64| bytes / (cpu_ns as f64 / 1e9);
    json!({
        "read_bytes": read,
        "written_bytes": written,
        "read_bytes_per_second": per_second(read),
        "written_bytes_per_second": per_second(written),
    })
}
