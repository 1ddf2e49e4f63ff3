#!/usr/bin/env bash
# Sourced by what runs scripts one after the other, each with a log of its own and a limit of time. Who sources it has two
# functions: `prepare NAME` sets `log` to where the log of one goes, and makes room there; `told NAME LOG` prints what is
# to be shown of one that has passed, behind its name and its time.

failures() { # LOG: what has failed in it, for the one line that is always seen
    sed -nE 's/^((FAIL|ERROR): .*|.*FAILED: .*)/: \1/p' "$1" | head -n 5 | tr -d '\n' || true
}

each() { # WHAT DIRECTORY LIMIT NAME...: runs DIRECTORY/NAME.sh; the end of the log of what fails is shown
    local what=$1 directory=$2 limit=$3 name log start status lines failed=()
    shift 3
    for name; do
        prepare "$name"
        start=$SECONDS
        # What hangs is shown and told to end, and cleans up; what hangs even then is ended.
        if scripts/within.sh "$limit" "$directory/$name.sh" >"$log" 2>&1; then
            printf '%-10s ok      %4d s  %s\n' "$name" $((SECONDS - start)) "$(told "$name" "$log")"
        else
            status=$? lines=40
            # What it waited for is in there.
            [[ $status -ne 124 ]] || { echo "$name: did not end within $limit s" >>"$log"; lines=200; }
            printf '%-10s FAILED  %4d s  %s%s\n' "$name" $((SECONDS - start)) "$log" "$(failures "$log")"
            tail -n "$lines" "$log" | sed 's/^/    /'
            failed+=("$name")
        fi
    done
    [[ ${#failed[@]} -eq 0 ]] || { echo "$what that failed: ${failed[*]}"; return 1; }
}
