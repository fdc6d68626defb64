#!/bin/sh
# A campaign as N processes of GNU parallel, each of which is a shard:
#
#     tools/campaign/parallel.sh CAMPAIGN.toml DIR N [OPTION…]
#
# OPTIONs are parallel's. Over ssh: --sshlogin host1,host2 --workdir . (DIR, the campaign's file and its mixes at the same place
# below the home folder of each, as on a shared file system). Whatever happens to a process, call the same again: what is done is
# not run again, and no two processes run the same job. The table: scx_amp campaign CAMPAIGN.toml --dir DIR --merge
set -eu
if [ $# -lt 3 ]; then
    echo "usage: $0 CAMPAIGN.toml DIR N [OPTION of parallel]..." >&2
    exit 2
fi
file=$1
dir=$2
n=$3
shift 3
# --quote: the words as they are, whatever is in them
seq "$n" | parallel --quote --tagstring 'shard {}' --line-buffer "$@" scx_amp campaign "$file" --dir "$dir" --shard "{}/$n"
