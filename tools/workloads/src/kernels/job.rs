//! A kernel, several by turns, or several threads of one: what a process of `amp-workload run`
//! does.

mod build;
mod crew;
mod interactive;
mod pause;
mod pipeline;
mod queue;
mod server;

pub use build::Build;
pub use interactive::Interactive;
pub use pipeline::Pipeline;
pub use queue::Queue;
pub use server::Server;

use super::{Kernel, Spec};
use crew::on_threads;
use std::sync::Barrier;

/// What to do, in full.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// `units` of one kernel, shared out evenly over `threads` that never wait for each other.
    Plain {
        /// The kernel.
        spec: Spec,
        /// Units in all.
        units: u64,
        /// Threads, at least 1.
        threads: u32,
    },
    /// Kernels by turns, on one thread.
    Phased {
        /// Each phase: a kernel and its units.
        phases: Vec<(Spec, u64)>,
        /// How often the list is gone through.
        rounds: u64,
    },
    /// Like `Plain`, with a barrier every `step` units of each thread.
    Parallel {
        /// The kernel of every thread.
        spec: Spec,
        /// Units in all.
        units: u64,
        /// Threads, at least 1.
        threads: u32,
        /// Units of one thread between two barriers, at least 1.
        step: u64,
    },
    /// A program of which a given fraction of the work cannot be shared out [Amdahl 1967]: in each
    /// round the first thread works alone, then all of them.
    Serial {
        /// The kernel of every thread.
        spec: Spec,
        /// Units in all.
        units: u64,
        /// Threads, at least 1.
        threads: u32,
        /// Fraction of the work done by the first thread alone, 0..=1.
        fraction: f64,
        /// Rounds, at least 1.
        rounds: u64,
    },
    /// Chunks that threads take whenever they are free.
    Queue(Queue),
    /// Stages with channels between them.
    Pipeline(Pipeline),
    /// Threads that mostly sleep, and answer requests.
    Server(Server),
    /// Bursts of work with pauses between them.
    Interactive(Interactive),
    /// Many short processes.
    Build(Build),
}

/// Why a job makes no sense.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum JobError {
    /// A number out of range.
    #[error("{what} {value}: {right}")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        right: &'static str,
    },
}

fn range(what: &'static str, value: impl ToString, right: &'static str) -> JobError {
    JobError::Range {
        what,
        value: value.to_string(),
        right,
    }
}

impl Job {
    /// Threads the job runs on.
    pub fn threads(&self) -> u32 {
        match self {
            Job::Phased { .. } | Job::Interactive(_) => 1,
            Job::Plain { threads, .. }
            | Job::Parallel { threads, .. }
            | Job::Serial { threads, .. }
            | Job::Queue(Queue { threads, .. })
            | Job::Server(Server { threads, .. }) => *threads,
            Job::Build(b) => b.at_a_time,
            Job::Pipeline(p) => u32::try_from(p.stages.len()).unwrap_or(u32::MAX),
        }
    }

    fn check(&self) -> Result<(), JobError> {
        match self {
            Job::Queue(q) => q.check()?,
            Job::Pipeline(p) => p.check()?,
            Job::Server(s) => s.check()?,
            Job::Interactive(i) => i.check()?,
            Job::Build(b) => b.check()?,
            Job::Plain { .. } => {}
            Job::Phased { phases, .. } => {
                if phases.is_empty() {
                    return Err(range("phases", 0, "at least one --phase KERNEL=UNITS"));
                }
            }
            Job::Parallel { step, .. } => {
                if *step == 0 {
                    return Err(range("step", 0, "at least 1 unit between barriers"));
                }
            }
            Job::Serial {
                fraction, rounds, ..
            } => {
                if !(0.0..=1.0).contains(fraction) {
                    return Err(range("serial fraction", fraction, "from 0 to 1"));
                }
                if *rounds == 0 {
                    return Err(range("rounds", 0, "at least 1"));
                }
            }
        }
        if !(1..=1024).contains(&self.threads()) {
            return Err(range("threads", self.threads(), "from 1 to 1024"));
        }
        Ok(())
    }

