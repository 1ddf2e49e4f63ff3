"""What is known about a file: modes, owners, times, extended attributes, access lists."""

import errno
import os
import stat
import struct
import tempfile
import time

from common import *


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class Attributes(MountTest):
    def test_chmod(self):
        self.write("file")
        before = os.stat("file").st_ctime_ns
        os.chmod("file", 0o7654)
        self.assertEqual(mode("file"), 0o7654)
        self.assertGreaterEqual(os.stat("file").st_ctime_ns, before)
        self.assertEqual(as_user(FIRST, lambda: os.chmod("file", 0o777)), errno.EPERM)

    def test_chown(self):
        self.write("file")
        os.chown("file", FIRST, SECOND)
        self.assertEqual((os.stat("file").st_uid, os.stat("file").st_gid), (FIRST, SECOND))
        os.chown("file", -1, SHARED)
        self.assertEqual((os.stat("file").st_uid, os.stat("file").st_gid), (FIRST, SHARED))
        self.assertEqual(as_user(FIRST, lambda: os.chown("file", SECOND, -1)), errno.EPERM)
        self.assertEqual(as_user(FIRST, lambda: os.chown("file", -1, SECOND)), errno.EPERM)
        self.assertEqual(as_user(FIRST, lambda: os.chown("file", -1, SECOND), groups=[SECOND]), 0)
        os.symlink("file", "link")
        os.lchown("link", SECOND, SECOND)
        self.assertEqual((os.lstat("link").st_uid, os.stat("file").st_uid), (SECOND, FIRST))

    def test_clearing_of_setuid(self):
        self.write("file", b"text")
        os.chown("file", FIRST, FIRST)
        os.chmod("file", 0o6777)
        os.chown("file", FIRST, SHARED)
        self.assertEqual(mode("file"), 0o777)

        def change(action):
            os.chmod("file", 0o6777)
            self.assertEqual(as_user(SECOND, action), 0)
            self.assertEqual(mode("file"), 0o777)

        # Who owns it takes them by a change of nothing, too, and nobody else.
        for user, left in ((FIRST, 0o777), (0, 0o777), (SECOND, 0o6777)):
            os.chmod("file", 0o6777)
            before = os.stat("file").st_ctime_ns
            self.assertIn(as_user(user, lambda: os.chown("file", -1, -1)), (0, errno.EPERM) if user == SECOND else (0,))
            self.assertEqual(mode("file"), left)
            if user != SECOND:
                self.assertGreater(os.stat("file").st_ctime_ns, before)
        change(lambda: self.write_at("file", b"x"))
        change(lambda: os.truncate("file", 2))
        change(lambda: os.close(os.open("file", os.O_WRONLY | os.O_TRUNC)))
        for how in (0, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, FALLOC_ZERO_RANGE):
            change(lambda: self.allocate_at("file", how))
        self.write("other", b"text")
        change(lambda: self.copy_to("other", "file"))
        # One may set the group's bit only for a group that one is in.
        os.chown("file", FIRST, SHARED)
        self.assertEqual(as_user(FIRST, lambda: os.chmod("file", 0o2755)), 0)
        self.assertEqual(mode("file"), 0o755)
        self.assertEqual(as_user(FIRST, lambda: os.chmod("file", 0o2755), groups=[SHARED]), 0)
        self.assertEqual(mode("file"), 0o2755)

    def write_at(self, path, content):
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, content)
        os.close(fd)

    def allocate_at(self, path, how):
        fd = os.open(path, os.O_WRONLY)
        fallocate(fd, how, 0, 4096)
        os.close(fd)

    def copy_to(self, source, path):
        source, fd = os.open(source, os.O_RDONLY), os.open(path, os.O_WRONLY)
        os.copy_file_range(source, fd, 4, 0, 0)
        os.close(fd)

    def test_utimens(self):
        self.write("file")
        utimensat("file", (-5, 123456789), (4102444800, 987654321))
        s = os.stat("file")
        self.assertEqual((s.st_atime_ns, s.st_mtime_ns), (-5 * 10**9 + 123456789, 4102444800987654321))
        os.symlink("file", "link")
        utimensat("link", (7, 8), (9, 10), 0x100)
        self.assertEqual((os.lstat("link").st_mtime_ns, os.stat("file").st_mtime_ns), (9000000010, 4102444800987654321))

    def test_utimens_now(self):
        self.write("file")
        utimensat("file", (1, 0), (1, 0))
        utimensat("file", (0, UTIME_NOW), (1, 5))
        s = os.stat("file")
        self.assertLess(abs(s.st_atime - time.time()), 60)
        self.assertEqual(s.st_mtime_ns, 1000000005)
        os.chmod("file", 0o666)
        now, old = (0, UTIME_NOW), (3, 0)
        self.assertEqual(as_user(FIRST, lambda: utimensat("file", now, now)), 0)
        self.assertEqual(as_user(FIRST, lambda: utimensat("file", old, old)), errno.EPERM)

    def test_utimens_omit(self):
        self.write("file")
        utimensat("file", (1, 2), (3, 4))
        utimensat("file", (0, UTIME_OMIT), (5, 6))
        self.assertEqual((os.stat("file").st_atime_ns, os.stat("file").st_mtime_ns), (1000000002, 5000000006))
        utimensat("file", (7, 8), (0, UTIME_OMIT))
        self.assertEqual((os.stat("file").st_atime_ns, os.stat("file").st_mtime_ns), (7000000008, 5000000006))

    def test_times_follow_changes(self):
        os.mkdir("dir")
        for change in (lambda: self.write("dir/a"), lambda: os.link("dir/a", "dir/b"),
                       lambda: os.rename("dir/b", "dir/c"), lambda: os.unlink("dir/c"),
                       lambda: os.symlink("x", "dir/l"), lambda: os.mkdir("dir/d"), lambda: os.rmdir("dir/d")):
            os.utime("dir", (1, 1))
            change()
            self.assertGreater(os.stat("dir").st_mtime, 1)
            self.assertGreater(os.stat("dir").st_ctime, 1)
        os.utime("dir/a", (1, 1))
        self.write_at("dir/a", b"x")
        self.assertGreater(os.stat("dir/a").st_mtime, 1)

    def test_relatime(self):
        self.write("file", b"text")
        os.utime("file", (1, 2))
        self.read("file")
        self.assertGreater(os.stat("file").st_atime, 2)

    def test_statx(self):
        before = time.time()
        self.write("file", b"x" * 5000)
        os.utime("file", (1, 1))
        s = statx("file")
        self.assertEqual((s.size, s.nlink, s.ino), (5000, 1, os.stat("file").st_ino))
        if kernel() < (6, 6) and os.environ["NARUFS_TEST_FS"] != "ext4":
            # FUSE of older kernels does not ask for the birth time.
            self.assertFalse(s.mask & STATX_BTIME)
            return
        self.assertTrue(s.mask & STATX_BTIME)
        self.assertGreater(s.btime.seconds, before - 60)
        self.assertLess(s.btime.seconds, time.time() + 60)
        made = (s.btime.seconds, s.btime.nanoseconds)
        os.rename("file", "other")
        os.chmod("other", 0o600)
        s = statx("other")
        self.assertEqual((s.btime.seconds, s.btime.nanoseconds), made)

    def test_stat_blocks(self):
        self.write("file", b"x" * 10000)
        with open("file", "rb") as file:
            os.fsync(file.fileno())
        self.assertGreaterEqual(os.stat("file").st_blocks, 24)
        self.assertEqual(os.stat("file").st_blksize % 4096, 0)

    def test_xattr(self):
        self.write("file")
        os.setxattr("file", "user.a", b"one")
        os.setxattr("file", "user.a", b"two")
        os.setxattr("file", "user.empty", b"")
        self.assertEqual(os.getxattr("file", "user.a"), b"two")
        self.assertEqual(sorted(os.listxattr("file")), ["user.a", "user.empty"])
        os.removexattr("file", "user.a")
        self.fails(errno.ENODATA, os.getxattr, "file", "user.a")
        self.fails(errno.ENODATA, os.removexattr, "file", "user.a")
        os.setxattr("file", "user.large", b"v" * 3000)
        self.assertEqual(os.getxattr("file", "user.large"), b"v" * 3000)
        self.fails(errno.ERANGE, os.setxattr, "file", "user." + "n" * 251, b"")

    def test_xattr_large(self):
        """What does not fit is refused, and what is there stays."""
        self.write("file")
        os.setxattr("file", "user.small", b"kept")
        if os.environ["NARUFS_TEST_FS"] != "ext4":
            os.setxattr("file", "user.large", b"v" * 65536)
            self.assertEqual(os.getxattr("file", "user.large"), b"v" * 65536)
        self.fails(errno.E2BIG, os.setxattr, "file", "user.huge", b"v" * 65537)
        with self.assertRaises(OSError) as raised:
            for n in range(40):
                os.setxattr("file", f"user.n{n}", b"v" * 3000)
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        self.assertEqual(os.getxattr("file", "user.small"), b"kept")
        for name in os.listxattr("file"):
            os.removexattr("file", name)
        self.assertEqual(os.listxattr("file"), [])

    def test_xattr_create(self):
        self.write("file")
        os.setxattr("file", "user.a", b"one", os.XATTR_CREATE)
        self.fails(errno.EEXIST, os.setxattr, "file", "user.a", b"two", os.XATTR_CREATE)
        self.assertEqual(os.getxattr("file", "user.a"), b"one")

    def test_xattr_replace(self):
        self.write("file")
        self.fails(errno.ENODATA, os.setxattr, "file", "user.a", b"one", os.XATTR_REPLACE)
        os.setxattr("file", "user.a", b"one")
        os.setxattr("file", "user.a", b"two", os.XATTR_REPLACE)
        self.assertEqual(os.getxattr("file", "user.a"), b"two")

    def test_xattr_name_spaces(self):
        self.write("file")
        os.mkdir("dir")
        for path in ("file", "dir"):
            for name in ("user.x", "trusted.x", "security.x"):
                os.setxattr(path, name, b"value")
                self.assertEqual(os.getxattr(path, name), b"value")
        self.assertEqual(sorted(os.listxattr("file")), ["security.x", "trusted.x", "user.x"])
        os.symlink("file", "link")
        os.setxattr("link", "trusted.l", b"v", follow_symlinks=False)
        self.assertEqual(os.listxattr("link", follow_symlinks=False), ["trusted.l"])
        self.fails(errno.EPERM, os.setxattr, "link", "user.l", b"v", follow_symlinks=False)
        self.fails(errno.EOPNOTSUPP, os.setxattr, "file", "nowhere.x", b"v")
        os.chmod("file", 0o666)
        self.assertEqual(as_user(FIRST, lambda: os.setxattr("file", "user.y", b"v")), 0)
        self.assertEqual(as_user(FIRST, lambda: os.setxattr("file", "trusted.y", b"v")), errno.EPERM)
        self.assertEqual(as_user(FIRST, lambda: os.getxattr("file", "trusted.x")), errno.ENODATA)

    def test_security_capability_is_cleared(self):
        self.write("file", b"text")
        value = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
        os.setxattr("file", "security.capability", value)
        self.write_at("file", b"new")
        self.fails(errno.ENODATA, os.getxattr, "file", "security.capability")
        os.chmod("file", 0o777)
        # Some kernels with the BPF LSM let everybody take it away, on every file system.
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as elsewhere:
            os.chmod(elsewhere.name, 0o777)
            os.setxattr(elsewhere.name, "security.capability", value)
            refused = as_user(FIRST, lambda: os.removexattr(elsewhere.name, "security.capability"))
        self.assertIn(refused, (errno.EPERM, 0))
        for change in (lambda: self.write_at("file", b"x"), lambda: self.allocate_at("file", 0),
                       lambda: self.allocate_at("file", FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE),
                       lambda: os.truncate("file", 2)):
            os.setxattr("file", "security.capability", value)
            self.assertEqual(as_user(FIRST, lambda: os.removexattr("file", "security.capability")), refused)
            if refused:
                self.assertEqual(os.getxattr("file", "security.capability"), value)
            else:
                os.setxattr("file", "security.capability", value)
            self.assertEqual(as_user(FIRST, change), 0)
            self.fails(errno.ENODATA, os.getxattr, "file", "security.capability")


