#!/usr/bin/env bash
# Real programs on the mount: programs.sh [NAME...] runs testing/programs/NAME.sh, all without names.
# One line each; the log of what fails is shown and kept in target/programs. NARUFS_TEST_SCALE lengthens them.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/each.sh
logs=${CARGO_TARGET_DIR:-$PWD/target}/programs
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(posix cli users strangers pjdfstest fsx rsync git build sqlite postgres million memory spill monitoring backup)
mkdir -p "$logs"
begin=$SECONDS

prepare() { # NAME
    log=$logs/$1.log
}
told() { # NAME LOG
    grep -E 'SKIPPED|RESULT' "$2" | sed -E 's/^[a-z]+: (RESULT )?//' | paste -sd';' || true
}
each programs testing/programs $((1200 * ${NARUFS_TEST_SCALE:-1})) "${names[@]}"
echo "all ${#names[@]} program tests passed in $((SECONDS - begin)) s"
