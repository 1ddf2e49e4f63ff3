#!/usr/bin/env bash
# narufs in machines of their own: `machines.sh kernels [VERSION...]` runs tests of the mount under Debian's kernels of these
# versions (6.1, 6.12 and 7.3); `machines.sh systemd [VERSION]` installs the package of `make deb` in a Debian 12 that
# systemd runs, on one kernel (6.12); `machines.sh nvdimm [VERSION]` cuts the power of a machine with a journal in persistent
# memory; `machines.sh replay [VERSION]` records what a mount writes to its disk, and looks at what losses of power would have
# left of it. All of it in QEMU without hardware acceleration: that takes long. It takes root, for
# debootstrap. ONLY=basics,options runs these parts alone. NARUFS is the program, target/release/narufs if not said. docs/TRUST.md says what is tried.
#
# Of `replay`: LOAD=files|sqlite|git|mail|postgres (files) works as two processes, of OPERATIONS (200) each, on each of
# FILE_SYSTEMS (ext4-nobarrier ext4 narufs); narufs-nvdimm has its journal in persistent memory (a device of that alone, or,
# as narufs-nvdimm-ext4 and -xfs, on those with DAX), and stands still at MOMENTS (200), which are what is looked at.
# DURABILITY=power|window=TIME|process (power) is what narufs is mounted with. STATES (4) random states are looked at between
# flushes, by SEED. RECORDS=DIRECTORY keeps the records there, as LOAD-FILE-SYSTEM.
source "$(dirname "$0")/../testing/machines/host.sh"

# The disk of tests: the repository's tree, as far as tests read it, and their programs.
tests() {
    local tree=$RUN/tree
    mkdir -p "$tree/target/release"
    echo "$ROOT" >"$tree/repository"
    cp -r --parents -t "$tree" "${PARTS[@]}"
    strip -g -o "$tree/target/release/narufs" "$NARUFS"
    if [[ -e $NARUFS-bench ]]; then strip -g -o "$tree/target/release/narufs-bench" "$NARUFS-bench"; fi
    mkdir -p "$tree/target/debug" "$tree/target/tmp"
    if [[ -n ${PROGRAMS:-} ]]; then programs "$tree/target/debug"; fi
    if [[ -n ${DEB:-} ]]; then cp "$DEB" "$tree/narufs.deb"; fi
    disk "$RUN/tests.disk" "$tree" 1G tests
    rm -rf "$tree"
}

# The workspace's tests that mount, as programs: by the names of their targets.
programs() { # DIRECTORY
    local name path
    cargo test --locked --no-run -p narufs-fuse -p narufs-cli --message-format=json 2>"$RUN/cargo.log" >"$RUN/built" ||
        { tail -n 40 "$RUN/cargo.log"; fail "the tests do not build"; }
    python3 - "$RUN/built" <<'PYTHON' | while read -r name path; do strip -g -o "$1/$name" "$path"; done
import json, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    name, path = message.get("target", {}).get("name"), message.get("executable")
    if path and (name != "narufs" or not message["profile"]["test"]):
        print(name, path)
PYTHON
}

