#!/usr/bin/env bash
# PostgreSQL with a synchronous standby, each on a narufs mount, under pgbench: narufs servers of both are killed, which
# no client sees; then the primary is lost with its narufs, by SIGKILL of everything on the node and by a power
# cut in turn, the standby is promoted, and the lost node comes back as standby. Each commit that a client was told of
# is there, balances add up, both have the same rows.
source "$(dirname "$0")/lib.sh"
source "$ROOT/testing/cluster/pg.sh"
rounds=$((2 * SCALE)) kills=2
clients=4

cluster 1 2
for node in 1 2; do
    storage $node 2G
    power_on $node
done
pg_primary 1
pg hub pgbench -h "$(address 1)" -i -q -s 2 >/dev/null 2>&1 || fail "pgbench -i"
sql 1 'CREATE TABLE told (round int, client int, n int, PRIMARY KEY (round, client, n))'
pg_standby 2 1
# Each client counts its transactions; what was answered has a line in the log.
cat >"$WORK/logs/pg/load" <<'LOAD'
\set n :n + 1
\set account random(1, 200000)
\set branch random(1, 2)
\set teller random(1, 20)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :account;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :teller;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :branch;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:teller, :branch, :account, :delta, CURRENT_TIMESTAMP);
INSERT INTO told VALUES (:round, :client_id, :n);
END;
LOAD

rows() { sql "$1" 'SELECT count(*) FROM told'; } # NODE
more() { # COUNT: so many more commits
    local target=$(($(rows "$primary") + $1))
    while (($(rows "$primary") < target)); do
        kill -0 "$bench" 2>/dev/null || fail "pgbench has ended: $(cat "$WORK/logs/bench")"
    done
}

primary=1 standby=2 told_in_all=0
for ((round = 1; round <= rounds; round++)); do
    rm -f "$WORK"/logs/pg/transactions*
    start_here "$WORK/logs/bench" pg hub pgbench -h "$(address $primary)" -n -c $clients -j 2 -T 600 -D n=0 \
        -D round=$round -f "$WORK/logs/pg/load" -l --log-prefix="$WORK/logs/pg/transactions"
    bench=$PID
    more 200
    for ((kill = 1; kill <= kills; kill++)); do
        for node in $primary $standby; do
            kill_server_at $node
            more 100
        done
    done
    for node in 1 2; do all_replaced $node; done
    pauses="pauses of $(pause_of 1) and $(pause_of 2) ms at most"
    if ((round % 2)); then crash_node $primary; else power_cut $primary; fi
    # Its clients have lost their server; what they have been told is written down when they end.
    await "$bench" || true
    pg_promote $standby
    for ((client = 0; client < clients; client++)); do
        told=$(cat "$WORK"/logs/pg/transactions* | awk -v client=$client '$1 == client' | wc -l)
        told_in_all=$((told_in_all + told))
        same "the commits of client $client in round $round, of which $told were answered" t "$(sql $standby \
            "SELECT count(*) = max(n) AND max(n) >= $told FROM told WHERE round = $round AND client = $client")"
    done
    same "the sums of round $round" t "$(sql $standby "SELECT sum(abalance) = (SELECT sum(bbalance) FROM pgbench_branches)
        AND sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers)
        AND sum(abalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts")"
    power_on $primary
    pg_rejoin $primary $standby
    said="$told_in_all commits answered, $(rows $standby) there"
    say "round $round: $((2 * kills)) killed narufs servers, $pauses, the primary lost: $said"
    read -r primary standby <<<"$standby $primary"
done

contents="SELECT md5(string_agg(t::text, ' ' ORDER BY t)) FROM %s t"
caught_up() { [[ $(sql "$standby" "SELECT pg_last_wal_replay_lsn() >= '$1'") == t ]]; } # POSITION
until_done 120 "the standby's replay" caught_up "$(sql $primary 'SELECT pg_current_wal_lsn()')"
for table in told pgbench_history pgbench_accounts pgbench_tellers pgbench_branches; do
    # shellcheck disable=SC2059 # a format of ours
    same "$table on both" "$(sql $primary "$(printf "$contents" $table)")" "$(sql $standby "$(printf "$contents" $table)")"
done
pg_stop $primary
pg_stop $standby
for node in 1 2; do
    pg $node pg_checksums -D "$(data $node)" --check >/dev/null || fail "a page's checksum is wrong on node $node"
    power_off $node
done
say "RESULT $((rounds * 2 * kills)) kills of narufs servers, the primary lost $rounds times: $said, both equal"
