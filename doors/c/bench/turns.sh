#!/usr/bin/env bash
# Cached overwrites of 4 KiB in C and in Rust, in turn: turns.sh LAID PROGRAM [TURNS]. LAID is what lay.sh has laid, PROGRAM
# the one in Rust. Prints the medians in nanoseconds a call, and their ratio.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
laid=$1 rust=$2 turns=${3:-21}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$laid/lib PKG_CONFIG_PATH=$laid/lib/pkgconfig
# shellcheck disable=SC2046 # words of options
cc -O2 "$here/overwrite.c" -o "$work/overwrite" $(pkg-config --cflags --libs narufs) -pthread
median() { sort -n "$1" | sed -n "$((turns / 2 + 1))p"; }
for threads in 1 2 16; do
    rm -f "$work"/[cr]*.ns
    for ((n = 0; n < turns; n++)); do
        "$work/overwrite" $threads 2000000 >>"$work/c.ns"
        "$rust" $threads 2000000 >>"$work/rust.ns"
    done
    c=$(median "$work/c.ns") rust_ns=$(median "$work/rust.ns")
    echo "$threads threads: C $c ns, Rust $rust_ns ns a call; C has $(awk "BEGIN { printf \"%.3f\", $rust_ns / $c }") of Rust's rate"
done
