# Sourced by every scenario of `make cluster`: nodes on one machine, and their removal whatever happens.
#
# A node is a network namespace, an image, and a supervised narufs mount of it at $WORK/nodeN; everything that runs on
# it, narufs too, runs in the namespace, and is found there by the kernel's own list when the node is to end. Nodes
# meet on a bridge in a namespace of its own, `hub`, where clients run; the machine's own network is not touched.
#
# Below each image is a drive that loses what was not flushed (testing/src/drive.rs): a node's power can be cut.
# NARUFS_CLUSTER_OPTIONS are further options of the mounts: durability=process shows that lost promises are noticed.
if [[ -z ${NARUFS_CLUSTER_INSIDE:-} ]]; then
    # With mounts of its own: who copies the machine's, as a container that starts does, would keep ours busy.
    NARUFS_CLUSTER_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi
source "$(dirname "${BASH_SOURCE[0]}")/../programs/lib.sh"
DRIVER=${NARUFS_DRIVE:-$TARGET/release/narufs-drive}
[[ $FS == narufs ]] || fail "nodes are made of narufs"
OPTIONS=${NARUFS_CLUSTER_OPTIONS:-}
NODES=()
declare -A DRIVE=() STAGING=() KILLED=()
CUTS=0
mkdir "$WORK/logs"
# Where everyone may be, whoever a server runs as.
cd /

space() { echo "narufs-$$-$1"; } # NODE|hub
address() { if [[ $1 == hub ]]; then echo 10.213.7.254; else echo "10.213.7.$1"; fi; }

# Runs a command on a node, or in the hub: in the foreground, or with & as the shell's own child.
at() { # NODE COMMAND...
    local node=$1
    shift
    nsenter --net="/run/netns/$(space "$node")" -- "$@"
}

# Starts a process that is recorded; its id is in $PID.
start_here() { # LOG COMMAND...
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null &
    PID=$!
    started "$PID"
}
start_at() { # NODE LOG COMMAND...
    local node=$1 log=$2
    shift 2
    start_here "$log" nsenter --net="/run/netns/$(space "$node")" -- "$@"
}

# Ends every process of a node: none of them has a chance to do anything, or to replace another.
kill_all_at() { # NODE|hub
    local pids pid
    while pids=$(ip netns pids "$(space "$1")") && [[ -n $pids ]]; do
        # shellcheck disable=SC2086 # a list of numbers
        kill -STOP $pids 2>/dev/null || true
        # shellcheck disable=SC2086
        kill -KILL $pids 2>/dev/null || true
        for pid in $pids; do
            # Our own children have to be waited for.
            if [[ -n ${STARTED[$pid]:-} ]]; then await "$pid" 2>/dev/null || true; else end "$pid"; fi
        done
    done
}

cluster_cleanup() {
    local status=$? node
    trap - EXIT
    set +e
    for node in "${NODES[@]}" hub; do
        [[ -e /run/netns/$(space "$node") ]] || continue
        kill_all_at "$node" 2>/dev/null
    done
    for node in "${NODES[@]}"; do
        is_mounted "$WORK/node$node" && umount -l "$WORK/node$node"
        unset "SERVER[$WORK/node$node]"
        [[ -z ${DRIVE[$node]:-} ]] || end "${DRIVE[$node]}"
        is_mounted "$WORK/drive$node" && umount -l "$WORK/drive$node"
    done
    # What engines have mounted.
    awk -v below="$WORK/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r umount -l
    for node in "${NODES[@]}" hub; do
        [[ -e /run/netns/$(space "$node") ]] && ip netns del "$(space "$node")"
    done
    if ((status)) && [[ -n ${NARUFS_CLUSTER_KEEP:-} ]]; then cp -r "$WORK/logs" "$NARUFS_CLUSTER_KEEP"; fi
    (exit "$status")
    cleanup
}
trap cluster_cleanup EXIT

