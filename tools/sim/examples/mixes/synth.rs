//! Draws the synthetic programs that stand for the published ones; the rules are in
//! `tools/workloads/mixes/README-sim.md`.

use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The seed of all programs; each program adds its platform's and its own name.
pub const SEED: u64 = 2017;

/// Completion time alone on small cores, in seconds.
const SECONDS: (f64, f64) = (80.0, 120.0);
/// Length of a phase on a small core, in seconds (drawn uniformly in the logarithm).
const PHASE_SECONDS: (f64, f64) = (0.7, 6.0);
/// Length of a parallel loop on small cores, in seconds, with the fewest threads that a mix gives a
/// program.
const LOOP_SECONDS: f64 = 0.02;
/// Part of the time that a partially sequential program is in its serial phase, with the fewest
/// threads that a mix gives it, on small cores.
const SERIAL: (f64, f64) = (0.28, 0.40);
/// How far the power of a big core departs from the program's in a phase: down where the speedup
/// factor is above the program's and up where it is below, so that efficiency factors vary more
/// than speedup factors.
const POWER_DEPART: (f64, f64) = (0.03, 0.10);
const FEWEST_THREADS: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    #[serde(rename = "platform")]
    pub platforms: Vec<Platform>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    pub name: String,
    pub machine: String,
    pub table: String,
    pub phase_sf: (f64, f64),
    #[serde(rename = "H")]
    high: Option<Class>,
    #[serde(rename = "M")]
    medium: Option<Class>,
    #[serde(rename = "L")]
    low: Option<Class>,
    pub mixes: Vec<Mix>,
    pub programs: BTreeMap<String, Program>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub sf: (f64, f64),
    pub gips: (f64, f64),
    pub depart: (f64, f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    pub name: String,
    file: Option<String>,
    pub apps: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub class: String,
    sf: Option<(f64, f64)>,
    gips: Option<(f64, f64)>,
    depart: Option<(f64, f64)>,
    watts: Option<(f64, f64)>,
    power_depart: Option<(f64, f64)>,
}

struct Phase {
    seconds: f64,
    sf: f64,
    gips: f64,
    parallel: bool,
}

pub fn published() -> Result<Published, toml::de::Error> {
    toml::from_str(include_str!("published.toml"))
}

impl Mix {
    pub fn file_name(&self) -> String {
        format!("{}.toml", self.file.as_deref().unwrap_or(&self.name))
    }
}

/// `fma3d_m(5)` is `fma3d_m` with five threads.
pub fn name_and_threads(app: &str) -> (&str, u32) {
    let parsed = app.strip_suffix(')').and_then(|a| a.split_once('('));
    parsed
        .and_then(|(name, n)| Some((name, n.parse().ok()?)))
        .unwrap_or((app, 1))
}

impl Platform {
    /// The class of a program: what is drawn for its letter, and what the program says itself.
    pub fn class_of(&self, p: &Program) -> Option<Class> {
        let class = match p.class.chars().last() {
            Some('H') => self.high,
            Some('M') => self.medium,
            Some('L') => self.low,
            _ => None,
        };
        Some(Class {
            sf: p.sf.or(class.map(|c| c.sf))?,
            gips: p.gips.or(class.map(|c| c.gips))?,
            depart: p.depart.or(class.map(|c| c.depart))?,
        })
    }

    /// The workload file of a mix.
    pub fn render(&self, mix: &Mix, seed: u64) -> Option<String> {
        let mut out = String::new();
        let w = &mut out;
        // Writing to a string cannot fail.
        let _ = writeln!(w, "# [PMCTrack] {}: {}. Made by `cargo run -p amp-sim --example mixes`; see README-sim.md.", self.table, mix.apps.join(", "));
        let _ = writeln!(w, "name = \"{}\"\nmachine = \"{}\"", mix.name, self.machine);
        for app in &mix.apps {
            let (name, threads) = name_and_threads(app);
            let program = self.programs.get(name)?;
            let _ = writeln!(w, "\n[[app]]\nname = \"{name}\"   # {}", program.class);
            if threads != 1 {
                let _ = writeln!(w, "threads = {threads}");
            }
            self.render_program(w, name, program, seed)?;
        }
        Some(out)
    }

