//! An interactive program: one thread that waits for its user, and then works in a burst.

use super::pause::Pauses;
use super::{range, JobError};
use crate::kernels::{Kernel, Spec};

/// One event in so many is a large one: a page that is drawn anew, not a letter.
const LARGE_EVERY: u64 = 10;
/// What a large event costs, against the others.
const LARGE: u64 = 10;

/// A thread that handles events with pauses between them. Every tenth event costs ten times as much
/// as the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Interactive {
    /// The kernel that handles events.
    pub spec: Spec,
    /// Events in all.
    pub events: u64,
    /// Units of a small event, at least 1.
    pub step: u64,
    /// Mean time between the end of an event and the next one, in microseconds.
    pub pause_us: u64,
    /// Seed of these times.
    pub seed: u64,
}

impl Interactive {
    pub(super) fn check(&self) -> Result<(), JobError> {
        match self.step {
            0 => Err(range("step", 0, "at least 1 unit per event")),
            _ => Ok(()),
        }
    }

    /// Handles all events.
    pub(super) fn run(&self, kernels: &mut [Box<dyn Kernel>]) {
        let mut pauses = Pauses::new(self.seed, 0, self.pause_us);
        for kernel in kernels {
            for event in 1..=self.events {
                std::thread::sleep(pauses.draw());
                kernel.run(match event % LARGE_EVERY {
                    0 => self.step.saturating_mul(LARGE),
                    _ => self.step,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Job;

    fn interactive(events: u64, step: u64, seed: u64) -> Job {
        Job::Interactive(Interactive {
            spec: "fp".parse().unwrap(),
            events,
            step,
            pause_us: 20,
            seed,
        })
    }

    #[test]
    fn every_tenth_event_costs_ten_times_as_much() {
        let run = |job: Job| job.prepare().unwrap().run();
        let mut k = "fp".parse::<Spec>().unwrap().prepare(0);
        k.run(7 * (23 + 2 * 9));
        assert_eq!(run(interactive(23, 7, 1)), k.checksum());
        assert_eq!(run(interactive(23, 7, 9)), k.checksum());
        assert_eq!(interactive(23, 7, 1).threads(), 1);
    }

    #[test]
    fn events_of_nothing_are_refused() {
        let e = interactive(1, 0, 1).prepare().err().unwrap().to_string();
        assert!(e.contains("step 0"), "{e}");
    }
}
