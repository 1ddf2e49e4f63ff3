#!/usr/bin/env bash
# Every crash state of every pair of operations, on every ring and kind of crash, in PARTS parts (256), one after the other; or
# PART=i/n alone. TRIPLES=n: so many triples of operations instead, drawn by NARUFS_SEED, in the same way. A part that has
# passed is added to docs/crash-full.tsv: the commit that last changed what is tried, the part, what was looked at. One that is
# there for this commit is not run again, so that what was broken off is gone on with by the same command. It uses all cores.
set -euo pipefail
cd "$(dirname "$0")/.."

tried=(engine testing/src testing/tests/crash.rs)
commit=$(git log -1 --format=%h -- "${tried[@]}")
[[ -z $(git status --porcelain -- "${tried[@]}") ]] || commit+=-changed
record=docs/crash-full.tsv

passed() { # PART
    [[ $commit != *-changed ]] && grep -qs "^$commit"$'\t'"$1"$'\t' "$record"
}

run() { # PART TEST WHAT
    local log found
    log=$(mktemp)
    NARUFS_CRASH_FULL=1 cargo test --profile proof --locked -p narufs-testing --test crash -- --nocapture --exact "$2" >"$log" 2>&1 ||
        { tail -n 40 "$log"; rm -f "$log"; echo "crash-full: $1 failed" >&2; exit 1; }
    found=$(sed -n "s/^$3: //p" "$log")
    rm -f "$log"
    [[ -n $found ]] || { echo "crash-full: $1: nothing was run" >&2; exit 1; }
    echo "$1: $found"
    printf '%s\t%s\t%s\n' "$commit" "$1" "$found" >>"$record"
}

if [[ -n ${TRIPLES:-} ]]; then
    NARUFS_CRASH_TRIPLES=$TRIPLES run "triples $TRIPLES seed ${NARUFS_SEED:-0}" triples_of_operations_survive_crashes "triples of operations"
    exit
fi
parts=${PARTS:-256} first=1 last=${PARTS:-256}
if [[ -n ${PART:-} ]]; then first=${PART%/*} last=${PART%/*} parts=${PART#*/}; fi
for ((nth = first; nth <= last; nth++)); do
    passed "$nth/$parts" || NARUFS_PART=$nth/$parts run "$nth/$parts" pairs_of_operations_survive_crashes "pairs of operations"
done
