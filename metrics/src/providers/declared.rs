//! Speedup and efficiency factors as somebody declared them.
//!
//! The simplest provider: what the workload file or a provider file says about an application holds
//! for each of its threads. A thread nobody declared has no estimate.
//!
//! ```toml
//! # scx_amp run --policy hsp --provider FILE.toml
//! [[app]]
//! comm = "bzip2"          # command name as the kernel shows it (up to 15 bytes)
//! speedup = 2.1           # fastest core type over slowest; or one number per core type, fastest first:
//! # speedup = [2.9, 1.8, 1.0]
//! efficiency = 1.3        # optional: EDP on the slowest core type over EDP on the fastest
//! ```

use super::file::{read, ProviderFileError};
use crate::estimate::{Estimate, Quality};
use crate::ids::{AppId, CoreTypeId, Nanos, ThreadKey, MAX_CORE_TYPES};
use crate::provider::{MetricId, Provider};
use crate::sample::Snapshot;
use amp_machine::Locator;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use toml::Spanned;

/// Speedup factor per core type, relative to the slowest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedups {
    /// By core type; `None` where nothing was declared.
    by_type: [Option<f64>; MAX_CORE_TYPES],
}

impl Speedups {
    /// One factor, fastest core type over slowest: all that there is to say on a machine of two
    /// core types. On one of more, the types between have none.
    ///
    /// # Errors
    /// When it is not a positive finite number; the text says so.
    pub fn fastest(sf: f64) -> Result<Speedups, String> {
        Speedups::per_type(&[sf])
    }

    /// One factor per core type, fastest first. Trailing types may be left out: nothing is declared
    /// for them (the slowest type's factor is 1 by definition and needs no declaration).
    ///
    /// # Errors
    /// When there are none or too many, or one is not a positive finite number; the text says
    /// which.
    pub fn per_type(sf: &[f64]) -> Result<Speedups, String> {
        let by_type = by_type("speedup", "fastest core type over slowest", sf)?;
        Ok(Speedups { by_type })
    }

    /// The factor on core type `t`.
    pub fn on(&self, t: CoreTypeId) -> Option<f64> {
        self.by_type.get(t.index()).copied().flatten()
    }
}

/// `values` by core type, each checked; `what` they are called, and what one alone means.
fn by_type(what: &str, one: &str, values: &[f64]) -> Result<[Option<f64>; MAX_CORE_TYPES], String> {
    if values.is_empty() || values.len() > MAX_CORE_TYPES {
        return Err(format!(
            "{} numbers of {what}: give one ({one}) or one per core type, at most {MAX_CORE_TYPES}",
            values.len()
        ));
    }
    if let Some(bad) = values.iter().find(|v| !(v.is_finite() && **v > 0.0)) {
        return Err(format!(
            "{what} {bad}: a finite number above 0 is needed, such as 2.1"
        ));
    }
    let mut out = [None; MAX_CORE_TYPES];
    for (slot, v) in out.iter_mut().zip(values) {
        *slot = Some(*v);
    }
    Ok(out)
}

/// Efficiency factor per core type: energy times delay of the same work on the slowest one over
/// that on this one, EF = EDP_small / EDP_big = SF / ER [PMCTrack eq. 3-7].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Efficiencies {
    /// By core type; `None` where nothing was declared.
    by_type: [Option<f64>; MAX_CORE_TYPES],
}

impl Efficiencies {
    /// One factor, that of the fastest core type.
    ///
    /// # Errors
    /// As [`Speedups::fastest`].
    pub fn fastest(ef: f64) -> Result<Efficiencies, String> {
        Efficiencies::per_type(&[ef])
    }

    /// One factor per core type, fastest first; trailing types may be left out.
    ///
    /// # Errors
    /// As [`Speedups::per_type`].
    pub fn per_type(ef: &[f64]) -> Result<Efficiencies, String> {
        let by_type = by_type("efficiency", "of the fastest core type", ef)?;
        Ok(Efficiencies { by_type })
    }

    /// The factor of core type `t`.
    pub fn on(&self, t: CoreTypeId) -> Option<f64> {
        self.by_type.get(t.index()).copied().flatten()
    }
}

/// What is declared of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeclaredFactors {
    /// Its speedup factors.
    pub speedups: Option<Speedups>,
    /// Its efficiency factors.
    pub efficiencies: Option<Efficiencies>,
}

