//! Starting the programs of a workload.
//!
//! A program runs as the invoking user when the bench itself runs under `sudo`, in a process group
//! of its own, so that what it starts ends with it; and it dies with the bench even when the bench
//! is killed outright ([`amp_host::launch`]).

pub use amp_host::launch::{wait_any, Process};
use amp_host::launch::{Launch, LaunchError};
use anyhow::{bail, Context, Result};
use rustix::process::{setpriority_process, Pid};
use std::path::PathBuf;

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its label in the workload.
    pub name: String,
    /// Executable and arguments.
    pub command: Vec<String>,
    /// Scheduling weight, 100 = nice 0.
    pub weight: u32,
    /// The CPUs it is pinned to in a run of the mix; all when `None`.
    pub cpus: Option<Vec<u32>>,
}

/// How programs are started.
#[derive(Debug)]
pub struct Launcher {
    /// Their working directory.
    pub workdir: PathBuf,
    /// User and group they run as; the bench's own when `None`.
    pub user: Option<(u32, u32)>,
    /// The CPUs a program may use unless it is told otherwise.
    pub cpus: Vec<u32>,
}

/// The nice value whose weight is nearest to `weight` percent of the default: each step is a factor
/// of 1.25.
pub fn nice_of(weight: u32) -> i32 {
    let steps = (f64::from(weight.max(1)) / 100.0).ln() / 1.25_f64.ln();
    (-steps.round()).clamp(-20.0, 19.0) as i32
}

impl Launcher {
    /// Starts `program`, on `cpus` only when given.
    ///
    /// # Errors
    /// When it cannot be started; the error names the program and its executable.
    pub fn start(&self, program: &Program, cpus: Option<&[u32]>) -> Result<Process> {
        let name = &program.name;
        if program.command.is_empty() {
            bail!("app `{name}`: `command` is empty");
        }
        let launch = Launch::new(&program.command)?.called(format!("app `{name}`"));
        let launch = launch.in_dir(&self.workdir).as_user(self.user).apart()?;
        let started = launch.on_cpus(cpus.unwrap_or(&self.cpus)).start();
        let running = started.map_err(|e| match e {
            LaunchError::Program {
                program: exe,
                source,
            } => anyhow::Error::from(source).context(format!(
                "app `{name}`: cannot start `{exe}` in {}",
                self.workdir.display()
            )),
            e => e.into(),
        })?;
        let nice = nice_of(program.weight);
        if nice != 0 {
            setpriority_process(Pid::from_raw(running.pid()), nice).with_context(|| {
                format!("app `{name}`: weight {} needs nice {nice}", program.weight)
            })?;
        }
        Ok(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_the_nearest_nice_value() {
        assert_eq!(
            [100, 80, 125, 1024, 1, 10_000].map(nice_of),
            [0, 1, -1, -10, 19, -20]
        );
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let launcher = Launcher {
            workdir: std::env::temp_dir(),
            user: None,
            cpus: vec![0],
        };
        let start = |command: &[&str]| {
            let program = Program {
                name: "p".into(),
                command: command.iter().map(|s| (*s).into()).collect(),
                weight: 100,
                cpus: None,
            };
            launcher.start(&program, None).unwrap_err().to_string()
        };
        let e = start(&["no-such-program"]);
        assert!(
            e.contains("app `p`") && e.contains("no-such-program"),
            "{e}"
        );
        assert!(start(&[]).contains("`command` is empty"));
    }
}
