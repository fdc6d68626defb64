//! A command's threads, each counted for itself from when it is found.

use super::judge::{Interval, Thread, ThreadCounts};
use super::signatures::SignatureEvents;
use amp_metrics::group::{Group, GroupError, Whom};
use anyhow::Result;
use std::collections::BTreeMap;

/// A thread that runs for this part of an interval is running.
const RUNNING: f64 = 0.5;

/// A thread that is counted.
struct CountedThread {
    groups: Vec<Group>,
    /// Of each group when it was last read: seconds and counts.
    last: Vec<(f64, Vec<u64>)>,
    sum: Vec<ThreadCounts>,
    cpu_s: f64,
}

/// All threads of a process.
pub struct Watch<'p> {
    plans: &'p [SignatureEvents],
    pid: i32,
    threads: BTreeMap<i32, CountedThread>,
}

/// CPU time of a thread so far, seconds; `None` once it is gone.
fn cpu_s(pid: i32, tid: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let ns: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns / 1e9)
}

impl<'p> Watch<'p> {
    /// Counts the first thread of `pid` from when it executes its program.
    ///
    /// # Errors
    /// [`GroupError`], naming the event.
    pub fn start(plans: &'p [SignatureEvents], pid: i32) -> Result<Watch<'p>, GroupError> {
        let mut w = Watch {
            plans,
            pid,
            threads: BTreeMap::new(),
        };
        w.open(pid, true)?;
        Ok(w)
    }

    fn open(&mut self, tid: i32, on_exec: bool) -> Result<(), GroupError> {
        let mut groups = Vec::new();
        for p in self.plans {
            let events: Vec<_> = p.events.iter().map(|(_, e)| e.clone()).collect();
            let mut g = Group::open(&events, Whom::Thread(tid), on_exec)?;
            if !on_exec {
                g.start()?;
            }
            groups.push(g);
        }
        let watched = CountedThread {
            last: groups
                .iter()
                .map(|g| (0.0, vec![0; g.events().len()]))
                .collect(),
            sum: vec![ThreadCounts::default(); groups.len()],
            groups,
            cpu_s: 0.0,
        };
        self.threads.insert(tid, watched);
        Ok(())
    }

    /// Looks for new threads.
    ///
    /// # Errors
    /// [`GroupError`] when one cannot be counted; those that end meanwhile are let go.
    pub fn find(&mut self) -> Result<(), GroupError> {
        let Ok(dir) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return Ok(());
        };
        for e in dir.flatten() {
            let Ok(tid) = e.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            if self.threads.contains_key(&tid) {
                continue;
            }
            match self.open(tid, false) {
                Ok(()) | Err(GroupError::Gone { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// What all threads did since the last reading, which was `seconds` ago.
    ///
    /// # Errors
    /// [`GroupError`] when counters cannot be read.
    pub fn read(&mut self, seconds: f64) -> Result<Interval, GroupError> {
        let mut all = Interval {
            seconds,
            on: vec![ThreadCounts::default(); self.plans.len()],
            running: 0,
        };
        for (tid, w) in &mut self.threads {
            let mut ran = 0.0;
            for (i, (g, plan)) in w.groups.iter_mut().zip(self.plans).enumerate() {
                let now = g.read()?;
                let at = now.running.as_secs_f64();
                let (Some((before, counts)), Some(sum)) = (w.last.get_mut(i), w.sum.get_mut(i))
                else {
                    continue;
                };
                let mut more = ThreadCounts {
                    seconds: at - *before,
                    ..ThreadCounts::default()
                };
                for ((role, _), (n, last)) in
                    plan.events.iter().zip(now.counts.iter().zip(&*counts))
                {
                    more.add(*role, n.saturating_sub(*last) as f64);
                }
                ran += more.seconds;
                sum.join(&more);
                if let Some(on) = all.on.get_mut(i) {
                    on.join(&more);
                }
                (*before, *counts) = (at, now.counts);
            }
            all.running += usize::from(ran > RUNNING * seconds);
            // the last one there is: a thread that ends takes its own with it
            w.cpu_s = cpu_s(self.pid, *tid).unwrap_or(w.cpu_s).max(w.cpu_s);
        }
        Ok(all)
    }

    /// Every thread with what it did in all.
    pub fn threads(&self) -> Vec<Thread> {
        let of = |(tid, w): (&i32, &CountedThread)| {
            let counted: f64 = w.sum.iter().map(|c| c.seconds).sum();
            let cpu_s = w.cpu_s.max(counted);
            Thread {
                tid: *tid,
                cpu_s,
                coverage: if cpu_s > 0.0 { counted / cpu_s } else { 1.0 },
                on: w.sum.clone(),
            }
        };
        self.threads.iter().map(of).collect()
    }
}
