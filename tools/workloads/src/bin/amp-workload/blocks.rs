//! `amp-workload blocks`: kernels of which every basic block is known.

use crate::machine;
use amp_workloads::blocks::Kernel;
use amp_workloads::quantity::parse_count;
use anyhow::Result;
use clap::builder::PossibleValuesParser;

/// Arguments of `blocks`.
#[derive(clap::Args)]
pub struct Args {
    /// latency (blocks that differ in latency), chain (ten calls deep), short (blocks of one or two
    /// instructions)
    #[arg(value_parser = PossibleValuesParser::new(Kernel::ALL.map(Kernel::name)))]
    kernel: String,
    /// Rounds, for example 4M
    #[arg(long, value_parser = parse_count)]
    rounds: u64,
    /// Run on this CPU only
    #[arg(long, value_name = "CPU")]
    pin: Option<u32>,
    /// Run nothing: print the blocks, their instructions and how often they run, as JSON
    #[arg(long)]
    list: bool,
}

/// Runs the kernel, or prints what it would run.
///
/// # Errors
/// When the CPU cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let kernel = Kernel::ALL.into_iter().find(|k| k.name() == args.kernel);
    // clap lets no other name through
    let Some(kernel) = kernel else { return Ok(()) };
    if args.list {
        println!("{}", serde_json::to_string(&kernel.blocks(args.rounds))?);
        return Ok(());
    }
    if let Some(cpu) = args.pin {
        machine::pin(cpu)?;
    }
    kernel.run(args.rounds);
    Ok(())
}
