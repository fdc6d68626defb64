//! Threads of a higher scheduling class take a CPU away: whoever ran there goes on elsewhere, and
//! the kernel has no reason to eject the scheduler.

use amp_board::KernelChoice;
use amp_tests::{Lab, Reply};

/// A spinner on CPUs 2 and 3, and after a second a `SCHED_FIFO` thread on whichever of the two it
/// runs on. `SECONDS` is how long that one spins.
const SCRIPT: &str = r#"
i=0; while [ ! -e /sys/kernel/sched_ext/state ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done
scx_amp run --policy acfs --provider none 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
taskset -c 2,3 amp-workload bench spin --name victim --seconds TOTAL --json >/tmp/spin & spin=$!
sleep 1
# field 39 of the thread that spins: the CPU it is on
cpu=
until [ -n "$cpu" ]; do sleep 0.1; cpu=$(awk '/victim/ {print $39}' /proc/$spin/task/*/stat); done
echo "hog-on $cpu"
chrt -f 50 taskset -c $cpu amp-workload bench spin --name hog --seconds SECONDS >/dev/null
wait $spin
cat /tmp/spin
echo "attached $(cat /sys/kernel/sched_ext/state)"
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*disabled')"
kill $pid; wait $pid; echo "status $?"
cat /tmp/log
"#;

/// Runs it; the spinner's CPU time over the time that passed, and its longest gap in ms.
fn beside_a_hog(lab: Lab, seconds: u32) -> (f64, f64) {
    let script = SCRIPT
        .replace("TOTAL", &(seconds + 2).to_string())
        .replace("SECONDS", &seconds.to_string());
    let r: Reply = lab.package("util-linux").run(&script).ok();
    assert!(
        ["2", "3"].contains(&r.line("hog-on")),
        "{}",
        r.line("hog-on")
    );
    let json = r.json();
    let spin = json
        .iter()
        .find(|j| j["bench"] == "spin")
        .expect("a report");
    let on = spin["cpu_ms"][0].as_array().unwrap();
    let ran: f64 = on.iter().map(|ms| ms.as_f64().unwrap()).sum();
    let share = ran / (f64::from(seconds + 2) * 1e3);
    let gap = spin["longest_gap_ns"][0].as_f64().unwrap() / 1e6;
    println!(
        "{}: {share:.3} of the time, longest gap {gap:.1} ms",
        r.0.kernel.release
    );
    assert_eq!(
        (r.line("attached"), r.line("stalls"), r.line("status")),
        ("enabled", "0", "0")
    );
    (share, gap)
}

/// On a kernel where nothing but `ops.cpu_release` speaks of a CPU that is lost.
#[test]
fn on_6_18_a_spinner_leaves_the_cpu_that_a_real_time_thread_takes() {
    let (share, _) = beside_a_hog(Lab::x86(KernelChoice::Version("6.18".into())), 12);
    assert!(share >= 0.95, "{share}");
}

/// On a kernel that lets an ext thread have 5 % of a CPU full of real-time threads.
#[test]
fn on_7_0_a_spinner_leaves_the_cpu_that_a_real_time_thread_takes() {
    let (share, _) = beside_a_hog(Lab::x86(KernelChoice::Version("7.0".into())), 12);
    assert!(share >= 0.95, "{share}");
}

#[test]
fn on_the_newest_x86_kernel_a_spinner_leaves_the_cpu_that_a_real_time_thread_takes() {
    let (share, _) = beside_a_hog(Lab::x86(KernelChoice::Newest), 12);
    assert!(share >= 0.95, "{share}");
}

/// The board's clock is virtual, so that the gap is the scheduler's alone.
#[test]
fn on_the_board_a_spinner_is_back_within_100_milliseconds() {
    let (share, gap) = beside_a_hog(Lab::board("juno"), 4);
    assert!(share >= 0.95 && gap <= 100.0, "{share}, {gap} ms");
}
