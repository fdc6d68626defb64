//! The providers there are, and how one is chosen, checked and made.
//!
//! [`prepare`] makes a provider by name or from a file and checks its event sets against the PMUs
//! of the machine. Only what it returns is put in place, so a provider that cannot work here never
//! replaces one that does.

mod checked;
pub mod declared;
mod energy;
mod exec;
mod file;
mod fused;
mod history;
mod ipc_sampling;
mod lasting;
mod model;
mod neighbours;
mod plain;
mod programs;
mod remembered;
mod shipped;
#[cfg(test)]
pub(crate) mod testing;
mod thread_director;
mod threads;
mod windowed;

pub use checked::Checked;
pub use declared::{Declarations, Declared, DeclaredFactors, Efficiencies, Speedups};
pub use energy::WithEnergy;
pub use exec::{Exec, ExecFile, PROTOCOL};
pub use file::{files_of, load, ProviderFileError, ProviderFiles, KINDS};
pub use fused::Fused;
pub use history::{History, HistorySettings};
pub use ipc_sampling::{IpcSampling, IpcSamplingSettings};
pub use lasting::{wall_clock, Finding, Found, Identify, Lasting, SharedMemory, TRUSTED_FOR};
pub use model::{Model, PlatformModel, MAX_METRICS};
pub use plain::platform_model;
pub use remembered::Remembered;
use shipped::shipped_models;
pub use shipped::SHIPPED_MODELS;
pub use thread_director::ThreadDirectorFactors;
pub use windowed::{Windowed, WINDOW_SIZES};

use crate::event::{EventError, EventSets};
use crate::pmu::Pmus;
use crate::provider::Provider;
use crate::trust::{BrokenEvent, TrustFile};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What providers are chosen by: the machine they are for.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Its PMUs, core types assigned.
    pub pmus: &'a Pmus,
    /// Whether counters are available: what [`crate::perf::try_all`] said. `Err` says why not.
    pub counters: Result<(), String>,
    /// Whether there are energy readings per core type
    /// ([`crate::virtual_counters::VirtualCounters::energy_per_core_type`]): then every provider
    /// gets efficiency factors, see [`WithEnergy`].
    pub energy_per_core_type: bool,
    /// Whether the machine's hardware may say how fast its core types are
    /// ([`crate::virtual_counters::VirtualCounters::thread_director`]). `Err` says why not.
    pub thread_director: Result<(), String>,
    /// A folder with platform models (`*.toml`) that go before the shipped ones.
    pub models: Option<PathBuf>,
    /// Which events of the machine are known to be broken: providers that want one are refused.
    pub trust: Option<&'a TrustFile>,
}

/// A provider that can be put in place.
pub struct Prepared {
    /// The provider.
    pub provider: Box<dyn Provider>,
    /// What it wants counted, checked.
    pub sets: EventSets,
    /// With `auto`: what would have been better, and why it is not possible here.
    pub passed_over: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("provider", &self.provider.name())
            .field("passed_over", &self.passed_over)
            .finish_non_exhaustive()
    }
}

