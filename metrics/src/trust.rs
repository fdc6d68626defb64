//! Which events of a platform count what they should: the outcome of holding them against kernels
//! of known counts \[VAL\], kept in a file.

use crate::event::Event;
use crate::pmu::Pmus;
use crate::CoreTypeId;
use amp_machine::{BadFile, Locator};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where the platform's file is looked for, below the root folder.
pub const PLACE: &str = "etc/scx_amp/trust.toml";

/// Version of the file that this program reads and writes.
pub const FORMAT: u32 = 1;

/// Largest relative error of an exact event: what starting and stopping costs, and lines that
/// interrupts put out of caches.
pub const EXACT: f64 = 0.002;
/// Largest relative error of a usable event.
pub const USABLE: f64 = 0.10;
/// Largest relative error of an event that still distinguishes more from less.
pub const QUALITATIVE: f64 = 0.5;

/// How far an event can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Off by [`EXACT`] at most.
    Exact,
    /// Off by [`USABLE`] at most: usable with the error that stands beside.
    Usable,
    /// Off by [`QUALITATIVE`] at most: it distinguishes more from less.
    Qualitative,
    /// The event does not count the quantity.
    Broken,
}

impl Verdict {
    /// The verdict on an event whose largest relative error, in size, is `error`.
    pub fn of(error: f64) -> Verdict {
        match error {
            e if e <= EXACT => Verdict::Exact,
            e if e <= USABLE => Verdict::Usable,
            e if e <= QUALITATIVE => Verdict::Qualitative,
            // not a number is no good either
            _ => Verdict::Broken,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Usable => "usable",
            Verdict::Qualitative => "qualitative",
            Verdict::Broken => "broken",
        }
    }
}

/// What was found of an event. Errors are relative to the expected count: 0.02 is 2 % too much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventTrust {
    /// The event as `-e` takes it.
    pub event: String,
    /// Quantity that the event should count.
    pub quantity: String,
    /// Verdict on the event.
    pub verdict: Verdict,
    /// Smallest error over all kernels and repetitions; negative when too little was counted.
    pub error_min: f64,
    /// Mean error.
    pub error_mean: f64,
    /// Largest error.
    pub error_max: f64,
    /// The kernel that decided the verdict.
    pub worst_kernel: String,
    /// How many counts were compared.
    pub comparisons: u32,
}

impl EventTrust {
    /// What the event may be off by; `None` where nobody can say ([`CountError::of`]).
    pub fn error(&self) -> Option<CountError> {
        CountError::of(self.verdict, self.error_min, self.error_max)
    }
}

/// How far an event's counts were from the truth, relative to it. It is the event's own: counting for
/// longer or more often does not make it less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountError {
    /// Smallest error, above −1; negative where too little is counted.
    pub min: f64,
    /// Largest error.
    pub max: f64,
}

impl CountError {
    /// Of an event with this verdict whose errors were between these two; `None` where nobody can say: it
    /// is broken, or its errors are no numbers.
    pub fn of(verdict: Verdict, a: f64, b: f64) -> Option<CountError> {
        let (min, max) = (a.min(b), a.max(b));
        let numbers = !a.is_nan() && !b.is_nan() && min > -1.0 && max.is_finite();
        (verdict != Verdict::Broken && numbers).then_some(CountError { min, max })
    }

    /// What a count is to be multiplied by for the least and the largest truth that it may stand for.
    pub fn factors(self) -> (f64, f64) {
        (1.0 / (1.0 + self.max), 1.0 / (1.0 + self.min))
    }

    /// Relative standard uncertainty of a count that is left as it is: errors up to the larger of the
    /// two are equally likely.
    pub fn u(self) -> f64 {
        let (low, high) = self.factors();
        (1.0 - low).abs().max((high - 1.0).abs()) / 3f64.sqrt()
    }
}

/// Verdicts on the events of a core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreTypeTrust {
    /// Name of the core type.
    pub name: String,
    /// Its PMU.
    pub pmu: String,
    /// The processor: main ID register on Arm, vendor, family and model on x86; empty when unknown.
    pub processor: String,
    /// The CPU on which the kernels ran.
    pub cpu: u32,
    /// Every event that was tried.
    #[serde(default, rename = "event")]
    pub events: Vec<EventTrust>,
}

/// A platform's trust file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// [`FORMAT`].
    pub format: u32,
    /// Release of the kernel it was measured under: drivers have faults of their own.
    pub kernel: String,
    /// Times each kernel was run.
    pub repetitions: u32,
    /// Fastest first.
    #[serde(default, rename = "core_type")]
    pub core_types: Vec<CoreTypeTrust>,
}

