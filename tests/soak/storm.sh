# In a guest: processes are forked and end, RATE per second if the machine can, for SECONDS, beside LOAD. The scheduler must stay and know
# nobody who is gone. It says how many were forked.
. /soak/lib.sh
SECONDS=600
RATE=1000
POLICY=hsp
assign "$@"
start --policy "$POLICY" --provider none --big-cpus 0-1
eval "$LOAD"
forked() { awk '/^processes/ { print $2 }' /proc/stat; }
threads() { scx_amp ctl status | awk -F'[:,]' '/^  "threads"/ { print $2 + 0 }'; }
began=$(now)
before=$(forked)
known=$(threads)
# a slow host should see that it goes on
(while sleep 30; do echo "FORKED $(($(forked) - before)) at $(now)"; done) &
watch=$!
amp-workload bench churn --threads $((RATE * SECONDS)) --rate "$RATE" --json >/tmp/churn || fail "churn ended with status $?"
after=$(forked)
kill $watch
ended=$(now)
here "after the storm"
sleep 3
echo "STORM $(echo "$before $after $began $ended" | awk '{ printf "%d in %.1f s, %.0f per second", $2 - $1, $4 - $3, ($2 - $1) / ($4 - $3) }'), threads known before $known, after $(threads)"
head -c 600 /tmp/churn
echo
finish
echo "soak-ok $(uname -r): $((after - before)) threads came and went"
