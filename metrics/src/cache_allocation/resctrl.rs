//! Cache allocation by the kernel's resctrl file system.

use super::{lowest, used_by, AllocationError, CacheAllocation, DividedCache};
use crate::resctrl_fs::ResctrlFs;
use amp_machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Begin of the names of our groups, behind which a process stands.
const PREFIX: &str = "scx_amp-part-";
/// The same of those for the other ways.
const REST: &str = "scx_amp-rest-";
/// Caches that can be divided, the last level first; with code and data prioritisation on, one has
/// two lines.
const RESOURCES: [(u32, &[&str]); 4] = [
    (3, &["L3"]),
    (3, &["L3CODE", "L3DATA"]),
    (2, &["L2"]),
    (2, &["L2CODE", "L2DATA"]),
];

/// Two control groups of resctrl: one for the confined threads, one for who is to fill the other
/// ways. Everybody else keeps all ways, and so shares those of the confined. Groups that a killed
/// run left are removed.
pub struct ResctrlAllocation {
    fs: Box<dyn ResctrlFs>,
    sysfs: PathBuf,
    proc: PathBuf,
    level: u32,
    lines: &'static [&'static str],
    ways: u32,
    least: u32,
    way_bytes: u64,
    domains: Vec<u32>,
    part: String,
    rest: String,
    made: Vec<String>,
}

impl ResctrlAllocation {
    /// What the resctrl file system behind `fs` can divide, on a machine with these `/sys` and
    /// `/proc`.
    ///
    /// # Errors
    /// [`AllocationError::None`] when it is not mounted or divides no cache; others when it says
    /// something odd.
    pub fn open(
        fs: Box<dyn ResctrlFs>,
        sysfs: &Path,
        proc: &Path,
    ) -> Result<ResctrlAllocation, AllocationError> {
        let has = |name: &str| fs.read(&format!("info/{name}/cbm_mask")).is_ok();
        let found = RESOURCES.iter().find(|(_, lines)| has(lines[0]));
        let Some(&(level, lines)) = found else {
            return Err(AllocationError::None {
                reason: format!(
                    "{} has neither info/L3/cbm_mask nor info/L2/cbm_mask: not mounted (`mount -t resctrl resctrl /sys/fs/resctrl`) or no such hardware",
                    fs.root().display()
                ),
            });
        };
        let us = std::process::id();
        let mut a = ResctrlAllocation {
            fs,
            sysfs: sysfs.to_owned(),
            proc: proc.to_owned(),
            level,
            lines,
            ways: 0,
            least: 0,
            way_bytes: 0,
            domains: Vec::new(),
            part: format!("{PREFIX}{us}"),
            rest: format!("{REST}{us}"),
            made: Vec::new(),
        };
        let info = format!("info/{}", lines[0]);
        let mask = a.number(&format!("{info}/cbm_mask"), 16)?;
        let least = a.number(&format!("{info}/min_cbm_bits"), 10)?;
        a.ways = mask.count_ones();
        a.least = least.clamp(1, a.ways.max(1).into()) as u32;
        let schemata = a.by_domain("schemata", 16, "lines such as `L3:0=fff`")?;
        let sizes = a.by_domain("size", 10, "lines such as `L3:0=12582912`")?;
        a.domains = schemata.keys().copied().collect();
        let way = |(domain, bytes): (&u32, &u64)| {
            let ones = u64::from(schemata.get(domain)?.count_ones());
            bytes.checked_div(ones)
        };
        a.way_bytes = sizes.iter().filter_map(way).max().unwrap_or(0);
        a.remove_left();
        Ok(a)
    }

    fn remove_left(&mut self) {
        for group in self.fs.list("").unwrap_or_default() {
            let pid = [PREFIX, REST].iter().find_map(|p| group.strip_prefix(p));
            let gone = |pid: &str| !self.proc.join(pid).exists();
            if pid.is_some_and(gone) {
                let _ = self.fs.remove(&group);
            }
        }
    }

    fn io(&self, file: &str, source: io::Error) -> AllocationError {
        let status = self.fs.read("info/last_cmd_status").unwrap_or_default();
        let status = match status.trim() {
            "" | "ok" => String::new(),
            s => format!(" ({s})"),
        };
        AllocationError::Io {
            path: self.fs.root().join(file),
            source,
            status,
        }
    }

    fn bad(&self, file: &str, text: &str, want: &'static str) -> AllocationError {
        AllocationError::Bad {
            path: self.fs.root().join(file),
            text: text.trim().chars().take(200).collect(),
            want,
        }
    }

    fn number(&self, file: &str, radix: u32) -> Result<u64, AllocationError> {
        let text = self.fs.read(file).map_err(|e| self.io(file, e))?;
        let number = u64::from_str_radix(text.trim(), radix);
        number.map_err(|_| self.bad(file, &text, "a number"))
    }

    /// The default group's values of a file with lines `L3:0=…;1=…`, for the first line of our
    /// cache, by cache domain.
    fn by_domain(
        &self,
        file: &str,
        radix: u32,
        want: &'static str,
    ) -> Result<BTreeMap<u32, u64>, AllocationError> {
        let text = self.fs.read(file).map_err(|e| self.io(file, e))?;
        let line = text.lines().find_map(|l| {
            let (name, domains) = l.trim().split_once(':')?;
            (name == self.lines[0]).then_some(domains)
        });
        let domain = |d: &str| {
            let (id, value) = d.trim().split_once('=')?;
            let value = u64::from_str_radix(value.trim(), radix).ok()?;
            Some((id.trim().parse().ok()?, value))
        };
        let all = line.map(|l| l.split(';').map(domain).collect::<Option<BTreeMap<_, _>>>());
        all.flatten().ok_or_else(|| self.bad(file, &text, want))
    }

