#!/usr/bin/env bash
# tar.sh DIR ASIDE SEED: a tree is unpacked from an archive, compared with it, copied with cp -a, and packed again.
set -euo pipefail
dir=$1 aside=$2
[[ -e $aside/archive.tar ]] || tar -C /usr/include -cf "$aside/archive.tar" linux
tar -C "$dir" -xf "$aside/archive.tar"
tar -C "$dir" -df "$aside/archive.tar"
cp -a "$dir/linux" "$dir/copy"
diff -r --no-dereference "$dir/linux" "$dir/copy"
diff -r --no-dereference /usr/include/linux "$dir/copy"
tar -C "$dir" --sort=name -cf "$dir/packed.tar" linux
tar -C /usr/include --sort=name -cf "$aside/again.tar" linux
cmp "$aside/again.tar" "$dir/packed.tar"
rm -rf "$dir/linux" "$dir/copy" "$dir/packed.tar"
