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
# Nobody is to wait for us: what others have mounted stays mounted for as long as it is so in any name space.
sed -nE 's/^(\S+ ){4}(\S+) .* - fuse\.narufs .*/\2/p' /proc/self/mountinfo | while read -r point; do umount -l "$point"; done
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
# What an older kernel lacks is refused.
ways=(supervise=no)
if printf '6.9\n%s\n' "$(uname -r)" | sort -VC; then ways+=(supervise=yes); fi
for options in "${ways[@]}"; do
    as_user "$program" mount "$home/image" "$home/volume" -o "$options"
    look "$home/volume" as_user
    grep " $home/volume " /proc/self/mountinfo | grep -q 'nosuid,nodev' || fail "$options: without nosuid,nodev"
    as_user bash -c "cp '$program' '$home/volume/program' && sync '$home/volume/program'"
    as_user cmp "$program" "$home/volume/program" || fail "$options: it is not what was written"
    ! ls "$home/volume" >/dev/null 2>&1 || fail "$options: root was let in"
    as_user "$program" umount "$home/volume" || fail "$options: its user cannot unmount it"
    ! is_mounted "$home/volume" || fail "$options: it stays mounted"
done
server_of() { as_user "$program" stats "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server_pid"])'; }
# One that does not answer is cut off by its user, and whoever waits for it gets an error. What the kernel has handed over by
# io_uring ends where the server runs; which process that is not every kernel says that has io_uring.
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl fusectl /sys/fs/fuse/connections
ways=(transport=dev)
switch=/sys/module/fuse/parameters/enable_uring
before=$(cat "$switch" 2>/dev/null || true)
[[ -z $before ]] || ways+=(transport=uring)
for way in "${ways[@]}"; do
    [[ $way != transport=uring ]] || echo Y >"$switch"
    as_user "$program" mount "$home/image" "$home/volume" -o "supervise=no,$way"
    server=$(server_of "$home/volume")
    if [[ $way == transport=uring ]] && ! grep -qs fuse_connection "/proc/$server/fdinfo/"*; then
        as_user "$program" umount "$home/volume"
        continue
    fi
    started "$server"
    # In the directory before it is detached: there are no names to be looked up on the way.
    coproc waits { as_user bash -c 'cd "$0" && echo there && read -r && exec mkdir made' "$home/volume" 2>/dev/null; }
    caller=$waits_PID
    started "$caller"
    read -r <&"${waits[0]}"
    halt "$server"
    echo >&"${waits[1]}"
    connection=$(sed -nE "s|^(\S+ ){2}[0-9]+:([0-9]+) \S+ $home/volume .*|\2|p" /proc/self/mountinfo)
    while [[ $(<"/sys/fs/fuse/connections/$connection/waiting") -eq 0 ]]; do
        kill -0 "$caller" || fail "$way: a server that was stopped has answered"
    done
    as_user "$program" umount --force "$home/volume" || fail "$way: its user cannot cut it off"
    ! is_mounted "$home/volume" || fail "$way: it stays mounted when it is cut off"
    ! await "$caller" || fail "$way: a server that was stopped has made a directory"
    end "$server"
    unset "STARTED[$server]"
done
[[ -z $before ]] || echo "$before" >"$switch"
# Where nobody can be cut off that is said.
as_user "$program" mount "$home/image" "$home/volume" -o supervise=no
server=$(server_of "$home/volume")
mount -t tmpfs none /sys/fs/fuse/connections
! as_user "$program" umount --force "$home/volume" 2>"$WORK/err" || fail "it was said that its users were cut off"
grep -q 'who uses it is not cut off: .*/sys/fs/fuse/connections' "$WORK/err" || fail "$(cat "$WORK/err")"
umount /sys/fs/fuse/connections
! is_mounted "$home/volume" || fail "it stays mounted when nobody can be cut off"
tail --pid="$server" -f /dev/null
# One that is asked to end unmounts by its broker.
as_user "$program" mount "$home/image" "$home/volume" -o supervise=no
server=$(server_of "$home/volume")
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

# A clean image of a user that names a file of root's for its journal: a mount by root leaves that alone, and makes none.
as_user "$program" mkfs "$home/evil" --size 64M --sparse --journal-emulated "$home/ring" --journal-size 1M >/dev/null
as_user "$program" mount "$home/evil" "$home/volume" -o supervise=no
as_user "$program" umount "$home/volume"
rm "$home/ring"
mkdir "$WORK/root" "$WORK/mnt"
python3 - "$home/evil" "$home/ring" "$WORK/root/file" <<'PY'
import struct, sys
image, ring, wanted = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

with open(image, "r+b") as file:
    copies = 0
    for block in 0, 1:
        file.seek(block * 4096)
        superblock = bytearray(file.read(504))
        if superblock[248:504].rstrip(b"\0") != ring:
            continue
        superblock[248:504] = wanted.ljust(256, b"\0")
        superblock[0:4] = struct.pack("<I", crc32c(superblock[4:]))
        file.seek(block * 4096)
        file.write(superblock)
        copies += 1
assert copies, "the superblock is not where it was looked for"
PY
"$NARUFS" info "$home/evil" | grep -q "$WORK/root/file" || fail "the image does not name root's file"
for what in nothing zeros data; do
    rm -f "$WORK/root/file"
    case $what in
        zeros) truncate -s 2M "$WORK/root/file" ;;
        data) head -c 2M /dev/urandom >"$WORK/root/file" ;;
    esac
    before=$(stat -c '%s %b %Y' "$WORK/root/file" 2>/dev/null; sha256sum "$WORK/root/file" 2>/dev/null) || true
    for options in supervise=no supervise=yes harden=no; do
        status=0
        "$NARUFS" mount "$home/evil" "$WORK/mnt" -o "$options" 2>"$WORK/err" || status=$?
        [[ $status -eq 32 ]] || fail "$what, $options: mounted, or status $status: $(cat "$WORK/err")"
    done
    after=$(stat -c '%s %b %Y' "$WORK/root/file" 2>/dev/null; sha256sum "$WORK/root/file" 2>/dev/null) || true
    same "root's file ($what)" "$before" "$after"
done

# The units hold a service to no less than they did: below 3 whoever reads images, in tenths.
command -v systemd-analyze >/dev/null || lacks systemd-analyze
for unit in narufs@:20 narufs-scratch@:18 narufs-mount@:30; do
    systemd-analyze security --offline=true --threshold="${unit#*:}" "$ROOT/docs/systemd/${unit%:*}.service" >"$WORK/rating" \
        || fail "$(tail -1 "$WORK/rating")"
done
