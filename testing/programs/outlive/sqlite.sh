#!/usr/bin/env bash
# sqlite.sh DIR ASIDE SEED: concurrent writers in both journal modes: every transaction that was reported is there, none
# twice, and the database is whole.
set -euo pipefail
source "$(dirname "$0")/../sqlite-writers.sh"
dir=$1 aside=$2
writers=3 each=25
for mode in wal delete; do
    db=$dir/$mode.db
    make_database "$db" "$mode"
    running=()
    for w in $(seq "$writers"); do
        write_rows "$db" "$w" "$each" 120000 >"$aside/out$w" &
        running+=($!)
    done
    for pid in "${running[@]}"; do wait "$pid"; done
    for w in $(seq "$writers"); do [[ $(grep -c done "$aside/out$w") == "$each" ]]; done
    [[ $(sqlite3 "$db" 'PRAGMA integrity_check') == ok ]]
    [[ $(count_rows "$db") == "$((writers * each))|$((writers * each))" ]]
    rm -f "$db"*
done
