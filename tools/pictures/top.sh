#!/bin/sh
# Draws the picture of `scx_amp top` in the guide: top.sh [DIR] writes top.png into DIR (docs/guide).
# Board `juno` under `scx_amp run`, beside six programs that run again and again. Needs `aha`, `chromium`, and what
# `tools/setup/build.sh package` builds: the command that guests have otherwise has no screen.
set -eu
. "$(dirname "$0")/../setup/lib.sh"
out=${1:-$tree/docs/guide}
for program in aha chromium; do
    have "$program" || die "no $program: install the Debian package of that name"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/guest.sh" << 'EOF'
export LC_ALL=C.UTF-8 TERM=xterm-256color
ip link set lo up
again() {
    cp /usr/local/bin/amp-workload "/tmp/$1"
    program=/tmp/$1
    shift
    while :; do "$program" run "$@" > /dev/null; done &
}
again hash hash --size 8M --work 12M
again hash-2 hash --size 8M --work 12M
again sort sort --work 7000
again chase chase --size 8M --work 9M
again render parallel --inner fp --threads 2 --work 128M
again editor interactive --inner fp --step 10k --pause 50 --work 400
scx_amp run 2> /dev/null &
until scx_amp ctl status > /dev/null 2>&1; do sleep 0.1; done
tmux -u new-session -d -s top -x 110 -y 22 'scx_amp top'
sleep 15
tmux capture-pane -e -p -t top > /tmp/top
EOF
"$("$tree/tools/setup/build.sh" --where)/scx_amp" board run --package tmux --package libc-bin \
    --collect /tmp/top --out "$work/out" "$work/guest.sh"

aha --black --title "scx_amp top" < "$work/out/tmp/top" > "$work/top.html"
chromium --headless --no-sandbox --hide-scrollbars --force-device-scale-factor=1 --window-size=900,350 \
    --screenshot="$out/top.png" "file://$work/top.html" 2> /dev/null
echo "$out/top.png"
