//! The collection on this machine: every program, on every core type, with every event set
//! [MET §3].

use super::journal::JournalFile;
use super::plan::{header, places, Place};
use super::run::{run, Failed, Ran, Rules};
use super::{journal_path, CollectArgs, Outcome};
use crate::labs::inputs::WorkDir;
use amp_host::affinity::stay_on;
use amp_host::bad_input;
use amp_host::progress::Progress;
use amp_host::realtime::become_real_time;
use amp_host::topology;
use amp_host::user;
use amp_metrics::virtual_counters::EnergyMeter;
use amp_models::candidates::Candidates;
use amp_models::data::Dataset;
use amp_models::journal::{Finished, Plan, SampleSize, VERSION};
use amp_models::metrology::{compatible, partition, runs, sample_size, Rule, Verdict, RESOLUTION};
use amp_models::programs::Program;
use amp_pmc::CounterInventory;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Most runs that make a measure.
const MOST: usize = 5;
/// Fewest runs that make one: a single one has no uncertainty.
const LEAST: usize = 2;

/// The user wants to stop.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted: finished runs are kept beside the data, the same command goes on from there")]
pub struct Interrupted;

struct Collection<'a> {
    args: &'a CollectArgs,
    inventory: CounterInventory,
    places: Vec<Place>,
    rules: Rules<'a>,
    meter: EnergyMeter,
    kept: JournalFile,
    progress: Progress,
    failed: Vec<(String, String)>,
    /// Programs whose runs were not compatible to the end, by core type.
    odd: Vec<String>,
}

/// Collects on this machine.
///
/// # Errors
/// Bad input, a machine that cannot count, [`Interrupted`].
pub fn collect(
    args: &CollectArgs,
    programs: &[Program],
    events: &Candidates,
    cancel: &AtomicBool,
) -> Result<Outcome> {
    let kept = JournalFile::open(journal_path(&args.out), args.progress_lines)?;
    let found = topology::detect(args.big_cpus.as_ref())?;
    let inventory = CounterInventory::of(&found.topology)?.with_trust(args.trust.find()?);
    let places = places(&inventory, events, args)?;
    let user = user::behind_sudo()?;
    let workdir = WorkDir::new(args.workdir.as_deref(), user)?;
    workdir.prepare(programs.iter().map(|p| p.command.as_slice()))?;
    let meter = EnergyMeter::of(inventory.energy_sources());
    match meter.name() {
        None => log::warn!("nobody counts energy here: there will be no model of the efficiency factor"),
        Some(source) if meter.is_estimate() => log::warn!(
            "nobody measures energy here, {source} works it out from clocks and busy time: a model of the efficiency factor will not know that programs take different powers"
        ),
        Some(_) => {}
    }
    if let Err(e) = become_real_time() {
        log::warn!("{e:#}: readings will be less regular");
    }
    keep_off(&inventory, &places)?;
    let mut all = Collection {
        args,
        inventory,
        places,
        rules: Rules {
            workdir: workdir.path().into(),
            user,
            window: args.window,
            sample: Duration::from_millis(args.sample),
            limit: Duration::from_secs(args.timeout),
            cancel,
        },
        meter,
        kept,
        progress: if args.progress_lines {
            Progress::lines()
        } else {
            Progress::bar()
        },
        failed: Vec::new(),
        odd: Vec::new(),
    };
    all.plan()?;
    all.programs(programs)?;
    all.finish(programs)
}

/// This thread stays on a slow CPU that no program runs on, where there is one.
fn keep_off(inventory: &CounterInventory, places: &[Place]) -> Result<()> {
    let free: Vec<u32> = places
        .iter()
        .rev()
        .map(|p| {
            inventory
                .cpus(p.id)
                .into_iter()
                .filter(|c| *c != p.cpu)
                .collect::<Vec<_>>()
        })
        .find(|cpus| !cpus.is_empty())
        .unwrap_or_default();
    match free.is_empty() {
        true => Ok(()),
        false => stay_on(&free),
    }
}

