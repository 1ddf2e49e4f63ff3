#!/usr/bin/env python3
"""moments.py PIDFILE MEMORY RECORD TOLD DIR COUNT: from the word `begun` of a machine on, stops its QEMU at random moments,
COUNT of them or until it ends, every second one when something was just written, and copies the journal of narufs in its
NVDIMM's file MEMORY: to DIR, under the bytes that RECORD has by then. testing/src/replay/moments.rs reads them."""
import mmap
import os
import random
import signal
import sys
import time

MAGIC = b"NARURING"
# A journal of 2 MiB and its header.
JOURNAL = 4 << 20
BLOCK = 4096


def has_begun(told):
    try:
        with open(told) as file:
            return "begun" in file.read()
    except FileNotFoundError:
        return False


def state(path):
    with open(f"{path}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def stop(pid):
    """Only when each thread stands still nothing changes any more."""
    os.kill(pid, signal.SIGSTOP)
    tasks = f"/proc/{pid}/task"
    while any(state(f"{tasks}/{task}") not in "tTZX" for task in os.listdir(tasks)):
        time.sleep(0.001)


def journal(memory):
    """Its header is the first block that has the magic number, behind its checksum and version."""
    with mmap.mmap(memory.fileno(), 0, prot=mmap.PROT_READ) as all_of_it:
        at = all_of_it.find(MAGIC)
        while at >= 0 and at % 4096 != 8:
            at = all_of_it.find(MAGIC, at + 1)
        if at < 0:
            sys.exit("moments: there is no journal in the memory")
        return at - 8


def written(record):
    """Waits until more than an acknowledgement has come to the record at once, for a second at the most."""
    size, until = os.stat(record).st_size, time.monotonic() + 1
    while time.monotonic() < until:
        before, size = size, os.stat(record).st_size
        if size - before > BLOCK:
            return
        time.sleep(0.0005)


def main():
    pidfile, memory, record, told, directory, count = sys.argv[1:]
    started = False
    while not has_begun(told):
        # QEMU takes it away when it ends.
        if started and not os.path.exists(pidfile):
            return
        started = os.path.exists(pidfile)
        time.sleep(0.1)
    with open(pidfile) as file:
        pid = int(file.read())
    with open(memory, "rb") as file:
        at = journal(file)
        for number in range(int(count)):
            time.sleep(random.uniform(0.05, 0.35))
            # Most of the time a mount with such a journal writes nothing to its disk.
            if number % 2:
                written(record)
            try:
                stop(pid)
            except (ProcessLookupError, FileNotFoundError):
                break
            try:
                file.seek(at)
                with open(f"{directory}/{os.stat(record).st_size}", "wb") as copy:
                    copy.write(file.read(JOURNAL))
            finally:
                os.kill(pid, signal.SIGCONT)


main()
