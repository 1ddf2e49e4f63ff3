#!/usr/bin/env bash
# Two users and their private directories. What one user has looked up lies in the kernel's cache of names, which
# asks nobody again: the other must be refused all the same, before and after, with and without
# permissions=server, whichever way requests come. Supplementary groups count, and only for those who have them.
source "$(dirname "$0")/lib.sh"

refused() { # UID WHAT COMMAND...
    local uid=$1 what=$2
    shift 2
    if user "$uid" -- "$@" >"$WORK/out" 2>&1; then fail "$what: user $uid was let in"; fi
    grep -q 'Permission denied' "$WORK/out" || fail "$what: $(cat "$WORK/out")"
}
allowed() { # UID WHAT COMMAND...
    local uid=$1 what=$2
    shift 2
    user "$uid" -- "$@" >"$WORK/out" 2>&1 || fail "$what: user $uid was refused: $(cat "$WORK/out")"
}

ways=(transport=dev)
# Root turns it on by asking for it.
[[ ! -w /sys/module/fuse/parameters/enable_uring ]] || ways+=(transport=uring)
for options in "${ways[@]}" "${ways[@]/#/permissions=server,}"; do
    volume volume 512M --force
    attach volume "$options"
    v=$WORK/volume
    chmod 755 "$v"
    for uid in $FIRST $SECOND; do
        mkdir -p "$v/home-$uid"
        chown "$uid:$uid" "$v/home-$uid"
        chmod 700 "$v/home-$uid"
        user "$uid" -- bash -c "mkdir -p $v/home-$uid/a/b && echo secret >$v/home-$uid/a/b/file"
        # Nothing but the outermost directory protects what is below.
        user "$uid" -- chmod -R go+rwX "$v/home-$uid/a"
    done

    # Three times: with nothing cached, with everything cached by its owner, and after the refusals.
    for round in 1 2 3; do
        [[ $round -ne 1 ]] || { detach volume; attach volume "$options"; }
        for uid in $FIRST $SECOND; do
            other=$((FIRST + SECOND - uid))
            [[ $round -eq 1 ]] || allowed "$other" "own file" cat "$v/home-$other/a/b/file"
            for command in "cat" "stat" "ls" "rm -f" "touch" "truncate -s0" "getfattr -d" "readlink -e"; do
                # readlink says nothing, it only fails.
                if [[ $command == readlink* ]]; then
                    ! user "$uid" -- $command "$v/home-$other/a/b/file" || fail "readlink walks through 0700"
                else
                    refused "$uid" "$command through 0700" $command "$v/home-$other/a/b/file"
                fi
            done
            refused "$uid" "list of 0700" ls "$v/home-$other"
            refused "$uid" "creation in 0700" touch "$v/home-$other/new"
            refused "$uid" "rename out of 0700" mv "$v/home-$other/a" "$v/home-$uid/stolen"
            refused "$uid" "link out of 0700" ln "$v/home-$other/a/b/file" "$v/home-$uid/stolen"
            [[ $(user "$other" -- cat "$v/home-$other/a/b/file") == secret ]] || fail "the owner's file changed"
        done
    done

    # A directory that is closed after others have been inside.
    mkdir -m 755 "$v/closing"
    echo text >"$v/closing/file"
    allowed "$FIRST" "an open directory" cat "$v/closing/file"
    chmod 700 "$v/closing"
    refused "$FIRST" "a directory closed meanwhile" cat "$v/closing/file"
    chmod 755 "$v/closing"
    allowed "$FIRST" "a directory opened again" cat "$v/closing/file"
    # The same by access list, in both directions.
    setfacl -m "u:$FIRST:---" "$v/closing"
    refused "$FIRST" "an access list that forbids" cat "$v/closing/file"
    allowed "$SECOND" "an access list about another" cat "$v/closing/file"
    setfacl -b -m "u:$SECOND:rx" "$v/closing"
    chmod 750 "$v/closing"
    refused "$FIRST" "a directory without an entry for the user" cat "$v/closing/file"
    allowed "$SECOND" "an access list that allows" cat "$v/closing/file"

    # Supplementary groups.
    mkdir "$v/shared"
    chgrp "$SHARED" "$v/shared"
    chmod 2770 "$v/shared"
    user "$FIRST" "$SHARED" -- bash -c "echo group >$v/shared/file" || fail "a member of the group was refused"
    [[ $(stat -c %g "$v/shared/file") == "$SHARED" ]] || fail "a setgid directory gives its group"
    user "$SECOND" "$SHARED" -- cat "$v/shared/file" >/dev/null || fail "another member was refused"
    refused "$SECOND" "the same user without the group" cat "$v/shared/file"
    refused "$SECOND" "the same user without the group" touch "$v/shared/other"
    user "$FIRST" "$SHARED" -- chgrp "$SHARED" "$v/home-$FIRST/a/b/file" || fail "chgrp to a group one has"
    if user "$FIRST" -- chgrp "$SHARED" "$v/home-$FIRST" 2>/dev/null; then fail "chgrp to a foreign group"; fi

    # Sticky: one's own only.
    mkdir -m 1777 "$v/tmp"
    user "$FIRST" -- touch "$v/tmp/of-first"
    if user "$SECOND" -- rm -f "$v/tmp/of-first" 2>/dev/null; then fail "a sticky directory lets others remove"; fi
    user "$FIRST" -- rm "$v/tmp/of-first"
    # A writer who is not the owner clears setuid and setgid.
    cp /bin/true "$v/tmp/program"
    chmod 6777 "$v/tmp/program"
    user "$SECOND" -- bash -c "echo >>$v/tmp/program"
    [[ $(stat -c %a "$v/tmp/program") == 777 ]] || fail "a write by another user keeps setuid"
    detach volume
    check volume
done
