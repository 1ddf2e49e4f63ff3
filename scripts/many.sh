#!/usr/bin/env bash
# Many files: `many.sh [FILES] [DIR]` (3000000, /tmp) fills a new image in DIR with so many files of 4 KiB, 128 in a
# directory, by way of the library, then says how long it takes to mount (after a clean unmount, and after the
# process was killed while it made more files) and to check, and with how much memory. NARUFS is the program, KEEP=1
# keeps the image for a second call, which then only mounts and checks. FUSE and root are needed.
set -euo pipefail
files=${1:-3000000}
dir=${2:-/tmp}
narufs=${NARUFS:-$(dirname "$0")/../target/release/narufs}
image=$dir/narufs-many.img
point=$dir/narufs-many
mkdir -p "$point"
load=

tidy() {
    [[ -z $load ]] || kill -9 $load 2>/dev/null || true
    "$narufs" umount "$point" 2>/dev/null || true
    rmdir "$point" 2>/dev/null || true
    [[ -n ${KEEP:-} ]] || rm -f "$image"
}
trap tidy EXIT

seconds() { # WHAT COMMAND...
    local what=$1 begin
    shift
    begin=$(date +%s%N)
    "$@" >/dev/null
    awk -v what="$what" -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "%-44s %8.2f s\n", what, ns / 1e9 }'
}

# create FILES SECONDS: makes files and kills what makes them, when all are made or after so long.
create() {
    local bench child end=$((SECONDS + $2))
    "$narufs" bench tokubench --target "lib:$image" --files "$1" --threads 2 --seconds 3600 --repeat 1 >/dev/null 2>&1 &
    bench=$!
    until child=$(pgrep -P $bench); do sleep 0.05; done
    load="$bench $child"
    # A second process is there when the first has made and synced all and was killed: it would remove them again.
    while [[ $(pgrep -P $bench) == "$child" ]] && ((SECONDS < end)); do sleep 0.02; done
    kill -STOP $bench
    kill -9 $(pgrep -P $bench) $bench
    wait $bench 2>/dev/null || true
    load=
}

if [[ ! -e $image ]]; then
    "$narufs" mkfs "$image" --size $((files * 6 / 1000000 + 4))G --sparse --force >/dev/null
    seconds "$files files made" create "$files" 3600
    seconds "mounted after all was synced and killed" "$narufs" mount "$image" "$point"
    "$narufs" umount "$point"
fi
for _ in 1 2 3; do
    seconds "mounted, clean" "$narufs" mount "$image" "$point"
    "$narufs" umount "$point"
done
create $((files / 4)) 4
seconds "mounted, killed in the midst of creates" "$narufs" mount "$image" "$point"
"$narufs" umount "$point"
/usr/bin/time -f '%e s, %U s of it user, %S s system, %M KiB at the most' "$narufs" fsck "$image" ${FSCK:-}
