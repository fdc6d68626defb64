use super::*;
use amp_metrics::virtual_counters::VirtualCounters;
use amp_metrics::{Pmu, Pmus};

pub fn inventory(core: bool) -> CounterInventory {
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
    let pmus = Pmus::from_list(list, &[vec![0, 1], vec![2]]);
    let none = VirtualCounters::of(Vec::new());
    CounterInventory::from_parts(pmus, &["big", "little"], none)
}

#[test]
fn events_go_where_they_can_be_counted() {
    let set = Set::parse(
        &inventory(true),
        "both,a53/event=0x12/,dmc/reads/,task-clock",
    )
    .unwrap();
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
fn events_are_found_by_what_they_count() {
    let mut inventory = inventory(true);
    let mut pmus: Vec<Pmu> = inventory.pmus.iter().cloned().collect();
    let own = [("inst_retired", "event=0x8"), ("cpu_cycles", "event=0x11")];
    let own = own.map(|(n, t)| (n.to_owned(), t.to_owned()));
    pmus[0].events.extend(own);
    inventory.pmus = Pmus::from_list(pmus, &[vec![0, 1], vec![2]]);
    let set = Set::parse(&inventory, "both,a57/cpu_cycles/,a57/event=0x8/").unwrap();
    let u = &set.units[0];
    assert_eq!((u.instructions, u.cycles), (Some(2), Some(1)));
    assert_eq!(
        (u.find("instructions"), u.find("inst_retired")),
        (Some(2), Some(2))
    );
    assert_eq!(
        (u.find("cycles"), u.find("a57/cpu_cycles/")),
        (Some(1), Some(1))
    );
    assert_eq!(
        (u.find("cycles:u"), u.find("branches")),
        (None, None),
        "other modes"
    );
    // what is written goes first
    let set = Set::parse(&inventory, "a57/event=0x8/,inst_retired").unwrap();
    assert_eq!(set.units[0].find("inst_retired"), Some(1));
    // the other core has no such name, and instructions of its own
    let set = Set::parse(&inventory, "instructions,both").unwrap();
    assert_eq!(set.units[1].find("inst_retired"), None);
    assert_eq!(set.units[1].instructions, Some(0));
}

/// In a thread's counts the types of one PMU cannot be told apart: counted twice, each would have the sum.
#[test]
fn core_types_of_one_pmu_are_counted_once() {
    let pmu = |name: &str, type_, cpus: &[u32]| Pmu {
        name: name.into(),
        type_,
        cpus: cpus.to_vec(),
        core: true,
        formats: [("event".to_owned(), "config:0-7".parse().unwrap())].into(),
        ..Pmu::default()
    };
    let pmus = vec![pmu("cpu_core", 4, &[0, 1]), pmu("cpu_atom", 10, &[2, 3, 4])];
    let pmus = Pmus::from_list(pmus, &[vec![0, 1], vec![2, 3], vec![4, 5]]);
    let none = VirtualCounters::of(Vec::new());
    let here = CounterInventory::from_parts(pmus, &["big", "small", "low"], none);
    let set = Set::parse(&here, "cycles,cpu_atom/event=3/").unwrap();
    let units: Vec<(&str, &[u32], usize)> = set
        .units
        .iter()
        .map(|u| (u.pmu.as_str(), &u.cpus[..], u.events.len()))
        .collect();
    assert_eq!(
        units,
        [
            ("cpu_core", &[0, 1][..], 1),
            ("cpu_atom", &[2, 3, 4][..], 2)
        ]
    );
    assert_eq!(
        here.counted_names(),
        [Some("big".to_owned()), Some("small+low".to_owned()), None]
    );
}

#[test]
fn refusals_name_the_event() {
    let e = |h: &CounterInventory, t: &str| Set::parse(h, t).unwrap_err();
    let unknown = e(&inventory(true), "cycles,bot");
    assert!(unknown.is::<amp_host::BadInput>());
    assert!(unknown.to_string().contains("`both`"), "{unknown}");
    assert!(e(&inventory(true), "a72/event=1/")
        .to_string()
        .contains("a57"));
    assert!(e(&inventory(true), ",").to_string().contains("no event"));
    let clock = e(&inventory(true), "task-clok");
    assert!(clock.to_string().contains("`task-clock`"), "{clock}");
}

#[test]
fn without_a_pmu_hardware_events_are_not_supported_and_unknown_ones_refused() {
    let here = inventory(false);
    let text = "cycles:u,task-clock,LLC-loads,r12,dmc/reads/,software/cs/";
    let set = Set::parse(&here, text).unwrap();
    let not: Vec<_> = set
        .not_supported
        .iter()
        .map(|n| (n.event.as_str(), n.pmu.as_deref()))
        .collect();
    assert_eq!(
        not,
        [("cycles:u", None), ("LLC-loads", None), ("r12", None)]
    );
    let units = set.units.iter().map(|u| (u.pmu.as_str(), u.events.len()));
    assert_eq!(units.collect::<Vec<_>>(), [("software", 2), ("dmc", 1)]);
    assert_eq!(set.names().count(), 6);
    for (text, close) in [
        ("cycels", "`cycles`"),
        ("task-clok", "`task-clock`"),
        ("l1d_cache", "no PMU of cores"),
        ("a57/cycels/", "`cycles`"),
        ("nosuch/event=1/", "`dmc`"),
        ("dmc/read/", "`reads`"),
        ("dmc/evnt=1/", "event"),
    ] {
        let e = Set::parse(&here, text).unwrap_err();
        assert!(e.is::<amp_host::BadInput>(), "{text}: {e}");
        assert!(e.to_string().contains(close), "{text}: {e}");
    }
    // its events alone are worth a set
    assert!(Set::parse(&here, "cycles").unwrap().units.is_empty());
}

#[test]
fn what_a_driver_does_not_count_is_taken_out() {
    let text = "both,cycles,instructions,branch-misses,cs";
    let mut set = Set::parse(&inventory(true), text).unwrap();
    assert_eq!(set.units[0].cycles, Some(1));
    set.kept(&|unit, event| unit.pmu != "a57" || event.name != "both");
    let u = &set.units[0];
    assert_eq!((u.cycles, u.instructions), (Some(0), Some(1)));
    assert_eq!(u.find("both"), None);
    let n = &set.not_supported[0];
    assert_eq!((n.pmu.as_deref(), n.core_type), (Some("a57"), u.core_type));
    assert!(n.is("both") && n.is("a57/both/") && !n.is("cycles"));
    assert_eq!(set.units[1].events.len(), 4, "the other core has it");
    set.kept(&|unit, _| unit.pmu == "software");
    assert_eq!(set.units.len(), 1);
    assert_eq!(set.names().count(), 9, "{:?}", set.not_supported);
}

#[test]
fn who_may_not_count_the_kernel_counts_user_mode() {
    let set = || {
        Set::parse(
            &inventory(true),
            "both,both:k,both:u,cs,task-clock,page-faults",
        )
        .unwrap()
    };
    let names = |s: &Set| s.names().cloned().collect::<Vec<_>>().join(" ");
    let before = names(&set());
    // everything is permitted, or nothing
    for may in [true, false] {
        let mut s = set();
        assert!(!s.within(&|_| may));
        assert_eq!(names(&s), before);
    }
    let mut s = set();
    assert!(s.within(&|e| e.attr.exclude_kernel));
    assert!(names(&s).contains("both:u both:k both:u"), "{}", names(&s));
    assert!(
        names(&s).ends_with("cs task-clock:u page-faults:u"),
        "{}",
        names(&s)
    );
    let unit = &s.units[0];
    assert_eq!((unit.find("both"), unit.find("both:k")), (Some(0), Some(1)));
    assert!(unit.events[0].attr.exclude_kernel && !unit.events[1].attr.exclude_kernel);
}
