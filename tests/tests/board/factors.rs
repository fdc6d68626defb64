//! Speedup and efficiency factors of `scx_amp pmc stat -V sf,ef`, beside what solo runs say.

use amp_tests::Lab;
use serde_json::Value;

/// Core types, and a CPU of each.
const PLACES: [(&str, u32); 2] = [("big", 1), ("little", 4)];
/// A kernel that gains little from a big core, and one that gains much.
const KERNELS: [(&str, &str); 2] = [("branchy", "1M"), ("mul", "3M")];
/// Standard uncertainties of the model by which an estimate may be off.
const UNCERTAINTIES: f64 = 3.0;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Rows of a factor from threads on a core type.
fn rows<'a>(of: &'a Value, factor: &str, on: &str) -> Vec<&'a Value> {
    let all = of["virtual_counters"].as_array();
    let all = all.map_or(&[][..], Vec::as_slice);
    let asked = |v: &&Value| v["counter"] == factor && v["on"] == on;
    all.iter().filter(asked).collect()
}

#[test]
fn factors_are_what_solo_runs_say_within_what_the_model_states() {
    let mut script = String::from("sleep 2\n");
    let mut lab = Lab::board("juno");
    for (k, (kernel, work)) in KERNELS.iter().enumerate() {
        for (core_type, cpu) in PLACES {
            let run = format!("amp-workload run {kernel} --work {work} --pin {cpu}");
            script += &format!(
                "echo \"solo-{k} $({run} --count --json)\"\n\
                 scx_amp pmc stat -V sf,ef --json /{k}-{core_type}.json -- {run} >/dev/null || exit 1\n"
            );
            lab = lab.collect(&format!("/{k}-{core_type}.json"));
        }
    }
    script += "\
scx_amp pmc stat --per-thread -V sf,energy -e instructions:u -m gain=sf*instructions:u --json /threads.json -- amp-workload run alu --threads 3 --work 3M >/dev/null || exit 1
scx_amp pmc stat -V sf -i 10 -e instructions:u --json /over.json --html /over.html -- amp-workload run phased --phase alu=1M --phase hash@8M=150k --work 2 --pin 4 >/dev/null || exit 1
scx_amp pmc stat -V sf -i 10000 -e task-clock --csv -o /true.csv -- true || exit 1
grep ',sf of big,' /true.csv | sed 's/^/short /'
for o in '-V sf -a' '-V sf --model /no.toml' '-V sf --window 1M'; do
scx_amp pmc stat $o -- true 2>/err; echo \"refused $?\"; sed 's/^/says /' /err
done
";
    let files = ["/threads.json", "/over.json", "/over.html"];
    let lab = files.iter().fold(lab, |lab, f| lab.collect(f));
    let r = lab.run(&script).ok();

    for (k, (kernel, _)) in KERNELS.iter().enumerate() {
        let solo = r.lines(&format!("solo-{k}")).map(json).collect::<Vec<_>>();
        let [big, little] = &solo[..] else {
            panic!("{solo:?}");
        };
        let ratio = |key: &dyn Fn(&Value) -> Option<f64>| key(little).unwrap() / key(big).unwrap();
        let time = ratio(&|j| j["wall_ns"].as_f64());
        let energy = ratio(&|j| j["model"]["energy_uj"].as_f64());
        for (core_type, _) in PLACES {
            let report = json(&r.file(&format!("/{k}-{core_type}.json")));
            for (factor, truth) in [("sf", time), ("ef", time * energy)] {
                let of = rows(&report, factor, core_type);
                let [one] = of[..] else {
                    panic!("{report}");
                };
                let (value, u) = (one["value"].as_f64().unwrap(), one["u"].as_f64().unwrap());
                println!(
                    "{kernel} on {core_type}: {factor} {value:.3} ± {u:.3}, alone {truth:.3}, {} estimates of {:.3} of the time",
                    one["estimates"], one["coverage"]
                );
                assert_eq!(
                    (&one["source"], &one["core_type"], &one["of"]),
                    (&"model juno".into(), &"big".into(), &"program".into())
                );
                assert!(one["estimates"].as_u64().unwrap() > 2, "{one}");
                assert!((value - truth).abs() < UNCERTAINTIES * u, "{one}");
            }
            // the model's sets take turns with ours, and their counts are not told
            assert_eq!(report["sets"].as_array().unwrap().len(), 3);
            let counts = report["counts"].as_array().unwrap();
            assert!(counts.iter().all(|c| c["set"] == 1), "{report}");
        }
    }

    let threads = json(&r.file("/threads.json"));
    let all = threads["virtual_counters"].as_array().unwrap();
    let estimated = all
        .iter()
        .filter(|v| v["counter"] == "sf" && v["value"].is_f64());
    let mut tids: Vec<i64> = estimated.filter_map(|v| v["tid"].as_i64()).collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(tids.len() >= 3, "{threads}");
    assert!(all.iter().any(|v| v["counter"] == "energy"), "{threads}");
    let mut compared = 0;
    for m in threads["metrics"].as_array().unwrap() {
        let Some(value) = m["value"].as_f64() else {
            continue;
        };
        let same = |v: &&Value| v["tid"] == m["tid"] && v["on"] == m["core_type"];
        let sf = all.iter().find(same).unwrap()["value"].as_f64().unwrap();
        let counts = threads["counts"].as_array().unwrap().iter();
        let mut counts =
            counts.filter(|c| c["tid"] == m["tid"] && c["core_type"] == m["core_type"]);
        let count = counts.next().unwrap()["count"].as_f64().unwrap();
        compared += 1;
        assert!((value / (sf * count) - 1.0).abs() < 1e-9, "{m}");
    }

    assert!(compared >= 3, "{threads}");

    let over = json(&r.file("/over.json"));
    let intervals = over["intervals"].as_array().unwrap();
    let sf = |w: &Value| {
        let of = rows(w, "sf", "little");
        of.first().and_then(|v| v["value"].as_f64())
    };
    let over: Vec<f64> = intervals.iter().filter_map(sf).collect();
    let least = over.iter().copied().fold(f64::INFINITY, f64::min);
    let most = over.iter().copied().fold(0.0, f64::max);
    println!(
        "two phases: {} estimates, {least:.3} to {most:.3}",
        over.len()
    );
    // alone they have 1.8 and 3.3
    assert!(least < 2.2 && most > 2.7, "{over:?}");
    assert!(r.file("/over.html").contains("sf of big"));

    // a program that is over at once has no estimate, and the report says so
    let short: Vec<&str> = r.lines("short").collect();
    assert!(!short.is_empty());
    for line in short {
        assert!(
            line.starts_with(",sf of big,") && line.contains("nothing ran"),
            "{line}"
        );
    }
    let said: String = r.lines("says").collect();
    for part in ["without -a", "/no.toml", "-i MS"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(r.lines("refused").collect::<Vec<_>>(), ["2", "2", "2"]);
}
