#!/usr/bin/env bash
# Memory pressure: programs that dirty far more pages than their control group may hold, by shared mmap and by
# write, while the server itself lives in a small group. A file system in user space that waits for memory which
# only it can free would stop for ever; the runner's limit finds that.
source "$(dirname "$0")/lib.sh"
programs=$(memory_group programs $((128 << 20))) || lacks "a control group for memory"
GROUPS_MADE+=("$programs")
server=$(memory_group server $((384 << 20)))
GROUPS_MADE+=("$server")
size_mib=$((192 * SCALE))
(( size_mib <= 1024 )) || size_mib=1024

volume volume 6G --journal-size 64M
v=$WORK/volume
attach volume memory=96M,metadata_memory=64M
[[ $FS != narufs ]] || echo "${SERVER[$v]}" >"$server/cgroup.procs"

cat >"$WORK/writer.py" <<'PY'
import mmap, os, sys
path, how, mib, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
size = mib << 20
page = 4096
pattern = lambda n: (b"%d:%d:" % (seed, n)) * 1024
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
pages = size // page
# A fixed permutation: neighbours are far apart, as a database's pages are.
order = [(n * 7919 + seed) % pages for n in range(pages)]
assert len(set(order)) == pages
if how == "mmap":
    os.ftruncate(fd, size)
    m = mmap.mmap(fd, size, mmap.MAP_SHARED)
    for i, n in enumerate(order):
        m[n * page:(n + 1) * page] = pattern(n)[:page]
        if i % 4096 == 4095:
            m.flush()
    m.close()
else:
    for i, n in enumerate(order):
        os.pwrite(fd, pattern(n)[:page], n * page)
        if i % 4096 == 4095:
            os.fdatasync(fd)
os.fsync(fd)
for n in range(pages):
    assert os.pread(fd, page, n * page) == pattern(n)[:page], f"{path}: page {n} differs"
PY
running=()
for i in 1 2 3; do
    for how in mmap write; do
        (echo "$BASHPID" >"$programs/cgroup.procs"
         exec python3 "$WORK/writer.py" "$v/$how$i" "$how" "$((size_mib / 3))" "$i") >"$WORK/log-$how$i" 2>&1 &
        running+=($!)
        started $!
    done
done
for pid in "${running[@]}"; do await "$pid" || { cat "$WORK"/log-*; fail "a writer failed"; }; done
sums=$(cd "$v" && sha256sum mmap* write*)
# Page cache, metadata and what the server takes besides, as docs/DESIGN.md has it.
if [[ $FS == narufs ]]; then
    bound=$((96 + 64 + 64))
    anonymous=$(awk '/^RssAnon:/ { print int($2 / 1024) }' "/proc/${SERVER[$v]}/status")
    (( anonymous <= bound )) || fail "the server has $anonymous MiB of anonymous memory, more than $bound"
    say "RESULT the server has $anonymous MiB of anonymous memory"
fi
detach volume
attach volume
same "the files after a remount" "$sums" "$(cd "$v" && sha256sum mmap* write*)"
same "what mmap and write leave" "$(cmp "$v/mmap1" "$v/write1" && echo equal)" equal
detach volume
check volume
say "RESULT 6 writers, $((size_mib * 2)) MiB through 128 MiB, the server in 384 MiB"
