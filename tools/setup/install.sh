#!/bin/sh
# Installs the command that build.sh has built, with manual pages, completions and the systemd unit.
#   install.sh               install; nothing is enabled or started
#   install.sh uninstall     stop the unit and remove what was installed; /etc/scx_amp stays
# From the environment: PREFIX (/usr/local) and DESTDIR (none), as with `make install`; PROGRAMS, the folder of the built
# programs, in place of build.sh's.
set -eu
. "$(dirname "$0")/lib.sh"
prefix=${PREFIX:-/usr/local}
case $prefix in
/*) ;;
*) echo "install.sh: PREFIX must be absolute, not \`$prefix\`" >&2 && exit 2 ;;
esac
to=${DESTDIR:-}$prefix
unit=$to/lib/systemd/system/scx_amp.service
bash=$to/share/bash-completion/completions/scx_amp
zsh=$to/share/zsh/site-functions/_scx_amp
fish=$to/share/fish/vendor_completions.d/scx_amp.fish
man=$to/share/man/man1

# Whether the machine's own systemd is concerned.
systemd() {
    [ -z "${DESTDIR:-}" ] && [ -d /run/systemd/system ] && have systemctl
}

case ${1:-install} in
install)
    programs=${PROGRAMS:-$("$(dirname "$0")/build.sh" --where)}
    [ -x "$programs/scx_amp" ] || die "no program $programs/scx_amp: run tools/setup/build.sh host first"
    pages=$(mktemp -d)
    trap 'rm -rf "$pages"' EXIT
    make_pages "$programs/scx_amp" "$pages"
    for p in scx_amp amp-workload; do
        # `build.sh host` builds the command alone
        [ -x "$programs/$p" ] || continue
        install -D -m 755 "$programs/$p" "$to/bin/$p"
        ! have strip || strip --strip-debug "$to/bin/$p"
    done
    install -D -m 644 -t "$man" "$pages"/man/*.1
    install -D -m 644 "$pages/scx_amp.bash" "$bash"
    install -D -m 644 "$pages/scx_amp.zsh" "$zsh"
    install -D -m 644 "$pages/scx_amp.fish" "$fish"
    mkdir -p "$(dirname "$unit")"
    sed "s|/usr/bin/|$prefix/bin/|" "$tree/dist/systemd/scx_amp.service" > "$unit"
    chmod 644 "$unit"
    ! systemd || systemctl daemon-reload
    ;;
uninstall)
    if systemd && [ -e "$unit" ]; then
        systemctl disable --quiet --now scx_amp.service
    fi
    rm -f "$to/bin/scx_amp" "$to/bin/amp-workload" "$man/scx_amp.1" "$man"/scx_amp-*.1 "$bash" "$zsh" "$fish" "$unit"
    ! systemd || systemctl daemon-reload
    ;;
*)
    echo "usage: [PREFIX=DIR] [DESTDIR=DIR] install.sh [install | uninstall]" >&2
    exit 2
    ;;
esac
