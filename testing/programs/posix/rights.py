"""What users may do, by chance: the same calls of several users here and on tmpfs return the same, and leave the same.

NARUFS_TEST_SEED is what they are drawn by, NARUFS_TEST_CALLS how many there are for each of the seeds. With
NARUFS_TEST_ERRORS=any one error is as good as another: where the server checks permissions, and a call has two reasons to
fail, the kernel may find the other one first."""

import errno
import multiprocessing
import os
import random
import stat
import struct
import unittest

from common import *

REFERENCE = os.environ.get("NARUFS_TEST_REFERENCE")
CALLS = int(os.environ.get("NARUFS_TEST_CALLS", "700"))
SEED = int(os.environ.get("NARUFS_TEST_SEED", "1"))
SEEDS = 3
ANY_ERROR = os.environ.get("NARUFS_TEST_ERRORS") == "any"

# Root, the owner of most, one who shares a group with him, and a stranger.
USERS = [(0, 0, []), (FIRST, FIRST, [SHARED]), (SECOND, SECOND, [SHARED]), (64104, 64104, [])]
OWNERS = [-1, 0, FIRST, SECOND, SHARED]
# The first two are directories for the most part.
NAMES = ["a", "b", "c", "d"]
PATHS = NAMES * 2 + [f"{one}/{other}" for one in "ab" for other in NAMES] * 2 + ["c/a"]
MODES = [0o777] * 4 + [0o755, 0o700, 0o666, 0o1777, 0o2775, 0o2777, 0o2070, 0o4711, 0o6777, 0o770, 0o007]
UMASKS = [0o022, 0o077, 0, 0o027]
ATTRIBUTES = ["user.one", "user.two", "trusted.one"]
LISTS = ["system.posix_acl_access", "system.posix_acl_default"]
OPENS = [
    os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_CREAT,
    os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_NOFOLLOW,
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
]
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def access_list(chance):
    """An access list, whole or not quite."""
    entries = [(USER_OBJ, -1), (GROUP_OBJ, -1), (OTHER, -1)]
    named = [(USER, uid) for uid in (FIRST, SECOND) if chance.random() < 0.4]
    named += [(GROUP, gid) for gid in (SHARED, SECOND) if chance.random() < 0.3]
    entries += named
    if named or chance.random() < 0.2:
        entries.append((MASK, -1))
    entries.sort(key=lambda entry: (entry[0], entry[1]))
    if chance.random() < 0.1:
        entries.pop(chance.randrange(len(entries)))
    packed = [struct.pack("<HHI", tag, chance.choice([7, 7, 6, 5, 4, 3, 0]), number & 0xFFFFFFFF) for tag, number in entries]
    return struct.pack("<I", 2) + b"".join(packed)


def opened(path, flags, mode):
    """What becomes of an open file, and what is written through it."""
    # Nobody is at the other end of a pipe.
    fd = os.open(path, flags | os.O_NONBLOCK, mode)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode) and flags & os.O_ACCMODE != os.O_RDONLY:
            return os.write(fd, b"text")
        return len(os.read(fd, 10)) if stat.S_ISREG(os.fstat(fd).st_mode) else sorted(os.listdir(fd))
    finally:
        os.close(fd)


def told(path):
    """What stat(2) says that is not of one file system alone."""
    is_ = os.lstat(path)
    size = is_.st_size if stat.S_ISREG(is_.st_mode) or stat.S_ISLNK(is_.st_mode) else 0
    return (oct(is_.st_mode), is_.st_uid, is_.st_gid, is_.st_nlink, size)


def value(path, name):
    return os.getxattr(path, name, follow_symlinks=False)


CALL = {
    "mkdir": os.mkdir, "mknod": os.mknod, "open": opened, "unlink": os.unlink, "rmdir": os.rmdir, "rename": os.rename,
    "renameat2": renameat2, "link": lambda old, new: os.link(old, new, follow_symlinks=False), "symlink": os.symlink,
    "chmod": os.chmod, "lchown": os.lchown, "truncate": os.truncate, "utime": lambda path, times: os.utime(path, times),
    "setxattr": os.setxattr, "removexattr": os.removexattr, "getxattr": value, "listxattr": lambda path: sorted(os.listxattr(path)),
    "access": lambda path, how: os.access(path, how, effective_ids=True), "listdir": lambda path: sorted(os.listdir(path)),
    "stat": told, "readlink": os.readlink,
}


