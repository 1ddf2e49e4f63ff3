#!/usr/bin/env bash
# SQLite's own test programs, from the sources of the SQLite that is installed, with narufs as their default VFS. The
# databases lie in an image that the program under test serves to itself and to those that it starts: the tests look at
# files by name, and some have several processes. It takes root. docs/doors/SQLITE.md has what came of it.
#
# sqlite-suite.sh LIBRARY WORK WHAT...
#   LIBRARY   libnarufs_sqlite.a with the feature `mortal`
#   WORK      a directory, for sources, programs and logs
#   WHAT      tcl [PATTERN...]: the Tcl tests, each file by itself; atomic [PATTERN...]: the same, of a build with
#             SQLITE_ENABLE_BATCH_ATOMIC_WRITE; plain [PATTERN...]: with SQLite's own VFS, to compare;
#             threads [TEST...]: threadtest3; processes: mptest; speed: speedtest1, its processor time with narufs and with SQLite's
#             own VFS in memory, in turn (LIBRARY without the feature)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
suite=$here/doors/sqlite/suite
library=$(realpath "$1") work=$(mkdir -p "$2" && realpath "$2")
shift 2
jobs=${NARUFS_SUITE_JOBS:-$(nproc)}
# A test file has so long, in seconds.
limit=${NARUFS_SUITE_LIMIT:-900}
export TZ=UTC
# A core would be dumped into the directory that the process itself serves.
ulimit -c 0

sources() { # those of the package that is installed, by apt alone
    local version lists=$work/apt
    [[ -e $work/source/configure ]] && return
    version=$(dpkg-query -W -f '${source:Version}' libsqlite3-0)
    mkdir -p "$lists"/{lists/partial,cache,parts}
    : >"$lists/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ -e $file ]] && sed -n 's/^deb /deb-src /p' "$file" >>"$lists/sources.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ -e $file ]] && sed 's/^Types:.*/Types: deb-src/' "$file" >"$lists/parts/$(basename "$file")"
    done
    local options=(-qq -o "Dir::Etc::sourcelist=$lists/sources.list" -o "Dir::Etc::sourceparts=$lists/parts"
        -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$work" && apt-get "${options[@]}" source "sqlite3=$version" && mv sqlite3-*/ source)
}

