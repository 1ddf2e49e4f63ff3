"""log.py FILE: appends lines, syncs each, and prints its number once that has returned. log.py FILE NUMBER: that file must
hold all lines up to that number, and behind the last that is whole nothing but what the next leaves when it was cut off."""

import os
import sys

SECTOR = 512


def line(number):
    return f"{number:09d} {number * 2654435761 % 2**32:010d}".ljust(200 + number % 300, ".") + "\n"


def first_wrong(has, wanted):
    """The first byte that is another, or is missing."""
    return next((n for n, (one, other) in enumerate(zip(has, wanted)) if one != other), min(len(has), len(wanted)))


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
answered = int(sys.argv[2]) + 1
number = at = 0
wanted = line(number).encode()
while found[at:at + len(wanted)] == wanted:
    at += len(wanted)
    number += 1
    wanted = line(number).encode()
rest = found[at:]
if number < answered:
    wrong = at + first_wrong(rest, wanted)
    sys.exit(f"{number} lines are there, of {answered} that were answered: byte {wrong} is wrong or missing")
# The line that was being written, and nothing behind it: each is synced before the next.
if len(rest) > len(wanted):
    wrong = at + first_wrong(rest, wanted)
    sys.exit(f"byte {wrong} is none of line {number}, and {len(rest) - len(wanted)} bytes are behind it")
# It may have come in part: of each sector what is new, or what was there, which is nothing.
begin = 0
while begin < len(rest):
    end = begin + SECTOR - (at + begin) % SECTOR
    sector, new = rest[begin:end], wanted[begin:end]
    wrong = first_wrong(sector, new)
    if any(sector) and wrong < len(sector):
        sys.exit(f"byte {at + begin + wrong} is {sector[wrong]}, where line {number} has {new[wrong]}")
    begin = end
