#!/usr/bin/env bash
# git.sh DIR ASIDE SEED: clone, commits, gc and fsck of a history that lies elsewhere.
set -euo pipefail
dir=$1 aside=$2 seed=$3
export HOME=$aside GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com
if [[ ! -e $aside/origin.git/made ]]; then
    git init -q --bare -b main "$aside/origin.git"
    python3 - <<'PY' | git -C "$aside/origin.git" fast-import --quiet
import random
draw = random.Random(2024)
data = lambda text: print(f"data {len(text.encode())}\n{text}")
for n in range(200):
    print(f"commit refs/heads/main\ncommitter A <a@example.com> {1_700_000_000 + n * 60} +0000")
    data(f"change {n}\n")
    for _ in range(4):
        print(f"M 100644 inline d{draw.randrange(10)}/file-{draw.randrange(60)}.c")
        data("".join(f"line {draw.randrange(1000)} of {n}\n" for _ in range(60)))
    print()
PY
    touch "$aside/origin.git/made"
fi
git clone -q --no-local "$aside/origin.git" "$dir/clone"
cd "$dir/clone"
for n in 1 2 3 4 5; do
    seq "$((seed + n))" "$((seed + n + 500))" >"numbers-$n"
    git add -A
    git commit -q -m "numbers $n"
done
git status --porcelain | { ! grep .; }
git gc -q --prune=now
git fsck --full --strict --no-progress
[[ $(git rev-list --count HEAD) == 205 ]]
[[ $(git rev-parse HEAD~5) == "$(git -C "$aside/origin.git" rev-parse main)" ]]
for n in 1 2 3 4 5; do
    cmp "numbers-$n" <(seq "$((seed + n))" "$((seed + n + 500))")
done
cd /
rm -rf "$dir/clone"
