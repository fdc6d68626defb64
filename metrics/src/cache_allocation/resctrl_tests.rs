//! Cache allocation on made-up resctrl trees.

use super::*;
use std::sync::{Arc, Mutex};

/// A resctrl tree as the kernel shows it, in which groups get their files when they are made.
#[derive(Clone)]
struct Fake(Arc<Mutex<Tree>>);

struct Tree {
    files: BTreeMap<String, String>,
    /// Groups that may be made.
    free: usize,
    /// Everything that was written, in order.
    written: Vec<(String, String)>,
    removed: Vec<String>,
}

impl Fake {
    fn new(files: &[(&str, &str)]) -> Fake {
        let files = files
            .iter()
            .map(|(f, t)| ((*f).to_owned(), (*t).to_owned()));
        Fake(Arc::new(Mutex::new(Tree {
            files: files.collect(),
            free: 15,
            written: Vec::new(),
            removed: Vec::new(),
        })))
    }

    /// Twelve ways of a cache in two sockets.
    fn two_sockets() -> Fake {
        Fake::new(&[
            ("info/L3/cbm_mask", "fff\n"),
            ("info/L3/min_cbm_bits", "1\n"),
            ("info/L3/num_closids", "16\n"),
            ("info/last_cmd_status", "ok\n"),
            ("schemata", "    MB:0=100;1=100\n    L3:0=fff;1=fff\n"),
            ("size", "    MB:0=100;1=100\n    L3:0=12582912;1=12582912\n"),
        ])
    }

    fn tree(&self) -> std::sync::MutexGuard<'_, Tree> {
        self.0.lock().unwrap()
    }

    fn last(&self, group: &str, file: &str) -> String {
        let key = format!("{group}{}/{file}", std::process::id());
        let tree = self.tree();
        let last = tree.written.iter().rev().find(|(f, _)| *f == key);
        last.map(|(_, t)| t.clone()).unwrap_or_default()
    }
}

impl ResctrlFs for Fake {
    fn make(&mut self, group: &str) -> io::Result<()> {
        let mut t = self.tree();
        t.free = t
            .free
            .checked_sub(1)
            .ok_or_else(|| io::Error::from_raw_os_error(28))?;
        for file in ["tasks", "schemata"] {
            t.files.insert(format!("{group}/{file}"), String::new());
        }
        Ok(())
    }
    fn remove(&mut self, group: &str) -> io::Result<()> {
        let mut t = self.tree();
        t.files.retain(|f, _| !f.starts_with(&format!("{group}/")));
        t.removed.push(group.to_owned());
        Ok(())
    }
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        assert_eq!(folder, "");
        let t = self.tree();
        let tops = t
            .files
            .keys()
            .map(|f| f.split('/').next().unwrap().to_owned());
        Ok(tops.collect::<BTreeSet<_>>().into_iter().collect())
    }
    fn read(&self, file: &str) -> io::Result<String> {
        let t = self.tree();
        let text = t.files.get(file).cloned();
        text.ok_or_else(|| io::Error::from_raw_os_error(2))
    }
    fn write(&mut self, file: &str, text: &str) -> io::Result<()> {
        let mut t = self.tree();
        if !t.files.contains_key(file) {
            return Err(io::Error::from_raw_os_error(2));
        }
        if text.contains("77777\n") {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if t.files
            .get("info/last_cmd_status")
            .is_some_and(|s| s.contains("Mask"))
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        t.written.push((file.to_owned(), text.to_owned()));
        Ok(())
    }
    fn root(&self) -> &Path {
        Path::new("/sys/fs/resctrl")
    }
}

/// `/sys` in which CPUs share the caches of level 3 that are listed.
fn sysfs(shared: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for list in shared {
        for cpu in list.parse::<CpuList>().unwrap().0 {
            let dir = root
                .path()
                .join(format!("devices/system/cpu/cpu{cpu}/cache"));
            for (index, level, cpus) in [(0, "1", cpu.to_string()), (3, "3", (*list).into())] {
                let dir = dir.join(format!("index{index}"));
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join("level"), format!("{level}\n")).unwrap();
                std::fs::write(dir.join("shared_cpu_list"), format!("{cpus}\n")).unwrap();
            }
        }
    }
    root
}

fn open(fake: &Fake) -> Result<ResctrlAllocation, AllocationError> {
    let nowhere = Path::new("/nowhere");
    ResctrlAllocation::open(Box::new(fake.clone()), nowhere, nowhere)
}

#[test]
fn the_confined_have_the_lowest_ways_and_others_the_rest() {
    let fake = Fake::two_sockets();
    let mut a = open(&fake).unwrap();
    let cache = a.confine(&[4711, 77777, 4712]).unwrap();
    assert_eq!(
        (cache.level, cache.ways, cache.way_bytes, cache.least),
        (3, 12, 1 << 20, 1)
    );
    assert_eq!(fake.last(PREFIX, "schemata"), "L3:0=fff;1=fff\n");
    assert_eq!(fake.last(REST, "schemata"), "L3:0=fff;1=fff\n");
    assert_eq!(
        fake.last(PREFIX, "tasks"),
        "4712\n",
        "one that has ended is no error"
    );
    a.oppose(5000).unwrap();
    assert_eq!(fake.last(REST, "tasks"), "5000\n");
    a.allot(3).unwrap();
    assert_eq!(fake.last(PREFIX, "schemata"), "L3:0=7;1=7\n");
    assert_eq!(fake.last(REST, "schemata"), "L3:0=ff8;1=ff8\n");
    drop(a);
    let us = std::process::id();
    let both = [format!("{PREFIX}{us}"), format!("{REST}{us}")];
    assert_eq!(fake.tree().removed, both);
}

