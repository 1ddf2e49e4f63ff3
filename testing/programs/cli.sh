#!/usr/bin/env bash
# The commands as users give them: installed, through mount(8) and fstab, and with input that must be refused in one
# clear line with the right status.
source "$(dirname "$0")/lib.sh"
[[ $FS == narufs ]] || skip "about narufs alone"
cd "$WORK"
v=$WORK/volume

expect() { # STATUS PATTERN COMMAND...: one line on standard error that says so
    local status=$1 pattern=$2 found=0
    shift 2
    timeout 300 "$@" >"$WORK/out" 2>"$WORK/err" || found=$?
    [[ $found == "$status" ]] || fail "$*: status $found, not $status: $(cat "$WORK/err")"
    grep -qiE -- "$pattern" "$WORK/err" || fail "$*: does not say '$pattern' but: $(cat "$WORK/err")"
    [[ $(wc -l <"$WORK/err") -eq 1 ]] || fail "$*: more than one line: $(cat "$WORK/err")"
}
usage() { # STATUS COMMAND...: wrong usage, explained in several lines
    local status=$1 found=0
    shift
    "$@" >"$WORK/out" 2>"$WORK/err" || found=$?
    [[ $found == "$status" && -s $WORK/err ]] || fail "$*: status $found, not $status: $(cat "$WORK/err")"
}

# Help that teaches.
for command in mkfs mount umount sync fsck info stats top metrics doctor bench compare; do
    "$NARUFS" "$command" --help >"$WORK/out" || fail "$command --help"
    [[ $(wc -l <"$WORK/out") -ge 8 ]] || fail "$command --help says little"
done

# mkfs.
"$NARUFS" mkfs new.img --size 300M --label first >"$WORK/out"
same "size of a new image" $((300 << 20)) "$(stat -c %s new.img)"
(( $(stat -c %b new.img) * 512 >= 290 << 20 )) || fail "the space of an image is not reserved"
"$NARUFS" mkfs sparse.img --size 300M --sparse >"$WORK/out"
(( $(stat -c %b sparse.img) * 512 < 100 << 20 )) || fail "--sparse reserves the space"
"$NARUFS" info new.img --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["label"] == "first"'
"$NARUFS" info new.img | grep -q first || fail "info does not show the label"
echo "letters" >letters
expect 1 "force" "$NARUFS" mkfs new.img
expect 1 "force" "$NARUFS" mkfs letters
expect 1 "no such directory" "$NARUFS" mkfs missing/x.img --size 1G
expect 1 "too few|too small" "$NARUFS" mkfs tiny.img --size 64K
usage 2 "$NARUFS" mkfs x.img --size 12Q
usage 2 "$NARUFS" mkfs
usage 2 "$NARUFS" nonsense
usage 1 "$NARUFS" mount

# mount: what is refused.
mkdir -p volume
truncate -s 300M zeros
expect 32 "not a narufs|no narufs|narufs" "$NARUFS" mount zeros volume
expect 32 "narufs" "$NARUFS" mount letters volume
expect 32 "no such file" "$NARUFS" mount missing.img volume
expect 32 "mkdir" "$NARUFS" mount new.img missing-dir
expect 32 "not a directory" "$NARUFS" mount new.img letters
expect 1 "unknown option" "$NARUFS" mount new.img volume -o nonsense
expect 1 "durability" "$NARUFS" mount new.img volume -o durability=maybe
cp --sparse=always new.img short.img
truncate -s 200M short.img
expect 32 "short|truncated|size|blocks" "$NARUFS" mount short.img volume

# umount, sync, stats: not of other directories.
expect 32 "no narufs is mounted" "$NARUFS" umount volume
expect 32 "type proc" "$NARUFS" umount /proc
expect 32 "no such directory" "$NARUFS" umount missing-dir
expect 1 "no narufs is mounted" "$NARUFS" sync volume
expect 1 "no narufs is mounted" "$NARUFS" stats volume
expect 1 "narufs" "$NARUFS" info letters
mkfifo pipe
expect 1 "neither" "$NARUFS" info pipe
expect 1 "neither" "$NARUFS" info volume

