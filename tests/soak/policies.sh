# In a guest: every policy in turn, changed by ctl every PAUSE seconds, beside LOAD; then the scheduler is ended.
# The scheduler must stay, and the kernel must say nothing of stalls. The last line is `soak-ok` and what was done. Where there
# is a program /place, it says first how many instructions the kernel verified in each BPF program.
. /soak/lib.sh
PAUSE=5
ROUNDS=1
assign "$@"
if [ -x /place ]; then
    /place run "0-1:1024,2-$(($(nproc) - 1)):446" secs=0.5 swap=0 >/tmp/log 2>&1 || fail "place ended with status $?"
    grep ^VERIFIED /tmp/log
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
