//! A pipeline: stages of different cost, one thread each, with bounded channels between them.

use super::crew::on_threads;
use super::{range, JobError};
use crate::kernels::{Kernel, Spec};
use crate::rng::Rng;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

/// Items that go through every stage in order. The slowest stage sets the pace, and the others wait
/// for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Each stage: its kernel, and its units per item.
    pub stages: Vec<(Spec, u64)>,
    /// Items in all.
    pub items: u64,
    /// Items that may wait between two stages, at least 1.
    pub depth: u32,
}

/// A stage at work.
struct Stage {
    kernel: Box<dyn Kernel>,
    units: u64,
    from: Option<Receiver<u64>>,
    to: Option<SyncSender<u64>>,
    /// A digest of the items that came through, in their order.
    seen: u64,
}

impl Pipeline {
    pub(super) fn check(&self) -> Result<(), JobError> {
        if self.stages.is_empty() {
            return Err(range("stages", 0, "at least one --phase KERNEL=UNITS"));
        }
        if !(1..=1 << 20).contains(&self.depth) {
            return Err(range("depth", self.depth, "from 1 to 1048576 items"));
        }
        Ok(())
    }

    /// Does the work with a kernel per stage, in order, and returns the checksum.
    pub(super) fn run(&self, kernels: Vec<Box<dyn Kernel>>) -> u64 {
        let mut from = None;
        let mut stages = Vec::with_capacity(kernels.len());
        let last = self.stages.len().saturating_sub(1);
        for (i, (kernel, (_, units))) in kernels.into_iter().zip(&self.stages).enumerate() {
            let (to, next) = match i < last {
                true => Some(sync_channel(self.depth as usize)).unzip(),
                false => (None, None),
            };
            stages.push(Stage {
                kernel,
                units: *units,
                from: std::mem::replace(&mut from, next),
                to,
                seen: 0,
            });
        }
        on_threads(&mut stages, |_, stage| {
            for number in 0..self.items {
                let item = match &stage.from {
                    None => Ok(Rng::new(number).next()),
                    Some(from) => from.recv(),
                };
                // a neighbour that is gone has ended the program
                let Ok(item) = item else { return };
                stage.kernel.run(stage.units);
                stage.seen = Rng::new(stage.seen ^ item).next();
                let sent = stage.to.as_ref().map(|to| to.send(stage.seen));
                if sent.is_some_and(|s| s.is_err()) {
                    return;
                }
            }
        });
        (0..).zip(&stages).fold(0, |sum, (i, s)| {
            sum ^ (s.kernel.checksum() ^ s.seen).rotate_left(i)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Job;

    fn pipeline(stages: &[(&str, u64)], items: u64, depth: u32) -> Job {
        let stage = |(spec, units): &(&str, u64)| (spec.parse().unwrap(), *units);
        Job::Pipeline(Pipeline {
            stages: stages.iter().map(stage).collect(),
            items,
            depth,
        })
    }

    fn run(job: &Job) -> u64 {
        job.prepare().unwrap().run()
    }

    const STAGES: [(&str, u64); 3] = [("alu", 50), ("chase@4K", 20), ("fp", 200)];

    #[test]
    fn room_between_stages_changes_nothing() {
        let job = pipeline(&STAGES, 300, 1);
        assert_eq!(job.threads(), 3);
        let sum = run(&job);
        for depth in [1, 2, 1000] {
            assert_eq!(run(&pipeline(&STAGES, 300, depth)), sum);
        }
        assert_ne!(run(&pipeline(&STAGES, 301, 1)), sum);
        let mut turned = STAGES;
        turned.swap(0, 2);
        assert_ne!(run(&pipeline(&turned, 300, 1)), sum);
    }

    #[test]
    fn every_stage_does_all_its_units_and_sees_every_item_in_order() {
        let mut seen = [0u64; 2];
        for number in 0..7 {
            seen[0] = Rng::new(seen[0] ^ Rng::new(number).next()).next();
            seen[1] = Rng::new(seen[1] ^ seen[0]).next();
        }
        let stages = [("alu", 3), ("mul", 5)];
        let mut expected = 0;
        for (i, ((spec, units), seen)) in stages.iter().zip(seen).enumerate() {
            let mut k = spec.parse::<Spec>().unwrap().prepare(i as u64);
            k.run(7 * units);
            expected ^= (k.checksum() ^ seen).rotate_left(i as u32);
        }
        assert_eq!(run(&pipeline(&stages, 7, 2)), expected);
    }

    #[test]
    fn senseless_ones_are_refused_by_name() {
        let e = |job: Job| job.prepare().err().unwrap().to_string();
        assert!(e(pipeline(&[], 1, 1)).contains("--phase"));
        assert!(e(pipeline(&STAGES, 1, 0)).contains("depth 0"));
    }
}
