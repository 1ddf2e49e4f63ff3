#!/usr/bin/env bash
# The real Prometheus scrapes a mount, through a kill of its server too; what it would complain of in the metrics, the
# alert rules and the dashboard is complained of here. Addresses that cannot be had are refused in one line.
source "$(dirname "$0")/lib.sh"
[[ $FS == narufs ]] || skip "other file systems have no such metrics"
for program in prometheus promtool; do
    command -v "$program" >/dev/null || lacks "$program (Debian: apt-get install prometheus)"
done
monitoring=$ROOT/docs/monitoring

promtool check rules "$monitoring/alerts.yml" >"$WORK/rules" 2>&1 || fail "alert rules: $(cat "$WORK/rules")"
promtool test rules "$monitoring/alerts.test.yml" >"$WORK/rules" 2>&1 || fail "alert rules: $(cat "$WORK/rules")"

# Two ports that nobody has, both held while they are chosen.
read -r port web < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[s.getsockname()[1] for s in held])')

volume data 256M
attach data "supervise=yes,metrics=$port"
work() { # some of everything that is counted
    mkdir -p "$WORK/data/directory"
    for n in {1..50}; do echo "$n" >"$WORK/data/directory/$n"; done
    python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for n in range(20):
    os.pwrite(fd, b"x" * 65536, n << 16)
    os.fsync(fd)
os.pread(fd, 1 << 20, 0)' "$WORK/data/file"
    ls -l "$WORK/data/directory" >/dev/null
    "$NARUFS" sync "$WORK/data"
}
work

"$NARUFS" metrics "$WORK/data" >"$WORK/metrics"
promtool check metrics <"$WORK/metrics" >"$WORK/lint" 2>&1 || fail "metrics: $(cat "$WORK/lint")"
[[ ! -s $WORK/lint ]] || fail "metrics: $(cat "$WORK/lint")"
series=$(grep -vc '^#' "$WORK/metrics")

# Who else wants the address is told, in one line, and has no mount.
mkdir -p "$WORK/other"
refused() { # PATTERN METRICS
    local status=0
    "$NARUFS" mount --scratch --memory 64M "$WORK/other" -o "metrics=$2" >"$WORK/out" 2>"$WORK/err" || status=$?
    [[ $status -ne 0 ]] || { "$NARUFS" umount "$WORK/other"; fail "metrics=$2 is not refused"; }
    [[ $(wc -l <"$WORK/err") -eq 1 ]] && grep -q -- "$1" "$WORK/err" || fail "metrics=$2: $(cat "$WORK/err")"
}
refused "another process listens there" "$port"
refused "this machine has no such address" 192.0.2.1:9101
refused "say metrics=9101" nowhere
refused "say metrics=9101" unix:relative

# A socket, which is gone with the mount.
mkdir "$WORK/scratch"
scratch scratch "memory=64M,spill_size=64M,metrics=unix:$WORK/socket"
python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /metrics HTTP/1.1\r\nHost: narufs\r\n\r\n")
sys.stdout.buffer.write(b"".join(iter(lambda: s.recv(65536), b"")).split(b"\r\n\r\n", 1)[1])' \
    "$WORK/socket" >"$WORK/by-socket"
promtool check metrics <"$WORK/by-socket" >"$WORK/lint" 2>&1 || fail "by the socket: $(cat "$WORK/lint")"
grep -q "narufs_info{.*mount=\"$WORK/scratch\"" "$WORK/by-socket" || fail "by the socket: $(head -5 "$WORK/by-socket")"
detach scratch
[[ ! -e $WORK/socket ]] || fail "the socket is left behind"

# Where standard error is the journal of systemd, lines go there by its protocol; where it only was, they do not.
mkdir "$WORK/run"
cat >"$WORK/journal.py" <<'PY'
import os, socket, subprocess, sys
narufs, work = sys.argv[1:]
os.makedirs("/run/systemd/journal")
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.bind("/run/systemd/journal/socket")
journal.settimeout(10)
def said(is_journal):
    with open(f"{work}/journal.err", "w+b") as err:
        is_at = os.fstat(err.fileno())
        inode = is_at.st_ino if is_journal else 1
        environment = dict(os.environ, JOURNAL_STREAM=f"{is_at.st_dev}:{inode}")
        command = [narufs, "mount", f"{work}/none.img", f"{work}/none", "-o", "durability=process,sync"]
        subprocess.run(command, stderr=err, env=environment)
        err.seek(0)
        return err.read()
