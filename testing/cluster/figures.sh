#!/usr/bin/env bash
# etcd and PostgreSQL on three nodes whose files are on ext4, xfs or narufs, in turn, round after round: the engines' own
# counters. Images are written with zeros once, and reached through loop devices past the host's cache; narufs is mounted
# as in the other scenarios, but without their drives. All nodes share one device and the same cores: this compares file
# systems, it does not say what a cluster does. FIGURES_ROUNDS (3), FIGURES_SECONDS (20) and FIGURES_WRITES (3000) are
# its length.
source "$(dirname "$0")/lib.sh"
source "$ROOT/testing/cluster/members.sh"
source "$ROOT/testing/cluster/pg.sh"
for program in mkfs.ext4 mkfs.xfs losetup; do command -v "$program" >/dev/null || lacks "$program"; done
rounds=${FIGURES_ROUNDS:-3} seconds=${FIGURES_SECONDS:-20} writes=${FIGURES_WRITES:-3000}
declare -A LOOP=()
# They go when what is mounted has gone.
trap 'status=$?; set +e; for node in "${!LOOP[@]}"; do losetup -d "${LOOP[$node]}"; done; (exit $status); cluster_cleanup' EXIT

open_store() { # STORE NODE
    local store=$1 node=$2 dir=$WORK/node$2 device
    device=$(losetup --find --show --direct-io=on "$WORK/node$node.img")
    LOOP[$node]=$device
    mkdir -p "$dir"
    case $store in
    ext4) mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$device" ;;
    xfs) mkfs.xfs -qfK "$device" ;;
    narufs)
        "$NARUFS" mkfs "$device" --force >/dev/null
        FILES_MADE+=("/dev/shm/narufs-$("$NARUFS" info "$device" --json |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["uuid"])')")
        at "$node" "$NARUFS" mount "$device" "$dir" -o supervise=yes,noatime
        return
        ;;
    esac
    mount -t "$store" -o noatime "$device" "$dir"
}
close_store() { # STORE NODE
    if [[ $1 == narufs ]]; then "$NARUFS" umount "$WORK/node$2"; else umount "$WORK/node$2"; fi
    losetup -d "${LOOP[$2]}"
    unset "LOOP[$2]"
}

# Mean and quantiles of the members' histogram of syncs of the log, in milliseconds.
wal_fsync() {
    at hub python3 - "${endpoints[@]}" <<'READ'
import sys, urllib.request

total, count, buckets = 0.0, 0, {}
for endpoint in sys.argv[1:]:
    for line in urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=60).read().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name == "etcd_disk_wal_fsync_duration_seconds_sum":
            total += float(value)
        elif name == "etcd_disk_wal_fsync_duration_seconds_count":
            count += int(value)
        elif name.startswith("etcd_disk_wal_fsync_duration_seconds_bucket"):
            bound = float(name.split('"')[1].replace("+Inf", "inf"))
            buckets[bound] = buckets.get(bound, 0) + int(float(value))


def below(share):
    return next(bound for bound in sorted(buckets) if buckets[bound] >= share * count) * 1000


print(f"{count} log syncs, mean {total / count * 1000:.2f} ms, half below {below(0.5):g} ms, 99 of 100 below {below(0.99):g} ms")
READ
}

etcd_figures() { # STORE
    local node acked=0 began writing
    for node in 1 2 3; do start_member $node; done
    for node in 1 2 3; do until_done 120 "member $node becomes healthy" healthy $node; done
    rm -rf "$WORK/logs/kv"
    began=$(date +%s%N)
    coproc writers { exec nsenter --net="/run/netns/$(space hub)" -- "${kv[@]}" write "$WORK/logs/kv" "${endpoints[@]}"; }
    writing=$writers_PID
    started "$writing"
    while ((acked < writes)); do read -r -t 120 acked <&"${writers[0]}" || fail "the writers stand still at $acked"; done
    say "round $round, etcd on $1: $((acked * 1000000000 / ($(date +%s%N) - began))) writes/s, $(wal_fsync)"
    kill -TERM "$writing"
    await "$writing" || fail "the writers have failed"
    for node in 1 2 3; do
        kill -TERM "${MEMBER[$node]}"
        await "${MEMBER[$node]}" || true
    done
}

pgbench_figures() { # STORE
    local out=$WORK/logs/bench
    pg_primary 1
    pg hub pgbench -h "$(address 1)" -i -q -s 2 >"$out" 2>&1 || fail "pgbench -i: $(cat "$out")"
    pg_standby 2 1
    pg hub pgbench -h "$(address 1)" -n -c 4 -j 2 -T "$seconds" >"$out" 2>&1 || fail "pgbench: $(cat "$out")"
    say "round $round, PostgreSQL with a standby on $1: $(grep -E '^(latency average|tps)' "$out" | sed 's/ (.*//' | paste -sd,)"
    pg_stop 1
    pg_stop 2
}

cluster 1 2 3
for node in 1 2 3; do dd if=/dev/zero of="$WORK/node$node.img" bs=1M count=1024 conv=fsync status=none; done
for ((round = 1; round <= rounds; round++)); do
    for store in ext4 xfs narufs; do
        for engine in etcd pgbench; do
            for node in 1 2 3; do open_store $store $node; done
            "${engine}_figures" $store
            for node in 1 2 3; do close_store $store $node; done
        done
    done
done
