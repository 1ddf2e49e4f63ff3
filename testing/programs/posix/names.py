"""Names: everything that makes, moves, lists and removes them."""

import errno
import os
import socket
import stat
import threading

from common import *


class Names(MountTest):
    def test_lookup(self):
        self.fails(errno.ENOENT, os.stat, "missing")
        self.write("file")
        self.fails(errno.ENOTDIR, os.stat, "file/below")
        self.assertTrue(os.path.samefile("file", "./../" + os.path.basename(self.dir) + "/file"))
        # A name that was missing is found once another process has made it.
        self.assertEqual(as_user(0, lambda: os.mkdir("missing")), 0)
        self.assertTrue(stat.S_ISDIR(os.stat("missing").st_mode))

    def test_create(self):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o777))
        self.assertEqual(stat.S_IMODE(os.stat("file").st_mode), 0o755)
        self.assertEqual(os.stat("file").st_nlink, 1)
        os.umask(0o077)
        os.close(os.open("private", os.O_WRONLY | os.O_CREAT, 0o777))
        self.assertEqual(stat.S_IMODE(os.stat("private").st_mode), 0o700)

    def test_create_excl(self):
        self.write("file", b"kept")
        self.fails(errno.EEXIST, os.open, "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.symlink("nowhere", "link")
        self.fails(errno.EEXIST, os.open, "link", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self.assertEqual(self.read("file"), b"kept")

    def test_open_kinds(self):
        os.mkdir("dir")
        self.fails(errno.EISDIR, os.open, "dir", os.O_WRONLY)
        self.write("file")
        self.fails(errno.ENOTDIR, os.open, "file", os.O_RDONLY | os.O_DIRECTORY)
        os.symlink("file", "link")
        self.fails(errno.ELOOP, os.open, "link", os.O_RDONLY | os.O_NOFOLLOW)

    def test_tmpfile(self):
        fd = self.open(".", O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, b"unnamed")
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        self.assertEqual(os.listdir(), [])
        linkat(fd, "named")
        self.assertEqual(os.stat("named").st_nlink, 1)
        self.assertEqual(self.read("named"), b"unnamed")
        other = self.open(".", O_TMPFILE | os.O_WRONLY, 0o600)
        linkat_empty(other, "other")
        self.assertEqual(sorted(os.listdir()), ["named", "other"])

    def test_tmpfile_excl(self):
        fd = self.open(".", O_TMPFILE | os.O_WRONLY | os.O_EXCL, 0o600)
        self.fails(errno.ENOENT, linkat, fd, "named")

    def test_mknod_fifo(self):
        os.mkfifo("pipe", 0o640)
        self.assertTrue(stat.S_ISFIFO(os.stat("pipe").st_mode))
        reader = self.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
        writer = self.open("pipe", os.O_WRONLY)
        os.write(writer, b"through")
        self.assertEqual(os.read(reader, 10), b"through")

    def test_mknod_socket(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind("socket")
            server.listen()
            self.assertTrue(stat.S_ISSOCK(os.stat("socket").st_mode))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect("socket")

    def test_mknod_device(self):
        os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod("loop", stat.S_IFBLK | 0o600, os.makedev(7, 300))
        self.assertTrue(stat.S_ISCHR(os.stat("null").st_mode))
        self.assertEqual(os.stat("null").st_rdev, os.makedev(1, 3))
        self.assertTrue(stat.S_ISBLK(os.stat("loop").st_mode))
        self.assertEqual(os.stat("loop").st_rdev, os.makedev(7, 300))

    def test_mknod_device_by_a_user(self):
        os.chmod(".", 0o777)
        self.assertEqual(as_user(FIRST, lambda: os.mknod("d", stat.S_IFCHR | 0o666, os.makedev(1, 3))), errno.EPERM)

    def test_mknod_file(self):
        os.mknod("file", stat.S_IFREG | 0o600)
        self.assertEqual(os.stat("file").st_size, 0)
        self.fails(errno.EEXIST, os.mknod, "file", stat.S_IFREG | 0o600)

    def test_mkdir_rmdir(self):
        os.mkdir("dir", 0o750)
        self.assertEqual((os.stat("dir").st_nlink, os.stat(".").st_nlink), (2, 3))
        self.fails(errno.EEXIST, os.mkdir, "dir")
        self.write("dir/file")
        self.fails(errno.ENOTEMPTY, os.rmdir, "dir")
        os.unlink("dir/file")
        inside = self.open("dir", os.O_RDONLY)
        os.rmdir("dir")
        self.assertEqual(os.stat(".").st_nlink, 2)
        self.assertEqual(os.fstat(inside).st_nlink, 0)
        self.fails(errno.ENOENT, os.open, "new", os.O_CREAT | os.O_WRONLY, dir_fd=inside)
        self.write("file")
        self.fails(errno.ENOTDIR, os.rmdir, "file")

    def test_unlink(self):
        self.write("file", b"still here")
        fd = self.open("file", os.O_RDONLY)
        os.unlink("file")
        self.fails(errno.ENOENT, os.stat, "file")
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        self.assertEqual(os.read(fd, 20), b"still here")
        os.mkdir("dir")
        self.fails(errno.EISDIR, os.unlink, "dir")

    def test_link(self):
        self.write("file", b"one")
        before = os.stat("file").st_ctime_ns
        os.link("file", "second")
        self.assertEqual(os.stat("file").st_nlink, 2)
        self.assertGreaterEqual(os.stat("file").st_ctime_ns, before)
        self.assertEqual(os.stat("file").st_ino, os.stat("second").st_ino)
        os.unlink("file")
        self.assertEqual((os.stat("second").st_nlink, self.read("second")), (1, b"one"))
        os.mkdir("dir")
        self.fails(errno.EPERM, os.link, "dir", "dir2")
        self.write("file")
        self.fails(errno.EEXIST, os.link, "file", "second")

    def test_symlink_readlink(self):
        for length in (1, 60, 127, 128, 129, 1000, 4095):
            target = ("t" * length)
            os.symlink(target, f"link{length}")
            self.assertEqual(os.readlink(f"link{length}"), target)
            self.assertEqual(os.lstat(f"link{length}").st_size, length)
        self.fails(errno.ENAMETOOLONG, os.symlink, "t" * 4096, "long")
        self.fails(errno.EINVAL, os.readlink, ".")
        os.symlink("loop", "loop")
        self.fails(errno.ELOOP, os.stat, "loop")

    def test_rename(self):
        self.write("a", b"a")
        self.write("b", b"b")
        kept = self.open("b", os.O_RDONLY)
        os.rename("a", "b")
        self.assertEqual((os.listdir(), self.read("b")), (["b"], b"a"))
        self.assertEqual((os.fstat(kept).st_nlink, os.read(kept, 5)), (0, b"b"))
        # Two names of one file: nothing happens.
        os.link("b", "c")
        os.rename("b", "c")
        self.assertEqual(sorted(os.listdir()), ["b", "c"])
        os.mkdir("dir")
        self.fails(errno.EISDIR, os.rename, "b", "dir")
        self.fails(errno.ENOTDIR, os.rename, "dir", "b")

    def test_rename_directory(self):
        os.makedirs("one/inner/deep")
        os.mkdir("two")
        os.rename("one/inner", "two/inner")
        self.assertEqual((os.stat("one").st_nlink, os.stat("two").st_nlink), (2, 3))
        self.assertTrue(os.path.samefile("two/inner/..", "two"))
        self.fails(errno.EINVAL, os.rename, "two", "two/inner/deep/two")
        os.mkdir("full")
        self.write("full/file")
        self.fails(errno.ENOTEMPTY, os.rename, "one", "full")
        os.rename("full", "one")
        self.assertEqual(os.listdir("one"), ["file"])

    def test_rename_noreplace(self):
        self.write("a", b"a")
        self.write("b", b"b")
        self.fails(errno.EEXIST, renameat2, "a", "b", RENAME_NOREPLACE)
        renameat2("a", "c", RENAME_NOREPLACE)
        self.assertEqual((sorted(os.listdir()), self.read("b")), (["b", "c"], b"b"))

    def test_rename_exchange(self):
        os.makedirs("one/dir")
        os.mkdir("two")
        self.write("two/file", b"text")
        renameat2("one/dir", "two/file", RENAME_EXCHANGE)
        self.assertEqual(self.read("one/dir"), b"text")
        self.assertTrue(os.path.isdir("two/file"))
        self.assertEqual((os.stat("one").st_nlink, os.stat("two").st_nlink), (2, 3))
        self.assertTrue(os.path.samefile("two/file/..", "two"))
        self.fails(errno.ENOENT, renameat2, "one/dir", "missing", RENAME_EXCHANGE)
        self.fails(errno.EINVAL, renameat2, "two", "two/file", RENAME_EXCHANGE)

    def test_rename_flags_refused(self):
        self.write("a")
        self.fails(errno.EINVAL, renameat2, "a", "b", RENAME_NOREPLACE | RENAME_EXCHANGE)
        self.fails(errno.EINVAL, renameat2, "a", "b", 0x80)

    def test_readdir(self):
        wanted = {f"name-{i}" for i in range(3000)}
        for name in wanted:
            self.write(name)
        listed = os.listdir()
        self.assertEqual((len(listed), set(listed)), (3000, wanted))
        with os.scandir() as entries:
            self.assertTrue(all(e.is_file() and e.inode() == e.stat().st_ino for e in entries))

    def test_readdir_while_entries_change(self):
        """What is there from the first to the last call is listed exactly once, whatever changes beside it."""
        stay = {f"stay-{i}" for i in range(2000)}
        for name in stay:
            self.write(name)
        stop = threading.Event()

        def change():
            n = 0
            while not stop.is_set():
                self.write(f"come-{n}")
                if n >= 300:
                    os.unlink(f"come-{n - 300}")
                n += 1

        changer = threading.Thread(target=change)
        changer.start()
        try:
            for _ in range(8):
                listed = [e.name for e in os.scandir() if e.name.startswith("stay-")]
                self.assertEqual(len(listed), len(set(listed)))
                self.assertEqual(set(listed), stay)
        finally:
            stop.set()
            changer.join()

    def test_readdir_while_all_is_removed(self):
        for i in range(2500):
            self.write(f"f{i}")
        for entry in os.scandir():
            os.unlink(entry.name)
        self.assertEqual(os.listdir(), [])

    def test_seekdir(self):
        """A position that telldir gave is good after the directory was closed, opened and changed."""
        libc.fdopendir.restype = ctypes.c_void_p
        libc.readdir.restype = ctypes.c_void_p
        libc.telldir.restype = ctypes.c_long
        for f in (libc.readdir, libc.telldir, libc.closedir):
            f.argtypes = [ctypes.c_void_p]
        libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
        for i in range(1000):
            self.write(f"name-{i:04}")

        def names(position, most):
            stream = libc.fdopendir(os.open(".", os.O_RDONLY))
            if position is not None:
                libc.seekdir(stream, position)
            found = []
            while len(found) < most:
                entry = libc.readdir(stream)
                if not entry:
                    break
                found.append(ctypes.string_at(entry + 19).decode())
            position = libc.telldir(stream)
            libc.closedir(stream)
            return found, position

        first, position = names(None, 400)
        for i in range(500):
            self.write(f"more-{i}")
        for name in first[:200]:
            if name.startswith("name"):
                os.unlink(name)
        rest, _ = names(position, 10000)
        listed = [n for n in first + rest if n.startswith("name")]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual(len(listed), 1000)

    def test_long_names(self):
        longest = "n" * 255
        self.write(longest, b"text")
        os.rename(longest, "m" * 255)
        self.assertEqual(os.listdir(), ["m" * 255])
        self.fails(errno.ENAMETOOLONG, os.stat, "n" * 256)
        self.fails(errno.ENAMETOOLONG, os.mkdir, "n" * 256)
        for i in range(300):
            self.write(f"{i:0255}")
        self.assertEqual(len(os.listdir()), 301)
        every = bytes(b for b in range(1, 256) if b != ord("/"))
        self.write(every)
        self.assertIn(every, os.listdir(b"."))

    def test_deep_tree(self):
        depth = 600
        for i in range(depth):
            os.mkdir(f"level-{i}")
            os.chdir(f"level-{i}")
        self.write("bottom", b"deep")
        os.chdir(self.dir)
        fd = self.open(".", os.O_RDONLY)
        for i in range(depth):
            below = os.open(f"level-{i}", os.O_RDONLY, dir_fd=fd)
            self.addCleanup(os.close, below)
            self.assertEqual(os.fstat(fd).st_ino, os.stat("..", dir_fd=below).st_ino)
            fd = below
        self.assertEqual(os.read(self.open(f"/proc/self/fd/{fd}/bottom", os.O_RDONLY), 9), b"deep")

    def test_handles(self):
        """Handles as an NFS server keeps them: good after renames, stale once the file is gone."""
        os.mkdir("dir")
        self.write("dir/file", b"by handle")
        handle, directory = name_to_handle("dir/file"), name_to_handle("dir")
        os.rename("dir", "moved")
        os.rename("moved/file", "moved/other")
        fd = open_by_handle(handle, os.O_RDONLY)
        self.assertEqual(os.read(fd, 20), b"by handle")
        os.close(fd)
        fd = open_by_handle(directory, os.O_RDONLY | os.O_DIRECTORY)
        self.assertEqual(os.listdir(fd), ["other"])
        os.close(fd)
        os.unlink("moved/other")
        self.fails(errno.ESTALE, open_by_handle, handle, os.O_RDONLY)
        # A new file that takes over the inode number is another file.
        for i in range(100):
            self.write(f"new{i}")
        self.fails(errno.ESTALE, open_by_handle, handle, os.O_RDONLY)

    def test_sticky_directory(self):
        os.mkdir("tmp")
        os.chmod("tmp", 0o1777)
        self.assertEqual(as_user(FIRST, lambda: os.mkdir("tmp/mine")), 0)
        self.assertIn(as_user(SECOND, lambda: os.rmdir("tmp/mine")), (errno.EPERM, errno.EACCES))
        self.assertIn(as_user(SECOND, lambda: os.rename("tmp/mine", "tmp/yours")), (errno.EPERM, errno.EACCES))
        self.assertEqual(as_user(FIRST, lambda: os.rmdir("tmp/mine")), 0)

    def test_setgid_directory(self):
        os.mkdir("dir")
        os.chown("dir", -1, SHARED)
        os.chmod("dir", 0o2777)
        self.assertEqual(as_user(FIRST, lambda: os.mkdir("dir/below")), 0)
        self.assertEqual(as_user(FIRST, lambda: os.close(os.open("dir/file", os.O_CREAT, 0o2755))), 0)
        below, file = os.stat("dir/below"), os.stat("dir/file")
        self.assertEqual((below.st_gid, below.st_mode & stat.S_ISGID), (SHARED, stat.S_ISGID))
        # One who is not in the group gives no program its rights.
        self.assertEqual((file.st_gid, file.st_mode & stat.S_ISGID), (SHARED, 0))
