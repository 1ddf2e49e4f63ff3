#!/usr/bin/env bash
# rsync -aHAX both ways with checksums: content, modes, owners, times, hard links, extended attributes and access
# lists are kept.
source "$(dirname "$0")/lib.sh"
if [[ $SCALE -ge 10 ]]; then size=12G limit=0; else size=2G limit=40; fi
volume volume "$size"
attach volume
reference "$size"
source=$WORK/reference/source
back=$WORK/reference/back
mkdir "$source"
# Of /usr/share as many directories as make the limit (MiB; 0: all); doc and man have many small files and links.
total=0
for d in /usr/share/man /usr/share/doc /usr/share/perl /usr/share/zoneinfo /usr/share/*; do
    [[ -d $d && ! -L $d && ! -e $source/$(basename "$d") ]] || continue
    mib=$(du -sm "$d" | cut -f1)
    (( limit == 0 || total + mib <= limit )) || continue
    total=$((total + mib))
    cp -a "$d" "$source/"
done
# What /usr/share does not have.
mkdir "$source/odd"
cd "$source/odd"
for i in 1 2 3; do echo "body $i" >"file$i"; ln "file$i" "hard$i"; done
setfattr -n user.note -v "a value" file1
setfattr -n user.binary -v 0x00ff10 file1
setfattr -n trusted.mark -v yes file2
setfacl -m "u:$FIRST:rw,g:$SHARED:r" file2
mkdir lists
setfacl -d -m "u:$SECOND:rwx" lists
chown "$FIRST:$SHARED" file3
chmod 4711 file3
mkfifo pipe
mknod device c 1 3
ln -s "nowhere at all" dangling
touch -d '1985-10-26 01:21:00.123456789' file1
touch -d '2100-01-02 03:04:05.987654321' file2
touch -h -d '2001-01-01 00:00:00.5' dangling
truncate -s 100M sparse
echo end >>sparse
touch "$(printf 'n%.0s' {1..255})" 'with
newline' 'ünïcode'
cd /
# rsync takes times within one second for the same: none may be as young as the copy.
find "$source" -type d -newermt '1 day ago' -exec touch -d '2001-02-03 04:05:06.123456789' {} +

attributes() { # DIR: everything about every file but its content
    (cd "$1" && find . -printf '%P|%y|%m|%U|%G|%s|%n|%TY-%Tm-%Td %TT|%l\n' | grep -v '|d|' | sort &&
        find . -type d -printf '%P|%m|%U|%G|%TY-%Tm-%Td %TT\n' | sort &&
        find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex 2>/dev/null &&
        find . ! -type l -print0 | sort -z | xargs -0 getfacl -n 2>/dev/null)
}
rsync --modify-window=-1 -aHAX --sparse "$source/" "$WORK/volume/copy/"
attributes "$source" >"$WORK/wanted"
attributes "$WORK/volume/copy" >"$WORK/found"
cmp "$WORK/wanted" "$WORK/found" || fail "attributes differ: $(diff "$WORK/wanted" "$WORK/found" | head -20)"
diff -r --no-dereference "$source" "$WORK/volume/copy" | grep -vE '^File .* is a (fifo|character special file)' &&
    fail "the copy differs"
# A second run finds nothing to do, by checksum.
left=$(rsync --modify-window=-1 -aHAXic --sparse --delete "$source/" "$WORK/volume/copy/")
same "what a second rsync does" "" "$left"
detach volume
attach volume
# Back again, read from the device.
rsync --modify-window=-1 -aHAX --sparse "$WORK/volume/copy/" "$back/"
same "what rsync finds on the way back" "" "$(rsync --modify-window=-1 -aHAXicn --delete "$source/" "$back/")"
attributes "$back" >"$WORK/found"
cmp "$WORK/wanted" "$WORK/found" || fail "attributes differ on the way back: $(diff "$WORK/wanted" "$WORK/found" | head -20)"
files=$(find "$WORK/volume/copy" | wc -l)
rm -rf "$WORK/volume/copy"
same "what rm leaves" "" "$(ls -A "$WORK/volume" | grep -vx lost+found || true)"
detach volume
check volume
say "RESULT $files files, $total MiB"
