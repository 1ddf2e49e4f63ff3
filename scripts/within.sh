#!/usr/bin/env bash
# within.sh SECONDS COMMAND...: runs a command that has so long to end. One that hangs is shown, with what its threads
# and those of its children wait for, before it is ended: a test that says nothing for an hour tells nobody why.
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
    echo "--- process $1: $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null)"
    for task in /proc/"$1"/task/*; do
        printf '%s %s, state %s, in the kernel: %s\n' "${task##*/}" "$(cat "$task/comm")" \
            "$(awk '/^State:/ { print $2 }' "$task/status")" "$(awk '{ print $2 }' "$task/stack" | paste -sd' ')"
    done 2>/dev/null
    if command -v gdb >/dev/null; then
        timeout 60 gdb -p "$1" -batch -ex 'thread apply all backtrace 24' 2>/dev/null | grep -E '^(Thread|#)'
    fi
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
        for process in $all; do show "$process"; done
    } >&2
    # shellcheck disable=SC2086 # a list of numbers
    kill -TERM $all 2>/dev/null
    sleep 10 &
    sleeper=$!
    wait "$sleeper"
    # shellcheck disable=SC2086
    kill -KILL $all 2>/dev/null
} &
watch=$!
trap 'kill -TERM "$child" 2>/dev/null' INT TERM

wait "$child"
status=$?
# A signal ends the first wait, not the command.
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done
kill -TERM "$watch" 2>/dev/null
wait "$watch" 2>/dev/null
exit "$status"