/// Why a provider cannot be put in place.
#[derive(Debug, Error)]
pub enum ProviderError {
    /// There is no provider of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownProvider),
    /// Its file is not right.
    #[error(transparent)]
    File(#[from] ProviderFileError),
    /// It needs an event that cannot be counted here.
    #[error("provider `{provider}`: {source}")]
    Event {
        /// Its name.
        provider: String,
        /// The event at fault.
        source: Box<EventError>,
    },
    /// It needs an event that does not count what it should.
    #[error("provider `{provider}`: {source}")]
    Broken {
        /// Its name.
        provider: String,
        /// The event at fault.
        source: Box<BrokenEvent>,
    },
    /// It needs counters and none are available.
    #[error("provider `{provider}` needs hardware counters: {why}")]
    NoCounters {
        /// Its name.
        provider: String,
        /// What a trial said.
        why: String,
    },
    /// It needs a word of the hardware's that cannot be heard here.
    #[error("provider `thread-director`: {why}")]
    NoThreadDirector {
        /// What was tried.
        why: String,
    },
    /// The model there is is too rough to be chosen without being asked for.
    #[error("provider `model`: `{model}` states a standard error of {error} of its speedup factors, above {AUTO_MODEL_ERROR}: ask for `model` by name to use it all the same")]
    Rough {
        /// Its name.
        model: String,
        /// Standard error that the model states.
        error: f64,
    },
    /// There is no model for this platform.
    #[error("provider `model`: no model fits this machine ({}): write one (models/README.md) and name its file", why.join("; "))]
    NoModel {
        /// Each model there is, and what differs.
        why: Vec<String>,
    },
}

type Made = Result<Box<dyn Provider>, ProviderError>;

/// A provider that is known by name.
#[derive(Clone, Copy)]
pub struct ProviderEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// What the estimates rest on, in a line.
    pub summary: &'static str,
    /// [`Remembered`] goes in front of it when it is asked for by name, not when a file puts
    /// something else there.
    remembers: bool,
    make: fn(Option<&Context<'_>>) -> Made,
}

/// Every provider that is built in, but `auto`, which chooses among them.
pub const PROVIDERS: &[ProviderEntry] = &[
    ProviderEntry {
        name: "declared",
        summary:
            "speedup and efficiency factors as declared per application, by the workload file, \
             solo runs or a provider file",
        remembers: false,
        make: |_| Ok(Box::new(Declared::new(Declarations::default()))),
    },
    ProviderEntry {
        name: "fused",
        summary: "the platform model where one fits, corrected by the measured ratio of instruction rates; without a model, that alone",
        remembers: false,
        make: |context| {
            let model = context.and_then(|c| model_for(c, PlatformModel::fits_in_part).ok());
            Ok(match model {
                Some(model) => Box::new(Fused::new(Model::new(model))),
                None => Box::new(Fused::without_model("fused")),
            })
        },
    },
    ProviderEntry {
        name: "ipc-sampling",
        summary: "the ratio of what a thread did on each core type, which it has to visit by turns",
        remembers: false,
        make: |_| {
            // the defaults are within their ranges
            IpcSampling::new("ipc-sampling", IpcSamplingSettings::default())
                .map(|p| Box::new(p) as Box<dyn Provider>)
                .map_err(|why| ProviderError::NoCounters {
                    provider: "ipc-sampling".to_owned(),
                    why,
                })
        },
    },
    ProviderEntry {
        name: "remembered",
        summary: "ipc-sampling, and for threads that it does not know yet what others of their name were like",
        remembers: true,
        make: |context| (entry("ipc-sampling")?.make)(context),
    },
    ProviderEntry {
        name: "measured",
        summary: "what a thread's instruction rate does when it comes to another core type, weighed against how it varies anyhow; no model",
        remembers: false,
        make: |_| Ok(Box::new(Fused::without_model("measured"))),
    },
    ProviderEntry {
        name: "model",
        summary: "a platform model: factors from counters on the core type the thread is on; until it has been counted, those of others of its name",
        remembers: true,
        make: |context| match context {
            None => Err(ProviderError::NoModel {
                why: vec!["the machine is not known".to_owned()],
            }),
            Some(context) => Ok(Box::new(Model::new(model_for(context, PlatformModel::fits)?))),
        },
    },
    ProviderEntry {
        name: "thread-director",
        summary: "how fast the hardware says that its core types are now (Intel), the same for every thread; experimental: never run on such hardware",
        remembers: false,
        make: |context| {
            let told = context.map(|c| c.thread_director.clone());
            told.unwrap_or_else(|| Err("the machine is not known".to_owned()))
                .map_err(|why| ProviderError::NoThreadDirector { why })?;
            let types = context.map_or(0, |c| c.pmus.core_types().count());
            Ok(Box::new(ThreadDirectorFactors::new(types)))
        },
    },
    ProviderEntry {
        name: "none",
        summary: "no metrics: policies that need them fall back on fair shares",
        remembers: false,
        make: |_| Ok(Box::new(NoMetrics)),
    },
];

/// The order in which `auto` tries: the first that is possible is taken. `fused` is not among them as
/// long as it places programs worse than `model` on the board (docs/evidence/models.md).
const AUTO: &[&str] = &["model", "measured", "declared"];

/// Standard error of the speedup factor up to which `auto` trusts a model. The published models'
/// mean absolute errors are 0.13 to 0.19 \[TD\]; a worse one has to be asked for by name.
pub const AUTO_MODEL_ERROR: f64 = 0.3;

/// There is no such provider.
#[derive(Debug, Error, PartialEq)]
#[error(
    "unknown provider `{name}`: there are {}, or the path of a provider file (*.toml)",
    names()
)]
pub struct UnknownProvider {
    /// The name that was asked for.
    pub name: String,
}

