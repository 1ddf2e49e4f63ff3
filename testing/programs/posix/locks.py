"""Advisory locks between processes."""

import errno
import fcntl
import os
import signal

from common import *


class Child:
    """A process that does on command what it is told; made before any lock, so that it shares none."""

    def __init__(self, path):
        self.asked, ask = os.pipe()
        answer, self.answered = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ask)
            os.close(answer)
            fd = os.open(path, os.O_RDWR)
            while command := os.read(self.asked, 4096):
                try:
                    result = eval(command.decode(), {"fcntl": fcntl, "fd": fd, "os": os})
                    os.write(self.answered, f"ok {result}".encode())
                except OSError as error:
                    os.write(self.answered, errno.errorcode[error.errno].encode())
            os._exit(0)
        os.close(self.asked)
        os.close(self.answered)
        self.ask, self.answer = ask, answer

    def begin(self, command):
        os.write(self.ask, command.encode())

    def result(self):
        return os.read(self.answer, 4096).decode()

    def do(self, command):
        self.begin(command)
        return self.result()

    def end(self):
        os.close(self.ask)
        # Where a test has failed it may wait for a lock.
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.answer)


class Locks(MountTest):
    def setUp(self):
        super().setUp()
        self.write("file", b"x" * 1000)
        self.first, self.second = Child("file"), Child("file")
        self.addCleanup(self.first.end)
        self.addCleanup(self.second.end)

    def both(self, exclusive, shared, refused):
        self.assertIn("ok", self.first.do(exclusive))
        self.assertEqual(self.second.do(shared), refused)
        return self

    def test_flock(self):
        self.both("fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)", "EAGAIN")
        self.assertIn("ok", self.first.do("fcntl.flock(fd, fcntl.LOCK_SH)"))
        self.assertIn("ok", self.second.do("fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)"))
        self.assertEqual(self.second.do("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "EAGAIN")

    def test_flock_waits(self):
        self.assertIn("ok", self.first.do("fcntl.flock(fd, fcntl.LOCK_EX)"))
        self.second.begin("fcntl.flock(fd, fcntl.LOCK_EX)")
        self.assertIn("ok", self.first.do("fcntl.flock(fd, fcntl.LOCK_UN)"))
        self.assertIn("ok", self.second.result())
        self.assertEqual(self.first.do("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "EAGAIN")

    def test_fcntl_ranges(self):
        self.both("fcntl.lockf(fd, fcntl.LOCK_EX, 10, 100)", "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 105)",
                  "EAGAIN")
        self.assertIn("ok", self.second.do("fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 110)"))
        # A part in the middle is given back.
        self.assertIn("ok", self.first.do("fcntl.lockf(fd, fcntl.LOCK_UN, 2, 104)"))
        self.assertIn("ok", self.second.do("fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 104)"))
        self.assertEqual(self.second.do("fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 103)"), "EAGAIN")

    def test_fcntl_waits(self):
        self.assertIn("ok", self.first.do("fcntl.lockf(fd, fcntl.LOCK_EX)"))
        self.second.begin("fcntl.lockf(fd, fcntl.LOCK_EX, 5, 5)")
        self.assertIn("ok", self.first.do("fcntl.lockf(fd, fcntl.LOCK_UN)"))
        self.assertIn("ok", self.second.result())

    def test_fcntl_deadlock(self):
        self.assertIn("ok", self.first.do("fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)"))
        self.assertIn("ok", self.second.do("fcntl.lockf(fd, fcntl.LOCK_EX, 1, 1)"))
        self.first.begin("fcntl.lockf(fd, fcntl.LOCK_EX, 1, 1)")
        # Whichever of the two waits last is refused; then the other goes on.
        self.second.begin("fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0) or 1")
        import select
        ready, _, _ = select.select([self.first.answer, self.second.answer], [], [])
        loser, other = (self.first, self.second) if self.first.answer in ready else (self.second, self.first)
        self.assertIn(loser.result(), ("EDEADLK", "EDEADLOCK"))
        self.assertIn("ok", loser.do("fcntl.lockf(fd, fcntl.LOCK_UN)"))
        self.assertIn("ok", other.result())

    def test_locks_end_with_the_process(self):
        self.assertIn("ok", self.first.do("fcntl.lockf(fd, fcntl.LOCK_EX)"))
        self.assertIn("ok", self.first.do("fcntl.flock(fd, fcntl.LOCK_EX)"))
        third = Child("file")
        self.addCleanup(third.end)
        third.begin("(fcntl.flock(fd, fcntl.LOCK_EX), fcntl.lockf(fd, fcntl.LOCK_EX))")
        os.kill(self.first.pid, signal.SIGKILL)
        self.assertIn("ok", third.result())

    def test_open_file_description_locks(self):
        import struct
        set_lock = 37
        whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        one, other = self.open("file", os.O_RDWR), self.open("file", os.O_RDWR)
        fcntl.fcntl(one, set_lock, whole)
        self.fails(errno.EAGAIN, fcntl.fcntl, other, set_lock, whole)
        self.assertEqual(self.second.do("fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)"), "EAGAIN")