# What is no image is looked at, not waited for; an image that is cut short is somebody's.
mkfifo fifo
expect 1 "neither a regular file" "$NARUFS" mkfs fifo --force --size 64M
expect 32 "neither a regular file" "$NARUFS" mount --scratch --memory 64M --spill fifo --force volume
timeout 60 "$NARUFS" doctor fifo >"$WORK/out" || fail "doctor of a pipe"
"$NARUFS" doctor short.img >"$WORK/out" || true
grep -q "narufs fsck short.img" "$WORK/out" && ! grep -q "mkfs" "$WORK/out" ||
    fail "doctor has a truncated image overwritten: $(cat "$WORK/out")"
"$NARUFS" info new.img >/dev/full 2>"$WORK/err" && fail "nothing was shown, and all is well"
grep -q "standard output: No space" "$WORK/err" || fail "a full disk is not named: $(cat "$WORK/err")"
expect 32 "lies in the image" "$NARUFS" mount new.img volume -o journal=/dev/shm/elsewhere
expect 32 "mkdir" "$NARUFS" mount -f new.img missing-dir
expect 32 "not a narufs|no narufs|narufs" "$NARUFS" mount -f zeros volume
# Where nothing can be written.
mkdir -p there
cp --sparse=always new.img there/image.img
mount --bind there there
mount -o remount,bind,ro there
"$NARUFS" mount there/image.img volume -o ro || fail "a read-only mount of what cannot be written"
"$NARUFS" umount volume
"$NARUFS" fsck there/image.img >"$WORK/out" || fail "a check of what cannot be written"
expect 32 "read-only|permission" "$NARUFS" mount there/image.img volume
umount there
# A lock of the caller's is not the server's.
exec 9>held
flock 9
"$NARUFS" mount new.img volume
exec 9>&-
flock -n held true || fail "the server has a descriptor of its caller's"
"$NARUFS" umount volume

# In use.
mv sparse.img volume.img
attach volume
mkdir other
expect 32 "mounted at $v" "$NARUFS" mount volume.img other
expect 32 "in the one at $v" "$NARUFS" umount volume/missing
expect 8 "in use|mounted" "$NARUFS" fsck volume.img
expect 1 "in use" "$NARUFS" mkfs volume.img --force
exec 7>volume/open
expect 32 "in use" "$NARUFS" umount volume
exec 7>&-
"$NARUFS" sync volume
"$NARUFS" stats volume | grep -qi journal || fail "stats says nothing of the journal"

# A dead mount: named, mounted over, nothing lost.
echo kept >volume/file
sync volume/file
kill_server_of "$v"
attach volume
same "a file after a kill" kept "$(cat volume/file)"
# A signal unmounts cleanly.
end "${SERVER[$v]}" TERM
is_mounted "$v" && fail "SIGTERM leaves the mount"
"$NARUFS" fsck volume.img >"$WORK/out" || fail "an image is not clean after SIGTERM"
unset "SERVER[$v]"
# Dead and given up.
attach volume
kill_server_of "$v"
unset "SERVER[$v]"
"$NARUFS" umount volume || fail "a dead mount cannot be unmounted"
is_mounted "$v" && fail "a dead mount stays"

# Read-only; lazy.
attach volume ro
if touch volume/new 2>"$WORK/err"; then fail "a read-only mount is written to"; fi
grep -q "Read-only" "$WORK/err" || fail "a read-only mount says: $(cat "$WORK/err")"
expect 32 "mount it anew" "$NARUFS" mount volume.img volume -o remount,rw
if touch volume/new 2>"$WORK/err"; then fail "a refused remount lets a read-only mount be written to"; fi
detach volume
attach volume
"$NARUFS" mount volume.img volume -o remount,ro
if touch volume/new 2>"$WORK/err"; then fail "what was remounted read-only is written to"; fi
"$NARUFS" mount volume.img volume -o remount,rw,user_id=0,group_id=0
touch volume/new
expect 1 "mount it anew" "$NARUFS" mount volume.img volume -o remount,durability=process
detach volume
attach volume
exec 7<volume/file
"$NARUFS" umount --lazy volume
is_mounted "$v" && fail "--lazy leaves the mount"
same "a file of a detached mount" kept "$(cat <&7)"
exec 7<&-
tail --pid="${SERVER[$v]}" -f /dev/null
unset "SERVER[$v]"

