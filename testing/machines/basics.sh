#!/usr/bin/env bash
# A mount of a block device on any kernel: what is written is there after an unmount and after the end of its processes,
# and the mount outlives its server where the kernel sends requests again; scratch space spills. Nothing is left behind.
source "$(dirname "$0")/../programs/lib.sh"
LINUX=${LINUX:-$(uname -r | cut -d. -f1,2)}
linux() { printf '%s\n' "$1" "$LINUX" | sort -VC; }

device=/dev/vdc
"$NARUFS" mkfs "$device" --force >/dev/null
ln -s "$device" "$WORK/volume.img"
mkdir "$WORK/volume"
FILES_MADE+=("$(staging volume)")
volume=$WORK/volume
attach volume
mkdir "$volume/dir"
head -c 5M /dev/urandom >"$WORK/data"
cp "$WORK/data" "$volume/dir/file"
ln "$volume/dir/file" "$volume/link"
ln -s dir/file "$volume/symlink"
mv "$volume/dir/file" "$volume/dir/renamed"
setfattr -n user.name -v value "$volume/link"
sync "$volume/link"
detach volume
check volume

attach volume
cmp "$WORK/data" "$volume/dir/renamed"
[[ $(getfattr --only-values -n user.name "$volume/dir/renamed") == value ]] || fail "an attribute is lost"
[[ $(readlink "$volume/symlink") == dir/file && ! -e $volume/symlink ]] || fail "the symlink leads elsewhere"
dd if="$WORK/data" of="$volume/synced" bs=64k conv=fsync status=none
exec 7<"$volume/synced"
if linux 6.9; then
    ((SUPERVISOR[$volume])) || fail "nothing keeps the mount"
    old=${SERVER[$volume]}
    end "$old"
    cmp "$WORK/data" "$volume/synced"
    cmp "$WORK/data" /dev/fd/7
    served volume
    [[ ${SERVER[$volume]} != "$old" ]] || fail "the server was not killed"
else
    ((!SUPERVISOR[$volume])) || fail "something keeps a mount that the kernel does not"
    end "${SERVER[$volume]}"
    # What nobody has asked for before: the kernel answers for what it has cached.
    if stat "$volume/other" 2>"$WORK/said"; then fail "a dead mount answers"; fi
    grep -q 'not connected' "$WORK/said" || fail "a dead mount says: $(cat "$WORK/said")"
    # The next mount at the same place takes it away, and recovers.
    attach volume
fi
exec 7<&-
cmp "$WORK/data" "$volume/synced"
mkdir "$volume/answered"
crash volume
attach volume
cmp "$WORK/data" "$volume/synced"
[[ -d $volume/answered ]] || fail "an operation that had returned is lost"
detach volume
check volume

# Twice what memory has room for.
scratch fast memory=64M
for ((n = 1; n <= 24; n++)); do cp "$WORK/data" "$WORK/fast/$n"; done
for n in 1 7 24; do cmp "$WORK/data" "$WORK/fast/$n"; done
detach fast
[[ -z $(ls /dev/shm) ]] || fail "/dev/shm holds $(ls /dev/shm)"
say "RESULT recovered, $(linux 6.9 && echo 'outlives its server' || echo 'ends with its server'), spilled"
