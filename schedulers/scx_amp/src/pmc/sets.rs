//! What `-e` asks for, on the PMUs of this machine.

use super::here::Here;
use crate::usage::bad_input;
use amp_metrics::event::{split_list, SpecKind};
use amp_metrics::group::software;
use amp_metrics::{CoreTypeId, Event, EventSpec};
use anyhow::Result;

/// The events of a set that one PMU counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The PMU.
    pub pmu: String,
    /// The core type it counts on; `None` for PMUs that count no cores.
    pub core_type: Option<CoreTypeId>,
    /// CPUs on which it counts; empty where that makes no difference (software events).
    pub cpus: Vec<u32>,
    /// In the order of the set.
    pub events: Vec<Event>,
}

/// Events that are to be counted at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// As it was written.
    pub text: String,
    /// By core type, then the others.
    pub units: Vec<Unit>,
}

impl Set {
    /// Reads a set. An event without a PMU is counted on every core type whose PMU has it.
    ///
    /// # Errors
    /// [`crate::usage::BadInput`] naming the event at fault, with the closest names; [`super::here::NoPmu`] when the
    /// machine has no PMU for it.
    pub fn parse(here: &Here, text: &str) -> Result<Set> {
        let mut set = Set {
            text: text.trim().to_owned(),
            units: Vec::new(),
        };
        for part in split_list(text) {
            let spec: EventSpec = part.parse().map_err(bad_input)?;
            if let Some(event) = software(&spec) {
                set.put(event, None, Vec::new());
                continue;
            }
            if let SpecKind::Terms { pmu, .. } = &spec.kind {
                if let Some(other) = here.pmus.by_name(pmu).filter(|p| !p.core) {
                    let event = here.pmus.resolve_named(&spec).map_err(bad_input)?;
                    set.put(event, None, other.cpus.clone());
                    continue;
                }
            }
            here.need_pmu()?;
            let mut refused = None;
            let mut found = false;
            for (t, _) in here.core_pmus() {
                match here.pmus.resolve(t, &spec) {
                    Ok(event) => {
                        found = true;
                        set.put(event, Some(t), here.cpus(t));
                    }
                    // that of the fastest core type is told: the others' says the same
                    Err(e) => drop(refused.get_or_insert(e)),
                }
            }
            if let (false, Some(e)) = (found, refused) {
                return Err(bad_input(e));
            }
        }
        if set.units.is_empty() {
            return Err(bad_input(format!(
                "-e `{text}`: no event in it; write `-e instructions,cycles`"
            )));
        }
        set.units
            .sort_by_key(|u| u.core_type.map_or(usize::MAX, CoreTypeId::index));
        Ok(set)
    }

    fn put(&mut self, event: Event, core_type: Option<CoreTypeId>, cpus: Vec<u32>) {
        let same = |u: &&mut Unit| u.core_type == core_type && u.pmu == event.pmu;
        match self.units.iter_mut().find(same) {
            Some(u) => u.events.push(event),
            None => self.units.push(Unit {
                pmu: event.pmu.clone(),
                core_type,
                cpus,
                events: vec![event],
            }),
        }
    }

    /// Names of all events.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.units
            .iter()
            .flat_map(|u| u.events.iter().map(|e| &e.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::pmu::Tables;
    use amp_metrics::{Pmu, Pmus};

    fn here(core: bool) -> Here {
        let pmu = |name: &str, type_, cpus: &[u32], event: &str| Pmu {
            name: name.into(),
            type_,
            cpus: cpus.into(),
            core,
            formats: [("event".to_owned(), "config:0-15".parse().unwrap())].into(),
            events: [(event.to_owned(), "event=0x1".to_owned())].into(),
            ..Pmu::default()
        };
        let list = vec![
            pmu("a57", 9, &[0, 1], "both"),
            pmu("a53", 10, &[2], "both"),
            Pmu {
                core: false,
                ..pmu("dmc", 20, &[0], "reads")
            },
        ];
        Here {
            pmus: Pmus::from_list(list, &[vec![0, 1], vec![2]]),
            core_types: vec!["big".into(), "little".into()],
            tables: Tables::default(),
        }
    }

    #[test]
    fn events_go_where_they_can_be_counted() {
        let set = Set::parse(&here(true), "both,a53/event=0x12/,dmc/reads/,task-clock").unwrap();
        let got: Vec<_> = set
            .units
            .iter()
            .map(|u| (u.pmu.as_str(), u.events.len(), u.cpus.len()))
            .collect();
        assert_eq!(
            got,
            [
                ("a57", 1, 2),
                ("a53", 2, 1),
                ("dmc", 1, 1),
                ("software", 1, 0)
            ]
        );
        assert_eq!(set.names().count(), 5);
    }

    #[test]
    fn refusals_name_the_event() {
        let e = |h: &Here, t: &str| Set::parse(h, t).unwrap_err();
        let unknown = e(&here(true), "cycles,bot");
        assert!(unknown.is::<crate::usage::BadInput>());
        assert!(unknown.to_string().contains("`both`"), "{unknown}");
        assert!(e(&here(true), "a72/event=1/").to_string().contains("a57"));
        assert!(e(&here(true), ",").to_string().contains("no event"));
        let none = e(&here(false), "cycles");
        assert!(none.is::<super::super::here::NoPmu>(), "{none}");
        assert!(Set::parse(&here(false), "task-clock:u").is_ok());
    }
}