impl Trust {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is not right, naming the file, and line and key at fault.
    pub fn load(path: &Path) -> Result<Trust, BadFile> {
        let text = BadFile::read(path)?;
        let locator = Locator::new(path, &text);
        let trust: Trust = toml::from_str(&text).map_err(|e| locator.toml(&e))?;
        if trust.format != FORMAT {
            let message = format!(
                "format = {}: this program reads {FORMAT}; run `scx_amp pmc validate` again",
                trust.format
            );
            return Err(locator.key("format", message));
        }
        Ok(trust)
    }

    /// The file's text.
    ///
    /// # Errors
    /// When a value has no place in TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// The verdict on `event` of the PMU called `pmu`; `None` when it was not tried.
    pub fn verdict(&self, pmu: &str, event: &str) -> Option<Verdict> {
        let types = self.core_types.iter().filter(|t| t.pmu == pmu);
        let mut events = types.flat_map(|t| &t.events);
        events.find(|e| e.event == event).map(|e| e.verdict)
    }
}

/// A trust file that is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct TrustFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub trust: Trust,
}

impl TrustFile {
    /// The file that was `named`, else the platform's ([`PLACE`] below `root`), if there is one.
    ///
    /// # Errors
    /// When a file that was named is not there, or one that is there cannot be used.
    pub fn find(root: &Path, named: Option<&Path>) -> Result<Option<TrustFile>, BadFile> {
        let place = root.join(PLACE);
        let path = match named {
            Some(path) => path,
            None if place.exists() => &place,
            None => return Ok(None),
        };
        Ok(Some(TrustFile {
            path: path.to_owned(),
            trust: Trust::load(path)?,
        }))
    }

    /// What the file says of an event that counts on core type `t`, however it is written there and
    /// here, and whichever modes are counted; `None` when it was not tried. Of several entries for
    /// the same event the worst counts.
    pub fn of(&self, pmus: &Pmus, t: CoreTypeId, event: &Event) -> Option<&EventTrust> {
        let pmu = pmus.of_core_type(t)?;
        let same = |e: &&EventTrust| pmus.is(t, event, &e.event);
        let types = self.trust.core_types.iter().filter(|c| c.pmu == pmu.name);
        let events = types.flat_map(|c| &c.events);
        events.filter(same).max_by_key(|e| e.verdict)
    }

    /// An event that the file calls broken on core type `t`.
    pub fn broken(&self, pmus: &Pmus, t: CoreTypeId, event: &Event) -> Option<BrokenEvent> {
        let found = self.of(pmus, t, event)?;
        (found.verdict == Verdict::Broken).then(|| BrokenEvent {
            event: event.name.clone(),
            core_type: {
                let pmu = &event.pmu;
                let of = self.trust.core_types.iter().find(|c| c.pmu == *pmu);
                of.map_or_else(|| format!("{}", t.0), |c| c.name.clone())
            },
            pmu: event.pmu.clone(),
            quantity: found.quantity.clone(),
            low: found.error_min * 100.0,
            high: found.error_max * 100.0,
            kernel: found.worst_kernel.clone(),
            file: self.path.clone(),
        })
    }
}

/// An event that does not count what it should.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("event `{event}` is broken on core type {core_type} (PMU `{pmu}`): for {quantity} it was off by {low:+.0} % to {high:+.0} %, most with kernel `{kernel}` ({file}). Use another event, or test it again with `scx_amp pmc validate --out FILE`")]
pub struct BrokenEvent {
    /// The event.
    pub event: String,
    /// The core type, by the name in the file.
    pub core_type: String,
    /// Its PMU.
    pub pmu: String,
    /// Quantity that the event was compared with.
    pub quantity: String,
    /// Least error, percent.
    pub low: f64,
    /// Largest error, percent.
    pub high: f64,
    /// The kernel that decided.
    pub kernel: String,
    /// The trust file.
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust() -> Trust {
        Trust {
            format: FORMAT,
            kernel: "7.0".into(),
            repetitions: 5,
            core_types: vec![CoreTypeTrust {
                name: "big".into(),
                pmu: "armv8_cortex_a57".into(),
                processor: "0x411fd071".into(),
                cpu: 1,
                events: vec![EventTrust {
                    event: "l1d_cache_refill".into(),
                    quantity: "l1-refills".into(),
                    verdict: Verdict::Usable,
                    error_min: -0.02,
                    error_mean: 0.0,
                    error_max: 0.01,
                    worst_kernel: "copy L2".into(),
                    comparisons: 60,
                }],
            }],
        }
    }

