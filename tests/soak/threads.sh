# In a guest: THREADS busy threads in processes of EACH. The scheduler must stay, also while its user space is stopped, and everybody must run. It
# says how long another thread waits when it wakes up, how long the scheduler's own ran and waited, and what each of the busy ones had.
# With POLICY=eevdf there are the first and the last of these for the kernel's own scheduler.
. /soak/lib.sh
THREADS=1000
EACH=100
SECONDS=15
POLICY=hsp
PROVIDER=none
assign "$@"
expected=disabled
if [ "$POLICY" != eevdf ]; then
    start --policy "$POLICY" --provider "$PROVIDER" --big-cpus 0-1
    expected=enabled
fi
began=$(now)
left=$THREADS
spinners=
# a process that makes many gets on slowly among those that it has made
while [ $left -gt 0 ]; do
    some=$((left < EACH ? left : EACH))
    amp-workload bench spin --threads $some --seconds 100000 >/dev/null &
    spinners="$spinners $!"
    left=$((left - some))
done
# counts and looks without forking: a new process waits until all others have had a turn
all() {
    n=0
    for s in $spinners; do
        set -- /proc/$s/task/*
        n=$((n + $# - 1))
    done
    read up _ </proc/uptime
    read there </sys/kernel/sched_ext/state
    [ "$there" = $expected ] || fail "with $n threads the scheduler is $there"
}
i=0
all
while [ $n -lt "$THREADS" ]; do
    i=$((i + 1))
    [ $i -lt 600 ] || fail "only $n threads after $i looks"
    echo "MADE $n $up"
    sleep 1
    all
done
echo "THREADS $n, all there after $(echo "$began $(now)" | awk '{ print $2 - $1 }') s"
# Wake-ups every 50 ms.
wake() {
    amp-workload bench wake --rounds 60 --period-us 50000 --json >/tmp/wake || fail "wake ended with status $?"
    read -r waits </tmp/wake
    waits=${waits#*latency_ns\":}
    echo "WAKE $1 ${waits%%\}*}}"
}
wake busy
if [ $expected = enabled ]; then
    kill -STOP $pid
    wake stopped
    kill -CONT $pid
    wake again
fi
sleep "$SECONDS"
files=
for s in $spinners; do files="$files /proc/$s/task/*/schedstat"; done
# shellcheck disable=SC2086
awk '{ s += $1; if (n == 0 || $1 < least) least = $1; if ($1 > most) most = $1; n++ } END { printf "CPUTIME %d threads, mean %.1f ms, least %.1f, most %.1f\n", n, s / n / 1e6, least / 1e6, most / 1e6 }' $files
if [ $expected = enabled ]; then
    here "with $THREADS threads"
    read -r up _ </proc/uptime
    read -r ran waited _ </proc/$pid/schedstat
    echo "DECIDING ran $((ran / 1000000)) ms, waited $((waited / 1000000)) ms by $up s"
    scx_amp ctl status >/tmp/status || fail "it does not answer"
    echo "STATUS $(sed -n 's/^  "\(uptime_s\|ticks\|threads\|active\|untracked\|fallbacks\|unread\)": /\1 /p' /tmp/status | tr -d '\n')"
fi
kill $spinners
wait $spinners 2>/dev/null
if [ $expected = enabled ]; then
    finish
    sed -n "s/.*\(nothing was decided for [^:]*\):.*/\1/p" /tmp/log
fi
echo "soak-ok $(uname -r): $THREADS busy threads under $POLICY"