def drawn(chance):
    """A call, and what it is called with."""
    name = chance.choices(list(CALL), [9, 2, 16, 3, 1, 4, 2, 4, 1, 12, 9, 3, 3, 8, 2, 2, 1, 4, 2, 3, 1])[0]
    path, other, mode = chance.choice(PATHS), chance.choice(PATHS), chance.choice(MODES)
    rest = {
        "mkdir": [mode & 0o1777], "mknod": [mode & 0o777 | chance.choice([stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK])],
        "open": [chance.choice(OPENS), mode & 0o777], "rename": [other],
        "renameat2": [other, chance.choice([RENAME_NOREPLACE, RENAME_EXCHANGE])], "link": [other], "chmod": [mode],
        "lchown": [chance.choice(OWNERS), chance.choice(OWNERS)], "truncate": [chance.choice([0, 3, 5000])],
        "utime": [chance.choice([None, (1, 2)])], "access": [chance.randrange(8)],
    }.get(name, [])
    if name == "lchown" and rest == [-1, -1]:
        # The kernel does not say of a change of nothing whether it is one (docs/POSIX.md).
        rest = [-1, SHARED]
    if name == "symlink":
        return name, [chance.choice(NAMES), path]
    if name in ("setxattr", "removexattr", "getxattr"):
        attribute = chance.choice(ATTRIBUTES + LISTS * 2)
        if name == "removexattr" and attribute == LISTS[0]:
            # Whether that takes setgid from a directory of another group, file systems see differently (tmpfs: yes, ext4: no).
            attribute = LISTS[1]
        rest = [attribute]
        if name == "setxattr":
            rest.append(access_list(chance) if attribute in LISTS else b"value")
    return name, [path, *rest]


def serve(pipe, user):
    """Makes calls as a user: in a directory, with a umask."""
    uid, gid, groups = user
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    while True:
        asked = pipe.recv()
        if asked is None:
            return
        root, umask, name, arguments = asked
        os.fchdir(root)
        os.umask(umask)
        try:
            pipe.send(CALL[name](*arguments))
        except OSError as error:
            pipe.send(("fails", "" if ANY_ERROR else errno.errorcode[error.errno]))


def tree(root):
    """All that is there."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in [".", *directories, *files]:
            path = os.path.join(directory, name)
            attributes = [(name, value(path, name)) for name in sorted(os.listxattr(path, follow_symlinks=False))]
            is_file = stat.S_ISREG(os.lstat(path).st_mode)
            with open(path, "rb") if is_file else open(os.devnull, "rb") as file:
                found[os.path.relpath(path, root)] = (told(path), attributes, file.read())
    return found


@unittest.skipUnless(REFERENCE, "there is nothing to compare with")
class Rights(MountTest):
    def setUp(self):
        super().setUp()
        self.reference = tempfile.mkdtemp(dir=REFERENCE)
        self.addCleanup(shutil.rmtree, self.reference)
        os.chmod(self.reference, 0o755)

    def start(self):
        """A process for each user, which has open what is open now."""
        fork = multiprocessing.get_context("fork")
        self.pipes = []
        for user in USERS:
            ours, theirs = fork.Pipe()
            process = fork.Process(target=serve, args=(theirs, user))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.addCleanup(process.join)
            self.addCleanup(ours.send, None)

    def call(self, user, root, umask, name, arguments):
        self.pipes[user].send((root, umask, name, arguments))
        return self.pipes[user].recv()

    def compare(self, seed):
        rooms = [tempfile.mkdtemp(dir=path) for path in (self.dir, self.reference)]
        for room in rooms:
            os.chmod(room, 0o777)
        roots = [self.open(room, os.O_RDONLY | os.O_DIRECTORY) for room in rooms]
        self.start()
        chance, log, done = random.Random(seed), [], 0
        for number in range(CALLS):
            user = chance.choices(range(len(USERS)), [5, 5, 4, 2])[0]
            umask = chance.choice(UMASKS)
            name, arguments = drawn(chance)
            here, there = (self.call(user, root, umask, name, arguments) for root in roots)
            log.append(f"{USERS[user][0]}, umask {umask:o}: {name}{tuple(arguments)}: {there}")
            before = "\n".join(log[-40:])
            self.assertEqual(here, there, f"seed {seed}, call {number}:\n{before}")
            done += not (isinstance(there, tuple) and there[0] == "fails")
            if number % 8 == 7 or number == CALLS - 1:
                here, there = map(tree, rooms)
                other = {path: (here.get(path), there.get(path)) for path in here | there if here.get(path) != there.get(path)}
                self.assertEqual(other, {}, f"seed {seed}, after call {number}:\n{before}")
        self.assertGreater(done, CALLS / 10, "hardly any call does anything")

    def test_users_as_on_tmpfs(self):
        for seed in range(SEED, SEED + SEEDS):
            with self.subTest(seed=seed):
                self.compare(seed)
