//! The systemd unit, under systemd in a guest: what it confines the scheduler to is enough to
//! schedule and count, and what ends the scheduler is answered as the unit says.

use amp_tests::{repository, Lab, Reply};

/// Runs inside systemd; what it finds goes to `/found`.
const TRIAL: &str = r#"#!/bin/sh
. /path
exec >/found 2>&1
state() { cat /sys/kernel/sched_ext/state; }
wait_for() { i=0; while [ "$(state)" != $1 ] && [ $i -lt 300 ]; do i=$((i+1)); sleep 0.1; done; state; }
show() { systemctl show -P $1 scx_amp; }
options() {
    printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/scx_amp run %s\n' "$*" >/etc/systemd/system/scx_amp.service.d/test.conf
    systemctl daemon-reload; systemctl reset-failed
}
answers() { i=0; until scx_amp ctl status >/tmp/status 2>/dev/null || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done; }

options --policy hsp --provider auto
systemctl start scx_amp; echo "up $(state)"; echo "says $(show StatusText)"
answers; sleep 1; scx_amp ctl status >/tmp/status
echo "provider $(grep -c '"provider": "juno"' /tmp/status)"
echo "counted $(grep -c '"uncounted": ""' /tmp/status)"
pid=$(show MainPID)
echo "capabilities $(sed -n 's/^CapEff:[[:space:]]*//p' /proc/$pid/status)"
echo "filtered $(sed -n 's/^Seccomp:[[:space:]]*//p' /proc/$pid/status)"
echo "folder $(stat -c %a /run/scx_amp)"

kill -KILL $pid; wait_for disabled >/dev/null
echo "again $(wait_for enabled)"; echo "restarts $(show NRestarts)"
systemctl stop scx_amp; echo "stopped $(wait_for disabled)"
[ -e /run/scx_amp ] && echo "left folder" || echo "left nothing"

# decisions that stand still
printf '[Service]\nWatchdogSec=5\n' >/etc/systemd/system/scx_amp.service.d/watchdog.conf
options --policy rr --wedge-after 20
systemctl start scx_amp; pid=$(show MainPID)
i=0; while [ "$(show NRestarts)" = 0 ] && [ $i -lt 300 ]; do i=$((i+1)); sleep 0.1; done
echo "stuck $([ -e /proc/$pid ] && echo there || echo gone) $(show NRestarts)"
systemctl stop scx_amp
options --policy rr
systemctl start scx_amp; sleep 12; echo "watched $(state) $(show NRestarts)"; systemctl stop scx_amp
rm /etc/systemd/system/scx_amp.service.d/watchdog.conf

options --policy best
systemctl start scx_amp; i=0; while [ "$(show ActiveState)" != failed ] && [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done
sleep 2; echo "bad-options $(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"

systemd-run --quiet --unit=x /usr/local/bin/amp-workload bench spin --threads 1 --seconds 120
options --policy rr --only-cgroup system.slice/x.service
systemctl start scx_amp; wait_for enabled >/dev/null
# the scheduling policy of the first thread: 7 is SCHED_EXT
x=$(systemctl show -P MainPID x); i=0
while [ "$(cut -d' ' -f41 /proc/$x/stat)" != 7 ] && [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done
echo "class $(cut -d' ' -f41 /proc/$x/stat)"
systemctl stop scx_amp; echo "class-after $(cut -d' ' -f41 /proc/$x/stat)"
systemctl stop x

# cores of one type are left
echo 0 >/sys/devices/system/cpu/cpu0/online
options --if-hybrid
systemctl start scx_amp; echo "alike $? $(show Result) $(show NRestarts) $(state)"
touch /trial.done
"#;

/// Starts systemd in a PID namespace of its own, with the trial as all that it has to do.
const START: &str = r#"
echo "export PATH=$PATH" >/path
chmod 755 /trial.sh; mkdir -p /etc/systemd/system/scx_amp.service.d /root /home /var/log
grep -q ^root: /etc/passwd || echo 'root:x:0:0:root:/root:/bin/sh' >>/etc/passwd
grep -q ^root: /etc/group || echo 'root:x:0:' >>/etc/group
: >/etc/machine-id
grep -q ' /sys/fs/cgroup ' /proc/mounts || mount -t cgroup2 cgroup2 /sys/fs/cgroup
export container=board
unshare --pid --fork --mount --mount-proc /usr/lib/systemd/systemd --system --log-target=console --show-status=false >/systemd.log 2>&1 &
i=0; while [ ! -e /trial.done ] && [ $i -lt 1500 ]; do i=$((i+1)); sleep 0.1; done
[ -e /trial.done ] || tail -n 40 /systemd.log
cat /found
"#;

const TRIAL_UNIT: &str = "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/trial.sh\n";
const TARGET: &str = "[Unit]\nRequires=trial.service\nAfter=trial.service\nAllowIsolate=yes\n";

#[test]
fn the_unit_schedules_confined_and_is_started_again() {
    let r: Reply = Lab::pair()
        .package("systemd")
        .package("util-linux")
        .host_file(
            "/etc/systemd/system/scx_amp.service",
            &repository().join("dist/systemd/scx_amp.service"),
        )
        .file("/etc/systemd/system/trial.service", TRIAL_UNIT)
        .file("/etc/systemd/system/default.target", TARGET)
        .file("/trial.sh", TRIAL)
        .run(START)
        .ok();
    assert_eq!(r.line("up"), "enabled", "who starts it waits for it");
    let says = r.line("says");
    assert!(says.starts_with("hsp (") && says.contains("big"), "{says}");
    assert_eq!(r.line("provider"), "1", "auto finds the board's PMU");
    assert_eq!(r.line("counted"), "1", "the board's PMU counts");
    // BPF, PERFMON, SYS_NICE, SYS_ADMIN
    assert_eq!(r.line("capabilities"), "000000c000a00000");
    assert_eq!(r.line("filtered"), "2");
    assert_eq!(r.line("folder"), "700");
    assert_eq!(r.line("again"), "enabled", "killed, it is started again");
    assert_eq!(r.line("restarts"), "1");
    assert_eq!(r.line("stopped"), "disabled");
    assert_eq!(r.line("left"), "nothing");
    assert_eq!(
        r.line("stuck"),
        "gone 1",
        "one that decides nothing is started again"
    );
    assert_eq!(
        r.line("watched"),
        "enabled 0",
        "one that decides is left alone"
    );
    assert_eq!(r.line("bad-options"), "failed 2 0", "not tried again");
    assert_eq!(r.line("class"), "7", "--only-cgroup works confined");
    assert_eq!(r.line("class-after"), "0");
    assert_eq!(r.line("alike"), "0 success 0 disabled");
}
