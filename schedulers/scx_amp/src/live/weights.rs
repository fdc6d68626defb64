//! What threads weigh: by their nice values, and by the control groups that they are in. These are read here, and with them their
//! limits of CPU time.

use crate::groups::{Limits, Load, Tree, Watch};
use amp_bpf::{State, Thread};
use amp_metrics::{Nanos, ThreadSample};
use std::collections::BTreeMap;
use std::path::Path;

/// Time over which it is found out how busy a thread is.
const OVER: f64 = 0.5;
/// Time between two looks at the groups.
const LOOK: Nanos = Nanos::from_millis(1_000);
/// A change of weights that is smaller than this part is none.
const STEP: f64 = 0.05;
/// The id of the group that everybody is in, where there is no other. 0: none is known.
const ROOT: u64 = 1;

/// A thread that was looked at.
#[derive(Clone, Copy, Debug)]
struct Noted {
    slot: u32,
    generation: u32,
    group: u64,
    /// What it weighs by its nice value, and what it weighs at present.
    own: u32,
    weight: u32,
    runnable: bool,
    ran: u64,
}

/// How busy the thread of a slot is.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    generation: u32,
    ran: u64,
    part: f64,
}

/// What the threads of a machine weigh.
#[derive(Debug)]
pub struct Weights {
    cpus: usize,
    watch: Option<Watch>,
    tree: Tree,
    /// Those of `tree`, until they are taken.
    limits: Option<Limits>,
    asked: Option<Nanos>,
    noted: Vec<Noted>,
    busy: Vec<Busy>,
    last: Option<Nanos>,
    /// By how much weights of each group are multiplied.
    factors: BTreeMap<u64, f64>,
    /// What threads of nice 0 weigh, in groups where that is not 100.
    told: BTreeMap<u64, u32>,
}

