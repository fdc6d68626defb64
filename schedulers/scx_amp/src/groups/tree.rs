//! The weights of control groups, and what they come to for single threads; and their limits of CPU time.
//!
//! The kernel's own scheduler has a queue for each group: children of a group share its time by their weights,
//! threads as well as groups. Here every thread waits in one queue with all others, so a thread gets a
//! weight of its own that leads to the same shares: its group's part of the whole, divided by what else is
//! busy in that group.

use super::limit::limit;
use super::walk::walk;
use amp_bpf::Limit;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the kernel gives an idle group, in the measure of `cpu.weight` (3 of 1024).
const IDLE: f64 = 0.3;

/// The id of no group: the parent of those at the top, and what threads are in that no group holds.
const TOP: u64 = 0;

/// A group that the CPU controller knows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group {
    /// [`TOP`] at the top.
    parent: u64,
    /// 100 weighs as much as a thread of nice 0 beside it.
    weight: f64,
    /// CPU time that it may have; what is above it is not known here.
    limit: Option<Limit>,
}

/// What groups have a limit of CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By the id of the group.
    pub limits: BTreeMap<u64, Limit>,
    /// The nearest group with a limit: the group itself or one above, by the id of a group that is under one.
    pub under: BTreeMap<u64, u64>,
}

/// The control groups that share CPU time by weight, by their ids (inode numbers). Those are all for which the CPU
/// controller is switched on; threads in other groups belong to the nearest group above that is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    groups: BTreeMap<u64, Group>,
}

/// The threads of one group, itself and not those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How many are busy: one that is busy a tenth of the time counts for a tenth.
    pub busy: f64,
    /// The same, by what they weigh without a group (100: nice 0).
    pub weight: f64,
    /// The heaviest of them.
    pub heaviest: f64,
}

impl Load {
    /// Counts one more thread of this weight, which is busy for a part `busy` of the time.
    pub fn add(&mut self, weight: u32, busy: f64) {
        let weight = f64::from(weight);
        self.busy += busy;
        self.weight += busy * weight;
        self.heaviest = self.heaviest.max(weight);
    }
}

/// What is busy in a group or below it.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    own: Load,
    /// Busy threads of the whole branch.
    busy: f64,
    /// Weight of what shares its time: its own threads, and the groups in it by how busy they are.
    parts: f64,
    /// The heaviest of these, as if it were busy all the time.
    heaviest: f64,
}

impl Node {
    /// What its time is divided by. Somebody who mostly sleeps is all there while he runs.
    fn parts(&self) -> f64 {
        self.parts.max(self.heaviest)
    }
}

impl Tree {
    /// Reads the groups below `mount`, of `most` folders at most. Groups that go meanwhile are left out.
    pub fn read(mount: &Path, most: usize) -> Tree {
        let mut tree = Tree::default();
        walk(mount, most, TOP, |dir, above| {
            if dir == mount {
                return Some(TOP);
            }
            // the controller is switched on from the top down: below a group without it nobody has it
            let weight = weight(dir)?;
            let id = std::fs::metadata(dir).ok()?.ino();
            let parent = *above;
            let limit = limit(dir);
            let group = Group {
                parent,
                weight,
                limit,
            };
            tree.groups.insert(id, group);
            Some(id)
        });
        tree
    }

    /// Whether no group has a share of its own.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The limits of all groups.
    pub fn limits(&self) -> Limits {
        let mut found = Limits::default();
        let limit = |id: &u64| self.groups.get(id).and_then(|g| g.limit);
        for id in self.groups.keys() {
            let mut limited = self.upwards(*id).filter(|id| limit(id).is_some());
            let Some(nearest) = limited.next() else {
                continue;
            };
            found.under.insert(*id, nearest);
            if nearest == *id {
                let above = limited.next();
                let own = limit(id).map(|l| Limit { above, ..l });
                found.limits.extend(own.map(|l| (*id, l)));
            }
        }
        found
    }

    /// By how much the weight of each group's threads is to be multiplied, so that `loads`, by group, get the shares of
    /// CPU time that the groups ask for, on `cpus` CPUs. Threads of groups that are not named keep their weight; those whose
    /// group is not in the tree count as the top's.
    ///
    /// Nobody can use more than one CPU: what is more than that is left to the others.
    pub fn factors(&self, loads: &BTreeMap<u64, Load>, cpus: usize) -> BTreeMap<u64, f64> {
        let mut nodes: BTreeMap<u64, Node> = BTreeMap::new();
        for (id, load) in loads {
            let at = if self.groups.contains_key(id) {
                *id
            } else {
                TOP
            };
            let own = &mut nodes.entry(at).or_default().own;
            own.busy += load.busy;
            own.weight += load.weight;
            own.heaviest = own.heaviest.max(load.heaviest);
            for up in self.upwards(at) {
                nodes.entry(up).or_default().busy += load.busy;
            }
        }
        for n in nodes.values_mut() {
            (n.parts, n.heaviest) = (n.own.weight, n.own.heaviest);
        }
        let groups: Vec<(u64, f64)> = nodes.iter().map(|(id, n)| (*id, n.busy)).collect();
        for (id, busy) in groups {
            let (Some(g), parent) = (self.groups.get(&id), self.parent(id)) else {
                continue;
            };
            if let Some(n) = nodes.get_mut(&parent) {
                n.parts += g.weight * busy.min(1.0);
                n.heaviest = n.heaviest.max(g.weight);
            }
        }
        let total: f64 = nodes.values().map(|n| n.own.weight).sum();
        let mut factors = BTreeMap::new();
        for (id, n) in nodes.iter().filter(|(_, n)| n.own.heaviest > 0.0) {
            factors.insert(*id, self.share(*id, &nodes, total) / n.parts());
        }
        cap(&mut factors, &nodes, cpus);
        let top = factors.get(&TOP).copied();
        (loads.keys())
            .filter_map(|id| Some((*id, *factors.get(id).or(top.as_ref())?)))
            .collect()
    }

