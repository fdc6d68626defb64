//! Prints what the applications of a mix need to be simulated: instructions and a phase, from kept
//! times of them alone.
//!
//! `cargo run -p amp-sim --example phases -- MIX.toml SOLO.json`, where SOLO.json is the solo cache
//! of a bench on the board (`solo/MACHINE.json` in the cache folder) or the report that
//! `scx_amp bench --json` wrote.

use amp_eval::workload::Workload;
use amp_sim::alone::Kept;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mix, solo] = &args[..] else {
        return Err("usage: phases MIX.toml SOLO.json".into());
    };
    let mut workload = Workload::load(Path::new(mix))?;
    Kept::load(Path::new(solo))?.complete(&mut workload)?;
    for app in workload.apps {
        println!("name = \"{}\"", app.name);
        println!("instructions = {}", digits(app.instructions.unwrap_or(0.0)));
        let phases = app.phases.iter().map(|p| {
            let (n, big, small) = (
                digits(p.instructions),
                digits(p.ips_big),
                digits(p.ips_small),
            );
            format!("{{ instructions = {n}, ips_big = {big}, ips_small = {small} }}")
        });
        println!("phases = [{}]\n", phases.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// With four significant digits and an exponent that is a multiple of three.
fn digits(x: f64) -> String {
    let exponent = (x.log10() / 3.0).floor() * 3.0;
    let mantissa = x / 10f64.powf(exponent);
    let decimals = (3.0 - mantissa.log10().floor()).max(0.0) as usize;
    format!("{mantissa:.decimals$}e{exponent}")
}
