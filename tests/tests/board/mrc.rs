//! Miss-rate curves of `scx_amp pmc mrc` beside runs on machines whose L2 is as small as that.
//!
//! It prints a table; that of docs/evidence/pmc.md is from five runs with `MRC_WAYS=1,2,4,8,16`.

use amp_tests::{Lab, Reply};
use serde_json::Value;

/// Programs, and the CPU each runs on: one that goes round at random, one that reads and writes on
/// and on, one that jumps about; and the first on a little core.
const PROGRAMS: [(&str, u32); 4] = [
    ("chase --size 1M", 1),
    ("stream --size 1536K", 1),
    ("hash --size 3M", 1),
    ("chase --size 512K", 3),
];
/// Ways that are given, of 16, unless `MRC_WAYS` has others: powers of two, for that is what a
/// machine's caches have.
const WAYS: &str = "4,16";
const SWEEPS: u32 = 5;
/// Lines into L2 per 1000 instructions.
const EVENTS: &str = "-e inst_retired:u,l2d_cache_refill:u";
const METRICS: &str =
    "-m mpki=1000*l2d_cache_refill:u/inst_retired:u -m rate=inst_retired:u/seconds";
/// Seconds of a window of a separate run, and how many of the first are left out.
const WINDOW_MS: u32 = 200;
const FIRST: usize = 3;
/// How far both may be apart, beside four standard uncertainties of the difference: a part, and
/// lines per 1000 instructions (those of a program that fits are few, and fewer the longer it runs).
const PART: f64 = 0.02;
const MPKI: f64 = 1.0;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn mask(cpu: u32) -> String {
    format!("{:x}", 1 << cpu)
}

/// Mean and standard uncertainty of lines per 1000 instructions and instructions per second, of each
/// program on a machine whose L2 have so many ways and no others.
fn separate(ways: u32) -> Vec<[(f64, f64); 2]> {
    let cache = |kib: u32, ways: u32| format!("l2 = {{ size_kib = {kib}, ways = {ways}, line");
    let change = |kib: u32| (cache(kib, 16), cache(kib / 16 * ways, ways));
    let mut script = String::from("sleep 5\n");
    let mut lab = Lab::changed_juno(["0-1", "2-3"], &[change(2048), change(1024)]);
    for (i, (program, cpu)) in PROGRAMS.iter().enumerate() {
        let mask = mask(*cpu);
        script += &format!(
            "taskset {mask} scx_amp pmc stat {EVENTS} -i {WINDOW_MS} --timeout 2500 --json /{i}.json -- amp-workload run {program} --work 1G >/dev/null\n[ $? = 143 ] || exit 1\n"
        );
        lab = lab.collect(&format!("/{i}.json"));
    }
    let r = lab.run(&script).ok();
    let of = |i: usize| {
        let report = json(&r.file(&format!("/{i}.json")));
        let windows = report["intervals"].as_array().expect("windows");
        // the last is what was left
        let steady = &windows[FIRST..windows.len() - 1];
        assert!(steady.len() >= 5, "{}", steady.len());
        let count = |w: &Value, event: &str| {
            let counts = w["counts"].as_array().unwrap().iter();
            let of = counts.filter(|c| c["event"] == event && c["seconds"].as_f64() > Some(0.0));
            let of: Vec<&Value> = of.collect();
            assert_eq!(of.len(), 1, "on one core type: {w}");
            (
                of[0]["count"].as_f64().unwrap(),
                of[0]["seconds"].as_f64().unwrap(),
            )
        };
        let values = |f: &dyn Fn(&Value) -> f64| {
            let all: Vec<f64> = steady.iter().map(f).collect();
            let mean = amp_metrics::uncertainty::Measured::mean(&all).unwrap();
            (mean.value, mean.u.unwrap())
        };
        let instructions = |w: &Value| count(w, "inst_retired:u");
        let refills = |w: &Value| count(w, "l2d_cache_refill:u").0;
        [
            values(&|w| 1000.0 * refills(w) / instructions(w).0),
            values(&|w| instructions(w).0 / instructions(w).1),
        ]
    };
    (0..PROGRAMS.len()).map(of).collect()
}

/// The same by giving each program one size after the other in one run.
fn online(r: &Reply, i: usize, ways: u32, sizes: usize) -> [(f64, f64); 2] {
    let report = json(&r.file(&format!("/{i}.json")));
    assert_eq!(
        (&report["level"], &report["ways"], &report["sweeps"]),
        (&2.into(), &16.into(), &SWEEPS.into())
    );
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), sizes, "{report}");
    let point = points.iter().find(|p| p["ways"] == ways).expect("a point");
    assert_eq!(point["windows"], SWEEPS);
    let metrics = point["metrics"].as_array().unwrap();
    [0, 1].map(|m| {
        let of = |key: &str| metrics[m][key].as_f64().expect("a value");
        (of("value"), of("u"))
    })
}

