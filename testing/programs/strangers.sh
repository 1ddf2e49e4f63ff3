#!/usr/bin/env bash
# Mounts by users who are not root: by fusermount3, and in a user name space of their own. What they mount is hardened as
# root's is, theirs alone, and without set-user-id programs and device nodes.
if [[ -z ${NARUFS_STRANGERS_INSIDE:-} ]]; then
    # Where the device is everybody's, as distributions have it, whatever this machine does.
    NARUFS_STRANGERS_INSIDE=1 exec unshare --mount "$0" "$@"
fi
source "$(dirname "$0")/lib.sh"

[[ $FS == narufs ]] || skip "it is about how narufs mounts"
command -v fusermount3 >/dev/null || lacks fusermount3
mknod -m 666 "$WORK/fuse" c 10 229
mount --bind "$WORK/fuse" /dev/fuse
trap 'status=$?; umount -l /dev/fuse; (exit $status); cleanup' EXIT
# Where others reach it.
program=$WORK/narufs
cp "$NARUFS" "$program"
chmod 755 "$program"
# fusermount3 wants a user with a name.
uid=65534
as_user() { setpriv --reuid="$uid" --regid="$uid" --clear-groups --inh-caps=-all -- "$@"; }
home=$WORK/home
mkdir -p "$home/volume"
chown -R "$uid:$uid" "$home"
chmod 700 "$home"

# Of the mount at DIR, asked by COMMAND: what its server has given up, and which flags it has.
look() { # DIR COMMAND...
    local dir=$1
    shift
    "$@" "$program" stats "$dir" --json | python3 -c '
import json, sys
given_up = json.load(sys.stdin)["hardening"]
for what in "asked", "no_capabilities", "no_new_privileges", "seccomp":
    assert given_up[what] is True, given_up
assert given_up["landlock"] > 0, given_up'
}

as_user "$program" mkfs "$home/image" --size 64M --sparse >/dev/null
FILES_MADE+=("/dev/shm/narufs-$("$program" info "$home/image" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["uuid"])')")
MOUNTED+=("$home/volume")
for options in supervise=no supervise=yes; do
    as_user "$program" mount "$home/image" "$home/volume" -o "$options"
    look "$home/volume" as_user
    grep " $home/volume " /proc/self/mountinfo | grep -q 'nosuid,nodev' || fail "$options: without nosuid,nodev"
    as_user bash -c "cp '$program' '$home/volume/program' && sync '$home/volume/program'"
    as_user cmp "$program" "$home/volume/program" || fail "$options: it is not what was written"
    ! ls "$home/volume" >/dev/null 2>&1 || fail "$options: root was let in"
    as_user "$program" umount "$home/volume" || fail "$options: its user cannot unmount it"
    ! is_mounted "$home/volume" || fail "$options: it stays mounted"
done
# One that is asked to end unmounts by its broker.
as_user "$program" mount "$home/image" "$home/volume" -o supervise=no
server=$(as_user "$program" stats "$home/volume" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server_pid"])')
end "$server" TERM
! is_mounted "$home/volume" || fail "a server that was asked to end left its mount"

# Who is root in a name space of his own mounts there by himself, and nobody else sees it.
if as_user unshare --user --map-root-user --mount true 2>/dev/null; then
    cd "$home"
    as_user unshare --user --map-root-user --mount bash -euc '
        "$0" mkfs own --size 64M --sparse >/dev/null
        "$0" mount own volume -o supervise=no
        "$0" stats volume --json >stats
        grep " $PWD/volume " /proc/self/mountinfo >mounted
        echo text >volume/inside
        "$0" umount volume
        ! grep " $PWD/volume " /proc/self/mountinfo' "$program" \
        || fail "no mount in a user name space"
    ! is_mounted "$home/volume" || fail "others see it"
    python3 -c '
import json, sys
given_up = json.load(open(sys.argv[1]))["hardening"]
assert given_up["seccomp"] and given_up["no_capabilities"] and given_up["landlock"], given_up' "$home/stats"
    grep -q 'nosuid,nodev' "$home/mounted" || fail "in a name space without nosuid,nodev"
else
    lacks "user name spaces for users"
fi
"$program" fsck "$home/image" >/dev/null || fail "the image is damaged"
