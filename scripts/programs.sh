#!/usr/bin/env bash
# Real programs on the mount: programs.sh [NAME...] runs testing/programs/NAME.sh, all without names.
# One line each; the log of what fails is shown and kept in target/programs. NARUFS_TEST_SCALE lengthens them.
set -euo pipefail
cd "$(dirname "$0")/.."
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
LIMIT=$(( 1200 * ${NARUFS_TEST_SCALE:-1} ))
all=(posix cli users strangers pjdfstest fsx rsync git build sqlite postgres million memory spill monitoring)
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=("${all[@]}")
mkdir -p "$TARGET/programs"

failed=()
begin=$SECONDS

for name in "${names[@]}"; do
    log=$TARGET/programs/$name.log
    start=$SECONDS
    # A test that hangs is told to end, and cleans up; what hangs even then is ended.
    if timeout --kill-after=60 "$LIMIT" "testing/programs/$name.sh" >"$log" 2>&1; then
        note=$(grep -E 'SKIPPED|RESULT' "$log" | sed -E 's/^[a-z]+: (RESULT )?//' | paste -sd';' || true)
        printf '%-10s ok      %4d s  %s\n' "$name" $((SECONDS - start)) "$note"
    else
        status=$?
        [[ $status -ne 124 ]] || echo "$name: did not end within $LIMIT s" >>"$log"
        printf '%-10s FAILED  %4d s  %s\n' "$name" $((SECONDS - start)) "$log"
        tail -n 40 "$log" | sed 's/^/    /'
        failed+=("$name")
    fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "programs that failed: ${failed[*]}"; exit 1; }
echo "all ${#names[@]} program tests passed in $((SECONDS - begin)) s"
