//! A build: many short processes, some of them at a time.

use super::crew::{give_up, on_threads};
use super::pause::spread;
use super::{range, JobError};
use crate::kernels::Spec;
use crate::rng::Rng;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Processes that do a piece of work each and end, as the compilers of a build do: so many at a
/// time, and the next one when one has ended.
///
/// How much each does is drawn from the seed and its number, from half to one and a half times what
/// its kind says. So the work does not depend on the order in which processes end.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// The `amp-workload` that is started.
    pub program: PathBuf,
    /// Kinds of process by turns: a kernel, and its units on average.
    pub kinds: Vec<(Spec, u64)>,
    /// Processes in all.
    pub processes: u64,
    /// Processes at a time, at least 1; each is waited for by a thread of this one.
    pub at_a_time: u32,
    /// Seed of the amounts of work.
    pub seed: u64,
}

impl Build {
    pub(super) fn check(&self) -> Result<(), JobError> {
        match self.kinds.is_empty() {
            true => Err(range("phases", 0, "at least one --phase KERNEL=UNITS")),
            false => Ok(()),
        }
    }

    /// Runs all processes and returns the checksum, which is made of theirs.
    pub(super) fn run(&self) -> u64 {
        let (next, digest) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut threads = vec![(); self.at_a_time as usize];
        on_threads(&mut threads, |_, ()| loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= self.processes {
                return;
            }
            let checksum = self
                .process(n)
                .unwrap_or_else(|e| give_up(&format!("process {n} of the build: {e}")));
            let sum = Rng::new(checksum ^ Rng::new(n).next()).next();
            digest.fetch_xor(sum, Ordering::Relaxed);
        });
        digest.into_inner()
    }

    /// What process `n` does.
    fn task(&self, n: u64) -> Option<(Spec, u64)> {
        let (spec, units) = self
            .kinds
            .iter()
            .cycle()
            .nth(usize::try_from(n % self.kinds.len().max(1) as u64).unwrap_or_default())?;
        let mut rng = Rng::new(Rng::new(self.seed).next() ^ n);
        Some((*spec, spread(&mut rng, *units)))
    }

    /// Runs process `n` to its end, and reads its checksum.
    fn process(&self, n: u64) -> Result<u64, String> {
        let (spec, units) = self.task(n).ok_or("there are no kinds of process")?;
        let phase = format!("{spec}={units}");
        let arguments = ["run", "phased", "--phase", &phase, "--work", "1", "--json"];
        let done = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("{}: {e}", self.program.display()))?;
        if !done.status.success() {
            return Err(format!("{phase}: {}", done.status));
        }
        let said: serde_json::Value =
            serde_json::from_slice(&done.stdout).map_err(|e| format!("{phase}: {e}"))?;
        let checksum = said["checksum"].as_str();
        checksum
            .and_then(|c| u64::from_str_radix(c, 16).ok())
            .ok_or_else(|| format!("{phase}: no checksum in {said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Job;

    fn build(kinds: &[(&str, u64)]) -> Build {
        Build {
            program: "/no/such/program".into(),
            kinds: kinds
                .iter()
                .map(|(s, u)| (s.parse().unwrap(), *u))
                .collect(),
            processes: 100,
            at_a_time: 4,
            seed: 1,
        }
    }

    #[test]
    fn kinds_take_turns_and_amounts_are_drawn_from_the_seed() {
        let a = build(&[("alu", 1000), ("sort", 10)]);
        let tasks = |b: &Build| (0..100).map(|n| b.task(n).unwrap()).collect::<Vec<_>>();
        let all = tasks(&a);
        assert!(all.iter().step_by(2).all(|(s, _)| s.to_string() == "alu"));
        assert!(all[1..]
            .iter()
            .step_by(2)
            .all(|(s, u)| s.to_string() == "sort" && (5..=15).contains(u)));
        let alu: Vec<u64> = all.iter().step_by(2).map(|(_, u)| *u).collect();
        assert!(alu.iter().all(|u| (500..=1500).contains(u)));
        assert!(alu.iter().any(|u| *u < 700) && alu.iter().any(|u| *u > 1300));
        assert_eq!(all, tasks(&a));
        assert_ne!(all, tasks(&Build { seed: 2, ..a }));
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let e = build(&[("alu", 10)]).process(0).unwrap_err();
        assert!(e.contains("/no/such/program"), "{e}");
        let none = Job::Build(build(&[])).prepare().err().unwrap();
        assert!(none.to_string().contains("--phase"));
    }
}
