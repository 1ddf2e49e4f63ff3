#!/usr/bin/env bash
# retried.sh LOG [LIST]: whether what failed may be tried once more. Of the log of a `cargo test` in which nothing has
# failed but tests on the list, it prints how to run each again, a line for each program: cargo's arguments, `--` and
# the names. Otherwise it says what else has failed, and fails: a test that is not on the list, a program that was
# killed, or something that is no test.
set -euo pipefail
log=$1
list=${2:-$(dirname "$0")/retried.txt}

awk -v list="$list" '
    function other(what) { print "not on the list: " what > "/dev/stderr"; odd = 1 }
    BEGIN { while ((getline line < list) > 0) if (line !~ /^(#|$)/) { split(line, word, /[ \t]/); listed[word[1]] = 1 } }
    # The names of what has failed in a program stand between the last of these lines and the next.
    /^failures:$/ { names = ""; inside = 1; next }
    inside && /^    [^ ]+$/ { names = names " " $1; next }
    /^test result: FAILED/ {
        count = split(names, failures, " ")
        for (n = 1; n <= count; n++) if (!(failures[n] in listed)) other("the test " failures[n])
        judged = 1; inside = 0
        next
    }
    /^error: test failed, to rerun pass `/ {
        split($0, part, "`")
        if (!judged || names == "") other("the program of " part[2] ", which did not end by itself")
        again[++programs] = part[2] " --" names
        judged = 0; names = ""
        next
    }
    /^error: [0-9]+ targets? failed:$/ { failed = $2; next }
    /^error/ { other($0) }
    END {
        if (!odd && (programs == 0 || (failed && failed != programs))) other("what has failed without a word")
        if (odd) exit 1
        for (n = 1; n <= programs; n++) print again[n]
    }
' "$log"
