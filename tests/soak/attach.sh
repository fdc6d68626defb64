# In a guest: the scheduler is started and ended ROUNDS times beside LOAD, under each policy in turn, by SIGINT, SIGTERM and
# SIGKILL in turn. Each time it must answer, and be gone at the end. What memory the kernel holds must not grow.
. /soak/lib.sh
ROUNDS=200
EVERY=20
# more would keep the host busy for an hour and a half
LOAD='for i in 1 2; do amp-workload bench spin --seconds 100000 >/dev/null & done'
assign "$@"
held() { awk '/^(SUnreclaim|Percpu|KernelStack|PageTables):/ { n += $2 } END { print n }' /proc/meminfo; }
eval "$LOAD"
round=0
while [ $round -lt "$ROUNDS" ]; do
    for policy in $POLICIES; do
        for signal in INT TERM KILL; do
            [ $round -lt "$ROUNDS" ] || break 2
            start --policy "$policy" --provider none --big-cpus 0-1
            here "after start $round"
            kill -$signal $pid
            wait $pid 2>/dev/null
            status=$?
            case $signal in KILL) expected=137 ;; *) expected=0 ;; esac
            [ $status = $expected ] || fail "by SIG$signal it ended with status $status"
            i=0
            until [ "$(state)" = disabled ]; do
                i=$((i + 1))
                [ $i -lt 100 ] || fail "ten seconds after SIG$signal it is $(state)"
                sleep 0.1
            done
            round=$((round + 1))
            [ $((round % EVERY)) != 0 ] || echo "ATTACHED $round $(now) $(held)"
        done
    done
done
calm
# none of the load is left behind
for f in /proc/[0-9]*/comm; do
    grep -q '^amp-spin' "$f" 2>/dev/null && echo "LOAD $(awk '{ print $14 + $15 }' "${f%comm}stat")"
done
echo "soak-ok $(uname -r): $ROUNDS starts and ends"
