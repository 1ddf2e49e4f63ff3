"""Operation N is a transaction of a PostgreSQL server, one table of which each process has: it adds row N and removes that of
KEEP before. Log segments of 1 MiB and a checkpoint at 2 to 4 of them; values lie apart and uncompressed (TOAST).
testing/src/replay/postgres.rs judges the same: by PostgreSQL's recovery, amcheck, and the rows."""
import contextlib
import glob
import os
import shutil
import subprocess
import sys

from .common import KEEP, PROCESSES, content, kept, now

SOCKETS = "/run/postgres-load"
SETTINGS = f"""
listen_addresses = ''
unix_socket_directories = '{SOCKETS}'
shared_buffers = 8MB
min_wal_size = 2MB
max_wal_size = 4MB
checkpoint_timeout = 30s
autovacuum = off
"""
HEAP = """SELECT c.oid::regclass || ': ' || v.msg FROM pg_class c, LATERAL verify_heapam(c.oid) v
    WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence = 'p'"""
INDEXES = """SELECT count(bt_index_check(c.oid, true)) > 0 FROM pg_class c JOIN pg_am a ON a.oid = c.relam
    WHERE c.relkind = 'i' AND a.amname = 'btree' AND c.relpersistence = 'p'"""


def program(name):
    return glob.glob(f"/usr/lib/postgresql/*/bin/{name}")[0]


def run(*words):
    subprocess.run(["runuser", "-u", "postgres", "--", *words], check=True, cwd="/", stdout=sys.stderr)


@contextlib.contextmanager
def serve(top):
    os.makedirs(SOCKETS, exist_ok=True)
    shutil.chown(SOCKETS, "postgres")
    control = program("pg_ctl"), "-D", f"{top}/pg", "-t", "600"
    run(*control, "-l", f"{SOCKETS}/log", "start")
    yield
    run(*control, "-m", "fast", "stop")


def make(top):
    here = f"{top}/pg"
    if os.path.exists(f"{here}/PG_VERSION"):
        return
    os.makedirs(here, exist_ok=True)
    shutil.chown(here, "postgres")
    run(program("initdb"), "-D", here, "-A", "trust", "--data-checksums", "--wal-segsize=1", "--locale=C", "-E", "UTF8")
    with open(f"{here}/postgresql.conf", "a") as file:
        file.write(SETTINGS)
    with serve(top), Session() as session:
        session.run("CREATE EXTENSION amcheck;")
        for process in range(PROCESSES):
            session.run(f"CREATE TABLE told{process} (number bigint PRIMARY KEY, content bytea);")
            session.run(f"ALTER TABLE told{process} ALTER content SET STORAGE EXTERNAL;")
    os.sync()


class Session:
    """A psql that stays."""

    def __enter__(self):
        words = [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", SOCKETS, "-U", "postgres", "postgres"]
        self.psql = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.psql.stdin.close()
        self.psql.wait()

    def run(self, words):
        """The lines that it says."""
        self.psql.stdin.write(f"{words}\n\\echo done\n".encode())
        self.psql.stdin.flush()
        lines = []
        while (line := self.psql.stdout.readline().decode()) != "done\n":
            if not line:
                sys.exit(f"psql fails at {words[:200]}")
            lines.append(line.rstrip("\n"))
        return lines


def work(_, process, tell, count, __):
    with Session() as session:
        number = int(session.run(f"SELECT coalesce(max(number), 0) FROM told{process};")[0])
        tell(process, 0, now())
        while count is None or number < count:
            number += 1
            row = content(process, number).hex()
            session.run(f"BEGIN; INSERT INTO told{process} VALUES ({number}, '\\x{row}');")
            session.run(f"DELETE FROM told{process} WHERE number <= {number - KEEP};")
            begun = now()
            session.run("COMMIT;")
            tell(process, number, begun)


def judge(top, process):
    with Session() as session:
        damage = session.run(f"{HEAP};")
        if damage or session.run(f"{INDEXES};") != ["t"]:
            sys.exit(f"{top}/pg is damaged: {damage[:5]}")
        rows = session.run(f"SELECT number || ' ' || encode(content, 'hex') FROM told{process} ORDER BY number;")
    last = int(rows[-1].split()[0]) if rows else 0
    if rows != [f"{number} {content(process, number).hex()}" for number in kept(last)]:
        sys.exit(f"{top}/pg has other rows of process {process}")
    return last
