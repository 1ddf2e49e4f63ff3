# Sourced by every program test: volumes, and their removal whatever happens.
#
# A test names its volumes; each is a fresh image in $WORK/NAME.img, mounted at $WORK/NAME, or scratch space
# without an image. With SERVER_GROUP set to a control group, servers start inside it. Everything that a test starts or makes is recorded here and taken away when it ends, also when it fails: processes by their
# ids, mounts, control groups, the directory. NARUFS_PROGRAMS_FS=ext4 runs the same test on ext4, which shows
# whether a test is right.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
NARUFS=${NARUFS:-$TARGET/release/narufs}
SCALE=${NARUFS_TEST_SCALE:-1}
FS=${NARUFS_PROGRAMS_FS:-narufs}
# Two ids without an account, and a group that only the first may hold in addition.
FIRST=64101 SECOND=64102 SHARED=64103

NAME=$(basename "$0" .sh)
# Not below the checkout, which other users may be unable to reach.
WORK=$(mktemp -d "/var/tmp/narufs-$NAME.XXXXXX")
chmod 755 "$WORK"
MOUNTED=() GROUPS_MADE=() FILES_MADE=() SERVER_GROUP=
declare -A SERVER=() SUPERVISOR=() STARTED=()

say() { echo "$NAME: $*"; }
fail() { echo "$NAME: FAILED: $*" >&2; exit 1; }
# Ends the test without a verdict: there is nothing to test.
skip() { echo "$NAME: SKIPPED: $*"; exit 0; }
# What it needs is not on this machine: that is no verdict either, but a failure where everything is demanded.
lacks() {
    [[ ${NARUFS_DEMAND_ALL:-0} != 1 ]] || fail "missing: $*"
    skip "missing: $*"
}
[[ $(id -u) -eq 0 ]] || fail "program tests mount file systems and change users: run them as root"

# Ends a process of ours and waits until it is gone; it need not be a child.
end() { # PID [SIGNAL]
    kill -"${2:-KILL}" "$1" 2>/dev/null || return 0
    tail --pid="$1" -f /dev/null
}
# Stops a process, and waits until that has reached each of its threads.
halt() { # PID
    kill -STOP "$1"
    while [[ -n $(grep -Ls '^State:[[:space:]]*[TZX]' "/proc/$1/task/"*/status) ]]; do :; done
}
# Background children: recorded, and forgotten once they have been waited for.
started() { STARTED[$1]=1; }
await() { # PID: with the status of the process
    local status=0
    wait "$1" || status=$?
    unset "STARTED[$1]"
    return "$status"
}

