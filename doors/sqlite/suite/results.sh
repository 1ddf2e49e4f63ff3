#!/usr/bin/env bash
# results.sh LOGS EXPECTED: what SQLite's tests have said, a file of them each a log; fails if something failed that EXPECTED
# does not name. A line of that is the pattern of a test's name (or of a file's, for one that did not end) and the reason.
set -euo pipefail
logs=$1 expected=$2
awk -v expected="$expected" '
function expects(name,    i, n) {
    for (i = 1; i <= count; i++) if (name ~ pattern[i]) return 1
    return 0
}
function finish() {
    if (file == "") return
    files++
    if (!ended) { if (expects(file)) known++; else fresh[++new] = file ": it did not end (" status ")" }
}
BEGIN {
    while ((getline line < expected) > 0) {
        if (line ~ /^#/ || line ~ /^$/) continue
        split(line, words, " ")
        glob = words[1]
        gsub(/\./, "\\.", glob); gsub(/\*/, ".*", glob); gsub(/\?/, ".", glob)
        pattern[++count] = "^" glob "$"
    }
}
FNR == 1 { finish(); file = FILENAME; sub(/.*\//, "", file); sub(/\.log$/, ".test", file); ended = 0; status = "" }
/ errors out of [0-9]+ tests/ { ended = 1; errors += $1; for (i = 1; i < NF; i++) if ($i == "of") tests += $(i + 1) }
/^!Failures on these tests:/ {
    for (i = 5; i <= NF; i++) if (expects($i)) known++; else fresh[++new] = file ": " $i
}
/^status / { status = $2 }
END {
    finish()
    for (i = 1; i <= new; i++) print fresh[i]
    printf "%d files, %d tests, %d failures: %d as expected, %d not\n", files, tests, errors, known, new
    exit new > 0
}' "$logs"/*.log
