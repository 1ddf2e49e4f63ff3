#!/usr/bin/env bash
# A C project fetched with `apt-get source`, configured, built and tested on the mount. The source packages are
# enabled in a private configuration of apt; the machine's own stays as it is.
source "$(dirname "$0")/lib.sh"
package=hello
[[ $SCALE -lt 10 ]] || package="sed"

apt=$WORK/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts}
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
cat >"$apt/sources.list" <<LIST
deb-src http://deb.debian.org/debian $codename main
LIST
cat >"$apt/apt.conf" <<CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "$apt/parts";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
Acquire::Retries "3";
Acquire::Languages "none";
CONF
export APT_CONFIG=$apt/apt.conf
timeout 120 apt-get update -qq >"$WORK/update.log" 2>&1 && [[ -n $(find "$apt/lists" -name '*Sources*') ]] ||
    lacks "source packages: $(tail -n 1 "$WORK/update.log")"

volume volume 2G
attach volume
reference 2G
(cd "$WORK/reference" && apt-get source -qq --download-only "$package" >/dev/null 2>&1) ||
    lacks "the source package $package"
cp "$WORK"/reference/*.{dsc,tar.*,diff.gz} "$WORK/volume/" 2>/dev/null || true

build() { # DIR
    cd "$1"
    dpkg-source --no-check -x ./*.dsc tree >/dev/null 2>&1
    cd tree
    # Absolute names and times in the results would differ for no reason of the file system.
    # Configuring as root is refused by some packages' own checks unless asked for.
    export FORCE_UNSAFE_CONFIGURE=1 SOURCE_DATE_EPOCH=1700000000
    ./configure --quiet CFLAGS="-O1 -g0 -ffile-prefix-map=$1=." >"$WORK/build.log" 2>&1 &&
        make -j2 >>"$WORK/build.log" 2>&1 || { tail -n 30 "$WORK/build.log" >&2; fail "the build in $1"; }
    make check >"$WORK/check.log" 2>&1 || { tail -n 30 "$WORK/check.log" >&2; fail "the project's tests in $1"; }
    make install DESTDIR="$1/installed" >/dev/null 2>&1 || fail "installation in $1"
    # Programs and documents as installed; dates that are built in lie in the documents only.
    (cd "$1/installed" && find . -type f -perm -100 -print0 | sort -z | xargs -0 sha256sum)
    (cd "$1/installed" && find . -printf '%P %y %m\n' | sort)
    cd /
}
wanted=$(build "$WORK/reference")
same "what is installed" "$wanted" "$(build "$WORK/volume")"
detach volume
check volume
say "RESULT $package: $(grep -E '^# (PASS|TOTAL)' "$WORK/check.log" | paste -sd' ')"
