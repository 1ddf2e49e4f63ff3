#!/usr/bin/env bash
# fio.sh DIR ASIDE SEED: jobs write at random places and verify all of it: buffered and direct, one call at a time and
# many in io_uring, with and without fsync, mapped.
set -euo pipefail
dir=$1 aside=$2 seed=$3
cat >"$aside/jobs" <<JOBS
[global]
directory=$dir
size=3m
rw=randwrite
bs=4k
verify=crc32c
verify_fatal=1
do_verify=1
randseed=$seed
fallocate=none
group_reporting
[pages]
ioengine=psync
fsync=64
[parts]
ioengine=psync
bs=3000
size=2997000
fdatasync=200
[direct]
ioengine=psync
direct=1
[synced]
ioengine=psync
sync=dsync
size=1m
[queued]
ioengine=io_uring
iodepth=8
fsync=128
[queued-direct]
ioengine=io_uring
iodepth=16
direct=1
bs=8k
[stream]
ioengine=psync
rw=write
bs=256k
size=16m
fsync=8
[mapped]
ioengine=mmap
fsync=128
JOBS
fio --aux-path="$aside" "$aside/jobs"
rm -f "$dir"/*
