#!/bin/sh
# Runs in the system after each boot; what it finds goes to /var/trial/found.
cd /var/trial
exec >>found 2>&1
state() { cat /sys/kernel/sched_ext/state; }
wait_for() { i=0; while [ "$(state)" != $1 ] && [ $i -lt 300 ]; do i=$((i+1)); sleep 0.1; done; state; }
show() { systemctl show -P $1 scx_amp; }
is() { systemctl is-$1 scx_amp; }
# Until the process that systemd started last answers.
answers() { i=0; until scx_amp ctl status >status 2>/dev/null || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done; }
ask() { sed -n "s/^ *\"$1\": \"*\([^\",]*\).*/\1/p" status | head -n 1; }
# Every path but ours, logs, and backups that dpkg keeps of its own lists.
paths() { find / -xdev \( -path /var/trial -o -path /var/log -o -path '/var/lib/dpkg/*-old' \) -prune -o -print | sort; }

if [ ! -e before ]; then
    echo "systemd $(systemctl --version | head -n 1)"
    cat /proc/sys/kernel/random/boot_id >boot
    paths >before
    dpkg --install scx-amp.deb
    echo "installed $(dpkg-query -W -f '${db:Status-Status} ${Version} ${Architecture}' scx-amp)"
    echo "as-installed $(is enabled) $(is active) $(state)"
    systemctl enable scx_amp
    echo "enabled $(is enabled)"
    systemctl reboot
    exit
fi

[ "$(cat /proc/sys/kernel/random/boot_id)" != "$(cat boot)" ] && echo "another boot"
echo "up $(wait_for enabled)"
answers
echo "active $(is active) $(readlink /proc/$(show MainPID)/exe)"
echo "profile $(ask profile) $(ask policy)"
[ -S /run/scx/root/stats ] && echo "statistics served"
scx_amp ctl profile fair >changed; echo "change-status $?"
scx_amp ctl status >status
echo "changed $(ask profile) $(ask policy) $(state)"

kill -KILL $(show MainPID); echo "killed $(wait_for disabled)"
echo "started-again $(wait_for enabled) $(show NRestarts)"
answers; echo "profile-again $(ask profile) $(ask policy)"
# The kernel ejects whichever scheduler is loaded.
echo S >/proc/sysrq-trigger; echo "ejected $(wait_for disabled)"
echo "started-anew $(wait_for enabled) $(show NRestarts)"
answers; echo "ticks $(ask ticks)"

systemctl stop scx_amp; echo "stopped $(is active) $(wait_for disabled)"
dpkg --purge scx-amp
echo "purged $(dpkg-query -W -f '${db:Status-Status}' scx-amp 2>/dev/null || echo unknown)"
systemctl cat scx_amp >/dev/null 2>&1 || echo "unit none"
echo "programs $(readlink /proc/[0-9]*/exe | grep -c -e scx_amp -e amp-workload)"
paths >after
diff before after | sed 's/^[<>]/path &/'
find /run /sys/fs/bpf \( -name '*scx*' -o -name '*amp*' \) | sed 's/^/left /'
journalctl -u scx_amp -b --no-pager -o cat | sed 's/^/journal /'
echo "end $(state)"
touch done
systemctl reboot