build() { # NAME OPTIONS PROGRAM...: what SQLite's makefile has, in WORK/NAME
    local name=$1 options=$2
    shift 2
    [[ -e $work/$name/built-$1 && $work/$name/built-$1 -nt $library ]] && return
    sources
    mkdir -p "$work/$name"
    (
        cd "$work/$name"
        [[ -e Makefile ]] || ../source/configure --enable-all --disable-readline >configure.log 2>&1
        make sqlite3.h >make.log 2>&1
        gcc -O2 -c -I. "$suite/init.c" -o init.o
        rm -f "$@"
        make -j"$jobs" "$@" CFLAGS="-O2 -g" \
            OPTS="-DSQLITE_EXTRA_INIT=narufs_suite_init $options" \
            TLIBS="$PWD/init.o $library -lgcc_s -lutil -lrt -lpthread -lm -ldl -lz" >>make.log 2>&1
        touch "built-$1"
    ) || {
        tail -n 20 "$work/$name"/*.log >&2
        return 1
    }
}

within() { # DIRECTORY COMMAND...: runs it with an image of its own, served at DIRECTORY/mnt
    local place=$1 status=0
    shift
    rm -rf "$place"
    mkdir -p "$place/mnt"
    (
        cd "$place"
        export NARUFS_SQLITE_IMAGE=$place/image NARUFS_SQLITE_SIZE=2G NARUFS_SQLITE_MEMORY=128M
        export NARUFS_SQLITE_AT=$place/mnt NARUFS_SQLITE_SERVE=$place/mnt
        # Mounts and shared memory of its own, which go with it: what is killed leaves an image's staging, and its directory.
        exec unshare --mount bash -c 'mount -t tmpfs none /dev/shm && exec timeout -k 10 "$@"' within "$limit" "$@"
    ) || status=$?
    rm -rf --one-file-system "$place"
    return $status
}

one() { # BUILD KIND FILE: a test file; a log of its own
    local log=$work/$2/${3%.test}.log status=0 place=$work/run/$2-${3%.test}
    local program=("$work/$1/testfixture" "$suite/run.tcl" "$place/mnt" "$work/source/test/permutations.test" "$3")
    if [[ $2 == plain ]]; then
        mkdir -p "$place/mnt"
        (cd "$place" && timeout -k 10 "$limit" "${program[@]}") >"$log" 2>&1 || status=$?
        rm -rf "$place"
    else
        # SQLite's test programs lock other bytes than SQLite does.
        NARUFS_SQLITE_PENDING=65536 within "$place" "${program[@]}" >"$log" 2>&1 </dev/null || status=$?
    fi
    echo "status $status" >>"$log"
}

tcl() { # BUILD KIND PATTERN...: what has failed and is not expected to
    local name=$1 kind=$2 files list
    shift 2
    mkdir -p "$work/$kind" "$work/run"
    rm -f "$work/$kind"/*.log
    list=$(cd "$work/run" && "$work/$name/testfixture" "$suite/list.tcl" "$work/source/test/permutations.test" | grep '\.test$')
    files=$(while read -r file; do
        for pattern in "${@:-*}"; do
            # shellcheck disable=SC2254 # a pattern
            case $file in $pattern) echo "$file" && break ;; esac
        done
    done <<<"$list")
    export -f one within
    export work suite limit
    xargs -P "$jobs" -I{} bash -c "one $name $kind {}" <<<"$files"
    "$suite/results.sh" "$work/$kind" "$suite/expected.txt"
}

threads() { # [TEST...]: each by itself
    local test log failed=0 names
    mkdir -p "$work/run" "$work/threads"
    rm -f "$work/threads"/*.log
    names=$(sed -nE 's/^ *\{ *\w+, *"(\w+)", *[0-9]+ *\},?$/\1/p' "$work/source/test/threadtest3.c")
    for test in ${*:-$names}; do
        log=$work/threads/$test.log
        if within "$work/run/threads" "$work/usual/threadtest3" "$test" >"$log" 2>&1; then
            printf '%s: %s\n' "$test" "$(tail -n 1 "$log")"
        elif grep -q "^threadtest3/$test " "$suite/expected.txt"; then
            printf '%s: %s, as expected\n' "$test" "$(tail -n 1 "$log")"
        else
            printf '%s: FAILED: %s\n' "$test" "$(tail -n 1 "$log")"
            failed=1
        fi
    done
    return $failed
}

processes() {
    local script mode status=0 log
    mkdir -p "$work/run" "$work/processes"
    for script in "$work"/source/mptest/*.test; do
        for mode in delete truncate persist; do
            log=$work/processes/$(basename "$script" .test)-$mode.log
            within "$work/run/processes" "$work/usual/mptester" "$work/run/processes/mnt/test.db" --quiet \
                --journalmode "$mode" "$script" >"$log" 2>&1 || status=1
            printf '%s, journal_mode=%s: %s\n' "$(basename "$script")" "$mode" "$(grep '^Summary' "$log" || tail -n 1 "$log")"
        done
    done
    return $status
}

spent() { # COMMAND...: its processor time, in seconds
    local TIMEFORMAT='%U %S'
    { time "$@" >/dev/null; } 2>&1 | awk '{ print $1 + $2 }'
}

speed() {
    local place round vfs size=${NARUFS_SPEED_SIZE:-50}
    place=$(mktemp -d /dev/shm/narufs-speed.XXXXXX)
    # shellcheck disable=SC2064 # of this place
    trap "rm -rf '$place'" EXIT
    for ((round = 0; round < 5; round++)); do
        for vfs in unix narufs; do
            rm -f "$place"/*
            NARUFS_SQLITE_IMAGE=$place/image NARUFS_SQLITE_SIZE=1G NARUFS_SQLITE_AT=$place \
                spent "$work/usual/speedtest1" --vfs $vfs --size "$size" "$place/a.db" >>"$work/speed.$vfs"
        done
    done
    for vfs in unix narufs; do
        sort -n "$work/speed.$vfs" | awk -v v=$vfs '{ t[NR] = $1 } END {
            printf "speedtest1, %s: %.2f s of processor time (%.2f to %.2f)\n", v, t[int((NR + 1) / 2)], t[1], t[NR] }'
        rm "$work/speed.$vfs"
    done
}

what=${1:-tcl}
[[ $# -gt 0 ]] && shift
case $what in
    atomic)
        build atomic -DSQLITE_ENABLE_BATCH_ATOMIC_WRITE testfixture
        tcl atomic batch "$@"
        ;;
    tcl | plain)
        build usual "" testfixture
        tcl usual "$what" "$@"
        ;;
    threads)
        build usual "" threadtest3
        threads "$@"
        ;;
    processes)
        build usual "" mptester
        processes
        ;;
    speed)
        build usual "" speedtest1
        speed
        ;;
    *)
        echo "narufs: $what: say tcl, atomic, plain, threads, processes or speed" >&2
        exit 2
        ;;
esac