fn names() -> String {
    let names = PROVIDERS.iter().map(|p| p.name).chain(["auto"]);
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    names.join(", ")
}

fn entry(name: &str) -> Result<&'static ProviderEntry, UnknownProvider> {
    let found = PROVIDERS.iter().find(|p| p.name == name);
    found.ok_or_else(|| UnknownProvider {
        name: name.to_owned(),
    })
}

/// The provider called `name`, for a machine of which nothing is known; one that depends on the
/// machine is refused. [`prepare`] is for a real one.
///
/// # Errors
/// When there is none; the error lists what there is.
pub fn by_name(name: &str) -> Result<Box<dyn Provider>, ProviderError> {
    named(name, None)
}

fn named(name: &str, context: Option<&Context<'_>>) -> Made {
    let entry = entry(name)?;
    let provider = (entry.make)(context)?;
    if !entry.remembers {
        return Ok(provider);
    }
    // which model it is says more than that there is a memory
    let called = match name {
        "model" => provider.name().to_owned(),
        name => name.to_owned(),
    };
    Ok(Box::new(Remembered::new(provider).called(&called)))
}

/// The provider called `name`, for a file to put something in front of it.
fn bare(name: &str, context: Option<&Context<'_>>) -> Made {
    (entry(name)?.make)(context)
}

/// Does ahead of time what the first [`prepare`] would take long for: parses the shipped models.
pub fn get_ready() {
    shipped_models();
}

/// Makes the provider called `name`, or the one that the file `name` (`*.toml`) describes, and
/// checks that everything it wants counted can be counted on this machine.
///
/// # Errors
/// [`ProviderError`], which says what is missing. Whatever is in place stays.
pub fn prepare(name: &str, context: &Context<'_>) -> Result<Prepared, ProviderError> {
    if name == "auto" {
        return auto(context);
    }
    let provider = if name.ends_with(".toml") {
        load(Path::new(name), context)?
    } else {
        named(name, Some(context))?
    };
    check(provider, context)
}

/// As [`prepare`] for a provider file that was read before.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_read(
    files: &ProviderFiles,
    context: &Context<'_>,
) -> Result<Prepared, ProviderError> {
    check(files.load(context)?, context)
}

/// Checks a provider that was made otherwise (declarations that are shared with the caller, a
/// simulated machine's).
///
/// # Errors
/// As [`prepare`].
pub fn check(
    mut provider: Box<dyn Provider>,
    context: &Context<'_>,
) -> Result<Prepared, ProviderError> {
    let sets = wanted(&mut *provider, context)?;
    if context.energy_per_core_type {
        let types = context.pmus.core_types();
        let cpus = types.map(|t| context.pmus.cpus_of(t).len());
        provider = Box::new(WithEnergy::new(provider, cpus));
    }
    Ok(Prepared {
        provider,
        sets,
        passed_over: Vec::new(),
    })
}

