#!/usr/bin/env bash
# A million files in one tree (100,000 at scale 1), a tenth of them in a single directory: created, listed, checked,
# removed. The server stays below 1 GiB, and a mount after it was killed takes less than 5 s on a quiet machine.
source "$(dirname "$0")/lib.sh"
files=$((100000 * SCALE))
(( files <= 1000000 )) || files=1000000
volume volume 8G
attach volume
v=$WORK/volume

tree() { # create | check | remove
    python3 - "$1" "$v" "$files" <<'PY'
import os, sys
what, root, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
one = files // 10
def names():
    for i in range(one):
        yield "one", f"file-{i:07}"
    for i in range(one, files):
        yield f"d{i % 300:03}/e{i // 300 % 7}", f"file-{i:07}"
if what == "create":
    for i in range(300):
        for j in range(7):
            os.makedirs(f"{root}/d{i:03}/e{j}")
    os.mkdir(f"{root}/one")
    for i, (d, name) in enumerate(names()):
        fd = os.open(f"{root}/{d}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        if i % 10 == 0:
            os.write(fd, name.encode())
        os.close(fd)
elif what == "check":
    found = {}
    for d, _, inside in os.walk(root):
        for name in inside:
            key = (os.path.relpath(d, root), name)
            assert key not in found, f"{key} is listed twice"
            found[key] = None
    wanted = list(names())
    assert len(found) == len(wanted), f"{len(found)} files are listed, {len(wanted)} were made"
    for i, key in enumerate(wanted):
        assert key in found, f"{key} is missing"
        path = f"{root}/{key[0]}/{key[1]}"
        s = os.stat(path)
        size = len(key[1]) if i % 10 == 0 else 0
        assert s.st_size == size and s.st_nlink == 1 and s.st_mode & 0o7777 == 0o640, f"{path}: {s}"
        if i % 1000 == 0:
            assert open(path).read() == key[1], path
    for d in [f"{root}/d000", f"{root}"]:
        dirs = sum(e.is_dir() for e in os.scandir(d))
        assert os.stat(d).st_nlink == dirs + 2, f"{d} has {dirs} directories, {os.stat(d).st_nlink} links"
else:
    for d, name in names():
        os.unlink(f"{root}/{d}/{name}")
    os.rmdir(f"{root}/one")
    for i in range(300):
        for j in range(7):
            os.rmdir(f"{root}/d{i:03}/e{j}")
        os.rmdir(f"{root}/d{i:03}")
PY
}
peak=0
memory() { # the most that the server has held, in MiB; kept over servers
    [[ $FS == narufs ]] || return 0
    local now
    now=$(( $(awk '/^VmHWM/ {print $2}' "/proc/${SERVER[$v]}/status") / 1024 ))
    (( now <= peak )) || peak=$now
    (( peak < 1024 )) || fail "the server held $peak MiB"
}
begin=$EPOCHREALTIME
since() { awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}'; }

tree create
[[ $FS != narufs ]] || "$NARUFS" sync "$v"
created=$(since)
free_full=$(df --output=iavail "$v" | tail -n 1)
memory
# Killed while it removes and makes more, so that there is something to recover.
mkdir "$v/busy"
(cd "$v/busy" && for ((i = 0; ; i++)); do : >"b$i" || exit 0; done) 2>/dev/null &
busy=$!
started "$busy"
while [[ ! -e $v/busy/b2000 ]]; do kill -0 "$busy" || fail "files cannot be made"; done
[[ $FS == narufs ]] || { kill "$busy"; await "$busy" || true; }
crash volume
[[ $FS != narufs ]] || { kill "$busy" 2>/dev/null || true; await "$busy" || true; }
begin=$EPOCHREALTIME
attach volume
recovered=$(since)
# Three times what is promised of a quiet machine: this one may be shared.
awk -v s="$recovered" 'BEGIN {exit !(s < 15)}' || fail "the mount after a kill took $recovered s"
rm -rf "$v/busy"
begin=$EPOCHREALTIME
tree check
checked=$(since)
same "what ls -f lists" "$((files / 10))" "$(ls -f "$v/one" | grep -c file)"
memory
begin=$EPOCHREALTIME
tree remove
removed=$(since)
memory
same "what is left" "" "$(ls -A "$v" | grep -vx lost+found || true)"
free_empty=$(df --output=iavail "$v" | tail -n 1)
(( free_empty >= free_full )) || fail "removed inodes are not free"
detach volume
check volume
say "RESULT $files files: created $created s, mounted after a kill $recovered s, checked $checked s, removed $removed s, peak $peak MiB"
