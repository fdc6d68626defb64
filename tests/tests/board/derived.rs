//! Derived metrics of tables on the board: `pmc stat -M`, part of the guest of [`crate::pmc`]. The
//! shipped tables have none for its cores, so the tables are ours.

use super::pmc::json;
use amp_tests::Reply;
use serde_json::Value;

/// Tables for both cores, which say that they are the same processor: QEMU has one. A ninth of the
/// instructions of `alu` are branches.
pub const FILES: [(&str, &str); 3] = [
    (
        "/tables/arm64/mapfile.csv",
        "MIDR,version,folder\n0x00000000410fd070,v1,board,core\n",
    ),
    ("/tables/arm64/standard.json", "[]"),
    (
        "/tables/arm64/board/metrics.json",
        r#"[
{"MetricName": "per_branch", "MetricExpr": "INST_RETIRED:u / BR_RETIRED:u", "MetricGroup": "Shares", "Unit": "armv8_cortex_a57"},
{"MetricName": "branch_share", "MetricExpr": "(1 / per_branch if #num_cpus > 1 else NOTHING)", "Unit": "armv8_cortex_a57",
 "MetricGroup": "Shares;Other", "ScaleUnit": "100%", "MetricThreshold": "branch_share > 0.1 & per_branch < 10"},
{"MetricName": "rate", "MetricExpr": "BR_RETIRED:u / 1e6 / duration_time", "MetricGroup": "Shares", "ScaleUnit": "1M/s",
 "Unit": "armv8_cortex_a57"},
{"MetricName": "lost", "MetricExpr": "NOTHING / INST_RETIRED", "MetricGroup": "Shares", "Unit": "armv8_cortex_a57"},
{"MetricName": "branch_share", "MetricExpr": "armv8_cortex_a53@event\\=0x21@u / cpu@inst_retired@u",
 "MetricGroup": "Shares", "ScaleUnit": "100%", "MetricThreshold": "branch_share > 0.2", "Unit": "armv8_cortex_a53"}
]"#,
    ),
];

/// Counts them on each core type, lists them, and asks for what there is not.
pub const SCRIPT: &str = "
export SCX_AMP_PMU_EVENTS=/tables
for cpu in 1 4; do
scx_amp pmc stat -M Shares --json /derived-$cpu.json -- amp-workload run alu --work 4M --pin $cpu 2>/err || exit 1
sed 's/^/derived-says /' /err
done
scx_amp pmc stat -M branch_share,rate -r 2 -- amp-workload run alu --work 1M --pin 1 2>&1 | sed 's/^/derived-table /'
scx_amp pmc list --json /derived-list.json shares || exit 1
for name in branch_shar lost ipc=a/b; do
scx_amp pmc stat -M $name -- true 2>/err; echo \"derived-status $?\"; sed 's/^/derived-refused /' /err
done
unset SCX_AMP_PMU_EVENTS
scx_amp pmc stat -M TopdownL1 -- true 2>/err; echo \"derived-status $?\"; sed 's/^/derived-refused /' /err
";

/// What [`SCRIPT`] leaves behind.
pub const COLLECTED: [&str; 3] = ["/derived-1.json", "/derived-4.json", "/derived-list.json"];

/// Looks at it.
pub fn check(r: &Reply) {
    for (cpu, core_type, exceeded) in [(1, "big", true), (4, "little", false)] {
        let report = json(&r.file(&format!("/derived-{cpu}.json")));
        let metrics = report["metrics"].as_array().expect("metrics");
        let of = |name: &str| {
            let named = |m: &&Value| m["metric"] == name && m["core_type"] == core_type;
            metrics.iter().find(named)
        };
        let share = of("branch_share").unwrap_or_else(|| panic!("{report}"));
        let value = share["value"].as_f64().unwrap();
        let count = |part: &str| {
            let counts = report["counts"].as_array().unwrap().iter();
            let mut here = counts.filter(|c| c["core_type"] == core_type);
            let row = here.find(|c| c["event"].as_str().unwrap().to_lowercase().contains(part));
            row.unwrap_or_else(|| panic!("no {part}: {report}"))["count"]
                .as_f64()
                .unwrap()
        };
        let branches = count(if cpu == 1 { "br_retired" } else { "event=0x21" });
        let known = 100.0 * branches / count("inst_retired");
        println!("{core_type}: {value} % of the instructions are branches, of its loop 11.11 %");
        assert!((value / known - 1.0).abs() < 1e-9, "{share}, {known}");
        // some more in its start
        assert!((11.0..12.0).contains(&value), "{share}");
        assert_eq!((&share["unit"], &share["u"]), (&"%".into(), &0.0.into()));
        assert_eq!(share["threshold"]["exceeded"], exceeded, "{share}");
        // the other core type has no row of its own formula
        let big = core_type == "big";
        assert_eq!(of("per_branch").is_some(), big, "{report}");
        assert!(of("lost").is_none(), "{report}");
        if big {
            let per_branch = of("per_branch").unwrap()["value"].as_f64().unwrap();
            assert!(
                (per_branch * value / 100.0 - 1.0).abs() < 1e-9,
                "{per_branch}"
            );
            let rate = of("rate").unwrap()["value"].as_f64().unwrap();
            let elapsed = report["elapsed_s"].as_f64().unwrap();
            let known = branches / 1e6 / elapsed;
            assert!((rate / known - 1.0).abs() < 1e-6, "{rate}, {known}");
        }
    }
    let says = r.lines("derived-says").collect::<Vec<_>>().join("\n");
    assert!(
        says.contains("`lost` on armv8_cortex_a57") && says.contains("no event `NOTHING`"),
        "{says}"
    );
    let table = r.lines("derived-table").collect::<Vec<_>>().join("\n");
    assert!(
        table.contains("branch_share (%)") && table.contains("worth a look: branch_share > 0.1"),
        "{table}"
    );
    assert!(table.contains("rate (M/s)"), "{table}");

    let list = json(&r.file("/derived-list.json"));
    let pmus = list["pmus"].as_array().unwrap();
    let names = |pmu: &Value| -> Vec<String> {
        let metrics = pmu["metrics"].as_array().unwrap().iter();
        metrics
            .map(|m| m["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all: Vec<Vec<String>> = pmus.iter().map(names).collect();
    assert!(all.contains(&vec!["branch_share".to_owned()]), "{all:?}");
    let big: Vec<&str> = vec!["branch_share", "lost", "per_branch", "rate"];
    let big = pmus
        .iter()
        .find(|p| names(p) == big)
        .unwrap_or_else(|| panic!("{all:?}"));
    assert!(big["metrics"][1]["not_here"]
        .as_str()
        .unwrap()
        .contains("`NOTHING`"));

    let refused: Vec<&str> = r.lines("derived-refused").collect();
    assert_eq!(r.lines("derived-status").collect::<Vec<_>>(), ["2"; 4]);
    for (line, part) in
        refused
            .iter()
            .zip(["`branch_share`", "`NOTHING`", "behind -m", "no metrics"])
    {
        assert!(line.contains(part), "{part}: {refused:?}");
    }
}
