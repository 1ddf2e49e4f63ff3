"""plant.py PLACE NUMBER [SEED]: a tree that is written whole, synced, and renamed to be number NUMBER of PLACE; says what is
there. Without a SEED it only says so. Trees of every seed have the same names and lengths, and other bytes."""

import hashlib
import os
import random
import shutil
import sys

place, number = sys.argv[1], sys.argv[2]
tree = os.path.join(place, number)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def make(seed):
    lengths, bodies = random.Random(2026), random.Random(seed)
    new = os.path.join(place, "new")
    shutil.rmtree(new, ignore_errors=True)
    for d in range(12):
        below = os.path.join(new, f"d{d % 4}", f"e{d}")
        os.makedirs(below)
        for f in range(25):
            length = int(lengths.expovariate(1 / 30_000))
            path = os.path.join(below, f"file-{f}")
            with open(path, "wb") as out:
                out.write(bodies.randbytes(length))
                out.flush()
                os.fsync(out.fileno())
            os.chmod(path, 0o600 + f)
        os.symlink(f"../e{d}/file-1", os.path.join(below, "symlink"))
        os.link(os.path.join(below, "file-2"), os.path.join(below, "hard"))
        sync(below)
    for d in range(4):
        sync(os.path.join(new, f"d{d}"))
    sync(new)
    shutil.rmtree(tree, ignore_errors=True)
    os.rename(new, tree)
    sync(place)


def say():
    whole = hashlib.sha256()
    files = 0
    for root, dirs, names in os.walk(tree):
        dirs.sort()
        for name in sorted(dirs + names):
            path = os.path.join(root, name)
            status = os.lstat(path)
            whole.update(f"{path[len(tree):]} {status.st_mode:o} {status.st_nlink}\n".encode())
            if os.path.islink(path):
                whole.update(os.readlink(path).encode())
            elif name in names:
                files += 1
                with open(path, "rb") as file:
                    whole.update(hashlib.sha256(file.read()).digest())
    print(files, whole.hexdigest())


if len(sys.argv) > 3:
    make(int(sys.argv[3]))
say()
