#!/usr/bin/env bash
# A generated history of thousands of commits through git: fast-import, clone, fsck, gc; every result equals that
# on ext4.
source "$(dirname "$0")/lib.sh"
commits=$((3000 * SCALE))
export HOME=$WORK GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null

# A history with branches, renames, deletions, symbolic links and executable files; the same for each run.
python3 - "$commits" >"$WORK/history" <<'PY'
import random, sys
draw = random.Random(2024)
out = sys.stdout.buffer.write
def data(text):
    body = text.encode()
    out(b"data %d\n%s\n" % (len(body), body))
names = [f"d{draw.randrange(40)}/e{draw.randrange(10)}/file-{i}.c" for i in range(1500)]
for n in range(int(sys.argv[1])):
    branch = "main" if n % 7 or n < 50 else f"topic-{n % 5}"
    out(b"commit refs/heads/%s\n" % branch.encode())
    out(b"committer A U Thor <author@example.com> %d +0000\n" % (1_700_000_000 + n * 60))
    data(f"change {n}\n" + "why it changes " * draw.randrange(20))
    if branch != "main" and n < 50 + 7 * 6:
        out(b"from refs/heads/main\n")
    for name in draw.sample(names, draw.randrange(1, 8)):
        mode = "100755" if draw.randrange(20) == 0 else "100644"
        out(f"M {mode} inline {name}\n".encode())
        data("".join(f"line {draw.randrange(1000)} of {n}\n" for _ in range(draw.randrange(5, 120))))
    if n % 11 == 0:
        out(f"M 120000 inline link-{n % 30}\n".encode())
        data(names[n % len(names)])
    if n % 97 == 96:
        out(f"D {names[draw.randrange(len(names))]}\n".encode())
    out(b"\n")
PY

results() { # DIR: makes the repositories there and prints all that must be equal
    local d=$1
    git init -q --bare -b main "$d/origin.git"
    git -C "$d/origin.git" fast-import --quiet <"$WORK/history"
    git -C "$d/origin.git" fsck --full --strict --no-progress
    git clone -q --no-local "$d/origin.git" "$d/clone"
    cd "$d/clone"
    git fetch -q origin '+refs/heads/*:refs/heads/mine/*'
    git checkout -q -b work main~100
    git merge -q --no-edit main
    git status --porcelain
    git rev-list --all --topo-order | sha256sum
    git ls-tree -r --full-tree HEAD | sha256sum
    git ls-files -s | sha256sum
    find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum
    find . -path ./.git -prune -o -printf '%P %y %m %l\n' | sort | sha256sum
    git gc -q --prune=now 2>&1
    git fsck --full --strict --no-progress
    git rev-list --all --objects --topo-order | sort | sha256sum
    git -C "$d/origin.git" repack -a -d -q
    git -C "$d/origin.git" count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
    git worktree add -q "$d/tree" main~500
    find "$d/tree" -type f | wc -l
    git grep -c 'line 7 of' main~10 | sha256sum
    cd /
}
volume volume 4G
attach volume
reference 4G
reference_results=$(results "$WORK/reference")
same "git" "$reference_results" "$(results "$WORK/volume")"
detach volume
attach volume
git -C "$WORK/volume/clone" fsck --full --strict --no-progress
git -C "$WORK/volume/clone" status --porcelain | head -n 1 | grep . && fail "the work tree changed by a remount"
detach volume
check volume
say "RESULT $commits commits"
