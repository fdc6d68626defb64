# In a guest: what the scripts of this folder have in common. Assignments on the command line (NAME=VALUE) are made last.
LOAD='for i in 1 2 3 4 5 6; do amp-workload bench spin --seconds 100000 >/dev/null & done'
assign() { for assignment in "$@"; do eval "$assignment"; done; }
fail() {
    echo "soak-failed: $*"
    cat /tmp/log
    # who was stalled, and by whom, stands at the beginning of what the kernel says of it
    dmesg | grep -A 24 -m 1 -i -e 'rcu.*stall' -e 'runnable task stall'
    dmesg | tail -n 20
    exit 1
}
state() { cat /sys/kernel/sched_ext/state; }
now() { cut -d' ' -f1 /proc/uptime; }
# Starts the scheduler with these arguments of `run`, and waits until it answers. Its process is $pid.
start() {
    scx_amp run "$@" >/tmp/log 2>&1 &
    pid=$!
    i=0
    until scx_amp ctl status >/dev/null 2>&1; do
        i=$((i + 1))
        [ $i -lt 300 ] || fail "it does not answer"
        sleep 0.1
    done
}
# The scheduler must still be there.
here() {
    [ "$(state)" = enabled ] || fail "the scheduler is $(state) $*"
}
# The kernel must have said nothing of stalls, and must have ended no scheduler by itself.
calm() {
    dmesg | grep -i -e 'stall' -e 'runnable task' -e 'hung task' -e 'sched_ext.*disabled' | grep -v 'unregistered from user space' >/tmp/complaints &&
        fail "the kernel complains: $(head -n 1 /tmp/complaints)"
}
# Ends the scheduler.
finish() {
    kill -INT $pid
    wait $pid
    status=$?
    [ $status = 0 ] || fail "it ended with status $status"
    [ "$(state)" = disabled ] || fail "it is still $(state)"
    calm
}
POLICIES='rr acfs eqp adwrr propsp ef prim pareto hsp'
# Another policy.
change() {
    said=$(scx_amp ctl policy "$1" 2>&1) || fail "ctl policy $1: $said"
}
