//! What users of hybrid schedulers complain of does not happen on the board, under any policy: one
//! boot per machine, the policies by turns.

use amp_sched::policy;
use amp_tests::Lab;
use serde_json::Value;

/// The same speedup factor for every thread, as for the threads of one program.
fn provider(threads: u32) -> String {
    (0..threads)
        .map(|i| format!("[[app]]\ncomm = \"amp-spin-{i}\"\nspeedup = 2.0\n"))
        .collect()
}

const START: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
sleep 5
scx_amp run --policy rr --provider /provider.toml 2>/tmp/log & pid=$!
wait_for enabled; answers
"#;

const END: &str = r#"
kill $pid; wait $pid; echo "status $?"
"#;

/// Milliseconds of virtual time that a big core may idle in one piece while a thread waits, or a
/// thread queue behind one while a little core idles.
const LONGEST_IDLE_MS: f64 = 20.0;

/// How long a burst and a crowd last.
const SECONDS: f64 = 0.7;

/// Part of that time that every CPU is busy in a burst.
const BUSY: f64 = 0.9;

/// How far the lone thread's share of time on big cores may be from all of it.
const LONE: f64 = 0.99;

fn per_cpu(spin: &Value, key: &str, cpus: std::ops::Range<u32>) -> Vec<f64> {
    cpus.map(|c| spin[key][c.to_string()].as_f64().unwrap() / 1e6)
        .collect()
}

fn longest(v: &[f64]) -> f64 {
    v.iter().copied().fold(0.0, f64::max)
}

/// Puts every policy through it on a machine whose CPUs below `big` are the big ones.
fn complaints(machine: &str, big: u32, cpus: u32) {
    let crowd = cpus + 2;
    let mut script = String::from(START);
    for name in policy::NAMES {
        script += &format!(
            "scx_amp ctl policy {name} >/dev/null || exit 1; sleep 0.5; echo 'policy {name}'
amp-workload bench spin --threads 1 --seconds 2 --json; sleep 0.3
amp-workload bench spin --threads {cpus} --seconds {SECONDS} --json; sleep 0.3
amp-workload bench spin --threads {crowd} --seconds {SECONDS} --json; sleep 0.3
"
        );
    }
    let r = Lab::board(machine)
        .file("/provider.toml", &provider(crowd))
        .run(&format!("{script}{END}"))
        .ok();
    assert_eq!(r.line("status"), "0");
    let spins: Vec<Value> = r
        .json()
        .into_iter()
        .filter(|j| j["bench"] == "spin")
        .collect();
    let mut wrong = Vec::new();
    for (name, spins) in policy::NAMES.iter().zip(spins.chunks(3)) {
        let [lone, burst, crowd] = spins else {
            panic!("{name}: three reports are missing");
        };
        let ran = per_cpu(lone, "ran_ns", 0..cpus);
        let on_big = ran[..big as usize].iter().sum::<f64>() / ran.iter().sum::<f64>();
        let ran = per_cpu(burst, "ran_ns", 0..cpus);
        let busy = ran.iter().copied().fold(f64::MAX, f64::min) / (SECONDS * 1e3);
        let idle_big = per_cpu(crowd, "longest_idle_while_waiting_ns", 0..big);
        let idle_little = per_cpu(crowd, "longest_idle_while_waiting_ns", big..cpus);
        let burst_idle = longest(&per_cpu(burst, "longest_idle_while_waiting_ns", 0..cpus));
        println!(
            "{machine} {name}: lone thread {:.2} % on big; burst: least busy CPU {:.1} % of the time, idle while one waits \
             at most {burst_idle:.1} ms; crowd: big {:.1} ms, little {:.1} ms",
            on_big * 100.0,
            busy * 100.0,
            longest(&idle_big),
            longest(&idle_little)
        );
        for (ok, what) in [
            (on_big >= LONE, "a lone thread was not on a big core"),
            (busy >= BUSY, "a burst did not use every CPU"),
            (
                burst_idle <= LONGEST_IDLE_MS,
                "a CPU idled during the burst",
            ),
            (
                longest(&idle_big) <= LONGEST_IDLE_MS,
                "a big core idled while a thread waited",
            ),
            (
                longest(&idle_little) <= LONGEST_IDLE_MS,
                "a core was oversubscribed while a little one idled",
            ),
        ] {
            if !ok {
                wrong.push(format!("{name}: {what}"));
            }
        }
    }
    assert_eq!(spins.len(), 3 * policy::NAMES.len());
    assert!(wrong.is_empty(), "{machine}: {wrong:#?}");
}

#[test]
fn on_juno() {
    complaints("juno", 2, 6);
}

#[test]
fn on_quickia() {
    complaints("quickia", 2, 4);
}
