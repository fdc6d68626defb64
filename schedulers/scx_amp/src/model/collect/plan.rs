//! What is counted in which run [MET §3].

use super::exercise::{self, Finding};
use super::CollectArgs;
use amp_host::affinity::on_cpus;
use amp_host::bad_input;
use amp_metrics::group::{Group, Whom};
use amp_metrics::{CoreTypeId, Event, EventSpec};
use amp_models::candidates::Candidates;
use amp_models::data::{CoreType, Header, FORMAT, VERSION};
use amp_pmc::CounterInventory;
use anyhow::{bail, Context, Result};

/// What a window is measured in: instructions of user mode. A program executes the same ones on
/// every core type; those of the kernel come on top with time (ticks), so more of them on the
/// slower one, and windows would drift apart.
const INSTRUCTIONS: &str = "instructions:u";

/// A core type, and where its programs run.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its id on this machine.
    pub id: CoreTypeId,
    /// Its PMU.
    pub pmu: String,
    /// The CPU that programs run on.
    pub cpu: u32,
    /// The candidates that can be counted.
    pub events: Vec<String>,
    /// How many of them at once, beside instructions and cycles.
    pub per_set: usize,
}

impl Place {
    /// Instructions, cycles, and `events`, in this order.
    ///
    /// # Errors
    /// When one cannot be resolved.
    pub fn resolve(&self, inventory: &CounterInventory, events: &[String]) -> Result<Vec<Event>> {
        let fixed = [INSTRUCTIONS, "cycles"].into_iter();
        fixed
            .chain(events.iter().map(String::as_str))
            .map(|e| Ok(inventory.pmus.resolve(self.id, &e.parse::<EventSpec>()?)?))
            .collect()
    }
}

/// Every core type, fastest first, with the candidates that its PMU counts; those that it does not
/// are named.
///
/// # Errors
/// Machines with one core type, or with one that has no PMU; PMUs without candidates
/// ([`amp_host::BadInput`]); a kernel that does not let us count.
pub fn places(
    inventory: &CounterInventory,
    candidates: &Candidates,
    args: &CollectArgs,
) -> Result<Vec<Place>> {
    inventory.need_pmu()?;
    if inventory.core_types.len() < 2 {
        return Err(bad_input(
            "all cores of this machine are of one type: name the fast ones with --big-cpus, or use --on board",
        ));
    }
    let file = args
        .events
        .as_ref()
        .map_or_else(|| "models/events".into(), |f| f.display().to_string());
    let mut out = Vec::new();
    for id in inventory.pmus.core_types() {
        let name = inventory.name(id).to_owned();
        let pmu = inventory.pmus.of_core_type(id);
        let pmu = pmu.with_context(|| {
            format!("core type `{name}` has no PMU: nothing can be counted there")
        })?;
        let cpus = inventory.cpus(id);
        // interrupts go to the first ones
        let cpu = *cpus
            .last()
            .with_context(|| format!("core type `{name}`: no CPU is online"))?;
        let usable = inventory.usable_counters(id, cpu)?;
        let per_set = usable.saturating_sub(2);
        if per_set == 0 {
            return Err(bad_input(format!(
                "core type `{name}`: {usable} events can be counted at once there, three are needed"
            )));
        }
        let named = candidates.of(&pmu.name).ok_or_else(|| {
            bad_input(format!(
                "{file}: no entry for PMU `{}` of core type `{name}`",
                pmu.name
            ))
        })?;
        let mut place = Place {
            name,
            id,
            pmu: pmu.name.clone(),
            cpu,
            events: Vec::new(),
            per_set,
        };
        // nothing can be made of windows without instructions and cycles
        trusted(inventory, &place, &[]).map_err(bad_input)?;
        for event in named {
            let event_trusted = trusted(inventory, &place, std::slice::from_ref(event));
            match event_trusted.and_then(|()| countable(inventory, &place, event)) {
                Ok(finding) => {
                    if finding == Finding::Zero {
                        log::warn!(
                            "{file}: {}: event `{event}` stayed at 0 in a loop of loads, stores, \
                             branches and arithmetic: it may count nothing here",
                            place.name
                        );
                    }
                    place.events.push(event.clone());
                }
                Err(e) => log::warn!("{file}: {}: {e:#}; left out", place.name),
            }
        }
        if place.events.is_empty() {
            let pmu = &place.pmu;
            return Err(bad_input(format!(
                "{file}: PMU `{pmu}` counts none of its events"
            )));
        }
        out.push(place);
    }
    Ok(out)
}

/// That the trust file calls none of instructions, cycles and `events` broken.
fn trusted(inventory: &CounterInventory, place: &Place, events: &[String]) -> Result<()> {
    let broken = |e| inventory.broken(place.id, e);
    match place
        .resolve(inventory, events)?
        .iter()
        .filter_map(broken)
        .next()
    {
        Some(b) => Err(b.into()),
        None => Ok(()),
    }
}

/// Whether an event counts at all, while a loop runs on the CPU that is counted.
///
/// # Errors
/// When it cannot be counted, or counts nothing of what the loop is sure to cause.
fn countable(inventory: &CounterInventory, place: &Place, event: &str) -> Result<Finding> {
    let events = place.resolve(inventory, &[event.to_owned()])?;
    let mut group = Group::open(&events, Whom::Cpu(place.cpu), false)?;
    group.start()?;
    on_cpus(&[place.cpu], exercise::run)?;
    let counts = group.read()?.counts;
    let at = |i: usize| counts.get(i).copied().unwrap_or(0);
    let instructions = at(0);
    let pmu = inventory.pmus.of_core_type(place.id);
    let sure = pmu.zip(events.get(2));
    let sure = sure.is_some_and(|(pmu, event)| exercise::is_caused(pmu, event));
    match exercise::judge(instructions, at(2), sure) {
        Finding::Nothing => bail!(
            "event `{event}` counts nothing here: 0 beside {instructions} instructions that are \
             sure to cause it"
        ),
        finding => Ok(finding),
    }
}

/// The header of the data for these sets.
pub fn header(
    args: &CollectArgs,
    machine: Option<&String>,
    places: &[Place],
    sets: impl Fn(usize) -> Vec<Vec<String>>,
) -> Header {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let today = || time::OffsetDateTime::now_utc().date().to_string();
    let core_types = places.iter().enumerate().map(|(i, p)| CoreType {
        name: p.name.clone(),
        pmu: Some(p.pmu.clone()),
        instructions: Some(INSTRUCTIONS.to_owned()),
        cycles: None,
        events_per_set: p.per_set,
        sets: sets(i),
    });
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        platform: args.machine.clone().unwrap_or_else(|| "host".into()),
        machine: machine.cloned(),
        kernel: kernel.map(|k| k.trim().to_owned()),
        date: Some(args.date.clone().unwrap_or_else(today)),
        core_types: core_types.collect(),
    }
}