# A stopped server need not answer for that.
attach volume
kill -STOP "${SERVER[$v]}"
timeout 60 "$NARUFS" umount --lazy volume || fail "--lazy waits for a stopped server"
is_mounted "$v" && fail "--lazy leaves the mount of a stopped server"
kill -CONT "${SERVER[$v]}"
tail --pid="${SERVER[$v]}" -f /dev/null
unset "SERVER[$v]"

# What stops its unit while somebody uses it; then all of its processes are killed.
attach volume
mkdir bin
printf '#!/bin/sh\n' >bin/systemctl
chmod +x bin/systemctl
exec 7>volume/unsynced
echo written >&7
stop=$(sed -n 's/^ExecStop=+//p' "$ROOT/docs/systemd/narufs@.service" |
    sed "s,/usr/local/bin/narufs,$NARUFS,g; s,--namespace 1,--namespace $$,g; s,%n,a-unit,; s,%f,$v,g")
PATH=$WORK/bin:$PATH bash -c "$stop" 2>"$WORK/err" || fail "a unit is not stopped: $(cat "$WORK/err")"
is_mounted "$v" && fail "a stopped unit leaves its mount"
kill_server_of "$v"
unset "SERVER[$v]"
exec 7>&-
attach volume
same "what was written before a unit was stopped" written "$(cat volume/unsynced)"
rm volume/unsynced
detach volume

# In the foreground.
"$NARUFS" mount volume.img volume --foreground &
foreground=$!
started "$foreground"
until is_mounted "$v"; do kill -0 "$foreground" || fail "--foreground ends"; done
MOUNTED+=("$v")
same "a file through the foreground" kept "$(cat volume/file)"
kill -INT "$foreground"
await "$foreground" || fail "SIGINT is not a clean end"

# fsck: statuses of fsck(8).
"$NARUFS" fsck volume.img >"$WORK/out" || fail "a clean image"
"$NARUFS" fsck volume.img --json | python3 -m json.tool >"$WORK/out" || fail "fsck --json"
expect 8 "narufs" "$NARUFS" fsck letters
expect 8 "no such file" "$NARUFS" fsck missing.img
usage 16 "$NARUFS" fsck
usage 16 "$NARUFS" fsck volume.img --nonsense
"$NARUFS" fsck -n -f volume.img >"$WORK/out" || fail "fsck -n -f, as systemd asks"
usage 16 "$NARUFS" fsck -n -y volume.img

# A journal beside the image that is not there, or another's.
ring=$(mktemp -u /dev/shm/narufs-cli.XXXXXX)
FILES_MADE+=("$ring" "$ring.old")
"$NARUFS" mkfs pmem.img --size 300M --sparse --journal-emulated "$ring" --journal-size 16M >"$WORK/out"
ln -s pmem.img emulated.img
mkdir emulated
attach emulated
echo text >emulated/file
sync emulated/file
cp --sparse=always "$ring" "$ring.old"
mkdir emulated/more
crash emulated
mv "$ring" "$ring.new"
FILES_MADE+=("$ring.new")
expect 32 "journal" "$NARUFS" mount pmem.img emulated
truncate -s 16M "$ring"
expect 32 "journal|ring" "$NARUFS" mount pmem.img emulated
mv "$ring.new" "$ring"
attach emulated
[[ -d emulated/more ]] || fail "the right journal is not used"
"$NARUFS" stats emulated --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["durability"] == "process"'
# What only the journal holds is seen by a reader, which writes nothing.
echo synced >emulated/file
sync emulated/file
crash emulated
before=$(cat pmem.img "$ring" | sha256sum)
attach emulated ro
same "a synced file, read-only" synced "$(cat emulated/file)"
detach emulated
same "the media after a read-only mount" "$before" "$(cat pmem.img "$ring" | sha256sum)"
attach emulated
same "a synced file" synced "$(cat emulated/file)"
detach emulated
# A clean image gets a new one, and the user is told.
rm "$ring"
attach emulated 2>"$WORK/err"
grep -q "the journal is missing.*gets a new one" "$WORK/err" || fail "a new journal is not told of: $(cat "$WORK/err")"
same "a synced file" synced "$(cat emulated/file)"
detach emulated
check pmem

