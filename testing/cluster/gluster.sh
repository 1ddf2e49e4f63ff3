#!/usr/bin/env bash
# GlusterFS 10.3, three replicas, each brick on a supervised narufs mount: files are written through Gluster while a brick's
# narufs server is killed again and again. The bricks must then be equal, byte for byte, without any healing: Gluster
# clears its marks of what is to be healed before data is synced, and so relies on plain writes outliving any process.
# (Without a supervisor 235 files were left empty on one brick, and Gluster called all healed.)
source "$(dirname "$0")/lib.sh"
for program in glusterd gluster glusterfs; do command -v $program >/dev/null || lacks "$program"; done
files=$((600 * SCALE)) kills=$((5 * SCALE))

declare -A DAEMON=()
# All nodes have one file system here, but the daemon's own directories, and the sockets of its command and its bricks: each
# daemon has a namespace of mounts, with what is its own, and keeps nothing alive that is not.
start_daemon() { # NODE
    local aside=$WORK/gluster$1
    mkdir -p "$aside/lib" "$aside/log"
    start_at "$1" "$WORK/logs/glusterd-$1" unshare --mount --propagation private bash -euc '
        awk -v own="$1" "/ - fuse/ && \$5 != own { print \$5 }" /proc/self/mountinfo | tac | xargs -r umount -l
        mount --bind "$2/lib" /var/lib/glusterd
        mount --bind "$2/log" /var/log/glusterfs
        mount -t tmpfs none /run
        mkdir /run/gluster
        exec glusterd --no-daemon --log-level WARNING' - "$WORK/node$1" "$aside"
    DAEMON[$1]=$PID
}
# On a node, as its daemon sees it.
inside() { nsenter --target "${DAEMON[$1]}" --net --mount -- "${@:2}"; } # NODE COMMAND...
gluster_at() { inside "$1" timeout 120 gluster --mode=script "${@:2}"; } # NODE ARGS...
peers() { [[ $(gluster_at 1 pool list | grep -c Connected) == 3 ]]; }
# Its table for people breaks long names over lines.
bricks_up() {
    gluster_at 1 volume status files --xml | python3 -c '
import sys, xml.etree.ElementTree as tree
up = [n for n in tree.parse(sys.stdin).iter("node") if n.findtext("path", "").endswith("/brick") and n.findtext("status") == "1"]
sys.exit(len(up) != 3)'
}
# What is left to heal on any brick, as Gluster sees it.
healed() { gluster_at 1 volume heal files info | awk '/^Number of entries:/ { n++; if ($4 != 0) bad = 1 } END { exit bad || n != 3 }'; }
# The files of a brick with their contents; Gluster's own are below .glusterfs.
contents() { (cd "$1" && find . -path ./.glusterfs -prune -o -type f -print0 | sort -z | xargs -0 sha256sum); } # DIR

no_gluster() { # NODE
    local pid
    for pid in $(ip netns pids "$(space "$1")"); do [[ $(cat "/proc/$pid/comm") != glu* ]] || return 1; done
}

cluster 1 2 3
for node in 1 2 3; do
    storage $node 2G
    power_on $node
    mkdir -p "$WORK/node$node/brick"
    start_daemon $node
done
for node in 1 2 3; do until_done 60 "the daemon of node $node" gluster_at $node pool list; done
for node in 2 3; do gluster_at 1 peer probe "$(address $node)" >/dev/null || fail "peer probe $node"; done
until_done 60 "the peers" peers
gluster_at 1 volume create files replica 3 "$(address 1):$WORK/node1/brick" "$(address 2):$WORK/node2/brick" \
    "$(address 3):$WORK/node3/brick" force >/dev/null || fail "volume create"
gluster_at 1 volume start files >/dev/null || fail "volume start"
until_done 120 "the bricks" bricks_up
mkdir "$WORK/files"
# A client of its own, in the hub.
start_at hub "$WORK/logs/client" glusterfs --no-daemon --volfile-server="$(address 1)" --volfile-id=files \
    --log-file="$WORK/logs/mount" "$WORK/files"
client=$PID
until_done 60 "the client" is_mounted "$WORK/files"

# Small files as programs write them, none synced; each hundredth is said.
write() { # COUNT
    local n
    for ((n = 1; n <= $1; n++)); do
        mkdir -p "$WORK/files/$((n % 13))" || exit 1
        seq "$n" $((n + n % 500)) >"$WORK/files/$((n % 13))/$n" || exit 1
        ((n % 100)) || echo "$n"
    done
}
coproc writer { write "$files"; }
writing=$writer_PID
started "$writing"
exec {said}<&"${writer[0]}"
while read -r -t 300 _ <&"$said"; do
    ((KILLED[2] >= kills)) || kill_server_at 2
done
await "$writing" || fail "writing through Gluster: $(tail -n 5 "$WORK/logs/mount")"
all_replaced 2
until_done 180 "what Gluster has to heal" healed
expected=$(contents "$WORK/files")
same "the files" "$files" "$(wc -l <<<"$expected")"
empty=0
for node in 1 2 3; do
    none=$(find "$WORK/node$node/brick" -path '*/.glusterfs' -prune -o -type f -size 0 -print | wc -l)
    empty=$((empty + none))
    same "the brick of node $node" "$expected" "$(contents "$WORK/node$node/brick")"
done
same "empty files on bricks" 0 "$empty"

umount "$WORK/files"
await "$client" || true
pause=$(pause_of 2)
for node in 1 2 3; do
    # They fork: the namespace knows them.
    for pid in $(ip netns pids "$(space $node)"); do
        [[ $(cat "/proc/$pid/comm") != glu* ]] || kill -TERM "$pid"
    done
    until_done 60 "the end of Gluster on node $node" no_gluster $node
done
for node in 1 2 3; do power_off $node; done
say "RESULT $files files in three replicas, $kills kills of a brick's narufs server (pauses of $pause ms at most), $empty empty" \
    "files, bricks equal"
