//! What `-e` asks for, on the PMUs of this machine.

mod fit;

use super::inventory::CounterInventory;
use super::trust::Trusted;
use amp_host::bad_input;
use amp_metrics::event::{split_list, SpecKind};
use amp_metrics::group::{software, without_slots, Group, GroupError, Whom, SOFTWARE};
use amp_metrics::{CoreTypeId, Event, EventSet, EventSpec, Pmu};
use anyhow::Result;

/// One of several PMUs with a name in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instance {
    /// Its number for the kernel.
    type_: u32,
    /// CPUs on which it is read.
    cpus: Vec<u32>,
}

/// The events of a set that one PMU counts, or several ones that are counted as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The PMU.
    pub pmu: String,
    /// The core type it counts on; `None` for PMUs that count no cores.
    pub core_type: Option<CoreTypeId>,
    /// CPUs on which it counts; empty where that makes no difference (software events).
    pub cpus: Vec<u32>,
    /// In the order of the set.
    pub events: Vec<Event>,
    /// Other names under which this PMU counts each of them.
    aliases: Vec<Vec<String>>,
    /// What the machine's trust file says of each of them.
    trusted: Vec<Option<Trusted>>,
    /// The PMUs that are called `pmu` together, where there are several; their counts are added up.
    instances: Vec<Instance>,
    /// Which of them counts instructions, in whichever modes.
    pub instructions: Option<usize>,
    /// Which of them counts cycles.
    pub cycles: Option<usize>,
}

impl Unit {
    /// The event that is called `name`: as it was written, else by what it counts.
    pub fn find(&self, name: &str) -> Option<usize> {
        let written = self.events.iter().position(|e| e.name == name);
        let same = || {
            self.aliases
                .iter()
                .position(|a| a.iter().any(|a| a == name))
        };
        written.or_else(same)
    }

    /// What the machine's trust file says of event number `i`; `None` where nobody tried it.
    pub fn trusted(&self, i: usize) -> Option<Trusted> {
        self.trusted.get(i).copied().flatten()
    }

    /// Whether it counts what no CPU does, on CPUs that only stand for it.
    pub fn is_beside_cores(&self) -> bool {
        self.core_type.is_none() && !self.cpus.is_empty()
    }

    /// What is to be opened on `cpu`: the events, once for each PMU that is read there.
    pub fn opened_on(&self, cpu: Option<u32>) -> Vec<Vec<Event>> {
        if self.instances.is_empty() {
            return vec![self.events.clone()];
        }
        let here = |i: &&Instance| cpu.is_none_or(|c| i.cpus.contains(&c));
        let of = |i: &Instance| {
            let mut events = self.events.clone();
            events.iter_mut().for_each(|e| e.attr.type_ = i.type_);
            events
        };
        self.instances.iter().filter(here).map(of).collect()
    }

    /// Nothing yet on these CPUs.
    #[cfg(test)]
    pub fn of_cpus(pmu: &str, cpus: &[u32]) -> Unit {
        Unit::new(pmu, None, cpus.to_vec())
    }

    fn new(pmu: &str, core_type: Option<CoreTypeId>, cpus: Vec<u32>) -> Unit {
        Unit {
            pmu: pmu.to_owned(),
            core_type,
            cpus,
            events: Vec::new(),
            aliases: Vec::new(),
            trusted: Vec::new(),
            instances: Vec::new(),
            instructions: None,
            cycles: None,
        }
    }

    /// Takes event number `i` out; the event, and its other names.
    fn remove(&mut self, i: usize) -> (Event, Vec<String>) {
        for of in [&mut self.instructions, &mut self.cycles] {
            *of = match *of {
                Some(at) if at == i => None,
                Some(at) if at > i => Some(at - 1),
                before => before,
            };
        }
        self.trusted.remove(i);
        (self.events.remove(i), self.aliases.remove(i))
    }

    fn add(&mut self, inventory: &CounterInventory, event: Event) {
        let at = self.events.len();
        let is = |name: &str| {
            let t = self.core_type?;
            inventory.pmus.is(t, &event, name).then_some(at)
        };
        self.instructions = self.instructions.or_else(|| is("instructions"));
        self.cycles = self.cycles.or_else(|| is("cycles"));
        let aliases = self.core_type.map(|t| inventory.pmus.aliases(t, &event));
        self.aliases.push(aliases.unwrap_or_default());
        let of_type = self.core_type.and_then(|t| inventory.trusted(t, &event));
        self.trusted.push(of_type.map(Trusted::of));
        self.events.push(event);
    }
}

/// Whether it happens in the kernel only, so that user mode has none (`context-switches`,
/// `cpu-migrations`, `cgroup-switches`).
fn kernels_own(e: &Event) -> bool {
    e.attr.type_ == SOFTWARE && [3, 4, 11].contains(&e.attr.config)
}

/// What is said when [`Set::permitted`] has changed something.
pub const USER_MODE_ONLY: &str = "user mode only (`:u`): kernel.perf_event_paranoid permits no more; as root or with CAP_PERFMON the kernel's part is counted, too";

