#!/usr/bin/env bash
# SQLite with concurrent writers, in both journal modes: every transaction that was reported is there, none twice,
# and the database is whole, also after the file system has been mounted anew.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/sqlite-writers.sh"
writers=4
each=$((250 * SCALE))

volume volume 1G
attach volume
for mode in wal delete; do
    db=$WORK/volume/$mode.db
    make_database "$db" "$mode"
    running=()
    for w in $(seq "$writers"); do
        write_rows "$db" "$w" "$each" 60000 >"$WORK/out$w" 2>"$WORK/err$w" &
        running+=($!)
        started $!
    done
    # A reader beside them must see as many rows as the counter says at every moment.
    for _ in $(seq 40); do
        line=$(sqlite3 -cmd ".timeout 60000" "$db" "SELECT (SELECT count(*) FROM t) = (SELECT n FROM total)")
        same "a reader's view in mode $mode" 1 "$line"
    done
    for pid in "${running[@]}"; do
        await "$pid" || { cat "$WORK"/err*; fail "a writer failed in mode $mode"; }
    done
    for w in $(seq "$writers"); do
        same "what writer $w was told in mode $mode" "$each" "$(grep -c done "$WORK/out$w")"
    done
done
for round in mounted remounted; do
    for mode in wal delete; do
        db=$WORK/volume/$mode.db
        same "integrity in mode $mode, $round" ok "$(sqlite3 "$db" 'PRAGMA integrity_check')"
        same "rows in mode $mode, $round" "$((writers * each))|$((writers * each))" \
            "$(count_rows "$db")"
    done
    [[ $round == remounted ]] || { detach volume; attach volume; }
done
detach volume
check volume
say "RESULT $((2 * writers * each)) transactions of $writers writers"
