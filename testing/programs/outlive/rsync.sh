#!/usr/bin/env bash
# rsync.sh DIR ASIDE SEED: a tree with links, attributes and access lists is copied and compared by checksum, changed and
# copied again.
set -euo pipefail
dir=$1 aside=$2 seed=$3
tree=$aside/tree
if [[ ! -e $aside/made ]]; then
    mkdir "$tree"
    cp -a /usr/share/zoneinfo "$tree/"
    (cd "$tree" && for n in 1 2 3; do echo "body $n" >"file$n"; ln "file$n" "hard$n"; done)
    setfattr -n user.note -v "a value" "$tree/file1"
    setfacl -m u:1234:rw "$tree/file2"
    mkfifo "$tree/pipe"
    ln -s "nowhere at all" "$tree/dangling"
    truncate -s 10M "$tree/sparse"
    echo end >>"$tree/sparse"
    touch "$aside/made"
fi
copy() {
    rsync --modify-window=-1 -aHAX --sparse --delete "$tree/" "$dir/copy/"
    left=$(rsync --modify-window=-1 -aHAXic --sparse --delete "$tree/" "$dir/copy/")
    [[ -z $left ]] || { echo "left to do: $left"; exit 1; }
}
copy
seq "$seed" "$((seed + 1000))" >"$tree/changed"
echo "$seed" >>"$tree/file3"
copy
rm -rf "$dir/copy"
