#!/usr/bin/env bash
# Every operation of the mount and each of its flags (docs/POSIX.md names the tests), on four kinds of mounts.
source "$(dirname "$0")/lib.sh"
tests=$(cd "$(dirname "$0")/posix" && pwd)
export NARUFS_TEST_FS=$FS NARUFS_TEST_DIR=$WORK/volume
modules=(names data attributes locks rights)
# What users may do is compared with memory's own file system.
mkdir "$WORK/reference"
mount -t tmpfs -o size=64M none "$WORK/reference"
MOUNTED+=("$WORK/reference")
total=0
run() { # OPTIONS [MKFS ARGS...]
    local options=$1 errors
    shift
    volume volume 1G --force "$@"
    attach volume "$options"
    chmod 755 "$WORK/volume"
    [[ $options == *permissions=server* ]] && errors=any || errors=same
    (cd "$tests" && NARUFS_TEST_REFERENCE=$WORK/reference NARUFS_TEST_ERRORS=$errors python3 -B -m unittest -v "${modules[@]}") >"$WORK/log" 2>&1 ||
        { tail -n 150 "$WORK/log"; fail "options '$options', mkfs '$*'"; }
    total=$((total + $(sed -nE 's/^Ran ([0-9]+) tests.*/\1/p' "$WORK/log")))
    detach volume
    check volume
}
run suid,dev
run suid,dev,permissions=server
if [[ $FS == narufs ]]; then
    ring=$(mktemp -u /dev/shm/narufs-posix.XXXXXX)
    FILES_MADE+=("$ring")
    run suid,dev,durability=process,memory=64M
    run suid,dev,lazytime --journal-emulated "$ring" --journal-size 64M
fi
say "RESULT $total tests"