impl From<Speedups> for DeclaredFactors {
    fn from(speedups: Speedups) -> DeclaredFactors {
        DeclaredFactors {
            speedups: Some(speedups),
            efficiencies: None,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    by_app: FxHashMap<AppId, DeclaredFactors>,
    by_comm: FxHashMap<[u8; 16], DeclaredFactors>,
}

/// What has been declared; a handle that is shared with the [`Declared`] provider, so that
/// applications can be declared and withdrawn while the scheduler runs.
#[derive(Clone, Debug, Default)]
pub struct Declarations(Arc<RwLock<Table>>);

impl Declarations {
    /// Declares (or redeclares) an application. Takes effect with the next interval.
    pub fn declare(&self, app: AppId, factors: impl Into<DeclaredFactors>) {
        self.write().by_app.insert(app, factors.into());
    }

    /// Forgets an application that has ended.
    pub fn withdraw(&self, app: AppId) {
        self.write().by_app.remove(&app);
    }

    // A panic elsewhere while the lock was held leaves a whole table behind: each change is one
    // insertion.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn comm_key(comm: &str) -> Result<[u8; 16], String> {
    let bytes = comm.as_bytes();
    if bytes.is_empty() || bytes.len() > 15 || bytes.contains(&0) {
        return Err(format!(
            "comm `{comm}`: the kernel shows command names of 1 to 15 bytes (`ps -o comm`)"
        ));
    }
    let mut key = [0; 16];
    key[..bytes.len()].copy_from_slice(bytes);
    Ok(key)
}

/// The provider: answers [`MetricId::SpeedupFactor`] and [`MetricId::EfficiencyFactor`] with what
/// was declared, with quality [`Quality::Exact`], no uncertainty and no age.
#[derive(Debug)]
pub struct Declared {
    name: String,
    declarations: Declarations,
    threads: FxHashMap<ThreadKey, DeclaredFactors>,
}

impl Declared {
    /// A provider that answers from `declarations`.
    pub fn new(declarations: Declarations) -> Declared {
        Declared {
            name: "declared".to_owned(),
            declarations,
            threads: FxHashMap::default(),
        }
    }

    /// Reads a provider file (declaration by command name).
    ///
    /// # Errors
    /// When it cannot be read or is not right; the error names the file, the line and the key.
    pub fn load(path: &Path) -> Result<Declared, ProviderFileError> {
        Declared::parse(path, &read(path)?)
    }

    /// As [`Declared::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// When the text is not right; the error names the file, the line and the key.
    pub fn parse(path: &Path, text: &str) -> Result<Declared, ProviderFileError> {
        let locator = Locator::new(path, text);
        let file: ProviderFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
        let declarations = Declarations::default();
        for app in file.apps {
            let sf = match app.speedup.get_ref() {
                OneOrMany::One(sf) => Speedups::fastest(*sf),
                OneOrMany::Many(sf) => Speedups::per_type(sf),
            };
            let sf = sf.map_err(|m| locator.value(app.speedup.span().start, "speedup", m))?;
            let ef = app.efficiency.as_ref().map(|ef| {
                let factors = match ef.get_ref() {
                    OneOrMany::One(ef) => Efficiencies::fastest(*ef),
                    OneOrMany::Many(ef) => Efficiencies::per_type(ef),
                };
                factors.map_err(|m| locator.value(ef.span().start, "efficiency", m))
            });
            let factors = DeclaredFactors {
                speedups: Some(sf),
                efficiencies: ef.transpose()?,
            };
            let start = app.comm.span().start;
            let key = comm_key(app.comm.get_ref()).map_err(|m| locator.value(start, "comm", m))?;
            if declarations.write().by_comm.insert(key, factors).is_some() {
                let comm = app.comm.get_ref();
                let message = format!("`{comm}` is declared twice");
                return Err(locator.value(start, "comm", message).into());
            }
        }
        Ok(Declared {
            name: path.display().to_string(),
            ..Declared::new(declarations)
        })
    }

    /// The handle through which declarations change while this provider is in use.
    pub fn declarations(&self) -> &Declarations {
        &self.declarations
    }
}

impl Provider for Declared {
    fn name(&self) -> &str {
        &self.name
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.threads.clear();
        let table = self.declarations.read();
        if table.by_app.is_empty() && table.by_comm.is_empty() {
            return;
        }
        for t in &snapshot.threads {
            let factors = table
                .by_app
                .get(&t.app)
                .or_else(|| table.by_comm.get(&t.comm));
            if let Some(factors) = factors {
                self.threads.insert(t.key, *factors);
            }
        }
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let factors = self.threads.get(&thread)?;
        let value = match metric {
            MetricId::SpeedupFactor(t) => factors.speedups?.on(t)?,
            MetricId::EfficiencyFactor(t) => factors.efficiencies?.on(t)?,
            _ => return None,
        };
        Some(Estimate {
            value,
            uncertainty: None,
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderFile {
    #[allow(dead_code)] // dispatched on by whoever reads provider files
    kind: Option<String>,
    #[serde(rename = "app")]
    apps: Vec<DeclaredApp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredApp {
    comm: Spanned<String>,
    speedup: Spanned<OneOrMany>,
    efficiency: Option<Spanned<OneOrMany>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a number such as 2.1, or an array with one number per core type"
)]
enum OneOrMany {
    One(f64),
    Many(Vec<f64>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CoreTypeSet;
    use crate::sample::ThreadSample;

    fn thread(slot: u32, app: u64, comm: &str) -> ThreadSample {
        ThreadSample {
            key: ThreadKey {
                slot,
                generation: 1,
            },
            tid: slot as i32,
            app: AppId(app),
            comm: comm_key(comm).unwrap(),
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: CoreTypeId::FASTEST,
            placed: None,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
        }
    }

    fn sf(p: &Declared, slot: u32, t: u8) -> Option<f64> {
        let key = ThreadKey {
            slot,
            generation: 1,
        };
        p.estimate(key, MetricId::SpeedupFactor(CoreTypeId(t)))
            .map(|e| e.value)
    }

    #[test]
    fn applications_come_and_go() {
        let d = Declarations::default();
        let mut p = Declared::new(d.clone());
        let s = Snapshot {
            now: Nanos(1),
            threads: vec![thread(1, 10, "a"), thread(2, 20, "b")],
            ..Snapshot::default()
        };
        p.observe(&s);
        assert_eq!(sf(&p, 1, 0), None);
        d.declare(AppId(10), Speedups::fastest(2.5).unwrap());
        p.observe(&s);
        assert_eq!(
            (sf(&p, 1, 0), sf(&p, 1, 1), sf(&p, 2, 0)),
            (Some(2.5), None, None)
        );
        d.withdraw(AppId(10));
        p.observe(&s);
        assert_eq!(sf(&p, 1, 0), None);
        assert_eq!(
            p.estimate(s.threads[0].key, MetricId::EfficiencyFactor(CoreTypeId(0))),
            None
        );
    }

    fn ef(p: &Declared, slot: u32, t: u8) -> Option<f64> {
        let key = ThreadKey {
            slot,
            generation: 1,
        };
        p.estimate(key, MetricId::EfficiencyFactor(CoreTypeId(t)))
            .map(|e| e.value)
    }

    #[test]
    fn efficiency_factors_are_carried_too() {
        let d = Declarations::default();
        let mut p = Declared::new(d.clone());
        let s = Snapshot {
            now: Nanos(1),
            threads: vec![thread(1, 10, "a"), thread(2, 20, "b"), thread(3, 30, "c")],
            ..Snapshot::default()
        };
        d.declare(
            AppId(10),
            DeclaredFactors {
                speedups: Some(Speedups::fastest(2.5).unwrap()),
                efficiencies: Some(Efficiencies::fastest(0.8).unwrap()),
            },
        );
        d.declare(AppId(20), Speedups::fastest(3.0).unwrap());
        d.declare(
            AppId(30),
            DeclaredFactors {
                speedups: None,
                efficiencies: Some(Efficiencies::per_type(&[1.5, 1.2]).unwrap()),
            },
        );
        p.observe(&s);
        assert_eq!((sf(&p, 1, 0), ef(&p, 1, 0)), (Some(2.5), Some(0.8)));
        assert_eq!((sf(&p, 2, 0), ef(&p, 2, 0)), (Some(3.0), None));
        assert_eq!((sf(&p, 3, 0), ef(&p, 3, 1)), (None, Some(1.2)));
        assert_eq!(
            ef(&p, 1, 1),
            None,
            "the slowest is what they are relative to"
        );
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let e = Efficiencies::fastest(bad).unwrap_err();
            assert!(e.contains("efficiency"), "{e}");
        }
        let text = "[[app]]\ncomm = \"a\"\nspeedup = 2\nefficiency = 1.3\n\
                    [[app]]\ncomm = \"b\"\nspeedup = 2\nefficiency = [1.5, 1.1]\n";
        let mut p = Declared::parse(Path::new("p.toml"), text).unwrap();
        p.observe(&s);
        assert_eq!((ef(&p, 1, 0), ef(&p, 2, 1)), (Some(1.3), Some(1.1)));
    }

    #[test]
    fn a_recycled_slot_is_another_thread() {
        let d = Declarations::default();
        d.declare(AppId(10), Speedups::fastest(2.5).unwrap());
        let mut p = Declared::new(d);
        p.observe(&Snapshot {
            now: Nanos(1),
            threads: vec![thread(1, 10, "a")],
            ..Snapshot::default()
        });
        let other = ThreadKey {
            slot: 1,
            generation: 2,
        };
        assert_eq!(
            p.estimate(other, MetricId::SpeedupFactor(CoreTypeId(0))),
            None
        );
    }

    #[test]
    fn a_file_declares_by_command_name() {
        let text = "[[app]]\ncomm = \"bzip2\"\nspeedup = 2\n[[app]]\ncomm = \"x\"\nspeedup = [3.0, 2.0, 1.0]\n";
        let mut p = Declared::parse(Path::new("p.toml"), text).unwrap();
        let threads = vec![
            thread(1, 1, "bzip2"),
            thread(2, 2, "x"),
            thread(3, 3, "bzip"),
        ];
        p.observe(&Snapshot {
            now: Nanos(1),
            threads,
            ..Snapshot::default()
        });
        assert_eq!(
            (sf(&p, 1, 0), sf(&p, 2, 1), sf(&p, 3, 0)),
            (Some(2.0), Some(2.0), None)
        );
        // what is declared for the application itself goes first
        p.declarations()
            .declare(AppId(1), Speedups::fastest(1.5).unwrap());
        p.observe(&Snapshot {
            now: Nanos(2),
            threads: vec![thread(1, 1, "bzip2")],
            ..Snapshot::default()
        });
        assert_eq!(sf(&p, 1, 0), Some(1.5));
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, wants) in [
            (
                "[[app]]\ncomm = \"a\"\nspeedup = -1\n",
                ["line 3", "`speedup`"],
            ),
            (
                "[[app]]\ncomm = \"a\"\nspeedup = nan\n",
                ["line 3", "`speedup`"],
            ),
            (
                "[[app]]\ncomm = \"a\"\nspeedup = []\n",
                ["line 3", "`speedup`"],
            ),
            (
                "[[app]]\n\ncomm = \"\"\nspeedup = 2\n",
                ["line 3", "`comm`"],
            ),
            (
                "[[app]]\ncomm = \"a-name-of-16-byt\"\nspeedup = 2\n",
                ["line 2", "`comm`"],
            ),
            (
                "[[app]]\ncomm = \"a\"\nspedup = 2\n",
                ["line 3", "`spedup`"],
            ),
            (
                "[[app]]\ncomm = \"a\"\nspeedup = \"2\"\n",
                ["line 3", "a number such as 2.1"],
            ),
            (
                "[[app]]\ncomm = \"a\"\nspeedup = 2\nefficiency = 0\n",
                ["line 4", "`efficiency`"],
            ),
            ("[[app]]\nspeedup = 2\n", ["line 1", "`comm`"]),
            (
                "[[app]]\ncomm = \"a\"\nspeedup = 2\n[[app]]\ncomm = \"a\"\nspeedup = 2\n",
                ["line 5", "declared twice"],
            ),
        ] {
            let e = Declared::parse(Path::new("p.toml"), text)
                .unwrap_err()
                .to_string();
            assert!(
                e.starts_with("p.toml: ") && wants.iter().all(|w| e.contains(w)),
                "{text}: {e}"
            );
        }
        let e = Declared::load(Path::new("no/such.toml"))
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("no/such.toml: "), "{e}");
    }
}
