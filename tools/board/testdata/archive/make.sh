#!/bin/sh
# Makes the tiny signed archive beside this script, with a new key that is thrown away. Run it only to change what is in it:
# the key and every hash are others then. Needs dpkg-deb, xz and gpg.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GNUPGHOME="$work/gnupg" SOURCE_DATE_EPOCH=1700000000
mkdir -m 700 "$GNUPGHOME"
cd "$here"
rm -rf dists pool key.gpg
mkdir -p pool

# package NAME ARCH COMPRESSION FIELDS…
package() {
    name=$1 arch=$2 compression=$3
    shift 3
    mkdir -p "$work/$name/DEBIAN"
    printf '%s\n' "Package: $name" 'Version: 1:2.0-1' "Architecture: $arch" 'Maintainer: nobody <nobody@example.org>' "$@" \
        'Description: for tests' >"$work/$name/DEBIAN/control"
    dpkg-deb --root-owner-group "-Z$compression" --build "$work/$name" "pool/${name}_2.0-1_$arch.deb" >/dev/null
}
mkdir -p "$work/hello/usr/bin" "$work/libhello1/usr/lib" "$work/hello-data/usr/share/hello/locked"
printf 'hello\n' >"$work/hello/usr/bin/hello"
chmod 4755 "$work/hello/usr/bin/hello"
ln "$work/hello/usr/bin/hello" "$work/hello/usr/bin/hallo"
ln -s hello "$work/hello/usr/bin/bonjour"
ln -s /etc/motd "$work/hello/usr/bin/away"
printf 'library\n' >"$work/libhello1/usr/lib/libhello.so.1"
printf 'data\n' >"$work/hello-data/usr/share/hello/locked/text"
chmod 555 "$work/hello-data/usr/share/hello/locked"
package hello arm64 xz 'Depends: libhello1 (>= 1:2), greeting | nothing'
package libhello1 arm64 gzip
package hello-data all zstd 'Provides: greeting'

list="$work/Packages"
for deb in pool/*.deb; do
    dpkg-deb --field "$deb"
    printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum <"$deb" | cut -d' ' -f1)"
done >"$list"
xz -k "$list"
gzip -nk "$list"
by_hash=dists/stable/main/binary-arm64/by-hash/SHA256
mkdir -p "$by_hash" dists/expired dists/gzip/main/binary-arm64
cp "$list.xz" "$by_hash/$(sha256sum <"$list.xz" | cut -d' ' -f1)"
cp "$list.gz" dists/gzip/main/binary-arm64/Packages.gz

# Their dates lie in the past of any machine that runs the tests, and have no end.
gpg() { command gpg --quiet --batch --faked-system-time 20231114T000000 "$@"; }
gpg --passphrase '' --quick-generate-key 'Tiny archive <nobody@example.org>' ed25519 sign never 2>/dev/null
gpg --export >key.gpg
# release SUITE FIELD FILES…
release() {
    suite=$1 field=$2
    shift 2
    {
        printf '%s\n' 'Origin: tests' "Suite: $suite" 'Codename: tiny' "$field" 'SHA256:'
        for file; do
            printf ' %s %s main/binary-arm64/%s\n' "$(sha256sum <"$work/$file" | cut -d' ' -f1)" "$(stat -c %s "$work/$file")" "$file"
        done
    } | gpg --clearsign --digest-algo SHA256 --output "dists/$suite/InRelease"
}
release stable 'Acquire-By-Hash: yes' Packages Packages.xz
release gzip 'NotAutomatic: yes' Packages Packages.gz
release expired 'Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC' Packages Packages.xz