/// An event that nothing counts here: perf prints `<not supported>` for its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSupported {
    /// The event as it was written.
    pub event: String,
    /// The PMU whose driver does not count it; `None` where no PMU counts what cores do.
    pub pmu: Option<String>,
    /// The core type of that PMU.
    pub core_type: Option<CoreTypeId>,
    aliases: Vec<String>,
}

impl NotSupported {
    /// Whether the event is called `name`.
    pub fn is(&self, name: &str) -> bool {
        self.event == name || self.aliases.iter().any(|a| a == name)
    }
}

/// Events that are to be counted at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// The formula as it was written.
    pub text: String,
    /// Units by core type, then the others.
    pub units: Vec<Unit>,
    /// Events that nothing counts here.
    pub not_supported: Vec<NotSupported>,
    /// Whether it is counted for something else than its counts: these are not told, and no formula
    /// is of them.
    pub hidden: bool,
}

impl Set {
    /// Reads a set. An event without a PMU is counted on every core type whose PMU has it. Where no
    /// PMU counts what cores do, hardware events are not supported.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the event at fault, with the closest names.
    pub fn parse(inventory: &CounterInventory, text: &str) -> Result<Set> {
        let mut set = Set {
            text: text.trim().to_owned(),
            units: Vec::new(),
            not_supported: Vec::new(),
            hidden: false,
        };
        for part in split_list(text) {
            let spec: EventSpec = part.parse().map_err(bad_input)?;
            if let Some(event) = software(&spec) {
                set.put(inventory, event, None, Vec::new());
                continue;
            }
            if let SpecKind::Terms { pmu, .. } = &spec.kind {
                if let Some(other) = inventory.pmus.by_name(pmu).filter(|p| !p.core) {
                    let event = inventory.pmus.resolve_named(&spec).map_err(bad_input)?;
                    set.put(inventory, event, None, other.cpus.clone());
                    continue;
                }
                let many: Vec<&Pmu> = match inventory.pmus.by_name(pmu) {
                    Some(_) => Vec::new(),
                    None => inventory.pmus.instances(pmu).collect(),
                };
                if !many.is_empty() {
                    set.put_all(inventory, &spec, pmu, &many)?;
                    continue;
                }
            }
            if !inventory.has_pmu() {
                inventory.known(&spec).map_err(bad_input)?;
                set.not_supported.push(NotSupported {
                    event: spec.to_string(),
                    pmu: None,
                    core_type: None,
                    aliases: Vec::new(),
                });
                continue;
            }
            let mut refused = None;
            let mut found = false;
            for (t, cpus) in inventory.each_core_pmu() {
                match inventory.pmus.resolve(t, &spec) {
                    Ok(event) => {
                        found = true;
                        set.put(inventory, event, Some(t), cpus);
                    }
                    // that of the fastest core type is reported: the others' says the same
                    Err(e) => drop(refused.get_or_insert(e)),
                }
            }
            if let (false, Some(e)) = (found, refused) {
                return Err(bad_input(e));
            }
        }
        for u in &set.units {
            // AMD has another event of that code, and no `slots`
            let has_slots = |t| {
                let spec = "slots".parse::<EventSpec>();
                spec.is_ok_and(|s| inventory.pmus.resolve(t, &s).is_ok())
            };
            let alone = without_slots(&u.events);
            if let Some(event) = alone.filter(|_| u.core_type.is_some_and(has_slots)) {
                return Err(bad_input(format!(
                    "event `{0}`: PMU `{1}` counts it beside `slots` only: write `-e slots,{0}`",
                    event.name, u.pmu
                )));
            }
        }
        if set.units.is_empty() && set.not_supported.is_empty() {
            return Err(bad_input(format!(
                "-e `{text}`: no event in it; write `-e instructions,cycles`"
            )));
        }
        set.by_core_type();
        Ok(set)
    }

    /// Puts the units in their order.
    fn by_core_type(&mut self) {
        let index = |u: &Unit| u.core_type.map_or(usize::MAX, CoreTypeId::index);
        self.units.sort_by_key(index);
    }

    /// The hidden set of these events, resolved, of each core type.
    pub fn hidden<'a>(
        inventory: &CounterInventory,
        text: String,
        events: impl IntoIterator<Item = (CoreTypeId, &'a EventSet)>,
    ) -> Set {
        let mut set = Set {
            text,
            units: Vec::new(),
            not_supported: Vec::new(),
            hidden: true,
        };
        let pmus: Vec<(CoreTypeId, Vec<u32>)> = inventory.each_core_pmu().collect();
        for (t, of) in events {
            // one that shares a faster type's PMU is counted under that
            let own = pmus.iter().find(|(o, _)| *o == t);
            for (event, (_, cpus)) in of.events.iter().flat_map(|e| Some(e).zip(own)) {
                set.put(inventory, event.clone(), Some(t), cpus.clone());
            }
        }
        set
    }

