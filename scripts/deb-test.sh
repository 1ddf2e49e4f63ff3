#!/usr/bin/env bash
# Installs the package in a Debian 12 that has nothing but its essentials, mounts by fstab there, writes, unmounts, reads
# what is there with the static program, and purges the package: nothing of it may be left. lintian must find no error.
# That Debian is made once, below target, and a test sees it through an overlay; its mounts and processes are in name
# spaces that end with it. It takes root.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ${1:-} != inside ]]; then
    [[ $(id -u) -eq 0 ]] || { echo "narufs: it takes root, to mount and to change the root" >&2; exit 1; }
    export DEBIAN_FRONTEND=noninteractive
    missing=()
    for p in debootstrap lintian; do command -v "$p" >/dev/null || missing+=("$p"); done
    if ((${#missing[@]})); then
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
    base=$PWD/target/debian-12
    if [[ ! -e $base.made ]]; then
        rm -rf "$base"
        debootstrap --variant=minbase bookworm "$base" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$base.log"
        touch "$base.made"
    fi
    debs=(target/debian/narufs_*.deb)
    [[ ${#debs[@]} -eq 1 && -e ${debs[0]} ]] || { echo "there should be one package: ${debs[*]}" >&2; exit 1; }
    lintian --allow-root --fail-on error "${debs[0]}"
    work=$(mktemp -d "$PWD/target/deb-test.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work"/{upper,work,root}
    static=target/$(uname -m)-unknown-linux-musl/release/narufs
    # All of it ends, and is unmounted, with the first process.
    unshare --mount --pid --fork --kill-child scripts/deb-test.sh inside "$work" "$base" "${debs[0]}" "${STATIC:-$static}"
    echo "installed, mounted by fstab, upgraded, read by the static program, purged: nothing is left"
    exit
fi

# The first process of the name spaces.
work=$2 base=$3 deb=$4 static=$5 root=$2/root
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mknod -m 666 "$root/dev/fuse" c 10 229
for device in "null 3" "zero 5" "random 8" "urandom 9"; do
    mknod -m 666 "$root/dev/${device% *}" c 1 "${device#* }"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/test"
cp "$deb" "$root/test/narufs.deb"
cp "$static" "$root/test/narufs-static"
cat >"$root/test/run" <<'INSIDE'
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
fail() { echo "deb-test: $*" >&2; exit 1; }
files() { find / -xdev -path /test -prune -o -print | LC_ALL=C sort; }

files >/test/before
dpkg -i /test/narufs.deb >/dev/null
narufs --version
for name in mkfs fsck mount mount.fuse umount umount.fuse; do
    [[ $(readlink -f "/sbin/$name.narufs") == /usr/bin/narufs ]] || fail "$name.narufs leads elsewhere"
    [[ -s /usr/share/man/man8/$name.narufs.8.gz || -d /etc/dpkg/dpkg.cfg.d ]] || fail "$name.narufs has no page"
done
for unit in narufs narufs-scratch narufs-mount; do
    grep -q '^ExecStart=/usr/bin/narufs ' "/lib/systemd/system/$unit@.service" || fail "$unit@.service starts something else"
    ! grep -q '/usr/local' "/lib/systemd/system/$unit@.service" || fail "$unit@.service has names of another installation"
done
[[ -e /lib/systemd/system/narufs-mount@.socket ]] || fail "nobody can ask who mounts for units"
narufs-bench --help >/dev/null
bash -n /usr/share/bash-completion/completions/narufs
ldconfig -p | grep -q 'libnarufs\.so\.' || fail "programs in C find no library"
libdir=$(dirname "$(dpkg -L narufs | grep '/libnarufs\.so$')")
for library in "$libdir"/libnarufs.so "$libdir"/libnarufs_sqlite.so "$libdir"/libnarufs_sqlite_preload.so; do
    ! ldd "$library" | grep 'not found' || fail "$library lacks a library"
done
[[ -s /usr/include/narufs.h && -s $libdir/libnarufs.a && -s $libdir/libnarufs_sqlite.a ]] || fail "nothing to build with"
grep -qx "libdir=$libdir" "$libdir/pkgconfig/narufs.pc" || fail "pkg-config looks elsewhere: $(cat "$libdir/pkgconfig/narufs.pc")"

mkdir -p /srv/naru /srv/fast
mkfs.narufs /var/lib/naru.img --size 256M >/dev/null
cat >>/etc/fstab <<'LINES'
/var/lib/naru.img /srv/naru narufs supervise=yes,noatime 0 0
none /srv/fast narufs scratch,memory=64M 0 0
LINES
mount /srv/naru
mount /srv/fast
[[ $(findmnt -no FSTYPE /srv/naru) == fuse.narufs ]] || fail "it is not mounted"
head -c 8M /dev/urandom >/test/data
cp /test/data /srv/naru/data
cp /test/data /srv/fast/data
sync /srv/naru/data
cmp /test/data /srv/naru/data
cmp /test/data /srv/fast/data
umount /srv/fast

# Another version is installed while a file is open, and takes over.
exec 5</srv/naru/data
dpkg -i /test/narufs.deb >/dev/null
narufs upgrade /srv/naru
cmp /test/data /dev/fd/5
exec 5<&-

umount /srv/naru
fsck.narufs -a /var/lib/naru.img >/dev/null
/test/narufs-static --version
/test/narufs-static mount /var/lib/naru.img /srv/naru
cmp /test/data /srv/naru/data
/test/narufs-static umount /srv/naru
/test/narufs-static fsck /var/lib/naru.img >/dev/null

rm -r /var/lib/naru.img /srv/naru /srv/fast
dpkg --purge narufs >/dev/null
sed -i '/ narufs /d' /etc/fstab
# What dpkg itself keeps, whatever was installed.
files | LC_ALL=C comm -13 /test/before - | grep -vE '^/var/(log/|lib/dpkg/(status|available|diversions|statoverride)-old$|cache/ldconfig)' \
    >/test/left || true
[[ ! -s /test/left ]] || fail "left behind: $(cat /test/left)"
INSIDE
chroot "$root" /bin/bash /test/run
