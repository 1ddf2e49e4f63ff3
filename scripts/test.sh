#!/usr/bin/env bash
# Everything that proves narufs, the quick things first; `make test` and CI run it.
# NARUFS_TEST_SCALE=10 lengthens what is random. Each step prints how long it took. What hangs is shown and ended.
#
# What tests run is built first, and what is optimised beside the first tests: by the profile *proof*, which takes half of
# what a release takes. Then two lanes go side by side: what
# crashes, kills and compares, and fuzzing, in one; models, soak and programs, the last of them on mounts whose servers
# are killed, in the other. Neither times anything.
#
# Everything is demanded: tests that a plain `cargo test` ignores, for they need root, mounts, loop devices or other
# programs, run here, and fail where that is missing. It takes root.
#
# NARUFS_TEST_TRIES=2 tries once more what failed, if scripts/retried.txt lists it with what it depends on. The log of
# the first try is kept, and shown.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(id -u) -ne 0 ]]; then
    echo "narufs: all tests take root, to mount and to make loop devices; \`cargo test\` runs what does without" >&2
    exit 1
fi
# What is missing fails the tests and programs that need it.
export CARGO_TERM_COLOR=never NARUFS_TEST_SCALE=${NARUFS_TEST_SCALE:-1} NARUFS_DEMAND_ALL=1
tries=${NARUFS_TEST_TRIES:-1}
begin=$SECONDS
logs=$PWD/target/test-logs
rm -rf "$logs"
mkdir -p "$logs"

# Each test program has so long: many times what the longest takes on two cores that have nothing else to do, for a
# slow machine is no fault of ours.
limit=$((1500 * NARUFS_TEST_SCALE))
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/within.sh $limit"

step() { # NAME COMMAND...: runs it quietly; shows the end of its log if it fails
    local name=$1 start=$SECONDS log=$logs/$1.log try note=
    shift
    for ((try = 1; ; try++)); do
        if "$@" >"$log" 2>&1 </dev/null; then
            printf '%-12s ok     %4d s  %s%s\n' "$name" $((SECONDS - start)) "$(summary "$log")" "$note"
            return
        fi
        printf '%-12s FAILED %4d s\n' "$name" $((SECONDS - start))
        grep -E '^(error|test .* FAILED|failures:|---- )|panicked at' "$log" | head -n 40 || true
        # Which test hangs, and what it waits for.
        grep -A 120 '^within.sh: ' "$log" | head -n 300 || true
        grep ' has been running for over ' "$log" | tail -n 8 || true
        tail -n 60 "$log"
        ((try < tries)) && scripts/retried.sh "$log" >"$logs/$name.again" || return 1
        mv "$log" "$logs/$name.failed$try"
        note=", the second time: $(sed 's/.* -- //' "$logs/$name.again" | paste -sd' ')"
        set -- tests_again "$logs/$name.again"
    done
}

tests_again() { # FILE: what retried.sh has printed
    local program names
    while read -r program; do
        names=${program#* -- }
        # shellcheck disable=SC2086 # words of options, and names
        cargo test --locked $flags ${program%% -- *} -- --include-ignored --nocapture --exact $names </dev/null || return 1
    done <"$1"
}

summary() { # LOG: how many tests it ran, or what else it says
    awk '/^test result:/ { p += $4; f += $6; i += $8 } END { if (p + f + i) printf "%d passed, %d failed, %d ignored", p, f, i }
        sub(/^(soak: )?RESULT /, "") { printf "%s%s", n++ ? "; " : "", $0 }' "$1"
}

model() { # loom|shuttle OPTIONS...
    local which=$1 packages=(-p narufs-engine)
    shift
    # For loom these crates are the lanes, and the table of handles, alone.
    if [[ $which == loom ]]; then packages+=(-p narufs-research -p narufs-c); fi
    RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/as-$which \
        cargo test --locked --profile proof "${packages[@]}" --lib "$@" "${which}_"
}

models() {
    model loom --no-run && model shuttle --no-run
}

used() { # models, and what programs do: one lane
    step loom model loom && step shuttle model shuttle && step fio scripts/within.sh $limit doors/fio/test.sh target/tmp/laid/usr &&
        step soak scripts/within.sh $limit scripts/soak.sh $((60 * NARUFS_TEST_SCALE)) && step programs scripts/programs.sh &&
        step outlive scripts/within.sh $limit scripts/outlive.sh
}

proved() { # what crashes, kills and compares: the other lane
    # shellcheck disable=SC2086 # words of options
    step proof cargo test --locked --no-fail-fast $flags -p narufs-testing -p narufs-research -- --include-ignored --nocapture &&
        step fuzz scripts/fuzz.sh $((15 * NARUFS_TEST_SCALE))
}

documentation() { # what `cargo doc` warns of fails
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

compiled() { # the programs that tests start, too
    cargo test --locked --no-run && cargo build --locked --bins --tests
}

doors() { # all of them at once, for which what they share is built once
    local packages=(narufs narufs-sqlite narufs-sqlite-preload narufs-redb narufs-object-store)
    cargo test --locked --no-fail-fast "${packages[@]/#/--package=}" --features narufs/mount,narufs-sqlite/mortal \
        -- --include-ignored --nocapture
}

optimised() { # what the lanes run, built in the time that tests leave
    renice -n 19 $BASHPID >/dev/null
    # shellcheck disable=SC2086 # words of options
    step build cargo build --locked --profile proof --bins &&
        step built cargo test --locked $proof -p narufs-testing -p narufs-research --no-run &&
        step models models
}

# The lanes' programs.
export NARUFS=$PWD/target/proof/narufs NARUFS_OUTLIVE=$PWD/target/proof/narufs-outlive
proof="--profile proof --features planted-bugs,baselines"
flags=
step compile compiled
optimised &
building=$!
# It ends before this does, also where a test has failed.
trap 'wait "$building" || true' EXIT
step unit cargo test --locked --no-fail-fast --lib --bins -- --include-ignored
step doc cargo test --locked --doc
step rustdoc documentation
step integration cargo test --locked --no-fail-fast --test '*' -- --include-ignored
step doors doors
wait "$building"
trap - EXIT
flags=$proof
used &
other=$!
status=0
proved || status=1
wait "$other" || status=1
grep -hE '^[a-z]+ +(ok|FAILED) ' "$logs/programs.log" || true
((status == 0)) || exit 1
# What was tried once more is not in the log of its step.
read -r passed ignored < <(cat "$logs"/*.log "$logs"/*.failed* 2>/dev/null |
    awk '/^test result:/ { p += $4; i += $8 } END { print p + 0, i + 0 }')
if ((ignored)); then
    grep -hE '^test .* \.\.\. ignored' "$logs"/*.log || true
    echo "$ignored tests were ignored: nothing may be, here"
    exit 1
fi
echo "everything passed in $((SECONDS - begin)) s"
echo "$passed passed, 0 failed"
