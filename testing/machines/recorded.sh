#!/usr/bin/env bash
# A file system on the first part of /dev/vdc, and load on it: recorded.sh narufs|ext4|ext4-nobarrier COUNT files|sqlite.
# See replay.sh.
set -euo pipefail
fs=131072
dir=/run/recorded
mkdir -p $dir
# Parts without a table of partitions, which would be in the way.
addpart /dev/vdc 1 0 $fs
addpart /dev/vdc 2 $((fs + 2048)) 2048
case $1 in
    narufs)
        "$NARUFS" mkfs /dev/vdc1 --journal-size 2M --force
        "$NARUFS" mount /dev/vdc1 $dir -o noatime
        ;;
    ext4 | ext4-nobarrier)
        mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/vdc1
        mount -t ext4 -o "noatime$([[ $1 == ext4 ]] || echo ,nobarrier)" /dev/vdc1 $dir
        ;;
esac
sync
NAMES=1 LOAD=$3 testing/machines/load.py work $dir /dev/vdc2 "$2"
LOAD=$3 testing/machines/load.py judge $dir
case $1 in
    narufs) "$NARUFS" umount $dir ;;
    # Half of its superblock, which the unmount writes, would be damage: it takes sectors for larger than they are here.
    *) ;;
esac
