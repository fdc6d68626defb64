//! What can be known about the running kernel before and after libbpf has had its say.

use crate::error::LoadError;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Capabilities that loading takes, with their bit in `CapEff`.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_SYS_ADMIN", 21)];

/// Lines of libbpf's log that an error quotes.
const LOG_LINES: usize = 30;

/// The running kernel's release.
pub(crate) fn release(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
    text.map_or_else(|_| "(unknown)".into(), |s| s.trim().to_owned())
}

/// Checks everything that can be checked without loading. `root` stands for `/`.
pub(crate) fn check(root: &Path) -> Result<(), LoadError> {
    obstacles(root).into_iter().next().map_or(Ok(()), Err)
}

/// Everything that would keep a scheduler from being loaded on the machine whose `/sys` and `/proc`
/// are below `root`, as far as can be said without loading one.
pub fn obstacles(root: &Path) -> Vec<LoadError> {
    let kernel = || release(root);
    let mut found = Vec::new();
    if !root.join("sys/kernel/sched_ext").is_dir() {
        found.push(LoadError::NoSchedExt { kernel: kernel() });
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        found.push(LoadError::NoBtf { kernel: kernel() });
    }
    let missing = missing_capabilities(root);
    if !missing.is_empty() {
        found.push(LoadError::NotPermitted {
            missing: missing.join(" and "),
        });
    }
    found.extend(check_free(root).err());
    found
}

/// Fails when a scheduler is loaded.
pub(crate) fn check_free(root: &Path) -> Result<(), LoadError> {
    let scx = root.join("sys/kernel/sched_ext");
    let state = std::fs::read_to_string(scx.join("state")).unwrap_or_default();
    if matches!(state.trim(), "" | "disabled") {
        return Ok(());
    }
    let name = std::fs::read_to_string(scx.join("root/ops")).unwrap_or_default();
    let name = if name.trim().is_empty() {
        "(unnamed)"
    } else {
        name.trim()
    };
    Err(LoadError::Busy {
        name: name.to_owned(),
    })
}

fn missing_capabilities(root: &Path) -> Vec<&'static str> {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|v| u64::from_str_radix(v.trim(), 16).ok());
    // Without a /proc there is nothing to say; the kernel will.
    let Some(effective) = effective else {
        return Vec::new();
    };
    let lacks = |bit: &u32| effective >> bit & 1 == 0;
    CAPABILITIES
        .iter()
        .filter(|(_, bit)| lacks(bit))
        .map(|(name, _)| *name)
        .collect()
}

/// Finds what a failure of libbpf was about, from its log.
pub(crate) fn diagnose(root: &Path, what: &'static str, why: String, log: &[String]) -> LoadError {
    let kernel = release(root);
    let text = || log.iter().flat_map(|l| l.lines()).chain(why.lines());
    if let Some(line) = text()
        .find(|l| l.contains("incompatible with vmlinux") || l.contains("malformed scx kfunc"))
    {
        let symbol = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .find(|w| {
                w.starts_with("scx_bpf_") || w.starts_with("__scx_bpf_") || w.starts_with("bpf_")
            })
            .unwrap_or("scx_bpf_* functions");
        return LoadError::BrokenBtf {
            kernel,
            symbol: symbol.to_owned(),
        };
    }
    // of an argument of a function that is verified by itself: arg#0 reference type('STRUCT task_struct') is ambiguous
    if let Some(line) = text().find(|l| l.contains("is ambiguous")) {
        let name = line.split('\'').nth(1).unwrap_or("type");
        return LoadError::AmbiguousBtf {
            kernel,
            name: name.to_owned(),
        };
    }
    if text().any(|l| l.contains("another sched_ext scheduler")) {
        if let Err(busy) = check_free(root) {
            return busy;
        }
    }
    let lines: Vec<&str> = log
        .iter()
        .flat_map(|l| l.lines())
        .filter(|l| !l.trim().is_empty())
        .collect();
    let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    LoadError::Bpf {
        what,
        kernel,
        why,
        log: tail,
    }
}

