#!/usr/bin/env bash
# Runs the same calls with narufs bench and with fio, and with dbench where it makes them, in turn, on tmpfs and on
# ext4 over a loop device in RAM (a disk would hide what a call costs behind its own spread), and prints a table of
# the rates and their ratio. Root; ROUNDS (5) and TIME (1, seconds of each run) may be set; arguments are the file
# systems (tmpfs ext4). docs/perf/experiments/0003-other-generators.md has a measured table.
set -euo pipefail
cd "$(dirname "$0")/.."
narufs=${NARUFS:-target/release/narufs}
rounds=${ROUNDS:-5}
time=${TIME:-1}
systems=("$@")
[[ $# -gt 0 ]] || systems=(tmpfs ext4)
[[ $(id -u) -eq 0 ]] || { echo "agree.sh: mounts need root" >&2; exit 1; }
for tool in fio dbench mkfs.ext4; do
    command -v "$tool" >/dev/null || { echo "agree.sh: $tool is not installed" >&2; exit 1; }
done

work=$(mktemp -d /dev/shm/narufs-agree.XXXXXX)
at=$work/mount
mkdir "$at"
cleanup() {
    # After a signal a generator may still be at work: lazily, then.
    if mountpoint -q "$at"; then umount "$at" 2>/dev/null || umount -l "$at"; fi
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# ours WORKLOAD THREADS: operations a second
ours() {
    "$narufs" bench "$1" --target "$at" --threads "$2" --seconds "$time" --repeat 1 --no-check --json - 2>/dev/null |
        awk -F'[:,]' '/"ops_per_s"/ { printf "%.1f\n", $2 }'
}

# fio WORKLOAD THREADS: the same calls with fio, with as little bookkeeping as it can; its buffers stay as they are.
with_fio() {
    local private="--filename_format=$at/fio.\$jobnum"
    local shared="--filename=$at/fio.shared --offset_increment=8m"
    local how column=49
    case $1 in
    DWOL) how="--rw=write $private" ;;
    DWOM) how="--rw=write $shared" ;;
    DWSL) how="--rw=write --fsync=1 $private" ;;
    DRBL) how="--rw=read $private" column=8 ;;
    esac
    if [[ $1 == DWOM ]]; then
        # Written as narufs bench writes it: how large the page cache's folios are decides what a write costs.
        dd if=/dev/zero of="$at/fio.shared" bs=1M count="$((8 * $2))" conv=fsync status=none
    fi
    # shellcheck disable=SC2086 # words of options
    fio --name=agree --minimal --ioengine=psync --thread --numjobs="$2" --cpus_allowed="0-$(($(nproc) - 1))" \
        --cpus_allowed_policy=split --bs=4k --size=4k --io_size=1t --time_based --runtime="$time" --gtod_reduce=1 \
        --scramble_buffers=0 --invalidate=0 --fallocate=none --group_reporting $how |
        awk -F';' -v column="$column" 'NF > 50 { print $column }'
    rm -f "$at"/fio.*
}

# dbench DWSL THREADS: writes and fsyncs of one page; from their mean latencies, because dbench asks between any two
# calls whether its parent lives.
with_dbench() {
    local load=$work/load
    {
        echo '0.0 NTCreateX "/client1" 0x44 0x2 2 0x00000000' # each process puts its own number
        for ((i = 0; i < 1000; i++)); do
            printf '0.0 WriteX 2 0 4096 4096 0x00000000\n0.0 Flush 2 0x00000000\n'
        done
        echo '0.0 Close 2 0x00000000'
    } >"$load"
    local pinned=()
    # Its processes inherit one set of cores: only a single one can be kept where it is, as narufs bench keeps its threads.
    [[ $2 == 1 ]] && pinned=(taskset -c 0)
    "${pinned[@]}" dbench -c "$load" -D "$at" -t "$time" --no-resolve "$2" |
        awk -v threads="$2" '$1 == "WriteX" || $1 == "Flush" { ms += $3 } END { printf "%.1f\n", threads * 1000 / ms }'
    rm -f "$at"/client*
}

# row SYSTEM WORKLOAD THREADS PEER
row() {
    local mine=() theirs=()
    for ((round = 0; round < rounds; round++)); do
        mine+=("$(ours "$2" "$3")")
        theirs+=("$("with_$4" "$2" "$3")")
    done
    awk -v row="| $1 | $2 | $3 | $4" -v mine="${mine[*]}" -v theirs="${theirs[*]}" '
        function sorted(text, list,    n, i, j, t) {
            n = split(text, list, " ")
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && list[j] + 0 < list[j - 1] + 0; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            return n
        }
        BEGIN {
            n = sorted(mine, a); m = sorted(theirs, b)
            x = a[int((n + 1) / 2)]; y = b[int((m + 1) / 2)]
            printf "%s | %.0f ± %.0f %% | %.0f ± %.0f %% | %.2f | %+.2f |\n", row,
                x, (a[n] - a[1]) / x * 50, y, (b[m] - b[1]) / y * 50, x / y, ('"$3"' / x - '"$3"' / y) * 1e6
        }'
}

echo "| on | workload | threads | peer | narufs bench, ops/s | peer, ops/s | ratio | difference of an operation, us |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for system in "${systems[@]}"; do
    case $system in
    tmpfs) mount -t tmpfs -o size=256m tmpfs "$at" ;;
    ext4)
        dd if=/dev/zero of="$work/disk" bs=1M count=512 status=none
        mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/disk"
        mount -o loop "$work/disk" "$at"
        ;;
    *) echo "agree.sh: $system: say tmpfs or ext4" >&2; exit 2 ;;
    esac
    for workload in DWOL DRBL DWOM DWSL; do
        for threads in 1 2; do row "$system" "$workload" "$threads" fio; done
    done
    if [[ $system == ext4 ]]; then
        for threads in 1 2; do row "$system" DWSL "$threads" dbench; done
    fi
    umount "$at"
done
