//! Control groups have limits of CPU time. The kernel's own scheduler is shown beside, on the same boot.

use amp_tests::Lab;

/// CPU time of groups, in microseconds, behind `used-WHO-CASE`, and the microseconds that passed.
const SCRIPT: &str = r#"
sleep 5
cd /sys/fs/cgroup
echo +cpu >cgroup.subtree_control
mkdir a b
echo +cpu >b/cgroup.subtree_control
mkdir b/c b/d
usage() { sed -n 's/^usage_usec //p' $1/cpu.stat; }
into() { g=$1; shift; (echo $BASHPID >$g/cgroup.procs; exec "$@") >/dev/null & all="$all $!"; }
spin() { g=$1; n=$2; shift 2; into $g "$@" amp-workload bench spin --threads $n --seconds 600; }
now() { awk '{ printf "%d", $1 * 1000000 }' /proc/uptime; }
# CASE GROUP…: what runs, for 1.5 s before it counts and 2 s while it does
measure() {
    name=$1; shift
    sleep 1.5
    from=$(now); before=; for g; do before="$before $(usage $g)"; done
    sleep 2
    line=; for g; do set -- $before; line="$line $(($(usage $g) - $1))"; shift; before="$*"; done
    echo "used-$who-$name $(($(now) - from))$line"
}
over() { kill $all 2>/dev/null; wait $all 2>/dev/null; all=; }
cases() {
    who=$1
    # one thread with a fifth of a CPU, and four that have half of one together
    echo 20000 100000 >a/cpu.max; spin a 1; measure one a; over
    echo 50000 100000 >a/cpu.max; spin a 4; measure four a
    # changed while they run: one and a half, a third at another period, and without a limit again
    echo 150000 100000 >a/cpu.max; measure more a
    echo 10000 30000 >a/cpu.max; measure period a
    [ $who = eevdf ] || kill -STOP $pid
    measure silent a
    [ $who = eevdf ] || { kill -CONT $pid; sleep 1; }
    echo max >a/cpu.max; measure none a; over
    # beside a thread without a limit, on one CPU
    echo 20000 100000 >a/cpu.max; spin a 1 taskset -c 3; spin b/c 1 taskset -c 3; measure beside a b; over
    # a group below a limit that has a wider one itself, beside another one without
    echo 60000 100000 >b/cpu.max; echo 80000 100000 >b/c/cpu.max
    spin b/c 2; spin b/d 2; measure below b; over
    # one that has a narrower one
    echo 10000 100000 >b/c/cpu.max; spin b/c 2; spin b/d 1; measure within b b/c; over
    # processes that come and go
    for i in 1 2; do into a sh -c 'while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done); done'; done
    measure short a; over
    for g in a b b/c; do echo max >$g/cpu.max; done
}
# many threads: they take turns, and nobody else waits for them
many() {
    echo max >a/cpu.max; spin a 200
    # without the first, which waits for the others
    ran() { cat $(ls -d /proc/$p/task/* | grep -v "/$p$" | sed 's,$,/schedstat,'); }
    p=; until [ -n "$p" ] && [ "$(ls /proc/$p/task | wc -l)" -gt 200 ]; do p=$(pidof amp-workload | cut -d' ' -f1); sleep 0.2; done
    echo 100000 100000 >a/cpu.max; sleep 2
    ran >/tmp/before
    from=$(now); for i in 1 2 3 4 5; do sh -c :; done; echo "shell-$who $(($(now) - from))"
    measure many a
    sleep 4
    ran | paste /tmp/before - | awk '{ n++; ran = $4 - $1; sum += ran; if (n == 1 || ran < least) least = ran } END { print "least-'$who' " least * n / sum }'
    over
}
# with next to nothing: a limit is noticed that is lifted while everybody waits for it, and whoever is killed goes
little() {
    echo 1000 1000000 >a/cpu.max; spin a 6
    sleep 4; echo max >a/cpu.max; measure lifted a
    echo 1000 1000000 >a/cpu.max; sleep 4
    from=$(now); kill -9 $all; wait $all; all=; echo "killed-$who $(($(now) - from))"
    echo max >a/cpu.max
}
# two groups below one whose quota is the narrow one, each with more threads than that has slices
siblings() {
    echo 20000 100000 >b/cpu.max; echo 80000 100000 >b/c/cpu.max; echo 80000 100000 >b/d/cpu.max
    spin b/c 8; spin b/d 8; measure siblings b/c b/d; over
    for g in b b/c b/d; do echo max >$g/cpu.max; done
}
# held threads whose affinity is changed over and over, for longer than the kernel takes for a stall
touched() {
    echo 1000 1000000 >a/cpu.max; spin a 6; sleep 1
    n=0; p=$(pidof amp-workload | cut -d' ' -f1)
    while [ $n -lt 25 ]; do
        for t in /proc/$p/task/*; do taskset -p $((63 - n % 2)) ${t##*/} >/dev/null; done
        n=$((n + 1)); sleep 0.6
    done
    kill -9 $all; wait $all; all=; echo max >a/cpu.max
}
cases eevdf
for policy in hsp acfs; do
    scx_amp run --policy $policy --provider none 2>/tmp/log & pid=$!
    i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != enabled ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done
    cases $policy
    [ $policy = hsp ] && { many; little; siblings; touched; }
    echo "state-$policy $(cat /sys/kernel/sched_ext/state)"
    kill -INT $pid; wait $pid; echo "status $?"
    sed 's/^/log /' /tmp/log
done
echo "stalls $(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*error')"
"#;

#[test]
fn control_groups_have_no_more_than_their_limits() {
    let r = Lab::board("juno").run(SCRIPT).ok();
    assert_eq!(r.line("stalls"), "0");
    // parts of a CPU that the groups had
    let used = |who: &str, case: &str| -> Vec<f64> {
        let key = format!("used-{who}-{case}");
        let all: Vec<f64> = r
            .line(&key)
            .split(' ')
            .map(|n| n.parse().unwrap())
            .collect();
        all[1..].iter().map(|used| used / all[0]).collect()
    };
    let wanted: [(&str, &[f64]); 10] = [
        ("one", &[0.2]),
        ("four", &[0.5]),
        ("more", &[1.5]),
        ("period", &[0.333]),
        ("silent", &[0.333]),
        ("none", &[4.0]),
        ("beside", &[0.2, 0.8]),
        ("below", &[0.6]),
        ("within", &[0.6, 0.1]),
        ("short", &[0.2]),
    ];
    for (case, limits) in wanted {
        let [eevdf, hsp, acfs] = ["eevdf", "hsp", "acfs"].map(|who| used(who, case));
        println!("{case}: {limits:.3?}, eevdf {eevdf:.3?}, hsp {hsp:.3?}, acfs {acfs:.3?}");
    }
    // once: what it is about does not depend on the policy
    let killed: u64 = r.line("killed-hsp").parse().unwrap();
    assert!(killed < 500_000, "hsp: gone {killed} us after SIGKILL");
    let shell: u64 = r.line("shell-hsp").parse().unwrap();
    println!("hsp: five programs beside 200 threads {shell} us");
    let least: f64 = r.line("least-hsp").parse().unwrap();
    println!("hsp: the least of 200 threads has {least} of the mean");
    assert!(least > 0.3, "hsp: {least}");
    let many = used("hsp", "many")[0];
    assert!((many - 1.0).abs() < 0.1, "hsp: {many} CPUs, not 1");
    let siblings = used("hsp", "siblings");
    println!("hsp: siblings {siblings:.3?}");
    let sum: f64 = siblings.iter().sum();
    assert!(
        (sum / 0.2 - 1.0).abs() < 0.1,
        "hsp: {sum} of a CPU, not 0.2"
    );
    assert!(siblings.iter().all(|is| *is > 0.05), "hsp: {siblings:?}");
    let lifted = used("hsp", "lifted")[0];
    assert!(lifted > 5.0, "hsp: {lifted} CPUs without a limit");
    for policy in ["hsp", "acfs"] {
        assert_eq!(r.line(&format!("state-{policy}")), "enabled");
        for (case, limits) in wanted {
            for (is, limit) in used(policy, case).iter().zip(limits) {
                assert!(
                    (is / limit - 1.0).abs() < 0.1,
                    "{policy}, {case}: {is} of a CPU, not {limit}"
                );
            }
        }
    }
}