/// What a provider wants counted, checked.
fn wanted(provider: &mut dyn Provider, context: &Context<'_>) -> Result<EventSets, ProviderError> {
    let name = provider.name().to_owned();
    let event = |source| ProviderError::Event {
        provider: name.clone(),
        source: Box::new(source),
    };
    let sets = match provider.event_sets(context.pmus) {
        Ok(sets) => sets,
        // without counters at all, why there are none is the better answer
        Err(source) => {
            return Err(match (&context.counters, &source) {
                (Err(why), EventError::NoPmu { .. }) => ProviderError::NoCounters {
                    provider: name,
                    why: why.clone(),
                },
                _ => event(source),
            })
        }
    };
    if let (false, Err(why)) = (sets.is_empty(), &context.counters) {
        return Err(ProviderError::NoCounters {
            provider: name,
            why: why.clone(),
        });
    }
    sets.check(context.pmus).map_err(event)?;
    for t in context.pmus.core_types() {
        let events = sets.of(t).iter().flat_map(|s| &s.events);
        let broken = |e| context.trust?.broken(context.pmus, t, e);
        if let Some(source) = events.filter_map(broken).next() {
            return Err(ProviderError::Broken {
                provider: name,
                source: Box::new(source),
            });
        }
    }
    Ok(sets)
}

fn auto(context: &Context<'_>) -> Result<Prepared, ProviderError> {
    let mut passed_over = Vec::new();
    let mut last = None;
    for name in AUTO {
        let rough = match *name {
            "model" => model_for(context, PlatformModel::fits).and_then(|m| match m.error() {
                e if e > AUTO_MODEL_ERROR => Err(ProviderError::Rough {
                    model: m.name.clone(),
                    error: e,
                }),
                _ => Ok(()),
            }),
            _ => Ok(()),
        };
        match rough.and_then(|()| prepare(name, context)) {
            Ok(Prepared {
                mut provider, sets, ..
            }) => {
                // without counters there is nothing to learn from
                if !sets.is_empty() && *name == "model" {
                    provider = Box::new(Checked::new(provider, context.pmus));
                }
                return Ok(Prepared {
                    provider,
                    sets,
                    passed_over,
                });
            }
            Err(e) => {
                passed_over.push((*name, e.to_string()));
                last = Some(e);
            }
        }
    }
    // `declared` needs nothing, so this is never reached while it is in the list
    Err(last.unwrap_or_else(|| {
        ProviderError::Unknown(UnknownProvider {
            name: "auto".to_owned(),
        })
    }))
}

/// The first model that `fits` this machine: of the context's folder, then of the shipped ones.
fn model_for(
    context: &Context<'_>,
    fits: fn(&PlatformModel, &Pmus) -> Result<(), String>,
) -> Result<PlatformModel, ProviderError> {
    let mut why = Vec::new();
    let mut is_it = |model: Result<&PlatformModel, String>, name: &str| {
        let verdict = model.and_then(|m| fits(m, context.pmus).map_err(|e| format!("{name}: {e}")));
        verdict.map_err(|reason| why.push(reason)).is_ok()
    };
    let mut files = Vec::new();
    if let Some(dir) = &context.models {
        // a folder that is not there has no models in it
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        files.extend(entries.map(|e| e.path()));
        files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        files.sort();
    }
    for path in &files {
        let model = PlatformModel::load(path).map_err(|e| e.to_string());
        let fits = is_it(
            model.as_ref().map_err(Clone::clone),
            &path.display().to_string(),
        );
        if let (true, Ok(m)) = (fits, model) {
            return Ok(m.trusting(context.pmus, context.trust));
        }
    }
    for (name, model) in shipped_models() {
        let fits = is_it(model.as_ref().map_err(Clone::clone), name);
        if let (true, Ok(m)) = (fits, model) {
            return Ok(m.clone().trusting(context.pmus, context.trust));
        }
    }
    if why.is_empty() {
        why.push("there are none".to_owned());
    }
    Err(ProviderError::NoModel { why })
}

