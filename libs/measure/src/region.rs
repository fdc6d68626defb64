//! A region of code and what is counted in it.

use crate::direct::Direct;
use crate::turns::Turns;
use crate::Error;
use amp_metrics::event::{split_list, EventError, EventSpec, SpecKind};
use amp_metrics::group::{software, Group, Whom, SOFTWARE};
use amp_metrics::pmu::{Tables, TABLES_VARIABLE};
use amp_metrics::virtual_counters::{sensor_labels, Roots, VirtualCounters};
use amp_metrics::{CoreTypeId, Event, Nanos, Pmus, Snapshot, Subject, VirtualCounter};
use std::path::Path;
use std::time::Instant;

/// How often an empty region is measured: the least counts.
const EMPTY: usize = 10;

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Events separated by commas, as perf writes them: `instructions:u,cycles:u`.
    pub events: String,
    /// Threads and processes that the calling thread starts from now on, too.
    pub children: bool,
    /// The machine's energy, too, whoever runs on it.
    pub energy: bool,
    /// Counters are read without asking the kernel, where it permits that: [`Region::is_direct`] says whether. The counters are then
    /// in use from [`Region::open`] on, not only between start and stop.
    pub direct: bool,
    /// More events than a PMU counts at once: sets of them take turns, a set for each time that the region is entered, in an order left
    /// to chance, and counts are extrapolated over all times. For regions that are entered often. Rules out [`Options::direct`].
    pub turns: bool,
}

/// What one PMU has counted of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventCount {
    /// The event as it was written.
    pub event: String,
    /// The PMU; `software` for the kernel's own events.
    pub pmu: String,
    /// The count; extrapolated where `coverage` is below 1.
    pub count: u64,
    /// Seconds in the region for which this PMU counted: those spent on its cores.
    pub seconds: f64,
    /// Standard uncertainty of the count: 0 of what was counted all the time, `None` where there is no basis for one (a
    /// set that had one turn, or none).
    pub u: Option<f64>,
    /// Part of the times that the region was entered in which the event was counted, 0 to 1; below 1 only with
    /// [`Options::turns`].
    pub coverage: f64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Every event on every PMU that has it.
    pub events: Vec<EventCount>,
    /// The machine's energy in joules, where it was asked for.
    pub energy_j: Option<f64>,
}

impl Counts {
    /// The count of an event on all PMUs together; `None` when it is not counted.
    pub fn total(&self, event: &str) -> Option<u64> {
        let of = self.events.iter().filter(|c| c.event == event);
        of.fold(None, |sum: Option<u64>, c| {
            Some(sum.unwrap_or(0).saturating_add(c.count))
        })
    }
}

struct Energy {
    sources: VirtualCounters,
    epoch: Instant,
    joules: f64,
}

impl Energy {
    /// The first source of the machine whose files are below `roots`. Sensors are told by the names
    /// of core types and of their cores.
    fn open(roots: &Roots, pmus: &Pmus) -> Result<Energy, Error> {
        let names = core_type_names(&roots.sysfs, pmus);
        let labels = sensor_labels(names.iter().map(String::as_str), pmus);
        let sources = VirtualCounters::detect_energy(roots, pmus, &labels);
        if sources.names().next().is_none() {
            return Err(Error::Energy(sources.missing().join("; ")));
        }
        Ok(Energy {
            sources,
            epoch: Instant::now(),
            joules: 0.0,
        })
    }

    /// Joules since the last call.
    fn since(&mut self) -> Result<f64, Error> {
        let mut s = Snapshot {
            now: Nanos(self.epoch.elapsed().as_nanos() as u64 + 1),
            ..Snapshot::default()
        };
        self.sources.sample(&mut s);
        let silent = self.sources.silent().next();
        let lost = || {
            let none = self.sources.names().next().is_none();
            self.sources.missing().last().filter(|_| none).cloned()
        };
        if let Some(failure) = silent.or_else(lost) {
            return Err(Error::Energy(failure));
        }
        let readings = s.virtual_counters.iter();
        let energy = readings.filter(|r| r.counter == VirtualCounter::Energy);
        // CPUs are parts of core types
        let whole = energy.filter(|r| !matches!(r.of, Subject::Cpu(_)));
        Ok(whole.map(|r| r.value).sum())
    }
}

