//! `scx_amp` as it comes, its profiles and its configuration.

use amp_board::KernelChoice;
use amp_tests::{dependency, Lab};

const WAIT: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
ask() { scx_amp ctl status | tr -d '\n'; echo; }
"#;

/// Nothing said, then one profile after the other; a file of one's own; what is refused.
const SCRIPT: &str = r#"
sleep 2
scx_amp 2>/tmp/log & pid=$!
wait_for enabled; answers
amp-workload bench spin --threads 6 --seconds 6 >/dev/null & load=$!
ask
for p in throughput fair latency battery server /mine.toml; do
    scx_amp ctl profile $p >/dev/null 2>/tmp/e; echo "profile-status $?"
    ask
done
for bad in sever /bad.toml /no.toml; do
    scx_amp ctl profile $bad 2>/tmp/e; echo "bad-status $?"; echo "bad $(tr '\n' ' ' </tmp/e)"
done
ask
scx_amp ctl policy rr >/dev/null
ask
wait $load
kill $pid; wait $pid; echo "status $?"
echo "said $(tr '\n' ' ' </tmp/log)"
mkdir -p /etc/scx_amp
printf 'profile = "server"\nset = ["pareto.unfairness=1.5"]\n' >/etc/scx_amp/config.toml
scx_amp config check; echo "check $?"
scx_amp run 2>/dev/null & pid=$!
wait_for enabled; answers
ask
kill $pid; wait $pid
scx_amp run --profile fair 2>/dev/null & pid=$!
wait_for enabled; answers
ask
kill $pid; wait $pid
printf 'profile = "server"\nintervall = 50\n' >/etc/scx_amp/config.toml
scx_amp 2>/tmp/e; echo "bad-status $?"; echo "bad $(tr '\n' ' ' </tmp/e)"
"#;

const MINE: &str = "about = \"mine\"\npolicy = \"eqp\"\nprovider = \"none\"\ninterval = 50\n";

