//! Sizes of the caches that a CPU uses, as the kernel has them.

use super::Caches;
use std::path::{Path, PathBuf};

/// What is taken where nothing is known.
const L1: usize = 32 << 10;
const L2: usize = 2 << 20;

/// Caches of `cpu`, and which of the sizes are guesses.
pub fn of_cpu(sysfs: &Path, cpu: u32) -> (Caches, Vec<&'static str>) {
    let mut guessed = Vec::new();
    let all = listed(sysfs, cpu);
    let of = |level: u32| all.iter().find(|(l, _)| *l == level).map(|(_, size)| *size);
    let l1 = of(1).unwrap_or_else(|| {
        guessed.push("L1");
        L1
    });
    let l2 = of(2)
        .or_else(|| in_device_tree(sysfs, cpu))
        .unwrap_or_else(|| {
            guessed.push("L2");
            L2
        });
    let l3 = of(3);
    let last = largest(&all).unwrap_or(0).max(l2);
    (Caches { l1, l2, l3, last }, guessed)
}

/// Bytes of the largest cache of `cpu` that the kernel lists; `None` where it lists none.
pub fn largest_of_cpu(sysfs: &Path, cpu: u32) -> Option<usize> {
    largest(&listed(sysfs, cpu))
}

fn largest(all: &[(u32, usize)]) -> Option<usize> {
    all.iter().map(|(_, size)| *size).max()
}

/// Level and size of the data and unified caches that the kernel lists.
fn listed(sysfs: &Path, cpu: u32) -> Vec<(u32, usize)> {
    let dir = sysfs.join(format!("devices/system/cpu/cpu{cpu}/cache"));
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    found
        .filter_map(|e| {
            let text = |f: &str| std::fs::read_to_string(e.path().join(f)).ok();
            if text("type")?.trim() == "Instruction" {
                return None;
            }
            let size = text("size")?;
            let size = size.trim();
            let (digits, unit) = match size.strip_suffix(['K', 'M']) {
                Some(d) if size.ends_with('M') => (d, 20),
                Some(d) => (d, 10),
                None => (size, 0),
            };
            let bytes = digits.parse::<usize>().ok()?.checked_mul(1 << unit)?;
            Some((text("level")?.trim().parse().ok()?, bytes)).filter(|(_, s)| *s > 0)
        })
        .collect()
}

/// Size of the L2 as the device tree has it, where the kernel lists L1 only.
fn in_device_tree(sysfs: &Path, cpu: u32) -> Option<usize> {
    let word = |path: PathBuf| -> Option<u32> {
        let bytes = std::fs::read(path).ok()?;
        Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
    };
    let node = sysfs.join(format!("devices/system/cpu/cpu{cpu}/of_node"));
    let handle = word(node.join("next-level-cache"))?;
    // a node beside the CPUs', or below one
    let cpus = node.canonicalize().ok()?.parent()?.to_owned();
    let mut dirs = vec![(cpus, 0)];
    while let Some((dir, depth)) = dirs.pop() {
        for e in std::fs::read_dir(&dir).ok()?.flatten() {
            let path = e.path();
            if !path.is_dir() {
                continue;
            }
            if word(path.join("phandle")) == Some(handle) {
                let size = word(path.join("cache-size"))?;
                return Some(size as usize).filter(|s| *s > 0);
            }
            if depth < 2 {
                dirs.push((path, depth + 1));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, name: &str, data: &[u8]) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }

    #[test]
    fn what_the_kernel_lists() {
        let d = tempfile::tempdir().unwrap();
        for (i, (level, kind, size)) in [
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1280K"),
            ("3", "Unified", "30M"),
        ]
        .iter()
        .enumerate()
        {
            let dir = format!("devices/system/cpu/cpu3/cache/index{i}");
            file(d.path(), &format!("{dir}/level"), level.as_bytes());
            file(d.path(), &format!("{dir}/type"), kind.as_bytes());
            file(d.path(), &format!("{dir}/size"), size.as_bytes());
        }
        let (c, guessed) = of_cpu(d.path(), 3);
        assert_eq!((c.l1, c.l2, c.last), (48 << 10, 1280 << 10, 30 << 20));
        assert_eq!(c.l3, Some(30 << 20));
        assert_eq!(largest_of_cpu(d.path(), 3), Some(30 << 20));
        assert_eq!(guessed, [""; 0]);
        let (c, guessed) = of_cpu(d.path(), 4);
        assert_eq!((c.l1, c.l3, c.last), (L1, None, L2));
        assert_eq!(largest_of_cpu(d.path(), 4), None);
        assert_eq!(guessed, ["L1", "L2"]);
    }

    #[test]
    fn what_the_device_tree_adds() {
        let d = tempfile::tempdir().unwrap();
        let (tree, cpu) = ("firmware/base/cpus", "devices/system/cpu/cpu0");
        file(
            d.path(),
            &format!("{tree}/cpu@0/next-level-cache"),
            &[0, 0, 0, 9],
        );
        file(d.path(), &format!("{tree}/l2-cache/phandle"), &[0, 0, 0, 9]);
        file(
            d.path(),
            &format!("{tree}/l2-cache/cache-size"),
            &[0, 0x10, 0, 0],
        );
        std::fs::create_dir_all(d.path().join(cpu)).unwrap();
        std::os::unix::fs::symlink(
            d.path().join(tree).join("cpu@0"),
            d.path().join(cpu).join("of_node"),
        )
        .unwrap();
        let (c, guessed) = of_cpu(d.path(), 0);
        assert_eq!((c.l2, guessed), (1 << 20, vec!["L1"]));
    }
}
