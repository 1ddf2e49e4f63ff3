"""log.py FILE: appends lines, syncs each, and prints its number once that has returned. log.py FILE NUMBER: that file must
hold all lines up to that number, and of later ones no more than a beginning of them."""

import os
import sys


def line(number):
    return f"{number:09d} {number * 2654435761 % 2**32:010d}".ljust(200 + number % 300, ".") + "\n"


path = sys.argv[1]
if len(sys.argv) == 2:
    out = open(path, "w")
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    number = 0
    while True:
        out.write(line(number))
        out.flush()
        os.fsync(out.fileno())
        print(number, flush=True)
        number += 1
with open(path, "rb") as file:
    found = file.read()
number = at = 0
while at < len(found):
    wanted = line(number).encode()
    if found[at:at + len(wanted)] != wanted:
        # What was not answered may have come in part.
        break
    at += len(wanted)
    number += 1
if number <= int(sys.argv[2]):
    sys.exit(f"{number} lines are there, of {int(sys.argv[2]) + 1} that were answered")
if found[at:] and (len(found) > at + 2000):
    sys.exit(f"{len(found) - at} bytes that nobody wrote")
