# Sourced by scenarios with etcd: three members on nodes 1, 2 and 3, and the clients of kv.py.
for program in etcd etcdctl; do command -v "$program" >/dev/null || lacks "$program"; done
declare -A MEMBER=()
members=() endpoints=()
for node in 1 2 3; do
    members+=("m$node=http://$(address $node):2380")
    endpoints+=("$(address $node):2379")
done
kv=(python3 "$ROOT/testing/cluster/kv.py")

# Elections are not what this is about: a member has five seconds, which a pause does not take.
start_member() { # NODE
    local peer client
    peer=http://$(address "$1"):2380 client=http://$(address "$1"):2379
    start_at "$1" "$WORK/logs/etcd-$1" etcd --name "m$1" --data-dir "$WORK/node$1/etcd" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --listen-client-urls "$client" --advertise-client-urls "$client" \
        --initial-cluster "$(IFS=,; echo "${members[*]}")" --initial-cluster-token narufs --initial-cluster-state new \
        --heartbeat-interval 500 --election-timeout 5000 --snapshot-count 1000 --logger zap
    MEMBER[$1]=$PID
}
healthy() { at hub etcdctl --endpoints="$(address "$1"):2379" --command-timeout=5s endpoint health; }
