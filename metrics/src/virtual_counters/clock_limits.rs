//! What clocks cores may have: heat, power limits and users lower them while a machine runs.
//!
//! `scaling_max_freq` of a cpufreq policy is the least of all limits on it: what the user wrote, what a cooling
//! device asks for, what firmware says. `cpuinfo_max_freq` is what the hardware can do.

use super::{number, VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use std::path::{Path, PathBuf};

/// Files are read so often at most.
const EVERY: Nanos = Nanos(500_000_000);

/// A policy: CPUs that have one clock.
#[derive(Debug)]
struct Policy {
    limit: PathBuf,
    most: u64,
    /// CPUs of each core type.
    cpus: Vec<usize>,
}

/// The limit of each core type's clocks, weighted by CPUs. Core types without frequency scaling have none.
#[derive(Debug)]
pub struct ClockLimits {
    policies: Vec<Policy>,
    /// By core type, as read last.
    levels: Vec<Option<f64>>,
    read: Option<Nanos>,
}

impl ClockLimits {
    /// Finds the policies of CPUs below `sysfs` (`/sys`). `core_types` has the CPUs of each core type.
    ///
    /// # Errors
    /// When there are none.
    pub fn open(sysfs: &Path, core_types: &[Vec<u32>]) -> Result<ClockLimits, VirtualError> {
        let cpus = sysfs.join("devices/system/cpu");
        let mut found: Vec<(PathBuf, Policy)> = Vec::new();
        for (t, of_type) in core_types.iter().enumerate() {
            for cpu in of_type {
                // CPUs of one policy have links to the same folder
                let Ok(dir) = cpus.join(format!("cpu{cpu}/cpufreq")).canonicalize() else {
                    continue;
                };
                if let Some((_, p)) = found.iter_mut().find(|(d, _)| *d == dir) {
                    p.cpus[t] += 1;
                    continue;
                }
                let most = number(&dir.join("cpuinfo_max_freq")).unwrap_or(0);
                let limit = dir.join("scaling_max_freq");
                if most == 0 || number(&limit).is_err() {
                    continue;
                }
                let mut by_type = vec![0; core_types.len()];
                by_type[t] = 1;
                let policy = Policy {
                    limit,
                    most,
                    cpus: by_type,
                };
                found.push((dir, policy));
            }
        }
        if found.is_empty() {
            return Err(VirtualError::None {
                what: "clock-limits",
                reason: format!("no frequency scaling under {}", cpus.display()),
            });
        }
        Ok(ClockLimits {
            policies: found.into_iter().map(|(_, p)| p).collect(),
            levels: vec![None; core_types.len()],
            read: None,
        })
    }

    fn read(&mut self) {
        for (t, level) in self.levels.iter_mut().enumerate() {
            let (mut sum, mut nr) = (0.0, 0);
            for p in self.policies.iter().filter(|p| p.cpus[t] > 0) {
                // a policy whose CPUs are all offline has no limit
                let Ok(limit) = number(&p.limit) else {
                    continue;
                };
                // a boost that `cpuinfo_max_freq` does not count is no more than all
                sum += (limit as f64 / p.most as f64).min(1.0) * p.cpus[t] as f64;
                nr += p.cpus[t];
            }
            *level = (nr > 0).then(|| sum / nr as f64);
        }
    }
}

impl VirtualSource for ClockLimits {
    fn name(&self) -> &'static str {
        "clock-limits"
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        if self.read.is_none_or(|at| now.saturating_sub(at) >= EVERY) {
            self.read();
            self.read = Some(now);
        }
        let levels = self.levels.iter().enumerate();
        out.extend(levels.filter_map(|(t, level)| {
            Some(VirtualReading {
                counter: VirtualCounter::ClockLimit,
                of: Subject::CoreType(CoreTypeId(t as u8)),
                value: (*level)?,
                over: Nanos::ZERO,
            })
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Machine(tempfile::TempDir);

    impl Machine {
        /// Policies by name, with their CPUs, what they can do and what they may.
        fn with(policies: &[(&str, &[u32], &str, &str)]) -> Machine {
            let m = Machine(tempfile::tempdir().unwrap());
            let cpus = m.0.path().join("devices/system/cpu");
            for (name, of, most, limit) in policies {
                let dir = cpus.join("cpufreq").join(name);
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("cpuinfo_max_freq"), most).unwrap();
                fs::write(dir.join("scaling_max_freq"), limit).unwrap();
                for cpu in *of {
                    let of_cpu = cpus.join(format!("cpu{cpu}"));
                    fs::create_dir_all(&of_cpu).unwrap();
                    std::os::unix::fs::symlink(&dir, of_cpu.join("cpufreq")).unwrap();
                }
            }
            m
        }

        fn limit(&self, policy: &str, text: &str) {
            let dir = self.0.path().join("devices/system/cpu/cpufreq");
            fs::write(dir.join(policy).join("scaling_max_freq"), text).unwrap();
        }
    }

    fn levels(s: &mut ClockLimits, ms: u64) -> Vec<(Subject, f64)> {
        let mut out = Vec::new();
        s.sample(Nanos(ms * 1_000_000), &[], &mut out).unwrap();
        assert!(out.iter().all(|r| r.counter == VirtualCounter::ClockLimit));
        out.iter().map(|r| (r.of, r.value)).collect()
    }

    const BIG: Subject = Subject::CoreType(CoreTypeId(0));
    const LITTLE: Subject = Subject::CoreType(CoreTypeId(1));

    #[test]
    fn a_limit_is_seen_within_a_second() {
        let m = Machine::with(&[
            ("policy0", &[0, 1], "2000000\n", "2000000\n"),
            ("policy2", &[2], "1000000\n", "1000000\n"),
        ]);
        let mut s = ClockLimits::open(m.0.path(), &[vec![0, 1], vec![2]]).unwrap();
        assert_eq!(levels(&mut s, 0), [(BIG, 1.0), (LITTLE, 1.0)]);
        m.limit("policy0", "1500000\n");
        assert_eq!(levels(&mut s, 100)[0], (BIG, 1.0), "read twice a second");
        assert_eq!(levels(&mut s, 500), [(BIG, 0.75), (LITTLE, 1.0)]);
        // as the driver of an offline CPU would have it
        m.limit("policy2", "<unsupported>\n");
        m.limit("policy0", "9000000\n");
        assert_eq!(levels(&mut s, 1000), [(BIG, 1.0)]);
    }

    #[test]
    fn policies_count_by_the_cpus_they_have_of_a_type() {
        let m = Machine::with(&[
            ("policy0", &[0], "1000\n", "500\n"),
            ("policy1", &[1, 2, 3], "1000\n", "900\n"),
        ]);
        let mut s = ClockLimits::open(m.0.path(), &[vec![0, 1, 2], vec![3]]).unwrap();
        let [(_, big), (_, little)] = levels(&mut s, 0)[..] else {
            panic!("two core types")
        };
        assert!((big - (0.5 + 2.0 * 0.9) / 3.0).abs() < 1e-9, "{big}");
        assert!((little - 0.9).abs() < 1e-9, "{little}");
    }

    #[test]
    fn a_machine_without_scaling_says_so() {
        let m = Machine::with(&[("policy0", &[0], "0\n", "0\n")]);
        for cpus in [vec![0], vec![5]] {
            let e = ClockLimits::open(m.0.path(), &[cpus]).unwrap_err();
            assert!(e.to_string().contains("no frequency scaling under"), "{e}");
        }
    }
}