cleanup() {
    local status=$? pid dir group
    trap - EXIT
    set +e
    for pid in "${!STARTED[@]}"; do end "$pid"; done
    for ((i = ${#MOUNTED[@]} - 1; i >= 0; i--)); do
        dir=${MOUNTED[i]}
        detach_dir "$dir"
    done
    for group in "${GROUPS_MADE[@]}"; do rmdir "$group"; done
    [[ ${#FILES_MADE[@]} -eq 0 ]] || rm -f "${FILES_MADE[@]}"
    # A server that still holds the image would make the removal of nothing but a name.
    grep -q " $WORK/" /proc/self/mountinfo && echo "$NAME: mounts are left below $WORK" >&2 || rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 143' TERM INT HUP

is_mounted() { grep -q " $1 " /proc/self/mountinfo; }

# Unmounts as a user would; what does not end within a minute is ended.
detach_dir() { # DIR
    local dir=$1 pid=${SERVER[$1]:-}
    is_mounted "$dir" || return 0
    if [[ -n $pid ]]; then
        timeout 60 "$NARUFS" umount "$dir" >/dev/null || { kill_server_of "$dir"; umount -l "$dir"; }
        unset "SERVER[$dir]"
    else
        umount "$dir" || umount -l "$dir"
    fi
}

# Makes a file system; ARGS go to `narufs mkfs`.
volume() { # NAME SIZE [ARGS...]
    local name=$1 image=$WORK/$1.img size=$2
    mkdir -p "$WORK/$1"
    shift 2
    if [[ $FS == narufs ]]; then
        "$NARUFS" mkfs "$image" --size "$size" --sparse "$@" >/dev/null
        # What a killed server leaves of a journal that is staged in memory.
        FILES_MADE+=("$(staging "$name")")
    else
        truncate -s "$size" "$image"
        mkfs.ext4 -qF -m 0 -i 4096 -I 256 -E lazy_itable_init=1,nodiscard "$image"
    fi
}

# The shared memory in which the journal of a volume is staged.
staging() { # NAME
    "$NARUFS" info "$WORK/$1.img" --json |
        python3 -c 'import json, sys; print("/dev/shm/narufs-" + json.load(sys.stdin)["uuid"])'
}

# Runs a command in a control group, or where we are.
within() { # GROUP COMMAND...
    local group=$1
    shift
    ([[ -z $group ]] || echo "$BASHPID" >"$group/cgroup.procs"; exec "$@")
}

# Notes what serves a mount, now and again.
served() { # NAME
    [[ -v SERVER["$WORK/$1"] ]] || MOUNTED+=("$WORK/$1")
    read -r "SERVER[$WORK/$1]" "SUPERVISOR[$WORK/$1]" < <("$NARUFS" stats "$WORK/$1" --json |
        python3 -c 'import json, sys; s = json.load(sys.stdin); print(s["server_pid"], s["supervisor_pid"])')
}

# Mounts scratch space at $WORK/NAME; what it spills goes to a nameless file.
scratch() { # NAME OPTIONS
    mkdir -p "$WORK/$1"
    within "$SERVER_GROUP" "$NARUFS" mount --scratch --spill "$WORK" "$WORK/$1" -o "$2"
    served "$1"
}

# Mounts a volume at $WORK/NAME. Options for ext4 are those that it shares.
attach() { # NAME [OPTIONS]
    local dir=$WORK/$1 options=${2:-}
    if [[ $FS == narufs ]]; then
        within "$SERVER_GROUP" "$NARUFS" mount "$WORK/$1.img" "$dir" ${options:+-o "$options"}
        served "$1"
    else
        options=$(tr , '\n' <<<"$options" | grep -xE 'ro|suid|dev|noatime|relatime|strictatime' | paste -sd, || true)
        mount -o "loop${options:+,$options}" "$WORK/$1.img" "$dir"
        MOUNTED+=("$dir")
    fi
}

detach() { # NAME
    local dir=$WORK/$1
    if [[ $FS == narufs ]]; then
        timeout 600 "$NARUFS" umount "$dir" || fail "narufs umount $1 failed or took more than ten minutes"
        unset "SERVER[$dir]"
    else
        umount "$dir"
    fi
}

# Kills the server, and the process that would start another one: that one is stopped first, for of the two each would
# replace the other. (The kernel hangs up a stopped server whose parent has ended.) Does not wait for their end.
shoot_server_of() { # DIR
    (( ! SUPERVISOR[$1] )) || kill -STOP "${SUPERVISOR[$1]}"
    kill -KILL "${SERVER[$1]}"
    (( ! SUPERVISOR[$1] )) || kill -KILL "${SUPERVISOR[$1]}"
}

# The same, and waits for it.
kill_server_of() { # DIR
    shoot_server_of "$1" 2>/dev/null || true
    (( ! SUPERVISOR[$1] )) || end "${SUPERVISOR[$1]}"
    end "${SERVER[$1]}"
}

# Kills the server in the middle of its work and takes the dead mount away. On ext4: an unmount.
crash() { # NAME
    local dir=$WORK/$1
    if [[ $FS == narufs ]]; then
        kill_server_of "$dir"
        unset "SERVER[$dir]"
        umount -l "$dir"
    else
        umount -l "$dir"
    fi
}

# The file system that results are compared with: ext4 at $WORK/reference.
reference() { # SIZE
    FS=ext4 volume reference "$1"
    FS=ext4 attach reference
}

# Runs a program as a user without an account: user USER [GROUPS] -- COMMAND...
user() {
    local uid=$1 groups=--clear-groups
    shift
    [[ $1 == -- ]] || { groups=--groups=$1; shift; }
    shift
    setpriv --reuid="$uid" --regid="$uid" "$groups" --inh-caps=-all -- "$@"
}

# fsck of an unmounted volume: nothing may be wrong.
check() { # NAME
    if [[ $FS == narufs ]]; then
        "$NARUFS" fsck "$WORK/$1.img" >"$WORK/fsck.log" || { cat "$WORK/fsck.log"; fail "fsck of $1 finds damage"; }
    else
        e2fsck -fn "$WORK/$1.img" >/dev/null 2>&1 || fail "fsck of $1 finds damage"
    fi
}

same() { # WHAT LEFT RIGHT: two strings that must be equal
    [[ $2 == "$3" ]] || fail "$1 differs:
$(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3") | head -20)"
}

# Processes that the kernel has killed in a control group because nothing was left to reclaim.
killed_in() { # GROUP
    local events=$1/memory.events
    [[ -e $events ]] || events=$1/memory.oom_control
    awk '$1 == "oom_kill" { n = $2 } END { print n + 0 }' "$events"
}

# The most memory that a control group has had, in MiB; fails where the kernel does not say.
most_in() { # GROUP
    local most=$1/memory.peak
    [[ -e $most ]] || most=$1/memory.max_usage_in_bytes
    [[ -e $most ]] && awk '{ printf "%d", $1 / 1048576 }' "$most"
}

# A control group that bounds memory; prints its directory. Version 1 or 2, whichever the machine has.
memory_group() { # NAME BYTES
    local group
    if [[ -d /sys/fs/cgroup/memory ]]; then
        group=/sys/fs/cgroup/memory/narufs-$1-$$
        mkdir "$group"
        echo "$2" >"$group/memory.limit_in_bytes"
    else
        grep -qw memory /sys/fs/cgroup/cgroup.controllers || return 1
        group=/sys/fs/cgroup/narufs-$1-$$
        mkdir "$group"
        [[ -e $group/memory.max ]] || echo +memory >/sys/fs/cgroup/cgroup.subtree_control
        echo "$2" >"$group/memory.max"
    fi
    echo "$group"
}
