"""flat.py take LOG SECONDS LIFE OPTIONS MIB SERVER SUPERVISOR SCRATCH-SERVER DIR IMAGE STAGING SCRATCH: one line of what a
mount has at the end of a life. flat.py judge LOG: with the same options, the last third of the lives has no more than the
first, but for what is granted below and, of memory, what the image has grown by: a cache that is not told how much it may have
keeps all that was written. Prints both."""

import csv
import os
import sys

# What is counted, and what is no growth: so many, and so much of the first.
COLUMNS = {
    "server_kib": (8192, 0.10),
    "server_descriptors": (0, 0),
    "supervisor_kib": (2048, 0.10),
    "supervisor_descriptors": (0, 0),
    "supervisor_threads": (0, 0),
    "scratch_kib": (8192, 0.10),
    "scratch_descriptors": (0, 0),
    "scratch_used_kib": (256, 0.01),
    "used_kib": (256, 0.01),
    "used_inodes": (0, 0),
    "image_kib": (4096, 0.05),
    "staging_kib": (1024, 0),
}
ALSO = ["seconds", "life", "options", "size_mib", "server_threads"]


def memory(pid):
    """Of the process alone: what it shares with a successor, or as a file, counts there."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        of = {name: int(kib) for name, kib, *_ in (line.replace(":", "").split() for line in lines if line.endswith("kB\n"))}
    return of["Private_Clean"] + of["Private_Dirty"]


def entries(pid, what):
    return len(os.listdir(f"/proc/{pid}/{what}"))


def allocated(path):
    return os.stat(path).st_blocks // 2 if os.path.exists(path) else 0


def used(path):
    room = os.statvfs(path)
    return (room.f_blocks - room.f_bfree) * room.f_frsize >> 10


def take(log, seconds, life, options, mib, server, supervisor, scratch_server, directory, image, staging, scratch):
    room = os.statvfs(directory)
    row = {
        "seconds": seconds, "life": life, "options": options, "size_mib": mib,
        "server_kib": memory(server), "server_threads": entries(server, "task"), "server_descriptors": entries(server, "fd"),
        "supervisor_kib": memory(supervisor), "supervisor_threads": entries(supervisor, "task"),
        "supervisor_descriptors": entries(supervisor, "fd"),
        "scratch_kib": memory(scratch_server), "scratch_descriptors": entries(scratch_server, "fd"),
        "scratch_used_kib": used(scratch),
        "used_kib": used(directory), "used_inodes": room.f_files - room.f_ffree,
        "image_kib": allocated(image), "staging_kib": allocated(staging),
    }
    is_new = not os.path.exists(log)
    with open(log, "a", newline="") as out:
        writer = csv.DictWriter(out, ALSO + list(COLUMNS), delimiter="\t", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def judge(log):
    with open(log, newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    status = 0
    print(f"{'':24} {'options':>44} {'first':>9} {'last':>9}")
    for column, (flat, share) in COLUMNS.items():
        for options in sorted({row["options"] for row in rows}):
            of = [row for row in rows if row["options"] == options]
            third = max(1, len(of) // 3)
            most = lambda what, some: max(int(row[what]) for row in some)
            first, last = most(column, of[:third]), most(column, of[-third:])
            larger = (most("size_mib", of) - most("size_mib", of[:third])) << 10 if column == "server_kib" else 0
            grown = last > first + flat + first * share + larger
            status |= grown
            print(f"{column:24} {options:>44} {first:9} {last:9}{'  GROWN' if grown else ''}")
    sys.exit(status)


{"take": take, "judge": judge}[sys.argv[1]](*sys.argv[2:])
