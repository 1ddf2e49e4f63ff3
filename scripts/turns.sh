#!/usr/bin/env bash
# What a change costs: two builds of narufs in turn on mounts of their own. `turns.sh BEFORE AFTER [WORKLOAD...]` takes two
# directories of programs (target/release of two trees; narufs-bench is taken from the second for both) and prints, for
# each workload (DWOM MRPM MWCM varmail), the median operations a second of both, the ratio, and the spread of the ratios of
# rounds. Each round runs both, and every other round in the other order. Root. ROUNDS (9), SECONDS_EACH (3), THREADS (2);
# WORK (target) is the directory, on a disk; OPTIONS are of both mounts, OPTIONS_BEFORE and OPTIONS_AFTER of one more: two
# ways to mount are compared by the same directory twice.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 2 ]] || { echo "turns.sh: say BEFORE AFTER [WORKLOAD...], directories with narufs and narufs-bench" >&2; exit 2; }
[[ $(id -u) -eq 0 ]] || { echo "turns.sh: mounts need root" >&2; exit 1; }
sides=("$(realpath "$1")" "$(realpath "$2")")
shift 2
workloads=("$@")
[[ $# -gt 0 ]] || workloads=(DWOM MRPM MWCM varmail)
work=$(mktemp -d "${WORK:-target}/turns.XXXXXX")
leave() {
    for side in 0 1; do
        if mountpoint -q "$work/$side"; then
            "${sides[side]}/narufs" umount "$work/$side" 2>/dev/null || umount -l "$work/$side"
        fi
    done
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

options=("${OPTIONS:-}" "${OPTIONS:-}")
options[0]+=${OPTIONS_BEFORE:+${options[0]:+,}$OPTIONS_BEFORE}
options[1]+=${OPTIONS_AFTER:+${options[1]:+,}$OPTIONS_AFTER}
for side in 0 1; do
    mkdir "$work/$side"
    dd if=/dev/zero of="$work/$side.img" bs=1M count=2048 oflag=direct conv=fsync status=none
    "${sides[side]}/narufs" mkfs --force "$work/$side.img" >/dev/null
    "${sides[side]}/narufs" mount "$work/$side.img" "$work/$side" ${options[side]:+-o "${options[side]}"}
done
rate() { # SIDE WORKLOAD: operations a second
    "${sides[1]}/narufs" bench "$2" --target "$work/$1" --threads "${THREADS:-2}" --seconds "${SECONDS_EACH:-3}" \
        --repeat 1 --no-check --json - 2>/dev/null | sed -nE 's/.*"ops_per_s": *([0-9.]+).*/\1/p' | head -n 1
}
for workload in "${workloads[@]}"; do
    for ((round = 0; round < ${ROUNDS:-9}; round++)); do
        for side in $((round % 2)) $((1 - round % 2)); do
            printf '%s %s %s %s\n' "$workload" "$round" "$side" "$(rate "$side" "$workload")"
        done
    done
done | tee "$work/rates" | sed 's/^/# /' >&2
python3 - "$work/rates" <<'PY'
import statistics, sys
rounds = {}
for line in open(sys.argv[1]):
    workload, number, side, rate = line.split()
    rounds.setdefault(workload, {}).setdefault(number, {})[side] = float(rate)
print(f"{'workload':<12} {'before':>12} {'after':>12} {'ratio':>8}  of rounds")
for workload, each in rounds.items():
    ratios = sorted(both["1"] / both["0"] for both in each.values())
    before, after = (statistics.median(both[side] for both in each.values()) for side in "01")
    print(f"{workload:<12} {before:>12.0f} {after:>12.0f} {statistics.median(ratios):>8.3f}  {ratios[0]:.3f} to {ratios[-1]:.3f}")
PY
