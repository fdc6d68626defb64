//! Policies driven by the platform model, by samples of instructions per cycle, and by the truth of
//! solo runs, on mixes of real programs that no model was trained on
//! (`tools/workloads/mixes/held-out/`), on the board.
//!
//! ```text
//! cargo run --release -p amp-tests --example model-in-the-loop -- measure DIR [MIX]…   measures on the board, keeps it in DIR
//! cargo run --release -p amp-tests --example model-in-the-loop -- show DIR          what DIR holds
//! ```
//!
//! A mix is named by its file, `juno-1`; the machine is what stands before the dash. What is in DIR
//! already is not measured again.

use amp_eval::evaluation::{BenchReport, PolicyResult};
use amp_eval::report::measured;
use amp_metrics::uncertainty::Measured;
use amp_tests::{command, repository};
use std::error::Error;
use std::path::{Path, PathBuf};

const MIXES: [&str; 8] = [
    "juno-1",
    "juno-2",
    "juno-3",
    "juno-4",
    "quickia-1",
    "quickia-2",
    "quickia-3",
    "quickia-4",
];

/// The truth first: everything is said relative to it. `declared` takes factors from the solo runs
/// where the mix has none.
const PROVIDERS: [&str; 3] = ["declared", "model", "ipc-sampling"];
/// The kernel's own scheduler looks at no factors: it is measured beside the first provider only.
const BASELINE: &str = "eevdf";
const POLICIES: &str = "hsp,acfs,ef";
/// Programs start over until the longest has been through so many times, so that the first time, of
/// which no provider but the first knows anything yet, is not all that is seen.
const COMPLETIONS: usize = 2;
const RUNS: usize = 2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["show", dir] => show(Path::new(dir)),
        ["measure", dir, ref mixes @ ..] => {
            measure(Path::new(dir), mixes)?;
            show(Path::new(dir))
        }
        _ => Err("usage: model-in-the-loop show DIR | measure DIR [MIX]…".into()),
    }
}

fn file(dir: &Path, mix: &str, provider: &str) -> PathBuf {
    dir.join(format!("{mix}.{provider}.json"))
}

fn measure(dir: &Path, mixes: &[&str]) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for mix in MIXES
        .iter()
        .filter(|m| mixes.is_empty() || mixes.contains(m))
    {
        let machine = mix.split_once('-').ok_or("a mix is MACHINE-NUMBER")?.0;
        for provider in PROVIDERS {
            let to = file(dir, mix, provider);
            if to.exists() {
                continue;
            }
            eprintln!("{mix}, {provider}");
            let policies = match provider {
                p if p == PROVIDERS[0] => format!("{BASELINE},{POLICIES}"),
                _ => POLICIES.to_owned(),
            };
            let raw = tempfile::NamedTempFile::new()?;
            let workload = repository().join(format!("tools/workloads/mixes/held-out/{mix}.toml"));
            let out = command(&[
                "bench",
                &workload.display().to_string(),
                "--on=board",
                &format!("--machine={machine}"),
                &format!("--policies={policies}"),
                &format!("--provider={provider}"),
                &format!("--runs={RUNS}"),
                &format!("--completions={COMPLETIONS}"),
                &format!("--json={}", raw.path().display()),
            ]);
            if !out.status.success() {
                return Err(format!("{mix}: {}", String::from_utf8_lossy(&out.stderr)).into());
            }
            let mut report: BenchReport =
                serde_json::from_str(&std::fs::read_to_string(raw.path())?)?;
            for r in &mut report.results {
                r.timeline.clear();
            }
            std::fs::write(to, format!("{}\n", serde_json::to_string(&report)?))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<BenchReport>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)?;
    let report = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(report))
}

fn show(dir: &Path) -> Result<()> {
    for mix in MIXES {
        let Some(truth) = read(&file(dir, mix, PROVIDERS[0]))? else {
            continue;
        };
        let runs = truth.results.first().map_or(0, |r| r.runs.len());
        let known = |t: &Option<String>| t.clone().unwrap_or_else(|| "?".into());
        println!(
            "{mix}: {} big, {} small, {runs} runs, kernel {}, commit {}",
            truth.machine.big,
            truth.machine.small,
            known(&truth.environment.kernel),
            known(&truth.environment.commit),
        );
        if let Some(first) = truth.results.first() {
            let apps = first.apps.iter();
            let sf: Vec<String> = apps
                .map(|a| format!("{} {:.2}", a.name, a.ct_slow_s / a.ct_fast_s))
                .collect();
            println!("speedup factors: {}", sf.join(", "));
        }
        println!(
            "{:<8}{:<14}{:>18}{:>22}{:>18}{:>22}{:>22}",
            "policy", "provider", "ASP", "to truth", "unfairness", "to truth", "EDP, J·s/instr."
        );
        for provider in PROVIDERS {
            let Some(report) = read(&file(dir, mix, provider))? else {
                continue;
            };
            for r in &report.results {
                let baseline = r.policy == BASELINE;
                let t = truth.results.iter().find(|t| t.policy == r.policy);
                row(r, if baseline { "–" } else { provider }, t);
            }
        }
        println!();
    }
    Ok(())
}

/// `a` relative to `b`, percent; their uncertainties are independent.
fn relative(a: Measured, b: Measured) -> String {
    let percent = 100.0 * (a.value / b.value - 1.0);
    let u = a.relative().zip(b.relative());
    let u = u.map(|(x, y)| 100.0 * (a.value / b.value) * x.hypot(y));
    match u {
        Some(u) => format!("{percent:+.1} ± {u:.1} %"),
        None => format!("{percent:+.1} %"),
    }
}

fn row(r: &PolicyResult, provider: &str, truth: Option<&PolicyResult>) {
    let to = |f: fn(&PolicyResult) -> Measured| {
        truth.map_or_else(|| "–".to_owned(), |t| relative(f(r), f(t)))
    };
    println!(
        "{:<8}{:<14}{:>18}{:>22}{:>18}{:>22}{:>22}",
        r.policy,
        provider,
        measured(r.asp),
        to(|r| r.asp),
        measured(r.unfairness),
        to(|r| r.unfairness),
        r.edp.map_or_else(|| "–".to_owned(), measured),
    );
}