kernels() { # VERSION...
    local version status failed=()
    PARTS=(Makefile scripts docs/systemd testing/programs testing/machines) PROGRAMS=${PROGRAMS-1}
    prepare
    tests
    truncate -s 1G "$RUN/blank.disk"
    for version; do
        kernel "$version"
        status=0
        boot "$version" "$version" "${NARUFS_MACHINE_SECONDS:-7200}" kernels \
            -drive "file=$RUN/blank.disk,format=raw,if=virtio,snapshot=on,cache=writeback" || status=$?
        judge "$version" "$status" || failed+=("$version")
    done
    [[ ${#failed[@]} -eq 0 ]] || fail "kernels that failed: ${failed[*]}"
    echo "passed under Linux $*"
}

# The package, in a Debian 12 that systemd runs, through two reboots.
systemd() { # VERSION
    local status=0 debs=("$TARGET"/debian/narufs_*.deb)
    [[ ${#debs[@]} -eq 1 && -e ${debs[0]} ]] || fail "there should be one package: ${debs[*]}"
    PARTS=(testing/machines) PROGRAMS=
    prepare
    kernel "$1"
    DEB=${debs[0]} tests
    truncate -s 1G "$RUN/blank.disk"
    boot systemd "$1" "${NARUFS_MACHINE_SECONDS:-3600}" systemd \
        -drive "file=$RUN/blank.disk,format=raw,if=virtio,snapshot=on,cache=writeback" || status=$?
    judge systemd "$status" || fail "it failed under systemd"
}

# A journal in persistent memory: the power of a machine is cut CUTS times, for each of RINGS (ext4, xfs, devdax).
nvdimm() { # VERSION
    local ring failed=()
    PARTS=(testing/machines) PROGRAMS=
    prepare
    kernel "$1"
    tests
    for ring in ${RINGS:-ext4 xfs devdax}; do cuts "$1" "$ring" || failed+=("$ring"); done
    [[ ${#failed[@]} -eq 0 ]] || fail "journals that failed: ${failed[*]}"
}

cuts() { # VERSION RING
    local cut name before= count=${CUTS:-50} status acked=0
    # Each ring begins with blank ones.
    rm -f "$RUN/memory" "$RUN/image"
    truncate -s 768M "$RUN/memory"
    truncate -s 256M "$RUN/image"
    for ((cut = 0; cut <= count; cut++)); do
        name=nvdimm-$2-$cut status=0
        # In so many boots the kernel changes its code, now and then, where the other processor's thread is emulating it.
        ACCEL=tcg,thread=single MACHINE=q35,nvdimm=on MEMORY=2G,slots=2,maxmem=4G WORDS="ring=$2 boot=$cut of=$count" launch "$name" "$1" 3600 nvdimm \
            -object "memory-backend-file,id=memory,share=on,mem-path=$RUN/memory,size=768M" \
            -device nvdimm,id=nvdimm,memdev=memory \
            -drive "file=$RUN/image,format=raw,if=virtio,cache=writeback"
        if ((cut < count)); then
            worked "$name" $((RANDOM % 60 + 1)) || status=$?
            cut_power "$name"
        else
            ended || status=$?
        fi
        keep_logs "$name"
        if ((status)) || grep -q '^FAILED' "$MACHINES/logs/$name.told" || complains "$name" ||
            ! kept "$before" "$MACHINES/logs/$name.told"; then
            echo "failed     $2, after $cut cuts"
            cat "$MACHINES/logs/$name.told" "$RUN/$name.qemu"
            show_console "$name"
            return 1
        fi
        ((cut > 0)) || grep '^ok' "$MACHINES/logs/$name.told"
        before=$MACHINES/logs/$name.told
        acked=$((acked + $(grep -c '^ack' "$before" || true)))
    done
    echo "ok         $2: $count cuts of power, $acked operations acknowledged, nothing lost"
}

# Whether a machine has found what the one before had acknowledged by the cut.
kept() { # TOLD-BEFORE TOLD
    [[ -n $1 ]] || return 0
    awk 'FNR == NR { if ($1 == "ack" && $3 > acked[$2]) acked[$2] = $3; next } $1 == "state" { found[$2] = $3; states++ }
        END {
            if (states != 2) { print "what is there was not told"; bad = 1 }
            for (p in acked) if (found[p] + 0 < acked[p] + 0) { print "LOST: process " p " had " acked[p] " acknowledged, " found[p] " is there"; bad = 1 }
            exit bad
        }' "$1" "$2"
}

# What a mount writes to its disk, recorded by QEMU; narufs-replay makes of it what losses of power could have left. That it
# finds losses is shown where there are some: on ext4 that flushes nothing, and as if the disk had flushed nothing.
replay() { # VERSION
    local one failed=() replayer=${NARUFS_REPLAY:-$TARGET/release/narufs-replay} load=${LOAD:-files} size=64
    # A server of PostgreSQL has 40 MiB before it has any row.
    if [[ $load == postgres ]]; then size=128; fi
    PARTS=(testing/machines) PROGRAMS=
    prepare
    kernel "$1"
    tests
    for one in ${FILE_SYSTEMS:-ext4-nobarrier ext4 narufs}; do
        record "$1" "$one" || { failed+=("$one"); continue; }
        case $one in
            ext4-nobarrier) replayed "$one" 20 ;;
            narufs)
                replayed narufs "${STATES:-4}"
                replayed narufs-unflushed 20
                ;;
            narufs-nvdimm*)
                replayed narufs-nvdimm "${STATES:-4}"
                replayed narufs-nvdimm-older 1
                ;;
            *) replayed "$one" "${STATES:-4}" ;;
        esac
    done
    [[ ${#failed[@]} -eq 0 ]] || fail "replays that failed: ${failed[*]}"
}

record() { # VERSION FILE-SYSTEM: into $RUN/log
    local status=0 memory=()
    rm -rf "$RUN/disk" "$RUN/log" "$RUN/memory" "$RUN/moments"
    truncate -s $((size + 2))M "$RUN/disk"
    : >"$RUN/log"
    mkdir "$RUN/moments"
    if [[ $2 == narufs-nvdimm* ]]; then
        truncate -s 768M "$RUN/memory"
        memory=(-object "memory-backend-file,id=memory,share=on,mem-path=$RUN/memory,size=768M" -device nvdimm,id=nvdimm,memdev=memory)
        local MACHINE=q35,nvdimm=on MEMORY=2G,slots=2,maxmem=4G
    fi
    # As for cuts of power: a kernel that changes its code while another thread emulates it may stop.
    ACCEL=tcg,thread=single WORDS="kind=$2 load=$load size=$size durability=${DURABILITY:-power} count=${OPERATIONS:-200}" \
        launch "replay-$2" "$1" "${NARUFS_MACHINE_SECONDS:-3600}" replay "${memory[@]}" \
        -blockdev "driver=file,node-name=disk,filename=$RUN/disk" -blockdev "driver=file,node-name=log,filename=$RUN/log" \
        -blockdev driver=blklogwrites,node-name=logged,file=disk,log=log \
        -device virtio-blk-pci,drive=logged,addr=0x10
    if [[ $2 == narufs-nvdimm* ]]; then
        testing/machines/moments.py "$RUN/replay-$2.pid" "$RUN/memory" "$RUN/log" "$RUN/replay-$2.told" "$RUN/moments" "${MOMENTS:-200}" &
    fi
    ended || status=$?
    if [[ -n ${RECORDS:-} ]]; then
        cp --sparse=always "$RUN/log" "$RECORDS/$load-$2"
        if [[ $2 == narufs-nvdimm* ]]; then cp -r "$RUN/moments" "$RECORDS/$load-$2.moments"; fi
    fi
    judge "replay-$2" "$status"
}

replayed() { # KIND STATES: adds to `failed`
    local durability=power
    if [[ $1 == narufs* ]]; then durability=${DURABILITY:-power}; fi
    "$replayer" "$RUN/log" "$1" "load=$load" "size=$size" "durability=$durability" "states=$2" "moments=$RUN/moments" ${SEED:+"seed=$SEED"} ||
        failed+=("$1")
}

cd "$ROOT"
task=${1:-kernels}
shift || true
case $task in
    kernels)
        (($#)) || set -- 6.1 6.12 7.3
        kernels "$@"
        ;;
    systemd) systemd "${1:-6.12}" ;;
    nvdimm) nvdimm "${1:-6.12}" ;;
    replay) replay "${1:-6.12}" ;;
    *) fail "no such task: $task" ;;
esac
