#!/usr/bin/env bash
# postgres.sh DIR ASIDE SEED: a cluster is made once; each time the server starts, answers pgbench, and stops. Each
# transaction that was reported is there, all sums agree, and no page's checksum is wrong.
set -euo pipefail
dir=$1 aside=$2
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
account=postgres
id "$account" >/dev/null 2>&1 || account=nobody
data=$dir/data transactions=200
export PGHOST=$aside/socket PGUSER=$account PGDATABASE=postgres
as() { setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups -- env HOME=/ "$@"; }
sql() { as "$bin/psql" -qtAX -v ON_ERROR_STOP=1 -c "$1"; }
stopped() {
    [[ ! -e $data/postmaster.pid ]] || as "$bin/pg_ctl" -D "$data" -m immediate stop || true
    tail -n 20 "$aside/server" || true
}
new=
if [[ ! -d $data ]]; then
    new=1
    mkdir -p "$data" "$aside/socket"
    chown "$account" "$data" "$aside/socket"
    chmod 700 "$data"
    touch "$aside/server"
    chown "$account" "$aside/server"
    as "$bin/initdb" -D "$data" -U "$account" -A trust --data-checksums
    cat >>"$data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$aside/socket'
shared_buffers = 16MB
max_wal_size = 64MB
CONF
fi
trap stopped EXIT
as "$bin/pg_ctl" -D "$data" -w -t 300 -l "$aside/server" start
[[ -z $new ]] || as "$bin/pgbench" -i -q -s 1
before=$(sql 'SELECT count(*) FROM pgbench_history')
as "$bin/pgbench" -c 4 -j 2 -t "$((transactions / 4))" -n
[[ $(sql 'SELECT count(*) FROM pgbench_history') == "$((before + transactions))" ]]
[[ $(sql "SELECT sum(abalance) = (SELECT sum(bbalance) FROM pgbench_branches)
    AND sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers)
    AND sum(abalance) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) FROM pgbench_accounts") == t ]]
as "$bin/pg_ctl" -D "$data" -w -t 300 -m fast stop
as "$bin/pg_checksums" -D "$data" --check
trap - EXIT
