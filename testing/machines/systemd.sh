#!/usr/bin/env bash
# narufs's package under a systemd that really runs: at the first boot it is installed, mounted by fstab and by its units,
# killed in every way and restarted while a program has files open; after a reboot all of it is mounted again; after the
# next one, at which nothing is mounted, the images are looked at. Each part is told of by the second serial port.
set -uo pipefail
exec </dev/null
cd /
# A dash in a name is escaped in that of the unit.
naru=/srv/naru fast=/srv/fast-one
unit=narufs@srv-naru.service scratch='narufs-scratch@srv-fast\x2done.service'
mounter=narufs-mount@srv-naru.service mounter_socket=narufs-mount@srv-naru.socket metrics=/run/naru.metrics
state=/var/lib/machine
mkdir -p $state

told() { echo "$*"; echo "$*" >/dev/ttyS1; }
failed() {
    told "FAILED $*"
    systemctl --no-pager --full status "$unit" "$scratch" 2>&1 | tail -n 60
    journalctl -b --no-pager | tail -n 60
    told end
    systemctl poweroff --force
    exit 1
}
ok() { told "ok     $*"; }
must() { # WHAT COMMAND...
    local what=$1
    shift
    timeout 300 "$@" >/run/said 2>&1 || failed "$what: status $?: $(cat /run/said)"
}
active() { # UNIT...
    local one
    for one; do must "$one is not active" systemctl is-active --quiet "$one"; done
}
pid() { # server_pid|supervisor_pid, of $naru: waits for a server
    timeout 120 narufs stats "$naru" --json | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"
}
# A process that is not our child.
gone() { timeout 60 tail --pid="$1" -f /dev/null || failed "process $1 lives"; }
image_state() { # IMAGE
    narufs info "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'
}

# What a program has open: a file, one without a name, a lock, a listing's directory.
hold() {
    exec 7<>"$naru/held" 8<>"$naru/unnamed" 9<"$naru/dir"
    rm "$naru/unnamed"
    flock -n 7 || failed "a lock of one's own"
}
holds() { # WHEN: what was open is, with its content, and goes on
    timeout 120 cmp $state/data /dev/fd/7 || failed "$1: an open file differs"
    timeout 120 cmp $state/data /dev/fd/8 || failed "$1: a file without a name differs"
    timeout 120 ls /dev/fd/9/ >/run/said || failed "$1: an open directory cannot be listed"
    if timeout 120 flock -n "$naru/held" true; then failed "$1: a lock is lost"; fi
    timeout 120 dd if=/dev/zero of="$naru/after" bs=4k count=4 conv=fsync status=none || failed "$1: a write fails"
    rm "$naru/after" || failed "$1: a removal fails"
    active "$unit"
}

