#!/usr/bin/env bash
# redb's own tests, unit tests among them, with its file backend on narufs: suite.sh [TEST...]
#
# The source is that of the locked version, as cargo has it; its file backend is replaced by suite/file_backend.rs, and
# nothing else is. suite/skipped.txt says which of its tests do not run, and why. What redb's tests need besides is
# fetched from crates.io by the first run (into target/redb-suite).
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/target/redb-suite
manifest=$(cargo metadata --locked --format-version 1 | grep -oE '"manifest_path":"[^"]*/redb-[0-9][^"/]*/Cargo.toml"' | cut -d'"' -f4)
source=$(dirname "$manifest")
version=${source##*/redb-}

mkdir -p "$work/redb" "$work/images"
trap 'rm -rf "$work/images"' EXIT
# Times stay, so that what has not changed is not built again.
rm -rf "$work/redb/src" "$work/redb/tests"
cp -a "$source/src" "$source/tests" "$source/examples" "$source/build.rs" "$source/README.md" "$work/redb/"
cp -p doors/redb/suite/file_backend.rs "$work/redb/src/tree_store/page_store/file_backend/optimized.rs"
[[ -e $work/redb/Cargo.lock ]] || cp "$source/Cargo.lock" "$work/redb/"
{
    cat "$manifest"
    cat <<END

[workspace]

[dependencies.stock]
package = "redb"
version = "=$version"

[dependencies.narufs]
path = "$PWD/narufs"

[dependencies.narufs-redb]
path = "$PWD/doors/redb"

[profile.dev]
debug = "line-tables-only"
opt-level = 1
END
} >"$work/Cargo.toml"
cmp -s "$work/Cargo.toml" "$work/redb/Cargo.toml" || cp "$work/Cargo.toml" "$work/redb/Cargo.toml"

skips=()
while read -r name _; do
    skips+=(--skip "$name")
done < <(grep -vE '^(#|$)' doors/redb/suite/skipped.txt)

# Processes that are to end in the midst of something leave what images have in memory: in a /dev/shm that goes with them.
within=()
if [[ $(id -u) -eq 0 ]]; then within=(unshare --mount bash -c 'mount -t tmpfs none /dev/shm && exec "$@"' within); fi
status=0
NARUFS_REDB_SUITE=$work/images CARGO_TARGET_DIR=$work/target RUSTFLAGS=--cap-lints=warn \
    "${within[@]}" cargo test --manifest-path "$work/redb/Cargo.toml" --lib --tests --no-fail-fast -- --exact "${skips[@]}" "$@" \
    >"$work/log" 2>&1 </dev/null || status=$?
if ((status)); then
    grep -E '^(error|test .* FAILED|---- )|panicked at' "$work/log" | head -n 60 || true
    tail -n 40 "$work/log"
fi
awk '/^test result:/ { p += $4; f += $6; i += $8 }
    END { printf "redb '"$version"': %d passed, %d failed, %d ignored by redb itself\n", p, f, i }' "$work/log"
echo "not run: $((${#skips[@]} / 2)) (doors/redb/suite/skipped.txt)"
exit "$status"