    /// Sets up all data.
    ///
    /// # Errors
    /// When a number is out of range; the error names it.
    pub fn prepare(&self) -> Result<Prepared, JobError> {
        self.check()?;
        let kernels = match self {
            Job::Phased { phases, .. } | Job::Pipeline(Pipeline { stages: phases, .. }) => (0..)
                .zip(phases)
                .map(|(i, (spec, _))| spec.prepare(i))
                .collect(),
            Job::Plain { spec, threads, .. }
            | Job::Parallel { spec, threads, .. }
            | Job::Serial { spec, threads, .. }
            | Job::Server(Server { spec, threads, .. }) => {
                (0..u64::from(*threads)).map(|i| spec.prepare(i)).collect()
            }
            Job::Interactive(Interactive { spec, .. }) => vec![spec.prepare(0)],
            // each chunk and each process has data of its own
            Job::Queue(_) | Job::Build(_) => Vec::new(),
        };
        Ok(Prepared {
            job: self.clone(),
            kernels,
        })
    }
}

/// Part `i` of `total` shared out over `n`: all parts differ by at most one and add up.
fn share(total: u64, n: u64, i: u64) -> u64 {
    total / n + u64::from(i < total % n)
}

/// A job with its data in place, to be run once.
pub struct Prepared {
    job: Job,
    kernels: Vec<Box<dyn Kernel>>,
}