first() {
    told "Linux $(uname -r), $(systemctl --version | head -n 1)"
    must "installing the package" dpkg -i /tests/narufs.deb
    mkdir -p "$naru" "$fast" /srv/fstab /srv/device /srv/memory /etc/narufs
    head -c 3M /dev/urandom >$state/data
    for name in unit fstab; do must "mkfs" mkfs.narufs /var/lib/$name.img --size 256M; done
    must "mkfs of a device" mkfs.narufs /dev/vdc
    cat >>/etc/fstab <<'LINES'
/var/lib/fstab.img /srv/fstab narufs nofail 0 0
/dev/vdc /srv/device narufs noatime,nofail 0 2
none /srv/memory narufs scratch,memory=64M,spill=/var/tmp,nofail 0 0
LINES
    systemctl daemon-reload
    for point in fstab device memory; do
        must "mounting /srv/$point" systemctl start "srv-$point.mount"
        active "srv-$point.mount"
        cp $state/data "/srv/$point/data" && sync "/srv/$point/data" && cmp $state/data "/srv/$point/data" || failed "/srv/$point"
    done
    ok "mounted by fstab: an image, a checked device, scratch space"

    printf 'IMAGE=/var/lib/unit.img\nOPTIONS=noatime,metrics=unix:%s\n' $metrics >/etc/narufs/srv-naru.conf
    echo OPTIONS=memory=64M,spill=/var/tmp >'/etc/narufs/srv-fast\x2done.conf'
    former
    must "enabling the units" systemctl enable --now "$unit" "$scratch"
    active "$unit" "$scratch" "$mounter"
    [[ $(findmnt -no FSTYPE "$naru") == fuse.narufs && $(findmnt -no FSTYPE "$fast") == fuse.narufs ]] || failed "not mounted"
    mkdir "$naru/dir"
    for name in held unnamed data dir/file; do cp $state/data "$naru/$name"; done
    sync "$naru/data"
    head -c 100M /dev/urandom >"$fast/large" || failed "scratch space as a service takes no 100 MiB"
    ok "mounted by units, active"
    systemctl --no-pager --full status "$unit" "$scratch"

    hold
    confined
    local server supervisor
    server=$(pid server_pid) supervisor=$(pid supervisor_pid)
    ((supervisor)) || failed "nothing keeps the mount"
    kill -KILL "$server"
    gone "$server"
    holds "a killed server"
    [[ $(pid server_pid) != "$server" ]] || failed "the server lives"
    ok "a killed server is followed by another"

    kill -KILL "$supervisor"
    gone "$supervisor"
    holds "a killed supervisor"
    ok "a killed supervisor is a pause"

    for n in 1 2 3; do
        server=$(systemctl show -p MainPID --value "$mounter")
        systemctl kill -s KILL "$mounter" || failed "systemctl kill"
        gone "$server"
        holds "who mounts killed, time $n"
    done
    must "stopping who mounts" systemctl stop "$mounter"
    server=$(pid server_pid)
    kill -KILL "$server"
    gone "$server"
    holds "a killed server while nobody mounts"
    active "$mounter"
    ok "who mounts is killed and stopped: the mount goes on, and who needs it starts it again"

    for n in 1 2 3; do
        server=$(pid server_pid)
        systemctl kill -s KILL "$unit" || failed "systemctl kill"
        gone "$server"
        holds "all processes killed, time $n"
    done
    (($(systemctl show -p NRestarts --value "$unit") >= 3)) || failed "systemd has not started it again"
    (($(systemctl show -p NFileDescriptorStore --value "$unit") > 0)) || failed "systemd keeps nothing"
    ok "all processes killed, three times, is a pause: systemd keeps $(systemctl show -p NFileDescriptorStore --value "$unit") descriptors"

    must "a restart" systemctl restart "$unit"
    holds "a restart"
    ok "systemctl restart is a pause"
    server=$(pid server_pid)
    must "a reload" systemctl reload "$unit"
    holds "a reload"
    [[ $(pid server_pid) != "$server" ]] || failed "reload keeps the server"
    ok "systemctl reload has another server take over"
    must "installing the package once more" dpkg -i /tests/narufs.deb
    holds "the package installed once more"
    ok "the package is replaced below a mount"

    confined
    security
    journal

    exec 7>&- 8>&- 9>&-
    must "a stop" systemctl stop "$unit" "$scratch"
    ! findmnt "$naru" "$fast" >/dev/null || failed "a stopped unit leaves a mount"
    [[ $(image_state /var/lib/unit.img) == clean ]] || failed "a stop leaves $(image_state /var/lib/unit.img)"
    must "fsck after the stop" narufs fsck /var/lib/unit.img
    [[ ! -e $metrics ]] || failed "a stopped unit leaves the socket of its metrics"
    for one in mounter mounter_socket; do
        timeout 60 bash -c 'while systemctl is-active --quiet "$0"; do sleep 0.2; done' "${!one}" || failed "${!one} stays without need"
    done
    ! grep -qE "TARGET=($naru|$fast) " /run/mount/utab || failed "umount(8)'s table has it still: $(cat /run/mount/utab)"
    # A kill of scratch space loses its files, and is followed by an empty one.
    must "a start" systemctl start "$unit" "$scratch"
    cmp $state/data "$naru/data" || failed "a file is lost by stop and start"
    exec 7>"$naru/busy"
    cat $state/data >&7
    must "a stop while the mount is used" systemctl stop "$unit"
    exec 7>&-
    ! findmnt "$naru" >/dev/null || failed "a unit stopped while its mount is used leaves it"
    must "a start" systemctl start "$unit"
    cmp $state/data "$naru/busy" || failed "what was written before a stop is lost where the mount was used"
    rm "$naru/busy"
    touch "$fast/file"
    server=$(systemctl show -p MainPID --value "$scratch")
    systemctl kill -s KILL "$scratch"
    gone "$server"
    for ((n = 0; n < 300; n++)); do
        systemctl is-active --quiet "$scratch" && findmnt "$fast" >/dev/null && break
        sleep 0.2
    done
    active "$scratch"
    [[ -z $(ls "$fast") ]] || failed "killed scratch space has files"
    ok "stop unmounts, and leaves images clean; killed scratch space comes back empty"
    told "boot 2: everything is mounted"
    exec 7<>"$naru/data"
    echo second >$state/next
    systemctl reboot
}

