"""File content: reading, writing, holes, sizes, and maps."""

import errno
import mmap
import os
import random

from common import *

K = 1024
PAGE = 4096
# The kernel passes no other modes of fallocate to a file system in user space than these three: KEEP_SIZE,
# PUNCH_HOLE and ZERO_RANGE. It refuses COLLAPSE_RANGE and INSERT_RANGE itself; the library has them.
HAS_SHIFTS = os.environ["NARUFS_TEST_FS"] == "ext4"


class Data(MountTest):
    def test_read_write(self):
        self.write("file", b"0123456789")
        fd = self.open("file", os.O_RDWR)
        self.assertEqual(os.pread(fd, 4, 3), b"3456")
        self.assertEqual(os.pread(fd, 4, 8), b"89")
        self.assertEqual(os.pread(fd, 4, 10), b"")
        os.pwrite(fd, b"end", 5000)
        self.assertEqual(os.pread(fd, 6, 4996), b"\0\0\0\0en")
        self.assertEqual(os.fstat(fd).st_size, 5003)
        self.fails(errno.EBADF, os.write, self.open("file", os.O_RDONLY), b"x")
        self.fails(errno.EISDIR, os.read, self.open(".", os.O_RDONLY), 1)

    def test_large_requests(self):
        content = random.Random(1).randbytes(9 << 20)
        self.write("file", content)
        self.assertEqual(self.read("file"), content)

    def test_append(self):
        first = self.open("file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        second = self.open("file", os.O_WRONLY | os.O_APPEND)
        for n in range(50):
            os.write(first if n % 2 else second, b"%04d" % n)
        self.assertEqual(self.read("file"), b"".join(b"%04d" % n for n in range(50)))

    def test_append_by_processes(self):
        """Each append is whole, and none overwrites another."""
        children = []
        for who in range(4):
            child = os.fork()
            if child == 0:
                fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                for n in range(200):
                    os.write(fd, b"%d:%05d\n" % (who, n))
                os._exit(0)
            children.append(child)
        for child in children:
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        lines = self.read("file").split(b"\n")[:-1]
        self.assertEqual(sorted(lines), sorted(b"%d:%05d" % (w, n) for w in range(4) for n in range(200)))

    def test_open_trunc(self):
        self.write("file", b"x" * 10000)
        before = os.stat("file").st_mtime_ns
        os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))
        self.assertEqual((os.stat("file").st_size, os.stat("file").st_blocks), (0, 0))
        self.assertGreaterEqual(os.stat("file").st_mtime_ns, before)

    def test_truncate(self):
        self.write("file", b"x" * 10000)
        os.truncate("file", 5000)
        os.truncate("file", 9000)
        self.assertEqual(self.read("file"), b"x" * 5000 + b"\0" * 4000)
        fd = self.open("file", os.O_RDWR)
        os.ftruncate(fd, 1)
        self.assertEqual(os.pread(fd, 10, 0), b"x")
        self.fails(errno.EISDIR, os.truncate, ".", 0)
        self.fails(errno.EINVAL, os.truncate, "file", -1)

    def test_direct(self):
        fd = self.open("file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        buffer = mmap.mmap(-1, 64 * K)
        buffer[:] = b"d" * (64 * K)
        self.assertEqual(os.pwritev(fd, [buffer], 64 * K), 64 * K)
        buffer[:] = bytes(64 * K)
        self.assertEqual(os.preadv(fd, [buffer], 64 * K), 64 * K)
        self.assertEqual(buffer[:], b"d" * (64 * K))
        # Direct and cached access see each other.
        cached = self.open("file", os.O_RDWR)
        os.pwrite(cached, b"c" * PAGE, 64 * K)
        os.preadv(fd, [memoryview(buffer)[:PAGE]], 64 * K)
        self.assertEqual(buffer[:PAGE], b"c" * PAGE)
        buffer[:PAGE] = b"e" * PAGE
        os.pwritev(fd, [memoryview(buffer)[:PAGE]], 68 * K)
        self.assertEqual(os.pread(cached, PAGE, 68 * K), b"e" * PAGE)

    def test_o_sync(self):
        for flag in (os.O_SYNC, os.O_DSYNC):
            fd = self.open("file", os.O_RDWR | os.O_CREAT | flag)
            for n in range(10):
                os.pwrite(fd, b"%d" % n * 100, n * 3000)
            self.assertEqual(os.pread(fd, 3, 27000), b"999")

    def test_fsync(self):
        fd = self.open("file", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"x" * 100000)
        os.fsync(fd)
        os.fdatasync(fd)
        os.fsync(self.open(".", os.O_RDONLY))
        os.fsync(self.open("file", os.O_RDONLY))

    def test_syncfs(self):
        self.write("file", b"x" * 100000)
        check(libc.syncfs(self.open("file", os.O_RDONLY)))

    def test_holes(self):
        fd = self.open("file", os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"a" * PAGE, 1 << 20)
        os.pwrite(fd, b"b" * PAGE, 2 << 20)
        os.ftruncate(fd, 3 << 20)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertEqual(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + PAGE)
        self.assertEqual(os.lseek(fd, (1 << 20) + PAGE, os.SEEK_DATA), 2 << 20)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), 0)
        self.assertEqual(os.lseek(fd, 2 << 20, os.SEEK_HOLE), (2 << 20) + PAGE)
        self.fails(errno.ENXIO, os.lseek, fd, (2 << 20) + PAGE, os.SEEK_DATA)
        self.fails(errno.ENXIO, os.lseek, fd, 3 << 20, os.SEEK_HOLE)
        os.fsync(fd)
        self.assertLess(os.fstat(fd).st_blocks * 512, 1 << 20)

    def test_sixteen_tebibytes(self):
        size = (16 << 40) - (64 << 10) if os.environ["NARUFS_TEST_FS"] == "ext4" else 16 << 40
        fd = self.open("file", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, size)
        for where in (0, (1 << 32) - 2, (4 << 40) + 5, size - 4):
            os.pwrite(fd, b"mark", where)
        os.fsync(fd)
        self.assertEqual(os.fstat(fd).st_size, size)
        for where in (0, (1 << 32) - 2, (4 << 40) + 5, size - 4):
            self.assertEqual(os.pread(fd, 4, where), b"mark")
        self.assertEqual(os.lseek(fd, (1 << 32) + PAGE, os.SEEK_DATA), 4 << 40)
        self.assertLess(os.fstat(fd).st_blocks * 512, 1 << 20)
        os.ftruncate(fd, 2)
        self.assertEqual(os.pread(fd, 10, 0), b"ma")
        self.fails(errno.EFBIG, os.ftruncate, fd, (1 << 63) - 1)

    def content(self, pages=16):
        """A file of pages that differ, with its descriptor and content."""
        content = b"".join(bytes([65 + n % 26]) * PAGE for n in range(pages))
        self.write("file", content)
        return self.open("file", os.O_RDWR), content

    def test_fallocate(self):
        fd = self.open("file", os.O_RDWR | os.O_CREAT)
        fallocate(fd, 0, 0, 1 << 20)
        self.assertEqual(os.fstat(fd).st_size, 1 << 20)
        self.assertGreaterEqual(os.fstat(fd).st_blocks * 512, 1 << 20)
        self.assertEqual(os.pread(fd, 1 << 20, 0), bytes(1 << 20))
        os.pwrite(fd, b"text", 5000)
        fallocate(fd, 0, 0, 2 << 20)
        self.assertEqual(os.pread(fd, 4, 5000), b"text")
        self.fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
        self.fails(errno.EBADF, fallocate, self.open("file", os.O_RDONLY), 0, 0, PAGE)

    def test_fallocate_keep_size(self):
        fd, content = self.content()
        fallocate(fd, FALLOC_KEEP_SIZE, 0, 1 << 20)
        self.assertEqual((os.fstat(fd).st_size, self.read("file")), (16 * PAGE, content))
        self.assertGreaterEqual(os.fstat(fd).st_blocks * 512, 1 << 20)

    def test_fallocate_punch_hole(self):
        fd, content = self.content()
        os.fsync(fd)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 1000, 5 * PAGE)
        self.assertEqual(self.read("file"), content[:1000] + bytes(5 * PAGE) + content[1000 + 5 * PAGE:])
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), PAGE)
        self.fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_PUNCH_HOLE, 0, PAGE)

    def test_fallocate_zero_range(self):
        fd, content = self.content()
        fallocate(fd, FALLOC_ZERO_RANGE, 3000, 2 * PAGE)
        self.assertEqual(self.read("file"), content[:3000] + bytes(2 * PAGE) + content[3000 + 2 * PAGE:])
        fallocate(fd, FALLOC_ZERO_RANGE, 15 * PAGE, 4 * PAGE)
        self.assertEqual(os.fstat(fd).st_size, 19 * PAGE)
        fallocate(fd, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, 18 * PAGE, 4 * PAGE)
        self.assertEqual(os.fstat(fd).st_size, 19 * PAGE)
        self.assertEqual(os.pread(fd, 9 * PAGE, 15 * PAGE), bytes(4 * PAGE))

    def test_fallocate_collapse_range(self):
        fd, content = self.content()
        if not HAS_SHIFTS:
            self.fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_COLLAPSE_RANGE, 2 * PAGE, 5 * PAGE)
            self.assertEqual(self.read("file"), content)
            return
        fallocate(fd, FALLOC_COLLAPSE_RANGE, 2 * PAGE, 5 * PAGE)
        self.assertEqual(self.read("file"), content[:2 * PAGE] + content[7 * PAGE:])
        self.fails(errno.EINVAL, fallocate, fd, FALLOC_COLLAPSE_RANGE, 100, PAGE)
        self.fails(errno.EINVAL, fallocate, fd, FALLOC_COLLAPSE_RANGE, 0, 11 * PAGE)

    def test_fallocate_insert_range(self):
        fd, content = self.content()
        if not HAS_SHIFTS:
            self.fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_INSERT_RANGE, 2 * PAGE, 5 * PAGE)
            self.assertEqual(self.read("file"), content)
            return
        fallocate(fd, FALLOC_INSERT_RANGE, 2 * PAGE, 5 * PAGE)
        self.assertEqual(self.read("file"), content[:2 * PAGE] + bytes(5 * PAGE) + content[2 * PAGE:])
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), 2 * PAGE)
        self.fails(errno.EINVAL, fallocate, fd, FALLOC_INSERT_RANGE, 100, PAGE)
        self.fails(errno.EINVAL, fallocate, fd, FALLOC_INSERT_RANGE, 21 * PAGE, PAGE)

    def test_copy_file_range(self):
        fd, content = self.content(64)
        other = self.open("other", os.O_RDWR | os.O_CREAT)
        copied = 0
        while copied < len(content) - 500:
            n = os.copy_file_range(fd, other, len(content) - 500 - copied, 500 + copied, copied)
            self.assertGreater(n, 0)
            copied += n
        self.assertEqual(self.read("other"), content[500:])
        # Within a file, where the ranges are apart; where they overlap it is refused.
        self.assertEqual(os.copy_file_range(fd, fd, PAGE, 0, 10 * PAGE), PAGE)
        self.assertEqual(os.pread(fd, PAGE, 10 * PAGE), content[:PAGE])
        self.fails(errno.EINVAL, os.copy_file_range, fd, fd, 2 * PAGE, 0, PAGE)

    def test_mmap_shared(self):
        fd, content = self.content()
        with mmap.mmap(fd, 16 * PAGE) as first, mmap.mmap(fd, 16 * PAGE) as second:
            first[5000:5004] = b"text"
            self.assertEqual(second[5000:5004], b"text")
            self.assertEqual(os.pread(fd, 4, 5000), b"text")
            os.pwrite(fd, b"more", 9000)
            self.assertEqual(first[9000:9004], b"more")
            first.flush()
        expected = bytearray(content)
        expected[5000:5004], expected[9000:9004] = b"text", b"more"
        self.assertEqual(self.read("file"), bytes(expected))

    def test_mmap_changes_times(self):
        fd, _ = self.content()
        os.utime("file", (1, 1))
        with mmap.mmap(fd, PAGE) as m:
            m[0] = 7
            m.flush()
        os.fsync(fd)
        self.assertGreater(os.stat("file").st_mtime, 1)

    def test_mmap_private(self):
        fd, content = self.content()
        with mmap.mmap(fd, PAGE, flags=mmap.MAP_PRIVATE) as m:
            m[:4] = b"mine"
        self.assertEqual(self.read("file"), content)

    def test_mmap_of_a_program(self):
        import shutil
        import subprocess
        shutil.copy("/bin/sh", "program")
        self.assertEqual(subprocess.check_output(["./program", "-c", "echo run"]), b"run\n")
        self.fails(errno.ETXTBSY, self.write_while_running)

    def write_while_running(self):
        import subprocess
        running = subprocess.Popen(["./program", "-c", "echo on; read line"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        try:
            # Once it speaks it has been executed.
            running.stdout.readline()
            os.close(os.open("program", os.O_WRONLY))
        finally:
            running.communicate(b"\n")

    def test_statfs(self):
        before = os.statvfs(".")
        self.assertEqual(before.f_namemax, 255)
        fd = self.open("file", os.O_RDWR | os.O_CREAT)
        fallocate(fd, 0, 0, 16 << 20)
        os.fsync(fd)
        after = os.statvfs(".")
        taken = (before.f_bfree - after.f_bfree) * before.f_frsize
        self.assertGreaterEqual(taken, 16 << 20)
        self.assertLess(taken, 32 << 20)
        self.assertLess(after.f_ffree, before.f_ffree + 1)

    def test_full(self):
        """A full file system says so, keeps what it has, and can still delete."""
        self.write("keep", b"kept" * 1000)
        before = os.statvfs(".")
        free = before.f_bavail * before.f_frsize
        fd = os.open("reserve", os.O_RDWR | os.O_CREAT)
        fallocate(fd, 0, 0, free - (24 << 20))
        written = {}
        with self.assertRaises(OSError) as raised:
            for n in range(1000):
                content = bytes([n % 251]) * 65536
                with open(f"fill-{n}", "wb", buffering=0) as file:
                    while content:
                        content = content[file.write(content):]
                    written[n] = True
                    os.fsync(file.fileno())
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        self.assertGreater(len(written), 20)
        whole = list(written)[:-1]
        for n in whole:
            self.assertEqual(self.read(f"fill-{n}"), bytes([n % 251]) * 65536)
        self.assertEqual(self.read("keep"), b"kept" * 1000)
        for name in os.listdir():
            if name.startswith("fill"):
                os.unlink(name)
        self.write("again", b"there is room" * 1000)
        with open("again", "rb") as file:
            os.fsync(file.fileno())
        os.close(fd)
        os.unlink("reserve")
        # The kernel tells of closes and removals afterwards: the tests that follow count what is free.
        while (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize > 1 << 20:
            pass

    def test_full_direct(self):
        """A direct write that does not fit is told so, and not taken for a device that fails."""
        before = os.statvfs(".")
        reserve = os.open("reserve", os.O_RDWR | os.O_CREAT)
        fallocate(reserve, 0, 0, before.f_bavail * before.f_frsize - (9 << 20) - 7 * PAGE)
        fd = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        buffer = mmap.mmap(-1, 1 << 20)
        buffer[:] = b"d" * (1 << 20)
        offset = 0
        with self.assertRaises(OSError) as raised:
            while offset < 64 << 20:
                offset += os.pwritev(fd, [buffer], offset)
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        self.assertGreater(offset, 4 << 20)
        self.assertEqual(os.fstat(fd).st_size, offset)
        for each in (fd, reserve):
            os.close(each)
        for name in ("direct", "reserve"):
            os.unlink(name)
        while (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize > 1 << 20:
            pass
