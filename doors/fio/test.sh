#!/usr/bin/env bash
# Whether fio finds what it has written by its engine for narufs: test.sh LAID. LAID is what doors/c/lay.sh has laid. It
# verifies what is written at once and with a queue, and what was durable when it is killed in the midst of writing; and
# it is refused where it cannot work.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
laid=$(realpath "$1")
mkdir -p "$here/../../target/fio"
work=$(mktemp -d "$here/../../target/fio/test.XXXXXX")
trap 'rm -rf "$work" "$laid/lib/other-fio.so"' EXIT
# Without fio's sources there is no engine to be tried.
if ! engine=$("$here/build.sh" "$laid" "$laid/lib"); then
    [[ ! -e $here/../../target/fio/fetch/parts ]] || { echo "RESULT fio's sources cannot be had: not tried"; exit 0; }
    exit 1
fi

fail() { # WHAT: with what fio has said
    echo "test.sh: $1" >&2
    tail -n 40 "$work/said" >&2
    exit 1
}

job() { # ENGINE OPTIONS...: what it says goes into a file
    local engine=$1
    shift
    fio --name=job "--ioengine=external:$engine" "--aux-path=$work" "--image=$work/image" --bs=4k --size=16M \
        --verify=crc32c --verify_fatal=1 "$@" >"$work/said" 2>&1 </dev/null
}

refused() { # WORDS ENGINE OPTIONS...
    local words=$1
    shift
    ! job "$@" || fail "fio is not refused: $words"
    [[ $(grep -c "narufs: .*$words" "$work/said") == 1 ]] || fail "it does not say: $words"
}

job "$engine" --thread=1 --image_size=512M --rw=randrw --fsync=8 || fail "written and read"
job "$engine" --thread=1 --rw=randwrite --sync=1 --iodepth=16 || fail "written with a queue"
job "$engine" --thread=1 --rw=randwrite --numjobs=4 --fdatasync=1 || fail "written by four jobs"

# A job that begins when the file system is not used any more finds what the one before has left.
stonewall=(--thread=1 --image_size=512M --filename=kept --verify=pattern --verify_pattern=0x5a --do_verify=0
    --rw=write --name=then --stonewall --thread=1 "--ioengine=external:$engine" "--image=$work/image" --image_size=512M
    --bs=4k --size=16M --filename=kept --verify=pattern --verify_pattern=0x5a --verify_fatal=1 --rw=read)
job "$engine" "${stonewall[@]}" || fail "read by a job after a stonewall"

# It says how far it has come, and is gone.
printf '#!/usr/bin/env bash\nkill -KILL "$(cat %q)"\n' "$work/pid" >"$work/trigger"
chmod 700 "$work/trigger"
killed=0
for seed in 1 2 3; do
    kill_at=(--randseed="$seed" --size=128M --thread=1 --rw=randwrite --sync=1)
    rm -f "$work"/*-verify.state
    status=0
    ( # of which bash says that it was killed
        echo "$BASHPID" >"$work/pid"
        exec fio --name=job "--ioengine=external:$engine" "--aux-path=$work" "--image=$work/image" --bs=4k \
            --verify=crc32c "${kill_at[@]}" --do_verify=0 --verify_state_save=1 --trigger-timeout=1 \
            --trigger="$work/trigger"
    ) >"$work/said" 2>&1 </dev/null || status=$?
    [[ $status == 137 ]] || fail "it was to be killed: $status"
    killed=$((killed + 1))
    job "$engine" "${kill_at[@]}" --verify_only --verify_state_load=1 || fail "verified after the kill"
done

refused "add thread=1" "$engine"
version=$(fio --version)
sed "s/$version/${version//[0-9]/0}/" "$engine" >"$laid/lib/other-fio.so"
refused "build it anew" "$laid/lib/other-fio.so" --thread=1
echo "RESULT fio verified what it wrote, and what was durable at $killed kills"