    /// What the group `id` has of `total`, which all groups share.
    fn share(&self, id: u64, nodes: &BTreeMap<u64, Node>, total: f64) -> f64 {
        let of = |id: u64| {
            let parts = nodes.get(&self.parent(id)).map(Node::parts);
            Some(self.groups.get(&id)?.weight / parts?)
        };
        self.upwards(id)
            .filter_map(of)
            .fold(total, |t, part| t * part)
    }

    /// The group above; [`TOP`] where there is none, or where it was not there when the tree was read.
    fn parent(&self, id: u64) -> u64 {
        let parent = self.groups.get(&id).map(|g| g.parent);
        let there = parent.filter(|p| self.groups.contains_key(p));
        there.unwrap_or(TOP)
    }

    /// The group, the one above it, and so on up to the top, which is the last.
    fn upwards(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let above = |id: &u64| (*id != TOP).then(|| self.parent(*id));
        // a tree that was read while groups moved may be none
        std::iter::successors(Some(id), above).take(64)
    }
}

/// The weight of the group in folder `dir`; none where the CPU controller is not switched on for it.
fn weight(dir: &Path) -> Option<f64> {
    let read = |file: &str| -> Option<f64> {
        let text = std::fs::read_to_string(dir.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let weight = read("cpu.weight")?;
    // older kernels have no idle groups
    match read("cpu.idle") {
        Some(idle) if idle != 0.0 => Some(IDLE),
        _ => Some(weight.clamp(1.0, 10_000.0)),
    }
}

/// Takes from groups whose threads would get more than a CPU each what is too much, and keeps the sum.
fn cap(factors: &mut BTreeMap<u64, f64>, nodes: &BTreeMap<u64, Node>, cpus: usize) {
    let own = |id: &u64| nodes.get(id).map_or(Load::default(), |n| n.own);
    let sum = |factors: &BTreeMap<u64, f64>| -> f64 {
        factors.iter().map(|(id, f)| f * own(id).weight).sum()
    };
    let busy: f64 = nodes.values().map(|n| n.own.busy).sum();
    // there is a CPU for everybody
    if busy <= cpus as f64 {
        return;
    }
    let before = sum(factors);
    // each round hands out what the last one took; what is left of it becomes less by a part each time
    for _ in 0..32 {
        let most = sum(factors) / cpus as f64;
        let mut capped = false;
        for (id, f) in factors.iter_mut() {
            let heaviest = own(id).heaviest;
            if *f * heaviest > most * 1.001 {
                *f = most / heaviest;
                capped = true;
            }
        }
        if !capped {
            break;
        }
    }
    let after = sum(factors);
    if after > 0.0 {
        factors.values_mut().for_each(|f| *f *= before / after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn tree(groups: &[(u64, u64, f64)]) -> Tree {
        let group = |(id, parent, weight): &(u64, u64, f64)| {
            let (parent, weight) = (*parent, *weight);
            let limit = None;
            let group = Group {
                parent,
                weight,
                limit,
            };
            (*id, group)
        };
        Tree {
            groups: groups.iter().map(group).collect(),
        }
    }

    /// So many busy threads of weight 100 in each group.
    fn busy(threads: &[(u64, usize)]) -> BTreeMap<u64, Load> {
        let load = |n: usize| {
            let mut l = Load::default();
            (0..n).for_each(|_| l.add(100, 1.0));
            l
        };
        threads.iter().map(|(id, n)| (*id, load(*n))).collect()
    }

    fn near(got: f64, wanted: f64) {
        assert!((got / wanted - 1.0).abs() < 0.01, "{got}, not {wanted}");
    }

    #[test]
    fn groups_share_by_weight_whatever_is_in_them() {
        let t = tree(&[(2, 0, 100.0), (3, 0, 300.0), (4, 3, 100.0), (5, 3, 100.0)]);
        // on one CPU, so that nobody can have too much
        let f = t.factors(&busy(&[(2, 8), (4, 1), (5, 2)]), 1);
        // of 1100: a quarter for eight, three eighths for one, and for two
        near(f[&2] * 800.0, 275.0);
        near(f[&4] * 100.0, 412.5);
        near(f[&5] * 200.0, 412.5);
        // the top's own threads are beside its groups, each as one of weight 100
        let f = t.factors(&busy(&[(1, 2), (2, 4)]), 1);
        near(f[&1] * 200.0, 400.0);
        near(f[&2] * 400.0, 200.0);
        // nobody else is there: as without a group
        let f = t.factors(&busy(&[(5, 7)]), 1);
        near(f[&5], 1.0);
        assert!(Tree::default().is_empty() && !t.is_empty());
    }

    #[test]
    fn nobody_gets_more_than_a_cpu() {
        let t = tree(&[(2, 0, 100.0), (3, 0, 100.0)]);
        // one thread that may have half of six CPUs, and twelve others: a CPU, and five for the twelve
        let f = t.factors(&busy(&[(2, 1), (3, 12)]), 6);
        let all = f[&2] * 100.0 + f[&3] * 1200.0;
        near(all, 1300.0);
        near(f[&2] * 100.0 / all, 1.0 / 6.0);
        // fewer than CPUs: by weight, for policies that share fast cores
        let f = t.factors(&busy(&[(2, 1), (3, 2)]), 6);
        near(f[&2] / f[&3], 2.0);
    }

    #[test]
    fn who_mostly_sleeps_has_his_share_while_he_runs_and_takes_none_meanwhile() {
        let t = tree(&[(2, 0, 100.0), (3, 0, 100.0)]);
        let mut loads = busy(&[(3, 4)]);
        let mut sleeper = Load::default();
        sleeper.add(100, 0.01);
        loads.insert(2, sleeper);
        let f = t.factors(&loads, 1);
        // half of the machine against four that have an eighth each
        near(f[&2] / f[&3], 4.0);
        near(f[&3], 1.0);
    }

    #[test]
    fn idle_groups_have_next_to_nothing_and_what_is_not_there_counts_as_the_top() {
        let t = tree(&[(2, 0, IDLE), (3, 99, 100.0)]);
        let f = t.factors(&busy(&[(2, 1), (7, 1)]), 1);
        near(f[&2] / f[&7], 0.003);
        assert!(t.factors(&BTreeMap::new(), 4).is_empty());
        // a parent that has gone
        near(t.factors(&busy(&[(3, 1), (7, 1)]), 1)[&3], 1.0);
    }

    #[test]
    fn weights_are_read_where_the_controller_is_switched_on() {
        let mount = tempfile::tempdir().unwrap();
        let put = |group: &str, file: &str, text: &str| {
            let dir = mount.path().join(group);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(file), format!("{text}\n")).unwrap();
        };
        put("a", "cpu.weight", "300");
        put("a/b", "cpu.weight", "100");
        put("a/b", "cpu.idle", "1");
        put("c", "memory.max", "max");
        put("c/d", "cpu.weight", "50");
        put("e", "cpu.weight", "rubbish");
        let ino = |group: &str| std::fs::metadata(mount.path().join(group)).unwrap().ino();
        let read = Tree::read(mount.path(), 100);
        let wanted = tree(&[(ino("a"), 0, 300.0), (ino("a/b"), ino("a"), IDLE)]);
        assert_eq!(read, wanted);
        assert_eq!(Tree::read(mount.path(), 1), Tree::default());
        assert_eq!(Tree::read(&mount.path().join("gone"), 9), Tree::default());
    }

    #[test]
    fn who_is_below_a_limit_is_under_it() {
        let mut t = tree(&[(2, 0, 1.0), (3, 2, 1.0), (4, 3, 1.0), (5, 0, 1.0)]);
        assert_eq!(t.limits(), Limits::default());
        let of = |quota: u64, above| Limit {
            quota: Duration::from_micros(quota),
            period: Duration::from_millis(100),
            burst: Duration::ZERO,
            above,
        };
        for (id, quota) in [(2, 20_000), (4, 10_000)] {
            t.groups.get_mut(&id).unwrap().limit = Some(of(quota, None));
        }
        let found = t.limits();
        let limits = [(2, of(20_000, None)), (4, of(10_000, Some(2)))];
        assert_eq!(found.limits, BTreeMap::from(limits));
        assert_eq!(found.under, BTreeMap::from([(2, 2), (3, 2), (4, 4)]));
    }

    proptest! {
        /// Whatever the tree, even one whose groups are above each other: who is busy has a weight.
        #[test]
        fn everybody_has_a_weight(
            groups in proptest::collection::vec((2u64..12, 0u64..12, 1.0f64..10_000.0), 0..9),
            threads in proptest::collection::vec((0u64..14, 1u32..10_000, 0.0f64..1.0), 0..40),
            cpus in 1usize..9,
        ) {
            let t = tree(&groups);
            let mut loads: BTreeMap<u64, Load> = BTreeMap::new();
            for (id, weight, busy) in threads {
                loads.entry(id).or_default().add(weight, busy);
            }
            let f = t.factors(&loads, cpus);
            prop_assert_eq!(f.len(), loads.len());
            for (id, f) in &f {
                let known = loads[id].busy > 0.0;
                prop_assert!(f.is_finite() && (*f > 0.0 || !known), "{} {}", id, f);
            }
        }
    }
}
