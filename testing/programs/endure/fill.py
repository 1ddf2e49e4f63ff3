"""fill.py DIR SEED: files until there is no space; what was accepted and synced is there, and what there is can be used when
there is no more: names change, bytes are overwritten in place, a file is removed and another takes its room."""

import errno
import os
import random
import sys

directory, seed = sys.argv[1], int(sys.argv[2])
LENGTH = 8 << 20


def body(number):
    return random.Random(seed + number).randbytes(LENGTH)


def write(path, bytes_):
    """Whether there was room; what there was none for is no file."""
    try:
        with open(path, "wb", buffering=0) as out:
            at = 0
            while at < len(bytes_):
                at += out.write(bytes_[at:])
            os.fsync(out.fileno())
        return True
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        return False


def at(number):
    return os.path.join(directory, str(number))


os.mkdir(directory)
files = 0
while write(at(files), body(files)):
    files += 1
os.path.exists(at(files)) and os.remove(at(files))
assert files > 8, f"only {files} files of 8 MiB"
# To the last block.
small = 0
while write(os.path.join(directory, f"small-{small}"), body(0)[:100_000]):
    small += 1
os.path.exists(path := os.path.join(directory, f"small-{small}")) and os.remove(path)
os.rename(at(0), at("renamed"))
os.rename(at("renamed"), at(0))
with open(at(1), "r+b", buffering=0) as out:
    assert out.write(body(files + 1)[:1 << 20]) == 1 << 20
    os.fsync(out.fileno())
os.remove(at(2))
assert write(at(2), body(2)[:LENGTH // 2]), "a removed file's room could not be used"
for number in range(files):
    with open(at(number), "rb") as file:
        found, wanted = file.read(), body(number)
    if number == 1:
        wanted = body(files + 1)[:1 << 20] + wanted[1 << 20:]
    if number == 2:
        wanted = wanted[:LENGTH // 2]
    assert found == wanted, f"file {number} of {files} holds other bytes"
for number in range(small):
    with open(os.path.join(directory, f"small-{number}"), "rb") as file:
        assert file.read() == body(0)[:100_000], f"small file {number} of {small} holds other bytes"
