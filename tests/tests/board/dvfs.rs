//! Clocks that the guest's kernel sets: what they cost, and who asks for which.

use amp_tests::Lab;
use serde_json::Value;

/// How far energy by the kernel's energy model may be from its power times the time that the program ran:
/// what else runs on those CPUs, and a tick at either end.
const BY_MODEL: f64 = 0.06;

/// Programs alone on a core at its slowest and at its fastest clock, and what the kernel's energy
/// model says of them.
const ALONE: &str = r#"
for domain in 0 2; do
    policy=/sys/devices/system/cpu/cpufreq/policy$domain
    echo "driver $(cat $policy/scaling_driver) $(cat $policy/scaling_governor)"
    for khz in $(cat $policy/cpuinfo_min_freq) $(cat $policy/cpuinfo_max_freq); do
        echo "power $(cat /sys/kernel/debug/energy_model/cpu$domain/ps:$khz/power)"
        echo $(cat $policy/cpuinfo_min_freq) >$policy/scaling_min_freq
        echo $khz >$policy/scaling_max_freq
        echo $khz >$policy/scaling_min_freq
        # the governor sets a clock when somebody runs there
        amp-workload run alu --work 100k --pin $((domain + 1)) >/dev/null
        echo "clock $(cat $policy/scaling_cur_freq)"
        amp-workload run alu --work 2M --pin $((domain + 1)) --count --json
        for again in 1 2 3; do amp-workload run chase --size 8M --work 120k --pin $((domain + 1)) --count --json; done
    done
done
# without the board's page nothing measures energy
mkdir /none
scx_amp pmc stat -V energy --json /measured.json -- amp-workload run alu --work 40M --pin 1 || exit 1
mount --bind /none /sys/bus/pci/devices
for cpu in 1 3; do
    scx_amp pmc stat -V energy -e task-clock --json /modelled-$cpu.json -- amp-workload run alu --work 40M --pin $cpu || exit 1
done
# who hands over the files finds his device there
umount /sys/bus/pci/devices
echo "capacities $(cat /sys/devices/system/cpu/cpu0/cpu_capacity) $(cat /sys/devices/system/cpu/cpu2/cpu_capacity)"
"#;

#[test]
fn a_slower_clock_takes_time_and_saves_energy() {
    let mut lab = Lab::board("juno").dvfs();
    for file in ["/measured.json", "/modelled-1.json", "/modelled-3.json"] {
        lab = lab.collect(file);
    }
    let r = lab.run(ALONE).ok();
    let drivers: Vec<&str> = r.lines("driver").collect();
    assert_eq!(drivers, ["qcom-cpufreq-hw schedutil"; 2]);
    let clocks: Vec<f64> = r.lines("clock").map(|c| c.parse().unwrap()).collect();
    assert_eq!(clocks, [450e3, 1100e3, 450e3, 850e3]);
    // published for Juno: 168 and 616 mW, 33 and 93
    let power: Vec<f64> = r.lines("power").map(|p| p.parse().unwrap()).collect();
    assert_eq!(power.len(), clocks.len());
    for (uw, mw) in power.iter().zip([168.0, 616.0, 33.0, 93.0]) {
        assert!((uw / 1e3 / mw - 1.0).abs() < 0.01, "{power:?}");
    }
    assert_eq!(r.line("capacities"), "1024 445");
    // Of each clock the computing program, and of the others the one in whose time the kernel did least: what it does there now and
    // then, of all instructions up to a half, is no matter of clocks.
    let all = r.json();
    let least = |runs: &[Value]| {
        let by = |run: &&Value| run["model"]["instructions"].as_u64();
        runs.iter().min_by_key(by).cloned().expect("runs")
    };
    let json: Vec<Value> = all
        .chunks(4)
        .flat_map(|runs| [runs[0].clone(), least(&runs[1..])])
        .collect();
    assert_eq!(json.len(), 8);
    let of = |i: usize, name: &str| {
        let run: &Value = &json[i];
        let value = if name == "wall_ns" {
            &run[name]
        } else {
            &run["model"][name]
        };
        value.as_f64().unwrap()
    };
    for (core, voltages) in [(0, 0.816), (1, 0.819)] {
        let slower = clocks[2 * core + 1] / clocks[2 * core];
        // of each clock: the computing program, the one that waits for memory
        let [slow, fast] = [4 * core, 4 * core + 2];
        let ratio = |program: usize, name| of(slow + program, name) / of(fast + program, name);
        let [time, cycles] = ["wall_ns", "cycles"].map(|n| ratio(0, n));
        println!("core type {core}: clock 1/{slower:.3}, computing: time {time:.3}, cycles {cycles:.3}, energy {:.3}; waiting: time {:.3}, cycles {:.3}",
            ratio(0, "energy_uj"), ratio(1, "wall_ns"), ratio(1, "cycles"));
        assert!((time / slower - 1.0).abs() < 0.05, "{time}");
        assert!((cycles - 1.0).abs() < 0.05, "{cycles}");
        // idle power is a part of it, and does not depend on the clock
        let energy = ratio(0, "energy_uj");
        assert!(
            (energy / (voltages * voltages) - 1.0).abs() < 0.1,
            "{energy}"
        );
        // 1.09 to 1.19, and 0.45 to 0.63, in ten runs on each core
        assert!(ratio(1, "wall_ns") < 1.3);
        assert!(ratio(1, "cycles") < 0.75);
        // and the kernel counts the same cycles as the board
        for (i, run) in json.iter().enumerate().skip(slow).take(4) {
            let counted = run["perf"]["cycles"].as_f64().unwrap();
            assert!((counted / of(i, "cycles") - 1.0).abs() < 0.02, "{counted}");
        }
    }
    let watts = [(1, "big", power[1] * 1e-6), (3, "little", power[3] * 1e-6)];
    let energy = |file: &str, t: &str| {
        let report: Value = serde_json::from_str(&r.file(file)).expect(file);
        let counters = report["virtual_counters"].as_array().unwrap();
        let found = counters.iter().find(|c| c["of"] == t).unwrap();
        let clock = report["counts"].as_array().unwrap().iter();
        let ran: f64 = clock
            .filter(|c| c["event"] == "task-clock")
            .filter_map(|c| c["count"].as_f64())
            .sum();
        let source = found["source"].as_str().unwrap().to_owned();
        (source, found["value"].as_f64().unwrap(), ran * 1e-9)
    };
    let (source, measured, _) = energy("/measured.json", "big");
    assert_eq!(source, "board");
    for (cpu, core_type, watts) in watts {
        let (source, joules, ran) = energy(&format!("/modelled-{cpu}.json"), core_type);
        println!("{core_type}: {joules:.4} J by the energy model, {watts} W for {ran:.3} s");
        assert_eq!(source, "energy-model");
        assert!(ran > 0.5, "{ran} s");
        assert!((joules / (watts * ran) - 1.0).abs() < BY_MODEL, "{joules}");
    }
    let (_, by_model, _) = energy("/modelled-1.json", "big");
    // the board's time is eight times juno's, and its page has juno's joules
    println!(
        "big: {measured:.4} J measured, {:.4} J by the energy model",
        by_model / 8.0
    );
}

