//! What the mechanism counted for threads, beside what others counted over the same time.

use crate::events::{open, pmus};
use crate::Error;
use amp_bpf::{Counts, Scheduler, Thread};
use amp_machine::page::{self, Page, Total};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What is being written just now cannot be read, for as long as the host keeps that CPU from going on. So often, with a
/// millisecond between two tries.
const TRIES: usize = 100;

/// What has been counted for `thread` on `core_type`; an error if it cannot be read for long.
fn counts(s: &Scheduler, thread: &Thread, core_type: u8) -> Result<Counts, Error> {
    for _ in 0..TRIES {
        if let Some(counts) = s.counts(thread, core_type) {
            return Ok(counts);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{}: its counts cannot be read", thread.name()).into())
}

/// What all threads were charged since counting began, and what the CPUs of each type did
/// meanwhile.
pub fn beside_the_model(
    s: &Scheduler,
    page: &Page,
    before: &page::Snapshot,
    counters: &[u64],
    types: usize,
) -> Result<(), Error> {
    let now = page.snapshot()?;
    let mut charged = vec![vec![0u64; counters.len()]; types];
    for t in s.threads() {
        for (core_type, sums) in charged.iter_mut().enumerate() {
            let c = counts(s, &t, core_type as u8)?;
            sums.iter_mut().zip(c.values).for_each(|(sum, v)| *sum += v);
        }
    }
    for (i, event) in counters.iter().enumerate() {
        let (name, total) = match event {
            0x03 => ("l1d_refills", Total::L1dRefill),
            0x08 => ("instructions", Total::Instructions),
            0x10 => ("branch_misses", Total::Mispredicts),
            0x11 => ("cycles", Total::Cycles),
            0x17 => ("l2_refills", Total::L2Refill),
            _ => continue,
        };
        let mut sums = (0, 0);
        for (t, charged) in charged.iter().enumerate() {
            let cpus = now.cpus.iter().zip(&before.cpus);
            let model: u64 = cpus
                .filter(|(now, _)| now.core_type as usize == t)
                .map(|(now, before)| now.total(total) - before.total(total))
                .sum();
            sums = (sums.0 + charged[i], sums.1 + model);
            println!("MODEL {name} type {t} charged {} model {model}", charged[i]);
        }
        println!("MODEL {name} all charged {} model {}", sums.0, sums.1);
    }
    Ok(())
}

/// A thread that is counted by BPF and by perf at the same time.
pub struct Watched {
    thread: Thread,
    types: usize,
    /// Those of our events that perf counts too.
    which: Vec<usize>,
    /// Per event its descriptors, one per PMU.
    perf: Vec<Vec<OwnedFd>>,
    before: (Vec<u64>, Vec<u64>, u64),
    began: Instant,
}

impl Watched {
    pub fn begin(
        s: &Scheduler,
        thread: Thread,
        counters: &[u64],
        which: &[usize],
        types: usize,
    ) -> Result<Watched, Error> {
        let mut kinds: Vec<u32> = pmus()?.into_values().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut perf = vec![];
        for config in which.iter().map(|i| counters[*i]) {
            let of_pmu = |kind: &u32| open(*kind, config, thread.pid, -1, -1);
            perf.push(kinds.iter().map(of_pmu).collect::<Result<_, _>>()?);
        }
        let mut w = Watched {
            thread,
            types,
            which: which.to_vec(),
            perf,
            before: Default::default(),
            began: Instant::now(),
        };
        w.before = w.read(s)?;
        Ok(w)
    }

    /// Perf's counts, ours, and the CPU time that ours cover. All of it anew where ours cannot be read: what was read before
    /// is from another time by then.
    fn read(&self, s: &Scheduler) -> Result<(Vec<u64>, Vec<u64>, u64), Error> {
        for _ in 0..TRIES {
            let mut perf = vec![];
            for fds in &self.perf {
                let mut sum = 0;
                for fd in fds {
                    let mut b = [0; 8];
                    rustix::io::read(fd, &mut b)?;
                    sum += u64::from_ne_bytes(b);
                }
                perf.push(sum);
            }
            let types = 0..self.types as u8;
            let read: Option<Vec<Counts>> = types.map(|t| s.counts(&self.thread, t)).collect();
            let Some(counts) = read else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let sum = |i: &usize| counts.iter().map(|c| c.values[*i]).sum();
            let covered = counts.iter().map(|c| c.counted_ns).sum();
            return Ok((perf, self.which.iter().map(sum).collect(), covered));
        }
        Err(format!("{}: its counts cannot be read", self.thread.name()).into())
    }

    pub fn end(self, s: &Scheduler) -> Result<(), Error> {
        let after = self.read(s)?;
        let secs = self.began.elapsed().as_secs_f64();
        println!(
            "WATCHED {} for {secs:.2} s, covered {:.2} s",
            self.thread.name(),
            (after.2 - self.before.2) as f64 / 1e9
        );
        for i in 0..self.perf.len() {
            let (p, o) = (after.0[i] - self.before.0[i], after.1[i] - self.before.1[i]);
            println!("COMPARED event {} perf {p} ours {o}", self.which[i]);
        }
        Ok(())
    }
}
