#!/usr/bin/env bash
# narufs in machines of their own: `machines.sh kernels [VERSION...]` runs tests of the mount under Debian's kernels of these
# versions (6.1, 6.12, 6.18 and 7.3); `machines.sh systemd [VERSION]` installs the package of `make deb` in a Debian 12 that
# systemd runs, on one kernel (6.12). All of it in QEMU without hardware acceleration: that takes long. It takes root, for
# debootstrap. ONLY=basics,options runs these parts alone. NARUFS is the program, target/release/narufs if not said. docs/TRUST.md says what is tried.
source "$(dirname "$0")/../testing/machines/host.sh"

# The disk of tests: the repository's tree, as far as tests read it, and their programs.
tests() {
    local tree=$RUN/tree
    mkdir -p "$tree/target/release"
    echo "$ROOT" >"$tree/repository"
    cp -r --parents -t "$tree" "${PARTS[@]}"
    strip -g -o "$tree/target/release/narufs" "$NARUFS"
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
    PARTS=(scripts testing/programs testing/machines) PROGRAMS=${PROGRAMS-1}
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

cd "$ROOT"
task=${1:-kernels}
shift || true
case $task in
    kernels)
        (($#)) || set -- 6.1 6.12 6.18 7.3
        kernels "$@"
        ;;
    systemd) systemd "${1:-6.12}" ;;
    *) fail "no such task: $task" ;;
esac