    /// Leaves the kernel's part out of events that were to have both, where only that is permitted,
    /// and says so in their names (`cycles:u`), as perf does. What only the kernel does stays, to
    /// be refused; so does everything where not even user mode may be counted. Whether anything was
    /// changed.
    pub fn permitted(&mut self) -> bool {
        self.within(&|event| Group::open(std::slice::from_ref(event), Whom::Caller, false).is_ok())
    }

    fn within(&mut self, may: &dyn Fn(&Event) -> bool) -> bool {
        let clock = |modifiers: &str| {
            let spec = format!("task-clock{modifiers}").parse().ok();
            spec.and_then(|s| software(&s))
        };
        let (Some(all), Some(user)) = (clock(""), clock(":u")) else {
            return false;
        };
        if may(&all) || !may(&user) {
            return false;
        }
        let mut changed = false;
        for u in &mut self.units {
            for (e, aliases) in u.events.iter_mut().zip(&mut u.aliases) {
                if e.attr.exclude_kernel || e.attr.exclude_user || kernels_own(e) {
                    continue;
                }
                let terms = e.name.ends_with('/') || e.name.contains(':');
                let name = format!("{}{}", e.name, if terms { "u" } else { ":u" });
                // whoever writes a formula uses the name that he gave
                aliases.push(std::mem::replace(&mut e.name, name));
                e.attr.exclude_kernel = true;
                changed = true;
            }
        }
        changed
    }

    /// Takes out what the kernel has a name for and does not count here, as a trial shows.
    pub fn supported(&mut self) {
        self.kept(&|unit, event| {
            // a PMU that counts no cores is asked on a CPU of its own
            let whom = match (unit.core_type, unit.cpus.first()) {
                (None, Some(cpu)) => Whom::Cpu(*cpu),
                _ => Whom::Caller,
            };
            match Group::open(std::slice::from_ref(event), whom, false) {
                Err(GroupError::Unsupported { .. }) => false,
                Err(GroupError::Refused { .. }) => !event.attr.is_generic(),
                _ => true,
            }
        });
    }

    fn kept(&mut self, counts: &dyn Fn(&Unit, &Event) -> bool) {
        for unit in &mut self.units {
            let mut i = 0;
            while let Some(event) = unit.events.get(i) {
                if counts(unit, event) {
                    i += 1;
                    continue;
                }
                let (event, aliases) = unit.remove(i);
                self.not_supported.push(NotSupported {
                    event: event.name,
                    pmu: Some(event.pmu),
                    core_type: unit.core_type,
                    aliases,
                });
            }
        }
        self.units.retain(|u| !u.events.is_empty());
    }

    fn put(
        &mut self,
        inventory: &CounterInventory,
        event: Event,
        core_type: Option<CoreTypeId>,
        cpus: Vec<u32>,
    ) {
        let same = |u: &&mut Unit| u.core_type == core_type && u.pmu == event.pmu;
        if let Some(u) = self.units.iter_mut().find(same) {
            return u.add(inventory, event);
        }
        let mut unit = Unit::new(&event.pmu, core_type, cpus);
        unit.add(inventory, event);
        self.units.push(unit);
    }

    /// Adds an event of all of these PMUs, which are called `name` together.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] where one has no such event, or they count it by different codes.
    fn put_all(
        &mut self,
        inventory: &CounterInventory,
        spec: &EventSpec,
        name: &str,
        many: &[&Pmu],
    ) -> Result<()> {
        let mut first: Option<Event> = None;
        let mut instances = Vec::new();
        let mut cpus: Vec<u32> = Vec::new();
        for p in many {
            let resolved = inventory.pmus.resolve_named(&spec.of_pmu(&p.name));
            let event = resolved.map_err(bad_input)?.named(&spec.to_string());
            instances.push(Instance {
                type_: event.attr.type_,
                cpus: p.cpus.clone(),
            });
            cpus.extend(&p.cpus);
            match &mut first {
                None => {
                    first = Some(Event {
                        pmu: name.to_owned(),
                        ..event
                    });
                }
                Some(f) => {
                    let mut same = event.attr;
                    same.type_ = f.attr.type_;
                    if same != f.attr {
                        return Err(bad_input(format!(
                            "event `{spec}`: `{}` counts it by another code than `{}`: name one of them",
                            p.name, many[0].name
                        )));
                    }
                }
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        if let Some(event) = first {
            self.put(inventory, event, None, cpus);
            let unit = self.units.iter_mut().find(|u| u.pmu == name);
            if let Some(u) = unit {
                u.instances = instances;
            }
        }
        Ok(())
    }

    /// Names of all events, as they were written.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        let counted = self.units.iter().flat_map(|u| &u.events);
        let others = self.not_supported.iter().map(|n| &n.event);
        counted.map(|e| &e.name).chain(others)
    }

    /// Other names of the events.
    pub fn aliases(&self) -> impl Iterator<Item = &String> {
        let counted = self.units.iter().flat_map(|u| &u.aliases);
        let others = self.not_supported.iter().map(|n| &n.aliases);
        counted.chain(others).flatten()
    }
}

#[cfg(test)]
mod tests;
