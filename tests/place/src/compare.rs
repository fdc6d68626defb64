//! What the mechanism counted for threads, beside what others counted over the same time.

use crate::events::{open, pmus};
use crate::Error;
use amp_bpf::{Counts, Scheduler, Thread};
use amp_machine::page::{self, Page, Total};
use rustix::process::{kill_process, Pid, Signal};
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

/// What perf has counted on all PMUs.
#[derive(Clone, Copy, Default, PartialEq)]
struct OfPerf {
    count: u64,
    /// For how long the thread ran, and for how long it was counted: less where counters were short.
    enabled_ns: u64,
    counted_ns: u64,
}

/// Counts by perf, by BPF, and the CPU time in ns that the latter cover.
type Seen = (Vec<OfPerf>, Vec<u64>, u64);

/// A thread that is counted by BPF and by perf at the same time. It is the first of its process.
pub struct Watched {
    thread: Thread,
    types: usize,
    /// Those of our events that perf counts too.
    which: Vec<usize>,
    /// Per event its descriptors, one per PMU.
    perf: Vec<Vec<OwnedFd>>,
    before: Seen,
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

    /// Perf's counts, ours, and the CPU time that ours cover, while the thread's process stands still. Ours are of its last
    /// switch or tick: those of a thread that runs are up to a tick older than perf's, and a tick may hold all that there is of
    /// an event for a while.
    fn read(&self, s: &Scheduler) -> Result<Seen, Error> {
        let process = Pid::from_raw(self.thread.pid).ok_or("a process has a number above 0")?;
        kill_process(process, Signal::STOP)?;
        let seen = self.read_stopped(s);
        kill_process(process, Signal::CONT)?;
        seen
    }

    /// The same of a process that has been told to stop: it has left its CPU once it is said to have stopped and two readings
    /// after that are the same.
    fn read_stopped(&self, s: &Scheduler) -> Result<Seen, Error> {
        let stat = format!("/proc/{}/stat", self.thread.pid);
        let mut last = None;
        for _ in 0..TRIES {
            let state = std::fs::read_to_string(&stat)?;
            let stopped = state
                .rsplit(')')
                .next()
                .is_some_and(|s| s.starts_with(" T"));
            let now = stopped.then(|| self.read_once(s)).transpose()?;
            match now {
                Some(now) if last.as_ref() == Some(&now) => return Ok(now),
                now => last = now,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("{}: it does not stop", self.thread.name()).into())
    }

    /// What is counted now. All of it anew where ours cannot be read: what was read before is from another time by then.
    fn read_once(&self, s: &Scheduler) -> Result<Seen, Error> {
        for _ in 0..TRIES {
            let mut perf = vec![];
            for fds in &self.perf {
                let mut of = OfPerf::default();
                for fd in fds {
                    let mut b = [0; 24];
                    rustix::io::read(fd, &mut b)?;
                    let (numbers, _) = b.as_chunks::<8>();
                    let [count, enabled, counted] =
                        [0, 1, 2].map(|i| u64::from_ne_bytes(numbers[i]));
                    of.count += count;
                    // of every PMU the same time: that of the thread
                    of.enabled_ns = of.enabled_ns.max(enabled);
                    of.counted_ns += counted;
                }
                perf.push(of);
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
            let (p, q) = (after.0[i], self.before.0[i]);
            let ms = |ns: u64| ns as f64 / 1e6;
            println!(
                "PERF counted event {} for {:.3} of {:.3} ms",
                self.which[i],
                ms(p.counted_ns - q.counted_ns),
                ms(p.enabled_ns - q.enabled_ns)
            );
            let (p, o) = (p.count - q.count, after.1[i] - self.before.1[i]);
            println!("COMPARED event {} perf {p} ours {o}", self.which[i]);
        }
        Ok(())
    }
}
