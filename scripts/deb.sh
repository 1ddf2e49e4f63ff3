#!/usr/bin/env bash
# Makes the Debian package target/debian/narufs_VERSION_ARCH.deb of what `make build doors` has built: lays it out as
# `make install` does, in a directory of its own, and has cargo-deb pack that. fio's engine, which is for one version of fio,
# is left out. cargo-deb is installed below target if it
# is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
version=3.8.0
tool=target/tools/bin/cargo-deb
if [[ "$("$tool" --version 2>/dev/null)" != *"$version"* ]]; then
    cargo install cargo-deb --locked --version "$version" --root target/tools
fi
# libgcc_s, libc: what dpkg-shlibdeps finds in the programs.
command -v dpkg-shlibdeps >/dev/null || {
    echo "narufs: dpkg-shlibdeps is missing: apt-get install dpkg-dev" >&2
    exit 1
}

root=target/deb/root
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
rm -rf target/deb
make --no-print-directory -s install-files install-doors DESTDIR="$PWD/$root" PREFIX=/usr LIBDIR="$libdir" SBINDIR=/usr/sbin \
    PROGRAM=../bin/narufs ZSHDIR=/usr/share/zsh/vendor-completions UNITDIR=/lib/systemd/system ${NARUFS:+NARUFS="$NARUFS"}
rm -f "$root$libdir/narufs-fio.so"
strip --remove-section=.comment --remove-section=.note "$root"/usr/bin/*
find "$root$libdir" -type f -name '*.so*' -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} +
strip --strip-debug --enable-deterministic-archives "$root$libdir"/*.a
# What is large or for those who build it is left out.
doc=$root/usr/share/doc/narufs
mkdir -p "$doc" "$root/usr/share/lintian/overrides"
cp README.md ARCHITECTURE.md docs/*.md "$doc"
cp -r docs/operate docs/monitoring docs/doors "$doc"
rm "$doc/monitoring/alerts.test.yml"
# Where Debian looks for it.
cp CHANGELOG.md "$doc/changelog"
# What other programs read, they read as it is.
find "$doc" -name monitoring -prune -o -type f -exec gzip -9n {} +
install -m 0644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/narufs"
PATH=$PWD/target/tools/bin:$PATH cargo deb --no-build --no-strip --locked -p narufs-cli -q --output target/debian/