impl Collection<'_> {
    fn one(&mut self, program: &Program, place: usize, events: &[String]) -> Result<Ran, Failed> {
        let place = &self.places[place];
        let events = place.resolve(&self.inventory, events)?;
        run(
            program,
            place.cpu,
            place.id,
            &events,
            &mut self.meter,
            &self.rules,
        )
    }

    /// Decides on event sets, or sees that the journal's are the same.
    fn plan(&mut self) -> Result<()> {
        let new = self.planned();
        let Some(old) = &self.kept.journal.plan else {
            return self.kept.plan(new);
        };
        // a collection may go on over midnight
        let same = Plan {
            header: amp_models::data::Header {
                date: old.header.date.clone(),
                ..new.header.clone()
            },
            ..new
        } == *old;
        if !same {
            return Err(bad_input(format!(
                "{} was begun with other settings, events, kernel or machine: delete it to start over",
                self.kept.path().display()
            )));
        }
        Ok(())
    }

    fn planned(&self) -> Plan {
        let sets = |i: usize| {
            let place = self.places.get(i);
            place.map_or_else(Vec::new, |p: &Place| partition(&p.events, p.per_set))
        };
        Plan {
            journal: VERSION,
            window: self.args.window.get(),
            sample_ms: self.args.sample,
            sigma_ref: self.args.sigma_ref,
            on: self.args.model_version.clone(),
            header: header(
                self.args,
                self.inventory.pmus.machine().first(),
                &self.places,
                sets,
            ),
        }
    }

    /// R of a program on a core type [MET §2]: with how many of its runs, in order, retired
    /// instructions are known to σ_ref. Makes as many runs as that takes; these count.
    fn sample_size(
        &mut self,
        program: &Program,
        place: usize,
        plan: &Plan,
    ) -> Result<usize, Failed> {
        let (name, command) = (&program.name, &program.command);
        if let Some(r) = self.kept.journal.r(name, command, place) {
            return Ok(r);
        }
        let sigma = self.args.sigma_ref;
        let mut r = None;
        for n in 0..MOST {
            self.make(program, place, plan, n, false)?;
            let runs = self.kept.journal.of(name, command, place);
            let instructions: Vec<f64> = runs.iter().map(|r| r.instructions as f64).collect();
            r = sample_size(&instructions, sigma);
            if r.is_some() {
                break;
            }
        }
        let r = r.unwrap_or_else(|| {
            let on = &self.places[place].name;
            self.progress.warn(&format!(
                "{name} on {on}: {MOST} runs do not give its instructions to {sigma}; as many make a measure"
            ));
            MOST
        });
        self.kept.size(SampleSize {
            program: name.clone(),
            command: command.clone(),
            core_type: place,
            r,
        })?;
        Ok(r)
    }

    fn programs(&mut self, programs: &[Program]) -> Result<()> {
        let plan = self.kept.journal.plan.clone().context("no plan")?;
        // as many as there are at least
        let types = plan.header.core_types.iter();
        let least: usize = types.map(|t| runs(t.sets.len(), LEAST)).sum();
        self.progress.expect((least * programs.len()) as u64);
        for program in programs {
            for place in 0..self.places.len() {
                match self.on_core_type(program, place, &plan) {
                    Ok(()) => {}
                    Err(Failed::Program(why)) => {
                        let on = &self.places[place].name;
                        self.failed
                            .push((program.name.clone(), format!("on {on}: {why}")));
                        break;
                    }
                    Err(Failed::Machine(e)) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// All runs of a program on a core type, repeated until they are compatible, or often enough.
    fn on_core_type(&mut self, program: &Program, place: usize, plan: &Plan) -> Result<(), Failed> {
        let sets = plan.header.core_types[place].sets.len();
        let begun = self.kept.journal.of(&program.name, &program.command, place);
        if place == 0 && begun.is_empty() {
            // The first execution finds neither its files in memory nor what earlier ones have left
            // for it (compiled modules of Python): it is not like the others.
            self.progress.note(&format!("{}, to warm up", program.name));
            self.one(program, place, &plan.header.core_types[place].sets[0])?;
        }
        let r = self.sample_size(program, place, plan)?;
        let all = runs(sets, r);
        let more = all.saturating_sub(runs(sets, LEAST));
        self.progress.expect(more as u64);
        for n in 0..all {
            self.make(program, place, plan, n, false)?;
        }
        let rule = Rule {
            runs: r,
            resolution: RESOLUTION,
            ..Rule::default()
        };
        for attempt in 0..=self.args.repeats {
            let runs = self.kept.journal.of(&program.name, &program.command, place);
            let instructions: Vec<f64> = runs.iter().map(|r| r.instructions as f64).collect();
            let Verdict::Repeat(which) = compatible(&instructions, &rule) else {
                return Ok(());
            };
            if attempt == self.args.repeats {
                let on = &self.places[place].name;
                self.odd.push(format!("{} on {on}", program.name));
                return Ok(());
            }
            for n in which {
                self.make(program, place, plan, n, true)?;
            }
        }
        Ok(())
    }

    fn make(
        &mut self,
        program: &Program,
        place: usize,
        plan: &Plan,
        n: usize,
        again: bool,
    ) -> Result<(), Failed> {
        let there = self.kept.journal.of(&program.name, &program.command, place);
        if !again && there.iter().any(|r| r.run as usize == n) {
            return Ok(());
        }
        let t = &plan.header.core_types[place];
        self.progress
            .begin(&format!("{} on {}, run {}", program.name, t.name, n + 1));
        let set = n % t.sets.len().max(1);
        let ran = self.one(program, place, &t.sets[set])?;
        self.kept.add(Finished {
            program: program.name.clone(),
            command: program.command.clone(),
            core_type: place,
            run: n as u32,
            set,
            instructions: ran.instructions,
            windows: ran.windows,
        })?;
        if !again {
            self.progress.end();
        }
        Ok(())
    }

    /// Writes the data and says what was done.
    fn finish(self, programs: &[Program]) -> Result<Outcome> {
        drop(self.progress);
        let good = || {
            programs
                .iter()
                .filter(|p| self.failed.iter().all(|(f, _)| *f != p.name))
        };
        let named = good().map(|p| (p.name.as_str(), p.command.as_slice()));
        let (data, missing) = self
            .kept
            .journal
            .dataset(named)
            .map_err(anyhow::Error::msg)?;
        let mut failed = self.failed.clone();
        failed.extend(
            missing
                .into_iter()
                .map(|p| (p, "not all of its runs are there".to_owned())),
        );
        write_data(&self.args.out, &data)?;
        let saving = self.kept.journal.saving();
        let mut said = String::new();
        let windows: usize = data
            .programs
            .values()
            .flatten()
            .flatten()
            .map(|r| r.windows.len())
            .sum();
        let _ = writeln!(
            said,
            "{} programs, {windows} windows of {} instructions; energy: {}",
            data.programs.len(),
            self.args.window,
            self.meter.name().unwrap_or("none")
        );
        if let Some(plan) = &self.kept.journal.plan {
            for (i, t) in plan.header.core_types.iter().enumerate() {
                let (m, sets) = (t.events().count(), t.sets.len());
                let sizes = self.kept.journal.sizes.values();
                let of = sizes.filter(|s| s.core_type == i).map(|s| s.r);
                let (least, most) = of.fold((usize::MAX, 0), |(a, b), r| (a.min(r), b.max(r)));
                let _ = writeln!(
                    said,
                    "{}: {m} events, {} at once: {sets} sets; R = {} for {} of instructions, L = {} runs per program",
                    t.name,
                    t.events_per_set,
                    range(least.min(most), most),
                    plan.sigma_ref,
                    range(runs(sets, least.min(most)), runs(sets, most)),
                );
            }
        }
        let _ = writeln!(
            said,
            "{} runs were made, {} of them again; {} set by set, {} event by event: {} saved against one set at a time",
            saving.made,
            self.kept.journal.repeated,
            saving.set_by_set,
            saving.event_by_event,
            saving.saved()
        );
        if !self.odd.is_empty() {
            let _ = writeln!(
                said,
                "Not under the same conditions, by their instructions, after {} repetitions: {}",
                self.args.repeats,
                self.odd.join(", ")
            );
        }
        amp_host::print(&said)?;
        if !self.args.progress_lines {
            amp_host::print(&format!("Wrote {}.\n", self.args.out.display()))?;
            if failed.is_empty() {
                self.kept.done();
            }
        }
        Ok(Outcome { failed })
    }
}

/// From the least to the most, or the only one.
fn range(least: usize, most: usize) -> String {
    match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    }
}

/// Writes the data, all or nothing.
pub fn write_data(path: &Path, data: &Dataset) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let mut text = Vec::new();
    data.write(&mut text).with_context(what)?;
    std::fs::write(&aside, text).with_context(what)?;
    std::fs::rename(&aside, path).with_context(what)
}
