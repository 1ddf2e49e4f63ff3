#!/usr/bin/env bash
# SQLite's one-row commits on one loop device: ext4 with SQLite's own VFS, and narufs in the process. Commits a second,
# flushes of the device and bytes written to it for each, medians of ROUNDS. Then the same in memory: ext4 on a loop device
# there, and an image with a journal that stands for persistent memory. It takes root.
#
# bench-sqlite.sh EXTENSION [COMMITS] [ROUNDS]
set -euo pipefail
extension=$(realpath "$1") commits=${2:-2000} rounds=${3:-5}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/narufs-sqlite.XXXXXX")
memory=$(mktemp -d /dev/shm/narufs-sqlite.XXXXXX)
narufs=${NARUFS:-target/release/narufs}
loop=
finish() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [[ -n $loop ]] && losetup -d "$loop"
    rm -rf "$work" "$memory"
}
trap finish EXIT
truncate -s 1G "$work/disk"
mkdir "$work/mnt"

on() { # FILE: makes that the device
    [[ -z $loop ]] || losetup -d "$loop"
    loop=
    loop=$(losetup --show -f "$1")
    stat=/sys/block/$(basename "$loop")/stat
}

sql() { # PRAGMAS
    echo "$1 CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b);"
    # What is measured begins and ends where these lines are read.
    echo ".shell cat $stat >$work/before; date +%s%N >>$work/before"
    awk -v n="$commits" 'BEGIN { for (i = 0; i < n; i++) print "INSERT INTO t(b) VALUES(randomblob(100));" }'
    echo ".shell cat $stat >$work/after; date +%s%N >>$work/after"
}

one() { # URI PRAGMAS...: commits a second, flushes and bytes for each
    sql "$2" >"$work/script"
    sqlite3 -batch -bail -cmd ".load $extension" -cmd ".open $1" <"$work/script" >"$work/out"
    cat "$work/before" "$work/after" | tr '\n' ' ' | awk -v n="$commits" '{
        half = NF / 2
        # Writes are the 5th field, sectors the 7th, flushes the 16th; the time is the last.
        printf "%.0f %.2f %.0f\n", n * 1e9 / ($NF - $half), ($(half + 16) - $16) / n, ($(half + 7) - $7) * 512 / n }'
}

median() { # COLUMN FILE
    sort -n -k"$1","$1" "$2" | awk -v c="$1" '{ v[NR] = $c } END { print v[int((NR + 1) / 2)] }'
}

ext4() { # MODE
    mkfs.ext4 -qF "$loop"
    mount "$loop" "$work/mnt"
    one "$work/mnt/a.db" "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL;"
    umount "$work/mnt"
}

naru() { # MODE DURABILITY
    wipefs -qa "$loop"
    dd if=/dev/zero of="$loop" bs=1M count=1 status=none
    "$narufs" mkfs "$loop" --force >/dev/null
    one "file:/a.db?vfs=narufs&image=$loop&durability=$2" "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL;"
}

emulated() { # MODE
    rm -f "$memory"/image*
    "$narufs" mkfs "$memory/image" --size 256M --journal-emulated "$memory/image.journal" >/dev/null
    one "file:/a.db?vfs=narufs&image=$memory/image" "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL;"
}

printf '%-28s %10s %16s %14s\n' "$commits commits, FULL" commits/s flushes/commit bytes/commit
figures() { # NAME COMMAND...
    local name=$1 round
    shift
    : >"$work/figures"
    for ((round = 0; round < rounds; round++)); do "$@" >>"$work/figures"; done
    printf '%-28s %10s %16s %14s\n' "$name" "$(median 1 "$work/figures")" "$(median 2 "$work/figures")" \
        "$(median 3 "$work/figures")"
}

on "$work/disk"
figures "ext4, DELETE" ext4 delete
figures "ext4, WAL" ext4 wal
figures "narufs, DELETE" naru delete power
figures "narufs, WAL" naru wal power
figures "narufs, DELETE, window=100ms" naru delete window=100ms
truncate -s 1G "$memory/disk"
on "$memory/disk"
figures "ext4 in memory, DELETE" ext4 delete
figures "ext4 in memory, WAL" ext4 wal
# These flush no device.
figures "emulated NVM, DELETE" emulated delete
figures "emulated NVM, WAL" emulated wal
