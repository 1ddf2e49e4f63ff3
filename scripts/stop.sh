#!/usr/bin/env bash
# Unmounts what `make run` left at ./mnt and removes its image.
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in mnt target/demo/nvm; do
    if grep -qs " $PWD/$dir " /proc/self/mountinfo; then
        target/release/narufs umount "$dir" || umount -l "$dir"
    fi
done
[[ ! -d mnt ]] || rmdir mnt
rm -rf target/demo