USER_OBJECT, USER, GROUP_OBJECT, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def acl(*entries):
    """The kernel's form of an access list: (tag, permissions, id) each."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, i) for t, p, i in entries)


NOBODY = 0xFFFFFFFF
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


class AccessLists(MountTest):
    def test_acl_access(self):
        self.write("file", b"text")
        os.setxattr("file", ACCESS, acl((USER_OBJECT, 6, NOBODY), (USER, 4, FIRST), (GROUP_OBJECT, 0, NOBODY),
                                        (GROUP, 6, SHARED), (MASK, 6, NOBODY), (OTHER, 0, NOBODY)))
        self.assertEqual(mode("file"), 0o660)
        read = lambda: os.close(os.open("file", os.O_RDONLY))
        write = lambda: os.close(os.open("file", os.O_RDWR))
        self.assertEqual(as_user(FIRST, read), 0)
        self.assertEqual(as_user(FIRST, write), errno.EACCES)
        self.assertEqual(as_user(SECOND, read), errno.EACCES)
        self.assertEqual(as_user(SECOND, write, groups=[SHARED]), 0)
        # chmod sets the mask.
        os.chmod("file", 0o600)
        self.assertEqual(as_user(FIRST, read), errno.EACCES)
        os.chmod("file", 0o640)
        self.assertEqual(as_user(FIRST, read), 0)
        self.assertEqual(as_user(SECOND, write, groups=[SHARED]), errno.EACCES)
        os.removexattr("file", ACCESS)
        self.assertEqual(as_user(FIRST, read), errno.EACCES)

    def test_acl_of_a_mode(self):
        """A list that says no more than a mode is stored as the mode."""
        self.write("file")
        os.setxattr("file", ACCESS, acl((USER_OBJECT, 7, NOBODY), (GROUP_OBJECT, 5, NOBODY), (OTHER, 1, NOBODY)))
        self.assertEqual((mode("file"), os.listxattr("file")), (0o751, []))

    def test_acl_default(self):
        os.mkdir("dir")
        os.setxattr("dir", DEFAULT, acl((USER_OBJECT, 7, NOBODY), (USER, 7, FIRST), (GROUP_OBJECT, 5, NOBODY),
                                        (MASK, 7, NOBODY), (OTHER, 0, NOBODY)))
        os.umask(0o077)
        os.close(os.open("dir/file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir("dir/below", 0o777)
        self.assertEqual(os.getxattr("dir/below", DEFAULT), os.getxattr("dir", DEFAULT))
        # The umask does not count; the mode asked for limits the mask.
        self.assertEqual((mode("dir/file"), mode("dir/below")), (0o660, 0o770))
        os.chmod("dir", 0o755)
        self.assertEqual(as_user(FIRST, lambda: os.close(os.open("dir/file", os.O_RDWR))), 0)
        self.assertEqual(as_user(SECOND, lambda: os.close(os.open("dir/file", os.O_RDONLY))), errno.EACCES)
        self.write("plain")
        self.fails(errno.EACCES, os.setxattr, "plain", DEFAULT, os.getxattr("dir", DEFAULT))

    def test_acl_refused(self):
        self.write("file")
        self.fails(errno.EINVAL, os.setxattr, "file", ACCESS, b"\x02\0\0\0short")
        self.fails(errno.EINVAL, os.setxattr, "file", ACCESS,
                   acl((USER_OBJECT, 6, NOBODY), (USER, 4, FIRST), (GROUP_OBJECT, 0, NOBODY), (OTHER, 0, NOBODY)))
        os.chmod("file", 0o666)
        list_of_mode = acl((USER_OBJECT, 7, NOBODY), (GROUP_OBJECT, 5, NOBODY), (OTHER, 1, NOBODY))
        self.assertEqual(as_user(FIRST, lambda: os.setxattr("file", ACCESS, list_of_mode)), errno.EPERM)