/// Knows nothing, honestly.
struct NoMetrics;

impl Provider for NoMetrics {
    fn name(&self) -> &str {
        "none"
    }

    fn observe(&mut self, _snapshot: &crate::Snapshot) {}

    fn estimate(
        &self,
        _thread: crate::ThreadKey,
        _metric: crate::MetricId,
    ) -> Option<crate::Estimate> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(pmus: &Pmus) -> Context<'_> {
        Context {
            pmus,
            counters: Ok(()),
            energy_per_core_type: false,
            thread_director: Err("none in a test".to_owned()),
            models: None,
            trust: None,
        }
    }

    fn generic(counters: usize) -> Pmus {
        Pmus::generic(&[vec![0, 1], vec![2, 3]], counters)
    }

    #[test]
    fn every_entry_answers_to_its_name() {
        let machines = ["model", "thread-director"];
        for p in PROVIDERS.iter().filter(|p| !machines.contains(&p.name)) {
            assert_eq!(by_name(p.name).unwrap().name(), p.name);
        }
        let e = by_name("model").err().unwrap().to_string();
        assert!(e.contains("models/README.md"), "{e}");
        let pmus = generic(4);
        let mut context = context(&pmus);
        let e = prepare("thread-director", &context).err().unwrap();
        assert_eq!(e.to_string(), "provider `thread-director`: none in a test");
        context.thread_director = Ok(());
        let there = prepare("thread-director", &context).unwrap();
        assert_eq!(there.provider.name(), "thread-director");
        assert!(there.sets.is_empty());
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let e = by_name("pmc").err().unwrap().to_string();
        assert!(
            e.contains("`pmc`") && e.contains("`declared`") && e.contains(".toml"),
            "{e}"
        );
    }

    #[test]
    fn what_a_provider_wants_counted_is_checked_first() {
        let pmus = generic(2);
        let p = prepare("ipc-sampling", &context(&pmus)).unwrap();
        assert_eq!(p.sets.widest(), 2);
        let pmus = generic(1);
        let e = prepare("ipc-sampling", &context(&pmus)).unwrap_err();
        assert!(
            e.to_string().contains("2 events, at most 1") && e.to_string().contains("nmi_watchdog"),
            "{e}"
        );
        assert!(prepare("none", &context(&pmus)).unwrap().sets.is_empty());
    }

    #[test]
    fn without_counters_auto_declares_and_says_why() {
        let none = Pmus::none().with_core_types(&[vec![0], vec![1]]);
        let denied = Context {
            pmus: &none,
            counters: Err("not permitted: perf_event_paranoid is 3".to_owned()),
            energy_per_core_type: true,
            thread_director: Ok(()),
            models: None,
            trust: None,
        };
        let p = prepare("auto", &denied).unwrap();
        assert_eq!(p.provider.name(), "declared");
        let of = |n: &str| {
            let found = p.passed_over.iter().find(|(name, _)| *name == n);
            found.map(|(_, why)| why.clone()).unwrap()
        };
        assert!(of("measured").contains("perf_event_paranoid is 3"));
        assert!(of("model").contains("no model fits"));
        let e = prepare("ipc-sampling", &denied).unwrap_err();
        assert!(matches!(e, ProviderError::NoCounters { .. }), "{e}");
    }

    #[test]
    fn with_counters_and_no_model_auto_measures() {
        let pmus = generic(4);
        let p = prepare("auto", &context(&pmus)).unwrap();
        assert_eq!(p.provider.name(), "measured");
        let [(name, why)] = &p.passed_over[..] else {
            panic!("{:?}", p.passed_over)
        };
        assert!(*name == "model" && why.contains("no model fits"), "{why}");
    }
}
