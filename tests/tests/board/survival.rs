//! What a scheduler lives through, and what nobody waits for meanwhile: programs of a provider that
//! are killed or hang, other users, silence, a deciding thread that is stuck, a full table of threads. One boot of the board.

use amp_tests::spun::{self, spun};
use amp_tests::{Lab, Reply};
use serde_json::Value;

const PROVIDER: &str = "kind = \"exec\"\ncommand = [\"/place\", \"answer\"]\n";

const SCRIPT: &str = r#"
state() { cat /sys/kernel/sched_ext/state; }
wait_for() { i=0; while [ "$(state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
ask() { scx_amp ctl status | tr -d '\n'; echo; }
# waits until a line of the status says $2
told() { i=0; until scx_amp ctl status | grep -q "$2" || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.05; done; [ $i -lt 300 ] && echo "$1 yes" || echo "$1 no"; }
program() { ps | awk '/[p]lace answer/ { print $1 }'; }
spin() { name=$1; shift; echo "spin-$name $(amp-workload bench spin --json "$@" | tr -d '\n')"; }
calm() { echo "calm-$1 $(state) $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*disabled' -e 'runnable task')"; }
sleep 2
scx_amp run --policy hsp --provider /p.toml 2>/tmp/log & pid=$!
wait_for enabled; answers

# what it may, once it schedules: every thread of it, and the program
echo "threads $(ls /proc/$pid/task | wc -l)"
for set in CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs; do
    echo "$set $(cat /proc/$pid/task/*/status | sed -n "s/^$set:[[:space:]]*//p" | sort -u | tr '\n' ' ')"
done
i=0; until [ -n "$(program)" ] || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.05; done
first=$(program)
echo "program $(sed -n 's/^CapEff:[[:space:]]*//p' /proc/$first/status) $(sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/$first/status)"

# the program is killed, and then hangs, beside load
spin provider --threads 8 --seconds 12 >/tmp/spin & load=$!
sleep 1
kill -KILL $first
told killed '"provider_failed": ".*it ended'
told killed-back '"provider_failed": ""'
second=$(program)
kill -STOP $second
told hung '"provider_failed": ".*it has said nothing for 2000 ms'
told hung-back '"provider_failed": ""'
third=$(program)
echo "programs $first $second $third"
[ -e /proc/$second ] && echo "left yes" || echo "left no"
wait $load; cat /tmp/spin
calm provider

# another user
cp "$(which scx_amp)" /tmp/; chmod 755 /tmp /tmp/scx_amp
echo 'nobody:x:65534:65534::/:/bin/sh' >>/etc/passwd; echo 'nogroup:x:65534:' >>/etc/group
user() { start-stop-daemon -S -c nobody:nogroup -x /tmp/scx_amp -- "$@" >/tmp/said 2>&1; echo "user-status $?"; echo "user $(tr '\n' ' ' </tmp/said)"; }
user ctl status
user ctl policy rr
user ctl set engine.probes=off
ask

# nobody decides for twelve seconds
kill -STOP $pid
sleep 1
spin silent --threads 8 --seconds 12
calm silent
kill -CONT $pid
sleep 1; answers; ask; sleep 1; ask
calm again
kill -INT $pid; wait $pid; echo "status $?"
sed 's/^/log /' /tmp/log

# the thread that decides is stuck for good, and hears of no signal
dmesg -c >/dev/null
scx_amp run --policy hsp --provider none --wedge-after 20 2>/tmp/wedged & pid=$!
wait_for enabled; sleep 4
spin wedged --threads 8 --seconds 12
calm wedged
scx_amp ctl status >/dev/null 2>/tmp/said; echo "wedged-answer $? $(cat /tmp/said)"
kill -TERM $pid; sleep 0.5; [ -e /proc/$pid ] && echo "wedged-once there" || echo "wedged-once gone"
kill -TERM $pid; wait $pid; echo "wedged-status $? $(state)"
scx_amp run --policy hsp --provider none --wedge-after 20 2>>/tmp/wedged & pid=$!
# nobody runs: after a second there are five decisions in two
wait_for enabled; sleep 8
kill -INT $pid; wait $pid; echo "wedged-status $? $(state)"
sed 's/^/wedged /' /tmp/wedged

# room for thirty threads more than there are
dmesg -c >/dev/null
n=$(ls -d /proc/[0-9]*/task/[0-9]* | wc -l)
scx_amp run --policy rr --provider none --slots $((n+30)) 2>/tmp/full & pid=$!
wait_for enabled; answers
spin full --threads 60 --seconds 6
calm full
ask
kill -INT $pid; wait $pid; echo "status $?"
sed 's/^/full /' /tmp/full
calm end
"#;

/// BPF, PERFMON, SYS_NICE, SYS_ADMIN, SYS_PTRACE, SETUID, SETGID, KILL, DAC_READ_SEARCH.
const KEPT: &str = "000000c000a800e4";
const NONE: &str = "0000000000000000";

/// Every thread ran at least `share` of the mean, and none waited longer than `most` ms.
fn nobody_starved(r: &Reply, name: &str, share: f64, most: f64) {
    let all = spun(r, &format!("spin-{name}"));
    let well = spun::least(&all) >= share * spun::mean(&all) && spun::longest_gap(&all) <= most;
    assert!(well, "{name}: {all:.0?}");
}

#[test]
fn the_scheduler_lives_through_what_others_do() {
    let r = Lab::board("juno")
        .program("place")
        .file("/p.toml", PROVIDER)
        .run(SCRIPT)
        .ok();
    let json = r.json();
    let [asked, back, later, full] = &json[..] else {
        panic!("{json:?}")
    };

    // rights
    assert!(r.line("threads").parse::<u32>().unwrap() > 3);
    assert_eq!((r.line("CapInh"), r.line("CapAmb")), (NONE, NONE));
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(r.line(set), KEPT, "{set}");
    }
    assert_eq!(r.line("NoNewPrivs"), "1");
    assert_eq!(r.line("program"), format!("{NONE} 1"));

    // the provider's program
    for what in ["killed", "killed-back", "hung", "hung-back"] {
        assert_eq!(r.line(what), "yes", "{what}");
    }
    let programs: Vec<u32> = r
        .line("programs")
        .split(' ')
        .map(|p| p.parse().unwrap())
        .collect();
    assert!(programs[0] != programs[1] && programs[1] != programs[2]);
    assert_eq!(r.line("left"), "no");
    nobody_starved(&r, "provider", 0.5, 1000.0);

    // the socket
    assert_eq!(r.lines("user-status").collect::<Vec<_>>(), ["1"; 3]);
    for said in r.lines("user") {
        assert!(said.contains("you are not root"), "{said}");
    }
    assert_eq!(
        (&asked["policy"], &asked["changes"]),
        (&"hsp".into(), &0.into())
    );

    // silence
    nobody_starved(&r, "silent", 0.5, 1000.0);
    assert_eq!(asked["fallbacks"], 0);
    assert_eq!(
        (&back["fallbacks"], &later["fallbacks"]),
        (&1.into(), &1.into())
    );
    let ticks = |s: &Value| s["ticks"].as_u64().unwrap();
    assert!(ticks(later) > ticks(back) && ticks(back) > ticks(asked));
    assert_eq!(later["provider_failed"], "");

    // nothing is decided any more
    nobody_starved(&r, "wedged", 0.5, 1000.0);
    let answer = r.line("wedged-answer");
    assert!(
        answer.starts_with("1 ") && answer.contains("too busy to answer"),
        "{answer}"
    );
    assert_eq!(r.line("wedged-once"), "there");
    assert_eq!(
        r.lines("wedged-status").collect::<Vec<_>>(),
        ["1 disabled"; 2]
    );
    for why in [
        "it was asked to end twice",
        "it has not heard that it is to end",
    ] {
        let said = r.lines("wedged").filter(|l| l.contains(why)).count();
        assert_eq!(said, 1, "{why}");
    }

    // the table of threads
    nobody_starved(&r, "full", 0.5, 1000.0);
    assert!(full["untracked"].as_u64().unwrap() >= 20, "{full}");
    let said = r
        .lines("full")
        .filter(|l| l.contains("more threads than can be placed"));
    assert_eq!(said.count(), 1);

    for when in ["provider", "silent", "again", "wedged", "full"] {
        assert_eq!(r.line(&format!("calm-{when}")), "enabled 0", "{when}");
    }
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["0"; 2]);
    assert!(r.line("calm-end").starts_with("disabled"));
}
