#!/usr/bin/env bash
# Builds narufs as an engine of the fio that is installed: build.sh LAID OUT. LAID is what doors/c/lay.sh has laid. The
# engine is compiled in the tree of that very version, which Debian has as a source package; it is kept below target. It
# finds libnarufs.so beside itself, or where the system looks for libraries.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
laid=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
version=$(fio --version) # fio-3.33
trees=$here/../../target/fio
tree=$trees/$version
if [[ ! -e $tree/config-host.h ]]; then
    work=$trees/fetch
    rm -rf "$work" "$tree"
    mkdir -p "$work/parts" "$work/lists/partial"
    # Sources of the same places that packages come from, without a change of the machine's own lists.
    cat /etc/apt/sources.list.d/debian.sources 2>/dev/null | sed 's/^Types: deb$/Types: deb-src/' >"$work/parts/src.sources"
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null >"$work/parts/src.list" || true
    apt=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists"
        -o APT::Sandbox::User=root)
    (
        cd "$work"
        apt-get "${apt[@]}" update
        apt-get "${apt[@]}" source --download-only fio="$(dpkg-query -W -f='${Version}' fio)"
        tar xf fio_*.orig.tar.*z
    )
    mv "$work"/fio-*/ "$tree"
    rm -rf "$work"
    (cd "$tree" && ./configure >/dev/null)
fi
found=$(sed -n 's/^DEF_VER=//p' "$tree/FIO-VERSION-GEN" | tail -1)
if [[ $found != "$version" ]]; then
    echo "build.sh: the source is of $found, and what is installed is $version" >&2
    exit 1
fi
export PKG_CONFIG_PATH=$laid/lib/pkgconfig
# shellcheck disable=SC2046 # words of options
(cd "$tree" && "${CC:-cc}" -Wall -O2 -g -D_GNU_SOURCE -shared -fPIC -include config-host.h -I. "-DBUILT_FOR=\"$version\"" \
    "$here/narufs.c" -o "$out/narufs-fio.so" $(pkg-config --cflags --libs narufs) -Wl,-rpath,'$ORIGIN')
echo "$out/narufs-fio.so"