    fn render_program(
        &self,
        w: &mut String,
        name: &str,
        program: &Program,
        seed: u64,
    ) -> Option<()> {
        let class = self.class_of(program)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ fnv1a(&format!("{}/{name}", self.name)));
        let threads = if program.class.starts_with("ST") {
            1.0
        } else {
            FEWEST_THREADS
        };
        let phases = draw(
            &class,
            self.phase_sf,
            program.class.starts_with("PS"),
            threads,
            &mut rng,
        );
        let workers = |p: &Phase| if p.parallel { threads } else { 1.0 };
        let instructions = |p: &Phase| p.seconds * p.gips * workers(p);
        let pass: f64 = phases.iter().map(|p| p.seconds).sum();
        let passes = uniform(SECONDS, &mut rng) / pass;
        let total: f64 = phases.iter().map(instructions).sum::<f64>() * passes;
        let _ = writeln!(w, "instructions = {}e9\nphases = [", round(total));
        for p in &phases {
            let _ = write!(
                w,
                "  {{ instructions = {}e9, ips_big = {}e9, ips_small = {}e9",
                round(instructions(p)),
                round(p.gips * p.sf),
                round(p.gips)
            );
            if let Some((big, small)) = program.watts {
                let up = if p.sf > class.sf.0 { 1.0 } else { -1.0 };
                let depart = uniform(program.power_depart.unwrap_or(POWER_DEPART), &mut rng);
                let big = big * (1.0 - up * depart);
                let _ = write!(
                    w,
                    ", power_big = {}, power_small = {}",
                    round(big),
                    round(small)
                );
            }
            let sharing = match p.parallel {
                false => ", parallel = false".to_owned(),
                true if threads > 1.0 => {
                    format!(", loops = {}", (p.seconds / LOOP_SECONDS).round().max(1.0))
                }
                true => String::new(),
            };
            let _ = writeln!(w, "{sharing} }},");
        }
        let _ = writeln!(w, "]");
        Some(())
    }
}

fn draw(
    class: &Class,
    range: (f64, f64),
    partially_sequential: bool,
    threads: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<Phase> {
    let sf = uniform(class.sf, rng);
    let gips = uniform(class.gips, rng);
    let count = rng.random_range(2..=4);
    // by turns above and below the mean, so that no program is steady
    let first_up = rng.random_bool(0.5);
    let mut phases: Vec<Phase> = (0..count)
        .map(|i| {
            let depart = uniform(class.depart, rng);
            let up = (i % 2 == 0) == first_up;
            let (a, b) = PHASE_SECONDS;
            Phase {
                seconds: uniform((a.ln(), b.ln()), rng).exp(),
                sf: sf * if up { 1.0 + depart } else { 1.0 - depart },
                gips: gips * uniform((0.75, 1.25), rng),
                parallel: true,
            }
        })
        .collect();
    if partially_sequential {
        let parallel: f64 = phases.iter().map(|p| p.seconds).sum();
        let share = uniform(SERIAL, rng);
        let seconds = parallel * share / (1.0 - share);
        phases.insert(
            0,
            Phase {
                seconds,
                sf,
                gips,
                parallel: false,
            },
        );
    }
    scale_to_mean(&mut phases, sf, range, threads);
    phases
}

/// Scales the phases' factors, within `range`, until the program's (time on a small core over time
/// on a big one for all its instructions) is `sf`.
fn scale_to_mean(phases: &mut [Phase], sf: f64, range: (f64, f64), threads: f64) {
    for _ in 0..200 {
        let work = |p: &Phase| p.seconds * if p.parallel { threads } else { 1.0 };
        let small: f64 = phases.iter().map(work).sum();
        let big: f64 = phases.iter().map(|p| work(p) / p.sf).sum();
        let by = sf / (small / big);
        for p in phases.iter_mut() {
            p.sf = (p.sf * by).clamp(range.0, range.1);
        }
    }
}

fn uniform((low, high): (f64, f64), rng: &mut ChaCha8Rng) -> f64 {
    low + (high - low) * rng.random::<f64>()
}

/// Four significant digits.
fn round(x: f64) -> f64 {
    let digits = 10f64.powi(3 - x.abs().max(1e-9).log10().floor() as i32);
    (x * digits).round() / digits
}

/// The 64-bit FNV-1a hash.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}
