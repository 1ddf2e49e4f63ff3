#!/usr/bin/env bash
# etcd, three members, each on a narufs mount: writers and a lease while narufs servers are killed, a member is killed,
# and nodes lose their power, one at a time, then all at once. Each acknowledged write is on every member, the
# hashes of all members are equal, and a killed narufs server is a pause: no client sees an error (of a pause that is
# longer than etcd waits, for the machine is busy, it sees that).
source "$(dirname "$0")/lib.sh"
source "$ROOT/testing/cluster/members.sh"
kills=$((3 * SCALE)) cuts=$((1 * SCALE))
log=$WORK/logs/kv

is_leader() { # NODE
    at hub etcdctl --endpoints="$(address "$1"):2379" endpoint status -w json |
        python3 -c 'import json, sys; s = json.load(sys.stdin)[0]["Status"]; sys.exit(s["leader"] != s["header"]["member_id"])'
}
leader() {
    local node
    for node in 1 2 3; do if is_leader $node; then echo $node; return; fi; done
    fail "no member says that it leads"
}

# Writers say each hundredth acknowledgement; no phase has a length in time.
acked=0
more() { # COUNT: so many more writes are acknowledged
    local target=$((acked + $1))
    while ((acked < target)); do
        read -r -t 120 acked <&"${writers[0]}" || fail "the writers stand still at $acked: $(tail -qn 3 "$log"/errors-*)"
    done
}
# Until a member has answered its own writer again. One that came back older than what it has promised ends itself.
again() { # NODE
    local before
    before=$(wc -l <"$log/acked-$1")
    until (($(wc -l <"$log/acked-$1") > before)); do
        kill -0 "${MEMBER[$1]}" 2>/dev/null || fail "member $1 has ended: $(grep -E 'panic' "$WORK/logs/etcd-$1" | head -n 2)"
        more 100
    done
}
errors() { cat "$log"/errors-* | wc -l; }
# Those by which etcd itself says that something took too long: on a machine that is busy with other things that has nothing
# to do with us.
late() { cat "$log"/errors-* | grep -cE 'request timed out|leader changed' || true; }
verified() { # WHEN
    at hub "${kv[@]}" verify "$log" "${endpoints[@]}" >"$WORK/logs/verified" 2>&1 ||
        fail "$1: $(cat "$WORK/logs/verified")"
    say "$1: $(cat "$WORK/logs/verified")"
}

cluster 1 2 3
for node in 1 2 3; do
    storage $node 1G
    power_on $node
    start_member $node
done
for node in 1 2 3; do until_done 120 "member $node becomes healthy" healthy $node; done
coproc writers { exec nsenter --net="/run/netns/$(space hub)" -- "${kv[@]}" write "$log" "${endpoints[@]}"; }
writing=$writers_PID
started "$writing"
more 300

for ((round = 1; round <= kills; round++)); do
    for node in 1 2 3; do
        kill_server_at $node
        more 100
        again $node
    done
done
for node in 1 2 3; do
    kill -0 "${MEMBER[$node]}" || fail "member $node has ended when its narufs server was killed: $(tail "$WORK/logs/etcd-$node")"
    all_replaced $node
done
same "the errors that clients saw of killed narufs servers" 0 "$(($(errors) - $(late)))"
pauses="pauses of $(pause_of 1), $(pause_of 2), $(pause_of 3) ms at most"
verified "$((3 * kills)) killed narufs servers, no error at a client but $(late) time-outs of etcd, $pauses"

node=$(leader)
end_member() { kill -KILL "${MEMBER[$1]}"; await "${MEMBER[$1]}" || true; }
end_member "$node" 2>/dev/null
more 300
start_member "$node"
again "$node"
verified "the leader killed and back, $(errors) failed tries"

for ((round = 1; round <= cuts; round++)); do
    for node in 1 2 3; do
        power_cut $node
        more 200
        power_on $node
        start_member $node
        again $node
    done
done
verified "$((3 * cuts)) power cuts of one node, $(errors) failed tries"

# All at once: nobody else has what a member has promised.
for node in 1 2 3; do kill -STOP "${DRIVE[$node]}"; done
for node in 1 2 3; do kill -TERM "${DRIVE[$node]}"; done
for node in 1 2 3; do kill -CONT "${DRIVE[$node]}"; done
for node in 1 2 3; do power_cut $node; done
for node in 1 2 3; do
    power_on $node
    start_member $node
done
for node in 1 2 3; do again $node; done
verified "the power of all nodes cut at once"

kill -TERM "$writing"
await "$writing" || fail "the writers have failed"
verified "at the end"
said=$(cat "$WORK/logs/verified")
for node in 1 2 3; do
    kill -TERM "${MEMBER[$node]}"
    await "${MEMBER[$node]}" || true
    power_off $node
done
say "RESULT $((3 * kills)) kills of narufs servers, 1 of a member, $((3 * cuts + 3)) power cuts: ${said%%, hash*}, hashes equal"
