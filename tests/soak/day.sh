# In a guest: HOURS of an idle machine on which every EVERY seconds, for BUSY of them, programs run: SPINNERS threads that go on, and short programs.
# The scheduler must stay, decide in time, and end well. A line SAMPLE per EVERY has, after idle and after work: seconds, KiB of memory of the
# scheduler's own, its threads, its descriptors, KiB that the kernel holds for itself. A line WORK has when, how many short programs ended, and
# rounds of the others. With POLICY=eevdf it is the same under the kernel's own scheduler, which tells what of the kernel's memory is ours.
. /soak/lib.sh
HOURS=1
EVERY=300
BUSY=50
SPINNERS=1
POLICY=hsp
assign "$@"
# whose memory, threads and descriptors are looked at
pid=$$
[ "$POLICY" = eevdf ] || start --policy "$POLICY" --provider auto
sample() {
    set -- "$1" /proc/$pid/fd/*
    name=$1
    descriptors=$(($# - 1))
    threads=$(sed -n 's/^Threads:[^0-9]*//p' /proc/$pid/status)
    own=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status)
    kernel=$(awk '/^(SUnreclaim|Percpu|KernelStack|PageTables):/ { n += $2 } END { print n }' /proc/meminfo)
    echo "SAMPLE $name $(now) $own $threads $descriptors $kernel"
}
# Some that go on, beside short ones, one after the other.
work() {
    amp-workload bench spin --by dividing --threads "$SPINNERS" --seconds "$BUSY" --json >/tmp/spun &
    s=$!
    read -r up _ </proc/uptime
    end_of_work=$((${up%.*} + BUSY - 1))
    shorts=0
    while read -r up _ </proc/uptime && [ "${up%.*}" -lt $end_of_work ]; do
        amp-workload run alu --work 5M >/dev/null || fail "a short program ended with status $?"
        shorts=$((shorts + 1))
        sleep 0.5
    done
    wait $s || fail "the busy threads ended with status $?"
    rounds=$(tr -d '\n' </tmp/spun | sed 's/.*"rounds":\[\([0-9,]*\)\].*/\1/' | tr ',' '\n' | awk '{ n += $1 } END { print n }')
    echo "WORK $up $shorts $rounds"
}
end=$(now | awk -v hours="$HOURS" '{ print int($1 + hours * 3600) }')
while read -r up _ </proc/uptime && [ "${up%.*}" -lt "$end" ]; do
    work
    # what the last one left is gone by then
    sleep 10
    sample work
    sleep $((EVERY - BUSY - 12))
    [ "$POLICY" = eevdf ] || here
    sample idle
done
if [ "$POLICY" = eevdf ]; then
    echo "soak-ok $(uname -r): $HOURS h under the kernel's own scheduler"
    exit
fi
silences=$(grep -c 'nothing was decided' /tmp/log)
fallbacks=$(scx_amp ctl status | sed -n 's/^  "fallbacks": \([0-9]*\).*/\1/p')
finish
echo "soak-ok $(uname -r): $HOURS h, nothing decided for long $silences times, $fallbacks fallbacks"
