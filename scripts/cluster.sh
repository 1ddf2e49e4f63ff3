#!/usr/bin/env bash
# Engines that spread files over many machines, on three nodes with a narufs mount each: cluster.sh [NAME...] runs
# testing/cluster/NAME.sh, all without names. One line each, and what it has to tell; logs are kept in target/cluster,
# and those of the engines too if it fails. NARUFS_TEST_SCALE lengthens them. It takes root.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/each.sh
kept=${CARGO_TARGET_DIR:-$PWD/target}/cluster
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(etcd postgres tree gluster)
# `make cluster` has installed what they need.
export NARUFS_DEMAND_ALL=1

prepare() { # NAME
    export NARUFS_CLUSTER_KEEP=$kept/$1
    rm -rf "$NARUFS_CLUSTER_KEEP"
    mkdir -p "$NARUFS_CLUSTER_KEEP"
    log=$NARUFS_CLUSTER_KEEP/log
}
told() { # NAME LOG
    echo
    grep -E "^$1: " "$2" || true
}
each clusters testing/cluster $((900 * ${NARUFS_TEST_SCALE:-1})) "${names[@]}"
