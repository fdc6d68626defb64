//! `scx_amp model collect` on the board: windows of two kernels, beside programs that crash or
//! never end.

use amp_models::data::Dataset;
use amp_models::matching::matched;
use amp_tests::Lab;
use std::path::Path;

const PROGRAMS: &str = r#"
[[program]]
name = "crash"
command = ["sh", "-c", "echo no such luck >&2; kill -SEGV $$"]

[[sweep]]
name = "{kernel}"
command = ["amp-workload", "run", "{kernel}", "--work", "{work}"]
values = [{ kernel = "alu", work = "1M" }, { kernel = "fp", work = "500k" }]

[[program]]
name = "endless"
command = ["sh", "-c", "while :; do :; done"]

[[program]]
name = "missing"
command = ["no-such-program"]
"#;

const EVENTS: &str = r#"
[[pmu]]
names = ["armv8_*"]
events = ["stall_backend", "br_retired", "no_such_event", "l1d_cache_refill", "l2d_cache_refill", "st_retired", "l1d_cache"]
"#;

/// A run that stands in the journal is not made again; one that is cut off is.
const RESUME: &str = r#"
cd /
collect() { scx_amp model collect --on host --machine juno --programs /programs.toml --window ${W:-500k} --timeout 2 "$@"; }
collect --events /events.toml --out /out.jsonl 2>/err; echo "status $?"; sed 's/^/says /' /err
head -c -20 /out.jsonl.journal >/cut && mv /cut /out.jsonl.journal
echo "journal $(wc -l </out.jsonl.journal)"
collect --events /events.toml --out /out.jsonl --only alu,fp >/said 2>&1; echo "again $?"; sed 's/^/said /' /said
ls /out.jsonl.journal 2>/dev/null
W=50M; collect --events /events.toml --out /short.jsonl --only alu 2>/err; echo "short $?"; sed 's/^/says-short /' /err
W=500k; echo nonsense >/bad.jsonl.journal
collect --out /bad.jsonl --only alu 2>/err; echo "bad $?"; sed 's/^/says-bad /' /err
printf '[[pmu]]\nnames = ["armv8_*"]\nevents = ["no_such_event"]\n' >/none.toml
collect --events /none.toml --out /none.jsonl --only alu 2>/err; echo "none $?"; sed 's/^/says-none /' /err
"#;

#[test]
fn windows_of_kernels_beside_programs_that_fail() {
    let r = Lab::board("juno")
        .file("/programs.toml", PROGRAMS)
        .file("/events.toml", EVENTS)
        .collect("/out.jsonl")
        .run(RESUME)
        .ok();

    // the others' windows are written, and those that failed are named
    assert_eq!(r.line("status"), "1");
    let said: Vec<&str> = r.lines("says").collect();
    let told = |what: &str, why: &str| {
        let line = said.iter().find(|l| l.starts_with(what));
        let line = line.unwrap_or_else(|| panic!("{what} in {said:#?}"));
        assert!(line.contains(why), "{line}");
    };
    told("crash: ", "status 139: no such luck");
    told("endless: ", "has not ended after 2 s");
    told("missing: ", "no-such-program");

    // a plan and the runs, the last one cut off; it alone is made again
    let data = Dataset::read(Path::new("out.jsonl"), r.file("/out.jsonl").as_bytes()).unwrap();
    let runs = data.programs.values().flatten().flatten().count();
    let core_types = data.header.core_types.len();
    let sized = data.programs.len() * core_types;
    assert_eq!(r.line("journal"), (runs + sized).to_string());
    assert_eq!(r.line("again"), "0");
    let summary = r.lines("said").collect::<Vec<_>>().join("\n");
    assert!(
        summary.contains("big: event `no_such_event`") && summary.contains("left out"),
        "{summary}"
    );
    assert!(summary.contains("energy: board"), "{summary}");
    let made = format!("{runs} runs were made, 0 of them again;");
    assert!(summary.contains(&made), "{summary}");
    assert!(
        !r.0.console.contains("\n/out.jsonl.journal"),
        "it goes when all is done"
    );

    let big = &data.header.core_types[0];
    assert_eq!((big.name.as_str(), big.events_per_set), ("big", 5));
    assert_eq!((big.sets.concat().len(), big.sets.len() > 1), (6, true));
    for (program, types) in &data.programs {
        for (t, runs) in data.header.core_types.iter().zip(types) {
            // one of the same instructions each time: two runs make a measure, and there are two
            assert_eq!(runs.len(), t.sets.len().max(4), "{program} on {}", t.name);
            for w in runs.iter().flat_map(|r| &r.windows) {
                assert_eq!(w.instructions, 500_000);
                assert!(w.energy_j.is_some_and(|e| e > 0.0), "{w:?}");
            }
        }
    }
    // the kernels' speedups, as the catalogue has them: 1.83 and 2.40
    for (program, known) in [("alu", 1.83), ("fp", 2.40)] {
        let matched = matched(&data);
        let p = matched.programs.iter().find(|p| p.name == program).unwrap();
        let mut sf: Vec<f64> = p.windows.iter().filter_map(|w| w.speedup(0)).collect();
        assert!(
            sf.len() >= 10 && p.unmatched < 0.1,
            "{program}: {} windows, {}",
            sf.len(),
            p.unmatched
        );
        sf.sort_by(f64::total_cmp);
        let median = sf[sf.len() / 2];
        println!(
            "{program}: {} windows, SF {median:.3}, known {known}",
            sf.len()
        );
        assert!((median / known - 1.0).abs() < 0.03, "{program}: {median}");
    }

    assert_eq!(r.line("short"), "1");
    assert!(r
        .lines("says-short")
        .any(|l| l.contains("a window has 50000000")));
    assert_eq!(r.line("bad"), "2");
    assert!(r
        .lines("says-bad")
        .any(|l| l.contains("/bad.jsonl.journal: line 1")));
    assert_eq!(r.line("none"), "2");
    assert!(r
        .lines("says-none")
        .any(|l| l.contains("counts none of its events")));
}