impl Weights {
    /// On a machine of `cpus` CPUs, whose control groups are below `root` (`/`).
    pub fn new(cpus: usize, root: &Path) -> Weights {
        Weights {
            cpus,
            watch: Watch::begin(root),
            tree: Tree::default(),
            limits: None,
            asked: None,
            noted: Vec::new(),
            busy: Vec::new(),
            last: None,
            factors: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Before threads are looked at.
    pub fn begin(&mut self) {
        self.noted.clear();
    }

    /// A thread that takes part, in the order of the snapshot.
    pub fn note(&mut self, t: &Thread) {
        self.noted.push(Noted {
            slot: t.slot,
            generation: t.generation,
            group: t.group,
            own: t.own_weight,
            weight: t.weight,
            runnable: t.state != State::Sleeping,
            ran: t.runtime.iter().sum(),
        });
    }

    /// Works out what the threads that were noted weigh at `now`, has `weigh` write what is new (slot, generation, weight),
    /// and puts it into `samples`, which are of the same threads. `holds`: somebody waits for CPU time of his group. Returns what threads of nice 0 weigh by group, where
    /// that has changed.
    pub fn settle(
        &mut self,
        now: Nanos,
        samples: &mut [ThreadSample],
        holds: bool,
        mut weigh: impl FnMut(u32, u32, u32),
    ) -> Option<&BTreeMap<u64, u32>> {
        if let Some(tree) = self.watch.as_ref().and_then(Watch::read) {
            self.limits = Some(tree.limits());
            self.tree = tree;
        }
        let grouped = self.noted.iter().any(|n| n.group > ROOT);
        // an idle machine reads no files
        let busy = holds || self.noted.iter().any(|n| n.runnable);
        let due = self.asked.is_none_or(|at| now.saturating_sub(at) >= LOOK);
        if let (true, true, Some(watch)) = (grouped && busy, due, &self.watch) {
            watch.ask();
            self.asked = Some(now);
        }
        if grouped && !self.tree.is_empty() {
            self.share(now);
        } else {
            self.factors.clear();
            self.last = None;
        }
        for (n, sample) in self.noted.iter().zip(samples) {
            let factor = self.factors.get(&n.group);
            let weight = factor.map_or(n.own, |f| weight(n.own, *f));
            sample.weight = weight;
            if weight != n.weight {
                weigh(n.slot, n.generation, weight);
            }
        }
        let each = self.factors.iter().map(|(id, f)| (*id, weight(100, *f)));
        let each: BTreeMap<u64, u32> = each.filter(|(_, w)| *w != 100).collect();
        if each == self.told {
            return None;
        }
        self.told = each;
        Some(&self.told)
    }

    /// The limits of CPU time of all groups, where the groups were read since the last call.
    pub fn limits(&mut self) -> Option<Limits> {
        self.limits.take()
    }

    /// By how much weights are multiplied, group by group.
    fn share(&mut self, now: Nanos) {
        let passed = self.last.map(|at| now.saturating_sub(at).as_secs_f64());
        self.last = Some(now);
        let mut loads: BTreeMap<u64, Load> = BTreeMap::new();
        for n in &self.noted {
            let at = n.slot as usize;
            if self.busy.len() <= at {
                self.busy.resize(at + 1, Busy::default());
            }
            let Some(busy) = self.busy.get_mut(at) else {
                continue;
            };
            let same = busy.generation == n.generation;
            busy.part = match passed.filter(|_| same) {
                None => f64::from(u8::from(n.runnable)),
                Some(passed) => {
                    let ran = n.ran.saturating_sub(busy.ran) as f64 / 1e9;
                    let part = match n.runnable {
                        true => 1.0,
                        false => (ran / passed.max(1e-6)).min(1.0),
                    };
                    let new = 1.0 - (-passed / OVER).exp();
                    busy.part + new * (part - busy.part)
                }
            };
            (busy.generation, busy.ran) = (n.generation, n.ran);
            let load = loads.entry(n.group).or_default();
            load.add(n.own, busy.part);
        }
        let new = self.tree.factors(&loads, self.cpus);
        let old = std::mem::take(&mut self.factors);
        self.factors = (new.into_iter())
            .map(|(id, f)| match old.get(&id) {
                Some(old) if (f / old - 1.0).abs() < STEP => (id, *old),
                _ => (id, f),
            })
            .collect();
    }
}

fn weight(own: u32, factor: f64) -> u32 {
    (f64::from(own) * factor).round().clamp(1.0, 10_000.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::sample_of;

    fn thread(slot: u32, group: u64, weight: u32) -> Thread {
        Thread {
            slot,
            generation: 1,
            pid: slot as i32,
            tgid: slot as i32,
            comm: [0; 16],
            arguments: 0,
            own_weight: 100,
            weight,
            group,
            allowed: 3,
            state: State::Running,
            cpu: 0,
            core_type: 0,
            placement: None,
            runtime: [0; 8],
            stolen: 0,
            swaps: 0,
        }
    }

    /// Two groups of 100, with a limit of a fifth of a CPU, and 300 in a made tree, and their ids.
    fn groups() -> (tempfile::TempDir, [u64; 2]) {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        let ids = [("light", "100"), ("heavy", "300")].map(|(name, weight)| {
            let dir = root.path().join("sys/fs/cgroup").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("cpu.weight"), weight).unwrap();
            if name == "light" {
                std::fs::write(dir.join("cpu.max"), "20000 100000\n").unwrap();
            }
            std::fs::metadata(&dir).unwrap().ino()
        });
        (root, ids)
    }

    #[test]
    fn threads_weigh_what_their_groups_ask_for_and_no_more_once_they_have_left() {
        let (root, [light, heavy]) = groups();
        let mut weights = Weights::new(1, root.path());
        let mut threads = vec![
            thread(1, light, 100),
            thread(2, light, 100),
            thread(3, heavy, 100),
        ];
        let mut told = BTreeMap::new();
        let mut tick = |ms: u64, threads: &mut Vec<Thread>, told: &mut BTreeMap<u64, u32>| {
            weights.begin();
            threads.iter().for_each(|t| weights.note(t));
            let mut samples: Vec<ThreadSample> = threads.iter().map(sample_of).collect();
            let mut written = Vec::new();
            let each = weights.settle(Nanos::from_millis(ms), &mut samples, false, |slot, _, w| {
                written.push((slot, w));
            });
            if let Some(each) = each {
                *told = each.clone();
            }
            for (slot, w) in &written {
                threads
                    .iter_mut()
                    .filter(|t| t.slot == *slot)
                    .for_each(|t| t.weight = *w);
            }
            let weights: Vec<u32> = samples.iter().map(|s| s.weight).collect();
            (weights, written)
        };
        // the groups are read meanwhile: as if there were none
        assert_eq!(tick(0, &mut threads, &mut told), (vec![100; 3], vec![]));
        let mut ms = 0;
        let of = loop {
            ms += 100;
            let (of, _) = tick(ms, &mut threads, &mut told);
            if of != [100; 3] {
                break of;
            }
            assert!(ms < 1_000_000, "the groups are never read");
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        // a quarter of 300 for two, three quarters for one
        assert_eq!(of, [38, 38, 225]);
        assert_eq!(told, BTreeMap::from([(light, 38), (heavy, 225)]));
        assert_eq!(threads[2].weight, 225);
        // nothing new, nothing written
        assert_eq!(tick(ms + 100, &mut threads, &mut told), (of, vec![]));
        threads.iter_mut().for_each(|t| t.group = ROOT);
        let written = vec![(1, 100), (2, 100), (3, 100)];
        assert_eq!(
            tick(ms + 200, &mut threads, &mut told),
            (vec![100; 3], written)
        );
        assert!(told.is_empty());
        // limits are told once for each time that they are read
        let Limits { limits, under } = weights.limits().unwrap();
        assert_eq!(limits[&light].quota.as_millis(), 20);
        assert_eq!((limits.len(), under), (1, BTreeMap::from([(light, light)])));
        assert_eq!(weights.limits(), None);
    }
}