/// What the fast cores' clock is while nobody runs there, somebody who always runs, and somebody who
/// runs a part of the time: under the scheduler, and with what it is told meanwhile. Who looks runs
/// on slow cores.
const FOLLOWS: &str = r#"
taskset -p 3c $$ >/dev/null
clock() { echo "$1 $(cat /sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq)"; }
interactive() { taskset 1 amp-workload run interactive --inner fp --step 2k --pause 50 --work 10000 >/dev/null & some=$!; }
interactive
sleep 1
clock kernel-some
kill $some
scx_amp run --policy rr --provider none 2>/tmp/log & pid=$!
i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
sleep 2
clock idle
taskset 2 amp-workload run alu --work 1000G >/dev/null & busy=$!
sleep 0.2
clock busy
kill $busy
interactive
sleep 1
clock some
scx_amp ctl profile latency >/dev/null
sleep 1
clock latency
scx_amp ctl profile auto >/dev/null
sleep 1
clock auto
kill $some
echo "says $(scx_amp ctl status | grep -o '"cpufreq": *"[a-z]*"')"
kill $pid; wait $pid; echo "end $?"
"#;

#[test]
fn clocks_follow_load() {
    let r = Lab::board("juno").dvfs().run(FOLLOWS).ok();
    let khz = |what: &str| -> u32 { r.line(what).parse().unwrap() };
    for what in ["kernel-some", "idle", "busy", "some", "latency", "auto"] {
        println!("{what}: {} kHz", khz(what));
    }
    assert_eq!((khz("idle"), khz("busy")), (450_000, 1_100_000));
    for what in ["some", "auto"] {
        assert!(khz(what) <= khz("kernel-some").max(625_000), "{what}");
    }
    assert_eq!(khz("latency"), 1_100_000);
    assert!(r.line("says").contains("load"), "{}", r.line("says"));
    assert_eq!(r.line("end"), "0");
}

/// A limit on the fast cores' clock, as a cooling device or a user sets it.
const LIMITED: &str = r#"
policy=/sys/devices/system/cpu/cpufreq/policy0
scx_amp run --policy hsp --provider none 2>/tmp/log & pid=$!
answers
# a busy machine ticks as it should
for i in 1 2; do amp-workload run alu --work 1000G >/dev/null & pids="$pids $!"; done
status() { scx_amp ctl status | tr -d '\n'; echo; }
look() { sleep 1; echo "limit $(cat $policy/scaling_max_freq)"; status; }
most=$(cat $policy/scaling_max_freq)
look
echo 625000 >$policy/scaling_max_freq
look
echo $most >$policy/scaling_max_freq
look
scx_amp ctl provider thread-director; echo "taken $?"
sleep 0.5
status
kill $pids
kill $pid; wait $pid; echo "end $?"
"#;

#[test]
fn a_limit_of_clocks_is_followed() {
    let r = Lab::board("juno").dvfs().run(LIMITED).ok();
    let limits: Vec<&str> = r.lines("limit").collect();
    assert_eq!(limits, ["1100000", "625000", "1100000"]);
    let mut json = r.json();
    json.retain(|j| j.get("capacities").is_some());
    let of = |s: &Value, t: &str| s["capacities"][t].as_u64().unwrap();
    let big: Vec<u64> = json.iter().map(|s| of(s, "big")).collect();
    // 1024 · 625 / 1100
    assert_eq!(big, [1024, 582, 1024, 1024]);
    for s in &json {
        assert_eq!(of(s, "little"), 445, "{s}");
        assert_eq!(s["virtual_counters"]["clock_limit_ratio little"], 1.0);
    }
    // the kernel passes on what hardware says of itself; this one has nothing to say
    assert_eq!(r.line("taken"), "0");
    assert_eq!(json[3]["provider"], "thread-director");
    let failed = json[3]["provider_failed"].as_str().unwrap();
    assert!(
        failed.starts_with("the hardware has not said yet"),
        "{failed}"
    );
    assert_eq!(r.line("end"), "0");
}