assert b"durability=process" not in said(True), "it goes to standard error as well"
fields = b""
while b"MESSAGE" not in fields:
    # What only asks whether anybody is there is empty.
    fields = journal.recv(65536)
assert b"SYSLOG_IDENTIFIER" in fields and b"narufs" in fields and b"PRIORITY" in fields, fields
assert b"durability=process" in fields, fields
assert b"durability=process" in said(False), "it does not go to standard error"
PY
# In a name space whose /run has no systemd.
unshare --mount bash -c 'mount --bind "$1/run" /run && exec python3 "$1/journal.py" "$2" "$1"' - "$WORK" "$NARUFS" ||
    fail "the journal of systemd does not hear"

# Prometheus itself.
cat >"$WORK/prometheus.yml" <<YML
global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: ["$monitoring/alerts.yml"]
scrape_configs:
  - job_name: narufs
    sample_limit: 3000
    static_configs: [{ targets: ["127.0.0.1:$port"] }]
YML
promtool check config "$WORK/prometheus.yml" >"$WORK/lint" 2>&1 || fail "configuration: $(cat "$WORK/lint")"
prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" --log.level=warn \
    --web.listen-address="127.0.0.1:$web" >"$WORK/prometheus.log" 2>&1 &
prometheus=$!
started "$prometheus"
query() { promtool query instant "http://127.0.0.1:$web" "$1" 2>/dev/null; }
until_is() { # WHAT VALUE QUERY: Prometheus says so before long
    local end=$((SECONDS + 30)) said=
    while ((SECONDS < end)); do
        said=$(query "$3" | sed -nE 's/.* => ([^ ]+) @.*/\1/p' | paste -sd' ' || true)
        [[ $said != "$2" ]] || return 0
        sleep 0.2
    done
    fail "$1: Prometheus says '$said', not '$2': $(tail -n 5 "$WORK/prometheus.log")"
}
until_is "the first scrape" 1 'up{job="narufs"}'
until_is "the first server" 0 narufs_incarnation
kill -KILL "${SERVER[$WORK/data]}"
work
until_is "a killed server is followed by another" 1 narufs_incarnation
until_is "the second server answers at the same place" 1 'up{job="narufs"}'
until_is "that it counts anew is seen" 1 'changes(narufs_start_time_seconds[1m]) >bool 0'
until_is "an alert of the restart" 1 'count(ALERTS{alertname="NarufsServerRestarted", alertstate="firing"})'
until_is "no alert else" 1 'count(ALERTS{alertstate="firing"})'

# What dashboard and rules ask for is there, and understood.
"$NARUFS" metrics "$WORK/data" >"$WORK/metrics"
grep -ohE 'narufs_[a-z_]+' "$monitoring/dashboard.json" "$monitoring/alerts.yml" | sort -u |
    while read -r name; do
        grep -qE "^$name[{ ]" "$WORK/metrics" || fail "no mount has $name, which is asked for"
    done
python3 -c 'import json, sys
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel.get("targets", []):
        print(target["expr"].replace("$mount", ".*").replace("$__rate_interval", "1m"))' \
    "$monitoring/dashboard.json" >"$WORK/queries"
while read -r expression; do
    promtool query instant "http://127.0.0.1:$web" "$expression" >"$WORK/lint" 2>&1 ||
        fail "$expression: $(cat "$WORK/lint")"
done <"$WORK/queries"

served data
"$NARUFS" top "$WORK/data" --once --json --interval 0.2 |
    python3 -c 'import json, sys; [mount] = json.load(sys.stdin)["mounts"]; assert mount["rates"]["restarts"] == 1, mount' ||
    fail "narufs top does not know of the restart"
end "$prometheus" TERM
await "$prometheus" || true
detach data
check data
say "RESULT $series series, $(wc -l <"$WORK/queries") queries of the dashboard"
