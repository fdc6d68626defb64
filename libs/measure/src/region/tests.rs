use super::*;
use amp_metrics::Pmu;

fn pmus() -> Pmus {
    let pmu = |name: &str, cpus: &[u32], core| Pmu {
        name: name.into(),
        type_: 9,
        cpus: cpus.into(),
        core,
        formats: [("event".to_owned(), "config:0-15".parse().unwrap())].into(),
        events: [("both".to_owned(), "event=0x1".to_owned())].into(),
        ..Pmu::default()
    };
    let list = vec![
        pmu("a57", &[0], true),
        pmu("a53", &[1], true),
        pmu("dmc", &[0], false),
    ];
    Pmus::from_list(list, &[vec![0], vec![1]])
}

#[test]
fn events_go_to_every_pmu_that_has_them() {
    let sets = sets(&pmus(), "both:u,a53/event=2/,task-clock").unwrap();
    let got: Vec<_> = sets.iter().map(|s| (s[0].pmu.as_str(), s.len())).collect();
    assert_eq!(got, [("a57", 1), ("a53", 2), ("software", 1)]);
}

#[test]
fn vendors_names_are_read_when_one_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let folder = root
        .path()
        .join("sys/devices/system/cpu/cpu0/regs/identification");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("midr_el1"), "0x00000000411fd072\n").unwrap();
    let with = |events| with_names(pmus(), events, root.path()).unwrap();
    assert_eq!(with("both,task-clock,cycles,a53/event=2/"), pmus());
    let sets = sets(&with("both,vfp_spec:u"), "vfp_spec:u").unwrap();
    let got: Vec<_> = sets.iter().map(|s| s[0].pmu.as_str()).collect();
    assert_eq!(got, ["a57"]);
    assert_eq!(sets[0][0].attr.config, 0x75);
}

#[test]
fn what_is_wrong_is_named() {
    let e = |p: &Pmus, t: &str| sets(p, t).unwrap_err();
    let unknown = e(&pmus(), "bot");
    assert!(unknown.to_string().contains("`both`"), "{unknown}");
    assert_eq!(unknown.errno(), libc::ENOENT);
    assert_eq!(e(&pmus(), " , ").errno(), libc::EINVAL);
    assert_eq!(e(&pmus(), "dmc/both/").errno(), libc::EINVAL);
    assert_eq!(e(&Pmus::none(), "cycles").errno(), libc::ENODEV);
}

/// A machine with hwmon sensors of these labels, and two CPUs of these capacities.
fn machine(capacities: [u32; 2], labels: &[&str]) -> (tempfile::TempDir, Roots) {
    let root = tempfile::tempdir().unwrap();
    let file = |path: String, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (cpu, capacity) in capacities.iter().enumerate() {
        let path = format!("devices/system/cpu/cpu{cpu}/cpu_capacity");
        file(path, &format!("{capacity}\n"));
    }
    for (i, label) in labels.iter().enumerate() {
        let sensor = format!("class/hwmon/hwmon0/energy{}", i + 1);
        file(format!("{sensor}_label"), label);
        file(format!("{sensor}_input"), "1000000\n");
    }
    let roots = Roots {
        sysfs: root.path().to_owned(),
        proc: root.path().join("proc"),
        resctrl: root.path().join("fs/resctrl"),
    };
    (root, roots)
}

#[test]
fn sensors_are_found_by_the_names_of_cores() {
    let mut cores: Vec<Pmu> = pmus().iter().cloned().collect();
    cores[0].name = "armv8_cortex_a53".into();
    cores[1].name = "armv8_cortex_a57".into();
    let pmus = Pmus::from_list(cores, &[vec![0], vec![1]]);
    let of = [
        ["A57 Energy", "little cluster"],
        ["big energy", "A53 energy"],
        ["GPU energy", "BIG"],
    ];
    for (labels, sensors) in of.iter().zip([2, 2, 1]) {
        let (root, roots) = machine([446, 1024], labels);
        let mut energy = Energy::open(&roots, &pmus).unwrap();
        assert_eq!(energy.sources.names().collect::<Vec<_>>(), ["hwmon"]);
        assert_eq!(energy.since().unwrap(), 0.0);
        for i in 1..=2 {
            let input = format!("class/hwmon/hwmon0/energy{i}_input");
            std::fs::write(root.path().join(input), "3500000\n").unwrap();
        }
        let joules = energy.since().unwrap();
        assert!(
            (joules - 2.5 * f64::from(sensors)).abs() < 1e-9,
            "{labels:?}: {joules}"
        );
    }
    let (_root, roots) = machine([446, 1024], &["GPU energy"]);
    let none = Energy::open(&roots, &pmus).err().unwrap();
    assert!(none.to_string().contains("hwmon"), "{none}");
}

#[test]
fn the_faster_of_two_core_types_is_the_big_one() {
    for (capacities, names) in [
        ([446, 1024], ["little", "big"]),
        ([1024, 446], ["big", "little"]),
        ([1024, 1024], ["big", "little"]),
    ] {
        let (_root, roots) = machine(capacities, &[]);
        assert_eq!(core_type_names(&roots.sysfs, &pmus()), names);
    }
}

#[test]
fn a_region_adds_up_what_is_inside() {
    let mut r = match Region::open("task-clock:u,page-faults:u") {
        Ok(r) => r,
        // a container without perf: that the error says so is all that can be shown
        Err(e) => {
            assert!(
                not_allowed(&e) && e.to_string().contains("task-clock"),
                "{e}"
            );
            amp_skips::skip(&format!("nothing can be counted here: {e}"));
            return;
        }
    };
    let spin = || (0..300_000u64).fold(1, |a, b| std::hint::black_box(a ^ b));
    spin();
    let none = r.read().unwrap();
    assert_eq!(none.total("task-clock:u"), Some(0), "{none:?}");
    for _ in 0..2 {
        r.start().unwrap();
        r.start().unwrap();
        spin();
        r.stop().unwrap();
        r.stop().unwrap();
    }
    let counts = r.read().unwrap();
    assert!(counts.total("task-clock:u") > Some(0), "{counts:?}");
    assert_eq!(counts.total("cycles"), None);
    spin();
    assert_eq!(r.read().unwrap(), counts);
    r.reset().unwrap();
    assert_eq!(r.read().unwrap().total("task-clock:u"), Some(0));
    let overhead = r.overhead().unwrap();
    assert!(overhead.total("task-clock:u") < counts.total("task-clock:u"));
}
