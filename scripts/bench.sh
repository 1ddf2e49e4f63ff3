#!/usr/bin/env bash
# The small benchmark: narufs beside ext4 on one loop device and on RAM, interleaved, medians of five rounds.
# Usage: bench.sh [ROUNDS [SECONDS]]; needs root. Prints a table in Markdown.
set -euo pipefail
cd "$(dirname "$0")/.."
ROUNDS=${1:-5}
SECONDS_EACH=${2:-2}
N=$PWD/target/release/narufs
MEASURE=$PWD/target/release/narufs-measure
WORK=$PWD/target/bench
SIZE_MIB=2048
[[ $(id -u) -eq 0 ]] || { echo "bench.sh: loop devices need root" >&2; exit 1; }

mkdir -p "$WORK/mnt"
ram=$(mktemp -d /dev/shm/narufs-bench.XXXXXX)
loop=; ramloop=
cleanup() {
    umount_any
    [[ -z $loop ]] || losetup -d "$loop" || true
    [[ -z $ramloop ]] || losetup -d "$ramloop" || true
    rm -rf "$ram" "$WORK"
}
umount_any() {
    mountpoint -q "$WORK/mnt" || return 0
    if [[ $(findmnt -no FSTYPE "$WORK/mnt") == fuse* ]]; then "$N" umount "$WORK/mnt"; else umount "$WORK/mnt"; fi
}
trap cleanup EXIT

# Written once beforehand, so that nobody pays for allocating the backing file.
dd if=/dev/zero of="$WORK/disk" bs=1M count=$SIZE_MIB oflag=direct status=none
dd if=/dev/zero of="$ram/disk" bs=1M count=$SIZE_MIB status=none
loop=$(losetup --find --show --direct-io=on "$WORK/disk")
ramloop=$(losetup --find --show "$ram/disk")

contender() { # NAME: makes and mounts it
    case $1 in
    ext4)          mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 "$loop"; mount "$loop" "$WORK/mnt" ;;
    ext4-ram)      mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 "$ramloop"; mount "$ramloop" "$WORK/mnt" ;;
    narufs-nvm)    rm -f "$ram/ring"
                   "$N" mkfs "$loop" --journal-emulated "$ram/ring" --journal-size 64M --force >/dev/null
                   "$N" mount "$loop" "$WORK/mnt" ;;
    narufs-ssd)    "$N" mkfs "$loop" --journal-size 64M --force >/dev/null
                   "$N" mount "$loop" "$WORK/mnt" ;;
    narufs-lib)    "$N" mkfs "$loop" --journal-emulated "$ram/ring" --journal-size 64M --force >/dev/null ;;
    esac
}
rows=(
    "fsync 2 ext4" "fsync 2 ext4-ram" "fsync 2 narufs-nvm"
    "fsync 16 ext4" "fsync 16 narufs-ssd"
    "create 1 ext4" "create 1 narufs-nvm" "create 1 narufs-lib"
    "overwrite 1 ext4" "overwrite 1 narufs-lib"
)
results=$WORK/results
: > "$results"
for round in $(seq "$ROUNDS"); do
    for row in "${rows[@]}"; do
        read -r workload threads name <<<"$row"
        rm -f "$ram/ring"
        contender "$name"
        target=$WORK/mnt
        [[ $name != narufs-lib ]] || target=lib:$loop
        line=$("$MEASURE" "$workload" "$target" "$threads" "$SECONDS_EACH")
        umount_any
        echo "round $round: $name: $line" >&2
        echo "$workload $threads $name $(sed -E 's/.*ops_per_s=([0-9]+) p50_us=([0-9.]+) p99_us=([0-9.]+).*/\1 \2 \3/' <<<"$line")" >> "$results"
    done
done
python3 - "$results" <<'PY'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    w, t, name, ops, p50, p99 = line.split()
    runs.setdefault((w, int(t), name), []).append((int(ops), float(p50), float(p99)))
print("| workload | threads | file system | ops/s, median | min - max | p50 us | p99 us | of ext4 |")
print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
base = {}
for (w, t, name), r in runs.items():
    ops = sorted(x[0] for x in r)
    median = statistics.median(ops)
    if name == "ext4":
        base[w, t] = median
    ratio = f"{median / base[w, t]:.2f}" if (w, t) in base else ""
    print(f"| {w} | {t} | {name} | {median:.0f} | {ops[0]} - {ops[-1]} | {statistics.median(x[1] for x in r):.1f} | {statistics.median(x[2] for x in r):.1f} | {ratio} |")
PY
