#!/usr/bin/env python3
"""`race.py HERE THERE COUNT`: makes, renames and removes COUNT files in the directory HERE, and lists it meanwhile by its other
name THERE, which another machine has it by.

Each listing has every file that was there from before it began until after it ended, once, and none that was gone before
it began.
"""

import os
import sys
import threading

here, there, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
lock = threading.Lock()
# When, in steps, each name was certainly there, was perhaps no more, and was certainly gone.
step, born, dying, gone = 0, {}, {}, {}
over = threading.Event()
faults = []
listings = 0


def note(times, name):
    global step
    with lock:
        step += 1
        times[name] = step


def change():
    for number in range(count):
        name = f"f{number:05}"
        with open(f"{here}/{name}", "w") as file:
            file.write(name)
        note(born, name)
        if number % 3 == 1:
            note(dying, name)
            os.unlink(f"{here}/{name}")
            note(gone, name)
        elif number % 3 == 2:
            note(dying, name)
            os.rename(f"{here}/{name}", f"{here}/r{number:05}")
            note(gone, name)
            note(born, f"r{number:05}")


def look():
    global listings
    while not over.is_set():
        with lock:
            begin, before, left = step, dict(born), dict(gone)
        names = os.listdir(there)
        with lock:
            doomed = dict(dying)
        found = set(names)
        if len(found) != len(names):
            faults.append(f"a name is twice in {len(names)}")
        missing = [name for name in before if name not in doomed and name not in found]
        ghosts = [name for name in found if name in left]
        if missing or ghosts:
            faults.append(f"listing from step {begin}: missing {missing[:5]}, gone and there {ghosts[:5]}")
        listings += 1


def changing():
    try:
        change()
    finally:
        over.set()


maker = threading.Thread(target=changing)
maker.start()
look()
maker.join()
expected = sorted(name for name in born if name not in gone)
for path in (here, there):
    if sorted(os.listdir(path)) != expected:
        faults.append(f"{path} does not have the {len(expected)} files in the end")
if len(born) < count or faults:
    sys.exit("\n".join(faults[:10]) or "the changes failed")
print(f"{listings} listings")