# Makes the hub and nodes that reach each other over it.
cluster() { # NODE...
    local node hub
    hub=$(space hub)
    ip netns add "$hub"
    ip -n "$hub" link add bridge type bridge
    ip -n "$hub" addr add "$(address hub)/24" dev bridge
    ip -n "$hub" link set bridge up
    ip -n "$hub" link set lo up
    for node in "$@"; do
        NODES+=("$node")
        ip netns add "$(space "$node")"
        ip -n "$hub" link add "node$node" type veth peer name net netns "$(space "$node")"
        ip -n "$hub" link set "node$node" master bridge up
        ip -n "$(space "$node")" addr add "$(address "$node")/24" dev net
        ip -n "$(space "$node")" link set net up
        ip -n "$(space "$node")" link set lo up
    done
}

# Gives a node an empty image.
storage() { # NODE SIZE
    volume "node$1" "$2" --journal-size 32M
    STAGING[$1]=$(staging "node$1")
}

# Powers a node's drive on, if it is not, and mounts what is on it.
power_on() { # NODE
    local node=$1 options=supervise=yes,noatime${OPTIONS:+,$OPTIONS} image=$WORK/node$1.img
    # Every second cut leaves some of what was not flushed.
    local seed=()
    if [[ -z ${DRIVE[$node]:-} ]]; then
        mkdir -p "$WORK/drive$node"
        CUTS=$((CUTS + 1))
        ((CUTS % 2)) || seed=("$CUTS")
        start_here "$WORK/logs/drive-$node" "$DRIVER" "$image" "$WORK/drive$node" "${seed[@]}"
        DRIVE[$node]=$PID
        until_done 60 "the drive of node $node" test -e "$WORK/drive$node/disk"
    fi
    at "$node" "$NARUFS" mount "$WORK/drive$node/disk" "$WORK/node$node" -o "$options" || fail "node $node does not mount"
    served "node$node"
    KILLED[$node]=0
}

# The process that serves a node's mount now.
server_of() { # NODE
    "$NARUFS" stats "$WORK/node$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server_pid"])'
}

# The longest time that a node's mount has stood still for a server to be replaced, in milliseconds.
pause_of() { # NODE
    "$NARUFS" stats "$WORK/node$1" --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["longest_pause_ns"] // 1000000)'
}

# Each killed server of a node's mount has been followed by another, and none has died of itself.
all_replaced() { # NODE
    same "the restarts of the server of node $1" "${KILLED[$1]}" "$("$NARUFS" stats "$WORK/node$1" --json |
        python3 -c 'import json, sys; print(sum(p["ends"] for p in json.load(sys.stdin)["servers"]["phases"]))')"
}

# Kills the server of a node's mount; its supervisor starts another.
kill_server_at() { # NODE
    kill -KILL "$(server_of "$1")"
    KILLED[$1]=$((KILLED[$1] + 1))
}

# Ends every process of a node, narufs with its supervisor too. The machine goes on: memory and drive keep what they have.
crash_node() { # NODE
    kill_all_at "$1"
    umount -l "$WORK/node$1"
    unset "SERVER[$WORK/node$1]"
}

# Cuts a node's power: the drive first, so that nothing is answered that the drive had not done; then all of its
# processes, and the memory that survives a killed server and no loss of power.
power_cut() { # NODE
    local node=$1
    if [[ -n ${DRIVE[$node]:-} ]]; then
        kill -TERM "${DRIVE[$node]}" 2>/dev/null || true
        await "${DRIVE[$node]}" || fail "the drive of node $node: $(tail -n 3 "$WORK/logs/drive-$node")"
        unset "DRIVE[$node]"
        say "power cut of node $node: $(tail -n 1 "$WORK/logs/drive-$node")"
    fi
    crash_node "$node"
    ! is_mounted "$WORK/drive$node" || umount -l "$WORK/drive$node"
    rm -f "${STAGING[$node]}"
}

# Unmounts a node whose programs have ended, and checks its image.
power_off() { # NODE
    local node=$1
    timeout 120 "$NARUFS" umount "$WORK/node$node" || fail "node $node does not unmount"
    unset "SERVER[$WORK/node$node]"
    if [[ -n ${DRIVE[$node]:-} ]]; then
        umount "$WORK/drive$node"
        await "${DRIVE[$node]}" || fail "the drive of node $node"
        unset "DRIVE[$node]"
    fi
    check "node$node"
}

# Tries a command until it succeeds, for so long; the way to wait for a server to answer.
until_done() { # SECONDS WHAT COMMAND...
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < until)) || fail "$what: not within its time"
        sleep 0.1
    done
}
