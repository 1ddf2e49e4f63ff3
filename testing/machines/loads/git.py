"""Operation N is a commit in a repository of git: it adds file N and removes that of KEEP before; every sixteenth packs the
repository (git gc). git syncs what it writes (`core.fsync=all`), but no directory: the load syncs that of the branch.
testing/src/replay/git.rs judges the same: by git's own check, and by every commit, tree and file of the history."""
import os
import subprocess
import sys

from .common import KEEP, PROCESSES, content, kept, serve, sync  # noqa: F401

PACK = 16
BRANCH = "refs/heads/main"
SETTINGS = {
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "gc.auto": "0",
    "user.name": "load",
    "user.email": "load@localhost",
}


def git(here, *words, asks=None):
    environment = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null")
    done = subprocess.run(["git", "-C", here, *words], env=environment, input=asks, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{here}: git {' '.join(words[:3])} fails: {done.stdout[-500:]}")
    return done.stdout


def make(top):
    for process in range(PROCESSES):
        here = f"{top}/d{process}"
        if os.path.exists(f"{here}/.git/config"):
            continue
        os.makedirs(here, exist_ok=True)
        git(here, "init", "-q", "-b", "main")
        for name, value in SETTINGS.items():
            git(here, "config", name, value)
    os.sync()


def last_of(here):
    return int(git(here, "for-each-ref", "--format=%(contents:subject)", BRANCH) or 0)


def work(top, process, tell, count, _):
    here = f"{top}/d{process}"
    number = last_of(here)
    if number:
        git(here, "reset", "-q", "--hard")
    tell(process, 0, sync(here))
    while count is None or number < count:
        number += 1
        with open(f"{here}/{number}", "wb") as file:
            file.write(content(process, number))
        git(here, "add", str(number))
        if number > KEEP:
            git(here, "rm", "-q", str(number - KEEP))
        git(here, "commit", "-q", "-m", str(number))
        if number % PACK == 0:
            git(here, "gc", "-q")
        tell(process, number, sync(f"{here}/.git/{os.path.dirname(BRANCH)}"))


def answers(said, count):
    """What `git cat-file --batch` has said: name, kind and bytes of each object; None of one that is missing."""
    found, at = [], 0
    while len(found) < count and at < len(said):
        end = said.index(b"\n", at)
        words = said[at:end].split()
        at = end + 1
        if words[-1] == b"missing":
            found.append(None)
            continue
        size = int(words[2])
        found.append((words[0].decode(), words[1].decode(), said[at : at + size]))
        at += size + 1
    return found


def judge(top, process):
    here = f"{top}/d{process}"
    git(here, "fsck", "--full", "--strict", "--no-dangling", "--no-progress")
    last = last_of(here)
    asks = [f"{BRANCH}~{last - n}{what}" for n in range(1, last + 1) for what in ("", "^{tree}", f":{n}")]
    # Before the first one there is none.
    asks.append(f"{BRANCH}~{last}")
    found = answers(git(here, "cat-file", "--batch", asks="\n".join(asks).encode()), len(asks))
    if len(found) != len(asks) or found.pop() is not None or None in found:
        sys.exit(f"{here} has another history than that of {last} commits")
    commits, trees, blobs = found[::3], found[1::3], found[2::3]
    for number in range(1, last + 1):
        commit, tree, blob = (of[number - 1] for of in (commits, trees, blobs))
        lines = commit[2].decode().split("\n")
        head = [f"tree {tree[0]}"] + [f"parent {commits[number - 2][0]}"] * (number > 1)
        if lines[: len(head)] != head or lines[-2:] != [str(number), ""]:
            sys.exit(f"{here}: commit {number} is another: {lines}")
        entries = {str(n).encode(): bytes.fromhex(blobs[n - 1][0]) for n in kept(number)}
        if tree[2] != b"".join(b"100644 " + name + b"\0" + entries[name] for name in sorted(entries)):
            sys.exit(f"{here}: the tree of commit {number} has other files")
        if blob[2] != content(process, number):
            sys.exit(f"{here}: file {number} has another content")
    return last
