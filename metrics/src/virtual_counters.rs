//! Virtual counters: what no core PMU counts, sampled in step with the counters.
//!
//! | source | counts | of |
//! |---|---|---|
//! | [`Powercap`] | energy | the machine (RAPL packages) |
//! | [`PowerPmu`] | energy | the machine (perf's `power` PMU, where powercap is not readable) |
//! | [`CorePower`] | energy | core types, without what their cores share (perf's `power_core` PMU, AMD) |
//! | [`Hwmon`] | energy | core types whose sensors are known by label, else the machine |
//! | [`ScmiPowercap`] | energy, from power | core types whose zones are known by name |
//! | [`EnergyModel`] | energy, as an estimate | each CPU and each core type (the kernel's energy model) |
//! | [`BoardEnergy`] | energy | each CPU and each core type of the virtual board |
//! | [`Resctrl`] | LLC occupancy, memory traffic | applications |
//! | [`ThreadDirector`] | performance and efficiency, as the hardware rates them now | core types |
//! | [`ClockLimits`] | the clock that heat, power and users allow | core types |
//!
//! The first interval has no increments: a source needs two readings for one.

mod board;
mod clock_limits;
mod core_power;
mod energy;
mod energy_model;
mod hwmon;
mod meter;
mod resctrl;
mod scmi;
mod sensors;
mod thread_director;

pub use board::BoardEnergy;
pub use clock_limits::ClockLimits;
pub use core_power::CorePower;
pub use energy::{PowerPmu, Powercap};
pub use energy_model::EnergyModel;
pub use hwmon::Hwmon;
pub use meter::EnergyMeter;
pub use resctrl::Resctrl;
pub use scmi::ScmiPowercap;
pub use thread_director::{Messages, ThreadDirector};