    /// Makes one of our groups.
    fn make(&mut self, group: &str) -> Result<(), AllocationError> {
        match self.fs.make(group) {
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                let closids = self.number(&format!("info/{}/num_closids", self.lines[0]), 10);
                let how_many = closids.map_or_else(|_| String::new(), |n| format!(" {n}"));
                return Err(AllocationError::None {
                    reason: format!(
                        "all{how_many} classes of service are in use: remove a group of {} that nobody needs (`rmdir`)",
                        self.fs.root().display()
                    ),
                });
            }
            r => r.map_err(|e| self.io(group, e))?,
        }
        self.made.push(group.to_owned());
        Ok(())
    }

    fn write(&mut self, group: &str, file: &str, text: &str) -> Result<(), AllocationError> {
        let file = format!("{group}/{file}");
        self.fs.write(&file, text).map_err(|e| self.io(&file, e))
    }

    /// Moves a thread; one that has ended need not be.
    fn take_in(&mut self, group: &str, tid: i32) -> Result<(), AllocationError> {
        match self
            .fs
            .write(&format!("{group}/tasks"), &format!("{tid}\n"))
        {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            r => r.map_err(|e| self.io(&format!("{group}/tasks"), e)),
        }
    }

    fn set(&mut self, group: &str, ways: u64) -> Result<(), AllocationError> {
        let domains: Vec<String> = self
            .domains
            .iter()
            .map(|d| format!("{d}={ways:x}"))
            .collect();
        for line in self.lines {
            self.write(
                group,
                "schemata",
                &format!("{line}:{}\n", domains.join(";")),
            )?;
        }
        Ok(())
    }

    /// The group that somebody has put the thread into.
    fn group_of(&self, tid: i32) -> Option<String> {
        let file = self.proc.join(format!("{tid}/cpu_resctrl_groups"));
        let text = std::fs::read_to_string(file).ok()?;
        let group = text.lines().find_map(|l| l.strip_prefix("res:"))?.trim();
        let group = group.trim_matches('/');
        (!group.is_empty()).then(|| group.to_owned())
    }

    /// The CPUs of each cache of our level that has one of `cpus`, those first that are not among
    /// them.
    fn others_on(&self, cpus: &BTreeSet<u32>) -> Vec<Vec<u32>> {
        let mut sharing: BTreeSet<Vec<u32>> = BTreeSet::new();
        for cpu in cpus {
            sharing.extend(self.sharing(*cpu));
        }
        let order = |all: Vec<u32>| {
            let (theirs, mut others): (Vec<u32>, Vec<u32>) =
                all.into_iter().partition(|c| cpus.contains(c));
            others.extend(theirs);
            others
        };
        sharing.into_iter().map(order).collect()
    }

    /// The CPUs that share the cache of our level with `cpu`.
    fn sharing(&self, cpu: u32) -> Option<Vec<u32>> {
        let dir = self
            .sysfs
            .join(format!("devices/system/cpu/cpu{cpu}/cache"));
        let caches = std::fs::read_dir(dir).ok()?.flatten();
        let of = |cache: std::fs::DirEntry| {
            let text = |f: &str| std::fs::read_to_string(cache.path().join(f)).ok();
            let level: u32 = text("level")?.trim().parse().ok()?;
            let cpus: CpuList = text("shared_cpu_list")?.trim().parse().ok()?;
            (level == self.level).then_some(cpus.0)
        };
        caches.filter_map(of).next()
    }
}

impl CacheAllocation for ResctrlAllocation {
    fn confine(&mut self, tids: &[i32]) -> Result<DividedCache, AllocationError> {
        for tid in tids {
            if let Some(group) = self.group_of(*tid) {
                return Err(AllocationError::InGroup { tid: *tid, group });
            }
        }
        let (part, rest) = (self.part.clone(), self.rest.clone());
        self.make(&part)?;
        self.make(&rest)?;
        self.allot(self.ways)?;
        for tid in tids {
            self.take_in(&part, *tid)?;
        }
        Ok(DividedCache {
            level: self.level,
            ways: self.ways,
            way_bytes: self.way_bytes,
            least: self.least,
            others_on: self.others_on(&used_by(tids)),
        })
    }

    fn oppose(&mut self, tid: i32) -> Result<(), AllocationError> {
        let rest = self.rest.clone();
        self.take_in(&rest, tid)
    }

    fn allot(&mut self, ways: u32) -> Result<(), AllocationError> {
        let (part, rest) = (self.part.clone(), self.rest.clone());
        let theirs = lowest(ways);
        let others = match lowest(self.ways) & !theirs {
            // there is no group without ways
            0 => lowest(self.ways),
            others => others,
        };
        self.set(&part, theirs)?;
        self.set(&rest, others)
    }
}

impl Drop for ResctrlAllocation {
    fn drop(&mut self) {
        for group in self.made.drain(..) {
            let _ = self.fs.remove(&group);
        }
    }
}

#[cfg(test)]
#[path = "resctrl_tests.rs"]
mod tests;
