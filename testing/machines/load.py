#!/usr/bin/env python3
"""A load whose every step has a number, and what may be found of it after a loss of power.

`load.py work DIR ACKS [COUNT]` works in directories of DIR, one for each of two processes, until it is killed or each has
done COUNT operations, and tells of each that has returned: a line of the file ACKS, or a sector of its own if that is a
block device, past all caches. `NAMES=1`: directories are synced too, where names survive by that alone.
`load.py judge DIR` says which number each process had come to, and fails where what is there contradicts that.

Operation N: a file is written, synced and renamed to N; N is appended to a log; the log is synced; the file of KEEP
operations before is removed. testing/src/replay/oracle.rs judges the same.

`LOAD=sqlite`: operation N is a transaction of a database, one of a journal and one of a write-ahead log, that adds row N and
removes that of KEEP before. testing/src/replay/database.rs judges the same."""
import mmap
import os
import sqlite3
import stat
import sys

PROCESSES, KEEP, LINE = 2, 8, 16


def content(process, number):
    size = 1 + (number * 7919 + process * 104729) % 40000
    lines = (b"%-63s\n" % (b"%d %d %d" % (process, number, i)) for i in range(size // 64 + 1))
    return b"".join(lines)[:size]


def numbers(here):
    return sorted(int(name) for name in os.listdir(here) if name.isdigit())


def teller(path):
    """What tells of an operation that has returned."""
    if not stat.S_ISBLK(os.stat(path).st_mode):
        acks = os.open(path, os.O_WRONLY | os.O_APPEND)
        return lambda process, number: os.write(acks, b"ack %d %d\n" % (process, number))
    acks, sector = os.open(path, os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 4096)

    def tell(process, number):
        sector[:512] = (b"ack %d %d\n" % (process, number)).ljust(512, b"\0")
        os.pwrite(acks, memoryview(sector)[:512], process * 8192)

    return tell


def work(top, process, tell, count, sync_names):
    here = f"{top}/d{process}"
    names = os.open(here, os.O_RDONLY)
    log = os.open(f"{here}/log", os.O_WRONLY | os.O_CREAT, 0o644)
    there = numbers(here)
    number = there[-1] if there else 0
    # The last operation may have come to any of its steps.
    if number:
        os.pwrite(log, b"%015d\n" % number, LINE * (number - 1))
    os.ftruncate(log, LINE * number)
    os.fsync(log)
    if number - KEEP in there:
        os.unlink(f"{here}/{number - KEEP}")
    os.fsync(names)
    # From here on there is something to be found.
    tell(process, 0)
    while count is None or number < count:
        number += 1
        new = os.open(f"{here}/new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(new, content(process, number))
        os.fsync(new)
        os.close(new)
        os.rename(f"{here}/new", f"{here}/{number}")
        os.pwrite(log, b"%015d\n" % number, LINE * (number - 1))
        os.fdatasync(log)
        if number > KEEP:
            os.unlink(f"{here}/{number - KEEP}")
        if sync_names:
            os.fsync(names)
        tell(process, number)


def database(top, process):
    base = sqlite3.connect(f"{top}/d{process}/base", isolation_level=None)
    base.execute(f"PRAGMA journal_mode={('DELETE', 'WAL')[process]}")
    # Else the removal of the journal, which is the commit, may be undone.
    base.execute("PRAGMA synchronous=EXTRA")
    base.execute("CREATE TABLE IF NOT EXISTS told (number INTEGER PRIMARY KEY, content BLOB)")
    return base


def work_database(top, process, tell, count, _):
    base = database(top, process)
    number = base.execute("SELECT max(number) FROM told").fetchone()[0] or 0
    tell(process, 0)
    while count is None or number < count:
        number += 1
        base.execute("BEGIN IMMEDIATE")
        base.execute("INSERT INTO told VALUES (?, ?)", (number, content(process, number)))
        base.execute("DELETE FROM told WHERE number <= ?", (number - KEEP,))
        base.execute("COMMIT")
        tell(process, number)
    base.close()


def judge_database(top, process):
    base = database(top, process)
    if base.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        sys.exit(f"{top}/d{process}/base is damaged")
    rows = base.execute("SELECT number, content FROM told ORDER BY number").fetchall()
    last = rows[-1][0] if rows else 0
    if rows != [(number, content(process, number)) for number in range(max(1, last - KEEP + 1), last + 1)]:
        sys.exit(f"{top}/d{process}/base has other rows")
    return last


def judge(top, process):
    """The number of the last operation, all before which are there; or the reason why not."""
    here = f"{top}/d{process}"
    if not os.path.isdir(here):
        return 0
    there = numbers(here)
    last = there[-1] if there else 0
    wanted = list(range(max(1, last - KEEP + 1), last + 1))
    if there not in (wanted, [last - KEEP] + wanted):
        sys.exit(f"{here}: {there} where {wanted} should be")
    for number in there:
        with open(f"{here}/{number}", "rb") as file:
            if file.read() != content(process, number):
                sys.exit(f"{here}/{number} has another content")
    # That of the last is synced after its rename.
    if last > 1:
        with open(f"{here}/log", "rb") as file:
            log = file.read()
        if log[: LINE * (last - 1)] != b"".join(b"%015d\n" % n for n in range(1, last)) or len(log) > LINE * (last + 1):
            sys.exit(f"{here}/log has another content, {len(log)} bytes; the last operation is {last}")
    return last


def main():
    task, top = sys.argv[1:3]
    is_database = os.environ.get("LOAD") == "sqlite"
    if task == "judge":
        for process in range(PROCESSES):
            print("state", process, (judge_database if is_database else judge)(top, process))
        return
    count = int(sys.argv[4]) if len(sys.argv) > 4 else None
    for process in range(PROCESSES):
        os.makedirs(f"{top}/d{process}", exist_ok=True)
    directory = os.open(top, os.O_RDONLY)
    os.fsync(directory)
    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if child == 0:
            run = work_database if is_database else work
            run(top, process, teller(sys.argv[3]), count, os.environ.get("NAMES") == "1")
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a process of the load has failed")


main()
