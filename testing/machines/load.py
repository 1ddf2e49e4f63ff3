#!/usr/bin/env python3
"""A load whose every step has a number, and what may be found of it after a loss of power.

`load.py make DIR` lays out what the load works on. `load.py work DIR ACKS [COUNT]` works in DIR, as two processes, until it
is killed or each has done COUNT operations, and tells of each that has returned: a line of the file ACKS, or a sector of
its own if that is a block device, past all caches. `NAMES=1`: directories are synced too, where names survive by that alone.
`load.py judge DIR` says which number each process had come to, and fails where what is there contradicts that.

`LOAD` is one of loads/: `files` (the usual one), `sqlite`, `git`, `mail`, `postgres`. testing/src/replay judges the same."""
import importlib
import os
import sys

from loads.common import PROCESSES, teller


def work(load, top, acks, count):
    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if child == 0:
            load.work(top, process, teller(acks), count, os.environ.get("NAMES") == "1")
            os._exit(0)
        children.append(child)
    # All of them, before anybody goes.
    if any([os.waitpid(child, 0)[1] for child in children]):
        sys.exit("a process of the load has failed")


def main():
    task, top = sys.argv[1:3]
    load = importlib.import_module("loads." + os.environ.get("LOAD", "files"))
    if task == "judge":
        with load.serve(top):
            for process in range(PROCESSES):
                print("state", process, load.judge(top, process))
        return
    load.make(top)
    directory = os.open(top, os.O_RDONLY)
    os.fsync(directory)
    if task == "work":
        with load.serve(top):
            work(load, top, sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else None)


main()
