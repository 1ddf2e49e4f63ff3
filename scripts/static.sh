#!/usr/bin/env bash
# Builds one program that needs no library and no other file: for any Linux on this processor. mimalloc is C, for which
# Debian's musl-tools has the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-musl
if ! command -v musl-gcc >/dev/null; then
    [[ $(id -u) -eq 0 ]] || { echo "narufs: musl-gcc is missing: apt-get install musl-tools" >&2; exit 1; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends musl-tools >/dev/null
fi
[[ -d "$(rustc --print target-libdir --target "$target")" ]] || rustup target add "$target"
cargo build --release --locked --target "$target" -p narufs-cli
program=target/$target/release/narufs
if readelf -l "$program" | grep -q INTERP; then
    echo "$program asks for a dynamic linker" >&2
    exit 1
fi
ls -l "$program"
