"""What the loads have in common."""
import contextlib
import mmap
import os
import stat
import time

PROCESSES, KEEP = 2, 8


def content(process, number):
    size = 1 + (number * 7919 + process * 104729) % 40000
    lines = (b"%-63s\n" % (b"%d %d %d" % (process, number, i)) for i in range(size // 64 + 1))
    return b"".join(lines)[:size]


def kept(last):
    """What is there of so many operations."""
    return range(max(1, last - KEEP + 1), last + 1)


def now():
    """Microseconds of a clock that all processes have."""
    return time.monotonic_ns() // 1000


def sync(path):
    """Syncs a directory; says when that began."""
    begun, directory = now(), os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)
    return begun


def teller(path):
    """What tells of an operation that has returned, and when its last sync began and ended."""
    if not stat.S_ISBLK(os.stat(path).st_mode):
        acks = os.open(path, os.O_WRONLY | os.O_APPEND)
        return lambda process, number, begun: os.write(acks, b"ack %d %d\n" % (process, number))
    acks, sector = os.open(path, os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 4096)

    def tell(process, number, begun):
        sector[:512] = (b"ack %d %d %d %d\n" % (process, number, begun, now())).ljust(512, b"\0")
        os.pwrite(acks, memoryview(sector)[:512], process * 8192)

    return tell


@contextlib.contextmanager
def serve(_):
    """Most loads need no server."""
    yield
