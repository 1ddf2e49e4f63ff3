#!/usr/bin/env bash
# Everything that proves narufs, the quick things first; `make test` and CI run it.
# NARUFS_TEST_SCALE=10 lengthens what is random. Each step prints how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never NARUFS_TEST_SCALE=${NARUFS_TEST_SCALE:-1}
begin=$SECONDS
logs=target/test-logs
mkdir -p "$logs"

step() { # NAME COMMAND...: runs it quietly; shows the end of its log if it fails
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$logs/$name.log" 2>&1; then
        printf '%-12s ok     %4d s  %s\n' "$name" $((SECONDS - start)) "$(summary "$logs/$name.log")"
    else
        printf '%-12s FAILED %4d s\n' "$name" $((SECONDS - start))
        grep -E '^(error|test .* FAILED|failures:|---- )|panicked at' "$logs/$name.log" | head -n 40 || true
        tail -n 60 "$logs/$name.log"
        exit 1
    fi
}

summary() { # LOG: how many tests it ran, or what else it says
    awk '/^test result:/ { p += $4; f += $6; i += $8 } END { if (p + f + i) printf "%d passed, %d failed, %d ignored", p, f, i }
        sub(/^soak: RESULT /, "") { print }' "$1"
}

model() { # loom|shuttle
    RUSTFLAGS="--cfg $1" cargo test --locked --release -p narufs --lib --target-dir "target/$1" "$1_"
}

step unit cargo test --locked --lib --bins
step doc cargo test --locked --doc
step integration cargo test --locked -p narufs-fuse -p narufs-cli -p narufs-bench --tests
step build cargo build --locked --release
step proof cargo test --locked --release -p narufs-testing --features planted-bugs -- --nocapture
step loom model loom
step shuttle model shuttle
step fuzz scripts/fuzz.sh $((15 * NARUFS_TEST_SCALE))
step soak scripts/soak.sh $((60 * NARUFS_TEST_SCALE))
start=$SECONDS
scripts/programs.sh
echo "programs took $((SECONDS - start)) s"
passed=$(cat "$logs"/*.log | awk '/^test result:/ { p += $4 } END { print p }')
echo "everything passed in $((SECONDS - begin)) s"
echo "$passed passed, 0 failed"
