#!/usr/bin/env bash
# Soak: `soak.sh [SECONDS]` (60) mounts narufs with little memory, in a control group with little more, lets several
# jobs of fio write and overwrite files many times that size, and verifies all of it: while it is written, after an
# unmount, and after the server was killed in the middle of it. Rounds follow each other until the time is up; each
# takes every profile once: `power` (SSD ring), `nvm` (emulated), `window` and `scratch`, which spills.
#
# What is verified. Each job overwrites its whole file in each pass; fio's own headers and checksums say which pass,
# block and place a block is of, so that one that was lost, or is old, or somebody else's, is found. Jobs that run
# into the kill are answered for each write at the horizon that fsync waits for; fio saves how far each had come
# before it has the server killed, and that much must be there. In every second round of `power` the memory that the
# killed server leaves goes as well: only the image is there, as after a loss of power.
#
# One line for each phase. NARUFS_SEED=n writes the same bytes in the same order again; what meets what is up to the
# machine. Everything that it makes is taken away at its end, also when it fails or is interrupted.
source "$(dirname "$0")/../testing/programs/lib.sh"
limit=${1:-60}
seed=${NARUFS_SEED:-$((RANDOM << 15 | RANDOM))}
command -v fio >/dev/null || fail "fio is not installed"

# Servers go first: a job that waits for one that hangs would not end, and nor would we.
interrupted() {
    local status=$? dir
    trap - EXIT
    set +e
    for dir in "${!SERVER[@]}"; do
        end "${SERVER[$dir]}"
        umount -l "$dir" 2>/dev/null
    done
    SERVER=()
    (exit "$status")
    cleanup
}
trap interrupted EXIT

# Files of so many MiB: of six jobs, many times the memory of the server.
size=12
kill_within=2
if (( limit > 300 )); then size=48 kill_within=6; fi
memory=16M
budget=memory=$memory,metadata_memory=8M,noatime
programs=
# The journal's memory is the server's: half of it is that.
if SERVER_GROUP=$(memory_group server $((192 << 20)) 2>/dev/null); then
    GROUPS_MADE+=("$SERVER_GROUP")
    programs=$(memory_group programs $((128 << 20)))
    GROUPS_MADE+=("$programs")
    say "servers in 192 MiB, programs in 128 MiB; a page cache of $memory; seed $seed"
else
    SERVER_GROUP=
    say "no control group for memory on this machine: nothing but memory=$memory bounds the servers; seed $seed"
fi

written=0 kills=0
log=$WORK/fio.log

# jobs NAME...: their descriptions. Buffered and direct, in order and at random, whole pages and parts of them, mapped.
jobs() {
    local name bytes=$((size << 20))
    for name in "$@"; do
        echo "[$name]"
        case $name in
        stream) echo "rw=write bs=1m fsync=4" ;;
        pages) echo "rw=randwrite bs=4k fsync=256" ;;
        # A file of a part of a block would be taken for one that is not there yet.
        parts) echo "rw=randwrite bs=3000 fdatasync=512 size=$((bytes / 3000 * 3000))" ;;
        direct) echo "rw=randwrite bs=4k direct=1 ioengine=libaio iodepth=16" ;;
        blocks) echo "rw=write bs=256k direct=1 ioengine=libaio iodepth=4 fsync=16" ;;
        mapped) echo "rw=randwrite bs=4k ioengine=mmap fsync=1024" ;;
        # Each write of these is answered when it is durable.
        synced) echo "rw=randwrite bs=4k sync=dsync" ;;
        queued) echo "rw=randwrite bs=4k direct=1 ioengine=libaio iodepth=8 sync=dsync" ;;
        appended) echo "rw=write bs=5000 sync=sync size=$((bytes / 5000 * 5000))" ;;
        large) echo "rw=write bs=128k direct=1 sync=dsync" ;;
        esac | tr ' ' '\n'
    done
}
passes=(stream pages parts direct blocks mapped)
durable=(synced queued appended large)

# with_fio DIR PASS ARGS... -- JOB...: one run of several jobs at a time; PASS says what they write.
with_fio() {
    local dir=$1 pass=$2 arguments=()
    shift 2
    while [[ $1 != -- ]]; do arguments+=("$1"); shift; done
    shift
    {
        printf '%s\n' '[global]' "directory=$dir" "size=${size}m" 'verify=crc32c' 'verify_fatal=1' \
            "randseed=$((seed + pass))" 'group_reporting'
        # Reading ahead of what had been written in a run that was killed, fio would want it too.
        if [[ " ${arguments[*]} " == *verify_state* ]]; then echo fallocate=truncate; else echo fallocate=none; fi
        jobs "$@" | if [[ " ${arguments[*]} " == *verify_state_load* ]]; then grep -v iodepth; else cat; fi
    } >"$WORK/jobs"
    within "$programs" fio --aux-path="$WORK" "${arguments[@]}" "$WORK/jobs" >"$log" 2>&1 &
    started $!
    await $!
}

