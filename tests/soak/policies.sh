# In a guest: every policy in turn, changed by ctl every PAUSE seconds, beside LOAD; then the scheduler is ended.
# The scheduler must stay, and the kernel must say nothing of stalls. The last line is `soak-ok` and what was done. Where there
# is a program /place, it says first how many instructions the kernel verified in each BPF program.
PAUSE=5
ROUNDS=1
LOAD='for i in 1 2 3 4 5 6; do amp-workload bench spin --seconds 100000 >/dev/null & done'
for assignment in "$@"; do eval "$assignment"; done
fail() {
    echo "soak-failed: $*"
    cat /tmp/log
    dmesg | tail -n 20
    exit 1
}
state() { cat /sys/kernel/sched_ext/state; }
if [ -x /place ]; then
    /place run "0-1:1024,2-$(($(nproc) - 1)):446" secs=0.5 swap=0 >/tmp/log 2>&1 || fail "place ended with status $?"
    grep ^VERIFIED /tmp/log
    # its end is none of the scheduler that follows
    dmesg -c >/dev/null
fi
scx_amp run --policy hsp --provider none --big-cpus 0-1 >/tmp/log 2>&1 &
pid=$!
i=0
until scx_amp ctl status >/dev/null 2>&1; do
    i=$((i + 1))
    [ $i -lt 300 ] || fail "it does not answer"
    sleep 0.1
done
eval "$LOAD"
changes=0
round=0
while [ $round -lt "$ROUNDS" ]; do
    for policy in rr acfs eqp adwrr propsp ef prim pareto hsp; do
        said=$(scx_amp ctl policy $policy 2>&1) || fail "ctl policy $policy: $said"
        changes=$((changes + 1))
        sleep "$PAUSE"
        [ "$(state)" = enabled ] || fail "under $policy the scheduler is $(state)"
        scx_amp ctl status | grep -q "\"$policy\"" || fail "the status does not name $policy"
    done
    round=$((round + 1))
done
stalls=$(dmesg | grep -c -i -e 'stall' -e 'sched_ext.*disabled' -e 'runnable task')
[ "$stalls" = 0 ] || fail "the kernel complains"
kill -INT $pid
wait $pid
status=$?
[ $status = 0 ] || fail "it ended with status $status"
[ "$(state)" = disabled ] || fail "it is still $(state)"
echo "soak-ok $(uname -r): $changes changes of policy, $PAUSE s apart"
