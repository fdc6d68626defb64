#!/bin/sh
# Builds a published scx scheduler for the board's arm64 guest: peer.sh CRATE VERSION ROOT puts ROOT/bin/CRATE there.
# `scx_amp board fetch --peers` runs it. CARGO_TARGET_DIR is shared by all of them: they have most dependencies in common.
set -eu
[ $# -eq 3 ] || { echo "usage: $(basename "$0") CRATE VERSION ROOT" >&2; exit 2; }
# in a variable first: `eval` would hide a failure
environment=$("$(dirname "$0")/arm64.sh")
eval "$environment"
export PKG_CONFIG_ALLOW_CROSS=1
libs=${LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu:-}
[ -z "$libs" ] || export PKG_CONFIG_PATH="$libs/pkgconfig"
if [ -z "${LIBCLANG_PATH:-}" ]; then
    resources=$("$BPF_CLANG" -print-resource-dir)
    export LIBCLANG_PATH="${resources%/clang/*}"
fi
# our own .cargo/config.toml is not meant for them
cd /
exec cargo install "$1" --version "$2" --locked --target aarch64-unknown-linux-gnu --root "$3"
