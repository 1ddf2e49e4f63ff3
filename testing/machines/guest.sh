#!/usr/bin/env bash
# The first process of a machine without systemd, from here on: lays out what programs expect, runs the tests of TASK, each
# for its limit of time, tells of each in a line by the second serial port, and turns the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb
trap 'sync; poweroff -f' EXIT
exec >/dev/ttyS0 2>&1 </dev/null
mount -t tmpfs -o mode=755 run /run
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
mount -t fusectl fusectl /sys/fs/fuse/connections
ip link set lo up 2>/dev/null
# As services and logins have it.
ulimit -n 20000
ln -sfn /proc/self/fd /dev/fd
echo user_allow_other >>/etc/fuse.conf
# Below the path that it has where it was built, for programs know that of each other.
read -r repository </tests/repository
mkdir -p "$repository"
mount --bind /tests "$repository"
# Tests write there.
mkdir -p /var/tmp/tests
mount --bind /var/tmp/tests "$repository/target/tmp"
cd "$repository" || exit
export CARGO_TARGET_DIR=$repository/target NARUFS=$repository/target/release/narufs NARUFS_DEMAND_ALL=1
LINUX=$(uname -r | cut -d. -f1,2)
export LINUX

told() { echo "$*" | tee /dev/ttyS1; }
check() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 start=$SECONDS status=0
    shift 2
    # From the kernel's command line: names, each with a comma behind it.
    [[ -z ${only:-} || $only == *"$name",* ]] || return 0
    timeout --kill-after=20 "$limit" "$@" >"/run/$name.log" 2>&1 || status=$?
    if ((status == 0)); then
        told "$(printf 'ok     %-28s %4d s  %s' "$name" $((SECONDS - start)) "$(sed -nE 's/^[a-z]+: RESULT //p; s/^test result: //p' "/run/$name.log" | paste -sd';')")"
    else
        told "$(printf 'FAILED %-28s %4d s  status %d' "$name" $((SECONDS - start)) "$status")"
        tail -n 120 "/run/$name.log"
    fi
    # What a test leaves is taken away, and counts.
    local left
    left=$(awk '$3 ~ /^fuse/ && $3 != "fusectl" { print $2 }' /proc/mounts)
    if [[ -n $left ]]; then
        told "FAILED $name leaves mounts: $left"
        for point in $left; do umount -l "$point"; done
    fi
}
# Whether this kernel is of that version or later.
linux() { printf '%s\n' "$1" "$LINUX" | sort -VC; }

told "Linux $(uname -r), $(nproc) cores"
source "testing/machines/$1.sh"
told end
