"""What the tests of the mount share: a directory for each test, system calls that Python does not offer, users."""

import ctypes
import errno
import os
import platform
import shutil
import tempfile
import unittest

ROOT = os.environ["NARUFS_TEST_DIR"]
FIRST, SECOND, SHARED = 64101, 64102, 64103

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 0x01, 0x02
FALLOC_COLLAPSE_RANGE, FALLOC_ZERO_RANGE, FALLOC_INSERT_RANGE, FALLOC_UNSHARE_RANGE = 0x08, 0x10, 0x20, 0x40
O_TMPFILE = 0o20000000 | os.O_DIRECTORY
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
STATX_BTIME = 0x800


def check(result):
    """The result of a C function, or the OSError that errno says."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    check(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def linkat(fd, new):
    """Gives a name to an open file: by /proc, as programs do that are not privileged."""
    check(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(new), AT_SYMLINK_FOLLOW))


def linkat_empty(fd, new):
    """Gives a name to an open file: directly, which needs CAP_DAC_READ_SEARCH."""
    check(libc.linkat(fd, b"", AT_FDCWD, os.fsencode(new), AT_EMPTY_PATH))


def fallocate(fd, mode, offset, length):
    check(libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def utimensat(path, atime, mtime, flags=0):
    """atime and mtime are (seconds, nanoseconds)."""
    times = (Timespec * 2)(Timespec(*atime), Timespec(*mtime))
    check(libc.utimensat(AT_FDCWD, os.fsencode(path), times, flags))


class StatxTimestamp(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("reserved", ctypes.c_int32)]


class Statx(ctypes.Structure):
    _fields_ = [
        ("mask", ctypes.c_uint32), ("blksize", ctypes.c_uint32), ("attributes", ctypes.c_uint64),
        ("nlink", ctypes.c_uint32), ("uid", ctypes.c_uint32), ("gid", ctypes.c_uint32), ("mode", ctypes.c_uint16),
        ("spare0", ctypes.c_uint16), ("ino", ctypes.c_uint64), ("size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64), ("attributes_mask", ctypes.c_uint64), ("atime", StatxTimestamp),
        ("btime", StatxTimestamp), ("ctime", StatxTimestamp), ("mtime", StatxTimestamp),
        ("rest", ctypes.c_uint8 * 256),
    ]


def statx(path, flags=0, mask=0xFFF):
    result = Statx()
    check(libc.statx(AT_FDCWD, os.fsencode(path), flags, mask, ctypes.byref(result)))
    return result


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_char * 128)]


def name_to_handle(path):
    handle, mount = FileHandle(bytes=128), ctypes.c_int()
    check(libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0))
    return handle


def open_by_handle(handle, flags):
    mount = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return check(libc.open_by_handle_at(mount, ctypes.byref(handle), flags))
    finally:
        os.close(mount)


def kernel():
    return tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2])


def as_user(uid, action, groups=()):
    """Runs action in a child as a user; returns 0, or the errno of its OSError."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            os.setgroups(list(groups))
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            action()
            status = 0
        except OSError as error:
            status = error.errno
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class MountTest(unittest.TestCase):
    """A directory of its own for each test, as current directory."""

    def setUp(self):
        os.umask(0o022)
        self.dir = tempfile.mkdtemp(dir=ROOT)
        os.chmod(self.dir, 0o755)
        os.chdir(self.dir)

    def tearDown(self):
        os.chdir(ROOT)
        shutil.rmtree(self.dir)

    def fails(self, number, action, *arguments, **named):
        with self.assertRaises(OSError) as raised:
            action(*arguments, **named)
        self.assertEqual(errno.errorcode[raised.exception.errno], errno.errorcode[number])

    def open(self, path, flags, mode=0o644):
        """A descriptor that is closed when the test ends."""
        fd = os.open(path, flags, mode)
        self.addCleanup(os.close, fd)
        return fd

    def write(self, path, content=b""):
        with open(path, "wb") as file:
            file.write(content)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()
