#!/usr/bin/env bash
# A file system of so many MiB at the beginning of /dev/vdc, and load on it: recorded.sh KIND COUNT LOAD MIB DURABILITY.
# KIND is narufs, narufs-nvdimm (its journal in persistent memory, a device of that alone), narufs-nvdimm-ext4 or -xfs (on
# those, with DAX), ext4 or ext4-nobarrier; narufs is mounted with DURABILITY.
# See replay.sh.
set -euo pipefail
export LOAD=$3 NAMES=1
fs=$(($4 * 2048))
dir=/run/recorded
load=testing/machines/load.py
mkdir -p $dir
# Parts without a table of partitions, which would be in the way.
addpart /dev/vdc 1 0 $fs
addpart /dev/vdc 2 $((fs + 2048)) 2048
journal=()
case $1 in
    narufs*)
        if [[ $1 == narufs-nvdimm* ]]; then
            cat /sys/bus/nd/devices/ndbus*/wait_probe >/dev/null
            mode=fsdax place=/run/pmem/ring
            [[ $1 != narufs-nvdimm ]] || mode=devdax place=/dev/dax0.0
            ndctl create-namespace --force --reconfig=namespace0.0 --mode=$mode --map=mem
            case $1 in
                *-ext4) mkfs.ext4 -q -b 4096 /dev/pmem0 ;;
                *-xfs) mkfs.xfs -q -m reflink=0 /dev/pmem0 ;;
            esac
            if [[ $mode == fsdax ]]; then
                mkdir -p /run/pmem
                mount -o dax=always /dev/pmem0 /run/pmem
            fi
            journal=(--journal $place)
        fi
        "$NARUFS" mkfs /dev/vdc1 "${journal[@]}" --journal-size 2M --force
        # moments.py takes it from the memory as one piece.
        if [[ ${mode:-} == fsdax ]]; then
            filefrag $place | tee /dev/stderr | grep -q ': 1 extent found'
        fi
        "$NARUFS" mount /dev/vdc1 $dir -o noatime
        $load make $dir
        # What the load begins with is there, whatever is promised of the rest.
        "$NARUFS" umount $dir
        "$NARUFS" mount /dev/vdc1 $dir -o "noatime,durability=$5"
        ;;
    ext4 | ext4-nobarrier)
        mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/vdc1
        mount -t ext4 -o "noatime$([[ $1 == ext4 ]] || echo ,nobarrier)" /dev/vdc1 $dir
        $load make $dir
        ;;
esac
sync
# moments.py waits for it.
echo begun >/dev/ttyS1
$load work $dir /dev/vdc2 "$2"
$load judge $dir
case $1 in
    narufs*) "$NARUFS" umount $dir ;;
    # Half of its superblock, which the unmount writes, would be damage: it takes sectors for larger than they are here.
    *) ;;
esac
