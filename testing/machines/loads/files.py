"""Operation N: a file is written, synced and renamed to N; N is appended to a log; the log is synced; the file of KEEP
operations before is removed. testing/src/replay/oracle.rs judges the same."""
import os
import sys

from .common import KEEP, PROCESSES, content, kept, now, serve  # noqa: F401

LINE = 16


def numbers(here):
    return sorted(int(name) for name in os.listdir(here) if name.isdigit())


def make(top):
    for process in range(PROCESSES):
        os.makedirs(f"{top}/d{process}", exist_ok=True)


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
    begun = now()
    os.fsync(names)
    # From here on there is something to be found.
    tell(process, 0, begun)
    while count is None or number < count:
        number += 1
        new = os.open(f"{here}/new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(new, content(process, number))
        os.fsync(new)
        os.close(new)
        os.rename(f"{here}/new", f"{here}/{number}")
        os.pwrite(log, b"%015d\n" % number, LINE * (number - 1))
        begun = now()
        os.fdatasync(log)
        if number > KEEP:
            os.unlink(f"{here}/{number - KEEP}")
        if sync_names:
            begun = now()
            os.fsync(names)
        tell(process, number, begun)


def judge(top, process):
    """The number of the last operation, all before which are there; or the reason why not."""
    here = f"{top}/d{process}"
    if not os.path.isdir(here):
        return 0
    there = numbers(here)
    last = there[-1] if there else 0
    wanted = list(kept(last))
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
