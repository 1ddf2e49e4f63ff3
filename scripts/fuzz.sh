#!/usr/bin/env bash
# Fuzzes mount and fsck with arbitrary images, a server with arbitrary requests, and with the memory that another has left:
# `fuzz.sh SECONDS [TARGET...]`, so long for each. It does what `cargo fuzz run --sanitizer none` does, and needs nothing
# installed for it. What is found lies in fuzz/artifacts, to be replayed by the target with that file as its argument; what
# was learned stays in fuzz/corpus, to which come the inputs in fuzz/seeds that `fuzz-keep.sh` has kept of others' corpora.
# With FUZZ_RECORD=FILE what has ended without a finding is a line of that file: the commit that last changed what is fuzzed,
# the target, its processor time in seconds, the inputs tried, those that it knows, and the edges that they reach.
set -euo pipefail
cd "$(dirname "$0")/.."
record=${FUZZ_RECORD:+$(realpath "$FUZZ_RECORD")}
fuzzed=(engine fuse fuzz)
commit=$(git log -1 --format=%h -- "${fuzzed[@]}" 2>/dev/null || echo none)
[[ -z $(git status --porcelain -- "${fuzzed[@]}" 2>/dev/null) ]] || commit+=-changed
cd fuzz
source ../scripts/fuzz-corpus.sh
seconds=${1:-60}
shift || true
target=$(rustc -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cpasses=sancov-module -Cdebug-assertions -Ccodegen-units=4"
# Operands of comparisons are not traced: it takes a quarter of the time, and tells mutators that know the formats little.
for flag in level=4 inline-8bit-counters pc-table; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
RUSTFLAGS=$flags CARGO_PROFILE_RELEASE_DEBUG=line-tables-only \
    cargo build --locked --release --target "$target" --bins
# 64 changes of an image or of memory of seven bytes each; some tens of requests.
declare -A longest=([fsck]=449 [mount]=449 [left]=448 [requests]=2048)
targets=("$@")
((${#targets[@]})) || targets=(fsck mount left requests)

# Inputs take the same memory again: the heap is not to give it back in between.
export MALLOC_MMAP_THRESHOLD_=$((64 << 20)) MALLOC_TRIM_THRESHOLD_=$((256 << 20))

one() { # NAME LONGEST
    local name=$1 log=artifacts/$1/log time=artifacts/$1/time TIMEFORMAT='%U %S' used runs known
    corpus "$name"
    mkdir -p "artifacts/$name"
    # An image that takes so long or so much memory is as bad as one that makes it panic.
    if { time "target/$target/release/$name" "corpus/$name" -artifact_prefix="artifacts/$name/" \
        -max_total_time="$seconds" -timeout=25 -rss_limit_mb=1024 -max_len="$2" -len_control=0 >"$log" 2>&1; } 2>"$time"; then
        used=$(awk '{ printf "%d", $1 + $2 }' "$time")
        runs=$(grep -aoP 'Done \K[0-9]+(?= runs in)' "$log")
        known=$(grep -a ' cov: ' "$log" | tail -n 1 | sed -nE 's/.* cov: ([0-9]+) .* corp: ([0-9]+).*/\2\t\1/p')
        echo "$name: $runs inputs in $used s, ${known/$'\t'/ known that reach } edges"
        [[ -z $record ]] || printf '%s\t%s\t%s\t%s\t%s\n' "$commit" "$name" "$used" "$runs" "$known" >>"$record"
    else
        echo "$name: found something"
        grep -aE 'panicked|SUMMARY|Test unit written' -A 2 "$log" | head -n 20
        return 1
    fi
}

export -f one
export target seconds record commit
for name in "${targets[@]}"; do
    echo "$name ${longest[$name]}"
done | xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one
