#!/bin/sh
# Builds the Debian packages: package.sh [DIR] puts scx-amp_VERSION_ARCH.deb for amd64 and arm64 (on arm64 for arm64 alone)
# into DIR (`dist` in cargo's target folder).
# package.sh --board [DIR] makes the arm64 package alone, of the programs that `build.sh board` has built: its command lacks what
# a guest never does. It builds nothing, and compresses with gzip, which an emulated machine unpacks sooner than xz.
# cargo-deb is installed into the cache folder where there is none.
set -eu
. "$(dirname "$0")/lib.sh"
wanted=3.8.0
setup=$tree/tools/setup
host=$(host_triple)
target=$(target_dir)
board=
compression=xz
[ "${1:-}" = --board ] && board=1 && compression=gz && shift
out=${1:-$target/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# cargo-deb asks cargo for it
export CARGO_TARGET_DIR="$target"

if ! have cargo-deb; then
    tools=$(cache_dir)/tools
    PATH=$tools/bin:$PATH
    have cargo-deb || (
        echo "cargo-deb $wanted" >&2
        # neither our own flags nor our .cargo/config.toml are meant for it
        cd /
        env -u RUSTFLAGS -u CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS -u CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS \
            -u CARGO_TARGET_DIR cargo install --quiet cargo-deb --version "$wanted" --locked --root "$tools"
    )
fi

[ -n "$board" ] || "$setup/build.sh" package --quiet
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
make_pages "$target/$host/release/scx_amp" "$pages"

# Arguments: target, its strip.
package() {
    release=$target/$1/release
    rm -rf "$release/package"
    mkdir "$release/package"
    cp -r "$pages/." "$release/package"
    gzip --best --no-name "$release/package/man"/*.1
    for p in scx_amp amp-workload; do
        "$2" --strip-unneeded --remove-section=.comment -o "$release/package/$p" "$release/$p"
    done
    (cd "$tree" && cargo deb --quiet --no-build --no-strip --compress-type "$compression" --target "$1" -p scx_amp --output "$out")
}
case $board$host in
1x86_64-*) ;;
*) package "$host" strip ;;
esac
case $host in
x86_64-*) package aarch64-unknown-linux-gnu aarch64-linux-gnu-strip ;;
esac
ls -l "$out"/*.deb
