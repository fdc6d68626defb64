#!/usr/bin/busybox sh
# First program of the guest: mounts what programs expect, then hands over to the agent (which stays PID 1).
b=/usr/bin/busybox
$b mount -t devtmpfs dev /dev 2>/dev/null
exec </dev/console >/dev/console 2>&1
$b mount -t proc proc /proc
$b --install -s /amp/bin
export PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/usr/games:/bin:/sbin:/amp/bin HOME=/root TERM=vt100
mount -t sysfs sys /sys
# /tmp and /run stay on the root file system: it is in memory, and files for the guest may have been put there.
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
# Programs that need sched_ext look for the kernel's configuration; where it could not be fetched, this must do.
[ -f "/boot/config-$(uname -r)" ] || echo CONFIG_SCHED_CLASS_EXT=y >"/boot/config-$(uname -r)"
[ -e /etc/mtab ] || ln -s /proc/self/mounts /etc/mtab
hostname amp-board
ip link set lo up
exec /amp/amp-guest
