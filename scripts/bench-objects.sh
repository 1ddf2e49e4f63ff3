#!/usr/bin/env bash
# Durable puts, and gets from memory, on one loop device in turn: the crate object_store's own LocalFileSystem with its fsync
# on ext4, and narufs in the process. Operations a second (median, least and most of ROUNDS), flushes of the device for each
# put. It takes root.
#
# bench-objects.sh PUTS [ROUNDS]
set -euo pipefail
puts=$(realpath "$1") rounds=${2:-5}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/narufs-objects.XXXXXX")
narufs=${NARUFS:-target/release/narufs}
loop=
finish() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [[ -n $loop ]] && losetup -d "$loop"
    rm -rf "$work"
}
trap finish EXIT
truncate -s 8G "$work/disk"
mkdir "$work/mnt"
loop=$(losetup --show -f "$work/disk")
stat=/sys/block/$(basename "$loop")/stat

for ((round = 0; round < rounds; round++)); do
    mkfs.ext4 -qF "$loop"
    mount "$loop" "$work/mnt"
    "$puts" local "$work/mnt" "$stat" | sed 's/^/ext4 /' >>"$work/figures"
    umount "$work/mnt"
    wipefs -qa "$loop"
    dd if=/dev/zero of="$loop" bs=1M count=1 status=none
    "$narufs" mkfs "$loop" --force >/dev/null
    "$puts" narufs "$loop" "$stat" | sed 's/^/narufs /' >>"$work/figures"
done

printf '%-6s %8s %6s %34s %34s %7s %16s\n' what bytes tasks 'ext4, a second' 'narufs, a second' times 'flushes for each'
sort -k2,2r -k3,3n -k4,4n -k1,1 -k5,5n "$work/figures" | awk '
    function end() { if (key == "") return
        line = sprintf("%.0f (%.0f to %.0f)", v[int((n + 1) / 2)], v[1], v[n])
        if (store == "ext4") { first = v[int((n + 1) / 2)]; words = line; flushed = f / n }
        else { split(key, k, " "); printf "%-6s %8s %6s %34s %34s %6.1fx %7.2f %8.2f\n", k[1], k[2], k[3], words, line,
            v[int((n + 1) / 2)] / first, flushed, f / n }
        n = 0; f = 0 }
    { now = $2 " " $3 " " $4; if (now != key || $1 != store) end()
        key = now; store = $1; v[++n] = $5; f += $6 }
    END { end() }'
