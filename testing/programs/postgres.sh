#!/usr/bin/env bash
# PostgreSQL: initdb and pgbench, then the database server and the file system killed in the middle of it, three
# times. Every transaction that a client was told of is there after recovery, each balance adds up, and every
# index agrees with its table.
source "$(dirname "$0")/lib.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[[ -n $bin && -x $bin/initdb ]] || fail "PostgreSQL is not installed: apt-get install postgresql"
account=postgres
id "$account" >/dev/null 2>&1 || account=nobody
transactions=$((1500 * SCALE))
v=$WORK/volume
data=$v/data
export PGHOST=$WORK/socket PGUSER=$account PGDATABASE=postgres
as() { setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups -- env HOME=/ "$@"; }
sql() { as "$bin/psql" -qtAX -v ON_ERROR_STOP=1 -c "$1" || { tail -n 40 "$WORK/logs/server" >&2; return 1; }; }
mkdir "$WORK/socket" "$WORK/logs"
chown "$account" "$WORK/socket" "$WORK/logs"

start() {
    as "$bin/pg_ctl" -D "$data" -w -t 120 -l "$WORK/logs/server" start >"$WORK/start.log" 2>&1 ||
        { cat "$WORK/start.log"; tail -n 30 "$WORK/logs/server"; fail "the database server does not start"; }
    server=$(head -n 1 "$data/postmaster.pid")
    started "$server"
}
# The postmaster and every process below it, without a chance to write anything.
kill_server() {
    local children
    children=$(ps -o pid= --ppid "$server")
    kill -KILL "$server"
    for pid in $children; do end "$pid"; done
    end "$server"
    unset "STARTED[$server]"
}

volume volume 3G
attach volume
mkdir "$data"
chown "$account" "$data"
chmod 700 "$data"
as "$bin/initdb" -D "$data" -U "$account" -A trust --data-checksums >"$WORK/init.log" 2>&1 ||
    { cat "$WORK/init.log"; fail "initdb"; }
cat >>"$data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$WORK/socket'
shared_buffers = 32MB
checkpoint_timeout = 30s
max_wal_size = 64MB
CONF
sync "$data/postgresql.conf"
start
as "$bin/pgbench" -i -q -s 2 >/dev/null 2>&1 || fail "pgbench -i"

reported=0
for round in 1 2 3; do
    # A log line is written for each transaction whose commit has been answered.
    rm -f "$WORK"/logs/transactions*
    as "$bin/pgbench" -c 4 -j 2 -t "$((transactions / 4 * 100))" -n -l --log-prefix="$WORK/logs/transactions" \
        >"$WORK/bench.log" 2>&1 &
    bench=$!
    started "$bench"
    # Killed at a count, not at a time.
    while :; do
        count=$(sql 'SELECT count(*) FROM pgbench_history')
        (( count < reported + transactions / 3 )) || break
        kill -0 "$bench" 2>/dev/null || { cat "$WORK/bench.log"; fail "pgbench ended"; }
    done
    if (( round % 2 )); then
        # The file system first: the database sees it fail under its hands.
        [[ $FS != narufs ]] || shoot_server_of "$v"
        kill_server
    else
        kill_server
    fi
    await "$bench" || true
    # The last line of each thread may be cut short in the program's buffer, never too long.
    told=$(cat "$WORK"/logs/transactions* | wc -l)
    crash volume
    attach volume
    rm -f "$data/postmaster.pid"
    start
    found=$(sql 'SELECT count(*) FROM pgbench_history')
    (( found >= reported + told )) || fail "round $round: $((reported + told)) commits were reported, $found are there"
    same "the sums of round $round" "t" "$(sql "SELECT sum(abalance) = (SELECT sum(bbalance) FROM pgbench_branches)
        AND sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers)
        AND sum(abalance) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) FROM pgbench_accounts")"
    say "round $round: $told commits reported, $((found - reported)) found"
    reported=$found
done
sql 'CREATE EXTENSION IF NOT EXISTS amcheck'
sql "SELECT bt_index_parent_check(c.oid, true) FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
     WHERE c.relkind = 'i' AND c.relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND c.relpersistence = 'p'" >/dev/null ||
    fail "an index does not agree with its table"
as "$bin/pg_dump" -f /dev/null postgres || fail "pg_dump"
as "$bin/pg_ctl" -D "$data" -w stop >/dev/null || fail "the database server does not stop"
unset "STARTED[$server]"
as "$bin/pg_checksums" -D "$data" --check >/dev/null || fail "a page's checksum is wrong"
detach volume
check volume
say "RESULT $reported transactions over 3 kills"
