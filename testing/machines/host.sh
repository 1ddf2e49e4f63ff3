#!/usr/bin/env bash
# Sourced by what runs tests in machines of their own: QEMU without hardware acceleration, Debian's kernels, a Debian 12.
#
# Everything is made below $MACHINES and used again by the next run: kernels, each as its package has it, with an
# initramfs of busybox and the modules that the tests take; the root file system, by debootstrap; and, anew each time, a
# disk with the tests. A machine writes to none of that, but to copies that end with it.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
MACHINES=${NARUFS_MACHINES:-$TARGET/machines}
NARUFS=${NARUFS:-$TARGET/release/narufs}
MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# Each is put into the machine by the initramfs: nothing there loads a module by itself.
MODULES=(virtio_pci virtio_blk ext4 fuse loop xfs overlay brd nfit nd_pmem dax_pmem device_dax fs-dax efivarfs)

fail() { echo "machines: $*" >&2; exit 1; }
# A machine that is left goes with us: what bounds its time hands the signal on.
machine=
cleanup() {
    local status=$?
    trap - EXIT
    [[ -z $machine ]] || kill -TERM "$machine" 2>/dev/null || true
    [[ -z ${RUN:-} ]] || rm -rf "$RUN"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 143' TERM INT HUP

prepare() {
    [[ $(id -u) -eq 0 ]] || fail "it takes root, to make a root file system"
    "$ROOT/scripts/deps.sh" machines
    mkdir -p "$MACHINES"
    RUN=$(mktemp -d "$MACHINES/run.XXXXXX")
    debian
}

# Debian 12, as a disk.
debian() {
    local more=systemd,systemd-sysv,dbus,udev,fuse3,kmod,python3,attr,acl,procps,psmisc,e2fsprogs,xfsprogs,fdisk,ndctl,fio,make,git,postgresql
    [[ -e $MACHINES/debian.disk && $(cat "$MACHINES/debian.has" 2>/dev/null) == "$more" ]] && return 0
    echo "making a Debian 12"
    rm -rf "$MACHINES/debian"
    debootstrap --variant=minbase --include="$more" bookworm "$MACHINES/debian" "$MIRROR" >"$MACHINES/debian.log" ||
        fail "debootstrap fails: $MACHINES/debian.log"
    rm -rf "$MACHINES"/debian/var/cache/apt/archives/*.deb "$MACHINES"/debian/var/lib/apt/lists/*
    disk "$MACHINES/debian.part" "$MACHINES/debian" 6G root
    rm -rf "$MACHINES/debian"
    mv "$MACHINES/debian.part" "$MACHINES/debian.disk"
    echo "$more" >"$MACHINES/debian.has"
}

# apt with sources and lists of its own: kernels of several releases, of which nothing is installed.
apt_here() { # PROGRAM ARGS...
    local apt=$MACHINES/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg suite
    if [[ ! -e $apt/fetched ]]; then
        mkdir -p "$apt"/{lists,cache/archives}/partial
        for suite in bookworm bookworm-updates bookworm-backports trixie trixie-updates trixie-backports; do
            echo "deb [signed-by=$keys] $MIRROR $suite main"
        done >"$apt/sources.list"
        for suite in bookworm trixie; do
            echo "deb [signed-by=$keys] ${MIRROR%/debian}/debian-security $suite-security main"
        done >>"$apt/sources.list"
        cat >"$apt/apt.conf" <<CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
CONF
        APT_CONFIG=$apt/apt.conf apt-get update -qq
        touch "$apt/fetched"
    fi
    APT_CONFIG=$apt/apt.conf "$@"
}

# A kernel by the beginning of its version: vmlinuz, initramfs and its whole version, in $MACHINES/kernel-VERSION.
kernel() { # VERSION
    local dir=$MACHINES/kernel-$1 image release packages=() name path
    [[ ! -e $dir/release ]] || return 0
    image=$(apt_here apt-cache search --names-only "^linux-image-${1//./[.]}[.][0-9.]+([+-][a-z0-9.]+)?-amd64$" |
        awk '{ print $1 }' | grep -vE -- '-(cloud|rt)-amd64$' | sort -V | tail -n 1)
    [[ -n $image ]] || fail "Debian's archive has no kernel $1"
    release=${image#linux-image-}
    echo "fetching Linux $release"
    rm -rf "$dir"
    mkdir -p "$dir/unpacked"
    # From 7.3 on the package's parts are packages.
    for name in "$image" "${image/image/binary}" "${image/image/modules}"; do
        [[ -z $(apt_here apt-cache search --names-only "^${name//[+]/[+]}$") ]] || packages+=("$name")
    done
    (cd "$dir" && apt_here apt-get download -qq "${packages[@]}")
    for path in "$dir"/*.deb; do dpkg -x "$path" "$dir/unpacked"; done
    [[ -e $dir/unpacked/usr/lib/modules ]] || { mkdir -p "$dir/unpacked/usr"; mv "$dir/unpacked/lib" "$dir/unpacked/usr/lib"; }
    ln -sfn usr/lib "$dir/unpacked/lib"
    path=$(find "$dir/unpacked/" -name "vmlinuz-$release" -o -path "*/modules/$release/vmlinuz" | head -n 1)
    [[ -n $path ]] || fail "no vmlinuz in ${packages[*]}"
    cp "$path" "$dir/vmlinuz"
    initramfs "$dir" "$release"
    rm -rf "$dir/unpacked" "$dir"/*.deb
    echo "$release" >"$dir/release"
}

initramfs() { # DIR RELEASE
    local dir=$1 release=$2 tree=$1/initramfs module path name
    mkdir -p "$tree"/{bin,modules,dev,proc,sys,root}
    cp /bin/busybox "$tree/bin/busybox"
    ln -s busybox "$tree/bin/sh"
    depmod -b "$dir/unpacked" "$release" 2>"$dir/depmod.log"
    for module in "${MODULES[@]}"; do
        # Built in, or of no use to this kernel: then it has no file.
        modprobe -d "$dir/unpacked" -S "$release" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }' || true
    done | awk '!seen[$0]++' | while read -r path; do
        name=$(basename "${path%.xz}")
        case $path in
            *.xz) xz -dc "$path" >"$tree/modules/$name" ;;
            *) cp "$path" "$tree/modules/$name" ;;
        esac
        echo "$name"
    done >"$tree/modules/order"
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1 >"$dir/initramfs.gz")
    rm -rf "$tree"
}

# A disk with an ext4 that holds what a directory does.
disk() { # FILE DIRECTORY SIZE LABEL
    rm -f "$1"
    truncate -s "$3" "$1"
    mkfs.ext4 -q -F -m 0 -L "$4" -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0 -d "$2" "$1"
}

# Starts a machine: launch NAME VERSION SECONDS TASK [QEMU OPTIONS...]. What the task reports is in $RUN/NAME.told, what the
# kernel and programs say in $RUN/NAME.console. WORDS are more of the first process's environment; MACHINE and MEMORY are
# QEMU's -M and -m.
launch() {
    local name=$1 dir=$MACHINES/kernel-$2 limit=$3 task=$4
    shift 4
    # The first process changes more often than modules do.
    { cat "$dir/initramfs.gz"; (cd "$ROOT/testing/machines" && echo init | cpio -o -H newc --quiet | gzip -1); } >"$RUN/initramfs.gz"
    # Of what these disks hold nothing has to outlive the machine. A busy host is late with timers: the kernel need not check
    # them, and takes the time from the processor: a clock that is a device is emulated as well.
    TMPDIR=$RUN timeout --kill-after=10 "$limit" qemu-system-x86_64 -M "${MACHINE:-q35}" -accel "${ACCEL:-tcg}" -cpu max -smp 2 -m "${MEMORY:-2G}" \
        -nodefaults -display none -no-user-config -nic none -pidfile "$RUN/$name.pid" \
        -chardev "file,id=console,path=$RUN/$name.console" -serial chardev:console \
        -chardev "file,id=told,path=$RUN/$name.told" -serial chardev:told \
        -kernel "$dir/vmlinuz" -initrd "$RUN/initramfs.gz" \
        -append "console=ttyS0 panic=10 no_timer_check tsc=reliable mitigations=off quiet task=$task${ONLY:+ only=$ONLY,}${WORDS:+ $WORDS}" \
        -drive "file=$MACHINES/debian.disk,format=raw,if=virtio,snapshot=on,cache=unsafe" \
        -drive "file=$RUN/tests.disk,format=raw,if=virtio,snapshot=on,cache=unsafe" "$@" </dev/null >"$RUN/$name.qemu" 2>&1 &
    machine=$!
}

# Waits until the machine has ended.
ended() {
    local status=0
    wait "$machine" || status=$?
    machine=
    return "$status"
}

boot() { # as launch
    launch "$@"
    ended
}

# Waits until the task has told of so many operations; fails if it ends before.
worked() { # NAME COUNT
    # In the background, so that a signal is heard at once.
    awk -v wanted="$2" '/^ack / && ++seen == wanted { done = 1; exit } /^FAILED|^end/ { exit } END { exit !done }' \
        < <(timeout 1800 tail -n +1 -F --pid="$machine" "$RUN/$1.told" 2>/dev/null) &
    wait $!
}

# Takes the power away, in the middle of whatever the machine does.
cut_power() { # NAME
    kill -KILL "$(<"$RUN/$1.pid")"
    ended 2>/dev/null || true
}

# What a machine has said: fails if one of its tests did, if it did not come to its end, or its kernel complains.
judge() { # NAME STATUS
    local told=$RUN/$1.told status=$2 bad=0
    tr -d '\r' <"$told" >"$told.text"
    grep -vE '^end$' "$told.text" || true
    [[ $status -eq 0 ]] || { echo "QEMU ends with status $status: $(head -n 3 "$RUN/$1.qemu")"; bad=1; }
    grep -q '^end$' "$told.text" || { echo "the machine did not come to the end of its tests"; bad=1; }
    ! grep -q '^FAILED' "$told.text" || bad=1
    grep -q '^ok' "$told.text" || bad=1
    ! complains "$1" || bad=1
    keep_logs "$1"
    ((!bad)) || show_console "$1"
    return "$bad"
}

complains() { # NAME: whether its kernel does
    grep -aE 'BUG: |WARNING: |Oops|general protection|blocked for more than|Kernel panic' "$RUN/$1.console" || return 1
    echo "the kernel complains"
}

keep_logs() { # NAME
    mkdir -p "$MACHINES/logs"
    cp "$RUN/$1.console" "$MACHINES/logs/$1.console"
    tr -d '\r' <"$RUN/$1.told" >"$MACHINES/logs/$1.told"
}

show_console() { # NAME
    tail -n 80 "$RUN/$1.console"
    echo "all of it: $MACHINES/logs/$1.console"
}
