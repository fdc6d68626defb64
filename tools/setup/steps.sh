# Steps with their time, for the scripts at the top of the tree. Source it; then `step "what" command…`.

step_log=$(mktemp)
step_began=$(date +%s)

step() {
    what=$1
    shift
    echo "== $what" >&2
    began=$(date +%s)
    "$@" || { rc=$?; echo "== $what: FAILED (status $rc)" >&2; exit $rc; }
    printf '%-56s %5d s\n' "$what" $(($(date +%s) - began)) >> "$step_log"
}

# Says something between two steps, with the time since the beginning.
steps_so_far() {
    echo >&2
    echo "$1 ($(($(date +%s) - step_began)) s so far)" >&2
    echo >&2
}

steps_done() {
    echo >&2
    cat "$step_log" >&2
    printf '%-56s %5d s\n' total $(($(date +%s) - step_began)) >&2
    rm -f "$step_log"
}