# A mount that was made by the unit of before, whose processes mounted by themselves, outlives a change to that of now.
former() {
    local own=/etc/systemd/system/narufs@.service
    cat >$own <<'UNIT'
[Service]
Type=notify
NotifyAccess=all
EnvironmentFile=/etc/narufs/%i.conf
ExecStart=/usr/bin/narufs mount --foreground -o supervise=yes -o "${OPTIONS}" "${IMAGE}" %f
ExecStop=/bin/sh -c 'systemctl list-jobs --no-legend "%n" | grep -q " restart " || exec /usr/bin/narufs umount "%f"'
KillSignal=SIGKILL
FileDescriptorStoreMax=1024
PrivateNetwork=yes
PrivateMounts=no
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_RESOURCE
UNIT
    must "loading the unit of before" systemctl daemon-reload
    must "starting the unit of before" systemctl start "$unit"
    mkdir -p "$naru/dir"
    for name in held unnamed dir/file; do cp $state/data "$naru/$name"; done
    hold
    rm $own
    must "loading the unit of now" systemctl daemon-reload
    must "a reload" systemctl reload "$unit"
    holds "a reload after the unit was replaced"
    must "a restart" systemctl restart "$unit"
    holds "a restart after the unit was replaced"
    confined
    exec 7>&- 8>&- 9>&-
    rm -r "$naru/held" "$naru/dir"
    must "a stop" systemctl stop "$unit"
    ! findmnt "$naru" >/dev/null || failed "the mount of the unit of before stays"
    ! grep -q "TARGET=$naru " /run/mount/utab || failed "umount(8)'s table has it still: $(cat /run/mount/utab)"
    ok "a mount of the unit of before goes on under that of now, and ends with it"
}

# Nobody of the unit may mount, and what was set for its mount was set by who may.
confined() {
    local one space host server supervisor
    server=$(pid server_pid) supervisor=$(pid supervisor_pid)
    host=$(readlink /proc/self/ns/mnt)
    for one in "$server:0000000000000000" "$supervisor:0000000001000000"; do
        [[ $(awk '$1 == "CapPrm:" { print $2 }' "/proc/${one%:*}/status") == "${one#*:}" ]] ||
            failed "process $one may do more: $(grep Cap "/proc/${one%:*}/status")"
        space=$(readlink "/proc/${one%:*}/ns/mnt")
        [[ $space != "$host" ]] || failed "process $one has the mounts of all"
    done
    [[ $(readlink "/proc/$(systemctl show -p MainPID --value "$mounter")/ns/mnt") == "$host" ]] || failed "who mounts does it elsewhere"
    (($(cat "/proc/$server/oom_score_adj") == -900 && $(cat "/proc/$supervisor/oom_score_adj") == -1000)) ||
        failed "they are not spared when memory runs out"
    [[ $(ahead "$naru") == "$(ahead /srv/fstab)" ]] || failed "the kernel reads ahead $(ahead "$naru") KiB, by fstab $(ahead /srv/fstab)"
    grep -q "TARGET=$naru " /run/mount/utab || failed "umount(8) does not know of it: $(cat /run/mount/utab)"
    nsenter --target "$supervisor" --mount python3 - <<'PYTHON' >/run/said 2>&1 || failed "it reaches systemd: $(cat /run/said)"
import os, stat
assert stat.S_IMODE(os.stat("/run/systemd/private").st_mode) == 0
PYTHON
    timeout 60 python3 - $metrics <<'PYTHON' >/run/said 2>&1 || failed "metrics: $(cat /run/said)"
import socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect(sys.argv[1])
asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: narufs\r\n\r\n")
answer = asking.makefile("rb").read()
assert b"200 OK" in answer and b"narufs_incarnation" in answer, answer[:1000]
PYTHON
}
ahead() { cat "/sys/class/bdi/$(mountpoint -d "$1")/read_ahead_kb"; } # DIRECTORY

