//! Counts a piece of its own work: `cargo run --example region [EVENTS]`.

use amp_measure::{Options, Region};
use std::process::ExitCode;

/// Sorts numbers that are in no order.
fn work() -> u64 {
    let mut v: Vec<u64> = (0..200_000u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
        .collect();
    v.sort_unstable();
    v[1000]
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("region: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), amp_measure::Error> {
    let events = std::env::args().nth(1);
    let options = Options {
        events: events.unwrap_or_else(|| "instructions:u,cycles:u".into()),
        ..Options::default()
    };
    // the machine's energy, where something measures it
    let with_energy = Options {
        energy: true,
        ..options.clone()
    };
    let mut region = Region::with(&with_energy).or_else(|_| Region::with(&options))?;
    region.start()?;
    std::hint::black_box(work());
    region.stop()?;
    let counts = region.read()?;
    for c in &counts.events {
        println!(
            "{} on {}: {} in {:.6} s",
            c.event, c.pmu, c.count, c.seconds
        );
    }
    match counts.energy_j {
        Some(j) => println!("{j:.6} J of the whole machine"),
        None => println!("nothing measures the energy of this machine"),
    }
    Ok(())
}
