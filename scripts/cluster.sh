#!/usr/bin/env bash
# Engines that spread files over many machines, on three nodes with a narufs mount each: cluster.sh [NAME...] runs
# testing/cluster/NAME.sh, all without names. One line each; logs are kept in target/cluster, and those of the
# engines too if it fails. NARUFS_TEST_SCALE lengthens them. It takes root.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=${CARGO_TARGET_DIR:-$PWD/target}/cluster
limit=$((900 * ${NARUFS_TEST_SCALE:-1}))
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(etcd postgres tree gluster)
# `make cluster` has installed what they need.
export NARUFS_DEMAND_ALL=1
failed=()
for name in "${names[@]}"; do
    rm -rf "${kept:?}/$name"
    mkdir -p "$kept/$name"
    log=$kept/$name/log
    start=$SECONDS
    # What hangs is told to end, and cleans up; what hangs even then is ended.
    if NARUFS_CLUSTER_KEEP=$kept/$name timeout --kill-after=120 "$limit" "testing/cluster/$name.sh" >"$log" 2>&1; then
        grep -E "^$name: " "$log"
        printf '%-10s ok      %4d s\n' "$name" $((SECONDS - start))
    else
        status=$?
        [[ $status -ne 124 ]] || echo "$name: did not end within $limit s" >>"$log"
        printf '%-10s FAILED  %4d s  %s\n' "$name" $((SECONDS - start)) "$log"
        tail -n 40 "$log" | sed 's/^/    /'
        failed+=("$name")
    fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "clusters that failed: ${failed[*]}"; exit 1; }
