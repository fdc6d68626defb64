# Shared by the set-up scripts; source it. Needs nothing but a POSIX shell.

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

have() {
    command -v "$1" > /dev/null 2>&1
}

# Top of the source tree.
tree=$(cd "$(dirname "$0")/../.." && pwd)

# The cache folder, the same one the board uses.
cache_dir() {
    if [ -n "${SCX_AMP_CACHE:-}" ]; then
        echo "$SCX_AMP_CACHE"
    elif [ -n "${HOME:-}" ]; then
        echo "$HOME/.cache/scx_amp"
    else
        die "no cache folder: neither SCX_AMP_CACHE nor HOME is set"
    fi
}

# Cargo's target folder: outside of the tree, so that several checkouts share built dependencies.
target_dir() {
    echo "${CARGO_TARGET_DIR:-$(cache_dir)/build}"
}

# Makes sure that nothing of our own that another checkout has built in the target folder is taken for ours. Cargo knows packages by
# their place in the workspace and looks at times alone: where our files are older it would, and tests would look for
# their data in the other checkout. What dependencies are built of is the same everywhere, and stays.
claim_target() {
    builder=$(target_dir)/checkout
    [ "$(cat "$builder" 2> /dev/null || true)" = "$tree" ] && return
    mkdir -p "$(target_dir)"
    # a folder for each profile, with a triple before it or without
    for known in "$(target_dir)"/*/.fingerprint "$(target_dir)"/*/*/.fingerprint; do
        rm -rf "$known"/amp-* "$known"/scx_amp-*
    done
    echo "$tree" > "$builder"
}

# The packages of whatever is built for the host or a guest. One list: other features of a dependency would be another build of
# it and of what stands on it. `--example region` belongs to it for the features that come with tests' dependencies.
packages="-p scx_amp -p amp-workloads -p amp-board -p amp-bpf -p amp-place -p amp-measure --example region"

host_triple() {
    rustc -vV | sed -n 's/^host: //p'
}

# A Rust that can build the tree: `rust-version` in Cargo.toml, or newer.
need_rust() {
    have cargo && have rustc || die "no Rust: install it with rustup (https://rustup.rs), then repeat"
    wanted=$(sed -n 's/^rust-version = "\([0-9]*\.[0-9]*\).*/\1/p' "$tree/Cargo.toml")
    found=$(rustc -vV | sed -n 's/^release: \([0-9]*\.[0-9]*\).*/\1/p')
    # major and minor as one number; nothing but the shell is needed
    [ -n "$found" ] &&
        [ $((${found%.*} * 100000 + ${found#*.})) -ge $((${wanted%.*} * 100000 + ${wanted#*.})) ] ||
        die "Rust $wanted or newer is needed, this is ${found:-unknown}: run \`rustup update stable\`, then repeat"
}

# Sets BPF_CLANG to a clang that can build the BPF side (19 or newer).
need_clang() {
    for c in ${BPF_CLANG:-} clang-19 clang-20 clang-21 clang; do
        have "$c" || continue
        major=$("$c" -dumpversion 2> /dev/null | cut -d. -f1)
        case $major in
        '' | *[!0-9]*) continue ;;
        esac
        if [ "$major" -ge 19 ]; then
            export BPF_CLANG="$c"
            return
        fi
    done
    die "no clang of version 19 or newer for the BPF side: install the package clang-19 (tools/setup/packages.sh does)"
}

# Writes manual pages and completions of the command $1 into the folder $2.
make_pages() {
    "$1" man "$2/man"
    for shell in bash zsh fish; do
        "$1" completions $shell > "$2/scx_amp.$shell"
    done
}
