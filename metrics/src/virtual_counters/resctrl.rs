//! Last-level cache occupancy and memory traffic per application, through resctrl monitoring
//! groups.

use super::{VirtualError, VirtualSource};
use crate::ids::{AppId, Nanos};
use crate::resctrl_fs::ResctrlFs;
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

/// Begin of the names of our groups, behind which our process and an application stand.
const PREFIX: &str = "scx_amp-";
/// How often it is looked at whose groups there are: another program that counts a thread takes it into a group of its own.
const CHECK: Nanos = Nanos::from_secs(1);

/// CPU time in an interval from which on an application gets a group: RMIDs are few, and most
/// processes sleep.
const BUSY: Nanos = Nanos::from_millis(1);

#[derive(Debug, Default)]
struct Group {
    /// Threads that were moved into it.
    tasks: BTreeSet<i32>,
    traffic: Option<u64>,
}

/// One monitoring group per application that is busy; it keeps it until it ends. When the RMIDs are
/// used up, the group that is oldest gives way: first in, first out, so that the RMID that was
/// released longest ago, whose lines have had most time to leave the cache, is next. Dropping it
/// removes every group.
pub struct Resctrl {
    fs: Box<dyn ResctrlFs>,
    groups: BTreeMap<AppId, Group>,
    /// Oldest first.
    order: VecDeque<AppId>,
    /// Applications that gave way, and when (a running number).
    gave_way: BTreeMap<AppId, u64>,
    turn: u64,
    /// CPU time of every application at the last sample.
    ran: BTreeMap<AppId, Nanos>,
    occupancy: bool,
    traffic: bool,
    at: Option<Nanos>,
    /// When it was looked at whose groups there are, and whether another program had any.
    checked: Nanos,
    others: bool,
    /// `/proc`, and our process.
    proc: PathBuf,
    us: u32,
}

/// Whose a group is by what stands behind [`PREFIX`], and which application's. Versions of old named no owner.
fn owner(name: &str) -> (Option<&str>, &str) {
    name.split_once('-')
        .map_or((None, name), |(owner, app)| (Some(owner), app))
}

impl Resctrl {
    /// Uses the resctrl file system behind `fs`, on a machine with this `/proc`. Groups that an earlier run left behind (it was
    /// killed) are removed; those of a process that is there stay.
    ///
    /// # Errors
    /// When it is not mounted, or the processor monitors nothing.
    pub fn open(fs: Box<dyn ResctrlFs>, proc: &Path) -> Result<Resctrl, VirtualError> {
        let root = fs.root().display().to_string();
        let features = fs.read("info/L3_MON/mon_features").map_err(|_| VirtualError::None {
            what: "resctrl",
            reason: format!(
                "{root} has no info/L3_MON: not mounted (`mount -t resctrl resctrl /sys/fs/resctrl`) or no such hardware"
            ),
        })?;
        let has = |f: &str| features.lines().any(|l| l.trim() == f);
        let mut r = Resctrl {
            occupancy: has("llc_occupancy"),
            traffic: has("mbm_total_bytes"),
            fs,
            groups: BTreeMap::new(),
            order: VecDeque::new(),
            gave_way: BTreeMap::new(),
            turn: 0,
            ran: BTreeMap::new(),
            at: None,
            checked: Nanos::ZERO,
            others: false,
            proc: proc.to_owned(),
            us: std::process::id(),
        };
        if !r.occupancy && !r.traffic {
            return Err(VirtualError::None {
                what: "resctrl",
                reason: "neither llc_occupancy nor mbm_total_bytes among its features".to_owned(),
            });
        }
        let there = r.fs.list("mon_groups").unwrap_or_default();
        r.remove_left(&there);
        // whoever had our number is gone
        let us = format!("{PREFIX}{}-", r.us);
        for left in there.iter().filter(|g| g.starts_with(&us)) {
            let _ = r.fs.remove(&format!("mon_groups/{left}"));
        }
        Ok(r)
    }

