#!/bin/bash
# A campaign as an array of Slurm jobs, each of which is a shard:
#
#     sbatch --array=1-8 tools/campaign/slurm.sh CAMPAIGN.toml DIR
#
# DIR is a folder that all nodes share. Whatever happens to a task, submit the same again: what is done is not run again, and
# no two tasks run the same job. The table: scx_amp campaign CAMPAIGN.toml --dir DIR --merge
#SBATCH --job-name=scx_amp-campaign
#SBATCH --ntasks=1
#SBATCH --output=%x-%A_%a.log
set -eu
if [ $# -ne 2 ]; then
    echo "usage: sbatch --array=1-N $0 CAMPAIGN.toml DIR" >&2
    exit 2
fi
shard=1/1
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    first=${SLURM_ARRAY_TASK_MIN:-1}
    shard=$((SLURM_ARRAY_TASK_ID - first + 1))/${SLURM_ARRAY_TASK_COUNT:-1}
fi
exec scx_amp campaign "$1" --dir "$2" --shard "$shard"
