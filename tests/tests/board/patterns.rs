//! `scx_amp pmc patterns` on programs that have a pattern and on their twins that have not
//! (`tests/examples/patterns.rs` has more of them).

use amp_tests::Lab;
use serde_json::Value;

const PATTERNS: [&str; 3] = ["bandwidth saturation", "load imbalance", "false sharing"];

/// Program, and the pattern that it has.
const PROGRAMS: [(&str, Option<usize>); 9] = [
    (
        "store --threads 4 --cpus 0,1,2,3 --size 4M --work 8",
        Some(0),
    ),
    ("store --threads 1 --cpus 0 --size 4M --work 12", None),
    ("triangle --threads 2 --cpus 2,3 --work 80", Some(1)),
    ("triangle-even --threads 2 --cpus 2,3 --work 120", None),
    ("counters --threads 4 --cpus 2,3,4,5 --work 600", Some(2)),
    ("histogram --threads 2 --cpus 0,1 --work 500", Some(2)),
    // two threads for a tenth of a second, on one cluster and on two
    ("counters --threads 2 --cpus 2,3 --work 500", Some(2)),
    ("counters --threads 2 --cpus 0,3 --work 1k", Some(2)),
    ("counters-apart --threads 4 --cpus 2,3,4,5 --work 2k", None),
];

/// A trust file that rates an event of the patterns broken, under another name.
const TRUST: &str = r#"
format = 1
kernel = "some other"
repetitions = 1
[[core_type]]
name = "big"
pmu = "armv8_cortex_a57"
processor = "0x411fd070"
cpu = 1
[[core_type.event]]
event = "armv8_cortex_a57/event=0x17/"
quantity = "l2-refills"
verdict = "broken"
error_min = -1.0
error_mean = -1.0
error_max = -1.0
worst_kernel = "load memory"
comparisons = 1
"#;

#[test]
fn programs_have_the_patterns_they_have() {
    // what memory of `juno` can do, at a dilation of 8
    let mut script = String::from("sleep 2\n");
    for (i, (program, _)) in PROGRAMS.iter().enumerate() {
        script += &format!(
            "scx_amp pmc patterns -i 20 --attainable 1211M --json /o.json -- amp-workload pattern {program} >/dev/null || exit 1\n\
             echo \"run-{i} $(cat /o.json)\"\n"
        );
    }
    script += "scx_amp pmc patterns --attainable 1211M -- /no/such 2>/err; echo \"nosuch $?\"; sed 's/^/says /' /err\n\
               scx_amp pmc patterns --attainable 1211M --trust /trust.toml -- true 2>/err; echo \"broken $?\"; sed 's/^/told /' /err\n";
    let reply = Lab::board("juno")
        .file("/trust.toml", TRUST)
        .run(&script)
        .ok();
    for (i, (program, pattern)) in PROGRAMS.iter().enumerate() {
        let tag = format!("run-{i}");
        let line = reply.lines(&tag).next().expect("a run");
        let report: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for (p, name) in PATTERNS.iter().enumerate() {
            let f = &report["findings"][p];
            println!("{program}: {name} {} {}", f["verdict"], f["figures"][0]);
            let right = if *pattern == Some(p) {
                "present"
            } else {
                "absent"
            };
            assert_eq!(f["pattern"], *name);
            assert_eq!(f["verdict"], right, "{program}: {f}");
            assert!(!f["reliability"].as_str().unwrap_or_default().is_empty());
        }
        let threads = report["threads"].as_array().expect("threads");
        assert!(
            threads
                .iter()
                .all(|t| t["coverage"].as_f64().is_some_and(|c| c > 0.5)),
            "{report}"
        );
    }
    assert_eq!(reply.lines("nosuch").next(), Some("2"));
    assert!(reply.lines("says").any(|l| l.contains("/no/such")));
    let told: Vec<&str> = reply.lines("told").collect();
    let told = told.join(" ");
    assert_eq!(reply.lines("broken").next(), Some("2"), "{told}");
    for part in ["l2d_cache_refill", "broken", "big", "/trust.toml"] {
        assert!(told.contains(part), "no {part}: {told}");
    }
}
