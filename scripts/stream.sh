#!/usr/bin/env bash
# Writes and reads a file from one end to the other in calls of 1 MiB, beyond memory: the library and the mount, kept
# and scratch, beside fio with direct I/O and 32 requests in flight on a file of the same size, in the same directory.
# The sync at the end is inside the time of writing. All take turns; the table has medians, half the spread, and the
# ratio to fio. Root. MIB (1024) is the size of the file, MEMORY_MIB (256) the cache, ROUNDS (3); WORK (target) is the
# directory, on a disk; arguments are the contenders (fio library mount mount-direct mount-cached scratch-library
# scratch-mount scratch-mount-direct scratch-mount-cached), of which the last words are for io=direct and io=cached.
set -euo pipefail
cd "$(dirname "$0")/.."
narufs=${NARUFS:-target/release/narufs}
mib=${MIB:-1024}
memory=${MEMORY_MIB:-256}
rounds=${ROUNDS:-3}
contenders=("$@")
[[ $# -gt 0 ]] || contenders=(
    fio library mount mount-direct mount-cached scratch-library scratch-mount scratch-mount-direct scratch-mount-cached
)
[[ $(id -u) -eq 0 ]] || { echo "stream.sh: mounts need root" >&2; exit 1; }
command -v fio >/dev/null || { echo "stream.sh: fio is not installed" >&2; exit 1; }

work=$(mktemp -d "${WORK:-target}/stream.XXXXXX")
at=$work/mount
mkdir "$at"
leave() {
    if mountpoint -q "$at"; then "$narufs" umount "$at" 2>/dev/null || umount -l "$at"; fi
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

# All files have their blocks, and were written, before anything is timed.
for file in fio image spill; do
    dd if=/dev/zero of="$work/$file" bs=1M count=$((mib + mib / 4 + 64)) oflag=direct conv=fsync status=none
done
"$narufs" mkfs --force "$work/image" >/dev/null

# with_fio write|read FILE OPTION...: MB/s
with_fio() {
    local column=48 rw=$1 file=$2
    shift 2
    [[ $rw == read ]] && column=7
    fio --name=stream --minimal --rw="$rw" --filename="$file" --size="${mib}m" --bs=1m --end_fsync=1 "$@" |
        awk -F';' -v column="$column" 'NF > 50 { printf "%.0f\n", $column * 1.024 / 1000 }'
}

# in_process TARGET OPTIONS: MB/s of writing, rewriting and reading
in_process() {
    "$narufs" bench iozone --target "$1" -o "$2" --memory "${mib}M" --ratio 1 --record 1M --repeat 1 --no-check --json - 2>/dev/null |
        awk -F'[:,]' '/"phase"/ { gsub(/[" ]/, "", $2); phase = $2 } /"mb_per_s"/ { rate[phase] = $2 }
            END { printf "%.0f %.0f %.0f\n", rate["write"], rate["rewrite"], rate["read"] }'
}

# through_mount: the same with the kernel's cache empty before the reads. Another file is written beforehand: a virtual
# machine that lends its free memory to its host gets it back page by page, some microseconds for each. A library meets
# that in its first file. Memory that begins at a page goes in one request where other memory takes two.
through_mount() {
    local write rewrite calls=(--ioengine=psync --fallocate=none --iomem_align=4096)
    with_fio write "$at/file" "${calls[@]}" >/dev/null
    rm "$at/file"
    write=$(with_fio write "$at/file" "${calls[@]}")
    rewrite=$(with_fio write "$at/file" "${calls[@]}" --overwrite=1)
    echo 1 >/proc/sys/vm/drop_caches
    echo "$write $rewrite $(with_fio read "$at/file" "${calls[@]}")"
    rm "$at/file"
    "$narufs" umount "$at"
}

# run CONTENDER: MB/s of writing, rewriting and reading
run() {
    local io=io=auto
    [[ $1 == *-direct ]] && io=io=direct
    [[ $1 == *-cached ]] && io=io=cached
    case $1 in
    fio)
        local direct=(--direct=1 --ioengine=libaio --iodepth=32) write
        write=$(with_fio write "$work/fio" "${direct[@]}")
        echo "$write $write $(with_fio read "$work/fio" "${direct[@]}")"
        ;;
    library) in_process "lib:$work/image" "memory=${memory}M" ;;
    scratch-library) in_process lib:scratch "memory=${memory}M,spill=$work/spill" ;;
    mount*)
        "$narufs" mount -o "memory=${memory}M,$io" "$work/image" "$at" >/dev/null
        through_mount
        ;;
    scratch-mount*)
        "$narufs" mount --scratch -o "memory=${memory}M,spill=$work/spill,$io" "$at" >/dev/null
        through_mount
        ;;
    *) echo "stream.sh: $1: no such contender" >&2; exit 2 ;;
    esac
}

declare -A rates
for ((round = 0; round < rounds; round++)); do
    for contender in "${contenders[@]}"; do
        read -r write rewrite read <<<"$(run "$contender")"
        rates[$contender,write]+=" $write" rates[$contender,rewrite]+=" $rewrite" rates[$contender,read]+=" $read"
    done
done
echo "| 1 MiB calls, $mib MiB, cache $memory MiB | write + sync, MB/s | of fio | rewrite + sync, MB/s | of fio | read, MB/s | of fio |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
for contender in "${contenders[@]}"; do
    row="| $contender"
    for phase in write rewrite read; do
        row+=$(awk -v mine="${rates[$contender,$phase]}" -v fio="${rates[fio,$phase]:-}" '
            function sorted(text, list,    n, i, j, t) {
                n = split(text, list, " ")
                for (i = 2; i <= n; i++)
                    for (j = i; j > 1 && list[j] + 0 < list[j - 1] + 0; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
                return n
            }
            BEGIN {
                n = sorted(mine, a); m = sorted(fio, b)
                x = a[int((n + 1) / 2)]
                printf " | %.0f ± %.0f", x, (a[n] - a[1]) / 2
                if (m) printf " | %.2f", x / b[int((m + 1) / 2)]; else printf " | "
            }')
    done
    echo "$row |"
done
