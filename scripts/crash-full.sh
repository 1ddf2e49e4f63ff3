#!/usr/bin/env bash
# Every crash state of every pair of operations, or PART=i/n of them: each sequence at every point, on every ring and kind of
# crash. A part that has passed is added to target/crash-full.tsv: commit, part, what was looked at. A part that is there
# for this commit is not run again, so that what was broken off is gone on with by the same command:
#   for i in $(seq 64); do make crash-full PART=$i/64; done
set -euo pipefail
cd "$(dirname "$0")/.."

part=${PART:-1/1}
commit=$(git rev-parse --short HEAD)
[[ -z $(git status --porcelain -- engine testing) ]] || commit+=-changed
record=${CARGO_TARGET_DIR:-target}/crash-full.tsv

if [[ $commit != *-changed ]] && grep -qs "^$commit"$'\t'"$part"$'\t' "$record"; then
    echo "crash-full: part $part of $commit has passed before: $record"
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
NARUFS_CRASH_FULL=1 NARUFS_PART=$part cargo test --release --locked -p narufs-testing --test crash -- --nocapture \
    --exact pairs_of_operations_survive_crashes | tee "$log"
found=$(grep '^pairs of operations: ' "$log" | cut -d: -f2- | sed 's/^ //')
[[ -n $found ]] || { echo "crash-full: part $part: no pair was run" >&2; exit 1; }
printf '%s\t%s\t%s\n' "$commit" "$part" "$found" >>"$record"
