#!/usr/bin/env bash
# Puts what `make deb` and `make static` have built, the source that is committed, and what has changed, into
# target/release-VERSION, with checksums. What is not committed is refused, for the archive would be of something else.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
grep -q "^## $version" CHANGELOG.md || { echo "CHANGELOG.md has no section $version" >&2; exit 1; }
grep -q "^narufs ($version-" packaging/debian/changelog || { echo "packaging/debian/changelog has no $version" >&2; exit 1; }
[[ -z "$(git status --porcelain)" ]] || { echo "commit what is changed first: the archive is of the last commit" >&2; exit 1; }

out=target/release-$version
machine=$(uname -m)
rm -rf "$out"
mkdir -p "$out"
cp "target/debian/narufs_$version"-*.deb "$out"
install -m 0755 "target/$machine-unknown-linux-musl/release/narufs" "$out/narufs-$version-$machine-linux-static"
strip "$out/narufs-$version-$machine-linux-static"
git archive --prefix="narufs-$version/" HEAD | gzip -9n >"$out/narufs-$version.tar.gz"
# The section of this version alone.
awk -v version="$version" '/^## / { on = $2 == version } on' CHANGELOG.md >"$out/CHANGES.md"
(cd "$out" && sha256sum -- * >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
ls -l "$out"
