//! A made-up machine for tests: a folder with `sys` and `proc`.

use amp_pmc::CounterInventory;
use std::path::{Path, PathBuf};

/// Release of its kernel.
pub const RELEASE: &str = "7.2.13+deb14-amd64";

/// The folder; it goes when this is dropped.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// A machine like `juno` on which `run` would work: two fast and four slow cores, a PMU for
    /// each type.
    pub fn good() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.put("proc/sys/kernel/osrelease", &format!("{RELEASE}\n"));
        tree.put("proc/sys/kernel/perf_event_paranoid", "2\n");
        tree.put("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        tree.put("sys/kernel/sched_ext/state", "disabled\n");
        tree.put_bytes("sys/kernel/btf/vmlinux", &btf("sched_ext_ops", &["dsq"]));
        tree.put("sys/devices/system/cpu/online", "0-5\n");
        for cpu in 0..6 {
            let capacity = if cpu < 2 { 1024 } else { 446 };
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.put(&format!("{dir}/cpu_capacity"), &format!("{capacity}\n"));
        }
        for (pmu, number, cpus) in [
            ("armv8_cortex_a57", 9, "0-1"),
            ("armv8_cortex_a53", 10, "2-5"),
        ] {
            let dir = format!("sys/bus/event_source/devices/{pmu}");
            tree.put(&format!("{dir}/type"), &format!("{number}\n"));
            tree.put(&format!("{dir}/cpus"), &format!("{cpus}\n"));
            tree.put(&format!("{dir}/format/event"), "config:0-15\n");
            tree.put(&format!("{dir}/events/cpu_cycles"), "event=0x0011\n");
            tree.put(&format!("{dir}/events/inst_retired"), "event=0x0008\n");
        }
        tree
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub fn put(&self, path: &str, text: &str) {
        self.put_bytes(path, text.as_bytes());
    }

    /// Writes a file of any content.
    pub fn put_bytes(&self, path: &str, content: &[u8]) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Removes a file or a folder.
    pub fn remove(&self, path: &str) {
        let path = self.root().join(path);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }

    /// Every file.
    pub fn files(&self) -> Vec<PathBuf> {
        fn below(dir: &Path, found: &mut Vec<PathBuf>) {
            for e in std::fs::read_dir(dir).unwrap() {
                let path = e.unwrap().path();
                match path.is_dir() {
                    true => below(&path, found),
                    false => found.push(path),
                }
            }
        }
        let mut found = Vec::new();
        below(self.root(), &mut found);
        found.sort();
        found
    }
}

/// Type information with the structure `structure`, and `scx_bpf_create_dsq` with these parameters.
pub fn btf(structure: &str, parameters: &[&str]) -> Vec<u8> {
    const STRUCT: u32 = 4 << 24;
    const FUNC: u32 = 12 << 24;
    const PROTO: u32 = 13 << 24;
    let mut strings = vec![0u8];
    let mut name = |s: &str| {
        let at = strings.len() as u32;
        strings.extend(s.bytes());
        strings.push(0);
        at
    };
    let mut words = vec![name(structure), STRUCT, 0];
    words.extend([0, PROTO | parameters.len() as u32, 0]);
    for p in parameters {
        words.extend([name(p), 1]);
    }
    words.extend([name("scx_bpf_create_dsq"), FUNC, 2]);
    let types: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut image = b"\x9f\xeb\x01\x00\x18\0\0\0".to_vec();
    for w in [0, types.len(), types.len(), strings.len()] {
        image.extend((w as u32).to_le_bytes());
    }
    image.extend(types);
    image.extend(strings);
    image
}

/// A trial that finds six counters everywhere.
pub fn counts(inventory: &mut CounterInventory) -> Result<(), String> {
    let names: Vec<String> = inventory.core_pmus().map(|(_, p)| p.name.clone()).collect();
    for name in names {
        inventory.pmus.set_counters(&name, 6);
    }
    Ok(())
}

/// A trial that is not permitted.
pub fn denied(_: &mut CounterInventory) -> Result<(), String> {
    Err("event `instructions` on CPU 0: not permitted".into())
}