use crate::ids::{CoreTypeId, Nanos};
use crate::pmu::Pmus;
use crate::resctrl_fs::SysResctrl;
use crate::sample::{Snapshot, ThreadSample, VirtualReading};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a source cannot be used, or can no longer be.
#[derive(Debug, Error)]
pub enum VirtualError {
    /// This machine has no such counter.
    #[error("{what}: none here ({reason})")]
    None {
        /// The source.
        what: &'static str,
        /// What was looked for.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file does not hold what it must.
    #[error("{path}: `{text}` is not {want}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Content of the file.
        text: String,
        /// What the text should be.
        want: &'static str,
    },
    /// A counter cannot be opened or read.
    #[error(transparent)]
    Counter(#[from] crate::perf::CounterError),
    /// The board's page cannot be read.
    #[error(transparent)]
    Board(#[from] amp_machine::page::PageError),
}

/// A source of virtual counters.
pub trait VirtualSource: Send {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// Whether it counts by application, and so has to see every thread.
    fn by_application(&self) -> bool {
        false
    }

    /// Whether it measures the energy of each core type.
    fn by_core_type(&self) -> bool {
        false
    }

    /// Whether what it says of energy is worked out, and nothing measured.
    fn is_estimate(&self) -> bool {
        false
    }

    /// Adds what it counted since the last call that went well, at time `now`. `threads` is empty unless
    /// [`VirtualSource::by_application`].
    ///
    /// # Errors
    /// When it cannot be read now: what it has added is dropped then, and the next call is to tell of both intervals.
    fn sample(
        &mut self,
        now: Nanos,
        threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError>;
}

/// Where sources are looked for.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/sys`.
    pub sysfs: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys/fs/resctrl`.
    pub resctrl: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            sysfs: "/sys".into(),
            proc: "/proc".into(),
            resctrl: "/sys/fs/resctrl".into(),
        }
    }
}

/// How many samples in a row a source may fail before it is given up: firmware behind a sensor is busy now and then.
const PATIENCE: u32 = 20;

/// A source in use.
struct Used {
    source: Box<dyn VirtualSource>,
    /// Samples that have failed since the last one that did not, and why the last of them did.
    failed: u32,
    why: String,
}

impl From<Box<dyn VirtualSource>> for Used {
    fn from(source: Box<dyn VirtualSource>) -> Used {
        Used {
            source,
            failed: 0,
            why: String::new(),
        }
    }
}

/// All sources of a machine. Dropping it removes what they created (resctrl groups).
#[derive(Default)]
pub struct VirtualCounters {
    sources: Vec<Used>,
    missing: Vec<String>,
    /// Every thread of the snapshot; reused from one to the next.
    everybody: Vec<ThreadSample>,
}

impl VirtualCounters {
    /// Finds the sources of this machine. One of energy is taken, the most detailed there is: the
    /// board's page, sensors of core types, SCMI's zones of them, RAPL of cores, RAPL of packages through powercap or perf;
    /// where nothing is measured, the kernel's energy model. `labels` are texts that tell a sensor's core type.
    pub fn detect(roots: &Roots, pmus: &Pmus, labels: &[(String, CoreTypeId)]) -> VirtualCounters {
        let mut all = VirtualCounters::detect_energy(roots, pmus, labels);
        let cache = VirtualCounters::detect_cache(roots);
        all.sources.extend(cache.sources);
        all.missing.extend(cache.missing);
        all
    }

    /// As [`VirtualCounters::detect`], energy alone.
    pub fn detect_energy(
        roots: &Roots,
        pmus: &Pmus,
        labels: &[(String, CoreTypeId)],
    ) -> VirtualCounters {
        let mut all = VirtualCounters::of(Vec::new());
        let sysfs = roots.sysfs.as_path();
        let powercap = sysfs.join("class/powercap");
        let energy: [&dyn Fn() -> Result<Box<dyn VirtualSource>, VirtualError>; 7] = [
            &|| Ok(Box::new(BoardEnergy::open(sysfs)?)),
            &|| Ok(Box::new(Hwmon::open(&sysfs.join("class/hwmon"), labels)?)),
            &|| Ok(Box::new(ScmiPowercap::open(&powercap, labels)?)),
            &|| Ok(Box::new(CorePower::open(sysfs, pmus)?)),
            &|| Ok(Box::new(Powercap::open(&powercap)?)),
            &|| Ok(Box::new(PowerPmu::open(sysfs, pmus)?)),
            &|| {
                let types = pmus.core_types().map(|t| pmus.cpus_of(t).to_vec());
                Ok(Box::new(EnergyModel::open(
                    sysfs,
                    &roots.proc,
                    types.collect(),
                )?))
            },
        ];
        for open in energy {
            match open() {
                Ok(source) => {
                    all.sources.push(source.into());
                    break;
                }
                Err(e) => all.missing.push(e.to_string()),
            }
        }
        all
    }

    /// As [`VirtualCounters::detect`], cache occupancy and memory traffic alone. Groups that
    /// a program of ours that is gone has left in resctrl are removed.
    pub fn detect_cache(roots: &Roots) -> VirtualCounters {
        match Resctrl::open(Box::new(SysResctrl::new(&roots.resctrl)), &roots.proc) {
            Ok(r) => VirtualCounters::of(vec![Box::new(r)]),
            Err(e) => VirtualCounters {
                missing: vec![e.to_string()],
                ..VirtualCounters::default()
            },
        }
    }

    /// Finds what tells how fast core types are at present: Thread Director, and limits of clocks.
    /// `core_types` has the CPUs of each. The kernel speaks of the machine that it runs on, so it is not listened to for one
    /// whose files are elsewhere.
    pub fn detect_speeds(roots: &Roots, core_types: &[Vec<u32>]) -> VirtualCounters {
        let mut all = VirtualCounters::default();
        let here = roots.sysfs == Roots::default().sysfs;
        let speeds: [&dyn Fn() -> Result<Box<dyn VirtualSource>, VirtualError>; 2] = [
            &|| match here {
                true => Ok(Box::new(ThreadDirector::open(core_types.to_vec())?)),
                false => Err(VirtualError::None {
                    what: "thread-director",
                    reason: format!("{} is not this machine's", roots.sysfs.display()),
                }),
            },
            &|| Ok(Box::new(ClockLimits::open(&roots.sysfs, core_types)?)),
        ];
        for open in speeds {
            match open() {
                Ok(source) => all.sources.push(source.into()),
                Err(e) => all.missing.push(e.to_string()),
            }
        }
        all
    }

    /// These sources.
    pub fn of(sources: Vec<Box<dyn VirtualSource>>) -> VirtualCounters {
        VirtualCounters {
            sources: sources.into_iter().map(Used::from).collect(),
            ..VirtualCounters::default()
        }
    }

    /// Takes in the sources of `other`.
    pub fn extend(&mut self, other: VirtualCounters) {
        self.sources.extend(other.sources);
        self.missing.extend(other.missing);
    }

    /// Whether a source in use measures the energy of each core type.
    pub fn energy_per_core_type(&self) -> bool {
        self.sources.iter().any(|s| s.source.by_core_type())
    }

    /// Whether the hardware may say how fast its core types are: that it has said so is another matter.
    ///
    /// # Errors
    /// Why not.
    pub fn thread_director(&self) -> Result<(), String> {
        const NAME: &str = "thread-director";
        if self.names().any(|n| n == NAME) {
            return Ok(());
        }
        let why = self.missing.iter().find(|m| m.starts_with(NAME));
        Err(why.map_or_else(|| "nobody listens to it".to_owned(), String::clone))
    }

    /// Names of the sources in use.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.sources.iter().map(|s| s.source.name())
    }

    /// What is not there, and why; grows when a source fails.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Sources that did not answer at the last sample, and why. What they say next is of all the time since they last did.
    pub fn silent(&self) -> impl Iterator<Item = String> + '_ {
        let silent = self.sources.iter().filter(|s| s.failed > 0);
        silent.map(|s| format!("{}: {}", s.source.name(), s.why))
    }

    /// Replaces the virtual counters of `snapshot` by those of the interval that ends with it. A
    /// source that fails twenty times in a row is dropped, and noted in [`VirtualCounters::missing`].
    pub fn sample(&mut self, snapshot: &mut Snapshot) {
        snapshot.virtual_counters.clear();
        self.everybody.clear();
        if self.sources.iter().any(|s| s.source.by_application()) {
            self.everybody.extend(snapshot.everybody());
        }
        let (now, out) = (snapshot.now, &mut snapshot.virtual_counters);
        let (missing, everybody) = (&mut self.missing, &self.everybody);
        self.sources.retain_mut(|s| {
            let threads = match s.source.by_application() {
                true => &everybody[..],
                false => &[],
            };
            let before = out.len();
            match s.source.sample(now, threads, out) {
                Ok(()) => s.failed = 0,
                Err(e) => {
                    out.truncate(before);
                    s.failed += 1;
                    s.why = e.to_string();
                }
            }
            let lost = s.failed >= PATIENCE;
            if lost {
                missing.push(format!("{}: {}", s.source.name(), s.why));
            }
            !lost
        });
    }
}

/// The text of a file, trimmed.
fn read(path: &Path) -> Result<String, VirtualError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(VirtualError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The number in a file.
fn number(path: &Path) -> Result<u64, VirtualError> {
    let text = read(path)?;
    text.parse().map_err(|_| VirtualError::Bad {
        path: path.to_owned(),
        text,
        want: "a number",
    })
}

/// Folders in `dir`, by name; none when it is not there.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut out: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    out.sort();
    out
}

/// Texts in labels of sensors that name a core type: its name, and its core's (`a57` of the PMU
/// `armv8_cortex_a57`). `core_types` are the names, fastest first.
pub fn sensor_labels<'a>(
    core_types: impl Iterator<Item = &'a str>,
    pmus: &Pmus,
) -> Vec<(String, CoreTypeId)> {
    let mut labels = Vec::new();
    for (t, name) in core_types.enumerate() {
        let t = CoreTypeId(t as u8);
        labels.push((name.to_owned(), t));
        let core = pmus
            .of_core_type(t)
            .and_then(|p| p.name.rsplit_once("cortex_"));
        labels.extend(core.map(|(_, core)| (core.to_owned(), t)));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Subject, VirtualCounter};

    /// Counts a joule per nanosecond, and cannot be read at these samples.
    struct Moody {
        fails: fn(u64) -> bool,
        samples: u64,
        last: Nanos,
    }

    impl VirtualSource for Moody {
        fn name(&self) -> &'static str {
            "moody"
        }

        fn sample(
            &mut self,
            now: Nanos,
            _threads: &[ThreadSample],
            out: &mut Vec<VirtualReading>,
        ) -> Result<(), VirtualError> {
            self.samples += 1;
            let over = now.saturating_sub(self.last);
            out.push(VirtualReading {
                counter: VirtualCounter::Energy,
                of: Subject::Machine,
                value: over.0 as f64,
                over,
            });
            if (self.fails)(self.samples) {
                let source = std::io::Error::from_raw_os_error(libc::EAGAIN);
                let path = "/moody".into();
                return Err(VirtualError::Io { path, source });
            }
            self.last = now;
            Ok(())
        }
    }

    /// What the source tells in `n` samples, 10 ns each, and what is known of it then.
    fn sampled(n: u64, fails: fn(u64) -> bool) -> (f64, VirtualCounters) {
        let moody = Moody {
            fails,
            samples: 0,
            last: Nanos::ZERO,
        };
        let mut all = VirtualCounters::of(vec![Box::new(moody)]);
        let mut joules = 0.0;
        let mut s = Snapshot::default();
        for i in 1..=n {
            s.now = Nanos(10 * i);
            all.sample(&mut s);
            joules += s.virtual_counters.iter().map(|r| r.value).sum::<f64>();
        }
        (joules, all)
    }

    #[test]
    fn a_source_that_fails_now_and_then_stays_and_loses_nothing() {
        let (joules, all) = sampled(100, |i| i % 3 != 0 && i < 99);
        assert_eq!((joules, all.names().count()), (1000.0, 1));
        assert!(all.missing().is_empty() && all.silent().next().is_none());
        let (joules, all) = sampled(10, |i| i == 10);
        assert_eq!(joules, 90.0);
        let silent: Vec<String> = all.silent().collect();
        assert!(
            silent.len() == 1 && silent[0].contains("moody: /moody"),
            "{silent:?}"
        );
    }

    #[test]
    fn a_source_that_is_gone_is_given_up_and_told() {
        let (_, all) = sampled(u64::from(PATIENCE) + 4, |i| i > 4);
        assert_eq!(all.names().count(), 0);
        assert_eq!(all.missing().len(), 1);
        assert!(all.missing()[0].contains("/moody"), "{:?}", all.missing());
    }
}
