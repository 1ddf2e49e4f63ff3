#!/usr/bin/env bash
# fsx: random operations on one file, mmap among them, compared with what they must give; several seeds, two at
# a time, on a page cache that is too small for all files (64M) and on the usual one.
source "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
FSX=$TARGET/tools/bin/fsx
[[ -x $FSX ]] || CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo install --locked --quiet --root "$TARGET/tools" fsx --version 0.3.2
operations=$((15000 * SCALE))

volume volume 2G
for options in memory=64M ""; do
    attach volume "$options"
    mkdir -p "$WORK/volume/d"
    for pair in 1 2; do
        running=()
        for half in 1 2; do
            seed=$((pair * 2 + half + RANDOM))
            "$FSX" -q -f "$HERE/fsx.toml" -S "$seed" -N "$operations" -P "$WORK" "$WORK/volume/d/f$seed" \
                >"$WORK/log$half" 2>&1 &
            running+=("$!:$seed:$half")
            started $!
        done
        for run in "${running[@]}"; do
            IFS=: read -r pid seed half <<<"$run"
            await "$pid" || { { grep -v "^.ERROR fsx. [0-9]* [A-Z]" "$WORK/log$half" | tail -n 30; tail -n 12 "$WORK/log$half"; }; fail "seed $seed, options '$options'"; }
        done
    done
    detach volume
done
check volume
say "RESULT 8 seeds of $operations operations"
