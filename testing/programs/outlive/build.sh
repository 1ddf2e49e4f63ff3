#!/usr/bin/env bash
# build.sh DIR ASIDE SEED: a C project of some files is built with make -j; the program says what it must, and a second
# make has nothing to do.
set -euo pipefail
dir=$1 seed=$3
mkdir "$dir/tree"
cd "$dir/tree"
files=24 sum=0
for ((n = 0; n < files; n++)); do
    value=$(((seed * 31 + n * 17) % 1000))
    sum=$((sum + value))
    printf '#include "all.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint part_%d(void) { return %d; }\n' "$n" "$value" >"part-$n.c"
    echo "int part_$n(void);" >>all.h
done
{
    printf '#include "all.h"\n#include <stdio.h>\nint main(void) { printf("%%d\\n", 0'
    for ((n = 0; n < files; n++)); do printf ' + part_%d()' "$n"; done
    printf '); return 0; }\n'
} >main.c
cat >Makefile <<'MAKE'
objects := $(patsubst %.c,%.o,$(wildcard *.c))
sum: libparts.a main.o
	$(CC) -o $@ main.o -L. -lparts
libparts.a: $(filter part-%,$(objects))
	$(AR) rcs $@ $^
%.o: %.c all.h
	$(CC) -O1 -c -o $@ $<
MAKE
make -s -j4
[[ $(./sum) == "$sum" ]]
make -q
cd /
rm -rf "$dir/tree"
