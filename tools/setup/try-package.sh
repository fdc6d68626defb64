#!/bin/sh
# Installs, removes and purges a package in a fresh Debian root, and sees that nothing is left: try-package.sh FILE.deb [SUITE]
# Needs root, mmdebstrap and a Debian mirror; the root is made anew each time (2 to 3 minutes), in TMPDIR.
# ROOT=DIR uses a root that is there, and leaves it there.
set -eu
. "$(dirname "$0")/lib.sh"
[ $# -ge 1 ] && [ -f "$1" ] || { echo "usage: $(basename "$0") FILE.deb [SUITE]" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "root is needed to enter a root folder"
suite=${2:-trixie}
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
root=${ROOT:-$work/root}
if [ -z "${ROOT:-}" ]; then
    have mmdebstrap || die "no mmdebstrap: apt-get install mmdebstrap"
    mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,init-system-helpers,man-db "$suite" "$root"
fi

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C chroot "$root" "$@"
}
# Every path but logs, caches, backups that dpkg keeps of its own lists, and what systemctl leaves in /run.
paths() {
    (cd "$root" && find . -xdev \( -path ./var/log -o -path ./var/cache -o -path './var/lib/dpkg/*-old' -o -path ./tmp -o -path ./run/systemd \) \
        -prune -o -print | sort)
}
expect() {
    said=$("$@" 2>&1) || die "$* failed: $said"
    echo "ok: $*" >&2
}
there() { [ -e "$root$1" ]; }
gone() { ! there "$1"; }
is_disabled() { [ "$(inside systemctl is-enabled scx_amp.service || true)" = disabled ]; }
# Status 1: `run` would not work in a chroot, which has no /sys.
doctor_reports() { inside scx_amp doctor | grep -q '^`scx_amp run` would'; }

paths > "$work/before"
cp "$1" "$root/tmp/scx-amp.deb"
expect inside dpkg --install /tmp/scx-amp.deb
rm "$root/tmp/scx-amp.deb"
expect inside scx_amp --version
expect inside amp-workload --version
expect doctor_reports
expect inside man --where scx_amp-run
expect inside systemd-analyze verify /usr/lib/systemd/system/scx_amp.service
expect is_disabled
expect inside systemctl enable scx_amp.service
expect there /etc/systemd/system/multi-user.target.wants
# what an administrator adds
mkdir -p "$root/etc/scx_amp"
: > "$root/etc/scx_amp/config.toml"
expect inside dpkg --remove scx-amp
expect gone /usr/bin/scx_amp
expect there /etc/scx_amp/config.toml
expect inside dpkg --purge scx-amp
paths > "$work/after"
diff "$work/before" "$work/after" >&2 || die "the package left something behind (above: > is what)"
echo "nothing is left of $(basename "$1") in a fresh $suite" >&2
