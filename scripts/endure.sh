#!/usr/bin/env bash
# Everyday life, for long: `endure.sh SECONDS` (21600) has programs work on an image (testing/programs/outlive: fio, git, a
# build, SQLite, PostgreSQL, rsync, tar; each compares its results) and on scratch space, in lives of one mount each.
#
# A life: a server that is killed, and upgraded, while all programs work at a time; then one that is left alone, by which
# programs work again. Trees that were written and synced before are compared whenever something has happened; one of them
# is replaced in each life. The image is filled to the brim and emptied, mounted read-only for a moment, trimmed, made larger.
# Every second life ends by an unmount, the others by a kill of all that serves, amid writes that are answered when they are
# durable, with the journal's memory lost as well in every fourth, as with a loss of power. Either way the image is checked.
# An image that has become too large is copied into a new one. The scratch space is one for all of it, and its server too.
#
# What must be flat is written down at the end of each life: memory, descriptors and threads of servers and supervisor, space
# and inodes in use, what the image and shared memory take. With the same options the last lives may have no more than the
# first (`testing/programs/endure/flat.py` says how much is no more). A line of $ENDURE_LOG (target/endure.tsv) for each.
source "$(dirname "$0")/../testing/programs/lib.sh"
limit=${1:-21600}
RANDOM=${NARUFS_SEED:-1}
programs=(fio git build sqlite postgres rsync tar)
ways=(noatime memory=64M,noatime io=direct,memory=64M io=cached,memory=64M permissions=server,memory=64M)
first_mib=768 most_mib=1024
census=${ENDURE_LOG:-$TARGET/endure.tsv}
beside=$ROOT/testing/programs/endure
dir=$WORK/image
kept=4 life=0
declare -A did=([programs]=0 [kills]=0 [upgrades]=0 [recoveries]=0 [power]=0 [remounts]=0 [growths]=0 [fills]=0 [trees]=0 [checks]=0 [copies]=0)
count() { did[$1]=$((did[$1] + ${2:-1})); }

# A moment of up to so many milliseconds.
a_moment() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }

# Synced trees, and what they must be.
plant() { # PLACE NUMBER SEED: replaced by one that is whole
    python3 "$beside/plant.py" "$1" "$2" "$3" >"$WORK/wanted.$(basename "$1").$2.new"
    mv "$WORK/wanted.$(basename "$1").$2.new" "$WORK/wanted.$(basename "$1").$2"
}
compare() { # PLACE WHEN
    local number
    for number in $(seq 0 $((kept - 1))); do
        same "tree $number in $(basename "$1") $2" "$(<"$WORK/wanted.$(basename "$1").$number")" \
            "$(python3 "$beside/plant.py" "$1" "$number")"
        count trees
    done
}

# All programs at a time, each in a directory of its own, which it leaves empty.
declare -A working=()
work() {
    local name
    for name in "${programs[@]}"; do
        mkdir -p "$dir/work/$name" "$WORK/aside/$name"
        chmod 755 "$dir/work" "$dir/work/$name" "$WORK/aside" "$WORK/aside/$name"
        "$ROOT/testing/programs/outlive/$name.sh" "$dir/work/$name" "$WORK/aside/$name" $((life * 100 + RANDOM % 100)) \
            >"$WORK/aside/$name.log" 2>&1 &
        working[$name]=$!
        started $!
    done
}
worked() {
    local name
    for name in "${!working[@]}"; do
        await "${working[$name]}" || { tail -n 40 "$WORK/aside/$name.log"; fail "life $life: $name failed"; }
        count programs
    done
    working=()
}
is_working() {
    local pid
    for pid in "${working[@]}"; do
        [[ ! -e /proc/$pid ]] || [[ $(awk '/^State/ { print $2 }' "/proc/$pid/status" 2>/dev/null) == Z ]] || return 0
    done
    return 1
}

disturbed() { # while programs work: kills of the server, and upgrades
    while is_working; do
        a_moment 900
        if ((RANDOM % 8 == 0)); then
            "$NARUFS" upgrade "$dir" >"$WORK/upgrade.log" 2>&1 || { cat "$WORK/upgrade.log"; fail "life $life: narufs upgrade"; }
            count upgrades
        else
            end "${SERVER[$dir]}"
            count kills
        fi
        # Answered once another serves.
        served image
    done
}

# With io=cached the kernel has told who wrote it of a page that found no room, and tells the next sync as well, once.
synced() {
    "$NARUFS" sync "$dir" 2>/dev/null || "$NARUFS" sync "$dir"
}

fill() {
    local before after
    # What was removed before is on its way still.
    synced
    before=$(stat -f -c '%b %f' "$dir")
    python3 "$beside/fill.py" "$dir/brim" $((life * 1000)) || fail "life $life: filling it to the brim"
    compare "$dir/kept" "when it was full"
    rm -rf "$dir/brim"
    synced
    after=$(stat -f -c '%b %f' "$dir")
    python3 - "$before" "$after" <<'PY' || fail "life $life: after it was full it has '$after' blocks, and free ones, '$before' before"
import sys
(blocks, free), (blocks_after, free_after) = (map(int, text.split()) for text in sys.argv[1:])
# Extent and directory blocks that grew with the rest may be kept.
sys.exit(blocks != blocks_after or abs(free - free_after) > 64)
PY
    count fills
}

