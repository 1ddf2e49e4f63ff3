#!/usr/bin/env bash
# pjdfstest as root: the kernel's permission checks, then our own.
# A skip must be listed with its reason in pjdfstest.skips, and what is listed must be skipped.
source "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
PJDFSTEST=$TARGET/tools/bin/pjdfstest
[[ -x $PJDFSTEST ]] || cargo install --debug --locked --quiet --root "$TARGET/tools" pjdfstest --version 0.2.2

mkdir "$WORK/second"
mount -t tmpfs narufs-second "$WORK/second"
MOUNTED+=("$WORK/second")
volume volume 2G
sed 's/^allow_remount = .*/allow_remount = true/' "$HERE/pjdfstest.toml" >"$WORK/remount.toml"

# mount(8) would look for the helper mount.fuse.narufs to remount: it is not installed here, and not needed.
mkdir "$WORK/bin"
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$WORK/bin/mount"
chmod 755 "$WORK/bin/mount"
export PATH=$WORK/bin:$PATH

run() { # CONFIGURATION OPTIONS SKIPS [PATTERN...]: leaves the summary in $summary
    local configuration=$1 options=$2 skips=$3 log=$WORK/log
    shift 3
    "$PJDFSTEST" -c "$configuration" -p "$WORK/volume" -s "$WORK/second" "$@" >"$log" || {
        grep -A3 -E 'FAILED|PASSED UNEXPECTEDLY' "$log" || true
        fail "$options: $(tail -n 1 "$log")"
    }
    same "the list of skipped tests (with $options)" "$skips" "$(awk '$2 == "skipped" {print $1}' "$log" | sort)"
    summary=$(tail -n 1 "$log" | sed 's/Summary: //')
}

listed=$(awk '!/^#/ && NF {print $1}' "$HERE/pjdfstest.skips" | sort)
[[ $FS == narufs ]] || listed=$(grep -v link_count_max <<<"$listed")
for options in suid,dev suid,dev,permissions=server; do
    attach volume "$options"
    run "$HERE/pjdfstest.toml" "$options" "$listed"
    say "RESULT $options: $summary"
    run "$WORK/remount.toml" "$options, remounting" "" erofs
    say "RESULT remounting: $summary"
    detach volume
done
check volume
