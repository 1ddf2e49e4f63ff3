#!/usr/bin/env bash
# Scratch space is filled, memory and spill space both, while its server lives in a control group with little more
# than that memory: each write is accepted or told that there is no space, what was accepted is there, what is removed
# can be used again, and nobody is killed for want of memory.
source "$(dirname "$0")/lib.sh"
[[ $FS == narufs ]] || skip "other file systems have no spill space"
SERVER_GROUP=$(memory_group server $((128 << 20))) || lacks "a control group for memory"
GROUPS_MADE+=("$SERVER_GROUP")
spill_mib=128
scratch space "memory=48M,spill_size=${spill_mib}M"

cat >"$WORK/fill.py" <<'PY'
import errno, os, sys
directory, rounds, least = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20
page, pages = 4096, 1000
pattern = lambda f, n, version: (b"%d:%d:%d:" % (version, f, n)).ljust(32, b".") * (page // 32)
def fill(version):
    """Files of pages until there is no space; how many pages each has."""
    have = []
    while True:
        try:
            fd = os.open(f"{directory}/{len(have)}", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            return have
        have.append(0)
        try:
            for n in range(pages):
                assert os.pwrite(fd, pattern(len(have) - 1, n, version), n * page) == page
                have[-1] += 1
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            return have
        finally:
            os.close(fd)
def each(have, flags, do):
    for f, count in enumerate(have):
        fd = os.open(f"{directory}/{f}", flags)
        for n in range(count):
            do(fd, f, n)
        os.fsync(fd)
        os.close(fd)
def verify(have, version):
    def same(fd, f, n):
        assert os.pread(fd, page, n * page) == pattern(f, n, version), f"file {f}, page {n} differs"
    each(have, os.O_RDONLY, same)
for version in range(1, rounds + 1):
    have = fill(version)
    size = sum(have) * page
    assert size >= least, f"round {version}: only {size >> 20} MiB were accepted"
    verify(have, version)
    # What is there keeps its room.
    each(have, os.O_RDWR, lambda fd, f, n: os.pwrite(fd, pattern(f, n, version + 100), n * page))
    verify(have, version + 100)
    for f in range(len(have)):
        os.unlink(f"{directory}/{f}")
    print(f"{size >> 20} MiB")
PY
sizes=$(timeout 900 python3 "$WORK/fill.py" "$WORK/space" 2 "$spill_mib") || fail "filling it up"
kill -0 "${SERVER[$WORK/space]}" || fail "the server is gone"
same "processes killed for want of memory" 0 "$(killed_in "$SERVER_GROUP")"
detach space
same "what is left of the spill space" "fill.py space" "$(cd "$WORK" && echo *)"
say "RESULT full at $(paste -sd, <<<"$sizes" | sed 's/,/, then /')"