remount() {
    "$NARUFS" mount -o remount,ro "$dir" || fail "life $life: remounting it read-only"
    if touch "$dir/may-not" 2>/dev/null; then fail "life $life: a read-only mount was written to"; fi
    compare "$dir/kept" "mounted read-only"
    "$NARUFS" mount -o remount,rw "$dir" || fail "life $life: remounting it to write"
    count remounts
}

grow() {
    "$NARUFS" resize "$dir" +16M --sparse >/dev/null || fail "life $life: growing it"
    count growths
}

checked() {
    check image
    count checks
}

# The end by a kill of all that serves: what was answered as synced is there, whatever else is.
broken_off() { # OPTIONS
    # What the life before was answered may be seen until the writer's shell has run.
    : >"$WORK/answered"
    python3 "$beside/log.py" "$dir/log" >>"$WORK/answered" 2>/dev/null &
    local writer=$! other
    started "$writer"
    (cd "$dir" && mkdir -p lost && while tar -xf "$WORK/aside/tar/archive.tar" -C lost && rm -rf lost/linux; do :; done) >/dev/null 2>&1 &
    other=$!
    started "$other"
    until [[ -s $WORK/answered ]]; do kill -0 "$writer" || fail "life $life: nobody wrote the log"; a_moment 100; done
    a_moment 999
    crash image
    await "$writer" || true
    await "$other" || true
    count recoveries
    if ((life % 4 == 0)); then
        rm -f "$(staging image)"
        count power
    fi
    attach image "$1"
    python3 "$beside/log.py" "$dir/log" "$(tail -n 1 "$WORK/answered")" || fail "life $life: what the log had been answered for"
    rm -rf "$dir/log" "$dir/lost"
    compare "$dir/kept" "after it was killed"
    detach image
    checked
}

# Into a new image: of the size that it had first.
moved() {
    volume next ${first_mib}M
    attach image noatime
    attach next noatime
    cp -a "$dir/kept" "$WORK/next/"
    detach next
    detach image
    mv "$WORK/next.img" "$WORK/image.img"
    rmdir "$WORK/next"
    attach image noatime
    compare "$dir/kept" "copied into a new image"
    detach image
    checked
    count copies
}

# What the kernel has not let go of yet is in use still: until nothing but the trees is, a minute at the most. What stays
# longer shows in the line.
settled() {
    local wanted begin=$SECONDS
    # A hard link of each directory of files has no inode of its own; nor is the image's root found below it.
    wanted=$(find "$dir" -printf '%i\n' | sort -u | wc -l)
    until (($(stat -f -c '%c - %d' "$dir") <= wanted || SECONDS > begin + 60)); do a_moment 200; done
}

line() {
    local mib
    mib=$(($(stat -c %s "$WORK/image.img") >> 20))
    python3 "$beside/flat.py" take "$census" "$SECONDS" "$life" "$way" "$mib" "${SERVER[$dir]}" "${SUPERVISOR[$dir]}" \
        "${SERVER[$WORK/scratch]}" "$dir" "$WORK/image.img" "$(staging image)" "$WORK/scratch"
}

live() {
    way=${ways[life % ${#ways[@]}]}
    life=$((life + 1))
    attach image "$way"
    # A server that is killed, and those after it.
    work
    disturbed
    worked
    compare "$dir/kept" "with servers killed"
    plant "$dir/kept" $((life % kept)) $((life + kept))
    # One that is left alone.
    detach image
    attach image "$way"
    work
    worked
    fill
    remount
    grow
    plant "$WORK/scratch" $((life % kept)) $((life + kept))
    compare "$WORK/scratch" "in life $life"
    rm -rf "$dir/work"
    compare "$dir/kept" "at the end of life $life"
    "$NARUFS" trim "$dir" >/dev/null || fail "life $life: trimming it"
    synced
    settled
    line
    if ((life % 2 == 0)); then
        broken_off "$way"
    else
        detach image
        checked
    fi
    (($(stat -c %s "$WORK/image.img") >> 20 < most_mib)) || moved
    say "$(printf '%5d s  life %d (%s): %d programs, %d kills, %d trees compared so far' "$SECONDS" "$life" "$way" \
        "${did[programs]}" "${did[kills]}" "${did[trees]}")"
}

rm -f "$census"
mkdir -p "$(dirname "$census")" "$dir"
volume image ${first_mib}M
scratch scratch memory=48M,spill_size=256M
attach image noatime
for number in $(seq 0 $((kept - 1))); do
    plant "$dir/kept" "$number" "$number"
    plant "$WORK/scratch" "$number" "$number"
done
detach image
# Each way twice at the least: with fewer nothing could be compared.
until ((SECONDS >= limit && life >= 2 * ${#ways[@]})); do live; done
summary=$(for what in programs kills upgrades recoveries power remounts growths fills copies checks trees; do
    printf '%s %s, ' "${did[$what]}" "$what"
done)
say "RESULT $life lives in $SECONDS s: ${summary%, }"
python3 "$beside/flat.py" judge "$census" || fail "something has grown: $census"
