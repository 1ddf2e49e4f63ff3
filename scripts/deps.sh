#!/usr/bin/env bash
# Installs the Debian packages that are missing: `deps.sh run` for the demonstration, `deps.sh test` for the tests,
# `deps.sh sqlite` for SQLite's own tests, `deps.sh cluster` for engines on many nodes, `deps.sh machines` for machines of
# their own, `deps.sh bench` for comparisons, `deps.sh agree` for the programs that the benchmark is set beside.
set -euo pipefail
packages=(fuse3 sqlite3 e2fsprogs python3)
case "${1:-run}" in
    test) packages+=(git rsync attr acl fio xfsprogs postgresql build-essential pkg-config dpkg-dev util-linux procps prometheus systemd) ;;
    bench) packages=(fuse3 e2fsprogs xfsprogs btrfs-progs ntfs-3g fuse2fs util-linux mount tar findutils grep git rsync sqlite3 make gcc libc6-dev) ;;
    sqlite) packages+=(build-essential dpkg-dev tcl-dev zlib1g-dev libsqlite3-0 util-linux mount) ;;
    cluster) packages+=(etcd-server etcd-client postgresql glusterfs-server glusterfs-client fio git python3-pip xfsprogs iproute2 util-linux mount) ;;
    agree) packages=(e2fsprogs fio dbench util-linux mount) ;;
    machines) packages=(qemu-system-x86 busybox-static debootstrap kmod cpio xz-utils e2fsprogs binutils sqlite3 git postgresql util-linux mount) ;;
esac
missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -ne 0 ]]; then
    echo "narufs: these Debian packages are missing: ${missing[*]}; install them as root: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
