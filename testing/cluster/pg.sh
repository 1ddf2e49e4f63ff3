# Sourced by scenarios with PostgreSQL: a primary and a synchronous standby, each with its data on its node's mount.
BIN=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[[ -n $BIN && -x $BIN/initdb ]] || lacks "PostgreSQL: apt-get install postgresql"
ACCOUNT=postgres
id "$ACCOUNT" >/dev/null 2>&1 || ACCOUNT=nobody
mkdir "$WORK/logs/pg"
chown "$ACCOUNT" "$WORK/logs/pg"
declare -A POSTMASTER=()

# A program of PostgreSQL on a node, or in the hub.
pg() { # NODE PROGRAM ARGS...
    local node=$1 program=$2
    shift 2
    at "$node" setpriv --reuid="$ACCOUNT" --regid="$(id -g "$ACCOUNT")" --clear-groups -- \
        env HOME=/ PGUSER="$ACCOUNT" PGDATABASE=postgres PGCONNECT_TIMEOUT=20 "$BIN/$program" "$@"
}
sql() { pg hub psql -h "$(address "$1")" -qtAX -v ON_ERROR_STOP=1 -c "$2"; } # NODE STATEMENT
data() { echo "$WORK/node$1/pg"; }

pg_dir() { # NODE
    mkdir -p "$(data "$1")"
    chown "$ACCOUNT" "$(data "$1")"
    chmod 700 "$(data "$1")"
}
pg_start() { # NODE
    # What a killed one would leave in the system's shared memory goes with a namespace.
    start_at "$1" "$WORK/logs/postgres-$1" unshare --ipc setpriv --reuid="$ACCOUNT" --regid="$(id -g "$ACCOUNT")" --clear-groups -- \
        env HOME=/ "$BIN/postgres" -D "$(data "$1")" -c "listen_addresses=$(address "$1")"
    POSTMASTER[$1]=$PID
    until_done 120 "PostgreSQL of node $1" sql "$1" 'SELECT 1'
}
pg_stop() { # NODE
    kill -INT "${POSTMASTER[$1]}"
    await "${POSTMASTER[$1]}" || fail "PostgreSQL of node $1 does not stop: $(tail "$WORK/logs/postgres-$1")"
}

# A new database on a node, which waits for a standby before it answers a commit, once it has had one.
pg_primary() { # NODE
    pg_dir "$1"
    pg "$1" initdb -D "$(data "$1")" -U "$ACCOUNT" -A trust --data-checksums >"$WORK/logs/initdb" 2>&1 ||
        fail "initdb: $(tail "$WORK/logs/initdb")"
    cat >>"$(data "$1")/postgresql.conf" <<CONF
unix_socket_directories = ''
shared_buffers = 32MB
dynamic_shared_memory_type = mmap
checkpoint_timeout = 30s
max_wal_size = 128MB
wal_keep_size = 512MB
CONF
    printf 'host %s all 10.213.7.0/24 trust\n' all replication >>"$(data "$1")/pg_hba.conf"
    sync "$(data "$1")/postgresql.conf" "$(data "$1")/pg_hba.conf"
    pg_start "$1"
}

# A standby of a primary, from nothing; the primary's commits wait for it from then on.
pg_standby() { # NODE PRIMARY
    rm -rf "$(data "$1")"
    pg_dir "$1"
    pg "$1" pg_basebackup -h "$(address "$2")" -D "$(data "$1")" -R -X stream -c fast >"$WORK/logs/basebackup" 2>&1 ||
        fail "pg_basebackup: $(tail "$WORK/logs/basebackup")"
    pg_follow "$1" "$2"
}
# The same with what a primary that was lost has, and has too much.
pg_rejoin() { # NODE PRIMARY
    pg "$1" pg_rewind -D "$(data "$1")" --source-server="host=$(address "$2") user=$ACCOUNT dbname=postgres" -R \
        >"$WORK/logs/rewind" 2>&1 || fail "pg_rewind: $(tail "$WORK/logs/rewind")"
    pg_follow "$1" "$2"
}
pg_follow() { # NODE PRIMARY
    pg_start "$1"
    sql "$2" "ALTER SYSTEM SET synchronous_standby_names = '*'"
    sql "$2" 'SELECT pg_reload_conf()' >/dev/null
    until_done 120 "the standby on node $1" is_synchronous "$2"
}
is_synchronous() { [[ $(sql "$1" 'SELECT sync_state FROM pg_stat_replication') == sync ]]; } # PRIMARY

pg_promote() { # NODE
    [[ $(sql "$1" 'SELECT pg_promote()') == t ]] || fail "node $1 does not become the primary"
    # Until then its control file has the old timeline, and pg_rewind believes that the lost primary has nothing too much.
    sql "$1" CHECKPOINT
}