# In a mount name space of its own: too small a /dev/shm; no way to the kernel, which leaves a clean image clean.
if unshare -m true 2>/dev/null; then
    expect 32 "volume" unshare -m sh -c "mount --bind /dev/null /dev/fuse && exec '$NARUFS' mount '$WORK/volume.img' '$v'"
    "$NARUFS" info volume.img | grep -q '^state *clean' || fail "a mount that fails leaves a clean image unclean"
    [[ ! -e $(staging volume) ]] || fail "a mount that fails leaves its journal in memory"
    expect 32 "/dev/shm|shared memory" unshare -m sh -c \
        "mount -t tmpfs -o size=1M small /dev/shm && exec '$NARUFS' mount '$WORK/volume.img' '$v'"
fi

# Installed, and used through mount(8), mkfs(8), fsck(8) and fstab. These look for helpers in /sbin alone: a copy
# of it with ours takes its place in a name space of its own.
sbin=$(readlink -f /sbin)
mkdir "$WORK/sbin"
cp -a "$sbin/." "$WORK/sbin/"
# Without the libraries of doors/, whose own tests lay them.
make -s -C "$ROOT" install-files NARUFS="$NARUFS" PREFIX="$WORK/prefix" SBINDIR="$WORK/sbin" GENERATED="$WORK/generated"
for name in {mkfs,fsck,mount,umount,mount.fuse,umount.fuse}.narufs; do
    [[ -x $WORK/sbin/$name ]] || fail "$name is not installed"
done
for page in narufs narufs-mount {mkfs,fsck,mount,umount,mount.fuse,umount.fuse}.narufs; do
    [[ -s $WORK/prefix/share/man/man8/$page.8 ]] || fail "there is no page $page"
done
bash -n "$WORK/prefix/share/bash-completion/completions/narufs" || fail "the completion for bash"
for unit in narufs narufs-scratch; do
    grep -q "^ExecStart=$WORK/prefix/bin/narufs " "$WORK/prefix/lib/systemd/system/$unit@.service" || fail "$unit@.service"
