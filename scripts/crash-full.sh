#!/usr/bin/env bash
# Every crash state of every pair of operations, on every ring and kind of crash, in PARTS parts (256): first those that no
# commit has passed yet, then those that this one has not; or PART=i/n alone. TRIPLES=n: so many triples of operations instead,
# drawn by NARUFS_SEED. What has passed is added to docs/crash-full.tsv: the commit that last changed what is tried, the part,
# what was looked at. A part that is there for this commit is not run again, so that what was broken off is gone on with by the
# same command. JOBS parts at a time (as many as there are cores), each on a core of its own: where two threads share their
# memory's maps they wait for each other. What is tried is settled when this begins; the tree may change meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

tried=(engine testing/src testing/tests/crash.rs)
commit=$(git log -1 --format=%h -- "${tried[@]}")
[[ -z $(git status --porcelain -- "${tried[@]}") ]] || commit+=-changed
record=docs/crash-full.tsv
jobs=${JOBS:-$(nproc)}

passed() { # PART [COMMIT]
    cut -f 1,2 "$record" 2>/dev/null | grep -qE "^${2:-[0-9a-f]+}"$'\t'"$1\$"
}

echo "crash-full: building, some minutes where nothing is built yet" >&2
program=$(CARGO_PROFILE_PROOF_LTO=fat CARGO_PROFILE_PROOF_CODEGEN_UNITS=1 CARGO_INCREMENTAL=0 RUSTFLAGS="-C target-cpu=native" \
    cargo test --locked --target-dir target/full --profile proof -p narufs-testing --test crash --no-run 2>&1 |
    tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
[[ -x $program ]] || { echo "crash-full: it does not build" >&2; exit 1; }

run() { # PART TEST WHAT ENVIRONMENT COMMAND...
    local log found part=$1 test=$2 what=$3
    shift 3
    log=$(mktemp)
    env NARUFS_CRASH_FULL=1 "$@" "$program" --nocapture --exact "$test" >"$log" 2>&1 ||
        { tail -n 40 "$log"; rm -f "$log"; echo "crash-full: $part failed" >&2; return 1; }
    found=$(sed -n "s/^.*$what: //p" "$log")
    rm -f "$log"
    [[ -n $found ]] || { echo "crash-full: $part: nothing was run" >&2; return 1; }
    echo "$part: $found"
    printf '%s\t%s\t%s\n' "$commit" "$part" "$found" >>"$record"
}

if [[ -n ${TRIPLES:-} ]]; then
    run "triples $TRIPLES seed ${NARUFS_SEED:-0}" triples_of_operations_survive_crashes "triples of operations" \
        NARUFS_CRASH_TRIPLES="$TRIPLES"
    exit
fi

pairs() { # PART CORE
    run "$1" pairs_of_operations_survive_crashes "pairs of operations" NARUFS_PART="$1" taskset -c "$2"
}

if [[ -n ${PART:-} ]]; then
    passed "$PART" "$commit" || pairs "$PART" "$(taskset -cp $$ | sed 's/.*: //')"
    exit
fi

parts=${PARTS:-256}
new=() again=()
for ((nth = 1; nth <= parts; nth++)); do
    if ! passed "$nth/$parts"; then new+=("$nth/$parts"); elif ! passed "$nth/$parts" "$commit"; then again+=("$nth/$parts"); fi
done
echo "crash-full: $commit: ${#new[@]} parts that no commit has passed, ${#again[@]} that an earlier one has" >&2

queue=$(mktemp -u)
mkfifo "$queue"
exec 3<>"$queue"
rm "$queue"
printf '%s\n' "${new[@]}" "${again[@]}" | sed '/^$/d' >&3
for ((job = 0; job < jobs; job++)); do echo end >&3; done

worker() { # CORE
    local part failed=0
    while true; do
        # Byte for byte, and one reader at a time.
        exec 4<"$0"
        flock 4
        read -r part <&3
        exec 4<&-
        [[ $part != end ]] || return "$failed"
        pairs "$part" "$1" || failed=1
    done
}
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | sed 's/-/ /' | while read -r from to; do seq "$from" "${to:-$from}"; done)
for ((job = 0; job < jobs; job++)); do worker "${cores[job % ${#cores[@]}]}" & done
failed=0
for ((job = 0; job < jobs; job++)); do wait -n || failed=1; done
exit "$failed"
