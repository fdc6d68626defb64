//! `scx_amp model train`, `eval` and `show`: a platform file from windows, and how good it is.

use super::{scatter, tables};
use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_host::{print, write_out};
use amp_models::data::Dataset;
use amp_models::matching::{matched, MatchedData};
use amp_models::metrology::{compatible, Rule, Verdict, RESOLUTION};
use amp_models::platform::{write, Platform};
use amp_models::training::{train, Method, Options, Step, TrainingError};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Flags of `scx_amp model train`.
#[derive(Args)]
pub struct TrainArgs {
    /// Files of instruction windows of one platform (models/README.md)
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,
    /// Windows of programs that no counter of one core type can predict: their data fit the cache of another one only, for example.
    /// Nothing is trained on them; they show for which counts the factors are uncertain
    #[arg(long, value_name = "DATA")]
    outliers: Vec<PathBuf>,
    /// Where to write the platform file; `-`: standard output
    #[arg(long, value_name = "FILE.toml")]
    out: PathBuf,
    /// Seed of everything random: equal seeds give equal files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What is fitted
    #[arg(long, value_enum, default_value_t = MethodArg::Stumps)]
    method: MethodArg,
    /// Growth of the squared error that fewer event sets may cost: 0.02 is 2 %
    #[arg(long, value_name = "SHARE", default_value_t = 0.02)]
    tolerance: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum MethodArg {
    /// Additive regression of stumps (gradient boosting)
    Stumps,
    /// Linear regression
    Linear,
    /// Linear regression, and stumps on what it leaves
    Both,
}

/// Flags of `scx_amp model eval`.
#[derive(Args)]
pub struct EvalArgs {
    /// The platform file
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Files of instruction windows of the same platform
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,
    /// Write a page with scatter plots, predicted over true, to FILE, or to standard output with
    /// `-`
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Reads files of windows of one platform.
fn load(paths: &[PathBuf]) -> Result<Dataset> {
    let mut all: Option<Dataset> = None;
    for path in paths {
        let data = Dataset::load(path).map_err(bad_input)?;
        match &mut all {
            None => all = Some(data),
            Some(all) => all.merge(path, data).map_err(bad_input)?,
        }
    }
    // clap asks for one at least
    all.ok_or_else(|| bad_input("no file of windows is given"))
}

fn platform(path: &Path) -> Result<Platform> {
    let (text, _) =
        amp_machine::read_text(path).map_err(|e| bad_input(format!("{}: {e}", path.display())))?;
    Platform::parse(path, &text).map_err(bad_input)
}

fn named(paths: &[PathBuf]) -> String {
    let all: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    all.join(", ")
}

/// The uncertainty of retired instructions that runs are compared with [MET §4.1].
const SIGMA_REF: f64 = 0.01;

/// What to know about the data before believing what comes of them.
fn warn(data: &Dataset, matched: &MatchedData) {
    for (program, why) in &matched.left_out {
        log::warn!("{program} is left out: {why}");
    }
    for p in matched.programs.iter().filter(|p| p.unmatched > 0.1) {
        let percent = 100.0 * p.unmatched;
        log::warn!(
            "{}: {percent:.0} % of its longest run has no counterpart in its shortest one",
            p.name
        );
    }
    for (program, types) in &data.programs {
        for (t, runs) in data.header.core_types.iter().zip(types) {
            let instructions: Vec<f64> = runs.iter().map(|r| r.instructions()).collect();
            // how many runs made a measure is not in the data: two of half of them each
            let halves = (instructions.len() / 2).max(1);
            let rule = Rule {
                runs: halves,
                resolution: if halves > 1 { RESOLUTION } else { SIGMA_REF },
                ..Rule::default()
            };
            if let Verdict::Repeat(which) = compatible(&instructions, &rule) {
                let which: Vec<String> =
                    which.iter().map(|i| runs[*i].number.to_string()).collect();
                log::warn!(
                    "{program} on {}: runs {} differ in retired instructions by more than runs of one program do: \
                     collect them again",
                    t.name,
                    which.join(", ")
                );
            }
        }
    }
}

/// Trains a platform file and says how good it is.
///
/// # Errors
/// Bad input, naming file and line; a file that cannot be written; a model that cannot be fitted.
pub fn train_command(args: &TrainArgs) -> Result<()> {
    if !(args.tolerance.is_finite() && args.tolerance >= 0.0) {
        let got = args.tolerance;
        return Err(bad_input(format!(
            "--tolerance: {got} is not a finite number of at least 0"
        )));
    }
    let mut data = load(&args.data)?;
    let mut outliers = Vec::new();
    for path in &args.outliers {
        let more = Dataset::load(path).map_err(bad_input)?;
        outliers.extend(more.programs.keys().cloned());
        data.merge(path, more).map_err(bad_input)?;
    }
    warn(&data, &matched(&data));
    let mut options = Options::seeded(args.seed);
    options.tolerance = args.tolerance;
    options.learner.method = match args.method {
        MethodArg::Stumps => Method::Stumps,
        MethodArg::Linear => Method::Linear,
        MethodArg::Both => Method::Both,
    };
    let mut progress = Progress::bar();
    let trained = train(&data, &outliers, &options, &mut |step| {
        progress.note(&match step {
            Step::Eliminating { core_type, events } => {
                format!("{core_type}: which of {events} events are needed?")
            }
            Step::Validating {
                core_type,
                quantity,
            } => format!("{core_type}: cross-validating {quantity}"),
        });
    });
    drop(progress);
    let trained = trained.map_err(|e| match e {
        TrainingError::TooFewPrograms { .. } => bad_input(format!("{}: {e}", named(&args.data))),
        TrainingError::NoFormula { .. } => e.into(),
    })?;
    let text = write(&data, &trained, &options)?;
    write_out(&args.out, &text)?;
    if args.out.as_os_str() != "-" {
        let said = tables::trained(&data, &trained, &options);
        print(&format!("{said}Wrote {}.\n", args.out.display()))?;
    }
    Ok(())
}

/// Predicts windows with a platform file and shows how far it is from the truth.
///
/// # Errors
/// Bad input, naming file and line; a page that cannot be written.
pub fn eval(args: &EvalArgs) -> Result<()> {
    let platform = platform(&args.file)?;
    let data = load(&args.data)?;
    let matched = matched(&data);
    warn(&data, &matched);
    if matched.programs.is_empty() {
        return Err(bad_input(format!(
            "{}: no program has windows on every core type",
            named(&args.data)
        )));
    }
    let file = args.file.display();
    let evaluated = platform
        .evaluate(&data, &matched)
        .map_err(|e| bad_input(format!("{file}: {e}")))?;
    if let Some(path) = &args.html {
        let page = scatter::page(&platform, &data, &matched, &evaluated);
        write_out(path, &page)?;
    }
    if args.html.as_ref().is_none_or(|h| h.as_os_str() != "-") {
        print(&tables::evaluated(&platform, &data, &matched, &evaluated))?;
    }
    Ok(())
}

/// Shows what is in a platform file.
///
/// # Errors
/// Bad input, naming file and line.
pub fn show(file: &Path) -> Result<()> {
    print(&tables::show(file, &platform(file)?))
}