/// What is refused, and that all of the cache is given back.
const REST: &str = r#"
scx_amp pmc mrc -- true 2>/err; echo "everywhere $?"; sed 's/^/everywhere-says /' /err
taskset 2 scx_amp pmc mrc --ways 3,17 -- true 2>/err; echo "ways $?"; sed 's/^/ways-says /' /err
scx_amp pmc mrc -a 2>/err; echo "all $?"; sed 's/^/all-says /' /err
scx_amp pmc mrc 2>/err; echo "nothing $?"; sed 's/^/nothing-says /' /err
taskset 2 scx_amp pmc mrc -g caches --ways 16 -- sh -c 'exit 7' 2>/err; echo "short $?"; sed 's/^/short-says /' /err
# one that is there already; interrupted in the midst of it
taskset 2 amp-workload run chase --size 1M --work 1G >/dev/null & pid=$!
sleep 1
scx_amp pmc mrc --ways 1,16 --sweeps 1000 -p $pid --json /interrupted.json --html /interrupted.html 2>/err & mrc=$!
sleep 4; kill -INT $mrc; wait $mrc; echo "interrupted $?"
sleep 1
scx_amp pmc stat -e inst_retired:u,l2d_cache_refill:u -m mpki=1000*l2d_cache_refill:u/inst_retired:u -p $pid --timeout 1000 --json /after.json
kill $pid
"#;

#[test]
fn curves_are_those_of_machines_with_smaller_caches() {
    let mut script = String::from("sleep 5\n");
    let mut lab = Lab::changed_juno(["0-1", "2-3"], &[]);
    let all = std::env::var("MRC_WAYS").unwrap_or_else(|_| WAYS.to_owned());
    let sizes: Vec<u32> = all.split(',').map(|w| w.parse().expect("ways")).collect();
    for (i, (program, cpu)) in PROGRAMS.iter().enumerate() {
        script += &format!(
            "taskset {} scx_amp pmc mrc {EVENTS} {METRICS} --ways {all} --sweeps {SWEEPS} -i {WINDOW_MS} --settle 300 --json /{i}.json -- amp-workload run {program} --work 1G >/dev/null || exit 1\n",
            mask(*cpu)
        );
        lab = lab.collect(&format!("/{i}.json"));
    }
    for file in ["/interrupted.json", "/interrupted.html", "/after.json"] {
        lab = lab.collect(file);
    }
    let r = lab.run(&(script + REST)).ok();
    println!(
        "program | core type | KiB | online mpki | separate mpki | online rate | separate rate"
    );
    let mut apart = Vec::new();
    for &ways in &sizes {
        let separate = separate(ways);
        for (i, (program, cpu)) in PROGRAMS.iter().enumerate() {
            let (core_type, way) = if *cpu < 2 {
                ("big", 128)
            } else {
                ("little", 64)
            };
            let (here, there) = (online(&r, i, ways, sizes.len()), separate[i]);
            let show =
                |(value, u): (f64, f64), by: f64| format!("{:.3} ± {:.3}", value / by, u / by);
            println!(
                "{program} | {core_type} | {} | {} | {} | {} | {}",
                ways * way,
                show(here[0], 1.0),
                show(there[0], 1.0),
                show(here[1], 1e6),
                show(there[1], 1e6)
            );
            for (m, least) in [(0, MPKI), (1, 0.0)] {
                let (a, b) = (here[m], there[m]);
                let bound = PART * b.0 + least + 4.0 * (a.1 * a.1 + b.1 * b.1).sqrt();
                if (a.0 - b.0).abs() > bound {
                    apart.push(format!("{program} {ways} ways: {} is not {}", a.0, b.0));
                }
            }
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");

    let says = |key: &str| r.lines(key).collect::<Vec<_>>().join(" ");
    for (key, status, parts) in [
        ("everywhere", "1", &["taskset", "leave one of them"][..]),
        ("ways", "2", &["--ways 17", "1, 2, 3"]),
        ("all", "2", &["-a"]),
        ("nothing", "2", &["given parts of a cache"]),
        ("short", "7", &["0 of 5 sweeps", "before the first window"]),
        ("interrupted", "0", &[]),
    ] {
        assert_eq!(
            r.line(key),
            status,
            "{key}: {}",
            says(&format!("{key}-says"))
        );
        let says = says(&format!("{key}-says"));
        for part in parts {
            assert!(says.contains(part), "{part}: {says}");
        }
    }
    let interrupted = json(&r.file("/interrupted.json"));
    let points = interrupted["points"].as_array().unwrap();
    let windows: Vec<u64> = points
        .iter()
        .filter_map(|p| p["windows"].as_u64())
        .collect();
    println!("interrupted after {windows:?} windows");
    assert!(windows.len() == 2 && windows.iter().all(|n| *n >= 3));
    assert_eq!(r.file("/interrupted.html").matches("<svg").count(), 4);
    let after = json(&r.file("/after.json"));
    let of_big = after["metrics"].as_array().unwrap().iter();
    let of_big = of_big.filter(|m| m["core_type"] == "big");
    let after: Vec<f64> = of_big.filter_map(|m| m["value"].as_f64()).collect();
    println!("given back: {after:?} lines per 1000 instructions");
    assert!(
        after.len() == 1 && after[0] < 10.0,
        "all of it is given back: with one way it has 333"
    );
}
