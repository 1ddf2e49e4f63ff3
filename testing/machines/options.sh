#!/usr/bin/env bash
# Each option of a mount once: what the kernel has is served, what it lacks is refused in a line that says so.
source "$(dirname "$0")/../programs/lib.sh"
LINUX=${LINUX:-$(uname -r | cut -d. -f1,2)}
linux() { printf '%s\n' "$1" "$LINUX" | sort -VC; }
volume volume 256M
head -c 300000 /dev/urandom >"$WORK/data"
v=$WORK/volume count=0

use() { # DIR: writes, reads in part and whole, by a user too
    cp "$WORK/data" "$1/file"
    cmp "$WORK/data" "$1/file"
    printf changed | dd of="$1/file" bs=1 seek=5000 conv=notrunc,fsync status=none
    [[ $(tail -c +5001 "$1/file" | head -c 7) == changed ]] || fail "a write is not read"
    mkdir "$1/own"
    chown "$FIRST" "$1/own"
    user "$FIRST" -- bash -c "umask 077; echo text >$1/own/file && cat $1/own/file >/dev/null"
    if user "$SECOND" -- cat "$1/own/file" 2>/dev/null; then fail "another user reads what is not for them"; fi
    rm -r "$1/own" "$1/file"
}
served_with() { # OPTIONS
    attach volume "$1"
    chmod 755 "$v"
    use "$v"
    detach volume
    count=$((count + 1))
}
refused() { # PATTERN OPTIONS
    if "$NARUFS" mount "$WORK/volume.img" "$v" -o "$2" 2>"$WORK/said"; then detach_dir "$v"; fail "$2 is not refused"; fi
    [[ $(wc -l <"$WORK/said") -eq 1 ]] && grep -qE "$1" "$WORK/said" || fail "$2 is refused with: $(cat "$WORK/said")"
    ! is_mounted "$v" || fail "$2 leaves a mount"
    count=$((count + 1))
}

for option in rw durability=power durability=window=50ms durability=process commit=1 sync relatime noatime strictatime \
    lazytime io=auto io=direct io=cached noxattr transport=auto transport=dev supervise=no harden=yes harden=no awake noawake \
    memory=32M,metadata_memory=32M metrics=9101 "metrics=unix:$WORK/socket" permissions=kernel permissions=server \
    default_permissions allow_other suid,dev,exec nosuid,nodev,noexec io=direct,permissions=server; do
    served_with "$option"
done
if linux 6.9; then served_with supervise=yes; else refused '6\.9' supervise=yes; fi
if linux 6.14; then served_with transport=uring; else refused '6\.14|io_uring' transport=uring; fi
attach volume ro
if touch "$v/file" 2>/dev/null; then fail "ro lets write"; fi
detach volume
attach volume
mount -o remount,ro "$v" 2>/dev/null || "$NARUFS" mount "$WORK/volume.img" "$v" -o remount,ro
if touch "$v/file" 2>/dev/null; then fail "remount,ro lets write"; fi
detach volume
check volume
for io in auto direct cached; do
    scratch space "memory=64M,spill_size=128M,io=$io"
    chmod 755 "$WORK/space"
    use "$WORK/space"
    detach space
    count=$((count + 1))
done
say "RESULT $count ways to mount"
