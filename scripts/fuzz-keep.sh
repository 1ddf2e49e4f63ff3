#!/usr/bin/env bash
# Keeps what fuzzers have learned: of each corpus, fuzz/seeds added, the few inputs that reach all that it reaches become
# fuzz/seeds/TARGET.tar.xz, with which `fuzz.sh` begins. After `fuzz.sh`, which builds the targets.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
source ../scripts/fuzz-corpus.sh
target=$(rustc -vV | sed -n 's/^host: //p')

keep() { # NAME
    local name=$1 program=target/$target/release/$1 kept log=artifacts/$1/kept
    [[ -x $program ]] || { echo "$name: not built: run scripts/fuzz.sh first" >&2; return 1; }
    corpus "$name"
    mkdir -p seeds "artifacts/$name"
    kept=$(mktemp -d)
    # shellcheck disable=SC2064 # this directory
    trap "rm -rf '$kept'" RETURN
    if ! "$program" -set_cover_merge=1 -timeout=25 -rss_limit_mb=1024 "$kept" "corpus/$name" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        return 1
    fi
    tar -C "$kept" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 -cf - . | xz -9e >"seeds/$name.tar.xz.new"
    mv "seeds/$name.tar.xz.new" "seeds/$name.tar.xz"
    echo "$name: $(find "corpus/$name" -type f | wc -l) inputs, of which $(find "$kept" -type f | wc -l) are kept in $(stat -c %s "seeds/$name.tar.xz") bytes"
}

export -f keep
export target
printf '%s\n' "${@:-fsck mount left requests}" | xargs -n 1 | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'keep {}'
