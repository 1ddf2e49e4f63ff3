#!/usr/bin/env bash
# within.sh SECONDS COMMAND...: runs a command that has so long to end. One that hangs is shown, with what its threads
# and those of its children wait for, before it is ended: a test that says nothing for an hour tells nobody why.
# It comes back whatever hangs, with status 124 as timeout(1) does: each look at a process has its own limit, mounts
# of tests that keep a killed process alive are cut off, and what survives even that is left behind.
set -uo pipefail
limit=$1
shift

"$@" &
child=$!

descendants() { # PID: it and all below it, the parents first
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do descendants "$child"; done
}

show() { # PID: what its threads wait for
    local task
    echo "--- process $1: $(timeout 5 tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null)"
    for task in /proc/"$1"/task/*; do
        printf '%s %s, state %s, in the kernel: %s\n' "${task##*/}" "$(cat "$task/comm")" \
            "$(awk '/^State:/ { print $2 }' "$task/status")" "$(awk '{ print $2 }' "$task/stack" | paste -sd' ')"
    done 2>/dev/null | head -n 200
    if command -v gdb >/dev/null; then
        timeout -k 5 30 gdb -p "$1" -batch -ex 'thread apply all backtrace 24' 2>/dev/null |
            grep -E '^(Thread|#)' | head -n 400
    fi
}

cut_off() { # Aborts the connections of mounts that tests made: who waits for one gets an error, and can end.
    local connections=/sys/fs/fuse/connections number point
    [[ -w $connections ]] || return 0
    [[ -n $(ls "$connections") ]] || timeout 5 mount -t fusectl fusectl "$connections" 2>/dev/null
    awk '$0 ~ / - fuse(\.narufs)? / { split($3, device, ":"); print device[2], $5 }' /proc/self/mountinfo |
        while read -r number point; do
            case $point in
                "${TMPDIR:-/tmp}"/* | "$PWD"/target/* | /var/tmp/narufs-*) echo 1 >"$connections/$number/abort" ;;
            esac
        done 2>/dev/null
}

{
    # The sleep goes with us: whoever waits for our output would wait for it.
    trap 'kill "$sleeper" 2>/dev/null; exit 0' TERM
    sleep "$limit" &
    sleeper=$!
    wait "$sleeper"
    all=$(descendants "$child")
    {
        echo "within.sh: not done after $limit s: $*"
        until=$((SECONDS + 180))
        for process in $all; do
            ((SECONDS < until)) || break
            show "$process"
        done
    } >&2
    # shellcheck disable=SC2086 # a list of numbers
    kill -TERM $all 2>/dev/null
    for signal in TERM KILL KILL; do
        for ((i = 0; i < 10; i++)); do
            # shellcheck disable=SC2086
            kill -0 $all 2>/dev/null || exit 0
            sleep 1 &
            sleeper=$!
            wait "$sleeper"
        done
        cut_off
        # shellcheck disable=SC2086
        kill "-$signal" $all 2>/dev/null
    done
} &
watch=$!
trap 'kill -TERM "$child" 2>/dev/null' INT TERM

# Whichever ends first; a signal ends a wait and nothing else. The watch outlives the child only to be told so.
status=
while [[ -z $status ]]; do
    wait -n -p ended "$child" "$watch"
    code=$?
    case ${ended:-} in
        "$child") status=$code ;;
        "$watch") status=124 ;;
    esac
done
kill -TERM "$watch" 2>/dev/null
exit "$status"
