#!/usr/bin/env bash
# Fuzzes mount and fsck with arbitrary images, a server with arbitrary requests, and with the memory that another has left:
# `fuzz.sh SECONDS [TARGET...]`, so long for each. It does what `cargo fuzz run --sanitizer none` does, and needs nothing
# installed for it. What is found lies in fuzz/artifacts, to be replayed by the target with that file as its argument; what
# was learned stays in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
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
    local name=$1 log=artifacts/$1/log
    mkdir -p "corpus/$name" "artifacts/$name"
    # An image that takes so long or so much memory is as bad as one that makes it panic.
    if "target/$target/release/$name" "corpus/$name" -artifact_prefix="artifacts/$name/" -max_total_time="$seconds" \
        -timeout=25 -rss_limit_mb=1024 -max_len="$2" -len_control=0 >"$log" 2>&1; then
        echo "$name: $(grep -ao 'Done [0-9]* runs in [0-9]* second(s)' "$log")"
    else
        echo "$name: found something"
        grep -aE 'panicked|SUMMARY|Test unit written' -A 2 "$log" | head -n 20
        return 1
    fi
}

export -f one
export target seconds
for name in "${targets[@]}"; do
    echo "$name ${longest[$name]}"
done | xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one