    fn name(&self, app: AppId) -> String {
        format!("mon_groups/{PREFIX}{}-{}", self.us, app.0)
    }

    /// How many groups there are now.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    fn io(&self, file: &str, source: io::Error) -> VirtualError {
        VirtualError::Io {
            path: self.fs.root().join(file),
            source,
        }
    }

    fn forget(&mut self, app: AppId) -> Result<(), VirtualError> {
        self.order.retain(|a| *a != app);
        if self.groups.remove(&app).is_some() {
            let group = self.name(app);
            return match self.fs.remove(&group) {
                // somebody has tidied up
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other.map_err(|e| self.io(&group, e)),
            };
        }
        Ok(())
    }

    /// Lets go of groups that somebody has removed, so that they are made anew. While another program of ours has groups, threads
    /// of ours may be in those, so that nothing is told of them; once it has not any more, they are put into ours again.
    fn check(&mut self) {
        let Ok(there) = self.fs.list("mon_groups") else {
            return;
        };
        self.remove_left(&there);
        let us = self.us.to_string();
        let named = there.iter().filter_map(|g| g.strip_prefix(PREFIX));
        let (ours, others): (Vec<_>, Vec<_>) = named
            .map(owner)
            .filter(|(owner, _)| owner.is_some_and(|o| self.is_there(o)))
            .partition(|(owner, _)| *owner == Some(&us));
        let ours: BTreeSet<&str> = ours.into_iter().map(|(_, app)| app).collect();
        let is_there = |a: &AppId| ours.contains(a.0.to_string().as_str());
        self.groups.retain(|a, _| is_there(a));
        self.order.retain(is_there);
        let before = std::mem::replace(&mut self.others, !others.is_empty());
        if before && !self.others {
            self.groups.values_mut().for_each(|g| *g = Group::default());
        }
    }

    fn is_there(&self, process: &str) -> bool {
        process == self.us.to_string() || self.proc.join(process).exists()
    }

    /// Removes those of the groups `there` that a run has left which is gone.
    fn remove_left(&mut self, there: &[String]) {
        for left in there {
            let Some((owner, _)) = left.strip_prefix(PREFIX).map(owner) else {
                continue;
            };
            if !owner.is_some_and(|o| self.is_there(o)) {
                let _ = self.fs.remove(&format!("mon_groups/{left}"));
            }
        }
    }

    /// Makes a group for `app`, in place of the oldest one if need be and `replace` admits it;
    /// false when no RMID is free.
    fn make(&mut self, app: AppId, mut replace: bool) -> Result<bool, VirtualError> {
        let group = self.name(app);
        loop {
            match self.fs.make(&group) {
                Ok(()) => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                    match self.order.front().copied() {
                        Some(oldest) if replace => {
                            replace = false;
                            self.forget(oldest)?;
                            self.turn += 1;
                            self.gave_way.insert(oldest, self.turn);
                        }
                        _ => return Ok(false),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => break,
                Err(e) => return Err(self.io(&group, e)),
            }
        }
        self.groups.insert(app, Group::default());
        self.order.push_back(app);
        Ok(true)
    }

    /// Sum of `file` over the cache domains of the group; `None` when no domain has a value.
    fn sum(&self, app: AppId, file: &str) -> Option<u64> {
        let data = format!("{}/mon_data", self.name(app));
        let domains = self.fs.list(&data).ok()?;
        let values = domains
            .iter()
            .filter(|d| d.starts_with("mon_L3_"))
            .filter_map(|d| {
                // `Unavailable` and `Error` are said too
                self.fs
                    .read(&format!("{data}/{d}/{file}"))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            });
        values.fold(None, |sum: Option<u64>, v| {
            Some(sum.unwrap_or(0).saturating_add(v))
        })
    }
}