static LOG: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn keep(_: libbpf_rs::PrintLevel, message: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    // A verifier log comes as one message of many lines: keep its end.
    let start = message.len().saturating_sub(16 << 10);
    let start = (start..message.len())
        .find(|i| message.is_char_boundary(*i))
        .unwrap_or(0);
    log.push_back(message[start..].to_owned());
    if log.len() > 200 {
        log.pop_front();
    }
}

/// Runs `f` with libbpf's messages collected instead of printed, and returns them with its result.
pub(crate) fn with_log<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
    // libbpf's print function is global: one load at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let before = libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, keep)));
    let result = f();
    libbpf_rs::set_print(before);
    let log = LOG
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain(..)
        .collect();
    (result, log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A root with a kernel that has sched_ext, and a process that may use it.
    fn root() -> tempfile::TempDir {
        let d = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let p = d.path().join(path);
            fs::create_dir_all(p.parent().unwrap()).unwrap();
            fs::write(p, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", "7.0.13+deb13-cloud-amd64\n");
        put("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        put("sys/kernel/sched_ext/state", "disabled\n");
        put("sys/kernel/btf/vmlinux", "");
        d
    }

    #[test]
    fn a_good_kernel_passes() {
        assert!(check(root().path()).is_ok());
    }

    #[test]
    fn obstacles_are_all_named() {
        assert!(obstacles(root().path()).is_empty());
        let empty = tempfile::tempdir().unwrap();
        let all = obstacles(empty.path());
        assert!(
            matches!(
                all.as_slice(),
                [LoadError::NoSchedExt { .. }, LoadError::NoBtf { .. }]
            ),
            "{all:?}"
        );
    }

    #[test]
    fn names_the_kernel_without_sched_ext() {
        let d = root();
        fs::remove_dir_all(d.path().join("sys/kernel/sched_ext")).unwrap();
        let e = check(d.path()).unwrap_err();
        assert!(
            matches!(&e, LoadError::NoSchedExt { kernel } if kernel == "7.0.13+deb13-cloud-amd64")
        );
        assert!(e.to_string().contains("board"), "{e}");
    }

    #[test]
    fn names_the_missing_capabilities() {
        let d = root();
        fs::write(
            d.path().join("proc/self/status"),
            "CapEff:\t0000000000200000\n",
        )
        .unwrap();
        let e = check(d.path()).unwrap_err();
        assert!(matches!(&e, LoadError::NotPermitted { missing } if missing == "CAP_BPF"));
    }

    #[test]
    fn names_the_other_scheduler() {
        let d = root();
        let scx = d.path().join("sys/kernel/sched_ext");
        fs::write(scx.join("state"), "enabled\n").unwrap();
        fs::create_dir(scx.join("root")).unwrap();
        fs::write(scx.join("root/ops"), "lavd_1.0\n").unwrap();
        let e = check(d.path()).unwrap_err();
        assert!(matches!(&e, LoadError::Busy { name } if name == "lavd_1.0"));
    }

    #[test]
    fn recognises_a_type_that_is_there_twice() {
        let log = ["0: R1=ctx() R10=fp0\narg#0 reference type('STRUCT task_struct') is ambiguous\nprocessed 0 insns\n"]
            .map(String::from);
        let e = diagnose(root().path(), "loading", "No such process".into(), &log);
        assert!(
            matches!(&e, LoadError::AmbiguousBtf { name, .. } if name == "STRUCT task_struct"),
            "{e}"
        );
    }

    #[test]
    fn recognises_btf_that_cannot_load() {
        let log = ["libbpf: extern (func ksym) 'scx_bpf_create_dsq': func_proto [21] incompatible with vmlinux [112]\n"]
            .map(String::from);
        let e = diagnose(root().path(), "loading", "Invalid argument".into(), &log);
        assert!(
            matches!(&e, LoadError::BrokenBtf { symbol, .. } if symbol == "scx_bpf_create_dsq"),
            "{e:?}"
        );
        assert!(e.to_string().contains("7.2.13+deb14"));
    }

    #[test]
    fn quotes_the_end_of_the_log() {
        let log: Vec<String> = (0..100).map(|i| format!("line {i}\n")).collect();
        let e = diagnose(root().path(), "loading", "Invalid argument".into(), &log).to_string();
        assert!(e.contains("line 99") && !e.contains("line 10\n"), "{e}");
    }
}