done
cat >"$WORK/fstab" <<FSTAB
$WORK/volume.img $v narufs noatime,nofail,x-note=anything 0 2
FSTAB
cat >"$WORK/installed.sh" <<INSIDE
set -euo pipefail
mount --bind "$WORK/sbin" "$sbin"
# The table of umount(8), and a device for FUSE that others may open: of this name space alone.
mkdir -p /run/mount
mount -t tmpfs none /run/mount
mknod -m 666 "$WORK/fuse" c 10 229
mount --bind "$WORK/fuse" /dev/fuse
# The server lets its image go when it has ended.
unmount() { umount "\${@:-$v}"; flock -n "$WORK/volume.img" true; [ -z "\$(cat /run/mount/utab 2>/dev/null)" ]; }
mkfs -t narufs -F "$WORK/volume.img" >/dev/null
fsck -t narufs "$WORK/volume.img" >/dev/null
flags() { findmnt -no OPTIONS "$v" | tr , '\n' | grep -xE 'nosuid|nodev|noexec|ro' | sort | paste -sd,; }
mount -t narufs "$WORK/volume.img" "$v"
echo through-mount >"$v/file"
# What a file system of the kernel gets from mount(8), at the mount and after a remount.
[ -z "\$(flags)" ]
mount -o remount,ro "$v"
[ "\$(flags)" = ro ]
unmount
mount -v -t narufs -o user,exec "$WORK/volume.img" "$v"
[ "\$(flags)" = nodev,nosuid ]
unmount
mount -f -t narufs "$WORK/volume.img" "$v"
if mountpoint -q "$v"; then exit 1; fi
"$NARUFS" mount "$WORK/volume.img" "$v"
[ "\$(flags)" = nodev,nosuid ]
unmount
mount -T "$WORK/fstab" "$v"
findmnt -no FSTYPE,OPTIONS "$v" | grep -q 'fuse.narufs.*noatime'
[ "\$(cat "$v/file")" = through-mount ]
unmount
mount -t fuse.narufs -o ro "$WORK/volume.img" "$v"
[ "\$(cat "$v/file")" = through-mount ]
! touch "$v/new" 2>/dev/null
unmount
status=0
mount -t narufs "$WORK/letters" "$v" 2>/dev/null || status=\$?
[ "\$status" = 32 ]
# umount(8) waits for the server however it is asked, but not for one that goes on.
cd "$WORK"
for how in volume "$v -n" "$WORK/volume.img" "-v $v" "-R $v" "-c $v" "-l $v"; do
    mount -t narufs volume.img volume
    umount \$how
    # What is detached only may take a moment: the mount waits for it.
    [ "\$how" = "-l $v" ] || flock -n volume.img true
    if mountpoint -q "$v"; then exit 1; fi
done
mount -t narufs volume.img volume
mkdir -p bound
mount --bind volume bound
umount volume 2>said
grep -q 'goes on' said
[ "\$(cat bound/file)" = through-mount ]
umount bound
flock -n volume.img true
mount -t narufs volume.img volume
exec 7<volume/file
status=0
umount volume 2>said || status=\$?
[ "\$status" = 32 ]
grep -q 'volume is in use' said
umount -r volume
flags | grep -qx ro
exec 7<&-
unmount volume
mount -t narufs -o scratch,memory=64M,spill="$WORK/spilled" none volume
umount volume
# Of another user, whose mount lets root in no more than others.
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- "\$@"; }
install -d -o 65534 theirs
install -d -o 65534 theirs/volume
as_nobody "$NARUFS" mkfs theirs/image --size 64M --sparse >/dev/null
for who in "" as_nobody; do
    as_nobody "$NARUFS" mount theirs/image theirs/volume
    if ls theirs/volume 2>/dev/null; then exit 1; fi
    \$who umount "$WORK/theirs/volume"
    flock -n theirs/image true
done
mount -t narufs volume.img volume
status=0
as_nobody umount "$v" 2>said || status=\$?
[ "\$status" = 1 ]
grep -q 'not allowed' said
# A killed server of theirs: root mounts over it.
as_nobody "$NARUFS" mount theirs/image theirs/volume -o supervise=no
kill -9 "\$(as_nobody "$NARUFS" stats theirs/volume --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server_pid"])')"
"$NARUFS" mount --scratch --memory 64M theirs/volume
[ "\$(grep -c "$WORK/theirs/volume" /proc/self/mountinfo)" = 1 ]
umount theirs/volume
as_nobody "$NARUFS" mount theirs/image theirs/volume
as_nobody umount theirs/volume
unmount
fsck -T -t narufs -a "$WORK/volume.img" >/dev/null
INSIDE
unshare -m bash -x "$WORK/installed.sh" >"$WORK/log" 2>&1 || { tail -n 20 "$WORK/log"; fail "the installed commands"; }
make -s -C "$ROOT" uninstall PREFIX="$WORK/prefix" SBINDIR="$WORK/sbin" GENERATED="$WORK/generated"
[[ -z $(find "$WORK/prefix" "$WORK/sbin" -name '*narufs*') ]] || fail "uninstall leaves something"