security() {
    local one level most
    for one in "$unit:3.0" "$scratch:3.0" "$mounter:3.2"; do
        most=${one##*:} one=${one%:*}
        level=$(systemd-analyze security --no-pager "$one" | sed -nE 's/.*exposure level for .*: ([0-9.]+) .*/\1/p')
        awk -v level="$level" -v most="$most" 'BEGIN { exit !(level > 0 && level < most) }' || failed "systemd-analyze security rates $one $level"
        ok "systemd-analyze security rates $one $level"
    done
    must "narufs doctor" narufs doctor "$naru"
    cat /run/said
}

# What was said while servers were killed is there, with fields.
journal() {
    journalctl --sync
    journalctl -b -t narufs -o json --no-pager >/run/lines
    python3 - <<'PYTHON' >/run/said 2>&1 || failed "the journal: $(cat /run/said; head -n 5 /run/lines)"
import json
lines = [json.loads(line) for line in open("/run/lines")]
assert lines, "no line"
ours = [line for line in lines if line.get("_SYSTEMD_UNIT") == "narufs@srv-naru.service"]
assert ours, "none of the unit"
fielded = [line for line in ours if "CODE_FILE" in line and "TARGET" in line]
assert fielded, "none with fields"
print(len(ours), "lines of the unit,", len(fielded), "with fields:", sorted({name for line in fielded for name in line if not name.startswith("_")}))
for line in ours[:12]:
    print(line["PRIORITY"], line["MESSAGE"])
PYTHON
    cat /run/said
    ok "the journal has $(head -n 1 /run/said)"
}

second() {
    active "$unit" "$scratch" srv-fstab.mount srv-device.mount srv-memory.mount
    local point
    for point in naru fstab device; do cmp $state/data /srv/$point/data || failed "/srv/$point after a reboot"; done
    cmp $state/data "$naru/dir/file" || failed "a file that was open at the reboot"
    [[ -z $(ls /srv/memory) && -z $(ls "$fast") ]] || failed "scratch space survives a reboot"
    # Nothing at the shutdown had to be waited for until it was killed.
    if journalctl -b -1 --no-pager | grep -E 'narufs.*(timed out|Killing process)|srv-.*mount.*(timed out|Failed)'; then
        failed "the shutdown had to kill"
    fi
    ok "after a reboot everything is mounted again"
    systemctl disable "$unit" "$scratch" 2>/dev/null
    sed -i '/ narufs /d' /etc/fstab
    # In use, to the end.
    exec 7<>"$naru/data" 8<>/srv/fstab/data
    (cd /srv/device && exec sleep infinity) &
    told "boot 3: nothing is mounted"
    echo third >$state/next
    systemctl reboot
}

third() {
    local image
    ! grep " fuse.narufs " /proc/mounts || failed "mounted, and not asked for"
    for image in /var/lib/unit.img /var/lib/fstab.img /dev/vdc; do
        [[ $(image_state $image) == clean ]] || failed "the reboot has left $image $(image_state $image)"
        must "fsck of $image" narufs fsck "$image"
    done
    ok "a reboot leaves images clean, and fsck finds nothing"
    must "purging the package" dpkg --purge narufs
    [[ -z $(find /lib/systemd/system /etc/systemd/system -name 'narufs*') ]] || failed "the package leaves units"
    ok "purged"
    told end
    systemctl poweroff
}

timeout 300 systemctl is-system-running --wait >/dev/null
$(cat $state/next 2>/dev/null || echo first)
