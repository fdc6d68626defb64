#!/bin/sh
# Builds everything that runs: the host's programs and the x86_64 guest's (static), QEMU's plugin, the arm64 guest's.
#   build.sh                 build
#   build.sh simulator       only `first-table`, a mix on the simulator: what ./quickstart shows first
#   build.sh host            only the command: enough for the simulator and for scheduling this machine
#   build.sh board           what the virtual board and its tests need beside
#   build.sh guest           of that, what a bench on the board needs
#   build.sh package         what a package holds, on x86_64 for arm64, too: package.sh runs it. The arm64 command is then the
#                            whole one, not the guest's; `build.sh board` puts the guest's back
#   build.sh --where         folder of the host's programs
#   build.sh --target-dir    cargo's target folder (CARGO_TARGET_DIR, or `build` in the cache folder)
# More arguments (`--quiet`, …) go to cargo. Versions are those of Cargo.lock.
set -eu
. "$(dirname "$0")/lib.sh"
need_rust
host=$(host_triple)
target=$(target_dir)
case ${1:-} in
--where)
    echo "$target/$host/release"
    exit 0
    ;;
--target-dir)
    echo "$target"
    exit 0
    ;;
esac
parts="host board"
case ${1:-} in
simulator | host | board | guest | package)
    parts=$1
    shift
    ;;
esac
need_clang
# bindgen looks for libclang.so, which Debian keeps in a versioned folder.
if [ -z "${LIBCLANG_PATH:-}" ]; then
    for d in /usr/lib/llvm-19/lib /usr/lib/llvm-2[0-9]/lib; do
        [ -d "$d" ] && export LIBCLANG_PATH="$d" && break
    done
fi
unset RUSTFLAGS
cd "$tree"
claim_target
static='-C target-feature=+crt-static'
# The example in C of the library for programs that measure themselves. Arguments: target, C compiler.
measure() {
    # What a linker says of a static glibc (names and users are only found with its shared parts) concerns nothing that the
    # example calls: its output is for when it fails.
    said=$("$2" -std=c11 -O2 -Wall -Wextra -Werror -static -Ilibs/measure/include libs/measure/examples/region.c \
        "$target/$1/release/libamp_measure.a" -lm -lpthread -ldl -o "$target/$1/release/measure-region" 2>&1) || {
        echo "$said" >&2
        return 1
    }
}
command="--bin scx_amp"
# `place` drives the mechanism alone, for the tests.
programs="--lib $command --bin amp-workload --bin amp-guest --bin place"

# Arguments: what to build; then those for cargo.
build_host() {
    what=$1
    shift
    # shellcheck disable=SC2086
    env CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="$static" CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="$static" \
        cargo build --locked --release --target-dir "$target" --target "$host" $packages $what "$@"
}

# Cargo's environment for arm64 programs.
arm64_environment() {
    environment=$(CARGO_TARGET_DIR="$target" "$tree/tools/setup/arm64.sh")
    eval "$environment"
}

for part in $parts; do
    case $part in
    simulator)
        echo "the simulator ($host)" >&2
        build_host "-p amp-sim --bin first-table" "$@"
        ;;
    host)
        echo "the command ($host)" >&2
        build_host "$command" "$@"
        ;;
    package)
        echo "programs of the package ($host)" >&2
        build_host "$command --bin amp-workload" "$@"
        case $host in
        x86_64-*)
            echo "programs of the package (aarch64)" >&2
            arm64_environment
            # shellcheck disable=SC2086
            cargo build --locked --release --target-dir "$target" --target aarch64-unknown-linux-gnu $packages $command \
                --bin amp-workload "$@"
            ;;
        esac
        ;;
    board | guest)
        # An arm64 host's programs are the guest's.
        case $part-$host in
        board-* | guest-aarch64-*)
            echo "host programs ($host)" >&2
            build_host "$programs" "$@"
            measure "$host" "${CC:-cc}"
            ;;
        esac

        echo "QEMU plugin" >&2
        # A library that is loaded cannot be static: no flags from the caller's static build here.
        env -u CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS -u CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS \
            cargo build --locked --release --target-dir "$target" -p amp-board-plugin "$@"

        case $host in
        aarch64-*) # The host's programs are the guest's; an x86_64 guest needs a build on an x86_64 machine.
            exit 0
            ;;
        esac
        echo "arm64 guest programs" >&2
        arm64_environment
        # shellcheck disable=SC2086
        cargo build --locked --release --target-dir "$target" --target aarch64-unknown-linux-gnu $packages $programs \
            --no-default-features "$@"
        measure aarch64-unknown-linux-gnu "$CC_aarch64_unknown_linux_gnu"
        ;;
    esac
done
