//! Which events are the same, whatever they are called: `instructions`, `inst_retired`,
//! `armv8_cortex_a57/event=0x8/`.
//!
//! By code: a generic event stands for the code that the PMU's driver counts for it, as far as that
//! can be told. Drivers of x86 say so in sysfs, under the generic name itself; that of Arm's PMUv3
//! lists the architecture's names, and which of them it takes is fixed (`armv8_pmuv3_perf_map`; of
//! two names for branches the first that the PMU has). Caches' generic events differ from core to
//! core there, and are the same as nothing but themselves.

use super::{Pmu, Pmus};
use crate::event::{Event, EventAttr, EventSpec, Generic, CACHE, HARDWARE};
use crate::ids::CoreTypeId;

/// Generic events, and the architecture's events that Arm's driver counts for them, the first one
/// that there is.
const ARM: &[(&str, &[&str])] = &[
    ("cycles", &["cpu_cycles"]),
    ("instructions", &["inst_retired"]),
    ("cache-references", &["l1d_cache"]),
    ("cache-misses", &["l1d_cache_refill"]),
    ("branches", &["pc_write_retired", "br_retired"]),
    ("branch-misses", &["br_mis_pred"]),
    ("bus-cycles", &["bus_cycles"]),
    ("stalled-cycles-frontend", &["stall_frontend"]),
    ("stalled-cycles-backend", &["stall_backend"]),
];

/// Type and code words.
type Code = (u32, u64, u64, u64);

impl Pmus {
    /// Whether two events count the same thing on the same PMU. In which modes is left out of
    /// account.
    pub fn same(&self, a: &Event, b: &Event) -> bool {
        a.pmu == b.pmu && self.code(a) == self.code(b)
    }

    /// Whether `event` of core type `t` counts what its PMU counts under `name`, in whichever
    /// modes.
    pub fn is(&self, t: CoreTypeId, event: &Event, name: &str) -> bool {
        self.named(t, name).is_some_and(|e| self.same(event, &e))
    }

    /// Every name under which the PMU of core type `t` counts the same as `event`, in the same
    /// modes, as `-e` takes them; its own may be among them.
    pub fn aliases(&self, t: CoreTypeId, event: &Event) -> Vec<String> {
        let Some(pmu) = self.of_core_type(t) else {
            return Vec::new();
        };
        let modes = match (event.attr.exclude_user, event.attr.exclude_kernel) {
            (false, false) => "",
            (false, true) => "u",
            (true, false) => "k",
            // nothing counts then, and no name says so
            (true, true) => return Vec::new(),
        };
        // a vendor's tables have thousands
        let code = self.code(event);
        let same = |name: &String| {
            let named = self.named(t, name);
            named.is_some_and(|e| e.pmu == event.pmu && self.code(&e) == code)
        };
        let own = pmu.names().map(|(n, _)| n.to_owned());
        let names = Generic::names().chain(own);
        let mut out = Vec::new();
        for name in names.filter(same) {
            let colon = if modes.is_empty() { "" } else { ":" };
            out.push(format!("{name}{colon}{modes}"));
            if pmu.terms_of(&name).is_some() {
                out.push(format!("{}/{name}/{modes}", pmu.name));
            }
        }
        out.sort();
        out.dedup();
        out
    }

    fn named(&self, t: CoreTypeId, name: &str) -> Option<Event> {
        self.resolve(t, &name.parse::<EventSpec>().ok()?).ok()
    }

    /// What the kernel is told, a generic event replaced by what it stands for.
    fn code(&self, event: &Event) -> Code {
        let a = &event.attr;
        if !matches!(a.type_, HARDWARE | CACHE) {
            return (a.type_, a.config, a.config1, a.config2);
        }
        // the upper half says which PMU
        let g = Generic {
            type_: a.type_,
            config: a.config & u64::from(u32::MAX),
        };
        let pmu = self.by_name(&event.pmu);
        match pmu.and_then(|p| self.behind(p, g)) {
            Some(a) => (a.type_, a.config, a.config1, a.config2),
            None => (g.type_, g.config, 0, 0),
        }
    }

