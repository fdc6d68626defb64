#!/bin/sh
# Prints the environment for building arm64 guest binaries as `export` lines: eval "$(tools/setup/arm64.sh)".
# What it prints is for `cargo build --target aarch64-unknown-linux-gnu`; what it makes stays in the cache folder:
#   arm64/std-VERSION-COMMIT   the standard library for arm64, of exactly the installed rustc
#   arm64/libs-RELEASE         libelf and zlib for arm64
#
# The standard library comes from the first of these that works:
#   1. an installed rustup target
#   2. the one built here before
#   3. `rustup target add`
#   4. built once from Debian's rust-src package of the same version (3 minutes on two cores)
# SCX_AMP_NO_RUSTUP=1 leaves out 1 and 3.
set -eu
. "$(dirname "$0")/lib.sh"
need_rust
need_clang

triple=aarch64-unknown-linux-gnu
host=$(host_triple)
echo "export BPF_CLANG='$BPF_CLANG'"
case $host in
$triple)
    echo "export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static'"
    exit 0
    ;;
x86_64-*-linux-*) ;;
*) die "no way known to build for arm64 on $host" ;;
esac

linker=aarch64-linux-gnu-gcc
have $linker || die "no $linker: install the package gcc-aarch64-linux-gnu (tools/setup/packages.sh does)"
version=$(rustc --version | cut -d' ' -f2)
commit=$(rustc -vV | sed -n 's/^commit-hash: \(.\{8\}\).*/\1/p')
cache=$(cache_dir)
mkdir -p "$cache/arm64"
base=$(cd "$cache/arm64" && pwd)
std=$base/std-$version-$commit
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-debian}")
libs=$base/libs-$release

# Debian packages through the board's own client of the archive.
fetch() {
    target=$(target_dir)
    tool=$target/$host/release/amp-fetch
    # shellcheck disable=SC2086
    env -u RUSTFLAGS CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static' \
        cargo build --locked --quiet --release --manifest-path "$tree/Cargo.toml" --target-dir "$target" --target "$host" \
        $packages --bin amp-fetch >&2
    "$tool" "$@" >&2
}

installed_target() {
    [ -z "${SCX_AMP_NO_RUSTUP:-}" ] && [ -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ]
}

build_std() {
    work=$(mktemp -d "$base/making.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    echo "fetching the sources of the standard library, Rust $version" >&2
    if ! fetch --arch amd64 --suite "$release" --suite "$release-backports" --suite trixie --suite trixie-backports \
        --suite forky --suite sid --into "$work/src" "rust-src=$version+"; then
        cat >&2 << END
No arm64 standard library for Rust $version ($commit): rustup cannot fetch the target $triple, and Debian has no
rust-src of that version any more. Any of these helps:
  - rustup target add $triple                       where rustup can fetch targets
  - a Rust whose rust-src Debian still carries       rustup toolchain install VERSION, with VERSION from
                                                     apt-cache madison rust-src (trixie-backports has several)
  - Debian's own rustc (trixie or newer)             apt install rustc cargo libstd-rust-dev:arm64, and put
                                                     /usr/bin before ~/.cargo/bin in PATH
END
        exit 3
    fi
    library=$(echo "$work"/src/usr/src/rustc-*/library)
    [ -d "$library" ] || die "the package rust-src holds no library folder"
    mkdir -p "$work/seed/src"
    echo 'fn main() {}' > "$work/seed/src/main.rs"
    printf '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n' > "$work/seed/Cargo.toml"
    echo "building the standard library for arm64 (once per Rust version)" >&2
    (cd "$work/seed" && env -u RUSTFLAGS RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT="$library" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker \
        cargo build --quiet --release --target $triple --target-dir "$work/t" \
        -Z build-std=std,panic_abort,panic_unwind,test,proc_macro >&2)
    mkdir -p "$work/std/lib/rustlib/$triple/lib"
    cp "$work"/t/$triple/release/deps/lib*.rlib "$work/std/lib/rustlib/$triple/lib/"
    mv -T "$work/std" "$std"
    rm -rf "$work"
    trap - EXIT INT TERM
}

flags='-C target-feature=+crt-static'
if installed_target; then
    :
elif [ -d "$std" ]; then
    flags="--sysroot=$std $flags"
elif [ -z "${SCX_AMP_NO_RUSTUP:-}" ] && have rustup && timeout 120 rustup target add $triple > /dev/null 2>&1 && installed_target; then
    :
else
    build_std
    flags="--sysroot=$std $flags"
fi
# Elsewhere than on Debian, the release is that of the mirror.
suite="--suite $release"
[ "$release" != debian ] || suite=
# shellcheck disable=SC2086
[ -d "$libs" ] || fetch --arch arm64 $suite --into "$libs" libelf-dev zlib1g-dev

cat << END
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker CC_aarch64_unknown_linux_gnu=$linker
export LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu='$libs/usr/lib/aarch64-linux-gnu'
export LIBBPF_SYS_EXTRA_CFLAGS='-I$libs/usr/include'
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='$flags'
unset RUSTFLAGS
END
