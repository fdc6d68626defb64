# In a guest: every policy in turn, changed by ctl every PAUSE seconds, beside LOAD; then the scheduler is ended.
# The scheduler must stay, and the kernel must say nothing of stalls. The last line is `soak-ok` and what was done. Where there
# is a program /place, it says first how many instructions the kernel verified in each BPF program, and in how many of the
# configurations in which code is left out or not the kernel took them.
. /soak/lib.sh
PAUSE=5
ROUNDS=1
assign "$@"
if [ -x /place ]; then
    last=$(($(nproc) - 1))
    /place run "0-1:1024,2-$last:446" secs=0.3 swap=0 >/tmp/log 2>&1 || fail "place ended with status $?"
    grep ^VERIFIED /tmp/log
    loaded=1
    for types in "0-$last:1024" "0-1:1024,2-$last:446" "0:1024,1:700,2-$last:446"; do
        for options in "" caches=1 caches=2 threads=2 "caches=2 threads=2" partial=1 "caches=2 partial=1"; do
            for counters in "" counters=8; do
                # where there is no PMU it ends once they are to be opened, after it was loaded
                /place run $types $options $counters secs=0.2 swap=0 >/tmp/log 2>&1 || grep -q ^LOADED /tmp/log ||
                    { tail -n 30 /tmp/log; fail "place run $types $options $counters does not load"; }
                loaded=$((loaded + 1))
            done
        done
    done
    echo "loaded in $loaded configurations"
    # its end is none of the scheduler that follows
    dmesg -c >/dev/null
fi
start --policy hsp --provider none --big-cpus 0-1
eval "$LOAD"
changes=0
round=0
while [ $round -lt "$ROUNDS" ]; do
    for policy in $POLICIES; do
        change "$policy"
        changes=$((changes + 1))
        sleep "$PAUSE"
        here "under $policy"
        scx_amp ctl status | grep -q "\"$policy\"" || fail "the status does not name $policy"
    done
    round=$((round + 1))
done
finish
echo "soak-ok $(uname -r): $changes changes of policy, $PAUSE s apart"
