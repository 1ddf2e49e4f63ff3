#!/usr/bin/env bash
# Lays the library for C: lay.sh ARCHIVE ROOT [PREFIX]. Of what cargo has built, libnarufs_c.a, it makes libnarufs.a and
# libnarufs.so, and puts them, narufs.h, narufs.pc and narufs(3) below ROOT/PREFIX.
#
# rustc gives a shared library a list of symbols without versions, beside which a linker takes no versions: so it is linked
# here, of the same objects. narufs.map has each symbol with the version that it came with.
set -euo pipefail
[[ $# -ge 2 ]] || { echo "lay.sh ARCHIVE ROOT [PREFIX]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
archive=$1 prefix=${3:-/usr/local}
root=$2$prefix
libdir=${LIBDIR:-$prefix/lib}
lib=$2$libdir
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
soname=libnarufs.so.${version%%.*}

install -D -m 0644 "$archive" "$lib/libnarufs.a"
objcopy --strip-debug "$lib/libnarufs.a"
# Never unloaded: threads of it may run, and the C library knows handlers of it.
"${CC:-cc}" -shared -o "$lib/libnarufs.so.$version" -Wl,-soname,"$soname" -Wl,--version-script,"$here/narufs.map" \
    -Wl,--whole-archive "$lib/libnarufs.a" -Wl,--no-whole-archive -Wl,--gc-sections -Wl,-z,nodelete,-z,relro,-z,now \
    -Wl,--no-undefined -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
ln -sf "libnarufs.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libnarufs.so"
install -D -m 0644 "$here/narufs.h" "$root/include/narufs.h"
install -D -m 0644 "$here/narufs.3" "$root/share/man/man3/narufs.3"
mkdir -p "$lib/pkgconfig"
sed "s,@PREFIX@,${PC_PREFIX:-$prefix},; s,@LIBDIR@,${PC_LIBDIR:-$libdir},; s,@VERSION@,$version," "$here/narufs.pc.in" \
    >"$lib/pkgconfig/narufs.pc"
