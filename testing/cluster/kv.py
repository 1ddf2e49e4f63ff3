#!/usr/bin/env python3
"""Clients of etcd, and what they were promised: `kv.py write LOG ENDPOINT...` writes until it is told to end by
SIGTERM; `kv.py verify LOG ENDPOINT...` looks for what was acknowledged on each member, and compares their hashes.

One writer for each endpoint, which uses no other: what its client sees of a fault is seen. A key is tried until it is
acknowledged, then it is noted in LOG/acked-N with its revision; each failed try is a line of LOG/errors-N. Each
hundredth acknowledgement is said on standard output. A lease with a key is kept alive all the while.
"""

import base64
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading

LEASE, LEASE_SECONDS = 4711, 120
stop = threading.Event()


def b64(text):
    return base64.b64encode(text.encode()).decode()


def value_of(key):
    """Longer than a page now and then, and the same for every try."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return digest * (1 + int(digest[0], 16) * 6)


class Member:
    """One endpoint, by its JSON gateway."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.link = None

    def call(self, path, body):
        try:
            if self.link is None:
                self.link = http.client.HTTPConnection(self.endpoint, timeout=60)
            self.link.request("POST", "/v3/" + path, json.dumps(body), {"Content-Type": "application/json"})
            answer = self.link.getresponse()
            content = json.loads(answer.read())
        except BaseException:
            self.link = None
            raise
        if answer.status != 200:
            raise OSError(f"{path}: {content.get('error', content)}")
        return content


class Progress:
    def __init__(self):
        self.count = 0
        self.lock = threading.Lock()

    def one(self):
        with self.lock:
            self.count += 1
            if self.count % 100 == 0:
                print(self.count, flush=True)


def write(log, number, endpoint, progress):
    member = Member(endpoint)
    with open(f"{log}/acked-{number}", "a", buffering=1) as acked, open(f"{log}/errors-{number}", "a", buffering=1) as errors:
        key_number = 0
        while not stop.is_set():
            key = f"w{number}/{key_number:08}"
            try:
                answer = member.call("kv/put", {"key": b64(key), "value": b64(value_of(key))})
            except (OSError, ValueError, http.client.HTTPException) as error:
                errors.write(f"{key} {error!r}\n")
                # Whoever is down is not asked all the time.
                stop.wait(0.05)
                continue
            acked.write(f"{key} {answer['header']['revision']}\n")
            key_number += 1
            progress.one()


def keep_lease(log, endpoints):
    members = [Member(endpoint) for endpoint in endpoints]
    turn = 0
    with open(f"{log}/lease", "a", buffering=1) as notes:
        while not stop.wait(0.5):
            turn += 1
            try:
                answer = members[turn % len(members)].call("lease/keepalive", {"ID": LEASE})
                notes.write(f"kept {answer['result'].get('TTL')}\n")
            except (OSError, ValueError, http.client.HTTPException) as error:
                notes.write(f"error {error!r}\n")


def writers(log, endpoints):
    member = Member(endpoints[0])
    member.call("lease/grant", {"ID": LEASE, "TTL": LEASE_SECONDS})
    member.call("kv/put", {"key": b64("leased"), "value": b64("kept"), "lease": LEASE})
    progress = Progress()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = [threading.Thread(target=write, args=(log, n, e, progress)) for n, e in enumerate(endpoints, 1)]
    threads.append(threading.Thread(target=keep_lease, args=(log, endpoints)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def everything(member):
    """The keys that a member has itself, asking no other, by their names."""
    answer = member.call("kv/range", {"key": b64("w"), "range_end": b64("x"), "serializable": True})
    found = {}
    for pair in answer.get("kvs", []):
        key = base64.b64decode(pair["key"]).decode()
        found[key] = (base64.b64decode(pair["value"]).decode(), int(pair["mod_revision"]))
    return found


def hash_at(member, revision):
    """The hash of everything at a revision, once the member has come so far. The gateway has no way to ask for it."""
    member.call("kv/range", {"key": b64("leased")})
    command = ["etcdctl", "--endpoints", member.endpoint, "endpoint", "hashkv", "--rev", str(revision), "-w", "json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)[0]["HashKV"]
    return answer["hash"], answer["compact_revision"]


def verify(log, endpoints):
    members = [Member(endpoint) for endpoint in endpoints]
    promised = {}
    for number in range(1, len(endpoints) + 1):
        # What a writer notes while this reads is for the next time.
        with open(f"{log}/acked-{number}") as acked:
            promised.update(line.split() for line in acked if line.endswith("\n"))
    first = members[0].call("kv/range", {"key": b64("leased")})
    if not first.get("kvs"):
        sys.exit("the key of the lease is gone, which was kept alive")
    revision = first["header"]["revision"]
    hashes = {member.endpoint: hash_at(member, revision) for member in members}
    if len(set(hashes.values())) != 1:
        sys.exit(f"hashes at revision {revision} differ: {hashes}")
    for member in members:
        found = everything(member)
        for key, told in promised.items():
            value, at = found.get(key, ("", -1))
            if value != value_of(key) or at < int(told):
                sys.exit(f"{member.endpoint}: {key}, acknowledged at revision {told}, is {value[:16]!r} of {at}")
    print(f"{len(promised)} acknowledged writes on each of {len(members)} members, hash "
          f"{next(iter(hashes.values()))[0]} at revision {revision}")


if __name__ == "__main__":
    command, log, *endpoints = sys.argv[1:]
    os.makedirs(log, exist_ok=True)
    {"write": writers, "verify": verify}[command](log, endpoints)
