"""Operation N is a transaction of a database, one of a journal and one of a write-ahead log, that adds row N and removes
that of KEEP before. testing/src/replay/database.rs judges the same."""
import os
import sqlite3
import sys

from .common import KEEP, PROCESSES, content, kept, now, serve  # noqa: F401


def database(top, process):
    base = sqlite3.connect(f"{top}/d{process}/base", isolation_level=None)
    base.execute(f"PRAGMA journal_mode={('DELETE', 'WAL')[process]}")
    # Else the removal of the journal, which is the commit, may be undone.
    base.execute("PRAGMA synchronous=EXTRA")
    base.execute("CREATE TABLE IF NOT EXISTS told (number INTEGER PRIMARY KEY, content BLOB)")
    return base


def make(top):
    for process in range(PROCESSES):
        os.makedirs(f"{top}/d{process}", exist_ok=True)
        database(top, process).close()


def work(top, process, tell, count, _):
    begun = now()
    base = database(top, process)
    number = base.execute("SELECT max(number) FROM told").fetchone()[0] or 0
    tell(process, 0, begun)
    while count is None or number < count:
        number += 1
        base.execute("BEGIN IMMEDIATE")
        base.execute("INSERT INTO told VALUES (?, ?)", (number, content(process, number)))
        base.execute("DELETE FROM told WHERE number <= ?", (number - KEEP,))
        begun = now()
        base.execute("COMMIT")
        tell(process, number, begun)
    base.close()


def judge(top, process):
    base = database(top, process)
    if base.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        sys.exit(f"{top}/d{process}/base is damaged")
    rows = base.execute("SELECT number, content FROM told ORDER BY number").fetchall()
    last = rows[-1][0] if rows else 0
    if rows != [(number, content(process, number)) for number in kept(last)]:
        sys.exit(f"{top}/d{process}/base has other rows")
    return last
