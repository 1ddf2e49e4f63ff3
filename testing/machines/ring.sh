#!/usr/bin/env bash
# An image on /dev/vdc whose journal is in persistent memory: on ext4 or XFS with DAX, or a device of that alone (devdax);
# `ring` says which. See nvdimm.sh.
set -euo pipefail
image=/dev/vdc dir=/run/naru load=testing/machines/load.py
case $ring in
    ext4 | xfs) mode=fsdax journal=/run/pmem/ring ;;
    devdax) mode=devdax journal=/dev/dax0.0 ;;
esac
mkdir -p /run/pmem $dir

fail() { echo "ring: FAILED: $*" >&2; exit 1; }
memory() {
    [[ $ring == devdax ]] || mountpoint -q /run/pmem || mount -t "$ring" -o dax=always /dev/pmem0 /run/pmem
}
stat_of() { "$NARUFS" stats $dir --json | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }
attach() {
    memory
    "$NARUFS" mount $image $dir
    [[ $(stat_of journal_kind) == pmem && $(stat_of durability) == power ]] ||
        fail "the journal is $(stat_of journal_kind), durability $(stat_of durability)"
}
detach() {
    "$NARUFS" umount $dir
    "$NARUFS" fsck $image >/run/fsck.log || fail "fsck: $(cat /run/fsck.log)"
}
# Each number that a file of acknowledgements has must have been reached.
reached() { # ACKS
    $load judge $dir >/run/state
    awk 'FNR == NR { if ($1 == "ack") acked[$2] = $3; next } { found[$2] = $3 }
        END { for (p in acked) if (found[p] + 0 < acked[p]) { print p ": " acked[p] " was acknowledged, " found[p] " is there"; bad = 1 } exit bad }' \
        "$1" /run/state || fail "an operation is lost"
}

make() {
    # By itself it is a disk without DAX.
    ndctl create-namespace --force --reconfig=namespace0.0 --mode=$mode --map=mem
    case $ring in
        ext4) mkfs.ext4 -q -b 4096 /dev/pmem0 ;;
        xfs) mkfs.xfs -q -m reflink=0 /dev/pmem0 ;;
    esac
    memory
    if "$NARUFS" mkfs $image --journal /var/tmp/ring --journal-size 16M --force 2>/run/said; then
        fail "a journal is made where there is no persistent memory"
    fi
    grep -q MAP_SYNC /run/said || fail "a disk without DAX is refused with: $(cat /run/said)"
    # All that maps it asks for MAP_SYNC.
    "$NARUFS" mkfs $image --journal $journal --journal-size 16M --force
    attach
    detach
}

# Both processes of the mount are killed under load, twice.
killed() {
    local round server supervisor worker wanted
    : >/run/acks
    for ((round = 1; round <= 2; round++)); do
        attach
        $load work $dir /run/acks 2>/run/load.log &
        worker=$!
        wanted=$(($(wc -l </run/acks) + RANDOM % 30 + 1))
        while (($(wc -l </run/acks) < wanted)); do
            kill -0 $worker || fail "the load has ended: $(cat /run/load.log)"
            sleep 0.1
        done
        server=$(stat_of server_pid) supervisor=$(stat_of supervisor_pid)
        ((!supervisor)) || kill -STOP "$supervisor"
        kill -KILL "$server"
        ((!supervisor)) || kill -KILL "$supervisor"
        wait "$worker" || true
        tail --pid="$server" -f /dev/null
        umount -l $dir
        attach
        reached /run/acks
        detach
    done
    echo "ring: RESULT killed $((round - 1)) times, $(wc -l </run/acks) acknowledged"
}

case $1 in
    make) make ;;
    killed) killed ;;
    recover)
        attach
        $load judge $dir >/dev/ttyS1
        detach
        ;;
    work)
        attach
        exec $load work $dir /dev/ttyS1
        ;;
esac
