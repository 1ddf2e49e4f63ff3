#!/usr/bin/env bash
# What fio says of the library, the mount, ext4 and xfs, in turn, each on the same loop device of WORK; before that, what it and
# `narufs bench` say of the same work: bench.sh ENGINE NARUFS WORK [SECONDS]. ENGINE is what build.sh has made, NARUFS the
# program. It takes root.
set -euo pipefail
engine=$(realpath "$1") narufs=$(realpath "$2") seconds=${4:-5}
[[ $(id -u) -eq 0 ]] || { echo "bench.sh: it takes root, for loop devices and mounts" >&2; exit 1; }
mkdir -p "$3"
work=$(mktemp -d "$(realpath "$3")/bench-fio.XXXXXX")
at=$work/at device=
cleanup() {
    ! mountpoint -q "$at" || "$narufs" umount "$at" 2>/dev/null || umount "$at"
    [[ -z $device ]] || losetup -d "$device"
    rm -rf "$work"
}
trap cleanup EXIT
mkdir "$at"
truncate -s 3G "$work/device"
device=$(losetup --find --show "$work/device")

run() { # NAME OPTIONS...: the workloads
    local name=$1
    shift
    for job in "rw=randwrite fsync=1" "rw=randwrite fdatasync=1 numjobs=8" "rw=randrw" "rw=randwrite sync=1 iodepth=32"; do
        echo "== $name: $job"
        local words=() word
        for word in $job; do words+=("--$word"); done
        fio --name=job --thread=1 --bs=4k --size=64M --time_based --runtime="$seconds" --group_reporting "$@" "${words[@]}"
    done
}

# Each thread overwrites the one page of a file of its own, and syncs it. Without io_size fio opens the file anew each time.
for round in 1 2 3; do
    for threads in 1 8; do
        "$narufs" mkfs "$device" --force >/dev/null
        echo "== round $round, $threads threads: narufs bench DWSL, and fio"
        "$narufs" bench DWSL --target "lib:$device" --repeat 1 --seconds "$seconds" --threads $threads --no-check
        fio --name=job --thread=1 --bs=4k --rw=randwrite --norandommap --size=4k --io_size=1T --fsync=1 --time_based \
            --runtime="$seconds" --numjobs=$threads --cpus_allowed="0-$(($(nproc) - 1))" --cpus_allowed_policy=split \
            --group_reporting "--ioengine=external:$engine" "--image=$device" --image_size=3000M | grep -E 'write: '
    done
done
run library "--ioengine=external:$engine" "--image=$device" --image_size=3000M
"$narufs" mkfs "$device" --force
"$narufs" mount "$device" "$at"
run mount "--directory=$at" --ioengine=libaio
# umount(8) returns before the server has given the device up.
"$narufs" umount "$at"
mkfs.ext4 -qF "$device"
mount "$device" "$at"
run ext4 "--directory=$at" --ioengine=libaio
umount "$at"
mkfs.xfs -qf "$device"
mount "$device" "$at"
run xfs "--directory=$at" --ioengine=libaio