impl VirtualSource for Resctrl {
    fn name(&self) -> &'static str {
        "resctrl"
    }

    fn by_application(&self) -> bool {
        true
    }

    fn sample(
        &mut self,
        now: Nanos,
        threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let mut apps: BTreeMap<AppId, Vec<i32>> = BTreeMap::new();
        let mut ran: BTreeMap<AppId, Nanos> = BTreeMap::new();
        for t in threads {
            apps.entry(t.app).or_default().push(t.tid);
            *ran.entry(t.app).or_default() += t.runtime.iter().copied().sum::<Nanos>();
        }
        let before = |a: &AppId| self.ran.get(a).copied().unwrap_or_default();
        let busy = ran
            .iter()
            .filter(|(a, now)| now.saturating_sub(before(a)) >= BUSY);
        let busy: BTreeSet<AppId> = busy.map(|(a, _)| *a).collect();
        self.ran = ran;
        let gone: Vec<AppId> = self
            .groups
            .keys()
            .filter(|a| !apps.contains_key(a))
            .copied()
            .collect();
        for app in gone {
            self.forget(app)?;
        }
        if now.saturating_sub(self.checked) >= CHECK {
            self.checked = now;
            self.check();
        }
        // Read first what the interval did, then take in who is new.
        let over = now.saturating_sub(self.at.unwrap_or(now));
        let known = self.groups.keys().filter(|_| !self.others);
        let known: Vec<AppId> = known.copied().collect();
        for app in known {
            let of = Subject::App(app);
            if let Some(bytes) = self
                .occupancy
                .then(|| self.sum(app, "llc_occupancy"))
                .flatten()
            {
                out.push(VirtualReading {
                    counter: VirtualCounter::LlcOccupancy,
                    of,
                    value: bytes as f64,
                    over: Nanos::ZERO,
                });
            }
            let total = self
                .traffic
                .then(|| self.sum(app, "mbm_total_bytes"))
                .flatten();
            if let (Some(total), Some(group)) = (total, self.groups.get_mut(&app)) {
                if let Some(last) = group.traffic.replace(total) {
                    out.push(VirtualReading {
                        counter: VirtualCounter::MemoryTraffic,
                        of,
                        value: total.saturating_sub(last) as f64,
                        over,
                    });
                }
            }
        }
        self.at = Some(now);
        // Who never had a group goes first, then who gave way longest ago. One replacement per
        // interval: a group needs two readings for an increment.
        self.gave_way.retain(|a, _| apps.contains_key(a));
        let mut new: Vec<AppId> = apps
            .keys()
            .filter(|a| !self.groups.contains_key(a) && busy.contains(a))
            .copied()
            .collect();
        new.sort_by_key(|a| self.gave_way.get(a).copied());
        for (i, app) in new.into_iter().enumerate() {
            if !self.make(app, i == 0)? {
                break;
            }
        }
        for (app, tids) in apps {
            let name = self.name(app);
            let Some(group) = self.groups.get_mut(&app) else {
                continue;
            };
            group.tasks.retain(|t| tids.contains(t));
            for tid in tids {
                if group.tasks.insert(tid) {
                    // a thread that has ended meanwhile cannot be moved
                    let _ = self.fs.write(&format!("{name}/tasks"), &format!("{tid}\n"));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Resctrl {
    fn drop(&mut self) {
        for app in self.groups.keys() {
            let _ = self.fs.remove(&self.name(*app));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::testing::snapshot;
    use crate::resctrl_fs::SysResctrl;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    /// Groups with their tasks, and how many there may be.
    #[derive(Default)]
    struct State {
        groups: BTreeMap<String, Vec<String>>,
        removed: Vec<String>,
        most: usize,
        occupancy: u64,
    }

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<State>>);

    impl ResctrlFs for Fake {
        fn make(&mut self, group: &str) -> io::Result<()> {
            let mut s = self.0.lock().unwrap();
            if s.groups.len() >= s.most {
                return Err(io::Error::from_raw_os_error(28));
            }
            s.groups.insert(group.to_owned(), Vec::new());
            Ok(())
        }
        fn remove(&mut self, group: &str) -> io::Result<()> {
            let mut s = self.0.lock().unwrap();
            s.removed.push(group.to_owned());
            s.groups
                .remove(group)
                .map(|_| ())
                .ok_or_else(|| io::Error::from_raw_os_error(2))
        }
        fn list(&self, folder: &str) -> io::Result<Vec<String>> {
            let s = self.0.lock().unwrap();
            Ok(if folder == "mon_groups" {
                s.groups
                    .keys()
                    .filter_map(|g| g.strip_prefix("mon_groups/").map(str::to_owned))
                    .collect()
            } else {
                vec!["mon_L3_00".into(), "mon_L3_01".into(), "other".into()]
            })
        }
        fn read(&self, file: &str) -> io::Result<String> {
            let s = self.0.lock().unwrap();
            Ok(match file {
                f if f.ends_with("mon_features") => "llc_occupancy\nmbm_total_bytes\n".into(),
                f if f.contains("mon_L3_01") => "Unavailable\n".into(),
                _ => format!("{}\n", s.occupancy),
            })
        }
        fn write(&mut self, file: &str, text: &str) -> io::Result<()> {
            let group = file.trim_end_matches("/tasks").to_owned();
            let mut s = self.0.lock().unwrap();
            s.groups
                .entry(group)
                .or_default()
                .push(text.trim().to_owned());
            Ok(())
        }
        fn root(&self) -> &Path {
            Path::new("/fake")
        }
    }

    fn with(most: usize) -> (Fake, Resctrl) {
        let fake = Fake::default();
        fake.0.lock().unwrap().most = most;
        let r = Resctrl::open(Box::new(fake.clone()), Path::new("/proc")).unwrap();
        (fake, r)
    }

    /// Threads that have run for so long.
    fn threads(apps: &[u32], ms: u64) -> Vec<ThreadSample> {
        let mut threads = snapshot(0, apps, Vec::new()).threads;
        for t in &mut threads {
            t.runtime[0] = Nanos::from_millis(ms);
        }
        threads
    }

    fn groups(f: &Fake) -> Vec<String> {
        f.0.lock().unwrap().groups.keys().cloned().collect()
    }

    fn ours(app: u32) -> String {
        format!("mon_groups/scx_amp-{}-{app}", std::process::id())
    }

    #[test]
    fn groups_come_and_go_with_applications_and_all_at_the_end() {
        let (fake, mut r) = with(10);
        let mut out = Vec::new();
        let s = |apps: &[u32]| threads(apps, 10);
        r.sample(Nanos(0), &s(&[1, 2]), &mut out).unwrap();
        assert!(out.is_empty());
        assert_eq!(groups(&fake), [ours(1), ours(2)]);
        assert_eq!(fake.0.lock().unwrap().groups[&ours(2)], ["2"]);
        fake.0.lock().unwrap().occupancy = 4096;
        r.sample(Nanos(100), &s(&[1, 2]), &mut out).unwrap();
        fake.0.lock().unwrap().occupancy = 5000;
        out.clear();
        r.sample(Nanos(200), &s(&[2]), &mut out).unwrap();
        let value = |c| out.iter().find(|v| v.counter == c).map(|v| v.value);
        assert_eq!(value(VirtualCounter::LlcOccupancy), Some(5000.0));
        assert_eq!(value(VirtualCounter::MemoryTraffic), Some(904.0));
        assert!(out.iter().all(|v| v.of == Subject::App(AppId(2))));
        drop(r);
        assert!(groups(&fake).is_empty());
    }

    #[test]
    fn groups_that_somebody_removes_are_made_again() {
        let (fake, mut r) = with(10);
        // how much is told
        let sample = |r: &mut Resctrl, s: u64, apps: &[u32]| {
            let mut out = Vec::new();
            let threads = threads(apps, 10 * s);
            r.sample(Nanos::from_secs(s), &threads, &mut out).unwrap();
            out.len()
        };
        sample(&mut r, 1, &[1, 2]);
        fake.0.lock().unwrap().groups.clear();
        // one whose group is gone ends
        sample(&mut r, 2, &[2]);
        sample(&mut r, 3, &[2]);
        assert_eq!(groups(&fake), [ours(2)]);
        assert_eq!(fake.0.lock().unwrap().groups[&ours(2)], ["2"]);
        assert_eq!(sample(&mut r, 4, &[2]), 2);
        // its thread is taken into a group of another program, which is there yet; one that is gone has left a group, too
        let other = || "mon_groups/scx_amp-1-2".to_owned();
        {
            let mut state = fake.0.lock().unwrap();
            state.groups.get_mut(&ours(2)).unwrap().clear();
            state.groups.insert(other(), vec!["2".into()]);
            let gone = format!("mon_groups/scx_amp-{}-2", i32::MAX);
            state.groups.insert(gone, Vec::new());
        }
        assert_eq!(sample(&mut r, 5, &[2]), 0);
        assert_eq!(
            groups(&fake),
            [other(), ours(2)]
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        assert!(fake.0.lock().unwrap().groups[&ours(2)].is_empty());
        fake.0.lock().unwrap().groups.remove(&other());
        sample(&mut r, 6, &[2]);
        assert_eq!(fake.0.lock().unwrap().groups[&ours(2)], ["2"]);
        assert_eq!(sample(&mut r, 7, &[2]), 2);
    }

    #[test]
    fn the_oldest_group_gives_way() {
        let (fake, mut r) = with(2);
        let mut out = Vec::new();
        for apps in [&[1][..], &[1, 2], &[1, 2, 3]] {
            r.sample(Nanos(0), &threads(apps, 10), &mut out).unwrap();
        }
        assert_eq!(groups(&fake), [ours(2), ours(3)]);
        assert_eq!(fake.0.lock().unwrap().removed, [ours(1)]);
    }

    #[test]
    fn two_groups_go_round_among_three_that_are_busy_and_none_goes_to_the_idle() {
        let (fake, mut r) = with(2);
        let mut out = Vec::new();
        let mut had = Vec::new();
        for i in 1..=5 {
            let mut all = threads(&[1, 2, 3], 10 * i);
            all.extend(threads(&[9], 0));
            r.sample(Nanos(i), &all, &mut out).unwrap();
            let ours = ours(0);
            let prefix = ours.strip_suffix('0').unwrap();
            had.push(groups(&fake).join(" ").replace(prefix, ""));
        }
        // one replacement per interval: whoever has had it longest goes, whoever has waited longest
        // comes
        assert_eq!(had, ["1 2", "2 3", "1 3", "1 2", "2 3"]);
        // an idle one keeps what it has
        r.sample(Nanos(9), &threads(&[1, 2, 3], 50), &mut out)
            .unwrap();
        assert_eq!(groups(&fake).len(), 2);
        drop(r);
        assert!(groups(&fake).is_empty());
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_a_machine_without_says_so() {
        let fake = Fake::default();
        // as versions of old named them, of a process that is gone, our own of before, of one that is there, and somebody else's
        for (left, number) in [
            ("scx_amp-77".to_owned(), 1),
            (format!("scx_amp-{}-7", i32::MAX), 2),
            (format!("scx_amp-{}-7", std::process::id()), 3),
            ("scx_amp-1-7".to_owned(), 4),
            ("others".to_owned(), 5),
        ] {
            let tasks = vec![number.to_string()];
            let mut state = fake.0.lock().unwrap();
            state.groups.insert(format!("mon_groups/{left}"), tasks);
        }
        let r = Resctrl::open(Box::new(fake.clone()), Path::new("/proc")).unwrap();
        assert_eq!(
            groups(&fake),
            ["mon_groups/others", "mon_groups/scx_amp-1-7"]
        );
        drop(r);
        let e = Resctrl::open(
            Box::new(SysResctrl::new(Path::new("/nowhere"))),
            Path::new("/proc"),
        )
        .err()
        .unwrap();
        assert!(e.to_string().contains("mount -t resctrl"), "{e}");
    }
}
