//! `run --record` on the board, and `replay` of what came back on the host.

use amp_recording::{Recording, Replay};
use amp_tests::{command, Lab};
use std::collections::BTreeSet;
use std::path::Path;

/// Seven programs of two kinds on six CPUs, recorded under rr, then under hsp.
const SCRIPT: &str = r#"
sleep 5
ln -s /etc/passwd /tmp/link
scx_amp run --record /tmp/link 2>/tmp/e; echo "link-status $?"
echo "link $(tr '\n' ' ' </tmp/e)"
scx_amp run --policy rr --provider ipc-sampling --interval 50 --record /tmp/rec --record-size 1 --record-commands 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.1; done
for n in 1 2 3; do amp-workload run alu --work 100G >/dev/null & all="$all $!"; done
for n in 1 2 3 4; do amp-workload run chase --work 100G >/dev/null & all="$all $!"; done
sleep 5
scx_amp ctl policy hsp
sleep 1
kill $all
sleep 0.3
scx_amp ctl status | tr -d '\n'; echo
kill $pid; wait $pid; echo "status $?"
echo "mode $(stat -c %a /tmp/rec)"
"#;

#[test]
fn what_happens_is_recorded_and_can_be_replayed() {
    let r = Lab::board("juno").collect("/tmp/rec").run(SCRIPT).ok();
    assert_eq!((r.line("link-status"), r.line("status")), ("2", "0"));
    assert!(
        r.line("link").contains("symbolic link"),
        "{}",
        r.line("link")
    );
    assert_eq!(r.line("mode"), "600");
    let status = &r.json()[0]["recording"];
    assert_eq!(
        (&status["file"], &status["ended"]),
        (&"/tmp/rec".into(), &serde_json::Value::Null)
    );
    let bytes: u64 = status["bytes"].as_str().unwrap().parse().unwrap();
    let text = r.file("/tmp/rec");
    // what was written since is less than a second's
    assert!(
        bytes > 10_000 && bytes <= text.len() as u64,
        "{bytes} of {}",
        text.len()
    );

    let recording = Recording::parse(Path::new("rec"), text.as_bytes(), None).unwrap();
    assert!(recording.notes.is_empty(), "{:?}", recording.notes);
    assert_eq!(recording.header.core_types.len(), 2);
    let changes = recording.spans.iter().filter_map(|s| s.change.as_ref());
    assert_eq!(changes.map(|c| &*c.policy).collect::<Vec<_>>(), ["hsp"]);
    // a process is told of under each name that it had at a tick: `sh` until it begins the program,
    // `amp-workload` until it names itself; the command line is that of the program in all but the first
    let of_chase = |w: &&amp_recording::format::Who| {
        let words = w.command.iter().flatten();
        words.into_iter().any(|w| w == "chase")
    };
    let chases: Vec<_> = recording.threads.iter().filter(of_chase).collect();
    let processes: BTreeSet<u64> = chases.iter().map(|w| w.pid).collect();
    assert_eq!(processes.len(), 4, "{chases:?}");
    assert!(chases.iter().all(|w| w.comm != "sh"), "{chases:?}");
    // once the programs run, all six CPUs are busy until they are killed
    let busy = |s: &&amp_recording::read::Span| s.ran.iter().filter(|r| r.runnable).count() >= 7;
    let (mut cpu, mut time) = (0.0, 0.0);
    for span in recording.spans.iter().filter(busy) {
        cpu += span.ran.iter().flat_map(|r| &r.cpu_s).sum::<f64>();
        time += span.length_s;
    }
    assert!(
        time > 4.0 && (cpu / time - 6.0).abs() < 0.3,
        "{cpu} s in {time} s"
    );

    let replay = Replay::of(&recording).unwrap();
    println!("{:?}", replay.facts);
    let f = &replay.facts;
    assert!(
        f.counted_on_both + f.by_program + f.by_provider > 0.9,
        "{f:?}"
    );
    assert!(f.uncounted < 0.05, "{f:?}");
    // arithmetic gains more from a fast core than a chase through memory
    let speedup = |w: &amp_eval::workload::App| w.phases_speedup().unwrap();
    let mut apps = replay.draws(1, 1).remove(0).apps;
    apps.retain(|a| a.instructions.is_some_and(|n| n > 1e6));
    let speedups: Vec<f64> = apps.iter().map(speedup).collect();
    println!("speedups {speedups:.2?}");
    assert_eq!(apps.len(), 7);
    let of = |name: &str| {
        let apps = apps.iter().filter(|a| a.name.starts_with(name));
        apps.map(speedup).collect::<Vec<f64>>()
    };
    let (alu, chase) = (of("amp-alu"), of("amp-chase"));
    assert_eq!((alu.len(), chase.len()), (3, 4));
    assert!(
        alu.iter().all(|a| chase.iter().all(|c| a > c)),
        "{speedups:?}"
    );

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rec");
    std::fs::write(&path, &text).unwrap();
    let path = path.display().to_string();
    let out = command(&["replay", &path, "--policies", "rr,hsp", "--json", "-"]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let asp = |i: usize| json["results"][i]["asp"]["value"].as_f64().unwrap();
    println!("ASP rr {:.3}, hsp {:.3}", asp(0), asp(1));
    assert!(asp(1) > asp(0), "hsp gives fast cores to those that gain");
    let out = command(&["replay", &path, "--perfetto", "-"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(json["traceEvents"].as_array().unwrap().len() > 100);
}