    #[test]
    fn an_events_error_says_what_a_count_stands_for() {
        let mut e = trust().core_types[0].events[0].clone();
        let error = e.error().unwrap();
        // 102 of 100 at most are there: 98 were counted, or 101
        let (low, high) = error.factors();
        assert!((101.0 * low - 100.0).abs() < 1e-9 && (98.0 * high - 100.0).abs() < 1e-9);
        assert!((error.u() - (1.0 / 0.98 - 1.0) / 3f64.sqrt()).abs() < 1e-12);
        (e.error_min, e.error_max) = (0.0, 0.0);
        assert_eq!(e.error().unwrap().u(), 0.0);
        (e.error_min, e.error_max) = (-1.0, 0.0);
        assert_eq!(e.error(), None, "nothing at all was counted");
        (e.error_min, e.error_max) = (0.0, f64::NAN);
        assert_eq!(e.error(), None);
        (e.error_min, e.error_max) = (0.0, f64::INFINITY);
        assert_eq!(e.error(), None);
        (e.verdict, e.error_max) = (Verdict::Broken, 0.1);
        assert_eq!(e.error(), None);
    }

    #[test]
    fn verdicts_by_error() {
        for (error, verdict) in [
            (0.0, Verdict::Exact),
            (0.05, Verdict::Usable),
            (0.3, Verdict::Qualitative),
            (1.0, Verdict::Broken),
            (f64::NAN, Verdict::Broken),
        ] {
            assert_eq!(Verdict::of(error), verdict, "{error}");
        }
    }

    #[test]
    fn a_file_comes_back_as_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.toml");
        std::fs::write(&path, trust().to_toml().unwrap()).unwrap();
        let back = Trust::load(&path).unwrap();
        assert_eq!(back, trust());
        assert_eq!(
            back.verdict("armv8_cortex_a57", "l1d_cache_refill"),
            Some(Verdict::Usable)
        );
        assert_eq!(back.verdict("armv8_cortex_a53", "l1d_cache_refill"), None);
    }

    #[test]
    fn the_file_named_goes_before_the_platforms() {
        let root = tempfile::tempdir().unwrap();
        let find = |named: Option<&Path>| TrustFile::find(root.path(), named);
        assert_eq!(find(None).unwrap(), None);
        let e = find(Some(Path::new("/no/such.toml"))).unwrap_err();
        assert!(e.to_string().contains("/no/such.toml"), "{e}");
        let place = root.path().join(PLACE);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, trust().to_toml().unwrap()).unwrap();
        assert_eq!(find(None).unwrap().unwrap().path, place);
        std::fs::write(&place, "x = 1").unwrap();
        assert!(
            find(None).is_err(),
            "a file that is there is not passed over"
        );
    }

    #[test]
    fn a_broken_event_is_known_by_its_code() {
        let pmu = crate::Pmu {
            name: "armv8_cortex_a57".into(),
            type_: 9,
            cpus: vec![0],
            core: true,
            formats: [("event".to_owned(), "config:0-15".parse().unwrap())].into(),
            events: [("l1d_cache_refill".to_owned(), "event=0x3".to_owned())].into(),
            ..crate::Pmu::default()
        };
        let pmus = Pmus::from_list(vec![pmu], &[vec![0]]);
        let mut trust = trust();
        let file = |trust: &Trust| TrustFile {
            path: "t.toml".into(),
            trust: trust.clone(),
        };
        let resolve = |text: &str| pmus.resolve(CoreTypeId(0), &text.parse().unwrap()).unwrap();
        let raw = resolve("armv8_cortex_a57/event=0x3/u").named("misses");
        let of = |t: &Trust, e: &Event| file(t).broken(&pmus, CoreTypeId(0), e);
        assert_eq!(of(&trust, &raw), None, "usable");
        trust.core_types[0].events[0].verdict = Verdict::Broken;
        let text = of(&trust, &raw).unwrap().to_string();
        for part in ["`misses`", "big", "broken", "copy L2", "t.toml"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(of(&trust, &resolve("armv8_cortex_a57/event=0x4/")), None);
    }

    #[test]
    fn odd_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        let e = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Trust::load(&path).unwrap_err().to_string()
        };
        let good = trust().to_toml().unwrap();
        assert!(e(&good.replace("format = 1", "format = 9")).contains("validate"));
        let odd = e(&good.replace("usable", "fine"));
        assert!(odd.contains("t.toml") && odd.contains("verdict"), "{odd}");
        assert!(e("x = 1").contains("x"));
        assert!(Trust::load(&dir.path().join("none")).is_err());
    }
}
