#!/usr/bin/env bash
# What docs/operate/backup.md says of copies of a mounted image: a reflink copy, and one that is made while the file system
# below is frozen, are what a loss of power at that moment would have left, looked into beside their original while
# writers go on; a copy of a mount that is read-only, or that nobody writes to, is what is there.
source "$(dirname "$0")/lib.sh"
[[ $FS == narufs ]] || skip "it is about images of narufs"
command -v mkfs.xfs >/dev/null || lacks "mkfs.xfs"
mkdir "$WORK/host" "$WORK/old"
truncate -s 2G "$WORK/host.img"
mkfs.xfs -q -m reflink=1 "$WORK/host.img"
mount -o loop "$WORK/host.img" "$WORK/host" || lacks "a kernel with xfs"
MOUNTED+=("$WORK/host")
volume host/store 512M
attach host/store noatime
store=$WORK/host/store

# Each file is written, synced and then told of; its content follows from its name.
cat >"$WORK/files.py" <<'PY'
import os, sys
def content(writer, n):
    return (b"%d.%d." % (writer, n)) * (3000 if n % 7 == 0 else 400)
def name(writer, n):
    return f"w{writer}/{n}"
if sys.argv[1] == "write":
    writer, n = int(sys.argv[3]), 0
    os.chdir(sys.argv[2])
    os.mkdir(f"w{writer}")
    while True:
        with open(name(writer, n), "wb") as file:
            file.write(content(writer, n))
            file.flush()
            os.fsync(file.fileno())
        print(n, flush=True)
        n += 1
directory, acked = sys.argv[2], [int(n) for n in sys.argv[3:]]
for writer, upto in enumerate(acked):
    for n in range(upto + 1):
        with open(f"{directory}/{name(writer, n)}", "rb") as file:
            assert file.read() == content(writer, n), f"{name(writer, n)} of {upto} is not what was synced"
PY
writers=(0 1)
for writer in "${writers[@]}"; do
    python3 "$WORK/files.py" write "$store" "$writer" >"$WORK/acked.$writer" &
    started $!
done
acked() { for writer in "${writers[@]}"; do tail -n 1 "$WORK/acked.$writer"; done; }
grows() { # UPTO: until each writer was told of so many
    for writer in "${writers[@]}"; do
        # It ends with the next number.
        grep -qx -m 1 "$1" < <(exec tail -n +1 -f "$WORK/acked.$writer")
    done
}
# What has the newest of the journal is the original's: that it is not the copy's has to be said.
look_into() { # COPY COMMAND...
    local copy=$1
    shift
    "$NARUFS" fsck --copied "$copy" >"$WORK/fsck.log" || fail "fsck says of a copy: $(cat "$WORK/fsck.log")"
    "$NARUFS" mount "$copy" "$WORK/old" -o ro,copied
    MOUNTED+=("$WORK/old")
    "$@" || fail "the copy $(basename "$copy") is not what it should be"
    "$NARUFS" umount "$WORK/old"
}

for ((round = 1; round <= 2 * SCALE; round++)); do
    grows $((round * 100))
    upto=$(acked)
    cp --reflink=always "$store.img" "$WORK/host/copy.img"
    # shellcheck disable=SC2086 # numbers
    look_into "$WORK/host/copy.img" python3 "$WORK/files.py" verify "$WORK/old" $upto
    # It was made a moment ago: unless a round has come between, its original's journal would fit.
    "$NARUFS" fsck "$WORK/host/copy.img" >"$WORK/out" 2>&1 || grep -q -- '--copied' "$WORK/out" \
        || fail "fsck says $(cat "$WORK/out")"
    rm "$WORK/host/copy.img"
done
upto=$(acked)
# Frozen it could not be taken away.
trap 'status=$?; set +e; fsfreeze --unfreeze "$WORK/host"; (exit $status); cleanup' EXIT
fsfreeze --freeze "$WORK/host"
cp --sparse=always "$store.img" "$WORK/copy.img"
fsfreeze --unfreeze "$WORK/host"
trap cleanup EXIT
# shellcheck disable=SC2086 # numbers
look_into "$WORK/copy.img" python3 "$WORK/files.py" verify "$WORK/old" $upto

for pid in "${!STARTED[@]}"; do
    kill "$pid"
    await "$pid" || true
done
"$NARUFS" sync "$store"
cp "$store.img" "$WORK/host/idle.img"
look_into "$WORK/host/idle.img" diff -r "$store" "$WORK/old"
echo unsynced >"$store/last"
"$NARUFS" mount -o remount,ro "$store"
cp --reflink=always "$store.img" "$WORK/host/ro.img"
look_into "$WORK/host/ro.img" diff -r "$store" "$WORK/old"
"$NARUFS" mount -o remount,rw "$store"
echo more >"$store/last"
detach host/store
check host/store
say "RESULT $(cat "$WORK"/acked.* | wc -l) synced files, $((2 * SCALE + 3)) copies"
