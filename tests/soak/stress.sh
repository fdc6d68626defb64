# In a guest with stress-ng: every policy in turn, for SECONDS each, beside programs that compute, fork and change their affinity
# without end, with more of them than CPUs. The scheduler must stay. It says how much was done under each.
. /soak/lib.sh
SECONDS=45
assign "$@"
n=$(nproc)
stress() {
    stress-ng --temp-path /tmp --timeout "${SECONDS}s" --aggressive --metrics --cpu "$n" --fork "$n" --affinity "$n" --affinity-rand \
        --switch "$n" >/tmp/stress 2>&1 || fail "stress-ng ended with status $?: $(tail -n 3 /tmp/stress)"
    grep -q 'successful run completed' /tmp/stress || fail "stress-ng did not end well: $(tail -n 3 /tmp/stress)"
    echo "$1: $(awk '$2 == "metrc:" && $5 ~ /^[0-9]+$/ { printf "%s %s, ", $4, $5 }' /tmp/stress)bogo operations"
}
stress eevdf
start --policy hsp --provider none --big-cpus 0-1
for policy in $POLICIES; do
    change "$policy"
    stress "$policy"
    here "under $policy"
done
finish
echo "soak-ok $(uname -r): stress-ng for $SECONDS s under each policy"