    /// The code that `pmu` counts for a generic event; `None` where that is not known.
    fn behind(&self, pmu: &Pmu, g: Generic) -> Option<EventAttr> {
        let is = |name: &str| Generic::by_name(name) == Some(g);
        let own = Generic::names().find(|n| is(n) && pmu.events.contains_key(n));
        let arm = || {
            let (_, names) = ARM.iter().find(|(n, _)| is(n))?;
            let first = names.iter().find(|n| pmu.events.contains_key(**n));
            first.map(|n| (*n).to_owned())
        };
        let name = own.or_else(arm)?;
        let mut attr = EventAttr {
            type_: pmu.type_,
            ..EventAttr::default()
        };
        let spec: EventSpec = name.parse().ok()?;
        self.apply_name(&mut attr, pmu, &spec, &name).ok()?;
        Some(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pmu(name: &str, type_: u32, cpu: u32, events: &[(&str, &str)]) -> Pmu {
        let own = |(n, t): &(&str, &str)| ((*n).to_owned(), (*t).to_owned());
        Pmu {
            name: name.into(),
            type_,
            cpus: vec![cpu],
            core: true,
            formats: [
                ("event".to_owned(), "config:0-7".parse().unwrap()),
                ("umask".to_owned(), "config:8-15".parse().unwrap()),
            ]
            .into(),
            events: events.iter().map(own).collect(),
            ..Pmu::default()
        }
    }

    /// An Arm core with both kinds of branches, one without, and an x86 core.
    fn machine() -> Pmus {
        let arm = [
            ("inst_retired", "event=0x08"),
            ("cpu_cycles", "event=0x11"),
            ("br_retired", "event=0x21"),
            ("l1d_cache", "event=0x04"),
        ];
        let both = [&arm[..], &[("pc_write_retired", "event=0x0c")]].concat();
        let x86 = [
            ("instructions", "event=0xc0"),
            ("cpu-cycles", "event=0x3c"),
            ("cache-misses", "event=0x2e,umask=0x41"),
        ];
        Pmus::from_list(
            vec![
                pmu("armv8_cortex_a57", 9, 0, &arm),
                pmu("armv8_cortex_a53", 10, 1, &both),
                pmu("cpu", 4, 2, &x86),
            ],
            &[vec![0], vec![1], vec![2]],
        )
    }

    fn is(t: u8, written: &str, name: &str) -> bool {
        let (pmus, t) = (machine(), CoreTypeId(t));
        let event = pmus.resolve(t, &written.parse().unwrap()).unwrap();
        pmus.is(t, &event, name)
    }

    #[test]
    fn an_event_is_known_by_its_code() {
        for written in [
            "instructions:u",
            "inst_retired",
            "r8",
            "armv8_cortex_a57/event=0x8/k",
            "armv8_cortex_a57/inst_retired/u",
        ] {
            assert!(is(0, written, "instructions"), "{written}");
            assert!(is(0, written, "inst_retired"), "{written}");
            assert!(!is(0, written, "cycles"), "{written}");
        }
        assert!(is(2, "cpu/event=0xc0/", "instructions") && is(2, "r3c", "cycles"));
        assert!(is(2, "r412e", "cache-misses") && !is(2, "r2e", "cache-misses"));
        // the same number is another event elsewhere
        assert!(!is(2, "r8", "instructions") && !is(0, "rc0", "instructions"));
    }

    #[test]
    fn which_branches_hangs_on_the_pmu() {
        assert!(is(0, "branches", "br_retired"));
        assert!(!is(1, "branches", "br_retired") && is(1, "branches", "pc_write_retired"));
    }

    #[test]
    fn what_a_driver_counts_is_not_guessed() {
        assert!(!is(0, "L1-dcache-loads", "l1d_cache"));
        assert!(is(0, "L1-dcache-loads:u", "L1-dcache-loads"));
        assert!(is(0, "cache-references", "l1d_cache"));
        // generic events that nothing is known of are themselves
        assert!(is(2, "branches", "branch-instructions") && !is(2, "branches", "branch-misses"));
        let pmus = Pmus::generic(&[vec![0], vec![1]], 4);
        let of = |t, name: &str| pmus.resolve(CoreTypeId(t), &name.parse().unwrap()).unwrap();
        assert!(pmus.same(&of(0, "cycles"), &of(0, "cpu-cycles:u")));
        assert!(
            !pmus.same(&of(0, "cycles"), &of(1, "cycles")),
            "another PMU"
        );
    }

    #[test]
    fn other_names_are_of_the_same_modes() {
        let pmus = machine();
        let aliases = |written: &str| {
            let event = pmus.resolve(CoreTypeId(0), &written.parse().unwrap());
            pmus.aliases(CoreTypeId(0), &event.unwrap())
        };
        assert_eq!(
            aliases("cycles:u"),
            [
                "armv8_cortex_a57/cpu_cycles/u",
                "cpu-cycles:u",
                "cpu_cycles:u",
                "cycles:u"
            ]
        );
        assert_eq!(
            aliases("r21"),
            [
                "armv8_cortex_a57/br_retired/",
                "br_retired",
                "branch-instructions",
                "branches"
            ]
        );
        assert!(aliases("r33").is_empty());
    }
}