#[test]
fn without_arguments_it_is_right_and_profiles_change_it() {
    let r = Lab::board("juno")
        .file("/mine.toml", MINE)
        .file("/bad.toml", &MINE.replace("eqp", "epq"))
        .run(&format!("{WAIT}{SCRIPT}"))
        .ok();
    let json = r.json();
    let seen: Vec<String> = json
        .iter()
        .filter(|j| j["ticks"].is_u64())
        .map(|s| {
            let text = |k: &str| s[k].as_str().unwrap_or_default().to_owned();
            let ms = &s["interval_ms"];
            format!(
                "{} {} {} {ms}",
                text("profile"),
                text("policy"),
                text("provider")
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            "auto hsp juno 100",
            "throughput hsp juno 100",
            "fair acfs juno 100",
            "latency rr none 25",
            "battery ef juno 100",
            "server pareto juno 100",
            "/mine.toml eqp none 50",
            "/mine.toml eqp none 50",
            " rr none 50",
            "server pareto juno 100",
            "fair acfs juno 100",
        ]
    );
    assert!(r.lines("profile-status").all(|s| s == "0"));
    assert_eq!(r.lines("bad-status").collect::<Vec<_>>(), ["2"; 4]);
    let bad: Vec<&str> = r.lines("bad").collect();
    for (said, wants) in bad.iter().zip([
        "did you mean `server`?",
        "/bad.toml: line 2: key `policy`: unknown policy `epq`",
        "/no.toml",
        "/etc/scx_amp/config.toml: line 2: key `intervall`",
    ]) {
        assert!(said.contains(wants), "{said}");
    }
    assert_eq!((r.line("status"), r.line("check")), ("0", "0"));
    let said = r.line("said");
    assert!(said.contains("provider auto: `juno`"), "{said}");
    assert!(
        said.contains("policy `eqp` needs SF, and provider `none` knows none"),
        "{said}"
    );
    let unfairness: Vec<&str> = json
        .iter()
        .filter(|j| j["policy"] == "pareto")
        .filter_map(|j| j["knobs"]["unfairness"].as_str())
        .collect();
    assert_eq!(unfairness, ["1.2", "1.5"]);
}

#[test]
fn where_all_cores_are_alike_it_steps_aside() {
    let script = r#"
scx_amp 2>/tmp/e; echo "bare $?"; echo "said $(tr '\n' ' ' </tmp/e)"
scx_amp run --if-hybrid 2>/tmp/e; echo "unit $?"; echo "said $(tr '\n' ' ' </tmp/e)"
echo "state $(cat /sys/kernel/sched_ext/state)"
scx_amp run --policy hsp 2>/tmp/e & pid=$!
wait_for enabled; echo "asked $(cat /sys/kernel/sched_ext/state)"
kill $pid; wait $pid; echo "said $(tr '\n' ' ' </tmp/e)"
"#;
    let r = Lab::x86(KernelChoice::Newest)
        .run(&format!("{WAIT}{script}"))
        .ok();
    assert_eq!((r.line("bare"), r.line("unit")), ("1", "0"));
    assert_eq!((r.line("state"), r.line("asked")), ("disabled", "enabled"));
    for said in r.lines("said") {
        assert!(said.contains("--big-cpus"), "{said}");
    }
    let last = r.lines("said").last().unwrap();
    assert!(
        last.contains("policy `hsp` needs SF, and provider `declared` knows none"),
        "{last}"
    );
}

/// Seven spinners on two fast and four slow cores. The policy alone would have all of them take
/// turns on the fast ones.
const RULES: &str = r#"
sleep 2
mkdir -p /sys/fs/cgroup/left.slice
scx_amp run --policy rr --provider none --rules /rules.toml --exclude-cgroup left.slice 2>/tmp/log & pid=$!
wait_for enabled
spin() { amp-workload bench spin --threads 2 --name $1 --seconds 8 >/dev/null & loads="$loads $!"; }
spin first; spin second; spin third
(echo $BASHPID >/sys/fs/cgroup/left.slice/cgroup.procs; exec amp-workload bench spin --name left --threads 1 --seconds 8) >/dev/null & loads="$loads $!"
sleep 4
ask
scx_amp top --once | sed 's/^/top /'
# at once, as editors do: the scheduler may look between a file's emptying and its writing
printf '[[rule]]\ncomm = "first*"\nprefer = "fsat"\n' >/rules.new; mv /rules.new /rules.toml
sleep 1.5
ask
wait $loads
kill $pid; wait $pid; echo "status $?"
echo "said $(tr '\n' ' ' </tmp/log)"
scx_amp run --rules /rules.toml 2>/tmp/e; echo "bad-status $?"; echo "bad $(tr '\n' ' ' </tmp/e)"
scx_amp run --exclude-cgroup nobody.slice 2>/tmp/e; echo "bad-status $?"; echo "bad $(tr '\n' ' ' </tmp/e)"
"#;

const RULE_FILE: &str = r#"
[[rule]]
comm = "first*"
prefer = "fast"
[[rule]]
exe = "**/amp-workload"
comm = "second*"
never = "fast"
"#;

#[test]
fn rules_place_programs_whatever_the_policy_thinks() {
    let r = Lab::board("juno")
        .file("/rules.toml", RULE_FILE)
        .run(&format!("{WAIT}{RULES}"))
        .ok();
    let json = r.json();
    let seen: Vec<&serde_json::Value> = json.iter().filter(|j| j["ticks"].is_u64()).collect();
    assert_eq!(seen.len(), 2);
    for status in &seen {
        let of = |name: &str, key: &str| -> Vec<String> {
            let all = status["per_thread"].as_array().unwrap().iter();
            all.filter(|t| t["comm"].as_str().is_some_and(|c| c.starts_with(name)))
                .map(|t| t[key].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(of("first-", "placed"), ["big"; 2]);
        assert_eq!(of("first-", "rule"), ["1: prefer fast"; 2]);
        assert_eq!(of("second-", "placed"), ["little"; 2]);
        assert_eq!(of("second-", "rule"), ["2: never fast"; 2]);
        assert_eq!(of("third-", "rule"), [""; 2]);
        assert_eq!(of("left-", "placed"), [""]);
        assert_eq!(of("left-", "rule"), ["0: not placed"]);
    }
    let wrong = "/rules.toml: line 3: key `rule[0].prefer`";
    assert_eq!(seen[0]["rules_failed"], "");
    assert!(
        seen[1]["rules_failed"].as_str().unwrap().contains(wrong),
        "{}",
        seen[1]
    );
    assert!(
        r.line("said").contains("the rules before hold on"),
        "{}",
        r.line("said")
    );
    assert!(r.lines("top").any(|l| l.contains("prefer fast")));
    assert_eq!(r.line("status"), "0");
    assert_eq!(r.lines("bad-status").collect::<Vec<_>>(), ["2"; 2]);
    let bad: Vec<&str> = r.lines("bad").collect();
    assert!(
        bad[0].contains(wrong) && bad[1].contains("nobody.slice"),
        "{bad:?}"
    );
}

/// Four spinners on a machine of two fast and two slow CPUs, with factors as a file says.
const FIGURES: &str = r#"
ip link set lo up
for n in 0 1 2 3; do printf '[[app]]\ncomm = "spin-%s"\nspeedup = 2.0\n' $n; done >/tmp/sf.toml
scx_amp run --big-cpus 0-1 --policy rr --provider /tmp/sf.toml --metrics 9464 2>/tmp/log & pid=$!
wait_for enabled
amp-workload bench spin --threads 4 --name spin --seconds 60 >/dev/null & load=$!
sleep 6
echo "status $(scx_amp ctl status | tr -d '\n')"
wget -q -O - http://127.0.0.1:9464/metrics | sed 's/^/scrape /'
scx_amp run --monitor 1 >/tmp/monitor & monitor=$!
i=0; until [ -s /tmp/monitor ] || [ $i -ge 500 ]; do i=$((i+1)); sleep 0.1; done
kill $monitor; wait $monitor; sed 's/^/monitor /' /tmp/monitor
# on a terminal of tmux: what is seen, and keys
export LC_ALL=C.UTF-8
screen() { tmux capture-pane -p -t top >/tmp/screen; }
sees() { i=0; until screen; grep -q "$1" /tmp/screen || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done; sed "s/^/$2 /" /tmp/screen; }
tmux -u new-session -d -s top -x 80 -y 24 'scx_amp top'
sees spin-3 screen
# a key right behind Escape would be another key
key() { tmux send-keys -t top "$1"; sleep 1; }
key '?'; sees 'keys and columns' help
key Escape; key p; sees acfs policies
key Escape; key q
i=0; while tmux has-session -t top 2>/dev/null && [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done
tmux has-session -t top 2>/dev/null && echo "top stays" || echo "top ended"
kill $load
# scx's own script goes on until it is killed
python3 /scxstats_to_openmetrics.py --intv 0.5 >/tmp/upstream 2>/tmp/upstream-said & upstream=$!
i=0; until grep -q ^amp_ /tmp/upstream || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done
kill $upstream; wait $upstream
sed 's/^/upstream /' /tmp/upstream; sed 's/^/upstream-said /' /tmp/upstream-said
kill $pid; wait $pid; echo "ended $?"
ls /var/run/scx/root/ | sed 's/^/left /'
"#;

#[test]
fn figures_are_where_tools_look_for_them() {
    let script = dependency("scx_stats").join("scripts/scxstats_to_openmetrics.py");
    let r = Lab::x86(KernelChoice::Newest)
        .package("libc-bin")
        .package("tmux")
        .package("python3")
        .package("python3-prometheus-client")
        .host_file("/scxstats_to_openmetrics.py", &script)
        .run(&format!("{WAIT}{FIGURES}"))
        .ok();
    let status: serde_json::Value = serde_json::from_str(r.line("status")).unwrap();
    let cpus = status["cpus"].as_array().unwrap();
    let types: Vec<&str> = cpus
        .iter()
        .map(|c| c["core_type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["big", "big", "little", "little"]);
    // whoever answers has a CPU, and so has whoever asked
    let spins = |c: &&serde_json::Value| c["comm"].as_str().unwrap().starts_with("spin-");
    assert!(cpus.iter().any(|c| spins(&c)), "{cpus:?}");
    let threads = status["per_thread"].as_array().unwrap().iter();
    let mut rated = 0;
    for t in threads.filter(|t| t["rated_s"].as_f64() > Some(0.0)) {
        let (rated_s, alone_s) = (
            t["rated_s"].as_f64().unwrap(),
            t["alone_s"].as_f64().unwrap(),
        );
        // all of it on fast cores at best, all of it on slow ones at worst
        assert!(alone_s <= rated_s && rated_s <= 2.0 * alone_s + 1e-9, "{t}");
        rated += 1;
    }
    assert!(rated >= 4, "{rated}");
    let scrape: Vec<&str> = r.lines("scrape").collect();
    assert_eq!(*scrape.last().unwrap(), "# EOF");
    for wants in [
        "scx_amp_cpus{core_type=\"big\"} 2.0",
        "scx_amp_scheduler_info{",
        "scx_amp_program_slowdown{program=\"spin-",
    ] {
        assert!(
            scrape.iter().any(|l| l.starts_with(wants)),
            "{wants}: {scrape:?}"
        );
    }
    let lines: Vec<&str> = r.lines("monitor").collect();
    assert!(lines.first().is_some_and(|l| l.contains("rr")), "{lines:?}");
    let screen: Vec<&str> = r.lines("screen").collect();
    println!("{}", screen.join("\n"));
    for line in &screen {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for (key, wants) in [
        ("screen", "policy rr"),
        ("screen", "little"),
        ("help", "keys and columns"),
        ("policies", "acfs"),
    ] {
        let shown: Vec<&str> = r.lines(key).collect();
        assert!(shown.iter().any(|l| l.contains(wants)), "{key}: {shown:#?}");
    }
    assert_eq!(r.line("top"), "ended");
    let upstream: Vec<&str> = r.lines("upstream").collect();
    for wants in [
        "# HELP amp_ticks ",
        "amp_provider_working 1.0",
        "amp_core_cpus{core_type=\"big\"} 2.0",
        "amp_program_threads{program=\"python3\"}",
    ] {
        assert!(
            upstream.iter().any(|l| l.starts_with(wants)),
            "{wants}: {upstream:?} {:?}",
            r.lines("upstream-said").collect::<Vec<_>>()
        );
    }
    assert_eq!((r.line("ended"), r.lines("left").count()), ("0", 0));
}

/// With four seconds between two decisions, of which an eighth is waited for others.
#[test]
fn who_comes_is_placed_long_before_the_next_decision_is_due() {
    const SCRIPT: &str = r#"
sleep 2
scx_amp run --policy hsp --provider /speeds.toml --interval 4000 2>/tmp/log & pid=$!
wait_for enabled; answers
for i in 1 2 3; do
    sleep 1.$i
    amp-workload run hash --size 8M --work 1000G >/dev/null & load=$!
    sleep 1.2
    ask
    kill $load; wait $load
done
kill $pid; wait $pid; echo "status $?"
"#;
    const SPEEDS: &str = "kind = \"declared\"\n[[app]]\ncomm = \"amp-hash\"\nspeedup = 3.2\n";
    let r = Lab::pair()
        .file("/speeds.toml", SPEEDS)
        .run(&format!("{WAIT}{SCRIPT}"))
        .ok();
    assert_eq!(r.line("status"), "0");
    let json = r.json();
    let seen: Vec<_> = json.iter().filter(|j| j["ticks"].is_u64()).collect();
    assert_eq!(seen.len(), 3);
    for s in seen {
        let threads = s["per_thread"].as_array().unwrap();
        let load = threads.iter().find(|t| t["comm"] == "amp-hash");
        // it was decided on by its factor half a second after it came; its place is shown by the next look
        assert!(load.unwrap()["rated_s"].as_f64().unwrap() > 0.3, "{s}");
    }
}

/// The daemons of a desktop, as Debian has them, on a system bus of the guest. Maintainer scripts do not run there.
const POWER_DAEMONS: &str = r#"
ip link set lo up
for who in root:0 messagebus:101 polkitd:102; do
    n=${who%:*}; id=${who#*:}
    grep -q "^$n:" /etc/passwd || { echo "$n:x:$id:$id::/:/bin/sh" >>/etc/passwd; echo "$n:x:$id:" >>/etc/group; }
done
mkdir -p /run/dbus /var/lib/power-profiles-daemon /var/lib/upower /var/lib/polkit-1
[ -e /var/run ] || ln -s /run /var/run
dbus-uuidgen >/etc/machine-id
dbus-daemon --system --fork
/usr/lib/polkit-1/polkitd --no-debug >/tmp/polkitd 2>&1 &
# power-profiles-daemon asks whoever has the name when it starts
has_owner="dbus-send --system --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner"
i=0; until $has_owner string:org.freedesktop.PolicyKit1 | grep -q true || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done
/usr/libexec/upowerd >/tmp/upowerd 2>&1 &
/usr/libexec/power-profiles-daemon >/tmp/ppd 2>&1 & ppd=$!
i=0; until powerprofilesctl get >/tmp/first 2>&1 || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.2; done
echo "first $(cat /tmp/first)"
scx_amp run --big-cpus 0-1 --autopower 2>/tmp/log & pid=$!
wait_for enabled; answers
becomes() { i=0; until ask | grep -q "\"profile\": *\"$1\"" || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done; ask; }
becomes auto
powerprofilesctl set power-saver; echo "set $?"; becomes battery
powerprofilesctl set balanced; echo "set $?"; becomes auto
powerprofilesctl set power-saver; echo "set $?"; becomes battery
kill $ppd; becomes auto
kill $pid; wait $pid; echo "ended $?"
sed 's/^/said /' /tmp/log
"#;

#[test]
fn power_profiles_daemon_is_followed() {
    let r = Lab::x86(KernelChoice::Newest)
        .package("dbus")
        .package("polkitd")
        .package("power-profiles-daemon")
        .package("upower")
        .package("python3-gi")
        .run(&format!("{WAIT}{POWER_DAEMONS}"))
        .ok();
    assert_eq!(r.line("first"), "balanced");
    let json = r.json();
    let seen: Vec<(&str, &str)> = json
        .iter()
        .filter(|j| j["ticks"].is_u64())
        .map(|j| {
            let text = |key: &str| j[key].as_str().unwrap();
            (text("profile"), text("policy"))
        })
        .collect();
    let (auto, battery) = (("auto", "hsp"), ("battery", "ef"));
    let said: Vec<&str> = r.lines("said").collect();
    assert_eq!(seen, [auto, battery, auto, battery, auto], "{said:#?}");
    assert_eq!(r.lines("set").collect::<Vec<_>>(), ["0"; 3]);
    assert_eq!(r.line("ended"), "0");
}
