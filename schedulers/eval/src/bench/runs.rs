//! How often a mix is run under each policy.

use crate::evaluation::PolicyResult;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Runs of the mix where nobody says how many.
const USUAL: u32 = 5;
/// Runs of what differs much from run to run.
const MANY: u32 = 10;
/// Relative standard deviation of ASP from run to run above which a policy is run [`MANY`] times.
const SPREAD: f64 = 0.05;
/// Relative standard uncertainty of ASP that is good enough for [`Runs::Until`].
const GOOD: f64 = 0.01;
/// Runs after which no policy is run any more, whatever the time says.
const MOST: u32 = 1000;
/// Seconds of the machine's time for each policy, where nobody says how many.
const SECONDS: u64 = 3600;

/// How often a mix is run under each policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Runs {
    /// Five times; ten times under the kernel's own scheduler, whose result depends on who happens
    /// to start where, and under every policy whose ASP has a standard deviation above 5 % from run
    /// to run.
    #[default]
    Enough,
    /// So many times, 1 to 1000. Fewer than two give no uncertainty.
    Exactly(u32),
    /// At least five times, until the standard uncertainty of ASP is 1 % of it or less, or the runs
    /// of the policy have taken so many seconds of the machine's time.
    Until {
        /// The seconds, ≥ 1.
        seconds: u64,
    },
}

/// A text is no number of runs.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is no number of runs: a number from 1 to {MOST}, `auto`, or `auto:SECONDS`")]
pub struct NoRuns(String);

impl Runs {
    /// How many runs there will be at least, by what is known after the runs of `so_far`.
    pub fn planned(&self, is_baseline: bool, so_far: Option<&PolicyResult>) -> u32 {
        let done = so_far.map_or(0, |r| r.runs.len() as u32);
        let scatters = || {
            so_far
                .and_then(PolicyResult::spread)
                .is_some_and(|s| s > SPREAD)
        };
        match *self {
            Runs::Exactly(n) => n,
            Runs::Enough if is_baseline => MANY,
            Runs::Enough if done >= USUAL && scatters() => MANY,
            Runs::Enough => USUAL,
            Runs::Until { seconds } => {
                let is_good = |r: &PolicyResult| {
                    let relative = |value: f64| Some(r.spread()? / value.sqrt());
                    relative(f64::from(done)).is_some_and(|u| u <= GOOD)
                };
                let took: f64 = so_far
                    .iter()
                    .flat_map(|r| &r.runs)
                    .map(|r| r.duration_s)
                    .sum();
                let over = took >= seconds as f64 || done >= MOST;
                match done < USUAL || !(over || so_far.is_some_and(is_good)) {
                    true => USUAL.max(done + 1),
                    false => done,
                }
            }
        }
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Enough => f.write_str("enough"),
            Runs::Exactly(n) => n.fmt(f),
            Runs::Until { seconds } => write!(f, "auto:{seconds}"),
        }
    }
}

impl FromStr for Runs {
    type Err = NoRuns;

    fn from_str(text: &str) -> Result<Runs, NoRuns> {
        let no_runs = || NoRuns(text.to_owned());
        let number = |t: &str| t.parse::<u64>().ok().filter(|n| *n >= 1);
        match text.split_once(':') {
            None if text == "enough" => Ok(Runs::Enough),
            None if text == "auto" => Ok(Runs::Until { seconds: SECONDS }),
            Some(("auto", seconds)) => {
                let seconds = number(seconds).ok_or_else(no_runs)?;
                Ok(Runs::Until { seconds })
            }
            _ => match number(text).and_then(|n| u32::try_from(n).ok()) {
                Some(n) if n <= MOST => Ok(Runs::Exactly(n)),
                _ => Err(no_runs()),
            },
        }
    }
}

impl TryFrom<String> for Runs {
    type Error = NoRuns;

    fn try_from(text: String) -> Result<Runs, NoRuns> {
        text.parse()
    }
}

impl From<Runs> for String {
    fn from(runs: Runs) -> String {
        runs.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{evaluate, AppRun, AppSpec, Run, Solo, Unfinished, WorkFrom};

    /// A result of runs with these lengths, of one pass each.
    fn result(lengths: &[f64]) -> PolicyResult {
        let app = AppSpec {
            name: "a".into(),
            weight: 100,
        };
        let solo = Solo {
            slow_s: vec![40.0; 2],
            fast_s: vec![10.0; 2],
        };
        let run = |t: &f64| Run {
            apps: vec![AppRun {
                completions_s: vec![*t],
                unfinished: Unfinished::NOTHING,
                time_s: Vec::new(),
            }],
            duration_s: *t,
            ..Run::default()
        };
        let runs: Vec<Run> = lengths.iter().map(run).collect();
        evaluate("p", &[app], &[solo], &runs, WorkFrom::Instructions).unwrap()
    }

    #[test]
    fn what_scatters_is_run_more_often() {
        let steady = result(&[20.0, 20.1, 19.9, 20.0, 20.0]);
        let wild = result(&[15.0, 25.0, 20.0, 18.0, 22.0]);
        let planned = |of| Runs::Enough.planned(false, of);
        assert_eq!((planned(None), planned(Some(&steady))), (5, 5));
        assert_eq!(planned(Some(&wild)), 10);
        // as long as there are few runs, their scatter means little
        assert_eq!(planned(Some(&result(&[15.0, 25.0]))), 5);
        assert_eq!(Runs::Enough.planned(true, Some(&steady)), 10);
        assert_eq!(Runs::Exactly(3).planned(true, Some(&wild)), 3);
    }

    #[test]
    fn until_it_is_known_well_enough_or_the_time_is_over() {
        let auto = Runs::Until { seconds: 1000 };
        assert_eq!(auto.planned(false, None), 5);
        let wild = [15.0, 25.0, 20.0, 18.0, 22.0, 30.0];
        assert_eq!(auto.planned(false, Some(&result(&wild))), 7);
        assert_eq!(
            Runs::Until { seconds: 100 }.planned(false, Some(&result(&wild))),
            6
        );
        let steady = result(&[20.0, 20.1, 19.9, 20.0, 20.0]);
        assert_eq!(auto.planned(false, Some(&steady)), 5);
    }

    #[test]
    fn texts_and_back() {
        for (text, runs) in [
            ("7", Runs::Exactly(7)),
            ("auto", Runs::Until { seconds: SECONDS }),
            ("auto:90", Runs::Until { seconds: 90 }),
            ("enough", Runs::Enough),
        ] {
            assert_eq!(text.parse(), Ok(runs));
            assert_eq!(runs.to_string().parse(), Ok(runs));
        }
        for bad in ["0", "1001", "-1", "many", "auto:0", "auto:", ":5", ""] {
            let e = bad.parse::<Runs>().unwrap_err().to_string();
            assert!(
                e.contains(&format!("`{bad}`")) && e.contains("auto:SECONDS"),
                "{e}"
            );
        }
    }
}