/// Names of the core types of `pmus`, in their order, as the rest of the project has them: of two
/// the faster one is `big` and the other `little`. Which one is faster the kernel says
/// (`cpu_capacity` below `sysfs`). Core types of another number have none.
fn core_type_names(sysfs: &Path, pmus: &Pmus) -> Vec<String> {
    let capacity = |t: CoreTypeId| -> u32 {
        let cpu = pmus.cpus_of(t).first().copied().unwrap_or(0);
        let file = format!("devices/system/cpu/cpu{cpu}/cpu_capacity");
        let text = std::fs::read_to_string(sysfs.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let capacities: Vec<u32> = pmus.core_types().map(capacity).collect();
    match capacities.as_slice() {
        [first, second] if first >= second => vec!["big".into(), "little".into()],
        [_, _] => vec!["little".into(), "big".into()],
        // an empty text would be part of every label
        others => (0..others.len())
            .map(|t| format!("core type {t}"))
            .collect(),
    }
}

/// A region of code: counts what its thread does between [`Region::start`] and [`Region::stop`].
///
/// It counts the thread that opened it, whichever thread starts, stops and reads it.
pub struct Region {
    groups: Vec<Group>,
    /// Counts at the last reset, group by group.
    base: Vec<(f64, Vec<u64>)>,
    energy: Option<Energy>,
    direct: Option<Direct>,
    /// In place of `groups`, where sets take turns.
    turns: Option<Turns>,
    running: bool,
}

impl Region {
    /// Counts `events`, separated by commas as perf writes them (`instructions:u,cycles:u`), of the
    /// calling thread.
    ///
    /// # Errors
    /// [`Error`]; its text names the event at fault and says what to do.
    pub fn open(events: &str) -> Result<Region, Error> {
        Region::with(&Options {
            events: events.to_owned(),
            ..Options::default()
        })
    }

    /// As [`Region::open`], with more to choose.
    ///
    /// # Errors
    /// As [`Region::open`]; [`Error::Energy`] when no sensor measures it.
    pub fn with(options: &Options) -> Result<Region, Error> {
        let pmus = Pmus::discover(Path::new("/sys"))?;
        let mut cores: Vec<Vec<u32>> = Vec::new();
        for p in pmus.iter().filter(|p| p.core) {
            cores.push(p.cpus.clone());
        }
        let pmus = with_names(
            pmus.with_core_types(&cores),
            &options.events,
            Path::new("/"),
        )?;
        let whom = match options.children {
            // SAFETY: gettid takes nothing, touches no memory of ours and cannot fail.
            true => Whom::Task(unsafe { libc::gettid() }),
            false => Whom::Caller,
        };
        let mut sets = sets(&pmus, &options.events)?;
        // what children count stands in no page, and software counts in no counter
        let direct = options.direct
            && !options.children
            && !options.turns
            && sets.iter().flatten().all(|e| e.attr.type_ != SOFTWARE);
        if direct {
            sets.iter_mut()
                .flatten()
                .for_each(|e| ask_for_access(&pmus, e));
        }
        let mut groups = Vec::new();
        let mut turns = None;
        match options.turns {
            true => {
                let cpu = |pmu: &str| pmus.by_name(pmu).and_then(|p| p.cpus.first().copied());
                turns = Some(Turns::open(sets, whom, cpu)?);
            }
            false => {
                for events in sets {
                    groups.push(Group::open(&events, whom, false)?);
                }
            }
        }
        let energy = match options.energy {
            true => Some(Energy::open(&Roots::default(), &pmus)?),
            false => None,
        };
        let direct = match direct {
            true => Direct::open(&mut groups)?,
            false => None,
        };
        let mut region = Region {
            base: Vec::new(),
            groups,
            energy,
            direct,
            turns,
            running: false,
        };
        region.reset()?;
        Ok(region)
    }

    /// Whether a start and a stop read the counters without asking the kernel, as [`Options::direct`] wants. They ask it
    /// nevertheless when another thread than the one that is counted calls them, or when the kernel has ended that since.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Begins to count, from where it was stopped. Started already: nothing happens.
    ///
    /// # Errors
    /// [`Error::Group`] when the kernel refuses, [`Error::Energy`] when the sensor has failed.
    pub fn start(&mut self) -> Result<(), Error> {
        if self.running {
            return Ok(());
        }
        if let Some(e) = &mut self.energy {
            // not ours
            e.since()?;
        }
        match (&mut self.direct, &mut self.turns) {
            (Some(d), _) => d.start(&mut self.groups)?,
            (None, Some(t)) => t.start()?,
            (None, None) => {
                for g in &mut self.groups {
                    g.start()?;
                }
            }
        }
        self.running = true;
        Ok(())
    }

    /// Stops counting. Stopped already: nothing happens.
    ///
    /// # Errors
    /// As [`Region::start`].
    pub fn stop(&mut self) -> Result<(), Error> {
        if !self.running {
            return Ok(());
        }
        match (&mut self.direct, &mut self.turns) {
            (Some(d), _) => d.add(&mut self.groups)?,
            (None, Some(t)) => t.stop()?,
            (None, None) => {
                // the last to be started first: the first counts what is between
                for g in self.groups.iter_mut().rev() {
                    g.stop()?;
                }
            }
        }
        self.running = false;
        self.add_energy()
    }

    fn add_energy(&mut self) -> Result<(), Error> {
        if let Some(e) = &mut self.energy {
            e.joules += e.since()?;
        }
        Ok(())
    }

    /// What was counted since the region was opened or [`Region::reset`]; of one that runs, up to
    /// now.
    ///
    /// # Errors
    /// [`Error::Group`], with [`amp_metrics::group::GroupError::Taken`] when another user has taken
    /// the counters.
    pub fn read(&mut self) -> Result<Counts, Error> {
        if self.running {
            self.add_energy()?;
        }
        let mut out = Counts {
            events: Vec::new(),
            energy_j: self.energy.as_ref().map(|e| e.joules),
        };
        if let Some(t) = &mut self.turns {
            out.events = t.read(self.running)?;
        }
        if let Some(d) = self.direct.as_mut().filter(|_| self.running) {
            d.add(&mut self.groups)?;
        }
        for (i, g) in self.groups.iter_mut().enumerate() {
            // of a direct one, too: whether it has counted all the time only the kernel knows
            let now = g.read()?;
            let (seconds, counts) = match (&self.direct, self.base.get(i)) {
                (Some(d), _) => d.total(i),
                (None, Some((base_s, base))) => {
                    let counts = now.counts.iter().zip(base);
                    (
                        (now.running.as_secs_f64() - base_s).max(0.0),
                        counts
                            .map(|(now, base)| now.saturating_sub(*base))
                            .collect(),
                    )
                }
                // after a reset that failed
                (None, None) => continue,
            };
            for (event, count) in g.events().iter().zip(counts) {
                out.events.push(EventCount {
                    event: event.name.clone(),
                    pmu: event.pmu.clone(),
                    count,
                    seconds,
                    u: Some(0.0),
                    coverage: 1.0,
                });
            }
        }
        Ok(out)
    }

    /// Counts from 0 again.
    ///
    /// # Errors
    /// As [`Region::read`].
    pub fn reset(&mut self) -> Result<(), Error> {
        match &mut self.direct {
            Some(d) => d.reset(&mut self.groups)?,
            None => {
                self.base.clear();
                for g in &mut self.groups {
                    let now = g.read()?;
                    self.base.push((now.running.as_secs_f64(), now.counts));
                }
            }
        }
        if let Some(t) = &mut self.turns {
            t.reset()?;
        }
        if let Some(e) = &mut self.energy {
            e.since()?;
            e.joules = 0.0;
        }
        Ok(())
    }

    /// What starting and stopping alone count, at least, in this order of [`Counts::events`]: to be
    /// taken off counts of short regions. It needs some milliseconds, and resets the region.
    ///
    /// # Errors
    /// As [`Region::start`] and [`Region::read`].
    pub fn overhead(&mut self) -> Result<Counts, Error> {
        self.stop()?;
        let mut least: Option<Counts> = None;
        let sets = self.turns.as_ref().map_or(1, Turns::len);
        for _ in 0..EMPTY * sets {
            self.reset()?;
            self.start()?;
            self.stop()?;
            let counts = self.read()?;
            let Some(least) = &mut least else {
                least = Some(counts);
                continue;
            };
            for (l, c) in least.events.iter_mut().zip(counts.events) {
                // of a PMU whose cores the thread was not on there is nothing to tell
                let was_on = |c: &EventCount| c.seconds > 0.0 && c.coverage > 0.0;
                if was_on(&c) && (!was_on(l) || c.count < l.count) {
                    *l = c;
                }
            }
        }
        self.reset()?;
        Ok(least.unwrap_or_default())
    }
}

/// Asks for leave to read the counter of `event` in user mode, where the PMU wants to be asked (arm64's `rdpmc`).
fn ask_for_access(pmus: &Pmus, event: &mut Event) {
    let pmu = pmus.by_name(&event.pmu);
    if let Some(format) = pmu.and_then(|p| p.formats.get("rdpmc")) {
        // a flag of one bit takes a 1
        let _ = format.put(&mut event.attr, 1);
    }
}

/// The PMUs with the vendors' names of events, if one of the events needs them: reading them takes
/// milliseconds. `root` is where the machine's `/sys` and `/proc` are.
fn with_names(pmus: Pmus, events: &str, root: &Path) -> Result<Pmus, Error> {
    let unknown = |spec: &EventSpec| {
        let refused = pmus.core_types().map(|t| pmus.resolve(t, spec).err());
        let unknown = |e: &EventError| matches!(e, EventError::UnknownEvent { .. });
        refused.flatten().any(|e| unknown(&e))
    };
    let specs = split_list(events)
        .into_iter()
        .filter_map(|p| p.parse().ok());
    let mut hardware = specs.filter(|s: &EventSpec| software(s).is_none());
    if !hardware.any(|s| unknown(&s)) {
        return Ok(pmus);
    }
    let folder = std::env::var_os(TABLES_VARIABLE);
    let tables = Tables::named(folder.as_ref().map(Path::new));
    pmus.with_vendor_events(root, tables)
        .map_err(|e| Error::Input(format!("{TABLES_VARIABLE}: {e}")))
}

/// The events of `text`, by the PMU that counts them.
fn sets(pmus: &Pmus, text: &str) -> Result<Vec<Vec<Event>>, Error> {
    let mut sets: Vec<Vec<Event>> = Vec::new();
    let mut put = |event: Event| {
        match sets.iter_mut().find(|s| s[0].pmu == event.pmu) {
            Some(s) => s.push(event),
            None => sets.push(vec![event]),
        };
    };
    let types: Vec<CoreTypeId> = pmus.core_types().collect();
    for part in split_list(text) {
        let spec: EventSpec = part.parse()?;
        if let Some(event) = software(&spec) {
            put(event);
            continue;
        }
        if let SpecKind::Terms { pmu, .. } = &spec.kind {
            if pmus.by_name(pmu).is_some_and(|p| !p.core) {
                return Err(Error::Input(format!(
                    "event `{part}`: PMU `{pmu}` cannot count a single thread, and a region belongs to one"
                )));
            }
        }
        if types.is_empty() {
            return Err(Error::NoPmu);
        }
        let (found, refused): (Vec<_>, Vec<_>) = types
            .iter()
            .map(|t| pmus.resolve(*t, &spec))
            .partition(Result::is_ok);
        if let (true, Some(Err(e))) = (found.is_empty(), refused.into_iter().next()) {
            return Err(e.into());
        }
        found.into_iter().flatten().for_each(&mut put);
    }
    match sets.is_empty() {
        true => Err(Error::Input(format!(
            "`{text}`: no event in it; write `instructions,cycles`"
        ))),
        false => Ok(sets),
    }
}

/// Whether the error is that of a machine on which this user may count nothing at all.
#[cfg(test)]
fn not_allowed(e: &Error) -> bool {
    use amp_metrics::group::GroupError;
    matches!(e, Error::Group(GroupError::Denied { .. }))
}

#[cfg(test)]
mod tests;
