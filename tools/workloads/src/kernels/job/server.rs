//! A server: many threads that mostly sleep, and answer requests.

use super::crew::on_threads;
use super::pause::Pauses;
use super::{range, share, JobError};
use crate::kernels::{Kernel, Spec};

/// Threads of which each waits for the next request of its client, answers it, and waits again. A
/// client asks again some time after it got its answer [closed loop], so that requests pile up
/// where answers take long.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The kernel that answers.
    pub spec: Spec,
    /// Requests in all.
    pub requests: u64,
    /// Threads, at least 1.
    pub threads: u32,
    /// Units of one answer, at least 1.
    pub step: u64,
    /// Mean time between an answer and the client's next request, in microseconds.
    pub pause_us: u64,
    /// Seed of these times.
    pub seed: u64,
}

impl Server {
    pub(super) fn check(&self) -> Result<(), JobError> {
        match self.step {
            0 => Err(range("step", 0, "at least 1 unit per request")),
            _ => Ok(()),
        }
    }

    /// Answers all requests, on a thread per kernel.
    pub(super) fn run(&self, kernels: &mut [Box<dyn Kernel>]) {
        let n = u64::from(self.threads);
        on_threads(kernels, |i, kernel| {
            let mut pauses = Pauses::new(self.seed, i, self.pause_us);
            for _ in 0..share(self.requests, n, i) {
                std::thread::sleep(pauses.draw());
                kernel.run(self.step);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Job;

    fn server(requests: u64, step: u64, seed: u64) -> Job {
        Job::Server(Server {
            spec: "alu".parse().unwrap(),
            requests,
            threads: 100,
            step,
            pause_us: 50,
            seed,
        })
    }

    #[test]
    fn all_requests_are_answered_whenever_they_come() {
        let run = |job: Job| job.prepare().unwrap().run();
        // 250 requests of 3 units: half of the threads answer three of them, the others two
        let mut expected = 0;
        for i in 0..100 {
            let mut k = "alu".parse::<Spec>().unwrap().prepare(i);
            k.run(if i < 50 { 9 } else { 6 });
            expected ^= k.checksum().rotate_left(i as u32);
        }
        assert_eq!(run(server(250, 3, 1)), expected);
        assert_eq!(run(server(250, 3, 2)), expected);
        assert_ne!(run(server(251, 3, 1)), expected);
    }

    #[test]
    fn answers_of_nothing_are_refused() {
        let e = server(10, 0, 1).prepare().err().unwrap().to_string();
        assert!(e.contains("step 0"), "{e}");
    }
}
