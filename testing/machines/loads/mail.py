"""A store of mail, as Maildir has it, of three boxes. Operations take turns: a message is delivered (written to tmp, synced,
linked or renamed to new, new is synced); that of SEEN before is read and marked as seen (renamed to cur, which is
synced); that of KEEP before is removed (cur is synced). KEEP messages are there before the first operation, so that each
changes something. testing/src/replay/mail.rs judges the same."""
import os
import sys

from .common import KEEP, PROCESSES, content, serve, sync  # noqa: F401

BOXES, SEEN = 3, 3


def box(top, process, message):
    return f"{top}/d{process}/box{message % BOXES}"


def state(number):
    """What is there after so many operations: messages and where each is."""
    delivered, seen, removed = KEEP + (number + 2) // 3, KEEP - SEEN + (number + 1) // 3, number // 3
    return {message: f"cur/{message}:2,S" if message <= seen else f"new/{message}" for message in range(removed + 1, delivered + 1)}


def deliver(top, process, message):
    here = box(top, process, message)
    # A power cut may have left it.
    if os.path.exists(f"{here}/tmp/{message}"):
        os.unlink(f"{here}/tmp/{message}")
    new = os.open(f"{here}/tmp/{message}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(new, content(process, message))
    os.fsync(new)
    os.close(new)
    if message % 2:
        os.link(f"{here}/tmp/{message}", f"{here}/new/{message}")
        os.unlink(f"{here}/tmp/{message}")
    else:
        os.rename(f"{here}/tmp/{message}", f"{here}/new/{message}")
    return sync(f"{here}/new")


def see(top, process, message):
    here = box(top, process, message)
    with open(f"{here}/new/{message}", "rb") as file:
        if file.read() != content(process, message):
            sys.exit(f"{here}/new/{message} has another content")
    os.rename(f"{here}/new/{message}", f"{here}/cur/{message}:2,S")
    return sync(f"{here}/cur")


def remove(top, process, message):
    here = box(top, process, message)
    os.unlink(f"{here}/cur/{message}:2,S")
    return sync(f"{here}/cur")


def make(top):
    for process in range(PROCESSES):
        if os.path.exists(f"{top}/d{process}"):
            continue
        for number in range(BOXES):
            for name in ("tmp", "new", "cur"):
                os.makedirs(f"{top}/d{process}/box{number}/{name}")
        for message in range(1, KEEP + 1):
            deliver(top, process, message)
        for message in range(1, KEEP - SEEN + 1):
            see(top, process, message)
    os.sync()


def work(top, process, tell, count, _):
    number = judge(top, process)
    tell(process, 0, sync(f"{top}/d{process}"))
    while count is None or number < count:
        number += 1
        turn, step = divmod(number - 1, 3)
        if step == 0:
            begun = deliver(top, process, KEEP + 1 + turn)
        elif step == 1:
            begun = see(top, process, KEEP - SEEN + 1 + turn)
        else:
            begun = remove(top, process, 1 + turn)
        tell(process, number, begun)


def judge(top, process):
    there, left = {}, []
    for number in range(BOXES):
        here = f"{top}/d{process}/box{number}"
        left += [int(name) for name in os.listdir(f"{here}/tmp")]
        for place in ("new", "cur"):
            for name in os.listdir(f"{here}/{place}"):
                message = int(name.split(":")[0])
                if message in there or message % BOXES != number:
                    sys.exit(f"{here}/{place}/{name} is there as well")
                there[message] = f"{place}/{name}"
                with open(f"{here}/{place}/{name}", "rb") as file:
                    if file.read() != content(process, message):
                        sys.exit(f"{here}/{place}/{name} has another content")
    turns = max(there, default=0) - KEEP
    for number in range(max(0, 3 * turns - 2), 3 * turns + 1):
        if there == state(number):
            break
    else:
        sys.exit(f"{top}/d{process}: there is {there}, which is no state of {turns} deliveries")
    # Of a delivery that was under way.
    if left not in ([], [KEEP + turns + (number % 3 == 0)]) or (left and number % 3 == 2):
        sys.exit(f"{top}/d{process}: {left} is left in tmp after {number} operations")
    return number
