#!/usr/bin/env bash
# sqlite.sh DIR ASIDE SEED: concurrent writers in both journal modes: every transaction that was reported is there, none
# twice, and the database is whole.
set -euo pipefail
dir=$1 aside=$2
writers=3 each=25
for mode in wal delete; do
    db=$dir/$mode.db
    sqlite3 "$db" "PRAGMA journal_mode=$mode; CREATE TABLE t(writer INT, n INT, body TEXT, PRIMARY KEY (writer, n));
        CREATE TABLE total(n INT); INSERT INTO total VALUES (0); CREATE INDEX bodies ON t(body);" >/dev/null
    running=()
    for w in $(seq "$writers"); do
        { echo ".timeout 120000"
          echo "PRAGMA synchronous=FULL;"
          for n in $(seq "$each"); do
              echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($w, $n, hex(randomblob(300))); UPDATE total SET n = n + 1; COMMIT;"
              echo "SELECT 'done';"
          done; } | sqlite3 -bail "$db" >"$aside/out$w" &
        running+=($!)
    done
    for pid in "${running[@]}"; do wait "$pid"; done
    for w in $(seq "$writers"); do [[ $(grep -c done "$aside/out$w") == "$each" ]]; done
    [[ $(sqlite3 "$db" 'PRAGMA integrity_check') == ok ]]
    [[ $(sqlite3 "$db" 'SELECT count(*), (SELECT n FROM total) FROM t') == "$((writers * each))|$((writers * each))" ]]
    rm -f "$db"*
done