#[test]
fn code_and_data_are_given_alike() {
    let fake = Fake::new(&[
        ("info/L2CODE/cbm_mask", "ff\n"),
        ("info/L2CODE/min_cbm_bits", "2\n"),
        ("schemata", "L2DATA:0=ff\nL2CODE:0=0f\n"),
        ("size", "L2DATA:0=524288\nL2CODE:0=262144\n"),
    ]);
    let mut a = open(&fake).unwrap();
    let cache = a.confine(&[1 << 30]).unwrap();
    // the default group's code has half of it
    assert_eq!(
        (cache.level, cache.way_bytes, cache.least),
        (2, 64 << 10, 2)
    );
    a.allot(2).unwrap();
    let us = std::process::id();
    let tree = fake.tree();
    let set: Vec<&str> = (tree.written.iter().rev().take(4))
        .filter(|(f, _)| *f == format!("{PREFIX}{us}/schemata"))
        .map(|(_, t)| t.as_str())
        .collect();
    assert_eq!(set, ["L2DATA:0=3\n", "L2CODE:0=3\n"]);
    drop(tree);
}

#[test]
fn others_run_beside_the_confined_on_the_same_cache() {
    let sysfs = sysfs(&["0-3", "4-7"]);
    let fs = Box::new(Fake::two_sockets());
    let a = ResctrlAllocation::open(fs, sysfs.path(), Path::new("/nowhere")).unwrap();
    assert_eq!(a.others_on(&[0, 2].into()), [[1, 3, 0, 2]]);
    assert_eq!(a.others_on(&[3, 4].into()), [[0, 1, 2, 3], [5, 6, 7, 4]]);
    assert!(a.others_on(&[9].into()).is_empty());
}

#[test]
fn who_has_a_part_already_keeps_it() {
    let proc = tempfile::tempdir().unwrap();
    for (tid, text) in [(7, "res:/\nmon:scx_amp-7\n"), (8, "res:batch\nmon:\n")] {
        let dir = proc.path().join(tid.to_string());
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cpu_resctrl_groups"), text).unwrap();
    }
    let fake = Fake::two_sockets();
    let nowhere = Path::new("/nowhere");
    let mut a = ResctrlAllocation::open(Box::new(fake.clone()), nowhere, proc.path()).unwrap();
    let e = a.confine(&[7, 8]).unwrap_err();
    assert!(
        e.to_string().contains("thread 8") && e.to_string().contains("`batch`"),
        "{e}"
    );
    assert!(fake.tree().written.is_empty());
    a.confine(&[7]).unwrap();
}

#[test]
fn what_a_killed_run_left_is_removed_and_who_lives_keeps_his() {
    let fake = Fake::two_sockets();
    let alive = tempfile::tempdir().unwrap();
    std::fs::create_dir(alive.path().join("1")).unwrap();
    for group in [
        "scx_amp-part-1",
        "scx_amp-rest-999",
        "scx_amp-part-x",
        "batch",
    ] {
        fake.tree()
            .files
            .insert(format!("{group}/tasks"), String::new());
    }
    let nowhere = Path::new("/nowhere");
    ResctrlAllocation::open(Box::new(fake.clone()), nowhere, alive.path()).unwrap();
    assert_eq!(fake.tree().removed, ["scx_amp-part-x", "scx_amp-rest-999"]);
}

#[test]
fn what_is_wrong_is_named() {
    let none = Fake::new(&[("info/L3_MON/mon_features", "llc_occupancy\n")]);
    let refused = |fake: &Fake| open(fake).err().unwrap().to_string();
    assert!(
        refused(&none).contains("mount -t resctrl"),
        "{}",
        refused(&none)
    );
    for (file, text, part) in [
        ("info/L3/cbm_mask", "f?f\n", "info/L3/cbm_mask: `f?f`"),
        ("schemata", "MB:0=100\n", "schemata: `MB:0=100`"),
        ("size", "L3:0=big\n", "size: `L3:0=big`"),
    ] {
        let fake = Fake::two_sockets();
        fake.tree().files.insert(file.into(), text.into());
        assert!(refused(&fake).contains(part), "{}", refused(&fake));
    }
    let full = Fake::two_sockets();
    full.tree().free = 1;
    let e = open(&full).unwrap().confine(&[]).unwrap_err().to_string();
    assert!(e.contains("all 16 classes of service"), "{e}");
    assert_eq!(full.tree().removed.len(), 1, "the one that was made");
    let fake = Fake::two_sockets();
    let mut a = open(&fake).unwrap();
    let status = "Mask out of range\n".to_owned();
    fake.tree()
        .files
        .insert("info/last_cmd_status".into(), status);
    let e = a.confine(&[]).unwrap_err().to_string();
    assert!(
        e.contains("/schemata: ") && e.contains("(Mask out of range)"),
        "{e}"
    );
}

/// No text of these files makes it panic.
#[test]
fn odd_trees_are_refused() {
    for text in [
        "",
        "\n",
        "0\n",
        "L3:\n",
        "L3:0=0\n",
        "L3:0=;=\n",
        "ffffffffffffffffff\n",
    ] {
        for file in [
            "info/L3/cbm_mask",
            "info/L3/min_cbm_bits",
            "schemata",
            "size",
        ] {
            let fake = Fake::two_sockets();
            fake.tree().files.insert(file.into(), text.into());
            if let Ok(mut a) = open(&fake) {
                let _ = a.confine(&[]).map(|c| c.sizes());
            }
        }
    }
}