impl Prepared {
    /// Does the work and returns the checksum. With several threads, the calling one is the first
    /// of them and the others, which inherit its affinity, are named `amp-worker`. The program ends
    /// with status 1 when the system refuses a thread, or a process of a build fails.
    pub fn run(mut self) -> u64 {
        match &self.job {
            Job::Queue(q) => return q.run(),
            Job::Build(b) => return b.run(),
            Job::Pipeline(p) => return p.run(self.kernels),
            Job::Server(s) => s.run(&mut self.kernels),
            Job::Interactive(i) => i.run(&mut self.kernels),
            Job::Plain { units, threads, .. } => {
                let (units, n) = (*units, u64::from(*threads));
                on_threads(&mut self.kernels, |i, k| k.run(share(units, n, i)));
            }
            Job::Phased { phases, rounds } => {
                for _ in 0..*rounds {
                    for ((_, units), k) in phases.iter().zip(&mut self.kernels) {
                        k.run(*units);
                    }
                }
            }
            Job::Parallel {
                units,
                threads,
                step,
                ..
            } => {
                let (units, n, step) = (*units, u64::from(*threads), *step);
                let steps = share(units, n, 0).div_ceil(step);
                let barrier = Barrier::new(*threads as usize);
                on_threads(&mut self.kernels, |i, k| {
                    let mut left = share(units, n, i);
                    for _ in 0..steps {
                        k.run(left.min(step));
                        left -= left.min(step);
                        barrier.wait();
                    }
                });
            }
            Job::Serial {
                units,
                threads,
                fraction,
                rounds,
                ..
            } => {
                let (units, n, rounds) = (*units, u64::from(*threads), *rounds);
                let alone = ((units as f64 * fraction).round() as u64).min(units);
                let barrier = Barrier::new(*threads as usize);
                on_threads(&mut self.kernels, |i, k| {
                    for round in 0..rounds {
                        if i == 0 {
                            k.run(share(alone, rounds, round));
                        }
                        barrier.wait();
                        k.run(share(share(units - alone, rounds, round), n, i));
                        barrier.wait();
                    }
                });
            }
        }
        (0..)
            .zip(&self.kernels)
            .fold(0, |s, (i, k)| s ^ k.checksum().rotate_left(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::SIMPLE;

    fn plain(spec: &str, units: u64, threads: u32) -> Job {
        Job::Plain {
            spec: spec.parse().unwrap(),
            units,
            threads,
        }
    }

    fn run(job: &Job) -> u64 {
        job.prepare().unwrap().run()
    }

    #[test]
    fn same_work_same_checksum_other_work_another() {
        for i in &SIMPLE {
            let size = if i.default_size == 0 { "" } else { "@16K" };
            let spec = format!("{}{size}", i.name);
            let a = run(&plain(&spec, 1003, 1));
            assert_eq!(a, run(&plain(&spec, 1003, 1)), "{spec}");
            assert_ne!(a, run(&plain(&spec, 1004, 1)), "{spec}");
            assert_ne!(a, run(&plain(&spec, 1003, 2)), "{spec}");
        }
    }

    #[test]
    fn checksums_are_what_they_have_always_been() {
        for (spec, sum) in EXPECTED {
            let units = if spec == "sort" { 100 } else { 10_000 };
            let found = run(&plain(spec, units, 1));
            assert_eq!(found, sum, "{spec}: {found:#x}");
        }
    }

    /// Recorded once; the same on x86_64 and arm64 (README.md).
    const EXPECTED: [(&str, u64); 8] = [
        ("alu", 0x8903_104a_bcc7_ca68),
        ("mul", 0x53a0_0a8f_ca2c_a42f),
        ("fp", 0x4054_a18a_ca74_a4f1),
        ("stream@64K", 0xe841_86b4_1f76_3a6b),
        ("chase@64K", 0x22e),
        ("hash@64K", 0x077a_bd20_c416_a48b),
        ("branchy@0.25", 0xcfb4_bf4d_f6c6_3405),
        ("sort", 0xfb72a63c0d6a757f),
    ];

    #[test]
    fn splitting_the_units_changes_nothing() {
        for i in &SIMPLE {
            let spec = Spec::new(i.kernel, None, None).unwrap();
            let (mut a, mut b) = (spec.prepare(7), spec.prepare(7));
            a.run(100);
            b.run(1);
            b.run(0);
            b.run(99);
            assert_eq!(a.checksum(), b.checksum(), "{}", i.name);
        }
    }

    #[test]
    fn phases_parallel_and_serial_do_all_their_work() {
        let spec: Spec = "alu".parse().unwrap();
        let (chase, alu): (Spec, Spec) = ("chase@4K".parse().unwrap(), spec);
        // by turns or in one go, the same units of each kernel
        let turns = Job::Phased {
            phases: vec![(alu, 10), (chase, 5)],
            rounds: 6,
        };
        let once = Job::Phased {
            phases: vec![(alu, 60), (chase, 30)],
            rounds: 1,
        };
        assert_eq!(run(&turns), run(&once));
        // the same shares, with and without barriers
        let parallel = Job::Parallel {
            spec,
            units: 1001,
            threads: 3,
            step: 10,
        };
        assert_eq!(run(&parallel), run(&plain("alu", 1001, 3)));
        let serial = |fraction| Job::Serial {
            spec,
            units: 1000,
            threads: 2,
            fraction,
            rounds: 5,
        };
        assert_eq!(run(&serial(0.0)), run(&plain("alu", 1000, 2)));
        // wholly serial: the first thread does everything
        let (mut first, second) = (spec.prepare(0), spec.prepare(1));
        first.run(1000);
        assert_eq!(
            run(&serial(1.0)),
            first.checksum() ^ second.checksum().rotate_left(1)
        );
    }

    #[test]
    fn shares_add_up() {
        for (total, n) in [(10, 3), (2, 5), (0, 4), (12, 4)] {
            assert_eq!((0..n).map(|i| share(total, n, i)).sum::<u64>(), total);
        }
    }

    #[test]
    fn senseless_jobs_are_refused_by_name() {
        let spec: Spec = "alu".parse().unwrap();
        let e = |j: Job| j.prepare().err().unwrap().to_string();
        assert!(e(plain("alu", 1, 0)).contains("threads 0"));
        assert!(e(Job::Phased {
            phases: vec![],
            rounds: 1
        })
        .contains("--phase"));
        assert!(e(Job::Parallel {
            spec,
            units: 1,
            threads: 1,
            step: 0
        })
        .contains("step 0"));
        let serial = |fraction, rounds| Job::Serial {
            spec,
            units: 1,
            threads: 1,
            fraction,
            rounds,
        };
        assert!(e(serial(1.5, 1)).contains("fraction 1.5"));
        assert!(e(serial(0.5, 0)).contains("rounds 0"));
    }
}
