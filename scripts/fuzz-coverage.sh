#!/usr/bin/env bash
# How much of the code that reads images, journals, requests, and what a killed server has left, the fuzzers' inputs reach:
# `fuzz-coverage.sh` runs all of fuzz/corpus, and what fuzz/seeds keeps, once through targets that count, and prints lines by
# part. It takes llvm-cov and llvm-profdata of the version that rustc has: those of rustup's llvm-tools, or the distribution's.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
source ../scripts/fuzz-corpus.sh
target=$(rustc -vV | sed -n 's/^host: //p')
version=$(rustc -vV | sed -nE 's/^LLVM version: ([0-9]+).*/\1/p')
work=$PWD/target/coverage
tools=$(rustc --print sysroot)/lib/rustlib/$target/bin
if [[ -x $tools/llvm-cov && -x $tools/llvm-profdata ]]; then
    cov=$tools/llvm-cov profdata=$tools/llvm-profdata
elif cov=$(command -v "llvm-cov-$version") && profdata=$(command -v "llvm-profdata-$version"); then
    :
else
    echo "narufs: no llvm-cov of LLVM $version: rustup component add llvm-tools, or apt-get install llvm-$version" >&2
    exit 1
fi
mkdir -p "$work"
rm -f "$work"/*.profraw
RUSTFLAGS="--cfg fuzzing -Cinstrument-coverage -Cdebug-assertions" CARGO_PROFILE_RELEASE_LTO=off \
    cargo build --locked --release --target "$target" --target-dir "$work" --bins
objects=()
for name in fsck mount left requests; do
    program=$work/$target/release/$name
    objects+=(-object "$program")
    corpus "$name"
    LLVM_PROFILE_FILE=$work/$name-%p.profraw "$program" "corpus/$name" -runs=0 -rss_limit_mb=4096 >"$work/$name.log" 2>&1
done
"$profdata" merge -sparse "$work"/*.profraw -o "$work/all.profdata"
# Tests are no part of it, and neither is what others wrote.
"$cov" report "${objects[@]}" -instr-profile "$work/all.profdata" \
    --ignore-filename-regex='/registry/|/rustc/|/fuzz/|/fuzzing|/tests' -show-region-summary=false \
    -show-branch-summary=false -show-functions=false >"$work/report.txt"
# Of each part: its lines, and those that were reached.
awk -v parts="engine/src/format engine/src/superblock engine/src/journal engine/src/recovery engine/src/fsck engine/src/inode \
engine/src/extent engine/src/dir engine/src/nat engine/src/alloc engine/src/acl engine/src/takeover fuse/src/wire fuse/src/session" '
BEGIN { count = split(parts, part, " ") }
/\.rs / {
    for (i = 1; i <= count; i++) if (index($1, part[i]) || index("engine/src/" $1, part[i]) == 1) {
        lines[i] += $(NF - 2); missed[i] += $(NF - 1)
    }
}
END { for (i = 1; i <= count; i++) if (lines[i]) printf "%-24s %6d lines, %5.1f %% reached\n", part[i], lines[i], 100 - 100 * missed[i] / lines[i] }' "$work/report.txt"
echo "all files: $work/report.txt"
