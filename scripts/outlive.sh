#!/usr/bin/env bash
# Programs on mounts whose servers are killed: `outlive.sh` is the short form, `outlive.sh KILLS` the long one of
# `make outlive`: several ways to mount, every phase of a server must be hit, and two thousand restarts may leave
# nothing, inodes of the kernel included. NARUFS_SEED=n kills and writes by other numbers; NARUFS_OUTLIVE is the program that kills,
# NARUFS the one that is killed.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${CARGO_TARGET_DIR:-$PWD/target}/release
outlive=${NARUFS_OUTLIVE:-$release/narufs-outlive}
seed=${NARUFS_SEED:-1}
scale=${NARUFS_TEST_SCALE:-1}
run() { "$outlive" "$1" "${NARUFS:-$release/narufs}" "${@:2}"; }
if (($# == 0)); then
    run kills kills=$((200 * scale)) seed="$seed"
    run leaks restarts=$((100 * scale))
    exit
fi
options=noatime,memory=64M/noatime/noatime,io=direct,memory=64M/noatime,io=cached,memory=64M/permissions=server,memory=64M
run kills kills="$1" seed="$seed" least=200 most=5000 soon=3 phases=1 options="$options"
run leaks restarts=2000 inodes=1
