#!/bin/sh
# Installs the Debian packages that building and the virtual board need. Asks for root only when one is missing.
#   packages.sh            install what is missing
#   packages.sh --check    only say what is missing (status 1 then)
set -eu
. "$(dirname "$0")/lib.sh"
# before anything is installed for a build that cannot be
need_rust

packages="gcc libc6-dev make dbus-daemon pkg-config libelf-dev zlib1g-dev clang-19 libclang-19-dev ca-certificates debian-archive-keyring"
case $(dpkg --print-architecture 2> /dev/null || true) in
amd64) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
arm64) ;;
'') die "this is no Debian system (no dpkg): install the equivalents of: $packages" ;;
*) die "the board needs an amd64 or arm64 machine, this one is $(dpkg --print-architecture)" ;;
esac

missing=
# One call for all: what dpkg does not know at all is told on standard error and in no line of the output.
# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' $packages 2> /dev/null || true)
for p in $packages; do
    echo "$installed" | grep -Eq "^$p(:[a-z0-9]+)? installed\$" || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
echo "missing Debian packages:$missing" >&2
[ "${1:-}" = --check ] && exit 1

if [ "$(id -u)" -eq 0 ]; then
    root=
elif have sudo; then
    root=sudo
else
    die "root is needed to install them: run as root: apt-get install$missing"
fi
install() {
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing > /dev/null
}
# The lists of a fresh machine are empty or old.
if ! install 2> /dev/null; then
    $root apt-get -qq update
    install
fi