# What fio said of failures, and whether it was for want of memory that there was nobody to answer it.
said() {
    [[ -z $SERVER_GROUP || $(killed_in "$SERVER_GROUP") == 0 ]] || say "the kernel has killed a server for want of memory"
    grep -E '^(fio|verify|crc32c|.*err=)|bad|hdr_fail' "$log" | head -n 40
}

# The same, which must succeed.
run() { # WHAT DIR PASS ARGS... -- JOB...
    local what=$1
    shift
    with_fio "$@" || { said; fail "$phase: $what"; }
}

# Kills the server in the middle of writes that are answered when they are durable.
killed() { # DIR PASS
    local dir=$1 pass=$2 status=0
    local moment=$((1 + (seed + pass) % kill_within))
    rm -f "$WORK"/*-verify.state "$WORK/shot"
    {
        echo '#!/usr/bin/env bash'
        declare -p SERVER SUPERVISOR
        declare -f shoot_server_of
        printf 'touch %q\nshoot_server_of %q\n' "$WORK/shot" "$dir"
    } >"$WORK/trigger"
    chmod 700 "$WORK/trigger"
    with_fio "$dir" "$pass" --do_verify=0 --verify_state_save=1 --trigger-timeout="$moment" \
        --trigger="$WORK/trigger" -- "${durable[@]}" || status=$?
    # Jobs that were done before are as good; an error that was no consequence of the kill is not.
    [[ -e $WORK/shot || $status == 0 ]] || { said; fail "$phase: writing before the kill"; }
    kills=$((kills + 1))
    crash "$(basename "$dir")"
}

report() { # WHAT
    say "$(printf '%4d s  round %d  %-24s %s' "$SECONDS" "$round" "$phase" "$1")"
}

durable_profile() { # PROFILE PASS IO
    local profile=$1 pass=$2 options=$budget,io=$3 dir=$WORK/$1 lost=
    local ring=/dev/shm/narufs-soak-$$.ring make=(--journal-size 32M)
    case $profile in
    nvm) make+=(--journal-emulated "$ring"); FILES_MADE+=("$ring") ;;
    window) options+=,durability=window=100ms ;;
    esac
    volume "$profile" $((size * 16))M "${make[@]}"
    attach "$profile" "$options"
    run "writing and verifying" "$dir" "$pass" --do_verify=1 -- "${passes[@]}"
    report "written and verified by ${#passes[@]} jobs"
    run "overwriting" "$dir" $((pass + 1)) --do_verify=0 -- "${passes[@]}"
    detach "$profile"
    attach "$profile" "$options"
    run "verifying after the remount" "$dir" $((pass + 1)) --verify_only -- "${passes[@]}"
    written=$((written + 2 * ${#passes[@]} * size))
    report "overwritten, mounted anew and verified"
    for n in 2 3; do
        killed "$dir" $((pass + n))
        if [[ $profile == power && $(((round + n) % 2)) == 0 ]]; then
            rm -f "$(staging "$profile")"
            lost=", the second time with the journal's memory lost"
        fi
        attach "$profile" "$options"
        run "verifying what was durable before the kill" "$dir" $((pass + n)) --verify_only --verify_state_load=1 -- \
            "${durable[@]}"
    done
    run "verifying after the kills what was there before" "$dir" $((pass + 1)) --verify_only -- "${passes[@]}"
    detach "$profile"
    check "$profile"
    rm -f "$WORK/$profile.img" "$ring"
    report "killed twice, mounted anew, verified, checked$lost"
}

scratch_profile() { # PASS IO
    local pass=$1 dir=$WORK/scratch
    scratch scratch "$budget,io=$2,spill_size=$((size * 12))M"
    for n in 0 1; do
        run "writing and verifying" "$dir" $((pass + n)) --do_verify=1 -- "${passes[@]}"
        report "written and verified by ${#passes[@]} jobs"
    done
    run "verifying again" "$dir" $((pass + 1)) --verify_only -- "${passes[@]}"
    written=$((written + 2 * ${#passes[@]} * size))
    detach scratch
    report "verified once more, nothing left of it"
}

ways=(auto direct cached)
round=0
until (( round > 0 && SECONDS >= limit )); do
    round=$((round + 1))
    number=0
    for profile in power nvm window scratch; do
        number=$((number + 1))
        io=${ways[(round + number) % 3]}
        # A shared map of a file that passes the kernel's cache by takes Linux 6.6.
        phase="$profile (io=$io)"
        pass=$(((round * 4 + number) * 8))
        if [[ $profile == scratch ]]; then scratch_profile "$pass" "$io"; else durable_profile "$profile" "$pass" "$io"; fi
        (( round == 1 || SECONDS < limit )) || break
    done
done
for group in "${GROUPS_MADE[@]}"; do
    same "processes killed for want of memory in $(basename "$group")" 0 "$(killed_in "$group")"
done
say "RESULT $round rounds in $SECONDS s, $written MiB written in passes, $kills kills, nothing lost"
if most=$(most_in "$SERVER_GROUP"); then say "servers had $most MiB at the most"; fi
