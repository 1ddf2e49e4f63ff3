#!/usr/bin/env bash
# Shows narufs at work: a real job, a kill in the middle of a second one, recovery, verification, latencies.
# Leaves ./mnt mounted; `make stop` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
N=$PWD/target/release/narufs
DEMO=$PWD/target/demo
MNT=$PWD/mnt
IMAGE=$DEMO/disk.narufs
RING=/dev/shm/narufs-demo-$$.ring

fail() { echo "make run: $*" >&2; exit 1; }
[[ $(id -u) -eq 0 ]] || command -v fusermount3 >/dev/null || fail "mounting needs root or fusermount3 (apt-get install fuse3)"
[[ -e /dev/fuse ]] || fail "/dev/fuse is missing: load the fuse module (modprobe fuse)"
scripts/stop.sh >/dev/null 2>&1 || true
mkdir -p "$DEMO" "$MNT"
cleanup() {
    if mountpoint -q "$DEMO/nvm" 2>/dev/null; then "$N" umount "$DEMO/nvm" || umount -l "$DEMO/nvm" || true; fi
    rm -f "$RING" "$DEMO/nvm.narufs"
    rm -rf "$DEMO/host"
}
trap cleanup EXIT

free_mib=$(df -Pm "$DEMO" | awk 'NR==2 {print $4}')
size_mib=8192
(( free_mib - 2048 < size_mib )) && size_mib=$(( free_mib - 2048 ))
(( size_mib >= 1024 )) || fail "$DEMO has only $free_mib MiB free; 3 GiB are needed"

echo "== an image of $size_mib MiB, mounted at ./mnt"
"$N" mkfs "$IMAGE" --size "${size_mib}M" --label demo --force
"$N" mount "$IMAGE" "$MNT"

echo "== first job: unpack source packages, search them, commit to SQLite"
crates=( "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/*.crate )
[[ -e ${crates[0]} ]] || fail "no source packages in the cargo registry"
crates=( "${crates[@]:0:150}" )
t0=$(date +%s.%N)
mkdir "$MNT/src"
for c in "${crates[@]}"; do tar -xzf "$c" -C "$MNT/src"; done
t1=$(date +%s.%N)
files=$(find "$MNT/src" -type f | wc -l)
found=$(grep -rl unsafe "$MNT/src" | wc -l)
t2=$(date +%s.%N)
transactions() { # N: one commit each
    echo "PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body TEXT);"
    for _ in $(seq "$1"); do echo "INSERT INTO t(body) VALUES (hex(randomblob(200)));"; done
}
transactions 1000 | sqlite3 "$MNT/first.db"
t3=$(date +%s.%N)
(cd "$MNT" && find src first.db -type f -print0 | sort -z | xargs -0 sha256sum) > "$DEMO/sums"
"$N" sync "$MNT"

echo "== second job: its server is killed, and goes on; then everything is killed"
stat_of() { # NAME
    "$N" stats "$MNT" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
committed() { # N: waits until so many transactions were, or the writer has ended
    while [[ $(wc -l < "$DEMO/committed") -lt $1 ]] && kill -0 "$writer" 2>/dev/null; do read -rt 0.05 <> <(:) || true; done
}
(cp -r "$MNT/src" "$MNT/copy" >/dev/null 2>&1 || true) &
copier=$!
# Every id that sqlite3 prints was committed with fsync before: -bail ends it at an INSERT that fails. (RETURNING
# would print an id before its commit.)
{ echo "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT);"
  while :; do printf '%s\n' "INSERT INTO t(body) VALUES (hex(randomblob(200)));" "SELECT last_insert_rowid();"; done; } 2>/dev/null |
    sqlite3 -bail "$MNT/second.db" > "$DEMO/committed" 2>/dev/null &
writer=$!
committed 300
pause="not here: it takes Linux 6.9"
if supervisor=$(stat_of supervisor_pid) && (( supervisor )); then
    kill -9 "$(stat_of server_pid)"
    committed 600
    kill -0 "$writer" 2>/dev/null || fail "the database did not survive its file system's server"
    pause="$(( $(stat_of longest_pause_ns) / 1000000 )) ms"
fi
# Of supervisor and server each would replace the other: one is stopped first.
server=$(stat_of server_pid)
(( ! supervisor )) || kill -STOP "$supervisor"
kill -9 "$server"
(( ! supervisor )) || kill -9 "$supervisor"
wait "$copier" "$writer" 2>/dev/null || true
promised=$(tail -n 1 "$DEMO/committed")
t4=$(date +%s.%N)
"$N" mount "$IMAGE" "$MNT"
t5=$(date +%s.%N)
(cd "$MNT" && sha256sum --quiet -c "$DEMO/sums") || fail "a file that had been synced differs"
[[ $(sqlite3 "$MNT/second.db" 'PRAGMA integrity_check') == ok ]] || fail "the database is damaged"
kept=$(sqlite3 "$MNT/second.db" 'SELECT max(id) FROM t')
(( kept >= promised )) || fail "$promised transactions were committed, $kept are there"
rm -rf "$MNT/copy"

echo "== latency of pwrite 4 KiB + fsync"
mkdir -p "$DEMO/host" "$DEMO/nvm"
"$N" mkfs "$DEMO/nvm.narufs" --size 512M --journal-emulated "$RING" --journal-size 64M --force >/dev/null
"$N" mount "$DEMO/nvm.narufs" "$DEMO/nvm"
latency() { # DIR: p50 and p99 in us
    "$N" bench DWSL --spread --size 4M --repeat 1 --seconds 3 --target "$1" --json - |
        python3 -c 'import json, sys; r = json.load(sys.stdin)[0]; print("%.1f %.1f" % (r["p50_us"], r["p99_us"]))'
}
host=$(latency "$DEMO/host")
ssd=$(latency "$MNT")
nvm=$(latency "$DEMO/nvm")
secs() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f s", b - a }'; }

cat <<REPORT

narufs ------------------------------------------------------------------
  unpacked ${#crates[@]} source packages, $files files     $(secs "$t0" "$t1")
  searched them ($found files match)                $(secs "$t1" "$t2")
  1000 SQLite transactions                     $(secs "$t2" "$t3")
  server killed with SIGKILL: programs paused  $pause
  everything killed, mounted again in          $(secs "$t4" "$t5")
  checksums of $(wc -l < "$DEMO/sums") synced files                all equal
  SQLite: $promised commits promised, $kept found    integrity ok

  pwrite 4 KiB + fsync              p50         p99
$(printf '  %-28s %7s us  %8s us\n' \
    "host ($(stat -f -c %T "$DEMO"))" ${host} \
    "narufs, SSD ring" ${ssd} \
    "narufs, emulated NVM *" ${nvm})
  * survives the end of the process, not of the machine

The mount stays at ./mnt: use it as any directory.
  $N stats mnt      its counters
  make stop                         unmount and remove it
-------------------------------------------------------------------------
REPORT
